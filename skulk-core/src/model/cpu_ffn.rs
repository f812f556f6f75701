//! What computes feed-forward blocks beside a device, or for other machines? The CPU, from where weights are stored.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::budget::Budget;
use super::engine::{in_words, on_cpu};
use super::experts::{ExpertCall, FfnWork, ResidentExperts};
use super::load::Loader;
use super::options::EngineOptions;
use crate::arch::{ArchSpec, LayerSpec, LayerTensor as T};
use crate::bytes::ByteSize;
use crate::engine::backend::{Backend, Routes};
use crate::engine::cpu::{Cpu, expert_results};
use crate::engine::ffn::experts_of;
use crate::engine::{FfnJob, FfnLine, FfnMemory, FfnService, LoadCx, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{ExpertIdx, LayerIdx};
use crate::macros::opaque;
use crate::weights::{Checkpoint, Memory};

/// Feed-forward blocks and experts of a checkpoint, which this library's CPU kernels compute where they are stored: in
/// their file's map, or in memory. Jobs take turns on its threads.
pub struct CpuFfn {
    name: String,
    computes: String,
    held: Arc<Held>,
    memory: Memory,
    /// By layer: the experts, and bytes of their weights.
    layers: BTreeMap<usize, (Range<usize>, u64)>,
}

opaque!(CpuFfn);

/// What lines share.
pub(super) struct Held {
    pub(super) cpu: Cpu,
    pub(super) arch: Arc<ArchSpec>,
    experts: ResidentExperts<Cpu>,
    /// By layer: the weights of what norms rows in front of the block, `None` where nothing does. Of layers whose norm the
    /// checkpoint lacks there is no entry.
    norms: BTreeMap<usize, Option<<Cpu as Backend>::Vector>>,
    /// Elements of the widest inner activations.
    width: usize,
}

impl CpuFfn {
    /// Loads `experts` of `layers`: of each layer those that it has, a dense block being expert 0. The options are those
    /// of engine [`cpu`](crate::engines::cpu).
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] for layers or experts that the model does not have, [`ErrorKind::InvalidArgument`]
    /// for impossible options, [`ErrorKind::Cancelled`], and whatever is wrong with the weights.
    pub fn load(
        checkpoint: &dyn Checkpoint,
        arch: &Arc<ArchSpec>,
        shares: &[(Range<usize>, Range<usize>)],
        options: &EngineOptions,
        cx: &LoadCx<'_>,
    ) -> Result<Self> {
        options.check_in_place()?;
        let cpu = Cpu::new(options.threads, options.precision)?;
        let name = in_words(&cpu, options);
        let computes = on_cpu(options);
        let owned = owned(arch, shares)?;
        let layers = owned.keys().copied();
        let budget = options.ffn_budget.map(|most| Arc::new(Budget::new(most)));
        if let Some(budget) = &budget {
            budget.check(arch, layers.clone(), checkpoint)?;
        }
        let first = layers.clone().next().unwrap_or(0);
        let mut experts = ResidentExperts::new(first, FfnWork::new(options, budget.clone()));
        let memory = match options.memory {
            _ if budget.is_some() => Memory::Mapped,
            Memory::Auto => Memory::for_shard(bytes(arch, &owned, checkpoint)?),
            memory => memory,
        };
        let (backend, on_demand, cancel) = (&cpu, false, cx.cancel);
        let mut loader =
            Loader { backend, checkpoint, arch, memory, on_demand, cancel, bytes: 0, queries: &[] };
        let (mut sizes, mut norms, mut width) = (BTreeMap::new(), BTreeMap::new(), 0);
        for layer in first..layers.last().map_or(first, |last| last + 1) {
            cx.cancel.check()?;
            let own = owned.get(&layer).cloned().unwrap_or(0..0);
            let before = loader.bytes;
            experts.load_layer(&mut loader, &own.clone().collect::<Vec<_>>())?;
            if !own.is_empty() {
                sizes.insert(layer, (own, loader.bytes - before));
                if let Some(norm) = norm(&mut loader, layer)? {
                    norms.insert(layer, norm);
                }
                width = width.max(arch.layers[layer].ffn.width);
            }
        }
        let held = Arc::new(Held { cpu, arch: Arc::clone(arch), experts, norms, width });
        Ok(Self { name, computes, held, memory, layers: sizes })
    }

    #[cfg(feature = "net")]
    pub(super) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// `row / sqrt(mean(row²) + eps) · weight`, as the model's own norms are computed.
    #[cfg(feature = "net")]
    pub(crate) fn normed(&self, row: &[f32], (weight, eps): (&[f32], f32)) -> Vec<f32> {
        let mut normed = vec![0.0; row.len()];
        self.held.cpu.norm_row(row, (weight, eps), &mut normed);
        normed
    }

    /// Where its weights lie.
    pub fn weights(&self) -> Memory {
        self.memory
    }

    /// Whether it can compute jobs [of rows before the norm](FfnJob::of_residual) of this layer: checkpoints of
    /// feed-forward blocks alone may lack what norms them.
    pub fn norms(&self, layer: LayerIdx) -> bool {
        self.held.norms.contains_key(&layer.0)
    }

    /// Bytes of the weights that it has of these layers.
    pub fn weight_bytes(&self, layers: Range<usize>) -> ByteSize {
        let among = self.layers.iter().filter(|(layer, _)| layers.contains(layer));
        ByteSize(among.map(|(_, (_, bytes))| bytes).sum())
    }
}

