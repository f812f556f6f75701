//! How near do estimates come to what others have measured? The cases of `tests/suites/speeds.json`, those of
//! `SKULK_EXTRA_SUITES` too, and the table in `docs/planning-accuracy.md`, which this test compares and, where
//! `SKULK_WRITE_TABLES` is set, writes.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cost::{Costs, Owner};
use super::disk::OnDisk;
use super::problem::{Problem, UNKNOWN_BITS};
use super::seats::Seat;
use crate::card::ModelCard;
use crate::plan::{Cluster, Inventory, Request, Vendor};

/// What estimates may be off: at the median, and each.
const MEDIAN: f64 = 0.30;
const EACH: f64 = 2.0;

struct Case {
    id: String,
    source: String,
    placement: String,
    held_out: bool,
    measured: f64,
    estimated: f64,
    prompt: Option<(f64, f64)>,
}

impl Case {
    fn off(&self) -> f64 {
        (self.estimated / self.measured - 1.0).abs()
    }
}

/// A number of an object, by a name whose spelling does not matter.
fn number(object: &Value, names: &[&str]) -> Option<f64> {
    let plain = |name: &str| name.to_lowercase().replace(['_', ' ', '-'], "");
    let entries = object.as_object()?;
    names.iter().find_map(|name| {
        let found = entries.iter().find(|(key, _)| plain(key) == *name)?.1;
        found.as_f64()
    })
}

/// The parts of a case's model, from its size and what is known of it.
fn inventory(model: &Value, card: Option<&ModelCard>) -> Inventory {
    let facts = &model["facts"];
    let bytes = number(model, &["bytes"]).unwrap();
    let of_card = |read: fn(&ModelCard) -> usize| card.map(|card| read(card) as f64);
    let layers = number(facts, &["layers", "nlayers", "numlayers"]).or(of_card(|it| it.n_layers)).unwrap();
    let hidden = number(facts, &["hidden", "hiddensize"]).or(of_card(|it| it.hidden_size)).unwrap_or(4096.0);
    let bits = crate::card::bits_in(model["quant"].as_str().unwrap_or_default()).unwrap_or(UNKNOWN_BITS);
    let parameters = number(facts, &["parameters", "params"]).unwrap_or(bytes * 8.0 / bits);
    let vocabulary = number(facts, &["vocabulary", "vocab", "vocabsize"]).unwrap_or(0.0);
    let tied = number(facts, &["tied"]).unwrap_or(0.0) > 0.0;
    let embedding = number(facts, &["embeddingbytes"]).unwrap_or(vocabulary * hidden * bytes / parameters);
    let experts = number(facts, &["experts", "nexperts", "numexperts"]).unwrap_or(0.0);
    let used = number(facts, &["expertsused", "expertstaken", "used", "nused", "topk", "expertspertoken"]);
    let (experts, used) = (experts as usize, used.unwrap_or(0.0) as usize);
    let dense = number(facts, &["denselayers"]).unwrap_or(0.0);
    let mixed = layers - dense;
    let active = number(facts, &["activebytes"]).or_else(|| {
        Some(number(facts, &["activeparameters", "activeparams", "active"])? * bytes / parameters)
    });
    let expert = match (number(facts, &["expertbytes"]), active) {
        _ if experts == 0 => 0.0,
        (Some(expert), _) => expert,
        (None, Some(active)) => (bytes - active) / (experts.saturating_sub(used).max(1) as f64 * mixed),
        // Nearly all of a mixture is experts.
        (None, None) => 0.95 * bytes / (experts as f64 * mixed),
    };
    let tables = if tied { embedding } else { 2.0 * embedding };
    let rest = (bytes - tables - experts as f64 * expert * mixed).max(0.0) / layers;
    let kv = number(facts, &["kvbytes", "kvbytespertoken"]).unwrap_or(0.0) / layers;
    let share = if experts == 0 { 3.0 } else { 1.0 };
    let mut inventory = Inventory::of_experts(
        layers as usize,
        (rest / share) as u64,
        (rest - rest / share) as u64,
        (experts, used),
        expert as u64,
        kv as u64,
    );
    for layer in inventory.layers.iter_mut().take(dense as usize) {
        (layer.n_experts, layer.n_used, layer.expert) = (0, 0, 0);
    }
    inventory.embedding = embedding as u64;
    inventory.tied_embeddings = tied;
    inventory.head = if tied { 0 } else { embedding as u64 };
    inventory
}

