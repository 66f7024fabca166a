"""Specs as callers give them, as JSON for the store: a dictionary, or a file."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Union

from ..errors import InvalidArgumentTypeError, JobSpecRefusedError

Spec = Union[Mapping[str, Any], str, "os.PathLike[str]"]


class JsonSpec(NamedTuple):
    """A spec as the store takes it."""

    json: str
    #: The directory that its paths are relative to.
    directory: str
    #: What messages about it begin with.
    location: str


def given(spec: Spec, location: str = "") -> JsonSpec:
    """Reads a spec. Raises if it has values that JSON does not have."""
    if isinstance(spec, Mapping):
        return JsonSpec(json.dumps(_plain(spec, "", location)), os.getcwd(), location)
    if not isinstance(spec, (str, os.PathLike)):
        kind = type(spec).__name__
        raise InvalidArgumentTypeError(f"{location}spec={spec!r:.200} is of type {kind}: use a dictionary, or the path of a TOML or JSON file")
    from .._sandtimer import parse_job_file

    path = os.path.abspath(os.fspath(spec))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return JsonSpec(parse_job_file(path, text), os.path.dirname(os.path.realpath(path)), f"{location}{path}: ")


def given_one(spec: Spec) -> JsonSpec:
    """Reads a spec as `given` does. Raises if it is one of several jobs."""
    read = given(spec)
    if "map" in json.loads(read.json):
        raise JobSpecRefusedError(f"{read.location}`map`: the spec is a job for each of its items; use submit_many", "map")
    return read


def _plain(value: Any, path: str, location: str) -> Any:
    """Returns the same in values that JSON has; paths become strings."""
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
