//! Do tensors that are read into memory hold the file's bytes, exist once, and give memory back?

use skulk::weights::safetensors::HfCheckpoint;
use skulk::{CancelToken, Checkpoint, ErrorKind, Memory, Region};

use crate::support::safetensors_writer::{file, folder, write};
use crate::weights::assert_error;

/// A folder with one tensor for each length in `lens`, of bytes that tell where they come from.
fn tensors(lens: &[usize]) -> (tempfile::TempDir, HfCheckpoint) {
    let bytes: Vec<Vec<u8>> = lens
        .iter()
        .enumerate()
        .map(|(i, len)| {
            (0..*len as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8 ^ i as u8).collect()
        })
        .collect();
    let names: Vec<String> = (0..lens.len()).map(|i| format!("t{i}")).collect();
    let shapes: Vec<[usize; 1]> = lens.iter().map(|len| [len / 2]).collect();
    let entries: Vec<_> = (0..lens.len())
        .map(|i| (names[i].as_str(), "F16", shapes[i].as_slice(), bytes[i].as_slice()))
        .collect();
    let folder = folder();
    write(folder.path(), "model.safetensors", &file(&entries));
    let checkpoint = HfCheckpoint::open(folder.path()).unwrap();
    (folder, checkpoint)
}

fn resident(checkpoint: &dyn Checkpoint, name: &str) -> Region {
    let region = checkpoint.region(name).unwrap().resident(&CancelToken::new()).unwrap();
    assert_eq!(region.memory(), Memory::Resident);
    region
}

const MIB: usize = 1 << 20;

/// Lengths around pages and reading steps.
const LENS: [usize; 9] = [2, 6, 4094, 4096, 4098, 131_070, 4 * MIB - 2, 4 * MIB + 10, 5 * MIB];

#[test]
fn bytes_are_the_file_s() {
    let (_folder, checkpoint) = tensors(&LENS);
    // A header that is one byte shorter: offsets are odd in one of the two files.
    let (_other, shifted) = tensors(&[&LENS[..8], &[5 * MIB + 2, 2][..]].concat());
    let odd = |checkpoint: &HfCheckpoint| checkpoint.tensors().iter().any(|t| t.offset % 2 == 1);
    assert!(odd(&checkpoint) || odd(&shifted));
    for checkpoint in [&checkpoint, &shifted] {
        // All held at once: neighbours share pages, and later ones must not disturb earlier ones.
        let regions: Vec<_> =
            checkpoint.tensors().iter().map(|tensor| resident(checkpoint, &tensor.name)).collect();
        for region in &regions {
            assert_eq!(checkpoint.region(region.name()).unwrap().memory(), Memory::Mapped);
            assert!(checkpoint.region(region.name()).unwrap().bytes() == region.bytes(), "{}", region.name());
        }
        // As in the file, so is the distance of tensors in memory: each lies at its own offset.
        let file = |region: &Region| checkpoint.tensor(region.name()).unwrap().offset as usize;
        for pair in regions.windows(2) {
            let memory = pair[1].bytes().as_ptr().addr().wrapping_sub(pair[0].bytes().as_ptr().addr());
            assert_eq!(memory, file(&pair[1]).wrapping_sub(file(&pair[0])));
        }
    }
}

#[test]
fn dropping_a_tensor_leaves_its_neighbours() {
    let (_folder, checkpoint) = tensors(&LENS);
    let names: Vec<_> = checkpoint.tensors().iter().map(|tensor| tensor.name.clone()).collect();
    for gone in 0..names.len() {
        let mut regions: Vec<_> = names.iter().map(|name| resident(&checkpoint, name)).collect();
        drop(regions.remove(gone));
        for region in &regions {
            assert!(checkpoint.region(region.name()).unwrap().bytes() == region.bytes(), "{gone} gone");
        }
        // Read again beside them, it is whole again.
        let again = resident(&checkpoint, &names[gone]);
        assert!(checkpoint.region(&names[gone]).unwrap().bytes() == again.bytes());
    }
}

