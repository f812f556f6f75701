//! What is this tensor called here? Roles, and each format's spelling of them.

mod ahead;
mod gemma;
mod gguf;
mod latent;
mod layer;
mod llama;
mod mlx;
mod recurrent;
mod shape;
mod spelling;

use std::borrow::Cow;

use super::LayerSpec;
use crate::ids::ExpertIdx;
use LayerTensor::ExpertUp;
use ahead::Ahead;
pub(super) use gemma::{HF_GEMMA3, HF_GEMMA3N, HF_GEMMA4, HF_GEMMA4_MOE};
pub(super) use gguf::{
    GGUF, GGUF_DEEPSEEK, GGUF_DEEPSEEK_PLAIN, GGUF_DEEPSEEK_SPARSE, GGUF_FUSED, GGUF_GEMMA3N, GGUF_GEMMA4,
    GGUF_GRANITE_HYBRID, GGUF_KIMI_LINEAR, GGUF_NEMOTRON_H, GGUF_PHI3, GGUF_QWEN3_5, GGUF_QWEN3_NEXT,
    GGUF_STEP35, GGUF_TWO_NORMS,
};
pub(super) use latent::{HF_DEEPSEEK, HF_DEEPSEEK_PLAIN, HF_DEEPSEEK_SPARSE, HF_GLM4_MOE};
pub use layer::LayerTensor;
pub(super) use llama::{
    HF_GLM4, HF_GPT_OSS, HF_LLAMA, HF_LLAMA4, HF_MINIMAX, HF_MIXTRAL, HF_PHI3, HF_STEP3P5,
};
pub(super) use recurrent::{HF_GRANITE_HYBRID, HF_KIMI_LINEAR, HF_NEMOTRON_H, HF_QWEN3_5, HF_QWEN3_NEXT};
pub(super) use spelling::Spelling;
pub(crate) use spelling::Stacks;
use spelling::{BIAS, END, EXPERT, Words};

/// A tensor's role within the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorRole {
    /// The token embedding table.
    Embedding,
    /// The norm before the head.
    OutputNorm,
    /// The output head.
    Head,
    /// A tensor of one layer.
    Layer {
        /// Counted from zero.
        layer: usize,
        /// What it does there.
        tensor: LayerTensor,
        /// Whose it is, where the format does not stack experts.
        expert: Option<ExpertIdx>,
        /// The bias instead of the weight.
        is_bias: bool,
    },
}

/// How one checkpoint spells its tensor names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorNames {
    /// Before everything but the output head, e.g. `model.`.
    prefix: String,
    pub(super) spelling: &'static Spelling,
    /// Experts are stacked as MLX does it, whatever the spelling says.
    is_stacked: bool,
    /// Those of the spelling's other words that the checkpoint uses.
    others: Vec<&'static Words>,
    /// Of what drafts for another model.
    ahead: Option<Ahead>,
}

impl TensorNames {
    pub(super) fn new(prefix: String, spelling: &'static Spelling) -> Self {
        Self { prefix, spelling, is_stacked: false, others: Vec::new(), ahead: None }
    }

    /// What stands before everything but the output head.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Name of the token embedding table, `[vocabulary, hidden]`.
    pub fn embedding(&self) -> String {
        format!("{}{}.weight", self.prefix, self.spelling.embedding)
    }

    /// Name of the norm before the head, `[hidden]`.
    pub fn output_norm(&self) -> String {
        let own = || format!("{}{}.weight", self.prefix, self.spelling.output_norm);
        self.head_norm().unwrap_or_else(own)
    }

    /// Name of the table of each token's inputs to layers, `[vocabulary, layers · input]`.
    pub fn layer_inputs(&self) -> String {
        self.input(0)
    }

    /// Name of what projects a token's embedding to inputs of layers, `[layers · input, hidden]`.
    pub fn input_projections(&self) -> String {
        self.input(1)
    }

    /// Name of the norm of each such projection, `[input]`.
    pub fn input_norm(&self) -> String {
        self.input(2)
    }

    fn input(&self, part: usize) -> String {
        format!("{}{}.weight", self.prefix, self.spelling.inputs[part])
    }

    /// Name of what makes a residual stream of embeddings, `[hidden, hidden]`, or of the stack of all such; of the first
    /// there is none.
    pub fn stream_projection(&self, stream: usize) -> String {
        self.stream(0, stream)
    }

    /// Name of what takes a residual stream back behind the last layer, `[hidden, hidden]`, or of the stack of all such; of
    /// the first there is none.
    pub fn stream_return(&self, stream: usize) -> String {
        self.stream(1, stream)
    }

