//! What do chat templates say that minijinja reads otherwise than Jinja 2?
//!
//! These are rewritten before a template is compiled: transformers' `generation` blocks, which mark what an assistant
//! says, become blocks that do nothing; loops ask [`ITERATED`] first, since Jinja 2 refuses to go through `none`; sums
//! with `safe` texts are [`MARKUP_SUM`], which escapes the other summands. Operators cost the engine's fuel no more for
//! long texts and lists than for short ones, so that what they are given passes filters, which do: lists, dictionaries,
//! tuples, summands, products, what is compared or set as a namespace's pass [`HELD`], which measures them, and texts of
//! which a part is taken pass [`PAID`].

/// The filter that refuses what cannot be gone through.
pub(super) const ITERATED: &str = "__iterated";
/// The filter that adds up texts of which some are safe.
pub(super) const MARKUP_SUM: &str = "__markup_sum";
/// The filter of texts that are read to find a part.
pub(super) const PAID: &str = "__paid";
/// The filter of what holds values, or is gone through.
pub(super) const HELD: &str = "__held";
/// More brackets within brackets than minijinja reads.
const NESTING_MAX: usize = 200;

/// Operators of one tag: more than any template needs, and few enough for work that grows with their square.
const OPERATORS_MAX: usize = 500;

/// Bytes of a name, which is hashed wherever it is said.
const NAME_MAX: usize = 256;

/// Bytes of a text that is as good as none to compare with.
const SHORT_MAX: usize = 64;

/// The source as minijinja is to have it; `None` if a tag or a name is longer than can be. What is not understood stays
/// as it is.
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
            Some(code) if code.len == tag.len() && operators(tag).is_none() => return None,
            Some(code) if code.len == tag.len() && !tag.starts_with("{#") => {
                let (start, holds) = code.expression();
                out.push_str(&tag[..start]);
                out.push_str(if holds { " (" } else { "" });
                // What is set or given may be gone through.
                let first = code.words().first().map_or("", |word| word.text);
                let sums = tag.starts_with("{%") && !matches!(first, "if" | "elif" | "for");
                Operands::rewrite(&tag[start..code.end], 0, sums, &mut out);
                out.push_str(&if holds { format!(")|{HELD} ") } else { String::new() });
                out.push_str(&tag[code.end..]);
            }
            _ => out.push_str(tag),
        }
        rest = &rest[len..];
    }
    Some(out + rest)
}

/// How many operators are in a tag, texts left out; `None` if there are too many, or a name is too long.
fn operators(tag: &str) -> Option<usize> {
    let bytes = tag.as_bytes();
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        let from = at;
        at += 1;
        match bytes[from] {
            b'\'' | b'"' => at = end_of_string(bytes, from).unwrap_or(bytes.len()),
            b'+' | b'-' | b'*' | b'/' | b'%' | b'~' | b'|' | b'.' | b'[' | b'(' | b'<' | b'>' => count += 1,
            byte if is_name(byte) => {
                at = end_of_name(bytes, from);
                if at - from > NAME_MAX {
                    return None;
                }
                count += usize::from(matches!(
                    &bytes[from..at],
                    b"and" | b"or" | b"not" | b"if" | b"else" | b"is" | b"in"
                ));
            }
            _ => {}
        }
    }
    (count <= OPERATORS_MAX).then_some(count)
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

/// Code whose operands are rewritten as it is copied.
struct Operands<'a, 'o> {
    code: &'a str,
    depth: usize,
    /// Whether sums are measured.
    sums: bool,
    out: &'o mut String,
    /// Behind what was read.
    at: usize,
    /// The last byte of the operand that is no space.
    last: Option<u8>,
    /// Where the present side of a comparison began in `code`.
    from: usize,
    side: Part,
    /// Of the side.
    summand: Part,
    /// Of the summand.
    product: Part,
    /// Where the text or the like began in `out` that an index may follow; `None` for names of filters and tests.
    primary: Option<usize>,
    /// Whether a test's name was last, which an argument may follow.
    tests: bool,
}

/// A part of an expression: where it began in `out`, whether it passes [`HELD`], and whether it is more than texts.
#[derive(Clone, Copy, Default)]
struct Part {
    start: usize,
    held: bool,
    mixed: bool,
}

impl Part {
    fn new(start: usize) -> Self {
        Self { start, ..Self::default() }
    }
}

impl<'a, 'o> Operands<'a, 'o> {
    /// Appends `code` to `out`.
    fn rewrite(code: &'a str, depth: usize, sums: bool, out: &'o mut String) {
        let part = Part::new(out.len());
        let (side, summand, product) = (part, part, part);
        let (at, from, last, primary) = (0, 0, None, None);
        let tests = false;
        let mut all = Self { code, depth, sums, out, at, last, from, side, summand, product, primary, tests };
        while all.at < code.len() {
            all.next();
        }
        all.end_side();
    }

