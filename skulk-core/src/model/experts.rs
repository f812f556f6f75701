//! Which feed-forward blocks and experts does an engine have itself, and how does it compute them?
//!
//! A dense block is one expert. Of a layer's experts there may be some: [`Split`](super::split::Split) knows who has the
//! others.

use std::sync::Arc;

use super::budget::{Budget, Units};
use super::load::Loader;
use super::options::EngineOptions;
use crate::arch::{Activation, ExpertsSpec, LayerTensor as T};
use crate::engine::FfnMemory;
use crate::engine::backend::{Backend, Expected, ExpertMemory, Experts, FeatureDown, Features, TopFeatures};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::LayerIdx;
use crate::weights::{Memory, Region};

/// One layer's feed-forward work in one step.
pub(super) struct ExpertCall<'a, B: Backend> {
    pub(super) backend: &'a B,
    pub(super) layer: LayerIdx,
    /// Which experts each row takes; `None` where the layer is dense: all rows take its only one.
    pub(super) routes: Option<&'a B::Routes>,
    /// Rows of input and output.
    pub(super) rows: usize,
    /// Normed hidden states `[rows, hidden]`.
    pub(super) input: &'a B::Buffer,
    /// The same before the norm.
    pub(super) residual: &'a B::Buffer,
    pub(super) stream: &'a mut B::Stream,
    /// Room for the inner activations, `[rows, width]` each.
    pub(super) inner: &'a mut [B::Buffer; 2],
    /// Takes the block's result `[rows, hidden]`.
    pub(super) output: &'a mut B::Buffer,
}

/// How feed-forward blocks are computed.
pub(super) struct FfnWork<B: Backend> {
    /// What of their weights may be in memory, where they are used in place; all, where there is no budget.
    pub(super) budget: Option<Arc<Budget>>,
    /// Of a dense block a row takes only so many features, where the backend can do that.
    features: Option<(usize, ComputeFeatures<B>)>,
}

/// See [`Features::top_features`].
type ComputeFeatures<B> = fn(
    &B,
    &mut <B as Backend>::Stream,
    &TopFeatures<'_, B>,
    &<B as Backend>::Buffer,
    usize,
    &mut [<B as Backend>::Buffer; 2],
    &mut <B as Backend>::Buffer,
) -> Result<()>;

impl<B: Backend> FfnWork<B> {
    /// All of each block, all in memory.
    pub(super) fn whole() -> Arc<Self> {
        Arc::new(Self { budget: None, features: None })
    }
}

impl<B: Features> FfnWork<B> {
    /// As an engine's options say.
    pub(super) fn new(options: &EngineOptions, budget: Option<Arc<Budget>>) -> Arc<Self> {
        let features = options.ffn_top_features.map(|k| (k, B::top_features as ComputeFeatures<B>));
        Arc::new(Self { budget, features })
    }
}

/// Experts whose weights the engine itself has: in memory, on its device, or in their file's map.
pub(super) struct ResidentExperts<B: Backend> {
    first_layer: usize,
    /// `None` where others have all of the layer's block.
    blocks: Vec<Option<Block<B>>>,
    work: Arc<FfnWork<B>>,
}

struct Block<B: Backend> {
    activation: Activation,
    /// What of gates goes, in a dense block.
    cutoff: Option<f32>,
    /// Weights of rows multiply what experts take.
    on_input: bool,
    /// The experts that are here, ascending; routes name them by their place in it.
    experts: Vec<usize>,
    weights: Weights<B>,
    /// Whom to ask before they are used.
    units: Option<Units>,
}

/// Gate, up and down.
enum Weights<B: Backend> {
    Dense([B::Matrix; 3]),
    Features {
        k: usize,
        compute: ComputeFeatures<B>,
        gate_up: [B::Matrix; 2],
        down: FeatureDown<B::Matrix>,
    },
    /// Without a gate there is one projection, in the gate's place.
    Experts {
        gate: B::Stack,
        up: Option<B::Stack>,
        down: B::Stack,
    },
    /// Up and down: there is no gate.
    Plain([B::Matrix; 2]),
    /// The layer has no block.
    Nothing,
}

impl<B: Backend> ResidentExperts<B> {
    /// Room for the blocks of the layers from `first_layer` on, which [`load_layer`](Self::load_layer) fills.
    pub(super) fn new(first_layer: usize, work: Arc<FfnWork<B>>) -> Self {
        Self { first_layer, blocks: Vec::new(), work }
    }

    /// How it computes.
    pub(super) fn work(&self) -> &Arc<FfnWork<B>> {
        &self.work
    }

    /// The layer that comes next.
    pub(super) fn next_layer(&self) -> usize {
        self.first_layer + self.blocks.len()
    }

