//! Which placement is best? One pure function of card, cluster and request.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

use super::cluster::{Cluster, Link};
use super::inventory::Inventory;
use super::placement::Placement;
use super::report::{Estimate, PromptEstimate};
use super::request::{Request, Transport};
use super::stage::invalid as invalid_placement;
use super::{direct, ring};
use crate::arch::MAX_LAYERS;
use crate::card::ModelCard;
use crate::error::{Error, ErrorKind, Result};
use crate::kv_type::KvTypes;
use crate::weights::open_checkpoint;

/// Plans placements: pure, deterministic, and polynomial in the size of the cluster.
///
/// ```
/// use skulk::{Cluster, ModelCard, Node, Planner, Request, plan::LinkSpeed};
/// let card = ModelCard::from_json(r#"{
///     "modelId": "org/model", "storageSize": {"inBytes": 16000000000}, "nLayers": 32, "hiddenSize": 4096,
///     "numKeyValueHeads": 8, "supportsTensor": true, "tasks": ["TextGeneration"],
///     "placement": {"compatibleBackends": ["skulk-cpu"]}
/// }"#)?;
/// let node = |id: &str| Node::new(id).backends(["skulk-cpu"]).memory(16 << 30, 24 << 30);
/// let cluster = Cluster::mesh(vec![node("a"), node("b")], LinkSpeed::DEFAULT);
/// let placement = Planner::plan(&card, &cluster, &Request::default())?;
/// assert_eq!(placement.stages().len(), 2);
/// placement.check(&card)?;
/// println!("{}", placement.report().unwrap());
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Planner;

impl Planner {
    /// Places a model on a cluster.
    ///
    /// # Errors
    /// [`ErrorKind::PlanNoFit`] when no placement satisfies the request, [`ErrorKind::PlanPending`] when nodes
    /// have not yet reported what it depends on, both with a [`PlanReport`](super::PlanReport) as their
    /// [detail](Error::detail); [`ErrorKind::InvalidArgument`] for a cluster or request that cannot be; for rules of what
    /// is [fixed](Request::fixed) also those of [`PlacementBuilder::build`](super::PlacementBuilder::build).
    pub fn plan(card: &ModelCard, cluster: &Cluster, request: &Request) -> Result<Placement> {
        validate(card, cluster, request)?;
        match request.transport {
            Transport::Direct => direct::plan(card, cluster, request),
            Transport::MlxRing | Transport::MlxJaccl => ring::plan(card, cluster, request),
        }
    }

    /// Places the checkpoint at a path: its card, and its inventory unless the request has one, are what it says about
    /// itself, of which only headers are read.
    ///
    #[cfg_attr(feature = "generate", doc = "```")]
    #[cfg_attr(not(feature = "generate"), doc = "```ignore")]
    /// use skulk::{Cluster, LoadOptions, Model, Planner, Request, open_checkpoint};
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// let placement = Planner::plan_checkpoint(path, &Cluster::local(), &Request::default().context_tokens(256))?;
    /// let model = Model::load(&*open_checkpoint(path)?, &placement, &LoadOptions::default())?;
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ModelCard::from_checkpoint`], [`Inventory::from_checkpoint`] and [`plan`](Self::plan).
    pub fn plan_checkpoint(
        path: impl AsRef<Path>,
        cluster: &Cluster,
        request: &Request,
    ) -> Result<Placement> {
        let path = path.as_ref();
        let card = ModelCard::from_checkpoint(path)?;
        if request.inventory.is_some() {
            return Self::plan(&card, cluster, request);
        }
        let inventory = Inventory::from_checkpoint(&*open_checkpoint(path)?)?;
        Self::plan(&card, cluster, &request.clone().inventory(inventory))
    }
}

impl Planner {
    /// What a placement costs on a cluster, whether or not it fits there: a token of each session in the middle of the
    /// request's context, and the request's prompt.
    ///
    /// ```
    /// # use skulk::{Cluster, ModelCard, Node, Planner, Request, plan::LinkSpeed};
    /// # let card = ModelCard::from_json(r#"{
    /// #     "modelId": "org/model", "storageSize": {"inBytes": 8000000000}, "nLayers": 32, "hiddenSize": 4096,
    /// #     "supportsTensor": true, "tasks": ["TextGeneration"], "placement": {"compatibleBackends": ["skulk-cpu"]}
    /// # }"#)?;
    /// let node = Node::new("a").backends(["skulk-cpu"]).memory(16 << 30, 24 << 30);
    /// let cluster = Cluster::mesh(vec![node.clone()], LinkSpeed::DEFAULT);
    /// let placement = Planner::plan(&card, &cluster, &Request::default())?;
    /// let faster = Cluster::mesh(vec![node.bytes_per_second(1e11)], LinkSpeed::DEFAULT);
    /// let (token, prompt) = Planner::price(&card, &faster, &Request::default(), &placement)?;
    /// assert!(token.tokens_per_second > placement.report().unwrap().estimate.unwrap().tokens_per_second);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] for a placement of another model, and where a device of it is not in the cluster, or not
    /// reached from its coordinator; [`ErrorKind::PlanPending`] where a node has not reported its memory;
    /// [`ErrorKind::InvalidArgument`] as [`plan`](Self::plan), and for transports of MLX.
    pub fn price(
        card: &ModelCard,
        cluster: &Cluster,
        request: &Request,
        placement: &Placement,
    ) -> Result<(Estimate, PromptEstimate)> {
        validate(card, cluster, request)?;
        if request.transport != Transport::Direct {
            let message = format!("expected the transport direct, found {}", request.transport);
            return Err(Error::argument("transport", message).with_hint("only that one is estimated"));
        }
        if let Some(own) = placement.card().filter(|own| own.model_id != card.model_id) {
            return Err(invalid_placement(
                format!("expected a placement of {}, found one of {}", card.model_id, own.model_id),
                "give the card of the model that the placement is of",
            ));
        }
        if placement.n_layers() != card.n_layers {
            let found = placement.n_layers();
            return Err(invalid_placement(
                format!("expected {} layers, found {found}", card.n_layers),
                "give the card of the model that the placement is of",
            ));
        }
        direct::price(card, cluster, request, placement)
    }
}

