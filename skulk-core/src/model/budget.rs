//! Which feed-forward weights are in memory? No more than a budget allows; the others stay in their file.
//!
//! A unit is what is used at once: the block of a dense layer, or one expert. Before a unit is computed it is taken:
//! it counts as in memory from then on, and for as long as others have to go for it, the pages of the unit that will
//! be needed last are let go (see [`Region::let_go`]). Which one that is follows from one rule:
//!
//! 1. Of units that were passed over, the one that was passed over most often goes first: an expert is passed over when
//!    its layer is computed without it. So among experts the least recently used goes. While most of a layer's experts are
//!    taken, as for prompts, this says nothing of other layers', which will be taken alike.
//! 2. Of those alike - blocks are never passed over - the one whose layer comes last in the cycle from the current
//!    layer on goes, beginning with the current layer's own. For blocks that is the best one can do (Belady, 1966):
//!    as many as fit stay, and the others pass through what is left.
//!
//! While a dense block is computed, the next one is asked for, where both fit together; it counts too.
//!
//! A unit that is being computed with never goes. Steps of one engine run one after the other, and [`Budget::check`]
//! sees to it that each unit fits alone, so that there is always something that can go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::load::bytes_of;
use crate::arch::{ArchSpec, LayerTensor as T};
use crate::bytes::ByteSize;
use crate::engine::FfnMemory;
use crate::engine::backend::ExpertMemory;
use crate::error::{Error, Result};
use crate::ids::ExpertIdx;
use crate::weights::{Checkpoint, Region, available_memory};

/// A number of bytes, and the units that share it: those of all shards of an engine.
#[derive(Debug)]
pub(super) struct Budget {
    most: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Places of blocks that are gone are taken again.
    blocks: Vec<Option<Block>>,
    /// Of units in memory, and of those among them that somebody computes with.
    in_memory: u64,
    in_use: u64,
    peak: u64,
    let_go: u64,
    /// The system has not memory enough to keep all units.
    short: bool,
}

/// A layer's units: one, or its experts.
#[derive(Debug)]
struct Block {
    /// Tells models on one engine apart.
    model: usize,
    layer: usize,
    /// Layers of its model: behind the last comes the first.
    n_layers: usize,
    /// Steps that have computed the layer.
    passes: u64,
    /// The last of these took most of its experts.
    takes_most: bool,
    units: Vec<Unit>,
    /// Apart from what is looked through to find which unit goes.
    regions: Vec<Vec<Region>>,
}

#[derive(Debug, Default)]
struct Unit {
    bytes: u64,
    in_memory: bool,
    /// The step that computes its layer will take it.
    is_due: bool,
    in_use: bool,
    /// The last of the layer's passes that took it.
    taken: u64,
}

/// A unit: its block and its place there.
type At = (usize, usize);

