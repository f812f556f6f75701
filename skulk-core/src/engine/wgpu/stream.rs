//! How is work recorded and sent? A shard's stream of operations.
//!
//! Operations become dispatches of one compute pass. It is sent when somebody waits for a result, when
//! the step ends, and when it has become long. Parameters, and the small tables that operations take from
//! the host, are collected meanwhile and sent with it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::device::{Block, Device};
use super::kernels::{Kernels, Key, OPERANDS, Op, PARAMS};
use super::params::Params;
use super::stride;
use super::sums::Sum;
use crate::error::{Error, ErrorKind, Result};

/// Multiplications after which recorded work is sent, so that cancelling never waits for much, and no
/// system takes the device for hung.
const MAX_WORK: u64 = 25_000_000_000;

/// Dispatches in one submission, at most.
const MAX_DISPATCHES: u64 = 4096;

/// Bytes that operations may take from the host in one submission, to begin with.
const TABLE_BYTES: u64 = 16 << 10;

/// The same, at most, unless one operation takes more.
const MAX_TABLE_BYTES: u64 = 1 << 20;

/// See [`Backend::Stream`](crate::engine::backend::Backend::Stream).
pub(crate) struct Stream {
    device: Arc<Device>,
    kernels: Arc<Kernels>,
    recording: Option<Recording>,
    /// Parameters of the recorded dispatches.
    params: Vec<u8>,
    params_block: Block,
    params_group: wgpu::BindGroup,
    /// Bytes from one dispatch's parameters to the next one's.
    step: u64,
    tables: Vec<u8>,
    /// Those of them that several operations take.
    shared: Vec<Range<usize>>,
    /// What is being written.
    bytes: Vec<u8>,
    tables_block: Arc<Block>,
    groups: HashMap<(Key, [u64; OPERANDS]), wgpu::BindGroup>,
    /// What is read back comes through here.
    readback: Option<Block>,
    /// What waits for the operation behind it.
    pub(super) sum: Option<Sum>,
    /// Bound where a kernel writes no result.
    pub(super) unwritten: Block,
    /// Multiplications recorded.
    work: u64,
    before: Option<wgpu::SubmissionIndex>,
    /// Each as large as any operation needed so far.
    scratch: HashMap<Scratch, Arc<Block>>,
}

/// A buffer that operations need beside their operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scratch {
    /// Rotated queries, and results that are to be rotated.
    Queries,
    Results,
    /// Partial results of attention.
    Partials,
    /// Rows before their states, and what they read of them.
    StateRows,
    StateRead,
    /// Heads that have weights of their own, apart.
    Heads,
    /// Scores of positions, and those that are chosen.
    Scores,
    Positions,
    /// A page on its way.
    Page,
    Logits,
    /// The largest logits of slices, and of all: values and ids.
    SliceValues,
    SliceIds,
    TopValues,
    TopIds,
    /// What experts compute, by place, and places by expert.
    Gate,
    Up,
    Down,
    Order,
    Starts,
}

/// A block that is going to be bound.
#[derive(Clone)]
pub(super) struct Operand {
    buffer: wgpu::Buffer,
    pub(super) id: u64,
}

impl Operand {
    pub(super) fn bound(&self) -> Bound<'_> {
        (&self.buffer, self.id)
    }
}

impl From<&Block> for Operand {
    fn from(block: &Block) -> Self {
        Self { buffer: block.buffer.clone(), id: block.id }
    }
}

/// A buffer and the number of its block.
pub(super) type Bound<'a> = (&'a wgpu::Buffer, u64);

struct Recording {
    // Ends before the encoder does.
    pass: wgpu::ComputePass<'static>,
    encoder: wgpu::CommandEncoder,
}

