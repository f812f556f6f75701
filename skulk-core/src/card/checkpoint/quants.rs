//! Which of a repository's GGUF files is to be taken? By the quantisations in their names, as the reference
//! chooses.

use crate::bytes::ByteSize;

/// Quantisations by preference, best first, as they stand in file names.
const PREFERENCE: [&str; 18] = [
    "q4_k_m", "q4_k_s", "q5_k_m", "q5_k_s", "q6_k", "q4_0", "q5_0", "q8_0", "q3_k_m", "q3_k_l", "q3_k_s",
    "q2_k", "iq4_xs", "iq4_nl", "iq4", "iq3", "iq2", "iq1",
];
/// Marks of weights that are not quantised. `bf16` comes before the `f16` in it.
const PLAIN: [&str; 5] = ["bf16", "f16", "fp16", "f32", "fp32"];

/// The rank of a name that tells no quantisation: after all that do.
const UNKNOWN_RANK: u32 = 1_000;
/// The rank of weights that are not quantised: after everything.
const PLAIN_RANK: u32 = 10_000;

/// One GGUF file of a folder or repository: its name, with folders before it, and its size.
///
/// ```
/// use skulk::card::{GgufFile, select_gguf};
/// let files = [GgufFile::new("m-BF16.gguf", 16), GgufFile::new("m-Q4_K_M.gguf", 4)];
/// assert_eq!(select_gguf(&files).unwrap().file.quant_label(), "Q4_K_M");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufFile {
    /// Its path in the repository, with `/` between folders.
    pub name: String,
    /// Its size.
    pub size: ByteSize,
}

/// The file that was chosen, and what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GgufChoice<'a> {
    /// The file; of a split set, the first.
    pub file: &'a GgufFile,
    /// Bytes of the file, or of all files of its set.
    pub size: ByteSize,
}

impl GgufFile {
    /// A file of `bytes` bytes.
    pub fn new(name: impl Into<String>, bytes: u64) -> Self {
        Self { name: name.into(), size: ByteSize(bytes) }
    }

    /// Whether it holds a language model: it is called a GGUF file, and not a multi-modal projector's.
    pub fn holds_a_model(&self) -> bool {
        self.name.ends_with(".gguf") && !self.holds_a_projector()
    }

    /// Whether it is called the GGUF file of a multi-modal projector.
    pub fn holds_a_projector(&self) -> bool {
        self.name.ends_with(".gguf") && self.name.to_lowercase().contains("mmproj")
    }

    /// How much its quantisation is wanted: the lower, the more.
    pub fn quant_rank(&self) -> u32 {
        let name = self.base_name().to_lowercase();
        let known = (0..).zip(PREFERENCE).find(|(_, mark)| name.contains(mark));
        match known {
            Some((rank, _)) => rank,
            None if PLAIN.iter().any(|mark| name.contains(mark)) => PLAIN_RANK,
            None => UNKNOWN_RANK,
        }
    }

    /// Its quantisation as people write it, as in `Q4_K_M`; empty where the name does not tell.
    pub fn quant_label(&self) -> String {
        let name = self.base_name().to_lowercase();
        let mark = PREFERENCE.iter().chain(&PLAIN).find(|mark| name.contains(*mark));
        mark.map(|mark| mark.to_uppercase()).unwrap_or_default()
    }

    /// What all files of its split set share; `None` for a file of its own. `a-Q6_K-00001-of-00003.gguf` is one of
    /// the set `a-Q6_K`.
    pub fn shard_base(&self) -> Option<&str> {
        let stem = self.name.strip_suffix(".gguf").unwrap_or(&self.name);
        let mut parts = stem.rsplitn(4, '-');
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let numbered = parts.next().is_some_and(digits)
            && parts.next() == Some("of")
            && parts.next().is_some_and(digits);
        parts.next().filter(|_| numbered)
    }

    /// What to download for it: the file or its set, and projectors.
    pub fn download_patterns(&self) -> Vec<String> {
        let weights = match self.shard_base() {
            Some(base) => format!("{base}-*-of-*.gguf"),
            None => self.name.clone(),
        };
        vec![weights, "*mmproj*.gguf".to_owned()]
    }

    fn base_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }
}

/// Chooses a file by quantisation, then by name, so that of a split set it is the first. `None` when there are no
/// files.
pub fn select_gguf(files: &[GgufFile]) -> Option<GgufChoice<'_>> {
    let file = files.iter().min_by_key(|file| (file.quant_rank(), file.base_name()))?;
    Some(GgufChoice { file, size: group_size(file, files) })
}

/// Bytes of the file and of all others of its set.
fn group_size(file: &GgufFile, files: &[GgufFile]) -> ByteSize {
    match file.shard_base() {
        None => file.size,
        base => files.iter().filter(|other| other.shard_base() == base).map(|other| other.size).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projectors_are_no_models() {
        let named = |name: &str| GgufFile::new(name, 1);
        assert!(named("m-Q4_K_M.gguf").holds_a_model());
        assert!(!named("MMPROJ-f16.gguf").holds_a_model());
        assert!(named("MMPROJ-f16.gguf").holds_a_projector());
        assert!(!named("mmproj.bin").holds_a_projector());
        assert!(!named("model.safetensors").holds_a_model());
    }

    #[test]
    fn sets_are_told_by_numbers_around_of() {
        let base = |name: &str| GgufFile::new(name, 1).shard_base().map(str::to_owned);
        assert_eq!(base("a-b-00001-of-00003.gguf").as_deref(), Some("a-b"));
        assert_eq!(base("d/a-1-of-3.gguf").as_deref(), Some("d/a"));
        for other in ["a.gguf", "1-of-3.gguf", "a-x-of-3.gguf", "a-1-off-3.gguf", "a--of-3.gguf"] {
            assert_eq!(base(other), None, "{other}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_summed_saturate() {
        let files = [GgufFile::new("a-1-of-2.gguf", u64::MAX), GgufFile::new("a-2-of-2.gguf", 1)];
        assert_eq!(select_gguf(&files).unwrap().size, ByteSize(u64::MAX));
        assert_eq!(select_gguf(&[]), None);
    }
}