/// The cluster of a case, all of whose devices can hold something, GPUs only where the placement uses them.
fn cluster(case: &Value, on_cpu: bool) -> Cluster {
    let mut cluster: Cluster = serde_json::from_value(case["cluster"].clone()).unwrap();
    for node in &mut cluster.nodes {
        let mut tags = node.backends.take().unwrap_or_default();
        tags.insert("skulk-cpu".to_owned());
        for (at, it) in node.accelerators.iter_mut().enumerate().filter(|(_, it)| it.vendor != Vendor::Cpu) {
            it.shares_memory |= it.vendor == Vendor::Apple;
            if !it.shares_memory && it.vram_total_bytes.is_none() {
                it.vram_total_bytes = Some(1 << 40);
            }
            let tag = it.backend.get_or_insert_with(|| format!("skulk-wgpu:{at}")).clone();
            if on_cpu {
                tags.remove(&tag);
                it.backend = None;
            } else {
                tags.insert(tag);
            }
        }
        node.backends = Some(tags);
        node.memory.get_or_insert(crate::plan::NodeMemory::new(1 << 40, 1 << 40));
    }
    cluster
}

/// The numbers in a text.
fn numbers(text: &str) -> Vec<usize> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// Layers on each of so many devices: as the text counts them, the rest on the last; else evenly.
fn split(text: &str, layers: usize, devices: usize) -> Vec<Range<usize>> {
    let counts = numbers(text);
    let counted = !text.contains("even") && counts.iter().sum::<usize>() <= layers && !counts.is_empty();
    let mut end = 0;
    (0..devices)
        .map(|at| {
            let start = end;
            end = match counts.get(at) {
                _ if at + 1 == devices => layers,
                Some(count) if counted => (start + count).min(layers),
                _ if counted => layers,
                _ => layers * (at + 1) / devices,
            };
            start..end
        })
        .collect()
}

fn is_gpu(seat: &Seat) -> bool {
    seat.beside
}

fn run(case: &Value) -> Case {
    let text = |key: &str| case[key].as_str().unwrap_or_default().to_owned();
    let (id, placement) = (text("id"), text("placement"));
    let model = &case["model"];
    let library = crate::card::CardLibrary::builtin();
    let known = model["card"].as_str().and_then(|card| library.get(card));
    let inventory = inventory(model, known);
    let cluster = cluster(case, placement.starts_with("all on CPU"));
    let hidden = number(&model["facts"], &["hidden", "hiddensize"]).unwrap_or(4096.0) as usize;
    let name = model["name"].as_str().unwrap_or_default();
    let mut card = ModelCard::new(name, inventory.weights(), inventory.layers.len(), hidden);
    card.quantization = model["quant"].as_str().unwrap_or_default().to_owned();
    card.placement.compatible_backends =
        cluster.nodes.iter().flat_map(|it| it.backends.clone()).flatten().collect();
    let measured = &case["measured"];
    let prompt_tokens = number(measured, &["prompttokens"]).unwrap_or(512.0) as u64;
    let context = number(&case["request"], &["contexttokens"]).unwrap_or(1024.0) as u64;
    let request = Request::default().context_tokens(context).prompt_tokens(prompt_tokens);
    let mut request = request.inventory(inventory);
    let tensor = placement.starts_with("tensor parallel").then(|| cluster.nodes.len().max(1));
    if let (Some(n), Some(inventory)) = (tensor, &mut request.inventory) {
        let mut share = (**inventory).clone();
        for layer in &mut share.layers {
            for bytes in [&mut layer.attention, &mut layer.ffn, &mut layer.expert, &mut layer.kv_per_token] {
                *bytes /= n as u64;
            }
        }
        share.head /= n as u64;
        *inventory = std::sync::Arc::new(share);
    }
    let (problem, _) = Problem::new(&card, &cluster, &request, &mut Vec::new()).unwrap();
    let (seconds, prompt) = price(&problem, &placement, tensor.is_some()).unwrap_or_else(|| panic!("{id}"));
    Case {
        id,
        source: text("source"),
        placement,
        held_out: case["held_out"] == true,
        measured: number(measured, &["decodetoks"]).unwrap(),
        estimated: 1.0 / seconds,
        prompt: number(measured, &["prompttoks"]).map(|rate| (rate, prompt_tokens as f64 / prompt)),
    }
}

