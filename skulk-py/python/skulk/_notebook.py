"""How do models, cards and placements look in a notebook? As tables, with everything from files escaped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from html import escape

from ._cards import ModelCard
from ._skulk import Model, Placement


def table(model: Model) -> str:
    """The model's stages as an HTML table; names from the checkpoint are escaped."""
    rows = "".join(
        f"<tr><td>{i}</td><td>{stage.layers.start}–{stage.layers.stop - 1}</td>"
        f"<td>{escape(stage.engine)}</td><td>{escape(stage.device)}</td>"
        f"<td>{_mebibytes(stage.weight_bytes)}</td><td>{_mebibytes(stage.kv_cache_bytes)}</td></tr>"
        for i, stage in enumerate(model.stages)
    )
    arch = model.arch
    return (
        f"<table><caption>{escape(arch.family)}: {arch.n_layers} layers, width {arch.hidden_size}, "
        f"context {model.context}</caption><tr><th>stage</th><th>layers</th><th>engine</th>"
        f"<th>device</th><th>weights</th><th>KV cache</th></tr>{rows}</table>"
    )


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def card(card: ModelCard) -> str:
    """The card's fields that say something, as an HTML table."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in _facts("", card)
    )
    return f"<table><caption>{escape(card.model_id)}</caption><tr><th>field</th><th>value</th></tr>{rows}</table>"


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
    """Why a placement is as it is; of one that does not know, its stages as an HTML table."""
    report = placement.report
    if report is not None:
        return report.to_html()
    rows = "".join(
        f"<tr><td>{rank}</td><td>{escape(stage.node)}</td><td>{escape(stage.backend or '')}</td>"
        f"<td>{stage.layers.start}–{stage.layers.stop - 1}</td><td>{stage.part}</td></tr>"
        for rank, stage in enumerate(placement.stages)
    )
    name = placement.card.model_id if placement.card else "placement"
    return (
        f"<table><caption>{escape(name)}: {placement.n_layers} layers</caption><tr><th>rank</th><th>node</th>"
        f"<th>backend</th><th>layers</th><th>part</th></tr>{rows}</table>"
    )
