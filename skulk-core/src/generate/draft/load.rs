//! Can a model draft for another one? Its checkpoint is loaded whole, and its vocabulary compared; a head for tokens ahead
//! is loaded beside the last stage, whose embeddings and output head it uses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::second::Second;
use crate::arch::ArchSpec;
use crate::bytes::ByteSize;
use crate::engine::{Engine, EngineId, KvTypes, LoadCx, Shard, ShardSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::load::{Building, load_stage};
use crate::generate::stages::Stages;
use crate::generate::{LoadOptions, StageInfo};
use crate::ids::TokenId;
use crate::tokenizer::Tokenizer;
use crate::weights::{Checkpoint, open_checkpoint};

/// A model that is to draft.
pub(in crate::generate) struct Drafting {
    path: PathBuf,
    checkpoint: Arc<dyn Checkpoint>,
    pub(in crate::generate) arch: Arc<ArchSpec>,
    tokenizer: Building,
    /// Positions of a sequence, and rows of a step.
    context: usize,
    rows: usize,
    kv: KvTypes,
    /// Sessions at a time.
    sessions: usize,
}

impl Drafting {
    /// Opens the checkpoint there, to draft for so many sessions of so many tokens, in steps of so many rows.
    pub(in crate::generate) fn open(
        path: &Path,
        options: &LoadOptions,
        [context, rows, sessions]: [usize; 3],
        kv: KvTypes,
    ) -> Result<Self> {
        let checkpoint = open_checkpoint(path).map_err(named)?;
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).map_err(named)?);
        let tokenizer = Building::start(&*checkpoint, &options.cancel).map_err(named)?;
        let context = context.min(arch.context_length);
        Ok(Self { path: path.to_owned(), checkpoint, arch, tokenizer, context, rows, kv, sessions })
    }

    /// Loads it on this engine.
    pub(in crate::generate) fn load(
        &self,
        engine: &EngineId,
        engines: &[Arc<dyn Engine>],
        cx: &LoadCx<'_>,
    ) -> Result<(Box<dyn Shard>, StageInfo)> {
        let layers = 0..self.arch.n_layers();
        let spec = ShardSpec::new(Arc::clone(&self.arch), layers, self.context, self.rows, self.kv);
        load_stage((engine, Some(self.sessions)), engines, spec.map_err(named)?, &*self.checkpoint, cx)
            .map_err(named)
    }

    /// Makes it draft for a model with this tokenizer, and tokens below `vocab_size`.
    pub(in crate::generate) fn finish(
        self,
        (shard, info): (Box<dyn Shard>, StageInfo),
        tokenizer: &Tokenizer,
        vocab_size: usize,
    ) -> Result<Arc<Second>> {
        let own = self.tokenizer.wait().map_err(named)?;
        let most = own.vocab_size().min(tokenizer.vocab_size());
        let of = |tokenizer: &Tokenizer, id| (tokenizer.token_text(id), tokenizer.is_special(id));
        let differs = (0..most).map(|id| TokenId(id as u32)).find(|id| of(&own, *id) != of(tokenizer, *id));
        if let Some(id) = differs {
            let [found, expected] = [&own, tokenizer].map(|tokenizer| tokenizer.token_text(id));
            let quoted = |text: Option<String>| text.map_or("none".into(), |text| format!("{text:?}"));
            let message = format!(
                "expected a draft model with the same vocabulary, whose token {id} is {}, found {}",
                quoted(expected),
                quoted(found)
            );
            let error = Error::new(ErrorKind::TokenizerInvalid, message).with("file", self.path.display());
            return Err(named(error.with_hint("take a smaller model of the same family")));
        }
        let stages = Arc::new(Stages::new(vec![shard]));
        // Both must know a token, and have an embedding of it.
        let known = most.min(vocab_size).min(self.arch.vocab_size);
        let Self { arch, context, rows, .. } = self;
        Ok(Arc::new(Second::new(stages, info, &arch, [context, rows, known], own.eos_ids())))
    }
}

/// A head for tokens ahead that is to draft.
pub(in crate::generate) struct Heading<'a> {
    checkpoint: &'a dyn Checkpoint,
    spec: ShardSpec,
    sessions: usize,
    /// It was asked for.
    asked: bool,
}

impl<'a> Heading<'a> {
    /// The one in a model's own checkpoint, where options want one, or say nothing and memory was not planned: for steps as
    /// the model's and so many sessions.
    pub(in crate::generate) fn find(
        (arch, checkpoint): (&ArchSpec, &'a dyn Checkpoint),
        (options, planned): (&LoadOptions, bool),
        [context, rows, sessions]: [usize; 3],
        kv: KvTypes,
    ) -> Result<Option<Self>> {
        let asked = options.mtp == Some(true);
        if asked && options.draft_model.is_some() {
            let message = "expected one model that drafts, found draft_model beside mtp";
            return Err(Error::argument("mtp", message).with_hint("leave one of the options out"));
        }
        let wanted = options.mtp.unwrap_or(options.draft_model.is_none() && !planned);
        let Some(head) = wanted.then(|| arch.head_in(checkpoint)).flatten() else {
            if asked {
                let message = "expected a checkpoint with a head for tokens ahead, found none";
                return Err(Error::argument("mtp", message)
                    .with("file", checkpoint.path().display())
                    .with_hint("leave the option out, or fetch files that have the model's MTP layers"));
            }
            return Ok(None);
        };
        let spec = ShardSpec::new(Arc::new(head), 0..1, context, rows, kv).map_err(of_head)?;
        Ok(Some(Self { checkpoint, spec, sessions, asked }))
    }

    /// Loads it beside a model's last stage, which runs on this engine. `None`: that engine knows no heads, and none was asked
    /// for.
    pub(in crate::generate) fn load(
        mut self,
        (last, engine): (&dyn Shard, &dyn Engine),
        model: &dyn Checkpoint,
        tokenizer: &Tokenizer,
        cx: &LoadCx<'_>,
    ) -> Result<Option<Arc<Second>>> {
        let estimate = engine.estimate(&self.spec, self.checkpoint).map_err(of_head)?;
        let all = estimate.kv_cache.bytes().saturating_mul(self.sessions as u64);
        self.spec.kv_memory = Some(ByteSize(all));
        let shard = match last.load_ahead(&self.spec, self.checkpoint, model, cx) {
            Err(error) if error.kind() == ErrorKind::ArchUnsupported && !self.asked => return Ok(None),
            shard => shard.map_err(of_head)?,
        };
        let info = StageInfo {
            engine: engine.id().clone(),
            device: engine.capabilities().device.clone(),
            layers: self.spec.layers.clone(),
            weights: shard.weight_bytes(),
            memory: shard.memory(),
            kv_cache: estimate.kv_cache,
        };
        let ShardSpec { arch, context, max_rows, .. } = &self.spec;
        let sizes = [*context, *max_rows, tokenizer.vocab_size()];
        let stages = Arc::new(Stages::new(vec![shard]));
        Ok(Some(Arc::new(Second::new(stages, info, arch, sizes, tokenizer.eos_ids()))))
    }
}

/// The error with what it is about.
fn of_head(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Cancelled | ErrorKind::DeadlineExceeded => error,
        _ => error.with("field", "mtp"),
    }
}

/// The error with what it is about.
fn named(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Cancelled | ErrorKind::DeadlineExceeded => error,
        _ => error.with("field", "draft_model"),
    }
}
