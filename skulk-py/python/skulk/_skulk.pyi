"""Native part of `skulk`: handles on models, sessions and running generations, and exceptions."""

import builtins
from collections.abc import Awaitable, Callable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, final

from ._data import Arch, Device, Event, Output, Stage

__version__: str

def devices() -> list[Device]:
    """The devices of this machine that engines run on: the CPU, and every GPU by every backend that
    reaches it."""

def error_kinds() -> list[tuple[str, str]]:
    """Every kind of error as `(name, code)`; the class of kind `Name` is `skulk.NameError`."""

@final
class CancelToken:
    """A switch that stops the work it was handed to: loading, prefill or decoding, within one layer.

    Cancelling is sticky: use a fresh token for new work. Any thread may cancel.
    """

    def __new__(cls) -> CancelToken: ...
    def cancel(self) -> None:
        """Asks the work to stop. Returns at once."""

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""

@final
class Tokenizer:
    """A model's vocabulary and the rules that cut text into it. See `Model.tokenizer`."""

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """The tokens of `text`. Control tokens spelt out in it become those tokens; with
        `add_special`, the model's rules add a beginning-of-sequence token where it belongs.

        Raises `TokenizerInvalidError` when the tokenizer's own rules fail on the text.
        """

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of `ids`. Control tokens are left out with `skip_special`, spelt out without.

        Raises `InvalidArgumentError` for ids that are no unsigned 32-bit numbers.
        """

    @property
    def bos(self) -> int | None:
        """The beginning-of-sequence token, if the model has one."""

    @property
    def eos_ids(self) -> list[int]:
        """The tokens that end a generation."""

    @property
    def vocab_size(self) -> int:
        """One past the highest token id."""

@final
class Model:
    """A model ready to generate: its weights, split into stages. Made by `Model.load`."""

    @staticmethod
    def load(
        path: str | PathLike[str],
        *,
        stages: int = 1,
        engine: str | None = None,
        placement: Sequence[tuple[str, int]] | None = None,
        ffn_on_cpu: bool = False,
        device_memory: int | None = None,
        threads: int | None = None,
        context: int | None = None,
        prefill_chunk: int = 256,
        kv: Literal["f16", "f32"] = "f16",
        precision: Literal["fast", "exact", "bf16"] = "fast",
        memory: Literal["auto", "mapped", "resident"] = "auto",
        screen_head: bool = False,
        progress: Callable[[int, int], object] | None = None,
        cancel: CancelToken | None = None,
    ) -> Model:
        """Loads the checkpoint at `path`: a GGUF file or a Hugging Face folder of safetensors.

        `stages` splits the layers evenly on one `engine`: "cpu" (the default), "wgpu" (the best
        GPU), an engine of `devices()`, "candle-cpu", "candle-cuda" or "candle-metal". `placement` instead gives
        engines their numbers of layers, in order, as in `[("wgpu", 20), ("cpu", 12)]`.
        `ffn_on_cpu` leaves feed-forward blocks and experts to the CPU where an engine would copy them to
        its device. `device_memory` is how many bytes "wgpu" may reserve there. `threads` are those of computing on the CPU (all by default);
        `context` is how many tokens a session can hold; `prefill_chunk` how many prompt tokens pass
        through the layers together; `kv` keeps keys and values as "f16" or "f32"; `precision`
        "exact" multiplies what rounding activations to 8 bits leaves over, too, and "bf16" rounds
        them to BF16 where weights are of that type, for faster prompts; `memory` leaves weights
        "mapped", reads them ("resident"), or does what free memory suggests ("auto"); `screen_head` keeps a
        compact copy of the head, so that most of it need not be read, with the same results.
        `progress` is called with the layers loaded so far and their total. `cancel` and Ctrl-C end loading within
        one layer.

        Raises a subclass of `Error` for whatever is wrong with the path, the checkpoint or an
        argument.
        """

    @property
    def placement(self) -> str:
        """Which engine runs which layers, in words."""

    @property
    def stages(self) -> list[Stage]:
        """What each stage holds, in the order a token passes them."""

    @property
    def arch(self) -> Arch:
        """Facts about the architecture."""

    @property
    def context(self) -> int:
        """Positions a session can hold, in tokens."""

    @property
    def load_seconds(self) -> float:
        """How long loading took, in seconds."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    def session(self) -> Session:
        """An empty session. Any number may exist and generate at the same time.

        Raises `OutOfMemoryError` when its KV cache cannot be reserved.
        """

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        penalty_window: int = 64,
        logit_bias: Mapping[int, float] | None = None,
        seed: int | None = None,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
        logprobs: int | None = None,
        cancel: CancelToken | None = None,
    ) -> Generation:
        """Generates from a prompt in a session of its own. Arguments as in `Session.generate`."""

    def _repr_html_(self) -> str: ...

