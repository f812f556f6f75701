//! What is that called which drafts for a model?

use std::borrow::Cow;

use super::{LayerTensor, TensorNames};
use crate::arch::TakenNorm;

/// How the tensors are called that only something has that drafts for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ahead {
    Head(Head),
    /// An assistant; what stands before its projections.
    Assistant(&'static str),
    Eagle(&'static EagleWords),
}

/// What an EAGLE head has beside others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EagleWords {
    /// What stands before the tensors of its layer, and before its norms there.
    layer: &'static str,
    embedding_norm: &'static str,
    hidden_norm: &'static str,
    /// The norm of all that it takes.
    taken_norm: &'static str,
}

/// The method's own, and those of the library speculators.
static EAGLES: [EagleWords; 2] = [in_layer("midlayer."), in_layer("layers.0.")];

const fn in_layer(layer: &'static str) -> EagleWords {
    EagleWords {
        layer,
        embedding_norm: "input_layernorm",
        hidden_norm: "hidden_norm",
        taken_norm: "input_norm",
    }
}

static GGUF_EAGLE: EagleWords = EagleWords {
    layer: "blk.0.",
    embedding_norm: "attn_norm",
    hidden_norm: "attn_norm_2",
    taken_norm: "enc.output_norm",
};

/// How a head's are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    words: Words,
    /// What stands before these words.
    before: String,
    /// The number of the head's layer within its file.
    layer: usize,
    /// The name of the norm before the output head, where that is the model's.
    norm: Option<String>,
}

/// What a head has beside its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Words {
    /// The norm before the output head.
    norm: &'static str,
    /// What projects embeddings with hidden states, and their norms.
    joint: &'static str,
    embedding_norm: &'static str,
    hidden_norm: &'static str,
}

/// Qwen3-Next's and Qwen 3.5's: a model of its own beside the other one.
const BESIDE: Words = Words {
    norm: "norm",
    joint: "fc",
    embedding_norm: "pre_fc_norm_embedding",
    hidden_norm: "pre_fc_norm_hidden",
};

/// DeepSeek's and GLM's: a layer behind the last one.
const BEHIND: Words =
    Words { norm: "shared_head.norm", joint: "eh_proj", embedding_norm: "enorm", hidden_norm: "hnorm" };

/// The same in GGUF, of all families. Where it has no norm, the model's is its.
const GGUF: Words = Words {
    norm: "nextn.shared_head_norm",
    joint: "nextn.eh_proj",
    embedding_norm: "nextn.enorm",
    hidden_norm: "nextn.hnorm",
};

/// What stands before the words of heads without a layer.
const ALONE: [&str; 2] = ["mtp.0.", "model.mtp.0."];

