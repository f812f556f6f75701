//! How many positions does a layer keep of a sequence? Whole pages, and behind a window those that a step's rows see.

/// Positions of a page.
pub(crate) const PAGE: usize = 64;

/// Prompt tokens that pass through the layers together, unless loading is asked for others.
pub(crate) const CHUNK: usize = 256;

/// Positions that a layer keeps at most of a sequence of `context` positions, in steps of up to `rows` rows: of as many as
/// `window` it sees in a step, or of all.
pub(crate) fn kept_positions(window: Option<u64>, context: u64, rows: u64) -> u64 {
    let pages = |positions: u64| positions.div_ceil(PAGE as u64);
    let all = pages(context);
    // The first row of a step still sees `window - 1` positions before it, from some place in a page on.
    let seen = |window: u64| pages(window.saturating_sub(1).saturating_add(rows)).saturating_add(1);
    window.map_or(all, |window| seen(window).min(all)).saturating_mul(PAGE as u64)
}

/// Rows of a step that has room for a prompt's `chunk` beside the tokens of the other sessions.
pub(crate) fn step_rows(chunk: usize, sessions: usize) -> usize {
    chunk.saturating_add(sessions.saturating_sub(1))
}
