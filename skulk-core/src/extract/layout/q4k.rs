//! Which files have quantised weights? Attention, feed-forward blocks together or by layer, the head; and norms as f32.

use super::Layout;
use super::float::dense_biases;
use crate::error::{Error, ErrorKind, Result};
use crate::extract::keys::{Keys, Projection};
use crate::extract::plan::{PlanFile, Stored};
use crate::vindex::files::layer_file;
use crate::vindex::{LayerEntry, LayerHeader, PADDED, QuantEntry, WeightEntry};
use crate::weights::DType;

/// LARQL's name of the file of feed-forward blocks, and so on.
const ATTENTION: &str = "attn_weights_q4k";
const FEED_FORWARD: &str = "interleaved_q4k";
const DOWN_FEATURES: &str = "down_features_q4k";

impl Layout<'_> {
    pub(super) fn q4k(&mut self) -> Result<()> {
        let arch = self.source.arch();
        // LARQL's file of feed-forward blocks has no experts, and no layout for rows that are not whole blocks.
        let is_mixture = arch.layers.iter().any(|layer| layer.ffn.experts.is_some());
        self.plan.is_per_layer = is_mixture || !arch.hidden_size.is_multiple_of(PADDED);
        self.attention_q4k()?;
        match self.plan.is_per_layer {
            true => self.layer_files()?,
            false => self.interleaved()?,
        }
        if self.options.feature_major_down {
            self.down_features()?;
        }
        self.norms_f32()?;
        self.head_q4k()
    }

    /// `attn_weights_q4k.bin`.
    fn attention_q4k(&mut self) -> Result<()> {
        let mut file = PlanFile::new(format!("{ATTENTION}.bin"));
        let mut entries = Vec::new();
        for layer in 0..self.layers().len() {
            let dtypes = [DType::Q4_K, DType::Q4_K, DType::Q6_K_Linear, DType::Q4_K];
            for (key, dtype) in Keys::attention(layer).iter().zip(dtypes) {
                self.put_quantised(&mut file, &mut entries, key, dtype, layer)?;
            }
        }
        self.close_quantised(ATTENTION, file, &entries)
    }

    /// How down projections are stored.
    fn down(&self) -> DType {
        // Files in `layers/` have one type each.
        match self.options.down_q4k || self.plan.is_per_layer {
            true => DType::Q4_K,
            false => DType::Q6_K_Linear,
        }
    }

    /// `interleaved_q4k.bin`.
    fn interleaved(&mut self) -> Result<()> {
        let mut file = PlanFile::new(format!("{FEED_FORWARD}.bin"));
        let mut entries = Vec::new();
        for layer in 0..self.layers().len() {
            for (projection, dtype) in [
                (Projection::Gate, DType::Q4_K),
                (Projection::Up, DType::Q4_K),
                (Projection::Down, self.down()),
            ] {
                let key = Keys::dense(layer, projection);
                self.put_quantised(&mut file, &mut entries, &key, dtype, layer)?;
            }
        }
        self.close_quantised(FEED_FORWARD, file, &entries)
    }

    /// `layers/layer_NN.weights`: one entry for each expert, or one of a dense block.
    fn layer_files(&mut self) -> Result<()> {
        let hidden = self.source.arch().hidden_size;
        for (layer, spec) in self.layers().iter().enumerate() {
            let [gates, ups, downs] = [Projection::Gate, Projection::Up, Projection::Down]
                .map(|projection| self.projections(layer, projection));
            let mut tensors = Vec::new();
            let mut header =
                LayerHeader { dtype: DType::Q4_K, intermediate: spec.ffn.width, hidden, entries: Vec::new() };
            let mut offset = LayerHeader::bytes_of(gates.len());
            for ((gate, up), down) in gates.iter().zip(&ups).zip(&downs) {
                let [gate, up, down] = [gate, up, down].map(|key| self.stored(key, DType::Q4_K));
                let entry = [gate?, up?, down?];
                header.entries.push(place(&mut offset, &entry)?);
                tensors.extend(entry);
            }
            let mut file = PlanFile::new(layer_file(layer));
            file.bytes(header.to_bytes()?)?;
            for tensor in tensors {
                file.rows(tensor, Some(layer))?;
            }
            self.plan.files.push(file);
        }
        Ok(())
    }

    /// `down_features_q4k.bin`, of dense layers.
    fn down_features(&mut self) -> Result<()> {
        let mut file = PlanFile::new(format!("{DOWN_FEATURES}.bin"));
        let mut entries = Vec::new();
        for (layer, spec) in self.layers().iter().enumerate() {
            if spec.ffn.experts.is_some() {
                continue;
            }
            let key = Keys::dense(layer, Projection::Down);
            let tensor = self.stored(&key, self.down())?;
            let [rows, width] = tensor.transposed();
            let dtype = tensor.dtype;
            let place = file.columns(tensor, Some(layer))?;
            let shape = [rows, width.next_multiple_of(PADDED)];
            entries.push(QuantEntry::new(&key, shape, dtype, place.offset, place.len));
        }
        self.close_quantised(DOWN_FEATURES, file, &entries)
    }

    /// `norms.bin`: norms, and, which LARQL has none of, biases.
    fn norms_f32(&mut self) -> Result<()> {
        let mut file = PlanFile::new("norms.bin");
        for layer in 0..self.layers().len() {
            let biases = Keys::attention(layer).map(|key| Keys::bias(&key));
            for keys in [&Keys::norms(layer)[..], &Keys::head_norms(layer), &biases, &dense_biases(layer)] {
                self.put_those_there(&mut file, keys, DType::F32, layer)?;
            }
        }
        self.put(&mut file, Keys::OUTPUT_NORM, DType::F32, None)?;
        self.plan.files.push(file);
        Ok(())
    }

    /// `lm_head_q4.bin`, of models whose head is not the embedding table.
    fn head_q4k(&mut self) -> Result<()> {
        if self.source.shape(Keys::HEAD).is_none() {
            return Ok(());
        }
        let mut file = PlanFile::new("lm_head_q4.bin");
        let tensor = self.stored(Keys::HEAD, DType::Q4_K)?;
        let shape = [tensor.shape[0], tensor.padded()];
        let place = file.rows(tensor, None)?;
        self.weights.push(WeightEntry::q4k(Keys::HEAD, shape, place.offset, place.len, file.name.clone()));
        self.plan.files.push(file);
        Ok(())
    }
}

/// Where gate, up and down lie, from `offset` on, which is moved behind them.
fn place(offset: &mut u64, [gate, up, down]: &[Stored; 3]) -> Result<LayerEntry> {
    let [gate, up, down] = [gate.bytes()?, up.bytes()?, down.bytes()?];
    let gate_up_len = gate.saturating_add(up);
    let gate_up_offset = *offset;
    let down_offset = gate_up_offset.saturating_add(gate_up_len);
    *offset = down_offset.checked_add(down).ok_or_else(|| {
        Error::new(ErrorKind::TensorShape, "expected a layer of fewer than 2^64 bytes, found more")
            .with_hint("the source is damaged or hostile: fetch it again")
    })?;
    Ok(LayerEntry { gate_up_offset, gate_up_len, down_offset, down_len: down })
}
