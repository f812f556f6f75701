//! What may a caller ask of loading a model?

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::arch::CHUNK;
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::card::ModelCard;
use crate::engine::{Engine, EngineId, FfnService, KvType, KvTypes, Progress};
use crate::engines::EngineOptions;
use crate::macros::{closed_set, setters};
use crate::plan::{NodeId, Placement};

closed_set! {
    /// What happens to a session that needs another page of keys and values when
    /// [all memory for them](LoadOptions::kv_memory) is in use.
    #[derive(Default)]
    pub enum WhenFull {
        /// What sessions hold that do nothing is given up, then it waits until others have ended. Where all wait, one of
        /// the lowest priority that came last gives up its pages and is computed again later. Texts do not depend on it.
        #[default]
        Wait = "wait",
        /// What sessions hold that do nothing is given up; where that is not enough, and no session is being dropped,
        /// saved or restored, it ends with `memory.exhausted`.
        Evict = "evict",
        /// It ends with `memory.exhausted`; what other sessions hold stays.
        Fail = "fail",
    }
}

/// Called with the progress of loading.
type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Options of loading a model.
///
/// ```
/// use skulk::{EngineOptions, LoadOptions, Memory};
/// let engine = EngineOptions::default().threads(2).memory(Memory::Resident);
/// let options = LoadOptions::default().engine_options(engine).stages(2).context(2048);
/// # let _ = options;
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Stages that [`Model::open`](super::Model::open) splits the layers into, all on one engine.
    pub stages: usize,
    /// That engine's name; `None`: the first of [`engines`](Self::engines), or `cpu`.
    pub engine_name: Option<EngineId>,
    /// Which engine runs which layers, for [`Model::open`](super::Model::open), instead of `stages` and `engine_name`.
    pub placement: Option<Placement>,
    /// Engines that may be named. When there are none, those that are named are made, see
    /// [`engines::by_name`](crate::engines::by_name), with [`engine_options`](Self::engine_options).
    pub engines: Vec<Arc<dyn Engine>>,
    /// Options of engines that are made, and of the CPU where it computes feed-forward blocks beside other engines.
    pub engine_options: EngineOptions,
    /// Leaves feed-forward blocks and experts, most of a model's weights, to the CPU where an engine would copy them to its
    /// device: they stay where [`EngineOptions::memory`] says, and engine [`cpu`](crate::engines::cpu)'s kernels compute
    /// them there. In each layer activations go to the CPU and back once. A [placement](Placement::experts) can leave
    /// some of them.
    pub ffn_on_cpu: bool,
    /// What computes the feed-forward blocks and experts that a [placement](Placement::experts) has on other nodes, by
    /// node.
    pub ffn_services: BTreeMap<NodeId, Arc<dyn FfnService>>,
    /// Servers of feed-forward blocks and experts, which compute what they have of them; each is asked what that is. Of
    /// what several have, those that are named later help where the first one fails. The rest is computed here.
    #[cfg(feature = "net")]
    pub ffn_at: Vec<crate::remote::Address>,
    /// Where nodes serve the blocks and experts that a placement has on them, beside what the placement
    /// [says](Placement::addresses): loading connects to each, and to further owners of the same experts, which are asked
    /// where the first one fails. Needs the feature `net`.
    pub addresses: BTreeMap<NodeId, String>,
    /// How these nodes are reached.
    #[cfg(feature = "net")]
    pub connect: crate::remote::ConnectOptions,
    /// The name that placements have for this process.
    pub node: NodeId,
    /// Positions a session can hold, in tokens, at most what the placement [allows](Placement::context_limit); `None`:
    /// what a plan [reserves](Placement::context_tokens), without a plan [`DEFAULT_CONTEXT`](Self::DEFAULT_CONTEXT), and
    /// never more than the model was trained for, nor than [`ArchSpec::short_context`](crate::arch::ArchSpec::short_context).
    pub context: Option<usize>,
    /// Prompt tokens that pass through the layers together.
    pub prefill_chunk: usize,
    /// How keys and values are kept, in no more memory than a placement was planned with. `None`: as the
    /// [plan](Placement::kv) was asked for. Where it was not, as all stages' engines have it
    /// [first](crate::Capabilities::kv_types): the CPU has bfloat16 unless [`Precision`](crate::Precision) is `Exact`; half
    /// precision elsewhere, and where stages' engines differ.
    pub kv: Option<KvTypes>,
    /// How values are kept, where that is otherwise than `kv` or the placement says.
    pub kv_values: Option<KvType>,
    /// Sessions that generate at the same time, in steps together, no more than a placement was planned for; others wait for
    /// their turn. Those whose reader does not read do not count. `None`: as many as the [plan](Placement::sessions) is
    /// for, without a plan [`DEFAULT_SESSIONS`](Self::DEFAULT_SESSIONS).
    pub sessions: Option<usize>,
    /// The most that keys and values of all sessions may take, over all stages by their layers; `None`: what the
    /// [plan](Placement::sessions) reserves, without a plan what sessions need. Of conversations that rest, and of prompts that may come again, is kept what fits; without a limit
    /// as much as one session of full length needs.
    pub kv_memory: Option<ByteSize>,
    /// What happens to a session when that memory is full.
    pub when_full: WhenFull,
    /// What is known about the model, for [`Model::chat`](super::Model::chat): its profile says how it is spoken to;
    /// `None`: as much as its checkpoint [tells](ModelCard::from_checkpoint).
    pub card: Option<ModelCard>,
    /// The source of its chat template; `None`: its checkpoint's.
    pub chat_template: Option<String>,
    /// A checkpoint that [drafts](crate::Speculate) tokens: a smaller model with the same vocabulary, this model's head for
    /// tokens ahead (MTP) in a file of its own, its assistant (Gemma 4), or an EAGLE-3 head of it. It runs whole on the engine of the last stage, with its options, a budget among
    /// them; its keys and values are for as many sessions, beside [`kv_memory`](Self::kv_memory). A plan that
    /// [counts](crate::Request::draft_model) one needs one here, whose weights, keys and
    /// values take no more memory; what no plan counts comes on top.
    pub draft_model: Option<PathBuf>,
    /// Whether a head for tokens ahead (MTP) that the checkpoint has [drafts](crate::Speculate). It takes the memory of a layer
    /// more, and of that layer's keys and values for as many sessions, beside [`kv_memory`](Self::kv_memory). `None`: it does
    /// as it was [planned](crate::Request::mtp), and without a plan where no [`draft_model`](Self::draft_model) does and where
    /// it can be loaded, as [`Model::memory`](crate::Model::memory) tells. `false` leaves out what a plan counts, too.
    pub mtp: Option<bool>,
    /// Called after each layer that was loaded.
    pub progress: Option<OnProgress>,
    /// Ends loading within one layer.
    pub cancel: CancelToken,
}

