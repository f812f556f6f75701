//! Where do the layers of `down_meta.bin` lie? Its header and the counts before each layer; no record is read.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::{invalid, truncated};
use crate::arch::MAX_LAYERS;
use crate::error::Result;
use crate::weights::mmap::{io_error, open_regular};

/// What the file starts with, and what old ones do.
const MAGICS: [&[u8; 4]; 2] = [b"TEMD", b"DMET"];
/// Bytes of a token and its score.
const TOKEN: u64 = 8;

/// The structure of a `down_meta.bin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetaLayout {
    /// Bytes of a feature's record.
    pub(super) record: u64,
    pub(super) layers: Vec<MetaLayer>,
}

/// A layer of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MetaLayer {
    /// Records; none for a layer that is not there.
    pub(super) features: u64,
    /// Where the first of them is.
    pub(super) offset: u64,
}

impl MetaLayout {
    /// Bytes of the header.
    pub(super) const HEADER: u64 = 16;

    /// Reads the structure of a file, which it must fill.
    ///
    /// # Errors
    /// [`CheckpointInvalid`](crate::ErrorKind::CheckpointInvalid) for another magic number or version, for impossible
    /// counts and for bytes behind the last layer,
    /// [`CheckpointTruncated`](crate::ErrorKind::CheckpointTruncated) when it ends before a layer does,
    /// [`FileIo`](crate::ErrorKind::FileIo).
    pub(super) fn read(path: &Path) -> Result<Self> {
        let mut file = open_regular(path)?;
        let size = file.metadata().map_err(|e| io_error(e, path, "inspect"))?.len();
        let mut number = |offset: u64| -> Result<[u8; 4]> {
            if offset.checked_add(4).is_none_or(|end| end > size) {
                return Err(truncated(offset, 4, size, path));
            }
            let mut bytes = [0; 4];
            file.seek(SeekFrom::Start(offset)).map_err(|e| io_error(e, path, "read"))?;
            file.read_exact(&mut bytes).map_err(|e| io_error(e, path, "read"))?;
            Ok(bytes)
        };
        let magic = number(0)?;
        if !MAGICS.contains(&&magic) {
            return Err(
                invalid(format!("expected the magic bytes TEMD, found {magic:02x?}"), path).with("offset", 0)
            );
        }
        let version = u32::from_le_bytes(number(4)?);
        if version != 1 {
            return Err(invalid(format!("expected version 1, found {version}"), path).with("offset", 4));
        }
        let layers = u32::from_le_bytes(number(8)?) as usize;
        if layers > MAX_LAYERS {
            return Err(invalid(format!("expected at most {MAX_LAYERS} layers, found {layers}"), path)
                .with("offset", 8));
        }
        let record = TOKEN * (1 + u64::from(u32::from_le_bytes(number(12)?)));
        let mut all = Vec::with_capacity(layers);
        let mut at = Self::HEADER;
        for _ in 0..layers {
            let features = u64::from(u32::from_le_bytes(number(at)?));
            let layer = MetaLayer { features, offset: at + 4 };
            // Below 2^32 records of less than 2^36 bytes each: only the sum may not fit.
            let end = features.checked_mul(record).and_then(|len| layer.offset.checked_add(len));
            at = match end.filter(|end| *end <= size) {
                Some(end) => end,
                None => {
                    return Err(truncated(layer.offset, features.saturating_mul(record), size, path));
                }
            };
            all.push(layer);
        }
        if at < size {
            return Err(invalid(format!("expected {at} bytes, found {size}"), path).with("offset", at));
        }
        Ok(Self { record, layers: all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn file(layers: &[u32], top_k: u32) -> Vec<u8> {
        let mut bytes = b"TEMD".to_vec();
        [1, layers.len() as u32, top_k].iter().for_each(|n: &u32| bytes.extend(n.to_le_bytes()));
        for features in layers {
            bytes.extend(features.to_le_bytes());
            bytes.resize(bytes.len() + *features as usize * (8 + 8 * top_k as usize), 7);
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Result<MetaLayout> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("down_meta.bin");
        std::fs::write(&path, bytes).unwrap();
        MetaLayout::read(&path)
    }

    #[test]
    fn layers_are_found() {
        let layout = read(&file(&[3, 0, 2], 2)).unwrap();
        let layer = |features, offset| MetaLayer { features, offset };
        assert_eq!(
            layout,
            MetaLayout { record: 24, layers: vec![layer(3, 20), layer(0, 96), layer(2, 100)] }
        );
        let mut old = file(&[], 0);
        old[..4].copy_from_slice(b"DMET");
        assert_eq!(read(&old).unwrap(), MetaLayout { record: 8, layers: vec![] });
    }

    #[test]
    fn what_breaks_the_format_is_refused() {
        let whole = file(&[3, 0, 2], 2);
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len]).unwrap_err().kind(), ErrorKind::CheckpointTruncated, "{len}");
        }
        for (at, value, kind, offset) in [
            (0, 0, ErrorKind::CheckpointInvalid, "0"),
            (4, 2, ErrorKind::CheckpointInvalid, "4"),
            (11, 255, ErrorKind::CheckpointInvalid, "8"),
            (8, 2, ErrorKind::CheckpointInvalid, "100"),
            (15, 255, ErrorKind::CheckpointTruncated, "20"),
            (19, 255, ErrorKind::CheckpointTruncated, "20"),
        ] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            let error = read(&bytes).unwrap_err();
            assert_eq!(error.kind(), kind, "{at}: {error}");
            assert!(error.context().contains(&("offset", offset.to_owned())), "{at}: {error}");
        }
        assert_eq!(read(&[whole, vec![0]].concat()).unwrap_err().kind(), ErrorKind::CheckpointInvalid);
    }
}
