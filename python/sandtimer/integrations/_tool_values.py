"""Values between a context and the tools of its host, as JSON.

Executed on both sides: standard library only.
"""

import base64
import json
from typing import Any

MARK = "__sandtimer__"
REMEDY = "use plain values: None, bool, int, float, str, bytes, and lists, tuples, sets and dicts of them"


def dumps(value: Any) -> str:
    return json.dumps(encode(value))


def loads(text: str) -> Any:
    return decode(json.loads(text))


def encode(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [encode(each) for each in value]
    if isinstance(value, dict):
        if all(isinstance(name, str) for name in value) and MARK not in value:
            return {str(name): encode(each) for name, each in value.items()}
        return {MARK: "dict", "of": [[encode(name), encode(each)] for name, each in value.items()]}
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return {MARK: kind.__name__, "of": [encode(each) for each in value]}
    if isinstance(value, (bytes, bytearray)):
        return {MARK: "bytes", "of": base64.b64encode(value).decode()}
    raise TypeError("a value of type %s cannot be sent: %s" % (type(value).__name__, REMEDY))


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return [decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    if MARK not in value:
        return {name: decode(each) for name, each in value.items()}
    kind, of = value[MARK], value["of"]
    if kind == "bytes":
        return base64.b64decode(of)
    if kind == "dict":
        return {decode(name): decode(each) for name, each in of}
    kinds: Any = {"tuple": tuple, "set": set, "frozenset": frozenset}
    return kinds[kind](decode(each) for each in of)
