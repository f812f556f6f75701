"""Why is a plan as it is? `PlanReport`, which knows itself as JSON alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ._methods import call

if TYPE_CHECKING:
    from ._notebook import Picture


class PlanReport:
    """Why a plan is as it is, or why there is none: what was considered and turned down, where the bytes go, what
    limits the context, and how fast it should be. `str()` is a table in text. `skulk.plan` makes it.
    """

    __slots__ = ("_json",)
    _json: str

    def __init__(self) -> None:
        raise TypeError("reports are made by skulk.plan, and read by PlanReport.from_json")

    @staticmethod
    def _of(text: str) -> PlanReport:
        report = PlanReport.__new__(PlanReport)
        report._json = text
        return report

    @staticmethod
    def from_json(text: str) -> PlanReport:
        """Reads what `to_json` writes. Raises `InvalidArgumentError` for anything else."""
        return PlanReport._of(call("report", str, text=text, form="json"))

    def _as(self, form: str) -> str:
        return call("report", str, text=self._json, form=form)

    def to_json(self) -> str:
        """All of it as JSON, indented, in camelCase."""
        return self._json

    def to_dict(self) -> dict[str, Any]:
        """What `to_json` writes, as dictionaries and lists."""
        data: dict[str, Any] = json.loads(self._json)
        return data

    def to_markdown(self) -> str:
        """Tables in Markdown."""
        return self._as("markdown")

    def to_html(self) -> str:
        """Tables and bars in HTML, to be put into a page."""
        return self._as("html")

    def to_svg(self) -> str:
        """A picture of nodes, shards and links, as a whole SVG file."""
        return self._as("svg")

    @property
    def picture(self) -> Picture:
        """The picture, as notebooks show it."""
        from ._notebook import Picture

        return Picture(self.to_svg())

    def __eq__(self, other: object) -> bool:
        return self._json == other._json if isinstance(other, PlanReport) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self._as("text")

    def __repr__(self) -> str:
        facts = self.to_dict()
        outcome = "placed" if facts.get("refused") is None else "refused"
        return f"<skulk.PlanReport: {facts['modelId']} {outcome}>"

    def _repr_html_(self) -> str:
        return self.to_html()
