//! Are models placed as the reference does?

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use skulk::plan::memory::{accelerator_memory, shard_footprint, usable_memory, usable_vram};
use skulk::plan::{
    Accelerator, Instance, Link, NetworkInterface, Part, Role, Rule, Sharding, Strictness, Transport,
};
use skulk::{Cluster, Error, ErrorKind, ModelCard, Node, NodeId, Placement, PlanReport, Planner, Request};

use crate::suites::cases::{expect, number, strings, text};
use crate::suites::{cases, each};

/// The value of a closed set that a case names.
fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{value}: {e}"))
}

fn id(value: &Value) -> NodeId {
    NodeId::new(text(value))
}

fn ids(list: &Value) -> Vec<NodeId> {
    strings(list).into_iter().map(NodeId::new).collect()
}

/// The share of this model on a node's disk: the first entry that is about it decides.
fn download(entries: &Value, model: &str) -> Option<f64> {
    let entries = entries.as_array()?;
    let entry = entries.iter().find(|entry| entry.get("modelId").is_none_or(|id| text(id) == model))?;
    match text(&entry["state"]) {
        "completed" => Some(1.0),
        "failed" => Some(0.0),
        "ongoing" | "pending" => {
            let total = number(&entry["total"]);
            Some(if total > 0.0 { number(&entry["downloaded"]) / total } else { 0.0 })
        }
        state => panic!("unknown state {state}"),
    }
}

fn node(name: &str, input: &Value, model: &str) -> Node {
    let of = |section: &str| input[section].get(name).filter(|value| !value.is_null());
    let mut node = Node::new(name);
    if let Some(memory) = of("memory") {
        // Less than nothing is nothing here.
        let bytes = |key: &str| memory[key].as_u64().unwrap_or_else(|| number(&memory[key]).max(0.0) as u64);
        node = node.memory(bytes("ramAvailable"), bytes("ramTotal"));
    }
    if let Some(resources) = of("resources") {
        // What is left out has the defaults of the reference.
        let backends = resources.get("backends").map_or_else(|| vec!["mlx".to_owned()], strings);
        node.backends = Some(backends.into_iter().collect());
        node.role = resources.get("participation").map_or(Role::Full, parse);
    }
    node.accelerators = of("accelerators")
        .map(|facts| {
            let mut accelerator = Accelerator::new(parse(&facts["vendor"]));
            accelerator.vram_total_bytes = facts["vramTotalBytes"].as_u64();
            accelerator.vram_used_bytes = facts["vramUsedBytes"].as_u64();
            accelerator.gtt_total_bytes = facts["gttTotalBytes"].as_u64();
            accelerator
        })
        .into_iter()
        .collect();
    for interface in of("network").and_then(Value::as_array).into_iter().flatten() {
        let (name, address) = (text(&interface["name"]), text(&interface["ipAddress"]));
        node.interfaces.push(NetworkInterface::new(name, address, parse(&interface["interfaceType"])));
    }
    if let Some(share) = of("downloads").and_then(|entries| download(entries, model)) {
        node.downloads.insert(model.to_owned(), share);
    }
    node
}

fn link(connection: &Value) -> Link {
    let of = |key: &str| text(&connection[key]);
    match of("type") {
        // As in `/ip4/10.0.0.1/tcp/1234`.
        "socket" => Link::socket(of("source"), of("sink"), of("multiaddr").split('/').nth(2).unwrap()),
        "rdma" => Link::rdma(of("source"), of("sink"), of("sourceIface"), of("sinkIface")),
        other => panic!("unknown connection {other}"),
    }
}

/// Card, cluster and request of a case; an error where the card is none here.
fn problem(case: &Value) -> Result<(ModelCard, Cluster, Request), Error> {
    let input = &case["input"];
    let card = ModelCard::from_json(&input["card"].to_string())?;
    // The reference takes no notice of a connection that it has already, and knows the nodes of all.
    let mut connections = input["connections"].as_array().unwrap().clone();
    let mut seen = BTreeSet::new();
    connections.retain(|connection| seen.insert(connection.to_string()));
    let links: Vec<Link> = connections.iter().map(link).collect();
    let mut names = ids(&input["nodes"]);
    for name in links.iter().flat_map(|link| [&link.source, &link.sink]) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let nodes = names.iter().map(|name| node(name.as_str(), input, &card.model_id)).collect();
    let mut request = Request::default()
        .sharding(parse::<Sharding>(&input["sharding"]))
        .transport(parse::<Transport>(&input["instanceMeta"]))
        // Less than one node is no node here.
        .min_nodes(usize::try_from(input["minNodes"].as_i64().unwrap()).unwrap_or(0));
    request.required_nodes = ids(&input["requiredNodes"]).into_iter().collect();
    request.excluded_nodes = ids(&input["excludedNodes"]).into_iter().collect();
    Ok((card, Cluster::new(nodes, links), request))
}