/// Seconds for a token, and for the prompt.
fn price(problem: &Problem<'_>, placement: &str, tensor: bool) -> Option<(f64, f64)> {
    let (costs, seats): (Costs<'_>, _) = (problem.costs(), &problem.seats);
    let layers = problem.inventory.layers.len();
    let gpus: Vec<usize> = (0..seats.len()).filter(|&at| is_gpu(&seats[at])).collect();
    let processor = (0..seats.len()).find(|&at| !is_gpu(&seats[at]));
    let first = gpus.first().copied().or(processor)?;
    let rest = placement.split_once(':').map_or(placement, |(_, rest)| rest);
    let (mut stages, mut owners) = (vec![(first, 0..layers)], Vec::new());
    if placement.starts_with("all on CPU") {
        stages = vec![(processor?, 0..layers)];
    } else if placement.starts_with("layers split") || placement.starts_with("pipeline") {
        let mut devices = gpus.clone();
        let is_mixed = rest.contains("CPU") || devices.len() < 2;
        devices.extend(processor.filter(|_| placement.starts_with("layers split") && is_mixed));
        let rest = if placement.starts_with("pipeline") { "evenly" } else { rest };
        let ranges = split(rest, layers, devices.len());
        stages = devices.into_iter().zip(ranges).filter(|(_, range)| !range.is_empty()).collect();
    } else if placement.starts_with("experts on CPU") {
        let ends = numbers(rest);
        let range =
            if rest.contains("all") { 0..layers } else { *ends.first()?..(*ends.get(1)?).min(layers) };
        let owner = |layer: usize| Owner {
            seat: processor.unwrap_or(first),
            layer,
            experts: 0..problem.inventory.layers[layer].blocks().0,
        };
        let of_experts = |layer: &usize| problem.inventory.layers[*layer].n_experts > 0;
        owners = range.filter(of_experts).map(owner).collect();
    }
    let mut disk = None;
    if placement.starts_with("from disk") {
        let processor = processor?;
        let blocks = |layer: usize| problem.inventory.layers[layer].blocks().0;
        let owner = |layer: usize| Owner { seat: processor, layer, experts: 0..blocks(layer) };
        owners = if first == processor { Vec::new() } else { (0..layers).map(owner).collect() };
        let attention = problem.attention_only(&[first]);
        let beside = if first == processor { attention.bytes(&(0..attention.len())) } else { 0 };
        let budget =
            problem.weights_within(processor, problem.room_in_all(processor, 1.0).saturating_sub(beside));
        disk = OnDisk::new(problem, processor, budget, &stages, &owners);
    }
    let seats = &disk.map_or_else(|| seats.clone(), |disk| disk.seats(problem));
    let estimate = costs.estimate(seats, &stages, &owners)?;
    let prompt = costs.prompt(seats, &stages, &owners, problem.request.prompt_tokens)?;
    let (mut token, mut whole) = (estimate.seconds(), prompt.seconds);
    if tensor {
        // Each layer adds up its halves twice, which all wait for.
        let other = seats.iter().find(|seat| seat.node != seats[first].node)?;
        let sums = |rows: f64| Some(2.0 * layers as f64 * costs.trip(&seats[first], other, rows)?);
        token += sums(1.0)?;
        whole += sums(problem.request.prompt_tokens as f64)?;
    }
    Some((token, whole))
}

fn suite(folder: &Path) -> Vec<Case> {
    let Ok(text) = std::fs::read_to_string(folder.join("speeds.json")) else { return Vec::new() };
    let value: Value = serde_json::from_str(&text).unwrap();
    let cases = value.as_array().or_else(|| value["cases"].as_array()).unwrap();
    cases.iter().map(run).collect()
}

fn median(cases: &[&Case]) -> f64 {
    let mut off: Vec<f64> = cases.iter().map(|case| case.off()).collect();
    off.sort_by(f64::total_cmp);
    off[off.len() / 2]
}

fn table(cases: &[Case]) -> String {
    let all: Vec<&Case> = cases.iter().collect();
    let half = |held_out: bool| cases.iter().filter(|case| case.held_out == held_out).collect::<Vec<_>>();
    let percent = |cases: &[&Case]| format!("{:.0} %", 100.0 * median(cases));
    let mut text = String::from("# How near estimates come\n\n");
    text += "What others have published, beside what the planner's cost model says of the same model on the same \
             machine. Devices are\nknown by name only: their speeds come from the table in \
             `skulk-core/src/plan/devices/devices.toml`. The cases are in\n`tests/suites/speeds.json`; a test writes \
             this page. Constants were chosen while looking at one half of the cases; the\nother half was set apart \
             before.\n\n";
    let _ = writeln!(
        text,
        "Decoding is off by {} at the median: {} in the half that was looked at, {} in the half that was not.\n",
        percent(&all),
        percent(&half(false)),
        percent(&half(true))
    );
    text += "| case | placement | measured, tok/s | estimated | off | prompt, tok/s | estimated | half | source |\n";
    text += "|---|---|---|---|---|---|---|---|---|\n";
    let rate = |rate: f64| if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") };
    for case in cases {
        let prompt = case.prompt.map_or(["–".to_owned(), "–".to_owned()], |(a, b)| [rate(a), rate(b)]);
        let source = case.source.replace('|', "/");
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:+.0} % | {} | {} | {} | {source} |",
            case.id,
            case.placement,
            rate(case.measured),
            rate(case.estimated),
            100.0 * (case.estimated / case.measured - 1.0),
            prompt[0],
            prompt[1],
            if case.held_out { "set apart" } else { "looked at" },
        );
    }
    text
}