impl Budget {
    pub(super) fn new(most: ByteSize) -> Self {
        Self { most: most.bytes(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in memory now, and was.
    pub(super) fn memory(&self) -> FfnMemory {
        let state = self.state();
        FfnMemory {
            budget: ByteSize(self.most),
            in_memory: ByteSize(state.in_memory),
            peak: ByteSize(state.peak),
            let_go: ByteSize(state.let_go),
        }
    }

    /// The units of one of a model's layers, each with its tensors, which lie in their file's map.
    pub(super) fn block(self: &Arc<Self>, arch: &ArchSpec, layer: usize, regions: Vec<Vec<Region>>) -> Units {
        // Stages of one model share its description.
        let (model, n_layers) = (std::ptr::from_ref(arch).addr(), arch.n_layers());

        regions.iter().flatten().for_each(Region::scattered);
        let bytes = |regions: &Vec<Region>| regions.iter().map(Region::stored_bytes).sum();
        let units = regions.iter().map(|regions| Unit { bytes: bytes(regions), ..Unit::default() }).collect();
        let block = Some(Block {
            model,
            layer,
            n_layers: n_layers.max(1),
            passes: 0,
            takes_most: false,
            units,
            regions,
        });
        let mut state = self.state();
        let units_of = |block: &Block| block.units.iter().map(|unit| unit.bytes).sum::<u64>();
        let all: u64 = state.blocks.iter().flatten().chain(&block).map(units_of).sum();
        state.short = available_memory().is_some_and(|(available, _)| all > available.bytes());
        let free = state.blocks.iter().position(Option::is_none);
        let at = free.unwrap_or(state.blocks.len());
        match state.blocks.get_mut(at) {
            Some(free) => *free = block,
            None => state.blocks.push(block),
        }
        Units { budget: Arc::clone(self), at }
    }

    /// `Ok` when the budget is enough for each unit of these layers, by the checkpoint's headers.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) that tells how much is needed; what is wrong with the checkpoint.
    pub(super) fn check(
        &self,
        arch: &ArchSpec,
        layers: impl Iterator<Item = usize>,
        checkpoint: &dyn Checkpoint,
    ) -> Result<()> {
        let mut needed = 0;
        for layer in layers {
            if arch.copies_experts(layer, checkpoint) {
                let message =
                    "expected experts that are used where they are stored, found some that loading copies";
                return Err(Error::argument("ffn_budget", message)
                    .with("file", checkpoint.path().display())
                    .with("layer", layer)
                    .with_hint("leave the option out: copies cannot be let go"));
            }
            needed = needed.max(largest_unit(arch, layer, checkpoint)?);
        }
        if needed <= self.most {
            return Ok(());
        }
        Err(Error::argument("ffn_budget", format!(
                "expected room for at least {needed} bytes of feed-forward weights, the largest block or expert, found {}",
                self.most
            ))
        .with_hint("give at least that much, better twice: the next block is then read while one is computed"))
    }
}

/// Bytes of a layer's largest unit.
fn largest_unit(arch: &ArchSpec, layer: usize, checkpoint: &dyn Checkpoint) -> Result<u64> {
    let (names, spec) = (&arch.names, &arch.layers[layer]);
    let n = spec.ffn.experts.map_or(1, |experts| experts.n_experts);
    if n == 1 || names.stacks_experts() {
        let all = bytes_of(checkpoint, names.feed_forward(layer, spec))?;
        return Ok(all.bytes() / n.max(1) as u64);
    }
    (0..n).map(ExpertIdx).try_fold(0, |largest, expert| {
        let own = |tensor: &T| T::of(spec).any(|other| other == *tensor);
        let tensors = [T::ExpertGate, T::ExpertUp, T::ExpertDown].into_iter().filter(own);
        let mut stored = tensors.map(|tensor| names.expert_weight(layer, tensor, expert)).peekable();
        // Slices lack some experts: whoever loads one of these says so.
        if stored.peek().is_some_and(|first| checkpoint.tensor(first).is_none()) {
            return Ok(largest);
        }
        Ok(largest.max(bytes_of(checkpoint, stored)?.bytes()))
    })
}

impl State {
    fn unit(&mut self, (block, unit): At) -> Option<(&mut Unit, u64)> {
        let block = self.blocks.get_mut(block)?.as_mut()?;
        Some((block.units.get_mut(unit)?, block.passes))
    }

    /// Brings a unit into memory, and asks the system for it where it is not there. When what is in use leaves no room
    /// for it, `false` and nothing else happens.
    fn bring(&mut self, most: u64, at: At) -> bool {
        let Some((&mut Unit { bytes, in_memory, .. }, _)) = self.unit(at) else { return false };
        if in_memory {
            return true;
        }
        if self.in_use.saturating_add(bytes) > most {
            return false;
        }
        self.make_room(most.saturating_sub(bytes), at.0);
        if let Some((unit, _)) = self.unit(at) {
            unit.in_memory = true;
        }
        self.in_memory += bytes;
        self.peak = self.peak.max(self.in_memory);
        if let Some(regions) = self.blocks[at.0].as_ref().and_then(|block| block.regions.get(at.1)) {
            regions.iter().for_each(Region::fetch);
        }
        true
    }

    /// Lets units that are not in use go until no more than `most` bytes are in memory, for a unit of block `current`.
    fn make_room(&mut self, most: u64, current: usize) {
        while self.in_memory > most {
            let Some(at) = self.needed_last(current) else { return };
            let Some((unit, _)) = self.unit(at) else { return };
            unit.in_memory = false;
            let bytes = unit.bytes;
            self.in_memory -= bytes;
            self.let_go += bytes;
            if let Some(regions) = self.blocks[at.0].as_ref().and_then(|block| block.regions.get(at.1)) {
                regions.iter().for_each(|region| region.let_go(self.short));
            }
        }
    }

    /// The unit that can go and will be needed last, when block `current` is computed.
    fn needed_last(&self, current: usize) -> Option<At> {
        let layer = self.blocks.get(current)?.as_ref()?.layer;
        let takes_most = self.takes_most(current);
        let mut last = None;
        for (i, block) in self.blocks.iter().enumerate() {
            let Some(block) = block else { continue };
            let distance = 1 + block.distance(layer);
            let says_nothing = takes_most && i != current;
            for (j, unit) in block.units.iter().enumerate() {
                if !unit.in_memory || unit.in_use {
                    continue;
                }
                let passed_over = if says_nothing { 0 } else { block.passes - unit.taken };
                let key = if unit.is_due { (0, 0) } else { (passed_over, distance) };
                if last.is_none_or(|(most, _)| key > most) {
                    last = Some((key, (i, j)));
                }
            }
        }
        last.map(|(_, at)| at)
    }

    /// Whether the step that computes a block takes most experts of its layer, or took them of the mixture before.
    fn takes_most(&self, current: usize) -> bool {
        let Some(Some(own)) = self.blocks.get(current) else { return false };
        if own.units.len() > 1 {
            return own.takes_most;
        }
        let others = self.blocks.iter().flatten();
        let mixtures = others.filter(|other| other.model == own.model && other.units.len() > 1);
        mixtures.max_by_key(|other| other.distance(own.layer)).is_some_and(|last| last.takes_most)
    }

    /// Asks for the dense block behind that of `block`, unless the next layer has experts or there is no room.
    fn ask_ahead(&mut self, most: u64, block: usize) {
        let Some(&Block { model, layer, .. }) = self.blocks[block].as_ref() else { return };
        let others = self.blocks.iter().enumerate().filter(|(i, _)| *i != block);
        let others = others.filter_map(|(i, other)| Some((i, other.as_ref()?)));
        let others = others.filter(|(_, other)| other.model == model);
        if let Some((next, Block { units, .. })) = others.min_by_key(|(_, other)| other.distance(layer))
            && units.len() == 1
        {
            self.bring(most, (next, 0));
        }
    }
}

impl Block {
    /// Layers from the one behind `layer` to this block's.
    fn distance(&self, layer: usize) -> usize {
        (self.layer + self.n_layers).saturating_sub(layer + 1) % self.n_layers
    }
}

/// The units of one layer. They leave the budget on drop.
#[derive(Debug)]
pub(super) struct Units {
    budget: Arc<Budget>,
    at: usize,
}

impl Units {
    /// Takes the only unit of a dense layer, and asks for the next layer's.
    pub(super) fn take_block(&self) -> TakenBlock<'_> {
        let mut state = self.budget.state();
        state.begin(self.at, &mut std::iter::once(0));
        state.take(self.budget.most, (self.at, 0));
        state.ask_ahead(self.budget.most, self.at);
        TakenBlock(self)
    }
}

/// A dense layer's block in use.
pub(super) struct TakenBlock<'a>(&'a Units);

impl Drop for TakenBlock<'_> {
    fn drop(&mut self) {
        self.0.release(&mut std::iter::once(0));
    }
}

