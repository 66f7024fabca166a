"""Specs as callers give them, as JSON for the store: a dictionary, or a file."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Mapping
from typing import Any, Union

from ..errors import InvalidArgumentTypeError, JobSpecRefusedError

Spec = Union[Mapping[str, Any], str, "os.PathLike[str]"]


def given(spec: Spec, location: str = "") -> tuple[str, str, str]:
    """A spec as JSON, the directory that its paths count from, and what messages begin with."""
    if isinstance(spec, Mapping):
        return json.dumps(_plain(spec, "", location)), os.getcwd(), location
    if not isinstance(spec, (str, os.PathLike)):
        kind = type(spec).__name__
        raise InvalidArgumentTypeError(f"{location}spec={spec!r:.200} is of type {kind}: use a dictionary, or the path of a TOML or JSON file")
    from .._sandtimer import parse_job_file

    path = os.path.abspath(os.fspath(spec))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return parse_job_file(path, text), os.path.dirname(os.path.realpath(path)), f"{location}{path}: "


def given_one(spec: Spec) -> tuple[str, str, str]:
    """As `given`, of a spec that is one job."""
    text, directory, location = given(spec)
    if "map" in json.loads(text):
        raise JobSpecRefusedError(f"{location}`map`: the spec is a job for each of its items; use submit_many", "map")
    return text, directory, location


def _plain(value: Any, path: str, location: str) -> Any:
    """The same in values that JSON has; paths become texts."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, bytes) and path.startswith("inputs."):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        dot = f"{path}." if path else ""
        return {name: _plain(each, f"{dot}{name}", location) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, f"{path}[{index}]", location) for index, each in enumerate(value)]
    problem = f"{value!r:.80} is of type {type(value).__name__}; use JSON values: strings, numbers, True, False, None, lists, and dictionaries with strings as keys"
    raise JobSpecRefusedError(f"{location}`{path}`: {problem}", path)
