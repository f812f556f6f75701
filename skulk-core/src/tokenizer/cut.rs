//! Where are the borders of words?
//!
//! The expressions of [`pre`](super::pre) look ahead only behind spaces. Here they search without that, in one pass
//! over the text (crate `regex`), and what follows spaces is seen afterwards: cutting takes linear time.

use regex::Regex;

use super::pre::{SPACES, SPACES_GPT2, SPACES_JAIS2, Split};

/// A [`Split`] that is ready for use.
#[derive(Debug)]
pub(super) enum Cut {
    Find { regex: Regex, spaces: Spaces },
    Thirds { numbers: Regex },
    Triples { digits: Regex },
}

/// What becomes of a match of nothing but spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spaces {
    /// It is a word.
    Word,
    /// It is a word, but in front of others it leaves them its last space. With `lines` it does not where that is a
    /// newline: another alternative found it.
    AllButLast { lines: bool },
    /// The same, in pieces of powers of two.
    Powers,
}

/// Calls `word` with the words of `text`, in order.
pub(super) fn words<'a, E>(
    cuts: &[Cut],
    text: &'a str,
    word: &mut impl FnMut(&'a str) -> Result<(), E>,
) -> Result<(), E> {
    let Some((cut, finer)) = cuts.split_first() else {
        return word(text);
    };
    let mut from = 0;
    for to in cut.borders(text).into_iter().chain([text.len()]) {
        if to > from {
            words(finer, &text[from..to], word)?;
            from = to;
        }
    }
    Ok(())
}

impl Cut {
    pub(super) fn new(split: Split) -> Result<Self, regex::Error> {
        let pattern = match split {
            Split::Find(pattern) => pattern,
            Split::Thirds => return Ok(Self::Thirds { numbers: Regex::new(r"\p{N}+")? }),
            Split::Triples => return Ok(Self::Triples { digits: Regex::new("[0-9]{3,}")? }),
        };
        let lines = pattern.contains(r"|\s*[\r\n]");
        let ends = [
            (SPACES_JAIS2, Spaces::Powers),
            (SPACES, Spaces::AllButLast { lines }),
            (SPACES_GPT2, Spaces::AllButLast { lines }),
        ];
        let found = ends.iter().find_map(|(end, spaces)| Some((pattern.strip_suffix(end)?, *spaces)));
        Ok(match found {
            Some((head, spaces)) => Self::Find { regex: Regex::new(&format!(r"{head}|\s+"))?, spaces },
            None => Self::Find { regex: Regex::new(pattern)?, spaces: Spaces::Word },
        })
    }

    /// Where words end, in order; some may be there twice.
    fn borders(&self, text: &str) -> Vec<usize> {
        let mut borders = Vec::new();
        match self {
            Self::Find { regex, spaces } => {
                let mut at = 0;
                while let Some(found) = regex.find_at(text, at) {
                    borders.push(found.start());
                    let before = borders.len();
                    spaces.cut(found.as_str(), found.end() == text.len(), &mut borders);
                    borders[before..].iter_mut().for_each(|border| *border += found.start());
                    at = borders[borders.len() - 1];
                }
            }
            Self::Thirds { numbers } => {
                for run in numbers.find_iter(text) {
                    let chars = run.as_str().char_indices();
                    let ends: Vec<_> = chars.map(|(at, char)| run.start() + at + char.len_utf8()).collect();
                    let first = (ends.len() + 2) % 3;
                    borders.extend(ends.iter().skip(first).step_by(3));
                }
            }
            Self::Triples { digits } => {
                for run in digits.find_iter(text) {
                    borders.extend((run.start() + run.len() % 3..run.end()).step_by(3));
                    borders.push(run.end());
                }
            }
        }
        borders
    }
}

impl Spaces {
    /// The ends of the words that a match becomes. What is behind the last of them is left over.
    fn cut(self, found: &str, at_end: bool, ends: &mut Vec<usize>) {
        let newline = found.ends_with(['\r', '\n']);
        let whole = match self {
            Self::Word => true,
            Self::AllButLast { lines } => at_end || lines && newline,
            Self::Powers => newline,
        };
        let last = found.chars().next_back().map_or(0, char::len_utf8);
        if whole || last == found.len() || !found.chars().all(char::is_whitespace) {
            ends.push(found.len());
            return;
        }
        let end = if at_end { found.len() } else { found.len() - last };
        if self == Self::Powers {
            let borders: Vec<_> = found[..end].char_indices().map(|(at, _)| at).collect();
            let mut from = 0;
            while borders.len() - from > 2 {
                let left = borders.len() - from;
                from += if left < 4 { 2 } else { 512.min(1 << left.ilog2()) };
                ends.extend(borders.get(from));
            }
        }
        ends.push(end);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::pre;
    use super::*;

    fn cut<'a>(name: &str, text: &'a str) -> Vec<&'a str> {
        let splits = pre::rules(name).unwrap().splits;
        let cuts: Vec<_> = splits.iter().map(|split| Cut::new(*split).unwrap()).collect();
        let mut found = Vec::new();
        let all: Result<(), Infallible> = words(&cuts, text, &mut |word| {
            found.push(word);
            Ok(())
        });
        let Ok(()) = all;
        found
    }

    #[test]
    fn nothing_is_lost() {
        for name in pre::names() {
            for text in
                ["It's 1234567 Wörter,\n\n ja!  ", " \t\r\n x\u{a0}12Ⅳ345678", "漢字かな  가나 e\u{301}", ""]
            {
                assert_eq!(cut(name, text).concat(), text, "{name}");
            }
        }
    }

    #[test]
    fn families_differ_where_they_should() {
        let text = "I'LL pay 12345\n";
        assert_eq!(cut("gpt-2", text), ["I", "'", "LL", " pay", " 12345", "\n"]);
        assert_eq!(cut("llama-bpe", text), ["I", "'LL", " pay", " ", "123", "45", "\n"]);
        assert_eq!(cut("qwen2", text), ["I", "'LL", " pay", " ", "1", "2", "3", "4", "5", "\n"]);
        assert_eq!(cut("smollm", "a 12"), ["a", " ", "1", "2"]);
        assert_eq!(cut("deepseek-v3", "x1234漢字 y"), ["x", "123", "4", "漢字", " y"]);
        assert_eq!(cut("tekken", "fooBar"), ["foo", "Bar"]);
        assert_eq!(cut("gpt-4o", "Tom's"), ["Tom's"]);
        assert_eq!(cut("kimi-k2", "漢字Tom's"), ["漢字", "Tom's"]);
        assert_eq!(cut("superbpe", "a1234567"), ["a", "1", "234", "567"]);
        assert_eq!(cut("tiny_aya", "a 1234"), ["a", " ", "1", "234"]);
        assert_eq!(cut("jais-2", "a       b"), ["a", "    ", "  ", " b"]);
        assert_eq!(cut("gpt-2", "a \n\n b"), ["a", " \n\n", " b"]);
        assert_eq!(cut("llama-bpe", "a \n\n   b"), ["a", " \n\n", "  ", " b"]);
    }

    /// What is quadratic would not come to an end.
    #[test]
    fn long_runs_take_linear_time() {
        let texts = ["a", "A", " ", "\n", "1", "é", "漢", "!", "\u{301}", "a ", "1 ", " \n"];
        for name in pre::names() {
            for text in texts {
                let text = format!("{}漢", text.repeat(100_000 / text.len()));
                assert_eq!(cut(name, &text).iter().map(|word| word.len()).sum::<usize>(), text.len());
            }
        }
    }
}
