//! What drafts for a model? Another checkpoint of the same vocabulary, loaded whole, or a head for tokens ahead, an assistant or an
//! EAGLE head, loaded beside the last stage, whose embeddings it uses.

use std::sync::Arc;

use super::second::{Drafts, Second};
use crate::arch::{AheadSpec, ArchSpec};
use crate::bytes::ByteSize;
use crate::card::{MtpConcatOrder, MtpNormConvention};
use crate::engine::{Engine, EngineId, KvTypes, LoadCx, Shard, ShardSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::load::{Building, load_stage};
use crate::generate::stages::Stages;
use crate::generate::{LoadOptions, StageInfo};
use crate::ids::TokenId;
use crate::plan::{Drafter, Placement};
use crate::tokenizer::Tokenizer;
use crate::weights::{Checkpoint, Memory, Metadata, open_drafts};

/// What is to draft for a model.
pub(in crate::generate) struct Drafting {
    what: What,
    /// All its layers.
    spec: ShardSpec,
    /// Sessions at a time.
    sessions: usize,
    /// What was planned, and for how many tokens of a session.
    most: Option<(Drafter, Option<u64>)>,
}

enum What {
    /// A checkpoint with this tokenizer.
    Model(Arc<dyn Checkpoint>, Building),
    /// A head in a file of its own, an assistant or an EAGLE head.
    Sidecar(Arc<dyn Checkpoint>),
    /// The head in the model's own checkpoint, which was asked for or not.
    Own { asked: bool },
}

/// A model as it is loaded: its last stage with its engine, all engines, and its checkpoint.
pub(in crate::generate) struct Loaded<'a> {
    pub(in crate::generate) last: &'a dyn Shard,
    pub(in crate::generate) engine: &'a EngineId,
    pub(in crate::generate) engines: &'a [Arc<dyn Engine>],
    pub(in crate::generate) checkpoint: &'a dyn Checkpoint,
    pub(in crate::generate) tokenizer: &'a Tokenizer,
}

impl Loaded<'_> {
    /// The last stage's engine.
    fn engine(&self) -> Option<&Arc<dyn Engine>> {
        self.engines.iter().find(|engine| engine.id() == self.engine)
    }
}

impl Drafting {
    /// What options name, or else the head in a model's own checkpoint, unless memory was planned without it: for sessions of
    /// so many tokens, and steps of so many rows.
    pub(in crate::generate) fn find(
        (arch, checkpoint): (&ArchSpec, &dyn Checkpoint),
        (options, placement): (&LoadOptions, &Placement),
        [context, rows, sessions]: [usize; 3],
        kv: KvTypes,
    ) -> Result<Option<Self>> {
        let counted = placement.drafter().copied();
        let is_planned = placement.context_tokens().is_some();
        let own = options.mtp.or_else(|| is_planned.then(|| counted.is_some_and(|drafter| drafter.mtp)));
        let found = match (&options.draft_model, own) {
            (Some(_), _) if options.mtp == Some(true) => {
                let message = "expected one model that drafts, found draft_model beside mtp";
                return Err(Error::argument("mtp", message).with_hint("leave one of the options out"));
            }
            (Some(path), _) => {
                let beside = open_drafts(path).map_err(named("draft_model"))?;
                Some(other(arch, beside, options).map_err(named("draft_model"))?)
            }
            (None, Some(false)) if options.mtp.is_none() && counted.is_some() => {
                let message = "expected the draft model that the placement was planned with, found none";
                return Err(Error::argument("draft_model", message)
                    .with_hint("name it, or leave it out with the option mtp, which is then false"));
            }
            (None, Some(false)) => None,
            (None, mtp) => {
                let asked = mtp == Some(true);
                let head = arch.head_in(checkpoint);
                if asked && head.is_none() {
                    let message = "expected a checkpoint with a head for tokens ahead, found none";
                    return Err(Error::argument("mtp", message)
                        .with("file", checkpoint.path().display())
                        .with_hint("leave the option out, or fetch files that have the model's MTP layers"));
                }
                head.map(|head| (What::Own { asked }, head))
            }
        };
        let Some((what, arch)) = found else { return Ok(None) };
        // An assistant has one row of each session.
        let rows = if arch.is_assistant() { sessions.max(1) } else { rows };
        let (layers, context) = (0..arch.n_layers(), context.min(arch.context_length));
        match ShardSpec::new(Arc::new(arch), layers, context, rows, kv) {
            Err(_) if matches!(what, What::Own { asked: false }) => Ok(None),
            spec => {
                let spec = spec.map_err(named(what.field()))?;
                let most = counted.map(|drafter| (drafter, placement.context_tokens()));
                Ok(Some(Self { spec, what, sessions, most }))
            }
        }
    }

    pub(in crate::generate) fn n_layers(&self) -> usize {
        self.spec.layers.len()
    }

    /// Loads it on the engine of the last stage. `None`: it is a head that cannot be loaded and was not asked for.
    pub(in crate::generate) fn load(
        self,
        model: &Loaded<'_>,
        cx: &LoadCx<'_>,
    ) -> Result<Option<Arc<Second>>> {
        let field = self.what.field();
        self.load_any(model, cx).map_err(named(field))
    }

