//! Which devices can take part? The accelerators and the main memory of eligible nodes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::card::ModelCard;
use crate::kv_type::KvTypes;
use crate::plan::backend::{engine_of, has_gpu_offload, keeps, resolve_backend};
use crate::plan::cluster::{Node, Role, Vendor};
use crate::plan::memory::{Usable, VRAM_SHARE, scale, usable_memory, usable_ram};
use crate::plan::strictness::Strictness;

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
    /// Whose memory it is: an accelerator's, by its place in the node's list; `None`: main memory.
    pub(in crate::plan) memory: Option<usize>,
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

/// The devices of a node on which plans place the card's model: one for each memory, as what several reach is there
/// only once. None when no backend of the node is on the card, or its memory is not known.
pub(in crate::plan) fn of_node(
    at: usize,
    node: &Node,
    card: &ModelCard,
    kv: KvTypes,
    strictness: Strictness,
) -> Vec<Seat> {
    let is_apples =
        |seat: &Seat| seat.beside && node.accelerators.iter().any(|it| it.vendor == Vendor::Apple);
    // Apple's graphics come first; else what reads faster, the processor before what reads as fast, and what the
    // card prefers.
    let is_better = |a: &Seat, b: &Seat| {
        let by_rate = is_apples(a).cmp(&is_apples(b)).then(a.rate.total_cmp(&b.rate));
        match by_rate.then(b.beside.cmp(&a.beside)) {
            Ordering::Equal => {
                let both = [&a.backend, &b.backend].into_iter().flatten().cloned().collect();
                resolve(card, kv, &both) == a.backend
            }
            order => order.is_gt(),
        }
    };
    let mut best: Vec<Seat> = Vec::new();
    let mut places = BTreeMap::new();
    for seat in devices(at, node, card, kv, strictness) {
        let place = *places.entry(seat.memory).or_insert(best.len());
        match best.get_mut(place) {
            None => best.push(seat),
            Some(known) if is_better(&seat, known) => *known = seat,
            Some(_) => {}
        }
    }
    best
}

/// The backend among these that runs the card's model with such keys and values.
fn resolve(card: &ModelCard, kv: KvTypes, tags: &BTreeSet<String>) -> Option<String> {
    let placement = &card.placement;
    let tags = tags.iter().filter(|tag| keeps(tag, kv)).cloned().collect();
    resolve_backend(&placement.compatible_backends, &placement.backend_preference, &tags).map(str::to_owned)
}

/// All devices of a node on which the card's model can run with such keys and values. Those that reach the same memory
/// have the same [`memory`](Seat::memory).
pub(in crate::plan) fn devices(
    at: usize,
    node: &Node,
    card: &ModelCard,
    kv: KvTypes,
    strictness: Strictness,
) -> Vec<Seat> {
    let attention = node.role == Role::Full;
    let main = node.memory.as_ref().map(|memory| usable_ram(memory, strictness));
    let drives = |tag: &&String| node.backends.as_ref().is_none_or(|tags| tags.contains(*tag));
    let mut seats = Vec::new();
    let mut own = BTreeSet::new();
    // Cards of one name that backends of one kind reach are several; those of another kind are the same again.
    let (mut counts, mut first) = (BTreeMap::new(), BTreeMap::new());
    for (place, accelerator) in node.accelerators.iter().enumerate() {
        let Some(tag) = accelerator.backend.as_ref().filter(drives) else { continue };
        own.insert(tag.clone());
        let name = accelerator.name.as_str();
        let count: &mut usize = counts.entry((name, tag.split(':').next())).or_default();
        *count += 1;
        let memory = if name.is_empty() { place } else { *first.entry((name, *count)).or_insert(place) };
        let Some(backend) = resolve(card, kv, &BTreeSet::from([tag.clone()])) else { continue };
        let free = accelerator.vram_total_bytes.map(|total| {
            let free = total.saturating_sub(accelerator.vram_used_bytes.unwrap_or(0));
            free.min(scale(total, VRAM_SHARE))
        });
        let in_main = accelerator.shares_memory || accelerator.vendor == Vendor::Cpu;
        let (usable, memory) = match (free, main) {
            (free, Some(main)) if in_main => (free.map_or(main, |free| free.min(main)), None),
            (Some(free), _) if !in_main => (free, Some(memory)),
            _ => continue,
        };
        let rate = measured(accelerator.bytes_per_second).unwrap_or_else(|| match accelerator.vendor {
            // It reads the same memory as the processor: no faster, but for Apple's.
            vendor if in_main && vendor != Vendor::Apple => {
                measured(node.bytes_per_second).unwrap_or(MAIN_MEMORY)
            }
            vendor => assumed(vendor),
        });
        let device = if name.is_empty() { "accelerator" } else { name }.to_owned();
        let backend = Some(backend);
        seats.push(Seat { node: at, backend, device, usable, rate, attention, beside: true, memory });
    }
    let backend = match &node.backends {
        None => None,
        Some(tags) => match resolve(card, kv, &tags.difference(&own).cloned().collect()) {
            None => return seats,
            some => some,
        },
    };
    // A node that has its accelerators listed with their backends keeps main memory for this one.
    let offloads = backend.as_ref().is_none_or(|tag| has_gpu_offload(&BTreeSet::from([tag.clone()])));
    let usable = match own.is_empty() && offloads {
        true => usable_memory(node, strictness),
        false => main.map(|bytes| Usable { bytes, vram: false }),
    };
    let Some(Usable { bytes, vram }) = usable else { return seats };
    let gpu = node.accelerators.iter().find(|it| it.vram_total_bytes.is_some()).filter(|_| vram);
    let unified = backend.as_ref().is_some_and(|tag| offloads || engine_of(tag) == Some("mlx"));
    let assumed = match (gpu, unified) {
        (Some(gpu), _) => measured(gpu.bytes_per_second).unwrap_or(assumed(gpu.vendor)),
        (None, true) => assumed(Vendor::Apple),
        (None, false) => MAIN_MEMORY,
    };
    let rate = if vram { assumed } else { measured(node.bytes_per_second).unwrap_or(assumed) };
    let device = if vram { "graphics memory" } else { "main memory" }.to_owned();
    seats.push(Seat {
        node: at,
        backend,
        device,
        usable: bytes,
        rate,
        attention,
        beside: false,
        memory: None,
    });
    seats
}
