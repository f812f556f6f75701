//! What was found out? As tables, and as JSON.
#![allow(clippy::disallowed_methods, reason = "nothing here depends on last bits")]

use serde_json::{Value, json};
use skulk::DeviceInfo;

use crate::gpu_check::{BOUND, Compared};
use crate::gpu_limits::Limits;
use crate::gpu_model::Shape;
use crate::gpu_plan::Expected;
use crate::gpu_times::{Arm, Metric, Workload};

/// What was found out so far.
pub(crate) struct Report {
    pub(crate) device: DeviceInfo,
    pub(crate) shape: Shape,
    pub(crate) workload: Workload,
    /// Bytes of weights that decoding a token reads.
    pub(crate) bytes_per_token: u64,
    pub(crate) limits: Option<Limits>,
    pub(crate) expected: Option<Expected>,
    pub(crate) checks: Vec<(&'static str, Compared)>,
    /// The engine, then those it took turns with.
    pub(crate) arms: Vec<Arm>,
    pub(crate) rounds: usize,
    pub(crate) notes: Vec<String>,
    pub(crate) problems: Vec<String>,
}

impl Report {
    pub(crate) fn new(device: DeviceInfo, shape: Shape, workload: Workload) -> Self {
        Self {
            device,
            shape,
            workload,
            bytes_per_token: 0,
            limits: None,
            expected: None,
            checks: Vec::new(),
            arms: Vec::new(),
            rounds: 0,
            notes: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Operations for a token of a prompt of so many; attention is not counted.
    fn operations(&self, tokens: usize) -> f64 {
        let [layers, head] = self.shape.operations();
        layers + head / tokens as f64
    }

    /// The peak that prompts are measured by: f16's, unless shaders only imitate that.
    fn peak(&self) -> Option<(&'static str, f64)> {
        let limits = self.limits.as_ref()?;
        let f16 = limits.f16.filter(|&f16| f16 > limits.f32);
        Some(f16.map_or(("f32", limits.f32), |f16| ("f16", f16)))
    }

    /// What is printed.
    pub(crate) fn markdown(&self) -> String {
        let DeviceInfo { engine, name, driver, software, .. } = &self.device;
        let software = if *software { ", software" } else { "" };
        let Workload { chunk, decoded, .. } = self.workload;
        let mut text = format!(
            "\n**{name}**, driver {driver}, engine {engine}{software}; {}; {:.1} MB read a decoded token. Built {} \
             CUDA. {decoded} tokens decoded, prompts in chunks of {chunk}, KV cache f16.\n\n",
            self.shape.described(),
            self.bytes_per_token as f64 / 1e6,
            if cfg!(feature = "cuda") { "with" } else { "without" },
        );
        if let Some(limits) = &self.limits {
            let operations = |rate: f64| format!("{} GFLOP/s", giga(rate));
            let mut rows = vec![
                vec!["the device's limits".into(), String::new()],
                vec!["copy, read and written".into(), format!("{} GB/s", giga(limits.copy))],
                vec!["f32 multiply-adds".into(), operations(limits.f32)],
            ];
            rows.extend(limits.f16.map(|f16| vec!["f16 multiply-adds".into(), operations(f16)]));
            text += &table(&rows);
        }
        if let Some(Expected { speed, .. }) = &self.expected {
            let micro = |seconds: f64| format!("{} µs", digits(seconds * 1e6));
            text += &table(&[
                vec!["as the engine measures it".into(), String::new()],
                vec!["weights read for a row".into(), format!("{} GB/s", giga(speed.bytes_per_second))],
                vec!["a chunk in a layer".into(), format!("{} GFLOP/s", giga(speed.operations_per_second))],
                vec!["a layer of nothing".into(), micro(speed.layer_seconds)],
                vec!["an answer".into(), micro(speed.round_trip_seconds)],
            ]);
        }
        if !self.checks.is_empty() {
            let mut rows = vec![vec![format!("against `cpu`, exact (bound {BOUND:.0e})"), "found".into()]];
            rows.extend(self.checks.iter().map(|(what, compared)| {
                let failed = if compared.passed() { "" } else { ": **FAILED**" };
                vec![(*what).to_owned(), compared.in_words() + failed]
            }));
            text += &table(&rows);
        }
        if self.arms.iter().any(|arm| !arm.speeds.is_empty()) {
            text += &table(&self.speeds());
        }
        text.extend(self.notes.iter().map(|note| format!("{note}\n\n")));
        text.extend(self.problems.iter().map(|problem| format!("**Failed:** {problem}\n\n")));
        text.trim_end().to_owned()
    }

    /// A row for each figure, a column for each engine.
    fn speeds(&self) -> Vec<Vec<String>> {
        let rounds = format!("{} whole round{}", self.rounds, if self.rounds == 1 { "" } else { "s" });
        let mut rows = vec![vec![rounds], vec!["load, s".to_owned()]];
        rows[0].extend(self.arms.iter().map(|arm| arm.name.clone()));
        rows[1].extend(self.arms.iter().map(|arm| digits(arm.load)));
        let measured = |metric: &Metric| self.arms.iter().any(|arm| arm.speeds.contains_key(metric));
        for metric in self.workload.metrics().into_iter().filter(measured) {
            let mut add = |name: String, cell: &dyn Fn(&[f64]) -> String| {
                let speeds = |arm: &Arm| arm.speeds.get(&metric).map_or(String::new(), |speeds| cell(speeds));
                rows.push(std::iter::once(name).chain(self.arms.iter().map(speeds)).collect());
            };
            add(format!("{}, tok/s", metric.name()), &range);
            match metric {
                Metric::Decode(_) => {
                    let rate = |speeds: &[f64]| median(speeds) * self.bytes_per_token as f64;
                    add("… weights read, GB/s".into(), &|speeds| giga(rate(speeds)));
                    if let Some(limits) = &self.limits {
                        add("… of the copy rate".into(), &|speeds| percent(rate(speeds) / limits.copy));
                    }
                }
                Metric::Prefill(tokens) => {
                    let rate = |speeds: &[f64]| median(speeds) * self.operations(tokens);
                    add("… TFLOP/s".into(), &|speeds| digits(rate(speeds) / 1e12));
                    if let Some((of, peak)) = self.peak() {
                        add(format!("… of the {of} peak"), &|speeds| percent(rate(speeds) / peak));
                    }
                }
            }
            let expected = self.expected.iter().flat_map(|expected| &expected.figures);
            if let Some((_, figure)) = expected.copied().find(|(of, _)| *of == metric) {
                // Of the engine alone.
                let mut row = vec!["… as a plan expects it".to_owned(), digits(figure)];
                row.resize(1 + self.arms.len(), String::new());
                rows.push(row);
            }
        }
        rows
    }

    /// All of it.
    pub(crate) fn json(&self) -> Value {
        let DeviceInfo { engine, name, driver, software, .. } = &self.device;
        let Shape { layers, width, heads, head_dim, feed_forward, vocabulary, .. } = self.shape;
        let Workload { prompt, depth, decoded, chunk } = self.workload;
        let [layer_operations, head_operations] = self.shape.operations();
        let checks = self.checks.iter().map(|(what, compared)| {
            let parting = compared.text.as_ref().and_then(Option::as_ref);
            json!({
                "model": what,
                "off": compared.off,
                "bound": BOUND,
                "parts_at": parting.map(|parting| parting.at),
                "parts_by": parting.map(|parting| parting.by),
                "passed": compared.passed(),
            })
        });
        let arms = self.arms.iter().map(|arm| (arm.name.clone(), arm.json()));
        json!({
            "device": { "engine": engine.as_str(), "name": name, "driver": driver, "software": software },
            "built_with_cuda": cfg!(feature = "cuda"),
            "model": {
                "layers": layers, "width": width, "heads": heads, "kv_heads": self.shape.kv_heads(), "head_dim": head_dim,
                "feed_forward": feed_forward, "vocabulary": vocabulary,
                "bytes_per_token": self.bytes_per_token,
                "operations_per_token": layer_operations,
                "operations_of_the_head": head_operations,
            },
            "workload": { "prompt": prompt, "depth": depth, "decoded": decoded, "chunk": chunk },
            "limits": self.limits.as_ref().map(Limits::json),
            "expected": self.expected.as_ref().map(Expected::json),
            "checks": checks.collect::<Vec<_>>(),
            "rounds": self.rounds,
            "arms": arms.collect::<serde_json::Map<_, _>>(),
            "notes": self.notes,
            "problems": self.problems,
        })
    }
}

/// A table in Markdown whose columns are aligned.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3))
        .collect();
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!(" {cell:width$} |"));
        text += &format!("|{}\n", cells.collect::<String>());
        if i == 0 {
            text += &format!(
                "|{}\n",
                widths.iter().map(|width| format!(" {:width$} |", "---")).collect::<String>()
            );
        }
    }
    text + "\n"
}

/// Of at least one value.
fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (values[(n - 1) / 2] + values[n / 2]) / 2.0
}

/// Median and range.
fn range(values: &[f64]) -> String {
    if let [value] = values {
        return digits(*value);
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{} [{}-{}]", digits(median(values)), digits(least), digits(most))
}

fn percent(share: f64) -> String {
    format!("{}%", digits(100.0 * share))
}

pub(crate) fn giga(rate: f64) -> String {
    digits(rate / 1e9)
}

/// Three digits that matter.
pub(crate) fn digits(x: f64) -> String {
    let before = x.abs().max(1e-9).log10().floor() as i32;
    format!("{x:.*}", (2 - before).clamp(0, 6) as usize)
}
