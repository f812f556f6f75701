//! Who computes what a placement has away from its layer's attention? The CPU beside other engines, and services that the
//! caller has for other nodes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::load::engine_of;
use super::model::StageInfo;
use crate::arch::ArchSpec;
use crate::engine::ffn::experts_of;
use crate::engine::{FfnPlan, FfnService, LoadCx};
use crate::engines::CpuFfn;
use crate::error::{Error, ErrorKind, Result};
use crate::generate::LoadOptions;
use crate::ids::EngineId;
use crate::plan::{ExpertShard, NodeId, Placement};
use crate::weights::Checkpoint;

/// What computes feed-forward blocks and experts for a model's stages.
#[derive(Default)]
pub(super) struct Services {
    pub(super) plan: FfnPlan,
    cpu: Option<Arc<CpuFfn>>,
    others: Vec<Arc<dyn FfnService>>,
}

/// Some experts of a layer.
type Share = (usize, Range<usize>);

/// Services by node, and those that stand for several of them.
#[derive(Default)]
struct Known<'a> {
    nodes: BTreeMap<&'a NodeId, Arc<dyn FfnService>>,
    replicas: BTreeMap<Vec<&'a NodeId>, Arc<dyn FfnService>>,
}

impl<'a> Known<'a> {
    /// What computes for the first of these nodes, and where that fails, the others.
    fn get(
        &mut self,
        nodes: &[&'a NodeId],
        of: impl Fn(&NodeId) -> Result<Arc<dyn FfnService>>,
    ) -> Result<Arc<dyn FfnService>> {
        if let Some(known) = self.replicas.get(nodes) {
            return Ok(Arc::clone(known));
        }
        for node in nodes {
            if !self.nodes.contains_key(node) {
                self.nodes.insert(node, of(node)?);
            }
        }
        let services = nodes.iter().filter_map(|node| self.nodes.get(node)).cloned();
        let service = any_of(services.collect())?;
        self.replicas.insert(nodes.to_vec(), Arc::clone(&service));
        Ok(service)
    }
}

#[cfg(feature = "net")]
fn any_of(services: Vec<Arc<dyn FfnService>>) -> Result<Arc<dyn FfnService>> {
    match &services[..] {
        [only] => Ok(Arc::clone(only)),
        _ => Ok(Arc::new(crate::remote::Replicas::new(services)?)),
    }
}

#[cfg(not(feature = "net"))]
fn any_of(services: Vec<Arc<dyn FfnService>>) -> Result<Arc<dyn FfnService>> {
    match &services[..] {
        [only] => Ok(Arc::clone(only)),
        _ => Err(without_net("further owners of experts")),
    }
}

#[cfg(feature = "net")]
fn connect(
    address: &str,
    checkpoint: &dyn Checkpoint,
    arch: &Arc<ArchSpec>,
    options: &LoadOptions,
) -> Result<Arc<dyn FfnService>> {
    let (connect, _linked) = options.connecting();
    let service = crate::remote::RemoteFfn::for_model(&address.parse()?, arch, checkpoint, &connect)?;
    Ok(Arc::new(service))
}

#[cfg(not(feature = "net"))]
fn connect(_: &str, _: &dyn Checkpoint, _: &Arc<ArchSpec>, _: &LoadOptions) -> Result<Arc<dyn FfnService>> {
    Err(without_net("experts on other nodes"))
}

#[cfg(not(feature = "net"))]
fn without_net(what: &str) -> Error {
    Error::new(
        ErrorKind::PlacementInvalid,
        format!("{what} need the Cargo feature net, which is not compiled in"),
    )
    .with_hint("build with the feature net, or place everything on this node")
}

impl Services {
    /// Loads what the CPU of this process computes, and takes the caller's services for the rest, or connects to the
    /// nodes that have it.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] for nodes without a service or an address, and for experts that a layer does not
    /// have; as [`CpuFfn::load`] and [`RemoteFfn::connect`](crate::remote::RemoteFfn::connect).
    pub(super) fn load(
        placement: &Placement,
        checkpoint: &dyn Checkpoint,
        arch: &Arc<ArchSpec>,
        options: &LoadOptions,
        cx: &LoadCx<'_>,
    ) -> Result<Self> {
        let mut services = Self::default();
        // Of each node what it computes away from its layers' engines.
        let mut parts: Vec<(&ExpertShard, Vec<Share>)> = Vec::new();
        for shard in placement.experts() {
            let mut shares = shares(shard, arch)?;
            if shard.node == options.node && !shard.replica {
                shares = beside(placement, shard, shares)?;
            }
            parts.push((shard, shares));
        }
        let elsewhere =
            |(shard, shares): &(&ExpertShard, Vec<Share>)| shard.node != options.node && !shares.is_empty();
        if options.engine_options.ffn_top_features.is_some()
            && let Some((shard, _)) = parts.iter().find(|part| elsewhere(part))
        {
            let message =
                format!("expected blocks that this process computes, found some that {} does", shard.node);
            return Err(Error::argument("ffn_top_features", message)
                .with_hint("leave the option out: others compute with all features"));
        }
        let own = |(shard, _): &&(&ExpertShard, Vec<Share>)| shard.node == options.node;
        let mut own: Vec<Share> = parts.iter().filter(own).flat_map(|(_, shares)| shares.clone()).collect();
        if !own.is_empty() {
            own.sort_by_key(|(layer, experts)| (*layer, experts.start));
            let ranges: Vec<_> =
                own.iter().map(|(layer, experts)| (*layer..layer + 1, experts.clone())).collect();
            let cpu = Arc::new(CpuFfn::load(checkpoint, arch, &ranges, &options.engine_options, cx)?);
            services.cpu = Some(cpu);
        }
        let mut known = Known::default();
        for (shard, shares) in parts.iter().filter(|(shard, _)| !shard.replica) {
            for (layer, experts) in shares {
                let helps = |(other, shares): &&(&ExpertShard, Vec<Share>)| {
                    let has = |share: &Share| {
                        share.0 == *layer && share.1.start <= experts.start && experts.end <= share.1.end
                    };
                    // What is in this process needs nobody's help.
                    let needs = shard.node != options.node;
                    needs && other.replica && other.node != shard.node && shares.iter().any(has)
                };
                let mut nodes = vec![&shard.node];
                for (other, _) in parts.iter().filter(helps) {
                    if !nodes.contains(&&other.node) {
                        nodes.push(&other.node);
                    }
                }
                let of = |node: &NodeId| services.of(node, placement, (checkpoint, arch), options);
                let service = known.get(&nodes, of)?;
                services.plan = services.plan.share(*layer..layer + 1, experts.clone(), service);
            }
        }
        services.others = known.nodes.into_values().collect();
        Ok(services)
    }

