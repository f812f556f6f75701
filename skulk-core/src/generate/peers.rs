//! Which servers compute for a model whose blocks nobody has placed? Those that have them: each is asked what it serves.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::load::engine_of;
use crate::arch::ArchSpec;
use crate::engine::FfnService;
use crate::engine::ffn::experts_of;
use crate::error::{Error, ErrorKind, Result};
use crate::generate::LoadOptions;
use crate::ids::{EngineId, LayerIdx};
use crate::plan::{ExpertShard, NodeId, Placement};
use crate::remote::RemoteFfn;
use crate::weights::Checkpoint;

/// Reaches the servers of [`LoadOptions::ffn_at`], adds to a placement what they compute, and gives the options with them as
/// nodes whose names are their addresses. Of experts that several serve, the first one is the owner and the others help.
///
/// # Errors
/// [`ErrorKind::PlacementInvalid`] where the placement has experts already; as [`RemoteFfn::connect`].
pub(super) fn reach<'o>(
    placement: &mut Placement,
    checkpoint: &dyn Checkpoint,
    arch: &Arc<ArchSpec>,
    options: &'o LoadOptions,
) -> Result<Cow<'o, LoadOptions>> {
    if options.ffn_at.is_empty() {
        return Ok(Cow::Borrowed(options));
    }
    if !placement.experts().is_empty() {
        let message = "expected a placement without experts beside servers that are asked what they have, found one with some";
        return Err(Error::new(ErrorKind::PlacementInvalid, message)
            .with("field", "ffn_at")
            .with_hint("leave the option out, and give the placement's nodes their addresses"));
    }
    let (connect, _linked) = options.connecting();
    let mut servers: Vec<(NodeId, Arc<RemoteFfn>)> = Vec::new();
    for address in &options.ffn_at {
        let node = NodeId::new(address.to_string());
        if !servers.iter().any(|(known, _)| *known == node) {
            servers.push((node, Arc::new(RemoteFfn::for_model(address, arch, checkpoint, &connect)?)));
        }
    }
    let mut shards = Vec::new();
    for layer in 0..arch.n_layers() {
        let n = experts_of(&arch.layers[layer]);
        let serves = |(_, server): &(_, Arc<RemoteFfn>)| server.serves(LayerIdx(layer));
        let served: Vec<Range<usize>> = servers.iter().map(serves).collect();
        for experts in pieces(&served, n) {
            let has =
                |(_, range): &(_, &Range<usize>)| range.start <= experts.start && experts.end <= range.end;
            let mut having = servers.iter().zip(&served).filter(has).peekable();
            let of = |node: &NodeId| {
                ExpertShard::new(node.clone(), &EngineId::new("cpu"), layer..layer + 1, n)
                    .experts(experts.clone())
            };
            if having.peek().is_none() {
                let here = of(&options.node);
                shards.push(match options.ffn_on_cpu {
                    true => here,
                    false => ExpertShard { backend: backend_of(placement, layer)?, ..here },
                });
            }
            for (at, ((node, _), _)) in having.enumerate() {
                shards.push(ExpertShard { replica: at > 0, ..of(node) });
            }
        }
    }
    // Layers that are all their own engine's need not be named.
    let named =
        |layer: usize| shards.iter().any(|shard| shard.layers.start == layer && shard.node != options.node);
    let named: Vec<bool> = (0..arch.n_layers()).map(named).collect();
    shards.retain(|shard| named[shard.layers.start]);
    placement.add_experts(shards);
    let mut reached = options.clone();
    reached
        .ffn_services
        .extend(servers.into_iter().map(|(node, server)| (node, server as Arc<dyn FfnService>)));
    Ok(Cow::Owned(reached))
}

/// The experts of a layer in pieces, each of which every server has or has not.
fn pieces(served: &[Range<usize>], n: usize) -> Vec<Range<usize>> {
    let ends = served.iter().flat_map(|range| [range.start, range.end]);
    let mut borders: Vec<usize> = ends.chain([0, n]).filter(|border| *border <= n).collect();
    borders.sort_unstable();
    borders.dedup();
    borders.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// The backend of the stage that has the layer.
fn backend_of(placement: &Placement, layer: usize) -> Result<Option<String>> {
    let stage = placement.stages().iter().find(|stage| stage.layers.contains(&layer));
    stage.map(engine_of).transpose()?;
    Ok(stage.and_then(|stage| stage.backend.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_cut_where_servers_begin_and_end() {
        assert_eq!(pieces(&[0..4, 2..8], 8), [0..2, 2..4, 4..8]);
        assert_eq!(pieces(&[0..0, 0..0], 3), [Range { start: 0, end: 3 }]);
        assert_eq!(pieces(&[0..1, 0..1], 1), [Range { start: 0, end: 1 }]);
        assert!(pieces(&[], 0).is_empty());
    }
}
