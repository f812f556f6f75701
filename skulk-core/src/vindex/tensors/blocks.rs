//! Where do gate vectors, routers, and the blocks of `layers/` lie?

use super::{Tensors, whole};
use crate::error::Result;
use crate::vindex::files::{GATES, INDEX, ROUTERS, layer_file};
use crate::vindex::layer_file::LayerHeader;
use crate::vindex::{VindexIndex, VindexLayer, invalid};
use crate::weights::{DType, TensorInfo};

impl Tensors<'_> {
    /// `gate_vectors.bin`: what the index says.
    pub(super) fn gates(&mut self) -> Result<()> {
        let Some(file) = self.folder.open(GATES, INDEX)? else { return Ok(()) };
        let index = self.index;
        for layer in &index.layers {
            let (_, path) = self.file(file)?;
            let elements = layer.num_features.checked_mul(index.hidden_size).map(|n| n as u64);
            let is = |size: u64| elements.and_then(|n| n.checked_mul(size)) == Some(layer.length);
            let dtype = match (is(4), is(2)) {
                (true, _) => DType::F32,
                (_, true) => DType::F16,
                _ => {
                    return Err(invalid(
                        format!(
                            "expected the length of {} rows of {} floats, found {} bytes",
                            layer.num_features, index.hidden_size, layer.length
                        ),
                        &path,
                    )
                    .with("layer", layer.layer)
                    .with("offset", layer.offset));
                }
            };
            self.gate(layer, dtype, file)?;
        }
        Ok(())
    }

    /// A layer's gate vectors: its gate projection, or each expert's. Where those are elsewhere too, or fewer vectors
    /// stand for an expert than it has features, they go by a name of their own.
    fn gate(&mut self, layer: &VindexLayer, dtype: DType, file: usize) -> Result<()> {
        let (at, width) = (layer.layer, self.index.hidden_size);
        let whole = TensorInfo {
            name: format!("layers.{at}.gate_vectors"),
            dtype,
            shape: vec![layer.num_features, width],
            file,
            offset: layer.offset,
            len: layer.length,
        };
        self.gates.insert(at, whole.clone());
        let (n, rows) = match (layer.num_experts, layer.num_features_per_expert) {
            (Some(n), Some(rows)) => (n, rows),
            _ => (1, layer.num_features),
        };
        let held = self.index.gate_experts(layer);
        let block = |i: usize| held.as_ref().map_or(Some(i), |held| held.nth(i)).unwrap_or(i);
        let names = LayerNames { are_experts: layer.num_experts.is_some(), entries: n };
        let [first, ..] = self.block_names(at, &names, block(0));
        if self.index.is_summary(layer) || self.is_listed(&first) {
            return self.add(whole.name, dtype, whole.shape, file, whole.offset, whole.len);
        }
        let each = layer.length / n as u64;
        for i in 0..n {
            let [name, ..] = self.block_names(at, &names, block(i));
            let offset = layer.offset.saturating_add(each * i as u64);
            self.add(name, dtype, vec![rows, width], file, offset, each)?;
        }
        Ok(())
    }

    /// An expert's matrix in the family's spelling.
    fn expert(&self, expert: usize, word: &str, mixtral: &str) -> String {
        match self.index.model_type() {
            "mixtral" => format!("block_sparse_moe.experts.{expert}.{mixtral}.weight"),
            _ if self.index.moe().is_some_and(|moe| moe.hybrid) => format!("experts.{expert}.{word}.weight"),
            _ => format!("mlp.experts.{expert}.{word}.weight"),
        }
    }

    /// `router_weights.bin`: a matrix for each layer with experts, and a bias behind it or not, by the file's size. Where the index
    /// does not say how many experts there are, as only those who generate need, it is left alone.
    pub(super) fn routers(&mut self) -> Result<()> {
        let Some(moe) = self.index.moe() else { return Ok(()) };
        let Some(file) = self.folder.open(ROUTERS, INDEX)? else { return Ok(()) };
        let (len, path) = self.file(file)?;
        // Sizes are below 2^28 each, and layers below 2^12.
        let (n, width) = (moe.num_experts as u128, self.index.hidden_size as u128);
        let sparse: Vec<usize> = self
            .index
            .layers
            .iter()
            .filter(|layer| moe.hybrid || layer.num_experts.is_some())
            .map(|layer| layer.layer)
            .collect();
        let weights = sparse.len() as u128 * n * width;
        let biases = sparse.len() as u128 * n;
        let size = if self.index.dtype() == DType::F16 { 2 } else { 4 };
        let (dtype, has_bias) = match len {
            _ if u128::from(len) == (weights + biases) * size && biases > 0 => (self.index.dtype(), true),
            _ => (whole(len, weights, path)?, false),
        };
        let size = if dtype == DType::F16 { 2 } else { 4 };
        // All layers' together are the file's length.
        let (matrix, bias) = ((n * width * size) as u64, (n * size) as u64);
        let mut offset = 0;
        for layer in sparse {
            let base = match self.index.model_type() {
                "mixtral" => format!("layers.{layer}.block_sparse_moe.gate"),
                _ if moe.hybrid => format!("layers.{layer}.router.proj"),
                _ => format!("layers.{layer}.mlp.gate"),
            };
            let name = format!("{base}.weight");
            // A slice may have this copy and not the other.
            let name = match self.found.contains_key(&name) {
                true => format!("layers.{layer}.router_weights"),
                false => name,
            };
            let shape = vec![moe.num_experts, self.index.hidden_size];
            self.add(name, dtype, shape, file, offset, matrix)?;
            offset += matrix;
            if has_bias {
                self.add(format!("{base}.bias"), dtype, vec![moe.num_experts], file, offset, bias)?;
                offset += bias;
            }
        }
        Ok(())
    }

    /// `layers/layer_NN.weights`.
    pub(super) fn layers(&mut self) -> Result<()> {
        for layer in (0..self.index.num_layers).filter(|layer| self.index.has_layer(*layer)) {
            let name = layer_file(layer);
            let names = LayerNames::of(self.index, layer);
            let Some(file) = self.folder.open(&name, INDEX)? else {
                for entry in 0..names.entries {
                    self.lacks(self.block_names(layer, &names, entry), &name)?;
                }
                continue;
            };
            let opened = self.folder.file(file)?;
            let header = LayerHeader::read(opened)?;
            let (hidden, width) = (header.hidden, header.intermediate);
            if hidden != self.index.hidden_size {
                return Err(invalid(
                    format!("expected the width {} of the index, found {hidden}", self.index.hidden_size),
                    opened.path(),
                )
                .with("offset", 20));
            }
            if !names.are_experts && header.entries.len() != 1 {
                return Err(invalid(
                    format!("expected one entry in a layer without experts, found {}", header.entries.len()),
                    opened.path(),
                )
                .with("offset", 12));
            }
            for (i, entry) in header.entries.iter().enumerate() {
                let [gate, up, down] = self.block_names(layer, &names, i);
                if entry.is_absent() {
                    self.lacks([gate, up, down], &name)?;
                    continue;
                }
                let half = entry.gate_up_len / 2;
                let mut put = |name: String, shape: [usize; 2], offset: u64, len: u64| {
                    self.add(name, header.dtype, shape.to_vec(), file, offset, len)
                };
                put(gate, [width, hidden], entry.gate_up_offset, half)?;
                put(up, [width, hidden], entry.gate_up_offset + half, half)?;
                put(down, [hidden, width], entry.down_offset, entry.down_len)?;
            }
        }
        Ok(())
    }

    /// Gate, up and down of one entry of a layer's file.
    fn block_names(&self, layer: usize, names: &LayerNames, entry: usize) -> [String; 3] {
        [("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")].map(|(word, mixtral)| {
            let block = match names.are_experts {
                true => self.expert(entry, word, mixtral),
                false => format!("mlp.{word}.weight"),
            };
            format!("layers.{layer}.{block}")
        })
    }

    /// Lists tensors that the folder lacks.
    fn lacks(&mut self, names: [String; 3], file: &str) -> Result<()> {
        for name in names {
            self.check_count(&name)?;
            self.absent.insert(name, file.to_owned());
        }
        Ok(())
    }
}

/// What the entries of a layer's file are.
struct LayerNames {
    /// Experts, or one dense block.
    are_experts: bool,
    /// How many the index makes one expect.
    entries: usize,
}

impl LayerNames {
    fn of(index: &VindexIndex, layer: usize) -> Self {
        let entry = index.layers.iter().find(|entry| entry.layer == layer);
        match (index.moe(), entry.and_then(|entry| entry.num_experts)) {
            // Beside each layer's dense block.
            (Some(moe), _) if moe.hybrid => Self { are_experts: true, entries: moe.num_experts },
            (moe, Some(entries)) => {
                Self { are_experts: true, entries: moe.map_or(entries, |moe| moe.num_experts) }
            }
            _ => Self { are_experts: false, entries: 1 },
        }
    }
}
