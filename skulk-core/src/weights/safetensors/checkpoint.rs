//! Which safetensors files make up a checkpoint, and which of them holds a tensor?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::folder::{HfMetadata, INDEX, SINGLE, ShardIndex, open_shard};
use super::header::SafetensorsHeader;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::fp8::{FP8, Fp8};
use crate::weights::mlx::Mlx;
use crate::weights::unreadable::{Unreadable, by_name, integers};
use crate::weights::{
    Checkpoint, DType, MappedFile, Region, TensorInfo, UnreadableTensor, beside, checkpoint_fields,
    map_region, mxfp4,
};

/// The `quant_method`s of which all is read.
const METHODS: [&str; 2] = ["mxfp4", FP8];

/// An opened Hugging Face folder, or one safetensors file of such a folder. F32, F16 and BF16
/// tensors can be mapped, what MLX packed into words, gpt-oss's blocks of 4-bit floats, under the weight's name, and matrices
/// in FP8 that have scales beside them; asking for one of another type is an error, its presence is none.
///
/// ```no_run
/// use skulk::{Checkpoint, weights::safetensors::HfCheckpoint};
/// let checkpoint = HfCheckpoint::open("models/Llama-3.2-1B")?;
/// let norm = checkpoint.region("model.norm.weight")?;
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug)]
pub struct HfCheckpoint {
    path: PathBuf,
    metadata: HfMetadata,
    files: Vec<MappedFile>,
    tensors: Vec<TensorInfo>,
    unreadable: Unreadable,
    mlx: Option<Mlx>,
    fp8: Option<Fp8>,
}

