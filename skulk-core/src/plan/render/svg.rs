//! How does a placement look? Nodes as boxes, stages before owners of experts, and lines where they talk.

use std::collections::HashMap;

use super::markup::{ALERT, Bar, KINDS, escape};
use super::view::{Device, View};
use super::words::{bytes, clip, count, layers, width};
use crate::plan::cluster::NodeId;
use crate::plan::report::NodeReport;
use crate::plan::request::{Sharding, Transport};

/// Boxes that are drawn at most.
const BOXES: usize = 24;
/// Boxes of a column.
const ROWS: usize = 6;
/// Devices that a box lists at most.
const DEVICES: usize = 4;

// Lengths are in the picture's own units, which are pixels unless it is scaled.
const MARGIN: usize = 20;
const BOX: usize = 350;
const GUTTER: usize = 44;
const LINE: usize = 17;
const PAD: usize = 10;
const GAP: usize = 22;
/// What a column of text is taken to be wide: a fixed-width font of 12 pixels needs 7.2.
const COLUMN: usize = 8;
/// How far below a box's upper edge lines meet it.
const PORT: usize = 18;
/// Lines of a title or an explanation.
const WRAPPED: usize = 4;

const INK: &str = "#1b1f24";
const FAINT: &str = "#5b6470";

/// One node, or all those of a kind for which there was no room.
struct Frame<'a> {
    title: String,
    part: String,
    devices: Vec<&'a Device<'a>>,
    note: Option<String>,
    x: usize,
    y: usize,
}

pub(super) fn render(view: &View<'_>) -> String {
    let (stages, owners) = nodes(view);
    let drawn_stages = stages.len().min(BOXES - owners.len().min(BOXES / 2));
    let drawn_owners = owners.len().min(BOXES - drawn_stages);
    let chain = boxes(stages, drawn_stages, "stage");
    let helpers = boxes(owners, drawn_owners, "owner");
    let (stages, mut boxes) = (chain.len(), chain);
    boxes.extend(helpers);

    let columns = |n: usize| n.div_ceil(ROWS);
    let across = (columns(stages) + columns(boxes.len() - stages)).max(2);
    let total = 2 * MARGIN + across * BOX + (across - 1) * GUTTER;
    let (mut out, top) = head(view, boxes.is_empty(), total);
    let mut bottom = top;
    let mut y = top;
    for (i, it) in boxes.iter_mut().enumerate() {
        let (column, row) = match i.checked_sub(stages) {
            None => (i / ROWS, i % ROWS),
            Some(i) => (columns(stages) + i / ROWS, i % ROWS),
        };
        if row == 0 {
            y = top;
        }
        (it.x, it.y) = (MARGIN + column * (BOX + GUTTER), y);
        y += it.height() + GAP;
        bottom = bottom.max(y);
    }
    out.push_str(&links(view.transport, &boxes, stages, top, bottom));
    boxes.iter().for_each(|it| it.draw(&mut out));
    if !boxes.is_empty() {
        legend(&mut out, bottom + LINE);
        bottom += 2 * LINE;
    }
    let height = bottom + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 {total} {height}\" \
         width=\"{total}\" height=\"{height}\" font-family=\"ui-monospace, Menlo, Consolas, monospace\" \
         font-size=\"12\" fill=\"{INK}\">\n<title>{}</title>\n\
         <rect width=\"{total}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>\n{out}</svg>\n",
        escape(&view.outcome)
    )
}

