//! How do bytes of a file become a slice? The one place that maps files.
//!
//! A mapping is read-only and private to its [`Mapping`] handle. As with every memory-mapped
//! reader, a file that another process truncates while it is mapped makes the system raise a bus
//! error on access; lengths are checked against the file at mapping time.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::{Mmap, MmapOptions};

use super::incomplete;
use super::resident::{Image, Piece, read_all};
use super::woven::Weave;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};

/// Mappings by offset and length.
type Held = HashMap<(u64, u64), Weak<Mapping>>;

/// An open weight file that ranges can be mapped from.
#[derive(Debug, Clone)]
pub struct MappedFile {
    path: Arc<PathBuf>,
    file: Arc<File>,
    len: u64,
    /// Ranges that somebody holds.
    held: Arc<Mutex<Held>>,
    /// What of the file was read into memory, while somebody holds any of it.
    image: Arc<Mutex<Weak<Image>>>,
}

impl MappedFile {
    /// Opens a regular file for mapping.
    ///
    /// # Errors
    /// [`ErrorKind::FileNotFound`], or [`ErrorKind::FileIo`] for whatever else the system says,
    /// a path that is no regular file included.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = open_regular(path)?;
        let meta = file.metadata().map_err(|e| io_error(e, path, "inspect"))?;
        Ok(Self {
            path: Arc::new(path.to_owned()),
            file: Arc::new(file),
            len: meta.len(),
            held: Arc::default(),
            image: Arc::default(),
        })
    }

    /// The path it was opened from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length in bytes when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Maps `len` bytes from `offset`.
    pub(crate) fn map(&self, offset: u64, len: u64) -> Result<Mapping> {
        let bytes = self.check(offset, len)?;
        if bytes == 0 {
            return Ok(Mapping { map: None });
        }
        // SAFETY: the map is read-only and the range lies within the file as it is now. What
        // remains, another process truncating or rewriting the file later, is documented above.
        let map = unsafe { MmapOptions::new().offset(offset).len(bytes).map(&*self.file) }
            .map_err(|e| io_error(e, &self.path, "map"))?;
        Ok(Mapping { map: Some(map) })
    }

    /// Maps `len` bytes from `offset`, or shares the mapping of whoever holds it already: pages
    /// mapped twice would count twice as resident.
    pub(crate) fn share(&self, offset: u64, len: u64) -> Result<Arc<Mapping>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mapping) = held.get(&(offset, len)).and_then(Weak::upgrade) {
            return Ok(mapping);
        }
        let mapping = Arc::new(self.map(offset, len)?);
        held.insert((offset, len), Arc::downgrade(&mapping));
        Ok(mapping)
    }

    /// Reads `len` bytes from `offset` into memory, or shares what somebody holds already. `None`
    /// when they overlap others that are held: those must not be written again.
    pub(super) fn read(
        &self,
        offset: u64,
        len: u64,
        woven: Option<Weave>,
        cancel: &CancelToken,
    ) -> Result<Option<Arc<Piece>>> {
        let bytes = self.check(offset, len)?;
        let image = {
            let mut image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
            match image.upgrade() {
                Some(image) => image,
                None => {
                    let new =
                        Arc::new(Image::new(self.len).map_err(|e| e.with("file", self.path.display()))?);
                    *image = Arc::downgrade(&new);
                    new
                }
            }
        };
        image.read(&self.file, &self.path, offset, bytes, woven, cancel)
    }

    /// The length as this system counts memory, of a range that lies within the file as it is now.
    fn check(&self, offset: u64, len: u64) -> Result<usize> {
        let size = self.file.metadata().map_err(|e| io_error(e, &self.path, "inspect"))?.len();
        let within = offset.checked_add(len).is_some_and(|end| end <= size);
        usize::try_from(len).ok().filter(|_| within).ok_or_else(|| truncated(&self.path, offset, len, size))
    }

    /// Bytes of the file that somebody holds mapped; of a file whose tensors were
    /// [read](crate::Region::resident), what is mapped beside them, and those that a model holds woven, whose pages nobody
    /// reads.
    pub fn mapped(&self) -> u64 {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().filter(|(_, mapping)| mapping.strong_count() > 0).map(|((_, len), _)| len).sum()
    }

    /// Reads the first bytes, at most `len` and as many as there are, without mapping them.
    pub(crate) fn read_start(&self, len: u64) -> Result<Vec<u8>> {
        self.read_part(0, len.min(self.len))
    }

    /// Reads `len` bytes from `offset`, without mapping them.
    pub(crate) fn read_part(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut part = vec![0; self.check(offset, len)?];
        read_all(&self.file, &self.path, offset, &mut part, |end| truncated(&self.path, offset, len, end))?;
        Ok(part)
    }

    /// Maps the whole file.
    pub(crate) fn map_all(&self) -> Result<Mapping> {
        self.map(0, self.len)
    }
}

