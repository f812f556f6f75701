//! What do chat templates say that minijinja reads otherwise than Jinja 2?
//!
//! These are rewritten before a template is compiled: transformers' `generation` blocks, which mark what an assistant
//! says, become blocks that do nothing; loops ask [`ITERATED`] first, since Jinja 2 refuses to go through `none`; sums
//! with `safe` texts are [`MARKUP_SUM`], which escapes the other summands; what is added up passes [`BOUNDED`], since
//! sums of lists, which cost no fuel, could double without end; and lists, dictionaries, tuples and what is set as a
//! namespace's pass [`HELD`], which measures them.

/// The filter that refuses what cannot be gone through.
pub(super) const ITERATED: &str = "__iterated";
/// The filter that adds up texts of which some are safe.
pub(super) const MARKUP_SUM: &str = "__markup_sum";
/// The filter that refuses long lists.
pub(super) const BOUNDED: &str = "__bounded";
/// The filter of what holds values.
pub(super) const HELD: &str = "__held";
/// More brackets within brackets than minijinja reads.
const NESTING_MAX: usize = 200;

/// Operators of one tag: more than any template needs, and few enough for work that grows with their square.
const OPERATORS_MAX: usize = 500;

/// The source as minijinja is to have it; `None` if a tag is longer than can be. What is not understood stays as it is.
pub(super) fn prepared(source: &str) -> Option<String> {
    let mut out = String::with_capacity(source.len() + 64);
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (len, rewritten) = match rest.as_bytes().get(1) {
            Some(b'#') => (rest.find("#}").map_or(rest.len(), |end| end + 2), None),
            Some(b'%') => block(rest),
            Some(b'{') => print(rest),
            _ => (1, None),
        };
        let tag = rewritten.as_deref().unwrap_or(&rest[..len]);
        match Code::read(tag, if tag.starts_with("{%") { "%}" } else { "}}" }) {
            Some(code) if code.len == tag.len() && operators(tag) > OPERATORS_MAX => return None,
            Some(code) if code.len == tag.len() && !tag.starts_with("{#") => {
                let (start, holds) = code.expression();
                out.push_str(&tag[..start]);
                out.push_str(if holds { " (" } else { "" });
                bounded(&tag[start..code.end], 0, &mut out);
                out.push_str(&if holds { format!(")|{HELD} ") } else { String::new() });
                out.push_str(&tag[code.end..]);
            }
            _ => out.push_str(tag),
        }
        rest = &rest[len..];
    }
    Some(out + rest)
}

/// How many operators are in a tag, texts left out.
fn operators(tag: &str) -> usize {
    let bytes = tag.as_bytes();
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        let from = at;
        at += 1;
        match bytes[from] {
            b'\'' | b'"' => at = end_of_string(bytes, from).unwrap_or(bytes.len()),
            b'+' | b'-' | b'*' | b'/' | b'%' | b'~' | b'|' | b'.' | b'[' | b'(' | b'<' | b'>' => count += 1,
            byte if byte.is_ascii_alphabetic() => {
                while bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
                    at += 1;
                }
                count +=
                    usize::from(matches!(&tag[from..at], "and" | "or" | "not" | "if" | "else" | "is" | "in"));
            }
            _ => {}
        }
    }
    count
}

/// The length of the block tag at the beginning, all where it does not end, and what it is to be instead.
fn block(tag: &str) -> (usize, Option<String>) {
    let Some(code) = Code::read(tag, "%}") else { return (tag.len(), None) };
    let words = code.words();
    let rewritten = match words.first().map(|word| word.text) {
        // Whatever it contains is text.
        Some("raw") if words.len() == 1 => return (end_of_raw(tag, code.len), None),
        Some("generation") if words.len() == 1 => Some(code.replaced(words[0], "with")),
        Some("endgeneration") if words.len() == 1 => Some(code.replaced(words[0], "endwith")),
        Some("for") => iteration(&code, &words),
        Some("set") => {
            words.iter().find(|word| word.text == "=").and_then(|equals| sum(&code, &words, equals.end))
        }
        _ => None,
    };
    (code.len, rewritten)
}

/// Likewise, of a tag that prints.
fn print(tag: &str) -> (usize, Option<String>) {
    match Code::read(tag, "}}") {
        Some(code) => (code.len, sum(&code, &code.words(), code.start)),
        None => (tag.len(), None),
    }
}

/// `{% for x in items if … %}`, with the filter.
fn iteration(code: &Code<'_>, words: &[Word<'_>]) -> Option<String> {
    let within = words.iter().position(|word| word.text == "in")?;
    let (_, behind) = words.split_at(within + 1);
    let end = behind
        .iter()
        .find(|word| matches!(word.text, "if" | "recursive"))
        .map_or(code.end, |word| word.start);
    let items = code.tag[words[within].end..end].trim();
    let (before, after) = (&code.tag[..words[within].end], &code.tag[end..code.len]);
    Some(format!("{before} ({items})|{ITERATED} {after}"))
}

