//! What does a report say? Every number and name as text, once, for all the forms that show it.

use super::markup::Bar;
use super::words::{
    NOTHING, bytes, count, layers, millis, name, names, number, prose, rate, some_bytes, words,
};
use crate::plan::cluster::NodeId;
use crate::plan::report::{ContextLimit, Estimate, NodeReport, PlanReport, Speculation};
use crate::plan::request::{Sharding, Transport};

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
    pub(super) id: &'a NodeId,
    pub(super) node: String,
    pub(super) role: &'static str,
    pub(super) backend: String,
    pub(super) name: String,
    pub(super) layers: std::ops::Range<usize>,
    pub(super) experts: usize,
    pub(super) total: u64,
    pub(super) usable: u64,
    pub(super) over: bool,
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
    facts.push(("context", context(report)));
    if let Some(estimate) = &report.estimate {
        facts.push(("estimate", breakdown(estimate)));
    }
    if let Some(Speculation { on, reason }) = &report.speculation {
        facts.push(("speculation", format!("{}: {}", if *on { "on" } else { "off" }, prose(reason))));
    }
    facts
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
            return {
                let node = name(node.as_str());
                format!("{reserved}; at most {tokens}, what the memory of {node} allows")
            };
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
    let total = millis(parts.iter().map(|(_, seconds)| seconds).sum());
    let parts: Vec<_> = parts.iter().map(|(part, seconds)| format!("{part} {}", millis(*seconds))).collect();
    format!("{} tok/s, {total} a token: {}", rate(estimate.tokens_per_second), parts.join(", "))
}

fn device(report: &NodeReport) -> Device<'_> {
    let total = report.bytes.total();
    let balance = match report.over() {
        0 => format!("{} free", bytes(report.usable.saturating_sub(total))),
        over => format!("OVER by {}", bytes(over)),
    };
    Device {
        id: &report.node,
        node: name(report.node.as_str()),
        role: report.role.as_str(),
        backend: report.backend.as_deref().map_or_else(|| NOTHING.to_owned(), name),
        name: name(&report.device),
        layers: report.layers.clone(),
        experts: report.experts,
        total,
        usable: report.usable,
        over: report.over() > 0,
        balance,
        bar: Bar::new(&report.bytes, report.usable),
    }
}

/// Devices are listed twice, as one table of all would be too wide for terminals: by what they do, and by
/// what their bytes are.
fn devices_tables(report: &PlanReport) -> [Table; 2] {
    let what = [
        ("node", false),
        ("role", false),
        ("backend", false),
        ("device", false),
        ("layers", true),
        ("experts", true),
        ("a token", true),
        ("total", true),
        ("usable", true),
        ("balance", false),
    ];
    let kinds = [
        ("node", false),
        ("device", false),
        ("attention", true),
        ("feed-forward", true),
        ("KV cache", true),
        ("activations", true),
        ("headroom", true),
    ];
    let hidden = report.nodes.get(DEVICES..).unwrap_or_default();
    let over = hidden.iter().filter(|device| device.over() > 0).count();
    let note = (!hidden.is_empty()).then(|| {
        format!("and {} more, {over} of them over budget; the JSON has all", count(hidden.len(), "device"))
    });
    let title = if report.refused.is_some() { "Came closest" } else { "Devices" };
    let table = |title, columns, cells: &dyn Fn(&NodeReport) -> Vec<String>| {
        let row = |report: &NodeReport| Row {
            cells: cells(report),
            mark: if report.over() > 0 { Mark::Over } else { Mark::None },
        };
        let rows = report.nodes.iter().take(DEVICES).map(row).collect();
        Table { title, columns, rows, note: note.clone() }.without_empty_columns()
    };
    [table(title, columns(&what), &what_cells), table("Bytes by kind", columns(&kinds), &kinds_cells)]
}

fn what_cells(report: &NodeReport) -> Vec<String> {
    let device = device(report);
    vec![
        device.node,
        device.role.to_owned(),
        device.backend,
        device.name,
        layers(&device.layers),
        number(device.experts),
        report.seconds_per_token.map_or_else(|| NOTHING.to_owned(), millis),
        bytes(device.total),
        bytes(device.usable),
        device.balance,
    ]
}

fn kinds_cells(report: &NodeReport) -> Vec<String> {
    let kinds = &report.bytes;
    let amounts = [kinds.attention, kinds.feed_forward, kinds.kv_cache, kinds.activations, kinds.headroom];
    let names = [name(report.node.as_str()), name(&report.device)];
    names.into_iter().chain(amounts.map(some_bytes)).collect()
}

fn rules(report: &PlanReport) -> Table {
    let columns = columns(&[("rule", false), ("before", true), ("after", true)]);
    let row = |rule: &crate::plan::report::RuleReport| Row {
        cells: vec![words(rule.rule).to_owned(), rule.before.to_string(), rule.after.to_string()],
        mark: Mark::None,
    };
    Table { title: "Candidates by rule", columns, rows: report.rules.iter().map(row).collect(), note: None }
}

fn rejections(report: &PlanReport) -> Table {
    let columns = columns(&[("rule", false), ("nodes", false), ("reason", false)]);
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
    Table { title: "Turned down", columns, rows, note: None }
}

fn candidates(report: &PlanReport) -> Table {
    let columns = columns(&[
        ("", false),
        ("nodes", false),
        ("arrangement", false),
        ("tok/s", true),
        ("a token", true),
        ("reason", false),
    ]);
    let row = |candidate: &crate::plan::report::Candidate| {
        let estimate = candidate.estimate.as_ref();
        let cells = vec![
            if candidate.chosen { "→" } else { " " }.to_owned(),
            names(&candidate.nodes),
            prose(&candidate.arrangement),
            estimate.map_or_else(|| NOTHING.to_owned(), |estimate| rate(estimate.tokens_per_second)),
            estimate.map_or_else(|| NOTHING.to_owned(), |estimate| millis(seconds(estimate))),
            prose(&candidate.reason),
        ];
        Row { cells, mark: if candidate.chosen { Mark::Chosen } else { Mark::None } }
    };
    let rows = report.candidates.iter().take(PlanReport::LISTED).map(row).collect();
    Table { title: "Compared", columns, rows, note: None }.without_empty_columns()
}

impl Table {
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

fn columns(columns: &[(&'static str, bool)]) -> Vec<Column> {
    columns.iter().map(|&(name, number)| Column { name, number }).collect()
}

fn seconds(estimate: &Estimate) -> f64 {
    estimate.attention_seconds
        + estimate.feed_forward_seconds
        + estimate.hop_seconds
        + estimate.fan_out_seconds
}
