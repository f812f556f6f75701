//! Which files have weights as floats? Attention, up, down, norms, the head.

use super::Layout;
use crate::error::Result;
use crate::extract::keys::{Keys, Projection};
use crate::extract::plan::PlanFile;
use crate::vindex::VindexLevel;

impl Layout<'_> {
    pub(super) fn float(&mut self, level: VindexLevel) -> Result<()> {
        if level >= VindexLevel::Attention {
            self.attention()?;
        }
        if level >= VindexLevel::Inference {
            self.feed_forward()?;
        }
        if level >= VindexLevel::Attention {
            self.norms()?;
        }
        if level >= VindexLevel::Inference && self.source.shape(Keys::HEAD).is_some() {
            let mut head = PlanFile::new("lm_head.bin");
            self.put(&mut head, Keys::HEAD, self.floats, None)?;
            self.plan.files.push(head);
        }
        Ok(())
    }

    /// `attn_weights.bin`: matrices, norms of heads, and, which LARQL has none of, biases.
    fn attention(&mut self) -> Result<()> {
        let mut file = PlanFile::new("attn_weights.bin");
        for layer in 0..self.layers().len() {
            let matrices = Keys::attention(layer);
            for key in &matrices {
                self.put(&mut file, key, self.floats, Some(layer))?;
            }
            self.put_those_there(&mut file, &Keys::head_norms(layer), self.floats, layer)?;
            self.put_those_there(&mut file, &matrices.map(|key| Keys::bias(&key)), self.floats, layer)?;
        }
        self.plan.files.push(file);
        Ok(())
    }

    /// `up_weights.bin` and `down_weights.bin`: by layer, each expert's, and the router behind those of up. Biases are
    /// behind the matrices; that of the gate, whose file has none, is with those of up.
    fn feed_forward(&mut self) -> Result<()> {
        let mut up = PlanFile::new("up_weights.bin");
        let mut down = PlanFile::new("down_weights.bin");
        for layer in 0..self.layers().len() {
            let ups = self.projections(layer, Projection::Up);
            let downs = self.projections(layer, Projection::Down);
            for (up_key, down_key) in ups.iter().zip(&downs) {
                self.put(&mut up, up_key, self.floats, Some(layer))?;
                self.put(&mut down, down_key, self.floats, Some(layer))?;
            }
            let [gate_bias, up_bias, down_bias] = dense_biases(layer);
            self.put_those_there(
                &mut up,
                &[self.keys.router(layer), gate_bias, up_bias],
                self.floats,
                layer,
            )?;
            self.put_those_there(&mut down, &[down_bias], self.floats, layer)?;
        }
        self.plan.files.extend([up, down]);
        Ok(())
    }

    /// `norms.bin`.
    fn norms(&mut self) -> Result<()> {
        let mut file = PlanFile::new("norms.bin");
        for layer in 0..self.layers().len() {
            self.put_those_there(&mut file, &Keys::norms(layer), self.floats, layer)?;
        }
        self.put(&mut file, Keys::OUTPUT_NORM, self.floats, None)?;
        self.plan.files.push(file);
        Ok(())
    }
}

/// Biases of a dense block.
pub(super) fn dense_biases(layer: usize) -> [String; 3] {
    [Projection::Gate, Projection::Up, Projection::Down]
        .map(|projection| Keys::bias(&Keys::dense(layer, projection)))
}
