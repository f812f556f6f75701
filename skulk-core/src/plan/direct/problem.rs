//! What is to be placed, and what is there to place it on?

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::cost::{Costs, Owner};
use super::drafts::Drafts;
use super::drawn::Drawn;
use super::fill::{Parts, Room};
use super::fixed::Fixed;
use super::seats::{self, Seat};
use crate::arch::{CHUNK, step_rows};
use crate::card::{ModelCard, bits_in};
use crate::error::Result;
use crate::kv_type::KvTypes;
use crate::plan::backend::{is_candles, serves};
use crate::plan::cluster::{Cluster, NodeId, Role};
use crate::plan::inventory::{Inventory, LayerBytes};
use crate::plan::links::Links;
use crate::plan::memory;
use crate::plan::report::{Bytes, Rejection, Rule, RuleReport};
use crate::plan::request::Request;
use crate::plan::stage::Drafter;
use crate::plan::strictness::Strictness;
use crate::plan::target::Target;

/// Bits of a weight where the name of the quantization says none.
pub(super) const UNKNOWN_BITS: f64 = 16.0;

/// Buffers of the width of a row that rows pass through, of other software's engines and of this library's.
const BUFFERS: u64 = 8;
const OWN_BUFFERS: u64 = 16;
/// What is kept free on top of weights that were not counted for this library's engines, which hold them as they are stored,
/// and of counted ones for others, in percent.
const MARGIN: u64 = 5;
/// Rows whose logits are computed at a time, and those of tokens ahead whose logits are kept.
const LOGIT_ROWS: u64 = 8 + 3;
/// Bytes that a session draws its tokens with, for each token: logits, candidates with their numbers, and both again while
/// they grow.
const DRAWING: u64 = 24;
/// Bytes of threads, buffers and programs of an engine of this library, whatever the model.
const RUNTIME: u64 = 4 << 20;
/// Bytes of a tokenizer, for each token: of byte pair encoding with two merges for each.
const TOKENIZER: u64 = 64;

/// What a device has: its stage's layers, bytes of feed-forward blocks, how many of them and of experts.
pub(super) struct Load {
    pub(super) seat: usize,
    pub(super) layers: Range<usize>,
    pub(super) feed_forward: u64,
    /// Of these bytes, those that stay on disk.
    pub(super) on_disk: u64,
    pub(super) experts: usize,
    pub(super) seconds: f64,
}

impl Load {
    /// Nothing.
    pub(super) fn of(seat: usize) -> Self {
        Self { seat, layers: 0..0, feed_forward: 0, on_disk: 0, experts: 0, seconds: 0.0 }
    }

    /// Has these experts of a layer, too.
    pub(super) fn add(&mut self, owner: &Owner, layer: &LayerBytes) {
        self.feed_forward = self.feed_forward.saturating_add(owner.weights(layer));
        self.experts += owner.experts.len();
    }
}

/// Everything that arranging looks at. Nodes have indices in the order of their names.
pub(super) struct Problem<'a> {
    pub(super) card: &'a ModelCard,
    pub(super) request: &'a Request,
    pub(super) ids: Vec<&'a NodeId>,
    pub(super) addresses: Vec<Option<&'a str>>,
    pub(super) roles: Vec<Role>,
    pub(super) seats: Vec<Seat>,
    pub(super) required: BTreeSet<usize>,
    pub(super) coordinator: Option<usize>,
    pub(super) inventory: Cow<'a, Inventory>,
    pub(super) drafts: Option<Drafts>,
    pub(super) links: Links,
    pub(super) fixed: Fixed,
    /// Bytes of blocks that are fixed on each seat, with their margin.
    held: Vec<u64>,
    /// Whether each seat is an engine's of this library.
    is_own: Vec<bool>,
    /// What attention takes on each seat beside keys and values, where they are copied for it.
    copied: Vec<u64>,
    drawn: Drawn,
    own: Margins,
    foreign: Margins,
}

/// What a device takes beside weights, keys and values.
#[derive(Debug, Clone, Copy)]
struct Margins {
    /// Percent of weights that are kept free on top of them.
    weights: u64,
    /// Bytes that are kept free.
    floor: u64,
    /// Bytes of rows, and what computing them takes.
    activations: u64,
}

