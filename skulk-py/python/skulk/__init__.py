"""In-process, sharded LLM generation.

    import skulk

    model = skulk.Model.load("model.gguf", stages=2)
    for event in model.generate("Once upon a time", max_tokens=64):
        print(event, end="", flush=True)

`Model.chat` answers conversations, `Model.chat_with_tools` calls functions in them. `plan` says where a model runs, on this machine or on others, and why; `ModelCard` and `CardLibrary` hold what
is known about models that are not open; `planning` has the rules behind them.

`serve` lets other processes and machines have a model's feed-forward blocks and experts computed here, which they load
with `ffn_at`.

`EmbeddingModel` makes vectors of texts.

`extract` writes a model as a vindex folder; `VindexReader` slices such folders, browses them and gives their weights
as arrays; `vindex` has what they report. `options` has the keyword arguments of all of these.
"""

from ._errors import (
    ArchUnsupportedError,
    CancelledError,
    CardInvalidError,
    ChatInvalidError,
    CheckpointInvalidError,
    CheckpointTruncatedError,
    ConfigInvalidError,
    ContextOverflowError,
    DeadlineExceededError,
    DTypeUnsupportedError,
    EngineFailedError,
    EngineUnavailableError,
    Error,
    FileIoError,
    FileNotFoundError,
    InternalError,
    InvalidArgumentError,
    OutOfMemoryError,
    PeerFailedError,
    PeerLostError,
    PlacementInvalidError,
    PlanNoFitError,
    PlanPendingError,
    SessionBusyError,
    SessionInvalidError,
    SessionMismatchError,
    TemplateInvalidError,
    TensorMissingError,
    TensorShapeError,
    TokenizerInvalidError,
    ToolFailedError,
)
from ._skulk import (
    CancelToken,
    ChatStream,
    EmbeddingModel,
    Generation,
    Model,
    Placement,
    Server,
    Session,
    Tokenizer,
    __version__,
    devices,
    error_kinds,
    extract,
    is_gemma4_family,
    plan,
    serve,
    verify_vindex,
)

# As type checkers know it without the module typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import options, planning, vindex
    from ._chat import ToolChat
    from ._contract import (
        Accelerator,
        Arch,
        AttentionFacts,
        Budget,
        Bytes,
        CallArgumentsEvent,
        CallFinishedEvent,
        CallMalformedEvent,
        CallStartedEvent,
        CardFault,
        CfgPart,
        ChatAnswer,
        ChatCall,
        ChatEvent,
        ChatFinish,
        ChatPrompt,
        ChatUsage,
        Cluster,
        ComponentInfo,
        Device,
        Divergence,
        Event,
        ExpertFacts,
        ExpertShard,
        FfnMemory,
        Finish,
        FinishEvent,
        IndexFacts,
        Inventory,
        KvMemory,
        LatentFacts,
        LayerBytes,
        Link,
        LinkSpeed,
        MalformedCall,
        ModalitiesCardConfig,
        ModelCard,
        ModelFacts,
        NetworkInterface,
        Node,
        NodeMemory,
        Output,
        PlacedStage,
        PlacementCardConfig,
        Profile,
        Rdma,
        Reasoning,
        ReasoningCardConfig,
        ReasoningEvent,
        RecurrentFacts,
        RuntimeCardConfig,
        Socket,
        Stage,
        StorageSize,
        TextEvent,
        Timings,
        Token,
        TokenLogprob,
        ToolResult,
        ToolingCardConfig,
        Usage,
        VisionCardConfig,
        WindowFacts,
    )
    from ._library import CardLibrary
    from ._notebook import Picture
    from ._reader import VindexReader
    from ._report import PlanReport

__all__ = [
    "Accelerator",
    "Arch",
    "ArchUnsupportedError",
    "AttentionFacts",
    "Budget",
    "Bytes",
    "CallArgumentsEvent",
    "CallFinishedEvent",
    "CallMalformedEvent",
    "CallStartedEvent",
    "CancelToken",
    "CancelledError",
    "CardFault",
    "CardInvalidError",
    "CardLibrary",
    "CfgPart",
    "ChatAnswer",
    "ChatCall",
    "ChatEvent",
    "ChatFinish",
    "ChatInvalidError",
    "ChatPrompt",
    "ChatStream",
    "ChatUsage",
    "CheckpointInvalidError",
    "CheckpointTruncatedError",
    "Cluster",
    "ComponentInfo",
    "ConfigInvalidError",
    "ContextOverflowError",
    "DTypeUnsupportedError",
    "DeadlineExceededError",
    "Device",
    "Divergence",
    "EmbeddingModel",
    "EngineFailedError",
    "EngineUnavailableError",
    "Error",
    "Event",
    "ExpertFacts",
    "ExpertShard",
    "FfnMemory",
    "FileIoError",
    "FileNotFoundError",
    "Finish",
    "FinishEvent",
    "Generation",
    "IndexFacts",
    "InternalError",
    "InvalidArgumentError",
    "Inventory",
    "KvMemory",
    "LatentFacts",
    "LayerBytes",
    "Link",
    "LinkSpeed",
    "MalformedCall",
    "ModalitiesCardConfig",
    "Model",
    "ModelCard",
    "ModelFacts",
    "NetworkInterface",
    "Node",
    "NodeMemory",
    "OutOfMemoryError",
    "Output",
    "PeerFailedError",
    "PeerLostError",
    "Picture",
    "PlacedStage",
    "Placement",
    "PlacementCardConfig",
    "PlacementInvalidError",
    "PlanNoFitError",
    "PlanPendingError",
    "PlanReport",
    "Profile",
    "Rdma",
    "Reasoning",
    "ReasoningCardConfig",
    "ReasoningEvent",
    "RecurrentFacts",
    "RuntimeCardConfig",
    "Server",
    "Session",
    "SessionBusyError",
    "SessionInvalidError",
    "SessionMismatchError",
    "Socket",
    "Stage",
    "StorageSize",
    "TemplateInvalidError",
    "TensorMissingError",
    "TensorShapeError",
    "TextEvent",
    "Timings",
    "Token",
    "TokenLogprob",
    "Tokenizer",
    "TokenizerInvalidError",
    "ToolChat",
    "ToolFailedError",
    "ToolResult",
    "ToolingCardConfig",
    "Usage",
    "VindexReader",
    "VisionCardConfig",
    "WindowFacts",
    "__version__",
    "devices",
    "error_kinds",
    "extract",
    "is_gemma4_family",
    "options",
    "plan",
    "planning",
    "serve",
    "verify_vindex",
    "vindex",
]

if not TYPE_CHECKING:
    _MODULES = {
        "CardLibrary": "_library",
        "Picture": "_notebook",
        "PlanReport": "_report",
        "ToolChat": "_chat",
        "VindexReader": "_reader",
    }

    def __getattr__(name: str) -> object:
        # A hundred dataclasses take longer to make than all else to import: they wait for who asks for one.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        if name in ("options", "planning", "vindex"):
            return import_module(f".{name}", __name__)
        value = getattr(import_module(f".{_MODULES.get(name, '_contract')}", __name__), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
