//! How does a backend become an engine? Joined with the decoder, which loads its shards.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::budget::Budget;
use super::decoder::Decoder;
use super::experts::FfnWork;
use super::kv::Groups;
use super::load::bytes_of;
use super::options::EngineOptions;
use super::shard::DecoderShard;
use super::split::Split;
use crate::bytes::ByteSize;
use crate::engine::backend::Backend;
use crate::engine::cpu::Cpu;
use crate::engine::ffn::experts_of;
use crate::engine::{
    Capabilities, DeviceSpeed, Engine, EngineId, FfnShare, KvType, LoadCx, Precision, Shard, ShardEstimate,
    ShardSpec,
};
use crate::error::{Error, Result};
use crate::weights::{Checkpoint, Memory};

/// An engine on one backend.
pub(crate) struct DecoderEngine<B: Backend> {
    id: EngineId,
    capabilities: Capabilities,
    backend: Arc<B>,
    work: Arc<FfnWork<B>>,
    /// Where weights lie that are used in place; those that are copied are mapped for it.
    memory: Memory,
    /// What of feed-forward weights that are used in place may be in memory.
    budget: Option<Arc<Budget>>,
    /// What of its options changes what it computes, beside the backend's own.
    computes: String,
    /// How it computes blocks, where services can compute them to the same bits, see [`FfnService::computes`].
    blocks: Option<String>,
}

/// How the kernels of engine `cpu` compute blocks with these options.
pub(super) fn on_cpu(options: &EngineOptions) -> String {
    format!("cpu, {}{}", options.precision, features_in_words(options))
}

/// How many features of blocks are computed, where that is not all.
fn features_in_words(options: &EngineOptions) -> String {
    options.ffn_top_features.map(|k| format!(", {k} features")).unwrap_or_default()
}

/// The CPU with these options, for people.
pub(super) fn in_words(cpu: &Cpu, options: &EngineOptions) -> String {
    let threads = options.threads;
    format!("CPU, {threads} thread{}, {}", if threads == 1 { "" } else { "s" }, cpu.instruction_set())
}

/// The types of keys and values of the CPU. It attends in bfloat16 at least as fast as in half precision; what that rounds is
/// little beside activations that are rounded to 8 bits.
fn kv_types(precision: Precision) -> &'static [KvType] {
    use KvType::{BF16, F16, F32, Q4_0, Q8_0};
    match precision {
        Precision::Exact => Cpu::KV_TYPES,
        Precision::Fast | Precision::Bf16 => &[BF16, F16, F32, Q8_0, Q4_0],
    }
}

fn capabilities<B: Backend>(device: String, in_place_weights: bool) -> Capabilities {
    Capabilities { device, in_place_weights, exact_rows: B::EXACT_ROWS, kv_types: B::KV_TYPES }
}

impl DecoderEngine<Cpu> {
    /// The CPU, which uses weights where they lie.
    pub(crate) fn cpu(options: &EngineOptions) -> Result<Arc<dyn Engine>> {
        options.check_in_place()?;
        let cpu = Cpu::new(options.threads, options.precision)?.screening(options.screen_head);
        let budget = options.ffn_budget.map(|most| Arc::new(Budget::new(most)));
        Ok(Arc::new(Self {
            id: EngineId::new("cpu"),
            capabilities: Capabilities {
                kv_types: kv_types(options.precision),
                ..capabilities::<Cpu>(in_words(&cpu, options), true)
            },
            backend: Arc::new(cpu),
            work: FfnWork::new(options, budget.clone()),
            memory: options.memory,
            budget,
            computes: features_in_words(options),
            blocks: Some(on_cpu(options)),
        }))
    }
}

impl<B: Backend> DecoderEngine<B> {
    /// On a device that weights are copied to.
    pub(crate) fn copying(
        id: &str,
        device: String,
        options: &EngineOptions,
        backend: impl Into<Arc<B>>,
    ) -> Result<Arc<dyn Engine>> {
        options.check_copying()?;
        Ok(Arc::new(Self {
            id: EngineId::new(id),
            capabilities: capabilities::<B>(device, false),
            backend: backend.into(),
            work: FfnWork::whole(),
            memory: Memory::Mapped,
            budget: None,
            computes: String::new(),
            blocks: None,
        }))
    }

