//! What does a report say? Every number and name as text, once, for all the forms that show it.

use super::markup::Bar;
use super::words::{
    NOTHING, bytes, count, layers, millis, name, names, number, prose, rate, some_bytes, words,
};
use crate::plan::report::{
    Candidate, ContextLimit, Estimate, NodeReport, PlanReport, PromptEstimate, RuleReport, Speculation,
};
use crate::plan::request::{Sharding, Transport};
use crate::plan::stage::Drafter;

/// Devices that tables list at most.
const DEVICES: usize = 64;

/// What a report says. No text in it holds control characters.
pub(super) struct View<'a> {
    pub(super) refused: bool,
    pub(super) outcome: String,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) devices: Vec<Device<'a>>,
    pub(super) tables: Vec<Table>,
    pub(super) would_fit: Vec<String>,
    pub(super) transport: Transport,
    pub(super) sharding: Sharding,
}

/// A table without columns that say nothing.
pub(super) struct Table {
    pub(super) title: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    pub(super) note: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) number: bool,
}

pub(super) struct Row {
    pub(super) cells: Vec<String>,
    pub(super) mark: Mark,
}

/// Why a row stands out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    Chosen,
    Over,
}

/// A device and what it is to hold.
pub(super) struct Device<'a> {
    pub(super) report: &'a NodeReport,
    pub(super) node: String,
    pub(super) backend: String,
    pub(super) name: String,
    pub(super) balance: String,
    pub(super) bar: Bar,
}

impl<'a> View<'a> {
    pub(super) fn new(report: &'a PlanReport) -> Self {
        let [devices, kinds] = devices_tables(report);
        let tables = [devices, kinds, rules(report), rejections(report), candidates(report)];
        Self {
            refused: report.refused.is_some(),
            outcome: outcome(report),
            facts: facts(report),
            devices: report.nodes.iter().map(device).collect(),
            tables: tables.into_iter().filter(|table| !table.rows.is_empty()).collect(),
            would_fit: report.would_fit.iter().map(|text| prose(text)).collect(),
            transport: report.transport,
            sharding: report.sharding,
        }
    }
}

/// The first line of every form.
pub(super) fn outcome(report: &PlanReport) -> String {
    let model = name(&report.model_id);
    let of = count(report.cluster_nodes, "node");
    if let Some(refusal) = &report.refused {
        let rule = words(refusal.rule);
        return if refusal.pending {
            format!("Pending: {model} on a cluster of {of}, by the rule on {rule}; ask again shortly")
        } else {
            format!("Refused: {model} on a cluster of {of}, by the rule on {rule}")
        };
    }
    let mut nodes: Vec<_> = report.nodes.iter().map(|device| &device.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut line = format!("Placed: {model} on {} of {of}", nodes.len());
    if let Some(estimate) = &report.estimate {
        line += &format!(", {} tok/s", rate(estimate.tokens_per_second));
    }
    let over = report.nodes.iter().filter(|device| device.over() > 0).count();
    if over > 0 {
        line += &format!(", {} over budget", count(over, "device"));
    }
    line
}

fn facts(report: &PlanReport) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(refusal) = &report.refused {
        facts.push(("because", prose(&refusal.message)));
    }
    let counted = if report.exact { "counted in the checkpoint" } else { "by the card's size" };
    facts.push(("weights", format!("{}, {counted}", bytes(report.weights))));
    if !report.guessed.is_empty() {
        facts.push(("guessed", prose(&report.guessed.join("; "))));
    }
    let sharding = match report.sharding {
        Sharding::Pipeline => "by layers",
        Sharding::Tensor => "by tensors",
    };
    let transport = match report.transport {
        Transport::Direct => "direct",
        Transport::MlxRing => "an MLX ring",
        Transport::MlxJaccl => "MLX over RDMA",
    };
    let strictness = report.strictness;
    facts.push(("split", format!("{sharding}; transport: {transport}; memory: {strictness}")));
    let first = report.nodes.iter().find(|device| !device.layers.is_empty());
    if let (Transport::Direct, Some(first)) = (report.transport, first) {
        facts.push(("coordinator", name(first.node.as_str())));
    }
    if !report.fixed.is_empty() {
        facts.push(("by hand", prose(&report.fixed.join("; "))));
    }
    facts.extend(report.nodes.iter().filter_map(drafter).map(|text| ("drafts", text)));
    facts.push(("context", context(report)));
    if let Some(estimate) = &report.estimate {
        facts.push(("estimate", breakdown(estimate)));
    }
    if let Some(prompt) = &report.prompt {
        facts.push(("prompt", first_token(prompt)));
    }
    if let Some(Speculation { on, reason }) = &report.speculation {
        facts.push(("speculation", format!("{}: {}", if *on { "on" } else { "off" }, prose(reason))));
    }
    facts.extend(report.warnings.iter().map(|text| ("warning", prose(text))));
    facts
}

