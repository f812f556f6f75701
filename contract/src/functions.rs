//! Which functions take plain data and give it? All of them, by name, for languages that hand it over as JSON.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;
use skulk::card::{self, ConfigFacts, GgufFacts, GgufFile, ReasoningRequest};
use skulk::extract::VindexWriter;
use skulk::plan::{Cluster, Inventory, LinkSpeed, Node, PlanReport, backend, memory, split};
use skulk::remote::{ConnectOptions, ServeOptions, measure_link};
use skulk::vindex::{VindexProgress, verify_vindex};
use skulk::{CancelToken, Error, ErrorKind, ModelCard, Profile, Server};

use crate::by_hand::PlacementOptions;
use crate::options::{ExtractOptions, LinkOptions, ProfileOptions, RingsOptions, Spelling, VerifyOptions};
use crate::words::keep_names;
use crate::{Failure, VerifyReport};

/// What stops a function, and hears how far it is, as JSON.
#[derive(Clone)]
pub struct Work {
    /// Stops it.
    pub cancel: CancelToken,
    /// Is called with every step.
    pub progress: Arc<dyn Fn(String) + Send + Sync>,
}

impl Default for Work {
    /// Work that nobody stops or follows.
    fn default() -> Self {
        Self { cancel: CancelToken::new(), progress: Arc::new(drop) }
    }
}

impl Work {
    /// What follows the work on files.
    pub fn steps(&self) -> impl Fn(&VindexProgress) + Send + Sync + use<> {
        let progress = Arc::clone(&self.progress);
        move |step| {
            if let Ok(step) = write(&crate::VindexProgress::from(step)) {
                progress(step);
            }
        }
    }
}

/// The arguments of a call, by name.
pub struct Arguments {
    fields: Map<String, Value>,
    spelling: Spelling,
}

impl Arguments {
    /// Arguments from the text of a JSON object, whose options are spelled like this.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for other texts.
    pub fn new(text: &str, spelling: Spelling) -> skulk::Result<Self> {
        Ok(Self::of(read("arguments", text)?, spelling))
    }

    /// These arguments, whose options are spelled like this.
    pub fn of(fields: Map<String, Value>, spelling: Spelling) -> Self {
        Self { fields, spelling }
    }

    /// The argument of this name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for what it cannot be.
    pub fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> skulk::Result<T> {
        sound(&self.spelling.of_json(name), self.value(name), self.spelling)
    }

    fn value(&mut self, name: &str) -> Value {
        self.fields.remove(name).unwrap_or_default()
    }

    /// The options, which are an object or left out.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for what is none.
    pub fn options(&mut self) -> skulk::Result<(Map<String, Value>, Spelling)> {
        Ok((self.take::<Option<Map<_, _>>>("options")?.unwrap_or_default(), self.spelling))
    }

    /// A card, checked as if it came from a file.
    ///
    /// # Errors
    /// [`ErrorKind::CardInvalid`], with all that is wrong.
    pub fn card(&mut self) -> skulk::Result<ModelCard> {
        ModelCard::from_json(&self.value("card").to_string())
    }

    fn maybe_card(&mut self) -> skulk::Result<Option<ModelCard>> {
        let given = self.fields.get("card").is_some_and(|card| !card.is_null());
        given.then(|| self.card()).transpose()
    }
}

/// What a value of a host's stands for, which is argument `field`.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for what it cannot be, with the place in it as a language spells that.
pub fn sound<T: DeserializeOwned>(field: &str, value: Value, spelling: Spelling) -> skulk::Result<T> {
    serde_path_to_error::deserialize(value).map_err(|e| invalid(field, &e, spelling))
}

/// What a text in JSON stands for, which is argument `field`.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for what it cannot be, with the place in it.
pub fn read<T: DeserializeOwned>(field: &str, text: &str) -> skulk::Result<T> {
    let mut text = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut text);
    let value = value.map_err(|e| invalid(field, &e, Spelling::Camel))?;
    match text.end() {
        Ok(()) => Ok(value),
        Err(e) => Err(unsound(field, "", &e)),
    }
}

fn invalid(field: &str, cause: &serde_path_to_error::Error<serde_json::Error>, spelling: Spelling) -> Error {
    let mut at = String::new();
    for step in cause.path().iter().filter(|step| !matches!(step, Segment::Unknown)) {
        match step {
            Segment::Map { key } if at.is_empty() => at.push_str(&spelling.of_json(key)),
            Segment::Map { key } => at.extend([".", &spelling.of_json(key)]),
            step => at.push_str(&step.to_string()),
        }
    }
    match at.is_empty() {
        true => unsound(field, "", cause.inner()),
        false => unsound(field, &format!(" at {at}"), cause.inner()).with("at", at),
    }
}