fn validate(card: &ModelCard, cluster: &Cluster, request: &Request) -> Result<()> {
    let invalid = |field: &'static str, message: String| {
        Err(Error::new(ErrorKind::InvalidArgument, message).with("field", field))
    };
    if !(1..=MAX_LAYERS).contains(&card.n_layers) {
        return invalid("n_layers", format!("expected 1 to {MAX_LAYERS} layers, found {}", card.n_layers));
    }
    if cluster.nodes.iter().any(|node| node.id.as_str().is_empty()) {
        return invalid("nodes", "expected a name for each node, found none for one".to_owned());
    }
    let mut ids = BTreeSet::new();
    if let Some(twice) = cluster.nodes.iter().find(|node| !ids.insert(&node.id)) {
        return invalid("nodes", format!("expected names that differ, found `{}` twice", twice.id));
    }
    for node in &cluster.nodes {
        let mut tags = BTreeSet::new();
        let mut backends = node.accelerators.iter().filter_map(|it| it.backend.as_ref());
        if let Some(twice) = backends.find(|tag| !tags.insert(*tag)) {
            let message = format!(
                "expected a backend of its own for each accelerator of `{}`, found `{twice}` twice",
                node.id
            );
            return invalid("accelerators", message);
        }
    }
    match request.transport {
        Transport::Direct => {
            links_are_sound(cluster, &RATES, &TIMES)?;
            nodes_are_sound(cluster)?;
        }
        Transport::MlxRing | Transport::MlxJaccl => {
            links_are_sound(cluster, &ANY_RATE, &ANY_TIME)?;
        }
    }
    if request.transport != Transport::Direct && request.kept() != KvTypes::default() {
        let message = format!("expected keys and values in f16, as MLX keeps them, found {}", request.kept());
        return Err(Error::argument("kv", message)
            .with_hint("leave the option out, or plan for the transport direct"));
    }
    if request.transport != Transport::Direct
        && let Some(fixed) = &request.fixed
    {
        let rule = fixed.rules().next().map_or_else(|| "no rule".to_owned(), ToString::to_string);
        let message = format!("expected nothing fixed by hand with transports of MLX, found {rule}");
        return Err(Error::argument("fixed", message)
            .with_hint("leave the option out, or plan for the transport direct"));
    }
    if request.transport == Transport::Direct && request.context_tokens == 0 {
        return invalid("context_tokens", "expected at least 1 token, found 0".to_owned());
    }
    let others = |field: &'static str, message: String, hint: &'static str| {
        Err(Error::argument(field, message).with_hint(hint))
    };
    if let (Transport::MlxRing | Transport::MlxJaccl, Some(node)) = (request.transport, &request.coordinator)
    {
        let message = format!("expected no coordinator with transports of MLX, found `{node}`");
        return others("coordinator", message, "leave the option out, or plan for the transport direct");
    }
    if request.transport != Transport::Direct && request.replicas > 0 {
        let message = format!("expected 0 with transports of MLX, found {}", request.replicas);
        return others("replicas", message, "leave the option out, or plan for the transport direct");
    }
    if let (Transport::Direct, Some(rings)) = (request.transport, &request.rings) {
        let message = format!("expected no rings with the transport direct, found {}", rings.len());
        return others("rings", message, "leave the option out, or plan for a transport of MLX");
    }
    if request.sessions == 0 {
        return invalid("sessions", "expected at least 1 session, found 0".to_owned());
    }
    if request.transport != Transport::Direct && request.sessions > 1 {
        let message = format!("expected 1 session, as MLX's transports have, found {}", request.sessions);
        return Err(Error::argument("sessions", message)
            .with_hint("leave the option out, or plan for the transport direct"));
    }
    if request.transport != Transport::Direct && request.from_disk {
        let message = format!("expected false with the transport {}, found true", request.transport);
        return Err(Error::argument("from_disk", message)
            .with_hint("leave the option out, or plan for the transport direct"));
    }
    let drafts = [("mtp", request.mtp), ("draft_model", request.draft_model.is_some())];
    if let [(_, true), (_, true)] = drafts {
        let message = "expected one model that drafts, found draft_model beside mtp";
        return Err(Error::argument("mtp", message).with_hint("leave one of the options out"));
    }
    if let Some((field, _)) =
        drafts.into_iter().find(|(_, asked)| *asked && request.transport != Transport::Direct)
    {
        let message = format!("expected nothing that drafts with the transport {}", request.transport);
        return Err(Error::argument(field, message)
            .with_hint("leave the option out, or plan for the transport direct"));
    }
    if let Some(inventory) = &request.inventory {
        if inventory.layers.len() != card.n_layers {
            let found = inventory.layers.len();
            return invalid("inventory", format!("expected {} layers, found {found}", card.n_layers));
        }
        if request.mtp && inventory.mtp_head().is_none() {
            let message =
                "expected an inventory of a checkpoint with a head for tokens ahead, found none in it";
            return Err(Error::argument("mtp", message)
                .with_hint("leave the option out, or fetch files that have the model's MTP layers"));
        }
    }
    let inventories = [("inventory", &request.inventory), ("draft_model", &request.draft_model)];
    for (field, inventory) in inventories {
        if let Some((_, message)) = inventory.as_ref().and_then(|inventory| inventory.wrong()) {
            return invalid(field, message);
        }
    }
    Ok(())
}

