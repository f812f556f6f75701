//! In which ways can the model be arranged around a coordinator? Each as fast as its order of devices allows.
//!
//! - **Whole layers.** Devices take consecutive layers, with their feed-forward blocks: the coordinator's
//!   first, then the fastest; or, to save hops, the largest; or one device of the coordinator alone.
//! - **Experts apart, in a row.** Attention, keys and values are on one device of the coordinator.
//!   Feed-forward blocks and experts, in the order of layers, fill what is left of it, then the fastest others.
//! - **Experts apart, side by side.** The same, but each layer's experts are shared out to 2, 4, 8, … devices
//!   by speed, which then read at the same time.
//! - **Attention over several devices.** Attention fills the fastest devices, experts the others.
//! - **From disk**, where the request allows it. Experts apart, in a row, of which the coordinator's processor computes all
//!   that fit nowhere; what it has no memory for stays on disk.
//!
//! Whether something fits is decided by orders that depend on speeds, links and names, never on how much memory
//! there is; so more memory never ends a fit. The largest first, and side by side, is tried where something fits.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use super::COORDINATORS;
use super::around::Pin;
use super::cost::Owner;
use super::disk::OnDisk;
use super::fill::{Parts, Room};
use super::fixed::may_serve;
use super::problem::Problem;
use super::seats::Seat;
use super::sets::SETS;
use crate::plan::inventory::LayerBytes;
use crate::plan::report::Estimate;

/// All of the room that a device has beside layers that are fixed on it.
pub(super) const QUARTERS: u64 = 4;

/// A way to place the model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arrangement {
    /// Seats with their layers, in the order a token passes them.
    pub(super) stages: Vec<(usize, Range<usize>)>,
    /// Owners of the layers whose feed-forward blocks are not all with their attention, sorted by layer.
    pub(super) owners: Vec<Owner>,
    /// What is not in memory.
    pub(super) disk: Option<OnDisk>,
    pub(super) estimate: Estimate,
    pub(super) words: String,
}

impl Arrangement {
    /// Less is better: faster, and of equally fast ones that of fewer devices.
    fn rank(&self) -> (f64, usize) {
        (self.estimate.seconds(), self.stages.len() + self.owners.len())
    }

    /// How this one compares to another: less is faster.
    pub(super) fn faster(&self, other: &Self) -> Ordering {
        self.rank().partial_cmp(&other.rank()).unwrap_or(Ordering::Equal)
    }

    /// All devices, as they are when they run this.
    pub(super) fn seats<'p>(&self, problem: &'p Problem<'_>) -> Cow<'p, [Seat]> {
        self.disk.map_or(Cow::Borrowed(&problem.seats), |disk| Cow::Owned(disk.seats(problem)))
    }

    /// Whether everything is at the same place.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.stages == other.stages && self.owners == other.owners && self.disk == other.disk
    }

    /// The nodes that take part, each once, stages first.
    pub(super) fn nodes(&self, problem: &Problem<'_>) -> Vec<usize> {
        let seats = self.stages.iter().map(|(seat, _)| *seat).chain(self.owners.iter().map(|o| o.seat));
        let mut seen = vec![false; problem.ids.len()];
        seats
            .map(|seat| problem.seats[seat].node)
            .filter(|&node| !std::mem::replace(&mut seen[node], true))
            .collect()
    }
}

/// The seats that a coordinator reaches: its own first, then those of nodes that must be used, then the fastest, the
/// way there included.
pub(super) struct Reached {
    pub(super) all: Vec<usize>,
    /// Those that may hold attention.
    pub(super) with_attention: Vec<usize>,
    /// Of these the coordinator's own.
    pub(super) own: Vec<usize>,
}

/// The model in parts, as a group's devices take them.
pub(super) struct Model {
    pub(super) whole: Parts,
    pub(super) attention: Parts,
    /// Of `whole` and `attention`, the first layer of each part, and the number of layers.
    cuts: Vec<usize>,
    pub(super) experts: Parts,
    /// Of `experts`, the ends of layers.
    blocks: Vec<usize>,
    /// Bytes of a block or expert of each layer.
    pub(super) each: Vec<u64>,
}