    fn stream(&self, end: usize, stream: usize) -> String {
        let pattern = self.spelling.streams[end].replacen(EXPERT, &stream.saturating_sub(1).to_string(), 1);
        format!("{}{pattern}.weight", self.prefix)
    }

    /// Whether what makes and takes back residual streams is stacked in one tensor each, `[streams - 1, hidden, hidden]`.
    pub(crate) fn stacks_streams(&self) -> bool {
        !self.spelling.streams.iter().any(|pattern| pattern.contains(EXPERT))
    }

    /// Name of the output head, `[vocabulary, hidden]`; absent when tied.
    pub fn head(&self) -> String {
        // Multi-modal checkpoints keep the head beside the text model, not inside it.
        match self.prefix.strip_suffix(".model.") {
            Some(outer) => format!("{outer}.{}.weight", self.spelling.head),
            None => format!("{}.weight", self.spelling.head),
        }
    }

    /// Names of the weights that a layer of this description has, biases aside.
    pub fn weights<'a>(&'a self, layer: usize, spec: &'a LayerSpec) -> impl Iterator<Item = String> + 'a {
        self.weights_where(layer, spec, |_| true)
    }

    /// The tensors of such a layer that lie in one with this one, itself among them, in the order of their rows. Most lie
    /// alone.
    pub(crate) fn fused<'a>(
        &'a self,
        layer: &'a LayerSpec,
        tensor: LayerTensor,
    ) -> impl Iterator<Item = LayerTensor> + 'a {
        let own = self.pattern(tensor);
        let same = self.roles().filter(move |(_, pattern)| *pattern == own).map(|(tensor, _)| tensor);
        same.filter(|tensor| LayerTensor::of(layer).any(|other| other == *tensor))
    }

    /// Those of its feed-forward block.
    pub(crate) fn feed_forward<'a>(
        &'a self,
        layer: usize,
        spec: &'a LayerSpec,
    ) -> impl Iterator<Item = String> + 'a {
        self.weights_where(layer, spec, LayerTensor::is_feed_forward)
    }

    /// Those of the expert that every token takes.
    pub(crate) fn shared_expert<'a>(
        &'a self,
        layer: usize,
        spec: &'a LayerSpec,
    ) -> impl Iterator<Item = String> + 'a {
        self.weights_where(layer, spec, LayerTensor::is_shared_expert)
    }

    /// Those of its router.
    pub(crate) fn router<'a>(
        &'a self,
        layer: usize,
        spec: &'a LayerSpec,
    ) -> impl Iterator<Item = String> + 'a {
        self.weights_where(layer, spec, LayerTensor::is_router)
    }

    fn weights_where<'a>(
        &'a self,
        layer: usize,
        spec: &'a LayerSpec,
        wanted: fn(&LayerTensor) -> bool,
    ) -> impl Iterator<Item = String> + 'a {
        // Of those that are fused, the first stands for all.
        let is_first =
            |tensor: &LayerTensor| self.fused(spec, *tensor).next().is_none_or(|first| first == *tensor);
        LayerTensor::of(spec).filter(wanted).filter(is_first).flat_map(move |tensor| {
            let n = match spec.ffn.experts {
                Some(experts) if tensor.is_per_expert() && !self.stacks_experts() => experts.n_experts,
                _ => 1,
            };
            (0..n).map(move |expert| match tensor.is_per_expert() {
                true => self.expert_weight(layer, tensor, ExpertIdx(expert)),
                false => self.weight(layer, tensor),
            })
        })
    }

    /// Whether a layer's experts are stacked in one tensor, `[experts, out, in]`, rather than in
    /// tensors of their own.
    pub fn stacks_experts(&self) -> bool {
        !self.roles().any(|(_, pattern)| pattern.contains(EXPERT))
    }

    /// The same names but for one of the ways in which conversions call tensors otherwise, and the role whose tensor tells
    /// whether a checkpoint does; `None` behind the last.
    pub(super) fn variant(&self, at: usize) -> Option<(LayerTensor, Self)> {
        if let Some(words) = self.spelling.others.get(at) {
            let (sign, _) = words.roles.first()?;
            let others = self.others.iter().copied().chain([words]).collect();
            return Some((*sign, Self { others, ..self.clone() }));
        }
        let stacked = || (ExpertUp, Self { is_stacked: true, ..self.clone() });
        (at == self.spelling.others.len() && !self.stacks_experts()).then(stacked)
    }

    /// Whether norms have in them what is added to the family's others.
    pub(super) fn whole_norms(&self) -> bool {
        self.others.iter().any(|words| words.whole_norms)
    }

    /// How stacked experts lie.
    pub(crate) fn stacks(&self) -> Stacks {
        if self.other(ExpertUp).is_some() { Stacks::PLAIN } else { self.spelling.stacks }
    }

    /// Name of the tensor that holds an expert's weight, alone or among others.
    pub fn expert_weight(&self, layer: usize, tensor: LayerTensor, expert: ExpertIdx) -> String {
        self.weight(layer, tensor).replacen(EXPERT, &expert.to_string(), 1)
    }

    /// Name of a layer's weight.
    pub fn weight(&self, layer: usize, tensor: LayerTensor) -> String {
        self.layer(layer, tensor, "weight")
    }

    /// Name of a dense layer's down projection by features, `[features, hidden]`, which vindex folders may have beside
    /// it: what each feature adds to the output, in one row.
    pub(crate) fn down_features(&self, layer: usize) -> String {
        let layer = self.first() + layer;
        format!("{}{}.{layer}.mlp.down_features.weight", self.prefix, self.spelling.layers)
    }

    /// Name of a layer's bias.
    pub fn bias(&self, layer: usize, tensor: LayerTensor) -> String {
        self.layer(layer, tensor, "bias")
    }

    /// What a name stands for here; `None` for what no model of these names has.
    pub(crate) fn role(&self, name: &str) -> Option<TensorRole> {
        let whole = [TensorRole::Embedding, TensorRole::OutputNorm, TensorRole::Head];
        whole.into_iter().chain(self.layer_role(name)).find(|&role| self.name(role) == name)
    }

    fn layer_role(&self, name: &str) -> Option<TensorRole> {
        let rest = name.strip_prefix(&self.prefix)?.strip_prefix(self.spelling.layers)?.strip_prefix('.')?;
        let (layer, rest) = rest.split_once('.')?;
        let layer = layer.parse::<usize>().ok()?.checked_sub(self.first())?;
        self.roles().find_map(|(tensor, pattern)| {
            let (pattern, word, is_bias) = match pattern.strip_suffix(END) {
                Some(whole) => match rest.strip_suffix(BIAS).filter(|word| *word == whole) {
                    Some(word) => (whole, word, true),
                    None => (whole, rest, false),
                },
                None => {
                    let (word, kind) = rest.rsplit_once('.')?;
                    let is_bias = ["weight", "bias"].iter().position(|known| *known == kind)? == 1;
                    (&*pattern, word, is_bias)
                }
            };
            let expert = match pattern.split_once(EXPERT) {
                Some((before, after)) => {
                    Some(ExpertIdx(word.strip_prefix(before)?.strip_suffix(after)?.parse().ok()?))
                }
                None => (word == pattern).then_some(None)?,
            };
            Some(TensorRole::Layer { layer, tensor, expert, is_bias })
        })
    }

    /// The name of a role; of an expert's tensor that is stacked, of the stack.
    pub(crate) fn name(&self, role: TensorRole) -> String {
        match role {
            TensorRole::Embedding => self.embedding(),
            TensorRole::OutputNorm => self.output_norm(),
            TensorRole::Head => self.head(),
            TensorRole::Layer { layer, tensor, expert, is_bias } => {
                let name = if is_bias { self.bias(layer, tensor) } else { self.weight(layer, tensor) };
                expert.map_or_else(|| name.clone(), |expert| name.replacen(EXPERT, &expert.to_string(), 1))
            }
        }
    }

    fn layer(&self, layer: usize, tensor: LayerTensor, kind: &str) -> String {
        let (before, pattern) = (self.before_layer(layer), self.pattern(tensor));
        match pattern.strip_suffix(END) {
            Some(whole) => {
                let end = if kind == "bias" { BIAS } else { "" };
                format!("{before}{whole}{end}")
            }
            None => format!("{before}{pattern}.{kind}"),
        }
    }

    fn pattern(&self, tensor: LayerTensor) -> Cow<'static, str> {
        self.roles().find(|(t, _)| *t == tensor).map_or("?".into(), |(_, pattern)| pattern)
    }

    /// The pattern of a role in other words than the spelling's.
    fn other(&self, tensor: LayerTensor) -> Option<&'static str> {
        let mut roles = self.others.iter().flat_map(|words| words.roles);
        roles.find(|(other, _)| *other == tensor).map(|(_, pattern)| *pattern)
    }

    fn roles(&self) -> impl Iterator<Item = (LayerTensor, Cow<'static, str>)> {
        self.spelling.roles().map(|(tensor, pattern)| {
            if let Some(other) = self.other(tensor) {
                return (tensor, other.into());
            }
            let stacked = pattern.split_once("experts.{}.").filter(|_| self.is_stacked);
            match stacked.and_then(|(before, _)| Some((before, mlx::switch(tensor, self.spelling)?))) {
                Some((before, word)) => (tensor, format!("{before}switch_mlp.{word}").into()),
                None => (tensor, pattern.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
