//! What does a job cross as, and what comes back? LARQL's routes, by what is asked for.

use half::f16;
use hyper::Method;
use hyper::body::Bytes;

use super::WORDS;
use super::connection::{Answer, Ask};
use super::known::failed;
use super::line::Line;
use crate::engine::FfnJob;
use crate::error::{Error, Result};
use crate::remote::Address;
use crate::remote::wire::{
    BlocksBuf, ExpertReply, ExpertRequest, ExpertRow, LayerReply, LayerRequest, MultiReply, MultiRequest,
    MultiTask, Q8kReply, Q8kRequest, Rows, WalkLayers, WalkReply, WalkRequest, Weighted, WireType, content,
    grpc,
};

/// What an answer must be.
#[derive(Clone, Copy)]
pub(super) enum Expects {
    /// Of a job without rows: none is asked for.
    Nothing,
    Dense {
        layer: u32,
        rows: usize,
    },
    /// The same of rows that went as integers.
    Blocks {
        layer: u32,
        rows: usize,
    },
    /// Of one row.
    Sum {
        wire: WireType,
    },
    /// `[rows, hidden]`, or a result for each pair.
    Sums {
        layer: u32,
        rows: usize,
    },
    Pairs {
        layer: u32,
    },
    /// As sums, each in a message of gRPC.
    Stream {
        layer: u32,
        rows: usize,
    },
}

impl Line {
    /// Rows of results.
    pub(super) fn results(&self, expects: Expects) -> usize {
        match expects {
            Expects::Nothing => 0,
            Expects::Dense { rows, .. }
            | Expects::Blocks { rows, .. }
            | Expects::Sums { rows, .. }
            | Expects::Stream { rows, .. } => rows,
            Expects::Sum { .. } => 1,
            Expects::Pairs { .. } => self.experts.len(),
        }
    }

