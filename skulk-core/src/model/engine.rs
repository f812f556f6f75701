//! How does a backend become an engine? Joined with the decoder, which loads its shards.

use std::sync::Arc;

use super::budget::Budget;
use super::cpu_experts::CpuExperts;
use super::decoder::Decoder;
use super::experts::{ExpertProvider, FfnWork, ResidentExperts};
use super::kv::Groups;
use super::load::bytes_of;
use super::options::EngineOptions;
use super::shard::DecoderShard;
use crate::bytes::ByteSize;
use crate::engine::backend::Backend;
use crate::engine::cpu::Cpu;
use crate::engine::{Capabilities, Engine, EngineId, LoadCx, Shard, ShardEstimate, ShardSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{Checkpoint, Memory};

/// An engine on one backend.
pub(crate) struct DecoderEngine<B: Backend> {
    id: EngineId,
    capabilities: Capabilities,
    backend: Arc<B>,
    make_experts: MakeExperts<B>,
    /// Some layers' feed-forward blocks may be left to the CPU beside the device.
    has_cpu_beside: bool,
    /// Where weights lie that are used in place; those that are copied are mapped for it.
    memory: Memory,
    /// What of feed-forward weights that are used in place may be in memory.
    budget: Option<Arc<Budget>>,
    /// What of its options changes what it computes, beside the backend's own.
    computes: String,
}

/// How feed-forward blocks are computed, as a page's layout says it.
fn computes(options: &EngineOptions, on_cpu: bool) -> String {
    let features = options.ffn_top_features.map(|k| format!(", {k} features")).unwrap_or_default();
    if on_cpu { format!(", feed-forward on cpu, {}{features}", options.precision) } else { features }
}

/// Who computes a shard's feed-forward blocks, whose weights lie there where they are used in place.
type MakeExperts<B> = Box<dyn Fn(&ShardSpec, Memory) -> Box<dyn ExpertProvider<B>> + Send + Sync>;

fn budget_of(options: &EngineOptions) -> Option<Arc<Budget>> {
    options.ffn_budget.map(|most| Arc::new(Budget::new(most)))
}

/// The CPU with these options, for people.
fn in_words(cpu: &Cpu, options: &EngineOptions) -> String {
    let threads = options.threads;
    format!("CPU, {threads} thread{}, {}", if threads == 1 { "" } else { "s" }, cpu.instruction_set())
}

fn capabilities<B: Backend>(device: String, in_place_weights: bool) -> Capabilities {
    Capabilities { device, in_place_weights, exact_rows: B::EXACT_ROWS, kv_types: B::KV_TYPES }
}

impl DecoderEngine<Cpu> {
    /// The CPU, which uses weights where they lie.
    pub(crate) fn cpu(options: &EngineOptions) -> Result<Arc<dyn Engine>> {
        options.check(true)?;
        let cpu = Cpu::new(options.threads, options.precision)?.screening(options.screen_head);
        let device = in_words(&cpu, options);
        let budget = budget_of(options);
        let work = FfnWork::new(options, budget.clone());
        Ok(Arc::new(Self {
            id: EngineId::new("cpu"),
            capabilities: capabilities::<Cpu>(device, true),
            backend: Arc::new(cpu),
            make_experts: Box::new(move |spec, _| {
                Box::new(ResidentExperts::new(&spec.layers, Arc::clone(&work)))
            }),
            has_cpu_beside: false,
            memory: options.memory,
            budget,
            computes: computes(options, false),
        }))
    }
}

impl<B: Backend> DecoderEngine<B> {
    /// On a device that weights are copied to, but for those that the options leave to the CPU.
    pub(crate) fn copying(
        id: &str,
        mut device: String,
        options: &EngineOptions,
        backend: impl Into<Arc<B>>,
    ) -> Result<Arc<dyn Engine>> {
        options.check(options.ffn_on_cpu)?;
        let budget = budget_of(options);
        let mut memory = Memory::Mapped;
        let mut make_experts: MakeExperts<B> =
            Box::new(|spec, _| Box::new(ResidentExperts::new(&spec.layers, FfnWork::whole())));
        if options.ffn_on_cpu {
            let cpu = Arc::new(Cpu::new(options.threads, options.precision)?);
            device = format!("{device}; feed-forward on {}", in_words(&cpu, options));
            memory = options.memory;
            let work = FfnWork::new(options, budget.clone());
            make_experts = Box::new(move |spec, memory| {
                Box::new(CpuExperts::new(Arc::clone(&cpu), spec, memory, Arc::clone(&work)))
            });
        }
        Ok(Arc::new(Self {
            id: EngineId::new(id),
            capabilities: capabilities::<B>(device, false),
            backend: backend.into(),
            make_experts,
            has_cpu_beside: options.ffn_on_cpu,
            memory,
            budget,
            computes: computes(options, options.ffn_on_cpu),
        }))
    }

    /// `Ok` for what this engine can load.
    fn check(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<()> {
        spec.check()?;
        let apart = spec.ffn_on_cpu.as_ref().is_some_and(|layers| !layers.is_empty());
        if apart && !self.has_cpu_beside && !self.capabilities.in_place_weights {
            return Err(Error::new(
                ErrorKind::PlacementInvalid,
                format!(
                    "expected engine `{}` to have the CPU beside it for feed-forward blocks, found it alone",
                    self.id
                ),
            )
            .with_hint("make the engine with the option ffn_on_cpu"));
        }
        let (kv, kv_types) = (spec.kv, self.capabilities.kv_types);
        if ![kv.keys, kv.values].iter().all(|kv| kv_types.contains(kv)) {
            let names: Vec<_> = kv_types.iter().map(|kv| kv.as_str()).collect();
            let (names, id) = (names.join(" or "), &self.id);
            let message = format!("expected keys and values in {names} on engine `{id}`, found {kv}");
            return Err(Error::argument("kv", message)
                .with_hint("choose one of these types, or an engine that has all: `cpu` or `wgpu`"));
        }
        match &self.budget {
            Some(budget) => budget.check(spec, self.ffn_in_place(spec), checkpoint),
            None => Ok(()),
        }
    }

    /// What a shard would take, whether or not it can be loaded.
    fn sizes(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<ShardEstimate> {
        let arch = &spec.arch;
        let mut ends = Vec::new();
        let inputs = arch.input_width().is_some();
        if spec.is_first() || spec.is_last() && arch.tied_embeddings || inputs {
            ends.push(arch.names.embedding());
        }
        if spec.is_last() {
            ends.push(arch.names.output_norm());
            if !arch.tied_embeddings {
                ends.push(arch.names.head());
            }
        }
        if inputs {
            ends.push(arch.names.input_norm());
        }
        let [begin, end] = arch.stream_ends();
        ends.extend(begin.into_iter().filter(|_| spec.is_first()));
        ends.extend(end.into_iter().filter(|_| spec.is_last()));
        let mut weights = bytes_of(checkpoint, ends.into_iter())?;
        if inputs {
            let all = bytes_of(checkpoint, [arch.names.input_projections()].into_iter())?.bytes();
            weights = weights + ByteSize(all / arch.n_layers() as u64 * spec.layers.len() as u64);
        }
        for layer in spec.layers.clone() {
            let layer_spec = &arch.layers[layer];
            weights = weights + bytes_of(checkpoint, arch.names.weights(layer, layer_spec))?;
            weights = weights + ByteSize(arch.copied_bytes(layer, checkpoint));
        }
        let kv_cache = ByteSize(Groups::of(spec).full_length());
        Ok(ShardEstimate { weights, kv_cache })
    }

    /// The layers of a shard whose blocks are computed where their weights are stored.
    fn ffn_in_place<'a>(&'a self, spec: &'a ShardSpec) -> impl Iterator<Item = usize> + 'a {
        spec.layers.clone().filter(|layer| !self.has_cpu_beside || spec.is_ffn_on_cpu(*layer))
    }

    /// Where a shard's weights shall lie that are used in place: one answer for all of them, but for those that have
    /// a budget, from the headers alone.
    fn resolve(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<Memory> {
        let names = &spec.arch.names;
        let blocks =
            self.ffn_in_place(spec).flat_map(|layer| names.feed_forward(layer, &spec.arch.layers[layer]));
        match (self.memory, self.has_cpu_beside, &self.budget) {
            (_, true, Some(_)) => Ok(Memory::Mapped),
            (Memory::Auto, false, budget) => {
                let ShardEstimate { weights, kv_cache } = self.sizes(spec, checkpoint)?;
                let mut needed = weights + kv_cache;
                if let Some(budget) = budget {
                    let (all, most) = (bytes_of(checkpoint, blocks)?.bytes(), budget.memory().budget.bytes());
                    needed = ByteSize(needed.bytes().saturating_sub(all.saturating_sub(most)));
                }
                Ok(Memory::for_shard(needed))
            }
            (Memory::Auto, true, None) => Ok(Memory::for_shard(bytes_of(checkpoint, blocks)?)),
            (memory, _, _) => Ok(memory),
        }
    }
}

impl<B: Backend> Engine for DecoderEngine<B> {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn estimate(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<ShardEstimate> {
        self.check(spec, checkpoint)?;
        self.sizes(spec, checkpoint)
    }

    fn load(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint, cx: &LoadCx<'_>) -> Result<Box<dyn Shard>> {
        self.check(spec, checkpoint)?;
        let memory = self.resolve(spec, checkpoint)?;
        let own = if self.has_cpu_beside { Memory::Mapped } else { memory };
        let experts = (self.make_experts)(spec, memory);
        let decoder = Decoder::load(Arc::clone(&self.backend), experts, spec.clone(), checkpoint, own, cx)?;
        let mut layout = format!("{}, {}", self.backend.page_layout(), spec.kv);
        layout.push_str(&self.computes);
        Ok(Box::new(DecoderShard::new(decoder, memory, layout)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::cpu;

    #[test]
    fn the_cpu_leaves_nothing_to_the_cpu() {
        let of = |on_cpu| {
            let options = EngineOptions::default().threads(2).ffn_on_cpu(on_cpu);
            cpu(&options).unwrap().capabilities().clone()
        };
        assert_eq!(of(true), of(false));
    }
}