fn drafter(report: &NodeReport) -> Option<String> {
    let Drafter { mtp, bytes: of } = report.drafter?;
    let what = if mtp { "the checkpoint's head for tokens ahead" } else { "the draft model" };
    let weights = of.attention.saturating_add(of.feed_forward);
    let (node, device) = (name(report.node.as_str()), name(&report.device));
    Some(format!(
        "{what} on {node} ({device}): {}, of which weights {}, KV cache {}, activations {}",
        bytes(of.total()),
        bytes(weights),
        bytes(of.kv_cache),
        bytes(of.activations)
    ))
}

fn first_token(prompt: &PromptEstimate) -> String {
    let per_second = rate(prompt.tokens as f64 / prompt.seconds);
    let first = format!("{} tokens: the first of the answer after {}", prompt.tokens, millis(prompt.seconds));
    format!("{first}, {per_second} tok/s, links {}", millis(prompt.link_seconds))
}

fn context(report: &PlanReport) -> String {
    let reserved = format!("{} tokens reserved", report.context_tokens);
    let Some(tokens) = report.context.tokens else {
        return format!("{reserved}; no limit is known");
    };
    let by = match &report.context.limited_by {
        ContextLimit::Nothing => "",
        ContextLimit::Model => ", what the model was trained for",
        ContextLimit::Card => ", what its card allows",
        ContextLimit::LlamaCpp => ", what llama.cpp is started with",
        ContextLimit::Memory(node) => {
            let node = name(node.as_str());
            return format!("{reserved}; at most {tokens}, what the memory of {node} allows");
        }
    };
    format!("{reserved}; at most {tokens}{by}")
}

fn breakdown(estimate: &Estimate) -> String {
    let parts = [
        ("attention", estimate.attention_seconds),
        ("feed-forward", estimate.feed_forward_seconds),
        ("hops", estimate.hop_seconds),
        ("fan-out", estimate.fan_out_seconds),
    ];
    let total = millis(estimate.seconds());
    let parts: Vec<_> = parts.iter().map(|(part, seconds)| format!("{part} {}", millis(*seconds))).collect();
    format!("{} tok/s, {total} a token: {}", rate(estimate.tokens_per_second), parts.join(", "))
}

fn device(report: &NodeReport) -> Device<'_> {
    Device {
        report,
        node: name(report.node.as_str()),
        backend: backend(report),
        name: name(&report.device),
        balance: balance(report),
        bar: Bar::new(&report.bytes, report.usable),
    }
}

fn backend(report: &NodeReport) -> String {
    report.backend.as_deref().map_or_else(|| NOTHING.to_owned(), name)
}

fn balance(report: &NodeReport) -> String {
    match report.over() {
        0 => format!("{} free", bytes(report.usable.saturating_sub(report.bytes.total()))),
        over => format!("OVER by {}", bytes(over)),
    }
}

/// A column: its name, whether it holds numbers, and what it says of each row's `T`.
type Cells<'a, T> = (&'static str, bool, &'a dyn Fn(&T) -> String);

/// Devices are listed twice, as one table of all would be too wide for terminals: by what they do, and by
/// what their bytes are.
fn devices_tables(report: &PlanReport) -> [Table; 2] {
    let node: Cells<'_, NodeReport> = ("node", false, &|it| name(it.node.as_str()));
    let at: Cells<'_, NodeReport> = ("node", false, &|it| match &it.address {
        Some(address) => format!("{} at {}", name(it.node.as_str()), name(address)),
        None => name(it.node.as_str()),
    });
    let device: Cells<'_, NodeReport> = ("device", false, &|it| name(&it.device));
    let what: [Cells<'_, NodeReport>; 10] = [
        at,
        ("role", false, &|it| it.role.to_string()),
        ("backend", false, &backend),
        device,
        ("layers", true, &|it| layers(&it.layers)),
        ("experts", true, &|it| number(it.experts)),
        ("a token", true, &|it| it.seconds_per_token.map_or_else(|| NOTHING.to_owned(), millis)),
        ("total", true, &|it| bytes(it.bytes.total())),
        ("usable", true, &|it| bytes(it.usable)),
        ("balance", false, &balance),
    ];
    let kinds: [Cells<'_, NodeReport>; 8] = [
        node,
        device,
        ("attention", true, &|it| some_bytes(it.bytes.attention)),
        ("feed-forward", true, &|it| some_bytes(it.bytes.feed_forward)),
        ("KV cache", true, &|it| some_bytes(it.bytes.kv_cache)),
        ("activations", true, &|it| some_bytes(it.bytes.activations)),
        ("headroom", true, &|it| some_bytes(it.bytes.headroom)),
        ("on disk", true, &|it| some_bytes(it.on_disk)),
    ];
    let hidden = report.nodes.get(DEVICES..).unwrap_or_default();
    let over = hidden.iter().filter(|device| device.over() > 0).count();
    let note = (!hidden.is_empty()).then(|| {
        format!("and {} more, {over} of them over budget; the JSON has all", count(hidden.len(), "device"))
    });
    let title = if report.refused.is_some() { "Came closest" } else { "Devices" };
    let table = |title, columns: &[Cells<'_, NodeReport>]| {
        let mark = |it: &NodeReport| if it.over() > 0 { Mark::Over } else { Mark::None };
        Table { note: note.clone(), ..Table::of(title, report.nodes.iter().take(DEVICES), columns, mark) }
    };
    [table(title, &what), table("Bytes by kind", &kinds)]
}

