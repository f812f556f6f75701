"""Native part of `skulk`: handles on models, sessions and running generations.

What is not public has no docstring here: the native module has.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias, final, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack

from . import vindex
from ._chat import ToolChat
from ._contract import (Arch, Budget, ChatAnswer, ChatCall, ChatEvent, ChatFinish, ChatPrompt, Cluster, Device, Divergence,
    Drafter, Event, ExpertShard, FfnMemory, GgufFacts, Inventory, KvMemory, LinkSpeed, ModelCard, ModelMemory, Output, PlacedStage, Price,
    SpeculationReport, Stage, ToolResult)
from ._errors import Error, InvalidArgumentError
from ._report import PlanReport
from .options import (ChatOptions, EmbeddingOptions, EmbedOptions, ExtractOptions, GenerateOptions, LinkOptions, LoadOptions,
    PlacementOptions, PlanOptions, PriceOptions, RenderOptions, ServeOptions, ToolOptions, VerifyOptions)

# Of a list and not of any sequence: a text is a sequence of texts.
_Prompts: TypeAlias = list[str] | list[list[int]] | list[str | list[int]] | tuple[str | Sequence[int], ...]

_Messages: TypeAlias = str | Mapping[str, Any] | Iterable[Mapping[str, Any]]

__version__: str

def devices() -> list[Device]:
    """The devices of this machine that engines run on: the CPU, and every GPU by every backend that reaches it."""

def error_kinds() -> list[tuple[str, str]]:
    """Every kind of error as `(name, code)`; the class of kind `Name` is `skulk.NameError`."""

def card_open(path: str | PathLike[str]) -> ModelCard: ...
def card_from_checkpoint(path: str | PathLike[str]) -> ModelCard: ...
def card_save(card: object, path: str | PathLike[str]) -> None: ...
def is_gemma4_family(model_id: str, card: ModelCard | None = None) -> bool:
    """Whether a model is to be run as Gemma 4, by its id, its family or anything that its card says."""

def call(name: str, arguments: dict[str, Any]) -> Any: ...
def invalid(field: str, message: str) -> InvalidArgumentError: ...
def inventory_from_checkpoint(path: str | PathLike[str]) -> Inventory: ...
def inventory_from_draft_model(model: str | PathLike[str], path: str | PathLike[str]) -> Inventory: ...
def measure_disk(path: str | PathLike[str]) -> float: ...
def measure_link(address: str, cancel: CancelToken | None, options: LinkOptions) -> LinkSpeed: ...
def gguf_facts(start: bytes) -> GgufFacts:
    """What the start of a GGUF file says that a card needs.

    Raises `CheckpointInvalidError`, `CheckpointTruncatedError` and `ConfigInvalidError`."""

@final
class Library:
    """What is behind a `skulk.CardLibrary`."""

    def __new__(cls, builtin: bool, folders: Sequence[str | PathLike[str]]) -> Library: ...
    def ids(self) -> list[str]: ...
    def get(self, model_id: str) -> ModelCard | None: ...
    def file(self, model_id: str) -> Path | None: ...
    def folders(self) -> list[Path]: ...
    def problems(self) -> list[Error]: ...
    def reload(self) -> None: ...
    def add_folder(self, path: str | PathLike[str]) -> None: ...
    def save(self, folder: str | PathLike[str], card: ModelCard) -> Path: ...
    def remove(self, model_id: str) -> bool: ...

def plan(
    card: ModelCard | str | PathLike[str],
    cluster: Cluster | None = None,
    **options: Unpack[PlanOptions],
) -> Placement:
    """Plans where a model runs: the fastest placement on a cluster that satisfies what is asked for, the same for the
    same arguments. Nothing is loaded.

    `card` is a `skulk.ModelCard`, or the path of a checkpoint, whose own tensors are counted then. `cluster` is this
    machine unless given. `options` are those of `skulk.options.PlanOptions`.

    Raises `PlanNoFitError` when no placement satisfies the request, `PlanPendingError` when nodes have not yet
    reported what it depends on, both with a ``report``; `CardInvalidError` for a card and `InvalidArgumentError` for
    a cluster or request that cannot be."""

def price(
    card: ModelCard | str | PathLike[str],
    placement: Placement | Sequence[tuple[str, int]],
    cluster: Cluster | None = None,
    **options: Unpack[PriceOptions],
) -> Price:
    """What a placement costs on a cluster, whether or not it fits there: a token of each session, and a prompt. Nothing is
    loaded.

    `card` and `cluster` are as in `plan`. `placement` is what `plan` or `Placement` made, or gives engines their numbers
    of layers. `options` are those of `skulk.options.PriceOptions`.

    Raises `PlacementInvalidError` where a device of the placement is not in the cluster, or not reached from its
    coordinator, and for another model's; `CardInvalidError` for a card and `InvalidArgumentError` for a cluster or an option
    that cannot be."""

@final
class Placement:
    """Which node runs which layers and experts. Made by `skulk.plan`, read by `Placement.from_json`."""

    @staticmethod
    def from_json(text: str) -> Placement:
        """Reads what `to_json` writes, and Skulk 1.3's instances.

        Raises `PlacementInvalidError` with the field's path for anything else, and for layers or experts that are
        not there exactly once."""

    @staticmethod
    def by_counts(counts: Sequence[tuple[str, int]]) -> Placement:
        """Stages of so many layers each, one behind the other, on engines by name, as in `[("wgpu", 20), ("cpu", 12)]`.

        Raises `PlacementInvalidError` for a stage without layers, or no stages."""

    @staticmethod
    def build(model: str | PathLike[str] | Inventory, **options: Unpack[PlacementOptions]) -> Placement:
        """A placement by hand, of the model of a checkpoint, or of one that a `skulk.Inventory` describes. `options` are
        those of `skulk.options.PlacementOptions`; patterns over tensor names need a checkpoint.

        Raises `PlacementInvalidError` for layers without an engine, ranges beyond the model, options that place the same
        differently, and patterns that match nothing, part of a block, or what stays with attention;
        `InvalidArgumentError` for what is no such text or pattern."""

    def with_address(self, node: str, address: str) -> Placement:
        """The same placement, with the address where `node` serves what this has on it: ``http://host:port``,
        ``https://host:port`` or ``unix:///path``. None of them is asked before `Model.load`."""

    n_layers: Final[int]
    """Layers of the model."""
    stages: Final[list[PlacedStage]]
    """The stages, by rank: of a pipeline, in the order a token passes them."""
    experts: Final[list[ExpertShard]]
    """Feed-forward blocks and experts that are elsewhere than their layer's attention."""
    addresses: Final[dict[str, str]]
    """Where nodes serve what this has on them, by node."""
    budgets: Final[list[Budget]]
    """What each device is to hold, where the placement came with that."""
    ffn_budget: Final[int | None]
    """Bytes of feed-forward blocks and experts that the coordinator's processor has in memory at most, where the others
    stay on disk; None: all are in memory. `Model.load` keeps it."""
    context_tokens: Final[int | None]
    """Tokens for which a plan reserves keys and values: the context that `Model.load` gives sessions. None: it was
    made by hand, or came as an MLX instance, which does not say."""
    sessions: Final[int | None]
    """Sessions for each of which a plan reserves keys and values: as many as `Model.load` lets generate at once, unless its
    options ask for fewer. None: as of `context_tokens`."""
    drafter: Final[Drafter | None]
    """What a plan counts that drafts, on the last stage's device: `Model.load` loads the checkpoint's head where it is that,
    and else asks for a `draft_model` that takes no more. None: nothing, or nobody planned it."""
    context_limit: Final[int | None]
    """Tokens that the context is limited to; None: nothing is known that limits it."""
    kv: Final[Literal["f16", "bf16", "f32", "q8_0", "q4_0"]]
    """How keys are kept: as a plan was asked for. Where it was not, "f16" stands for two bytes an element, of what engines
    prefer."""
    kv_values: Final[Literal["f16", "bf16", "f32", "q8_0", "q4_0"]]
    """How values are kept."""
    card: Final[ModelCard | None]
    """The model's card; placements made by hand have none."""
    report: Final[PlanReport | None]
    """Why it is as it is; placements that were not planned here have none."""
    instance_id: Final[str]
    """Its name: the one that it came with, or one that follows from what it says."""

    def to_json(self) -> str:
        """The placement as JSON on one line, in camelCase, as Skulk 1.3 has it for its transports."""

    def to_dict(self) -> dict[str, Any]:
        """What `to_json` writes, as dictionaries and lists."""

    def shard_metadata(self, rank: int) -> dict[str, Any]:
        """The tagged shard of one rank, with the card, as Skulk 1.3 gives it to a runner.

        Raises IndexError when there is no such rank."""

    def check(self, card: ModelCard) -> None:
        """Returns when every layer and expert of the card's model has its place exactly once and each device's part
        fits there by the placement's own budgets.

        Raises `PlacementInvalidError` otherwise."""

    def check_on(self, card: ModelCard, cluster: Cluster, context_tokens: int = 8192) -> None:
        """`check`, and whether each part fits into what its node has now: what the budgets say, which count the
        context that was planned, and without budgets what the reference estimates for `context_tokens`.

        Raises `PlacementInvalidError` otherwise, and `PlanPendingError` where a node has not reported its memory."""

    def __eq__(self, value: object, /) -> bool:
        """Whether both say the same; why, which is in their reports, does not count."""

    def _repr_html_(self) -> str: ...