#[test]
fn a_tensor_exists_once() {
    let (_folder, checkpoint) = tensors(&LENS);
    let first = resident(&checkpoint, "t7");
    let again = resident(&checkpoint, "t7");
    assert_eq!(first.bytes().as_ptr(), again.bytes().as_ptr());
    // As long as anybody holds it.
    drop(first);
    assert_eq!(again.bytes().as_ptr(), again.clone().resident(&CancelToken::new()).unwrap().bytes().as_ptr());
    assert_eq!(again.bytes().as_ptr(), resident(&checkpoint, "t7").bytes().as_ptr());
}

/// Threads that read and drop the same few tensors all the time never see anything but the file.
#[test]
fn threads_do_not_disturb_each_other() {
    let (_folder, checkpoint) = tensors(&[70_000, 10, 200_000, 66_000]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let checkpoint = &checkpoint;
            scope.spawn(move || {
                for round in 0..200 {
                    let name = format!("t{}", (round * (thread + 1) + thread) % 4);
                    let region = resident(checkpoint, &name);
                    assert!(checkpoint.region(&name).unwrap().bytes() == region.bytes(), "{name}");
                }
            });
        }
    });
}

#[test]
fn a_tensor_without_bytes_stays_mapped() {
    let (_folder, checkpoint) = tensors(&[0, 8]);
    let empty = checkpoint.region("t0").unwrap().resident(&CancelToken::new()).unwrap();
    assert_eq!((empty.memory(), empty.bytes()), (Memory::Mapped, &[][..]));
}

#[test]
fn a_file_that_shrank_is_an_error() {
    let (folder, checkpoint) = tensors(&[8 * MIB, 8 * MIB]);
    let regions = ["t0", "t1"].map(|name| checkpoint.region(name).unwrap());
    let path = folder.path().join("model.safetensors");
    let shorter = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    shorter.set_len(9 * MIB as u64).unwrap();
    let [whole, cut] = regions.map(|region| region.resident(&CancelToken::new()));
    assert_eq!(whole.unwrap().memory(), Memory::Resident);
    let parts = ["tensor: t1", "model.safetensors", "8388608 bytes", "the file has 9437184 bytes"];
    assert_error(cut, ErrorKind::CheckpointTruncated, &parts);
}

#[test]
fn reading_can_be_cancelled() {
    let (_folder, checkpoint) = tensors(&[8 * MIB]);
    let cancelled = CancelToken::new();
    cancelled.cancel();
    let error = checkpoint.region("t0").unwrap().resident(&cancelled).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    // Nothing of the attempt is left.
    assert!(checkpoint.region("t0").unwrap().bytes() == resident(&checkpoint, "t0").bytes());
}

/// Resident kibibytes of the mapping that holds an address.
#[cfg(target_os = "linux")]
fn resident_kib(address: usize) -> usize {
    let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
    let holds = |mapping: &str| {
        let (start, end) = mapping.split_once(' ').unwrap().0.split_once('-').unwrap();
        (number(start)..number(end)).contains(&address)
    };
    crate::fixtures::resident_kib(holds) as usize
}

#[cfg(target_os = "linux")]
#[test]
fn dropping_gives_memory_back() {
    const LARGE: usize = 48 * MIB;
    let (_folder, checkpoint) = tensors(&[LARGE, 2 * MIB, LARGE]);
    let (first, small, last) =
        (resident(&checkpoint, "t0"), resident(&checkpoint, "t1"), resident(&checkpoint, "t2"));
    let address = small.bytes().as_ptr().addr();
    let kib = LARGE / 1024;
    let all = resident_kib(address);
    assert!((2 * kib..2 * kib + 10 * 1024).contains(&all), "{all} KiB");
    drop(first);
    let two = resident_kib(address);
    assert!((kib..kib + 8 * 1024).contains(&two), "{two} KiB");
    drop(last);
    let one = resident_kib(address);
    assert!(one < 8 * 1024, "{one} KiB");
    assert!(checkpoint.region("t1").unwrap().bytes() == small.bytes());
    drop(small);
    // The address space went, too; whatever another thread has there by now is smaller.
    assert!(resident_kib(address) < kib);
}