/// The cycles that the reference considered, in its order; where there were too many to record, the one that
/// it took.
fn recorded(case: &Value) -> Option<Vec<Vec<NodeId>>> {
    let expected = &case["expected"];
    match expected["cycles"].as_array() {
        Some(cycles) => Some(cycles.iter().map(ids).collect()),
        None => expected.get("nodeOrder").map(|order| vec![ids(order)]),
    }
}

fn report(error: &Error) -> Result<&PlanReport, String> {
    error.detail().ok_or_else(|| format!("no report: {error}"))
}

fn rule(error: &Error) -> Result<Rule, String> {
    Ok(report(error)?.refused.as_ref().ok_or("a report of no refusal")?.rule)
}

/// Whether nodes have the accelerator memory that the card asks for, which the reference does not look at.
fn have_vram(card: &ModelCard, cluster: &Cluster, names: &[NodeId]) -> bool {
    let needed = card.placement.min_vram_gib.unwrap_or(0.0) * 1024f64.powi(3);
    let has = |name: &NodeId| {
        let node = cluster.nodes.iter().find(|node| node.id == *name);
        node.and_then(accelerator_memory).unwrap_or(0) as f64 >= needed
    };
    names.iter().all(has)
}

/// A stage as the cases write shards.
fn shard(placement: &Placement, rank: usize) -> Value {
    let tagged = placement.shard_metadata(rank).unwrap();
    let (name, shard) = tagged.as_object().unwrap().iter().next().unwrap();
    let mut shard = shard.as_object().unwrap().clone();
    shard.retain(|field, _| !["modelCard", "immediateException", "shouldTimeout"].contains(&field.as_str()));
    shard.extend([
        ("node".to_owned(), json!(placement.stages()[rank].node)),
        ("type".to_owned(), json!(name)),
    ]);
    Value::Object(shard)
}

/// All that the reference says of a placement, in its words.
fn described(placement: &Placement) -> Value {
    let stages = placement.stages();
    let tensor = stages.iter().any(|stage| stage.part == Part::Tensor);
    let mut described = json!({
        "ok": true,
        "modelId": placement.card().unwrap().model_id,
        "contextTokenLimit": placement.context_limit(),
        "effectiveSharding": if tensor { "Tensor" } else { "Pipeline" },
        "nodeOrder": stages.iter().map(|stage| &stage.node).collect::<Vec<_>>(),
        "shards": (0..stages.len()).map(|rank| shard(placement, rank)).collect::<Vec<_>>(),
    });
    match placement.instance() {
        Instance::MlxRing { hosts_by_node, ephemeral_port } => {
            let hosts = hosts_by_node.iter().map(|(node, hosts)| {
                (node.to_string(), json!(hosts.iter().map(ToString::to_string).collect::<Vec<_>>()))
            });
            described["instanceType"] = json!("MlxRingInstance");
            described["effectiveInstanceMeta"] = json!("MlxRing");
            described["hostsByNode"] = Value::Object(hosts.collect());
            described["ephemeralPort"] = json!(ephemeral_port);
        }
        Instance::MlxJaccl { jaccl_devices, jaccl_coordinators } => {
            described["instanceType"] = json!("MlxJacclInstance");
            described["effectiveInstanceMeta"] = json!("MlxJaccl");
            described["jacclDevices"] = json!(jaccl_devices);
            described["jacclCoordinators"] = json!(jaccl_coordinators);
        }
        other => panic!("unknown {other:?}"),
    }
    described
}