def serve(
    path: str | PathLike[str],
    *,
    cancel: CancelToken | None = None,
    **options: Unpack[ServeOptions],
) -> Server:
    """Serves the feed-forward blocks and experts of the checkpoint at `path` to other processes and machines, on threads of
    its own: `Model.load` with `ffn_at` has them computed there.

    `options` are those of `skulk.options.ServeOptions`. `cancel` and Ctrl-C end loading within one layer.

    Raises `InvalidArgumentError` for options that cannot be, an address that cannot be listened on, and one that other
    machines reach without a key or certificates; a subclass of `Error` for whatever is wrong with the path or the
    checkpoint."""

@final
class Server:
    """A server of feed-forward blocks and experts. Made by `skulk.serve`. Leaving its `with` block, or dropping it, stops it
    at once. Any thread may use it."""

    address: Final[str]
    """Where it listens, as `ffn_at` takes it."""

    @property
    def metrics(self) -> str:
        """Numbers of what it did and holds, in the text format of OpenMetrics."""

    def stop(self, grace: float = 0.0) -> None:
        """Stops it: no connection is taken any more, requests that were begun are finished within `grace` seconds, and what
        is left then is cut off. Returns when all has ended. Ctrl-C ends waiting for it.

        Raises `InvalidArgumentError` for a time that is none."""

    def wait(self) -> None:
        """Waits until it has stopped, as another thread wants. Ctrl-C ends waiting, and the server goes on."""

    def __enter__(self) -> Server: ...
    def __exit__(self, *_raised: object) -> None: ...

