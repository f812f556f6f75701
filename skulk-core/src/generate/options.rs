//! What may a caller ask of a generation?

use crate::arch::ArchSpec;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::generate::Sampling;
use crate::generate::draft::{MOST, MOST_BYTES, Second};
use crate::grammar::Constraint;
use crate::ids::TokenId;
use crate::macros::{closed_set, setters};

/// What a generation starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prompt {
    /// The whole text so far. Special tokens are recognised; BOS is added as the model wants it.
    Text(String),
    /// The whole sequence so far, as tokens; used as given.
    Tokens(Vec<TokenId>),
    /// Text that follows what the session already holds; only for sessions.
    Append(String),
}

impl Prompt {
    /// The prompt of what has a session of its own, in which nothing comes before it.
    pub(super) fn whole(self) -> Result<Self> {
        match self {
            Prompt::Append(_) => {
                let message =
                    "expected all of a text, as nothing comes before it; found text that follows other text";
                Err(Error::argument("append", message).with_hint("ask the session that has what it follows"))
            }
            whole => Ok(whole),
        }
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Prompt::Text(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Prompt::Text(text)
    }
}

impl From<Vec<TokenId>> for Prompt {
    fn from(tokens: Vec<TokenId>) -> Self {
        Prompt::Tokens(tokens)
    }
}

closed_set! {
    /// Whether tokens are computed ahead.
    #[derive(Default)]
    pub enum Speculate {
        /// Where it pays, by times and acceptances that are measured meanwhile: what texts repeat is proposed, or what a
        /// [draft model](crate::LoadOptions::draft_model) says, and kept while it is what the model would have written.
        #[default]
        Auto = "auto",
        /// The same with what texts repeat alone: the session's own, and [others](GenerateOptions::draft_texts).
        Ngram = "ngram",
        /// The same with a draft model alone, which must be loaded.
        DraftModel = "draft_model",
        /// One token after the other.
        Off = "off",
    }
}

/// Options of one generation.
///
/// ```
/// use skulk::{GenerateOptions, Sampling};
/// let options = GenerateOptions::default()
///     .max_tokens(64)
///     .sampling(Sampling::default().temperature(0.8).top_p(0.95).seed(7))
///     .stop(["\n\n"]);
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// Tokens to generate at most; `None`: until the model ends or the context is full.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the generation; they are not part of its text.
    pub stop: Vec<String>,
    /// What the text must be.
    pub constraint: Option<Constraint>,
    /// Do not end at the model's end-of-sequence tokens.
    pub ignore_eos: bool,
    /// Report the log-probability of each token, and of this many likeliest ones (0 to 64).
    pub logprobs: Option<usize>,
    /// Whether tokens are computed ahead. The text is the same, in every bit where the engine's
    /// [rows are exact](crate::engine::Capabilities::exact_rows).
    pub speculate: Speculate,
    /// Tokens that are computed ahead in every step, as far as they are proposed and the step has rows for them, whether or
    /// not that pays (1 to 15); `None`: as many as pay.
    pub draft_tokens: Option<usize>,
    /// Whether another guess at the next token is computed beside the first one, in a copy of the sequence that shares its
    /// pages: a small tree. It takes two rows of a step, where that has them. `None`: where that pays, and never with [`Self::draft_tokens`].
    /// Models with recurrent layers have no such trees.
    pub draft_tree: Option<bool>,
    /// Texts that the text may quote, beside its own prompt: what followed there is proposed. At most 262,144 tokens and 4
    /// MiB in all; a token takes some 40 bytes, once for all generations with the same texts.
    pub draft_texts: Vec<String>,
    /// Sessions of a higher one begin first, and their prompts are computed first.
    pub priority: i32,
    /// Ends the generation, in prefill too, within one layer's work.
    pub cancel: CancelToken,
}

impl Default for GenerateOptions {
    /// Greedy, until the model ends.
    fn default() -> Self {
        Self {
            max_tokens: None,
            sampling: Sampling::default(),
            stop: Vec::new(),
            constraint: None,
            ignore_eos: false,
            logprobs: None,
            speculate: Speculate::Auto,
            draft_tokens: None,
            draft_tree: None,
            draft_texts: Vec::new(),
            priority: 0,
            cancel: CancelToken::new(),
        }
    }
}

