//! Which devices can take part? The accelerators and the main memory of eligible nodes.

use std::collections::BTreeSet;

use crate::card::ModelCard;
use crate::plan::backend::{engine_of, has_gpu_offload, resolve_backend};
use crate::plan::cluster::{Accelerator, Node, Role, Vendor};
use crate::plan::memory::{Usable, VRAM_SHARE, scale, usable_memory, usable_ram};
use crate::plan::request::Strictness;

/// Bytes a second that are assumed of main memory: two channels of DDR5, as read by programs.
const MAIN_MEMORY: f64 = 3.0e10;

/// Bytes a second that are assumed of an accelerator that does not say: about what each maker's common
/// devices have.
const fn assumed(vendor: Vendor) -> f64 {
    match vendor {
        Vendor::Nvidia => 4.0e11,
        Vendor::Amd => 3.0e11,
        Vendor::Apple | Vendor::Unknown => 1.0e11,
        Vendor::Intel => 6.0e10,
        Vendor::Cpu => MAIN_MEMORY,
    }
}

/// A device that can hold a part of the model.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::plan) struct Seat {
    /// Its node, by index.
    pub(super) node: usize,
    /// The backend that runs there; `None`: the node has not said.
    pub(in crate::plan) backend: Option<String>,
    /// What it is, in words.
    pub(super) device: String,
    /// Bytes it can hold.
    pub(in crate::plan) usable: u64,
    /// Bytes a second that it reads.
    pub(super) rate: f64,
    /// It may hold attention.
    pub(super) attention: bool,
    /// It is an accelerator beside its node's main memory.
    pub(super) beside: bool,
}

impl Seat {
    /// The engine that runs there; `None`: unknown, or other software's.
    pub(super) fn engine(&self) -> Option<&'static str> {
        self.backend.as_deref().and_then(engine_of)
    }
}

/// Whether a rate means anything.
fn measured(rate: Option<f64>) -> Option<f64> {
    rate.filter(|rate| rate.is_finite() && *rate > 0.0)
}

/// The devices of a node on which the card's model can run; none when no backend of the node is on the card,
/// or its memory is not known.
pub(in crate::plan) fn of_node(
    at: usize,
    node: &Node,
    card: &ModelCard,
    strictness: Strictness,
) -> Vec<Seat> {
    let placement = &card.placement;
    let resolve = |tags: &BTreeSet<String>| {
        let chosen = resolve_backend(&placement.compatible_backends, &placement.backend_preference, tags);
        chosen.map(str::to_owned)
    };
    let attention = node.role == Role::Full;
    let drives = |accelerator: &&Accelerator| {
        let tag = accelerator.backend.as_ref();
        tag.is_some_and(|tag| node.backends.as_ref().is_none_or(|tags| tags.contains(tag)))
    };
    let mut seats = Vec::new();
    let mut own = BTreeSet::new();
    let mut shares_main_memory = false;
    for accelerator in node.accelerators.iter().filter(drives) {
        let Some(tag) = accelerator.backend.clone() else { continue };
        own.insert(tag.clone());
        let Some(backend) = resolve(&BTreeSet::from([tag])) else { continue };
        let device =
            if accelerator.name.is_empty() { "accelerator".to_owned() } else { accelerator.name.clone() };
        let given = measured(accelerator.bytes_per_second);
        let usable = match (accelerator.vram_total_bytes, &node.memory) {
            (Some(total), _) => {
                let free = total.saturating_sub(accelerator.vram_used_bytes.unwrap_or(0));
                free.min(scale(total, VRAM_SHARE))
            }
            // It reads the same memory as the processor: no faster, but for Apple's, or where somebody measured.
            (None, Some(memory)) if accelerator.shares_memory => {
                let main = measured(node.bytes_per_second).unwrap_or(MAIN_MEMORY);
                if given.is_none_or(|rate| rate <= main) && accelerator.vendor != Vendor::Apple {
                    continue;
                }
                shares_main_memory = true;
                usable_ram(memory, strictness)
            }
            (None, _) => continue,
        };
        let rate = given.unwrap_or(assumed(accelerator.vendor));
        seats.push(Seat { node: at, backend: Some(backend), device, usable, rate, attention, beside: true });
    }
    // Where an accelerator uses main memory, the two cannot both have all of it.
    if shares_main_memory {
        return seats;
    }
    let backend = match &node.backends {
        None => None,
        Some(tags) => match resolve(&tags.difference(&own).cloned().collect()) {
            None => return seats,
            some => some,
        },
    };
    // A node that has its accelerators listed with their backends keeps main memory for this one.
    let usable = match (own.is_empty(), &node.memory) {
        (true, _) => usable_memory(node, strictness),
        (false, memory) => {
            memory.as_ref().map(|memory| Usable { bytes: usable_ram(memory, strictness), vram: false })
        }
    };
    let Some(Usable { bytes, vram }) = usable else { return seats };
    let gpu = node.accelerators.iter().find(|it| it.vram_total_bytes.is_some()).filter(|_| vram);
    let unified = backend
        .as_ref()
        .is_some_and(|tag| engine_of(tag) == Some("mlx") || has_gpu_offload(&BTreeSet::from([tag.clone()])));
    let assumed = match (gpu, unified) {
        (Some(gpu), _) => measured(gpu.bytes_per_second).unwrap_or(assumed(gpu.vendor)),
        (None, true) => assumed(Vendor::Apple),
        (None, false) => MAIN_MEMORY,
    };
    let rate = if vram { assumed } else { measured(node.bytes_per_second).unwrap_or(assumed) };
    let device = if vram { "graphics memory" } else { "main memory" }.to_owned();
    seats.push(Seat { node: at, backend, device, usable: bytes, rate, attention, beside: false });
    seats
}