impl State {
    fn begin(&mut self, block: usize, units: &mut dyn Iterator<Item = u32>) {
        let Some(Some(block)) = self.blocks.get_mut(block) else { return };
        block.passes += 1;
        block.units.iter_mut().for_each(|unit| unit.is_due = false);
        for at in units {
            if let Some(unit) = block.units.get_mut(at as usize) {
                unit.is_due = true;
            }
        }
        let due = block.units.iter().filter(|unit| unit.is_due).count();
        block.takes_most = 2 * due > block.units.len();
    }

    /// Brings a unit into memory for its use.
    fn take(&mut self, most: u64, at: At) -> bool {
        if !self.bring(most, at) {
            return false;
        }
        let Some((unit, passes)) = self.unit(at) else { return false };
        (unit.is_due, unit.in_use, unit.taken) = (false, true, passes);
        let bytes = unit.bytes;
        self.in_use += bytes;
        true
    }
}

impl ExpertMemory for Units {
    fn begin(&self, experts: &mut dyn Iterator<Item = u32>) {
        self.budget.state().begin(self.at, experts);
    }

    fn take(&self, experts: &mut dyn Iterator<Item = u32>) -> usize {
        let mut state = self.budget.state();
        let mut n = 0;
        for expert in experts {
            if !state.take(self.budget.most, (self.at, expert as usize)) {
                break;
            }
            n += 1;
        }
        n
    }

