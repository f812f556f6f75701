//! Which tensors are in the folder, and where? From its JSON files, the sizes of the others and the headers of
//! layer files; no weight is touched.

mod blocks;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use super::files::{EMBEDDINGS, INDEX, WEIGHT_MANIFEST};
use super::folder::Folder;
use super::manifest::{QuantEntry, WeightKind, read_quant_manifest, read_weight_manifest};
use super::{PADDED, VindexIndex, invalid, truncated};
use crate::error::{Error, Result};
use crate::weights::{DType, TensorInfo, neighbours};

/// Quantised files with manifests of their own, and whether their rows are features.
pub(super) const QUANTISED: [(&str, bool); 3] =
    [("attn_weights_q4k", false), ("interleaved_q4k", false), ("down_features_q4k", true)];
/// Tensors in all, far above real models.
const MAX_TENSORS: usize = 1 << 20;

/// What was found so far.
pub(super) struct Tensors<'a> {
    index: &'a VindexIndex,
    pub(super) folder: Folder,
    found: BTreeMap<String, TensorInfo>,
    /// Tensors that a manifest lists in a file that is not there, with the file's name.
    pub(super) absent: BTreeMap<String, String>,
    /// What of `gate_vectors.bin` belongs to each layer.
    pub(super) gates: BTreeMap<usize, TensorInfo>,
}

impl<'a> Tensors<'a> {
    pub(super) fn collect(index: &'a VindexIndex, folder: Folder) -> Result<Self> {
        let mut all =
            Self { index, folder, found: BTreeMap::new(), absent: BTreeMap::new(), gates: BTreeMap::new() };
        all.weights()?;
        for (name, is_transposed) in QUANTISED {
            all.quantised(name, is_transposed)?;
        }
        if index.is_per_layer() {
            all.layers()?;
        }
        all.embeddings()?;
        all.gates()?;
        all.routers()?;
        all.check_overlaps()?;
        all.absent.retain(|name, _| !all.found.contains_key(name));
        Ok(all)
    }

    pub(super) fn sorted(&mut self) -> Vec<TensorInfo> {
        std::mem::take(&mut self.found).into_values().collect()
    }

