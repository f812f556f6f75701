"""How do models, cards, placements and vindex folders look in a notebook? As tables, with what files say escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from html import escape

from ._contract import ModelCard, SpeculationReport
from ._reader import VindexReader
from ._skulk import Model, Placement
from .vindex import ExtractReport, SliceReport, VerifyReport


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A picture that notebooks show."""

    svg: str
    """The picture as a whole SVG file."""

    def __str__(self) -> str:
        """The SVG file."""
        return self.svg

    def __repr__(self) -> str:
        return "<skulk.Picture>"

    def _repr_svg_(self) -> str:
        return self.svg


def table(model: Model) -> str:
    """The model's stages."""
    rows: list[tuple[object, ...]] = []
    for i, stage in enumerate(model.stages):
        memory = _mebibytes(stage.weight_bytes), _mebibytes(stage.kv_cache_bytes)
        rows.append((i, _span(stage.layers), stage.engine, stage.device, *memory))
    arch = model.arch
    caption = f"{arch.family}: {arch.n_layers} layers, width {arch.hidden_size}, context {model.context}"
    return _listing(caption, ("stage", "layers", "engine", "device", "weights", "KV cache"), rows)


def _span(layers: range) -> str:
    return f"{layers.start}–{layers.stop - 1}"


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def card(card: ModelCard) -> str:
    """The card's fields that say something."""
    return _listing(card.model_id, ("field", "value"), _facts("", card))


def _facts(prefix: str, section: object) -> Iterator[tuple[str, str]]:
    if not is_dataclass(section):
        return
    for field in fields(section):
        name, value = prefix + field.name, getattr(section, field.name)
        if name == "storage_size":
            yield name, f"{value.in_bytes:,} bytes ({_mebibytes(value.in_bytes)})"
        elif is_dataclass(value):
            yield from _facts(f"{name}.", value)
        elif isinstance(value, tuple):
            yield from ((name, text) for text in [", ".join(map(_text, value))] if text)
        elif value is not None and value != "":
            yield name, _text(value)


def _text(value: object) -> str:
    if is_dataclass(value):
        return f"{getattr(value, 'component_name', '')}: {getattr(value, 'component_path', '')}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def placement(placement: Placement) -> str:
    """Why a placement is as it is; of one that does not know, its stages."""
    report = placement.report
    if report is not None:
        return report.to_html()
    rows = [
        (rank, stage.node, stage.backend or "", _span(stage.layers), stage.part)
        for rank, stage in enumerate(placement.stages)
    ]
    name = placement.card.model_id if placement.card else "placement"
    return _listing(f"{name}: {placement.n_layers} layers", ("rank", "node", "backend", "layers", "part"), rows)


def folder(reader: VindexReader) -> str:
    """The folder's parts and their files, with their sizes."""
    parts = reader.parts()
    rows: list[tuple[object, ...]] = [
        (part.part, ", ".join(file.name for file in part.files), part.tensors, _size(part.bytes)) for part in parts
    ]
    rows.append(("all", "", sum(part.tensors for part in parts), _size(sum(part.bytes for part in parts))))
    facts = [f"{reader.num_layers} layers", f"width {reader.hidden_size}", f"level {reader.level}", reader._storage]
    if reader._slice:
        facts.append(reader._slice)
    if reader.lacks:
        facts.append(f"without {', '.join(reader.lacks)}")
    return _listing(f"{reader.model}: {', '.join(facts)}", ("part", "files", "tensors", "size"), rows)


def tuned(report: SpeculationReport) -> str:
    """The ways to compute tokens ahead as bars, as long as they are fast."""
    row, left, width = 20, 150, 330
    most = max((way.tokens_per_second for way in report.ways), default=0.0) or 1.0
    bars = []
    for at, way in enumerate(report.ways):
        depth = "what pays" if way.draft_tokens is None else f"{way.draft_tokens} a step"
        name = way.speculate if way.speculate == "off" else f"{way.speculate}, {depth}"
        length = way.tokens_per_second / most * width
        colour = "#2a7" if way == report.best else "#888" if way.speculate == "off" else "#48b"
        told = f"{way.tokens_per_second:.1f} tok/s, {way.gain:.2f}x"
        if way.speculate != "off":
            told += f", {way.acceptance:.0%} right"
        y = at * row
        bars.append(
            f'<text x="{left - 6}" y="{y + 14}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{left}" y="{y + 3}" width="{length:.1f}" height="{row - 6}" fill="{colour}"/>'
            f'<text x="{left + length + 6:.1f}" y="{y + 14}">{escape(told)}</text>'
        )
    size = f'width="{left + width + 190}" height="{row * len(report.ways)}"'
    style = 'font-family="sans-serif" font-size="12" fill="currentColor"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(bars)}</svg>'


def extracted(report: ExtractReport) -> str:
    """The files that were written, and what to know about them."""
    rows = [(file.name, file.part, _size(file.bytes)) for file in report.files]
    caption = f"{report.path.name}: {_size(report.bytes)} in {report.seconds:.1f} s"
    notes = "".join(f"<p>{escape(warning)}</p>" for warning in report.warnings)
    return _listing(caption, ("file", "part", "size"), rows) + notes


def sliced(report: SliceReport) -> str:
    """The slice's files, and how they came there."""
    rows = [(file.name, file.method, _size(file.bytes)) for file in report.files]
    caption = f"{report.path.name}: {_size(report.bytes)}, {_size(report.written_bytes)} of them written"
    if report.lacks:
        caption += f"; it lacks {', '.join(report.lacks)}"
    return _listing(caption, ("file", "method", "size"), rows)


def verified(report: VerifyReport) -> str:
    """The folder's files and how they were found, and what is wrong."""
    rows = [(file.name, file.part or "", _size(file.bytes), file.status) for file in report.files]
    problems = "".join(f"<li>{escape(str(problem))}</li>" for problem in report.problems)
    caption = f"{report.path.name}: {'damaged' if problems else 'sound'}"
    return _listing(caption, ("file", "part", "size", "status"), rows) + (f"<ul>{problems}</ul>" if problems else "")


def _listing(caption: str, heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    def row(tag: str, cells: Iterable[object]) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"

    body = "".join(row("td", cells) for cells in rows)
    return f"<table><caption>{escape(caption)}</caption>{row('th', heads)}{body}</table>"


def _size(size: int) -> str:
    if size < 2**10:
        return f"{size} B"
    for unit, power in (("KiB", 10), ("MiB", 20)):
        if size < 2 ** (power + 10):
            return f"{size / 2**power:.1f} {unit}"
    return f"{size / 2**30:.1f} GiB"