@final
class CancelToken:
    """A switch that stops the work it was handed to: loading, prefill or decoding, within one layer.

    Cancelling is sticky: use a fresh token for new work. Any thread may cancel."""

    def __new__(cls) -> CancelToken: ...
    def cancel(self) -> None:
        """Asks the work to stop. Returns at once."""

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""

@final
class Tokenizer:
    """A model's vocabulary and the rules that cut text into it. See `Model.tokenizer`, `VindexReader.tokenizer`
    and `EmbeddingModel.tokenizer`."""

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """The tokens of `text`. Control tokens spelt out in it become those tokens; with `add_special`, the model's
        rules add a beginning-of-sequence token where it belongs.

        Raises `TokenizerInvalidError` when the tokenizer's own rules fail on the text."""

    def encode_text(self, text: str) -> list[int]:
        """The tokens of `text` alone, in which texts of control tokens stay text.

        Raises `TokenizerInvalidError` when the tokenizer's own rules fail on the text."""

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of `ids`. Control tokens are left out with `skip_special`, spelt out without.

        Raises `InvalidArgumentError` for ids that are no unsigned 32-bit numbers."""

    bos: Final[int | None]
    """The beginning-of-sequence token, if the model has one."""
    eos_ids: Final[list[int]]
    """The tokens that end a generation."""
    vocab_size: Final[int]
    """One past the highest token id."""

@final
class Model:
    """A model ready to generate: its weights, split into stages. Made by `Model.load`."""

    @staticmethod
    def load(
        path: str | PathLike[str],
        *,
        placement: Placement | Sequence[tuple[str, int]] | None = None,
        progress: Callable[[int, int], object] | Literal[True] | None = None,
        cancel: CancelToken | None = None,
        **options: Unpack[LoadOptions],
    ) -> Model:
        """Loads the checkpoint at `path`: a GGUF file or a Hugging Face folder of safetensors.

        `options` are those of `skulk.options.LoadOptions`. `placement` gives engines their numbers of layers, in order,
        as in `[("wgpu", 20), ("cpu", 12)]`, or is what `skulk.plan` made, instead of the options `engine` and `stages`.
        `progress` is called with the layers loaded so far and their total; `True` shows a bar, with tqdm. `cancel` and
        Ctrl-C end loading within one layer.

        Raises a subclass of `Error` for whatever is wrong with the path, the checkpoint or an argument."""

    placement: Final[str]
    """Which engine runs which layers, in words."""
    stages: Final[list[Stage]]
    """What each stage holds, in the order a token passes them."""
    arch: Final[Arch]
    """Facts about the architecture."""
    context: Final[int]
    """Positions a session can hold, in tokens."""
    load_seconds: Final[float]
    """How long loading took, in seconds."""
    tokenizer: Final[Tokenizer]
    """The model's tokenizer."""

    @property
    def ffn_memory(self) -> FfnMemory | None:
        """What is in memory of feed-forward weights, where `ffn_budget` bounds that."""

    @property
    def kv_memory(self) -> KvMemory:
        """What keys and values of all sessions take now, and what is kept for those to come."""

    @property
    def memory(self) -> ModelMemory:
        """What the model holds of memory at present, and what its plan counted."""

    def divergence(
        self, exact: Model, text: str | Sequence[int], *, cancel: CancelToken | None = None
    ) -> Divergence:
        """How far this model's predictions are from an `exact` one's, behind every token of a text or of token ids:
        what `ffn_top_features` or quantised weights cost. `cancel` and Ctrl-C end it within one layer.

        Raises `InvalidArgumentError` for models of different vocabularies and an empty text, `ContextOverflowError`
        for one that is too long for either."""

    def logits(self, text: str | Sequence[int], *, cancel: CancelToken | None = None) -> NDArray[np.float32]:
        """Logits of the next token behind every token of a text or of token ids: ``[tokens, vocab_size]``. `cancel` and
        Ctrl-C end it within one layer.

        Raises `InvalidArgumentError` for an empty text and unknown token ids, `ContextOverflowError` for a text that
        is too long, ImportError without NumPy."""

    def tune_speculation(
        self, prompts: _Prompts, *, cancel: CancelToken | None = None, **options: Unpack[GenerateOptions]
    ) -> SpeculationReport:
        """Measures on these prompts which way to compute tokens ahead is the fastest: none, what texts repeat, and a draft
        model where one is loaded, each with 1, 2, 4 and 8 tokens in every step, and with as many as pay. Ways take turns,
        three times, of each text 128 tokens unless options say otherwise; `speculate` tries that way alone. `print` shows
        the report as a table, notebooks as bars.

        Raises as `generate`, and `InvalidArgumentError` without prompts and for options that fix what is to be found."""

    def session(self) -> Session:
        """An empty session, which takes no memory yet. Any number may exist and generate at the same time."""

    def restore(self, path: str | PathLike[str]) -> Session:
        """A session as `Session.save` wrote it, to be gone on with. The file is not needed afterwards.

        It has to be of the same model, loaded with the same types of keys and values and the same precision on the same
        kind of engine; it may be cut into other stages.

        Raises `SessionInvalidError` when the file is something else, incomplete or changed, `SessionMismatchError` when it
        is of another model, `ContextOverflowError` when the conversation is longer than this model's context, and
        `OutOfMemoryError` when there is no room for its keys and values."""

    def replan(
        self, placement: Placement | Sequence[tuple[str, int]], *, cancel: CancelToken | None = None
    ) -> Model:
        """The same checkpoint, loaded with the same options but for the placement, which is as in `load`: what this model
        computed on machines that are lost is elsewhere there. Both exist while both are used. `cancel` and Ctrl-C end it
        within one layer.

        Raises as `load`."""

    @overload
    def generate(
        self, prompt: str | Sequence[int], *, cancel: CancelToken | None = None, **options: Unpack[GenerateOptions]
    ) -> Generation:
        """Generates from a prompt in a session of its own. Arguments as in `Session.generate`, but for `append`.

        Of a list of prompts, each a text or token ids, it waits for all and returns a list of their outputs, in the order
        of the prompts; they share the steps. One that fails does not end the others. If `return_exceptions` is False (the
        default), the first exception is raised once all have ended. If it is True, exceptions are treated the same as
        outputs, and are in the list. `cancel` and Ctrl-C end all within one layer.

        In an event loop, `asyncio.gather` does the same of generations, which can be awaited."""

    @overload
    def generate(
        self,
        prompt: _Prompts,
        *,
        return_exceptions: Literal[False] = False,
        cancel: CancelToken | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Output]: ...
    @overload
    def generate(
        self,
        prompt: _Prompts,
        *,
        return_exceptions: bool,
        cancel: CancelToken | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Output | Error]: ...

    def chat(self, messages: _Messages, *, cancel: CancelToken | None = None, **options: Unpack[ChatOptions]) -> ChatStream:
        """Answers a conversation in a session of its own: the model's profile says how messages become its prompt and what
        its answer consists of. Arguments as in `Session.chat`."""

    def chat_with_tools(
        self,
        messages: _Messages,
        *,
        cancel: CancelToken | None = None,
        **options: Unpack[ToolOptions],
    ) -> ToolChat:
        """Answers a conversation, and calls these functions, until the model calls none any more.

        `tools` are functions, whose signatures and docstrings the model is told, or pairs of what it is told and a
        function. There are `max_rounds` answers at most; calls of the last one get no results. A function that fails is
        told to the model; with `on_tool_failure='end'` the conversation ends with `ToolFailedError`. Functions run on
        the thread that reads. Everything else is as in `chat`.

        Raises as `chat`, and TypeError for functions that cannot be told."""

    def render_chat(self, messages: _Messages, **options: Unpack[RenderOptions]) -> ChatPrompt:
        """The prompt that messages become, with its tokens. Arguments as in `chat`."""

    def close(self) -> None:
        """Lets go of the model; used afterwards, it raises `InvalidArgumentError`. Its sessions, and what they
        generate, go on."""

    def __enter__(self) -> Model: ...
    def __exit__(self, *_raised: object) -> None: ...
    def _repr_html_(self) -> str: ...

