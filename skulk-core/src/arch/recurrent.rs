//! What does a layer compute that keeps a state instead of keys and values?

use super::{MAX_SIZE, invalid, size};
use crate::error::Result;

/// States that a sequence holds at most: four, and one more while a prompt passes.
pub(crate) const STATES_HELD: u64 = 5;
/// States are kept with so many values together, the last ones filled up.
pub(crate) const STATE_LANES: usize = 16;
/// The most positions that channels are convolved over.
pub(crate) const MOST_CONVOLVED: usize = 8;

/// Linear attention of one layer: for each head a matrix that every position changes and reads.
///
/// Queries, keys and values are projected, convolved with those of the positions before and put through SiLU. The state
/// then decays, takes up the position's value under its key, and is read with its query (Yang et al. 2024, Dao & Gu 2024).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RecurrentSpec {
    /// Heads of values, each with a state `[key_dim, value_dim]`.
    pub n_heads: usize,
    /// Heads of queries and keys, each for as many heads of values; divides `n_heads`.
    pub n_key_heads: usize,
    /// Which heads of values those are.
    pub key_heads: KeyHeads,
    /// Elements of a query's or key's head.
    pub key_dim: usize,
    /// Elements of a value's head.
    pub value_dim: usize,
    /// Positions that a channel is convolved over, its own included.
    pub convolution: usize,
    /// The convolution has a bias.
    pub convolution_bias: bool,
    /// How a state takes up a value.
    pub rule: RecurrentRule,
    /// What is read is gated by what is projected for that, and normed.
    pub gate: RecurrentGate,
    /// What is read is normed in so many groups of consecutive elements; divides `n_heads`.
    pub norm_groups: usize,
    /// Time steps and gates are projections of vectors of so many elements, each of one of its own; `None`: of the layer's
    /// input.
    pub rank: Option<usize>,
    /// How projections lie that are in one tensor.
    pub interleaved: Interleaved,
    /// How it is stored how fast states decay.
    pub decay: StoredDecay,
}

/// Which heads of values use a head of keys, and of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyHeads {
    /// The first use the first, the next ones the second.
    Consecutive,
    /// One after the other they use the first, the second, and so on, until it is the first one's turn again.
    InTurn,
}

/// How projections lie that are in one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interleaved {
    /// All of one projection come before those of the next.
    No,
    /// Those of a key head lie together, key head behind key head.
    Yes,
    /// So do those of time steps and shares, and no others.
    Scalars,
}

/// How it is stored how fast states decay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredDecay {
    /// As the rate's logarithm.
    Logarithm,
    /// As the rate, below 0.
    Negative,
}

/// How a state takes up a value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum RecurrentRule {
    /// What the state has under the key is replaced, by a share that is the sigmoid of a projection. Queries and keys are of
    /// length 1, queries divided by the root of their dimension.
    Delta,
    /// The same, where each element of a key has a time step, and so what is left of what the state has under it (Kimi Linear).
    DeltaOfElements,
    /// The value is added, times the position's time step, which decay follows, too. What is read has a share of the value
    /// itself in it (Mamba 2).
    Add {
        /// Time steps are at least that long, and at most.
        steps: [f32; 2],
    },
}

/// How what is read is gated and normed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecurrentGate {
    /// Normed, by weights that all heads share, then multiplied by the gate's SiLU.
    Behind,
    /// Normed likewise, then multiplied by the gate's sigmoid.
    SigmoidBehind,
    /// Multiplied by the gate's SiLU, then normed.
    Before,
}

impl KeyHeads {
    /// The head of keys that one of `n` heads of values uses.
    pub(crate) fn of(self, head: usize, n: usize, n_keys: usize) -> usize {
        match self {
            Self::Consecutive => head / (n / n_keys),
            Self::InTurn => head % n_keys,
        }
    }
}

impl RecurrentRule {
    /// Whether what the state has under a key is replaced.
    pub(crate) fn replaces(self) -> bool {
        matches!(self, Self::Delta | Self::DeltaOfElements)
    }
}

impl RecurrentSpec {
    /// What a row of queries has, and of keys.
    pub(crate) fn key_width(&self) -> usize {
        self.n_key_heads.saturating_mul(self.key_dim)
    }

    /// What a row of values has.
    pub(crate) fn value_width(&self) -> usize {
        self.n_heads.saturating_mul(self.value_dim)
    }

    /// Time steps of a row.
    pub(crate) fn steps(&self) -> usize {
        match self.rule {
            RecurrentRule::DeltaOfElements => self.n_heads.saturating_mul(self.key_dim),
            RecurrentRule::Delta | RecurrentRule::Add { .. } => self.n_heads,
        }
    }

    /// What is convolved of a row: queries, keys and values.
    pub(crate) fn channels(&self) -> usize {
        self.key_width().saturating_mul(2).saturating_add(self.value_width())
    }

    /// Numbers of what a sequence keeps: states, and inputs that later positions are convolved with.
    pub(crate) fn state_len(&self) -> usize {
        let of_head = self.value_dim.next_multiple_of(STATE_LANES).saturating_mul(self.key_dim);
        let state = self.n_heads.saturating_mul(of_head);
        let before = self.convolution.saturating_sub(1);
        state.saturating_add(self.channels().saturating_mul(before))
    }

    /// Bytes of what a sequence keeps.
    pub(crate) fn state_bytes(&self) -> u64 {
        (self.state_len() as u64).saturating_mul(size_of::<f32>() as u64)
    }

    /// Weights of its norm.
    pub(crate) fn norm_width(&self) -> usize {
        match self.gate {
            RecurrentGate::Behind | RecurrentGate::SigmoidBehind => self.value_dim,
            RecurrentGate::Before => self.value_width(),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        size("heads of states", self.n_heads, 1 << 16)?;
        size("key heads of states", self.n_key_heads, 1 << 16)?;
        size("key dimension of states", self.key_dim, 1 << 12)?;
        size("value dimension of states", self.value_dim, 1 << 12)?;
        size("positions of a convolution", self.convolution, MOST_CONVOLVED)?;
        size("groups of a state's norm", self.norm_groups, self.n_heads)?;
        size("elements of a state", self.state_len(), MAX_SIZE)?;
        for (field, n) in
            [("key heads of states", self.n_key_heads), ("groups of a state's norm", self.norm_groups)]
        {
            if !self.n_heads.is_multiple_of(n) {
                let message = format!("expected a divisor of the {} heads, found {n}", self.n_heads);
                return Err(invalid(field, message));
            }
        }
        if self.key_heads == KeyHeads::InTurn && self.interleaved != Interleaved::No {
            let message = "expected all of one projection before the next where key heads are used in turn";
            return Err(invalid("key heads of states", message.into()));
        }
        if let Some(rank) = self.rank {
            size("vectors that time steps and gates are projected from", rank, 1 << 16)?;
        }
        if self.gate != RecurrentGate::Before && self.norm_groups != self.n_heads {
            let message = format!("expected {}, one for each head, found {}", self.n_heads, self.norm_groups);
            return Err(invalid("groups of a state's norm", message));
        }
        if let RecurrentRule::Add { steps: [least, most] } = self.rule
            && !(least >= 0.0 && most > least)
        {
            let message = format!("expected two numbers from 0 on, in order, found {least} and {most}");
            return Err(invalid("limits of time steps", message));
        }
        Ok(())
    }
}
