"""Workspaces of a server and their files, through the client."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile

import pytest
import sandtimer


@pytest.fixture
def client(server: str) -> sandtimer.Client:
    return sandtimer.Client(server)


def test_files_outlive_the_runs_that_work_on_them(client: sandtimer.Client) -> None:
    workspace = client.workspace()
    files = workspace.files
    files.write("in/ä b.txt", "grüße\n", parents=True, mode="0640")
    outcome = client.run("tr a-z A-Z < 'in/ä b.txt' > out; cat out", workspace=workspace)
    assert outcome.ok and files.read("out").decode() == outcome.stdout
    files.append("out", b"\xff\0")
    assert (files.read("out")[-2:], files.read("out", offset=1, length=1)) == (b"\xff\0", b"R")
    listed = [(entry["path"], entry["type"]) for entry in files.list(recursive=True)]
    assert listed == [("in", "directory"), ("in/ä b.txt", "file"), ("out", "file")]
    with pytest.raises(sandtimer.ServerError) as refused:
        files.write("out", "x", create_only=True)
    assert refused.value.code == "file_exists"
    files.mkdir("a/b", parents=True)
    assert files.move("out", "a/b/moved")["path"] == files.stat("a/b/moved")["path"] == "a/b/moved"
    files.delete("a", recursive=True)
    with pytest.raises(sandtimer.ServerNotFoundError):
        files.read("a/b/moved")
    with pytest.raises(sandtimer.ServerError):
        files.read("../x")
    assert workspace.id in [each["workspace_id"] for each in client.workspaces()]
    with client.context(workspace=workspace.id) as ctx:
        assert ctx.run("open('in/ä b.txt').read()").value == "grüße\n"
    assert client.attach_workspace(workspace.id).info()["files"] == 2
    workspace.delete()
    with pytest.raises(sandtimer.ServerNotFoundError):
        workspace.info()


def test_large_files_come_whole(client: sandtimer.Client) -> None:
    workspace = client.workspace()
    content = os.urandom(12 << 20)
    assert workspace.files.write("large", content)["size"] == len(content)
    assert workspace.files.read("large") == content
    # One that leaves in the middle leaves nothing behind.
    assert content.startswith(next(workspace.files.stream("large")))
    workspace.delete()


def test_listings_are_turned_page_by_page(client: sandtimer.Client) -> None:
    with client.session() as shell:
        shell.run("for i in $(seq 1500); do : > f$i; done")
        assert sorted(entry["path"] for entry in shell.files.list()) == sorted(f"f{number}" for number in range(1, 1501))


def test_changes_are_told(client: sandtimer.Client) -> None:
    with client.context() as ctx:
        changes = ctx.files.watch()
        assert next(changes)["event"] == "ready"
        ctx.run("open('made', 'w').close()")
        change = next(changes)
        assert (change["event"], change["path"]) == ("created", "made")
        changes.close()  # type: ignore[attr-defined]


def test_changes_of_a_tree_are_told(client: sandtimer.Client) -> None:
    with client.context() as ctx:
        ctx.files.mkdir("a/b", parents=True)
        changes = ctx.files.watch(recursive=True)
        assert next(changes)["directories"] == 3
        ctx.run("open('a/b/made', 'w').close()")
        change = next(changes)
        assert (change["event"], change["path"]) == ("created", "a/b/made")
        changes.close()  # type: ignore[attr-defined]


def test_directories_come_and_go_as_archives(client: sandtimer.Client) -> None:
    files = client.workspace().files
    files.write("in/run.sh", "#!/bin/sh\n", parents=True, mode="0755")
    archive = b"".join(files.archive("in"))
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        assert [(each.name, each.mode) for each in opened] == [("run.sh", 0o755)]
    assert files.extract(archive, "out/copy", parents=True)["members"] == 1
    assert (files.read("out/copy/run.sh"), files.stat("out/copy/run.sh")["mode"]) == (b"#!/bin/sh\n", "0755")
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w") as opened:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        opened.addfile(link)
    with pytest.raises(sandtimer.ServerError) as refused:
        files.extract(evil.getvalue())
    assert refused.value.code == "path_outside"
    assert files.extract(evil.getvalue(), links="keep")["members"] == 1
    with pytest.raises(sandtimer.ServerError):
        files.read("link")


def test_files_can_be_awaited(client: sandtimer.Client) -> None:
    async def main() -> None:
        workspace = await client.aworkspace()
        files = workspace.files
        await files.awrite("a", "1")
        await files.aappend("a", "2")
        await files.amkdir("d")
        await files.amove("a", "d/a")
        assert (await files.aread("d/a"), (await files.astat("d/a"))["size"]) == (b"12", 2)
        assert [entry["path"] async for entry in files.alist(recursive=True)] == ["d", "d/a"]
        assert [piece async for piece in files.astream("d/a")] == [b"12"]
        archive = b"".join([piece async for piece in files.aarchive("d")])
        assert (await files.aextract(archive, "e", parents=True))["members"] == 1
        await files.adelete("e", recursive=True)
        async for change in files.awatch("d"):
            if change["event"] == "ready":
                await files.adelete("d/a")
            if change["event"] == "deleted":
                break
        assert (await client.arun("ls d | wc -l", workspace=workspace)).stdout.strip() == "0"
        assert (await workspace.ainfo())["files"] == 1 and await client.aworkspaces()
        await workspace.adelete()

    asyncio.run(asyncio.wait_for(main(), 60))