/// What norms rows in front of a layer's block, see [`Held::norms`]: `None` where the checkpoint lacks it.
fn norm(loader: &mut Loader<'_, Cpu>, layer: usize) -> Result<Option<Option<<Cpu as Backend>::Vector>>> {
    let arch = loader.arch;
    let spec = &arch.layers[layer];
    let tensor = match spec.ffn.experts {
        Some(experts) if experts.apart => T::ExpertsNorm,
        _ if spec.ffn_norm => T::FfnNorm,
        _ => return Ok(Some(None)),
    };
    match loader.checkpoint.tensor(&arch.names.weight(layer, tensor)) {
        Some(_) => loader.layer_norm(layer, tensor, 1.0).map(|norm| Some(Some(norm))),
        None => Ok(None),
    }
}

/// By layer which experts it has.
fn owned(arch: &ArchSpec, shares: &[(Range<usize>, Range<usize>)]) -> Result<BTreeMap<usize, Range<usize>>> {
    let mut owned = BTreeMap::<usize, Range<usize>>::new();
    for (layers, experts) in shares {
        let invalid = |expected: String, found: &Range<usize>| {
            let message = format!("expected {expected}, found {} to {}", found.start, found.end);
            Error::new(ErrorKind::PlacementInvalid, message)
                .with_hint("name layers of the model, and of each the experts that it has, side by side")
        };
        if layers.is_empty() || layers.end > arch.n_layers() {
            return Err(invalid(format!("some of the layers 0 to {}", arch.n_layers()), layers));
        }
        for layer in layers.clone() {
            let n = experts_of(&arch.layers[layer]);
            if experts.is_empty() || experts.end > n {
                return Err(invalid(format!("some of the {n} experts of layer {layer}"), experts));
            }
            let own = owned.entry(layer).or_insert_with(|| experts.clone());
            if experts.start > own.end || own.start > experts.end {
                return Err(invalid(
                    format!("experts beside {} to {} of layer {layer}", own.start, own.end),
                    experts,
                ));
            }
            *own = own.start.min(experts.start)..own.end.max(experts.end);
        }
    }
    Ok(owned)
}

/// Bytes of these experts, from the checkpoint's headers: of experts that are stacked each as large as the others.
fn bytes(
    arch: &ArchSpec,
    owned: &BTreeMap<usize, Range<usize>>,
    checkpoint: &dyn Checkpoint,
) -> Result<ByteSize> {
    owned.iter().try_fold(ByteSize(0), |sum, (layer, experts)| {
        let spec: &LayerSpec = &arch.layers[*layer];
        if spec.ffn.experts.is_some() && !arch.names.stacks_experts() {
            // The checkpoint may lack the others.
            let tensors = [T::ExpertGate, T::ExpertUp, T::ExpertDown].into_iter();
            let tensors = tensors.filter(|tensor| *tensor != T::ExpertGate || spec.ffn.activation.is_gated());
            let named = |expert| tensors.clone().map(move |tensor| (tensor, ExpertIdx(expert)));
            let names = experts.clone().flat_map(named);
            let names = names.map(|(tensor, expert)| arch.names.expert_weight(*layer, tensor, expert));
            let names: BTreeSet<_> = names.collect();
            return Ok(sum + super::load::bytes_of(checkpoint, names.into_iter())?);
        }
        let all = super::load::bytes_of(checkpoint, arch.names.feed_forward(*layer, spec))?.bytes();
        let share = u128::from(all) * experts.len() as u128 / experts_of(spec).max(1) as u128;
        Ok(sum + ByteSize(u64::try_from(share).unwrap_or(u64::MAX)))
    })
}

impl FfnService for CpuFfn {
    fn name(&self) -> &str {
        &self.name
    }

    fn serves(&self, layer: LayerIdx) -> Range<usize> {
        self.layers.get(&layer.0).map_or(0..0, |(experts, _)| experts.clone())
    }

    fn computes(&self) -> String {
        self.computes.clone()
    }

    fn memory(&self) -> Option<FfnMemory> {
        self.held.experts.memory()
    }

    fn line(&self, max_rows: usize) -> Result<Box<dyn FfnLine>> {
        let Held { cpu, arch, width, .. } = &*self.held;
        let hidden = arch.hidden_size;
        let buffer = |width| cpu.buffer(max_rows, width);
        Ok(Box::new(Line {
            held: Arc::clone(&self.held),
            max_rows,
            stream: cpu.stream(max_rows, hidden.max(*width))?,
            job: None,
            routes: Routes::default(),
            input: buffer(hidden)?,
            normed: buffer(hidden)?,
            inner: [buffer(*width)?, buffer(*width)?],
            output: buffer(hidden)?,
        }))
    }
}