    /// What is to be asked for a job, and what comes back.
    pub(super) fn ask(&mut self, job: &FfnJob<'_>) -> Result<(Ask, Expects)> {
        let Self { peer, rows: crossing, experts, weights, .. } = self;
        let (hidden, wire) = (job.hidden, peer.options.wire);
        let layer = u32::try_from(job.layer.0).map_err(|e| {
            Error::argument("layer", "expected a layer of the model, found another").with_source(e)
        })?;
        let spec = peer.arch.layers[job.layer.0].ffn.experts;
        let is_grpc = peer.target.address.is_grpc();
        let ask = |path, content, accept, body: Vec<u8>| Ask {
            method: Method::POST,
            path,
            content: Some(content),
            accept,
            body: Bytes::from(body),
            // In f32, with what stands in front of each row.
            most: WORDS + job.results() * (hidden * 4 + 16),
        };
        let mut body = Vec::new();
        let rows = job.rows() * hidden;
        let Some(spec) = spec else {
            if job.input.len() != rows {
                return Err(Error::argument("input", "expected rows behind the block's norm, found others")
                    .with("layer", job.layer)
                    .with_hint("norm rows that go through a dense block first"));
            }
            let in_order = job.pairs.iter().enumerate().all(|(at, pair)| pair.row as usize == at);
            let input = if in_order && job.pairs.len() == job.rows() {
                job.input
            } else {
                let rows = job.pairs.iter().map(|pair| &job.input[pair.row as usize * hidden..][..hidden]);
                crossing.clear();
                rows.for_each(|row| crossing.extend_from_slice(row));
                &*crossing
            };
            if peer.options.rows_q8k {
                let mut blocks: Vec<BlocksBuf> = Vec::new();
                blocks.resize_with(job.pairs.len(), BlocksBuf::new);
                let rounded = input.chunks_exact(hidden).zip(&mut blocks);
                let rounded = rounded.map(|(row, blocks)| Ok((layer, blocks.round(row)?)));
                let rounded = rounded.collect::<Result<Vec<_>>>()?;
                Q8kRequest::encode(&mut body, rounded.into_iter())?;
                let ask = ask("/v1/walk-ffn-q8k", content::FFN_Q8K, None, body);
                return Ok((ask, Expects::Blocks { layer, rows: job.pairs.len() }));
            }
            WalkRequest::encode(&mut body, WalkLayers::One(layer), WalkRequest::TOP_K, hidden, input)?;
            let expects = Expects::Dense { layer, rows: job.pairs.len() };
            return Ok((ask("/v1/walk-ffn", content::FFN, Some(wire.content_type()), body), expects));
        };
        if job.residual.len() != rows {
            return Err(Error::argument(
                "residual",
                "expected rows before the norm beside the others, found none",
            )
            .with_hint("give them to a service that wants them"));
        }
        experts.clear();
        experts.extend(job.pairs.iter().map(|pair| pair.expert));
        weights.clear();
        weights.extend(job.pairs.iter().map(|pair| pair.weight));
        let row = |at: usize| &job.residual[at * hidden..][..hidden];
        if !job.sums && !spec.on_input {
            let rows = job.pairs.iter().map(|pair| ExpertRow {
                layer,
                expert: pair.expert,
                values: row(pair.row as usize),
            });
            let expects = Expects::Pairs { layer };
            if is_grpc {
                grpc::BatchRequest::encode(&mut body, hidden, rows)?;
                return Ok((ask(grpc::BATCH, grpc::CONTENT_TYPE, None, body), expects));
            }
            ExpertRequest::encode(&mut body, hidden, rows)?;
            return Ok((ask("/v1/expert/batch", content::EXPERT, None, body), expects));
        }
        let rows = job.results();
        let each = job.pairs.len() / rows.max(1);
        if is_grpc {
            for pairs in job.pairs.chunks_exact(each.max(1)) {
                let weighted = pairs.iter().map(|pair| Weighted { expert: pair.expert, weight: pair.weight });
                let row = pairs.first().map_or(0, |pair| pair.row as usize);
                grpc::LayerInput::encode(
                    &mut body,
                    layer,
                    &job.residual[row * hidden..][..hidden],
                    weighted,
                )?;
            }
            return Ok((ask(grpc::STREAM, grpc::CONTENT_TYPE, None, body), Expects::Stream { layer, rows }));
        }
        let halves = wire == WireType::F16;
        if job.sums && job.rows() == 1 {
            let (path, content, wire) = match halves && WireType::F16.holds(job.residual) {
                true => ("/v1/experts/layer-batch-f16", content::LAYER_F16, WireType::F16),
                false => ("/v1/experts/layer-batch", content::LAYER, WireType::F32),
            };
            let weighted = job.pairs.iter().map(|pair| Weighted { expert: pair.expert, weight: pair.weight });
            LayerRequest::encode(&mut body, wire, layer, job.residual, weighted)?;
            return Ok((ask(path, content, None, body), Expects::Sum { wire }));
        }
        let residual = if job.sums && halves {
            // Several rows have a frame in f32 only. They cross as a row alone does.
            crossing.clear();
            for row in job.residual.chunks_exact(hidden) {
                crossing.extend_from_slice(row);
                round(&mut crossing[..], hidden);
            }
            &*crossing
        } else {
            job.residual
        };
        let tasks = (0..rows).map(|at| {
            let of = at * each..(at + 1) * each;
            let row = job.pairs[of.start].row as usize;
            let row = &residual[row * hidden..][..hidden];
            MultiTask { layer, row, experts: &experts[of.clone()], weights: &weights[of] }
        });
        MultiRequest::encode(&mut body, tasks)?;
        let ask = ask("/v1/experts/multi-layer-batch", content::MULTI, None, body);
        Ok((ask, Expects::Sums { layer, rows }))
    }

