//! Which pages does each sequence have? Counted, shared by sequences that begin alike, and kept while nobody needs them.
//!
//! Layers that see equally far form a group: a page of a group is one of each of its layers, under the same number. A
//! sequence has, of each group, the pages of the blocks that its next row sees. A whole block's pages are found again by
//! the tokens up to it; they are kept when no sequence has them any more, until their memory is needed.

mod held;

use std::collections::VecDeque;

use self::held::States;
use super::chain::{Chain, NodeId};
use crate::arch::Window;
use crate::bytes::ByteSize;
use crate::engine::KvMemory;
use crate::engine::backend::{PAGE, Spans, first_block};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::ids::TokenId;

/// Layers that see equally far, or that keep states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupSpec {
    pub(super) window: Option<Window>,
    /// Its layers keep states: a page is that of a position.
    pub(super) state: bool,
    /// Bytes of a page, of all its layers.
    pub(super) page_bytes: u64,
    /// Bytes of the pages that one sequence of full length has.
    pub(super) full: u64,
}

/// Where the pages of a group's layers lie.
pub(super) trait Store {
    /// Whether the memory of single pages can be given back.
    fn releases(&self) -> bool;
    /// Reserves memory for a page.
    fn add(&mut self, group: usize, page: u32) -> Result<()>;
    /// Gives it back.
    fn release(&mut self, group: usize, page: u32);
    /// Copies what a page holds to another one.
    fn copy(&mut self, group: usize, from: u32, to: u32) -> Result<()>;
}

/// The pages of a shard.
pub(super) struct Pages {
    groups: Vec<Group>,
    chain: Chain,
    budget: Option<ByteSize>,
    /// What may be kept, and free, when there is no budget.
    spare: u64,
    /// Counts what was given up, so that it is known what was used last.
    clock: u64,
}

struct Group {
    spec: GroupSpec,
    pages: Vec<Page>,
    /// With memory that nobody uses, and without memory.
    free: Vec<u32>,
    absent: Vec<u32>,
    /// Kept for sequences that begin alike: the first and the last one that was given up.
    oldest: Option<u32>,
    newest: Option<u32>,
    kept: usize,
    in_use: usize,
}

#[derive(Clone, Copy, Default)]
struct Page {
    /// Sequences that have it.
    users: u32,
    /// The block that it holds, where it is a whole one.
    label: Option<NodeId>,
    /// When it was given up, and those kept that were before and after it.
    given_up: u64,
    older: Option<u32>,
    newer: Option<u32>,
}

/// A sequence's positions and where they lie.
#[derive(Default)]
pub(super) struct Sequence {
    len: usize,
    /// Its whole blocks, and the tokens behind them.
    blocks: Vec<NodeId>,
    tail: Vec<TokenId>,
    /// Blocks that there is room for in the chain.
    promised: usize,
    /// By group.
    tables: Vec<Table>,
    states: States,
}

/// The pages of consecutive blocks.
#[derive(Default, Clone)]
struct Table {
    first: usize,
    pages: VecDeque<u32>,
}

impl Table {
    fn end(&self) -> usize {
        self.first + self.pages.len()
    }

    fn page(&self, block: usize) -> Option<u32> {
        self.pages.get(block.checked_sub(self.first)?).copied()
    }
}

impl Sequence {
    /// Positions.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All its pages of a group.
    pub(super) fn pages_of(&self, group: usize) -> impl Iterator<Item = u32> {
        self.tables[group].pages.iter().copied()
    }

    /// The first block that it has a page of in a group, and the pages of the blocks that its next row sees.
    pub(super) fn seen(&self, group: usize, window: Option<Window>) -> (usize, impl Iterator<Item = u32>) {
        let table = &self.tables[group];
        let first = first_block(window, self.len).max(table.first);
        let pages = table.pages.iter().skip(first - table.first);
        (first, pages.take(self.len.div_ceil(PAGE).saturating_sub(first)).copied())
    }

