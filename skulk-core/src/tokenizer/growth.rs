//! How many times as long can a tokenizer's rules make a text?
//!
//! Rules are looked at from the last to the first. For each character it is known how many bytes each of its bytes
//! becomes at most by the rules that follow.

use std::collections::HashMap;

use regex::Regex;
use serde::Serialize;
use serde_json::Value;

use super::charsmap::Charsmap;
use super::vocabulary::Inner;
use crate::error::{Error, ErrorKind, Result};

/// Published tokenizers need about 12 by the bounds used here, and those with a map of characters some hundreds.
pub(super) const MAX: f64 = 1024.0;

/// Refuses rules that make a text longer by more than [`MAX`], before there is a text.
pub(super) fn check(inner: &Inner) -> Result<()> {
    let mut growth = Growth::default();
    for (field, rule) in [
        ("pre_tokenizer", written(inner.get_pre_tokenizer())),
        ("normalizer", written(inner.get_normalizer())),
    ] {
        growth.precede(&rule);
        within(field, growth.most())?;
    }
    within("post_processor", pieces(&written(inner.get_post_processor())))
}

/// Refuses pairs of what is replaced and by what, in their order, as [`check`] does.
pub(super) fn check_replaced(field: &'static str, pairs: &[(String, String)]) -> Result<()> {
    let mut growth = Growth::default();
    for (from, to) in pairs.iter().rev() {
        growth.replace(from, to);
    }
    within(field, growth.most())
}

fn written(rule: Option<&impl Serialize>) -> Value {
    serde_json::to_value(rule).unwrap_or_default()
}

/// An error unless the rules in `field` lengthen text by at most [`MAX`]; whoever knows the file adds it.
pub(super) fn within(field: &'static str, growth: f64) -> Result<()> {
    if growth <= MAX {
        return Ok(());
    }
    Err(Error::new(ErrorKind::TokenizerInvalid, "the tokenizer's rules make texts far longer")
        .with("field", field)
        .with("found", format!("up to {growth} times as long"))
        .with("expected", format!("at most {MAX} times"))
        .with_hint("no published tokenizer does so: fetch the file again, from where you trust it"))
}

struct Growth {
    named: HashMap<char, f64>,
    /// Of all characters that are not named.
    other: f64,
    /// How much of it is by a Unicode normal form: another one beside it does no more.
    form: f64,
}

impl Default for Growth {
    fn default() -> Self {
        Self { named: HashMap::new(), other: 1.0, form: 1.0 }
    }
}

impl Growth {
    fn most(&self) -> f64 {
        self.named.values().copied().fold(self.other, f64::max)
    }

    /// How many bytes a text becomes.
    fn text(&self, text: &str) -> f64 {
        let bytes = text.chars().map(|char| {
            let growth = self.named.get(&char).unwrap_or(&self.other);
            growth * char.len_utf8() as f64
        });
        bytes.sum()
    }

    fn set_all(&mut self, growth: f64) {
        self.named.clear();
        self.other = growth;
    }

    /// Puts a rule of a `tokenizer.json` in front. Those not named here only cut, or take away.
    fn precede(&mut self, rule: &Value) {
        let text = |key: &str| rule[key].as_str().unwrap_or_default();
        let form = std::mem::replace(&mut self.form, 1.0);
        match text("type") {
            "Sequence" => {
                self.form = form;
                let rules = ["normalizers", "pretokenizers"].iter().filter_map(|key| rule[key].as_array());
                rules.flatten().rev().for_each(|rule| self.precede(rule));
            }
            "Replace" => match (rule["pattern"]["String"].as_str(), rule["pattern"]["Regex"].as_str()) {
                (Some(from), _) => self.replace(from, text("content")),
                (None, pattern) => self.replace_matches(pattern.unwrap_or_default(), text("content")),
            },
            "Prepend" => self.set_all(self.most() + self.text(text("prepend"))),
            "Metaspace" => self.escape_spaces(text("replacement"), text("prepend_scheme") != "never"),
            "ByteLevel" => {
                let prefix = if rule["add_prefix_space"] == true { 2.0 } else { 1.0 };
                self.set_all(self.most() * 2.0 * prefix);
            }
            "Precompiled" => self.set_all(self.most() * mapped(text("precompiled_charsmap"))),
            // Spaces around ideographs, or an accented letter's parts, in lower case.
            "BertNormalizer" => self.set_all(self.most() * 5.0),
            "Lowercase" => {
                self.set_all(self.most() * 1.5);
                self.form = form;
            }
            "Strip" | "StripAccents" | "Nmt" => self.form = form,
            // The maxima for UTF-8 are Unicode's, in its FAQ on normalization.
            "NFC" | "NFD" => self.normalize(3.0, form),
            "NFKC" | "NFKD" => self.normalize(11.0, form),
            _ => {}
        }
    }

