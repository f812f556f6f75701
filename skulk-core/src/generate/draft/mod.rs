//! Which tokens may come next, before the model says so, and when does asking it for several at once pay?
//!
//! What follows is proposed from texts that read the same (`ngrams.rs`) or by a smaller model (`second.rs`), the model
//! computes it together with the token before, and each token is chosen as it would have been alone: proposals are kept
//! while they are what was chosen. How many are computed is a matter of times and acceptances that are measured
//! (`gate.rs`), or of an option.

mod gate;
mod load;
mod ngrams;
mod second;
mod shortlist;

use gate::{Acceptance, FIRST_OF_MODEL, Source, Times};
pub(super) use gate::{Chance, Gate, Step, sooner};
pub(super) use load::{Drafting, Loaded};
use ngrams::Ngrams;
pub(super) use second::{Beside, Draft, Second};

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::options::{GenerateOptions, Speculate};
use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::tokenizer::Tokenizer;

/// Tokens that are proposed for one step of a session.
pub(super) const MOST: usize = 15;
/// Proposed tokens of a step all of whose logits are wanted: each takes as many numbers as there are tokens, which plans
/// count.
pub(super) const MOST_OF_ALL: usize = 3;
/// Tokens of other texts that are looked at.
const MOST_OF_TEXTS: usize = 1 << 18;
/// Bytes of them, more than so many tokens mostly have.
pub(super) const MOST_BYTES: usize = 4 << 20;

/// Tokens that may come next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Proposal<'a> {
    pub(super) tokens: &'a [TokenId],
    /// That each is right where those before it are.
    pub(super) chance: f64,
    /// What else may come first.
    pub(super) other: Option<TokenId>,
    /// The chances that this, and a second model's second guess, is right where the first is not.
    pub(super) otherwise: [f64; 2],
    /// Whether it is computed; `None`: where that pays.
    pub(super) tree: Option<bool>,
    /// The chance that each token of a second model's is right, where that may draft; and how many it may.
    pub(super) model: Option<f64>,
    pub(super) most: usize,
    /// Tokens that may come in all.
    pub(super) left: usize,
    /// They are computed whether or not that pays.
    pub(super) always: bool,
}

/// Other texts that may be quoted: generations with the same ones share what is known of them.
#[derive(Debug, Default)]
pub(super) struct Quoted(Mutex<Option<(Vec<String>, Weak<Ngrams>)>>);

impl Quoted {
    fn of(&self, texts: &[String], tokenizer: &Tokenizer) -> Result<Option<Arc<Ngrams>>> {
        if texts.is_empty() {
            return Ok(None);
        }
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, ngrams)) = &*last
            && known == texts
            && let Some(ngrams) = ngrams.upgrade()
        {
            return Ok(Some(ngrams));
        }
        let mut ngrams = Ngrams::default();
        let mut tokens = 0;
        for text in texts {
            let ids = tokenizer.encode_text(text)?;
            tokens += ids.len();
            if tokens > MOST_OF_TEXTS {
                let message = format!("expected at most {MOST_OF_TEXTS} tokens, found more");
                return Err(
                    Error::argument("draft_texts", message).with_hint("give the texts that are quoted most")
                );
            }
            ngrams.extend(&ids);
            ngrams.end_text();
        }
        let ngrams = Arc::new(ngrams);
        *last = Some((texts.to_vec(), Arc::downgrade(&ngrams)));
        Ok(Some(ngrams))
    }
}

/// What a generation proposes.
pub(super) struct Drafter {
    /// What the text, and others, repeat; nothing where only a model drafts.
    texts: bool,
    own: Ngrams,
    others: Option<Arc<Ngrams>>,
    second: Option<Arc<Second>>,
    speculate: Speculate,
    /// So many in every step.
    always: Option<usize>,
    /// Whether another guess is computed beside; `None`: where that pays.
    tree: Option<bool>,
    acceptance: Acceptance,
    /// Where the last proposal came from, if there was one.
    last: Option<Source>,
}

