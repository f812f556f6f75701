//! What does an open GPU have? Its device, kernels, and memory for rows.

use std::sync::Arc;

use super::adapters::Adapter;
use super::device::{Block, Device, Limits};
use super::kernels::Kernels;
use super::rows::stride;
use super::stream::storage;
use crate::error::{Error, ErrorKind, Result};

/// A GPU.
pub(crate) struct Gpu {
    pub(super) device: Arc<Device>,
    pub(super) kernels: Arc<Kernels>,
    /// Bound in place of operands that an operation neither reads nor writes.
    pub(super) unread: Block,
    pub(super) unwritten: Block,
}

impl Gpu {
    /// Opens an adapter.
    pub(crate) fn open(adapter: &Adapter, limits: Limits) -> Result<Self> {
        let device = Arc::new(Device::open(adapter, limits)?);
        let kernels = Arc::new(Kernels::new(&device));
        let unused = || device.block("unused operands", 16, storage());
        Ok(Self { unread: unused()?, unwritten: unused()?, device, kernels })
    }

    /// The GPU that `SKULK_GPU` names, as in `wgpu`; else the software adapter, which every machine can have: on Debian
    /// mesa-vulkan-drivers and libvulkan1.
    #[cfg(test)]
    pub(crate) fn tested(limits: Limits) -> Self {
        let adapter = match std::env::var("SKULK_GPU") {
            Ok(name) => Adapter::find(&name).unwrap(),
            Err(_) => Adapter::all()
                .into_iter()
                .find(Adapter::is_software)
                .expect("no software adapter: install Mesa's Vulkan drivers"),
        };
        Self::open(&adapter, limits).unwrap()
    }

    /// Whether what is tested is no GPU.
    #[cfg(test)]
    pub(crate) fn is_emulated() -> bool {
        std::env::var_os("SKULK_GPU").is_none()
    }

    /// Loses the device, as a driver's fault does.
    #[cfg(test)]
    pub(crate) fn destroy(&self) {
        self.device.device.destroy();
    }

    /// Bytes that buffers take on the device, as its backend counts them.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> u64 {
        self.device.device.poll(wgpu::PollType::Poll).unwrap();
        self.device.device.generate_allocator_report().unwrap().total_allocated_bytes
    }

    /// Dispatches recorded so far.
    #[cfg(test)]
    pub(crate) fn dispatches(&self) -> u64 {
        self.device.dispatches()
    }

    /// Bytes of weights that products of few rows read so far.
    #[cfg(test)]
    pub(crate) fn weights(&self) -> u64 {
        self.device.weights()
    }

    /// Kernels of products that were built so far.
    #[cfg(test)]
    pub(crate) fn product_kernels(&self) -> usize {
        self.kernels.products()
    }

    /// How often work was sent to the device so far.
    #[cfg(test)]
    pub(crate) fn submissions(&self) -> u64 {
        self.device.submissions()
    }

    pub(super) fn floats(&self, what: &str, rows: usize, width: usize) -> Result<Block> {
        let len = rows.checked_mul(stride(width)).and_then(|len| len.checked_mul(4)).ok_or_else(|| {
            Error::new(ErrorKind::OutOfMemory, format!("cannot reserve {rows} rows of {width} activations"))
                .with_hint("use a smaller prefill chunk")
        })?;
        self.device.block(what, len as u64, storage())
    }
}
