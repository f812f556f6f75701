//! Does every sequence have the pages it needs, and nobody else's? Random sequences on a store that remembers what was
//! written where.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use crate::arch::{STATES_HELD, Window};
use crate::bytes::ByteSize;
use crate::engine::Segment;
use crate::engine::backend::{PAGE, Spans, first_block};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{SeqId, TokenId};
use crate::model::pages::{GroupSpec, Pages, Sequence, Store};

/// What each page holds: by slot the tokens up to there, as one number.
#[derive(Default)]
struct Memory {
    pages: HashMap<(usize, u32), [u64; PAGE]>,
    /// Adding fails when there are so many.
    most: usize,
    releases: bool,
    windows: Vec<Option<Window>>,
    /// The group of states.
    state: Option<usize>,
}

impl Store for Memory {
    fn releases(&self) -> bool {
        self.releases
    }

    fn add(&mut self, group: usize, page: u32) -> Result<()> {
        if self.pages.len() >= self.most {
            return Err(Error::new(ErrorKind::OutOfMemory, "no more"));
        }
        assert!(self.pages.insert((group, page), [u64::MAX; PAGE]).is_none(), "a page is added twice");
        Ok(())
    }

    fn release(&mut self, group: usize, page: u32) {
        assert!(self.releases && self.pages.remove(&(group, page)).is_some(), "a page is released twice");
    }

    fn copy(&mut self, group: usize, from: u32, to: u32) -> Result<()> {
        let from = self.pages[&(group, from)];
        *self.pages.get_mut(&(group, to)).unwrap() = from;
        Ok(())
    }
}

const WINDOWS: [Option<Window>; 5] =
    [None, Some(Window::Sliding(100)), Some(Window::Sliding(1)), Some(Window::Chunk(70)), None];
/// The last group has states.
const STATES: usize = 4;

fn groups() -> Vec<GroupSpec> {
    let bytes = [3, 5, 1, 2, 4];
    WINDOWS
        .iter()
        .zip(bytes)
        .enumerate()
        .map(|(at, (&window, page_bytes))| GroupSpec {
            window,
            state: at == STATES,
            page_bytes,
            full: page_bytes,
        })
        .collect()
}