/// Nodes with stages, and the others, each in the order of the report.
fn nodes<'a>(view: &'a View<'a>) -> (Vec<Frame<'a>>, Vec<Frame<'a>>) {
    let mut order: Vec<(Vec<usize>, Frame<'_>)> = Vec::new();
    let mut places: HashMap<&NodeId, usize> = HashMap::new();
    let mut stage = 0;
    for device in &view.devices {
        let place = *places.entry(&device.report.node).or_insert_with(|| {
            order.push((Vec::new(), Frame::new(device.node.clone())));
            order.len() - 1
        });
        let Some((numbers, it)) = order.get_mut(place) else { continue };
        it.devices.push(device);
        if !device.report.layers.is_empty() {
            stage += 1;
            numbers.push(stage);
        }
    }
    let noun = match view.sharding {
        Sharding::Pipeline => "stage",
        Sharding::Tensor => "rank",
    };
    let (mut stages, mut owners) = (Vec::new(), Vec::new());
    for (numbers, mut it) in order {
        let role = it.devices.first().map_or("", |device| device.report.role.as_str());
        let own = match (numbers.as_slice(), view.transport) {
            ([], _) => "experts".to_owned(),
            ([1, ..], Transport::Direct) => format!("coordinator, {noun} 1 of {stage}"),
            ([one], _) => format!("{noun} {one} of {stage}"),
            (several, _) => {
                let several: Vec<_> = several.iter().map(usize::to_string).collect();
                format!("{noun}s {} of {stage}", several.join(", "))
            }
        };
        it.part = format!("{own} ({role})");
        if numbers.is_empty() { owners.push(it) } else { stages.push(it) }
    }
    (stages, owners)
}

/// The first of these boxes, the last of which stands for all that there is no room for.
fn boxes<'a>(mut all: Vec<Frame<'a>>, drawn: usize, noun: &str) -> Vec<Frame<'a>> {
    if all.len() <= drawn {
        return all;
    }
    let rest = all.split_off(drawn.saturating_sub(1));
    let devices: Vec<_> = rest.iter().flat_map(|it| &it.devices).map(|device| device.report).collect();
    let held = devices.iter().fold(0u64, |sum, device| sum.saturating_add(device.bytes.total()));
    let usable = devices.iter().fold(0u64, |sum, device| sum.saturating_add(device.usable));
    let over = devices.iter().filter(|device| device.over() > 0).count();
    let staged = || devices.iter().map(|device| &device.layers).filter(|layers| !layers.is_empty());
    let start = staged().map(|layers| layers.start).min().unwrap_or(0);
    let range = start..staged().map(|layers| layers.end).max().unwrap_or(0);
    let experts = devices.iter().fold(0usize, |sum, device| sum.saturating_add(device.experts));
    let mut it = Frame::new(format!("and {} more", count(rest.len(), "node")));
    it.part = format!("{noun}s without a box of their own");
    let holds =
        if range.is_empty() { count(experts, "expert") } else { format!("layers {}", layers(&range)) };
    let over = if over > 0 { format!(", {over} over budget") } else { String::new() };
    it.note = Some(format!("{holds}; {} of {}{over}", bytes(held), bytes(usable)));
    all.push(it);
    all
}

impl Frame<'_> {
    fn new(title: String) -> Self {
        Self { title, part: String::new(), devices: Vec::new(), note: None, x: 0, y: 0 }
    }

    fn height(&self) -> usize {
        let devices = self.devices.len().min(DEVICES);
        let notes = usize::from(self.devices.len() > DEVICES) + usize::from(self.note.is_some()) * 2;
        2 * PAD + LINE * (2 + 4 * devices + notes)
    }

    fn draw(&self, out: &mut String) {
        let over = self.devices.iter().any(|device| device.report.over() > 0);
        *out += &format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{BOX}\" height=\"{}\" rx=\"6\" fill=\"#f6f8fa\" stroke=\"{}\"/>\n",
            self.x,
            self.y,
            self.height(),
            if over { ALERT } else { FAINT },
        );
        let x = self.x + PAD;
        let mut y = self.y + PAD + LINE - 5;
        let mut line = |out: &mut String, text: &str, style: &str| {
            *out += &label(x, y, text, BOX - 2 * PAD, style);
            y += LINE;
        };
        line(out, &self.title, "font-weight=\"bold\"");
        line(out, &self.part, &format!("fill=\"{FAINT}\""));
        for device in self.devices.iter().take(DEVICES) {
            line(out, &format!("{} · {}", device.name, device.backend), "");
            line(out, &shard(device.report), "");
            line(out, "", "");
            let (total, usable) = (bytes(device.report.bytes.total()), bytes(device.report.usable));
            let alert = format!("fill=\"{ALERT}\"");
            let style = if device.report.over() > 0 { &alert } else { "" };
            line(out, &format!("{total} of {usable}, {}", device.balance), style);
        }
        if let Some(more) = self.devices.len().checked_sub(DEVICES).filter(|more| *more > 0) {
            line(out, &format!("and {} more", count(more, "device")), "");
        }
        for text in self.note.iter().flat_map(|note| wrap(note, (BOX - 2 * PAD) / COLUMN, 2)) {
            line(out, &text, "");
        }
        for (i, device) in self.devices.iter().take(DEVICES).enumerate() {
            draw_bar(&device.bar, x, self.y + PAD + LINE * (4 + 4 * i) + 3, out);
        }
    }
}

