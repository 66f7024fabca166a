"""Snapshots, forks and templates by the client of a server and by the command line."""

from __future__ import annotations

import asyncio
import io
import pathlib
import socket
import subprocess
import tarfile
import threading
import time
import tracemalloc
import uuid

import pytest
import sandtimer
from serving import BINARY, Serving


@pytest.fixture
def client(server: str) -> sandtimer.Client:
    return sandtimer.Client(server)


def command(server: str, *words: str) -> subprocess.CompletedProcess[str]:
    line = [BINARY, *words[:2], "--server", server, *words[2:]]
    return subprocess.run(line, capture_output=True, text=True, timeout=60)


def test_snapshot_and_forks_change_alone(client: sandtimer.Client) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    with client.sandbox() as box:
        box.run("echo one >file", timeout=20.0)
        assert box.snapshot(name) == name
        box.run("echo two >file", timeout=20.0)
        forks = box.fork(2)
        assert forks[0].run("echo three >file", timeout=20.0).ok
        assert [each.run("cat file", timeout=20.0).stdout for each in [box, *forks]] == ["two\n", "three\n", "two\n"]
        with client.sandbox(name) as other:
            assert other.run("cat file", timeout=20.0).stdout == "one\n"
            client.delete_template(name)
            assert other.run("cat file", timeout=20.0).stdout == "one\n"
        for fork in forks:
            fork.delete()
        run = box.start("sleep 60", timeout=60.0)
        with pytest.raises(sandtimer.ServerError, match=run.id) as busy:
            box.fork()
        assert (busy.value.code, busy.value.retryable) == ("sandbox_busy", True)
    client.delete_template(name)
    assert name not in [each["name"] for each in client.templates()]


def test_templates_are_awaited(client: sandtimer.Client) -> None:
    async def main() -> list[str]:
        async with await client.asandbox() as box:
            await box.arun("echo one >file", timeout=20.0)
            name = await box.asnapshot()
            assert name in [each["name"] for each in await client.atemplates()]
            made = [*await box.afork(), await client.asandbox(name)]
            await client.adelete_template(name)
            said = [(await each.arun("cat file", timeout=20.0)).stdout for each in made]
            await asyncio.gather(*(each.adelete() for each in made))
            return said

    assert asyncio.run(main()) == ["one\n", "one\n"]


def test_command_line_makes_templates_and_forks(server: str) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    box_id = command(server, "sandbox", "create").stdout.strip()
    command(server, "sandbox", "exec", box_id, "--", "sh", "-c", "echo kept >file")
    made = command(server, "sandbox", "snapshot", box_id, "--name", name)
    assert (made.returncode, made.stdout) == (0, f"{name}\n"), made
    forks = command(server, "sandbox", "fork", box_id, "--count", "2").stdout.split()
    of = command(server, "sandbox", "create", "--template", name).stdout.strip()
    for each in [*forks, of]:
        assert command(server, "sandbox", "exec", each, "cat", "file").stdout == "kept\n"
    assert any(line.split()[:2] == [name, "snapshot"] for line in command(server, "template", "list").stdout.splitlines())
    again = command(server, "sandbox", "snapshot", box_id, "--name", name)
    assert again.returncode == 125 and "template_exists" in again.stderr and name in again.stderr, again
    assert command(server, "template", "delete", name).stdout == "deleted\n"
    odd = command(server, "template", "delete", "../runs")
    assert odd.returncode == 125 and "sandtimer template list" in odd.stderr, odd
    for each in [*forks, of, box_id]:
        assert command(server, "sandbox", "delete", each).returncode == 0


def test_killed_server_keeps_what_was_stacked(tmp_path: pathlib.Path) -> None:
    """It is killed while snapshots and forks are made: each file that a run wrote is there, and no layer is left over."""
    serving = Serving(tmp_path)
    box_id = sandtimer.Client(serving.url).sandbox().id
    written = 0
    for kills in range(4):
        client = sandtimer.Client(serving.url)
        box = client.attach_sandbox(box_id)
        begun = threading.Event()

        def stack(box: sandtimer.ClientSandbox = box, begun: threading.Event = begun) -> None:
            nonlocal written
            try:
                while True:
                    assert box.run(f"echo {written} >file-{written}", timeout=20.0).ok
                    written += 1
                    box.snapshot() if written % 2 else box.fork(2)
                    begun.set()
            except sandtimer.ServerError:
                begun.set()

        stacking = threading.Thread(target=stack)
        stacking.start()
        assert begun.wait(30.0)
        time.sleep(0.02 * kills)  # another step each time
        serving.crash()
        stacking.join(60.0)
        assert not stacking.is_alive()
        serving.launch()
        client = sandtimer.Client(serving.url)
        box = client.attach_sandbox(box_id)
        there = {int(number) for number in box.run("cat file-*", timeout=20.0).stdout.split()}
        assert set(range(written)) <= there, (written, there)
        written = max(written, len(there))
        for template in client.templates()[1:]:
            client.delete_template(template["template_id"])
        for each in client.sandboxes():
            if each["sandbox_id"] != box_id:
                client.attach_sandbox(each["sandbox_id"]).delete()
    layers = set(box.info()["layers"])
    box.delete()
    serving.stop()
    assert layers
    left = sorted(path.name for path in (tmp_path / "state" / "sandboxes").glob("*/*"))
    assert left == [], left


