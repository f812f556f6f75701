//! Which sessions take part in the next step, with how many rows? Everyone who decodes, and prompts in equal shares.

/// A session that could take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its number among all that run.
    pub(super) at: usize,
    /// Rows that are yet to be computed.
    pub(super) pending: usize,
    /// They end in its next token, and are few.
    pub(super) decodes: bool,
    /// The most that it takes in a step.
    pub(super) most: usize,
    pub(super) priority: i32,
}

/// What a step may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Rows of all sessions.
    pub(super) rows: usize,
    /// Rows of prompts.
    pub(super) chunk: usize,
}

/// Rows of prompts that a step has at least beside sessions that decode, where there are so many.
const LEAST: usize = 32;

/// Chooses rows of candidates; `first` is the step's number, by which those that decode take turns where there are too
/// many: each is the first one now and then. `chosen` takes their numbers and rows.
///
/// Where somebody decodes, prompts get a quarter of a chunk, so that nobody waits long for his next token. Higher
/// priorities go first. Among equals short prompts get all they need, and long ones share the rest: a short prompt is
/// computed in the next step, whatever else is under way.
pub(super) fn share(
    room: Room,
    candidates: &mut [Candidate],
    first: usize,
    chosen: &mut Vec<(usize, usize)>,
) {
    chosen.clear();
    // Those that decode, then prompts from short to long.
    candidates.sort_unstable_by_key(|c| (std::cmp::Reverse(c.priority), c.pending, c.at));
    let mut rows = room.rows;
    let decoding = candidates.iter().filter(|c| c.decodes).count();
    for i in 0..decoding.min(rows) {
        let turn = (first + i) % decoding;
        let candidate = candidates.iter().filter(|c| c.decodes).nth(turn);
        if let Some(candidate) = candidate.filter(|c| c.pending <= rows) {
            chosen.push((candidate.at, candidate.pending));
            rows -= candidate.pending;
        }
    }
    let mut chunk =
        if decoding > 0 { (room.chunk / 4).max(LEAST).min(room.chunk) } else { room.chunk }.min(rows);
    let prompts = || candidates.iter().filter(|c| !c.decodes);
    let mut priority = prompts().next().map(|c| c.priority);
    while let Some(own) = priority {
        let mut left = prompts().filter(|c| c.priority == own).count();
        for candidate in prompts().filter(|c| c.priority == own) {
            let n = candidate.pending.min(candidate.most).min(chunk.div_ceil(left)).min(chunk);
            if n > 0 {
                chosen.push((candidate.at, n));
            }
            chunk -= n;
            left -= 1;
        }
        priority = prompts().map(|c| c.priority).filter(|other| *other < own).max();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(room: [usize; 2], candidates: &[(usize, i32)], first: usize) -> Vec<(usize, usize)> {
        let of = |(at, &(pending, priority)): (usize, &(usize, i32))| Candidate {
            at,
            pending,
            decodes: pending == 1,
            most: 1000,
            priority,
        };
        let mut candidates: Vec<_> = candidates.iter().enumerate().map(of).collect();
        let mut chosen = Vec::new();
        share(Room { rows: room[0], chunk: room[1] }, &mut candidates, first, &mut chosen);
        chosen.sort_unstable();
        chosen
    }

    #[test]
    fn prompts_share_a_chunk_and_short_ones_get_all() {
        assert_eq!(chosen([256, 256], &[(4000, 0)], 0), [(0, 256)]);
        assert_eq!(chosen([256, 256], &[(4000, 0), (30, 0)], 0), [(0, 226), (1, 30)]);
        assert_eq!(chosen([256, 256], &[(4000, 0), (3000, 0), (10, 0)], 0), [(0, 123), (1, 123), (2, 10)]);
        assert_eq!(chosen([3, 2], &[(9, 0), (9, 0), (9, 0)], 0), [(0, 1), (1, 1)]);
    }

    #[test]
    fn who_decodes_takes_part_and_leaves_prompts_a_quarter() {
        assert_eq!(chosen([256, 256], &[(1, 0), (4000, 0), (1, 0)], 0), [(0, 1), (1, 64), (2, 1)]);
        assert_eq!(chosen([16, 8], &[(1, 0), (4000, 0)], 0), [(0, 1), (1, 8)]);
        // Too many: they take turns.
        let many = [(1, 0); 5];
        let mut seen = [0; 5];
        for step in 0..5 {
            let chosen = chosen([2, 2], &many, step);
            assert_eq!(chosen.len(), 2);
            chosen.iter().for_each(|(at, _)| seen[*at] += 1);
        }
        assert_eq!(seen, [2; 5]);
    }

    /// However many rows the others have, none waits for ever.
    #[test]
    fn who_decodes_several_rows_has_turns() {
        for (rows, pending) in [(16, vec![1, 1, 15]), (3, vec![1, 1, 1, 1, 3]), (20, vec![19, 1, 20])] {
            let mut seen = vec![0; pending.len()];
            for step in 0..5 * pending.len() {
                let of = |(at, &pending): (usize, &usize)| {
                    let decodes = true;
                    Candidate { at, pending, decodes, most: 1000, priority: 0 }
                };
                let mut candidates: Vec<_> = pending.iter().enumerate().map(of).collect();
                candidates.push(Candidate { at: 9, pending: 50, decodes: false, most: 1000, priority: 0 });
                let mut chosen = Vec::new();
                share(Room { rows, chunk: rows }, &mut candidates, step, &mut chosen);
                assert!(chosen.iter().map(|(_, rows)| rows).sum::<usize>() <= rows);
                chosen.iter().filter(|(at, _)| *at < 9).for_each(|(at, _)| seen[*at] += 1);
            }
            assert!(seen.iter().all(|seen| *seen >= 5), "{rows}, {pending:?}: {seen:?}");
        }
    }

    #[test]
    fn higher_priorities_go_first() {
        assert_eq!(chosen([64, 64], &[(500, 0), (50, 2), (500, 1)], 0), [(1, 50), (2, 14)]);
    }
}