impl HfCheckpoint {
    /// Opens a folder with `model.safetensors` or `model.safetensors.index.json`, or the
    /// safetensors file at `path` alone. A `config.json` must lie beside the weights.
    ///
    /// # Errors
    /// [`ErrorKind::FileNotFound`] when the path, its configuration, its weights or a shard does
    /// not exist; [`ErrorKind::ConfigInvalid`] for broken configuration files;
    /// [`ErrorKind::CheckpointInvalid`] when the index leads out of the folder or disagrees with
    /// the shards; and whatever [`SafetensorsHeader::parse`] finds in each file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if !path.is_dir() {
            let file = MappedFile::open(path)?;
            let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            return Self::empty(path, folder)?.with_file(file);
        }
        let single = path.join(SINGLE);
        if single.exists() {
            return Self::empty(path, path)?.with_file(MappedFile::open(single)?);
        }
        match ShardIndex::read(path)? {
            Some(index) => Self::empty(path, path)?.with_shards(&index),
            None => Err(Error::new(
                ErrorKind::FileNotFound,
                format!("expected {SINGLE} or {INDEX} in the folder, found neither"),
            )
            .with("file", path.display())
            .with_hint("give the folder that holds the model's weights")),
        }
    }

    /// Opens a safetensors file that is a part of another model, and has no `config.json` beside it.
    ///
    /// # Errors
    /// [`ErrorKind::FileNotFound`], and whatever [`SafetensorsHeader::parse`] finds in the file.
    pub fn open_part(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::of(path, HfMetadata::none(folder)).with_file(MappedFile::open(path)?)
    }

    fn empty(path: &Path, folder: &Path) -> Result<Self> {
        Ok(Self::of(path, HfMetadata::read(folder)?))
    }

    fn of(path: &Path, metadata: HfMetadata) -> Self {
        Self {
            path: path.to_owned(),
            mlx: Mlx::read(&metadata),
            fp8: Fp8::read(&metadata),
            metadata,
            files: Vec::new(),
            tensors: Vec::new(),
            unreadable: Unreadable::new(),
        }
    }

    fn with_file(mut self, file: MappedFile) -> Result<Self> {
        let header = SafetensorsHeader::map(&file)?;
        self.tensors = header.tensors;
        self.unreadable = by_name(header.unreadable, 0).collect();
        self.files.push(file);
        self.unpack();
        Ok(self)
    }

    fn with_shards(mut self, index: &ShardIndex) -> Result<Self> {
        let folder = self.metadata.folder.clone();
        let broken = |message: String, tensor: &str, shard: &str| {
            Error::new(ErrorKind::CheckpointInvalid, message)
                .with("file", folder.join(INDEX).display())
                .with("tensor", tensor)
                .with("shard", shard)
                .with_hint("index and shards are not of one set: fetch them all again")
        };

        // Where each tensor was found: the shard's name in the index.
        let mut found: BTreeMap<String, &str> = BTreeMap::new();
        let mut shards: Vec<&str> = index.weight_map.values().map(String::as_str).collect();
        shards.sort_unstable();
        shards.dedup();
        for shard in shards {
            let file = open_shard(&folder, shard)?;
            let header = SafetensorsHeader::map(&file)?;
            let names = header.tensors.iter().map(|t| &t.name);
            for name in names.chain(header.unreadable.iter().map(|t| &t.name)) {
                if let Some(other) = found.insert(name.clone(), shard) {
                    let message = format!("expected each tensor in one shard, found it in {other} too");
                    return Err(broken(message, name, shard));
                }
            }
            let at = self.files.len();
            let tensors = header.tensors.into_iter();
            self.tensors.extend(tensors.map(|t| TensorInfo { file: at, ..t }));
            self.unreadable.extend(by_name(header.unreadable, at));
            self.files.push(file);
        }

        for (name, shard) in &index.weight_map {
            if found.get(name) != Some(&shard.as_str()) {
                let message = "expected a tensor in the shard that the index names, found none";
                return Err(broken(message.to_owned(), name, shard));
            }
        }
        self.tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.unpack();
        Ok(self)
    }

    /// Lists what is packed. What breaks the rules stays unreadable: [`region`](Self::region) says why.
    fn unpack(&mut self) {
        let weights = self.unreadable.values().filter_map(|(_, tensor)| mxfp4::weight(tensor));
        let of_blocks: Vec<_> = weights.filter_map(|name| self.of_blocks(name)?.ok()).collect();
        for [weight, scales] in of_blocks {
            self.unreadable.remove(&mxfp4::blocks(&weight.name));
            self.unreadable.remove(&scales.name);
            self.tensors.extend([weight, scales]);
        }
        self.tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let packed = self.unreadable.values().filter_map(|(file, words)| self.packed(*file, words)?.ok());
        let packed: Vec<_> = packed.flat_map(|(words, scales)| [Some(words), scales]).flatten().collect();
        self.list(packed);
        if self.fp8.is_some() {
            let unreadable = || self.unreadable.values();
            let exponents: Vec<_> = unreadable().filter_map(|(file, it)| Fp8::exponents(*file, it)).collect();
            self.list(exponents);
            let unreadable = || self.unreadable.values();
            let floats = unreadable().filter(|(_, it)| matches!(self.of_fp8(it), Some(Ok(_))));
            let floats: Vec<_> = floats.map(|(file, it)| it.of_type(DType::FP8, *file)).collect();
            self.list(floats);
        }
    }

    /// Lists what was unreadable before.
    fn list(&mut self, tensors: Vec<TensorInfo>) {
        for info in &tensors {
            self.unreadable.remove(&info.name);
        }
        self.tensors.extend(tensors);
        self.tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }

    /// What `config.json` says the weights were quantised by, where that is not read here.
    fn foreign_method(&self) -> Option<&str> {
        let method = self.metadata.config.get("quantization_config")?.get("quant_method")?.as_str()?;
        Some(method).filter(|method| !METHODS.contains(method))
    }

    /// The weight of this name and its scales; `None` where the checkpoint has no blocks of it.
    fn of_blocks(&self, name: &str) -> Option<Result<[TensorInfo; 2]>> {
        let tensor = |name: String| self.unreadable.get(&name).map(|(file, tensor)| (*file, tensor));
        let blocks = tensor(mxfp4::blocks(name)).filter(|(_, blocks)| mxfp4::weight(blocks).is_some())?;
        if self.tensor(name).is_some() {
            return None;
        }
        Some(mxfp4::describe(name, blocks, tensor(mxfp4::scales(name))))
    }

    /// What the words of a checkpoint of MLX hold; `None` for other tensors.
    fn packed(
        &self,
        file: usize,
        words: &UnreadableTensor,
    ) -> Option<Result<(TensorInfo, Option<TensorInfo>)>> {
        let mlx = self.mlx.as_ref().filter(|_| Mlx::is_packed(words))?;
        let bytes = |name: &str| self.unreadable.get(name).map(|(file, tensor)| (*file, tensor));
        Some(mlx.describe(file, words, |name| self.tensor(name), bytes))
    }

    /// The scales of what may be a matrix in FP8, and how many rows and columns share one; `None` for other tensors.
    fn of_fp8(&self, tensor: &UnreadableTensor) -> Option<Result<(TensorInfo, [usize; 2])>> {
        let fp8 = self.fp8.as_ref().filter(|_| Fp8::is_weight(tensor))?;
        Some(fp8.scales((&tensor.name, &tensor.shape), |name| self.tensor(name)))
    }
}