    /// `weight_manifest.json`.
    fn weights(&mut self) -> Result<()> {
        let Some((text, path)) = self.folder.text(WEIGHT_MANIFEST)? else { return Ok(()) };
        for entry in read_weight_manifest(&text, &path)? {
            let Some(file) = self.folder.open(entry.file(), WEIGHT_MANIFEST)? else {
                self.absent.insert(entry.key.clone(), entry.file().to_owned());
                continue;
            };
            let elements = entry.shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim as u64));
            let bytes = |size: u64| elements.and_then(|n| n.checked_mul(size)) == Some(entry.length);
            let mut shape = entry.shape.clone();
            let dtype = match entry.kind()? {
                WeightKind::Float if bytes(4) => DType::F32,
                WeightKind::Float | WeightKind::F16 if bytes(2) => DType::F16,
                WeightKind::Bf16 if bytes(2) => DType::BF16,
                WeightKind::Q4K => {
                    if let Some(last) = shape.last_mut() {
                        *last = unpadded(*last, Some(self.index.hidden_size));
                    }
                    DType::Q4_K
                }
                _ => {
                    return Err(invalid(
                        format!(
                            "expected the length of {:?} floats, found {} bytes",
                            entry.shape, entry.length
                        ),
                        &path,
                    )
                    .with("tensor", &entry.key));
                }
            };
            // A router is stored as one long vector beside norms.
            if let ([n], true) = (&shape[..], entry.key.ends_with("router.proj.weight"))
                && n.is_multiple_of(self.index.hidden_size)
            {
                shape = vec![n / self.index.hidden_size, self.index.hidden_size];
            }
            self.add(entry.key, dtype, shape, file, entry.offset, entry.length)?;
        }
        Ok(())
    }

    /// One quantised file, with its manifest. `is_transposed`: rows are features, of down projections that are
    /// elsewhere too.
    fn quantised(&mut self, name: &str, is_transposed: bool) -> Result<()> {
        let (bin, manifest) = (format!("{name}.bin"), format!("{name}_manifest.json"));
        let Some((text, path)) = self.folder.text(&manifest)? else {
            return match self.folder.open(&bin, &manifest)? {
                Some(_) => Err(invalid(
                    "expected a manifest beside the weights, found none",
                    &self.folder.join(&bin),
                )
                .with("manifest", manifest)),
                None => Ok(()),
            };
        };
        let entries = read_quant_manifest(&text, &path)?;
        let file = self.folder.open(&bin, &manifest)?;
        let rows: HashMap<&str, usize> = entries.iter().map(|e| (e.key.as_str(), e.shape[0])).collect();
        for entry in &entries {
            let key = match is_transposed {
                true => entry.key.replace("down_proj", "down_features"),
                false => entry.key.clone(),
            };
            let Some(file) = file.filter(|_| !entry.is_absent()) else {
                self.absent.insert(key, bin.clone());
                continue;
            };
            let width = match is_transposed {
                true => Some(self.index.hidden_size),
                false => self.width(entry, &rows),
            };
            let shape = vec![entry.shape[0], unpadded(entry.shape[1], width)];
            self.add(key, entry.dtype()?, shape, file, entry.offset, entry.length)?;
        }
        Ok(())
    }

    /// Elements of a quantised matrix's rows without what they are padded with: as many as the rows of the matrix
    /// whose outputs it takes.
    fn width(&self, entry: &QuantEntry, rows: &HashMap<&str, usize>) -> Option<usize> {
        let feeding = |word: &str, others: &[&str]| {
            others.iter().find_map(|other| rows.get(entry.key.replace(word, other).as_str()).copied())
        };
        if entry.key.contains("o_proj") {
            let heads = self.index.model_config.as_ref().map(|m| m.num_q_heads.saturating_mul(m.head_dim));
            feeding("o_proj", &["q_proj"]).or(heads)
        } else if entry.key.contains("down_proj") {
            feeding("down_proj", &["up_proj", "gate_proj"]).or(Some(self.index.intermediate_size))
        } else {
            Some(self.index.hidden_size)
        }
    }

    /// `embeddings.bin`: the whole file.
    fn embeddings(&mut self) -> Result<()> {
        let Some(file) = self.folder.open(EMBEDDINGS, INDEX)? else { return Ok(()) };
        let (rows, width) = (self.index.vocab_size, self.index.hidden_size);
        let (len, path) = self.file(file)?;
        let dtype = whole(len, rows as u128 * width as u128, path)?;
        self.add("embed_tokens.weight".to_owned(), dtype, vec![rows, width], file, 0, len)
    }

    /// `Ok` while another tensor may be listed.
    fn check_count(&self, name: &str) -> Result<()> {
        if self.found.len() + self.absent.len() < MAX_TENSORS {
            return Ok(());
        }
        let path = self.folder.join(INDEX);
        Err(invalid(format!("expected at most {MAX_TENSORS} tensors, found more"), &path)
            .with("tensor", name))
    }

    fn is_listed(&self, name: &str) -> bool {
        self.found.contains_key(name) || self.absent.contains_key(name)
    }

    fn file(&self, at: usize) -> Result<(u64, PathBuf)> {
        self.folder.file(at).map(|file| (file.len(), file.path().to_owned()))
    }

    /// Lists a tensor, whose size must follow from its shape and lie in its file. Of several of one name the last
    /// counts, as in LARQL; the others have their offset after their name.
    fn add(
        &mut self,
        name: String,
        dtype: DType,
        shape: Vec<usize>,
        file: usize,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let (size, path) = self.file(file)?;
        let at = |e: Error| e.with("tensor", &name);
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(at(truncated(offset, len, size, &path)));
        }
        let (row_len, outer) = shape.split_last().map_or((1, &[][..]), |(&last, outer)| (last, outer));
        let rows = outer.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim));
        let bytes = |row_len: Option<usize>| {
            Some(rows?.checked_mul(dtype.row_bytes(row_len?)?)? as u64 == len).filter(|&fits| fits)
        };
        if bytes(Some(row_len)).or_else(|| bytes(row_len.checked_next_multiple_of(PADDED))).is_none() {
            return Err(at(invalid(
                format!("expected the length of {shape:?} in {dtype}, found {len} bytes"),
                &path,
            )
            .with("offset", offset)));
        }
        self.check_count(&name)?;
        let info = TensorInfo { name: name.clone(), dtype, shape, file, offset, len };
        if let Some(earlier) = self.found.insert(name, info) {
            let name = format!("{}@{}", earlier.name, earlier.offset);
            self.found.insert(name.clone(), TensorInfo { name, ..earlier });
        }
        Ok(())
    }

    fn check_overlaps(&self) -> Result<()> {
        let mut ranges: Vec<&TensorInfo> = self.found.values().filter(|t| t.len > 0).collect();
        ranges.sort_unstable_by_key(|t| (t.file, t.offset));
        let overlaps = |a: &&TensorInfo, b: &&TensorInfo| a.file == b.file && a.offset + a.len > b.offset;
        let Some((first, second)) = neighbours(&ranges, overlaps) else { return Ok(()) };
        let (_, path) = self.file(first.file)?;
        let message =
            format!("expected tensors beside each other, found `{}` within `{}`", second.name, first.name);
        Err(invalid(message, &path)
            .with("within", &first.name)
            .with("offset", second.offset)
            .with("bytes", (first.offset + first.len).min(second.offset + second.len) - second.offset))
    }
}

/// The type of a file of so many floats, by its length.
fn whole(len: u64, elements: u128, path: PathBuf) -> Result<DType> {
    match u128::from(len) {
        bytes if bytes == elements * 4 => Ok(DType::F32),
        bytes if bytes == elements * 2 => Ok(DType::F16),
        bytes if bytes < elements * 2 => {
            Err(truncated(0, u64::try_from(elements * 2).unwrap_or(u64::MAX), len, &path))
        }
        _ => Err(invalid(
            format!("expected a file of {elements} floats of 4 or 2 bytes, found {len} bytes"),
            &path,
        )),
    }
}

/// `width`, where rows of `padded` elements are it padded; else the whole row.
fn unpadded(padded: usize, width: Option<usize>) -> usize {
    width.filter(|width| width.checked_next_multiple_of(PADDED) == Some(padded)).unwrap_or(padded)
}
