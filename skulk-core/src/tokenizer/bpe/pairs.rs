//! Which two tokens are merged to a third, and which first?

use super::super::texts::Texts;

/// Merges in order of rank.
pub(in super::super) struct Pairs {
    /// By rank.
    merges: Vec<Merge>,
    /// By token, the rank of the last merge that makes it.
    last: Vec<u32>,
    /// To write what the next one makes.
    made: String,
}

struct Merge {
    left: u32,
    right: u32,
    /// The rank of the one before it that makes the same token.
    before: u32,
}

/// No rank.
const NONE: u32 = u32::MAX;

impl Pairs {
    /// None yet, of these tokens.
    pub(in super::super) fn of(texts: &Texts) -> Self {
        Self { merges: Vec::new(), last: vec![NONE; texts.count()], made: String::new() }
    }

    /// Adds a merge behind all others; whether there was none of the two yet, which otherwise stays where it is. `None`: one of
    /// the two, or what they make, is no token.
    pub(in super::super) fn push(&mut self, texts: &Texts, left: &str, right: &str) -> Option<bool> {
        let Self { merges, last, made } = self;
        let halves = (texts.get(left)?, texts.get(right)?);
        made.clear();
        made.extend([left, right]);
        let last = &mut last[texts.get(made)? as usize];
        let mut before = *last;
        while let Some(merge) = merges.get(before as usize) {
            if (merge.left, merge.right) == halves {
                return Some(false);
            }
            before = merge.before;
        }
        let before = std::mem::replace(last, merges.len() as u32);
        merges.push(Merge { left: halves.0, right: halves.1, before });
        Some(true)
    }

    /// Whether a merge makes this token.
    pub(super) fn make(&self, token: u32) -> bool {
        self.last[token as usize] != NONE
    }

    /// The merges that make any of `tokens`, in order of rank.
    pub(in super::super) fn making<'a>(&self, texts: &'a Texts, tokens: &[u32]) -> Vec<(&'a str, &'a str)> {
        let mut ranks = Vec::new();
        for &token in tokens {
            let mut rank = self.last[token as usize];
            while let Some(merge) = self.merges.get(rank as usize) {
                ranks.push(rank);
                rank = merge.before;
            }
        }
        ranks.sort_unstable();
        let merges = ranks.into_iter().map(|rank| &self.merges[rank as usize]);
        merges.filter_map(|merge| Some((texts.text(merge.left)?, texts.text(merge.right)?))).collect()
    }
}