impl TensorNames {
    /// How the head of a model with these names and so many layers may be called.
    pub(in crate::arch) fn heads(&self, n_layers: usize) -> impl Iterator<Item = Self> + '_ {
        let layer = format!("{}{}.{n_layers}.", self.prefix, self.spelling.layers);
        let [alone, within] = ALONE;
        let kinds = [
            ("mtp.", BESIDE, "mtp.".to_owned(), 0),
            (&*self.prefix, BEHIND, layer.clone(), n_layers),
            (&*self.prefix, GGUF, layer, n_layers),
            (alone, BEHIND, alone.to_owned(), 0),
            (within, BEHIND, within.to_owned(), 0),
        ];
        kinds
            .map(|(prefix, words, before, layer)| {
                let names = Self::new(prefix.to_owned(), self.spelling);
                Self { ahead: Some(Ahead::Head(Head { words, before, layer, norm: None })), ..names }
            })
            .into_iter()
    }

    /// The names of a head that may lack a norm of its own, with the model's in place of it.
    pub(in crate::arch) fn with_norm(&self, model: &Self) -> Option<Self> {
        let head = self.of_head().filter(|head| head.words == GGUF)?;
        let norm = Some(model.output_norm());
        Some(Self { ahead: Some(Ahead::Head(Head { norm, ..head.clone() })), ..self.clone() })
    }

    /// The names of an assistant whose projections have this before them.
    pub(in crate::arch) fn of_assistant(&self, before: &'static str) -> Self {
        Self { ahead: Some(Ahead::Assistant(before)), ..self.clone() }
    }

    /// The names of an EAGLE head in a checkpoint that has some tensors.
    pub(in crate::arch) fn of_eagle(&self, has: impl Fn(&str) -> bool) -> Self {
        let known = EAGLES.each_ref().map(|words| self.with_eagle(words));
        let found = known.iter().find(|names| has(&names.weight(0, LayerTensor::Query)));
        found.unwrap_or(&known[0]).clone()
    }

    /// The names of one in GGUF.
    pub(in crate::arch) fn of_gguf_eagle(&self) -> Self {
        self.with_eagle(&GGUF_EAGLE)
    }

    fn with_eagle(&self, words: &'static EagleWords) -> Self {
        Self { ahead: Some(Ahead::Eagle(words)), ..self.clone() }
    }

    /// Whether these are Qwen's names of a head, which files beside a model have, too.
    pub(crate) fn is_beside(&self) -> bool {
        self.of_head().is_some_and(|head| head.words == BESIDE)
    }

    /// What all tensors of a head begin with that may have no layer.
    pub(in crate::arch) fn alone(&self) -> Option<&str> {
        Some(&*self.of_head()?.before).filter(|before| ALONE.contains(before))
    }

    /// Name of what projects a token's embedding with a hidden state, `[hidden, 2 · hidden]`, of a head for tokens ahead; of
    /// an assistant, `[hidden, 2 · hidden of the model]`; of what projects three hidden states of an EAGLE head's model,
    /// `[hidden, 3 · hidden of the model]`.
    pub fn joint_projection(&self) -> String {
        match self.ahead {
            Some(Ahead::Assistant(before)) => format!("{before}pre_projection.weight"),
            Some(Ahead::Eagle(_)) => "fc.weight".to_owned(),
            _ => self.head_word(|words| words.joint),
        }
    }

    /// Name of what projects an assistant's rows back to hidden states of its model, `[hidden of the model, hidden]`.
    pub fn back_projection(&self) -> String {
        match self.ahead {
            Some(Ahead::Assistant(before)) => format!("{before}post_projection.weight"),
            _ => NONE.to_owned(),
        }
    }

    /// Name of the norm of embeddings before a head's projection, `[hidden]`.
    pub fn embedding_norm(&self) -> String {
        match self.ahead {
            Some(Ahead::Eagle(words)) => format!("{}{}.weight", words.layer, words.embedding_norm),
            _ => self.head_word(|words| words.embedding_norm),
        }
    }

    /// Name of the norm of hidden states before it, `[hidden]`.
    pub fn hidden_norm(&self) -> String {
        match self.ahead {
            Some(Ahead::Eagle(words)) => format!("{}{}.weight", words.layer, words.hidden_norm),
            _ => self.head_word(|words| words.hidden_norm),
        }
    }

    /// Names of the norms of what an EAGLE head takes: one of all of it, or each layer's.
    pub fn taken_norms(&self, norm: TakenNorm) -> Vec<String> {
        match (&self.ahead, norm) {
            (Some(Ahead::Eagle(words)), TakenNorm::Whole) => vec![format!("{}.weight", words.taken_norm)],
            _ => (0..3).map(|layer| format!("fc_norm.{layer}.weight")).collect(),
        }
    }

    /// Name of what an EAGLE head's tokens are among the model's, `[tokens of the head]`: by how much further on each is, or,
    /// in GGUF, its number.
    pub fn drafted_tokens(&self) -> &'static str {
        "d2t"
    }

    /// What stands before a layer's tensors.
    pub(super) fn before_layer(&self, layer: usize) -> Cow<'static, str> {
        match &self.ahead {
            Some(Ahead::Eagle(words)) => words.layer.into(),
            _ => format!("{}{}.{}.", self.prefix, self.spelling.layers, self.first() + layer).into(),
        }
    }

    /// A head's name of the norm before the output head.
    pub(super) fn head_norm(&self) -> Option<String> {
        self.of_head().map(|head| head.norm.clone().unwrap_or_else(|| self.head_word(|words| words.norm)))
    }

    /// The number of the first layer: a head's comes behind its model's.
    pub(super) fn first(&self) -> usize {
        self.of_head().map_or(0, |head| head.layer)
    }

    fn of_head(&self) -> Option<&Head> {
        match &self.ahead {
            Some(Ahead::Head(head)) => Some(head),
            _ => None,
        }
    }

    fn head_word(&self, word: fn(&Words) -> &'static str) -> String {
        let head = self.of_head();
        head.map_or(NONE.into(), |head| format!("{}{}.weight", head.before, word(&head.words)))
    }
}

/// What nobody's tensor is called.
const NONE: &str = "?";