    /// `Ok` where it takes no more than was planned, for sessions as they were.
    fn is_as_planned(&self, model: &Loaded<'_>) -> Result<()> {
        let Some((Drafter { mtp, bytes }, tokens)) = self.most else { return Ok(()) };
        let checkpoint = match &self.what {
            What::Model(checkpoint, _) | What::Sidecar(checkpoint) => &**checkpoint,
            What::Own { .. } if mtp => return Ok(()),
            What::Own { .. } => model.checkpoint,
        };
        let Some(engine) = model.engine() else { return Ok(()) };
        let mut spec = self.spec.clone();
        let tokens = tokens.map_or(spec.context, |tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
        spec.context = tokens.min(spec.arch.context_length);
        let found = engine.estimate(&spec, checkpoint)?;
        let kept = found.kv_cache.bytes().saturating_mul(self.sessions as u64);
        // With what is kept free for weights that were not counted.
        let weights = bytes.attention.saturating_add(bytes.feed_forward).saturating_add(bytes.headroom);
        let each = [("weights", found.weights.bytes(), weights), ("keys and values", kept, bytes.kv_cache)];
        let Some((what, found, most)) = each.into_iter().find(|(_, found, most)| found > most) else {
            return Ok(());
        };
        let message = format!(
            "expected what drafts with at most {most} bytes of {what}, as the placement was planned with, found {found}"
        );
        Err(Error::new(ErrorKind::InvalidArgument, message)
            .with_hint("name what was planned with, or plan with this one"))
    }

    fn load_any(self, model: &Loaded<'_>, cx: &LoadCx<'_>) -> Result<Option<Arc<Second>>> {
        self.is_as_planned(model)?;
        let Self { what, spec, sessions, .. } = self;
        let (arch, context, rows) = (Arc::clone(&spec.arch), spec.context, spec.max_rows);
        let vocab_size = model.tokenizer.vocab_size();
        let mut tokens = None;
        let (loaded, known, ends) = match what {
            What::Model(checkpoint, tokenizer) => {
                let own = tokenizer.wait()?;
                same_vocabulary(&own, model.tokenizer)
                    .map_err(|e| e.with("file", checkpoint.path().display()))?;
                // Both must know a token, and have an embedding of it.
                let known = own.vocab_size().min(vocab_size).min(arch.vocab_size);
                let planned = (model.engine, Some(sessions));
                let loaded = load_stage(planned, model.engines, spec, &*checkpoint, cx)?;
                (loaded, known, own.eos_ids().to_vec())
            }
            What::Sidecar(checkpoint) => {
                tokens = drafted_tokens(&arch, &*checkpoint)?;
                let loaded = load_head(spec, sessions, &*checkpoint, model, cx)?;
                (loaded, vocab_size, model.tokenizer.eos_ids().to_vec())
            }
            What::Own { asked: false } if copies_embeddings(model) => {
                (cx.on_layer)();
                return Ok(None);
            }
            What::Own { asked } => match load_head(spec, sessions, model.checkpoint, model, cx) {
                // The model runs without, as it does where its checkpoint has none.
                Err(error) if !asked && !is_stop(&error) => {
                    (cx.on_layer)();
                    return Ok(None);
                }
                loaded => (loaded?, vocab_size, model.tokenizer.eos_ids().to_vec()),
            },
        };
        let (shard, info) = loaded;
        let stages = Arc::new(Stages::new(vec![shard]));
        let taken = arch.taken(model.last.spec().arch.n_layers());
        let drafts = Drafts { taken, tokens };
        Ok(Some(Arc::new(Second::new(stages, info, &arch, [context, rows, known], (ends, drafts)))))
    }
}

impl What {
    /// The option that it is for.
    fn field(&self) -> &'static str {
        match self {
            Self::Model(..) | Self::Sidecar(_) => "draft_model",
            Self::Own { .. } => "mtp",
        }
    }
}

/// What the checkpoint that `draft_model` names is.
fn other(
    arch: &ArchSpec,
    checkpoint: Arc<dyn Checkpoint>,
    options: &LoadOptions,
) -> Result<(What, ArchSpec)> {
    let described = ArchSpec::from_checkpoint(&*checkpoint);
    if let Some(mut head) = arch.drafts_in(&*checkpoint)? {
        if described.is_err() && head.names.is_beside() {
            // What the model's own file adds to norms says nothing of this one.
            let runtime = options.card.as_ref().and_then(|card| card.runtime.as_ref());
            let whole = runtime.and_then(|runtime| runtime.mtp_norm_convention);
            head.norm.weight_offset = if whole == Some(MtpNormConvention::ActualScale) { 0.0 } else { 1.0 };
            let order = runtime.and_then(|runtime| runtime.mtp_concat_order);
            let hidden_first = order == Some(MtpConcatOrder::HiddenFirst);
            head.ahead = Some(AheadSpec::Head { hidden_first, model_norm: false });
        }
        return Ok((What::Sidecar(checkpoint), head));
    }
    let arch = described?;
    let tokenizer = Building::start(&*checkpoint, &options.cancel)?;
    Ok((What::Model(checkpoint, tokenizer), arch))
}