/// Whether a card is one that only the reference takes: no name, or sizes and limits that cannot be.
fn is_refused_here(case: &Value) -> bool {
    let card = &case["input"]["card"];
    let placement = &card["placement"];
    let below = |value: &Value, least: f64| value.as_f64().is_some_and(|value| value < least);
    card["modelId"] == ""
        || below(&card["storageSize"]["inBytes"], 0.0)
        || below(&placement["minVramGib"], 0.0)
        || below(&placement["maxContextTokens"], 1.0)
}

fn as_recorded(case: &Value) -> Result<(), String> {
    let (card, cluster, mut request) = match problem(case) {
        Err(error) if is_refused_here(case) => {
            return expect("kind", &ErrorKind::CardInvalid, &error.kind());
        }
        Err(error) => return Err(error.to_string()),
        Ok(_) if is_refused_here(case) => return Err("a card was taken that cannot be".to_owned()),
        Ok(problem) => problem,
    };
    let expected = &case["expected"];
    let vram = cluster.nodes.iter().filter_map(|node| Some((node.id.to_string(), usable_vram(node)?)));
    expect("usableVram", &parse::<BTreeMap<String, u64>>(&expected["usableVram"]), &vram.collect())?;

    request.rings = recorded(case);
    let planned = Planner::plan(&card, &cluster, &request);
    // Skulk's documentation promises both, its planner looks at neither; this library's does.
    let order = expected.get("nodeOrder").map(ids);
    if let Some(order) = order.filter(|order| !have_vram(&card, &cluster, order)) {
        return match planned {
            Err(error) => expect("rule", &Rule::MinVram, &rule(&error)?),
            Ok(placement) => {
                let nodes: Vec<NodeId> = placement.stages().iter().map(|stage| stage.node.clone()).collect();
                expect("nodes with the memory", &true, &have_vram(&card, &cluster, &nodes))?;
                expect("other nodes", &true, &(nodes != order))
            }
        };
    }
    match (planned, expected["ok"].as_bool().unwrap()) {
        (Ok(placement), true) => {
            let mut described = described(&placement);
            let limit = expected["contextTokenLimit"].as_u64();
            let allowed = card.placement.max_context_tokens;
            let limit = limit.into_iter().chain(allowed).min();
            expect("contextTokenLimit", &json!(limit), &described["contextTokenLimit"])?;
            described["contextTokenLimit"] = expected["contextTokenLimit"].clone();
            for (key, value) in expected.as_object().unwrap() {
                if !["cycles", "usableVram"].contains(&key.as_str()) {
                    expect(key, value, &described[key])?;
                }
            }
            let unsaid =
                described.as_object().unwrap().keys().find(|key| expected.get(key.as_str()).is_none());
            expect("said by us alone", &None, &unsaid)
        }
        (Err(error), false) => {
            let found = (error.kind(), rule(&error)?);
            let all: Vec<NodeId> = cluster.nodes.iter().map(|node| node.id.clone()).collect();
            match (text(&expected["errorType"]), found) {
                ("PlacementInfoPendingError", (ErrorKind::PlanPending, Rule::Connected | Rule::Memory))
                | ("ValueError", (ErrorKind::PlanNoFit, Rule::Layers | Rule::Hosts)) => Ok(()),
                // Where some node has too little; what the reference says later does not count then.
                (_, (ErrorKind::PlanNoFit, Rule::MinVram)) if !have_vram(&card, &cluster, &all) => Ok(()),
                ("PlacementError", (ErrorKind::PlanNoFit, rule))
                    if !matches!(rule, Rule::Layers | Rule::Hosts | Rule::MinVram) =>
                {
                    Ok(())
                }
                (error, found) => Err(format!("expected {error}, found {found:?}")),
            }
        }
        (Ok(placement), false) => Err(format!("expected {}, found {placement}", expected["errorType"])),
        (Err(error), true) => Err(error.to_string()),
    }
}

#[test]
fn placements_are_the_references() {
    each(&cases("placements.json"), as_recorded);
}