@final
class Session:
    """One conversation with a model: prompts that begin like the tokens it holds are computed only from where they
    differ. Made by `Model.session`.

    Sessions are independent; one session runs one generation at a time."""

    def generate(
        self, prompt: str | Sequence[int], *, cancel: CancelToken | None = None, **options: Unpack[GenerateOptions]
    ) -> Generation:
        """Starts generating and returns at once; the work is done on the model's own thread, in steps with other
        sessions.

        `prompt` is text, or token ids that are used as given. With `append` the text follows what the session holds;
        without, the prompt is everything so far, of which what the session already computed is not computed again.

        `options` are those of `skulk.options.GenerateOptions`. `cancel` ends the generation within one layer.

        Raises `InvalidArgumentError` for an empty prompt, unknown token ids or impossible options,
        `ContextOverflowError` when the prompt, or prompt plus `max_tokens`, does not fit, and `SessionBusyError`
        while another generation of this session runs."""

    def chat(self, messages: _Messages, *, cancel: CancelToken | None = None, **options: Unpack[ChatOptions]) -> ChatStream:
        """Answers a conversation. `messages` are all of it, as dictionaries of OpenAI's shape, or a text, which is one
        message of the user's; what the session holds of it is not computed again.

        `tools` are dictionaries of OpenAI's shape, or functions, whose signatures and docstrings the model is told; what
        it calls, `ChatAnswer.calls` says, and nothing is run. The other options are those of `skulk.options.ChatOptions`. `cancel` ends the
        answer within one layer.

        Raises `InvalidArgumentError` for options that the model's profile or template cannot honour,
        `ChatInvalidError` for messages and tools that are malformed or have no place in the model's markup,
        `TemplateInvalidError` when it has no chat template, or one that fails, `ContextOverflowError` when the
        conversation does not fit, and `SessionBusyError` while a generation of this session runs."""

    @property
    def tokens(self) -> list[int]:
        """All tokens of the conversation: prompts and what was generated.

        Raises `SessionBusyError` while a generation runs."""

    def truncate(self, len: int) -> None:
        """Forgets all tokens but the first `len`. Later prompts reuse what remains.

        Raises `InvalidArgumentError` when the session has fewer tokens, and `SessionBusyError` while a generation
        runs."""

    def fork(self) -> Session:
        """Another session that begins as this one is: its tokens, and what the model holds of them. From then on they
        are independent; what they share is stored once.

        Raises `SessionBusyError` while a generation runs."""

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the conversation to a file: its tokens, and the keys and values that the model holds of them, so that
        `Model.restore` need not compute them again. A file that is there is replaced when all is written.

        Raises `SessionBusyError` while a generation runs, and `FileNotFoundError` or `FileIoError` for what the system
        says of the file or its folder."""

    def recover(
        self, placement: Placement | Sequence[tuple[str, int]], *, cancel: CancelToken | None = None
    ) -> Session:
        """This conversation with its model placed otherwise, see `Model.replan`: all its tokens, and the generation that an
        error cut off, which `resume` goes on with. Keys and values are computed again when it does. `cancel` and Ctrl-C
        end loading within one layer.

        Raises as `Model.replan` and `recover_in`."""

    def recover_in(self, model: Model) -> Session:
        """The same in a model that is loaded already, which several conversations may share.

        Raises `SessionMismatchError` for another model, `ContextOverflowError` when the conversation is longer than its
        context, and `SessionBusyError` while a generation runs."""

    def resume(self, *, cancel: CancelToken | None = None) -> Generation:
        """Goes on with the generation that a lost machine or another error cut off, whose `retry` is `after_replan`: with
        the same options, so that both texts together are the one that it would have generated. Its events follow those
        that were given before. `cancel` ends it within one layer.

        Raises `InvalidArgumentError` when none was cut off, or the session was changed since, `ContextOverflowError`
        when what is left does not fit, and `SessionBusyError` while a generation runs."""

    def close(self) -> None:
        """Lets go of the session; used afterwards, it raises `InvalidArgumentError`. A generation that runs goes on."""

    def __enter__(self) -> Session: ...
    def __exit__(self, *_raised: object) -> None: ...

@final
class Generation:
    """A running generation: iterate it with `for` or `async for`, or collect it with `text()`, `output()` or `await`.
    Leaving its `with` block, or dropping it, cancels what is still running."""

    def __iter__(self) -> Generation: ...
    def __next__(self) -> Event: ...
    def __aiter__(self) -> Generation: ...
    def __anext__(self) -> Awaitable[Event]: ...
    def _poll(self, wake: Callable[[], object]) -> Event | None:
        """The next event for an event loop; when there is none yet, `None`, and `wake` is called later on another
        thread."""

    def __await__(self) -> Generator[Any, None, Output]:
        """Runs to the end beside the event loop: text, tokens and finish of what was not read yet."""

    def _poll_output(self, wake: Callable[[], object]) -> Output | None:
        """The same of all that was not read yet, once it is there."""

    def _ended(self, wake: Callable[[], object]) -> bool:
        """Drops what is left to read. Whether that was all; when not, `wake` is called later on another thread."""

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

        Raises as `output`."""

    def output(self) -> Output:
        """Runs to the end and returns text, tokens and finish of what was not read yet.

        Raises whatever ends the generation early, and `InvalidArgumentError` when it was already read to its end."""

    def cancel(self) -> None:
        """Asks the generation to end: iterating raises `skulk.CancelledError` within one layer's work, after the
        events that are already there. Any thread may cancel."""

    def close(self) -> None:
        """Cancels what is still running and waits until it has ended; the session is free then."""

    def aclose(self) -> Awaitable[None]:
        """The same beside the event loop."""

    def __aenter__(self) -> Awaitable[Generation]: ...
    def __aexit__(self, *_raised: object) -> Awaitable[None]: ...

    prompt_ids: Final[list[int]]
    """The prompt's tokens, special ones included."""