@final
class Session:
    """One conversation with a model: prompts that begin like the tokens it holds are computed only
    from where they differ. Made by `Model.session`.

    Sessions are independent; one session runs one generation at a time.
    """

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        append: bool = False,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        penalty_window: int = 64,
        logit_bias: Mapping[int, float] | None = None,
        seed: int | None = None,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
        logprobs: int | None = None,
        cancel: CancelToken | None = None,
    ) -> Generation:
        """Starts generating and returns at once; the work is done on a thread of its own.

        `prompt` is text, or token ids that are used as given. With `append` the text follows what
        the session holds; without, the prompt is everything so far, of which what the session
        already computed is not computed again.

        `temperature` 0 takes the likeliest token; `top_k`, `top_p` and `min_p` leave out unlikely
        ones; the penalties look at the last `penalty_window` tokens; `logit_bias` maps token ids to
        what is added to their logits; the same `seed` (0 by default) draws the same tokens. `stop`
        texts end the generation and are not part of its text. `logprobs` reports each token's
        log-probability, and those of this many likeliest (0 to 64).

        Raises `InvalidArgumentError` for an empty prompt, unknown token ids or impossible options,
        `ContextOverflowError` when the prompt, or prompt plus `max_tokens`, does not fit, and
        `SessionBusyError` while another generation of this session runs.
        """

    @property
    def tokens(self) -> list[int]:
        """All tokens of the conversation: prompts and what was generated.

        Raises `SessionBusyError` while a generation runs.
        """

    def truncate(self, len: int) -> None:
        """Forgets all tokens but the first `len`. Later prompts reuse what remains.

        Raises `InvalidArgumentError` when the session has fewer tokens, and `SessionBusyError` while
        a generation runs.
        """

@final
class Generation:
    """A running generation: iterate it with `for` or `async for`, or collect it with `text()` or
    `output()`. Leaving its `with` block, or dropping it, cancels what is still running.
    """

    def __iter__(self) -> Generation: ...
    def __next__(self) -> Event: ...
    def __aiter__(self) -> Generation: ...
    def __anext__(self) -> Awaitable[Event]: ...
    def __enter__(self) -> Generation: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...
    def text(self) -> str:
        """Runs to the end and returns the text that was not read yet.

        Raises as `output`.
        """

    def output(self) -> Output:
        """Runs to the end and returns text, tokens and finish of what was not read yet.

        Raises whatever ends the generation early, and `InvalidArgumentError` when it was already
        read to its end.
        """

    def cancel(self) -> None:
        """Asks the generation to end: iterating raises `skulk.CancelledError` within one layer's
        work, after the events that are already there. Any thread may cancel.
        """

    def close(self) -> None:
        """Cancels what is still running and waits until it has ended; the session is free then."""

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt's tokens, special ones included."""

class Error(Exception):
    """Base class of everything skulk raises on its own account."""

    code: str
    """The stable, dotted code of the kind, e.g. `context.overflow`. A class has it too."""
    message: str
    """What was expected, what was found; without code, context or hint."""
    hint: str | None
    """What to do next, where the library knows."""
    retry: Literal["never", "now", "after_replan"]
    """Whether trying again can help."""
    context: dict[str, str]
    """The places the error concerns: file, tensor, field, …"""
    detail: dict[str, Any] | None
    """Typed facts where callers may branch on them: `needed` and `available` tokens of a context,
    or the `expected` and `found` shape of a tensor."""

class InvalidArgumentError(Error, ValueError):
    """An option or argument is outside its allowed values."""

class FileNotFoundError(Error, builtins.FileNotFoundError):
    """A file or folder does not exist."""

class FileIoError(Error, OSError):
    """The operating system failed to read, map or write a file."""

class CheckpointInvalidError(Error):
    """A checkpoint file breaks its format."""

class CheckpointTruncatedError(Error):
    """A checkpoint file ends before the data it announces."""

class ConfigInvalidError(Error):
    """The checkpoint's configuration misses a field or holds an impossible value."""

class ArchUnsupportedError(Error):
    """The model architecture is not one this version can run."""

class DTypeUnsupportedError(Error):
    """A tensor's data type or quantisation is not supported, or not for this use."""

class TensorMissingError(Error):
    """A tensor the architecture needs is not in the checkpoint."""

class TensorShapeError(Error):
    """A tensor has another shape than the architecture needs."""

class TokenizerInvalidError(Error):
    """The tokenizer is absent, broken, or lacks tokens that the model needs."""

class PlacementInvalidError(Error):
    """The placement does not cover the model's layers exactly once, or names an unknown engine."""

class ContextOverflowError(Error):
    """The prompt, or prompt plus requested tokens, does not fit the context."""

class OutOfMemoryError(Error, MemoryError):
    """Memory could not be reserved."""

class EngineUnavailableError(Error):
    """The engine is not compiled in, or its device is not present."""

class EngineFailedError(Error):
    """The engine or its device failed while computing."""

class SessionBusyError(Error):
    """The session is already running a generation."""

class CancelledError(Error):
    """The work was cancelled by its token, or its handle was dropped."""

class InternalError(Error):
    """A broken invariant inside the library: please report it."""
