//! How much memory has a GPU? wgpu does not say; drivers do, through their library or the system's files.

use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long drivers may take for their answers.
const PATIENCE: Duration = Duration::from_secs(1);

const AMD: u32 = 0x1002;
const NVIDIA: u32 = 0x10de;

/// Bytes of a GPU's own memory, and how many are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Vram {
    pub(super) total: u64,
    pub(super) used: u64,
}

/// A device, as PCI knows it.
#[derive(Debug, Clone)]
pub(super) struct PciDevice {
    pub(super) vendor: u32,
    /// Its address, as `0000:01:00.0`.
    pub(super) address: String,
}

/// What the drivers say of each device; `None` where there is none to ask, or where it does not answer.
pub(super) fn vram(devices: Vec<PciDevice>) -> Vec<Option<Vram>> {
    static ASKED: Question<Vec<Option<Vram>>> = Question(Mutex::new(None));
    let from_files = |device: &PciDevice| (device.vendor == AMD).then(|| amd(&device.address)).flatten();
    let mut answers: Vec<Option<Vram>> = devices.iter().map(from_files).collect();
    if devices.iter().any(|device| device.vendor == NVIDIA) {
        let of_nvidia = ASKED.ask(PATIENCE, move || {
            let nvidia = Nvidia::open();
            let ask = |device: &PciDevice| nvidia.as_ref()?.vram(&device.address);
            devices.iter().map(|device| (device.vendor == NVIDIA).then(|| ask(device)).flatten()).collect()
        });
        for (answer, found) in answers.iter_mut().zip(of_nvidia.unwrap_or_default()) {
            *answer = answer.or(found);
        }
    }
    answers
}

/// What is asked in a thread of its own, as a driver may never answer. While one question waits, no other
/// is asked, so that no more than one thread is lost to it.
struct Question<T>(Mutex<Option<Receiver<T>>>);

impl<T: Send + 'static> Question<T> {
    fn ask(&self, patience: Duration, question: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.as_ref().is_some_and(|before| before.try_recv().err() == Some(TryRecvError::Empty)) {
            return None;
        }
        let (answer, answered) = mpsc::channel();
        std::thread::Builder::new().spawn(move || answer.send(question())).ok()?;
        let found = answered.recv_timeout(patience).ok();
        *waiting = found.is_none().then_some(answered);
        found
    }
}

/// Linux' driver has files for it.
fn amd(address: &str) -> Option<Vram> {
    let is_address =
        !address.is_empty() && address.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'));
    let read = |name: &str| {
        let path = format!("/sys/bus/pci/devices/{address}/mem_info_vram_{name}");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    is_address.then(|| Some(Vram { total: read("total")?, used: read("used")? })).flatten()
}

/// The library that comes with NVIDIA's driver.
#[cfg(any(target_os = "linux", windows))]
struct Nvidia(nvml_wrapper::Nvml);

#[cfg(any(target_os = "linux", windows))]
impl Nvidia {
    fn open() -> Option<Self> {
        nvml_wrapper::Nvml::init().ok().map(Self)
    }

    fn vram(&self, address: &str) -> Option<Vram> {
        let memory = self.0.device_by_pci_bus_id(address).ok()?.memory_info().ok()?;
        // What the driver keeps for itself cannot be had either.
        Some(Vram { total: memory.total, used: memory.total.saturating_sub(memory.free) })
    }
}

/// There is none for other systems.
#[cfg(not(any(target_os = "linux", windows)))]
enum Nvidia {}

#[cfg(not(any(target_os = "linux", windows)))]
impl Nvidia {
    fn open() -> Option<Self> {
        None
    }

    fn vram(&self, _address: &str) -> Option<Vram> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_that_hang_are_not_waited_for() {
        static ASKED: Question<u32> = Question(Mutex::new(None));
        let short = Duration::from_millis(20);
        assert_eq!(ASKED.ask(Duration::from_secs(60), || 1), Some(1));
        let (wake, hanging) = mpsc::channel::<()>();
        let asked = ASKED.ask(short, move || {
            let _ = hanging.recv();
            2
        });
        assert_eq!(asked, None);
        assert_eq!(ASKED.ask(Duration::from_secs(60), || unreachable!("nobody is asked meanwhile")), None);
        drop(wake);
        // Its late answer is nobody's.
        let again = std::iter::repeat_with(|| ASKED.ask(Duration::from_secs(60), || 3)).find_map(|it| it);
        assert_eq!(again, Some(3));
    }

    #[test]
    fn addresses_are_no_paths() {
        assert_eq!(amd("../../../../etc"), None);
        assert_eq!(amd(""), None);
    }

    /// Whatever lies in `PATH`: nothing of it is run.
    #[test]
    #[cfg(unix)]
    fn no_program_is_run() {
        use std::os::unix::fs::PermissionsExt;
        const ASKED: &str = "SKULK_TEST_ASKED";
        if std::env::var_os(ASKED).is_some() {
            vram(vec![PciDevice { vendor: NVIDIA, address: "0000:01:00.0".to_owned() }]);
            crate::Cluster::local();
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nvidia-smi");
        std::fs::write(&program, "#!/bin/sh\n: > \"$0.was-run\"\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let asked = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "engine::wgpu::vram::tests::no_program_is_run"])
            .env(ASKED, "")
            .env("PATH", folder.path())
            .output()
            .unwrap();
        assert!(asked.status.success() && String::from_utf8_lossy(&asked.stdout).contains("1 passed"));
        assert!(!folder.path().join("nvidia-smi.was-run").exists());
    }
}
