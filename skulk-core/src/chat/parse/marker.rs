//! Where is the next marker? Found across the borders of pieces, never within what may not be markup.

/// Which texts are special tokens. Markers that are, or contain them, count only where such tokens wrote them.
#[derive(Debug, Clone, Default)]
pub(super) struct Specials {
    known: bool,
    /// The special tokens that occur in markers.
    texts: Vec<String>,
}

impl Specials {
    /// The special tokens within these markers.
    pub(super) fn of<'a>(markers: impl Iterator<Item = &'a str>, is_special: impl Fn(&str) -> bool) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for marker in markers {
            let mut rest = marker;
            while let Some(first) = rest.chars().next() {
                let ends = rest.char_indices().map(|(at, _)| at).skip(1).chain([rest.len()]);
                let longest = ends.filter(|&end| is_special(&rest[..end])).last();
                if let Some(end) = longest
                    && !texts.iter().any(|text| text == &rest[..end])
                {
                    texts.push(rest[..end].to_owned());
                }
                rest = &rest[longest.unwrap_or(first.len_utf8())..];
            }
        }
        // Where one begins with another, the longer counts.
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self { known: true, texts }
    }

    /// Whether special tokens write some of this marker.
    pub(super) fn cover(&self, marker: &str) -> bool {
        self.texts.iter().any(|text| marker.contains(text.as_str()))
    }

    /// What a byte of a piece is compared as.
    fn symbol(&self, byte: u8, special: bool) -> u16 {
        u16::from(byte) | if special && self.known { SPECIAL } else { 0 }
    }
}

/// Added to bytes of special tokens.
const SPECIAL: u16 = 256;

/// A text to be found, by Knuth, Morris and Pratt.
#[derive(Debug, Clone)]
struct Marker {
    symbols: Vec<u16>,
    /// For each prefix length, the length of its longest proper border.
    borders: Vec<usize>,
    state: usize,
}

impl Marker {
    fn new(text: &str, specials: &Specials) -> Self {
        let mut symbols = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let token = specials.texts.iter().find(|token| rest.starts_with(token.as_str()));
            let len = token.map_or(first.len_utf8(), String::len);
            symbols.extend(rest[..len].bytes().map(|byte| specials.symbol(byte, token.is_some())));
            rest = &rest[len..];
        }
        let mut borders = vec![0; symbols.len() + 1];
        let mut border = 0;
        for at in 1..symbols.len() {
            while border > 0 && symbols[border] != symbols[at] {
                border = borders[border];
            }
            border += usize::from(symbols[border] == symbols[at]);
            borders[at + 1] = border;
        }
        Self { symbols, borders, state: 0 }
    }

    fn advance(&mut self, symbol: u16) -> bool {
        while self.state > 0 && self.symbols[self.state] != symbol {
            self.state = self.borders[self.state];
        }
        self.state += usize::from(self.symbols[self.state] == symbol);
        self.state == self.symbols.len()
    }
}

/// Reads pieces up to the next of some markers, and holds back what may be the beginning of one.
#[derive(Debug, Clone)]
pub(super) struct Scanner {
    markers: Vec<Marker>,
    specials: Specials,
    /// Text that may be the beginning of a marker. It begins with a whole character, since markers do.
    held: String,
}

impl Scanner {
    /// A scanner for these markers; empty ones occur nowhere.
    pub(super) fn new(markers: &[&str], specials: &Specials) -> Self {
        Self {
            markers: markers.iter().map(|text| Marker::new(text, specials)).collect(),
            specials: specials.clone(),
            held: String::new(),
        }
    }

    /// Takes from `rest` what lies before the next marker and that marker, whose position in the list it returns; or
    /// all of it. What is certain to be no markup goes to `take`. Of markers that end at the same place the longest
    /// counts.
    pub(super) fn next(
        &mut self,
        rest: &mut &str,
        special: bool,
        mut take: impl FnMut(&str),
    ) -> Option<usize> {
        let text = *rest;
        for (at, byte) in text.bytes().enumerate() {
            let symbol = self.specials.symbol(byte, special);
            let mut found: Option<(usize, usize)> = None;
            for (which, marker) in self.markers.iter_mut().enumerate() {
                if !marker.symbols.is_empty() && marker.advance(symbol) {
                    let len = marker.symbols.len();
                    found = found.filter(|best| best.0 >= len).or(Some((len, which)));
                }
            }
            if let Some((len, which)) = found {
                *rest = &text[at + 1..];
                self.release(&text[..=at], len, &mut take);
                self.held.clear();
                self.markers.iter_mut().for_each(|marker| marker.state = 0);
                return Some(which);
            }
        }
        *rest = "";
        let held = self.markers.iter().map(|marker| marker.state).max().unwrap_or(0);
        self.release(text, held, &mut take);
        None
    }

    /// Passes on all of what was held and `text` but its last `keep` bytes, which are held.
    fn release(&mut self, text: &str, keep: usize, take: &mut impl FnMut(&str)) {
        let (old, new) = match text.len().checked_sub(keep) {
            Some(new) => (self.held.len(), new),
            None => (self.held.len() + text.len() - keep, 0),
        };
        for certain in [&self.held[..old], &text[..new]] {
            if !certain.is_empty() {
                take(certain);
            }
        }
        self.held.drain(..old);
        self.held.push_str(&text[new..]);
    }

    /// Whether it holds back anything.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The end: what was held back is no markup.
    pub(super) fn flush(&mut self) -> String {
        self.markers.iter_mut().for_each(|marker| marker.state = 0);
        std::mem::take(&mut self.held)
    }
}

/// One marker that must come next.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    marker: Marker,
    specials: Specials,
}

/// How far an expected marker is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    Partly,
    Wholly,
    Not,
}

impl Expected {
    pub(super) fn new(text: &str, specials: &Specials) -> Self {
        Self { marker: Marker::new(text, specials), specials: specials.clone() }
    }

    /// Whether there is nothing to expect.
    pub(super) fn is_empty(&self) -> bool {
        self.marker.symbols.is_empty()
    }

    /// Whether some of it is there.
    pub(super) fn begun(&self) -> bool {
        self.marker.state > 0
    }

    /// Takes what belongs to it.
    pub(super) fn take(&mut self, rest: &mut &str, special: bool) -> Met {
        for (at, byte) in rest.bytes().enumerate() {
            if self.marker.symbols.get(self.marker.state) != Some(&self.specials.symbol(byte, special)) {
                self.marker.state = 0;
                // Back to the beginning of a character.
                let at = (0..=at).rev().find(|&at| rest.is_char_boundary(at)).unwrap_or(0);
                *rest = &rest[at..];
                return Met::Not;
            }
            self.marker.state += 1;
            if self.marker.state == self.marker.symbols.len() {
                self.marker.state = 0;
                *rest = &rest[at + 1..];
                return Met::Wholly;
            }
        }
        *rest = "";
        Met::Partly
    }

    /// Whether `rest` begins with all of it, written by a special token.
    pub(super) fn is_special_piece(&self, rest: &str, special: bool) -> bool {
        let symbols = rest.bytes().map(|byte| self.specials.symbol(byte, special));
        special && self.specials.known && !self.is_empty() && {
            let len = self.marker.symbols.len();
            rest.len() >= len && symbols.take(len).eq(self.marker.symbols.iter().copied())
        }
    }
}
