//! Who else can have an expert? More owners, where there is room.

use super::arrange::Arrangement;
use super::cost::Owner;
use super::fixed::may_serve;
use super::problem::Problem;

/// Further owners, and whether they are as many as were asked for.
pub(super) struct Replicas {
    pub(super) owners: Vec<Owner>,
    /// Blocks and experts on other nodes than their layers' attention.
    away: usize,
    /// Those of them that have fewer further owners.
    short: usize,
}

impl Replicas {
    /// Up to so many further owners for each that is on another node than its layer's attention: on other nodes than those
    /// that have it, linked with where that attention is, with the same engine's devices. Devices take turns.
    pub(super) fn new(
        problem: &Problem<'_>,
        arrangement: &Arrangement,
        free: &mut [u64],
        copies: usize,
    ) -> Self {
        let mut replicas = Self { owners: Vec::new(), away: 0, short: 0 };
        let seats = if copies > 0 { arrangement.group(problem) } else { Vec::new() };
        let n = seats.len();
        let mut turn = 0;
        for (owner, home) in away(problem, arrangement) {
            let weights = owner.weights(&problem.inventory.layers[owner.layer]);
            let charged = |seat: usize| problem.charged(&[seat], weights);
            let mut having = vec![problem.seats[owner.seat].node];
            while having.len() <= copies {
                let found = (0..n).map(|step| (turn + step) % n).find(|&at| {
                    let seat = seats[at];
                    free[seat] >= charged(seat)
                        && may_help(problem, home, seat)
                        && !having.contains(&problem.seats[seat].node)
                });
                let Some(at) = found else { break };
                free[seats[at]] -= charged(seats[at]);
                turn = at + 1;
                having.push(problem.seats[seats[at]].node);
                replicas.owners.push(Owner { seat: seats[at], ..owner.clone() });
            }
            replicas.away += owner.experts.len();
            replicas.short += if having.len() <= copies { owner.experts.len() } else { 0 };
        }
        replicas
    }

    /// What is missing of so many.
    pub(super) fn warning(&self, copies: usize) -> Option<String> {
        match (copies, self.away, self.short) {
            (0, ..) | (_, 1.., 0) => None,
            (_, 0, _) => Some(
                "all blocks and experts are on the node of their layers' attention: they get no replicas"
                    .to_owned(),
            ),
            (_, away, short) => Some(format!(
                "of {away} blocks and experts on other nodes {short} have fewer than {copies} replicas: there is no room \
                 on further nodes"
            )),
        }
    }
}

/// The owners on other nodes than their layers' attention, with where that is. What is lost with the attention needs no other
/// owner.
fn away<'a>(
    problem: &'a Problem<'_>,
    arrangement: &'a Arrangement,
) -> impl Iterator<Item = (&'a Owner, usize)> {
    let home = |owner: &Owner| {
        let stage = arrangement.stages.iter().find(|(_, layers)| layers.contains(&owner.layer));
        stage.map(|(seat, _)| *seat)
    };
    let node = |seat: usize| problem.seats[seat].node;
    let owners = arrangement.owners.iter().filter_map(move |owner| Some((owner, home(owner)?)));
    owners.filter(move |(owner, home)| node(owner.seat) != node(*home))
}

/// Whether a device can compute blocks of others for a layer whose attention `home` has. On the same node only `cpu` does.
fn may_help(problem: &Problem<'_>, home: usize, seat: usize) -> bool {
    let (from, to) = (&problem.seats[home], &problem.seats[seat]);
    match from.node == to.node {
        true => to.disk.is_some() && may_serve(from, to),
        false => problem.links.join(from.node, to.node),
    }
}
