"""What is in a vindex, and what became of one? Data that `VindexReader`, `extract` and `verify_vindex` give.

Field by field in the order in which the native module makes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = [
    "Description",
    "Edge",
    "ExtractFile",
    "ExtractReport",
    "Feature",
    "FeatureHit",
    "FeatureToken",
    "Label",
    "PartFile",
    "PartInfo",
    "Probe",
    "Relation",
    "Relations",
    "Selected",
    "Selection",
    "SliceReport",
    "SlicedFile",
    "TensorInfo",
    "VerifiedFile",
    "VerifyProblem",
    "VerifyReport",
    "VindexBands",
    "VindexProgress",
    "WalkHit",
]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as the folder describes it."""

    name: str
    """Its name, as in Hugging Face checkpoints without ``model.`` before it."""
    dtype: str
    """How its elements are stored, e.g. ``F16`` or ``Q4_K``; ``Q6_K_Linear`` is what LARQL calls Q6_K."""
    shape: tuple[int, ...]
    """Its dimensions, outermost first: a matrix is rows and row length."""
    file: Path
    """The file that holds it."""
    offset: int
    """Where it begins in that file, in bytes."""
    length: int
    """Its length in bytes, with what rows are padded with."""


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file of a part."""

    name: str
    """Its path in the folder, with ``/`` between its parts."""
    bytes: int
    """Its size."""
    tensors: int
    """Tensors in it."""


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part that a folder holds: files that slices have or lack together."""

    part: str
    """The part's name, e.g. ``gate``."""
    files: list[PartFile]
    """Its files, by name."""
    bytes: int
    """What they take together."""
    tensors: int
    """Tensors in them."""


@dataclass(frozen=True, slots=True)
class VindexBands:
    """Layers that are thought to do one thing."""

    syntax: range
    """Layers that deal with syntax."""
    knowledge: range
    """Layers in which facts are found."""
    output: range
    """Layers that form the output."""


@dataclass(frozen=True, slots=True)
class VindexProgress:
    """How far an extraction, a slice or a verification is."""

    file: str
    """The file that is worked on, by its path in the folder."""
    part: str | None
    """The part that it belongs to."""
    layer: int | None
    """The layer that is written, where an extraction writes one."""
    bytes_done: int
    """Bytes that are done, of all files together."""
    bytes_total: int
    """Bytes that will be."""


@dataclass(frozen=True, slots=True)
class ExtractFile:
    """A file that an extraction wrote."""

    name: str
    """Its path in the folder."""
    part: str
    """The part that it belongs to."""
    bytes: int
    """Its length."""


@dataclass(frozen=True, slots=True, repr=False)
class ExtractReport:
    """What was extracted."""

    path: Path
    """The folder."""
    files: list[ExtractFile]
    """Its files."""
    bytes: int
    """Bytes of all files."""
    resumed_bytes: int
    """Bytes that an interrupted extraction had written, and this one took over."""
    seconds: float
    """How long it took."""
    warnings: list[str]
    """What somebody who uses the folder should know: what is left out, and what LARQL does not see of it."""

    def __repr__(self) -> str:
        return f"<skulk.vindex.ExtractReport {self.path.name}: {len(self.files)} files, {self.bytes:,} bytes>"

    def _repr_html_(self) -> str:
        from ._notebook import extracted

        return extracted(self)


@dataclass(frozen=True, slots=True)
class SlicedFile:
    """A file of a slice."""

    name: str
    """Its path in the folder."""
    bytes: int
    """Its length."""
    method: Literal["linked", "cloned", "copied", "rewritten"]
    """How it came there: as the same file, sharing blocks, as a copy, or written anew with what the slice takes."""


@dataclass(frozen=True, slots=True, repr=False)
class SliceReport:
    """What a slice is made of. ``str()`` is a line for each file."""

    path: Path
    """The slice's folder."""
    files: list[SlicedFile]
    """Its files, by name."""
    left_out: list[str]
    """Files of the source that it does not have."""
    lacks: list[str]
    """Parts that the whole vindex has and the slice lacks."""
    bytes: int
    """Bytes of all its files."""
    written_bytes: int
    """Bytes of files that are neither linked nor cloned."""
    text: str = field(compare=False)
    """The report as text."""

    def __str__(self) -> str:
        """The report as text."""
        return self.text

    def __repr__(self) -> str:
        return f"<skulk.vindex.SliceReport {self.path.name}: {len(self.files)} files, {self.bytes:,} bytes>"

    def _repr_html_(self) -> str:
        from ._notebook import sliced

        return sliced(self)


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A file of a folder that was verified."""

    name: str
    """Its path in the folder."""
    part: str | None
    """The part that it belongs to; ``None`` for files that are not a vindex's, which are not looked at."""
    bytes: int
    """Its length; 0 for one that is missing."""
    status: Literal["verified", "checked", "missing", "damaged"]
    """Its hash is what it was; nothing is wrong, but no hash was compared; it is not there; it has a problem."""


