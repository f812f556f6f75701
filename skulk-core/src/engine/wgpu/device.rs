//! How is a device opened, and what becomes of its failures? Memory, waiting, faults.
//!
//! wgpu reports failures to callbacks and ends the process where there are none. Here they are: a
//! [`Fault`] keeps the first failure, and whoever next waits for the device gets it as an error.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::adapters::Adapter;
use super::kernels::OPERANDS;
use crate::bytes::ByteSize;
use crate::error::{Error, ErrorKind, Result};

/// How long a submission may take: far longer than any does, far shorter than forever.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a device is opened with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// Memory that may be reserved on it; without, what the driver gives.
    pub(crate) memory: Option<ByteSize>,
    /// The largest buffer, if smaller than the device's own limit; only tests set it.
    pub(crate) buffer: Option<u64>,
    /// The largest chunk of a matrix, likewise.
    pub(crate) chunk: Option<u64>,
    /// Buffers that a kernel binds, at most, likewise.
    pub(crate) operands: Option<u32>,
    /// Whether to add up within subgroups; only tests set it.
    pub(crate) subgroups: Option<bool>,
}

/// An open device.
pub(super) struct Device {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) limits: wgpu::Limits,
    /// The largest buffer that can be made and bound.
    pub(super) largest: u64,
    /// The largest chunk of a matrix.
    pub(super) chunk: u64,
    pub(super) subgroups: bool,
    memory: Memory,
    /// How often work was sent, and how many dispatches were recorded.
    #[cfg(test)]
    submissions: AtomicU64,
    #[cfg(test)]
    dispatches: AtomicU64,
    /// Bytes of weights that products of few rows read.
    #[cfg(test)]
    weights: AtomicU64,
    fault: Arc<Fault>,
}

/// Bytes reserved on a device.
struct Memory {
    reserved: Arc<AtomicU64>,
    limit: u64,
}

/// The first failure.
#[derive(Default)]
struct Fault(Mutex<Option<(ErrorKind, String)>>);

impl Fault {
    fn note(&self, kind: ErrorKind, message: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((kind, message));
    }
}

/// A buffer on the device; its bytes are free again when it is dropped, though bind groups may still name it.
/// Nothing that is recorded may use it then and be sent.
pub(crate) struct Block {
    pub(super) buffer: wgpu::Buffer,
    /// Which block this is, among all.
    pub(super) id: u64,
    reserved: Arc<AtomicU64>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.buffer.destroy();
        self.reserved.fetch_sub(self.buffer.size(), Ordering::Relaxed);
    }
}

