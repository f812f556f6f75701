//! By which angles are a step's queries and keys rotated? One list of angles for all layers that rotate alike.

use crate::arch::{ArchSpec, AttentionSpec, QueryGrowth, RopeLayout};
use crate::engine::ShardSpec;

/// Rotations of a shard's layers.
pub(super) struct Rotations {
    list: Vec<Rotation>,
    /// Of each of the shard's layers, those of its queries and of its keys.
    of_layer: Vec<[Option<usize>; 2]>,
}

/// One way of rotating.
#[derive(PartialEq)]
pub(super) struct Rotation {
    /// Angle per position of each pair.
    pub(super) frequencies: Vec<f32>,
    pub(super) layout: RopeLayout,
    /// Multiplies what is rotated.
    amplitude: f32,
    growth: Option<QueryGrowth>,
}

impl Rotations {
    pub(super) fn of(spec: &ShardSpec) -> Self {
        let mut list = Vec::new();
        let mut at = |rotation: Option<Rotation>| {
            let rotation = rotation?;
            let known = list.iter().position(|known| *known == rotation);
            Some(known.unwrap_or_else(|| {
                list.push(rotation);
                list.len() - 1
            }))
        };
        let own = &spec.arch.layers[spec.layers.clone()];
        let of_layer = own
            .iter()
            .map(|layer| {
                let Some(attention) = layer.attention() else { return [None; 2] };
                [attention.query_growth, None]
                    .map(|growth| at(Rotation::new(&spec.arch, spec.context, attention, growth)))
            })
            .collect();
        Self { list, of_layer }
    }

    pub(super) fn list(&self) -> &[Rotation] {
        &self.list
    }

    /// Those of queries and of keys of a layer, by index within the shard.
    pub(super) fn of_layer(&self, layer: usize) -> [Option<usize>; 2] {
        self.of_layer[layer]
    }
}

impl Rotation {
    fn new(
        arch: &ArchSpec,
        context: usize,
        attention: &AttentionSpec,
        growth: Option<QueryGrowth>,
    ) -> Option<Self> {
        let Some(rope) = attention.rope.and_then(|index| arch.ropes.get(index)) else {
            // What only grows turns by nothing.
            let frequencies = vec![0.0; attention.head_dim / 2];
            return growth.map(|_| Self { frequencies, layout: RopeLayout::Halves, amplitude: 1.0, growth });
        };
        let frequencies = rope.inverse_frequencies(context);
        Some(Self { frequencies, layout: rope.layout, amplitude: rope.amplitude, growth })
    }

    /// What rows at these positions are multiplied by beside being rotated.
    pub(super) fn amplitudes(&self, positions: &[usize], out: &mut Vec<f32>) {
        let growth = |position: &usize| self.growth.map_or(1.0, |growth| growth.at(*position));
        out.clear();
        out.extend(positions.iter().map(|position| self.amplitude * growth(position)));
    }
}