@dataclass(frozen=True, slots=True)
class VerifyProblem:
    """Something that is wrong with a folder."""

    file: str
    """The file, by its path in the folder."""
    bytes: tuple[int, int] | None
    """The first of the bytes that it concerns, and the one behind the last; ``None``: no certain ones."""
    kind: Literal[
        "missing", "size", "hash", "overlap", "gap", "not_finite", "unlisted", "format", "unreadable"
    ]
    """What kind of damage it is."""
    tensor: str | None
    """The tensor that it concerns."""
    message: str
    """What was expected, and what found."""
    text: str = field(repr=False, compare=False)
    """The problem as text."""

    def __str__(self) -> str:
        """The problem as text."""
        return self.text


@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport:
    """What a verification found. ``str()`` is a summary and a line for each problem."""

    path: Path
    """The folder."""
    files: list[VerifiedFile]
    """Its files, those included that are missing."""
    problems: list[VerifyProblem]
    """What is wrong, by file and place."""
    bytes_read: int
    """Bytes that were read for hashes and numbers."""
    text: str = field(compare=False)
    """The report as text."""

    @property
    def is_sound(self) -> bool:
        """Nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        """The report as text."""
        return self.text

    def __repr__(self) -> str:
        return f"<skulk.vindex.VerifyReport {self.path.name}: {len(self.files)} files, {len(self.problems)} problems>"

    def _repr_html_(self) -> str:
        from ._notebook import verified

        return verified(self)


@dataclass(frozen=True, slots=True)
class FeatureHit:
    """A feature, and the product of its gate row with a query."""

    layer: int
    """The layer."""
    feature: int
    """The feature's number in its layer; those of a mixture are numbered over all experts."""
    score: float
    """The product, before any activation."""


@dataclass(frozen=True, slots=True)
class WalkHit:
    """A feature that a prompt wakes."""

    layer: int
    """The layer."""
    feature: int
    """The feature in its layer."""
    gate_score: float
    """The product of its gate row with the query."""
    target: str
    """The token that it writes most, without spaces around it."""
    relation: str | None
    """Its label, where probes have confirmed one."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A token that features write which answer to an entity."""

    target: str
    """The token, without spaces around it."""
    gate_score: float
    """The largest gate score among these features."""
    layer: int
    """The layer of that feature."""
    feature: int
    """That feature."""
    relation: str | None
    """Its label, where probes have confirmed one."""
    source: Literal["probe", "cluster"] | None
    """Where the label comes from."""
    layer_min: int
    """The first layer with such a feature."""
    layer_max: int
    """The last."""
    count: int
    """Such features."""
    also: list[str]
    """Up to three other tokens that the first of the features writes."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a model associates with an entity."""

    entity: str
    """The entity, as it was asked for."""
    model: str
    """The model's name."""
    edges: list[Edge]
    """The largest gate scores first."""


@dataclass(frozen=True, slots=True)
class FeatureToken:
    """A token that a feature writes."""

    id: int
    """The token."""
    text: str
    """Its text, without spaces around it."""
    logit: float
    """The product of its embedding with the feature's down column."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a feature is said to mean."""

    name: str
    """A relation, e.g. ``capital``."""
    source: Literal["probe", "cluster"]
    """A probe of the model confirmed it, or it is the name of the feature's cluster."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature, and what its down column writes."""

    layer: int
    """The layer."""
    feature: int
    """The feature in its layer."""
    top_token: str
    """The token that it writes most, without spaces around it."""
    top_token_id: int
    """That token."""
    c_score: float
    """That token's logit."""
    tokens: list[FeatureToken]
    """The tokens that it writes most, the most first."""
    label: Label | None
    """What it is said to mean, where anything is."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A feature of a list."""

    layer: int
    """The layer."""
    feature: int
    """The feature in its layer."""
    target: str
    """The token that it writes most, without spaces around it."""
    c_score: float
    """That token's logit."""
    relation: str | None
    """Its label, where a probe confirmed one."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Features that were asked for."""

    features: list[Selected]
    """The first of them."""
    total: int
    """How many there are."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A word that features write."""

    name: str
    """The word, as the first of the features spells it."""
    count: int
    """Features that write it most."""
    max_score: float
    """The largest of their scores."""
    min_layer: int
    """The first layer with such a feature."""
    max_layer: int
    """The last."""
    examples: list[str]
    """Up to three other words that the first of the features writes."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A label that probes confirmed."""

    name: str
    """The label."""
    count: int
    """Features that have it."""


@dataclass(frozen=True, slots=True)
class Relations:
    """What a model's layers of facts write about."""

    relations: list[Relation]
    """Words that features write most, by how many do."""
    total: int
    """How many words there are."""
    probes: list[Probe]
    """Labels that probes confirmed, by how many features have them."""
    probe_count: int
    """Features with such labels."""
