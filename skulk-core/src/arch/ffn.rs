//! What does a layer's feed-forward block compute?

use super::{MAX_SIZE, invalid, positive, size, unsupported};
use crate::error::Result;

/// Upper bound for the number of experts of a layer.
const MAX_EXPERTS: usize = 1 << 14;

/// Gated feed-forward block: `down(act(gate(x)) · up(x))`, dense or a mixture of experts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FfnSpec {
    /// Inner width; of a mixture, each expert's. 0: the layer has no such block.
    pub width: usize,
    /// Applied to the gate.
    pub activation: Activation,
    /// All three projections have a bias; of a mixture, each expert's.
    pub bias: bool,
    /// The block is a mixture of experts, each such a block; `None`: dense.
    pub experts: Option<ExpertsSpec>,
    /// A block that every row takes beside its experts, whose result is added.
    pub shared: Option<SharedExpert>,
    /// Of a row's gates only what exceeds their mean by so many standard deviations is left (Gemma 3n); `None`: all.
    pub cutoff: Option<f32>,
}

/// A sparse mixture of experts (Shazeer et al. 2017): a router scores the experts for each row, the best ones compute
/// it, and their results are added, weighted by their scores.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ExpertsSpec {
    /// Experts in the layer.
    pub n_experts: usize,
    /// Experts that a row takes.
    pub n_used: usize,
    /// What makes scores of the router's logits.
    pub scoring: Scoring,
    /// The router has a bias, which its logits have in them.
    pub router_bias: bool,
    /// Experts are chosen by their scores and a number of each expert's own, which weights do not have (DeepSeek-V3).
    pub correction: bool,
    /// Experts are chosen among those of the best groups; `None`: among all.
    pub groups: Option<ExpertGroups>,
    /// The weights of the experts taken are scaled to a sum of 1.
    pub normalise: bool,
    /// Multiplies the weights afterwards.
    pub scale: f32,
    /// And what multiplies them for each expert.
    pub scales: bool,
    /// Weights multiply what experts take, rather than what they give (Llama 4).
    pub on_input: bool,
    /// Router and experts norm the residual stream for themselves, beside the shared expert, and results of experts and
    /// shared expert are normed before they are added (Gemma 4).
    pub apart: bool,
}

/// What makes scores of a router's logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scoring {
    /// A softmax over all experts.
    Softmax,
    /// Each logit's sigmoid.
    Sigmoid,
}

/// Experts in groups of equal size: those of the groups whose two best experts have the largest sums are chosen among.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpertGroups {
    /// Groups in a layer; divides its experts.
    pub n_groups: usize,
    /// Groups that a row takes experts of.
    pub n_used: usize,
}

/// A feed-forward block that every row takes beside its experts.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SharedExpert {
    /// Inner width.
    pub width: usize,
    /// Applied to the gate.
    pub activation: Activation,
    /// Its result is multiplied by the sigmoid of a number that is projected from the block's input.
    pub gated: bool,
}

/// The gate's non-linearity.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// [`Silu`](Self::Silu), at most this large, times what the gate is multiplied with, at most this far from 0.
    ClampedSilu(f32),
    /// `x · sigmoid(alpha · x)` of the gate, which is at most `limit` before, times one more than what the gate is
    /// multiplied with, which is at most that far from 0 (gpt-oss).
    ClampedGlu {
        /// How steep the sigmoid is.
        alpha: f32,
        /// Bounds both.
        limit: f32,
    },
    /// GELU, tanh approximation.
    GeluTanh,
    /// GELU with the error function.
    Gelu,
    /// `max(x, 0)²` of what other activations multiply the gate with: there is no gate (Nemotron).
    SquaredRelu,
}

impl SharedExpert {
    /// One of this width.
    pub fn new(width: usize) -> Self {
        Self { width, activation: Activation::Silu, gated: false }
    }
}

impl FfnSpec {
    /// Whether the layer has no such block.
    pub fn is_absent(&self) -> bool {
        self.width == 0 && self.experts.is_none() && self.shared.is_none()
    }

    pub(super) fn check(&self) -> Result<()> {
        size("feed-forward width", self.width, MAX_SIZE)?;
        self.activation.check()?;
        if let Some(experts) = self.experts {
            experts.check()?;
            if experts.on_input && self.bias {
                let message = "expected none where experts' inputs are weighted, found some";
                return Err(invalid("biases of experts", message.into()));
            }
            if experts.apart && self.shared.is_none() {
                let message = "expected a shared expert beside experts that are normed apart, found none";
                return Err(invalid("shared expert's width", message.into()));
            }
        }
        if let Some(cutoff) = self.cutoff {
            let dense = self.experts.is_none() && self.shared.is_none() && self.activation.is_gated();
            if !(cutoff.is_finite() && dense) {
                let message = format!("expected a number, and a dense block with gates, found {cutoff}");
                return Err(invalid("cut-off of gates", message));
            }
        }
        if let Some(shared) = self.shared {
            size("shared expert's width", shared.width, MAX_SIZE)?;
            shared.activation.check()?;
        }
        Ok(())
    }
}

impl ExpertsSpec {
    /// One expert, and nothing beside what all mixtures have.
    pub(crate) const PLAIN: Self = Self {
        n_experts: 1,
        n_used: 1,
        scoring: Scoring::Softmax,
        router_bias: false,
        correction: false,
        groups: None,
        normalise: false,
        scale: 1.0,
        scales: false,
        on_input: false,
        apart: false,
    };

    fn check(&self) -> Result<()> {
        size("experts", self.n_experts, MAX_EXPERTS)?;
        size("experts for each row", self.n_used, self.n_experts)?;
        positive("scale of experts' weights", self.scale)?;
        let Some(groups) = self.groups else { return Ok(()) };
        size("groups of experts", groups.n_groups, self.n_experts)?;
        size("groups for each row", groups.n_used, groups.n_groups)?;
        let of_group = self.n_experts / groups.n_groups;
        if !self.n_experts.is_multiple_of(groups.n_groups) || of_group < 2 {
            let found = groups.n_groups;
            let message = format!(
                "expected groups of equal size, of 2 or more, found {found} of {} experts",
                self.n_experts
            );
            return Err(invalid("groups of experts", message));
        }
        size("experts for each row", self.n_used, groups.n_used * of_group)
    }
}

impl Activation {
    /// Whether it is one of a gate.
    pub(crate) fn is_gated(self) -> bool {
        self != Self::SquaredRelu
    }

    fn check(self) -> Result<()> {
        match self {
            Self::ClampedSilu(limit) => positive("limit of activations", limit),
            Self::ClampedGlu { alpha, limit } => {
                positive("steepness of activations", alpha)?;
                positive("limit of activations", limit)
            }
            _ => Ok(()),
        }
    }
}

/// The name of an activation in configurations.
pub(super) fn activation(name: &str) -> Result<Activation> {
    match name {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu_pytorch_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
        "gelu" => Ok(Activation::Gelu),
        "relu2" => Ok(Activation::SquaredRelu),
        other => Err(unsupported("the activation", other, "silu, gelu_pytorch_tanh, gelu, relu2")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_whose_inputs_are_weighted_have_no_biases() {
        let experts = ExpertsSpec { on_input: true, ..ExpertsSpec::PLAIN };
        let mut block = FfnSpec {
            width: 8,
            activation: Activation::Silu,
            bias: false,
            experts: Some(experts),
            shared: None,
            cutoff: None,
        };
        block.check().unwrap();
        block.bias = true;
        assert!(block.check().unwrap_err().to_string().contains("weighted"));
    }
}
