//! Who computes what a placement has away from its layer's attention? The CPU beside other engines, and services that the
//! caller has for other nodes.

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
use crate::plan::{ExpertShard, Placement};
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

impl Services {
    /// Loads what the CPU of this process computes, and takes the caller's services for the rest.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] for nodes without a service and for experts that a layer does not have; as
    /// [`CpuFfn::load`].
    pub(super) fn load(
        placement: &Placement,
        checkpoint: &dyn Checkpoint,
        arch: &Arc<ArchSpec>,
        options: &LoadOptions,
        cx: &LoadCx<'_>,
    ) -> Result<Self> {
        let mut services = Self::default();
        let mut own: Vec<Share> = Vec::new();
        for shard in placement.experts().iter().filter(|shard| !shard.replica) {
            let shares = shares(shard, arch)?;
            if shard.node == options.node {
                own.extend(beside(placement, shard, shares)?);
                continue;
            }
            let service = options.ffn_services.get(&shard.node).ok_or_else(|| {
                let message = format!("expected a service for each node that computes experts, found none for `{}`", shard.node);
                Error::new(ErrorKind::PlacementInvalid, message).with_hint(
                    "connect to the node and give the service to loading, or this process the name that the placement has for it with the option node",
                )
            })?;
            for (layer, experts) in shares {
                services.plan = services.plan.share(layer..layer + 1, experts, Arc::clone(service));
            }
            if !services.others.iter().any(|other| Arc::ptr_eq(other, service)) {
                services.others.push(Arc::clone(service));
            }
        }
        if !own.is_empty() {
            own.sort_by_key(|(layer, experts)| (*layer, experts.start));
            let ranges: Vec<_> =
                own.iter().map(|(layer, experts)| (*layer..layer + 1, experts.clone())).collect();
            let cpu = Arc::new(CpuFfn::load(checkpoint, arch, &ranges, &options.engine_options, cx)?);
            for (layers, experts) in ranges {
                services.plan = services.plan.share(layers, experts, Arc::clone(&cpu) as Arc<dyn FfnService>);
            }
            services.cpu = Some(cpu);
        }
        Ok(services)
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<dyn FfnService>> {
        let cpu = self.cpu.iter().map(|cpu| Arc::clone(cpu) as Arc<dyn FfnService>);
        cpu.chain(self.others.iter().cloned()).collect()
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