/// `a + b + c` from `start` on, of which one is marked as safe, as what adds them up.
fn sum(code: &Code<'_>, words: &[Word<'_>], start: usize) -> Option<String> {
    const OTHERS: [&str; 14] =
        ["-", "*", "/", "%", "~", ",", "=", "if", "else", "and", "or", "not", "in", "is"];
    let words: Vec<_> = words.iter().filter(|word| word.start >= start).collect();
    let pluses: Vec<_> = words.iter().filter(|word| word.text == "+").collect();
    let safe = words.iter().any(|word| word.text == "safe");
    if pluses.is_empty() || !safe || words.iter().any(|word| OTHERS.contains(&word.text)) {
        return None;
    }
    let bounds = pluses.iter().map(|plus| (plus.start, plus.end)).chain([(code.end, code.end)]);
    let mut from = start;
    let mut summands = String::new();
    for (end, next) in bounds {
        summands.push_str(&format!("({}), ", code.tag[from..end].trim()));
        from = next;
    }
    Some(format!("{} [{summands}]|{MARKUP_SUM} {}", &code.tag[..start], &code.tag[code.end..code.len]))
}

/// Appends `code` with every summand passed through [`BOUNDED`].
fn bounded(code: &str, depth: usize, out: &mut String) {
    /// Words that end a summand.
    const ENDS: [&str; 8] = ["and", "or", "not", "in", "if", "elif", "else", "for"];
    let bytes = code.as_bytes();
    // Where the present operand began in `out`, whether a plus is before it, and whether it is more than a text.
    let (mut at, mut start, mut adds, mut plain) = (0, out.len(), false, true);
    // The last byte of it that is no space.
    let mut last = None;
    let finish = |out: &mut String, start: usize, wrap: bool| {
        let operand = out[start..].trim_end();
        let (from, to) = (start + (operand.len() - operand.trim_start().len()), start + operand.len());
        if wrap && from < to {
            out.insert_str(to, &format!(")|{BOUNDED}"));
            out.insert(from, '(');
        }
    };
    while at < bytes.len() {
        let from = at;
        at += 1;
        match bytes[from] {
            b'\'' | b'"' => {
                at = end_of_string(bytes, from).unwrap_or(bytes.len());
                out.push_str(&code[from..at]);
                last = Some(b'"');
            }
            b'(' | b'[' | b'{' if depth < NESTING_MAX => {
                let end = closing(bytes, at);
                // Behind an operand it is a call's or an index.
                let called =
                    last.is_some_and(|last| is_name(last) || matches!(last, b')' | b']' | b'}' | b'"'));
                let holds =
                    !called && end < bytes.len() && (bytes[from] != b'(' || has_comma(&bytes[at..end]));
                out.push_str(if holds { "(" } else { "" });
                out.push(char::from(bytes[from]));
                bounded(&code[at..end], depth + 1, out);
                out.push_str(code.get(end..=end).unwrap_or_default());
                out.push_str(&if holds { format!("|{HELD})") } else { String::new() });
                (at, plain, last) = (end + 1, false, Some(b')'));
            }
            sign @ (b'+' | b'-') if last.is_some() => {
                finish(out, start, (adds || sign == b'+') && !plain);
                out.push(char::from(sign));
                (start, adds, plain, last) = (out.len(), sign == b'+', true, None);
            }
            b',' | b':' | b'=' | b'!' | b'<' | b'>' | b'%' => {
                finish(out, start, adds && !plain);
                out.push(char::from(bytes[from]));
                (start, adds, plain, last) = (out.len(), false, true, None);
            }
            byte if is_name(byte) => {
                while bytes.get(at).copied().is_some_and(is_name) {
                    at += 1;
                }
                let word = &code[from..at];
                if ENDS.contains(&word) && !matches!(last, Some(b'.' | b'|')) {
                    finish(out, start, adds && !plain);
                    out.push_str(word);
                    (start, adds, plain, last) = (out.len(), false, true, None);
                } else {
                    out.push_str(word);
                    plain = plain && word.bytes().all(|byte| byte.is_ascii_digit());
                    last = Some(byte);
                }
            }
            byte => {
                while !code.is_char_boundary(at) {
                    at += 1;
                }
                out.push_str(&code[from..at]);
                last = if byte.is_ascii_whitespace() { last } else { Some(byte) };
            }
        }
    }
    finish(out, start, adds && !plain);
}

