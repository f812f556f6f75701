//! Which devices can take part? The accelerators and the main memory of eligible nodes.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::card::ModelCard;
use crate::kv_type::KvTypes;
use crate::plan::backend::{engine_of, has_gpu_offload, keeps, own_engine, resolve_backend};
use crate::plan::cluster::{Accelerator, Node, Role, Vendor};
use crate::plan::devices::{self, Speed};
use crate::plan::memory::{Usable, VRAM_SHARE, scale, usable_memory, usable_ram};
use crate::plan::strictness::Strictness;
use crate::plan::target::Target;

/// Bytes a second of a disk that nobody measured: what solid-state ones commonly reach.
const DISK: f64 = 3e9;

/// Seconds from one device of a node to another and back, where nobody measured it.
const ROUND_TRIP: f64 = 1.0e-4;

/// The disk that has the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Disk {
    /// Bytes a second.
    pub(super) rate: f64,
    /// Nobody measured it.
    pub(super) assumed: bool,
    /// Bytes of memory that are available, plans' margin included.
    pub(super) memory: u64,
}

/// What of a device's feed-forward blocks and experts is not in its process when it is needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Missing {
    /// Of all that it reads of them.
    pub(super) share: f64,
    /// Bytes a second at which it comes from the disk; infinite where the system's cache has it.
    pub(super) rate: f64,
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
    /// Operations a second that it computes for prompts.
    pub(super) operations: f64,
    /// It reads weights while it computes with others for many rows, as accelerators do.
    pub(super) reads_ahead: bool,
    /// Its name, where the table of devices lacks it and nothing else says how fast it is.
    pub(super) unknown: Option<String>,
    /// Seconds that it takes for a layer whatever its size.
    pub(super) layer_seconds: f64,
    /// Seconds until it has answered another device of its node.
    pub(super) round_trip: f64,
    /// Its node's disk, where its engine computes with weights that lie there.
    pub(super) disk: Option<Disk>,
    /// What of its feed-forward blocks and experts is elsewhere when it is needed.
    pub(super) missing: Option<Missing>,
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

/// What a device does, where it says so; else what is known or assumed.
fn measured(known: Speed, [rate, operations, layer_seconds]: [Option<f64>; 3]) -> Speed {
    Speed {
        rate: rate.unwrap_or(known.rate),
        operations: operations.unwrap_or(known.operations),
        layer_seconds: layer_seconds.unwrap_or(known.layer_seconds),
    }
}

/// What a node says that its processor does.
fn said(node: &Node) -> [Option<f64>; 3] {
    [node.bytes_per_second, node.operations_per_second, node.layer_seconds]
}

/// How fast a node's processor is.
fn processor(node: &Node) -> Speed {
    let of = |is_it: &dyn Fn(&&Accelerator) -> bool| {
        node.accelerators.iter().filter(is_it).find_map(|it| devices::main_memory(&it.name))
    };
    let named = of(&|it| it.vendor == Vendor::Cpu)
        .or_else(|| of(&|it| it.shares_memory || it.vendor == Vendor::Apple))
        .unwrap_or_else(|| devices::assumed(Vendor::Cpu));
    measured(named, said(node))
}

/// How fast an accelerator is, of a node with such a processor.
fn accelerator(it: &Accelerator, in_main: bool, processor: Speed) -> Speed {
    let known = devices::named(&it.name).unwrap_or_else(|| {
        let assumed = devices::assumed(it.vendor);
        // It reads the same memory as the processor: no faster, but for Apple's.
        let is_slow = in_main && it.vendor != Vendor::Apple;
        if is_slow { Speed { rate: processor.rate, ..assumed } } else { assumed }
    });
    measured(known, [it.bytes_per_second, it.operations_per_second, it.layer_seconds])
}

/// The name of an accelerator of which nothing says how fast it is.
fn unknown(it: &Accelerator) -> Option<String> {
    let is_unknown = it.bytes_per_second.is_none() && devices::named(&it.name).is_none();
    Some(it.name.clone()).filter(|name| is_unknown && !name.is_empty())
}