    /// Takes the results out of an answer.
    pub(super) fn take(&self, expects: Expects, answer: &Answer, out: &mut [f32]) -> Result<()> {
        let (address, hidden) = (&self.peer.target.address, self.peer.arch.hidden_size);
        let differs =
            |what: &str, expected: String, found: String| Err(differs(address, what, expected, found));
        let named = |error: Error| error.with("peer", address);
        let content = |expected: &'static str| {
            let found = answer.content.split(';').next().unwrap_or_default().trim();
            if found == expected || found.strip_suffix("+proto") == Some(expected) {
                return Ok(());
            }
            differs("the content type", expected.into(), format!("`{}`", answer.content))
        };
        let body = &answer.body;
        match expects {
            Expects::Nothing => Ok(()),
            Expects::Dense { layer, rows } => {
                let wire = self.dense_type(answer)?;
                let reply = WalkReply::decode(body, wire, hidden).map_err(named)?;
                let mut entries = reply.entries();
                match (entries.next(), entries.next()) {
                    (Some((found, values)), None) if found == layer && values.rows() == rows => {
                        values.copy_to(out).map_err(named)
                    }
                    _ => differs("results of", format!("layer {layer} for {rows} rows"), "others".into()),
                }
            }
            Expects::Blocks { layer, rows } => {
                content(content::FFN_Q8K)?;
                let reply = Q8kReply::decode(body, hidden).map_err(named)?;
                if reply.len() != rows || reply.rows().any(|(found, _)| found != layer) {
                    return differs("results of", format!("layer {layer} for {rows} rows"), "others".into());
                }
                let mut rows = reply.rows().zip(out.chunks_exact_mut(hidden));
                rows.try_for_each(|((_, row), out)| row.copy_to(out)).map_err(named)
            }
            Expects::Sum { wire } => {
                content(if wire == WireType::F16 { content::LAYER_F16 } else { content::LAYER })?;
                LayerReply::decode(body, wire, hidden).and_then(|reply| reply.row.copy_to(out)).map_err(named)
            }
            Expects::Sums { layer, rows } => {
                content(content::MULTI)?;
                let reply = MultiReply::decode(body, hidden).map_err(named)?;
                if reply.len() != rows {
                    return differs("results", rows.to_string(), reply.len().to_string());
                }
                for ((found, row), out) in reply.rows().zip(out.chunks_exact_mut(hidden)) {
                    if found != layer {
                        return differs("results of layer", layer.to_string(), found.to_string());
                    }
                    row.copy_to(out).map_err(named)?;
                    if self.peer.options.wire == WireType::F16 {
                        round(out, hidden);
                    }
                }
                Ok(())
            }
            Expects::Pairs { layer } if self.peer.target.address.is_grpc() => {
                content(grpc::CONTENT_TYPE)?;
                let message = match grpc::split(body, body.len()).map_err(named)? {
                    Some((message, [])) => message,
                    _ => return differs("messages", 1.to_string(), "less or more".into()),
                };
                let reply = grpc::BatchReply::decode(message, hidden).map_err(named)?;
                self.take_pairs(layer, reply.len(), reply.rows(), out)
            }
            Expects::Pairs { layer } => {
                content(content::EXPERT)?;
                let reply = ExpertReply::decode(body, hidden).map_err(named)?;
                self.take_pairs(layer, reply.len(), reply.rows(), out)
            }
            Expects::Stream { layer, rows } => {
                content(grpc::CONTENT_TYPE)?;
                let mut rest = &body[..];
                for out in out.chunks_exact_mut(hidden) {
                    let Some((message, behind)) = grpc::split(rest, rest.len()).map_err(named)? else {
                        return differs("results", rows.to_string(), "fewer".into());
                    };
                    rest = behind;
                    let output = grpc::LayerOutput::decode(message, hidden).map_err(named)?;
                    if output.layer != layer {
                        return differs("results of layer", layer.to_string(), output.layer.to_string());
                    }
                    output.row.copy_to(out).map_err(named)?;
                }
                match rest {
                    [] => Ok(()),
                    _ => differs("results", rows.to_string(), "more".into()),
                }
            }
        }
    }

    /// Takes experts' results, in the order in which they were asked for.
    fn take_pairs<'a>(
        &self,
        layer: u32,
        len: usize,
        rows: impl Iterator<Item = ExpertRow<Rows<'a>>>,
        out: &mut [f32],
    ) -> Result<()> {
        let (address, hidden) = (&self.peer.target.address, self.peer.arch.hidden_size);
        if len != self.experts.len() {
            return Err(differs(address, "results", self.experts.len().to_string(), len.to_string()));
        }
        for ((row, expert), out) in rows.zip(&self.experts).zip(out.chunks_exact_mut(hidden)) {
            if (row.layer, row.expert) != (layer, *expert) {
                let found = format!("expert {} of layer {}", row.expert, row.layer);
                let expected = format!("expert {expert} of layer {layer}");
                return Err(differs(address, "the result of", expected, found));
            }
            row.values.copy_to(out).map_err(|error| error.with("peer", address))?;
        }
        Ok(())
    }

    /// In which type a dense block's results came: as asked for, or one that loses less.
    fn dense_type(&self, answer: &Answer) -> Result<WireType> {
        let found = answer.content.split(';').next().unwrap_or_default().trim();
        let known = WireType::ALL.iter().copied().find(|wire| wire.content_type() == found);
        let asked = self.peer.options.wire;
        // They are declared in the order of what they lose.
        known.filter(|found| *found as usize <= asked as usize).ok_or_else(|| {
            failed(&self.peer.target.address, format!("expected results in {asked}, found `{found}`"))
        })
    }
}

/// The server answers what it was not asked.
fn differs(address: &Address, what: &str, expected: String, found: String) -> Error {
    failed(address, format!("expected {what} {expected}, found {found}"))
        .with_hint("the server answers something else than it was asked")
}

/// Rounds the last row as it would cross in f16, where it would.
fn round(rows: &mut [f32], hidden: usize) {
    let start = rows.len() - hidden;
    let row = &mut rows[start..];
    if WireType::F16.holds(row) {
        row.iter_mut().for_each(|value| *value = f16::from_f32(*value).to_f32());
    }
}
