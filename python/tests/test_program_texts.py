"""Odd texts of programs: what `box.exec` and `box.judge` make of each is compared with `python3 FILE`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Iterator, NamedTuple, Optional

import pytest
import sandtimer


class Text(NamedTuple):
    text: str
    # How its file is encoded.
    encoding: str = "utf-8"
    # Why it differs from a file, as docs/python.md says.
    differs: str = ""


LEVELS = "".join(" " * level + "if 1:\n" for level in range(101)) + " " * 101 + "print(1)\n"
TEXTS = {
    "byte order mark": Text("\ufeffprint(1)\n"),
    "carriage returns and line feeds": Text("print(1)\r\nif 1:\r\n    print('a\\\r\nb')\r\n"),
    "carriage returns alone": Text("print(1)\rprint(2)\r"),
    "carriage return in a string": Text("print(repr('''a\r\nb\rc'''))\n"),
    "tabs and spaces": Text("if 1:\n\tprint(1)\n        print(2)\n"),
    "tabs": Text("if 1:\n\tif 1:\n\t\tprint(1)\n"),
    "form feeds": Text("\x0cprint(1)\n\x0cprint(2)\n"),
    "NUL": Text("print(1)\0\n"),
    "Ctrl-Z at the end": Text("print(1)\n\x1a"),
    "no-break space": Text("print(1)\u00a0\n"),
    "nothing but blanks": Text("  \n\t\n   "),
    "nothing but a comment": Text("# nothing"),
    "first line of a script": Text("#!/usr/bin/env python3\nprint(1)\n"),
    "encoding in a comment": Text("# -*- coding: latin-1 -*-\nprint('\u00e9')\n", "latin-1"),
    "encoding that is none": Text("# coding: nonsense\nprint(1)\n", differs="it is text already"),
    "no line feed behind a block": Text("if 1:\n    print(1)"),
    "semicolons": Text("print(1); print(2);"),
    "two semicolons": Text("print(1);;\n"),
    "backslash at the end": Text("x = 1 + \\"),
    "string without an end": Text("x = '''abc\n"),
    "indented from the first line": Text("    print(1)\n"),
    "names in other letters": Text("\ufb01 = 1\nvari\u00e1vel = 2\nprint(fi + vari\u00e1vel, '\U0001F600')\n"),
    "right-to-left text": Text("x = '\u202eabc\u202c'\nprint(len(x))\n"),
    "surrogate": Text("print('\udcff')\n"),
    "future": Text("'''A docstring.'''\nfrom __future__ import annotations\nx: nothing = 1\nprint(__doc__, __annotations__)\n"),
    "future that is late": Text("x = 1\nfrom __future__ import annotations\n"),
    "no future of others": Text("def f(x: int): pass\nprint(f.__annotations__)\n"),
    "very long line": Text(f"print(len('{'x' * 1_000_000}'))\n"),
    "many lines": Text("x = 1\n" * 50_000 + "print(x)\n"),
    "nested deeply": Text("print(" + "(" * 90 + "1" + ")" * 90 + ")\n"),
    "nested too deeply": Text("(" * 1000 + ")" * 1000),
    "blocks too deeply": Text(LEVELS),
    "large literal": Text("x = " + "1" * 5000 + "\nprint(x.bit_length())\n"),
    "large literal in hexadecimal": Text("x = 0x" + "1" * 5000 + "\nprint(x.bit_length())\n"),
    "escape that is none": Text("print('\\d')\n"),
    "comparison that is warned of": Text("x = 1\nprint(x is 1)\n"),
    "return outside of a function": Text("print(1)\nreturn\n"),
    "await outside of a function": Text("import asyncio\nawait asyncio.sleep(0)\n"),
    "print of an older Python": Text("print 'x'\n"),
    "match and walrus": Text("if (n := 10) > 5:\n    print(n)\n"),
    "names of its own": Text("print(sorted(name for name in dir() if name not in (\n    '__annotations__', '__cached__', '__file__', '__loader__')))\n"),
    "name of the module": Text("__name__ = 'other'\nimport __main__\nprint(__main__.__name__)\n"),
    "no built-ins": Text("del __builtins__\nprint(1)\n"),
    "built-ins of its own": Text("import builtins\nbuiltins.print = lambda *a: __import__('sys').stdout.write('mine\\n')\nprint(1)\n"),
    "names that hide": Text("list = str = print\nprint(1)\ndef exec(): print(2)\nexec()\n"),
    "globals": Text("x = 1\nprint(globals() is locals(), 'x' in globals(), vars()['x'])\n"),
    "last expression with an effect": Text("print(1) or print(2)"),
    "last expression that fails": Text("print(1)\n[][0]"),
    "ellipsis": Text("..."),
    "exit": Text("print(1)\nexit()\n"),
    "quit with a code": Text("print(1)\nquit(3)\n"),
    "exit with a list": Text("import sys\nsys.exit([1, 2])\n"),
    "exit with minus one": Text("raise SystemExit(-1)\n"),
    "exit with True": Text("raise SystemExit(True)\n"),
    "no more input": Text("input()\ninput()\nprint(1)\n"),
    "debugger without input": Text("import sys\nsys.stdin.read()\nbreakpoint()\nx = 1\n"),
    "assertion": Text("assert False, 'wrong'\n"),
    "assertion that holds": Text("assert __debug__\nprint(1)\n"),
    "interrupt": Text("print(1)\nraise KeyboardInterrupt\n", differs="it is not sent a signal"),
    "exception that is none of Exception": Text("print(1)\nraise BaseException(2)\n"),
    "exception group": Text("print(1)\nraise OSError(2, 'nothing') from ValueError(3)\n"),
    "arguments": Text("import sys\nprint(len(sys.argv))\n"),
    "code that is compiled": Text("exec(compile('print(__name__)', 'other', 'exec'))\nprint(eval('1 + 1'))\n"),
}  # fmt: skip


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=60.0) as made:
        yield made


def exit_code(outcome: sandtimer.Outcome) -> Optional[int]:
    return {"returned": 0, "raised": 1}.get(outcome.ending, outcome.exit_code)


def plain(each: Text, directory: Path) -> "subprocess.CompletedProcess[bytes]":
    """What Python makes of a file with this text, under the name that the sandbox gives it."""
    file = directory / "program.py"
    file.write_bytes(each.text.encode(each.encoding, "surrogatepass"))
    command = [sys.executable, "-B", str(file)]
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run(command, input=b"one\n", capture_output=True, timeout=60, env=environment, cwd=directory)
    done.stdout, done.stderr = (stream.replace(str(file).encode(), b"/sandtimer/main.py") for stream in (done.stdout, done.stderr))
    return done


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_as_in_a_file(name: str, box: sandtimer.Sandbox, tmp_path: Path) -> None:
    each = TEXTS[name]
    expected, outcome = plain(each, tmp_path), box.exec(each.text, stdin="one\n")
    seen = outcome.stdout.encode(), exit_code(outcome)
    if each.differs:
        assert seen != (expected.stdout, expected.returncode)
        return
    assert seen == (expected.stdout, expected.returncode), outcome.error
    if expected.returncode == 0:
        assert outcome.stderr == expected.stderr.decode()


@pytest.mark.parametrize("name", TEXTS)
def test_judged_text_is_as_in_a_file(name: str, box: sandtimer.Sandbox, tmp_path: Path) -> None:
    each = TEXTS[name]
    expected, judgement = plain(each, tmp_path), box.judge(each.text, [("one\n", "")], checker=lambda *_: True)
    outcome = judgement.outcomes[0]
    if each.differs:
        return
    assert judgement.passed == (expected.returncode == 0), judgement.errors
    if outcome is None:
        assert judgement.verdicts == ["compile_error"] and expected.returncode == 1 and b"Error" in expected.stderr
    else:
        assert (outcome.stdout.encode(), exit_code(outcome)) == (expected.stdout, expected.returncode), outcome.error


def test_texts_that_are_no_text_are_refused(box: sandtimer.Sandbox) -> None:
    for text in (b"print(1)", None, 1, ["print(1)"]):
        with pytest.raises(sandtimer.InvalidArgumentTypeError, match="use the program's text"):
            box.exec(text)  # type: ignore[arg-type]