fn unsound(field: &str, at: &str, cause: &serde_json::Error) -> Error {
    let message = format!("expected a sound `{field}`, found{at}: {cause}");
    keep_names(Error::new(ErrorKind::InvalidArgument, message).with("field", field))
}

/// What a value is in JSON.
///
/// # Errors
/// [`ErrorKind::Internal`] for what JSON cannot hold.
pub fn write(value: &impl Serialize) -> skulk::Result<String> {
    serde_json::to_string(value)
        .map_err(|e| Error::new(ErrorKind::Internal, "expected a value that JSON can hold").with_source(e))
}

/// An error as JSON, in the words of hosts whose names are `likeThis`.
pub fn failure(error: &Error) -> String {
    write(&Failure::of(error, Spelling::Camel)).unwrap_or_default()
}

/// How fast the link to a server is.
///
/// # Errors
/// As [`measure_link`].
pub fn link_speed(address: &str, options: &ConnectOptions) -> skulk::Result<LinkSpeed> {
    let measure = || measure_link(&address.parse()?, options);
    measure().map_err(keep_names)
}

/// Serves the blocks of the checkpoint at a path.
///
/// # Errors
/// As [`skulk::serve`]; what is wrong with the checkpoint.
pub fn serve(path: &Path, options: &ServeOptions) -> skulk::Result<Server> {
    let serve = || skulk::serve(&*skulk::open_checkpoint(path)?, options);
    serve().map_err(keep_names)
}

/// A card's own JSON, which has every field.
fn card_text(card: skulk::Result<ModelCard>) -> skulk::Result<String> {
    Ok(card?.to_json())
}

/// Declares [`call`]: of each function its name, its arguments and what it gives.
macro_rules! functions {
    ($given:ident, $work:ident: $($name:literal ($($argument:ident: $type:ty),*) => $result:expr;)*) => {
        /// Calls the function of this name with its arguments, and gives what it returns as JSON.
        ///
        /// # Errors
        /// Whatever the function returns; [`ErrorKind::Internal`] for names that there are not.
        #[expect(non_snake_case, reason = "names are those of JSON")]
        pub fn call(name: &str, $given: &mut Arguments, $work: &Work) -> skulk::Result<String> {
            match name {
                $($name => {
                    $(let $argument: $type = $given.take(stringify!($argument))?;)*
                    $result
                })*
                _ => Err(Error::new(ErrorKind::Internal, format!("there is no function `{name}`"))),
            }
        }
    };
}

