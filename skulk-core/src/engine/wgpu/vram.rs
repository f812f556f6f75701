//! How much memory has a GPU? wgpu does not say; drivers do.

use std::process::{Command, Stdio};

/// Bytes of a GPU's own memory, and how many are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Vram {
    pub(super) total: u64,
    pub(super) used: u64,
}

const AMD: u32 = 0x1002;
const NVIDIA: u32 = 0x10de;

/// What the driver of the device at this PCI address says; `None` where there is none to ask.
pub(super) fn vram(vendor: u32, pci_bus_id: &str) -> Option<Vram> {
    match vendor {
        AMD => amd(pci_bus_id),
        NVIDIA => nvidia(pci_bus_id),
        _ => None,
    }
}

/// Linux' driver has files for it.
fn amd(pci_bus_id: &str) -> Option<Vram> {
    let is_id =
        !pci_bus_id.is_empty() && pci_bus_id.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'));
    let read = |name: &str| {
        let path = format!("/sys/bus/pci/devices/{pci_bus_id}/mem_info_vram_{name}");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    is_id.then(|| Some(Vram { total: read("total")?, used: read("used")? })).flatten()
}

/// NVIDIA's driver comes with a program for it.
fn nvidia(pci_bus_id: &str) -> Option<Vram> {
    let output = Command::new("nvidia-smi")
        .args(["--query-gpu=pci.bus_id,memory.total,memory.used", "--format=csv,noheader,nounits"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    parse(&String::from_utf8_lossy(&output.stdout), pci_bus_id)
}

/// Lines of `00000000:01:00.0, 24564, 312`: address, MiB in all, MiB in use.
fn parse(lines: &str, pci_bus_id: &str) -> Option<Vram> {
    // The domain has four digits in one place and eight in the other.
    let short = |id: &str| id.trim().to_ascii_lowercase().trim_start_matches('0').to_owned();
    lines.lines().find_map(|line| {
        let mut fields = line.split(',');
        let id = fields.next().filter(|id| short(id) == short(pci_bus_id))?;
        let mut mib = || fields.next()?.trim().parse::<u64>().ok()?.checked_mul(1 << 20);
        (!id.is_empty()).then_some(Vram { total: mib()?, used: mib()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidia_s_lines_are_found_by_address() {
        let lines = "00000000:01:00.0, 24564, 312\n00000000:C1:00.0, 81559, 0\n";
        let found = |id| parse(lines, id).map(|it| (it.total >> 20, it.used >> 20));
        assert_eq!(found("0000:01:00.0"), Some((24564, 312)));
        assert_eq!(found("0000:c1:00.0"), Some((81559, 0)));
        assert_eq!(found("0000:02:00.0"), None);
        for broken in ["", "a", "0000:01:00.0", "0000:01:00.0, x, 1", "0000:01:00.0, 99999999999999999999, 1"]
        {
            assert_eq!(parse(broken, "0000:01:00.0"), None, "{broken}");
        }
    }

    #[test]
    fn addresses_are_no_paths() {
        assert_eq!(amd("../../../../etc"), None);
        assert_eq!(amd(""), None);
    }
}