impl Margins {
    /// Of this library's engines.
    fn own(inventory: &Inventory, row: u64, request: &Request) -> Self {
        let rows = step_rows(CHUNK, request.sessions) as u64;
        let drawing = inventory.vocabulary.saturating_mul(DRAWING).saturating_mul(request.sessions as u64);
        Self {
            weights: if inventory.exact || request.strictness == Strictness::Relaxed { 0 } else { MARGIN },
            floor: inventory.vocabulary.saturating_mul(TOKENIZER).saturating_add(RUNTIME),
            activations: own_rows(inventory, row, rows).saturating_add(drawing),
        }
    }

    /// Of other software's, as MLX takes it.
    fn foreign(card: &ModelCard, inventory: &Inventory, row: u64, strictness: Strictness) -> Self {
        let weights = match strictness {
            Strictness::Relaxed => 0,
            Strictness::Safe | Strictness::Force if inventory.exact => MARGIN,
            Strictness::Safe | Strictness::Force => {
                ((memory::overhead(card, strictness) - 1.0) * 100.0).round() as u64
            }
        };
        Self { weights, floor: memory::OVERHEAD_FLOOR, activations: foreign_rows(row) }
    }

    /// What weights take with what is kept free for them.
    fn charged(&self, weights: u64) -> u64 {
        weights.saturating_add(self.beside(weights))
    }

    fn beside(&self, weights: u64) -> u64 {
        u64::try_from((u128::from(weights) * u128::from(self.weights)).div_ceil(100)).unwrap_or(u64::MAX)
    }
}

/// What so many rows of a step take, and logits, of this library's engines.
fn own_rows(inventory: &Inventory, row: u64, rows: u64) -> u64 {
    let step_row = if inventory.step_row > 0 { inventory.step_row } else { row.saturating_mul(OWN_BUFFERS) };
    let logits = inventory.vocabulary.saturating_mul(size_of::<f32>() as u64 * LOGIT_ROWS);
    step_row.saturating_mul(rows).saturating_add(logits)
}

/// Bytes of the copies that candle's engines make of a layer's keys and values for a chunk's rows, at most: keys in 32 bits take
/// as much as both in half precision, while values are joined from their pages and then take as much again. Of latent vectors
/// all are keys, and the first part of each is copied once more.
fn copied(inventory: &Inventory, context: u64) -> u64 {
    let of = |layer: &LayerBytes| {
        let kept = LayerBytes { state: 0, ..*layer }.kept(context, CHUNK as u64);
        kept.saturating_mul(if layer.latent { 5 } else { 3 })
    };
    inventory.layers.iter().map(of).max().unwrap_or(0)
}

/// What a chunk's rows take, of other software's.
fn foreign_rows(row: u64) -> u64 {
    row.saturating_mul(CHUNK as u64 * BUFFERS)
}

