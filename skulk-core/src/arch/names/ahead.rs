//! What are heads for tokens ahead called?

use super::TensorNames;

/// What a head has beside its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Words {
    /// The norm before the output head.
    pub(super) norm: &'static str,
    /// What projects embeddings with hidden states, and their norms.
    pub(super) joint: &'static str,
    pub(super) embedding_norm: &'static str,
    pub(super) hidden_norm: &'static str,
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

/// How a head's tensors are called that no other layer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) words: Words,
    /// What stands before these words.
    pub(super) before: String,
    /// The number of the head's layer within its file.
    pub(super) layer: usize,
    /// The name of the norm before the output head, where that is the model's.
    pub(super) norm: Option<String>,
}

impl TensorNames {
    /// How the head of a model with these names and so many layers may be called.
    pub(in crate::arch) fn heads(&self, n_layers: usize) -> impl Iterator<Item = Self> + '_ {
        let layer = format!("{}{}.{n_layers}.", self.prefix, self.spelling.layers);
        let kinds = [
            ("mtp.", BESIDE, "mtp.".to_owned(), 0),
            (&*self.prefix, BEHIND, layer.clone(), n_layers),
            (&*self.prefix, GGUF, layer, n_layers),
        ];
        kinds
            .map(|(prefix, words, before, layer)| {
                let names = Self::new(prefix.to_owned(), self.spelling);
                Self { ahead: Some(Ahead { words, before, layer, norm: None }), ..names }
            })
            .into_iter()
    }

    /// The names of a head that may lack a norm of its own, with the model's in place of it.
    pub(in crate::arch) fn with_norm(&self, model: &Self) -> Option<Self> {
        let ahead = self.ahead.as_ref().filter(|ahead| ahead.words == GGUF)?;
        let norm = Some(model.output_norm());
        Some(Self { ahead: Some(Ahead { norm, ..ahead.clone() }), ..self.clone() })
    }

    /// Whether these are Qwen's names of a head, which files beside a model have, too.
    pub(crate) fn is_beside(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.words == BESIDE)
    }

    /// Name of what projects a token's embedding with a hidden state, `[hidden, 2 · hidden]`, of a head for tokens ahead.
    pub fn joint_projection(&self) -> String {
        self.of_head(|words| words.joint)
    }

    /// Name of the norm of embeddings before it, `[hidden]`.
    pub fn embedding_norm(&self) -> String {
        self.of_head(|words| words.embedding_norm)
    }

    /// Name of the norm of hidden states before it, `[hidden]`.
    pub fn hidden_norm(&self) -> String {
        self.of_head(|words| words.hidden_norm)
    }

    pub(super) fn of_head(&self, word: fn(&Words) -> &'static str) -> String {
        let ahead = self.ahead.as_ref();
        ahead.map_or("?".into(), |ahead| format!("{}{}.weight", ahead.before, word(&ahead.words)))
    }
}
