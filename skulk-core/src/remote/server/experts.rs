//! What do experts give for rows? Routes of single experts and of weighted sums, whose rows are before the experts' norm.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::http::request::Parts;

use super::batch::{Form, Piece};
use super::json;
use super::reply::{Refusal, Reply, of_type};
use super::routes::{Written, written};
use super::served::Served;
use super::walk::{milliseconds, not_finite};
use crate::error::Result;
use crate::remote::wire::{
    ExpertReply, ExpertRequest, ExpertRow, LayerReply, LayerRequest, MultiReply, MultiRequest, WireType,
    content,
};

/// A row, and the experts that it takes with their weights.
pub(super) struct Task {
    pub(super) layer: u32,
    pub(super) row: Vec<f32>,
    pub(super) experts: Vec<(u32, f32)>,
}

/// Computes tasks, single results or sums: a row for each, in their order.
pub(super) async fn compute(
    served: &Served,
    tasks: &[Task],
    form: impl Fn(usize) -> Form,
) -> Result<(Vec<f32>, Duration), Refusal> {
    let hidden = served.hidden();
    served.room(tasks.len())?;
    // Those of a layer with as many experts together.
    let mut groups = BTreeMap::<(usize, usize), Vec<usize>>::new();
    for (at, task) in tasks.iter().enumerate() {
        let (each, experts) = (task.experts.len(), task.experts.iter().map(|(expert, _)| *expert));
        let layer = served.experts(task.layer, experts, form(each))?;
        groups.entry((layer, each)).or_default().push(at);
    }
    let piece = |(&(layer, each), places): (&(usize, usize), &Vec<usize>)| {
        let of = || places.iter().map(|place| &tasks[*place]);
        let rows = of().flat_map(|task| task.row.iter().copied()).collect();
        let pairs = of().flat_map(|task| task.experts.iter().copied()).collect();
        Piece { layer, form: form(each), rows: Arc::new(rows), pairs }
    };
    let done = served.compute(groups.iter().map(piece).collect()).await?;
    let mut rows = vec![0.0; tasks.len() * hidden];
    for (places, done) in groups.values().zip(&done) {
        for (place, row) in places.iter().zip(done.rows.chunks(hidden.max(1))) {
            rows[place * hidden..][..hidden].copy_from_slice(row);
        }
    }
    if !WireType::F32.holds(&rows) {
        return Err(not_finite());
    }
    Ok((rows, done.iter().map(|done| done.computing).sum()))
}

pub(super) async fn batch(served: &Served, head: &Parts, body: &[u8]) -> Result<Reply, Refusal> {
    let hidden = served.hidden();
    match written(head, content::EXPERT) {
        Written::Json => {
            let mut tasks = Vec::new();
            for json::ExpertRow { layer, expert_id, residual } in
                json::read::<json::ExpertsRequest>(body)?.requests
            {
                json::one_row(&residual, hidden)?;
                tasks.push(Task { layer, row: residual, experts: vec![(expert_id, 1.0)] });
            }
            if tasks.is_empty() {
                return Err(Refusal::bad("requests: expected 1 or more, found 0"));
            }
            let (rows, computing) = compute(served, &tasks, |_| Form::Expert).await?;
            let results = tasks.iter().zip(rows.chunks(hidden.max(1))).map(expert_row);
            let results = results.map(|ExpertRow { layer, expert, values }| json::ExpertResult {
                layer,
                expert_id: expert,
                output: values,
            });
            let latency_ms = milliseconds(computing);
            Ok(json::ok(&json::ExpertsReply { results: results.collect(), latency_ms }))
        }
        Written::Binary => {
            let request = ExpertRequest::decode(body, hidden)?;
            let mut tasks = Vec::new();
            for ExpertRow { layer, expert, values } in request.rows() {
                let mut row = Vec::new();
                values.append_to(&mut row)?;
                tasks.push(Task { layer, row, experts: vec![(expert, 1.0)] });
            }
            let (rows, computing) = compute(served, &tasks, |_| Form::Expert).await?;
            let mut out = Vec::new();
            let rows: Vec<_> = tasks.iter().zip(rows.chunks(hidden.max(1))).map(expert_row).collect();
            ExpertReply::encode(&mut out, milliseconds(computing), hidden, rows.into_iter())?;
            Ok(of_type(content::EXPERT, out))
        }
    }
}

