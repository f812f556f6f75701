//! Can any damage to a file make a reader panic, or list a tensor that does not map?

use std::path::{Path, PathBuf};

use rand_chacha::rand_core::{RngCore, SeedableRng};
use skulk::weights::gguf::GgufCheckpoint;
use skulk::weights::safetensors::HfCheckpoint;
use skulk::{Checkpoint, ErrorKind};

use crate::support::{exercise, gguf_writer, safetensors_writer};

type Exercise = fn(&[u8]) -> skulk::Result<()>;

const READERS: [(&str, Exercise); 2] = [("gguf", exercise::gguf), ("safetensors", exercise::safetensors)];

fn seed(reader: &str) -> Vec<u8> {
    match reader {
        "gguf" => gguf_writer::small().build(),
        _ => safetensors_writer::small(),
    }
}

/// Opens the bytes as a file and maps every tensor that it lists.
fn map_all(reader: &str, folder: &Path, bytes: &[u8]) {
    let path = folder.join("model.safetensors");
    std::fs::write(&path, bytes).unwrap();
    let opened: skulk::Result<Box<dyn Checkpoint>> = match reader {
        "gguf" => GgufCheckpoint::open(&path).map(|c| Box::new(c) as _),
        _ => HfCheckpoint::open(&path).map(|c| Box::new(c) as _),
    };
    // The file may now claim to be one of a set.
    let Ok(checkpoint) = opened else { return };
    for tensor in checkpoint.tensors() {
        let region = checkpoint.region(&tensor.name).unwrap();
        let sum = region.bytes().iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
        std::hint::black_box(sum);
    }
}

#[test]
fn every_truncation_is_an_error() {
    for (reader, exercise) in READERS {
        let bytes = seed(reader);
        exercise(&bytes).unwrap();
        // The last tensor's padding may be missing.
        let needed = match reader {
            "gguf" => bytes.len() - 8,
            _ => bytes.len(),
        };
        for len in 0..needed {
            let error = exercise(&bytes[..len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CheckpointTruncated, "{reader} {len}: {error}");
        }
    }
}

#[test]
fn every_flipped_bit_is_an_error_or_harmless() {
    let folder = safetensors_writer::folder();
    for (reader, exercise) in READERS {
        let bytes = seed(reader);
        let mut survived = 0;
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if exercise(&flipped).is_ok() {
                survived += 1;
                map_all(reader, folder.path(), &flipped);
            }
        }
        assert!(survived > 0, "{reader}: flips in the data are harmless");
    }
}

#[test]
fn seeded_mutations_are_errors_or_harmless() {
    let folder = safetensors_writer::folder();
    for (reader, exercise) in READERS {
        let mut seeds = vec![seed(reader)];
        seeds.extend(regressions(reader).iter().map(|path| std::fs::read(path).unwrap()));
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(20);
        for _ in 0..20_000 {
            let mut bytes = pick(&mut rng, &seeds).clone();
            for _ in 0..1 + rng.next_u32() % 4 {
                mutate(&mut rng, &mut bytes);
            }
            if exercise(&bytes).is_ok() {
                map_all(reader, folder.path(), &bytes);
            }
        }
    }
}

fn pick<'a, T>(rng: &mut impl RngCore, from: &'a [T]) -> &'a T {
    &from[rng.next_u32() as usize % from.len()]
}

/// One change of the kinds that break parsers: bytes, numbers at their limits, copies, cuts.
fn mutate(rng: &mut impl RngCore, bytes: &mut Vec<u8>) {
    const NUMBERS: [u64; 8] = [0, 1, 0xff, 1 << 31, u32::MAX as u64, 1 << 61, 1 << 63, u64::MAX];
    if bytes.is_empty() {
        return;
    }
    let at = rng.next_u32() as usize % bytes.len();
    let end = bytes.len().min(at + 1 + rng.next_u32() as usize % 16);
    match rng.next_u32() % 6 {
        0 => bytes[at] = rng.next_u32() as u8,
        1 => bytes[at] = bytes[at].wrapping_add(1),
        2 => {
            let number = pick(rng, &NUMBERS).to_le_bytes();
            let len = number.len().min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&number[..len]);
        }
        3 => drop(bytes.drain(at..end)),
        4 => bytes.truncate(at),
        _ => {
            let copy = bytes[at..end].to_vec();
            let to = rng.next_u32() as usize % bytes.len();
            bytes.splice(to..to, copy);
        }
    }
}

/// The files that once broke a reader, or were made to.
fn regressions(reader: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/regressions");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(root.join(reader)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort_unstable();
    paths
}

#[test]
fn every_regression_file_is_refused() {
    for (reader, exercise) in READERS {
        let paths = regressions(reader);
        assert!(!paths.is_empty());
        for path in paths {
            let outcome = exercise(&std::fs::read(&path).unwrap());
            assert!(outcome.is_err(), "{} was accepted", path.display());
        }
    }
}