/// A number for a token behind others.
fn sum(before: u64, token: TokenId) -> u64 {
    (before.wrapping_mul(31) ^ u64::from(token.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A sequence beside what it must be.
struct Tracked {
    sequence: Sequence,
    tokens: Vec<TokenId>,
}

impl Tracked {
    /// Runs a step as a shard does: what each row sees is there, what it adds is written.
    fn step(&mut self, pages: &mut Pages, store: &mut Memory, tokens: &[TokenId]) -> Result<()> {
        self.drafted(pages, store, tokens, 0)
    }

    /// The same, the last few tokens being drafted ones.
    fn drafted(
        &mut self,
        pages: &mut Pages,
        store: &mut Memory,
        tokens: &[TokenId],
        drafted: usize,
    ) -> Result<()> {
        let start = self.tokens.len();
        assert_eq!(self.sequence.len(), start);
        pages.reserve(&mut self.sequence, start + tokens.len(), store)?;
        self.tokens.extend(tokens);
        let sums: Vec<u64> = self
            .tokens
            .iter()
            .scan(7, |all, token| {
                *all = sum(*all, *token);
                Some(*all)
            })
            .collect();
        for (group, window) in store.windows.clone().into_iter().enumerate() {
            if store.state == Some(group) {
                let run = pages
                    .begin(&mut self.sequence, group, 0, &segment(tokens.len(), drafted), store)
                    .expect("what was reserved");
                let before = run.from.map(|page| store.pages[&(group, page)][0]);
                assert_eq!(before, start.checked_sub(1).map(|last| sums[last]), "the state before {start}");
                for (rows, page) in [Some((tokens.len(), run.to)), run.mark].into_iter().flatten() {
                    let state = store.pages.get_mut(&(group, page)).expect("memory for the state");
                    state[0] = sums[start + rows - 1];
                }
                continue;
            }
            let mut spans = Spans::default();
            self.sequence.span(group, window, tokens.len(), &mut spans);
            let span = &spans.list[0];
            assert_eq!((span.start, span.rows.clone()), (start, 0..tokens.len()));
            let table = spans.pages_of(span);
            assert!(span.first_block <= first_block(window, start));
            let place =
                |position: usize| ((group, table[position / PAGE - span.first_block]), position % PAGE);
            for (position, sum) in sums.iter().enumerate().skip(start) {
                let (page, slot) = place(position);
                store.pages.get_mut(&page).expect("memory for the row")[slot] = *sum;
            }
            for row in start..start + tokens.len() {
                let first = window.map_or(0, |window| window.first(row));
                for (position, sum) in sums.iter().enumerate().take(row + 1).skip(first) {
                    let (page, slot) = place(position);
                    assert_eq!(store.pages[&page][slot], *sum, "what row {row} sees at {position}");
                }
            }
        }
        pages.commit(&mut self.sequence, tokens, store);
        Ok(())
    }
}

fn segment(rows: usize, drafted: usize) -> Segment {
    Segment::new(SeqId(0), 0, rows).drafted(drafted)
}

#[derive(Debug, Clone)]
enum Action {
    Open(usize),
    Step(usize, usize),
    Drafted(usize, usize, usize),
    Failed(usize, usize),
    Fork(usize, usize),
    Truncate(usize, usize),
    Close(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let at = 0usize..100;
    prop::collection::vec(
        prop_oneof![
            2 => at.clone().prop_map(Action::Open),
            6 => (at.clone(), 1usize..150).prop_map(|(at, n)| Action::Step(at, n)),
            4 => (at.clone(), 2usize..20, 1usize..20).prop_map(|(at, n, drafted)| Action::Drafted(at, n, drafted)),
            1 => (at.clone(), 1usize..150).prop_map(|(at, n)| Action::Failed(at, n)),
            2 => (at.clone(), 0usize..1000).prop_map(|(at, n)| Action::Fork(at, n)),
            2 => (at.clone(), 0usize..1000).prop_map(|(at, n)| Action::Truncate(at, n)),
            2 => at.prop_map(Action::Close),
        ],
        1..60,
    )
}

/// A few texts, so that many sequences begin alike.
fn token(text: usize, position: usize) -> TokenId {
    TokenId((position / 90 * (text % 3) + position % 7) as u32)
}

proptest! {
    #[test]
    fn sequences_see_their_own_tokens_and_nothing_is_lost(
        actions in actions(),
        budget in prop_oneof![Just(None), (9u64..200).prop_map(Some)],
        (releases, most) in (any::<bool>(), prop_oneof![Just(usize::MAX), 5usize..60]),
    ) {
        let (windows, state) = (WINDOWS.to_vec(), Some(STATES));
        let mut store = Memory { most, releases, windows, state, ..Memory::default() };
        let mut pages = Pages::new(&groups(), budget.map(ByteSize), 40);
        let mut all: Vec<Tracked> = Vec::new();
        for (number, action) in actions.into_iter().enumerate() {
            let n = all.len();
            match action {
                Action::Open(text) => {
                    let tokens: Vec<_> = (0..300).map(|at| token(text, at)).collect();
                    let sequence = pages.open(&tokens);
                    let tokens = tokens[..sequence.len()].to_vec();
                    all.push(Tracked { sequence, tokens });
                }
                _ if n == 0 => {}
                Action::Step(at, rows) => {
                    let tracked = &mut all[at % n];
                    let start = tracked.tokens.len();
                    let tokens: Vec<_> = (start..start + rows).map(|position| token(at, position)).collect();
                    let found = tracked.step(&mut pages, &mut store, &tokens);
                    prop_assert!(found.is_ok() || budget.is_some() || most < usize::MAX);
                }
                Action::Drafted(at, rows, drafted) => {
                    let tracked = &mut all[at % n];
                    let (start, drafted) = (tracked.tokens.len(), drafted.min(rows - 1));
                    let tokens: Vec<_> = (start..start + rows).map(|position| token(at, position)).collect();
                    let ample = budget.is_none() && most == usize::MAX;
                    if tracked.drafted(&mut pages, &mut store, &tokens, drafted).is_ok() {
                        let sure = start + rows - drafted;
                        let back = pages.longest(&tracked.sequence, sure);
                        prop_assert!(back >= start, "{} of {}", back, sure);
                        prop_assert!(!ample || back == sure || back.is_multiple_of(PAGE), "{} of {}", back, sure);
                    } else {
                        prop_assert!(!ample);
                    }
                }
                Action::Failed(at, rows) => {
                    // Something is written and not committed.
                    let Tracked { sequence, .. } = &mut all[at % n];
                    if pages.reserve(sequence, sequence.len() + rows, &mut store).is_ok() {
                        let run = pages.begin(sequence, STATES, 0, &segment(rows, rows / 2), &mut store).unwrap();
                        store.pages.get_mut(&(STATES, run.to)).unwrap()[0] = 1;
                    }
                }
                Action::Fork(at, len) => {
                    let from = &all[at % n];
                    let len = len % (from.tokens.len() + 1);
                    let sequence = pages.fork(&from.sequence, len);
                    prop_assert!(sequence.len() <= len);
                    let tokens = from.tokens[..sequence.len()].to_vec();
                    all.push(Tracked { sequence, tokens });
                }
                Action::Truncate(at, len) => {
                    let tracked = &mut all[at % n];
                    let len = len % (tracked.tokens.len() + 1);
                    let kept = pages.truncate(&mut tracked.sequence, len, &mut store);
                    prop_assert!(kept <= len && kept == tracked.sequence.len());
                    tracked.tokens.truncate(kept);
                }
                Action::Close(at) => pages.close(all.swap_remove(at % n).sequence, &mut store),
            }
            let states = all.iter().map(|tracked| tracked.sequence.all_states().len());
            prop_assert!(states.max().unwrap_or(0) <= STATES_HELD as usize + 1, "after action {}", number);
            let memory = pages.memory();
            let bytes = |group: usize| groups()[group].page_bytes;
            prop_assert_eq!(memory.reserved.bytes(), store.pages.keys().map(|(group, _)| bytes(*group)).sum::<u64>());
            prop_assert!(memory.in_use.bytes() + memory.kept.bytes() <= memory.reserved.bytes());
            prop_assert!(budget.is_none_or(|most| memory.reserved.bytes() <= most), "after action {}", number);
            let mut used: HashSet<_> = all.iter().flat_map(|tracked| tracked.sequence.pages()).collect();
            let states = all.iter().flat_map(|tracked| tracked.sequence.all_states());
            used.extend(states.map(|state| (STATES, state)));
            prop_assert_eq!(memory.in_use.bytes(), used.iter().map(|(group, _)| bytes(*group)).sum::<u64>());
        }
        for tracked in all {
            pages.close(tracked.sequence, &mut store);
        }
        prop_assert_eq!(pages.memory().in_use.bytes(), 0);
        // Only what is kept is still known.
        prop_assert_eq!(pages.known(), pages.labelled());
        prop_assert!(pages.memory().kept.bytes() > 0 || pages.known() == 0);
    }
}

fn sequence(pages: &mut Pages, store: &mut Memory, text: usize, len: usize) -> Tracked {
    let mut tracked = Tracked { sequence: pages.open(&[]), tokens: Vec::new() };
    for at in (0..len).step_by(50) {
        let tokens: Vec<_> = (at..len.min(at + 50)).map(|position| token(text, position)).collect();
        tracked.step(pages, store, &tokens).unwrap();
    }
    tracked
}

fn store(windows: &[Option<Window>]) -> Memory {
    Memory { most: usize::MAX, releases: true, windows: windows.to_vec(), ..Memory::default() }
}

#[test]
fn what_begins_alike_is_stored_once() {
    let (mut store, mut pages) = (store(&WINDOWS[..1]), Pages::new(&groups()[..1], None, 1000));
    let one = sequence(&mut pages, &mut store, 0, 320);
    let alone = pages.memory().in_use;
    // Found before it is computed, and found equal afterwards.
    let found = pages.open(&one.tokens);
    assert_eq!((found.len(), pages.memory().in_use), (320, alone));
    let again = sequence(&mut pages, &mut store, 0, 320);
    assert_eq!(pages.memory().in_use, alone);
    let other: Vec<_> = (0..320).map(|at| token(1, at)).collect();
    let part = pages.open(&other);
    assert_eq!(part.len(), 64, "texts part at 90");
    for sequence in [one.sequence, again.sequence, found, part] {
        pages.close(sequence, &mut store);
    }
    let memory = pages.memory();
    assert_eq!((memory.in_use.bytes(), memory.kept), (0, alone));
    assert_eq!(pages.open(&one.tokens[..319]).len(), 256);
}

#[test]
fn the_least_recently_used_goes_first() {
    // Two texts of three pages, and room for four.
    let (mut store, mut pages) = (store(&WINDOWS[..1]), Pages::new(&groups()[..1], Some(ByteSize(4 * 3)), 0));
    for text in [1, 2] {
        let tracked = sequence(&mut pages, &mut store, text, 192);
        pages.close(tracked.sequence, &mut store);
    }
    let texts = [1, 2].map(|text| (0..192).map(|at| token(text, at)).collect::<Vec<_>>());
    let found = texts.each_ref().map(|text| pages.open(text));
    // Both begin alike. Of the first one the end went.
    assert_eq!(found.each_ref().map(Sequence::len), [128, 192]);
    let mut fork = pages.fork(&found[0], 128);
    let error = pages.reserve(&mut fork, 192, &mut store).unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::OutOfMemory, crate::error::Retry::Now));
}

#[test]
fn windows_go_back_to_what_is_kept_and_no_further() {
    // The other text has the first page, as both begin alike.
    for (budget, expected) in [(None, 300), (Some(ByteSize(9 * 5)), 64)] {
        let (mut store, mut pages) = (store(&WINDOWS[1..2]), Pages::new(&groups()[1..2], budget, 1000));
        let mut tracked = sequence(&mut pages, &mut store, 0, 700);
        if budget.is_some() {
            // Somebody else needs the memory.
            let _ = sequence(&mut pages, &mut store, 1, 300);
        }
        assert_eq!(pages.truncate(&mut tracked.sequence, 300, &mut store), expected);
    }
}

/// Texts that have nothing in common, of three pages each, one after another.
fn many(pages: &mut Pages, store: &mut Memory) {
    for text in 0..20 {
        let mut tracked = Tracked { sequence: pages.open(&[]), tokens: Vec::new() };
        let tokens: Vec<_> = (0..192).map(|at| TokenId(text * 1000 + at)).collect();
        tracked.step(pages, store, &tokens).unwrap();
        pages.close(tracked.sequence, store);
    }
}

#[test]
fn memory_that_cannot_be_given_back_is_used_again() {
    let (mut store, mut pages) = (store(&WINDOWS[..1]), Pages::new(&groups()[..1], None, 5 * 3));
    store.releases = false;
    many(&mut pages, &mut store);
    // Three pages that are in use, and five beside them.
    assert!(store.pages.len() <= 3 + 5, "{} pages", store.pages.len());
    assert!(store.pages.len() >= 5);
}

#[test]
fn what_is_kept_makes_room_where_memory_ends() {
    for releases in [false, true] {
        let (mut store, mut pages) = (store(&WINDOWS[..1]), Pages::new(&groups()[..1], None, 1 << 20));
        (store.releases, store.most) = (releases, 6);
        many(&mut pages, &mut store);
        assert_eq!(store.pages.len(), 6);
    }
}

/// Sequences of states go back to their last step, to borders that were kept, and to the beginning.
#[test]
fn states_go_back_to_where_one_is_kept() {
    let groups = &groups()[STATES..];
    let mut store = Memory { state: Some(0), ..store(&WINDOWS[STATES..]) };
    let mut pages = Pages::new(groups, None, 4 * 4);
    let mut tracked = Tracked { sequence: pages.open(&[]), tokens: Vec::new() };
    let tokens: Vec<_> = (0..500).map(|at| token(0, at)).collect();
    let step = |tracked: &mut Tracked, pages: &mut Pages, store: &mut Memory, to: usize| {
        let from = tracked.tokens.len();
        tracked.step(pages, store, &tokens[from..to]).unwrap();
    };
    step(&mut tracked, &mut pages, &mut store, 150);
    (151..300).for_each(|to| step(&mut tracked, &mut pages, &mut store, to));
    let lengths = [299, 298, 297, 256, 255, 150, 128, 127];
    let found = lengths.map(|len| pages.longest(&tracked.sequence, len));
    assert_eq!(found, [299, 298, 256, 256, 128, 128, 128, 0]);
    // Others find what was kept of a text, and begin there.
    let other = pages.open(&tokens[..200]);
    assert_eq!(other.len(), 128);
    pages.close(other, &mut store);
    // No more than are held, however far it goes on.
    (300..460).for_each(|to| step(&mut tracked, &mut pages, &mut store, to));
    assert!(pages.memory().in_use.bytes() <= (STATES_HELD - 1) * 4, "{:?}", pages.memory());
    for len in [459, 448, 128] {
        assert_eq!(pages.truncate(&mut tracked.sequence, len, &mut store), len);
    }
    assert_eq!(pages.truncate(&mut tracked.sequence, 127, &mut store), 0);
}

/// Whatever is drafted, sequences of states go back to what was sure, and hold no more than is counted.
#[test]
fn states_go_back_to_before_what_was_drafted() {
    let groups = &groups()[STATES..];
    let mut store = Memory { state: Some(0), ..store(&WINDOWS[STATES..]) };
    let mut pages = Pages::new(groups, None, 4 * 4);
    let mut tracked = Tracked { sequence: pages.open(&[]), tokens: Vec::new() };
    let tokens: Vec<_> = (0..700).map(|at| token(0, at)).collect();
    tracked.step(&mut pages, &mut store, &tokens[..150]).unwrap();
    let mut again = 0;
    for (at, drafted) in (1usize..16).cycle().take(200).enumerate() {
        let start = tracked.tokens.len();
        let sure = start + again + 1;
        // As steps do, which end at borders.
        let drafted = drafted.min(PAGE - sure % PAGE);
        tracked.drafted(&mut pages, &mut store, &tokens[start..sure + drafted], drafted).unwrap();
        assert!(pages.memory().in_use.bytes() <= STATES_HELD * 4, "{:?}", pages.memory());
        // A border is passed once, however often it is computed.
        let accepted = at * 7 % (drafted + 1);
        let right = sure + accepted;
        let kept = pages.truncate(&mut tracked.sequence, right, &mut store);
        assert!(kept >= sure || kept.is_multiple_of(PAGE), "{kept} of {right}, sure {sure}");
        assert!(kept == right || accepted < drafted, "{kept} of {right}, sure {sure}");
        (again, tracked.tokens) = (right - kept, tokens[..kept].to_vec());
        if right + 40 > tokens.len() {
            break;
        }
    }
    assert!(tracked.tokens.len() > 600);
    // What was drafted is soon as if it had not been.
    let end = tracked.tokens.len();
    for at in end..end + 3 {
        tracked.step(&mut pages, &mut store, &tokens[at..at + 1]).unwrap();
    }
    assert!(pages.memory().in_use.bytes() <= (STATES_HELD - 1) * 4, "{:?}", pages.memory());
    let back = pages.longest(&tracked.sequence, end);
    assert!(back < end && back.is_multiple_of(PAGE) && back >= end - PAGE, "{back} of {end}");
}

/// Texts that are computed at the same time find each other's states, and hold no more for it.
#[test]
fn equal_texts_at_once_hold_no_more_states() {
    let groups = &groups()[STATES..];
    let mut store = Memory { state: Some(0), ..store(&WINDOWS[STATES..]) };
    let mut pages = Pages::new(groups, None, 4 * 4);
    let tokens: Vec<_> = (0..1500).map(|at| token(0, at)).collect();
    let mut both = [0, 1].map(|_| Tracked { sequence: pages.open(&[]), tokens: Vec::new() });
    for step in tokens.chunks(50) {
        for tracked in &mut both {
            tracked.step(&mut pages, &mut store, step).unwrap();
            assert!(tracked.sequence.all_states().len() < STATES_HELD as usize);
        }
    }
}

/// Where memory is short, a sequence goes on with what it needs, and gives up what makes going back cheaper.
#[test]
fn states_give_way_to_what_is_needed() {
    // A page of keys and values is as large as a state.
    let spec = |state| GroupSpec { window: None, state, page_bytes: 1, full: 1 };
    let groups = [spec(true), spec(false)];
    let windows = vec![None, None];
    // Two states, and ten pages of 64 positions.
    let mut store = Memory { most: usize::MAX, releases: true, windows, state: Some(0), ..Memory::default() };
    let mut pages = Pages::new(&groups, Some(ByteSize(12)), 0);
    let mut tracked = Tracked { sequence: pages.open(&[]), tokens: Vec::new() };
    let tokens: Vec<_> = (0..640).map(|at| token(0, at)).collect();
    tracked.step(&mut pages, &mut store, &tokens[..150]).unwrap();
    while tracked.tokens.len() + 4 < tokens.len() {
        let start = tracked.tokens.len();
        tracked.drafted(&mut pages, &mut store, &tokens[start..start + 4], 3).unwrap();
        let kept = pages.truncate(&mut tracked.sequence, start + 1, &mut store);
        tracked.tokens.truncate(kept);
        if kept == start {
            // There was no memory for what was sure.
            tracked.step(&mut pages, &mut store, &tokens[start..start + 1]).unwrap();
        }
    }
}