    fn block(&self, layer: LayerIdx) -> Option<&Block<B>> {
        layer.0.checked_sub(self.first_layer).and_then(|at| self.blocks.get(at)?.as_ref())
    }

    /// By what place routes name an expert of a layer that is here.
    pub(super) fn place(&self, layer: LayerIdx, expert: usize) -> Option<usize> {
        self.block(layer)?.experts.binary_search(&expert).ok()
    }

    fn dense(&self, loader: &mut Loader<'_, B>, layer: usize) -> Result<(Weights<B>, Vec<Vec<Region>>)> {
        let arch = loader.arch;
        let spec = &arch.layers[layer].ffn;
        let (hidden, width, bias) = (arch.hidden_size, spec.width, spec.bias);
        if !spec.activation.is_gated() {
            self.expect_all(
                layer,
                "blocks with gates, of whose features to take the best, found one without",
            )?;
            let names = [T::FfnUp, T::FfnDown].map(|tensor| arch.names.weight(layer, tensor));
            let weights = [loader.layer_matrix(layer, T::FfnUp)?, loader.layer_matrix(layer, T::FfnDown)?];
            let regions = names.iter().map(|name| loader.checkpoint.region(name)).collect::<Result<_>>()?;
            return Ok((Weights::Plain(weights), vec![regions]));
        }
        if spec.cutoff.is_some() {
            self.expect_all(layer, "gates that are all left, of which to take the best, found some cut off")?;
        }
        let mut names = [T::FfnGate, T::FfnUp, T::FfnDown].map(|tensor| arch.names.weight(layer, tensor));
        let weights = match self.work.features.filter(|(k, _)| *k < width) {
            None => {
                let gate = loader.layer_matrix(layer, T::FfnGate)?;
                let up = loader.layer_matrix(layer, T::FfnUp)?;
                let both = [&gate, &up];
                loader.backend.expect(match spec.cutoff {
                    None => Expected::GatedBlock(spec.activation, both),
                    Some(_) => Expected::Products(&both),
                })?;
                Weights::Dense([gate, up, loader.layer_matrix(layer, T::FfnDown)?])
            }
            Some((k, compute)) => {
                let by_feature = arch.names.down_features(layer);
                // Rows of up are read alone. Where gate lies in one tensor with it, it lies as up does.
                let gate = match arch.names.fused(&arch.layers[layer], T::FfnGate).count() {
                    1 => loader.layer_matrix(layer, T::FfnGate)?,
                    _ => loader.layer_rows(layer, T::FfnGate)?,
                };
                let gate_up = [gate, loader.layer_rows(layer, T::FfnUp)?];
                // Biases of outputs are no feature's.
                if loader.checkpoint.tensor(&by_feature).is_some() && !bias {
                    names[2] = by_feature;
                    let down = FeatureDown::Rows(loader.features(&names[2], width, hidden)?);
                    Weights::Features { k, compute, gate_up, down }
                } else {
                    let down = loader.layer_matrix(layer, T::FfnDown)?;
                    Weights::Features { k, compute, gate_up, down: FeatureDown::Columns(down) }
                }
            }
        };
        // Gate and up projection may lie in one tensor.
        let mut names = names.to_vec();
        names.dedup();
        Ok((weights, vec![names.iter().map(|name| loader.checkpoint.region(name)).collect::<Result<_>>()?]))
    }

    /// `Ok` where all features of blocks are taken.
    fn expect_all(&self, layer: usize, expected: &str) -> Result<()> {
        match self.work.features {
            None => Ok(()),
            Some(_) => Err(Error::argument("ffn_top_features", format!("expected {expected}"))
                .with("layer", layer)
                .with_hint("leave the option out for this model")),
        }
    }

    fn experts(
        &self,
        loader: &mut Loader<'_, B>,
        layer: usize,
        experts: (usize, &[usize]),
    ) -> Result<(Weights<B>, Vec<Vec<Region>>)> {
        self.expect_all(
            layer,
            "dense feed-forward blocks, of which to take the best features, found experts",
        )?;
        let tensors = match loader.arch.layers[layer].ffn.activation.is_gated() {
            true => &[T::ExpertGate, T::ExpertUp, T::ExpertDown][..],
            false => &[T::ExpertUp, T::ExpertDown],
        };
        let gate = loader.layer_experts(layer, tensors[0], experts)?;
        let up = match tensors {
            [_, up, _] => Some(loader.layer_experts(layer, *up, experts)?),
            _ => None,
        };
        let down = loader.layer_experts(layer, T::ExpertDown, experts)?;
        let ffn = &loader.arch.layers[layer].ffn;
        let (activation, on_input) = (ffn.activation, ffn.experts.is_some_and(|experts| experts.on_input));
        let up_too = up.as_ref();
        loader.backend.expect(Expected::Experts {
            activation,
            on_input,
            gate: &gate,
            up: up_too,
            down: &down,
        })?;
        let weights = Weights::Experts { gate, up, down };
        // Who counts them has them mapped.
        let mut regions = vec![Vec::with_capacity(3); experts.1.len()];
        let counted = self.work.budget.is_some();
        for tensor in tensors.iter().copied().filter(|_| counted) {
            for (regions, region) in regions.iter_mut().zip(loader.expert_regions(layer, tensor, experts)?) {
                regions.push(region);
            }
        }
        Ok((weights, regions))
    }

