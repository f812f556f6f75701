//! What do noted operations take together? Those of one function that read and compute as much are one entry.

use std::time::{Duration, Instant};

use skulk::internals::Traced;

/// Operations of one function with as many bytes and as much arithmetic: those of an average run.
pub(crate) struct Entry {
    /// The function of the CPU engine.
    pub(crate) name: String,
    /// How often it comes.
    pub(crate) times: f64,
    /// Of weights, and multiplications and additions; all of them together, as is what follows.
    pub(crate) bytes: f64,
    pub(crate) operations: f64,
    pub(crate) seconds: f64,
    /// Seconds between them and what ended before.
    pub(crate) before: f64,
    /// Seconds that a thread waits in them on average.
    pub(crate) waiting: f64,
}

impl Entry {
    /// Those that were noted in `runs` runs, in the order in which they come first.
    pub(crate) fn list(noted: &[Traced], runs: usize, threads: usize) -> Vec<Self> {
        let mut entries: Vec<(Self, [u64; 2])> = Vec::new();
        let mut ended: Option<Instant> = None;
        let one = 1.0 / runs as f64;
        for operation in noted {
            let (name, counts) = (function(operation.name), [operation.bytes, operation.operations]);
            let at = entries.iter().position(|(entry, of)| entry.name == name && *of == counts);
            let at = at.unwrap_or_else(|| {
                let [times, bytes, operations, seconds, before, waiting] = [0.0; 6];
                entries.push((Self { name, times, bytes, operations, seconds, before, waiting }, counts));
                entries.len() - 1
            });
            let entry = &mut entries[at].0;
            entry.times += one;
            entry.bytes += operation.bytes as f64 * one;
            entry.operations += operation.operations as f64 * one;
            entry.seconds += operation.seconds * one;
            entry.waiting += operation.waiting / threads as f64 * one;
            entry.before += ended.map_or(0.0, |ended| (operation.started - ended).as_secs_f64()) * one;
            ended = Some(operation.started + Duration::from_secs_f64(operation.seconds));
        }
        entries.into_iter().map(|(entry, _)| entry).collect()
    }
}

/// The function in which a work's type is defined, and what it is a part of.
fn function(name: &str) -> String {
    let path = name.split_once("::{{closure}}").map_or(name, |(path, _)| path);
    let path = path.rsplit_once("<<").map_or(path, |(_, path)| path);
    let mut parts = path.rsplit("::").map(|part| part.split(['<', '>', ' ']).next().unwrap_or(part));
    let own = parts.next().unwrap_or(name);
    match parts.next() {
        Some(of) if !of.is_empty() => format!("{of}::{own}"),
        _ => own.to_owned(),
    }
}