@final
class ChatStream:
    """An answer that is being written: iterate it with `for` or `async for`, or collect it with `answer()` or `await`.
    Leaving its `with` block, or dropping it, cancels what is still running."""

    def __iter__(self) -> ChatStream: ...
    def __next__(self) -> ChatEvent: ...
    def __aiter__(self) -> ChatStream: ...
    def __anext__(self) -> Awaitable[ChatEvent]: ...
    def _poll(self, wake: Callable[[], object]) -> ChatEvent | None:
        """The next event for an event loop; when there is none yet, `None`, and `wake` is called later on another
        thread."""

    def __await__(self) -> Generator[Any, None, ChatAnswer]:
        """Runs to the end beside the event loop: the whole answer."""

    def _poll_answer(self, wake: Callable[[], object]) -> ChatAnswer | None:
        """The same of the whole answer."""

    def _ended(self, wake: Callable[[], object]) -> bool:
        """Drops what is left to read. Whether that was all; when not, `wake` is called later on another thread."""

    def __enter__(self) -> ChatStream: ...
    def __exit__(self, *_raised: object) -> None: ...
    def answer(self) -> ChatAnswer:
        """Runs to the end and returns the whole answer, with what was read before.

        Raises whatever makes it fail, and `InvalidArgumentError` when it failed before or was closed."""

    def text(self) -> str:
        """Runs to the end and returns the whole answer's text.

        Raises as `answer`."""

    def cancel(self) -> None:
        """Asks the answer to end; what there is of it still comes, and an end that says so. Any thread may cancel."""

    def close(self) -> None:
        """Cancels what is still running and waits until it has ended; the session is free then. Events that were not
        read are lost."""

    def aclose(self) -> Awaitable[None]:
        """The same beside the event loop."""

    def __aenter__(self) -> Awaitable[ChatStream]: ...
    def __aexit__(self, *_raised: object) -> Awaitable[None]: ...

    @property
    def message(self) -> dict[str, Any]:
        """The answer as far as it was read, as a message of OpenAI's shape."""

    prompt: Final[ChatPrompt]
    """The prompt that the messages became."""