    /// `Ok` for what this engine can load.
    fn check(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<()> {
        spec.check()?;
        let (kv, kv_types) = (spec.kv, self.capabilities.kv_types);
        if ![kv.keys, kv.values].iter().all(|kv| kv_types.contains(kv)) {
            let names: Vec<_> = kv_types.iter().map(|kv| kv.as_str()).collect();
            let (names, id) = (names.join(" or "), &self.id);
            let message = format!("expected keys and values in {names} on engine `{id}`, found {kv}");
            return Err(Error::argument("kv", message)
                .with_hint("choose one of these types, or an engine that has all: `cpu` or `wgpu`"));
        }
        match &self.budget {
            Some(budget) => budget.check(&spec.arch, own_blocks(spec).map(|(layer, _)| layer), checkpoint),
            None => Ok(()),
        }
    }

    /// What a shard would take, whether or not it can be loaded.
    fn sizes(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<ShardEstimate> {
        let arch = &spec.arch;
        let mut ends = Vec::new();
        let inputs = arch.input_width().is_some();
        let names = &arch.names;
        let [embedding, head] = arch.has_tables();
        if embedding && (spec.is_first() || spec.is_last() && arch.tied_embeddings || inputs) {
            ends.push(names.embedding());
        }
        ends.extend(arch.joint_ends());
        if spec.is_last() {
            ends.extend(arch.has_last_norm().then(|| names.output_norm()));
            ends.extend(head.then(|| names.head()));
        }
        if inputs {
            ends.push(names.input_norm());
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
            // What others compute need not be there.
            let block: BTreeSet<String> = names.feed_forward(layer, layer_spec).collect();
            let beside = names.weights(layer, layer_spec).filter(|name| !block.contains(name));
            weights = weights + bytes_of(checkpoint, beside)?;
            weights = weights + ByteSize(block_bytes(spec, layer, own_share(spec, layer), checkpoint)?);
            weights = weights + ByteSize(arch.copied_bytes(layer, checkpoint));
        }
        let kv_cache = ByteSize(Groups::of(spec).full_length());
        Ok(ShardEstimate { weights, kv_cache })
    }

    /// Where a shard's weights shall lie that are used in place: one answer for all of them, but for those that have
    /// a budget, from the headers alone.
    fn resolve(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<Memory> {
        if self.memory != Memory::Auto {
            return Ok(self.memory);
        }
        let ShardEstimate { weights, kv_cache } = self.sizes(spec, checkpoint)?;
        let mut needed = weights + kv_cache;
        if let Some(budget) = &self.budget {
            let all = own_blocks(spec)
                .try_fold(0, |all, (layer, share)| Ok(all + block_bytes(spec, layer, share, checkpoint)?))?;
            needed =
                ByteSize(needed.bytes().saturating_sub(all.saturating_sub(budget.memory().budget.bytes())));
        }
        Ok(Memory::for_shard(needed))
    }
}

/// The layers of which a shard's engine computes blocks or experts, and how many of how many.
fn own_blocks(spec: &ShardSpec) -> impl Iterator<Item = (usize, [usize; 2])> + '_ {
    let shares = spec.layers.clone().map(|layer| (layer, own_share(spec, layer)));
    shares.filter(|(_, [own, _])| *own > 0)
}

/// Of how many of a layer's blocks or experts a shard's engine computes how many.
fn own_share(spec: &ShardSpec, layer: usize) -> [usize; 2] {
    let n = experts_of(&spec.arch.layers[layer]);
    [n - spec.ffn.of(layer).map(|share| share.experts.len()).sum::<usize>().min(n), n]
}

/// Bytes of so many of a layer's experts, each as large as the others. Those that are not wanted need not be there.
fn block_bytes(
    spec: &ShardSpec,
    layer: usize,
    [some, of]: [usize; 2],
    checkpoint: &dyn Checkpoint,
) -> Result<u64> {
    let mut names: Vec<String> = spec.arch.names.feed_forward(layer, &spec.arch.layers[layer]).collect();
    if some == 0 && of > 0 {
        return Ok(0);
    }
    let n = names.len();
    if some < of {
        names.retain(|name| checkpoint.tensor(name).is_some());
    }
    let (there, n) = (names.len().max(1) as u128, n as u128);
    let all = u128::from(bytes_of(checkpoint, names.into_iter())?.bytes()) * n / there;
    Ok(u64::try_from(all * some as u128 / of.max(1) as u128).unwrap_or(u64::MAX))
}

/// How those compute that a shard's plan leaves something to.
fn others(spec: &ShardSpec) -> BTreeSet<String> {
    let own =
        |share: &&FfnShare| share.layers.start < spec.layers.end && spec.layers.start < share.layers.end;
    spec.ffn.shares().iter().filter(own).map(|share| share.service.computes()).collect()
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
        let blocks = Split::new(spec, Arc::clone(&self.work));
        let backend = Arc::clone(&self.backend);
        let decoder = Decoder::load(backend, blocks, spec.clone(), checkpoint, memory, (None, cx))?;
        let mut layout = format!("{}, {}", self.backend.page_layout(), spec.kv);
        layout.push_str(&self.computes);
        for how in others(spec).into_iter().filter(|how| self.blocks.as_ref() != Some(how)) {
            layout.push_str(", feed-forward on ");
            layout.push_str(&how);
        }
        Ok(Box::new(DecoderShard::new(decoder, memory, layout)?))
    }
    fn measure(&self) -> Result<Option<DeviceSpeed>> {
        match cfg!(debug_assertions) {
            true => Ok(None),
            false => {
                let is_processor = matches!(self.id.as_str(), "cpu" | "candle-cpu");
                super::speed::measure(&*self.backend, is_processor).map(Some)
            }
        }
    }
}