/// A group of seats that can work together.
pub(super) struct Group<'a> {
    pub(super) problem: &'a Problem<'a>,
    /// The fastest first; of equal ones by name.
    pub(super) seats: Vec<usize>,
    /// Over several nodes.
    pub(super) wide: bool,
    /// How much of its memory each device counts.
    pub(super) scale: f64,
    pub(super) model: Rc<Model>,
    /// Devices have room for what is fixed there.
    holds_fixed: bool,
    /// Seconds beyond which ways with attention on one device need not be looked at.
    limit: f64,
}

impl<'a> Group<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, mut seats: Vec<usize>, wide: bool, scale: f64) -> Self {
        let rate = |seat: &usize| problem.seats[*seat].rate;
        seats.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(a.cmp(b)));
        let (whole, attention, experts) =
            (problem.whole_layers(&seats), problem.attention_only(&seats), problem.every_expert(&seats));
        let cuts = [problem.cuts(), vec![problem.inventory.layers.len()]].concat();
        let counts = problem.inventory.layers.iter().map(|layer| layer.blocks().0);
        let blocks = counts.scan(0, |end, n| {
            *end += n;
            Some(*end)
        });
        let blocks = blocks.collect();
        let holds_fixed = problem.holds_fixed(scale, None);
        let charged = |layer: &LayerBytes| problem.charged(&seats, layer.blocks().1);
        let each = problem.inventory.layers.iter().map(charged).collect();
        let model = Rc::new(Model { whole, attention, cuts, experts, blocks, each });
        Self { problem, seats, wide, scale, model, holds_fixed, limit: f64::INFINITY }
    }

    /// The same of some seats, by the bits of their places, for ways that take no longer than `limit` seconds.
    pub(super) fn only(&self, set: usize, limit: f64) -> Self {
        let seats = self.seats.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        Self { seats: seats.map(|(_, seat)| *seat).collect(), model: self.model.clone(), limit, ..*self }
    }

    /// Whether all memory together is enough.
    fn may_hold(&self) -> bool {
        let bytes = self.rooms(&self.seats).map(|room| room.bytes).fold(0, u64::saturating_add);
        self.problem.request.from_disk || self.model.whole.holds_all(bytes)
    }

    /// What fits around so many coordinators at most.
    pub(super) fn search(&self, most: usize) -> Vec<Arrangement> {
        if !self.may_hold() {
            return Vec::new();
        }
        let mut found: Vec<Arrangement> = Vec::new();
        let mut add = |more: Vec<Arrangement>| {
            for arrangement in more {
                if !found.iter().any(|other| other.is_same(&arrangement)) {
                    found.push(arrangement);
                }
            }
        };
        let coordinators = self.coordinators();
        let mut fits = false;
        for (at, &coordinator) in coordinators.iter().take(most).enumerate() {
            if at >= COORDINATORS && fits {
                break;
            }
            let around = self.around(coordinator, at < COORDINATORS);
            fits |= !around.is_empty();
            add(around);
        }
        let first = coordinators.iter().take(COORDINATORS);
        match fits {
            true => first.for_each(|&it| add(self.faster_around(it))),
            false => first.for_each(|&it| add(self.in_any_order(it))),
        }
        found
    }

    /// The nodes that can coordinate, the fastest first.
    pub(super) fn coordinators(&self) -> Vec<usize> {
        let mut nodes = Vec::new();
        let mut seen = vec![false; self.problem.ids.len()];
        for &seat in &self.seats {
            let seat = &self.problem.seats[seat];
            let wanted = self.problem.coordinator.is_none_or(|wanted| wanted == seat.node);
            if seat.attention && wanted && !std::mem::replace(&mut seen[seat.node], true) {
                nodes.push(seat.node);
            }
        }
        nodes
    }

    /// The seats that a coordinator reaches.
    pub(super) fn reached(&self, coordinator: usize) -> Reached {
        let problem = self.problem;
        let node = |seat: &usize| problem.seats[*seat].node;
        let reaches = |seat: &&usize| {
            let node = node(seat);
            node == coordinator || self.wide && problem.links.speed(coordinator, node).is_some()
        };
        let all: Vec<usize> = self.seats.iter().filter(reaches).copied().collect();
        // A stage is gone to once, experts for each layer.
        let costs = problem.costs();
        let from = self.seats.iter().find(|seat| node(seat) == coordinator).map(|&seat| &problem.seats[seat]);
        let layers = problem.inventory.layers.len().max(1) as f64;
        let read = costs.read_by_a_token();
        let key = |seat: usize, parts: f64| {
            let to = &problem.seats[seat];
            let trip = from.and_then(|from| costs.trip(from, to, costs.sessions)).unwrap_or(0.0);
            let first = (to.node != coordinator, !problem.required.contains(&to.node));
            (first, trip + read / parts / to.rate)
        };
        let sorted = |seats: Vec<usize>, parts: f64| {
            let mut seats: Vec<_> = seats.into_iter().map(|seat| (key(seat, parts), seat)).collect();
            seats.sort_by(|((a, x), _), ((b, y), _)| a.cmp(b).then(x.total_cmp(y)));
            seats.into_iter().map(|(_, seat)| seat).collect::<Vec<usize>>()
        };
        let with_attention = all.iter().copied().filter(|&seat| problem.seats[seat].attention).collect();
        let with_attention = sorted(with_attention, 1.0);
        let all = sorted(all, layers);
        let own = with_attention.iter().copied().filter(|seat| node(seat) == coordinator).collect();
        Reached { all, with_attention, own }
    }

    /// The ways around a coordinator that decide whether something fits, in a fixed order. Attention over
    /// several devices, which takes longest to try, only if it `may_spread`.
    fn around(&self, coordinator: usize, may_spread: bool) -> Vec<Arrangement> {
        let Reached { all, with_attention, own } = self.reached(coordinator);
        let growths = self.growths();
        let whole = |growth| self.whole_layers(&with_attention, coordinator, growth);
        let mut found: Vec<Option<Arrangement>> = growths.clone().map(whole).collect();
        for &seat in own.iter().filter(|seat| self.is_worth(**seat)) {
            found.push(self.whole_layers(&[seat], coordinator, QUARTERS));
            found.push(self.in_a_row(seat, &all));
        }
        if may_spread {
            let over = |growth| self.attention_over(&with_attention, &all, coordinator, growth);
            found.extend(growths.map(over));
            let from_disk = self.problem.request.from_disk;
            found.extend(own.iter().filter(|_| from_disk).map(|&seat| self.partly_on_disk(seat, &all)));
        }
        self.complete(found)
    }

    /// Whether ways with all attention on a device can be within the limit.
    fn is_worth(&self, seat: usize) -> bool {
        self.limit.is_infinite() || self.least_with(Some(seat)) <= self.limit
    }

    /// Further ways around a coordinator, which may be faster where something fits.
    fn faster_around(&self, coordinator: usize) -> Vec<Arrangement> {
        let problem = self.problem;
        let Reached { all, with_attention: mut largest, own } = self.reached(coordinator);
        let bytes = |seat: &usize| std::cmp::Reverse(problem.room(*seat, self.scale).bytes);
        let (first, rest) = largest.split_at_mut(own.len());
        first.sort_by_key(bytes);
        rest.sort_by_key(|seat| (!problem.required.contains(&problem.seats[*seat].node), bytes(seat)));
        let whole = |growth| self.whole_layers(&largest, coordinator, growth);
        let mut found: Vec<Option<Arrangement>> = self.growths().map(whole).collect();
        if all.iter().any(|&seat| problem.seats[seat].node != coordinator) {
            let blocks = problem.inventory.layers.iter().map(|layer| layer.blocks().0).max().unwrap_or(0);
            let most = 2 * all.len().min(blocks.max(2));
            let widths =
                || std::iter::successors(Some(2), |width| Some(width * 2)).take_while(|&it| it < most);
            for seat in own.into_iter().filter(|seat| self.is_worth(*seat)) {
                for evenly in [false, true].into_iter().take(if all.len() > SETS { 1 } else { 2 }) {
                    found.extend(widths().map(|width| self.side_by_side(seat, &all, width, evenly)));
                }
            }
        }
        self.complete(found)
    }

    /// Those that use the nodes that must be used, and enough of them.
    pub(super) fn complete(&self, found: Vec<Option<Arrangement>>) -> Vec<Arrangement> {
        let complete = |arrangement: &Arrangement| {
            let used = arrangement.nodes(self.problem);
            used.len() >= self.problem.request.min_nodes
                && self.problem.required.iter().all(|node| used.contains(node))
        };
        found.into_iter().flatten().filter(complete).collect()
    }

    /// Nodes that must take part at least, one of which is the coordinator.
    fn least_nodes(&self, coordinator: usize) -> usize {
        let required = &self.problem.required;
        self.problem.request.min_nodes.max(required.len() + usize::from(!required.contains(&coordinator)))
    }

    pub(super) fn rooms<'b>(&'b self, seats: &'b [usize]) -> impl Iterator<Item = Room> + 'b {
        seats.iter().map(|&seat| self.problem.room(seat, self.scale))
    }

    pub(super) fn whole_layers(
        &self,
        order: &[usize],
        coordinator: usize,
        growth: u64,
    ) -> Option<Arrangement> {
        let stages = self.stages(&self.model.whole, order, self.least_nodes(coordinator), growth)?;
        if self.problem.seats[stages.first()?.0].node != coordinator {
            return None;
        }
        let words = match stages.len() {
            1 => "the whole model on one device".to_owned(),
            n => format!("whole layers on {n} devices"),
        };
        self.arranged(stages, Vec::new(), words)
    }

    /// What is left of the coordinator's device beside all attention, and the others.
    pub(super) fn beside_attention(&self, seat: usize, reached: &[usize]) -> Option<(Vec<usize>, Vec<Room>)> {
        if self.problem.fixed.stages.iter().any(|(fixed, _)| *fixed != seat) {
            return None;
        }
        let mut own = self.problem.room(seat, self.scale);
        own.bytes = own.bytes.checked_sub(self.model.attention.bytes(&(0..self.model.attention.len())))?;
        own.bytes = self.model.experts.whole_within(own.bytes, &self.model.blocks);
        // Beside its accelerator, a node's processor computes; another of its accelerators does not.
        let may = |other: &usize| {
            let (own, other) = (&self.problem.seats[seat], &self.problem.seats[*other]);
            own.node != other.node || own.beside && !other.beside
        };
        let others: Vec<usize> = reached.iter().copied().filter(may).collect();
        let rooms = [own].into_iter().chain(self.rooms(&others)).collect();
        Some(([vec![seat], others].concat(), rooms))
    }

    pub(super) fn in_a_row(&self, seat: usize, reached: &[usize]) -> Option<Arrangement> {
        let (order, rooms) = self.beside_attention(seat, reached)?;
        let coordinator = self.problem.seats[seat].node;
        let ranges = self.model.experts.fill(rooms, vec![coordinator], self.least_nodes(coordinator))?;
        let stages = [(seat, 0..self.problem.inventory.layers.len())];
        self.row(seat, self.owners(&stages, &order, &ranges))
    }

    /// Attention on one device, and these owners.
    pub(super) fn row(&self, seat: usize, owners: Vec<Owner>) -> Option<Arrangement> {
        let stages = vec![(seat, 0..self.problem.inventory.layers.len())];
        let owners = without_own(&stages, owners);
        let words = format!("attention on one device, {}", on_others(&owners, seat));
        self.arranged(stages, owners, words)
    }

    /// The first layer of a part of whole layers, or of attention.
    pub(super) fn first_layer(&self, part: usize) -> usize {
        self.model.cuts[part]
    }

    fn partly_on_disk(&self, seat: usize, reached: &[usize]) -> Option<Arrangement> {
        let problem = self.problem;
        let coordinator = problem.seats[seat].node;
        let (mut order, mut rooms) = self.beside_attention(seat, reached)?;
        let is_processor =
            |at: &usize| problem.seats[*at].node == coordinator && problem.seats[*at].disk.is_some();
        let at = order.iter().position(is_processor)?;
        let (processor, room) = (order.remove(at), rooms.remove(at));
        if !problem.holds_fixed(self.scale, Some(processor)) {
            return None;
        }
        // Beside attention blocks need not be whole, and those that are fixed there may stay on disk, too.
        let attention = self.model.attention.bytes(&(0..self.model.attention.len()));
        let beside = if processor == seat { attention } else { 0 };
        let bytes = problem.room_in_all(processor, self.scale).checked_sub(beside)?;
        order.push(processor);
        rooms.push(Room { bytes: u64::MAX, ..room });
        let ranges = self.model.experts.fill(rooms, vec![coordinator], self.least_nodes(coordinator))?;
        let stages = vec![(seat, 0..problem.inventory.layers.len())];
        let owners = self.owners(&stages, &order, &ranges);
        let words = format!("attention on one device, {}, some from disk", on_others(&owners, seat));
        self.arranged_with(Some((processor, problem.weights_within(processor, bytes))), stages, owners, words)
    }

    /// Each layer's experts on so many devices. These give to each layer what is left of their memory, the first ones most,
    /// or, `evenly`, as much as to those that follow.
    fn side_by_side(
        &self,
        seat: usize,
        reached: &[usize],
        width: usize,
        evenly: bool,
    ) -> Option<Arrangement> {
        let (order, mut rooms) = self.beside_attention(seat, reached)?;
        let layers = &self.problem.inventory.layers;
        let rates: Vec<f64> = order.iter().map(|&seat| self.problem.seats[seat].rate).collect();
        let mut owners = Vec::new();
        for (at, layer) in layers.iter().enumerate() {
            let (n, each) = (layer.blocks().0, self.model.each[at]);
            let shared_by = if evenly { (layers.len() - at) as u64 } else { 1 };
            let slots = |room: &Room| {
                let slots = room.bytes.checked_div(each).unwrap_or(u64::MAX).div_ceil(shared_by);
                usize::try_from(slots).unwrap_or(n).min(n)
            };
            // As many devices as asked for, and more only where these have too little room.
            let mut chosen = Vec::new();
            let mut room = 0usize;
            for (index, free) in rooms.iter().enumerate().map(|(index, room)| (index, slots(room))) {
                if free > 0 && (chosen.len() < width || room < n) {
                    chosen.push((index, free));
                    room += free;
                }
                if chosen.len() >= width && room >= n {
                    break;
                }
            }
            let shares = in_proportion(n, &chosen, &rates)?;
            let mut start = 0;
            for (&(index, _), share) in chosen.iter().zip(shares).filter(|(_, share)| *share > 0) {
                rooms[index].bytes = rooms[index].bytes.saturating_sub(each.saturating_mul(share as u64));
                owners.push(Owner { seat: order[index], layer: at, experts: start..start + share });
                start += share;
            }
        }
        let stages = vec![(seat, 0..layers.len())];
        let owners = without_own(&stages, owners);
        let words = format!("attention on one device, {}, {width} to a layer", on_others(&owners, seat));
        self.arranged(stages, owners, words)
    }

    pub(super) fn attention_over(
        &self,
        order: &[usize],
        reached: &[usize],
        coordinator: usize,
        growth: u64,
    ) -> Option<Arrangement> {
        let stages = self.stages(&self.model.attention, order, 1, growth)?;
        if stages.len() < 2 || self.problem.seats[stages[0].0].node != coordinator {
            return None;
        }
        // Whichever devices attention lands on, experts must be linked with them.
        let problem = self.problem;
        let mut homes: Vec<usize> = order.iter().map(|&seat| problem.seats[seat].node).collect();
        homes.dedup();
        let is_linked = |seat: &usize| {
            let node = problem.seats[*seat].node;
            homes.iter().all(|&home| home == node || problem.links.speed(home, node).is_some())
        };
        let is_free = |seat: &usize| stages.iter().all(|(used, _)| used != seat);
        let others: Vec<usize> = reached.iter().copied().filter(is_free).filter(is_linked).collect();
        let mut used: Vec<usize> = stages.iter().map(|(seat, _)| problem.seats[*seat].node).collect();
        used.sort_unstable();
        used.dedup();
        let ranges = self.model.experts.fill(self.rooms(&others), used, self.least_nodes(coordinator))?;
        let owners = self.owners(&stages, &others, &ranges);
        let words = format!("attention on {} devices, {}", stages.len(), on_others(&owners, usize::MAX));
        self.arranged(stages, owners, words)
    }

    /// The stages that parts of layers make on devices in this order, so that at least `nodes` nodes have some. Of what
    /// devices have beside layers that are fixed there, `growth` quarters are for neighbours of these.
    fn stages(
        &self,
        parts: &Parts,
        order: &[usize],
        nodes: usize,
        growth: u64,
    ) -> Option<Vec<(usize, Range<usize>)>> {
        let fixed = &self.problem.fixed.stages;
        let ranges: Vec<(usize, Range<usize>)> = if fixed.is_empty() {
            parts.fill(self.rooms(order), Vec::new(), nodes)?.into_iter().enumerate().collect()
        } else {
            let rooms: Vec<Room> = self.rooms(order).collect();
            let part = |layer: usize| self.model.cuts.partition_point(|&cut| cut < layer);
            let pin = |(seat, layers): &(usize, Range<usize>)| {
                let at = order.iter().position(|it| it == seat)?;
                let own = part(layers.start)..part(layers.end);
                let beside = rooms[at].bytes.saturating_sub(parts.bytes(&own));
                let bytes = rooms[at].bytes - beside / QUARTERS * (QUARTERS - growth);
                Some(Pin { at, parts: own, bytes })
            };
            let pins: Option<Vec<Pin>> = fixed.iter().map(pin).collect();
            parts.fill_around(&rooms, &pins?, nodes)?
        };
        let used = ranges.into_iter().filter(|(_, parts)| !parts.is_empty());
        Some(
            used.map(|(at, parts)| (order[at], self.model.cuts[parts.start]..self.model.cuts[parts.end]))
                .collect(),
        )
    }

    /// How many quarters of the room beside fixed layers are tried for their neighbours.
    fn growths(&self) -> RangeInclusive<u64> {
        if self.problem.fixed.stages.is_empty() { QUARTERS..=QUARTERS } else { 0..=QUARTERS }
    }

    /// The owners that ranges of all experts, one by one, mean.
    fn owners(
        &self,
        stages: &[(usize, Range<usize>)],
        order: &[usize],
        ranges: &[Range<usize>],
    ) -> Vec<Owner> {
        let mut owners = Vec::new();
        let (mut layer, mut first) = (0, 0);
        let layers = &self.problem.inventory.layers;
        for (&seat, range) in order.iter().zip(ranges) {
            let mut at = range.start;
            while at < range.end {
                let n = layers[layer].blocks().0;
                let end = range.end.min(first + n);
                owners.push(Owner { seat, layer, experts: at - first..end - first });
                at = end;
                if end == first + n {
                    (layer, first) = (layer + 1, end);
                }
            }
        }
        without_own(stages, owners)
    }

    pub(super) fn arranged(
        &self,
        stages: Vec<(usize, Range<usize>)>,
        owners: Vec<Owner>,
        words: String,
    ) -> Option<Arrangement> {
        self.holds_fixed.then(|| self.arranged_with(None, stages, owners, words))?
    }

    /// With so many bytes of a device's blocks in memory, where one leaves others on disk.
    fn arranged_with(
        &self,
        budget: Option<(usize, u64)>,
        stages: Vec<(usize, Range<usize>)>,
        owners: Vec<Owner>,
        words: String,
    ) -> Option<Arrangement> {
        let Problem { fixed, inventory, seats, .. } = self.problem;
        let mut homes = vec![0; inventory.layers.len()];
        stages.iter().for_each(|(seat, layers)| homes[layers.clone()].fill(*seat));
        let can_serve = |owner: &Owner| may_serve(&seats[homes[owner.layer]], &seats[owner.seat]);
        if !fixed.owners.iter().all(can_serve) {
            return None;
        }
        let owners = without_own(&stages, fixed.complete(owners, &inventory.layers, &homes));
        let mut arrangement =
            Arrangement { stages, owners, disk: None, estimate: Estimate::default(), words };
        let Arrangement { stages, owners, .. } = &arrangement;
        if let Some((seat, budget)) = budget {
            arrangement.disk = Some(OnDisk::new(self.problem, seat, budget, stages, owners)?);
        }
        let seats = arrangement.seats(self.problem);
        let Arrangement { stages, owners, .. } = &arrangement;
        arrangement.estimate = self.problem.costs().estimate(&seats, stages, owners)?;
        Some(arrangement)
    }
}

