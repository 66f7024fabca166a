"""Comparing what a submission gave with what was expected of it, in the caller.

What it gave was made by untrusted code: the comparison walks it only as far as the expected value goes, so that a value
that holds itself, or one part a thousand times, costs no more than the expected one. The expected value alone decides how
exact the comparison is: a float is compared within a tolerance only where a float is expected.
"""

from __future__ import annotations

import cmath
import math
import numbers
import re
import sys
from typing import Any, Iterator

RELATIVE = 1e-6
ABSOLUTE = 1e-9
# Characters that are compared, or numbers that are taken out of arrays, at a time.
_PIECE = 1 << 16

_NOT_BLANK = re.compile(r"\S")
_TOKEN_END = re.compile(r"\S(?=\s)")
# A word, or the end of a line that is followed by a word on the next line.
_TOKEN = re.compile(r"\S+|\n(?=[^\S\n]*\S)")


def same_lines(expected: Any, got: str) -> bool:
    """Whether two texts have the same words on the same lines; blank lines, and how words are spaced, do not count.

    Stops at the first difference, and makes no list of lines or words of a long text.
    """
    if isinstance(expected, bytes):
        expected = expected.decode("utf-8", "replace")
    expected = str(expected)
    start = _common_lines(expected, got)
    streams = _tokens(expected, start), _tokens(got, start)
    one: list[str] = []
    other: list[str] = []
    while True:
        one, other = one or next(streams[0], []), other or next(streams[1], [])
        length = min(len(one), len(other))
        if length == 0:
            return not one and not other
        if one[:length] != other[:length]:
            return False
        del one[:length], other[:length]


def _common_lines(one: str, other: str) -> int:
    """The length of some lines that both begin with, in whole pieces."""
    end = 0
    while end < len(one) and one[end : end + _PIECE] == other[end : end + _PIECE]:
        end += _PIECE
    return one.rfind("\n", 0, end) + 1


def _tokens(text: str, start: int) -> Iterator[list[str]]:
    """The words of `text` from `start` on, with a line feed between those of two lines, some thousand at a time."""
    found = _NOT_BLANK.search(text, start)
    at = found.start() if found else len(text)
    while at < len(text):
        # A piece ends with a word, so that a line feed before the next one belongs to the next piece.
        found = _TOKEN_END.search(text, at + _PIECE)
        end = found.end() if found else len(text)
        if tokens := _TOKEN.findall(text, at, end):
            yield tokens
        at = end


def same_value(expected: Any, got: Any, as_json: bool = False) -> bool:
    """Whether two values are equal, within a tolerance where a float is expected; lists equal lists and tuples equal tuples only.

    as_json: tuples equal lists, and keys that are numbers equal their text, as where what is expected was read from JSON. Raises what a comparison with `got` raises, such as that of a signaling NaN.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and (isinstance(expected, numpy.ndarray) or isinstance(got, numpy.ndarray)):
        return _same_array(numpy, expected, got)
    torch = sys.modules.get("torch")
    if torch is not None and (isinstance(expected, torch.Tensor) or isinstance(got, torch.Tensor)):
        return _same_tensor(torch, expected, got)
    if isinstance(expected, (list, tuple)):
        kinds = (list, tuple) if as_json else list if isinstance(expected, list) else tuple
        if not isinstance(got, kinds) or len(expected) != len(got):
            return False
        return all(same_value(one, other, as_json) for one, other in zip(expected, got))
    if isinstance(expected, dict):
        if not isinstance(got, dict) or len(expected) != len(got):
            return False
        if as_json:
            expected, got = _with_json_keys(expected), _with_json_keys(got)
        return expected.keys() == got.keys() and all(same_value(one, got[key], as_json) for key, one in expected.items())
    inexact: tuple[type, ...] = (float, complex) if numpy is None else (float, complex, numpy.inexact)
    return _close(expected, got) if isinstance(expected, inexact) else bool(expected == got)


def _with_json_keys(value: dict[Any, Any]) -> dict[Any, Any]:
    names = {True: "true", False: "false", None: "null"}
    return {
        names[key] if key is None or isinstance(key, bool) else repr(key) if isinstance(key, (int, float)) else key: each
        for key, each in value.items()
    }


def _close(expected: Any, got: Any) -> bool:
    if not isinstance(expected, numbers.Complex) or not isinstance(got, numbers.Complex):
        return bool(expected == got)
    if not isinstance(expected, numbers.Real) or not isinstance(got, numbers.Real):
        return cmath.isclose(expected, got, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    try:
        if math.isnan(expected) or math.isnan(got):
            return math.isnan(expected) and math.isnan(got)
        return math.isclose(expected, got, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    except OverflowError:
        # An integer too large for a float is near no float.
        return False


def _same_array(numpy: Any, expected: Any, got: Any) -> bool:
    if not isinstance(expected, numpy.ndarray) or not isinstance(got, numpy.ndarray) or expected.shape != got.shape:
        return False
    kinds = expected.dtype.kind, got.dtype.kind
    if kinds[0] == kinds[1] and kinds[0] not in "fc":
        return bool(numpy.array_equal(expected, got))
    if not all(kind in "biufc" for kind in kinds):
        return not any(kind in "fc" for kind in kinds) and bool(numpy.array_equal(expected, got))
    if kinds[0] in "fc":
        return bool(numpy.allclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True))
    return _same_numbers(expected.ravel(), got.ravel())


def _same_tensor(torch: Any, expected: Any, got: Any) -> bool:
    # Of unequal shapes `==` would make a tensor as large as the product of both.
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor) or expected.shape != got.shape:
        return False
    expected, got = expected.detach().cpu(), got.detach().cpu()
    if expected.is_complex() or expected.is_floating_point():
        # Not the type that torch promotes both to, in which what is large may be infinite: it would equal an infinity.
        common = torch.complex128 if expected.is_complex() or got.is_complex() else torch.float64
        expected, got = expected.to(common), got.to(common)
        return bool(torch.allclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True))
    if expected.dtype == got.dtype:
        return bool(torch.equal(got, expected))
    return _same_numbers(expected.flatten(), got.flatten())


def _same_numbers(expected: Any, got: Any) -> bool:
    """Whether the numbers of two flat arrays are exactly equal: as Python's, since a common type of both could round them."""
    pieces = range(0, len(expected), _PIECE)
    return all(expected[at : at + _PIECE].tolist() == got[at : at + _PIECE].tolist() for at in pieces)