@final
class EmbeddingModel:
    """A model that makes vectors of texts, which are near each other where texts mean the same. Made by
    `EmbeddingModel.load`. Threads may share one."""

    @staticmethod
    def load(path: str | PathLike[str], **options: Unpack[EmbeddingOptions]) -> EmbeddingModel:
        """Loads the folder at `path`, as Hugging Face and sentence-transformers write it: a BERT with its tokenizer.

        `threads` compute, all of the hardware's by default; vectors do not depend on it.

        Raises `ArchUnsupportedError` for another network, and a subclass of `Error` for whatever else is wrong with the
        path, the folder or an argument."""

    def embed(
        self, texts: str | Iterable[str], *, cancel: CancelToken | None = None, **options: Unpack[EmbedOptions]
    ) -> NDArray[np.float32]:
        """The vector of a text, ``[dimensions]``; or of each of some, ``[texts, dimensions]``. A text's vector does not
        depend on the others.

        Of texts of more than `max_tokens` tokens only the beginning counts; with `truncate=False` they are an error.
        `cancel` and Ctrl-C end it after the texts that are being computed.

        Raises `InvalidArgumentError` for texts that are too long and may not be cut, `TokenizerInvalidError` when the
        tokenizer's own rules fail on a text, `CancelledError`, ImportError without NumPy."""

    dimensions: Final[int]
    """Elements of a vector."""
    max_tokens: Final[int]
    """Tokens of a text that count, those that the tokenizer adds among them."""
    poolings: Final[list[Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]]]
    """How tokens' vectors become a text's; several give one behind the other."""
    is_normalized: Final[bool]
    """Whether vectors have length 1, so that their dot product is their cosine."""
    tokenizer: Final[Tokenizer]
    """The model's tokenizer."""

    def close(self) -> None:
        """Lets go of the model; used afterwards, it raises `InvalidArgumentError`."""

    def __enter__(self) -> EmbeddingModel: ...
    def __exit__(self, *_raised: object) -> None: ...