/// A mapped byte range; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    map: Option<Mmap>,
}

impl Mapping {
    /// Tells the system that these bytes will be read soon.
    pub(crate) fn will_need(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Some(map) = &self.map {
            // Advice only: a system that declines it still reads the pages on first touch.
            let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Tells the system that these bytes are read here and there. Where it has to read one on its own it reads no others
    /// around, which may be megabytes.
    pub(crate) fn scattered(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Some(map) = &self.map {
            let _ = map.advise_range(memmap2::Advice::Random, range.start, range.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Takes pages of these bytes out of this process' memory. They stay readable: the system gets them
    /// from the file again. Pages that the range has only a part of stay, unless nothing else is in them.
    /// On Linux that is so when it returns; on Apple's systems it is advice; elsewhere nothing happens. There the
    /// system's cache keeps them for as long as it likes; where memory is `short` Linux gives them up at once, since it
    /// reads nothing ahead before there is room.
    pub(crate) fn let_go(&self, range: Range<usize>, short: bool) {
        #[cfg(any(target_os = "linux", target_vendor = "apple"))]
        if let Some(map) = &self.map
            && let Some(pages) = own_pages(map.as_ptr().addr(), map.len(), &range, page_size())
        {
            #[cfg(target_os = "linux")]
            if let Some(own) = map.get(pages.clone()).filter(|_| short) {
                let out = rustix::mm::Advice::LinuxPageOut;
                // SAFETY: the pages lie within the map, and this advice changes nothing in them.
                let _ = unsafe { rustix::mm::madvise(own.as_ptr().cast_mut().cast(), own.len(), out) };
            }
            // SAFETY: the pages lie within the map, which is of a file and only ever read, so that no page differs
            // from the file's: whoever reads one again finds the same bytes, at any time and on any thread.
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, pages.start, pages.len())
            };
        }
        #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
        let _ = range;
        #[cfg(not(target_os = "linux"))]
        let _ = short;
    }
}

/// The bytes of those pages that hold nothing of a map of `len` bytes at address `base` but the range's. Before
/// and behind the map, its first and last page hold nothing of it.
#[cfg(any(target_os = "linux", target_vendor = "apple", test))]
fn own_pages(base: usize, len: usize, range: &Range<usize>, page: usize) -> Option<Range<usize>> {
    let start = match range.start {
        0 => 0,
        start => base.checked_add(start)?.checked_next_multiple_of(page)? - base,
    };
    let end = match range.end {
        end if end >= len => len,
        end => (base.checked_add(end)? / page * page).saturating_sub(base),
    };
    (start < end).then_some(start..end)
}

/// Of the system, or a multiple of it.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn page_size() -> usize {
    #[cfg(target_os = "linux")]
    return rustix::param::page_size();
    #[cfg(not(target_os = "linux"))]
    return super::resident::GRANULE;
}

impl Deref for Mapping {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

/// What a file holds: mapped, or in memory of a caller's.
#[derive(Debug)]
pub(crate) enum Bytes {
    Mapped(Arc<Mapping>),
    Owned(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// Opens a regular file for reading. The kind is that of the file that was opened; a pipe is opened without waiting for
/// a writer.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true);
    // Means nothing to regular files.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    let is_file = |file: &File| Ok(file.metadata().map_err(|e| io_error(e, path, "inspect"))?.is_file());
    match options.open(path) {
        Ok(file) if is_file(&file)? => Ok(file),
        // Windows does not open folders.
        Err(e) if !(cfg!(windows) && path.is_dir()) => Err(io_error(e, path, "open")),
        _ => Err(Error::new(ErrorKind::FileIo, "expected a regular file, found something else")
            .with("file", path.display())
            .with_hint("give the path of the weight file itself, or of the folder that holds it")),
    }
}

/// The file ends before the range does.
pub(crate) fn truncated(path: &Path, offset: u64, len: u64, size: u64) -> Error {
    incomplete(format!("expected {len} bytes at offset {offset}, but the file has {size} bytes"), path)
}

/// A system error on a file, as the library's own.
pub(crate) fn io_error(error: std::io::Error, path: &Path, what: &'static str) -> Error {
    let (kind, hint) = match error.kind() {
        std::io::ErrorKind::NotFound => (ErrorKind::FileNotFound, "check the path"),
        std::io::ErrorKind::PermissionDenied => (ErrorKind::FileIo, "check the file's permissions"),
        _ => (ErrorKind::FileIo, "check the disk and the path"),
    };
    Error::new(kind, format!("cannot {what} the file"))
        .with("file", path.display())
        .with_source(error)
        .with_hint(hint)
}

/// What kept a file from being written. `hint` says what to do on a full disk.
pub(crate) fn write_error(error: std::io::Error, path: &Path, hint: &'static str) -> Error {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let is_full = matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge);
    let error = io_error(error, path, "write");
    if is_full { error.with_hint(hint) } else { error }
}

/// `Ok` for an empty folder whose place another one of the folder above it can take: another file system that is mounted
/// there cannot be replaced.
pub(crate) fn expect_not_mounted(folder: &Path) -> Result<()> {
    let above = match folder.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    if !is_mounted(folder, above).map_err(|e| io_error(e, folder, "inspect"))? {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        "expected a folder of the file system that it lies in, found the root of another one, as a volume is",
    )
    .with("file", folder.display())
    .with("field", "target")
    .with_hint("give a new folder inside of it: this one cannot be replaced by what is made beside it"))
}

#[cfg(unix)]
fn is_mounted(folder: &Path, above: &Path) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let of = |path: &Path| Ok::<_, std::io::Error>((std::fs::metadata(path)?.dev(), mount(path)));
    Ok(of(folder)? != of(above)?)
}

#[cfg(not(unix))]
fn is_mounted(_: &Path, _: &Path) -> std::io::Result<bool> {
    Ok(false)
}

/// What a folder is mounted as, where the system says: a part of a file system may be mounted in that file system.
#[cfg(target_os = "linux")]
fn mount(path: &Path) -> Option<u64> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id)
}

