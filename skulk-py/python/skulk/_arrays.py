"""How does a tensor become an array? Mapped where NumPy knows its type, decoded where it does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._skulk import Floats, Region, invalid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PLAIN = ("F32", "F16")
"""Types that NumPy has, too."""
DECODED = 1 << 22
"""Numbers that are decoded at a time: bounds memory beside the array's, and how long Ctrl-C waits."""


def numpy() -> ModuleType:
    """NumPy, which only arrays need."""
    try:
        import numpy
    except ImportError as cause:
        message = "arrays need NumPy, which is not installed: run pip install numpy, or pip install skulk-py[numpy]"
        raise ImportError(message, name="numpy") from cause
    return numpy


def array(region: Region) -> NDArray[np.floating[Any]]:
    """The region's numbers: a read-only view of the file's map, or decoded to float32."""
    np = numpy()
    if region.dtype() in PLAIN:
        return np.asarray(region)  # type: ignore[no-any-return]
    shape = region.shape()
    return _decoded(region, prod(shape[:-1]), shape[-1] if shape else 1).reshape(shape)


def _decoded(region: Region, rows: int, width: int) -> NDArray[np.float32]:
    np = numpy()
    out = np.empty((rows, width), np.float32)
    step = max(1, DECODED // max(1, width))
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        out[start:stop] = floats(region.rows(start, stop)).reshape(-1, width)
    return out  # type: ignore[no-any-return]


def floats(found: Floats) -> NDArray[np.float32]:
    """Numbers of the native module as an array, which may be written to. Nothing is copied."""
    return numpy().asarray(found)  # type: ignore[no-any-return]


def numbers(vector: Iterable[float]) -> Sequence[float]:
    """A list, an array or anything else that has numbers, as a list."""
    shape = getattr(vector, "shape", None)
    if shape is not None and len(shape) != 1:
        raise invalid("query", f"expected one vector, found an array of shape {tuple(shape)}")
    if isinstance(vector, (bytes, bytearray, memoryview)) or not isinstance(vector, Iterable):
        raise invalid("query", f"expected a list of numbers, found an instance of {type(vector).__name__}")
    tolist = getattr(vector, "tolist", None)
    found: Sequence[float] = tolist() if tolist is not None else list(vector)
    return found