    fn next(&mut self) {
        let (bytes, from) = (self.code.as_bytes(), self.at);
        match bytes[from] {
            b'\'' | b'"' => {
                let end = end_of_string(bytes, from).unwrap_or(bytes.len());
                self.begin_primary();
                self.copy(end, Some(b'"'));
            }
            b'(' | b'[' | b'{' if self.depth < NESTING_MAX => self.brackets(),
            sign @ (b'+' | b'-') if self.last.is_some() => {
                self.end_summand(sign == b'+');
                self.copy(from + 1, None);
                self.summand = Part { held: sign == b'+', ..Part::new(self.out.len()) };
                self.product = Part::new(self.out.len());
            }
            b'~' => {
                self.end_product();
                self.copy(from + 1, None);
                self.product = Part::new(self.out.len());
            }
            b',' | b':' | b'=' | b'!' | b'<' | b'>' => self.end_of_side(),
            byte if is_name(byte) => self.word(),
            byte => {
                self.product.held |= byte == b'*' && self.last.is_some();
                let len = self.code[from..].chars().next().map_or(1, char::len_utf8);
                let last = match byte {
                    // A sign behind it is no operator.
                    b'*' | b'/' | b'%' => None,
                    byte if byte.is_ascii_whitespace() => self.last,
                    byte => Some(byte),
                };
                self.copy(from + len, last);
            }
        }
    }

    fn copy(&mut self, end: usize, last: Option<u8>) {
        self.out.push_str(&self.code[self.at..end]);
        (self.at, self.last) = (end, last);
    }

    fn mix(&mut self) {
        (self.side.mixed, self.summand.mixed, self.product.mixed) = (true, true, true);
    }

    /// A comparison, or what separates expressions.
    fn end_of_side(&mut self) {
        let rest = &self.code.as_bytes()[self.at..];
        let len = 1 + usize::from(rest.get(1) == Some(&b'='));
        let compares = len == 2 || matches!(rest[0], b'<' | b'>');
        let held = compares && self.is_long(self.at + len);
        self.side.held |= held;
        self.end_side();
        self.copy(self.at + len, None);
        self.begin_side();
    }

    fn word(&mut self) {
        /// Words that end an expression.
        const ENDS: [&str; 8] = ["and", "or", "not", "in", "if", "elif", "else", "for"];
        let bytes = self.code.as_bytes();
        let end = end_of_name(bytes, self.at);
        let word = &self.code[self.at..end];
        let side = &self.code[self.from..self.at];
        let of_test = match word {
            "not" => ends_with_word(side, &["is"]),
            "in" => ends_with_word(side, &["is", "not"]),
            _ => false,
        };
        if !ENDS.contains(&word) || of_test || matches!(self.last, Some(b'.' | b'|')) {
            let tests = ends_with_word(side, &["is", "not"]);
            if self.last == Some(b'|') || tests {
                (self.primary, self.tests) = (None, tests && word != "not");
            } else if self.last != Some(b'.') {
                self.begin_primary();
            }
            if !word.bytes().all(|byte| byte.is_ascii_digit()) {
                self.mix();
            }
            return self.copy(end, word.bytes().last());
        }
        // `not in` is one operator.
        let behind = self.code[end..].trim_ascii_start();
        let within = self.last.is_some()
            && word == "not"
            && ends_with_word(behind.get(..3).unwrap_or(behind), &["in"]);
        let end = if within { self.code.len() - behind.len() + 2 } else { end };
        let held =
            (within || word == "in") && self.is_long(end) && !self.code[end..].trim_start().starts_with('[');
        self.side.held |= held;
        self.end_side();
        self.copy(end, None);
        self.begin_side();
        self.side.held = held;
    }

    /// Whether the present side is to be compared with what begins at `other`, and neither is short.
    fn is_long(&self, other: usize) -> bool {
        let side = &self.code[self.from..self.at];
        !is_short(side) && !begins_short(&self.code[other..]) && !ends_with_word(side, &["is"])
    }

