"""What can go wrong? A class for each kind of error.

Written by ``cargo run -p skulk-contract-generate`` from the library's own declarations.
"""

from __future__ import annotations

import builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from ._contract import CardFault
    from ._report import PlanReport


class Error(Exception):
    """Base class of everything skulk raises on its own account."""

    __module__ = "skulk"
    code: str
    """The stable, dotted code of the kind, e.g. ``context.overflow``. A class has it too."""
    message: str
    """What was expected, what was found; without code, context or hint."""
    hint: str | None
    """What to do next, where the library knows."""
    retry: Literal["never", "now", "after_replan"]
    """Whether trying again can help."""
    context: dict[str, str]
    """The places the error concerns: file, tensor, field, …; several of one name are separated by commas."""
    detail: dict[str, Any] | None
    """Typed facts where callers may branch on them: ``needed`` and ``available`` tokens of a context, the ``expected``
    and ``found`` shape of a tensor, the ``faults`` of a card or placement, or the ``report`` of a plan."""

    def __init__(self, *args: object) -> None:
        """An error with this text. Those of the library have more to say."""
        super().__init__(*args)
        self.message = str(args[0]) if args else ""
        self.hint, self.retry, self.context, self.detail = None, "never", {}, None


class InvalidArgumentError(Error, ValueError, TypeError):
    """An option or argument is outside its allowed values.

    Its code is ``argument.invalid``.
    """

    __module__ = "skulk"
    code = "argument.invalid"


class FileNotFoundError(Error, builtins.FileNotFoundError):
    """A file or folder does not exist.

    Its code is ``file.not_found``.
    """

    __module__ = "skulk"
    code = "file.not_found"
    errno: int | None = None
    """The system's number, where it is known."""
    strerror: str | None = None
    """The same as the message."""
    filename: str | None = None
    """The path, where it is known."""


class FileIoError(Error, OSError):
    """The operating system failed to read, map or write a file.

    Its code is ``file.io``.
    """

    __module__ = "skulk"
    code = "file.io"
    errno: int | None = None
    """The system's number, where it is known."""
    strerror: str | None = None
    """The same as the message."""
    filename: str | None = None
    """The path, where it is known."""


class CheckpointInvalidError(Error):
    """A checkpoint file breaks its format: wrong magic, overlapping tensors, impossible counts.

    Its code is ``checkpoint.invalid``.
    """

    __module__ = "skulk"
    code = "checkpoint.invalid"


class CheckpointTruncatedError(Error):
    """A checkpoint file ends before the data it announces.

    Its code is ``checkpoint.truncated``.
    """

    __module__ = "skulk"
    code = "checkpoint.truncated"


class ConfigInvalidError(Error):
    """The checkpoint's configuration or metadata misses a field or holds an impossible value.

    Its code is ``config.invalid``.
    """

    __module__ = "skulk"
    code = "config.invalid"


class ArchUnsupportedError(Error):
    """The model architecture is not one this version can run.

    Its code is ``arch.unsupported``.
    """

    __module__ = "skulk"
    code = "arch.unsupported"


class DTypeUnsupportedError(Error):
    """A tensor's data type or quantisation is not supported, or not for this use.

    Its code is ``dtype.unsupported``.
    """

    __module__ = "skulk"
    code = "dtype.unsupported"


class TensorMissingError(Error):
    """A tensor the architecture needs is not in the checkpoint.

    Its code is ``tensor.missing``.
    """

    __module__ = "skulk"
    code = "tensor.missing"


class TensorShapeError(Error):
    """A tensor has another shape than the architecture needs.

    Its code is ``tensor.shape``.
    """

    __module__ = "skulk"
    code = "tensor.shape"


class TokenizerInvalidError(Error):
    """The tokenizer is absent, broken, or lacks tokens that the model needs.

    Its code is ``tokenizer.invalid``.
    """

    __module__ = "skulk"
    code = "tokenizer.invalid"


class TemplateInvalidError(Error):
    """The model's chat template is absent, cannot be read, fails, or computes without end.

    Its code is ``template.invalid``.
    """

    __module__ = "skulk"
    code = "template.invalid"


