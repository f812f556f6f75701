//! What do all levels have? Gate vectors, routers, embeddings, tokens of features, the tokenizer.

use super::Layout;
use crate::error::Result;
use crate::extract::keys::{Keys, Projection};
use crate::extract::plan::{Content, PlanFile, too_large};
use crate::extract::source::FileContent;
use crate::extract::tokens::{header, layer_bytes};
use crate::vindex::VindexLayer;
use crate::vindex::files::{DOWN_META, EMBEDDINGS, GATES, ROUTERS};

impl Layout<'_> {
    pub(super) fn browse(&mut self) -> Result<()> {
        let mut embeddings = PlanFile::new(EMBEDDINGS);
        embeddings.rows(self.stored(Keys::EMBEDDINGS, self.floats)?, None)?;
        self.plan.files.push(embeddings);
        self.gates()?;
        self.routers()?;
        self.feature_tokens()?;
        self.tokenizer()
    }

    /// `gate_vectors.bin`. Where it is left out, the index tells of it nevertheless, as LARQL's does.
    fn gates(&mut self) -> Result<()> {
        let mut file = PlanFile::new(GATES);
        for (layer, spec) in self.layers().iter().enumerate() {
            let experts = spec.ffn.experts.map(|experts| experts.n_experts);
            let offset = file.len;
            let mut rows = 0;
            for key in self.projections(layer, Projection::Gate) {
                let tensor = self.stored(&key, self.floats)?;
                rows += tensor.shape[0];
                file.rows(tensor, Some(layer))?;
            }
            self.plan.layers.push(VindexLayer {
                layer,
                num_features: rows,
                offset,
                length: file.len - offset,
                num_experts: experts,
                num_features_per_expert: experts.map(|_| spec.ffn.width),
            });
        }
        if self.options.gate_vectors {
            self.plan.files.push(file);
        }
        Ok(())
    }

    /// A layer's matrices of one kind: one, or one for each expert.
    pub(super) fn projections(&self, layer: usize, projection: Projection) -> Vec<String> {
        match self.layers().get(layer).and_then(|spec| spec.ffn.experts) {
            Some(experts) => {
                (0..experts.n_experts).map(|expert| self.keys.expert(layer, expert, projection)).collect()
            }
            None => vec![Keys::dense(layer, projection)],
        }
    }

    /// `router_weights.bin`, of models with experts.
    fn routers(&mut self) -> Result<()> {
        let mut file = PlanFile::new(ROUTERS);
        for (layer, spec) in self.layers().iter().enumerate() {
            if spec.ffn.experts.is_some() {
                file.rows(self.stored(&self.keys.router(layer), self.floats)?, Some(layer))?;
            }
        }
        if !file.sections.is_empty() {
            self.plan.files.push(file);
        }
        Ok(())
    }

    /// `down_meta.bin`.
    fn feature_tokens(&mut self) -> Result<()> {
        let top_k = self.plan.feature_tokens;
        if top_k == 0 {
            return Ok(());
        }
        let mut file = PlanFile::new(DOWN_META);
        file.bytes(header(self.plan.layers.len(), top_k)?)?;
        for entry in &self.plan.layers {
            let len = layer_bytes(entry.num_features, top_k).ok_or_else(|| too_large(DOWN_META))?;
            file.push(len, Some(entry.layer), Content::FeatureTokens(entry.layer))?;
        }
        self.plan.files.push(file);
        Ok(())
    }

    /// Files that are not weights.
    fn tokenizer(&mut self) -> Result<()> {
        for file in self.source.tokenizer_files(self.tokenizer.take())? {
            self.plan.files.push(match file.content {
                FileContent::Copy(path) => PlanFile::copy_of(file.name, path)?,
                FileContent::Text(text) => PlanFile::of_bytes(file.name, text.into_bytes())?,
            });
        }
        Ok(())
    }
}
