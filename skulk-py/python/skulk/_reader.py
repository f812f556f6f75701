"""How is a vindex folder used? `VindexReader`: its tensors, parts, slices, and what its model knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar

from . import _arrays, _skulk, vindex
from ._methods import maybe
from ._skulk import CancelToken, Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from .options import SliceOptions, VerifyOptions

T = TypeVar("T")


class VindexReader:
    """An opened vindex folder, whole or a slice, of any level. Nothing of its weights is read until it is asked for.

    ``name in reader``, ``reader[name]``, ``len(reader)`` and ``list(reader)`` are about its tensors. Asking for what a
    slice lacks raises `TensorMissingError`, which names the part. Threads may share one; their searches take turns.
    Pickled, it is its path, which is opened again. Files of an open folder may be replaced or deleted, and arrays stay
    what they were, but neither cut off nor written to: their bytes are mapped.
    """

    __slots__ = ("_index", "_known", "_tensors", "_threads", "_vindex")

    def __init__(self, path: str | PathLike[str], *, threads: int | None = None) -> None:
        """Opens the folder at ``path``; searches will compute on so many threads (all by default).

        Raises `FileNotFoundError` without an ``index.json``, and `CheckpointInvalidError`, `ConfigInvalidError`,
        `CheckpointTruncatedError` or `DTypeUnsupportedError` for what breaks the format.
        """
        self._vindex = _skulk.Vindex(path, threads)
        self._threads = threads
        self._known = self._vindex.facts()
        self._index: dict[str, Any] = self._known["index"]
        self._tensors: dict[str, vindex.TensorInfo] | None = None

    def __repr__(self) -> str:
        kind = "".join(f", {word}" for word in (self._storage, self._slice) if word)
        return f"<skulk.VindexReader {self.model}: {self.num_layers} layers, level {self.level}{kind}>"

    def __reduce__(self) -> tuple[Callable[..., VindexReader], tuple[Path, int | None]]:
        return _open, (self.path, self._threads)

    def _repr_html_(self) -> str:
        from ._notebook import folder

        return folder(self)

    def __enter__(self) -> VindexReader:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def _ask(self, name: str, read: Callable[[Any], T], cancel: CancelToken | None = None, /, **arguments: object) -> T:
        return read(self._vindex.ask(name, arguments, cancel))

    def close(self) -> None:
        """Lets go of the folder; used afterwards, its methods raise `InvalidArgumentError`. Arrays stay what they are."""
        self._vindex.close()

    @property
    def _facts(self) -> dict[str, Any]:
        # Raises once it is closed.
        self._vindex.path()
        return self._known

    @property
    def _storage(self) -> str:
        return self.dtype if self.quant == "none" else self.quant

    @property
    def _slice(self) -> str:
        """What of the whole folder this one is, in words."""
        made: dict[str, Any] | None = (self._index.get("skulk") or {}).get("slice")
        if made is None:
            return ""
        ranges = (
            f" of {what} {', '.join(f'{first}..{end}' for first, end in made[what])}"
            for what in ("layers", "experts")
            if made.get(what)
        )
        return f"{made['preset']} slice{''.join(ranges)}"

    @property
    def path(self) -> Path:
        """The folder."""
        return self._vindex.path()

    @property
    def index(self) -> dict[str, Any]:
        """``index.json``, with the defaults of what it leaves out; a copy of yours."""
        return deepcopy(self._index)

    @property
    def model(self) -> str:
        """The model's name, as it was given when extracting."""
        return str(self._index["model"])

    @property
    def family(self) -> str:
        """LARQL's name of the family."""
        return str(self._index["family"])

    @property
    def num_layers(self) -> int:
        """Decoder layers of the model."""
        return int(self._index["num_layers"])

    @property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return int(self._index["hidden_size"])

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding table."""
        return int(self._index["vocab_size"])

    @property
    def level(self) -> str:
        """How much of the model was extracted: ``browse``, ``attention``, ``inference`` or ``all``."""
        return str(self._index["extract_level"])

    @property
    def dtype(self) -> str:
        """The type of gate vectors and float files, by what the index says: ``f32`` or ``f16``."""
        return str(self._index["dtype"])

    @property
    def quant(self) -> str:
        """How other weights are stored: ``none``, as floats, or ``q4k``."""
        return str(self._index["quant"])

    @property
    def lacks(self) -> list[str]:
        """Parts that the whole vindex has and this folder lacks."""
        return list(self._facts["lacks"])

    @property
    def layers(self) -> list[int]:
        """The layers of which the index tells features, in order. A slice may lack their gate vectors."""
        return list(self._facts["layers"])

    @property
    def bands(self) -> vindex.VindexBands:
        """Which layers count as syntax, knowledge and output."""
        return vindex.VindexBands._of(self._facts["bands"])

    @property
    def tokenizer(self) -> Tokenizer:
        """The folder's tokenizer. Raises `TokenizerInvalidError` in a slice without one."""
        return self._vindex.tokenizer()

    def parts(self) -> list[vindex.PartInfo]:
        """The parts that the folder holds, and the files of each, as they are now."""
        return self._ask("parts", many(vindex.PartInfo._of))

    @property
    def _by_name(self) -> dict[str, vindex.TensorInfo]:
        if self._tensors is None:
            tensors = many(vindex.TensorInfo._of)(self._facts["tensors"])
            self._tensors = {tensor.name: tensor for tensor in tensors}
        return self._tensors

    @property
    def tensors(self) -> list[vindex.TensorInfo]:
        """Every tensor that the folder's files hold, by name."""
        return list(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        """Whether there is a tensor of that name."""
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        """The tensors' names, in order."""
        return iter(self._by_name)

    def __len__(self) -> int:
        """Tensors."""
        return len(self._by_name)

    def tensor(self, name: str) -> vindex.TensorInfo:
        """Where a tensor lies, and what it is. Raises `TensorMissingError`, which says what the folder lacks."""
        if name not in self._by_name:
            # The native module knows why.
            self._vindex.region(name)
        return self._by_name[name]

    def array(self, name: str) -> NDArray[np.floating[Any]]:
        """A tensor as an array. F32 and F16 are a read-only view of the file's map, nothing is copied; other types are
        decoded to a new array of float32. What rows are padded with is left out; transposed down projections have rows
        of zeros behind those of the features.

        Raises `TensorMissingError` for what the folder lacks, ImportError without NumPy.
        """
        return _arrays.array(self._vindex.region(name))

    def __getitem__(self, name: str) -> NDArray[np.floating[Any]]:
        """The same as `array`."""
        return self.array(name)

    def gates(self, layer: int) -> NDArray[np.floating[Any]]:
        """A layer's gate vectors, ``[features, hidden_size]``, all experts' behind each other; as `array` gives them.

        Raises `InvalidArgumentError` for a layer that the model does not have, `TensorMissingError` for one that the
        folder lacks, ImportError without NumPy.
        """
        return _arrays.array(self._vindex.gates(layer))

    def embed(self, token: SupportsIndex | Iterable[SupportsIndex]) -> NDArray[np.float32]:
        """What enters the first layer for a token, ``[hidden_size]``, or for each of some, ``[tokens, hidden_size]``.

        Raises `InvalidArgumentError` for a token without an embedding, `TensorMissingError` in a slice without them,
        ImportError without NumPy.
        """
        _arrays.numpy()
        if isinstance(token, (str, bytes, bytearray, memoryview)):
            found = type(token).__name__
            message = f"expected a token's number, or several, found an instance of {found}: encode texts with the tokenizer"
            raise _skulk.invalid("tokens", message)
        # Arrays without dimensions look as if they could be iterated, too.
        if isinstance(token, Iterable) and getattr(token, "ndim", None) != 0:
            ids = list(token)
            return self._ask("embed", _arrays.floats, tokens=ids).reshape(len(ids), self.hidden_size)
        return self._ask("embed", _arrays.floats, tokens=[token])

    def nearest(
        self,
        query: Iterable[float],
        k: int = 10,
        *,
        layers: Iterable[int] | None = None,
        cancel: CancelToken | None = None,
    ) -> list[vindex.FeatureHit]:
        """The ``k`` features of each layer whose gate rows have products of the largest magnitude with ``query``,
        ``hidden_size`` numbers: the largest of the first layer first. ``layers`` are all that have features by default.

        Raises `InvalidArgumentError` for a query of another width or with infinite numbers and for layers that the
        model does not have, `TensorMissingError` for those that the folder lacks.
        """
        read, options = many(vindex.FeatureHit._of), {"k": k, "layers": layers}
        return self._ask("nearest", read, cancel, query=_arrays.numbers(query), options=options)

    def scores(self, layer: int, query: Iterable[float]) -> NDArray[np.float32]:
        """The products of all gate rows of a layer with ``query``. Raises as `nearest`, ImportError without NumPy."""
        _arrays.numpy()
        return self._ask("scores", _arrays.floats, layer=layer, query=_arrays.numbers(query))

    def walk(
        self,
        prompt: str,
        *,
        top: int = 5,
        layers: Iterable[int] | None = None,
        cancel: CancelToken | None = None,
    ) -> list[vindex.WalkHit]:
        """The features that a prompt's last token wakes: of each layer the ``top`` ones of largest product.

        Raises `InvalidArgumentError` for an empty prompt; `FileNotFoundError` in a slice without ``down_meta.bin``;
        then as `nearest`.
        """
        read, options = many(vindex.WalkHit._of), {"top": top, "layers": layers}
        return self._ask("walk", read, cancel, prompt=prompt, options=options)

    def describe(
        self,
        entity: str,
        *,
        band: Literal["all", "syntax", "knowledge", "output"] = "knowledge",
        limit: int = 20,
        min_score: float = 5.0,
        cancel: CancelToken | None = None,
    ) -> vindex.Description:
        """What the model associates with an entity: the tokens that features write whose gate rows answer to it with
        ``min_score`` or more, of ``limit`` features in each layer of a band, and ``limit`` tokens at most.

        Raises as `walk`; a text without tokens has no edges.
        """
        options = {"band": band, "limit": limit, "min_score": min_score}
        return self._ask("describe", vindex.Description._of, cancel, entity=entity, options=options)

    def feature(self, layer: int, feature: int) -> vindex.Feature | None:
        """A feature and what it writes; ``None`` where nothing is written down of it.

        Raises `InvalidArgumentError` for a layer that the model does not have, `FileNotFoundError` in a slice without
        ``down_meta.bin``.
        """
        return self._ask("feature", maybe(vindex.Feature._of), layer=layer, feature=feature)

    def features(self, layer: int, *, cancel: CancelToken | None = None) -> list[vindex.Feature]:
        """The features of a layer of which anything is written down, in order. Raises as `feature`."""
        return self._ask("features", many(vindex.Feature._of), cancel, layer=layer)

    def select(
        self,
        *,
        entity: str | None = None,
        relation: str | None = None,
        layer: int | None = None,
        min_score: float | None = None,
        order: Literal["score", "layer"] = "score",
        ascending: bool = False,
        limit: int = 20,
        cancel: CancelToken | None = None,
    ) -> vindex.Selection:
        """Features in order: those that write a token with ``entity`` in it, have ``relation`` in their label, are in a
        ``layer``, and write their token with ``min_score`` or more. The largest score, or the last layer, comes first
        unless ``ascending``. Raises as `feature`.
        """
        options = {
            "entity": entity,
            "relation": relation,
            "layer": layer,
            "min_score": min_score,
            "order": order,
            "ascending": ascending,
            "limit": limit,
        }
        return self._ask("select", vindex.Selection._of, cancel, options=options)

    def relations(
        self, *, limit: int = 50, min_score: float = 0.2, cancel: CancelToken | None = None
    ) -> vindex.Relations:
        """The words that features of the layers of facts write most, ``min_score`` or more each, and the labels that
        probes confirmed. Raises as `feature`.
        """
        options = {"limit": limit, "min_score": min_score}
        return self._ask("relations", vindex.Relations._of, cancel, options=options)

    def slice(
        self,
        target: str | PathLike[str],
        *,
        progress: Callable[[vindex.VindexProgress], object] | Literal[True] | None = None,
        cancel: CancelToken | None = None,
        **options: Unpack[SliceOptions],
    ) -> vindex.SliceReport:
        """Makes a folder at ``target`` of what a role takes of this one, of ``parts`` instead, or of some ``layers`` or
        ``experts``: a range, several, or pairs of the first and the one behind the last.

        Files that are taken whole are links where the file system can, else copies; ``copy="copy"`` never links. Files
        of which only some layers or experts are taken are written anew. An error, Ctrl-C or ``cancel`` leaves nothing
        under that name.

        Raises `InvalidArgumentError` for what the model does not have, and a target that is there and not an empty
        folder; `TensorMissingError` for what this folder lacks.
        """
        given: dict[str, Any] = {**options}
        given |= {name: _ranges(name, given[name]) for name in ("layers", "experts") if given.get(name) is not None}
        return self._vindex.slice(target, given, progress, cancel)

    def verify(
        self,
        *,
        progress: Callable[[vindex.VindexProgress], object] | Literal[True] | None = None,
        cancel: CancelToken | None = None,
        **options: Unpack[VerifyOptions],
    ) -> vindex.VerifyReport:
        """Verifies the folder as it is now. Arguments as those of `skulk.verify_vindex`."""
        return _skulk.verify_vindex(self.path, progress=progress, cancel=cancel, **options)


def many(read: Callable[[Any], T]) -> Callable[[list[Any]], list[T]]:
    """Reads each."""
    return lambda items: [read(item) for item in items]


def _open(path: Path, threads: int | None) -> VindexReader:
    return VindexReader(path, threads=threads)


def _ranges(name: str, given: Any) -> list[dict[str, int]]:
    wrong = f"expected a range, ranges or pairs of the first number and the one behind the last, found {given!r:.80}"
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise _skulk.invalid(name, wrong)
    ranges: list[dict[str, int]] = []
    for each in [given] if isinstance(given, range) else given:
        if not isinstance(each, range):
            try:
                start, stop = each
            except (TypeError, ValueError):
                raise _skulk.invalid(name, wrong) from None
            ranges.append({"start": start, "end": stop})
        elif each.step == 1:
            ranges.append({"start": each.start, "end": each.stop})
        else:
            ranges.extend({"start": n, "end": n + 1} for n in each)
    return ranges
