"""What does progress look like? A bar, in terminals and notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def bar(what: str, unit: str) -> Callable[..., None]:
    """A callback that draws a bar of tqdm's. It is called with how much is done and of how much, or with a
    `skulk.vindex.VindexProgress`.
    """
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError as cause:
        message = "progress=True needs tqdm, which is not installed: run pip install tqdm, or give a callback"
        raise ImportError(message, name="tqdm") from cause
    drawn: Any = tqdm(desc=what, unit=unit, unit_scale=unit == "B")

    def draw(step: Any, total: int | None = None) -> None:
        done, drawn.total = (step.bytes_done, step.bytes_total) if total is None else (step, total)
        drawn.update(done - drawn.n)
        if done == drawn.total:
            drawn.close()

    return draw