    fn release(&self, experts: &mut dyn Iterator<Item = u32>) {
        let mut state = self.budget.state();
        for expert in experts {
            let Some((unit, _)) = state.unit((self.at, expert as usize)) else { continue };
            if std::mem::take(&mut unit.in_use) {
                let bytes = unit.bytes;
                state.in_use -= bytes;
            }
        }
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        if let Some(block) = state.blocks[self.at].take() {
            let bytes: u64 = block.units.iter().filter(|unit| unit.in_memory).map(|unit| unit.bytes).sum();
            state.in_memory -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::weights::{DType, MappedFile, TensorInfo, open_checkpoint};

    /// Layers of units of these bytes, in a file of their own.
    fn layers(budget: &Arc<Budget>, layers: &[&[u64]]) -> Vec<Units> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[1; 4000]).unwrap();
        let file = MappedFile::open(file.path()).unwrap();
        let mut offset = 0;
        let mut region = |len: u64| {
            let shape = vec![len as usize / 4];
            let name = offset.to_string();
            let info = TensorInfo { name, dtype: DType::F32, shape, file: 0, offset, len };
            offset += len;
            Region::map(&file, &info).unwrap()
        };
        let regions = |units: &&[u64]| units.iter().map(|bytes| vec![region(*bytes)]).collect::<Vec<_>>();
        let regions: Vec<_> = layers.iter().map(regions).collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/llama");
        let mut arch = ArchSpec::from_checkpoint(&*open_checkpoint(folder).unwrap()).unwrap();
        arch.layers.resize(layers.len(), arch.layers[0].clone());
        let block = |(layer, regions)| budget.block(&arch, layer, regions);
        regions.into_iter().enumerate().map(block).collect()
    }

    fn numbers(budget: &Budget) -> [u64; 3] {
        let FfnMemory { in_memory, peak, let_go, .. } = budget.memory();
        [in_memory, peak, let_go].map(|size| size.bytes())
    }

    fn in_memory(budget: &Budget) -> Vec<At> {
        let state = budget.state();
        let blocks = state.blocks.iter().enumerate();
        let units = blocks.flat_map(|(i, block)| {
            block
                .iter()
                .flat_map(move |block| block.units.iter().enumerate().map(move |(j, unit)| ((i, j), unit)))
        });
        units.filter(|(_, unit)| unit.in_memory).map(|(at, _)| at).collect()
    }

    /// Of n blocks in a circle of which m fit, Belady's rule keeps each m - 1 times in n - 1 rounds, and m - 2 times
    /// with one place taken for reading ahead. If the oldest went first, none would ever be kept.
    #[test]
    fn blocks_that_fit_stay() {
        for (n, m) in [(8, 3), (8, 7), (16, 2), (5, 4), (12, 6)] {
            let budget = Arc::new(Budget::new(ByteSize(m * 8)));
            let units = layers(&budget, &vec![&[8][..]; n as usize]);
            let round = || units.iter().for_each(|units| drop(units.take_block()));
            (0..3).for_each(|_| round());
            let before = numbers(&budget)[2];
            (0..n - 1).for_each(|_| round());
            let kept = (n - 1) * n - (numbers(&budget)[2] - before) / 8;
            assert!((n * (m - 2)..=n * (m - 1)).contains(&kept), "{m} of {n}: {kept}");
            assert_eq!(numbers(&budget)[..2], [m * 8; 2]);
        }
    }