    /// Loads the next layer's block, of which these experts shall be here, in ascending order; a dense block is
    /// expert 0.
    pub(super) fn load_layer(&mut self, loader: &mut Loader<'_, B>, experts: &[usize]) -> Result<()> {
        let (layer, memory, on_demand) = (self.next_layer(), loader.memory, loader.on_demand);
        let arch = loader.arch;
        let ffn = &arch.layers[layer].ffn;
        if experts.is_empty() && !ffn.is_absent() {
            self.blocks.push(None);
            return Ok(());
        }
        if self.work.budget.is_some() {
            (loader.memory, loader.on_demand) = (Memory::Mapped, true);
        }
        let loaded = match ffn.experts {
            None if ffn.is_absent() => Ok((Weights::Nothing, Vec::new())),
            None => self.dense(loader, layer),
            Some(ExpertsSpec { n_experts, .. }) => self.experts(loader, layer, (n_experts, experts)),
        };
        (loader.memory, loader.on_demand) = (memory, on_demand);
        let (weights, regions) = loaded?;
        let units = self.work.budget.as_ref().map(|budget| budget.block(arch, layer, regions));
        let on_input = ffn.experts.is_some_and(|experts| experts.on_input);
        let (activation, cutoff, experts) = (ffn.activation, ffn.cutoff, experts.to_vec());
        self.blocks.push(Some(Block { activation, cutoff, on_input, experts, weights, units }));
        Ok(())
    }

    /// What of their weights is in memory, where there is a budget for that.
    pub(super) fn memory(&self) -> Option<FfnMemory> {
        self.work.budget.as_ref().map(|budget| budget.memory())
    }

    /// A layer's experts as an operation.
    pub(super) fn operation<'a>(&'a self, layer: LayerIdx, routes: &'a B::Routes) -> Result<Experts<'a, B>> {
        let block = self.block(layer).ok_or_else(|| absent(layer))?;
        let Weights::Experts { gate, up, down } = &block.weights else { return Err(absent(layer)) };
        let (activation, on_input) = (block.activation, block.on_input);
        let memory = block.units.as_ref().map(|units| units as &dyn ExpertMemory);
        Ok(Experts { activation, routes, gate, up: up.as_ref(), down, on_input, memory })
    }

    /// Computes a layer's block for the call's rows. Routes name experts by their [place](Self::place).
    pub(super) fn forward(&self, call: ExpertCall<'_, B>) -> Result<()> {
        let ExpertCall { backend, layer, routes, rows, input, stream, inner, output, .. } = call;
        if let Some(routes) = routes {
            return backend.experts(stream, &self.operation(layer, routes)?, input, rows, output);
        }
        let block = self.block(layer).ok_or_else(|| absent(layer))?;
        let Block { activation, cutoff, weights, units, .. } = block;
        let (activation, units) = (*activation, units.as_ref());
        match weights {
            Weights::Dense([to_gate, to_up, down]) => {
                let _taken = units.map(Units::take_block);
                let down = &mut [(down, output)];
                let Some(deviations) = *cutoff else {
                    let gate_up = [to_gate, to_up];
                    return backend.gated_block(stream, activation, (input, rows), gate_up, inner, down);
                };
                let [gate, up] = &mut *inner;
                backend.linear(stream, input, rows, &mut [(to_gate, &mut *gate), (to_up, up)])?;
                backend.cut_off(stream, gate, deviations, rows)?;
                backend.gated_linear(stream, activation, inner, rows, down)
            }
            Weights::Plain([to_up, down]) => {
                let _taken = units.map(Units::take_block);
                let [up, _] = &mut *inner;
                backend.linear(stream, input, rows, &mut [(to_up, up)])?;
                backend.gated_linear(stream, activation, inner, rows, &mut [(down, output)])
            }
            Weights::Features { k, compute, gate_up: [gate, up], down } => {
                let _taken = units.map(Units::take_block);
                let op = TopFeatures { activation, k: *k, gate, up, down: down.as_ref() };
                compute(backend, stream, &op, input, rows, inner, output)
            }
            Weights::Experts { .. } | Weights::Nothing => Err(absent(layer)),
        }
    }
}

fn absent(layer: LayerIdx) -> Error {
    Error::new(ErrorKind::Internal, "the engine does not have these experts").with("layer", layer)
}
