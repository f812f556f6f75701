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
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use super::around::Pin;
use super::cost::Owner;
use super::disk::OnDisk;
use super::fill::{Parts, Room};
use super::fixed::may_serve;
use super::group::Group;
use super::problem::Problem;
use super::seats::Seat;
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

    /// The devices that can work together with all of these, where they are linked.
    pub(super) fn group(&self, problem: &Problem<'_>) -> Vec<usize> {
        let stages = self.stages.iter().map(|(seat, _)| *seat);
        let used: BTreeSet<usize> = stages.chain(self.owners.iter().map(|owner| owner.seat)).collect();
        let has_all = |(seats, _): &(Vec<usize>, bool)| used.iter().all(|seat| seats.contains(seat));
        let Some((mut seats, wide)) = problem.groups().into_iter().find(has_all) else { return Vec::new() };
        let own = self.nodes(problem);
        seats.retain(|&seat| wide || own.contains(&problem.seats[seat].node));
        seats
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

impl Group<'_> {
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
        let rooms = [own].into_iter().chain(self.rooms_for_blocks(&others)).collect();
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

    pub(super) fn partly_on_disk(&self, seat: usize, reached: &[usize]) -> Option<Arrangement> {
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
        let words = format!("attention on one device, {}", on_others(&owners, seat));
        let budget = problem.weights_within(processor, bytes);
        let mut found = self.arranged_with(Some((processor, budget)), stages, owners, words)?;
        // All of them may fit after all, where others take as much as they can first.
        if found.disk.is_some() {
            found.words.push_str(", some from disk");
        }
        Some(found)
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
            problem.links.join_all()
                || homes.iter().all(|&home| home == node || problem.links.join(home, node))
        };
        let may = |seat: &usize| {
            let serves =
                |used: usize| used != *seat && may_serve(&problem.seats[used], &problem.seats[*seat]);
            stages.iter().all(|(used, _)| serves(*used))
        };
        let others: Vec<usize> = reached.iter().copied().filter(may).filter(is_linked).collect();
        let mut used: Vec<usize> = stages.iter().map(|(seat, _)| problem.seats[*seat].node).collect();
        used.sort_unstable();
        used.dedup();
        let ranges =
            self.model.experts.fill(self.rooms_for_blocks(&others), used, self.least_nodes(coordinator))?;
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
    pub(super) fn growths(&self) -> RangeInclusive<u64> {
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
        let owners = without_own(&stages, fixed.complete(owners, &inventory.layers, &homes));
        if !owners.iter().all(can_serve) {
            return None;
        }
        let mut arrangement =
            Arrangement { stages, owners, disk: None, estimate: Estimate::default(), words };
        let Arrangement { stages, owners, .. } = &arrangement;
        if let Some((seat, budget)) = budget {
            let disk = OnDisk::new(self.problem, seat, budget, stages, owners)?;
            arrangement.disk = Some(disk).filter(|disk| disk.bytes > 0);
        }
        let seats = arrangement.seats(self.problem);
        let Arrangement { stages, owners, .. } = &arrangement;
        arrangement.estimate = self.problem.costs().estimate(&seats, stages, owners)?;
        Some(arrangement)
    }
}

/// Without the layers of which everything is where their attention is.
pub(super) fn without_own(stages: &[(usize, Range<usize>)], owners: Vec<Owner>) -> Vec<Owner> {
    let home =
        |layer: usize| stages.iter().find(|(_, layers)| layers.contains(&layer)).map(|(seat, _)| *seat);
    let away = |layer: &[Owner]| layer.iter().any(|owner| Some(owner.seat) != home(owner.layer));
    owners.chunk_by(|a, b| a.layer == b.layer).filter(|layer| away(layer)).flatten().cloned().collect()
}

pub(super) fn on_others(owners: &[Owner], own: usize) -> String {
    let seats = owners.iter().map(|owner| owner.seat).filter(|&seat| seat != own);
    let mut seen = vec![false; owners.iter().map(|owner| owner.seat + 1).max().unwrap_or(0)];
    match seats.filter(|&seat| !std::mem::replace(&mut seen[seat], true)).count() {
        0 => "feed-forward blocks too".to_owned(),
        1 => "feed-forward blocks on another".to_owned(),
        n => format!("feed-forward blocks and experts on {n} others"),
    }
}
