//! How fast is a file read from where it lies? Measured past the system's cache, in some hundredths of a second. What
//! most reads reach counts: drives that others use too stop for a while now and then.

use std::path::Path;

use crate::bytes::ByteSize;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Node;
use crate::weights::io_error;

/// Bytes of the smallest file that is measured: of less the time until the drive begins says most.
const LEAST: u64 = 1 << 20;

impl Node {
    /// Bytes a second at which this machine reads the file at `path` from its drive, whatever the system's cache has of it:
    /// what weights that stay in their file cost. Reads for about 50 ms, at most 256 MiB, from places all over the
    /// file, as experts lie; nothing is kept.
    ///
    /// # Errors
    /// [`ErrorKind::FileNotFound`](crate::ErrorKind::FileNotFound) when there is nothing at the path;
    /// [`ErrorKind::FileIo`](crate::ErrorKind::FileIo) for what cannot be opened or read, is no regular file or has less than a
    /// mebibyte, which tells how long a drive takes to begin, and where the system has no way past its cache: all but Linux,
    /// and file systems without drives, as `tmpfs`.
    pub fn measure_disk(path: impl AsRef<Path>) -> Result<f64> {
        let path = path.as_ref();
        // Some file systems refuse to open folders past the cache.
        is_measured(path, &std::fs::metadata(path).map_err(|e| io_error(e, path, "find"))?)?;
        measure(path)
    }
}

/// Whether it is a file that tells how fast its drive is.
fn is_measured(path: &Path, told: &std::fs::Metadata) -> Result<()> {
    let found = match (told.is_dir(), told.is_file()) {
        (true, _) => "a folder".to_owned(),
        (_, false) => "something else".to_owned(),
        (_, true) if told.len() < LEAST => ByteSize(told.len()).to_string(),
        _ => return Ok(()),
    };
    let message = format!("expected a regular file of at least {}, found {found}", ByteSize(LEAST));
    Err(Error::new(ErrorKind::FileIo, message)
        .with("file", path.display())
        .with_hint("give the path of the weight file itself"))
}

#[cfg(target_os = "linux")]
fn measure(path: &Path) -> Result<f64> {
    use std::fs::File;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::time::{Duration, Instant};

    /// What reads past the cache begin and end at, in files and in memory.
    const ALIGNED: usize = 4096;
    /// Bytes that are read at once, as many as drives need to read side by side.
    const AT_ONCE: usize = 4 << 20;
    /// Reads, and how far apart, as a share of the file: the golden section.
    const MOST: u32 = 64;
    const GOLDEN: f64 = 0.618_033_988_749_895;
    const TIME: Duration = Duration::from_millis(50);

    let failed = |message: String| Error::new(ErrorKind::FileIo, message).with("file", path.display());
    // A pipe is opened without waiting for who writes.
    let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::NONBLOCK;
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path).map_err(|e| match e.raw_os_error() {
        Some(code) if code == rustix::io::Errno::INVAL.raw_os_error() => {
            failed("expected a drive whose reads can go past the system's cache, found none".to_owned())
                .with_hint("give the speed of the drive, or a file on another one")
                .with_source(e)
        }
        _ => io_error(e, path, "open"),
    })?;
    let told = file.metadata().map_err(|e| io_error(e, path, "inspect"))?;
    is_measured(path, &told)?;
    let mut room = vec![0u8; AT_ONCE + ALIGNED];
    let first = room.as_ptr().align_offset(ALIGNED).min(ALIGNED);
    let buffer = &mut room[first..][..AT_ONCE];
    let last = told.len().saturating_sub(AT_ONCE as u64);
    let (start, mut speeds) = (Instant::now(), Vec::new());
    for turn in 0..MOST {
        if start.elapsed() >= TIME || turn > 0 && last == 0 {
            break;
        }
        // Wherever it stops, places lie evenly between the file's ends.
        let place = (f64::from(turn) * GOLDEN).fract() * last as f64;
        let before = Instant::now();
        match file.read_at(buffer, place as u64 / ALIGNED as u64 * ALIGNED as u64) {
            Ok(0) => return Err(failed("expected a file with bytes to read, found that it ends".to_owned())),
            Ok(n) => speeds.push(n as f64 / before.elapsed().as_secs_f64().max(1e-9)),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => {
                return Err(failed("cannot read the file past the system's cache".to_owned()).with_source(e));
            }
        }
    }
    speeds.sort_unstable_by(f64::total_cmp);
    let middle = speeds.get((speeds.len().max(1) - 1) / 2).copied();
    middle.ok_or_else(|| failed("expected a read that nothing interrupts, found none".to_owned()))
}

#[cfg(not(target_os = "linux"))]
fn measure(path: &Path) -> Result<f64> {
    let message =
        "expected a system that reads files past its cache, found one that this library does not measure on";
    Err(Error::new(ErrorKind::FileIo, message)
        .with("file", path.display())
        .with_hint("give the speed of the drive"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever drive the file is on, there is a speed, or an error that says why not.
    #[test]
    fn a_file_of_any_size_is_measured_or_refused() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for bytes in [0, 1, 4096, 5000, (1 << 20) - 1, (1 << 20) + 5, (9 << 20) + 1] {
            let path = folder.path().join(bytes.to_string());
            std::fs::write(&path, vec![1; bytes]).unwrap();
            match Node::measure_disk(&path) {
                Ok(speed) => {
                    assert!(bytes >= 1 << 20 && speed.is_finite() && speed > 0.0, "{bytes}: {speed}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::FileIo, "{error}");
                    assert!(error.hint().is_some(), "{bytes}: {error}");
                }
            }
        }
        let error = Node::measure_disk(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileIo);
        assert!(error.message().contains("found a folder"), "{error}");
        let error = Node::measure_disk(folder.path().join("nothing")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileNotFound);
    }
}