/// A line, with all that jobs are computed in.
struct Line {
    held: Arc<Held>,
    max_rows: usize,
    stream: <Cpu as Backend>::Stream,
    job: Option<Job>,
    /// Names experts by their place among those that are here.
    routes: Routes,
    input: <Cpu as Backend>::Buffer,
    /// The input of jobs whose rows are yet to be normed.
    normed: <Cpu as Backend>::Buffer,
    inner: [<Cpu as Backend>::Buffer; 2],
    output: <Cpu as Backend>::Buffer,
}

struct Job {
    layer: LayerIdx,
    rows: usize,
    sums: bool,
    of_residual: bool,
}

impl FfnLine for Line {
    fn begin(&mut self, job: &FfnJob<'_>, cx: &StepCx<'_>) -> Result<()> {
        self.job = None;
        cx.check()?;
        let Held { arch, experts, norms, .. } = &*self.held;
        let spec = arch.layers.get(job.layer.0);
        let n = spec.map_or(0, experts_of);
        job.check(arch.hidden_size, &(0..n))?;
        let is_dense = spec.is_some_and(|spec| spec.ffn.experts.is_none());
        if is_dense && job.pairs.iter().any(|pair| pair.weight != 1.0) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "expected weights of 1 for a dense block, found others",
            )
            .with("layer", job.layer)
            .with_hint("rows take a dense block as it is"));
        }
        let of_residual = job.is_of_residual();
        if of_residual && !norms.contains_key(&job.layer.0) {
            let message =
                "expected rows behind the block's norm, which the checkpoint lacks, found rows before it";
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with("layer", job.layer)
                .with_hint("give normed rows, or load a checkpoint that has the layer's norms"));
        }
        let rows = if is_dense { job.pairs.len() } else { job.rows() };
        if rows > self.max_rows {
            let message = format!("expected up to {} rows, found {rows}", self.max_rows);
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with("layer", job.layer)
                .with_hint("give several smaller jobs, or take a line for more rows"));
        }
        let Routes { n_used, rows: row_of, ids, weights, .. } = &mut self.routes;
        let used = spec.and_then(|spec| spec.ffn.experts).map_or(1, |experts| experts.n_used);
        *n_used = if job.sums { job.pairs.len().checked_div(rows).unwrap_or(0) } else { used };
        let most = rows.saturating_mul(*n_used).max(job.pairs.len());
        row_of.clear();
        row_of.reserve(most);
        ids.clear();
        ids.reserve(most);
        weights.clear();
        weights.reserve(most);
        for pair in job.pairs {
            let place = experts.place(job.layer, pair.expert as usize).ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    "expected an expert that the service has, found another",
                )
                .with("layer", job.layer)
                .with("expert", pair.expert)
            })?;
            row_of.push(pair.row);
            ids.push(place as u32);
            weights.push(pair.weight);
        }
        if is_dense {
            // A row each, whichever it is of.
            for (at, pair) in job.pairs.iter().enumerate() {
                let from = &job.given()[pair.row as usize * job.hidden..][..job.hidden];
                self.input.rows_mut(rows)[at * job.hidden..][..job.hidden].copy_from_slice(from);
            }
        } else {
            self.input.rows_mut(rows).copy_from_slice(job.given());
        }
        self.job = Some(Job { layer: job.layer, rows, sums: job.sums, of_residual });
        Ok(())
    }

    fn wait(&mut self, out: &mut [f32], cx: &StepCx<'_>) -> Result<()> {
        let Some(Job { layer, rows, sums, of_residual }) = self.job.take() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "expected a job that was begun, found none")
                .with_hint("begin a job, then wait for it once"));
        };
        let Self { held, stream, routes, input, normed, inner, output, .. } = self;
        let Held { cpu, arch, experts, norms, .. } = &**held;
        let has_experts = arch.layers[layer.0].ffn.experts.is_some();
        let results = if has_experts && !sums { routes.ids.len() } else { rows };
        if out.len() != results * arch.hidden_size {
            let (expected, found) = (results * arch.hidden_size, out.len());
            let message = format!("expected room for {expected} numbers, found {found}");
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with_hint("give a row of the model's width for each result of the job"));
        }
        if rows == 0 {
            return Ok(());
        }
        cpu.run(cx, || {
            let norm = of_residual.then(|| norms.get(&layer.0)?.as_ref()).flatten();
            let input = match norm {
                Some(norm) => {
                    cpu.rms_norm(stream, input, norm, arch.norm.eps, rows, normed)?;
                    &*normed
                }
                None => &*input,
            };
            if has_experts && !sums {
                let op = experts.operation(layer, routes)?;
                return expert_results(cpu, stream, &op, (input, rows), out);
            }
            let routes = has_experts.then_some(&*routes);
            let (backend, residual) = (cpu, input);
            let call = ExpertCall { backend, layer, routes, rows, input, residual, stream, inner, output };
            experts.forward(call)?;
            out.copy_from_slice(output.rows(rows));
            Ok(())
        })
    }
}
