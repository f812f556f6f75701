"""What is in a vindex, and what became of one? Data that `VindexReader`, `extract` and `verify_vindex` give.

Written by ``cargo run -p skulk-contract-generate`` from the library's own declarations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from . import _methods

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


def _number(value: Any) -> float:
    # JSON has no infinities and no NaN.
    return float("nan") if value is None else value


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

    @staticmethod
    def _of(data: dict[str, Any]) -> TensorInfo:
        return TensorInfo(
            name=data["name"],
            dtype=data["dtype"],
            shape=tuple(data["shape"]),
            file=Path(data["file"]),
            offset=data["offset"],
            length=data["length"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": _methods.plain(self.shape),
            "file": _methods.plain(self.file),
            "offset": self.offset,
            "length": self.length,
        }


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file of a vindex."""

    name: str
    """Its path in the folder."""
    bytes: int
    """Its size."""
    tensors: int
    """Tensors in it."""

    @staticmethod
    def _of(data: dict[str, Any]) -> PartFile:
        return PartFile(
            name=data["name"],
            bytes=data["bytes"],
            tensors=data["tensors"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "name": self.name,
            "bytes": self.bytes,
            "tensors": self.tensors,
        }


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part of a vindex that its folder holds."""

    part: Literal[
        "index", "embed", "norms", "attn", "gate", "down_meta", "ffn", "down_features", "expert_layers", "lm_head", "router", "ple", "tokenizer", "manifest", "labels", "knn", "readme"
    ]
    """The part."""
    files: list[PartFile]
    """Its files, by name."""
    bytes: int
    """What they take together."""
    tensors: int
    """Tensors in them."""

    @staticmethod
    def _of(data: dict[str, Any]) -> PartInfo:
        return PartInfo(
            part=data["part"],
            files=[PartFile._of(item) for item in data["files"]],
            bytes=data["bytes"],
            tensors=data["tensors"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "part": self.part,
            "files": _methods.plain(self.files),
            "bytes": self.bytes,
            "tensors": self.tensors,
        }


@dataclass(frozen=True, slots=True)
class VindexBands:
    """Layers that are thought to do one thing."""

    syntax: range
    """Layers that deal with syntax."""
    knowledge: range
    """Layers in which facts are found."""
    output: range
    """Layers that form the output."""

    @staticmethod
    def _of(data: dict[str, Any]) -> VindexBands:
        return VindexBands(
            syntax=range(data["syntax"]["start"], data["syntax"]["end"]),
            knowledge=range(data["knowledge"]["start"], data["knowledge"]["end"]),
            output=range(data["output"]["start"], data["output"]["end"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "syntax": _methods.plain(self.syntax),
            "knowledge": _methods.plain(self.knowledge),
            "output": _methods.plain(self.output),
        }


@dataclass(frozen=True, slots=True)
class VindexProgress:
    """How far an extraction, a slice or a verification is."""

    file: str
    """The file that is worked on, by its path in the folder."""
    part: Literal[
        "index", "embed", "norms", "attn", "gate", "down_meta", "ffn", "down_features", "expert_layers", "lm_head", "router", "ple", "tokenizer", "manifest", "labels", "knn", "readme"
    ] | None
    """The part that it belongs to."""
    layer: int | None
    """The layer that is written, where an extraction writes one."""
    bytes_done: int
    """Bytes that are done, of all files together."""
    bytes_total: int
    """Bytes that will be."""

    @staticmethod
    def _of(data: dict[str, Any]) -> VindexProgress:
        return VindexProgress(
            file=data["file"],
            part=data["part"],
            layer=data["layer"],
            bytes_done=data["bytesDone"],
            bytes_total=data["bytesTotal"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "file": self.file,
            "part": self.part,
            "layer": self.layer,
            "bytesDone": self.bytes_done,
            "bytesTotal": self.bytes_total,
        }


@dataclass(frozen=True, slots=True)
class ExtractFile:
    """A file of a vindex."""

    name: str
    """Its path in the folder."""
    part: Literal[
        "index", "embed", "norms", "attn", "gate", "down_meta", "ffn", "down_features", "expert_layers", "lm_head", "router", "ple", "tokenizer", "manifest", "labels", "knn", "readme"
    ]
    """The part of the model that it belongs to."""
    bytes: int
    """Its length."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ExtractFile:
        return ExtractFile(
            name=data["name"],
            part=data["part"],
            bytes=data["bytes"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "name": self.name,
            "part": self.part,
            "bytes": self.bytes,
        }


@dataclass(frozen=True, slots=True, repr=False)
class ExtractReport(_methods.ExtractReport):
    """What was extracted."""

    path: Path
    """The folder."""
    files: list[ExtractFile]
    """Its files."""
    bytes: int
    """Bytes of all files."""
    resumed_bytes: int
    """Bytes that an interrupted run had written, and this one took over."""
    seconds: float
    """What this run took."""
    warnings: list[str]
    """What somebody who uses the folder should know: what is left out, and what LARQL does not see of it."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ExtractReport:
        return ExtractReport(
            path=Path(data["path"]),
            files=[ExtractFile._of(item) for item in data["files"]],
            bytes=data["bytes"],
            resumed_bytes=data["resumedBytes"],
            seconds=_number(data["seconds"]),
            warnings=data["warnings"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "path": _methods.plain(self.path),
            "files": _methods.plain(self.files),
            "bytes": self.bytes,
            "resumedBytes": self.resumed_bytes,
            "seconds": self.seconds,
            "warnings": _methods.plain(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class SlicedFile:
    """A file of a slice."""

    name: str
    """Its path in the folder, with ``/`` between its parts."""
    bytes: int
    """Its length."""
    method: Literal["linked", "cloned", "copied", "rewritten"]
    """How it came there. ``linked``: It is the same file; ``cloned``: It has the same blocks until one of both is
    written to; ``copied``: Its bytes were copied; ``rewritten``: It was written anew, with what the slice takes of
    it."""

    @staticmethod
    def _of(data: dict[str, Any]) -> SlicedFile:
        return SlicedFile(
            name=data["name"],
            bytes=data["bytes"],
            method=data["method"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "name": self.name,
            "bytes": self.bytes,
            "method": self.method,
        }


@dataclass(frozen=True, slots=True, repr=False)
class SliceReport(_methods.SliceReport):
    """What a slice is made of. Its text is a line for each file."""

    path: Path
    """The slice's folder."""
    files: list[SlicedFile]
    """Its files, by name."""
    left_out: list[str]
    """Files of the source that it does not have."""
    lacks: list[
        Literal["index", "embed", "norms", "attn", "gate", "down_meta", "ffn", "down_features", "expert_layers", "lm_head", "router", "ple", "tokenizer", "manifest", "labels", "knn", "readme"
    ]]
    """Parts that the whole vindex has and the slice lacks."""
    bytes: int
    """Bytes of all its files."""
    written_bytes: int
    """Bytes of files that are neither linked nor cloned."""
    text: str
    """The report as text."""

    @staticmethod
    def _of(data: dict[str, Any]) -> SliceReport:
        return SliceReport(
            path=Path(data["path"]),
            files=[SlicedFile._of(item) for item in data["files"]],
            left_out=data["leftOut"],
            lacks=data["lacks"],
            bytes=data["bytes"],
            written_bytes=data["writtenBytes"],
            text=data["text"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "path": _methods.plain(self.path),
            "files": _methods.plain(self.files),
            "leftOut": _methods.plain(self.left_out),
            "lacks": _methods.plain(self.lacks),
            "bytes": self.bytes,
            "writtenBytes": self.written_bytes,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A file of a folder that was verified."""

    name: str
    """Its path in the folder, with ``/`` between its parts."""
    part: Literal[
        "index", "embed", "norms", "attn", "gate", "down_meta", "ffn", "down_features", "expert_layers", "lm_head", "router", "ple", "tokenizer", "manifest", "labels", "knn", "readme"
    ] | None
    """The part that it belongs to; ``None`` for files that are not a vindex's, which are not looked at."""
    bytes: int
    """Its length; 0 for one that is missing."""
    status: Literal["verified", "checked", "missing", "damaged"]
    """How it was found."""

    @staticmethod
    def _of(data: dict[str, Any]) -> VerifiedFile:
        return VerifiedFile(
            name=data["name"],
            part=data["part"],
            bytes=data["bytes"],
            status=data["status"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "name": self.name,
            "part": self.part,
            "bytes": self.bytes,
            "status": self.status,
        }


@dataclass(frozen=True, slots=True)
class VerifyProblem(_methods.VerifyProblem):
    """Something that is wrong with a folder."""

    file: str
    """The file, by its path in the folder."""
    bytes: range | None
    """The bytes that it concerns; ``None``: no certain ones."""
    kind: Literal["missing", "size", "hash", "overlap", "gap", "not_finite", "unlisted", "format", "unreadable"]
    """What kind of damage it is."""
    tensor: str | None
    """The tensor that it concerns."""
    message: str
    """What was expected, and what found."""
    text: str = field(repr=False)
    """The problem as text."""

    @staticmethod
    def _of(data: dict[str, Any]) -> VerifyProblem:
        return VerifyProblem(
            file=data["file"],
            bytes=None if data["bytes"] is None else range(data["bytes"]["start"], data["bytes"]["end"]),
            kind=data["kind"],
            tensor=data["tensor"],
            message=data["message"],
            text=data["text"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "file": self.file,
            "bytes": _methods.plain(self.bytes),
            "kind": self.kind,
            "tensor": self.tensor,
            "message": self.message,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport(_methods.VerifyReport):
    """What a verification found. Its text is a summary and a line for each problem."""

    path: Path
    """The folder."""
    files: list[VerifiedFile]
    """Its files, those included that are missing."""
    problems: list[VerifyProblem]
    """What is wrong, by file and place."""
    bytes_read: int
    """Bytes that were read for hashes and numbers."""
    text: str
    """The report as text."""

    @staticmethod
    def _of(data: dict[str, Any]) -> VerifyReport:
        return VerifyReport(
            path=Path(data["path"]),
            files=[VerifiedFile._of(item) for item in data["files"]],
            problems=[VerifyProblem._of(item) for item in data["problems"]],
            bytes_read=data["bytesRead"],
            text=data["text"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "path": _methods.plain(self.path),
            "files": _methods.plain(self.files),
            "problems": _methods.plain(self.problems),
            "bytesRead": self.bytes_read,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class FeatureHit:
    """A feature, and the product of its gate row with a query."""

    layer: int
    """The layer."""
    feature: int
    """The feature's number in its layer; those of a mixture are numbered over all experts in their order."""
    score: float
    """The product, before any activation."""

    @staticmethod
    def _of(data: dict[str, Any]) -> FeatureHit:
        return FeatureHit(
            layer=data["layer"],
            feature=data["feature"],
            score=_number(data["score"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "layer": self.layer,
            "feature": self.feature,
            "score": self.score,
        }


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
    """The token that it writes most, without spaces around it; empty where nothing else is left of it."""
    relation: str | None
    """Its label, where probes have confirmed one."""

    @staticmethod
    def _of(data: dict[str, Any]) -> WalkHit:
        return WalkHit(
            layer=data["layer"],
            feature=data["feature"],
            gate_score=_number(data["gateScore"]),
            target=data["target"],
            relation=data["relation"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "layer": self.layer,
            "feature": self.feature,
            "gateScore": self.gate_score,
            "target": self.target,
            "relation": self.relation,
        }


@dataclass(frozen=True, slots=True)
class Edge:
    """A token that features write which answer to an entity."""

    target: str
    """The token, without spaces around it, as the first of the features spells it."""
    gate_score: float
    """The largest gate score among these features; 0 where all are below."""
    layer: int
    """The layer of that feature."""
    feature: int
    """That feature."""
    relation: str | None
    """Its label, where probes have confirmed one."""
    source: Literal["probe", "cluster"] | None
    """Where the label comes from. ``probe``: A probe of the model confirmed it: ``feature_labels.json``;
    ``cluster``: It is the name of the feature's cluster: ``relation_clusters.json`` and ``feature_clusters.jsonl``."""
    layer_min: int
    """The first layer with such a feature."""
    layer_max: int
    """The last."""
    count: int
    """Such features."""
    also: list[str]
    """Up to three other tokens that the first of the features writes."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Edge:
        return Edge(
            target=data["target"],
            gate_score=_number(data["gateScore"]),
            layer=data["layer"],
            feature=data["feature"],
            relation=data["relation"],
            source=data["source"],
            layer_min=data["layerMin"],
            layer_max=data["layerMax"],
            count=data["count"],
            also=data["also"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "target": self.target,
            "gateScore": self.gate_score,
            "layer": self.layer,
            "feature": self.feature,
            "relation": self.relation,
            "source": self.source,
            "layerMin": self.layer_min,
            "layerMax": self.layer_max,
            "count": self.count,
            "also": _methods.plain(self.also),
        }


@dataclass(frozen=True, slots=True)
class Description:
    """What a model associates with an entity."""

    entity: str
    """The entity, as it was asked for."""
    model: str
    """The model's name in the index."""
    edges: list[Edge]
    """The largest gate scores first; of equal ones the one that was found in an earlier layer."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Description:
        return Description(
            entity=data["entity"],
            model=data["model"],
            edges=[Edge._of(item) for item in data["edges"]],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "entity": self.entity,
            "model": self.model,
            "edges": _methods.plain(self.edges),
        }


@dataclass(frozen=True, slots=True)
class FeatureToken:
    """A token that a feature writes."""

    id: int
    """The token."""
    text: str
    """Its text, without spaces around it."""
    logit: float
    """The product of its embedding with the feature's down column."""

    @staticmethod
    def _of(data: dict[str, Any]) -> FeatureToken:
        return FeatureToken(
            id=data["id"],
            text=data["text"],
            logit=_number(data["logit"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "id": self.id,
            "text": self.text,
            "logit": self.logit,
        }


@dataclass(frozen=True, slots=True)
class Label:
    """What a feature is said to mean."""

    name: str
    """A relation, e.g. ``capital``."""
    source: Literal["probe", "cluster"]
    """Who says so. ``probe``: A probe of the model confirmed it: ``feature_labels.json``; ``cluster``: It is the
    name of the feature's cluster: ``relation_clusters.json`` and ``feature_clusters.jsonl``."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Label:
        return Label(
            name=data["name"],
            source=data["source"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "name": self.name,
            "source": self.source,
        }


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

    @staticmethod
    def _of(data: dict[str, Any]) -> Feature:
        return Feature(
            layer=data["layer"],
            feature=data["feature"],
            top_token=data["topToken"],
            top_token_id=data["topTokenId"],
            c_score=_number(data["cScore"]),
            tokens=[FeatureToken._of(item) for item in data["tokens"]],
            label=None if data["label"] is None else Label._of(data["label"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "layer": self.layer,
            "feature": self.feature,
            "topToken": self.top_token,
            "topTokenId": self.top_token_id,
            "cScore": self.c_score,
            "tokens": _methods.plain(self.tokens),
            "label": _methods.plain(self.label),
        }


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

    @staticmethod
    def _of(data: dict[str, Any]) -> Selected:
        return Selected(
            layer=data["layer"],
            feature=data["feature"],
            target=data["target"],
            c_score=_number(data["cScore"]),
            relation=data["relation"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "layer": self.layer,
            "feature": self.feature,
            "target": self.target,
            "cScore": self.c_score,
            "relation": self.relation,
        }


@dataclass(frozen=True, slots=True)
class Selection:
    """Features, as ``VindexBrowser::select`` found them."""

    features: list[Selected]
    """The first of them."""
    total: int
    """How many there are."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Selection:
        return Selection(
            features=[Selected._of(item) for item in data["features"]],
            total=data["total"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "features": _methods.plain(self.features),
            "total": self.total,
        }


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

    @staticmethod
    def _of(data: dict[str, Any]) -> Relation:
        return Relation(
            name=data["name"],
            count=data["count"],
            max_score=_number(data["maxScore"]),
            min_layer=data["minLayer"],
            max_layer=data["maxLayer"],
            examples=data["examples"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "name": self.name,
            "count": self.count,
            "maxScore": self.max_score,
            "minLayer": self.min_layer,
            "maxLayer": self.max_layer,
            "examples": _methods.plain(self.examples),
        }


@dataclass(frozen=True, slots=True)
class Probe:
    """A label that probes confirmed."""

    name: str
    """The label."""
    count: int
    """Features that have it."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Probe:
        return Probe(
            name=data["name"],
            count=data["count"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "name": self.name,
            "count": self.count,
        }


@dataclass(frozen=True, slots=True)
class Relations:
    """What a model's layers of facts write about."""

    relations: list[Relation]
    """Words that features write most, by how many do; of equal ones the one that was found in an earlier layer
    first."""
    total: int
    """How many words there are."""
    probes: list[Probe]
    """Labels that probes confirmed, by how many features have them; of equal ones the one of an earlier layer first."""
    probe_count: int
    """Features with such labels."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Relations:
        return Relations(
            relations=[Relation._of(item) for item in data["relations"]],
            total=data["total"],
            probes=[Probe._of(item) for item in data["probes"]],
            probe_count=data["probeCount"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "relations": _methods.plain(self.relations),
            "total": self.total,
            "probes": _methods.plain(self.probes),
            "probeCount": self.probe_count,
        }