pub(super) fn expert_row<'v>((task, values): (&Task, &'v [f32])) -> ExpertRow<&'v [f32]> {
    let expert = task.experts.first().map_or(0, |(expert, _)| *expert);
    ExpertRow { layer: task.layer, expert, values }
}

/// An expert whom the path names, as `{layer}/{expert}`.
pub(super) async fn one(served: &Served, path: &str, body: &[u8]) -> Result<Reply, Refusal> {
    let index = |text: &str| {
        text.parse::<u32>().map_err(|_| Refusal::bad(format!("expected an index, found `{text}`")))
    };
    let (layer, expert) = path.split_once('/').unwrap_or((path, ""));
    let json::ExpertRequest { residual } = json::read(body)?;
    json::one_row(&residual, served.hidden())?;
    let task = Task { layer: index(layer)?, row: residual, experts: vec![(index(expert)?, 1.0)] };
    let (row, computing) = compute(served, &[task], |_| Form::Expert).await?;
    Ok(json::ok(&json::ExpertReply { output: &row, latency_ms: milliseconds(computing) }))
}

pub(super) async fn layer_batch(served: &Served, wire: WireType, body: &[u8]) -> Result<Reply, Refusal> {
    let request = LayerRequest::decode(body, wire, served.hidden())?;
    let mut row = Vec::new();
    request.row().append_to(&mut row)?;
    let experts = request.experts().map(|taken| (taken.expert, taken.weight)).collect();
    let task = Task { layer: request.layer(), row, experts };
    let (row, computing) = compute(served, &[task], Form::Sum).await?;
    let mut out = Vec::new();
    // A sum that half precision cannot hold has no other form on this route.
    if !wire.holds(&row) {
        return Err(not_finite());
    }
    LayerReply::encode(&mut out, wire, milliseconds(computing), &row)?;
    Ok(of_type(if wire == WireType::F16 { content::LAYER_F16 } else { content::LAYER }, out))
}

pub(super) async fn multi_batch(served: &Served, body: &[u8]) -> Result<Reply, Refusal> {
    let mut tasks = Vec::new();
    for task in MultiRequest::decode(body, served.hidden())?.tasks() {
        let (mut row, mut weights) = (Vec::new(), Vec::new());
        task.row.append_to(&mut row)?;
        task.weights.append_to(&mut weights)?;
        tasks.push(Task { layer: task.layer, row, experts: task.experts.iter().zip(weights).collect() });
    }
    sums(served, &tasks, Form::Sum).await
}

/// The same of rows as integers. These are behind the experts' norm, other than those of all other routes of experts: the
/// client norms a row before it rounds it.
pub(super) async fn multi_batch_q8k(served: &Served, body: &[u8]) -> Result<Reply, Refusal> {
    let mut tasks = Vec::new();
    for task in MultiRequest::decode_q8k(body, served.hidden())?.tasks() {
        let (mut row, mut weights) = (vec![0.0; served.hidden()], Vec::new());
        task.row.copy_to(&mut row)?;
        task.weights.append_to(&mut weights)?;
        tasks.push(Task { layer: task.layer, row, experts: task.experts.iter().zip(weights).collect() });
    }
    sums(served, &tasks, Form::NormedSum).await
}

async fn sums(served: &Served, tasks: &[Task], form: fn(usize) -> Form) -> Result<Reply, Refusal> {
    let (rows, _) = compute(served, tasks, form).await?;
    let mut out = Vec::new();
    let hidden = served.hidden();
    let rows: Vec<_> = tasks.iter().map(|task| task.layer).zip(rows.chunks(hidden.max(1))).collect();
    MultiReply::encode(&mut out, hidden, rows.into_iter())?;
    Ok(of_type(content::MULTI, out))
}