/// Whether a byte is a name's or a number's.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether a comma is between the brackets, outside of others.
fn has_comma(within: &[u8]) -> bool {
    let mut at = 0;
    while at < within.len() {
        match within[at] {
            b',' => return true,
            b'\'' | b'"' => at = end_of_string(within, at).unwrap_or(within.len()),
            b'(' | b'[' | b'{' => at = closing(within, at + 1) + 1,
            _ => at += 1,
        }
    }
    false
}

/// Where the bracket closes that was opened before `at`.
fn closing(bytes: &[u8], mut at: usize) -> usize {
    let mut open = 1_usize;
    while at < bytes.len() {
        match bytes[at] {
            b'\'' | b'"' => {
                at = end_of_string(bytes, at).unwrap_or(bytes.len());
                continue;
            }
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return at;
        }
        at += 1;
    }
    bytes.len()
}

/// Where the tag begins that ends the raw text behind `len`.
fn end_of_raw(tag: &str, len: usize) -> usize {
    let ends = tag[len..].match_indices("{%").map(|(at, _)| len + at);
    let mut ends = ends.filter(|at| {
        let rest = &tag[at + 2..];
        rest.strip_prefix(['-', '+']).unwrap_or(rest).trim_ascii_start().starts_with("endraw")
    });
    ends.next().unwrap_or(tag.len())
}

/// A tag, from its first brace to its last.
struct Code<'a> {
    tag: &'a str,
    /// Where its code begins and ends, without what trims space.
    start: usize,
    end: usize,
    len: usize,
}

/// A name or an operator outside of brackets and texts.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    start: usize,
    end: usize,
}

impl<'a> Code<'a> {
    /// The tag that `text` begins with; `None` if it does not end.
    fn read(text: &'a str, close: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let start = 2 + usize::from(matches!(bytes.get(2), Some(b'-' | b'+')));
        let mut at = start;
        let mut open = 0_usize;
        loop {
            match *bytes.get(at)? {
                b'\'' | b'"' => at = end_of_string(bytes, at)?,
                _ if open == 0 && bytes[at..].starts_with(close.as_bytes()) => break,
                b'{' | b'(' | b'[' => (open, at) = (open + 1, at + 1),
                b'}' | b')' | b']' => (open, at) = (open.saturating_sub(1), at + 1),
                _ => at += 1,
            }
        }
        let trims = at > start && matches!(bytes[at - 1], b'-' | b'+');
        Some(Self { tag: text, start, end: at - usize::from(trims), len: at + close.len() })
    }

    fn words(&self) -> Vec<Word<'a>> {
        let bytes = &self.tag.as_bytes()[..self.end];
        let (mut at, mut open) = (self.start, 0_usize);
        let mut words = Vec::new();
        while at < bytes.len() {
            let start = at;
            at += 1;
            match bytes[start] {
                b'\'' | b'"' => at = end_of_string(bytes, start).unwrap_or(bytes.len()),
                b'(' | b'[' | b'{' => open += 1,
                b')' | b']' | b'}' => open = open.saturating_sub(1),
                byte if byte.is_ascii_whitespace() => {}
                byte => {
                    while is_name(byte) && bytes.get(at).copied().is_some_and(is_name) {
                        at += 1;
                    }
                    if open == 0 {
                        words.push(Word { text: &self.tag[start..at], start, end: at });
                    }
                }
            }
        }
        words
    }

    /// Where the names end that the tag gives values, and whether what follows must be measured.
    fn expression(&self) -> (usize, bool) {
        let words = self.words();
        let behind = |wanted: &str| words.iter().position(|word| word.text == wanted);
        match words.first().map(|word| word.text) {
            Some("set") => behind("=").map_or((self.start, false), |equals| {
                let (names, values) = words.split_at(equals);
                let holds =
                    names.iter().any(|word| word.text == ".") || values.iter().any(|word| word.text == ",");
                (values[0].end, holds)
            }),
            Some("for") => (behind("in").map_or(self.end, |within| words[within].end), false),
            Some("call") => {
                let code = self.tag[words[0].end..self.end].trim_ascii_start();
                let names = self.end - code.len() + 1;
                let end = || closing(&self.tag.as_bytes()[..self.end], names);
                (if code.starts_with('(') { end() } else { words[0].end }, false)
            }
            Some(_) if self.tag.starts_with("{%") => (words[0].end, false),
            _ => (self.start, false),
        }
    }

    fn replaced(&self, word: Word<'_>, with: &str) -> String {
        format!("{}{with}{}", &self.tag[..word.start], &self.tag[word.end..self.len])
    }
}

/// Behind the text in quotes that begins at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match *bytes.get(at)? {
            b'\\' => at += 2,
            byte if byte == bytes[start] => return Some(at + 1),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests;