def root_tree(parent: pathlib.Path) -> pathlib.Path:
    """A root tree that is enough for a shell."""
    root = parent / "tree"
    script = (
        "set -e; mkdir -p $0/bin $0/etc; cd $0; for tool in sh cat; do path=$(readlink -f $(command -v $tool)); cp $path bin/$tool; "
        "for library in $(ldd $path | grep -o '/[^ )]*'); do mkdir -p .$(dirname $library); cp -L $library .$library; done; done; "
        "echo root:x:0:0:root:/root:/bin/sh >etc/passwd; echo imported >etc/name"
    )
    subprocess.run(["sh", "-c", script, str(root)], check=True, timeout=60)
    return root


def test_changes_and_archives_come_back(client: sandtimer.Client, tmp_path: pathlib.Path) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    packed = tmp_path / "tree.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(root_tree(tmp_path), ".")
    assert client.import_template(name, packed)["members"] > 5
    with client.sandbox(name) as box:
        assert box.run(["sh", "-c", "cat /etc/name; echo 42 >answer"], timeout=20.0).stdout == "imported\n"
        assert [(each["path"], each["change"]) for each in box.diff()] == [("/workspace/answer", "added")]
        with tarfile.open(fileobj=io.BytesIO(b"".join(box.export(changes=True)))) as archive:
            assert archive.getnames() == ["workspace/answer"]

        async def exported() -> bytes:
            return b"".join([piece async for piece in box.aexport()])

        with tarfile.open(fileobj=io.BytesIO(asyncio.run(exported()))) as archive:
            assert {"etc/name", "workspace/answer"} <= set(archive.getnames())
    client.delete_template(name)
    with pytest.raises(sandtimer.ServerError) as broken:
        client.import_template(name, b"not an archive")
    assert broken.value.code == "bad_archive"


def test_archive_is_sent_in_pieces(client: sandtimer.Client, tmp_path: pathlib.Path) -> None:
    packed, size = tmp_path / "large.tar", 48 << 20
    with tarfile.open(packed, "w") as archive:
        member = tarfile.TarInfo("large")
        member.size = size
        archive.addfile(member, io.BytesIO(bytes(size)))
    names = [f"t-{uuid.uuid4().hex[:12]}" for _ in range(2)]
    tracemalloc.start()
    try:
        made = [client.import_template(names[0], packed)]
        made.append(asyncio.run(client.aimport_template(names[1], str(packed))))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [each["members"] for each in made] == [1, 1]
    assert peak < size // 4, peak
    for name in names:
        client.delete_template(name)


def test_changes_are_cut_only_by_a_limit(client: sandtimer.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with client.sandbox() as box:
        assert box.run("seq -f file-%g 1500 | xargs touch", timeout=20.0).ok
        assert (len(box.diff()), len(box.diff(limit=2))) == (1500, 2)

        async def cut(*_: object) -> dict[str, object]:
            return {"changes": [], "truncated": True}

        monkeypatch.setattr(box, "_ask", cut)
        with pytest.raises(sandtimer.ServerError, match="100,000 changes.*export") as error:
            box.diff()
        assert (error.value.code, box.diff(limit=2)) == ("too_many_changes", [])
        monkeypatch.undo()


def test_command_line_imports_compares_and_exports(server: str, tmp_path: pathlib.Path) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    tree = root_tree(tmp_path)
    assert command(server, "template", "import", name, str(tree)).stdout == f"{name}\n"
    again = command(server, "template", "import", name, str(tree))
    assert again.returncode == 125 and f"a template `{name}` already" in again.stderr, again
    box_id = command(server, "sandbox", "create", "--template", name).stdout.strip()
    line = "cat /etc/name; echo 42 >answer; echo x >/etc/name"
    assert command(server, "sandbox", "exec", box_id, "sh", "-c", line).stdout == "imported\n"
    assert command(server, "sandbox", "diff", box_id).stdout == "C /etc/name\nA /workspace/answer\n"
    exported = [BINARY, "sandbox", "export", "--server", server, "--changes", box_id]
    content = subprocess.run(exported, capture_output=True, check=True, timeout=60).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert sorted(archive.getnames()) == ["etc/name", "workspace/answer"]
    piped = [BINARY, "template", "import", "--server", server, f"{name}-2", "-"]
    assert subprocess.run(piped, input=content, capture_output=True, timeout=60).stdout.decode() == f"{name}-2\n"
    # A directory that cannot be packed as a whole makes no template.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tree / "socket"))
    odd = command(server, "template", "import", f"{name}-3", str(tree))
    assert odd.returncode == 125 and "cannot be read" in odd.stderr, odd
    listener.close()
    absent = command(server, "template", "import", f"{name}-3", str(tmp_path / "absent"))
    assert absent.returncode == 125 and "absent` cannot be read" in absent.stderr, absent
    assert f"{name}-3" not in command(server, "template", "list").stdout
    for each in (name, f"{name}-2"):
        assert command(server, "template", "delete", each).returncode == 0
    assert command(server, "sandbox", "delete", box_id).returncode == 0
