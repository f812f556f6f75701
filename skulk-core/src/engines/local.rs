//! What is this machine? As a node for plans.

use super::{devices, speed};
use crate::engine::DeviceInfo;
use crate::ids::EngineId;
use crate::plan::backend::tag_of;
use crate::plan::{Accelerator, Cluster, Node, NodeId, NodeMemory, Vendor};

impl Node {
    /// This machine, named [`NodeId::LOCAL`]: memory, cores, and GPUs with the backends by which this build
    /// reaches them; of a GPU that several reach, the best. Devices that are software are left out.
    ///
    /// Available memory is what programs can get without swapping, a container's limit considered; on macOS
    /// all that is not wired, anonymous or compressed, as the GPU can have it. A GPU's own memory is known of AMD's on
    /// Linux and of NVIDIA's on Linux and Windows; plans leave out GPUs of unknown memory.
    ///
    /// How fast each device is, [`Engine::measure`](crate::Engine::measure) finds once for the process, which takes one or
    /// two tenths of a second each, and a gibibyte of free memory; of what is not measured, as in builds without optimisation,
    /// plans look the speed up by the device's name.
    pub fn local() -> Self {
        let gpus =
            best(devices().into_iter().filter(|it| it.vendor != Vendor::Cpu && !it.software).collect());
        let tag = |gpu: &DeviceInfo| tag_of(&gpu.engine);
        let mut node = Node::new(NodeId::LOCAL)
            .backends([tag_of(&EngineId::new("cpu"))].into_iter().chain(gpus.iter().map(tag)));
        node.memory = memory();
        node.cores = std::thread::available_parallelism().ok().map(usize::from);
        let free = node.memory.map_or(0, |memory| memory.ram_available);
        let speed = speed::of(&EngineId::new("cpu"), free);
        node.bytes_per_second = speed.map(|it| it.bytes_per_second);
        node.operations_per_second = speed.map(|it| it.operations_per_second);
        node.layer_seconds = speed.map(|it| it.layer_seconds);
        node.accelerators = gpus.iter().map(|gpu| accelerator(gpu, free)).collect();
        node
    }
}

impl Cluster {
    /// This machine alone: what [`Model`](crate::Model) can run by itself.
    ///
    /// ```
    /// let cluster = skulk::Cluster::local();
    /// assert!(cluster.nodes[0].memory.unwrap().ram_total > 0);
    /// ```
    pub fn local() -> Self {
        Self::new(vec![Node::local()], Vec::new())
    }
}

/// A GPU beside so much free main memory.
fn accelerator(gpu: &DeviceInfo, free: u64) -> Accelerator {
    let own = gpu.memory.filter(|_| !gpu.shares_memory).map(|it| it.bytes());
    let used = gpu.memory_used.map(|it| it.bytes());
    let speed =
        speed::of(&gpu.engine, own.map_or(free, |own| own.saturating_sub(used.unwrap_or(0)).min(free)));
    Accelerator {
        vendor: gpu.vendor,
        name: gpu.name.clone(),
        vram_total_bytes: own,
        vram_used_bytes: used,
        shares_memory: gpu.shares_memory,
        backend: Some(tag_of(&gpu.engine)),
        bytes_per_second: speed.map(|it| it.bytes_per_second),
        operations_per_second: speed.map(|it| it.operations_per_second),
        layer_seconds: speed.map(|it| it.layer_seconds),
        round_trip_seconds: speed.map(|it| it.round_trip_seconds),
        ..Accelerator::default()
    }
}

/// Every device once: a name that several kinds of backends reach counts for the first of them.
fn best(devices: Vec<DeviceInfo>) -> Vec<DeviceInfo> {
    let kind = |device: &DeviceInfo| device.engine.as_str().split(':').next().unwrap_or_default().to_owned();
    let mut kept: Vec<DeviceInfo> = Vec::new();
    for device in devices {
        let first = kept.iter().find(|it| it.name == device.name);
        if first.is_none_or(|first| kind(first) == kind(&device)) {
            kept.push(device);
        }
    }
    kept
}

fn memory() -> Option<NodeMemory> {
    let (available, total) = crate::weights::available_memory()?;
    Some(NodeMemory::new(available.bytes(), total.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory_and_a_processor() {
        let node = Node::local();
        let memory = node.memory.unwrap();
        assert!(memory.ram_available > 0 && memory.ram_available <= memory.ram_total);
        assert!(node.cores.unwrap() > 0);
        assert!(node.backends.unwrap().contains("skulk-cpu"));
    }

    #[test]
    fn a_gpu_counts_once() {
        let device = |engine: &str, name: &str| DeviceInfo {
            engine: EngineId::new(engine),
            name: name.to_owned(),
            vendor: Vendor::Nvidia,
            driver: String::new(),
            software: false,
            memory: None,
            memory_used: None,
            shares_memory: false,
        };
        let all = [("wgpu-vulkan:0", "A"), ("wgpu-vulkan:1", "A"), ("wgpu-dx12:0", "A"), ("wgpu-gl:0", "B")];
        let kept = best(all.map(|(engine, name)| device(engine, name)).into());
        assert_eq!(
            kept.iter().map(|it| it.engine.as_str()).collect::<Vec<_>>(),
            ["wgpu-vulkan:0", "wgpu-vulkan:1", "wgpu-gl:0"]
        );
    }
}