#[cfg(all(unix, not(target_os = "linux")))]
fn mount(_: &Path) -> Option<u64> {
    None
}

/// `Ok` for a path at which a file may take the place of what is there: nothing, a file, or a link to either.
pub(crate) fn may_be_replaced(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            Err(std::io::Error::other("what is there is no regular file, and stays"))
        }
        // Whatever is wrong with the path, writing says.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_mounted_is_not_replaced() {
        let error = expect_not_mounted(Path::new("/proc")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("/proc") && error.hint().unwrap().contains("inside"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a");
        std::fs::create_dir(&inner).unwrap();
        expect_not_mounted(&inner).unwrap();
        expect_not_mounted(Path::new("src")).unwrap();
    }

    #[test]
    fn a_full_disk_says_what_to_do() {
        let error = |kind: std::io::ErrorKind| write_error(kind.into(), Path::new("f"), "make room");
        assert_eq!(error(std::io::ErrorKind::StorageFull).hint(), Some("make room"));
        assert_ne!(error(std::io::ErrorKind::PermissionDenied).hint(), Some("make room"));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink("socket", at("to socket")).unwrap();
        std::os::unix::fs::symlink("none", at("to none")).unwrap();
        for (name, may) in [
            ("none", true),
            ("file", true),
            ("link", true),
            ("to none", true),
            ("socket", false),
            ("to socket", false),
            ("", false),
        ] {
            assert_eq!(may_be_replaced(&at(name)).is_ok(), may, "{name}");
        }
        assert!(may_be_replaced(Path::new("/dev/null")).is_err());
        drop(socket);
    }

    #[test]
    fn pages_that_others_have_a_part_of_stay() {
        const PAGE: usize = 4096;
        // A map of 10 pages that begins 100 bytes into one, as tensors do.
        let (base, len) = (7 * PAGE + 100, 10 * PAGE);
        let own = |range| own_pages(base, len, &range, PAGE);
        assert_eq!(own(0..len), Some(0..len));
        assert_eq!(own(0..3 * PAGE), Some(0..3 * PAGE - 100));
        assert_eq!(own(3 * PAGE..len), Some(4 * PAGE - 100..len));
        assert_eq!(own(PAGE - 100..3 * PAGE - 100), Some(PAGE - 100..3 * PAGE - 100));
        assert_eq!(
            own(PAGE - 99..3 * PAGE - 101),
            Some(2 * PAGE - 100..2 * PAGE - 100).filter(|r| !r.is_empty())
        );
        assert_eq!(own(PAGE..2 * PAGE), None);
        assert_eq!(own(0..10), None);
        assert_eq!(own(5..5), None);
        assert_eq!(own(len - 10..len), None);
        assert_eq!(own_pages(base, 50, &(0..50), PAGE), Some(0..50));
    }

    /// What was let go is read from the file again, also by threads that are reading it.
    #[test]
    fn bytes_that_were_let_go_come_back() {
        use std::io::Write;
        let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        let mut written = tempfile::NamedTempFile::new().unwrap();
        written.write_all(&bytes).unwrap();
        let file = MappedFile::open(written.path()).unwrap();
        let mapping = file.share(12_345, 2_500_000).unwrap();
        let expected = &bytes[12_345..][..2_500_000];
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| (0..20).all(|_| **mapping == *expected));
            for at in 0..60 {
                mapping.let_go(at * 40_000..(at + 1) * 40_000, at % 2 == 0);
                mapping.will_need(at * 40_000..(at + 1) * 40_000);
            }
            assert!(reader.join().unwrap());
        });
        mapping.let_go(0..mapping.len(), true);
        assert!(**mapping == *expected);
    }
}