/// Shares of `n` experts of devices, each with room for so many, in proportion to their rates: what one lacks room for goes
/// to the others likewise. `None` where there is too little.
fn in_proportion(n: usize, devices: &[(usize, usize)], rates: &[f64]) -> Option<Vec<usize>> {
    let mut total: f64 = devices.iter().map(|(at, _)| rates[*at]).sum();
    let mut left = n;
    let whole = total;
    let mut share = |&(at, room): &(usize, usize)| {
        let share = ((left as f64 * rates[at] / total).round() as usize).min(room).min(left);
        left -= share;
        total -= rates[at];
        share
    };
    let is_short = |(at, room): &(usize, usize)| (*room as f64) < (n as f64 * rates[*at] / whole).ceil();
    let mut shares: Vec<usize> = if devices.iter().any(is_short) {
        // Those with the least room for what they read come first: others have what they leave.
        let mut order: Vec<usize> = (0..devices.len()).collect();
        let per_rate = |at: usize| devices[at].1 as f64 / rates[devices[at].0];
        order.sort_by(|&a, &b| per_rate(a).total_cmp(&per_rate(b)));
        let mut shares = vec![0; devices.len()];
        order.into_iter().for_each(|at| shares[at] = share(&devices[at]));
        shares
    } else {
        devices.iter().map(share).collect()
    };
    // What rounding left over.
    for (share, (_, room)) in shares.iter_mut().zip(devices) {
        let more = left.min(room - *share);
        *share += more;
        left -= more;
    }
    (left == 0).then_some(shares)
}

/// Without the layers of which everything is where their attention is.
fn without_own(stages: &[(usize, Range<usize>)], owners: Vec<Owner>) -> Vec<Owner> {
    let home =
        |layer: usize| stages.iter().find(|(_, layers)| layers.contains(&layer)).map(|(seat, _)| *seat);
    let away = |layer: &[Owner]| layer.iter().any(|owner| Some(owner.seat) != home(owner.layer));
    owners.chunk_by(|a, b| a.layer == b.layer).filter(|layer| away(layer)).flatten().cloned().collect()
}

fn on_others(owners: &[Owner], own: usize) -> String {
    let seats = owners.iter().map(|owner| owner.seat).filter(|&seat| seat != own);
    let mut seen = vec![false; owners.iter().map(|owner| owner.seat + 1).max().unwrap_or(0)];
    match seats.filter(|&seat| !std::mem::replace(&mut seen[seat], true)).count() {
        0 => "feed-forward blocks too".to_owned(),
        1 => "feed-forward blocks on another".to_owned(),
        n => format!("feed-forward blocks and experts on {n} others"),
    }
}
