//! Which devices can work together, around which of their nodes, and which ways are tried there?

use std::rc::Rc;

use super::COORDINATORS;
use super::arrange::{Arrangement, QUARTERS};
use super::fill::{Parts, Room};
use super::problem::Problem;
use super::sets::SETS;
use crate::plan::inventory::LayerBytes;

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
    pub(super) cuts: Vec<usize>,
    pub(super) experts: Parts,
    /// Of `experts`, the ends of layers.
    pub(super) blocks: Vec<usize>,
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
    pub(super) holds_fixed: bool,
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
        let bytes = self.rooms_for_blocks(&self.seats).map(|room| room.bytes).fold(0, u64::saturating_add);
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
            node == coordinator || self.wide && problem.links.join(coordinator, node)
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
    pub(super) fn least_nodes(&self, coordinator: usize) -> usize {
        let required = &self.problem.required;
        self.problem.request.min_nodes.max(required.len() + usize::from(!required.contains(&coordinator)))
    }

    pub(super) fn rooms<'b>(&'b self, seats: &'b [usize]) -> impl Iterator<Item = Room> + 'b {
        seats.iter().map(|&seat| self.problem.room(seat, self.scale))
    }

    pub(super) fn rooms_for_blocks<'b>(&'b self, seats: &'b [usize]) -> impl Iterator<Item = Room> + 'b {
        seats.iter().map(|&seat| self.problem.room_for_blocks(seat, self.scale))
    }
}
