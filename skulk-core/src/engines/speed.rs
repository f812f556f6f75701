//! How fast are this machine's devices? Each is measured once for the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::by_name;
use crate::engine::{DeviceSpeed, EngineId};
use crate::model::EngineOptions;

/// Bytes of a device's free memory without which measuring leaves it alone: several times what it takes.
const FREE: u64 = 1 << 30;

/// What an engine's device does, of whose memory so much is free. `None`: it cannot be measured, or has too little memory.
pub(super) fn of(engine: &EngineId, free: u64) -> Option<DeviceSpeed> {
    static MEASURED: Mutex<BTreeMap<EngineId, Option<DeviceSpeed>>> = Mutex::new(BTreeMap::new());
    if free < FREE {
        return None;
    }
    // Held meanwhile: two measurements at once would slow each other.
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = measured.get(engine) {
        return *known;
    }
    let found =
        by_name(engine.as_str(), &EngineOptions::default()).and_then(|it| it.measure()).ok().flatten();
    measured.insert(engine.clone(), found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_measured_once() {
        let cpu = EngineId::new("cpu");
        assert_eq!(of(&cpu, FREE - 1), None);
        let first = of(&cpu, FREE);
        assert_eq!(first.is_some(), !cfg!(debug_assertions), "{first:?}");
        assert_eq!(of(&cpu, FREE), first);
        assert_eq!(of(&EngineId::new("wgpu-vulkan:4095"), FREE), None);
    }
}