@final
class ToolSteps:
    """What is behind a `skulk.ToolChat`."""

    def __iter__(self) -> ToolSteps: ...
    def __next__(self) -> ChatEvent | ChatCall | ToolResult: ...
    def __aiter__(self) -> ToolSteps: ...
    def __anext__(self) -> Awaitable[ChatEvent | ChatCall | ToolResult]: ...
    def _poll(self, wake: Callable[[], object]) -> ChatEvent | ChatCall | ToolResult | None: ...
    def _ended(self, wake: Callable[[], object]) -> bool: ...
    def _on_cancel(self, wake: Callable[[], object]) -> object: ...
    def give(self, id: str, text: str, failed: bool) -> ToolResult: ...
    @property
    def round(self) -> int: ...
    @property
    def messages(self) -> list[dict[str, Any]]: ...
    @property
    def finish(self) -> ChatFinish | None: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...

def extract(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    progress: Callable[[vindex.VindexProgress], object] | Literal[True] | None = None,
    cancel: CancelToken | None = None,
    **options: Unpack[ExtractOptions],
) -> vindex.ExtractReport:
    """Writes the model of a checkpoint as a vindex folder, which LARQL reads too.

    `source` is whatever `Model.load` takes; `target` must not exist or be empty. `options` are those of
    `skulk.options.ExtractOptions`. After an interruption, calling again with the same arguments continues where it
    ended. `progress` is called with a `skulk.vindex.VindexProgress`; `True` shows a bar, with tqdm. `cancel` and Ctrl-C
    end the work soon.

    Raises `InvalidArgumentError` for arguments that exclude each other, a target that holds something, and an
    interrupted extraction of other arguments; a subclass of `Error` for whatever is wrong with the checkpoint, or
    with writing."""