    /// A normal form, in front of one that counts as `form` already.
    fn normalize(&mut self, growth: f64, form: f64) {
        self.form = growth.max(form);
        self.set_all(self.most() * self.form / form);
    }

    /// What becomes of a text's bytes is shared by those that it takes the place of.
    fn replace(&mut self, from: &str, to: &str) {
        if from.is_empty() {
            return self.set_all(self.most() + self.text(to));
        }
        let share = self.text(to) / from.len() as f64;
        for char in from.chars() {
            let growth = self.named.entry(char).or_insert(self.other);
            *growth = growth.max(share);
        }
    }

    fn replace_matches(&mut self, pattern: &str, to: &str) {
        let (most, to) = (self.most(), self.text(to));
        self.set_all(if may_be_empty(pattern) { most + to } else { most.max(to) });
    }

    /// Spaces become `mark`, which is also put in front of what does not begin with it.
    fn escape_spaces(&mut self, mark: &str, prefixed: bool) {
        if !prefixed {
            return self.replace(" ", mark);
        }
        let space = self.text(mark);
        self.set_all(self.most() + space);
        self.named.insert(' ', space);
    }
}

/// Whether a pattern matches no text at all somewhere: at an end, or between characters of these kinds. Patterns that
/// the `regex` crate does not know count as such.
fn may_be_empty(pattern: &str) -> bool {
    const ENDS: [&str; 5] = ["", "a", " ", "\n", "\r"];
    const CHAR: &str = r"[a \n\r]";
    let places = || ENDS.iter().flat_map(|left| ENDS.iter().map(move |right| (*left, *right)));
    [("", ""), (CHAR, ""), ("", CHAR), (CHAR, CHAR)].iter().any(|(before, after)| {
        let Ok(around) = Regex::new(&format!(r"\A{before}(?:{pattern}){after}\z")) else { return true };
        let mut alike = places().filter(|(left, right)| {
            left.is_empty() == before.is_empty() && right.is_empty() == after.is_empty()
        });
        alike.any(|(left, right)| around.is_match(&format!("{left}{right}")))
    })
}

/// How many times as long a map of characters, in base 64, makes a text.
fn mapped(text: &str) -> f64 {
    let map = base64::decode(text).ok().and_then(|bytes| Charsmap::read(&bytes).ok());
    map.map_or(f64::INFINITY, |map| map.growth())
}

