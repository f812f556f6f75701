//! What do plans and engines count alike? Positions that a layer keeps of a sequence, which are whole pages, and behind a
//! window those that a step's rows see; rows of a step; tokens that drafts look at.

/// Positions of a page.
pub(crate) const PAGE: usize = 64;

/// Prompt tokens that pass through the layers together, unless loading is asked for others.
pub(crate) const CHUNK: usize = 256;

/// The first tokens of a vocabulary that drafts look at on processors, as many as draft vocabularies of EAGLE heads mostly
/// have; and tokens behind them that texts had lately.
pub(crate) const SHORTLIST: [usize; 2] = [1 << 15, 1 << 10];

/// How many of so many tokens drafts look at on processors: all, where a shortlist would be no shorter than half of them.
pub(crate) fn shortlisted(tokens: usize) -> usize {
    let listed = SHORTLIST[0] + SHORTLIST[1];
    if tokens / 2 < listed { tokens } else { listed }
}

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