impl Stream {
    pub(super) fn new(device: &Arc<Device>, kernels: &Arc<Kernels>) -> Result<Self> {
        let step = PARAMS.next_multiple_of(device.limits.min_uniform_buffer_offset_alignment.into());
        let most = MAX_DISPATCHES.min(device.largest / step);
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let params_block = device.block("parameters", most * step, usage)?;
        let params_group = device.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("parameters"),
            layout: &kernels.params,
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &params_block.buffer,
                    offset: 0,
                    size: wgpu::BufferSize::new(PARAMS),
                }),
            }],
        });
        Ok(Self {
            tables_block: Arc::new(device.block("tables", TABLE_BYTES, storage())?),
            device: Arc::clone(device),
            kernels: Arc::clone(kernels),
            recording: None,
            params: Vec::new(),
            params_block,
            params_group,
            step,
            tables: Vec::new(),
            shared: Vec::new(),
            bytes: Vec::new(),
            groups: HashMap::new(),
            readback: None,
            sum: None,
            unwritten: device.block("unused operands", 16, storage())?,
            work: 0,
            before: None,
            scratch: HashMap::new(),
        })
    }

    /// Records a dispatch. The same buffer must not be both read and written.
    pub(super) fn dispatch<P: Params>(
        &mut self,
        op: Op<P>,
        operands: &[&Block],
        params: P,
        groups: [usize; 3],
    ) -> Result<()> {
        self.settle()?;
        let Some(first) = operands.first() else {
            return Err(Error::new(ErrorKind::Internal, "an operation without operands"));
        };
        let mut bound: [Bound<'_>; OPERANDS] = [(&first.buffer, first.id); OPERANDS];
        bound.iter_mut().zip(operands).for_each(|(to, block)| *to = (&block.buffer, block.id));
        self.record(op, &bound[..operands.len()], params, groups)
    }

    /// The same of blocks by their buffers; a sum that waits is not recorded before it.
    pub(super) fn record<P: Params>(
        &mut self,
        op: Op<P>,
        operands: &[Bound<'_>],
        params: P,
        groups: [usize; 3],
    ) -> Result<()> {
        if groups.contains(&0) {
            return Ok(());
        }
        let limit = self.device.limits.max_compute_workgroups_per_dimension as usize;
        if groups.iter().any(|&n| n > limit) {
            return Err(Error::new(
                ErrorKind::EngineFailed,
                format!(
                    "{:?} needs {groups:?} workgroups, but the device runs {limit} in each direction",
                    op.key.name
                ),
            )
            .with_hint("use a smaller prefill chunk"));
        }
        self.flush_if_full()?;
        let kernel = self.kernels.get(&self.device, &op)?;
        if self.groups.len() > MAX_DISPATCHES as usize {
            // Many are of buffers that are no more.
            self.groups.clear();
        }
        let mut key = [0; OPERANDS];
        key.iter_mut().zip(operands).for_each(|(key, (_, id))| *key = *id);
        let group = self.groups.entry((op.key, key)).or_insert_with(|| {
            let entries: Vec<_> = operands
                .iter()
                .enumerate()
                .map(|(i, (buffer, _))| wgpu::BindGroupEntry {
                    binding: i as u32,
                    resource: buffer.as_entire_binding(),
                })
                .collect();
            self.device.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &kernel.operands,
                entries: &entries,
            })
        });
        let offset = self.params.len() as u32;
        params.write(&mut self.params);
        self.params.resize(offset as usize + self.step as usize, 0);
        let device = &self.device.device;
        let Recording { pass, .. } = self.recording.get_or_insert_with(|| {
            let mut encoder = device.create_command_encoder(&Default::default());
            let pass = encoder.begin_compute_pass(&Default::default()).forget_lifetime();
            Recording { pass, encoder }
        });
        pass.set_pipeline(&kernel.pipeline);
        pass.set_bind_group(0, &*group, &[]);
        pass.set_bind_group(1, &self.params_group, &[offset]);
        let [x, y, z] = groups.map(|n| n as u32);
        pass.dispatch_workgroups(x, y, z);
        #[cfg(test)]
        self.device.count_dispatch();
        Ok(())
    }

    /// Notes how many multiplications the last dispatches have, and sends them when there are many.
    pub(super) fn weigh(&mut self, multiplications: usize) -> Result<()> {
        self.work = self.work.saturating_add(multiplications as u64);
        if self.work > MAX_WORK { self.send() } else { Ok(()) }
    }

    /// Sends what is recorded when there is no room for another dispatch's parameters.
    fn flush_if_full(&mut self) -> Result<()> {
        let needed = self.params.len() as u64 + self.step;
        if needed > self.params_block.buffer.size() { self.send() } else { Ok(()) }
    }

    /// Takes words from the host; returns where the next dispatch finds them: a buffer, and the first's
    /// index.
    pub(super) fn table(&mut self, words: impl ExactSizeIterator<Item = u32>) -> Result<(Arc<Block>, u32)> {
        // The dispatch that takes them must not send them away.
        self.settle()?;
        self.flush_if_full()?;
        let (before, len) = (self.tables.len() as u64, 4 * words.len() as u64);
        if before + len > self.tables_block.buffer.size() {
            self.send()?;
            // Room for both, so that what comes again is not sent in two parts.
            let both = (before + len).next_power_of_two();
            let room = both.min(MAX_TABLE_BYTES).min(self.device.largest).max(len);
            if room > self.tables_block.buffer.size() {
                self.tables_block = Arc::new(self.device.block("tables", room, storage())?);
            }
        }
        let first = (self.tables.len() / 4) as u32;
        self.tables.extend(words.flat_map(u32::to_le_bytes));
        Ok((Arc::clone(&self.tables_block), first))
    }

    /// Like [`table`](Self::table); the same words, taken again, are sent once.
    pub(super) fn shared_table(&mut self, words: &[u32]) -> Result<(Arc<Block>, u32)> {
        self.settle()?;
        self.flush_if_full()?;
        let same = |range: &&Range<usize>| {
            let kept = self.tables[(*range).clone()].as_chunks().0;
            kept.iter().copied().map(u32::from_le_bytes).eq(words.iter().copied())
        };
        if let Some(range) = self.shared.iter().find(same) {
            return Ok((Arc::clone(&self.tables_block), (range.start / 4) as u32));
        }
        let (block, first) = self.table(words.iter().copied())?;
        let start = 4 * first as usize;
        self.shared.push(start..start + 4 * words.len());
        Ok((block, first))
    }

    /// A buffer of at least this many words.
    pub(super) fn scratch(&mut self, which: Scratch, words: usize) -> Result<Arc<Block>> {
        let bytes = (words as u64).saturating_mul(4);
        if let Some(block) = self.scratch.get(&which).filter(|block| block.buffer.size() >= bytes) {
            return Ok(Arc::clone(block));
        }
        if self.scratch.contains_key(&which) {
            // What is recorded may use the smaller one.
            self.send()?;
            self.scratch.remove(&which);
        }
        let block = Arc::new(self.device.block("intermediate results", bytes, storage())?);
        self.scratch.insert(which, Arc::clone(&block));
        Ok(block)
    }

    /// Writes rows of `width` floats to a buffer, after everything recorded so far; on the device each begins
    /// at a multiple of four.
    pub(super) fn write(
        &mut self,
        block: &Block,
        rows: impl Iterator<Item = f32>,
        width: usize,
    ) -> Result<()> {
        self.send()?;
        self.bytes.clear();
        let padding = 4 * (stride(width) - width);
        for (i, value) in rows.enumerate() {
            if i > 0 && i % width == 0 {
                self.bytes.resize(self.bytes.len() + padding, 0);
            }
            self.bytes.extend(value.to_le_bytes());
        }
        self.device.queue.write_buffer(&block.buffer, 0, &self.bytes);
        Ok(())
    }

    /// Reads the first words of buffers, after everything recorded so far, and hands each over with the
    /// buffer's and its own index.
    pub(super) fn read(
        &mut self,
        parts: &[(&Block, usize)],
        mut each: impl FnMut(usize, usize, u32),
    ) -> Result<()> {
        let lens: Vec<_> = parts.iter().map(|(_, words)| *words as u64 * 4).collect();
        let from: Vec<_> = parts.iter().zip(&lens).map(|((block, _), len)| (*block, 0, *len)).collect();
        self.read_bytes(&from, |all| {
            let mut words = all.as_chunks().0.iter();
            for (part, (_, n)) in parts.iter().enumerate() {
                for (i, bytes) in words.by_ref().take(*n).enumerate() {
                    each(part, i, u32::from_le_bytes(*bytes));
                }
            }
        })
    }

    /// Reads parts of buffers, each from some byte on, after everything recorded so far; all are handed over together.
    pub(super) fn read_bytes(
        &mut self,
        parts: &[(&Block, u64, u64)],
        take: impl FnOnce(&[u8]),
    ) -> Result<()> {
        let total: u64 = parts.iter().map(|(_, _, len)| len).sum();
        if total == 0 {
            return self.send();
        }
        let readback = match self.readback.take().filter(|readback| readback.buffer.size() >= total) {
            Some(readback) => readback,
            None => {
                let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ;
                self.device.block("results", total, usage)?
            }
        };
        self.settle()?;
        let mut encoder = self.end();
        let mut at = 0;
        for (block, from, len) in parts {
            encoder.copy_buffer_to_buffer(&block.buffer, *from, &readback.buffer, at, *len);
            at += len;
        }
        let submission = self.submit(encoder);
        readback.buffer.slice(..total).map_async(wgpu::MapMode::Read, |_| ());
        self.device.wait(submission)?;
        {
            let view = readback.buffer.slice(..total).get_mapped_range().map_err(|e| {
                let message = format!("the device's results cannot be read: {e}");
                Error::new(ErrorKind::EngineFailed, message)
                    .with_hint("load the model again, with a new engine")
            })?;
            take(&view);
        }
        readback.buffer.unmap();
        self.readback = Some(readback);
        self.device.check()
    }

    /// Sends what is recorded. No more than one submission is ever waiting behind another.
    pub(super) fn send(&mut self) -> Result<()> {
        self.settle()?;
        if self.recording.is_none() {
            return Ok(());
        }
        let encoder = self.end();
        if let Some(before) = self.before.take() {
            self.device.wait(before)?;
        }
        self.before = Some(self.submit(encoder));
        self.device.check()
    }

    /// Copies bytes within buffers, `(buffer, from, to, how many)`, after everything recorded so far. They are sent, so
    /// that a step that ends without being sent does not forget them.
    pub(super) fn copy_within(&mut self, copies: &[(&Block, u64, u64, u64)]) -> Result<()> {
        // No copy goes from a buffer to itself.
        let most = copies.iter().map(|copy| copy.3).max().unwrap_or(0);
        let between = self.scratch(Scratch::Page, most.div_ceil(4) as usize)?;
        self.send()?;
        let mut encoder = self.end();
        for (block, from, to, len) in copies {
            encoder.copy_buffer_to_buffer(&block.buffer, *from, &between.buffer, 0, *len);
            encoder.copy_buffer_to_buffer(&between.buffer, 0, &block.buffer, *to, *len);
        }
        self.before = Some(self.submit(encoder));
        self.device.check()
    }

    /// Writes bytes to a buffer from some byte on, after everything recorded so far.
    pub(super) fn write_bytes(&mut self, block: &Block, at: u64, bytes: &[u8]) -> Result<()> {
        self.send()?;
        self.device.queue.write_buffer(&block.buffer, at, bytes);
        self.device.check()
    }

    /// Forgets what is recorded and was not sent.
    pub(super) fn discard(&mut self) {
        (self.recording, self.sum) = (None, None);
        self.params.clear();
        self.tables.clear();
        self.shared.clear();
        self.work = 0;
    }

    /// An encoder behind everything recorded.
    fn end(&mut self) -> wgpu::CommandEncoder {
        match self.recording.take() {
            Some(Recording { pass, encoder }) => {
                drop(pass);
                encoder
            }
            None => self.device.device.create_command_encoder(&Default::default()),
        }
    }

    fn submit(&mut self, encoder: wgpu::CommandEncoder) -> wgpu::SubmissionIndex {
        let queue = &self.device.queue;
        if !self.params.is_empty() {
            queue.write_buffer(&self.params_block.buffer, 0, &self.params);
        }
        if !self.tables.is_empty() {
            queue.write_buffer(&self.tables_block.buffer, 0, &self.tables);
        }
        self.params.clear();
        self.tables.clear();
        self.shared.clear();
        self.work = 0;
        self.device.submit(Some(encoder.finish()))
    }
}

/// What buffers of activations, weights and pages are for.
pub(super) fn storage() -> wgpu::BufferUsages {
    wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC
}
