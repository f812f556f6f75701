//! Does this library agree with the software whose cards and plans it speaks? Cases as data.

mod cards;
mod cards_files;
mod cards_hostile;
mod cases;
mod derived;
mod placements;
mod profiles;
mod units;

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The suites of this name: the one in `tests/suites`, and that in the folder of `SKULK_EXTRA_SUITES` where
/// it has one.
fn suites(name: &str) -> Vec<Value> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/suites").join(name);
    let extra = std::env::var_os("SKULK_EXTRA_SUITES").map(|folder| PathBuf::from(folder).join(name));
    let files = [own].into_iter().chain(extra.filter(|file| file.exists()));
    files.map(|file| read(&file)).collect()
}

fn read(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// All `cases` of the suites of this name.
fn cases(name: &str) -> Vec<Value> {
    let cases: Vec<Value> =
        suites(name).iter().flat_map(|suite| suite["cases"].as_array().unwrap().clone()).collect();
    assert!(!cases.is_empty(), "{name} has no cases");
    cases
}

/// All vectors of one of the `units`.
fn units(name: &str) -> Vec<Value> {
    let of = |suite: &Value| suite["units"].get(name).cloned();
    suites("planner_units.json").iter().filter_map(of).collect()
}

/// The vectors of a unit, or of a part of it.
fn vectors(unit: &str, part: &str) -> Vec<Value> {
    let of = |unit: Value| if part.is_empty() { unit } else { unit[part].clone() };
    let all: Vec<Value> =
        units(unit).into_iter().flat_map(|unit| of(unit).as_array().cloned().unwrap_or_default()).collect();
    assert!(!all.is_empty(), "{unit}.{part} has no vectors");
    all
}

/// Runs each case, and fails with the list of those that differ.
fn each(cases: &[Value], run: impl Fn(&Value) -> Result<(), String>) {
    let name = |case: &Value| {
        ["name", "file", "modelId"]
            .iter()
            .find_map(|key| Some(case.get(key)?.to_string()))
            .unwrap_or_else(|| case.to_string())
    };
    let failed: Vec<String> =
        cases.iter().filter_map(|case| run(case).err().map(|e| format!("{}: {e}", name(case)))).collect();
    assert!(failed.is_empty(), "{} of {} cases differ:\n{}", failed.len(), cases.len(), failed.join("\n"));
}