/// What of the model a device has.
fn shard(device: &NodeReport) -> String {
    let attention = (!device.layers.is_empty()).then(|| format!("layers {}", layers(&device.layers)));
    let experts = (device.experts > 0).then(|| count(device.experts, "expert"));
    attention.into_iter().chain(experts).collect::<Vec<_>>().join(" · ")
}

fn draw_bar(bar: &Bar, x: usize, y: usize, out: &mut String) {
    let whole = (BOX - 2 * PAD) as f64;
    let mut left = x as f64;
    for part in &bar.parts {
        let wide = whole * part.percent / 100.0;
        *out += &format!(
            "<rect x=\"{left:.1}\" y=\"{y}\" width=\"{wide:.1}\" height=\"11\" fill=\"{}\"><title>{}</title></rect>\n",
            part.colour,
            escape(&part.label),
        );
        left += wide;
    }
    *out += &format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{whole}\" height=\"11\" fill=\"none\" stroke=\"{FAINT}\"/>\n"
    );
    if let Some(limit) = bar.limit {
        let at = x as f64 + whole * limit / 100.0;
        *out += &format!(
            "<path d=\"M{at:.1} {}V{}\" stroke=\"{ALERT}\" stroke-width=\"3\"/>\n",
            y.saturating_sub(3),
            y + 14
        );
    }
}

/// What stands above the boxes, and where they may begin.
fn head(view: &View, empty: bool, total: usize) -> (String, usize) {
    let mut out = String::new();
    let mut y = MARGIN + 12;
    let room = (total - 2 * MARGIN) / COLUMN;
    let mut line = |text: &str, style: &str| {
        out += &label(MARGIN, y, text, total - 2 * MARGIN, style);
        y += LINE;
    };
    let bold = "font-weight=\"bold\"";
    wrap(&view.outcome, room, WRAPPED).iter().for_each(|text| line(text, bold));
    if view.refused {
        let because = view.facts.iter().find(|(label, _)| *label == "because");
        because.iter().flat_map(|(_, text)| wrap(text, room, WRAPPED)).for_each(|text| line(&text, ""));
    }
    let faint = format!("fill=\"{FAINT}\"");
    for way in &view.would_fit {
        wrap(&format!("It would fit if {way}"), room, 2).iter().for_each(|text| line(text, &faint));
    }
    let talk = match view.transport {
        Transport::Direct => "The coordinator talks to each of the others.",
        Transport::MlxRing => "Each talks to its neighbours, in a ring.",
        Transport::MlxJaccl => "Each talks to each, by RDMA.",
    };
    match (empty, view.refused) {
        (false, true) => line("What came closest:", &faint),
        (false, false) => line(talk, &faint),
        (true, _) => line("There is no node to show.", &faint),
    }
    (out, y + LINE)
}

fn legend(out: &mut String, y: usize) {
    let mut x = MARGIN;
    for (kind, colour) in KINDS {
        let from = y - 9;
        *out += &format!("<rect x=\"{x}\" y=\"{from}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n");
        *out += &label(x + 15, y, kind, kind.len() * COLUMN, "");
        x += 15 + kind.len() * COLUMN + 12;
    }
}