#[test]
fn estimates_come_near_what_others_measured() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let own = suite(&root.join("tests/suites"));
    let page = root.join("docs/planning-accuracy.md");
    let table = table(&own);
    if std::env::var_os("SKULK_WRITE_TABLES").is_some() {
        std::fs::write(&page, &table).unwrap();
    }
    let extra = std::env::var_os("SKULK_EXTRA_SUITES").map(PathBuf::from);
    let extra = extra.map(|folder| suite(&folder)).unwrap_or_default();
    assert!(own.len() >= 25);
    let held_out: Vec<&Case> = own.iter().filter(|case| case.held_out).collect();
    for cases in [own.iter().collect(), held_out, extra.iter().collect()] as [Vec<&Case>; 3] {
        if cases.is_empty() {
            continue;
        }
        let far: Vec<String> = cases
            .iter()
            .filter(|case| !(1.0 / EACH..=EACH).contains(&(case.estimated / case.measured)))
            .map(|case| format!("{}: {:.2} instead of {:.2}", case.id, case.estimated, case.measured))
            .collect();
        assert!(far.is_empty(), "off by more than {EACH}: {far:?}");
        assert!(median(&cases) <= MEDIAN, "{:.2} at the median", median(&cases));
    }
    let written = std::fs::read_to_string(&page).unwrap_or_default();
    assert_eq!(written, table, "docs/planning-accuracy.md: write it with SKULK_WRITE_TABLES=1");
}
