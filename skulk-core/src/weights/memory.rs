//! Shall weights stay in their file's map, or be read into memory of their own?

use crate::bytes::ByteSize;
use crate::macros::closed_set;

closed_set! {
    /// Where the weights of engines that use them in place lie. Logits do not depend on it.
    #[derive(Default)]
    pub enum Memory {
        /// [`Resident`](Self::Resident) for a shard whose weights and keys and values leave a tenth of
        /// the machine's memory (of the container's, where it has a limit) available; otherwise
        /// [`Mapped`](Self::Mapped).
        #[default]
        Auto = "auto",
        /// Pages of the file, which the system may drop and read again, and which all processes share.
        Mapped = "mapped",
        /// Read once into anonymous memory, in huge pages where the system has them, through which
        /// weights stream faster. What was read leaves the page cache, so that it does not exist twice.
        Resident = "resident",
    }
}

impl Memory {
    /// What [`Auto`](Self::Auto) means for a shard that will take `needed` bytes.
    pub(crate) fn for_shard(needed: ByteSize) -> Self {
        available_memory().map_or(Memory::Mapped, |(available, total)| choose(available, total, needed))
    }
}

/// The rule of [`Memory::Auto`]: a tenth of `total` must remain available beside what is `needed`.
fn choose(available: ByteSize, total: ByteSize, needed: ByteSize) -> Memory {
    match available.bytes().checked_sub(needed.bytes()) {
        Some(left) if left >= total.bytes() / 10 && total.bytes() > 0 => Memory::Resident,
        _ => Memory::Mapped,
    }
}

/// All memory there is for this process, where the system tells.
pub(crate) fn total_memory() -> Option<ByteSize> {
    available_memory().map(|(_, total)| total)
}

/// What the system has in memory for this process; `None` where it does not say.
#[cfg(feature = "generate")]
pub(crate) fn process_memory() -> Option<ByteSize> {
    use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};
    let this = sysinfo::get_current_pid().ok()?;
    let mut system = System::new();
    let what = ProcessRefreshKind::nothing().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[this]), false, what);
    system.process(this).map(|process| ByteSize(process.memory()))
}

/// Memory that can be had without swapping, and all there is; `None` where the system does not say.
pub(crate) fn available_memory() -> Option<(ByteSize, ByteSize)> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let (mut available, mut total) = (system.available_memory(), system.total_memory());
    if total == 0 {
        return None;
    }
    if cfg!(target_os = "macos") {
        // What its library calls available has programs' own pages in it.
        available = total.saturating_sub(system.used_memory());
    }
    // A container's page cache counts against its limit, but makes room: only what its programs
    // have allocated does not.
    if let Some(limits) = system.cgroup_limits().filter(|limits| limits.total_memory < total) {
        total = limits.total_memory;
        available = available.min(total.saturating_sub(limits.rss));
    }
    Some((ByteSize(available), ByteSize(total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_all_memory_stays_available() {
        let choose =
            |available, total, needed| choose(ByteSize(available), ByteSize(total), ByteSize(needed));
        assert_eq!(choose(60, 100, 50), Memory::Resident);
        assert_eq!(choose(59, 100, 50), Memory::Mapped);
        assert_eq!(choose(100, 100, 0), Memory::Resident);
        assert_eq!(choose(9, 100, 0), Memory::Mapped);
        assert_eq!(choose(10, 100, 11), Memory::Mapped);
        assert_eq!(choose(u64::MAX, u64::MAX, u64::MAX), Memory::Mapped);
        assert_eq!(choose(0, 0, 0), Memory::Mapped);
    }

    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
    #[test]
    fn the_system_says_what_is_available() {
        let (available, total) = available_memory().unwrap();
        assert!(available <= total && total.bytes() > 1 << 24, "{available} of {total}");
        assert_eq!(Memory::for_shard(total), Memory::Mapped);
    }
}