    /// Its pages, by group.
    #[cfg(test)]
    pub(super) fn pages(&self) -> impl Iterator<Item = (usize, u32)> {
        let tables = self.tables.iter().enumerate();
        tables.flat_map(|(group, table)| table.pages.iter().map(move |page| (group, *page)))
    }

    /// Adds a span of `rows` rows behind the sequence to a group's.
    pub(super) fn span(&self, group: usize, window: Option<Window>, rows: usize, spans: &mut Spans) {
        self.span_from(self.len, group, window, rows, spans);
    }

    /// Adds a row in the place of the sequence's last one, which it sees, too. False where something is gone that it sees.
    pub(super) fn last(&self, group: usize, window: Option<Window>, spans: &mut Spans) -> bool {
        let Some(last) = self.len.checked_sub(1) else { return false };
        self.span_from(last, group, window, 1, spans);
        first_block(window, last) >= self.tables[group].first
    }

    fn span_from(&self, start: usize, group: usize, window: Option<Window>, rows: usize, spans: &mut Spans) {
        let table = &self.tables[group];
        let first = first_block(window, start).max(table.first);
        let end = (start + rows).div_ceil(PAGE);
        let pages = table.pages.range(first - table.first..(end - table.first).min(table.pages.len()));
        spans.push(rows, start, first, pages.copied());
    }
}

/// The first block that an assistant sees behind so many positions: through its windows, which reach a position further, from
/// the last row's place.
fn assistant_sees(window: Option<Window>, len: usize) -> usize {
    match window {
        Some(Window::Sliding(size)) => first_block(Some(Window::Sliding(size + 1)), len.saturating_sub(1)),
        window => first_block(window, len),
    }
}

impl Group {
    fn reserved(&self) -> u64 {
        (self.pages.len() - self.absent.len()) as u64 * self.spec.page_bytes
    }

    /// Counts one more user of a page.
    fn take(&mut self, page: u32) {
        if self.pages[page as usize].users == 0 {
            self.unkeep(page);
            self.in_use += 1;
        }
        self.pages[page as usize].users += 1;
    }

    /// Adds a page to those kept, as the newest.
    fn keep(&mut self, page: u32, when: u64) {
        let older = self.newest.replace(page);
        match older {
            Some(older) => self.pages[older as usize].newer = Some(page),
            None => self.oldest = Some(page),
        }
        let entry = &mut self.pages[page as usize];
        (entry.given_up, entry.older, entry.newer) = (when, older, None);
        self.kept += 1;
    }

    /// Takes a page from those kept.
    fn unkeep(&mut self, page: u32) {
        let Page { older, newer, .. } = self.pages[page as usize];
        match older {
            Some(older) => self.pages[older as usize].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.pages[newer as usize].older = older,
            None => self.newest = older,
        }
        self.kept -= 1;
    }
}

impl Pages {
    /// No pages yet. Without a budget, `spare` bytes are kept and free beside those in use.
    pub(super) fn new(groups: &[GroupSpec], budget: Option<ByteSize>, spare: u64) -> Self {
        let group = |spec: &GroupSpec| Group {
            spec: *spec,
            pages: Vec::new(),
            free: Vec::new(),
            absent: Vec::new(),
            oldest: None,
            newest: None,
            kept: 0,
            in_use: 0,
        };
        let chain = Chain::new(groups.len());
        Self { groups: groups.iter().map(group).collect(), chain, budget, spare, clock: 0 }
    }

