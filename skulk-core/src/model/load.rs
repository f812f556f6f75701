//! How do tensors become a backend's weights? Names, shapes and biases checked on the way.

use std::ops::Range;

use super::balance::{balance, factors};
use crate::arch::{ArchSpec, AttentionSpec, LayerInput, LayerTensor, QkNorm, RopeSpec, Stacks};
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::engine::KvType;
use crate::engine::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::ExpertIdx;
use crate::weights::{Checkpoint, Memory, Outputs, Region, quant, stored_bytes};

/// Bytes of these tensors, from the checkpoint's headers alone.
pub(super) fn bytes_of(
    checkpoint: &dyn Checkpoint,
    mut names: impl Iterator<Item = String>,
) -> Result<ByteSize> {
    names.try_fold(ByteSize(0), |sum, name| match stored_bytes(checkpoint, &name) {
        Some(bytes) => Ok(sum + ByteSize(bytes)),
        // Absent, or of a type that cannot be read: mapping it says which.
        None => checkpoint.region(&name).map(|_| sum),
    })
}

fn nothing() -> Error {
    Error::new(ErrorKind::Internal, "a matrix of no parts was asked for")
}

/// Those of a layer's experts that are wanted, by index in ascending order.
fn some(parts: impl Iterator<Item = Region>, own: &[usize]) -> impl Iterator<Item = Region> {
    parts.enumerate().filter(|(at, _)| own.binary_search(at).is_ok()).map(|(_, part)| part)
}

/// How a layer's queries and keys are rotated whose norms share what they scale elements by, for keys that are kept like this.
/// `None`: they do not.
fn balanced(arch: &ArchSpec, layer: usize, keys: KvType) -> Option<&RopeSpec> {
    let attention = arch.layers.get(layer)?.attention()?;
    // Queries of other layers would have to be divided by as much.
    let alone =
        !arch.layers.iter().any(|other| other.attention().is_some_and(|own| own.kv_of == Some(layer)));
    let balanced = keys.is_quantised() && alone && attention.qk_norm == Some(QkNorm::Heads);
    arch.ropes.get(attention.rope.filter(|_| balanced)?)
}

/// Takes a shard's tensors out of a checkpoint, counting their bytes.
pub(super) struct Loader<'a, B: Backend> {
    pub(super) backend: &'a B,
    pub(super) checkpoint: &'a dyn Checkpoint,
    pub(super) arch: &'a ArchSpec,
    /// Where matrices shall lie: mapped or resident. Small vectors become f32 numbers in any case.
    pub(super) memory: Memory,
    /// The system is not told that matrices will be read.
    pub(super) on_demand: bool,
    pub(super) cancel: &'a CancelToken,
    /// Bytes mapped, read or copied so far.
    pub(super) bytes: u64,
    /// What norms of queries to another model's keys are divided by, by layer and element.
    pub(super) queries: &'a [Vec<f32>],
}

