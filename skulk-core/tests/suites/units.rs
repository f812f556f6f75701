//! Do the functions behind the planner agree with the reference, one by one?

use std::collections::BTreeSet;

use serde_json::Value;
use skulk::plan::backend::{engine_of, has_gpu_offload, is_multi_node, resolve_backend};
use skulk::plan::memory::{self, footprint_exceeds, kv_bytes, kv_bytes_per_token, shard_footprint};
use skulk::plan::split::allocate_layers;
use skulk::plan::{Link, Strictness, admit_max_tokens, is_vpn_address, leaves, prefill_chunks, rings};
use skulk::{Cluster, ContextDetail, ErrorKind, Node, NodeId, Request};

use crate::suites::cases::{expect, number, size, strings, text};
use crate::suites::{each, suites, units, vectors};

type Check = fn(&Value) -> Result<(), String>;

/// Sections that are lists of vectors, and what each vector must show.
const HERE: [(&str, Check); 11] = [
    ("allocateLayersProportionally", layers_are_shared_out),
    ("engineOf", tags_name_engines),
    ("resolveNodeBackend", backends_are_resolved),
    ("hasGpuOffloadBackend", some_backends_use_graphics_memory),
    ("estimateShardFootprint", footprints),
    ("memoryArithmetic", bytes_are_rounded),
    ("admitMaxTokens", requests_are_admitted),
    ("footprintExceedsUsable", footprints_may_exceed_a_little),
    ("prefillChunkSizes", prompts_are_cut_around_images),
    ("isVpnAddress", addresses_of_private_networks),
    ("topologyCycles", rings_are_among_the_references_cycles),
];

/// Those of another test, or another file.
const ELSEWHERE: [&str; 3] = ["memoryConstants", "configJson", "gguf"];

/// Those that this library does not speak, for the reasons in the suites' README.
const NOT_SPOKEN: [&str; 1] = ["memoryDisplay"];

fn tags(list: &Value) -> BTreeSet<String> {
    strings(list).into_iter().collect()
}

#[test]
fn every_section_has_a_runner() {
    for suite in suites("planner_units.json") {
        for section in suite["units"].as_object().unwrap().keys() {
            let here = HERE.iter().map(|(name, _)| name);
            let known = here.chain(&ELSEWHERE).chain(&NOT_SPOKEN).any(|known| known == section);
            assert!(known, "nothing runs {section}");
        }
    }
}

#[test]
fn every_vector_is_the_references() {
    for (section, run) in HERE {
        each(&vectors(section, ""), |case| run(case).map_err(|e| format!("{section}: {e}")));
    }
}

fn layers_are_shared_out(case: &Value) -> Result<(), String> {
    let fractions: Vec<f64> = case["fractions"].as_array().unwrap().iter().map(number).collect();
    match (allocate_layers(size(&case["totalLayers"]), &fractions), case.get("error")) {
        (Ok(layers), None) => {
            let expected: Vec<usize> = case["layers"].as_array().unwrap().iter().map(size).collect();
            expect("layers", &expected, &layers)
        }
        (Err(error), Some(_)) => {
            let kind = if fractions.is_empty() { ErrorKind::InvalidArgument } else { ErrorKind::PlanNoFit };
            expect("kind", &kind, &error.kind())
        }
        (found, _) => Err(format!("found {found:?}")),
    }
}

fn tags_name_engines(case: &Value) -> Result<(), String> {
    let engine = engine_of(case["tag"].as_str().unwrap());
    expect("engine", &case["engine"].as_str(), &engine)?;
    expect("multiNode", &case["multiNode"].as_bool(), &engine.map(is_multi_node))
}

fn backends_are_resolved(case: &Value) -> Result<(), String> {
    let node = tags(&case["node"]);
    let backend = resolve_backend(&tags(&case["compatible"]), &strings(&case["preference"]), &node);
    expect("backend", &case["backend"].as_str(), &backend)?;
    expect("engine", &case["engine"].as_str(), &backend.and_then(engine_of))
}

fn some_backends_use_graphics_memory(case: &Value) -> Result<(), String> {
    expect("result", &case["result"].as_bool(), &Some(has_gpu_offload(&tags(&case["backends"]))))
}

fn footprints(case: &Value) -> Result<(), String> {
    let facts = &case["card"];
    let card = crate::suites::cases::card(
        facts["storageBytes"].as_u64().unwrap(),
        size(&facts["nLayers"]),
        facts["kvHeads"].as_u64().map(|n| n as usize),
        facts["gguf"].as_bool().unwrap(),
    );
    let tokens = case["contextBudget"].as_u64().unwrap_or(0);
    let footprint = shard_footprint(&card, number(&case["fraction"]), tokens, Strictness::Safe);
    expect("footprint", &case["footprintBytes"].as_u64(), &Some(footprint))?;
    expect("kv", &case["kvBytesFull"].as_u64(), &Some(kv_bytes(&card, tokens)))?;
    expect("kv per token", &case["perTokenKvBytes"].as_u64(), &Some(kv_bytes_per_token(&card)))
}