impl Device {
    /// Opens an adapter with everything it offers that is of use.
    pub(super) fn open(adapter: &Adapter, limits: Limits) -> Result<Self> {
        let adapter = &adapter.adapter;
        let unavailable = |message: String| {
            Error::new(ErrorKind::EngineUnavailable, message).with("device", adapter.get_info().name)
        };
        let mut offered = adapter.limits();
        if let Some(buffer) = limits.buffer {
            offered.max_storage_buffer_binding_size = offered.max_storage_buffer_binding_size.min(buffer);
        }
        if let Some(operands) = limits.operands {
            offered.max_storage_buffers_per_shader_stage =
                offered.max_storage_buffers_per_shader_stage.min(operands);
        }
        // Narrow subgroups save too few steps.
        let wide = adapter.features().contains(wgpu::Features::SUBGROUP)
            && adapter.get_info().subgroup_min_size >= 16;
        let subgroups = limits.subgroups.unwrap_or(wide);
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("skulk"),
            required_features: if subgroups { wgpu::Features::SUBGROUP } else { wgpu::Features::empty() },
            required_limits: offered.clone(),
            // Models are few large buffers: what an allocator reserves ahead is never used.
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|e| unavailable("the device cannot be opened".to_owned()).with_source(e))?;
        let fault = Arc::new(Fault::default());
        let lost = Arc::clone(&fault);
        device.set_device_lost_callback(move |_, message| {
            lost.note(ErrorKind::EngineFailed, format!("the device was lost: {message}"));
        });
        let failed = Arc::clone(&fault);
        device.on_uncaptured_error(Arc::new(move |error| {
            let (kind, message) = told(&error);
            failed.note(kind, message);
        }));
        let largest = offered.max_storage_buffer_binding_size.min(offered.max_buffer_size);
        // Offsets of bytes are 32 bits wide in kernels.
        let largest = largest.min(1 << 31) & !15;
        Ok(Self {
            chunk: limits.chunk.map_or(largest, |chunk| chunk.min(largest)),
            largest,
            device,
            queue,
            limits: offered,
            subgroups,
            memory: Memory {
                reserved: Arc::default(),
                limit: limits.memory.map_or(u64::MAX, |ByteSize(bytes)| bytes),
            },
            #[cfg(test)]
            submissions: AtomicU64::new(0),
            #[cfg(test)]
            dispatches: AtomicU64::new(0),
            #[cfg(test)]
            weights: AtomicU64::new(0),
            fault,
        })
    }

    /// A buffer of `bytes` bytes, zeroed.
    pub(super) fn block(&self, what: &str, bytes: u64, usage: wgpu::BufferUsages) -> Result<Block> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let exhausted = || {
            Error::new(
                ErrorKind::OutOfMemory,
                format!("cannot reserve {} on the device for {what}", ByteSize(bytes)),
            )
            .with_hint("place fewer layers on this device, or use a smaller context or prefill chunk")
        };
        if bytes > self.largest {
            return Err(Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "{what} would take {}, but this device binds at most {}",
                    ByteSize(bytes),
                    ByteSize(self.largest)
                ),
            )
            .with_hint("use a smaller context or prefill chunk, or another device"));
        }
        let size = bytes.max(16).next_multiple_of(4);
        let reserved = &self.memory.reserved;
        let within = |now: u64| now.checked_add(size).filter(|&then| then <= self.memory.limit);
        if reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_err() {
            return Err(exhausted().with("limit", ByteSize(self.memory.limit)));
        }
        let descriptor = wgpu::BufferDescriptor { label: Some(what), size, usage, mapped_at_creation: false };
        let (buffer, error) = self.watched(|| self.device.create_buffer(&descriptor));
        let block =
            Block { buffer, id: NEXT.fetch_add(1, Ordering::Relaxed), reserved: Arc::clone(reserved) };
        match error {
            Some(error) => Err(exhausted().with_source(error)),
            None => self.check().map(|()| block),
        }
    }

    /// Copies buffers to the beginning of larger ones, and waits for it: the old ones' memory is free before anybody asks
    /// for more.
    pub(super) fn copy(&self, pairs: &[(&Block, &Block)]) -> Result<()> {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        for (from, to) in pairs {
            encoder.copy_buffer_to_buffer(&from.buffer, 0, &to.buffer, 0, from.buffer.size());
        }
        self.wait(self.submit(Some(encoder.finish())))
    }

    /// Buffers that a kernel may bind.
    pub(super) fn binds(&self) -> usize {
        OPERANDS.min(self.limits.max_storage_buffers_per_shader_stage as usize)
    }

    /// Bytes reserved at present.
    pub(super) fn reserved(&self) -> u64 {
        self.memory.reserved.load(Ordering::Relaxed)
    }

    /// The first failure since the device was opened, if there was one: it stays unusable.
    pub(super) fn check(&self) -> Result<()> {
        match &*self.fault.0.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((kind, message)) => Err(Error::new(*kind, message.clone())
                .with_hint("load the model again, with a new engine or on another device")),
        }
    }

    /// Sends what was recorded.
    pub(super) fn submit(&self, work: Option<wgpu::CommandBuffer>) -> wgpu::SubmissionIndex {
        #[cfg(test)]
        self.submissions.fetch_add(1, Ordering::Relaxed);
        self.queue.submit(work)
    }

    /// How often work was sent so far.
    #[cfg(test)]
    pub(super) fn submissions(&self) -> u64 {
        self.submissions.load(Ordering::Relaxed)
    }

    /// Counts a dispatch.
    #[cfg(test)]
    pub(super) fn count_dispatch(&self) {
        self.dispatches.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes what a dispatch reads of weights; tests count it.
    pub(super) fn count_weights(&self, _bytes: u64) {
        #[cfg(test)]
        self.weights.fetch_add(_bytes, Ordering::Relaxed);
    }

    /// Bytes of weights that were read so far by products of few rows.
    #[cfg(test)]
    pub(super) fn weights(&self) -> u64 {
        self.weights.load(Ordering::Relaxed)
    }

    /// Dispatches recorded so far.
    #[cfg(test)]
    pub(super) fn dispatches(&self) -> u64 {
        self.dispatches.load(Ordering::Relaxed)
    }

    /// Waits until a submission has been computed.
    pub(super) fn wait(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: Some(PATIENCE) };
        if let Err(error) = self.device.poll(wait) {
            self.fault.note(ErrorKind::EngineFailed, format!("the device does not answer: {error}"));
        }
        self.check()
    }

    /// Runs `make`, which makes objects of wgpu; returns what it made, and what it did wrong.
    fn watched<T>(&self, make: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
        use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
        let scopes = [Internal, OutOfMemory, Validation].map(|filter| self.device.push_error_scope(filter));
        let made = make();
        // They end in the opposite order.
        let errors = scopes.into_iter().rev().map(|scope| pollster::block_on(scope.pop()));
        (made, errors.collect::<Vec<_>>().into_iter().flatten().next())
    }

    /// Runs `make`, which makes objects of wgpu, and turns what it did wrong into an error.
    pub(super) fn scoped<T>(&self, what: &str, make: impl FnOnce() -> T) -> Result<T> {
        let (made, error) = self.watched(make);
        match error {
            Some(error) => Err(Error::new(ErrorKind::EngineFailed, format!("the device refuses {what}"))
                .with_hint(
                    "update its driver, or use another device; if that does not help, please report it",
                )
                .with_source(error)),
            None => Ok(made),
        }
    }
}

fn told(error: &wgpu::Error) -> (ErrorKind, String) {
    match error {
        wgpu::Error::OutOfMemory { .. } => {
            (ErrorKind::OutOfMemory, "the device's memory is exhausted".to_owned())
        }
        other => (ErrorKind::EngineFailed, format!("the device failed to compute: {other}")),
    }
}
