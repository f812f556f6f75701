//! Are all numbers numbers? Floats, and what blocks make of their scales.

use std::ops::Range;
use std::path::Path;

use super::{VerifyKind, VerifyProblem, named};
use crate::error::Result;
use crate::vindex::down_meta::DownMetaLayout;
use crate::vindex::files::DOWN_META;
use crate::vindex::folder::Listed;
use crate::vindex::hashes::CHUNK;
use crate::vindex::pieces::{PIECE, read_pieces};
use crate::vindex::{VindexIndex, VindexReader};
use crate::weights::mmap::open_regular;
use crate::weights::quant::dequantise;
use crate::weights::{Checkpoint, TensorInfo};

/// Elements that are decoded at a time: a whole number of every type's blocks.
const BATCH: usize = 4096;

/// Bytes of a tensor.
pub(super) struct Task<'a> {
    pub(super) file: &'a str,
    path: &'a Path,
    tensor: &'a TensorInfo,
    /// Of the file; whole blocks.
    range: Range<u64>,
}

/// Numbers of a tensor that are none.
pub(super) struct Bad {
    file: String,
    tensor: String,
    /// The first block that has any.
    range: Range<u64>,
    row: u64,
    /// Blocks that have any; of plain types, elements.
    blocks: u64,
}

/// Every tensor, in pieces.
pub(super) fn tasks<'a>(reader: &'a VindexReader) -> impl Iterator<Item = Task<'a>> {
    let of_tensor = move |tensor: &'a TensorInfo| {
        let path = reader.files().get(tensor.file).map(|file| file.path());
        path.into_iter().flat_map(move |path| {
            let name = path.strip_prefix(reader.path()).ok().and_then(Path::to_str).unwrap_or_default();
            let step = CHUNK - CHUNK % tensor.dtype.block_bytes() as u64;
            let starts = (0..tensor.len.div_ceil(step)).map(move |i| i * step);
            starts.map(move |start| {
                let end = (start + step).min(tensor.len);
                Task { file: name, path, tensor, range: tensor.offset + start..tensor.offset + end }
            })
        })
    };
    reader.tensors().iter().flat_map(of_tensor)
}

impl Task<'_> {
    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// `None`: all are numbers.
    pub(super) fn run(
        &self,
        buffer: &mut Vec<u8>,
        step: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Option<Bad>> {
        let dtype = self.tensor.dtype;
        let (block_len, block_bytes) = (dtype.block_len(), dtype.block_bytes());
        let outer = self.tensor.shape.split_last().map_or(&[][..], |(_, outer)| outer);
        let rows = outer.iter().fold(1u64, |n, &dim| n.saturating_mul(dim as u64)).max(1);
        let row_bytes = (self.tensor.len / rows).max(1);
        let mut values = vec![0f32; BATCH];
        let mut bad: Option<Bad> = None;
        let mut at = self.range.start;
        let mut carry: Vec<u8> = Vec::with_capacity(block_bytes);
        let mut look = |bytes: &[u8]| {
            for batch in bytes.chunks(BATCH / block_len * block_bytes) {
                let blocks = batch.len() / block_bytes;
                let values = &mut values[..blocks * block_len];
                dequantise(dtype, batch, values);
                // The usual case, without looking at single blocks.
                if values.iter().fold(true, |all, value| all & value.is_finite()) {
                    at += batch.len() as u64;
                    continue;
                }
                for block in values.chunks(block_len) {
                    if !block.iter().all(|value| value.is_finite()) {
                        let first = || Bad {
                            file: self.file.to_owned(),
                            tensor: self.tensor.name.clone(),
                            range: at..at + block_bytes as u64,
                            row: (at - self.tensor.offset) / row_bytes,
                            blocks: 0,
                        };
                        bad.get_or_insert_with(first).blocks += 1;
                    }
                    at += block_bytes as u64;
                }
            }
        };
        read_pieces(&open_regular(self.path)?, self.path, &self.range, buffer, |mut piece| {
            step(piece.len())?;
            // Pieces do not end where blocks do.
            if !carry.is_empty() {
                let (rest, behind) = piece.split_at((block_bytes - carry.len()).min(piece.len()));
                carry.extend_from_slice(rest);
                piece = behind;
                if carry.len() < block_bytes {
                    return Ok(());
                }
                look(&carry);
                carry.clear();
            }
            let whole = piece.len() - piece.len() % block_bytes;
            let (blocks, rest) = piece.split_at(whole);
            look(blocks);
            carry.extend_from_slice(rest);
            Ok(())
        })?;
        Ok(bad)
    }
}

/// One problem for each tensor, with the first place.
pub(super) fn joined(all: Vec<Bad>) -> impl Iterator<Item = VerifyProblem> {
    let mut tensors: Vec<Bad> = Vec::new();
    for bad in all {
        match tensors.last_mut() {
            // The pieces of a tensor lie behind each other.
            Some(last) if last.tensor == bad.tensor && last.file == bad.file => last.blocks += bad.blocks,
            _ => tensors.push(bad),
        }
    }
    tensors.into_iter().map(|bad| {
        let message = format!(
            "expected finite numbers, found others in row {}; {} blocks or elements have some in all",
            bad.row, bad.blocks
        );
        VerifyProblem::new(&bad.file, VerifyKind::NotFinite, message).at(bad.range).of_tensor(&bad.tensor)
    })
}

/// The records of `down_meta.bin`.
pub(super) struct MetaTask<'a> {
    pub(super) file: &'a str,
    path: &'a Path,
    layout: DownMetaLayout,
    vocab: usize,
}

/// The records, if their structure is sound.
pub(super) fn meta_task<'a>(files: &'a [Listed], index: &VindexIndex) -> Option<MetaTask<'a>> {
    let file = named(files, DOWN_META)?;
    let layout = DownMetaLayout::read(&file.path).ok()?;
    Some(MetaTask { file: &file.name, path: &file.path, layout, vocab: index.vocab_size })
}

impl MetaTask<'_> {
    pub(super) fn bytes(&self) -> u64 {
        self.layout.layers.iter().map(|layer| layer.end - layer.start).sum()
    }

    /// The first record whose tokens are none of the vocabulary, or whose scores are no numbers.
    pub(super) fn run(
        &self,
        buffer: &mut Vec<u8>,
        step: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Option<VerifyProblem>> {
        // Records and pieces are whole pairs of a token and its score.
        const { assert!(PIECE.is_multiple_of(8)) };
        let file = open_regular(self.path)?;
        let mut problem = None;
        for (number, layer) in self.layout.layers.iter().enumerate() {
            let mut at = layer.start;
            read_pieces(&file, self.path, layer, buffer, |piece| {
                step(piece.len())?;
                for pair in piece.as_chunks::<8>().0 {
                    let [a, b, c, d, e, f, g, h] = *pair;
                    let (token, score) = (u32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h]));
                    let wrong = match (score.is_finite(), (token as usize) < self.vocab) {
                        (true, true) => None,
                        (false, _) => {
                            Some((VerifyKind::NotFinite, format!("expected a finite score, found {score}")))
                        }
                        (_, false) => {
                            let message = format!("expected a token below {}, found {token}", self.vocab);
                            Some((VerifyKind::Format, message))
                        }
                    };
                    if let (Some((kind, message)), true) = (wrong, problem.is_none()) {
                        let feature = (at - layer.start) / self.layout.record;
                        let message = format!("{message} (layer {number}, feature {feature})");
                        problem = Some(VerifyProblem::new(self.file, kind, message).at(at..at + 8));
                    }
                    at += 8;
                }
                Ok(())
            })?;
        }
        Ok(problem)
    }
}