impl std::fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadOptions")
            .field("placement", &self.placement)
            .field("stages", &self.stages)
            .field("engine_name", &self.engine_name)
            .field("engine_options", &self.engine_options)
            .field("node", &self.node)
            .field("context", &self.context)
            .field("sessions", &self.sessions)
            .field("kv", &self.kv)
            .finish_non_exhaustive()
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            stages: 1,
            engine_name: None,
            placement: None,
            engines: Vec::new(),
            engine_options: EngineOptions::default(),
            ffn_on_cpu: false,
            ffn_services: BTreeMap::new(),
            #[cfg(feature = "net")]
            ffn_at: Vec::new(),
            addresses: BTreeMap::new(),
            #[cfg(feature = "net")]
            connect: crate::remote::ConnectOptions::default(),
            node: NodeId::new(NodeId::LOCAL),
            context: None,
            prefill_chunk: CHUNK,
            kv: None,
            kv_values: None,
            sessions: None,
            kv_memory: None,
            when_full: WhenFull::default(),
            card: None,
            chat_template: None,
            draft_model: None,
            mtp: None,
            progress: None,
            cancel: CancelToken::new(),
        }
    }
}

setters!(LoadOptions {
    /// Splits the layers into so many stages.
    stages: usize;
    /// Runs all layers on the engine of this name.
    engine_name: &str => Some(EngineId::new(engine_name));
    /// Runs layers as placed.
    placement: Placement => Some(placement);
    /// Makes engines with these options.
    engine_options: EngineOptions;
    /// Leaves feed-forward blocks to the CPU, or not.
    ffn_on_cpu: bool;
    /// Runs what placements give to the node of this name.
    node: impl Into<NodeId> => node.into();
    /// Lets sessions hold so many tokens.
    context: usize => Some(context);
    /// Passes so many prompt tokens through the layers together.
    prefill_chunk: usize;
    /// Keeps keys and values like this.
    kv: impl Into<KvTypes> => Some(kv.into());
    /// Keeps values like this, whatever keys are kept like.
    kv_values: KvType => Some(kv_values);
    /// Lets so many sessions generate at the same time.
    sessions: usize => Some(sessions);
    /// Gives keys and values no more than this.
    kv_memory: ByteSize => Some(kv_memory);
    /// Does this when that is full.
    when_full: WhenFull;
    /// Speaks to the model as its card says.
    card: ModelCard => Some(card);
    /// Speaks to the model by this chat template.
    chat_template: impl Into<String> => Some(chat_template.into());
    /// Lets the checkpoint there draft.
    draft_model: impl Into<PathBuf> => Some(draft_model.into());
    /// Lets the head for tokens ahead draft that the checkpoint has, or not.
    mtp: bool => Some(mtp);
    /// Calls this after each layer.
    progress: impl Fn(Progress) + Send + Sync + 'static => Some(Arc::new(progress));
    /// Ends loading when the token is cancelled.
    cancel: CancelToken;
});