impl Checkpoint for HfCheckpoint {
    checkpoint_fields!(HuggingFace);

    fn region(&self, name: &str) -> Result<Region> {
        let of_file = |error: Error| {
            let has_file = error.context().iter().any(|(key, _)| *key == "file");
            if has_file { error } else { error.with("file", self.path.display()) }
        };
        if let Some(Err(error)) = self.of_blocks(name) {
            return Err(of_file(error));
        }
        if let Some((_, tensor)) = self.unreadable.get(name)
            && let Some(Err(error)) = self.of_fp8(tensor)
        {
            return Err(of_file(error));
        }
        let is_there = self.tensor(name).is_some();
        if let Some(method) = self.foreign_method().filter(|_| !is_there) {
            return Err(Error::new(
                ErrorKind::DTypeUnsupported,
                format!("expected weights in floats, in FP8 or of the quant_method mxfp4, found {method}"),
            )
            .with("file", self.metadata.folder.join("config.json").display())
            .with("field", "quantization_config.quant_method")
            .with("tensor", name)
            .with_hint("use the model's bfloat16 checkpoint, one that MLX quantised, or a GGUF file of it"));
        }
        if let Some((file, tensor)) = self.unreadable.get(name) {
            if let Some(Err(error)) = self.packed(*file, tensor) {
                return Err(of_file(error));
            }
            let error = Error::new(
                ErrorKind::DTypeUnsupported,
                format!("expected a tensor of type F32, F16 or BF16, found {}", tensor.dtype),
            )
            .with("file", self.path.display())
            .with("tensor", name);
            let scales = name.strip_suffix("weight").map(|module| format!("{module}scales"));
            let packed = tensor.dtype == "U32" && scales.is_some_and(|scales| self.tensor(&scales).is_some());
            return Err(match packed {
                true => error
                    .with("field", "quantization")
                    .with_hint("its config.json does not say how it is quantised: fetch that again"),
                false => error.with_hint("use the model's bfloat16 checkpoint or a GGUF file of it"),
            });
        }
        let region = map_region(self, name)?;
        let Some(info) = self.tensor(name).filter(|info| info.dtype.has_scales_beside()) else {
            return Ok(region);
        };
        if let Some(fp8) = self.fp8.as_ref().filter(|_| info.dtype == DType::FP8) {
            let (scales, block) = fp8.scales((name, &info.shape), |name| self.tensor(name))?;
            let file = self.files.get(scales.file).ok_or_else(|| {
                Error::new(ErrorKind::Internal, "a tensor names a file that is not open").with("tensor", name)
            })?;
            return Ok(region.with_blocks(Region::map(file, &scales)?, block));
        }
        // Scales, then biases: they have been checked.
        let mut beside = beside(info).into_iter().filter(|name| self.tensor(name).is_some());
        let mut next = || beside.next().map(|name| map_region(self, &name)).transpose();
        let scales = next()?.ok_or_else(|| {
            Error::new(ErrorKind::Internal, "a tensor was listed without its scales").with("tensor", name)
        })?;
        let biases = if info.dtype.is_affine() { next()? } else { None };
        Ok(region.with_groups(scales, biases))
    }

    fn integers(&self, name: &str, len: usize) -> Result<Option<Vec<i64>>> {
        integers(self, &self.unreadable, name, len)
    }
}