    /// What computes for a node.
    fn of(
        &self,
        node: &NodeId,
        placement: &Placement,
        (checkpoint, arch): (&dyn Checkpoint, &Arc<ArchSpec>),
        options: &LoadOptions,
    ) -> Result<Arc<dyn FfnService>> {
        if let Some(cpu) = self.cpu.as_ref().filter(|_| *node == options.node) {
            return Ok(Arc::clone(cpu) as _);
        }
        if let Some(service) = options.ffn_services.get(node) {
            return Ok(Arc::clone(service));
        }
        let invalid = |message: String| Error::new(ErrorKind::PlacementInvalid, message).with("node", node);
        let Some(address) = options.addresses.get(node).or_else(|| placement.addresses().get(node)) else {
            let message =
                format!("expected an address for each node that computes experts, found none for `{node}`");
            return Err(invalid(message).with_hint(
                "say where the node serves, in the cluster's node or with the option addresses, give a service of its own to loading, or this process the name that the placement has for it with the option node",
            ));
        };
        connect(address, checkpoint, arch, options).map_err(|error| error.with("node", node))
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<dyn FfnService>> {
        self.others.clone()
    }

    /// Adds to a stage's facts what is computed beside its engine.
    pub(super) fn tell(&self, stage: &mut StageInfo) {
        let mut names: Vec<&str> = Vec::new();
        for share in self.plan.shares().iter().filter(|share| stage.layers.contains(&share.layers.start)) {
            if !names.contains(&share.service.name()) {
                names.push(share.service.name());
            }
        }
        if !names.is_empty() {
            stage.device = format!("{}; feed-forward on {}", stage.device, names.join(" and "));
        }
        if let Some(cpu) = &self.cpu {
            let bytes = cpu.weight_bytes(stage.layers.clone());
            if bytes.bytes() > 0 {
                stage.weights = stage.weights + bytes;
                stage.memory = cpu.weights();
            }
        }
    }
}

/// The experts of each layer that a part of a placement has.
fn shares(shard: &ExpertShard, arch: &ArchSpec) -> Result<Vec<Share>> {
    let mut shares = Vec::new();
    for layer in shard.layers.clone() {
        let n = experts_of(&arch.layers[layer]);
        let whole = shard.experts == (0..shard.n_experts);
        if n == 0 || whole {
            shares.extend((n > 0).then_some((layer, 0..n)));
        } else if n == shard.n_experts {
            shares.push((layer, shard.experts.clone()));
        } else {
            let message = format!("expected layers of {} experts, found one of {n}", shard.n_experts);
            return Err(Error::new(ErrorKind::PlacementInvalid, message)
                .with("layer", layer)
                .with("node", &shard.node)
                .with_hint("place the experts of such a layer by themselves"));
        }
    }
    Ok(shares)
}

/// What of a part on this node is not the stage's own engine's.
fn beside(placement: &Placement, shard: &ExpertShard, shares: Vec<Share>) -> Result<Vec<Share>> {
    let mut apart = Vec::new();
    for share in shares {
        let Some(stage) = placement.stages().iter().find(|stage| stage.layers.contains(&share.0)) else {
            continue;
        };
        let of_stage = engine_of(stage)?;
        match shard.engine() {
            // A name may mean an engine of a more precise id.
            Some(engine) if of_stage.as_str().starts_with(engine.as_str()) => {}
            Some(engine) if engine.as_str() == "cpu" => apart.push(share),
            _ => {
                let backend = shard.backend.as_deref().unwrap_or("no backend");
                let message = format!(
                    "expected experts of layer {} on engine `{of_stage}`, which has the layer's attention, or on skulk-cpu, found {backend}",
                    share.0
                );
                return Err(Error::new(ErrorKind::PlacementInvalid, message).with("node", &shard.node));
            }
        }
    }
    Ok(apart)
}

/// Adds to a placement that the CPU computes the blocks that nobody has yet away from an engine that copies weights.
pub(super) fn leave_to_cpu(placement: &mut Placement, arch: &ArchSpec, options: &LoadOptions) -> Result<()> {
    let mut added = Vec::new();
    for stage in placement.stages() {
        if engine_of(stage)?.as_str() == "cpu" {
            continue;
        }
        let taken = |layer: usize| {
            placement.experts().iter().any(|shard| !shard.replica && shard.layers.contains(&layer))
        };
        for layer in stage.layers.clone().filter(|layer| !taken(*layer)) {
            let n = experts_of(&arch.layers[layer]);
            if n > 0 {
                added.push(ExpertShard::new(
                    options.node.clone(),
                    &EngineId::new("cpu"),
                    layer..layer + 1,
                    n,
                ));
            }
        }
    }
    placement.add_experts(added);
    Ok(())
}