impl Drafter {
    /// As options ask for, which were validated; `None` for none.
    pub(super) fn new(
        options: &GenerateOptions,
        (quoted, second): (&Quoted, Option<&Arc<Second>>),
        tokenizer: &Tokenizer,
    ) -> Result<Option<Self>> {
        let (texts, model) = match options.speculate {
            Speculate::Off => return Ok(None),
            Speculate::Auto => (true, true),
            Speculate::Ngram => (true, false),
            Speculate::DraftModel => (false, true),
        };
        let second = second.filter(|second| model && second.check().is_ok());
        let mut acceptance = Acceptance::default();
        if let Some(second) = second {
            acceptance.expect(Source::Model, second.begin());
        }
        Ok(Some(Self {
            texts,
            own: Ngrams::default(),
            others: quoted.of(&options.draft_texts, tokenizer)?,
            second: second.cloned(),
            speculate: options.speculate,
            always: options.draft_tokens,
            tree: options.draft_tree.or(options.draft_tokens.map(|_| false)),
            acceptance,
            last: None,
        }))
    }

    /// Proposes up to `most` tokens behind a history of which it was told the beginning before.
    pub(super) fn draft(&mut self, history: &[TokenId], most: usize) -> Proposal<'_> {
        let most = most.min(self.always.unwrap_or(MOST));
        let model = self.second.as_ref().map(|_| self.acceptance.chance(Source::Model));
        let (otherwise, always) = (self.acceptance.otherwise(), self.always.is_some());
        let tree = self.tree;
        let proposal = Proposal { model, most, otherwise, tree, always, ..Proposal::default() };
        self.last = None;
        if !self.texts {
            return proposal;
        }
        self.own.extend(history.get(self.own.len()..).unwrap_or_default());
        let own = self.own.find().map(|found| (&self.own, found));
        let others = self.others.as_deref();
        let others = others.and_then(|others| Some((others, self.own.find_in(others)?)));
        // Of both the one that agrees the longer.
        let best = match (own, others) {
            (Some(own), Some(others)) if own.1.len >= others.1.len => Some(own),
            (own, others) => others.or(own),
        };
        let Some((ngrams, found)) = best else { return proposal };
        let source = Source::Text(found.len);
        self.last = Some(source);
        let (tokens, chance) = (ngrams.followed(found, most), self.acceptance.chance(source));
        let other = if tree == Some(false) { None } else { ngrams.otherwise(&self.own, found) };
        Proposal { tokens, chance, other, ..proposal }
    }

    /// Lets this model draft from now on, if one shall; false where one shall alone and there is none.
    pub(super) fn turn_to(&mut self, second: Option<&Arc<Second>>) -> bool {
        let model = matches!(self.speculate, Speculate::Auto | Speculate::DraftModel);
        self.second = second.filter(|second| model && second.check().is_ok()).cloned();
        self.second.is_some() || self.speculate != Speculate::DraftModel
    }

    /// Whether a second model drafts, too, and whether it does in every step.
    pub(super) fn has_model(&self) -> Option<bool> {
        self.second.as_ref().map(|_| self.always.is_some())
    }

    /// Notes that a second model proposes something in place of what a text says.
    pub(super) fn turn_to_model(&mut self) {
        self.last = Some(Source::Model);
    }

    /// Notes how many of the last proposal's tokens were computed, and how many of these were right; where none was, whether
    /// the other guess was, if there was one. Of tokens that are not the model's `own` choice, wrong ones do not speak against
    /// who drafted.
    pub(super) fn note(&mut self, drafted: usize, accepted: usize, otherwise: Option<bool>, own: bool) {
        let Some(source) = self.last.take() else { return };
        if let Some(right) = otherwise {
            self.acceptance.note_other(source, right);
        }
        let second = self.second.as_ref().filter(|_| source == Source::Model);
        if drafted == 0 {
            return self.acceptance.rest(source, second.map(|second| second.usual()));
        }
        self.acceptance.note(source, drafted, accepted);
        if let Some(second) = second {
            second.note(accepted, self.acceptance.chance(source), own);
        }
    }
}