impl<'a> Problem<'a> {
    /// Applies the rules that concern single nodes. Nodes without memory information are left out, and listed
    /// in the second value.
    ///
    /// # Errors
    /// As [`Fixed::new`].
    pub(super) fn new(
        card: &'a ModelCard,
        cluster: &'a Cluster,
        request: &'a Request,
        rules: &mut Vec<RuleReport>,
    ) -> Result<(Self, Vec<NodeId>)> {
        let mut nodes: Vec<_> = cluster.nodes.iter().collect();
        nodes.sort_by(|a, b| a.id.cmp(&b.id));
        let index: BTreeMap<&NodeId, usize> =
            nodes.iter().enumerate().map(|(at, node)| (&node.id, at)).collect();

        let reject = |at: usize, reason: String| Rejection { nodes: vec![nodes[at].id.clone()], reason };
        let mut left: Vec<usize> = (0..nodes.len()).collect();
        let mut apply =
            |rules: &mut Vec<RuleReport>, rule: Rule, reason: &dyn Fn(usize) -> Option<String>| {
                let before = left.len();
                let mut rejected = Vec::new();
                left.retain(|&at| reason(at).map(|why| rejected.push(reject(at, why))).is_none());
                rules.push(RuleReport::new(rule, before, rejected));
                left.clone()
            };
        apply(rules, Rule::Excluded, &|at| {
            request.excluded_nodes.contains(&nodes[at].id).then(|| "excluded by the request".to_owned())
        });
        let compatible = &card.placement.compatible_backends;
        let wanted: Vec<&Target> =
            request.fixed.iter().flat_map(|fixed| fixed.rules()).map(|rule| &rule.target).collect();
        let seats_of =
            |at: usize, kv: KvTypes| seats::of_node(at, nodes[at], card, kv, request.strictness, &wanted);
        let all: BTreeMap<usize, Vec<Seat>> =
            (0..nodes.len()).map(|at| (at, seats_of(at, request.kept()))).collect();
        apply(rules, Rule::Eligible, &|at| {
            let node = nodes[at];
            if node.role == Role::Management {
                return Some("its role is management: it only coordinates".to_owned());
            }
            let tags = node.backends.as_ref()?;
            (all[&at].is_empty() && node.memory.is_some()).then(|| {
                let list = |tags: &BTreeSet<String>| match tags.is_empty() {
                    true => "none".to_owned(),
                    false => tags.iter().cloned().collect::<Vec<_>>().join(", "),
                };
                let otherwise = seats_of(at, KvTypes::default());
                if otherwise.is_empty() {
                    format!(
                        "expected one of the card's backends ({}), found {}",
                        list(compatible),
                        list(tags)
                    )
                } else {
                    let on_card = |tag: &&String| compatible.iter().any(|card| serves(tag, card));
                    let tags = tags.iter().filter(on_card).cloned().collect();
                    format!(
                        "none of its backends ({}) keeps keys and values in {}",
                        list(&tags),
                        request.kept()
                    )
                }
            })
        });
        if let Some(gib) = card.placement.min_vram_gib {
            apply(rules, Rule::MinVram, &|at| {
                // Attention needs it; feed-forward blocks do not.
                let node = nodes[at];
                let most = memory::accelerator_memory(node).map(|bytes| bytes as f64 / memory::GIB);
                (node.role == Role::Full && most.is_none_or(|most| most < gib)).then(|| {
                    let found = most.map_or("nothing".to_owned(), |most| format!("{most:.1} GiB"));
                    format!("the card asks for {gib} GiB of accelerator memory, the node has {found}")
                })
            });
        }
        let left = apply(rules, Rule::Memory, &|at| {
            all[&at].is_empty().then(|| "its memory is not known yet".to_owned())
        });
        let pending = nodes.iter().filter(|node| node.memory.is_none() && node.role != Role::Management);
        let pending = pending.map(|node| node.id.clone()).collect();
        let seats: Vec<Seat> = left.iter().flat_map(|at| all[at].clone()).collect();

        let inventory = match &request.inventory {
            Some(inventory) => Cow::Borrowed(&**inventory),
            None => Cow::Owned(Inventory::from_card(card)),
        };
        let drafts = Drafts::of(request, &inventory);
        let inventory = match request.kept() == KvTypes::default() {
            true => inventory,
            false => Cow::Owned(inventory.into_owned().keeping(request.kept())),
        };
        let row = inventory.row_of(card);
        let fixed = match &request.fixed {
            Some(rules) => Fixed::new(rules, &nodes, &seats, &inventory.layers)?,
            None => Fixed::default(),
        };
        let copied = copied(&inventory, request.context_tokens);
        let mut problem = Self {
            card,
            request,
            links: Links::new(cluster, &index),
            drawn: Drawn::default(),
            required: request.required_nodes.iter().filter_map(|id| index.get(id).copied()).collect(),
            coordinator: request.coordinator.as_ref().and_then(|id| index.get(id).copied()),
            ids: nodes.iter().map(|node| &node.id).collect(),
            addresses: nodes.iter().map(|node| node.address.as_deref()).collect(),
            roles: nodes.iter().map(|node| node.role).collect(),
            held: vec![0; seats.len()],
            is_own: seats.iter().map(|seat| seat.engine() == Some("skulk")).collect(),
            copied: seats
                .iter()
                .map(|seat| match &seat.backend {
                    Some(tag) if is_candles(tag) => copied,
                    _ => 0,
                })
                .collect(),
            seats,
            own: Margins::own(&inventory, row, request),
            foreign: Margins::foreign(card, &inventory, row, request.strictness),
            inventory,
            drafts,
            fixed,
        };
        for &seat in &problem.fixed.seats {
            problem.held[seat] = problem.held_by_fixed(seat);
        }
        Ok((problem, pending))
    }