/// What a number can be, and that in words.
type Sound = (RangeInclusive<f64>, &'static str);

/// What bytes and operations a second can be, and seconds that are for next to nothing.
const RATES: Sound = (1.0..=1e18, "1 to 1e18 a second");
const TIMES: Sound = (0.0..=3600.0, "0 to 3600 seconds");
/// What the reference takes of links.
const ANY_RATE: Sound = (f64::MIN_POSITIVE..=f64::INFINITY, "more than 0 a second");
const ANY_TIME: Sound = (0.0..=f64::MAX, "0 seconds or more");

/// What to do about a speed that cannot be.
const MEASURE: &str = "measure it, or leave it out: plans then take what is usual";

/// Whether what links say of their speeds can be.
fn links_are_sound(cluster: &Cluster, rates: &Sound, times: &Sound) -> Result<()> {
    let ends = |link: &Link| format!("{} to {}", link.source, link.sink);
    let links = cluster.links.iter().filter_map(|link| Some((ends(link), link.speed?)));
    for (link, speed) in links.chain(cluster.mesh.map(|speed| ("all nodes".to_owned(), speed))) {
        let both = [
            ("bytes_per_second", speed.bytes_per_second, rates),
            ("round_trip_seconds", speed.round_trip_seconds, times),
        ];
        if let Some((field, said, (_, words))) =
            both.into_iter().find(|(_, said, (sound, _))| !sound.contains(said))
        {
            let error = Error::argument("links", format!("expected {words} as {field}, found {said:e}"));
            return Err(error.with("link", link).with_hint(MEASURE));
        }
    }
    Ok(())
}

/// Whether what nodes say of their speeds can be.
fn nodes_are_sound(cluster: &Cluster) -> Result<()> {
    for node in &cluster.nodes {
        let own = [
            ("", "bytes_per_second", node.bytes_per_second, RATES),
            ("", "operations_per_second", node.operations_per_second, RATES),
            ("", "layer_seconds", node.layer_seconds, TIMES),
            ("", "disk_bytes_per_second", node.disk_bytes_per_second, RATES),
        ];
        let devices = node.accelerators.iter().flat_map(|it| {
            let name = it.name.as_str();
            [
                (name, "bytes_per_second", it.bytes_per_second, RATES),
                (name, "operations_per_second", it.operations_per_second, RATES),
                (name, "layer_seconds", it.layer_seconds, TIMES),
                (name, "round_trip_seconds", it.round_trip_seconds, TIMES),
            ]
        });
        for (device, field, said, (sound, words)) in own.into_iter().chain(devices) {
            let Some(said) = said.filter(|said| !sound.contains(said)) else { continue };
            let error = Error::argument(field, format!("expected {words}, found {said:e}"));
            let error = error.with("node", &node.id);
            let error = if device.is_empty() { error } else { error.with("device", device) };
            return Err(error.with_hint(MEASURE));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_type::KvType;
    use crate::plan::{Accelerator, LinkSpeed, Node};

    #[test]
    fn types_of_keys_and_values_make_room() {
        let mut card = ModelCard::new("m", 1 << 30, 4, 512);
        card.num_key_value_heads = Some(8);
        card.placement.compatible_backends = ["skulk-cpu".to_owned()].into();
        let node = Node::new("a").backends(["skulk-cpu"]).memory(1 << 35, 1 << 36);
        let cluster = Cluster::mesh(vec![node], LinkSpeed::DEFAULT);
        let kept = |kv: KvTypes| {
            let placement = Planner::plan(&card, &cluster, &Request::default().kv(kv)).unwrap();
            assert_eq!(placement.kv(), kv);
            assert_eq!(Placement::from_json(&placement.to_json()).unwrap().kv(), kv);
            placement.report().unwrap().nodes[0].bytes.kv_cache
        };
        let half = kept(KvTypes::default());
        assert_eq!(half, 4 * 8 * 2 * 128 * 2 * 8192);
        assert_eq!(kept(KvType::F32.into()), 2 * half);
        assert_eq!(kept(KvType::Q8_0.into()), half / 64 * 34);
        assert_eq!(kept(KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 }), half / 128 * (34 + 18));
        let ring = Request::default().transport(Transport::MlxRing).kv(KvType::Q8_0);
        let error = Planner::plan(&card, &cluster, &ring).unwrap_err();
        assert_eq!((error.kind(), error.context()[0].1.as_str()), (ErrorKind::InvalidArgument, "kv"));
    }

    /// A device whose engine does not keep such keys and values is left alone, and a node that has no other is told why.
    #[test]
    fn engines_keep_what_is_planned() {
        let mut card = ModelCard::new("m", 1 << 30, 4, 512);
        card.placement.compatible_backends =
            ["skulk-candle-cuda", "skulk-wgpu", "skulk-cpu"].map(str::to_owned).into();
        let gpu = |backend: &str, rate| Accelerator {
            name: "GPU".to_owned(),
            backend: Some(backend.to_owned()),
            vram_total_bytes: Some(1 << 35),
            bytes_per_second: Some(rate),
            ..Accelerator::default()
        };
        let tags = ["skulk-candle-cuda:0", "skulk-wgpu-vulkan:0", "skulk-cpu"];
        let node = |tags: &[&str]| Node::new("a").backends(tags.to_vec()).memory(1 << 35, 1 << 36);
        let both = node(&tags).accelerator(gpu(tags[0], 2e12)).accelerator(gpu(tags[1], 1e12));
        let plan = |node: &Node, kv: KvTypes| {
            let cluster = Cluster::mesh(vec![node.clone()], LinkSpeed::DEFAULT);
            Planner::plan(&card, &cluster, &Request::default().kv(kv)).map(|placement| {
                placement.check_on(&card, &cluster, 8192).unwrap();
                placement.stages()[0].backend.clone().unwrap()
            })
        };
        assert_eq!(plan(&both, KvType::F32.into()).unwrap(), tags[0]);
        assert_eq!(plan(&both, KvType::Q8_0.into()).unwrap(), tags[1]);
        let one = node(&tags[..1]).accelerator(gpu(tags[0], 2e12));
        assert_eq!(plan(&one, KvTypes::default()).unwrap(), tags[0]);
        let error = plan(&one, KvTypes { values: KvType::Q4_0, ..KvTypes::default() }).unwrap_err();
        assert!(
            format!("{error:?}").contains("keeps keys and values in f16 with values in q4_0"),
            "{error:?}"
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let mut card = ModelCard::new("m", 1, 2, 8);
        card.placement.compatible_backends = ["skulk-cpu".to_owned()].into();
        let node = |id: &str| Node::new(id).backends(["skulk-cpu"]).memory(1 << 40, 1 << 41);
        let fine = Cluster::mesh(vec![node("a"), node("b")], LinkSpeed::DEFAULT);
        let request = Request::default;
        let field = |card: &ModelCard, cluster: &Cluster, request: &Request| {
            let error = Planner::plan(card, cluster, request).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            error.context()[0].1.clone()
        };
        Planner::plan(&card, &fine, &request()).unwrap();
        assert_eq!(field(&card, &Cluster::new(vec![node("a"), node("a")], Vec::new()), &request()), "nodes");
        for n_layers in [0, MAX_LAYERS + 1, usize::MAX] {
            assert_eq!(field(&ModelCard { n_layers, ..card.clone() }, &fine, &request()), "n_layers");
        }
        for (round_trip_seconds, bytes_per_second) in [
            (f64::NAN, 1.0),
            (-1.0, 1.0),
            (1.0, 0.0),
            (1.0, f64::NAN),
            (1e308, 1e9),
            (0.0, 5e-324),
            (0.0, 1e300),
        ] {
            let speed = LinkSpeed::new(round_trip_seconds, bytes_per_second);
            assert_eq!(field(&card, &Cluster::mesh(vec![node("a")], speed), &request()), "links");
        }
        let ring = request().transport(Transport::MlxRing);
        for speed in [LinkSpeed::new(f64::NAN, 1.0), LinkSpeed::new(-1.0, 1.0), LinkSpeed::new(1.0, 0.0)] {
            let links = vec![Link::socket("a", "b", "").speed(speed)];
            let error = Planner::plan(&card, &Cluster::new(vec![node("a"), node("b")], links), &ring);
            let error = error.unwrap_err();
            assert!(error.context().contains(&("link", "a to b".to_owned())), "{error:?}");
        }
        assert_eq!(field(&card, &Cluster::mesh(vec![node("")], LinkSpeed::DEFAULT), &request()), "nodes");
        assert_eq!(field(&card, &fine, &request().context_tokens(0)), "context_tokens");
        for (asked, name) in [
            (ring.clone().coordinator("a"), "coordinator"),
            (ring.clone().replicas(1), "replicas"),
            (Request { rings: Some(Vec::new()), ..request() }, "rings"),
        ] {
            assert_eq!(field(&card, &fine, &asked), name);
        }
        let gpu = || Accelerator { backend: Some("skulk-wgpu".into()), ..Accelerator::default() };
        let twins = node("a").accelerator(gpu()).accelerator(gpu());
        assert_eq!(field(&card, &Cluster::new(vec![twins], Vec::new()), &request()), "accelerators");
        for inventory in [
            Inventory::of_experts(3, 1, 1, (4, 2), 1, 1),
            Inventory::of_experts(usize::MAX, 1, 1, (4, 2), 1, 1),
            Inventory::of_experts(2, 1, 1, (usize::MAX, 2), 1, 1),
            Inventory::of_experts(2, 1, 1, (4, 5), 1, 1),
            Inventory::of_experts(2, 1, 1, (4, 0), 1, 1),
        ] {
            // Three layers can be, but are not the card's.
            let is_a_model = inventory.layers.len() == 3;
            assert_eq!(inventory.check().is_ok(), is_a_model);
            assert_eq!(Placement::builder(&inventory).engine("cpu").build().is_ok(), is_a_model);
            assert_eq!(field(&card, &fine, &request().inventory(inventory)), "inventory");
        }
        // Numbers that only just are: an answer, whichever.
        for inventory in [
            Inventory::of_experts(2, u64::MAX, u64::MAX, (4, 2), u64::MAX, u64::MAX),
            Inventory::of_experts(2, 0, 0, (0, 0), 0, 0),
        ] {
            for strictness in [crate::plan::Strictness::Safe, crate::plan::Strictness::Force] {
                let request = request().inventory(inventory.clone()).context_tokens(u64::MAX).min_nodes(2);
                let _ = Planner::plan(&card, &fine, &request.strictness(strictness));
            }
        }
        let _ = Planner::plan(&card, &fine, &request().min_nodes(usize::MAX).replicas(usize::MAX));
    }
}