#[test]
fn constants() {
    for constants in units("memoryConstants") {
        for (name, value) in constants.as_object().unwrap() {
            let ours = match name.as_str() {
                "MEMORY_OVERHEAD_FACTOR" => memory::OVERHEAD,
                "LLAMA_CPP_MEMORY_OVERHEAD_FACTOR" => memory::OVERHEAD_GGUF,
                "MEMORY_OVERHEAD_FLOOR" => memory::OVERHEAD_FLOOR as f64,
                "GPU_WORKING_SET_FRACTION" => memory::RAM_SHARE,
                "GPU_VRAM_WORKING_SET_FRACTION" => memory::VRAM_SHARE,
                "UMA_GPU_OS_HEADROOM" => memory::UNIFIED_HEADROOM as f64,
                "KV_CONTEXT_BUDGET_TOKENS" => memory::CONTEXT_TOKENS as f64,
                "KV_HEAD_DIM_FALLBACK" => memory::HEAD_DIM as f64,
                "KV_DTYPE_BYTES" => memory::KV_VALUE_BYTES as f64,
                _ => panic!("nothing checks {name}"),
            };
            assert_eq!(value.as_f64(), Some(ours), "{name}");
        }
    }
}

fn bytes_are_rounded(case: &Value) -> Result<(), String> {
    let (bytes, times) = (case["bytes"].as_i64().unwrap(), number(&case["times"]));
    // Bytes are never negative here; halves are rounded to even numbers on both sides of 0.
    let signed = |n: u64| Some(n as i64 * bytes.signum());
    let bytes = bytes.unsigned_abs();
    expect("product", &case["product"].as_i64(), &signed(memory::scale(bytes, times)))?;
    expect("quotient", &case["quotient"].as_i64(), &signed(memory::divide(bytes, times)))
}

fn requests_are_admitted(case: &Value) -> Result<(), String> {
    let (prompt, requested) = (size(&case["promptTokens"]), case["requested"].as_u64());
    let requested = requested.map(|n| n as usize);
    let limit = case["limit"].as_u64();
    match (admit_max_tokens(prompt, requested, size(&case["default"]), limit), case.get("error")) {
        (Ok(tokens), None) => expect("tokens", &size(&case["maxTokens"]), &tokens),
        (Err(error), Some(_)) => {
            expect("kind", &ErrorKind::ContextOverflow, &error.kind())?;
            let needed = prompt + requested.unwrap_or(1);
            let available = limit.unwrap() as usize;
            let detail = error.detail().map(|detail: &ContextDetail| (detail.needed, detail.available));
            expect("detail", &Some((needed, available)), &detail)?;
            // The reference names these numbers, too.
            let reference = text(&case["message"]);
            let named = [Some(prompt), requested, Some(available)];
            match named.into_iter().flatten().find(|n| !error.message().contains(&n.to_string())) {
                Some(n) => Err(format!("{n} is not in {:?}; the reference: {reference}", error.message())),
                None => Ok(()),
            }
        }
        (found, _) => Err(format!("found {found:?}")),
    }
}

fn footprints_may_exceed_a_little(case: &Value) -> Result<(), String> {
    let (footprint, usable) = (case["footprint"].as_u64().unwrap(), case["usable"].as_u64().unwrap());
    let exceeds = footprint_exceeds(footprint, usable, number(&case["tolerance"]));
    expect("exceeds", &case["exceeds"].as_bool(), &Some(exceeds))
}

fn prompts_are_cut_around_images(case: &Value) -> Result<(), String> {
    let regions = case["mediaRegions"].as_array().cloned().unwrap_or_default();
    let media: Vec<_> = regions.iter().map(|region| size(&region[0])..size(&region[1])).collect();
    let chunks =
        prefill_chunks(size(&case["totalTokens"]), size(&case["maxChunk"]), &media, size(&case["offset"]));
    let expected: Vec<usize> = case["chunks"].as_array().unwrap().iter().map(size).collect();
    expect("chunks", &expected, &chunks.collect())
}

fn addresses_of_private_networks(case: &Value) -> Result<(), String> {
    expect("vpn", &case["vpn"].as_bool(), &Some(is_vpn_address(text(&case["ip"]))))
}

/// The same ring, from the first of its nodes by name.
fn turned(mut ring: Vec<String>) -> Vec<String> {
    let first = (0..ring.len()).min_by_key(|&i| &ring[i]).unwrap_or(0);
    ring.rotate_left(first);
    ring
}

fn rings_are_among_the_references_cycles(case: &Value) -> Result<(), String> {
    let card = crate::suites::cases::card(1 << 30, 8, None, false);
    let link = |edge: &Value| Link::socket(text(&edge[0]), text(&edge[1]), "10.0.0.1");
    let nodes = strings(&case["nodes"]).into_iter().map(Node::new).collect();
    let cluster = Cluster::new(nodes, case["edges"].as_array().unwrap().iter().map(link).collect());
    let names = |ring: &[NodeId]| ring.iter().map(ToString::to_string).collect::<Vec<_>>();
    expect("leaves", &strings(&case["leaves"]), &names(&leaves(&cluster)))?;

    let ours = rings(&card, &cluster, &Request::default()).map_err(|e| e.to_string())?;
    let ours: BTreeSet<Vec<String>> = ours.iter().map(|ring| turned(names(ring))).collect();
    let cycles = case["cycles"].as_array().unwrap().iter().map(|cycle| turned(strings(cycle)));
    let cycles: BTreeSet<Vec<String>> = cycles.collect();
    expect("rings that are no cycles", &None, &ours.difference(&cycles).next())?;
    // One ring stands for all cycles of the same nodes.
    let sets = |rings: &BTreeSet<Vec<String>>| {
        rings.iter().map(|ring| ring.iter().cloned().collect()).collect::<BTreeSet<BTreeSet<String>>>()
    };
    expect("sets of nodes", &sets(&cycles), &sets(&ours))
}
