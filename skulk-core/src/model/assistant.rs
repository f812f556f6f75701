//! How does an assistant draft? From the pages of the shard that it is loaded beside, which has the sequences.

use std::sync::{Arc, Mutex};

use super::batch::check;
use super::decoder::{Decoder, malformed};
use super::kv::Groups;
use super::shard::{State, lock, not_open};
use super::workspace::Workspace;
use crate::arch::{AttentionSpec, LayerSpec};
use crate::bytes::ByteSize;
use crate::engine::backend::Backend;
use crate::engine::{Batch, KvMemory, LayerPages, Reply, Shard, ShardSpec, StepCx};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::ids::{SeqId, TokenId};
use crate::weights::Memory;

/// A [`Decoder`] whose layers use keys and values of another shard's.
pub(super) struct AssistantShard<B: Backend> {
    decoder: Decoder<B>,
    memory: Memory,
    /// The other one's groups of layers, by those of the own.
    groups: Vec<usize>,
    /// The other one's.
    state: Arc<Mutex<State<B>>>,
    work: Mutex<Workspace<B>>,
}

/// The assistant with layers counted within its model's shard, which must have all whose keys and values it uses.
pub(super) fn within(spec: &ShardSpec, model: &ShardSpec) -> Result<ShardSpec> {
    let (mut arch, own) = ((*spec.arch).clone(), &model.layers);
    for (at, attention) in arch.layers.iter_mut().filter_map(LayerSpec::attention_mut).enumerate() {
        let like = |other: &AttentionSpec| {
            let of = |attention: &AttentionSpec| {
                (attention.n_kv_heads, attention.head_dim, attention.window.is_some(), attention.latent)
            };
            of(other) == of(attention) && other.has_kv()
        };
        let source = attention
            .kv_of
            .filter(|source| model.arch.layers.get(*source).and_then(LayerSpec::attention).is_some_and(like));
        let Some(source) = source else {
            let message =
                format!("expected a layer of the model with such keys and values as layer {at} needs");
            return Err(Error::argument("spec", message).with_hint("describe the assistant by its model"));
        };
        if !own.contains(&source) {
            let message = format!(
                "expected layer {source}, whose keys and values an assistant uses, in the last stage, found layers {}..{} there",
                own.start, own.end
            );
            return Err(Error::new(ErrorKind::PlacementInvalid, message).with_hint(
                "give the last stage that layer and those behind it, or load the model without the assistant",
            ));
        }
        attention.kv_of = Some(source - own.start);
    }
    Ok(ShardSpec { arch: Arc::new(arch), ..spec.clone() })
}

impl<B: Backend> AssistantShard<B> {
    pub(super) fn new(
        decoder: Decoder<B>,
        memory: Memory,
        model: &Groups,
        state: Arc<Mutex<State<B>>>,
    ) -> Result<Self> {
        let own = decoder.groups();
        let layers = 0..decoder.spec().layers.len();
        let of = |group| layers.clone().find(|layer| own.of_layer(*layer) == group);
        let groups =
            (0..own.list().len()).filter_map(of).map(|layer| model.of_layer(own.source(layer))).collect();
        let work = Mutex::new(decoder.workspace()?);
        Ok(Self { decoder, memory, groups, state, work })
    }
}

fn gone(seq: SeqId) -> Error {
    let message = format!("a page of sequence {seq} that an assistant sees had to be given up");
    Error::new(ErrorKind::OutOfMemory, message).with_retry(Retry::Now)
}

/// What an assistant lacks.
fn no_sequences() -> Error {
    malformed("an assistant has no sequences of its own: it takes those of its model".into())
}

impl<B: Backend> Shard for AssistantShard<B> {
    fn spec(&self) -> &ShardSpec {
        self.decoder.spec()
    }

    fn weight_bytes(&self) -> ByteSize {
        self.decoder.weight_bytes()
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn device_memory(&self) -> Option<ByteSize> {
        self.decoder.backend().reserved()
    }

    fn open(&self, _seq: SeqId, _tokens: &[TokenId]) -> Result<usize> {
        Err(no_sequences())
    }

    fn reserve(&self, _seq: SeqId, _len: usize) -> Result<()> {
        Ok(())
    }

    fn fork(&self, _from: SeqId, _at: usize, _to: SeqId) -> Result<usize> {
        Err(no_sequences())
    }

    fn save(&self, _seq: SeqId, _each: &mut dyn FnMut(LayerPages<'_>) -> Result<()>) -> Result<()> {
        Err(no_sequences())
    }

    fn restore(&self, _seq: SeqId, _tokens: &[TokenId], _layers: &[LayerPages<'_>]) -> Result<()> {
        Err(no_sequences())
    }

    fn forward(&self, batch: &Batch<'_>, reply: &mut Reply, cx: &StepCx<'_>) -> Result<()> {
        check(self.decoder.spec(), batch)?;
        self.decoder.backend().run(cx, || {
            let (mut work, mut state) = (lock(&self.work), lock(&self.state));
            let State { sequences, stored, .. } = &mut *state;
            work.spans.iter_mut().for_each(|spans| spans.clear());
            for segment in batch.segments {
                let sequence = sequences.get(&segment.seq).ok_or_else(|| not_open(segment.seq))?;
                if sequence.len() != segment.start {
                    return Err(malformed(format!(
                        "expected a row behind all {} positions of sequence {}, found one behind {}",
                        sequence.len(),
                        segment.seq,
                        segment.start
                    )));
                }
                let own = self.decoder.groups().list();
                for ((spans, spec), group) in work.spans.iter_mut().zip(own).zip(&self.groups) {
                    if !sequence.last(*group, spec.window, spans) {
                        return Err(gone(segment.seq));
                    }
                }
            }
            self.decoder.forward(&mut work, stored, batch, reply, cx)
        })
    }

    fn truncate(&self, _seq: SeqId, _len: usize) -> Result<usize> {
        Err(no_sequences())
    }

    fn kv_memory(&self) -> KvMemory {
        KvMemory::default()
    }

    fn close(&self, _seq: SeqId) {}
}
