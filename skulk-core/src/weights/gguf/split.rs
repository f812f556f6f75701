//! Which files belong to a split set? Names of the form `model-00001-of-00003.gguf`.

use std::path::{Path, PathBuf};

/// The name of one shard, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::weights) struct ShardName<'a> {
    /// What all shards of the set share.
    pub(in crate::weights) prefix: &'a str,
    /// Counted from one.
    pub(in crate::weights) number: u64,
    /// Shards in the set.
    pub(in crate::weights) count: u64,
}

impl<'a> ShardName<'a> {
    /// Takes a file name apart; `None` when it is not of a shard's form.
    pub(in crate::weights) fn parse(path: &'a Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        Some(Self {
            prefix,
            number: five_digits(number)?,
            count: five_digits(count)?,
        })
    }

    /// The path of the set's shard `number`, beside `path`.
    pub(super) fn sibling(&self, path: &Path, number: u64) -> PathBuf {
        path.with_file_name(format!(
            "{}-{number:05}-of-{:05}.gguf",
            self.prefix, self.count
        ))
    }
}

fn five_digits(text: &str) -> Option<u64> {
    let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_shard_names_apart_and_builds_their_siblings() {
        let path = Path::new("dir/a-b-00002-of-00003.gguf");
        let name = ShardName::parse(path).unwrap();
        assert_eq!((name.prefix, name.number, name.count), ("a-b", 2, 3));
        assert_eq!(
            name.sibling(path, 1),
            Path::new("dir/a-b-00001-of-00003.gguf")
        );
        for other in [
            "a.gguf",
            "a-1-of-3.gguf",
            "a-00001-of-+0003.gguf",
            "a-00001-of-00003.bin",
        ] {
            assert_eq!(ShardName::parse(Path::new(other)), None, "{other}");
        }
    }
}