    /// The indices of the seats that can work together, and whether over several nodes: one group for each engine. Nodes
    /// that have not said what they run are one, and join every other. As all of a group are charged what they may take,
    /// engines come without them, too.
    pub(super) fn groups(&self) -> Vec<(Vec<usize>, bool)> {
        let of = |is_in: &dyn Fn(&Seat) -> bool| -> Vec<usize> {
            (0..self.seats.len()).filter(|&at| is_in(&self.seats[at])).collect()
        };
        let unknown = of(&|seat| seat.backend.is_none());
        let engines: BTreeSet<Option<&str>> =
            self.seats.iter().filter(|seat| seat.backend.is_some()).map(Seat::engine).collect();
        let mut groups = Vec::new();
        for engine in engines {
            // Others work over several nodes with transports of their own, or not at all.
            let wide = engine == Some("skulk");
            let own = of(&|seat| seat.backend.is_some() && seat.engine() == engine);
            let joined = [&own[..], &unknown].concat();
            groups.push((own, wide));
            groups.extend((!unknown.is_empty()).then_some((joined, wide)));
        }
        groups.extend((!unknown.is_empty()).then_some((unknown, true)));
        groups
    }

    pub(super) fn costs(&self) -> Costs<'_> {
        let named = || 8.0 / bits_in(&self.card.quantization).unwrap_or(UNKNOWN_BITS);
        Costs {
            inventory: &self.inventory,
            links: &self.links,
            drawn: &self.drawn,
            drafts: self.drafts.as_ref(),
            context: self.request.context_tokens,
            sessions: self.request.sessions.max(1) as f64,
            row: self.inventory.row_of(self.card) as f64,
            width: self.card.hidden_size as f64,
            weights_per_byte: self.inventory.weights_per_byte().unwrap_or_else(named),
        }
    }

    /// What was guessed of the model and what drafts for it, in words.
    pub(super) fn guessed(&self) -> Vec<String> {
        let drafts = self.drafts.iter().flat_map(|drafts| &drafts.inventory.guessed);
        let drafts = drafts.map(|guessed| format!("of what drafts: {guessed}"));
        self.inventory.guessed.iter().cloned().chain(drafts).collect()
    }

    /// Keys and values of so many tokens of each session.
    pub(super) fn kept(&self, layer: &LayerBytes, tokens: u64) -> u64 {
        layer.kept(tokens, self.rows() as u64).saturating_mul(self.request.sessions.max(1) as u64)
    }

    /// Rows of a step.
    fn rows(&self) -> usize {
        step_rows(CHUNK, self.request.sessions)
    }

    /// Whether a device runs this library's engines.
    pub(super) fn is_own(&self, seat: usize) -> bool {
        self.is_own[seat]
    }

    /// What these devices take beside: those that have not said what they run as much as other software.
    fn margins(&self, seats: &[usize]) -> &Margins {
        if seats.iter().all(|&seat| self.is_own[seat]) { &self.own } else { &self.foreign }
    }

    /// What a device keeps free. Drivers of GPUs, and pages there, take more than is counted, by no known rule; candle's engines
    /// take it for scores, and for weights in 32 bits, which they make by the piece.
    fn floor(&self, seat: usize) -> u64 {
        let is_processor = self.seats[seat].disk.is_some();
        let floor = self.margins(&[seat]).floor;
        if is_processor { floor } else { floor.max(memory::OVERHEAD_FLOOR) }
    }

    /// What attention takes beside keys and values of so many tokens, on a device with such a backend and layers, where they
    /// are copied for it.
    pub(super) fn copied_by(&self, backend: Option<&str>, layers: &Range<usize>, tokens: u64) -> u64 {
        match backend.is_some_and(is_candles) && !layers.is_empty() {
            true => copied(&self.inventory, tokens),
            false => 0,
        }
    }

    /// What weights take on these devices, with what is kept free for them.
    pub(super) fn charged(&self, seats: &[usize], weights: u64) -> u64 {
        self.margins(seats).charged(weights)
    }

    /// Weights that take no more than so many bytes on a device, with what is kept free for them.
    pub(super) fn weights_within(&self, seat: usize, bytes: u64) -> u64 {
        let most = u128::from(bytes) * 100 / u128::from(100 + self.margins(&[seat]).weights);
        u64::try_from(most).unwrap_or(bytes)
    }

    /// What a device may hold, memory counting `scale` times.
    fn usable(&self, seat: usize, scale: f64) -> u64 {
        let usable = self.seats[seat].usable;
        if scale > 1.0 { (usable.max(1) as f64 * scale) as u64 } else { usable }
    }

    /// Whether devices have room for what is fixed there, memory counting `scale` times. Blocks of one device may be
    /// `on_disk`.
    pub(super) fn holds_fixed(&self, scale: f64, on_disk: Option<usize>) -> bool {
        let blocks = |seat: usize| {
            let own = self.fixed.owners.iter().filter(|owner| on_disk == Some(seat) && owner.seat == seat);
            own.map(|owner| owner.weights(&self.inventory.layers[owner.layer])).fold(0, u64::saturating_add)
        };
        let needed = |load: &Load| {
            self.bytes(load.seat, &load.layers, load.feed_forward.saturating_sub(blocks(load.seat))).total()
        };
        self.fixed_loads().iter().all(|load| needed(load) <= self.usable(load.seat, scale))
    }

    /// What blocks that are fixed on a device take there, with their margin. It is rounded up once for each layer: with its
    /// attention, where that is fixed there, too, and no block is left to place.
    fn held_by_fixed(&self, seat: usize) -> u64 {
        let runs = || self.fixed.stages.iter().filter(|(fixed, _)| *fixed == seat).map(|(_, run)| run);
        let of = |(at, layer): (usize, &LayerBytes)| {
            let own = self.fixed.of_layer(at).iter().filter(|owner| owner.seat == seat);
            let blocks = own.map(|owner| owner.weights(layer)).fold(0, u64::saturating_add);
            let is_all = runs().any(|run| run.contains(&at)) && self.fixed.count(at) == layer.blocks().0;
            let beside = if is_all { self.beside_blocks(at).saturating_add(layer.shared()) } else { 0 };
            let together = self.charged(&[seat], beside.saturating_add(blocks));
            together.saturating_sub(self.charged(&[seat], beside))
        };
        self.inventory.layers.iter().enumerate().map(of).fold(0, u64::saturating_add)
    }

    /// What of each device's parts is fixed there.
    pub(super) fn fixed_loads(&self) -> Vec<Load> {
        let (layers, costs) = (&self.inventory.layers, self.costs());
        let mut loads: BTreeMap<usize, Load> = BTreeMap::new();
        for (seat, run) in &self.fixed.stages {
            let load = loads.entry(*seat).or_insert_with(|| Load::of(*seat));
            load.layers = run.clone();
            for layer in &layers[run.clone()] {
                load.feed_forward = load.feed_forward.saturating_add(layer.shared());
                load.seconds += costs.attention(&self.seats[*seat], layer);
                load.seconds += costs.shared(&self.seats[*seat], layer);
            }
        }
        for owner in &self.fixed.owners {
            let load = loads.entry(owner.seat).or_insert_with(|| Load::of(owner.seat));
            load.add(owner, &layers[owner.layer]);
            load.seconds += costs.experts(&self.seats[owner.seat], &layers[owner.layer], owner.experts.len());
        }
        loads.into_values().collect()
    }

    /// What a device has for parts that are not fixed elsewhere, attention among them, memory counting `scale` times.
    pub(super) fn room(&self, seat: usize, scale: f64) -> Room {
        let room = self.room_for_blocks(seat, scale);
        Room { bytes: room.bytes.saturating_sub(self.copied[seat]), ..room }
    }

    /// The same for feed-forward blocks and experts alone.
    pub(super) fn room_for_blocks(&self, seat: usize, scale: f64) -> Room {
        let bytes = self.room_in_all(seat, scale).saturating_sub(self.held[seat]);
        Room { bytes, node: self.seats[seat].node }
    }

    /// What a device has for blocks, those that are fixed there among them.
    pub(super) fn room_in_all(&self, seat: usize, scale: f64) -> u64 {
        let inventory = &self.inventory;
        let margins = self.margins(&[seat]);
        let embedding = if inventory.embedding_everywhere { margins.charged(inventory.embedding) } else { 0 };
        let used =
            [self.floor(seat), margins.activations, embedding].into_iter().fold(0, u64::saturating_add);
        self.usable(seat, scale).saturating_sub(used)
    }

    /// Whole layers, with embedding and head, as these devices take them; without blocks that are fixed.
    pub(super) fn whole_layers(&self, seats: &[usize]) -> Parts {
        self.parts(seats, |at| {
            let layer = &self.inventory.layers[at];
            let (n, each) = layer.blocks();
            let open = n.saturating_sub(self.fixed.count(at));
            layer.shared().saturating_add(each.saturating_mul(open as u64))
        })
    }

    /// Layers without their feed-forward blocks, with embedding and head. What every token reads of a
    /// mixture's block beside its experts stays.
    pub(super) fn attention_only(&self, seats: &[usize]) -> Parts {
        self.parts(seats, |at| self.inventory.layers[at].shared())
    }

    /// The layers before which stages can begin, the first one among them.
    pub(super) fn cuts(&self) -> Vec<usize> {
        let layers = self.inventory.layers.iter().enumerate();
        layers.filter(|(at, layer)| *at == 0 || !layer.joined).map(|(at, _)| at).collect()
    }

    /// The embedding table where it is a part of a layer's. Where all stages hold it, no device has room for it.
    fn embedding(&self) -> u64 {
        if self.inventory.embedding_everywhere { 0 } else { self.inventory.embedding }
    }

    /// Weights of a layer's attention, with embedding and head.
    fn beside_blocks(&self, at: usize) -> u64 {
        let Inventory { layers, tied_embeddings, head, .. } = &*self.inventory;
        let last = layers.len().saturating_sub(1);
        let mut weights = layers[at].attention;
        if at == 0 {
            weights = weights.saturating_add(self.embedding());
        }
        if at == last {
            weights = weights.saturating_add(*head);
            if *tied_embeddings && last > 0 {
                weights = weights.saturating_add(self.embedding());
            }
        }
        weights
    }

    /// Parts of one layer, or of all that are in one stage.
    fn parts(&self, seats: &[usize], feed_forward: impl Fn(usize) -> u64) -> Parts {
        let Inventory { layers, tied_embeddings, .. } = &*self.inventory;
        let last = layers.len().saturating_sub(1);
        let twice = last > 0 && (*tied_embeddings || self.copies_embedding());
        let sizes = layers.iter().enumerate().map(|(at, layer)| {
            let mut beside = self.kept(layer, self.request.context_tokens);
            let weights = self.beside_blocks(at).saturating_add(feed_forward(at));
            if at == last {
                let copies = last > 0 && self.copies_embedding();
                beside = beside.saturating_add(self.drafting(seats, copies).unwrap_or_default().total());
            }
            self.charged(seats, weights).saturating_add(beside)
        });
        let mut together: Vec<u64> = Vec::new();
        for (size, layer) in sizes.zip(layers) {
            match together.last_mut() {
                Some(stage) if layer.joined => *stage = stage.saturating_add(size),
                _ => together.push(size),
            }
        }
        let shared = if twice { self.embedding() } else { 0 };
        Parts::new(together, shared)
    }

    /// Every expert, or dense block, one by one; those that are fixed take nothing.
    pub(super) fn every_expert(&self, seats: &[usize]) -> Parts {
        let sizes = self.inventory.layers.iter().enumerate().flat_map(|(at, layer)| {
            let (n, each) = layer.blocks();
            let mut sizes = vec![self.charged(seats, each); n];
            for owner in self.fixed.of_layer(at) {
                sizes[owner.experts.clone()].fill(0);
            }
            sizes
        });
        Parts::new(sizes, 0)
    }

    /// Whether what drafts needs a copy of the embedding table where the last stage has none.
    fn copies_embedding(&self) -> bool {
        let Inventory { tied_embeddings, embedding_everywhere, .. } = *self.inventory;
        let shares = self.drafts.as_ref().is_some_and(|drafts| drafts.inventory.shares_embedding);
        shares && !tied_embeddings && !embedding_everywhere
    }

    /// The bytes of what drafts on one of these devices, with a copy of the embedding table or without.
    fn drafting(&self, seats: &[usize], copies: bool) -> Option<Bytes> {
        let drafts = self.drafts.as_ref()?;
        let inventory = &drafts.inventory;
        let layers = &inventory.layers;
        let sum = |of: &dyn Fn(&LayerBytes) -> u64| layers.iter().map(of).fold(0, u64::saturating_add);
        let mut attention = sum(&|layer| layer.attention);
        let copy = if copies { self.inventory.embedding } else { 0 };
        for table in [inventory.embedding, inventory.head, copy] {
            attention = attention.saturating_add(table);
        }
        let feed_forward = sum(&LayerBytes::feed_forward);
        let margins = self.margins(seats);
        let row = inventory.row_of(self.card);
        let is_own = seats.iter().all(|&seat| self.is_own[seat]);
        // What keeps nothing computes a row of each session.
        let rows = if inventory.keeps_nothing() { self.request.sessions.max(1) } else { self.rows() };
        // One that shares nothing has a tokenizer of its own until it is loaded.
        let tokens = if inventory.shares_embedding { 0 } else { inventory.vocabulary };
        Some(Bytes {
            attention,
            feed_forward,
            kv_cache: sum(&|layer| self.kept(layer, drafts.tokens(self.request.context_tokens))),
            activations: if is_own { own_rows(inventory, row, rows as u64) } else { foreign_rows(row) },
            headroom: margins
                .beside(attention.saturating_add(feed_forward))
                .saturating_add(tokens.saturating_mul(TOKENIZER)),
        })
    }

    /// What drafts on a device with these layers, which must be the last ones.
    pub(super) fn drafter(&self, seat: usize, layers: &Range<usize>) -> Option<Drafter> {
        let is_last = !layers.is_empty() && layers.end == self.inventory.layers.len();
        let copies = layers.start > 0 && self.copies_embedding();
        let bytes = self.drafting(&[seat], copies).filter(|_| is_last)?;
        Some(Drafter { mtp: self.request.mtp, bytes })
    }

    /// Keys and values of so many tokens of each session, of a stage of these layers and what drafts behind it.
    pub(super) fn kept_by(&self, layers: &Range<usize>, tokens: u64) -> u64 {
        let is_last = !layers.is_empty() && layers.end == self.inventory.layers.len();
        let own = self.inventory.layers[layers.clone()].iter().map(|layer| self.kept(layer, tokens));
        let drafts = self.drafts.iter().filter(|_| is_last).flat_map(|drafts| {
            drafts.inventory.layers.iter().map(|layer| self.kept(layer, drafts.tokens(tokens)))
        });
        own.chain(drafts).fold(0, u64::saturating_add)
    }

    /// The bytes of a device by kind: its stage's layers, feed-forward blocks of so many bytes, and what drafts.
    pub(super) fn bytes(&self, seat: usize, layers: &Range<usize>, feed_forward: u64) -> Bytes {
        let inventory = &*self.inventory;
        let held = &inventory.layers[layers.clone()];
        let mut attention = held.iter().map(|layer| layer.attention).fold(0, u64::saturating_add);
        let is_last = !held.is_empty() && layers.end == inventory.layers.len();
        if inventory.embeds(layers) {
            attention = attention.saturating_add(inventory.embedding);
        }
        if is_last {
            attention = attention.saturating_add(inventory.head);
        }
        let tokens = self.request.context_tokens;
        let kv = held.iter().map(|layer| self.kept(layer, tokens));
        let margins = self.margins(&[seat]);
        let own = Bytes {
            attention,
            feed_forward,
            kv_cache: kv.fold(0, u64::saturating_add),
            activations: margins.activations,
            headroom: margins
                .beside(attention.saturating_add(feed_forward))
                .saturating_add(self.floor(seat))
                .saturating_add(self.copied_by(self.seats[seat].backend.as_deref(), layers, tokens)),
        };
        own + self.drafter(seat, layers).map_or_else(Bytes::default, |drafter| drafter.bytes)
    }
}
