//! What do HTML and SVG share? Escaping, and bars of bytes by kind with their colours.

use super::words::bytes;
use crate::plan::report::Bytes;

/// The colour of what goes beyond a budget: legible on light and dark ground.
pub(super) const ALERT: &str = "#d1495b";

/// Kinds of bytes with their colours, in the order of a bar. The colours are told apart by people who see
/// red and green alike (after Paul Tol's bright scheme), and contrast with light and dark ground.
pub(super) const KINDS: [(&str, &str); 5] = [
    ("attention", "#4477aa"),
    ("feed-forward", "#228833"),
    ("KV cache", "#ccbb44"),
    ("activations", "#66ccee"),
    ("headroom", "#999999"),
];

/// What fills a device, in per cent of its budget, or of what it is to hold where that is more.
pub(super) struct Bar {
    /// Per cent by kind, as [`KINDS`], and what the part says.
    pub(super) parts: Vec<Part>,
    /// Where the budget ends, where that is within the bar.
    pub(super) limit: Option<f64>,
}

pub(super) struct Part {
    pub(super) colour: &'static str,
    pub(super) label: String,
    pub(super) percent: f64,
}

impl Bar {
    pub(super) fn new(kinds: &Bytes, usable: u64) -> Self {
        let total = kinds.total();
        let percent = |n: u64| n as f64 / total.max(usable).max(1) as f64 * 100.0;
        let amounts =
            [kinds.attention, kinds.feed_forward, kinds.kv_cache, kinds.activations, kinds.headroom];
        let parts = KINDS.iter().zip(amounts).filter(|(_, n)| *n > 0).map(|(&(kind, colour), n)| Part {
            colour,
            label: format!("{kind}: {}", bytes(n)),
            percent: percent(n),
        });
        Self { parts: parts.collect(), limit: (total > usable).then(|| percent(usable)) }
    }
}

/// Text as it may stand in elements and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