setters!(GenerateOptions {
    /// Generates at most this many tokens.
    max_tokens: usize => Some(max_tokens);
    /// Chooses tokens like this.
    sampling: Sampling;
    /// Ends at any of these texts.
    stop: impl IntoIterator<Item = impl Into<String>> => stop.into_iter().map(Into::into).collect();
    /// Writes what keeps to this.
    constraint: Constraint => Some(constraint);
    /// Goes on past end-of-sequence tokens.
    ignore_eos: bool;
    /// Reports log-probabilities: of the sampled token, and of this many likeliest.
    logprobs: usize => Some(logprobs);
    /// Computes tokens ahead, or does not.
    speculate: Speculate;
    /// Computes so many ahead, whether or not that pays.
    draft_tokens: usize => Some(draft_tokens);
    /// Computes another guess at the next token, too, whether or not that pays, or none.
    draft_tree: bool => Some(draft_tree);
    /// Proposes what follows in these texts, too.
    draft_texts: impl IntoIterator<Item = impl Into<String>> => draft_texts.into_iter().map(Into::into).collect();
    /// Goes before those of lower priority.
    priority: i32;
    /// Ends when the token is cancelled.
    cancel: CancelToken;
});

impl GenerateOptions {
    /// The most log-probabilities a position can report.
    pub const MAX_LOGPROBS: usize = 64;

    pub(super) fn validate(&self, arch: &ArchSpec, second: Option<&Second>) -> Result<()> {
        let invalid = |field: &'static str, message: String| {
            Err(Error::argument(field, message)
                .with_hint("correct the option, or leave it out for its default"))
        };
        if self.max_tokens == Some(0) {
            return invalid("max_tokens", "expected at least 1, found 0".into());
        }
        if let Some(top) = self.logprobs.filter(|&n| n > Self::MAX_LOGPROBS) {
            return invalid("logprobs", format!("expected 0 to {}, found {top}", Self::MAX_LOGPROBS));
        }
        if self.stop.iter().any(String::is_empty) {
            return invalid("stop", "expected texts of at least one character, found an empty one".into());
        }
        if self.constraint.is_some() && self.ignore_eos {
            let message = "expected texts with a constraint to end where that is met, found `ignore_eos`";
            return invalid("ignore_eos", message.into());
        }
        if let Some(tokens) = self.draft_tokens.filter(|tokens| !(1..=MOST).contains(tokens)) {
            return invalid("draft_tokens", format!("expected 1 to {MOST}, found {tokens}"));
        }
        let bytes: usize = self.draft_texts.iter().map(String::len).sum();
        if bytes > MOST_BYTES {
            return invalid("draft_texts", format!("expected at most {MOST_BYTES} bytes, found {bytes}"));
        }
        let given = [
            ("draft_texts", !self.draft_texts.is_empty()),
            ("draft_tokens", self.draft_tokens.is_some()),
            ("draft_tree", self.draft_tree == Some(true)),
        ];
        for (field, _) in given.into_iter().filter(|(_, given)| *given) {
            let texts = matches!(self.speculate, Speculate::Auto | Speculate::Ngram);
            if self.speculate == Speculate::Off || (field == "draft_texts" && !texts) {
                let message = format!("expected none where `speculate` is `{}`, found some", self.speculate);
                return invalid(field, message);
            }
        }
        if self.draft_tree == Some(true) && arch.has_states() {
            let message = "expected a model without recurrent layers, found one";
            return invalid("draft_tree", message.into());
        }
        if self.speculate == Speculate::DraftModel {
            let none = || {
                Error::argument(
                    "speculate",
                    "expected a model that was loaded with a draft model, found none",
                )
                .with_hint("load it with the option draft_model, or choose another way to speculate")
            };
            second.ok_or_else(none)?.check()?;
        }
        self.sampling.validate(arch.vocab_size)
    }
}

/// `Ok` when all of these tokens are in the vocabulary.
pub(super) fn expect_known<'a>(
    field: &'static str,
    mut tokens: impl Iterator<Item = &'a TokenId>,
    vocab_size: usize,
) -> Result<()> {
    match tokens.find(|token| token.0 as usize >= vocab_size) {
        None => Ok(()),
        Some(token) => Err(Error::argument(
            field,
            format!("expected token ids below the vocabulary size {vocab_size}, found {token}"),
        )
        .with_hint("take ids from the model's own tokenizer")),
    }
}
