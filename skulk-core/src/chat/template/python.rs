//! How does Python print a value? As `str` and `repr` do, and as `json.dumps` does.

use std::fmt::Write;
use std::sync::LazyLock;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use regex::Regex;

use super::generator::is_generator;

/// Deeper values are not printed: no template needs them, and printing recurses.
const DEPTH_MAX: usize = 256;

/// More text than any prompt; values that hold each other many times print long.
const TEXT_MAX: usize = 16 << 20;

fn check(out: &str, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value nests too deep to be printed"));
    }
    if out.len() > TEXT_MAX { Err(Error::from(ErrorKind::OutOfFuel)) } else { Ok(()) }
}

/// Appends what `str(value)` is; nothing of what is undefined.
pub(super) fn text(value: &Value, out: &mut String) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => repr(value, out, 0)?,
    }
    Ok(())
}

/// Appends what `repr(value)` is, at that depth.
pub(super) fn repr(value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    check(out, depth)?;
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(value, out),
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Map if !is_plain_map(value) => {
            let _ = write!(out, "{value}");
        }
        ValueKind::Map => {
            out.push('{');
            for (i, (key, item)) in pairs(value).enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                repr(&key, out, depth + 1)?;
                out.push_str(": ");
                repr(&item, out, depth + 1)?;
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.is_tuple();
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()?.checked() {
                out.push_str(if count == 0 { "" } else { ", " });
                repr(&item?, out, depth + 1)?;
                count += 1;
            }
            out.push_str(match (tuple, count) {
                (true, 1) => ",)",
                (true, _) => ")",
                (false, _) => "]",
            });
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

/// A dictionary; not a namespace or the like.
fn is_plain_map(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.try_iter_pairs().is_some())
}

fn pairs(value: &Value) -> impl Iterator<Item = (Value, Value)> {
    let pairs = value.as_object().and_then(|object| {
        let pairs: Option<Vec<_>> = object.try_iter_pairs().map(Iterator::collect);
        pairs
    });
    pairs.unwrap_or_default().into_iter()
}

fn number(value: &Value, out: &mut String) {
    let float = (!value.is_integer()).then(|| f64::try_from(value.clone()).ok()).flatten();
    match float {
        Some(float) => out.push_str(&float_repr(float)),
        None => {
            let _ = write!(out, "{value}");
        }
    }
}

/// `repr` of a float: the shortest digits that are read back as it, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn float_repr(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() && !value.is_nan() { "-" } else { "" };
        return format!("{sign}{}", if value.is_nan() { "nan" } else { "inf" });
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match exponent {
        -4..16 => {
            let plain = value.to_string();
            if plain.contains('.') { plain } else { plain + ".0" }
        }
        _ => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

/// `repr` of a string: in single quotes unless it has those and no double ones.
fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for char in text.chars() {
        match char {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            _ if char == quote => out.extend(['\\', char]),
            '\0'..' ' | '\u{7f}'..='\u{a0}' | '\u{ad}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(char));
            }
            _ if is_printable(char) => out.push(char),
            '\0'..='\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(char));
            }
            _ => {
                let _ = write!(out, "\\U{:08x}", u32::from(char));
            }
        }
    }
    out.push(quote);
}

/// Whether `repr` writes a character as it is: all but separators other than the space, and what Unicode does not assign to
/// something that is seen.
fn is_printable(char: char) -> bool {
    static OTHERS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[\p{C}\p{Z}]").ok());
    // The private characters at the end stand for others, see `guard`.
    if matches!(char, ' '..='~' | '\u{100000}'..) {
        return true;
    }
    let others = OTHERS.as_ref();
    others.is_none_or(|others| !others.is_match(char.encode_utf8(&mut [0; 4])))
}

/// How `json.dumps` writes.
pub(super) struct Dumps {
    pub(super) ensure_ascii: bool,
    pub(super) indent: Option<String>,
    pub(super) sort_keys: bool,
    /// Between items, and between key and value.
    pub(super) separators: (String, String),
}