/// Text that begins here and takes no more room than that.
fn label(x: usize, y: usize, text: &str, room: usize, style: &str) -> String {
    let text = clip(text, room / COLUMN);
    if text.is_empty() {
        return text;
    }
    let space = if style.is_empty() { "" } else { " " };
    format!("<text x=\"{x}\" y=\"{y}\"{space}{style}>{}</text>\n", escape(&text))
}

/// Text in lines of so many columns, and at most so many lines; words that are longer are clipped.
fn wrap(text: &str, columns: usize, lines: usize) -> Vec<String> {
    let mut out: Vec<String> = vec![String::new()];
    let words: Vec<_> = text.split_whitespace().collect();
    for (i, word) in words.iter().enumerate() {
        let full = out.len() == lines;
        let Some(last) = out.last_mut() else { break };
        let space = usize::from(!last.is_empty());
        if width(last) + space + width(word) <= columns || last.is_empty() {
            last.push_str(if space == 1 { " " } else { "" });
            last.push_str(&clip(word, columns));
        } else if full {
            let rest = words.get(i..).unwrap_or_default().join(" ");
            *last = clip(&format!("{last} {rest}"), columns);
            break;
        } else {
            out.push(clip(word, columns));
        }
    }
    out
}

/// The lines along which nodes talk, drawn before the boxes.
fn links(transport: Transport, boxes: &[Frame<'_>], stages: usize, top: usize, bottom: usize) -> String {
    let (Some(first), true) = (boxes.first(), stages > 0 && boxes.len() > 1) else { return String::new() };
    match transport {
        Transport::Direct => star(first, boxes.get(1..).unwrap_or_default(), top),
        Transport::MlxJaccl => star(first, boxes, top),
        Transport::MlxRing => ring(boxes, bottom),
    }
}

fn path(d: &str) -> String {
    format!("<path d=\"{d}\" fill=\"none\" stroke=\"{FAINT}\" stroke-width=\"1.5\"/>\n")
}

/// One line above all columns that branches to each of these boxes.
fn star(hub: &Frame<'_>, others: &[Frame<'_>], top: usize) -> String {
    let above = top - 12;
    let mut out = path(&format!("M{} {}V{above}", hub.x + BOX / 2, hub.y));
    for it in others {
        let bus = if it.x == hub.x { it.x - MARGIN / 2 } else { it.x - GUTTER / 2 };
        let port = it.y + PORT;
        out += &path(&format!("M{} {above}H{bus}V{port}H{}", hub.x + BOX / 2, it.x));
    }
    out
}

/// Arrows from each box to the next, and from the last around the others to the first.
fn ring(boxes: &[Frame<'_>], bottom: usize) -> String {
    let mut out = String::new();
    for pair in boxes.windows(2) {
        let [from, to] = pair else { continue };
        if from.x == to.x {
            let (x, y) = (from.x + BOX / 2, to.y);
            out += &path(&format!("M{x} {}V{y}", from.y + from.height()));
            out += &arrow(&format!("M{x} {y}l-4 -8h8z"));
        } else {
            let (bus, port) = (to.x - GUTTER / 2, to.y + PORT);
            out += &path(&format!("M{} {}H{bus}V{port}H{}", from.x + BOX, from.y + PORT, to.x));
            out += &arrow(&format!("M{} {port}l-8 -4v8z", to.x));
        }
    }
    if let (Some(first), Some(last)) = (boxes.first(), boxes.last()) {
        let (x, y) = (last.x + BOX / 2, last.y + last.height());
        let (bus, port) = (first.x - MARGIN / 2, first.y + PORT);
        out += &path(&format!("M{x} {y}V{}H{bus}V{port}H{}", bottom - GAP / 2, first.x));
        out += &arrow(&format!("M{} {port}l-8 -4v8z", first.x));
    }
    out
}

fn arrow(d: &str) -> String {
    format!("<path d=\"{d}\" fill=\"{FAINT}\"/>\n")
}