/// What the planner's own rings must hold to, whatever the reference took.
fn on_its_own(case: &Value) -> Result<(), String> {
    if is_refused_here(case) {
        return Ok(());
    }
    let (card, cluster, request) = problem(case).map_err(|e| e.to_string())?;
    let planned = Planner::plan(&card, &cluster, &request);

    let mut turned = cluster.clone();
    turned.nodes.reverse();
    turned.links.reverse();
    match (&planned, Planner::plan(&card, &turned, &request)) {
        (Ok(a), Ok(b)) if *a == b => {}
        (Err(a), Err(b)) if a.to_string() == b.to_string() => {}
        (a, b) => return Err(format!("in another order: {a:?}, then {b:?}")),
    }

    let expected = &case["expected"];
    // Rings that pass the rule of memory are there for the reference if it placed the model, or failed later.
    let late = expected["ok"] == false && text(&expected["errorType"]) == "ValueError";
    match planned {
        Ok(placement) if expected["ok"] == true || late => {
            valid(&card, &cluster, &request, &placement)?;
            if let Some(order) = expected.get("nodeOrder").map(ids)
                && have_vram(&card, &cluster, &order)
            {
                expect("nodes", &order.len(), &placement.stages().len())?;
            }
            Ok(())
        }
        Ok(placement) => Err(format!("expected {}, found {placement}", expected["errorType"])),
        Err(error) if late => {
            let rule = rule(&error)?;
            expect("a late rule", &true, &matches!(rule, Rule::Layers | Rule::Hosts))
        }
        Err(error) if expected["ok"] == true => {
            let order = ids(&expected["nodeOrder"]);
            match rule(&error)? {
                Rule::MinVram if !have_vram(&card, &cluster, &order) => Ok(()),
                // The reference's memory rule does not know of whole layers.
                Rule::Layers if is_over(&card, &cluster, &request, expected) => Ok(()),
                _ => Err(error.to_string()),
            }
        }
        Err(error) => {
            let pending = text(&expected["errorType"]) == "PlacementInfoPendingError";
            expect("pending", &pending, &(error.kind() == ErrorKind::PlanPending))
        }
    }
}

/// Whether the reference gives a node more than its own memory rule allows.
fn is_over(card: &ModelCard, cluster: &Cluster, request: &Request, expected: &Value) -> bool {
    expected["shards"].as_array().unwrap().iter().any(|shard| {
        let layers = number(&shard["endLayer"]) - number(&shard["startLayer"]);
        let share = layers / card.n_layers as f64;
        let node = cluster.nodes.iter().find(|node| node.id == id(&shard["node"])).unwrap();
        let usable = usable_memory(node, Strictness::Safe).unwrap().bytes;
        shard_footprint(card, share, request.context_tokens, Strictness::Safe) > usable
    })
}

/// A ring whose neighbours reach each other, all layers once, and no node over what it may use.
fn valid(
    card: &ModelCard,
    cluster: &Cluster,
    request: &Request,
    placement: &Placement,
) -> Result<(), String> {
    let stages = placement.stages();
    let names: Vec<&NodeId> = stages.iter().map(|stage| &stage.node).collect();
    expect("different nodes", &names.len(), &names.iter().collect::<BTreeSet<_>>().len())?;
    for (i, from) in names.iter().enumerate().filter(|_| names.len() > 1) {
        let to = names[(i + 1) % names.len()];
        for (a, b) in [(*from, to), (to, *from)] {
            let linked = cluster.links.iter().any(|link| link.source == *a && link.sink == *b);
            expect("linked", &true, &linked)?;
        }
    }
    let mut next = 0;
    for stage in stages {
        match stage.part {
            Part::Whole => {
                expect("start", &next, &stage.layers.start)?;
                next = stage.layers.end;
            }
            Part::Tensor => expect("layers", &(0..card.n_layers), &stage.layers)?,
            // Each half has each layer, which the first test compares.
            _ => next = card.n_layers,
        }
    }
    if stages[0].part == Part::Whole {
        expect("layers", &card.n_layers, &next)?;
    }
    placement.check(card).map_err(|e| e.to_string())?;
    let report = placement.report().ok_or("no report")?;
    for (stage, node) in stages.iter().zip(&report.nodes) {
        let share = match stage.part {
            Part::Tensor => 1.0 / stages.len() as f64,
            _ => stage.layers.len() as f64 / card.n_layers as f64,
        };
        let footprint = shard_footprint(card, share, request.context_tokens, Strictness::Safe);
        expect("bytes", &footprint, &node.bytes.total())?;
        expect("bytes over", &0, &node.over())?;
    }
    Ok(())
}

#[test]
fn the_planners_own_rings_are_as_good() {
    each(&cases("placements.json"), on_its_own);
}
