"""How does a model look in a notebook? A table of its stages."""

from __future__ import annotations

from html import escape

from ._skulk import Model


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