/// How many tokens a post-processor makes of one.
fn pieces(rule: &Value) -> f64 {
    match rule["type"].as_str() {
        Some("Sequence") => rule["processors"].as_array().into_iter().flatten().map(pieces).product(),
        Some("TemplateProcessing") => {
            let count = |piece: &Value| match piece["SpecialToken"]["id"].as_str() {
                Some(token) => rule["special_tokens"][token]["ids"].as_array().map_or(0, Vec::len) as f64,
                None => 1.0,
            };
            let template = |key: &str| rule[key].as_array().into_iter().flatten().map(count).sum::<f64>();
            template("single").max(template("pair")).max(1.0)
        }
        // One in front and one or two behind.
        Some("BertProcessing" | "RobertaProcessing") => 4.0,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn growth(rule: &Value) -> f64 {
        let mut growth = Growth::default();
        growth.precede(rule);
        growth.most()
    }

    fn regex(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": content})
    }

    fn string(pattern: &str, content: &str) -> Value {
        json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
    }

    fn normalizers(rules: &[Value]) -> Value {
        json!({"type": "Sequence", "normalizers": rules})
    }

    #[test]
    fn usual_rules_are_far_below_the_limit() {
        let llama = normalizers(&[json!({"type": "Prepend", "prepend": "▁"}), string(" ", "▁")]);
        assert_eq!(growth(&llama), 6.0);
        let lower = json!({"type": "Lowercase"});
        let clip = normalizers(&[json!({"type": "NFC"}), regex(r"\s+", " "), lower.clone()]);
        assert_eq!(growth(&clip), 4.5);
        let forms = ["NFKC", "Strip", "NFD", "StripAccents", "NFC"].map(|form| json!({"type": form}));
        assert_eq!(growth(&normalizers(&forms)), 11.0);
        // Any number of rules that each change one thing.
        let many: Vec<Value> = (0..26).map(|n| string(&char::from(b'a' + n).to_string(), "1234")).collect();
        assert_eq!(growth(&normalizers(&many)), 4.0);
        let many: Vec<Value> = (0..50).map(|_| regex(r"[‘’]| {2,}|(?m)^\t", " ")).collect();
        assert_eq!(growth(&normalizers(&many)), 1.0);
        let metaspace = |scheme: &str| {
            growth(&json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true}))
        };
        assert_eq!((metaspace("always"), metaspace("never")), (4.0, 3.0));
        assert_eq!(growth(&json!(null)), 1.0);
    }

    #[test]
    fn stages_multiply() {
        let ten = "ab".repeat(5);
        assert_eq!(growth(&normalizers(&vec![regex(".", &ten); 3])), 1000.0);
        assert_eq!(
            growth(&normalizers(&[string("x", "aaaa"), string("aa", "yyyy"), string("y", "zz")])),
            16.0
        );
        assert_eq!(growth(&normalizers(&[string("b", &ten), string("a", &ten)])), 55.0);
        assert_eq!(growth(&normalizers(&vec![string("", "a"); 3])), 8.0);
        assert_eq!(growth(&normalizers(&vec![json!({"type": "Prepend", "prepend": "a"}); 3])), 8.0);
        let form = json!({"type": "NFKD"});
        assert_eq!(growth(&normalizers(&[form.clone(), string("ص", "ﷺ"), form])), 181.5);
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false});
        assert_eq!(growth(&json!({"type": "Sequence", "pretokenizers": [bytes, bytes]})), 4.0);
    }

    #[test]
    fn patterns_that_match_nothing_insert() {
        for pattern in
            ["", "a*", "a|", r"\b", "(?m)^", "(?m)$", r"\B", "(?=a)", "(?<=a)b", r"a\Kb?", "(?x) # a"]
        {
            assert!(may_be_empty(pattern), "{pattern}");
        }
        for pattern in [".", "a+", r"\s+", " {2,}", r"\p{L}|\d", r"^a?b$", r"\ba\b", "(?i:x)y?"] {
            assert!(!may_be_empty(pattern), "{pattern}");
        }
    }

    #[test]
    fn maps_of_characters_count() {
        let map = |text: &str| super::super::charsmap::tests::map('a', text);
        for text in ["", "b", "bc", &"x".repeat(333)] {
            let map = tokenizers::normalizers::Precompiled::from(&map(text)).unwrap();
            let rule = serde_json::to_value(&map).unwrap();
            assert_eq!(growth(&rule), text.len().max(1) as f64);
        }
        assert_eq!(mapped("AAAA"), f64::INFINITY);
    }

    #[test]
    fn post_processors_add_tokens() {
        let (text, token) = (json!({"Sequence": {"id": "A"}}), json!({"SpecialToken": {"id": "x"}}));
        let template = |single: &[&Value]| {
            json!({"type": "TemplateProcessing", "single": single, "pair": [],
                "special_tokens": {"x": {"id": "x", "ids": [1, 2], "tokens": ["x", "y"]}}})
        };
        assert_eq!(pieces(&template(&[&token, &text])), 3.0);
        assert_eq!(pieces(&template(&[])), 1.0);
        let doubled = template(&[&text, &text]);
        assert_eq!(pieces(&json!({"type": "Sequence", "processors": vec![doubled; 5]})), 32.0);
    }
}
