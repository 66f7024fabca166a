"""`python -m sandtimer.integrations.jupyter install`: writes a kernelspec of sealed kernels."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from typing import Any, Optional, Sequence

from ._settings import DURATION_REMEDY, seconds

PROVISIONER = "sandtimer-provisioner"


def kernelspec(display_name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The contents of kernel.json."""
    return {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": display_name,
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": {"kernel_provisioner": {"provisioner_name": PROVISIONER, "config": config}},
    }


def _duration(text: str) -> str:
    try:
        seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: {DURATION_REMEDY}") from None
    return text


def _size(text: str) -> str:
    from .. import _native
    from ..errors import SandtimerError

    try:
        _native.check({"memory": text})
    except SandtimerError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m sandtimer.integrations.jupyter")
    install = parser.add_subparsers(required=True, metavar="install").add_parser("install", help="write a kernelspec of sealed Python kernels")
    where = install.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user (default: for all users)")
    where.add_argument("--sys-prefix", action="store_true", help="into the environment of this Python")
    where.add_argument("--prefix", metavar="DIR", help="into the environment in DIR")
    install.add_argument("--name", default="sandtimer", help="the kernelspec's name (default: sandtimer)")
    install.add_argument("--wall", type=_duration, metavar="DURATION", help="elapsed time of a kernel as a whole, such as 8h")
    install.add_argument("--memory", type=_size, metavar="SIZE", help="memory of a kernel, such as 4G")
    install.add_argument("--cell-timeout", type=_duration, metavar="DURATION", help="longest time of a cell, such as 10m")
    install.add_argument("--network", action="store_true", help="give kernels the host's network")
    install.add_argument(
        "--workspace",
        action="append",
        default=[],
        metavar="DIR",
        help='a directory that kernels may write to; "." is the notebook\'s; may be repeated',
    )
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Installs; gives the exit code."""
    from jupyter_client.kernelspec import KernelSpecManager

    given = _parser().parse_args(arguments)
    names = ("wall", "memory", "cell_timeout", "workspace")
    config: dict[str, Any] = {name: value for name in names if (value := getattr(given, name))}
    config["network"] = given.network
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    prefix = sys.prefix if given.sys_prefix else given.prefix
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "kernel.json"), "w") as file:
            json.dump(kernelspec(f"Python {version} (sandtimer)", config), file, indent=1)
        try:
            path = KernelSpecManager().install_kernel_spec(directory, given.name, user=given.user, prefix=prefix)
        except (OSError, ValueError) as error:
            print(f"sandtimer: cannot install the kernelspec {given.name!r}: {error}; use --user, --sys-prefix or another --name", file=sys.stderr)
            return 1
    print(f"Installed the kernelspec {given.name} in {path}")
    return 0