def verify_vindex(
    path: str | PathLike[str],
    *,
    progress: Callable[[vindex.VindexProgress], object] | Literal[True] | None = None,
    cancel: CancelToken | None = None,
    **options: Unpack[VerifyOptions],
) -> vindex.VerifyReport:
    """Verifies a vindex folder, which need not be one that opens: what keeps it from that is a problem of the report.

    Sizes, structure, and what `options` ask for, those of `skulk.options.VerifyOptions`. `progress` is called with a
    `skulk.vindex.VindexProgress`; `True` shows a bar, with tqdm. `cancel` and Ctrl-C end the work soon.

    Raises `FileNotFoundError` without an `index.json`, and `FileIoError` when the folder cannot be listed."""

@final
class Vindex:
    """What is behind a `skulk.VindexReader`."""

    def __new__(cls, path: str | PathLike[str], threads: int | None) -> Vindex: ...
    def close(self) -> None: ...
    def path(self) -> Path: ...
    def facts(self) -> dict[str, Any]: ...
    def ask(self, name: str, arguments: dict[str, Any], cancel: CancelToken | None) -> Any: ...
    def region(self, name: str) -> Region: ...
    def gates(self, layer: int) -> Region: ...
    def slice(
        self,
        target: str | PathLike[str],
        options: dict[str, Any],
        progress: Callable[[vindex.VindexProgress], object] | Literal[True] | None,
        cancel: CancelToken | None,
    ) -> vindex.SliceReport: ...
    def tokenizer(self) -> Tokenizer: ...

@final
class Region:
    """One tensor's place and numbers, for `skulk.VindexReader`."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def dtype(self) -> str: ...
    def shape(self) -> tuple[int, ...]: ...
    def rows(self, start: int, stop: int) -> Floats: ...

@final
class Floats:
    """Numbers that are an array's alone."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

def stop_waking() -> None:
    """Called when Python exits: no waker calls it from then on, and none is still at it."""