impl LoadOptions {
    /// The context that long-context models get unless asked for more.
    pub const DEFAULT_CONTEXT: usize = 4096;
    /// Sessions that generate at the same time unless asked for others.
    pub const DEFAULT_SESSIONS: usize = 16;

    /// Adds an engine that may be named.
    #[must_use]
    pub fn engine(mut self, engine: Arc<dyn Engine>) -> Self {
        self.engines.push(engine);
        self
    }

    /// Lets a service compute the feed-forward blocks and experts that placements have on this node.
    #[must_use]
    pub fn ffn_service(mut self, node: impl Into<NodeId>, service: Arc<dyn FfnService>) -> Self {
        self.ffn_services.insert(node.into(), service);
        self
    }

    /// Asks the node of this name there for what placements have on it.
    #[must_use]
    pub fn address(mut self, node: impl Into<NodeId>, address: impl Into<String>) -> Self {
        self.addresses.insert(node.into(), address.into());
        self
    }

    /// Has feed-forward blocks and experts computed by this server, too, as far as it has them.
    #[cfg(feature = "net")]
    #[must_use]
    pub fn ffn_at(mut self, address: crate::remote::Address) -> Self {
        self.ffn_at.push(address);
        self
    }

    /// How other nodes are reached while loading, which the tokens of both options end while the handle is kept.
    #[cfg(feature = "net")]
    pub(super) fn connecting(&self) -> (crate::remote::ConnectOptions, crate::cancel::OnCancel) {
        let cancel = self.cancel.child();
        let linked = self.connect.cancel.on_cancel({
            let cancel = cancel.clone();
            move || cancel.cancel()
        });
        (self.connect.clone().cancel(cancel), linked)
    }

    /// Reaches other nodes like this.
    #[cfg(feature = "net")]
    #[must_use]
    pub fn connect(self, connect: crate::remote::ConnectOptions) -> Self {
        Self { connect, ..self }
    }
}
