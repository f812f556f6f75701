//! How far back does a position see?

/// Which positions a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// Its own and the `n - 1` positions before it.
    Sliding(usize),
    /// Its own and those before it in the same chunk of `n` positions, of which the first begins at position 0 (Llama 4).
    Chunk(usize),
}

impl Window {
    /// Positions that a query sees at most.
    pub fn size(self) -> usize {
        match self {
            Self::Sliding(size) | Self::Chunk(size) => size,
        }
    }

    /// The first position that the query at this one sees.
    pub fn first(self, position: usize) -> usize {
        match self {
            Self::Sliding(size) => (position + 1).saturating_sub(size),
            // What has no size is refused where it is described.
            Self::Chunk(size) => position - position % size.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sliding_windows_move_and_chunks_stay() {
        let first = |window: Window| [0, 3, 4, 7, 8].map(|position| window.first(position));
        assert_eq!(first(Window::Sliding(4)), [0, 0, 1, 4, 5]);
        assert_eq!(first(Window::Chunk(4)), [0, 0, 4, 4, 8]);
    }
}
