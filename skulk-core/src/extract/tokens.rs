//! What do a layer's features write? The layer's part of `down_meta.bin`.

use std::ops::Range;
use std::sync::Arc;

use super::feature_tokens::LayerTokens;
use super::keys::{Keys, Projection};
use super::plan::Stored;
use super::source::{Source, SourceTensor};
use crate::cancel::CancelToken;
use crate::engine::cpu::Nearest;
use crate::error::{Error, ErrorKind, Result};
use crate::vindex::down_meta::DownMetaWriter;
use crate::weights::{DType, MappedFile, Region, TensorInfo};

/// What stands before the first layer.
pub(super) fn header(layers: usize, top_k: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    DownMetaWriter::new(&mut bytes, layers, top_k)?;
    Ok(bytes)
}

/// Bytes of a layer; `None` when they are too many to count.
pub(super) fn layer_bytes(features: usize, top_k: usize) -> Option<u64> {
    let record = 8u64.checked_mul(top_k as u64 + 1)?;
    record.checked_mul(features as u64)?.checked_add(4)
}

/// The token embeddings: as the source has them, or, where it packs them otherwise, as they are written.
pub(super) fn table(source: &Source<'_>, written: &std::path::Path, floats: DType) -> Result<Region> {
    let tensor = source.tensor(Keys::EMBEDDINGS)?;
    if let Some(region) = tensor.region() {
        return Ok(region.clone());
    }
    let file = MappedFile::open(written)?;
    let len = file.len();
    let name = Keys::EMBEDDINGS.to_owned();
    Region::map(
        &file,
        &TensorInfo { name, dtype: floats, shape: tensor.shape().into(), file: 0, offset: 0, len },
    )
}

/// Compares features with the embeddings.
pub(super) struct Tokens<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) keys: Keys,
    pub(super) nearest: &'a Nearest<'a>,
    pub(super) is_empty: &'a [bool],
    pub(super) pool: &'a rayon::ThreadPool,
    pub(super) top_k: usize,
}

impl Tokens<'_> {
    /// A layer's part of the file, into `out`.
    pub(super) fn layer(&self, layer: usize, cancel: &CancelToken, out: &mut Vec<u8>) -> Result<()> {
        let spec = self.source.arch().layers.get(layer);
        let ffn = &spec.ok_or_else(|| Error::new(ErrorKind::Internal, "a layer is not described"))?.ffn;
        let experts = ffn.experts.map(|experts| experts.n_experts);
        let mut columns = Columns {
            source: self.source,
            pool: self.pool,
            cancel,
            key: |expert| match experts {
                Some(_) => self.keys.expert(layer, expert, Projection::Down),
                None => Keys::dense(layer, Projection::Down),
            },
            width: ffn.width,
            open: None,
            panel: Vec::new(),
            turned: Vec::new(),
            held: 0..0,
        };
        out.clear();
        let mut to = DownMetaWriter::new(&mut *out, 1, self.top_k)?;
        let hidden = self.source.arch().hidden_size;
        let features = ffn.width.saturating_mul(experts.unwrap_or(1));
        LayerTokens::new(self.nearest, hidden, self.is_empty).layer(
            layer,
            features,
            |features, values| columns.fill(features, hidden, values),
            &mut to,
            cancel,
        )?;
        to.finish()?;
        out.drain(..header(1, self.top_k)?.len().min(out.len()));
        Ok(())
    }
}

/// Columns of a layer's down projections, one block's behind the other's.
struct Columns<'a, K> {
    source: &'a Source<'a>,
    pool: &'a rayon::ThreadPool,
    cancel: &'a CancelToken,
    key: K,
    /// Columns of one block.
    width: usize,
    /// The block that is read.
    open: Option<(usize, Stored, Arc<SourceTensor>)>,
    panel: Vec<f32>,
    /// Some columns, and which they are.
    turned: Vec<f32>,
    held: Range<usize>,
}

impl<K: Fn(usize) -> String> Columns<'_, K> {
    fn fill(&mut self, features: Range<usize>, hidden: usize, values: &mut [f32]) -> Result<()> {
        for (feature, values) in features.zip(values.chunks_exact_mut(hidden)) {
            if !self.held.contains(&feature) {
                self.turn(feature)?;
            }
            let at = (feature - self.held.start) * hidden;
            match self.turned.get(at..at + hidden) {
                Some(column) => values.copy_from_slice(column),
                None => return Err(Error::new(ErrorKind::Internal, "a feature has no column")),
            }
        }
        Ok(())
    }

    /// Turns as many columns as fit into memory, from this feature on.
    fn turn(&mut self, feature: usize) -> Result<()> {
        let (block, at) = (feature / self.width.max(1), feature % self.width.max(1));
        if self.open.as_ref().is_none_or(|(open, ..)| *open != block) {
            let key = (self.key)(block);
            let stored = Stored::new(self.source, key.clone(), DType::F32)?;
            self.open = Some((block, stored, Arc::new(self.source.tensor(&key)?)));
        }
        let Some((_, stored, tensor)) = &self.open else { return Ok(()) };
        let columns = at..self.width.min(at + stored.panel());
        let (panel, turned, cancel) = (&mut self.panel, &mut self.turned, self.cancel);
        self.pool.install(|| stored.turn(tensor, columns.clone(), cancel, panel, turned))?;
        self.held = feature..feature + columns.len();
        Ok(())
    }
}