    /// What is in brackets: a call's, an index, or a value.
    fn brackets(&mut self) {
        let (bytes, from) = (self.code.as_bytes(), self.at);
        let end = closing(bytes, from + 1);
        let within = &self.code[from + 1..end];
        let called = self.last.is_some_and(|last| is_name(last) || matches!(last, b')' | b']' | b'}' | b'"'));
        let closed = end < bytes.len();
        let holds = !called && closed && (bytes[from] != b'(' || has_outside(b',', within.as_bytes()));
        // Behind a test's name it is a list.
        let index = called && closed && bytes[from] == b'[' && !self.tests && !is_short_text(within.trim());
        let key = index && !is_short(within) && !has_outside(b':', within.as_bytes());
        if let (true, Some(primary)) = (index, self.primary) {
            self.wrap(primary, PAID);
            self.out.insert(primary, '(');
            self.out.push(')');
        }
        if !called {
            self.begin_primary();
        }
        self.tests = false;
        self.out.push_str(if holds { "(" } else { "" });
        self.out.push(char::from(bytes[from]));
        let start = self.out.len();
        Operands::rewrite(within, self.depth + 1, !key, self.out);
        if key {
            self.wrap(start, HELD);
        }
        self.out.push_str(self.code.get(end..=end).unwrap_or_default());
        self.out.push_str(&if holds { format!("|{HELD})") } else { String::new() });
        self.mix();
        (self.at, self.last) = ((end + 1).min(bytes.len()), Some(b')'));
    }

    fn end_product(&mut self) {
        if self.product.held && self.product.mixed {
            self.wrap(self.product.start, HELD);
        }
    }

    fn end_summand(&mut self, adds: bool) {
        self.summand.held |= adds;
        self.side.held |= self.sums && self.summand.held && self.summand.mixed;
        let held = self.summand.held && self.summand.mixed;
        if !held || self.product.start != self.summand.start {
            self.end_product();
        }
        if held {
            self.wrap(self.summand.start, HELD);
        }
    }

    fn end_side(&mut self) {
        self.end_summand(false);
        if self.side.held && self.side.mixed {
            self.wrap(self.side.start, HELD);
        }
    }

    fn begin_side(&mut self) {
        let part = Part::new(self.out.len());
        (self.side, self.summand, self.product, self.from) = (part, part, part, self.at);
        (self.primary, self.tests) = (None, false);
    }

    /// What is next may be indexed. A test's argument without brackets stays as it is: in brackets of its own it would end
    /// with them.
    fn begin_primary(&mut self) {
        self.primary = (!std::mem::take(&mut self.tests)).then_some(self.out.len());
    }

    /// Has what was written from `start` on pass `filter`.
    fn wrap(&mut self, start: usize, filter: &str) {
        let operand = self.out[start..].trim_end();
        let (from, to) = (start + (operand.len() - operand.trim_start().len()), start + operand.len());
        if from < to {
            // Not to be one with a name behind it.
            let next = self.code.as_bytes().get(self.at).copied();
            let space = if to == self.out.len() && next.is_some_and(is_name) { " " } else { "" };
            self.out.insert_str(to, &format!(")|{filter}{space}"));
            self.out.insert(from, '(');
        }
    }
}

/// Whether `code` is a short text, or a number or a name that is a value.
fn is_short(code: &str) -> bool {
    let code = code.trim();
    let number = code.strip_prefix('-').unwrap_or(code);
    is_short_text(code)
        || matches!(code, "none" | "None" | "true" | "True" | "false" | "False")
        || (number.starts_with(|char: char| char.is_ascii_digit())
            && number.bytes().all(|byte| is_name(byte) || byte == b'.'))
}

fn is_short_text(code: &str) -> bool {
    let quoted = code.starts_with(['\'', '"']) && code.len() <= SHORT_MAX;
    quoted && end_of_string(code.as_bytes(), 0) == Some(code.len())
}

/// Whether `code` begins with what is short and not part of something longer.
fn begins_short(code: &str) -> bool {
    let (code, bytes) = (code.trim_start(), code.trim_start().as_bytes());
    let mut end = match bytes.first() {
        Some(b'\'' | b'"') => end_of_string(bytes, 0).unwrap_or(bytes.len()),
        _ => usize::from(bytes.first() == Some(&b'-')),
    };
    while bytes.get(end).is_some_and(|byte| is_name(*byte)) {
        end += 1;
    }
    is_short(&code[..end])
        && !code[end..].trim_start().starts_with(['+', '-', '*', '/', '~', '.', '[', '|', '%', '('])
}

/// Whether one of `words` ends `code`.
fn ends_with_word(code: &str, words: &[&str]) -> bool {
    let code = code.trim_end();
    let before = |word: &&str| code.strip_suffix(*word);
    words.iter().filter_map(before).any(|before| !before.bytes().last().is_some_and(is_name))
}

/// Behind the name that begins at `at`.
fn end_of_name(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).copied().is_some_and(is_name) {
        at += 1;
    }
    at
}

/// Whether a byte is a name's or a number's.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether `wanted` is between the brackets, outside of others.
fn has_outside(wanted: u8, within: &[u8]) -> bool {
    let mut at = 0;
    while at < within.len() {
        match within[at] {
            byte if byte == wanted => return true,
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
                    if is_name(byte) {
                        at = end_of_name(bytes, at);
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