    #[test]
    fn the_next_block_is_asked_for_where_it_fits() {
        let budget = Arc::new(Budget::new(ByteSize(24)));
        let units = layers(&budget, &[&[8], &[16], &[12], &[8]]);
        let first = units[0].take_block();
        assert_eq!(in_memory(&budget), [(0, 0), (1, 0)]);
        drop(first);
        let second = units[1].take_block();
        // 12 bytes more do not fit beside what is in use, and nobody goes in vain.
        assert_eq!(in_memory(&budget), [(0, 0), (1, 0)]);
        drop(second);
        let third = units[2].take_block();
        assert_eq!(in_memory(&budget), [(2, 0), (3, 0)]);
        drop(third);
        drop(units[3].take_block());
        // Behind the last layer comes the first.
        assert_eq!(in_memory(&budget), [(0, 0), (3, 0)]);
        assert_eq!(numbers(&budget)[1], 24);
    }

    fn take(units: &Units, experts: &[u32]) -> Vec<usize> {
        units.begin(&mut experts.iter().copied());
        let (mut rest, mut parts) = (experts, Vec::new());
        while !rest.is_empty() {
            let n = units.take(&mut rest.iter().copied());
            parts.push(n);
            units.release(&mut rest[..n].iter().copied());
            rest = &rest[n..];
        }
        parts
    }

    #[test]
    fn the_least_recently_used_experts_go() {
        let budget = Arc::new(Budget::new(ByteSize(40)));
        let units = layers(&budget, &[&[8; 6], &[8; 6]]);
        assert_eq!(take(&units[0], &[0, 1, 2]), [3]);
        assert_eq!(take(&units[1], &[0, 1]), [2]);
        assert_eq!(in_memory(&budget), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]);
        // Expert 0 was passed over once, 1 of the other layer never yet.
        assert_eq!(take(&units[0], &[1, 2, 3]), [3]);
        assert_eq!(in_memory(&budget), [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]);
        assert_eq!(take(&units[1], &[1, 2]), [2]);
        assert_eq!(in_memory(&budget), [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]);
        // More than fit: in parts, each within the budget.
        assert_eq!(take(&units[0], &[0, 1, 2, 3, 4, 5]), [5, 1]);
        assert_eq!(numbers(&budget)[..2], [40, 40]);
        // What this step will take stays while there is something else.
        let small = Arc::new(Budget::new(ByteSize(24)));
        let units = layers(&small, &[&[8; 4], &[8; 4]]);
        take(&units[0], &[1, 2]);
        take(&units[1], &[0]);
        assert_eq!(take(&units[0], &[0, 1, 2]), [3]);
        assert_eq!(numbers(&small)[2], 8, "1 and 2 were kept for this step");
    }

    /// A prompt takes all experts of all layers, whatever tokens before it took: as many as fit stay for it, but for those
    /// whose places the others pass through.
    #[test]
    fn prompts_find_what_tokens_passed_over() {
        let (layers_of, fit) = (6, 12);
        let budget = Arc::new(Budget::new(ByteSize(8 * fit)));
        let units = layers(&budget, &vec![&[8; 4][..]; layers_of]);
        let all = [0, 1, 2, 3];
        units.iter().for_each(|units| drop(take(units, &all)));
        for token in 0..9 {
            units.iter().for_each(|units| drop(take(units, &[token % 4])));
        }
        let before = numbers(&budget)[2];
        units.iter().for_each(|units| drop(take(units, &all)));
        let read = (numbers(&budget)[2] - before) / 8;
        let missing = 4 * layers_of as u64 - fit;
        assert!((missing..missing + 4).contains(&read), "{read} of {missing}");
    }

    /// What has left takes nothing, and its place is taken again.
    #[test]
    fn blocks_that_are_gone_take_nothing() {
        let budget = Arc::new(Budget::new(ByteSize(16)));
        let units = layers(&budget, &[&[8], &[8], &[8]]);
        units.iter().for_each(|units| drop(units.take_block()));
        assert_eq!(numbers(&budget)[..2], [16, 16]);
        let replaced = layers(&budget, &[&[4], &[4]]);
        drop(units);
        assert_eq!(numbers(&budget)[0], 0);
        drop(replaced[0].take_block());
        assert_eq!(numbers(&budget)[0], 8);
    }
}
