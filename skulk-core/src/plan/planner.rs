//! Which placement is best? One pure function of card, cluster and request.

use std::collections::BTreeSet;
use std::path::Path;

use super::cluster::{Cluster, LinkSpeed};
use super::inventory::{Inventory, LayerBytes};
use super::placement::Placement;
use super::request::{Request, Transport};
use super::{direct, ring};
use crate::arch::MAX_LAYERS;
use crate::card::ModelCard;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::open_checkpoint;

/// Experts of all layers together that a plan may have.
const MOST_EXPERTS: usize = 1 << 22;

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
    /// [detail](Error::detail); [`ErrorKind::InvalidArgument`] for a cluster or request that cannot be.
    pub fn plan(card: &ModelCard, cluster: &Cluster, request: &Request) -> Result<Placement> {
        validate(card, cluster, request)?;
        match request.transport {
            Transport::Direct => direct::plan(card, cluster, request),
            Transport::MlxRing | Transport::MlxJaccl => ring::plan(card, cluster, request),
        }
    }

    /// Places the checkpoint at a path: card and inventory are what it says about itself, of which only headers
    /// are read.
    ///
    /// ```
    /// use skulk::{Cluster, LoadOptions, Model, Planner, Request, open_checkpoint};
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// let placement = Planner::plan_checkpoint(path, &Cluster::local(), &Request::default().context_tokens(256))?;
    /// let model = Model::load(&*open_checkpoint(path)?, &placement, &LoadOptions::default().threads(1))?;
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
        let inventory = Inventory::from_checkpoint(&*open_checkpoint(path)?)?;
        Self::plan(&card, cluster, &request.clone().inventory(inventory))
    }
}

fn validate(card: &ModelCard, cluster: &Cluster, request: &Request) -> Result<()> {
    let invalid = |field: &'static str, message: String| {
        Err(Error::new(ErrorKind::InvalidArgument, message).with("field", field))
    };
    if !(1..=MAX_LAYERS).contains(&card.n_layers) {
        return invalid("n_layers", format!("expected 1 to {MAX_LAYERS} layers, found {}", card.n_layers));
    }
    let mut ids = BTreeSet::new();
    if let Some(twice) = cluster.nodes.iter().find(|node| !ids.insert(&node.id)) {
        return invalid("nodes", format!("expected names that differ, found `{}` twice", twice.id));
    }
    let speeds = cluster.links.iter().filter_map(|link| link.speed).chain(cluster.mesh);
    let is_sound = |speed: &LinkSpeed| {
        speed.bytes_per_second > 0.0
            && speed.round_trip_seconds >= 0.0
            && speed.round_trip_seconds.is_finite()
    };
    if let Some(speed) = speeds.into_iter().find(|speed| !is_sound(speed)) {
        return invalid(
            "links",
            format!("expected a positive speed and a round trip of at least 0, found {speed:?}"),
        );
    }
    if let Some(inventory) = &request.inventory {
        if inventory.layers.len() != card.n_layers {
            let found = inventory.layers.len();
            return invalid("inventory", format!("expected {} layers, found {found}", card.n_layers));
        }
        let experts = inventory.layers.iter().map(|layer| layer.n_experts.max(1));
        let experts = experts.fold(0, usize::saturating_add);
        if experts > MOST_EXPERTS {
            return invalid("inventory", format!("expected at most {MOST_EXPERTS} experts, found {experts}"));
        }
        if let Some(layer) = inventory.layers.iter().find(|layer| layer.n_used > layer.n_experts) {
            let LayerBytes { n_used, n_experts, .. } = layer;
            return invalid(
                "inventory",
                format!("expected at most {n_experts} experts for a token, found {n_used}"),
            );
        }
    }
    Ok(())
}