impl Default for Dumps {
    fn default() -> Self {
        let separators = (", ".to_owned(), ": ".to_owned());
        Self { ensure_ascii: false, indent: None, sort_keys: false, separators }
    }
}

impl Dumps {
    pub(super) fn write(&self, value: &Value, out: &mut String) -> Result<(), Error> {
        self.value(value, out, 0)
    }

    fn value(&self, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
        check(out, depth)?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value, out),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Map if is_plain_map(value) => {
                let mut items: Vec<_> = pairs(value)
                    .map(|(key, item)| Ok((key_text(&key)?, item)))
                    .collect::<Result<_, Error>>()?;
                if self.sort_keys {
                    items.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.items(('{', '}'), items, out, depth, |(key, item), out| {
                    self.string(&key, out);
                    out.push_str(&self.separators.1);
                    self.value(&item, out, depth + 1)
                })?;
            }
            ValueKind::Seq | ValueKind::Iterable if !is_generator(value) => {
                let items: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
                self.items(('[', ']'), items, out, depth, |item, out| self.value(&item, out, depth + 1))?;
            }
            kind => {
                return Err(Error::new(ErrorKind::BadSerialization, format!("tojson does not take {kind}")));
            }
        }
        Ok(())
    }

    fn items<T>(
        &self,
        brackets: (char, char),
        items: Vec<T>,
        out: &mut String,
        depth: usize,
        mut write: impl FnMut(T, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(brackets.0);
        let empty = items.is_empty();
        for (i, item) in items.into_iter().enumerate() {
            out.push_str(if i == 0 { "" } else { &self.separators.0 });
            self.line(out, depth + 1);
            write(item, out)?;
        }
        if !empty {
            self.line(out, depth);
        }
        out.push(brackets.1);
        Ok(())
    }

    fn line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn number(&self, value: &Value, out: &mut String) {
        let start = out.len();
        number(value, out);
        let name = match &out[start..] {
            "nan" => "NaN",
            "inf" => "Infinity",
            "-inf" => "-Infinity",
            _ => return,
        };
        out.truncate(start);
        out.push_str(name);
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for char in text.chars() {
            match char {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\0'..' ' => {
                    let _ = write!(out, "\\u{:04x}", u32::from(char));
                }
                // The private characters beyond stand for others, see `guard`.
                '\u{7f}'..'\u{100000}' if self.ensure_ascii => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                _ => out.push(char),
            }
        }
        out.push('"');
    }
}

/// A dictionary's key as JSON has it.
fn key_text(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => (if key.is_true() { "true" } else { "false" }).to_owned(),
        ValueKind::Number => {
            let mut text = String::new();
            number(key, &mut text);
            text
        }
        kind => {
            return Err(Error::new(ErrorKind::BadSerialization, format!("{kind} cannot be a key of JSON")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are Python's.
    #[test]
    fn what_is_not_seen_is_escaped() {
        for (text, expected) in [
            ("a é\u{301} 日🦊~", "'a é\u{301} 日🦊~'"),
            ("\u{7f}\u{a0}\u{ad}", r"'\x7f\xa0\xad'"),
            ("\u{1680}\u{2000}\u{200a}\u{200b}\u{2028}", r"'\u1680\u2000\u200a\u200b\u2028'"),
            ("\u{205f}\u{2060}\u{180e}\u{600}\u{fff9}", r"'\u205f\u2060\u180e\u0600\ufff9'"),
            ("\u{378}\u{e000}\u{fdd0}\u{ffff}", r"'\u0378\ue000\ufdd0\uffff'"),
            ("\u{e0041}\u{1ffff}\u{f0000}", r"'\U000e0041\U0001ffff\U000f0000'"),
        ] {
            let mut out = String::new();
            quoted(text, &mut out);
            assert_eq!(out, expected);
        }
    }

    /// Expected values are Python's.
    #[test]
    fn floats_print_as_in_python() {
        for (float, expected) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (123_456_789_012_345.6, "123456789012345.6"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e100, "1.25e+100"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(float_repr(float), expected);
        }
    }
}
