//! Which part of the model is this shard? The reference's three kinds, with their tag or without.

use std::ops::Range;

use super::fields::Place;
use super::{CFG, PIPELINE, TENSOR};
use crate::error::{Error, Result};
use crate::plan::placement::Part;

/// A shard, with the places of what others must agree with.
pub(super) struct Shard<'a> {
    pub(super) card: Option<Place<'a>>,
    pub(super) rank: (Place<'a>, usize),
    pub(super) world: (Place<'a>, usize),
    pub(super) n_layers: (Place<'a>, usize),
    pub(super) backend: Option<String>,
    pub(super) layers: Range<usize>,
    pub(super) part: Part,
}

impl<'a> Shard<'a> {
    pub(super) fn read(place: &Place<'a>, with_card: bool) -> Result<Self> {
        let (tag, place) = match place.tagged(&[PIPELINE, TENSOR, CFG]) {
            Some((tag, place)) => (Some(tag), place),
            None => (None, place.clone()),
        };
        let halved = tag == Some(CFG) || (tag.is_none() && place.has("cfgRank"));
        let mut names = vec![
            "deviceRank",
            "worldSize",
            "resolvedBackend",
            "immediateException",
            "shouldTimeout",
            "startLayer",
            "endLayer",
            "nLayers",
        ];
        if with_card {
            names.insert(0, "modelCard");
        }
        if halved {
            names.extend(["cfgRank", "cfgWorldSize", "pipelineRank", "pipelineWorldSize"]);
        }
        let fields = place.fields(&names)?;
        let index = |name| {
            let place = fields.get(name)?;
            let index = place.index()?;
            Ok::<_, Error>((place, index))
        };
        // Both are for tests of the reference: what they ask for, nothing here does.
        if let Some(exception) = fields.find_some("immediateException").filter(|place| place.value() != false)
        {
            return Err(exception.wrong("false"));
        }
        if let Some(timeout) = fields.find_some("shouldTimeout") {
            return Err(timeout.wrong("null"));
        }
        let (world, n_layers) = (index("worldSize")?, index("nLayers")?);
        let layers = index("startLayer")?.1..index("endLayer")?.1;
        let part = match tag {
            _ if halved => Part::Cfg {
                cfg_rank: index("cfgRank")?.1,
                cfg_world_size: fields.find_some("cfgWorldSize").map_or(Ok(2), |place| place.index())?,
                pipeline_rank: index("pipelineRank")?.1,
                pipeline_world_size: index("pipelineWorldSize")?.1,
            },
            Some(TENSOR) => Part::Tensor,
            // Without a tag: no stage of several has all layers, and all shares of tensors do.
            None if world.1 > 1 && layers == (0..n_layers.1) => Part::Tensor,
            _ => Part::Whole,
        };
        Ok(Self {
            card: if with_card { Some(fields.get("modelCard")?) } else { None },
            rank: index("deviceRank")?,
            world,
            n_layers,
            backend: fields
                .find_some("resolvedBackend")
                .map(|place| place.name().map(str::to_owned))
                .transpose()?,
            layers,
            part,
        })
    }
}
