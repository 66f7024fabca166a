"""What an agent sees of tables, figures and a project of the user's, with the real libraries."""

from __future__ import annotations

import asyncio
import base64
import importlib.metadata
import io
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Awaitable, Callable, Iterator

import matplotlib.image
import pytest
from serving import BINARY, Serving

mcp = pytest.importorskip("mcp", reason="the MCP client has no package for this Python")

HARD_STOP = 240.0
# For the first import of a large library on a busy machine.
TIMEOUT_MS = 120_000
Act = Callable[[Any], Awaitable[None]]


@pytest.fixture(scope="module")
def rich_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose `python3` is the interpreter of these tests, which has the libraries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        serving = Serving(tmp_path_factory.mktemp("rich"))
    yield serving.url
    serving.stop()


def run(client: Any, act: Act) -> None:
    async def main() -> None:
        async with client as connected:
            await asyncio.wait_for(act(connected), HARD_STOP)

    asyncio.run(main())


async def code(client: Any, text: str, **more: Any) -> Any:
    done = await client.call_tool("run_code", {"language": "python", "code": text, "timeout_ms": TIMEOUT_MS, **more})
    assert done.content[0].text.startswith("EXITED 0\n"), done
    return done


def test_dataframe_is_shown_as_its_table(rich_server: str) -> None:
    async def act(client: Any) -> None:
        made = await code(client, "import pandas\nframe = pandas.DataFrame({'epoch': [1, 2], 'loss': [2.145, 1.234]})\nframe")
        table = "   epoch   loss\n0      1  2.145\n1      2  1.234"
        assert f"\n{table}\n" in made.content[0].text
        assert made.structured_content["results"] == [{"text/plain": table}]
        # The interpreter of the first call still has it, and one that is displayed comes before the value.
        given = {"context_id": made.structured_content["context_id"]}
        later = await code(client, "display(frame.head(1))\nframe.describe().loc[['mean']]", **given)
        first, value = [each["text/plain"] for each in later.structured_content["results"]]
        assert first == "   epoch   loss\n0      1  2.145"
        assert value.split() == ["epoch", "loss", "mean", "1.5", "1.6895"]
        text = later.content[0].text
        assert text.index(first) < text.index(value)

    run(mcp.Client(f"{rich_server}/mcp"), act)


def test_figure_is_an_image_of_what_was_drawn(rich_server: str) -> None:
    async def act(client: Any) -> None:
        figure = "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1), dpi=100, facecolor='red')\nplt.show()"
        done = await code(client, figure)
        (image,) = [block for block in done.content if block.type == "image"]
        assert image.mime_type == "image/png"
        pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(image.data)), format="png")
        assert pixels.ndim == 3 and min(pixels.shape[:2]) > 10
        assert (pixels[..., 0].mean(), pixels[..., 1].mean(), pixels[..., 2].mean()) == (1.0, 0.0, 0.0)
        assert "[image/png: image 1 of this answer]" in done.content[0].text
        # What was shown once is not shown again.
        after = await code(client, "plt.get_fignums()", context_id=done.structured_content["context_id"])
        assert [block.type for block in after.content] == ["text"] and "[]" in after.content[0].text

    run(mcp.Client(f"{rich_server}/mcp"), act)


PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")


def with_project(directory: pathlib.Path) -> None:
    """A project with tests, and a virtual environment that has pytest and knows itself by its own path."""
    directory.chmod(0o755)
    environment = directory / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=HARD_STOP)
    (site,) = environment.glob("lib/python*/site-packages")
    for name in PACKAGES:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            source = pathlib.Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, site / file)
    script = environment / "bin" / "pytest"
    script.write_text(f"#!{environment}/bin/python\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n")
    script.chmod(0o755)
    (directory / "area.py").write_text("def area(width, height):\n    return width * height\n")
    (directory / "test_area.py").write_text(
        "import sys\nfrom area import area\n\ndef test_area():\n    assert area(2, 3) == 6\n\n"
        f"def test_environment():\n    assert sys.prefix == {str(environment)!r}\n"
    )


def test_pytest_of_a_project_runs_at_its_own_path(tmp_path: pathlib.Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with_project(project)

    async def act(client: Any) -> None:
        for command in (".venv/bin/pytest -q", f"{project}/.venv/bin/python -m pytest -q {project}", ". .venv/bin/activate && pytest -q"):
            done = await client.call_tool("bash", {"command": command, "timeout_ms": TIMEOUT_MS})
            assert done.content[0].text.startswith("EXITED 0") and "2 passed" in done.structured_content["stdout"], (command, done)
        await client.call_tool("bash", {"command": "sed -i 's/[*]/+/' area.py"})
        failed = await client.call_tool("bash", {"command": ".venv/bin/pytest -q", "timeout_ms": TIMEOUT_MS})
        assert failed.content[0].text.startswith("EXITED 1"), failed
        assert "1 failed, 1 passed" in failed.structured_content["stdout"]

    flags = ["mcp", "--state-dir", str(tmp_path / "state"), "--workspace", str(project)]
    run(mcp.Client(mcp.StdioServerParameters(command=BINARY, args=flags)), act)