functions! { given, work:
    "errorKinds" () => write(&crate::failure::kinds().collect::<Vec<_>>());
    "devices" () => write(&skulk::engines::devices());

    "cardRead" (text: String, toml: bool) =>
        card_text(if toml { ModelCard::from_toml(&text) } else { ModelCard::from_json(&text) });
    "cardOpen" (path: PathBuf) => card_text(ModelCard::open(path));
    "cardFromCheckpoint" (path: PathBuf) => card_text(ModelCard::from_checkpoint(path));
    "cardToToml" () => write(&given.card()?.to_toml()?);
    "cardToJson" () => write(&given.card()?.to_json());
    "cardSave" (path: PathBuf) => write(&given.card()?.save(path)?);
    "cardFileName" () => write(&given.card()?.file_name()?);
    "cardSchema" () => Ok(ModelCard::schema().to_owned());
    "cardParameters" () => write(&given.card()?.parameters());
    "cardSizeByFacts" () => write(&given.card()?.size_by_facts());
    "cardFactFindings" () => write(&given.card()?.fact_findings());

    "profileResolve" (modelId: String) => {
        let card = given.maybe_card()?;
        let (options, spelling) = given.options()?;
        write(&Profile::resolve(&modelId, card.as_ref(), &ProfileOptions::read(options, spelling)?))
    };
    "profilePermissive" () => write(&Profile::permissive());
    "profileReasoning" (profile: Value, effort: Option<String>, enableThinking: Option<bool>) => {
        let flag = |name: &str| profile[name].as_bool().unwrap_or_default();
        let word = |name: &'static str| named(name, profile[name].as_str().unwrap_or_default());
        let mut facts = Profile::default();
        facts.supports_thinking = flag("supportsThinking");
        facts.supports_thinking_toggle = flag("supportsThinkingToggle");
        facts.default_reasoning_effort = word("defaultReasoningEffort")?;
        facts.disabled_reasoning_effort = word("disabledReasoningEffort")?;
        let mut request = ReasoningRequest::default();
        request.effort = effort.map(|effort| named("effort", &effort)).transpose()?;
        request.enable_thinking = enableThinking;
        write(&facts.reasoning(request))
    };
    "isGemma4Family" (modelId: String) =>
        write(&card::is_gemma4_family(&modelId, given.maybe_card()?.as_ref()));

    "nodeLocal" () => write(&Node::local());
    "nodeMeasureDisk" (path: PathBuf) => write(&Node::measure_disk(path)?);
    "nodeMeasureLink" (address: String) => {
        let (options, spelling) = given.options()?;
        let options = LinkOptions::read(options, spelling)?.cancel(work.cancel.clone());
        write(&link_speed(&address, &options)?)
    };
    "clusterLocal" () => write(&Cluster::local());
    "cluster" (cluster: Cluster) => write(&cluster);
    "clusterFromJson" (text: String) => write(&read::<Cluster>("cluster", &text)?);
    "clusterToJson" (cluster: Cluster) => write(&write(&cluster)?);
    "inventoryFromCheckpoint" (path: PathBuf) =>
        write(&Inventory::from_checkpoint(&*skulk::open_checkpoint(path)?)?);
    "inventoryFromDraftModel" (model: PathBuf, path: PathBuf) =>
        write(&Inventory::from_draft_model(&*skulk::open_checkpoint(model)?, path)?);
    "inventoryFromCard" () => write(&Inventory::from_card(&given.card()?));
    "inventoryOfExperts" (
        nLayers: usize, attention: u64, shared: u64, nExperts: usize, nUsed: usize, expert: u64, kvPerToken: u64
    ) => {
        let (experts, kept) = ((nExperts, nUsed), kvPerToken);
        let inventory = Inventory::of_experts(nLayers, attention, shared, experts, expert, kept);
        inventory.check()?;
        write(&inventory)
    };
    "placementBuild" (path: Option<PathBuf>, inventory: Option<Inventory>) => {
        let (options, spelling) = given.options()?;
        write(&PlacementOptions::read(options, spelling)?.build(path, inventory)?.to_json())
    };
    "report" (text: String, form: String) => {
        let report: PlanReport = read("report", &text)?;
        write(&match &*form {
            "json" => report.to_json(),
            "markdown" => report.to_markdown(),
            "html" => report.to_html(),
            "svg" => report.to_svg(),
            _ => report.to_string(),
        })
    };

    "engineOf" (tag: String) => write(&backend::engine_of(&tag));
    "isEngine" (name: String) => write(&backend::is_engine(&name));
    "isMultiNode" (engine: String) => write(&backend::is_multi_node(&engine));
    "serves" (nodeTag: String, cardTag: String) => write(&backend::serves(&nodeTag, &cardTag));
    "resolveBackend" (compatible: BTreeSet<String>, preference: Vec<String>, nodeTags: BTreeSet<String>) =>
        write(&backend::resolve_backend(&compatible, &preference, &nodeTags));
    "hasGpuOffload" (tags: BTreeSet<String>) => write(&backend::has_gpu_offload(&tags));
    "isVpnAddress" (address: String) => write(&skulk::plan::is_vpn_address(&address));
    "scale" (bytes: u64, factor: f64) => write(&memory::scale(bytes, factor));
    "divide" (bytes: u64, divisor: f64) => match divisor {
        0.0 => Err(Error::new(ErrorKind::InvalidArgument, "expected a number other than 0, found 0")
            .with("field", "divisor")),
        divisor => write(&memory::divide(bytes, divisor)),
    };
    "kvBytesPerToken" () => write(&memory::kv_bytes_per_token(&given.card()?));
    "kvBytes" (tokens: u64) => write(&memory::kv_bytes(&given.card()?, tokens));
    "shardFootprint" (fraction: f64, tokens: u64, strictness: String) => {
        let strictness = named("strictness", &strictness)?;
        write(&memory::shard_footprint(&given.card()?, fraction, tokens, strictness))
    };
    "footprintExceeds" (footprint: u64, usable: u64, tolerance: f64) =>
        write(&memory::footprint_exceeds(footprint, usable, tolerance));
    "usableMemory" (node: Node, strictness: String) =>
        write(&memory::usable_memory(&node, named("strictness", &strictness)?));
    "usableVram" (node: Node) => write(&memory::usable_vram(&node));
    "acceleratorMemory" (node: Node) => write(&memory::accelerator_memory(&node));
    "allocateLayers" (total: usize, fractions: Vec<f64>) => write(&split::allocate_layers(total, &fractions)?);
    "admitMaxTokens" (prompt: usize, requested: Option<usize>, byDefault: usize, limit: Option<u64>) =>
        write(&skulk::plan::admit_max_tokens(prompt, requested, byDefault, limit)?);
    "prefillChunks" (tokens: usize, max: usize, media: Vec<Range<usize>>, offset: usize, limit: usize) =>
        write(&skulk::plan::prefill_chunks(tokens, max, &media, offset).take(limit).collect::<Vec<_>>());
    "rings" (cluster: Cluster) => {
        let (options, spelling) = given.options()?;
        write(&skulk::plan::rings(&given.card()?, &cluster, &RingsOptions::read(options, spelling)?.0)?)
    };
    "leaves" (cluster: Cluster) => write(&skulk::plan::leaves(&cluster));
    "ggufFile" (name: String, bytes: u64) => write(&gguf_file(&GgufFile::new(name, bytes)));
    "selectGguf" (files: Vec<Value>) => {
        let file = |file: &Value| GgufFile::new(file["name"].as_str()?, file["bytes"].as_u64()?).into();
        let files: Option<Vec<GgufFile>> = files.iter().map(file).collect();
        let files = files.ok_or_else(|| Error::new(
            ErrorKind::InvalidArgument,
            "expected files, each with `name` and `bytes`",
        ).with("field", "files"))?;
        let chosen = card::select_gguf(&files);
        write(&chosen.map(|chosen| json!({ "file": gguf_file(chosen.file), "bytes": chosen.size.bytes() })))
    };
    "configFacts" (config: Value, modelId: String) =>
        write(&crate::ConfigFacts::from(&ConfigFacts::from_config(&config, &modelId)?));
    "ggufFacts" (start: Vec<u8>) => write(&GgufFacts::read(&start)?);
    "constants" () => write(&json!({
        "OVERHEAD": memory::OVERHEAD,
        "OVERHEAD_GGUF": memory::OVERHEAD_GGUF,
        "OVERHEAD_FLOOR": memory::OVERHEAD_FLOOR,
        "RAM_SHARE": memory::RAM_SHARE,
        "RAM_SHARE_RELAXED": memory::RAM_SHARE_RELAXED,
        "VRAM_SHARE": memory::VRAM_SHARE,
        "UNIFIED_HEADROOM": memory::UNIFIED_HEADROOM,
        "CONTEXT_TOKENS": memory::CONTEXT_TOKENS,
        "HEAD_DIM": memory::HEAD_DIM,
        "KV_VALUE_BYTES": memory::KV_VALUE_BYTES,
        "DEFAULT_MAX_TOKENS": skulk::plan::DEFAULT_MAX_TOKENS,
    }));

    "extract" (source: PathBuf, target: PathBuf) => {
        let (options, spelling) = given.options()?;
        let options = ExtractOptions::read(options, spelling)?.cancel(work.cancel.clone()).progress(work.steps());
        let checkpoint = skulk::open_checkpoint(source)?;
        write(&VindexWriter::new(&*checkpoint, options)?.write(target)?)
    };
    "verifyVindex" (path: PathBuf) => {
        let (options, spelling) = given.options()?;
        let options = VerifyOptions::read(options, spelling)?.cancel(work.cancel.clone()).progress(work.steps());
        write(&VerifyReport::from(&verify_vindex(path, &options)?))
    };
}

/// The member of a closed set that has this name.
fn named<T: std::str::FromStr<Err = Error>>(field: &'static str, name: &str) -> skulk::Result<T> {
    name.parse().map_err(|e: Error| e.with("field", field))
}

fn gguf_file(file: &GgufFile) -> Value {
    json!({
        "name": file.name,
        "bytes": file.size.bytes(),
        "holdsAModel": file.holds_a_model(),
        "holdsAProjector": file.holds_a_projector(),
        "quantRank": file.quant_rank(),
        "quantLabel": file.quant_label(),
        "shardBase": file.shard_base(),
        "downloadPatterns": file.download_patterns(),
    })
}