/// The devices of a node on which plans place the card's model: one for each memory, as what several reach is there
/// only once, and that is one that is `wanted`, where there is such. None when no backend of the node is on the card, or
/// its memory is not known.
pub(in crate::plan) fn of_node(
    at: usize,
    node: &Node,
    card: &ModelCard,
    kv: KvTypes,
    strictness: Strictness,
    wanted: &[&Target],
) -> Vec<Seat> {
    let is_wanted = |seat: &Seat| wanted.iter().any(|it| it.is_on(&node.id, seat.backend.as_deref()));
    let is_apples =
        |seat: &Seat| seat.beside && node.accelerators.iter().any(|it| it.vendor == Vendor::Apple);
    // Apple's graphics come first; else what reads faster, the processor before what reads as fast, and what the
    // card prefers.
    let is_better = |a: &Seat, b: &Seat| {
        let by_rate = is_apples(a).cmp(&is_apples(b)).then(a.rate.total_cmp(&b.rate));
        match is_wanted(a).cmp(&is_wanted(b)).then(by_rate).then(b.beside.cmp(&a.beside)) {
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
    let processor = processor(node);
    let mut seats = Vec::new();
    let mut own = BTreeSet::new();
    // Cards of one name that backends of one kind reach are several; those of another kind are the same again.
    let (mut counts, mut first) = (BTreeMap::new(), BTreeMap::new());
    for (place, it) in node.accelerators.iter().enumerate() {
        let Some(tag) = it.backend.as_ref().filter(drives) else { continue };
        own.insert(tag.clone());
        let name = it.name.as_str();
        let count: &mut usize = counts.entry((name, tag.split(':').next())).or_default();
        *count += 1;
        let memory = if name.is_empty() { place } else { *first.entry((name, *count)).or_insert(place) };
        let Some(backend) = resolve(card, kv, &BTreeSet::from([tag.clone()])) else { continue };
        let free = it.vram_total_bytes.map(|total| {
            let free = total.saturating_sub(it.vram_used_bytes.unwrap_or(0));
            free.min(scale(total, VRAM_SHARE))
        });
        let in_main = it.shares_memory || it.vendor == Vendor::Cpu;
        let (usable, memory) = match (free, main) {
            (free, Some(main)) if in_main => (free.map_or(main, |free| free.min(main)), None),
            (Some(free), _) if !in_main => (free, Some(memory)),
            _ => continue,
        };
        let Speed { rate, operations, layer_seconds } = accelerator(it, in_main, processor);
        let unknown = unknown(it);
        let device = if name.is_empty() { "accelerator" } else { name }.to_owned();
        let backend = Some(backend);
        seats.push(Seat {
            node: at,
            backend,
            device,
            usable,
            rate,
            operations,
            reads_ahead: it.vendor != Vendor::Cpu,
            unknown,
            layer_seconds,
            round_trip: it.round_trip_seconds.unwrap_or(ROUND_TRIP),
            disk: None,
            missing: None,
            attention,
            beside: true,
            memory,
        });
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
    let apples = node.accelerators.iter().find(|it| it.vendor == Vendor::Apple);
    let Speed { rate, operations, layer_seconds } = match (gpu, apples) {
        (Some(gpu), _) => accelerator(gpu, false, processor),
        (None, Some(apples)) if unified => measured(accelerator(apples, true, processor), said(node)),
        (None, None) if unified => measured(devices::assumed(Vendor::Apple), said(node)),
        (None, _) => processor,
    };
    let device = if vram { "graphics memory" } else { "main memory" }.to_owned();
    let reads = backend.as_deref().is_some_and(|tag| own_engine(tag).is_some_and(|it| it.as_str() == "cpu"));
    seats.push(Seat {
        node: at,
        backend,
        device,
        usable: bytes,
        rate,
        operations,
        reads_ahead: gpu.is_some() || unified,
        unknown: gpu.and_then(unknown),
        layer_seconds,
        round_trip: 0.0,
        disk: reads.then(|| Disk {
            rate: node.disk_bytes_per_second.unwrap_or(DISK),
            assumed: node.disk_bytes_per_second.is_none(),
            memory: node.memory.as_ref().map_or(0, |memory| memory.ram_available),
        }),
        missing: None,
        attention,
        beside: false,
        memory: None,
    });
    seats
}
