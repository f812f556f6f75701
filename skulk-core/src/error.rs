//! What went wrong, where, and what can be done? One opaque error for the whole library.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use crate::macros::closed_set;

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $retry:ident;)*) => {
        /// What class of failure an [`Error`] is. Every binding exposes the same kinds and codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $name,)*
        }

        impl ErrorKind {
            /// Every kind, in declaration order.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$name,)*];

            /// The stable, dotted code of this kind, e.g. `tensor.missing`.
            pub const fn code(self) -> &'static str {
                match self { $(ErrorKind::$name => $code,)* }
            }

            /// The kind's name in Rust spelling, e.g. `TensorMissing`.
            pub const fn name(self) -> &'static str {
                match self { $(ErrorKind::$name => stringify!($name),)* }
            }

            const fn default_retry(self) -> Retry {
                match self { $(ErrorKind::$name => Retry::$retry,)* }
            }
        }
    };
}

kinds! {
    /// An option or argument is outside its allowed values.
    InvalidArgument = "argument.invalid", Never;
    /// A file or folder does not exist.
    FileNotFound = "file.not_found", Never;
    /// The operating system failed to read, map or write a file.
    FileIo = "file.io", Now;
    /// A checkpoint file breaks its format: wrong magic, overlapping tensors, impossible counts.
    CheckpointInvalid = "checkpoint.invalid", Never;
    /// A checkpoint file ends before the data it announces.
    CheckpointTruncated = "checkpoint.truncated", Never;
    /// The checkpoint's configuration or metadata misses a field or holds an impossible value.
    ConfigInvalid = "config.invalid", Never;
    /// The model architecture is not one this version can run.
    ArchUnsupported = "arch.unsupported", Never;
    /// A tensor's data type or quantisation is not supported, or not for this use.
    DTypeUnsupported = "dtype.unsupported", Never;
    /// A tensor the architecture needs is not in the checkpoint.
    TensorMissing = "tensor.missing", Never;
    /// A tensor has another shape than the architecture needs.
    TensorShape = "tensor.shape", Never;
    /// The tokenizer is absent, broken, or lacks tokens that the model needs.
    TokenizerInvalid = "tokenizer.invalid", Never;
    /// The model's chat template is absent, cannot be read, fails, or computes without end.
    TemplateInvalid = "template.invalid", Never;
    /// Messages or tools are malformed, or the model's chat template refuses them.
    ChatInvalid = "chat.invalid", Never;
    /// A function of the host's that a model called failed, and the conversation was to end with it.
    ToolFailed = "tool.failed", Never;
    /// A model card breaks the card interface: unknown fields, wrong types, impossible values.
    CardInvalid = "card.invalid", Never;
    /// No placement of the model on the nodes satisfies the request.
    PlanNoFit = "plan.no_fit", Never;
    /// Nodes have not yet reported what a plan needs to know.
    PlanPending = "plan.pending", Now;
    /// The placement does not cover the model's layers exactly once, or names an unknown engine.
    PlacementInvalid = "placement.invalid", Never;
    /// The prompt, or prompt plus requested tokens, does not fit the context.
    ContextOverflow = "context.overflow", Never;
    /// Memory could not be reserved.
    OutOfMemory = "memory.exhausted", AfterReplan;
    /// The engine is not compiled in, or its device is not present.
    EngineUnavailable = "engine.unavailable", Never;
    /// The engine or its device failed while computing.
    EngineFailed = "engine.failed", AfterReplan;
    /// The session is already running a generation.
    SessionBusy = "session.busy", Now;
    /// The file of a saved session is damaged, incomplete, or something else.
    SessionInvalid = "session.invalid", Never;
    /// A saved session is of another model, or of one that computes or stores otherwise.
    SessionMismatch = "session.mismatch", Never;
    /// The work was cancelled by its token, or its handle was dropped.
    Cancelled = "cancelled", Now;
    /// The work was not done when its deadline passed.
    DeadlineExceeded = "deadline.exceeded", Now;
    /// Another machine refuses, answers what is no answer, or holds other weights than it should.
    PeerFailed = "peer.failed", AfterReplan;
    /// Another machine cannot be reached, does not answer in time, or was lost while it was asked.
    PeerLost = "peer.lost", AfterReplan;
    /// A broken invariant inside the library: please report it.
    Internal = "internal", Never;
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

closed_set! {
    /// Whether trying again can help.
    pub enum Retry {
        /// The same call will fail again.
        Never = "never",
        /// The same call may succeed.
        Now = "now",
        /// The call may succeed on another placement.
        AfterReplan = "after_replan",
    }
}

/// The [detail](Error::detail) of a context that is too small: token counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextDetail {
    /// Tokens that would be needed.
    pub needed: usize,
    /// Tokens the context holds.
    pub available: usize,
}

