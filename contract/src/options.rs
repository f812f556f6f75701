//! What may hosts ask for? Options by name, the same in all languages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use skulk::browse::{self, Band, SelectOrder};
use skulk::card::{ProfileHints, RequestHints};
use skulk::embed;
use skulk::extract::{self, VindexStorage};
use skulk::plan::{Inventory, NodeId, Request, Sharding, Strictness, Transport};
use skulk::remote::wire::WireType;
use skulk::remote::{self, Identity, Roots};
use skulk::vindex::{self, SliceCopy, SlicePreset, VindexLevel, VindexPart};
use skulk::{
    ByteSize, Constraint, EngineId, Error, ErrorKind, KvType, Memory, ModelCard, Precision, Prompt,
    Speculate, TokenId, WhenFull,
};

use crate::by_hand::{PlacementRules, PlanRequest};
use crate::form::{self, constrain};
use crate::given::{Address, FilePath, Given, Object};
pub use crate::given::{Card, Spelling, expect_among};

/// Options of one call, each of which may be left out. Those behind `with` are among them.
macro_rules! options {
    (
        $(#[doc = $doc:literal])*
        $name:ident of ($options:ident: $target:ty $(, with $part:ident: $of:ident => $apply_part:expr)*) {
            $($(#[doc = $field_doc:literal])* $field:ident: $type:ty => $apply:expr,)*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[cfg_attr(feature = "schema", schemars(rename_all = "camelCase"))]
        #[non_exhaustive]
        pub struct $name {
            $(#[doc = "Options of another kind."] #[cfg_attr(feature = "schema", schemars(flatten))] pub $part: $of,)*
            $($(#[doc = $field_doc])* pub $field: Option<$type>,)*
        }

        impl $name {
            /// The library's own options, from those that a host gave by name.
            ///
            /// # Errors
            /// [`InvalidArgument`](skulk::ErrorKind::InvalidArgument) for names that there are not, with the closest
            /// that there is, and for values of another kind.
            pub fn read(given: Map<String, Value>, spelling: Spelling) -> skulk::Result<$target> {
                let read = || Self::take(&mut Given::new(given, spelling, &Self::names())?);
                read().map_err($crate::keep_names)
            }

            pub(crate) fn names() -> Vec<&'static str> {
                [vec![$(stringify!($field)),*] $(, $of::names())*].concat()
            }

            pub(crate) fn take(given: &mut Given) -> skulk::Result<$target> {
                let mut $options = <$target>::default();
                $(
                    let $part = $of::take(given)?;
                    $apply_part;
                )*
                $(if let Some($field) = given.take::<$type>(stringify!($field))? {
                    $apply;
                })*
                Ok($options)
            }
        }
    };
}
pub(crate) use options;

options! {
    /// Options of loading a model.
    LoadOptions of (options: skulk::LoadOptions) {
        /// Stages that the layers are split into evenly, on one engine; 1 by default.
        stages: usize => options.stages = stages,
        /// That engine: `cpu` (the default), `wgpu` (the best GPU), one of those that devices name, `candle-cpu`,
        /// `candle-cuda` or `candle-metal`.
        engine: EngineId => options.engine_name = Some(engine),
        /// The name that a placement has for this machine; `local` by default.
        node: NodeId => options.node = node,
        /// Addresses of servers of feed-forward blocks and experts, as `http://192.168.7.4:8080`, `https://…`,
        /// `unix:///path`, or in gRPC `grpc://…` and `grpcs://…`: each is asked what it has, and computes that. Of what several have, those that are named later
        /// help where the first one fails.
        ffn_at: Vec<Address> => options.ffn_at = ffn_at.into_iter().map(|address| address.0).collect(),
        /// Addresses of nodes that a placement has experts on, by name, where the placement does not say.
        addresses: BTreeMap<String, String> => options.addresses =
            addresses.into_iter().map(|(node, address)| (node.into(), address)).collect(),
        /// The key that other nodes ask for.
        peer_key: String => options.connect.key = Some(peer_key),
        /// Certificates that other nodes' must lead to, in PEM; by default those of public authorities.
        peer_roots: String => options.connect.roots = Some(pem("peer_roots", Roots::from_pem(peer_roots))?),
        /// What proves to other nodes who asks: a certificate and its private key, in PEM.
        peer_identity: String => options.connect.identity =
            Some(pem("peer_identity", Identity::from_pem(&peer_identity, &peer_identity))?),
        /// How results cross: `f32` (the default) changes nothing, `f16` halves them, `i8` is for dense blocks.
        peer_wire: WireType => options.connect.wire = peer_wire,
        /// Sends rows to dense blocks as integers of 8 bits with scales (Q8_K), some 28 % of their bytes, which changes
        /// results. Only where the model's width is a multiple of 256.
        peer_rows_q8k: bool => options.connect.rows_q8k = peer_rows_q8k,
        /// Seconds that another node may take for what it is asked; 30 by default.
        peer_timeout: f32 => options.connect.timeout = seconds("peer_timeout", peer_timeout)?,
        /// Leaves feed-forward blocks and experts to the CPU where an engine would copy them to its device.
        ffn_on_cpu: bool => options.ffn_on_cpu = ffn_on_cpu,
        /// Bytes that are kept in memory at a time of feed-forward weights that are used where they are stored, with the
        /// same results; no limit by default.
        ffn_budget: ByteSize => options.engine_options.ffn_budget = Some(ffn_budget),
        /// Features that are computed of each dense block, which changes results; by default all.
        ffn_top_features: usize => options.engine_options.ffn_top_features = Some(ffn_top_features),
        /// Bytes that `wgpu` may reserve on its device; by default what its driver gives.
        device_memory: ByteSize => options.engine_options.device_memory = Some(device_memory),
        /// Threads that compute on the CPU; all of the hardware's by default.
        threads: usize => options.engine_options.threads = threads,
        /// Tokens that a session can hold: by default what a placement was planned for, else 4096 (of LongRoPE models at
        /// most the original context), and never more than the model has.
        context: usize => options.context = Some(context),
        /// Prompt tokens that pass through the layers together; 256 by default.
        prefill_chunk: usize => options.prefill_chunk = prefill_chunk,
        /// How keys and values are kept, never in more memory than a placement was planned with. By default as the plan was asked
        /// for. Where it was not: in `f16`, but in `bf16` where all stages are on the CPU and `precision` is not `exact`.
        kv: KvType => options.kv = Some(kv.into()),
        /// How values are kept, where that is otherwise than keys.
        kv_values: KvType => match &mut options.kv {
            Some(kv) => kv.values = kv_values,
            None => options.kv_values = Some(kv_values),
        },
        /// Sessions that generate at the same time, in steps together: by default as many as a placement was planned for,
        /// else 16, and never more than that was planned for. Others wait for their turn; those whose reader does not read
        /// do not count.
        sessions: usize => options.sessions = Some(sessions),
        /// Bytes that keys and values of all sessions may take; by default what a placement was planned with, else what
        /// sessions need. What is left keeps
        /// conversations that rest, and the beginnings of prompts, so that they need not be computed again.
        kv_memory: ByteSize => options.kv_memory = Some(kv_memory),
        /// What happens to a session when that memory is full: `wait` (the default) gives up what resting sessions hold,
        /// then waits until others have ended; `evict` does not wait but ends with `memory.exhausted`; `fail` does so at
        /// once.
        when_full: WhenFull => options.when_full = when_full,
        /// How products are rounded: `fast` (the default) rounds activations to 8 bits where weights are quantised,
        /// `exact` multiplies what that leaves over, too, and `bf16` rounds to BF16 where weights are of that type.
        precision: Precision => options.engine_options.precision = precision,
        /// Where weights lie: `mapped`, as the file is; `resident`, read once; `auto` (the default), as free memory
        /// suggests.
        memory: Memory => options.engine_options.memory = memory,
        /// Keeps a compact copy of the head, so that most of it need not be read, with the same results.
        screen_head: bool => options.engine_options.screen_head = screen_head,
        /// The model's card, which says how it is spoken to in conversations; by default what its checkpoint says.
        card: Card => options.card = Some(ModelCard::from_json(&card.0)?),
        /// The chat template, instead of those of the checkpoint.
        chat_template: String => options.chat_template = Some(chat_template),
        /// The path of what drafts tokens: a smaller model with the same vocabulary, this model's head for tokens ahead
        /// (MTP) in a file of its own, its assistant (Gemma 4), or an EAGLE-3 head of it. It runs whole on the engine of the last stage, with its options, a budget among them; keys and values of its own, which an assistant has none of, are for as many sessions, beside `kv_memory`.
        /// A plan that counts one needs one here, whose weights, keys and values take no more memory; what no plan counts
        /// comes on top.
        draft_model: FilePath => options.draft_model = Some(draft_model.0),
        /// Whether a head for tokens ahead (MTP) that the checkpoint has drafts. It takes the memory of a layer more, and of
        /// that layer's keys and values for as many sessions: by default it drafts as it was planned, and without a plan where
        /// no `draft_model` does and where it can be loaded, as the model's memory tells. `false` leaves out what a plan
        /// counts, too.
        mtp: bool => options.mtp = Some(mtp),
    }
}

/// A time that was given in seconds.
fn seconds(field: &'static str, seconds: f32) -> skulk::Result<Duration> {
    Duration::try_from_secs_f32(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(|| {
        let message = format!("expected more than 0 and fewer than 2^64 seconds, found {seconds}");
        Error::new(ErrorKind::InvalidArgument, message).with("field", field)
    })
}

/// How long a server may take to stop, from seconds.
///
/// # Errors
/// [`InvalidArgument`](skulk::ErrorKind::InvalidArgument) for what is no time.
pub fn grace(seconds: f64) -> skulk::Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let message = format!("expected 0 seconds or more, found {seconds}");
        Error::new(ErrorKind::InvalidArgument, message).with("field", "grace")
    })
}

/// What was read of the text of an option, whose name an error has.
fn pem<T>(field: &'static str, read: skulk::Result<T>) -> skulk::Result<T> {
    read.map_err(|e| Error::new(e.kind(), e.message().to_owned()).with("field", field))
}

options! {
    /// Options of serving feed-forward blocks and experts to other machines.
    ServeOptions of (options: remote::ServeOptions) {
        /// Where to listen: `http://host:port`, `https://…`, which needs `identity`, or `unix:///path`. By default
        /// `http://127.0.0.1:0`, a free port that only this machine reaches.
        listen: Address => options.listen = listen.0,
        /// The layers whose blocks are served; by default all.
        layers: Range<usize> => options.layers = Some(layers),
        /// The experts that are served of each layer that has some; by default all.
        experts: Range<usize> => options.experts = Some(experts),
        /// The key that clients must know. Where other machines reach the server, it or `clients` must be given.
        key: String => options.key = Some(key),
        /// What the server shows to clients of `https`: a certificate and its private key, in PEM.
        identity: String => options.identity = Some(pem("identity", Identity::from_pem(&identity, &identity))?),
        /// Certificates that clients' must lead to, in PEM; by default they need none.
        clients: String => options.clients = Some(pem("clients", Roots::from_pem(clients))?),
        /// Bytes of weights that are kept in memory at a time; no limit by default.
        ffn_budget: ByteSize => options.engine_options.ffn_budget = Some(ffn_budget),
        /// Threads that compute; all of the hardware's by default.
        threads: usize => options.engine_options.threads = threads,
        /// How products are rounded: `fast` (the default), `exact` or `bf16`. Clients get the numbers of a model that is
        /// loaded with the same.
        precision: Precision => options.engine_options.precision = precision,
        /// Where weights lie: `mapped`, `resident` or `auto` (the default).
        memory: Memory => options.engine_options.memory = memory,
        /// Rows that are computed together at most, of all clients; 256 by default.
        max_rows: usize => options.max_rows = max_rows,
        /// Requests that may wait; who comes then is told to come again. 256 by default.
        queue: usize => options.queue = queue,
        /// Connections at a time; 256 by default.
        max_connections: usize => options.max_connections = max_connections,
        /// Bytes of a request at most; 64 MiB by default.
        max_body: ByteSize => options.max_body = max_body,
    }
}

options! {
    /// Options of measuring a link.
    LinkOptions of (options: remote::ConnectOptions) {
        /// The key that the server asks for.
        key: String => options.key = Some(key),
        /// Certificates that the server's must lead to, in PEM; by default those of public authorities.
        roots: String => options.roots = Some(pem("roots", Roots::from_pem(roots))?),
        /// What proves to the server who asks: a certificate and its private key, in PEM.
        identity: String => options.identity = Some(pem("identity", Identity::from_pem(&identity, &identity))?),
        /// Seconds that measuring may take; 30 by default.
        timeout: f32 => options.timeout = seconds("timeout", timeout)?,
    }
}

options! {
    /// How tokens are chosen, how many there are, and what ends them.
    ChoiceOptions of (options: skulk::GenerateOptions) {
        /// Tokens to generate at most; by default until the model ends or the context is full.
        max_tokens: usize => options.max_tokens = Some(max_tokens),
        /// 0, the default, takes the likeliest token; more makes others likelier.
        temperature: f32 => options.sampling.temperature = temperature,
        /// Draws from so many likeliest tokens; by default all.
        top_k: usize => options.sampling.top_k = Some(top_k),
        /// Draws from the likeliest tokens that have this probability together; 1 by default.
        top_p: f32 => options.sampling.top_p = top_p,
        /// Leaves out tokens that are less likely than this part of the likeliest; 0 by default.
        min_p: f32 => options.sampling.min_p = min_p,
        /// Divides logits of tokens that were there already; 1, the default, does not.
        repetition_penalty: f32 => options.sampling.repetition_penalty = repetition_penalty,
        /// Is taken from logits of tokens that were there already; 0 by default.
        presence_penalty: f32 => options.sampling.presence_penalty = presence_penalty,
        /// Is taken from a token's logit for each time it was there; 0 by default.
        frequency_penalty: f32 => options.sampling.frequency_penalty = frequency_penalty,
        /// Tokens that penalties look back at; 64 by default.
        penalty_window: usize => options.sampling.penalty_window = penalty_window,
        /// What is added to logits, by token id.
        logit_bias: BTreeMap<u32, f32> => options.sampling.logit_bias =
            logit_bias.into_iter().map(|(id, bias)| (TokenId(id), bias)).collect(),
        /// The same seed draws the same tokens; 0 by default.
        seed: u64 => options.sampling.seed = Some(seed),
        /// Whether tokens are computed ahead: `auto` (the default), where that pays, by times and acceptances that are
        /// measured meanwhile; `off`. What followed when the text read the same is proposed (`ngram`: that alone), or what a
        /// draft model says (`draft_model`: that alone), and kept while it is what is chosen: on the CPU the text is the
        /// same in every bit.
        speculate: Speculate => options.speculate = speculate,
        /// Tokens that are computed ahead in every step, as far as they are proposed and the step has rows for them, whether
        /// or not that pays, 1 to 15; by default as many as pay.
        draft_tokens: usize => options.draft_tokens = Some(draft_tokens),
        /// Whether another guess at the next token is computed beside the first one, in a copy of the sequence that shares
        /// its pages, for two rows of a step, where the step has them: a small tree. By default where that pays, and never
        /// with `draft_tokens`. Models with recurrent layers have none.
        draft_tree: bool => options.draft_tree = Some(draft_tree),
        /// Texts that the text may quote, beside its own prompt: what followed there is proposed, too. At most 262,144
        /// tokens and 4 MiB.
        draft_texts: Vec<String> => options.draft_texts = draft_texts,
        /// Texts that end the generation; they are not part of its text.
        stop: Vec<String> => options.stop = stop,
        /// A JSON Schema that the text keeps to. Of this, `regex`, `grammar` and `response_format` one may be given.
        json_schema: Object => constrain(&mut options, form::schema(&json_schema.0)?)?,
        /// A regular expression that matches the text as a whole.
        regex: String => constrain(&mut options, Constraint::Regex(regex))?,
        /// A grammar in the syntax of Lark, of whose language the text is.
        grammar: String => constrain(&mut options, Constraint::Lark(grammar))?,
        /// What the text is, as OpenAI's chat API and the AI SDK say it: `{"type": "json_object"}`, or with `json_schema`.
        response_format: Object => if let Some(constraint) = Constraint::from_response_format(&response_format.0)? {
            constrain(&mut options, constraint)?;
        },
        /// Goes on past end-of-sequence tokens.
        ignore_eos: bool => options.ignore_eos = ignore_eos,
        /// Sessions of a higher one begin first, and their prompts are computed first; 0 by default.
        priority: i32 => options.priority = priority,
    }
}

options! {
    /// Options of one generation.
    GenerateOptions of (options: (skulk::GenerateOptions, bool), with choice: ChoiceOptions => options.0 = choice) {
        /// The prompt follows what the session holds; by default it is everything so far.
        append: bool => options.1 = append,
        /// Reports each token's log-probability, and those of so many likeliest, 0 to 64.
        logprobs: usize => options.0.logprobs = Some(logprobs),
    }
}

/// The prompt, which follows what the session holds where `append` was among [`GenerateOptions`].
///
/// # Errors
/// [`InvalidArgument`](skulk::ErrorKind::InvalidArgument) for tokens that are to be appended.
pub fn prompt(prompt: Prompt, append: bool) -> skulk::Result<Prompt> {
    match prompt {
        Prompt::Text(text) if append => Ok(Prompt::Append(text)),
        Prompt::Tokens(_) if append => {
            let error = Error::new(ErrorKind::InvalidArgument, "expected a text to append, found tokens");
            Err(error.with("field", "append").with_hint("decode them first"))
        }
        prompt => Ok(prompt),
    }
}

options! {
    /// Options of loading an embedding model.
    EmbeddingOptions of (options: embed::EmbeddingOptions) {
        /// Threads that compute; all of the hardware's by default. Vectors do not depend on it.
        threads: usize => options.threads = threads,
    }
}

options! {
    /// Options of making vectors of texts.
    EmbedOptions of (options: embed::EmbedOptions) {
        /// Of texts that are too long only the beginning counts (the default); without it they are an error.
        truncate: bool => options.truncate = truncate,
    }
}

options! {
    /// Options of a plan.
    PlanOptions of (plan: PlanRequest) {
        /// How the model is split; `pipeline` by default.
        sharding: Sharding => plan.request.sharding = sharding,
        /// How nodes talk; `direct` by default.
        transport: Transport => plan.request.transport = transport,
        /// Nodes to use at least; 1 by default.
        min_nodes: usize => plan.request.min_nodes = min_nodes,
        /// Nodes that must be used.
        required_nodes: BTreeSet<NodeId> => plan.request.required_nodes = required_nodes,
        /// Nodes that must not.
        excluded_nodes: BTreeSet<NodeId> => plan.request.excluded_nodes = excluded_nodes,
        /// The node that has the conversation and the first stage; by default the planner chooses. Only for `direct`.
        coordinator: NodeId => plan.request.coordinator = Some(coordinator),
        /// Tokens for which keys and values are reserved, of each session; 8192 by default. With the transport `direct` no
        /// more than the model was trained for and its card allows.
        context_tokens: u64 => plan.request.context_tokens = context_tokens,
        /// Tokens of the prompt whose time is estimated; 512 by default, and no more than the context has.
        prompt_tokens: u64 => plan.request.prompt_tokens = prompt_tokens,
        /// Sessions that generate at once, each of which has its keys and values; 1 by default. Only for `direct`.
        sessions: usize => plan.request.sessions = sessions,
        /// How keys and values are kept, and loading keeps them so; MLX has `f16` alone. By default in two bytes an element, of
        /// which loading chooses the type.
        kv: KvType => plan.request.kv = Some(kv.into()),
        /// How values are kept, where that is otherwise than keys.
        kv_values: KvType => plan.request.kv.get_or_insert_default().values = kv_values,
        /// How careful it is with memory: `safe` (the default); `relaxed`, without margins; `force` refuses nothing for
        /// its sake, and says what is over.
        strictness: Strictness => plan.request.strictness = strictness,
        /// Feed-forward blocks and experts that fit in no memory may stay on the coordinator's disk, and be read when they
        /// are needed. Only for `direct`.
        from_disk: bool => plan.request.from_disk = from_disk,
        /// Owners that each block and expert on another node than its layer's attention gets beside its first, where there is
        /// room on further nodes; 0 by default. The report warns where some have fewer.
        replicas: usize => plan.request.replicas = replicas,
        /// What each part of the model weighs; by default a checkpoint's tensors are counted, and a card's size is divided.
        inventory: Inventory => plan.request.inventory = Some(Arc::new(inventory)),
        /// The head for tokens ahead (MTP) that the checkpoint has drafts: memory is planned for it, and the model loads it.
        /// Only for `direct`.
        mtp: bool => plan.request.mtp = mtp,
        /// What drafts instead: the inventory of a `draft_model` of loading. Only for `direct`.
        draft_model: Inventory => plan.request.draft_model = Some(Arc::new(draft_model)),
        /// What is fixed by hand, by rules as those of a placement by hand with places on the cluster's nodes, as `wgpu@shed`;
        /// the rest is planned, blocks of layers that rules name among it. Only for `direct`.
        fixed: PlacementRules => plan.fixed = Some(fixed),
        /// Rings to consider, and no others, as nodes by rank; not for `direct`.
        rings: Vec<Vec<NodeId>> => plan.request.rings = Some(rings),
        /// The port on which nodes listen; 50000 by default.
        port: u16 => plan.request.port = port,
    }
}

/// What is asked of rings. [`Default`] asks for those of sockets.
#[derive(Debug, Clone, PartialEq)]
pub struct Rings(pub Request);

impl Default for Rings {
    fn default() -> Self {
        Self(Request::default().transport(Transport::MlxRing))
    }
}

options! {
    /// Which rings are asked for.
    RingsOptions of (rings: Rings) {
        /// How the model is split; `pipeline` by default.
        sharding: Sharding => rings.0.sharding = sharding,
        /// How nodes talk: one of MLX's ways; `mlx_ring` by default.
        transport: Transport => rings.0.transport = transport,
        /// Nodes to use at least; 1 by default.
        min_nodes: usize => rings.0.min_nodes = min_nodes,
    }
}

options! {
    /// What else than its card is known of a model.
    ProfileOptions of (hints: ProfileHints) {
        /// Its tokenizer's chat template knows tools.
        tokenizer_tools: bool => hints.tokenizer_tools = tokenizer_tools,
        /// Its tokenizer has markers for reasoning.
        tokenizer_thinking: bool => hints.tokenizer_thinking = tokenizer_thinking,
        /// The request consists of chat messages. Left out, with the next: nothing is known of it yet.
        has_messages: bool => hints.request.get_or_insert_with(RequestHints::default).has_messages = has_messages,
        /// The request offers tools.
        has_tools: bool => hints.request.get_or_insert_with(RequestHints::default).has_tools = has_tools,
    }
}

options! {
    /// Options of an extraction.
    ExtractOptions of (options: extract::ExtractOptions) {
        /// How much of the model; `all` by default.
        level: VindexLevel => options.level = level,
        /// How weights are kept: `f32`, `f16` (the default) or `q4k`, with which all that generation takes is written.
        storage: VindexStorage => options.storage = storage,
        /// Down projections as Q4_K rather than Q6_K. Only with `q4k`.
        down_q4k: bool => options.down_q4k = down_q4k,
        /// Down projections once more, transposed. Only with `q4k`.
        feature_major_down: bool => options.feature_major_down = feature_major_down,
        /// Gate vectors as floats (the default). With `q4k` quantised gate projections can stand for them.
        gate_vectors: bool => options.gate_vectors = gate_vectors,
        /// Tokens that are kept for each feature, 10 by default; 0: none.
        feature_tokens: usize => options.feature_tokens = feature_tokens,
        /// The model's name in the index; by default its file's or folder's.
        name: String => options.name = Some(name),
        /// Threads that compute; all of the hardware's by default.
        threads: usize => options.threads = threads,
        /// Begins anew where an extraction was interrupted; by default it continues.
        restart: bool => options.restart = restart,
    }
}

options! {
    /// Options of a slice.
    SliceOptions of (options: vindex::SliceOptions) {
        /// The role that it is for; `full` by default.
        preset: SlicePreset => options.preset = preset,
        /// Parts to take instead of those of the preset.
        parts: BTreeSet<VindexPart> => options.parts = Some(parts),
        /// Layers whose weights it holds; by default all.
        layers: Vec<Range<usize>> => options.layers = Some(layers),
        /// Experts of each layer whose weights it holds; by default all.
        experts: Vec<Range<usize>> => options.experts = Some(experts),
        /// How files that are taken whole come into it; `auto` by default.
        copy: SliceCopy => options.copy = copy,
        /// Files that are worked on at a time; all of the hardware's threads by default.
        threads: usize => options.threads = threads,
    }
}

options! {
    /// Options of a verification.
    VerifyOptions of (options: vindex::VerifyOptions) {
        /// Compares hashes (the default), which reads all files that have any.
        hashes: bool => options.hashes = hashes,
        /// Looks for numbers that are infinite or none, which reads all weights.
        values: bool => options.values = values,
        /// Pieces of files that are looked at at a time; all of the hardware's threads by default.
        threads: usize => options.threads = threads,
    }
}

/// What a search for nearest features looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// Features of each layer.
    pub k: usize,
    /// The layers; `None`: all that have features.
    pub layers: Option<Vec<usize>>,
}

impl Default for Nearest {
    fn default() -> Self {
        Self { k: 10, layers: None }
    }
}

options! {
    /// Options of a search for the features nearest to a query.
    NearestOptions of (options: Nearest) {
        /// Features of each layer; 10 by default.
        k: usize => options.k = k,
        /// The layers; by default all that have features.
        layers: Vec<usize> => options.layers = Some(layers),
    }
}

options! {
    /// Options of a walk through the features that a prompt wakes.
    WalkOptions of (options: browse::WalkOptions) {
        /// Features of each layer; 5 by default.
        top: usize => options.top = top,
        /// The layers, in the order in which they are walked; by default all that have features.
        layers: Vec<usize> => options.layers = Some(layers),
    }
}

options! {
    /// Options of a description.
    DescribeOptions of (options: browse::DescribeOptions) {
        /// Layers that are searched; those of facts (`knowledge`) by default.
        band: Band => options.band = band,
        /// Features that are looked at in each layer, and edges at most; 20 by default.
        limit: usize => options.limit = limit,
        /// Gate scores below this do not count; 5 by default.
        min_score: f32 => options.min_score = min_score,
    }
}

options! {
    /// Options of a selection of features.
    SelectOptions of (options: browse::SelectOptions) {
        /// Part of the token that a feature writes most, regardless of case.
        entity: String => options.entity = Some(entity),
        /// Part of the label that a probe confirmed, regardless of case.
        relation: String => options.relation = Some(relation),
        /// The layer; by default all.
        layer: usize => options.layer = Some(layer),
        /// Scores below this do not count.
        min_score: f32 => options.min_score = Some(min_score),
        /// What the list is ordered by; `score` by default.
        order: SelectOrder => options.order = order,
        /// The smallest first.
        ascending: bool => options.ascending = ascending,
        /// Features at most; 20 by default.
        limit: usize => options.limit = limit,
    }
}

options! {
    /// Options of a list of relations.
    RelationsOptions of (options: browse::RelationsOptions) {
        /// Words at most; 50 by default.
        limit: usize => options.limit = limit,
        /// Features that write their token less than this do not count; 0.2 by default.
        min_score: f32 => options.min_score = min_score,
    }
}