    /// Blocks of tokens that are known.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.chain.len()
    }

    /// Blocks that are known for what is labelled with them, or with blocks behind them.
    #[cfg(test)]
    pub(super) fn labelled(&self) -> usize {
        let mut seen = std::collections::HashSet::new();
        for page in self.groups.iter().flat_map(|group| &group.pages) {
            let mut node = page.label;
            while let Some(block) = node.filter(|block| seen.insert(*block)) {
                node = self.chain.parent(block);
            }
        }
        seen.len()
    }

    pub(super) fn memory(&self) -> KvMemory {
        let sum = |count: fn(&Group) -> usize| {
            ByteSize(self.groups.iter().map(|group| count(group) as u64 * group.spec.page_bytes).sum())
        };
        KvMemory {
            budget: self.budget,
            in_use: sum(|group| group.in_use),
            kept: sum(|group| group.kept),
            reserved: sum(|group| group.pages.len() - group.absent.len()),
        }
    }

    /// A sequence that has as much of the beginning of `tokens` as there is.
    pub(super) fn open(&mut self, tokens: &[TokenId]) -> Sequence {
        let tables = vec![Table::default(); self.groups.len()];
        let mut found = Sequence { blocks: self.chain.find(tokens), tables, ..Sequence::default() };
        found.len = found.blocks.len() * PAGE;
        self.branch(&found, found.len)
    }

    /// A sequence of the first `at` positions of another one, or of fewer where pages are gone. They share their pages.
    pub(super) fn fork(&mut self, from: &Sequence, at: usize) -> Sequence {
        self.branch(from, at)
    }

    fn branch(&mut self, from: &Sequence, at: usize) -> Sequence {
        let len = self.longest(from, at);
        let mut to = Sequence { len, ..Sequence::default() };
        for group in 0..self.groups.len() {
            if self.groups[group].spec.state {
                to.states = self.branch_states(from, group, len);
                to.tables.push(Table::default());
                continue;
            }
            let window = self.groups[group].spec.window;
            let (first, next) = (assistant_sees(window, len), first_block(window, len));
            let first = if self.page(from, group, first).is_some() { first } else { next };
            let blocks = first..len.div_ceil(PAGE);
            let pages =
                blocks.clone().map_while(|block| self.page(from, group, block)).collect::<VecDeque<_>>();
            pages.iter().for_each(|page| self.groups[group].take(*page));
            to.tables.push(Table { first: blocks.start, pages });
        }
        let (whole, rest) = (len / PAGE, len % PAGE);
        to.blocks.extend(&from.blocks[..whole]);
        to.blocks.iter().for_each(|block| self.chain.keep(*block));
        to.tail.reserve(PAGE);
        to.tail.extend(&self.tokens_of(from, whole)[..rest]);
        to
    }

    /// The tokens of a sequence's block.
    fn tokens_of<'a>(&'a self, sequence: &'a Sequence, block: usize) -> &'a [TokenId] {
        sequence.blocks.get(block).map_or(&sequence.tail, |node| self.chain.tokens(*node))
    }

    /// The page of a sequence's block: its own, or one that is kept.
    fn page(&self, sequence: &Sequence, group: usize, block: usize) -> Option<u32> {
        let own = sequence.tables[group].page(block);
        own.or_else(|| self.chain.page(*sequence.blocks.get(block)?, group))
    }

    /// How far back a sequence can go, at most to `len`: where all pages are there that the next row sees, and a state is.
    pub(super) fn longest(&self, sequence: &Sequence, len: usize) -> usize {
        let states = self.states();
        let whole = |len: usize| {
            if len > 0 && states.is_some_and(|group| self.state(sequence, group, len).is_none()) {
                return false;
            }
            (0..self.groups.len()).filter(|group| Some(*group) != states).all(|group| {
                let mut blocks = first_block(self.groups[group].spec.window, len)..len.div_ceil(PAGE);
                blocks.all(|block| self.page(sequence, group, block).is_some())
            })
        };
        if whole(len) {
            return len;
        }
        let blocks = (0..len.div_ceil(PAGE)).rev().map(|blocks| blocks * PAGE);
        let own = sequence.states.positions().filter(|at| *at < len).find(|at| whole(*at)).unwrap_or(0);
        blocks.take_while(|at| *at > own).find(|at| whole(*at)).unwrap_or(own)
    }

    /// An empty sequence with the pages that one of `len` positions has, to be filled and then
    /// [committed](Self::commit).
    pub(super) fn place(&mut self, len: usize, store: &mut dyn Store) -> Result<Sequence> {
        let mut placed = Sequence { promised: len / PAGE, ..Sequence::default() };
        placed.tail.reserve(PAGE);
        placed.blocks.reserve(placed.promised);
        self.chain.promise(placed.promised);
        for group in 0..self.groups.len() {
            if self.groups[group].spec.state {
                placed.tables.push(Table::default());
                match self.place_state(group, len, store) {
                    Ok(states) => placed.states = states,
                    Err(error) => {
                        self.close(placed, store);
                        return Err(error);
                    }
                }
                continue;
            }
            let blocks = first_block(self.groups[group].spec.window, len)..len.div_ceil(PAGE);
            placed.tables.push(Table { first: blocks.start, pages: VecDeque::with_capacity(blocks.len()) });
            for _ in blocks {
                match self.take(group, store) {
                    Ok(page) => placed.tables[group].pages.push_back(page),
                    Err(error) => {
                        self.close(placed, store);
                        return Err(error);
                    }
                }
            }
        }
        Ok(placed)
    }

    /// Shortens a sequence to `len` positions, or to fewer where pages are gone; returns how many are left.
    pub(super) fn truncate(&mut self, sequence: &mut Sequence, len: usize, store: &mut dyn Store) -> usize {
        let mut shorter = self.branch(sequence, len);
        std::mem::swap(sequence, &mut shorter);
        self.close(shorter, store);
        sequence.len
    }

    /// Makes room for rows behind the sequence up to position `end`. What no later row sees is given up, and where there is
    /// too little memory what only makes going back cheaper.
    pub(super) fn reserve(
        &mut self,
        sequence: &mut Sequence,
        end: usize,
        store: &mut dyn Store,
    ) -> Result<()> {
        let mut tight = false;
        loop {
            match self.make_room(sequence, end, tight, store) {
                Err(error) if error.is_full() && (self.spare_state(sequence, store) || !tight) => {
                    tight = true
                }
                found => return found,
            }
        }
    }

    fn make_room(
        &mut self,
        sequence: &mut Sequence,
        end: usize,
        tight: bool,
        store: &mut dyn Store,
    ) -> Result<()> {
        let blocks = (end / PAGE).saturating_sub(sequence.blocks.len());
        if let Some(more) = blocks.checked_sub(sequence.promised).filter(|more| *more > 0) {
            sequence.blocks.reserve(blocks);
            self.chain.promise(more);
            sequence.promised = blocks;
        }
        for group in 0..self.groups.len() {
            if self.groups[group].spec.state {
                self.reserve_states(sequence, group, end, tight, store)?;
                continue;
            }
            let window = self.groups[group].spec.window;
            let sees = if tight { first_block } else { assistant_sees };
            let first = sees(window, sequence.len);
            while sequence.tables[group].first < first
                && let Some(page) = sequence.tables[group].pages.pop_front()
            {
                sequence.tables[group].first += 1;
                self.give_up(group, page, store);
            }
            self.own(sequence, group, store)?;
            let table = &mut sequence.tables[group];
            if table.pages.is_empty() {
                table.first = first_block(window, sequence.len).max(table.first);
            }
            while sequence.tables[group].end() < end.div_ceil(PAGE) {
                let page = self.take(group, store)?;
                sequence.tables[group].pages.push_back(page);
            }
        }
        Ok(())
    }

    /// Makes the page of a sequence's last block, which is not whole, its own: what will be written there is nobody
    /// else's.
    fn own(&mut self, sequence: &mut Sequence, group: usize, store: &mut dyn Store) -> Result<()> {
        let table = &mut sequence.tables[group];
        let at = (sequence.len / PAGE).checked_sub(table.first);
        let Some((at, page)) = at.and_then(|at| Some((at, *table.pages.get(at)?))) else { return Ok(()) };
        if self.groups[group].pages[page as usize].users == 1 {
            self.unlabel(group, page);
            return Ok(());
        }
        let copy = self.take(group, store)?;
        if !sequence.len.is_multiple_of(PAGE)
            && let Err(error) = store.copy(group, page, copy)
        {
            self.give_up(group, copy, store);
            return Err(error);
        }
        sequence.tables[group].pages[at] = copy;
        self.give_up(group, page, store);
        Ok(())
    }

    fn unlabel(&mut self, group: usize, page: u32) {
        if let Some(block) = self.groups[group].pages[page as usize].label.take() {
            self.chain.unlabel(block, group);
        }
    }

    /// Notes that a step has computed these tokens behind the sequence.
    pub(super) fn commit(&mut self, sequence: &mut Sequence, tokens: &[TokenId], store: &mut dyn Store) {
        let (start, states) = (sequence.len, self.states());
        let single = self.wrote(sequence, start + tokens.len()) || tokens.len() == 1;
        for token in tokens {
            sequence.len += 1;
            sequence.tail.push(*token);
            let Ok(block) = sequence.tail.as_slice().try_into() else { continue };
            let kept = sequence.promised.min(1);
            sequence.promised -= kept;
            self.chain.unpromise(kept);
            let node = self.chain.take(sequence.blocks.last().copied(), block);
            for group in 0..self.groups.len() {
                match self.groups[group].spec.state {
                    true => self.label_state(sequence, group, node, single),
                    false => self.label(sequence, group, node, store),
                }
            }
            sequence.blocks.push(node);
            sequence.tail.clear();
        }
        if let Some(group) = states {
            self.thin_out(sequence, group, start, store);
        }
    }

    /// Lets the page of the block behind a sequence's others be found, or takes the one that is there.
    fn label(&mut self, sequence: &mut Sequence, group: usize, node: NodeId, store: &mut dyn Store) {
        let table = &mut sequence.tables[group];
        let Some(at) = sequence.blocks.len().checked_sub(table.first) else { return };
        let Some(page) = table.pages.get_mut(at) else { return };
        match self.chain.page(node, group) {
            None => {
                self.chain.label(node, group, *page);
                self.groups[group].pages[*page as usize].label = Some(node);
            }
            Some(same) if same != *page => {
                let own = std::mem::replace(page, same);
                self.groups[group].take(same);
                self.give_up(group, own, store);
            }
            Some(_) => {}
        }
    }

    /// Gives up all that a sequence has.
    pub(super) fn close(&mut self, sequence: Sequence, store: &mut dyn Store) {
        self.chain.unpromise(sequence.promised);
        // What would keep blocks known whose pages are gone goes before these.
        self.close_states(sequence.states, store);
        for (group, table) in sequence.tables.into_iter().enumerate() {
            // The last ones are the first to go.
            for page in table.pages.into_iter().rev() {
                self.give_up(group, page, store);
            }
        }
        for block in sequence.blocks.into_iter().rev() {
            self.chain.release(block);
        }
    }

    /// Counts one user of a page less.
    fn give_up(&mut self, group: usize, page: u32, store: &mut dyn Store) {
        let group = &mut self.groups[group];
        let entry = &mut group.pages[page as usize];
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        group.in_use -= 1;
        if entry.label.is_some() {
            self.clock += 1;
            group.keep(page, self.clock);
        } else {
            group.free.push(page);
        }
        if self.budget.is_none() && store.releases() {
            while self.unused() > self.spare && self.release_one(store) {}
        }
    }

    /// Bytes that are reserved and in nobody's use.
    fn unused(&self) -> u64 {
        let of = |group: &Group| (group.free.len() + group.kept) as u64 * group.spec.page_bytes;
        self.groups.iter().map(of).sum()
    }

    /// Gives back the memory of a page that nobody uses; false when there is none.
    fn release_one(&mut self, store: &mut dyn Store) -> bool {
        let free = self.groups.iter_mut().enumerate().find_map(|(at, group)| Some((at, group.free.pop()?)));
        let Some((group, page)) = free.or_else(|| self.forget_oldest()) else { return false };
        store.release(group, page);
        self.groups[group].absent.push(page);
        true
    }

    /// Takes the page, of any group, that was given up before all others that are kept.
    fn forget_oldest(&mut self) -> Option<(usize, u32)> {
        let oldest = |(at, group): (usize, &Group)| Some((group.pages[group.oldest? as usize].given_up, at));
        let (_, group) = self.groups.iter().enumerate().filter_map(oldest).min()?;
        self.forget(group).map(|page| (group, page))
    }

    /// Takes a group's page that was given up before the others that are kept.
    fn forget(&mut self, group: usize) -> Option<u32> {
        let page = self.groups[group].oldest?;
        self.groups[group].unkeep(page);
        self.unlabel(group, page);
        Some(page)
    }

    /// A page for one user.
    fn take(&mut self, group: usize, store: &mut dyn Store) -> Result<u32> {
        let page = match self.groups[group].free.pop() {
            Some(page) => page,
            None => self.find(group, store)?,
        };
        let group = &mut self.groups[group];
        group.pages[page as usize] = Page { users: 1, ..Page::default() };
        group.in_use += 1;
        Ok(page)
    }

    /// A page with memory: new where the budget allows it and there is more, or else one that is kept. Where memory
    /// cannot be given back, one that is kept goes before more is taken than may be kept, or than is the group's share
    /// of the budget.
    fn find(&mut self, group: usize, store: &mut dyn Store) -> Result<u32> {
        let bytes = self.groups[group].spec.page_bytes;
        loop {
            let reserved: u64 = self.groups.iter().map(Group::reserved).sum();
            let allowed = self.budget.is_none_or(|most| reserved + bytes <= most.bytes());
            // Memory that cannot be given back is not taken for pages that one sequence of full length needs elsewhere.
            let full: u64 = self.groups.iter().map(|group| group.spec.full).sum();
            let ample = !store.releases()
                && match self.budget {
                    None => self.unused() >= self.spare,
                    Some(most) => {
                        let own = &self.groups[group];
                        let share =
                            u128::from(most.bytes()) * u128::from(own.spec.full) / u128::from(full.max(1));
                        u128::from(own.reserved() + bytes) > share
                    }
                };
            let mut failed = None;
            if allowed && !(ample && self.groups[group].kept > 0) {
                match self.add(group, store) {
                    // What others give up makes room as well.
                    Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                        failed = Some(error.with_retry(Retry::Now));
                    }
                    added => return added,
                }
            }
            if let Some(page) = self.forget(group) {
                return Ok(page);
            }
            if !(store.releases() && self.release_one(store)) {
                return Err(failed.unwrap_or_else(|| self.exhausted(bytes)));
            }
        }
    }

    fn add(&mut self, group: usize, store: &mut dyn Store) -> Result<u32> {
        let Group { pages, free, absent, .. } = &mut self.groups[group];
        let page = absent.last().copied().unwrap_or(pages.len() as u32);
        store.add(group, page)?;
        if absent.pop().is_none() {
            pages.push(Page::default());
            free.reserve(pages.len() - free.len());
            absent.reserve(pages.len());
        }
        Ok(page)
    }

    fn exhausted(&self, bytes: u64) -> Error {
        let KvMemory { in_use, budget, .. } = self.memory();
        let message = format!(
            "expected {} for another page of keys and values, found {in_use} in use of a budget of {}",
            ByteSize(bytes),
            budget.unwrap_or_default(),
        );
        Error::new(ErrorKind::OutOfMemory, message)
            .with("field", "kv_memory")
            .with_retry(Retry::Now)
            .with_hint("end other sessions, give keys and values more memory, or use a smaller context")
    }
}