/// Which tokens an EAGLE head drafts, by number, where these are not all.
fn drafted_tokens(arch: &ArchSpec, checkpoint: &dyn Checkpoint) -> Result<Option<Vec<TokenId>>> {
    let n = arch.output_vocab();
    if !matches!(arch.ahead, Some(AheadSpec::Eagle { head: Some(_), .. })) {
        return Ok(None);
    }
    let name = arch.names.drafted_tokens();
    let Some(mut numbers) = checkpoint.integers(name, n)? else {
        if n == arch.vocab_size {
            return Ok(None);
        }
        let message = format!("expected a tensor that says which tokens the {n} of the head are, found none");
        return Err(Error::new(ErrorKind::TensorMissing, message)
            .with("file", checkpoint.path().display())
            .with("tensor", name)
            .with_hint("fetch the head again, with all its files"));
    };
    let is_gguf = matches!(checkpoint.metadata(), Metadata::Gguf(_));
    // Converters to GGUF write tokens. Once they wrote by how much further on each is, of which some are the same.
    if !is_gguf || stray(&numbers, arch.vocab_size).is_some() {
        (0..).zip(&mut numbers).for_each(|(at, number)| *number = number.saturating_add(at));
    }
    if let Some(found) = stray(&numbers, arch.vocab_size) {
        let message =
            format!("expected {n} tokens below {}, each another one, found {found}", arch.vocab_size);
        return Err(Error::new(ErrorKind::CheckpointInvalid, message)
            .with("file", checkpoint.path().display())
            .with("tensor", name)
            .with_hint("the head belongs to another model, or its file is broken: fetch it again"));
    }
    Ok(Some(numbers.into_iter().map(|token| TokenId(token as u32)).collect()))
}

/// The first of these that is none of so many tokens, or is there twice.
fn stray(tokens: &[i64], n: usize) -> Option<i64> {
    let mut sorted = tokens.to_vec();
    sorted.sort_unstable();
    let is_known = |token: &i64| usize::try_from(*token).is_ok_and(|token| token < n);
    let unknown = sorted.iter().find(|token| !is_known(token));
    let twice = || sorted.iter().zip(sorted.iter().skip(1)).find(|(a, b)| a == b);
    unknown.or_else(|| Some(twice()?.0)).copied()
}

/// Whether a head would need a copy of the embedding table, which the last stage has not.
fn copies_embeddings(model: &Loaded<'_>) -> bool {
    let spec = model.last.spec();
    let in_place = model.engine().is_some_and(|engine| engine.capabilities().in_place_weights);
    !(spec.is_first() || spec.arch.tied_embeddings || in_place && model.last.memory() == Memory::Mapped)
}

/// Loads a head beside a model's last stage. Keys and values of all sessions have room, and no more.
fn load_head(
    mut spec: ShardSpec,
    sessions: usize,
    head: &dyn Checkpoint,
    model: &Loaded<'_>,
    cx: &LoadCx<'_>,
) -> Result<(Box<dyn Shard>, StageInfo)> {
    let none = || Error::new(ErrorKind::Internal, "the last stage's engine is gone");
    let engine = model.engine().ok_or_else(none)?;
    let estimate = engine.estimate(&spec, head)?;
    spec.kv_memory = Some(ByteSize(estimate.kv_cache.bytes().saturating_mul(sessions as u64)));
    let shard = model.last.load_ahead(&spec, head, model.checkpoint, cx)?;
    let info = StageInfo {
        engine: engine.id().clone(),
        device: engine.capabilities().device.clone(),
        layers: spec.layers,
        weights: shard.weight_bytes(),
        memory: shard.memory(),
        kv_cache: estimate.kv_cache,
    };
    Ok((shard, info))
}

/// `Ok` when two tokenizers mean the same by the tokens that both have.
fn same_vocabulary(own: &Tokenizer, tokenizer: &Tokenizer) -> Result<()> {
    let most = own.vocab_size().min(tokenizer.vocab_size());
    let of = |tokenizer: &Tokenizer, id| (tokenizer.token_text(id), tokenizer.is_special(id));
    let differs = (0..most).map(|id| TokenId(id as u32)).find(|id| of(own, *id) != of(tokenizer, *id));
    let Some(id) = differs else { return Ok(()) };
    let [found, expected] = [own, tokenizer].map(|tokenizer| tokenizer.token_text(id));
    let quoted = |text: Option<String>| text.map_or("none".into(), |text| format!("{text:?}"));
    let message = format!(
        "expected a draft model with the same vocabulary, whose token {id} is {}, found {}",
        quoted(expected),
        quoted(found)
    );
    let error = Error::new(ErrorKind::TokenizerInvalid, message);
    Err(error.with_hint("take a smaller model of the same family"))
}

/// The error with the option that it is about.
fn named(field: &'static str) -> impl Fn(Error) -> Error {
    move |error| if is_stop(&error) { error } else { error.with("field", field) }
}

fn is_stop(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::DeadlineExceeded)
}