impl<B: Backend> Loader<'_, B> {
    /// A norm's weights, with the family's offset added, times `scale`.
    pub(super) fn norm(&mut self, name: &str, width: usize, scale: f32) -> Result<B::Vector> {
        let values = self.norm_values(name, width, scale)?;
        self.backend.vector(values)
    }

    pub(super) fn norm_values(&mut self, name: &str, width: usize, scale: f32) -> Result<Vec<f32>> {
        let mut values = self.values(name, width)?;
        if self.arch.norm.weight_offset != 0.0 {
            values.iter_mut().for_each(|v| *v += self.arch.norm.weight_offset);
        }
        if scale != 1.0 {
            values.iter_mut().for_each(|v| *v *= scale);
        }
        Ok(values)
    }

    /// The norms of a layer's queries, and of its keys where it has some, for keys that are kept like this.
    pub(super) fn head_norms(
        &mut self,
        layer: usize,
        attention: &AttentionSpec,
        keys: KvType,
    ) -> Result<[Option<B::Vector>; 2]> {
        let arch = self.arch;
        if !attention.has_norm_weights() {
            let ones = || self.backend.vector(vec![1.0; attention.head_dim]);
            return Ok([Some(ones()?), attention.has_kv().then(ones).transpose()?]);
        }
        let mut query = self.layer_norm_values(layer, LayerTensor::QueryNorm)?;
        if !attention.has_kv() {
            for (weight, by) in query.iter_mut().zip(self.queries.get(layer).into_iter().flatten()) {
                *weight /= by;
            }
            return Ok([Some(self.backend.vector(query)?), None]);
        }
        let mut key = self.layer_norm_values(layer, LayerTensor::KeyNorm)?;
        if let Some(rope) = balanced(arch, layer, keys) {
            balance(&mut query, &mut key, rope);
        }
        Ok([Some(self.backend.vector(query)?), Some(self.backend.vector(key)?)])
    }

    fn layer_norm_values(&mut self, layer: usize, tensor: LayerTensor) -> Result<Vec<f32>> {
        let [_, width] = tensor.shape(&self.arch.layers[layer], self.arch.hidden_size);
        self.norm_values(&self.arch.names.weight(layer, tensor), width, 1.0)
    }

    /// By what a layer's queries are divided, by element of a head; nothing where they are not.
    pub(super) fn query_factors(&mut self, layer: usize, keys: KvType) -> Result<Vec<f32>> {
        let Some(rope) = balanced(self.arch, layer, keys) else { return Ok(Vec::new()) };
        let query = self.layer_norm_values(layer, LayerTensor::QueryNorm)?;
        let key = self.layer_norm_values(layer, LayerTensor::KeyNorm)?;
        Ok(factors(&query, &key, rope))
    }

    /// A matrix `[n_out, n_in]`.
    pub(super) fn matrix(
        &mut self,
        name: &str,
        n_out: usize,
        n_in: usize,
        bias: Option<&str>,
    ) -> Result<B::Matrix> {
        let region = self.region(name, &[n_out, n_in])?;
        let bias = bias.map(|name| self.values(name, n_out)).transpose()?;
        self.stored(region, bias)
    }

    pub(super) fn stored(&mut self, region: Region, bias: Option<Vec<f32>>) -> Result<B::Matrix> {
        self.bytes += region.stored_bytes();
        let region = self.placed(region)?;
        self.backend.matrix(region, bias)
    }

    /// The same of a matrix of which many single rows are read: they stay in one piece each.
    fn stored_by_row(&mut self, region: Region, bias: Option<Vec<f32>>) -> Result<B::Matrix> {
        self.bytes += region.stored_bytes();
        let region = self.placed_by_row(region)?;
        self.backend.matrix(region, bias)
    }

    /// The region where the shard's weights shall lie, as products take them.
    fn placed(&self, region: Region) -> Result<Region> {
        match self.memory {
            Memory::Resident => region.resident_for_products(self.cancel),
            _ => self.placed_by_row(region),
        }
    }

    /// The region where the shard's weights shall lie, row by row.
    fn placed_by_row(&self, region: Region) -> Result<Region> {
        match self.memory {
            Memory::Resident => region.resident(self.cancel),
            _ if self.on_demand => Ok(region.on_demand()),
            _ => Ok(region),
        }
    }

    /// A norm of a layer, its weights times `scale`.
    pub(super) fn layer_norm(&mut self, layer: usize, tensor: LayerTensor, scale: f32) -> Result<B::Vector> {
        let [_, width] = tensor.shape(&self.arch.layers[layer], self.arch.hidden_size);
        self.norm(&self.arch.names.weight(layer, tensor), width, scale)
    }

    /// A layer's weights and biases of a norm around the mean.
    pub(super) fn layer_affine(&mut self, layer: usize, tensor: LayerTensor) -> Result<[B::Vector; 2]> {
        let [_, width] = tensor.shape(&self.arch.layers[layer], self.arch.hidden_size);
        let names = &self.arch.names;
        let values =
            [names.weight(layer, tensor), names.bias(layer, tensor)].map(|name| self.values(&name, width));
        let [weights, biases] = values;
        Ok([self.backend.vector(weights?)?, self.backend.vector(biases?)?])
    }

    /// A vector of a layer that is no norm.
    pub(super) fn layer_vector(&mut self, layer: usize, tensor: LayerTensor) -> Result<B::Vector> {
        let values = self.layer_values(layer, tensor)?;
        self.backend.vector(values)
    }

    /// Its numbers.
    pub(super) fn layer_values(&mut self, layer: usize, tensor: LayerTensor) -> Result<Vec<f32>> {
        let [_, width] = tensor.shape(&self.arch.layers[layer], self.arch.hidden_size);
        self.values(&self.arch.names.weight(layer, tensor), width)
    }

    /// The table of each token's inputs to layers, which stays where it is stored: a row of it is read for each token.
    pub(super) fn input_table(&mut self, input: LayerInput) -> Result<Region> {
        let arch = self.arch;
        let shape = [input.rows, arch.n_layers().saturating_mul(input.width)];
        self.region(&arch.names.layer_inputs(), &shape).map(Region::on_demand)
    }

    /// What projects a token's embedding to its input to a layer.
    pub(super) fn input_projection(&mut self, layer: usize) -> Result<B::Matrix> {
        let arch = self.arch;
        let width = arch.input_width().unwrap_or(0);
        let shape = [arch.n_layers().saturating_mul(width), arch.hidden_size];
        let all = self.region(&arch.names.input_projections(), &shape)?;
        self.stored(all.row_range(layer * width..(layer + 1) * width), None)
    }

    /// A matrix of a layer, of which several may lie in one tensor.
    pub(super) fn layer_matrix(&mut self, layer: usize, tensor: LayerTensor) -> Result<B::Matrix> {
        let (region, bias) = self.layer_region(layer, tensor)?;
        self.stored(region, bias)
    }

    /// The same of one of which many single rows are read.
    pub(super) fn layer_rows(&mut self, layer: usize, tensor: LayerTensor) -> Result<B::Matrix> {
        let (region, bias) = self.layer_region(layer, tensor)?;
        self.stored_by_row(region, bias)
    }

    fn layer_region(&mut self, layer: usize, tensor: LayerTensor) -> Result<(Region, Option<Vec<f32>>)> {
        let arch = self.arch;
        let (spec, names) = (&arch.layers[layer], &arch.names);
        let (rows, all) = self.rows(layer, tensor);
        let [_, n_in] = tensor.shape(spec, arch.hidden_size);
        let region = self.region(&names.weight(layer, tensor), &[all, n_in])?.row_range(rows.clone());
        let bias = match tensor.has_bias(spec) {
            true => Some(self.values(&names.bias(layer, tensor), all)?[rows].to_vec()),
            false => None,
        };
        Ok((region, bias))
    }

    /// For each head what takes its queries to latent vectors, and what takes latent vectors to its values. Where both lie in
    /// one tensor, the first are columns of it, of which a copy is made; stacks of their own are used where they lie.
    pub(super) fn latent_heads(&mut self, layer: usize) -> Result<[B::Stack; 2]> {
        let (arch, names) = (self.arch, &self.arch.names);
        let spec = &arch.layers[layer];
        let [keys, values] =
            [LayerTensor::LatentKeys, LayerTensor::LatentValues].map(|of| of.shape(spec, arch.hidden_size));
        let n_heads = spec.attention().map_or(0, |attention| attention.n_heads);
        let name = |tensor| names.weight(layer, tensor);
        if names.fused(spec, LayerTensor::LatentKeys).count() == 1 {
            let to_latent = (LayerTensor::LatentKeys, [n_heads, keys[1], keys[0]]);
            let to_values = (LayerTensor::LatentValues, [n_heads, values[0], values[1]]);
            let mut stack = |(tensor, shape): (LayerTensor, [usize; 3])| {
                let region = self.region(&name(tensor), &shape)?;
                self.bytes += region.stored_bytes();
                self.backend.stack(self.placed(region)?.parts().collect(), None)
            };
            return Ok([stack(to_latent)?, stack(to_values)?]);
        }
        let rows = n_heads.saturating_mul(keys[0].saturating_add(values[0]));
        let all = self.region(&name(LayerTensor::LatentKeys), &[rows, keys[1]])?;
        self.bytes += all.stored_bytes().saturating_add(arch.copied_bytes(layer, self.checkpoint));
        let (mut to_latent, mut to_values) = (Vec::new(), Vec::new());
        for head in all.row_parts(n_heads) {
            self.cancel.check()?;
            to_latent.push(self.in_file(head.row_range(0..keys[0]).turned())?);
            // Row by row: heads that are no whole tiles would ask for another form of the tensor than others.
            to_values.push(self.placed_by_row(head.row_range(keys[0]..head.rows()))?);
        }
        Ok([self.backend.stack(to_latent, None)?, self.backend.stack(to_values, None)?])
    }

    /// The matrix that these lie in, without others.
    pub(super) fn whole_matrix(&mut self, layer: usize, parts: &[LayerTensor]) -> Result<B::Matrix> {
        let (arch, first) = (self.arch, parts.first().copied().ok_or_else(nothing)?);
        let [_, n_in] = first.shape(&arch.layers[layer], arch.hidden_size);
        let (_, all) = self.rows(layer, first);
        let region = self.region(&arch.names.weight(layer, first), &[all, n_in])?;
        self.stored(region, None)
    }

    /// As many numbers as a vector has, in whatever shape.
    pub(super) fn layer_numbers(&mut self, layer: usize, tensor: LayerTensor) -> Result<Vec<f32>> {
        let [_, n] = tensor.shape(&self.arch.layers[layer], self.arch.hidden_size);
        let region = self.checkpoint.region(&self.arch.names.weight(layer, tensor))?;
        if region.shape().iter().product::<usize>() != n {
            self.in_file(region.expect_shape(&[n]))?;
        }
        self.bytes += region.stored_bytes();
        self.in_file(quant::to_f32(&region))
    }

    /// The numbers of a small matrix.
    pub(super) fn layer_table(&mut self, layer: usize, tensor: LayerTensor) -> Result<Vec<f32>> {
        let shape = tensor.shape(&self.arch.layers[layer], self.arch.hidden_size);
        let region = self.region(&self.arch.names.weight(layer, tensor), &shape)?;
        self.bytes += region.stored_bytes();
        self.in_file(quant::to_f32(&region))
    }

    /// What convolves channels, `[channels, positions]`, of which several tensors' may lie in one; and their biases, which
    /// are zeros where there are none. Frameworks put dimensions of 1 around channels and positions.
    pub(super) fn layer_channels(
        &mut self,
        layer: usize,
        tensor: LayerTensor,
    ) -> Result<(Vec<f32>, Vec<f32>)> {
        let (arch, spec) = (self.arch, &self.arch.layers[layer]);
        let (rows, all) = self.rows(layer, tensor);
        let [_, n] = tensor.shape(spec, arch.hidden_size);
        let region = self.checkpoint.region(&arch.names.weight(layer, tensor))?;
        let plain = |shape: &[usize]| shape.iter().copied().filter(|n| *n != 1).collect::<Vec<_>>();
        if plain(region.shape()) != plain(&[all, n]) {
            self.in_file(region.expect_shape(&[all, 1, n]))?;
        }
        if rows.start == 0 {
            self.bytes += region.stored_bytes();
        }
        let weights = self.in_file(quant::to_f32(&region))?[rows.start * n..rows.end * n].to_vec();
        let bias = match tensor.has_bias(spec) {
            true => {
                let region = self.region(&arch.names.bias(layer, tensor), &[all])?;
                if rows.start == 0 {
                    self.bytes += region.stored_bytes();
                }
                self.in_file(quant::to_f32(&region))?[rows].to_vec()
            }
            false => vec![0.0; rows.len()],
        };
        Ok((weights, bias))
    }

    /// Which rows a matrix has of the tensor that it lies in, and how many that one has.
    fn rows(&self, layer: usize, tensor: LayerTensor) -> (Range<usize>, usize) {
        let arch = self.arch;
        let spec = &arch.layers[layer];
        let n_rows = |tensor: LayerTensor| tensor.shape(spec, arch.hidden_size)[0];
        let before = arch.names.fused(spec, tensor).take_while(|other| *other != tensor).map(n_rows).sum();
        (before..before + n_rows(tensor), arch.names.fused(spec, tensor).map(n_rows).sum())
    }

    /// One matrix for each of a layer's experts. Of mapped ones only what the checkpoint says about them is read; their
    /// pages are when a row takes the expert.
    pub(super) fn layer_experts(
        &mut self,
        layer: usize,
        tensor: LayerTensor,
        (n, own): (usize, &[usize]),
    ) -> Result<B::Stack> {
        let regions = self.expert_regions(layer, tensor, (n, own))?;
        self.bytes += regions.iter().map(|region| region.stored_bytes()).sum::<u64>();
        let biases = self.expert_biases(layer, tensor, (n, own))?;
        let (outputs, all) = self.outputs(layer, tensor);
        let is_whole = own.len() == n && outputs.n == all && outputs.step == 1 && !outputs.transposed;
        if self.arch.names.stacks_experts() && self.memory == Memory::Resident && is_whole {
            // In one piece.
            let stack = self.checkpoint.region(&self.arch.names.weight(layer, tensor))?;
            return self.backend.stack(self.placed(stack)?.on_demand().parts().collect(), biases);
        }
        let placed = regions.into_iter().map(|region| Ok(self.placed(region)?.on_demand()));
        self.backend.stack(placed.collect::<Result<_>>()?, biases)
    }

    /// The biases of a layer's experts, one behind the other, where they have some.
    fn expert_biases(
        &mut self,
        layer: usize,
        tensor: LayerTensor,
        (n, own): (usize, &[usize]),
    ) -> Result<Option<Vec<f32>>> {
        if !tensor.has_bias(&self.arch.layers[layer]) {
            return Ok(None);
        }
        let (outputs, all) = self.outputs(layer, tensor);
        let region = self.region(&self.arch.names.bias(layer, tensor), &[n, all])?;
        // Others may lie in the same tensor.
        self.bytes += (region.bytes().len() / (n * all).max(1) * own.len() * outputs.n) as u64;
        let values = self.in_file(quant::to_f32(&region))?;
        let of = |expert: &usize| {
            let bias = values.iter().copied().skip(expert * all).take(all);
            bias.skip(outputs.first).step_by(outputs.step).take(outputs.n)
        };
        Ok(Some(own.iter().flat_map(of).collect()))
    }

    /// Which outputs experts have of the stack that they lie in, and how many that one has.
    fn outputs(&self, layer: usize, tensor: LayerTensor) -> (Outputs, usize) {
        let (names, (rows, all)) = (&self.arch.names, self.rows(layer, tensor));
        let spec = &self.arch.layers[layer];
        let stack = self.checkpoint.tensor(&names.weight(layer, tensor));
        let stacks = names.stacks();
        let Stacks { transposed, alternating } = stack.map_or(stacks, |info| stacks.of_type(info.dtype));
        let (first, step) = match alternating {
            true => (
                names.fused(spec, tensor).take_while(|other| *other != tensor).count(),
                names.fused(spec, tensor).count(),
            ),
            false => (rows.start, 1),
        };
        (Outputs { first, step, n: rows.len(), transposed }, all)
    }

    /// An expert's matrix where it is stored, or a copy where it lies in a way that cannot be multiplied with, for each of
    /// a layer's experts.
    pub(super) fn expert_regions(
        &self,
        layer: usize,
        tensor: LayerTensor,
        (n, own): (usize, &[usize]),
    ) -> Result<Vec<Region>> {
        let names = &self.arch.names;
        let [n_out, n_in] = tensor.shape(&self.arch.layers[layer], self.arch.hidden_size);
        if names.stacks_experts() {
            let (outputs, all) = self.outputs(layer, tensor);
            let matrix = if outputs.transposed { [n_in, all] } else { [all, n_in] };
            let stack = self.region(&names.weight(layer, tensor), &[n, matrix[0], matrix[1]])?;
            if names.stacks().are_copied(stack.dtype()) {
                let parts = self.in_file(stack.rearranged(outputs, self.cancel))?;
                return Ok(some(parts.parts(), own).collect());
            }
            let cut = |part: Region| part.every(outputs.first, outputs.step, outputs.n);
            return self.in_file(some(stack.parts(), own).map(cut).collect());
        }
        own.iter()
            .map(|&at| self.region(&names.expert_weight(layer, tensor, ExpertIdx(at)), &[n_out, n_in]))
            .collect()
    }

    /// What each of a layer's features adds to the output, `[n or more, hidden]`: behind the features may be zeros.
    pub(super) fn features(&mut self, name: &str, n: usize, hidden: usize) -> Result<B::Matrix> {
        let region = self.checkpoint.region(name)?;
        let n = region.rows().max(n);
        self.in_file(region.expect_shape(&[n, hidden]))?;
        self.stored_by_row(region, None)
    }

    fn values(&mut self, name: &str, width: usize) -> Result<Vec<f32>> {
        let region = self.region(name, &[width])?;
        self.bytes += region.stored_bytes();
        self.in_file(quant::to_f32(&region))
    }

    /// A tensor of this shape, mapped.
    pub(super) fn region(&self, name: &str, shape: &[usize]) -> Result<Region> {
        let region = self.checkpoint.region(name)?;
        self.in_file(region.expect_shape(shape))?;
        Ok(region)
    }

    fn in_file<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| e.with("file", self.checkpoint.path().display()))
    }
}
