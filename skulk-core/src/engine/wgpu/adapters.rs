//! Which devices does wgpu reach? Adapters by backend, with the names that engines have on them.

use wgpu::{Backend, Backends, DeviceType, Instance, InstanceDescriptor, InstanceFlags};

use super::vram::{PciDevice, Vram, vram};
use crate::bytes::ByteSize;
use crate::engine::{DeviceInfo, EngineId};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Vendor;

/// Backends with the names of their engines, preferred ones first.
const BACKENDS: [(&str, Backend); 4] = [
    ("wgpu-vulkan", Backend::Vulkan),
    ("wgpu-metal", Backend::Metal),
    ("wgpu-dx12", Backend::Dx12),
    ("wgpu-gl", Backend::Gl),
];

/// A device that can be opened.
pub(crate) struct Adapter {
    pub(super) adapter: wgpu::Adapter,
    kind: &'static str,
    ordinal: usize,
}

impl Adapter {
    /// All of them: by backend, and as the system orders them.
    pub(crate) fn all() -> Vec<Self> {
        Self::of(|_| true)
    }

    /// Those of some backends; the others' drivers are not asked.
    fn of(wanted: impl Fn(&str) -> bool) -> Vec<Self> {
        let mut all = Vec::new();
        for (kind, backend) in BACKENDS.into_iter().filter(|(kind, _)| wanted(kind)) {
            let instance = Instance::new(InstanceDescriptor {
                backends: Backends::from(backend),
                flags: InstanceFlags::empty(),
                ..InstanceDescriptor::new_without_display_handle()
            });
            let adapters = pollster::block_on(instance.enumerate_adapters(Backends::from(backend)));
            let computing = adapters.into_iter().filter(|adapter| {
                let flags = adapter.get_downlevel_capabilities().flags;
                flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
            });
            all.extend(computing.enumerate().map(|(ordinal, adapter)| Self { adapter, kind, ordinal }));
        }
        all
    }

    /// The adapter that an engine's name means: `wgpu` the best of all, `wgpu-vulkan` and so on the best
    /// of a backend, `wgpu-vulkan:1` the very one. Software is only meant where it is named.
    pub(crate) fn find(name: &str) -> Result<Self> {
        let (kind, ordinal) = name.split_once(':').unzip();
        let kind = kind.unwrap_or(name);
        let all = Self::of(|other| kind == "wgpu" || kind == other);
        let listed: Vec<String> = all.iter().map(Self::described).collect();
        let matches = |adapter: &Self| match ordinal {
            Some(_) => adapter.name() == name,
            None => !adapter.is_software(),
        };
        let best = all.into_iter().filter(matches).min_by_key(Self::rank);
        best.ok_or_else(|| {
            let hint = match listed.is_empty() {
                true => "the system has no driver for it; engine `cpu` needs none".to_owned(),
                false => format!("there are: {}; name one of them", listed.join(", ")),
            };
            Error::new(ErrorKind::EngineUnavailable, format!("there is no GPU for engine `{name}`"))
                .with_hint(hint)
        })
    }

    /// Its engine's name.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.kind, self.ordinal)
    }

    /// The device's name.
    pub(crate) fn device_name(&self) -> String {
        self.adapter.get_info().name
    }

    /// Whether it computes on the CPU.
    pub(crate) fn is_software(&self) -> bool {
        self.adapter.get_info().device_type == DeviceType::Cpu
    }

    /// What users see of all of them.
    pub(crate) fn devices() -> Vec<DeviceInfo> {
        let all = Self::all();
        let on_pci = |adapter: &Self| {
            let info = adapter.adapter.get_info();
            PciDevice { vendor: info.vendor, address: info.device_pci_bus_id }
        };
        let memory = vram(all.iter().map(on_pci).collect());
        all.iter().zip(memory).map(|(adapter, memory)| adapter.info(memory)).collect()
    }

    fn info(&self, own: Option<Vram>) -> DeviceInfo {
        let info = self.adapter.get_info();
        let shares_memory = matches!(info.device_type, DeviceType::IntegratedGpu | DeviceType::Cpu);
        let own = own.filter(|_| !shares_memory);
        DeviceInfo {
            engine: EngineId::new(&self.name()),
            vendor: vendor(&info),
            name: info.name,
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
            software: info.device_type == DeviceType::Cpu,
            memory: match own {
                Some(own) => Some(ByteSize(own.total)),
                None => shares_memory.then(crate::weights::total_memory).flatten(),
            },
            memory_used: own.map(|own| ByteSize(own.used)),
            shares_memory,
        }
    }

    fn described(&self) -> String {
        format!(
            "{} ({}{})",
            self.name(),
            self.device_name(),
            if self.is_software() { ", software" } else { "" }
        )
    }

    /// Lower is better.
    fn rank(&self) -> (usize, usize) {
        let kind = match self.adapter.get_info().device_type {
            DeviceType::DiscreteGpu => 0,
            DeviceType::IntegratedGpu => 1,
            DeviceType::VirtualGpu => 2,
            DeviceType::Other => 3,
            DeviceType::Cpu => 4,
        };
        (kind, BACKENDS.iter().position(|(name, _)| *name == self.kind).unwrap_or(BACKENDS.len()))
    }
}

/// By PCI's number, or where there is none, as through Metal, by name.
fn vendor(info: &wgpu::AdapterInfo) -> Vendor {
    match info.vendor {
        0x1002 => Vendor::Amd,
        0x10de => Vendor::Nvidia,
        0x8086 => Vendor::Intel,
        0x106b => Vendor::Apple,
        _ if info.name.starts_with("Apple") => Vendor::Apple,
        _ => Vendor::Unknown,
    }
}
