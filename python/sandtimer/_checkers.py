"""Comparing what a submission gave with what was expected of it, in the caller.

What it gave was made by code that nobody has vouched for: the comparison walks it only as far as the expected value goes,
so that a value which holds itself, or one part a thousand times, costs no more than the expected one.
"""

from __future__ import annotations

import cmath
import math
import numbers
import sys
from typing import Any

RELATIVE = 1e-6
ABSOLUTE = 1e-9


def same_lines(expected: Any, got: str) -> bool:
    """Whether two texts have the same words on the same lines; blank lines, and how words are spaced, do not count."""
    if isinstance(expected, bytes):
        expected = expected.decode("utf-8", "replace")
    return _words(str(expected)) == _words(got)


def _words(text: str) -> list[list[str]]:
    return [words for words in (line.split() for line in text.split("\n")) if words]


def same_value(expected: Any, got: Any) -> bool:
    """Whether two values are equal, floats within a tolerance; lists equal lists and tuples equal tuples only.

    Raises what a comparison with `got` raises, such as that of a signaling NaN.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and (isinstance(expected, numpy.ndarray) or isinstance(got, numpy.ndarray)):
        return _same_array(numpy, expected, got)
    torch = sys.modules.get("torch")
    if torch is not None and (isinstance(expected, torch.Tensor) or isinstance(got, torch.Tensor)):
        return _same_tensor(torch, expected, got)
    if isinstance(expected, (list, tuple)):
        if not isinstance(got, list if isinstance(expected, list) else tuple) or len(expected) != len(got):
            return False
        return all(same_value(one, other) for one, other in zip(expected, got))
    if isinstance(expected, dict):
        if not isinstance(got, dict) or expected.keys() != got.keys():
            return False
        return all(same_value(one, got[key]) for key, one in expected.items())
    if isinstance(expected, float) or isinstance(got, float):
        return _close(expected, got)
    if isinstance(expected, complex) or isinstance(got, complex):
        numbers = isinstance(expected, (int, complex)) and isinstance(got, (int, complex))
        return numbers and cmath.isclose(expected, got, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(expected == got)


def _close(expected: Any, got: Any) -> bool:
    if not isinstance(expected, numbers.Real) or not isinstance(got, numbers.Real):
        return bool(expected == got)
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
    if expected.dtype.kind in "fc" or got.dtype.kind in "fc":
        if expected.dtype.kind not in "biufc" or got.dtype.kind not in "biufc":
            return False
        return bool(numpy.allclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True))
    return bool(numpy.array_equal(expected, got))


def _same_tensor(torch: Any, expected: Any, got: Any) -> bool:
    # Of unequal shapes `==` would make a tensor as large as the product of both.
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor) or expected.shape != got.shape:
        return False
    common = torch.promote_types(expected.dtype, got.dtype)
    expected, got = (each.detach().cpu().to(common) for each in (expected, got))
    if common.is_floating_point or common.is_complex:
        return bool(torch.allclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True))
    return bool(torch.equal(got, expected))
