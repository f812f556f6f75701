//! How fast is a device of this name? The table of `devices.toml`, and names as people and drivers write them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::cluster::Vendor;

/// Words that a name may have or lack.
const NOISE: [&str; 13] = [
    "nvidia", "geforce", "rtx", "gtx", "amd", "radeon", "rx", "instinct", "intel", "apple", "graphics",
    "gpu", "quadro",
];
/// Words after a name that make it another device's.
const OTHERS: [&str; 13] =
    ["ti", "super", "xt", "xtx", "gre", "pro", "max", "ultra", "ada", "laptop", "mobile", "s", "d"];
/// Bytes of a transfer over a channel of memory.
const CHANNEL_BYTES: f64 = 8.0;
/// Channels of memory of which the name counts none.
const CHANNELS: f64 = 2.0;

/// What programs reach on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Speed {
    /// Bytes a second.
    pub(super) rate: f64,
    /// Operations a second, with many rows at once.
    pub(super) operations: f64,
    /// Seconds for each layer, whatever its size.
    pub(super) layer_seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kinds: BTreeMap<String, Kind>,
    sources: Vec<Source>,
    memory: Memory,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    reach: f64,
    arithmetic: f64,
    layer: f64,
    rate: f64,
    teraflops: f64,
}

#[derive(Deserialize)]
struct Source {
    kind: String,
    devices: Vec<(String, f64, f64)>,
}

#[derive(Deserialize)]
struct Memory {
    generations: Vec<String>,
}

/// A device of the table.
struct Device {
    words: Vec<String>,
    kind: String,
    gigabytes: f64,
    teraflops: f64,
}

/// The table as it is searched.
struct Devices {
    kinds: BTreeMap<String, Kind>,
    devices: Vec<Device>,
    generations: Vec<Vec<String>>,
}

fn devices() -> Option<&'static Devices> {
    static DEVICES: OnceLock<Option<Devices>> = OnceLock::new();
    let read = || {
        let table: Table = toml::from_str(include_str!("devices.toml")).ok()?;
        let device = |kind: &str, (name, gigabytes, teraflops): &(String, f64, f64)| Device {
            words: words(name),
            kind: kind.to_owned(),
            gigabytes: *gigabytes,
            teraflops: *teraflops,
        };
        let of = |source: &Source| -> Vec<Device> {
            source.devices.iter().map(|entry| device(&source.kind, entry)).collect()
        };
        Some(Devices {
            devices: table.sources.iter().flat_map(of).collect(),
            generations: table.memory.generations.iter().map(|name| words(name)).collect(),
            kinds: table.kinds,
        })
    };
    DEVICES.get_or_init(read).as_ref()
}

/// Names as words in lower case, letters and digits apart, without those that say nothing.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = None;
    for c in name.chars() {
        let kind = if c.is_ascii_digit() {
            1
        } else if c.is_alphabetic() {
            2
        } else {
            0
        };
        match words.last_mut() {
            Some(word) if kind > 0 && last == Some(kind) => word.extend(c.to_lowercase()),
            _ if kind > 0 => words.push(c.to_lowercase().collect()),
            _ => {}
        }
        last = Some(kind);
    }
    words.retain(|word| !NOISE.contains(&word.as_str()));
    words
}

/// Where the words of a device stand in a name.
fn place(name: &[String], device: &[String]) -> Option<usize> {
    if device.is_empty() || device.len() > name.len() {
        return None;
    }
    name.windows(device.len()).position(|window| window == device)
}

/// The device of the table that a name means: that of the most words, and none where a word follows that makes it
/// another.
fn find(name: &[String]) -> Option<&'static Device> {
    let means = |device: &&Device| {
        place(name, &device.words).is_some_and(|at| {
            let next = name.get(at + device.words.len());
            let is_other = next.is_some_and(|word| OTHERS.contains(&word.as_str()));
            let is_mobile = |words: &[String]| words.iter().any(|word| word == "laptop" || word == "mobile");
            !is_other && is_mobile(name) == is_mobile(&device.words)
        })
    };
    devices()?.devices.iter().filter(means).max_by_key(|device| device.words.len())
}

/// Gigabytes a second of main memory of which a name says the kind, as in `DDR5-5600, 12 channels`.
fn memory(name: &[String]) -> Option<f64> {
    let end = devices()?.generations.iter().filter_map(|kind| Some(place(name, kind)? + kind.len())).max()?;
    let transfers: f64 = name.get(end)?.parse().ok().filter(|rate| (800.0..20_000.0).contains(rate))?;
    let counted = name.windows(2).find_map(|pair| {
        let count = match pair[0].as_str() {
            "single" => 1.0,
            "dual" => 2.0,
            "quad" => 4.0,
            "octa" => 8.0,
            count => count.parse().ok().filter(|count| (1.0..=64.0).contains(count))?,
        };
        matches!(pair[1].as_str(), "channel" | "channels" | "ch").then_some(count)
    });
    Some(transfers * 1e6 * CHANNEL_BYTES * counted.unwrap_or(CHANNELS) / 1e9)
}

fn kind_of(vendor: Vendor) -> Option<Kind> {
    devices()?.kinds.get(vendor.as_str()).copied()
}

