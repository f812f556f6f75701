//! Where must the text end? Stop strings, found across the borders of whatever pieces text arrives in.

use crate::error::{Error, Result};

/// Watches a stream of text for stop strings.
///
/// Text that may be the beginning of a stop string is held back until that is decided. The stream
/// ends where the first stop string completes: that string and everything after it is dropped.
/// When several complete at the same place the longest counts. The outcome does not depend on how
/// the text is cut into pieces, and the work is linear in the text (Knuth-Morris-Pratt per stop
/// string).
///
/// ```
/// let mut stop = skulk::StopMatcher::new(["\nUser:"])?;
/// assert_eq!(stop.push("Hello.\nUs"), "Hello.");
/// assert_eq!(stop.push("ually\nUser"), "\nUsually");
/// assert_eq!(stop.push(": more"), "");
/// assert_eq!(stop.matched(), Some("\nUser:"));
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    pending: String,
    released: usize,
    matched: Option<usize>,
}

/// One stop string and how much of it the text's end matches.
#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    /// For each prefix length, the length of its longest proper border.
    borders: Vec<usize>,
    state: usize,
}

impl StopMatcher {
    /// A matcher for these stop strings; with none of them all text passes.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an empty stop string.
    pub fn new<S: Into<String>>(stops: impl IntoIterator<Item = S>) -> Result<Self> {
        let patterns = stops
            .into_iter()
            .enumerate()
            .map(|(index, stop)| Pattern::new(index, stop.into()))
            .collect::<Result<_>>()?;
        Ok(Self { patterns, ..Self::default() })
    }

    /// Takes the next piece of text and returns what is now certain to lie before any stop
    /// string. After a match: nothing, ever.
    pub fn push(&mut self, text: &str) -> &str {
        self.pending.drain(..self.released);
        self.released = 0;
        if self.matched.is_some() {
            return "";
        }
        let before = self.pending.len();
        self.pending.push_str(text);
        for (offset, byte) in text.bytes().enumerate() {
            for pattern in &mut self.patterns {
                pattern.advance(byte);
            }
            let complete = self.patterns.iter().enumerate();
            let longest = complete
                .filter(|(_, pattern)| pattern.state == pattern.text.len())
                .max_by_key(|(_, pattern)| pattern.state);
            if let Some((index, pattern)) = longest {
                self.pending.truncate(before + offset + 1 - pattern.state);
                self.released = self.pending.len();
                self.matched = Some(index);
                return &self.pending;
            }
        }
        // Stop strings begin with a whole character, so this cut never splits one.
        let held = self.patterns.iter().map(|p| p.state).max().unwrap_or(0);
        self.released = self.pending.len() - held;
        &self.pending[..self.released]
    }

    /// Ends the stream and returns the text that was still held back.
    pub fn flush(&mut self) -> &str {
        self.pending.drain(..self.released);
        self.released = self.pending.len();
        for pattern in &mut self.patterns {
            pattern.state = 0;
        }
        &self.pending
    }

    /// The stop string that ended the stream.
    pub fn matched(&self) -> Option<&str> {
        let pattern = self.patterns.get(self.matched?)?;
        Some(&pattern.text)
    }
}

impl Pattern {
    fn new(index: usize, text: String) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::argument(
                format!("stop[{index}]"),
                "expected stop strings of at least one character, found an empty one",
            )
            .with_hint("leave the empty string out: it would stop before the first token"));
        }
        let bytes = text.as_bytes();
        let mut borders = vec![0; bytes.len() + 1];
        let mut border = 0;
        for at in 1..bytes.len() {
            while border > 0 && bytes[border] != bytes[at] {
                border = borders[border];
            }
            border += usize::from(bytes[border] == bytes[at]);
            borders[at + 1] = border;
        }
        Ok(Self { text, borders, state: 0 })
    }

    fn advance(&mut self, byte: u8) {
        let bytes = self.text.as_bytes();
        while self.state > 0 && bytes.get(self.state) != Some(&byte) {
            self.state = self.borders[self.state];
        }
        self.state += usize::from(bytes.get(self.state) == Some(&byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// The definition: the shortest prefix of `text` that ends with a stop string decides.
    fn naive(text: &str, stops: &[&str]) -> (String, Option<String>) {
        for end in 1..=text.len() {
            let ending = stops.iter().filter(|s| text.as_bytes()[..end].ends_with(s.as_bytes()));
            if let Some(stop) = ending.max_by_key(|s| s.len()) {
                return (text[..end - stop.len()].to_owned(), Some((*stop).to_owned()));
            }
        }
        (text.to_owned(), None)
    }

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut stop = StopMatcher::new(stops.iter().copied()).unwrap();
        let mut out = String::new();
        for piece in pieces {
            out.push_str(stop.push(piece));
        }
        out.push_str(stop.flush());
        (out, stop.matched().map(str::to_owned))
    }

    #[test]
    fn agrees_with_the_definition_over_every_chunking() {
        let cases: &[(&str, &[&str])] = &[
            ("aabaabaaab", &["aaab"]),
            ("aabaabaaab", &["aab", "baaa"]),
            ("xabcabdx", &["abcabd", "cab"]),
            ("ein Stück für dich", &["ück", "für"]),
            ("日本語の日本人", &["日本人", "の日"]),
            ("nothing here", &["zzz", "heresy"]),
            ("abc", &["abc", "bc", "c"]),
            ("", &["a"]),
        ];
        for (text, stops) in cases {
            let expected = naive(text, stops);
            let borders: Vec<usize> = text.char_indices().map(|(i, _)| i).skip(1).collect();
            for mask in 0..1_u32 << borders.len() {
                let mut pieces = Vec::new();
                let mut from = 0;
                for (bit, &border) in borders.iter().enumerate() {
                    if mask >> bit & 1 == 1 {
                        pieces.push(&text[from..border]);
                        from = border;
                    }
                }
                pieces.push(&text[from..]);
                assert_eq!(run(stops, &pieces), expected, "{text:?} {stops:?} {pieces:?}");
            }
        }
    }

    #[test]
    fn holds_back_no_more_than_needed() {
        let mut stop = StopMatcher::new(["<end>"]).unwrap();
        assert_eq!(stop.push("a<e"), "a");
        assert_eq!(stop.push("x"), "<ex");
        assert_eq!(stop.push("<end"), "");
        assert_eq!(stop.flush(), "<end");
        assert_eq!(stop.flush(), "");
        assert_eq!(stop.matched(), None);
    }

    #[test]
    fn passes_everything_without_stop_strings() {
        let mut stop = StopMatcher::new::<String>([]).unwrap();
        assert_eq!(stop.push("any text"), "any text");
        assert_eq!(stop.flush(), "");
    }

    #[test]
    fn empty_stop_strings_are_refused() {
        let error = StopMatcher::new(["a", ""]).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.context(), [("field", "stop[1]".to_owned())]);
    }
}
