//! Which rows of a step are whose, and where is what their sequences keep?

use std::ops::Range;

pub(crate) use crate::arch::PAGE;
use crate::arch::{AttentionSpec, Window};
use crate::engine::{KvType, KvTypes};
use crate::error::{Error, ErrorKind, Result};

/// What a layer keeps of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageSpec {
    pub(crate) n_kv_heads: usize,
    pub(crate) head_dim: usize,
    /// The first so many elements of keys are the values, which are not kept beside.
    pub(crate) latent: Option<usize>,
    /// Where keys end, and where those that choose positions begin, which lie behind them.
    pub(crate) index: Option<[usize; 2]>,
    pub(crate) kv: KvTypes,
}

impl PageSpec {
    pub(crate) fn new(attention: &AttentionSpec, kv: impl Into<KvTypes>) -> Self {
        let AttentionSpec { n_kv_heads, head_dim, .. } = *attention;
        let (latent, kv) = (attention.latent.map(|latent| latent.rank), kv.into());
        let kv = if latent.is_some() { kv.of_latent() } else { kv };
        let index = attention.own_index().map(|_| [head_dim, attention.index_at()]);
        Self { n_kv_heads, head_dim: attention.kept_dim(), latent, index, kv }
    }

    /// Bytes of a page, keys and values together.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |kv: KvType| kv.bytes(self.head_dim, PAGE);
        let values = if self.latent.is_some() { 0 } else { of(self.kv.values) };
        of(self.kv.keys).saturating_add(values).saturating_mul(self.n_kv_heads) as u64
    }

    /// The same where that is an amount that memory may have.
    pub(crate) fn checked_bytes(&self) -> Result<usize> {
        usize::try_from(self.bytes()).ok().filter(|bytes| *bytes < isize::MAX as usize / 2).ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "cannot reserve a page of keys and values of {} heads of {} elements",
                    self.n_kv_heads, self.head_dim
                ),
            )
            .with_hint("check the heads in the model's configuration")
        })
    }
}

/// Blanks the positions from `rows` on where a page's bytes have `slot` bytes of each position in turn.
pub(crate) fn blank_behind(bytes: &mut [u8], slot: usize, rows: usize) {
    bytes.chunks_exact_mut(PAGE * slot).for_each(|all| all[rows * slot..].fill(0));
}

/// Pages with how many of their positions are told, of the last one only some.
pub(crate) fn with_rows(numbers: &[u32], of_last: usize) -> impl Iterator<Item = (u32, usize)> {
    let last = numbers.len().saturating_sub(1);
    numbers.iter().enumerate().map(move |(at, page)| (*page, if at == last { of_last } else { PAGE }))
}

/// The first block of [`PAGE`] positions that the row at position `at` sees.
pub(crate) fn first_block(window: Option<Window>, at: usize) -> usize {
    window.map_or(0, |window| window.first(at) / PAGE)
}

/// Consecutive rows of each sequence of a step, and where the positions lie that they see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans {
    pub(crate) list: Vec<Span>,
    /// Page numbers of all spans.
    pub(crate) pages: Vec<u32>,
}

/// Some rows of a step that belong to one sequence.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// Rows of the buffers.
    pub(crate) rows: Range<usize>,
    /// Position of the first one.
    pub(crate) start: usize,
    /// The first block of [`PAGE`] positions that any of the rows sees.
    pub(crate) first_block: usize,
    /// Which of [`Spans::pages`] hold that block and those behind it, up to the last row's.
    pub(crate) pages: Range<usize>,
}

impl Spans {
    /// Forgets all spans.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.pages.clear();
    }

    /// Adds `n` rows that follow on those of the spans before, with the pages of the blocks from `first_block` on.
    pub(crate) fn push(
        &mut self,
        n: usize,
        start: usize,
        first_block: usize,
        pages: impl Iterator<Item = u32>,
    ) {
        let row = self.list.last().map_or(0, |span| span.rows.end);
        let first = self.pages.len();
        self.pages.extend(pages);
        let pages = first..self.pages.len();
        self.list.push(Span { rows: row..row + n, start, first_block, pages });
    }

    /// A span's pages.
    pub(crate) fn pages_of(&self, span: &Span) -> &[u32] {
        &self.pages[span.pages.clone()]
    }
}

/// Some rows of a step that belong to one sequence, with its state before and behind them.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Rows of the buffers.
    pub(crate) rows: Range<usize>,
    /// The state before the first one; none where the sequence begins.
    pub(crate) from: Option<u32>,
    /// Takes the state behind the last one.
    pub(crate) to: u32,
    /// After so many rows, another one takes the state.
    pub(crate) mark: Option<(usize, u32)>,
}

impl Run {
    /// The states that it writes.
    pub(crate) fn written(&self) -> impl Iterator<Item = u32> + use<> {
        [Some(self.to), self.mark.map(|(_, state)| state)].into_iter().flatten()
    }

    /// `Ok` for runs that follow one another, where no state that one writes is another one's, or what it reads itself.
    pub(crate) fn check(runs: &[Self]) -> Result<()> {
        let mut row = 0;
        for (at, run) in runs.iter().enumerate() {
            let before = || runs[..at].iter();
            let of_others = || before().flat_map(|other| other.from.into_iter().chain(other.written()));
            let shared =
                run.written().any(|state| run.from == Some(state) || of_others().any(|it| it == state))
                    || run.mark.is_some_and(|(_, state)| state == run.to)
                    || run.from.is_some_and(|from| before().flat_map(Self::written).any(|it| it == from));
            if shared || run.rows.start != row || run.rows.is_empty() {
                return Err(Error::new(ErrorKind::Internal, "sequences write each other's states"));
            }
            row = run.rows.end;
        }
        Ok(())
    }
}
