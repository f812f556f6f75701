//! Which devices share a layer's experts, to read them at the same time?

use super::arrange::{Arrangement, on_others, without_own};
use super::cost::Owner;
use super::fill::Room;
use super::group::Group;

impl Group<'_> {
    /// Each layer's experts on so many devices. These give to each layer what is left of their memory, the first ones most,
    /// or, `evenly`, as much as to those that follow.
    pub(super) fn side_by_side(
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