/// What is assumed of a maker's devices where nothing is known.
pub(super) fn assumed(vendor: Vendor) -> Speed {
    let kind = kind_of(vendor).unwrap_or(Kind {
        reach: 1.0,
        arithmetic: 1.0,
        layer: 0.0,
        rate: 30.0,
        teraflops: 0.5,
    });
    Speed { rate: kind.rate * 1e9, operations: kind.teraflops * 1e12, layer_seconds: kind.layer * 1e-6 }
}

/// What programs reach on a device of this name; `None`: the table does not have it.
pub(super) fn named(name: &str) -> Option<Speed> {
    let words = words(name);
    let device = find(&words)?;
    let kind = devices()?.kinds.get(&device.kind)?;
    Some(Speed {
        rate: device.gigabytes * 1e9 * kind.reach,
        operations: device.teraflops * 1e12 * kind.arithmetic,
        layer_seconds: kind.layer * 1e-6,
    })
}

/// What a processor reaches in the main memory that a name means: its own, or that of the chip that it is a part of.
pub(super) fn main_memory(name: &str) -> Option<Speed> {
    let words = words(name);
    let device = find(&words);
    // A processor's name may come with the memory that it really has.
    let gigabytes = memory(&words).or(device.map(|device| device.gigabytes))?;
    let own = device.filter(|device| matches!(device.kind.as_str(), "cpu" | "wide"));
    // What has graphics, too, has wide memory.
    let kind = match (own, device) {
        (Some(Device { kind, .. }), _) => kind.as_str(),
        (None, Some(_)) => "wide",
        (None, None) => Vendor::Cpu.as_str(),
    };
    let kind = devices()?.kinds.get(kind)?;
    let assumed = assumed(Vendor::Cpu);
    Some(Speed {
        rate: gigabytes * 1e9 * kind.reach,
        operations: own.map_or(assumed.operations, |own| own.teraflops * 1e12 * kind.arithmetic),
        layer_seconds: kind.layer * 1e-6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_sound_and_found_by_its_name() {
        let table = devices().unwrap();
        for vendor in Vendor::ALL {
            assert!(kind_of(*vendor).is_some(), "{vendor}");
        }
        for device in &table.devices {
            assert!(table.kinds.contains_key(&device.kind));
            assert!((1.0..20_000.0).contains(&device.gigabytes), "{:?}", device.words);
            assert!((0.01..5_000.0).contains(&device.teraflops), "{:?}", device.words);
            let found = find(&device.words).unwrap();
            assert_eq!(found.words, device.words);
        }
        for kind in table.kinds.values() {
            assert!((0.1..=1.0).contains(&kind.reach) && (0.05..=1.0).contains(&kind.arithmetic));
        }
    }

    #[test]
    fn names_are_found_as_they_are_written() {
        for (name, gigabytes) in [
            ("NVIDIA GeForce RTX 4090", Some(1008.0)),
            ("RTX 4090", Some(1008.0)),
            ("rtx4090", Some(1008.0)),
            ("GeForce RTX 4090 24GB", Some(1008.0)),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", Some(576.0)),
            ("RTX 4070", Some(504.0)),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", Some(672.0)),
            ("RTX 4090 Ti", None),
            ("NVIDIA A100-SXM4-80GB", Some(2039.0)),
            ("NVIDIA A100-SXM4-40GB", Some(1555.0)),
            ("NVIDIA H100 PCIe", Some(2039.0)),
            ("NVIDIA H100 80GB HBM3", Some(3350.0)),
            ("NVIDIA RTX A6000", Some(768.0)),
            ("Apple M2 Ultra", Some(800.0)),
            ("M2 Ultra (76-core GPU, 192 GB)", Some(800.0)),
            ("Apple M3 Max 30-core", Some(300.0)),
            ("Apple M3 Max", Some(400.0)),
            ("Apple M2", Some(100.0)),
            ("Apple M9 Max", None),
            ("AMD Radeon RX 7900 XTX (RADV NAVI31)", Some(960.0)),
            ("AMD Radeon RX 7900 XT", Some(800.0)),
            ("Radeon 8060S Graphics (RADV GFX1151)", Some(256.0)),
            ("Intel(R) Arc(TM) B580 Graphics", None),
            ("", None),
            ("GPU", None),
        ] {
            let found = find(&words(name)).map(|device| device.gigabytes);
            assert_eq!(found, gigabytes, "{name}");
        }
    }

    #[test]
    fn memory_is_found_by_kind_and_channels() {
        for (name, gigabytes) in [
            ("DDR5-5600", Some(89.6)),
            ("DDR5 6000 dual channel", Some(96.0)),
            ("AMD EPYC 9654, 12-channel DDR5-4800", Some(460.8)),
            ("8 channels of DDR4-3200", Some(204.8)),
            ("DDR5", None),
            ("DDR5-99", None),
        ] {
            let found = memory(&words(name));
            assert_eq!(found.map(|it| (it * 10.0).round() / 10.0), gigabytes, "{name}");
        }
        let rate = |name| main_memory(name).unwrap().rate;
        assert!(rate("EPYC 9654") > 2e11 && rate("Ryzen 9 7950X, DDR5-6000") > rate("Ryzen 9 7950X"));
        assert!(rate("Apple M2 Ultra") > 3e11);
    }
}