fn rules(report: &PlanReport) -> Table {
    let columns: [Cells<'_, RuleReport>; 3] = [
        ("rule", false, &|it| words(it.rule).to_owned()),
        ("before", true, &|it| it.before.to_string()),
        ("after", true, &|it| it.after.to_string()),
    ];
    Table::of("Candidates by rule", report.rules.iter(), &columns, |_| Mark::None)
}

fn rejections(report: &PlanReport) -> Table {
    let columns = ["rule", "nodes", "reason"].map(|name| Column { name, number: false });
    let mut rows = Vec::new();
    for rule in &report.rules {
        let label = words(rule.rule);
        let listed = rule.rejected.iter().take(PlanReport::LISTED);
        for rejection in listed {
            let cells = vec![label.to_owned(), names(&rejection.nodes), prose(&rejection.reason)];
            rows.push(Row { cells, mark: Mark::None });
        }
        let more = rule.before.saturating_sub(rule.after);
        let more = more.saturating_sub(rule.rejected.len().min(PlanReport::LISTED));
        if more > 0 {
            let cells = vec![label.to_owned(), format!("and {more} more"), NOTHING.to_owned()];
            rows.push(Row { cells, mark: Mark::None });
        }
    }
    Table { title: "Turned down", columns: columns.to_vec(), rows, note: None }
}

fn candidates(report: &PlanReport) -> Table {
    let estimated = |it: &Candidate, text: fn(&Estimate) -> String| {
        it.estimate.as_ref().map_or_else(|| NOTHING.to_owned(), text)
    };
    let columns: [Cells<'_, Candidate>; 6] = [
        ("", false, &|it| if it.chosen { "→" } else { " " }.to_owned()),
        ("nodes", false, &|it| names(&it.nodes)),
        ("arrangement", false, &|it| prose(&it.arrangement)),
        ("tok/s", true, &|it| estimated(it, |estimate| rate(estimate.tokens_per_second))),
        ("a token", true, &|it| estimated(it, |estimate| millis(estimate.seconds()))),
        ("reason", false, &|it| prose(&it.reason)),
    ];
    let mark = |it: &Candidate| if it.chosen { Mark::Chosen } else { Mark::None };
    Table::of("Compared", report.candidates.iter().take(PlanReport::LISTED), &columns, mark)
}

impl Table {
    fn of<'a, T: 'a>(
        title: &'static str,
        items: impl Iterator<Item = &'a T>,
        columns: &[Cells<'_, T>],
        mark: impl Fn(&T) -> Mark,
    ) -> Self {
        let cells = |item: &T| columns.iter().map(|(.., cell)| cell(item)).collect();
        let rows = items.map(|item| Row { cells: cells(item), mark: mark(item) }).collect();
        let columns = columns.iter().map(|&(name, number, _)| Column { name, number }).collect();
        Self { title, columns, rows, note: None }.without_empty_columns()
    }

    /// Columns that hold nothing in any row are not worth their width.
    fn without_empty_columns(mut self) -> Self {
        let kept: Vec<bool> = (0..self.columns.len())
            .map(|i| self.rows.iter().any(|row| row.cells.get(i).is_some_and(|cell| cell != NOTHING)))
            .collect();
        let keep = |i: usize| kept.get(i).copied().unwrap_or(true);
        self.columns =
            self.columns.into_iter().enumerate().filter(|(i, _)| keep(*i)).map(|(_, c)| c).collect();
        for row in &mut self.rows {
            let cells = std::mem::take(&mut row.cells);
            row.cells = cells.into_iter().enumerate().filter(|(i, _)| keep(*i)).map(|(_, c)| c).collect();
        }
        self
    }
}
