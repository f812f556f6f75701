//! Who else can have an expert? More owners, where there is room.

use super::cost::Owner;
use super::problem::Problem;

/// Up to so many further owners for each that there is: on other nodes than those that have it, linked with
/// where its layer's attention is. Devices take turns.
pub(super) fn more_owners(
    problem: &Problem<'_>,
    stages: &[(usize, std::ops::Range<usize>)],
    owners: &[Owner],
    free: &mut [u64],
    copies: usize,
) -> Vec<Owner> {
    let n = problem.seats.len();
    let mut added: Vec<Owner> = Vec::new();
    let mut turn = 0;
    for owner in owners {
        let bytes = problem.charged(&[owner.seat], owner.weights(&problem.inventory.layers[owner.layer]));
        let Some((home, _)) = stages.iter().find(|(_, layers)| layers.contains(&owner.layer)) else {
            continue;
        };
        let home = problem.seats[*home].node;
        let mut having = vec![problem.seats[owner.seat].node];
        for _ in 0..copies.min(n) {
            let found = (0..n).map(|step| (turn + step) % n).find(|&seat| {
                let node = problem.seats[seat].node;
                let reached = node == home || problem.links.speed(home, node).is_some();
                free[seat] >= bytes && reached && !having.contains(&node)
            });
            let Some(seat) = found else { break };
            free[seat] -= bytes;
            turn = seat + 1;
            having.push(problem.seats[seat].node);
            added.push(Owner { seat, ..owner.clone() });
        }
    }
    added
}
