//! How is a number or a name written? With its unit, on one line, and no wider than there is room.

use crate::bytes::ByteSize;
use crate::plan::cluster::NodeId;
use crate::plan::report::Rule;

/// Nodes that a cell names at most.
const NAMES: usize = 6;
/// Columns that a name takes at most.
const NAME_WIDTH: usize = 32;
/// Columns that a sentence takes at most.
const PROSE_WIDTH: usize = 480;
/// What stands for nothing.
pub(super) const NOTHING: &str = "–";

pub(super) fn words(rule: Rule) -> &'static str {
    match rule {
        Rule::Connected => "connections",
        Rule::Excluded => "excluded nodes",
        Rule::Eligible => "roles and backends",
        Rule::MinVram => "accelerator memory",
        Rule::SingleNodeEngine => "single-node engines",
        Rule::Required => "required nodes",
        Rule::Memory => "memory",
        Rule::TensorDivisible => "divisible tensors",
        Rule::PipelineSupported => "models without pipelines",
        Rule::FewestNodes => "the fewest nodes",
        Rule::Rdma => "RDMA",
        Rule::LeafFirst => "leaf nodes",
        Rule::Best => "the best",
        Rule::Layers => "layers",
        Rule::Hosts => "addresses",
    }
}

/// Layers as half-open range.
pub(super) fn layers(layers: &std::ops::Range<usize>) -> String {
    if layers.is_empty() { NOTHING.to_owned() } else { format!("{}..{}", layers.start, layers.end) }
}

/// `1 node`, `2 nodes`.
pub(super) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Bytes with their unit.
pub(super) fn bytes(n: u64) -> String {
    ByteSize(n).to_string()
}

pub(super) fn some_bytes(n: u64) -> String {
    if n == 0 { NOTHING.to_owned() } else { bytes(n) }
}

pub(super) fn number(n: usize) -> String {
    if n == 0 { NOTHING.to_owned() } else { n.to_string() }
}

pub(super) fn millis(seconds: f64) -> String {
    let millis = seconds * 1e3;
    if !millis.is_finite() {
        NOTHING.to_owned()
    } else if millis.abs() >= 100.0 || millis == 0.0 {
        format!("{millis:.0} ms")
    } else if millis.abs() >= 1.0 {
        format!("{millis:.1} ms")
    } else {
        format!("{millis:.3} ms")
    }
}

pub(super) fn rate(per_second: f64) -> String {
    if !per_second.is_finite() {
        NOTHING.to_owned()
    } else if per_second.abs() >= 100.0 {
        format!("{per_second:.0}")
    } else if per_second.abs() >= 1.0 {
        format!("{per_second:.1}")
    } else {
        format!("{per_second:.3}")
    }
}

pub(super) fn names(nodes: &[NodeId]) -> String {
    let mut text = nodes.iter().take(NAMES).map(|node| name(node.as_str())).collect::<Vec<_>>().join(", ");
    if nodes.len() > NAMES {
        text += &format!(" and {} more", nodes.len() - NAMES);
    }
    text
}

/// A name as it can be shown.
pub(super) fn name(text: &str) -> String {
    if text.is_empty() { "\"\"".to_owned() } else { clip(&plain(text, NAME_WIDTH), NAME_WIDTH) }
}

/// A sentence as it can be shown.
pub(super) fn prose(text: &str) -> String {
    clip(&plain(text, PROSE_WIDTH), PROSE_WIDTH)
}

/// Text that neither ends a line, nor commands a terminal, nor turns the direction of writing, nor breaks
/// XML: such characters are spelled out. The middle of what is far too long is left out at once.
fn plain(text: &str, width: usize) -> String {
    let spell = |c: char| -> String {
        let hidden = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
        if c.is_control() || hidden { c.escape_default().collect() } else { c.to_string() }
    };
    let (head, tail) = (width.saturating_add(1), width);
    match text.char_indices().nth(head.saturating_add(tail)) {
        None => text.chars().map(spell).collect(),
        Some(_) => {
            let mut end: Vec<char> = text.chars().rev().take(tail).collect();
            end.reverse();
            text.chars().take(head).chain(end).map(spell).collect()
        }
    }
}

/// The columns that a text takes in a font of fixed width.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> usize {
    if c >= '\u{1100}' && !('\u{2000}'..'\u{2e80}').contains(&c) { 2 } else { 1 }
}

/// The text in so many columns: an ellipsis replaces the middle of what is longer, as the ends of names tell
/// most.
pub(super) fn clip(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let take = |chars: &mut dyn Iterator<Item = char>, room: usize| -> Vec<char> {
        let mut left = room;
        chars
            .take_while(|c| {
                let fits = char_width(*c) <= left;
                left = left.saturating_sub(char_width(*c));
                fits
            })
            .collect()
    };
    let head = take(&mut text.chars(), room - room / 2);
    let tail = take(&mut text.chars().rev(), room / 2);
    head.into_iter().chain(['…']).chain(tail.into_iter().rev()).collect()
}