class ChatInvalidError(Error):
    """Messages or tools are malformed, or the model's chat template refuses them.

    Its code is ``chat.invalid``.
    """

    __module__ = "skulk"
    code = "chat.invalid"


class ToolFailedError(Error):
    """A function of the host's that a model called failed, and the conversation was to end with it.

    Its code is ``tool.failed``.
    """

    __module__ = "skulk"
    code = "tool.failed"


class CardInvalidError(Error):
    """A model card breaks the card interface: unknown fields, wrong types, impossible values.

    Its code is ``card.invalid``.
    """

    __module__ = "skulk"
    code = "card.invalid"
    faults: list[CardFault]
    """All that is wrong with the card; empty for a text that is none at all."""

    def __init__(self, *args: object) -> None:
        """An error with this text."""
        super().__init__(*args)
        self.faults = []


class PlanNoFitError(Error):
    """No placement of the model on the nodes satisfies the request.

    Its code is ``plan.no_fit``.
    """

    __module__ = "skulk"
    code = "plan.no_fit"
    report: PlanReport | None = None
    """Why there is none, and what would make it fit; `skulk.plan` always gives one."""


class PlanPendingError(Error):
    """Nodes have not yet reported what a plan needs to know.

    Its code is ``plan.pending``.
    """

    __module__ = "skulk"
    code = "plan.pending"
    report: PlanReport | None = None
    """What is missing; `skulk.plan` always gives one."""


class PlacementInvalidError(Error):
    """The placement does not cover the model's layers exactly once, or names an unknown engine.

    Its code is ``placement.invalid``.
    """

    __module__ = "skulk"
    code = "placement.invalid"


class ContextOverflowError(Error):
    """The prompt, or prompt plus requested tokens, does not fit the context.

    Its code is ``context.overflow``.
    """

    __module__ = "skulk"
    code = "context.overflow"


class OutOfMemoryError(Error, MemoryError):
    """Memory could not be reserved.

    Its code is ``memory.exhausted``.
    """

    __module__ = "skulk"
    code = "memory.exhausted"


class EngineUnavailableError(Error):
    """The engine is not compiled in, or its device is not present.

    Its code is ``engine.unavailable``.
    """

    __module__ = "skulk"
    code = "engine.unavailable"


class EngineFailedError(Error):
    """The engine or its device failed while computing.

    Its code is ``engine.failed``.
    """

    __module__ = "skulk"
    code = "engine.failed"


class SessionBusyError(Error):
    """The session is already running a generation.

    Its code is ``session.busy``.
    """

    __module__ = "skulk"
    code = "session.busy"


class SessionInvalidError(Error):
    """The file of a saved session is damaged, incomplete, or something else.

    Its code is ``session.invalid``.
    """

    __module__ = "skulk"
    code = "session.invalid"


class SessionMismatchError(Error):
    """A saved session is of another model, or of one that computes or stores otherwise.

    Its code is ``session.mismatch``.
    """

    __module__ = "skulk"
    code = "session.mismatch"


class CancelledError(Error):
    """The work was cancelled by its token, or its handle was dropped.

    Its code is ``cancelled``.
    """

    __module__ = "skulk"
    code = "cancelled"


class DeadlineExceededError(Error, TimeoutError):
    """The work was not done when its deadline passed.

    Its code is ``deadline.exceeded``.
    """

    __module__ = "skulk"
    code = "deadline.exceeded"


class PeerFailedError(Error):
    """Another machine refuses, answers what is no answer, or holds other weights than it should.

    Its code is ``peer.failed``.
    """

    __module__ = "skulk"
    code = "peer.failed"


class PeerLostError(Error):
    """Another machine cannot be reached, does not answer in time, or was lost while it was asked.

    Its code is ``peer.lost``.
    """

    __module__ = "skulk"
    code = "peer.lost"


class InternalError(Error):
    """A broken invariant inside the library: please report it.

    Its code is ``internal``.
    """

    __module__ = "skulk"
    code = "internal"