/// The [detail](Error::detail) of a tensor of another shape; row-major, outermost dimension first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShapeDetail {
    /// The shape the architecture needs.
    pub expected: Vec<usize>,
    /// The shape in the file.
    pub found: Vec<usize>,
}

#[derive(Debug, thiserror::Error)]
#[error("[{}] {message}{}{}", kind.code(), Places(context), Hint(hint.as_deref()))]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    retry: Retry,
    context: Vec<(&'static str, String)>,
    detail: Option<Box<dyn Any + Send + Sync>>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

struct Places<'a>(&'a [(&'static str, String)]);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (key, value)) in self.0.iter().enumerate() {
            write!(f, "{}{key}: {value}", if i == 0 { " (" } else { ", " })?;
        }
        f.write_str(if self.0.is_empty() { "" } else { ")" })
    }
}

struct Hint<'a>(Option<&'a str>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

/// Any failure of the library: a kind, a message that says what was expected and found, the
/// places it concerns, and what to do next.
///
/// ```
/// use skulk::ErrorKind;
/// let error = skulk::open_checkpoint("no/such/model.gguf").err().unwrap();
/// assert_eq!(error.kind(), ErrorKind::FileNotFound);
/// assert_eq!(error.code(), "file.not_found");
/// assert!(error.hint().is_some());
/// ```
///
/// What it displays leaves out the [sources](std::error::Error::source), so that those who print the whole chain print
/// each once; `{:?}` prints the chain.
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Inner>);

impl Error {
    /// An error of `kind` with a message. One of the library's own defects asks to be reported.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            hint: (kind == ErrorKind::Internal).then_some(Cow::Borrowed("please report this")),
            retry: kind.default_retry(),
            context: Vec::new(),
            detail: None,
            source: None,
        }))
    }

    /// Whether memory is missing that others have now and may give back.
    pub(crate) fn is_full(&self) -> bool {
        self.kind() == ErrorKind::OutOfMemory && self.retry() == Retry::Now
    }

    /// An argument or option is not what it may be; its name is the `field`.
    pub(crate) fn argument(field: impl fmt::Display, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message).with("field", field)
    }

    /// Adds a place the error concerns (`file`, `tensor`, `field`, `layer`, …).
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((key, value.to_string()));
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Attaches typed facts.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Any + Send + Sync) -> Self {
        self.0.detail = Some(Box::new(detail));
        self
    }

    /// Says whether trying again can help, where that is not what its kind says.
    pub(crate) fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// Attaches a [`ContextDetail`].
    #[must_use]
    pub(crate) fn with_tokens(self, needed: usize, available: usize) -> Self {
        self.with_detail(ContextDetail { needed, available })
    }

    /// A name that is not in a closed set.
    pub(crate) fn unknown_name(found: &str, names: impl Iterator<Item = &'static str>) -> Self {
        let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        Self::new(
            ErrorKind::InvalidArgument,
            format!("expected one of {}, found `{found}`", names.join(", ")),
        )
    }

    /// The same once more, without what caused it and without details.
    pub(crate) fn again(&self) -> Self {
        let Inner { kind, message, hint, retry, context, .. } = &*self.0;
        Self(Box::new(Inner {
            kind: *kind,
            message: message.clone(),
            hint: hint.clone(),
            retry: *retry,
            context: context.clone(),
            detail: None,
            source: None,
        }))
    }

    /// Attaches the underlying error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The class of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The stable code of the kind, e.g. `context.overflow`.
    pub fn code(&self) -> &'static str {
        self.0.kind.code()
    }

    /// What was expected, what was found, where; without kind, context or hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do next, where the library knows.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Whether trying again can help.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// The places the error concerns, in the order they were added.
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.0.context
    }

    /// Typed facts, for callers that branch on them: a [`ContextDetail`], a [`ShapeDetail`], all that is wrong with a
    /// card as `Vec<`[`Fault`](crate::Fault)`>`, or why there is no placement as
    /// [`PlanReport`](crate::PlanReport).
    pub fn detail<T: Any>(&self) -> Option<&T> {
        self.0.detail.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            write!(f, "\ncaused by: {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_dotted_lower_case() {
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|k| k.code()).collect();
        assert!(codes.iter().all(|c| { c.chars().all(|c| c.is_ascii_lowercase() || c == '.' || c == '_') }));
        codes.sort_unstable();
        let before = codes.len();
        codes.dedup();
        assert_eq!(codes.len(), before);
    }

    #[test]
    fn displays_everything_a_reader_needs() {
        let error = Error::new(ErrorKind::TensorMissing, "expected a tensor")
            .with("file", "a.gguf")
            .with("tensor", "output_norm.weight")
            .with_hint("download the file again");
        assert_eq!(
            error.to_string(),
            "[tensor.missing] expected a tensor (file: a.gguf, tensor: output_norm.weight); download the file again"
        );
        // What nobody outside can mend says so.
        assert_eq!(Error::new(ErrorKind::Internal, "lost").hint(), Some("please report this"));
    }
}
