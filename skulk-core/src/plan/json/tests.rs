use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::Fault;
use crate::card::{ModelCard, RuntimeCardConfig};
use crate::error::ErrorKind;
use crate::kv_type::{KvType, KvTypes};
use crate::plan::{Budget, Bytes, Drafter, ExpertShard, Host, Instance, NodeId, Part, Placement, Stage};

fn card(context_length: i64) -> ModelCard {
    let runtime = RuntimeCardConfig { mtp_max_depth: Some(3), ..RuntimeCardConfig::default() };
    ModelCard {
        supports_tensor: true,
        context_length,
        runtime: Some(runtime),
        ..ModelCard::new("org/model", 1000, 6, 8)
    }
}

/// Stages of one kind over 6 layers, or as many as a pipeline needs.
fn stages(kind: usize, world: usize, backends: &[Option<String>]) -> (Vec<Stage>, usize) {
    let backend = |rank: usize| backends.get(rank % backends.len().max(1)).cloned().flatten();
    let stage = |rank: usize, layers, part| Stage {
        node: NodeId::new(format!("node {rank}")),
        backend: backend(rank),
        layers,
        part,
    };
    match kind {
        0 => ((0..world).map(|i| stage(i, 2 * i..2 * i + 2, Part::Whole)).collect(), 2 * world),
        1 => ((0..world).map(|i| stage(i, 0..6, Part::Tensor)).collect(), 6),
        _ => {
            let half = world.div_ceil(2);
            let place = |i: usize| if i < half { (0, i) } else { (1, 2 * half - 1 - i) };
            let part = |i: usize| Part::Cfg {
                cfg_rank: place(i).0,
                cfg_world_size: 2,
                pipeline_rank: place(i).1,
                pipeline_world_size: half,
            };
            let layers = |i: usize| 2 * place(i).1..2 * place(i).1 + 2;
            ((0..2 * half).map(|i| stage(i, layers(i), part(i))).collect(), 2 * half)
        }
    }
}

fn instance(kind: usize, stages: &[Stage]) -> Instance {
    let nodes = || stages.iter().map(|stage| stage.node.clone());
    let world = stages.len();
    match kind {
        0 => Instance::Direct { coordinator: NodeId::new("node 0") },
        1 => {
            let host = |i: usize| Host { ip: format!("10.0.0.{i}"), port: if i == 0 { 0 } else { 65_535 } };
            let hosts: Vec<_> = (0..world).map(host).collect();
            Instance::MlxRing {
                hosts_by_node: nodes().map(|node| (node, hosts.clone())).collect(),
                ephemeral_port: 50_000,
            }
        }
        _ => Instance::MlxJaccl {
            jaccl_devices: (0..world)
                .map(|i| (0..world).map(|j| (i != j).then(|| format!("rdma_en{j}"))).collect())
                .collect(),
            jaccl_coordinators: nodes().map(|node| (node, "10.0.0.1:50000".to_owned())).collect(),
        },
    }
}

fn placement(shards: usize, transport: usize, world: usize, backends: &[Option<String>]) -> Placement {
    let (stages, n_layers) = stages(shards, world, backends);
    let mut placement = Placement::new(stages, n_layers).unwrap();
    placement.instance = instance(transport, &placement.stages);
    placement
}

/// One of each transport, with all that it can hold.
fn samples() -> Vec<Placement> {
    let backends = [Some("mlx-metal".to_owned()), None];
    let mut samples = vec![
        placement(0, 0, 2, &backends),
        placement(0, 1, 2, &backends),
        placement(1, 2, 2, &backends),
        placement(2, 1, 4, &backends),
    ];
    for sample in &mut samples {
        sample.card = Some(Arc::new(card(4096)));
        sample.context_limit = Some(4096);
    }
    let direct = &mut samples[0];
    direct.context_tokens = Some(2048);
    direct.sessions = Some(3);
    direct.ffn_budget = Some(1 << 40);
    direct.weights = Some(3);
    direct.kv = Some(KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 });
    direct.experts.push(ExpertShard {
        node: NodeId::new("memory"),
        backend: Some("skulk-cpu".to_owned()),
        layers: 1..4,
        experts: 0..7,
        n_experts: 7,
        replica: false,
    });
    let bytes = Bytes { attention: 1, feed_forward: 2, kv_cache: 3, activations: 4, headroom: u64::MAX };
    let drafter = Some(Drafter { mtp: true, bytes: Bytes { headroom: 0, ..bytes } });
    direct.budgets.push(Budget { node: NodeId::new("node 0"), backend: None, bytes, usable: 9, drafter });
    samples
}

fn value(placement: &Placement) -> Value {
    serde_json::from_str(&placement.to_json()).unwrap()
}

fn read(value: &Value) -> crate::Result<Placement> {
    Placement::from_json(&value.to_string())
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9-]{1,12}", any::<String>().prop_filter("a name", |name| !name.is_empty())]
}

prop_compose! {
    fn placements()(
        shards in 0usize..3,
        transport in 0usize..3,
        world in 1usize..9,
        backends in proptest::collection::vec(proptest::option::of(names()), 1..4),
        renamed in proptest::collection::btree_map(0usize..9, names(), 0..4),
        kv in proptest::option::of((select(KvType::ALL), select(KvType::ALL))),
        card_context in proptest::option::of(-1i64..9000),
        limit in proptest::option::of(any::<u64>()),
        experts in proptest::collection::vec((names(), 0usize..4, 0usize..60_000, any::<bool>()), 0..5),
        bytes in proptest::collection::vec(any::<u64>(), 6),
        drafter in proptest::option::of(any::<bool>()),
    ) -> Placement {
        let mut placement = placement(shards, transport, world, &backends);
        if transport == 0 {
            placement.kv = kv.map(|(keys, values)| KvTypes { keys, values });
        }
        let mut taken: std::collections::BTreeSet<String> =
            placement.stages.iter().map(|stage| stage.node.to_string()).collect();
        for (rank, name) in renamed {
            if let Some(stage) = placement.stages.get_mut(rank)
                && taken.insert(name.clone())
            {
                stage.node = NodeId::new(name);
            }
        }
        placement.instance = instance(transport, &placement.stages);
        placement.card = card_context.map(|tokens| Arc::new(card(tokens)));
        let trained = card_context.and_then(|tokens| u64::try_from(tokens).ok()).filter(|tokens| *tokens > 0);
        placement.context_limit = limit.or(trained);
        if transport == 0 {
            // Two owners for each of some layers, or helpers, of which there may be any.
            let mut placed = std::collections::BTreeSet::new();
            for (node, layer, cut, replica) in experts {
                let layer = layer % placement.n_layers;
                if !replica && !placed.insert(layer) {
                    continue;
                }
                let shard = |experts| ExpertShard {
                    node: NodeId::new(node.clone()),
                    backend: None,
                    layers: layer..layer + 1,
                    experts,
                    n_experts: 60_001,
                    replica,
                };
                placement.experts.extend([shard(0..cut + 1), shard(cut + 1..60_001)]);
            }
            placement.experts.retain(|shard| !shard.experts.is_empty());
            placement.budgets = placement.stages.iter().map(|stage| Budget {
                node: stage.node.clone(),
                backend: stage.backend.clone(),
                bytes: Bytes {
                    attention: bytes[0],
                    feed_forward: bytes[1],
                    kv_cache: bytes[2],
                    activations: bytes[3],
                    headroom: bytes[4],
                },
                usable: bytes[5],
                drafter: drafter.map(|mtp| Drafter { mtp, bytes: Bytes { attention: bytes[5], ..Bytes::default() } }),
            }).collect();
        }
        placement
    }
}

proptest! {
    #[test]
    fn placements_come_back_as_they_were(placement in placements()) {
        let read = Placement::from_json(&placement.to_json());
        prop_assert_eq!(read.as_ref().ok(), Some(&placement), "{:?}", read);
    }

    #[test]
    fn no_text_makes_reading_panic(text in any::<String>(), cut in 0usize..2000, at in 0usize..4) {
        let _ = Placement::from_json(&text);
        let json = samples()[at].to_json();
        let end = (0..=cut.min(json.len())).rev().find(|end| json.is_char_boundary(*end)).unwrap_or(0);
        if end < json.len() {
            prop_assert!(Placement::from_json(&json[..end]).is_err());
        }
    }
}

/// Every pointer (RFC 6901) to a value within, but for cards, which have tests of their own.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    let mut walk = |key: &str, value: &Value| {
        let pointer = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        out.push(pointer.clone());
        if key != "modelCard" {
            pointers(value, &pointer, out);
        }
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| walk(key, value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| walk(&i.to_string(), value)),
        _ => {}
    }
}

fn assert_typed(result: crate::Result<Placement>, what: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{what} was accepted"));
    assert_eq!(error.kind(), ErrorKind::PlacementInvalid, "{what}");
    assert!(error.message().contains("expected") && error.message().contains("found"), "{what}: {error}");
    assert!(error.context().iter().any(|(key, _)| *key == "field"), "{what}: {error}");
    assert!(error.to_string().len() < 2000, "{what}");
}

#[test]
fn what_is_missing_of_another_type_or_too_much_is_an_error() {
    let optional = [
        "resolvedBackend",
        "backend",
        "contextTokens",
        "sessions",
        "keys",
        "values",
        "contextTokenLimit",
        "immediateException",
        "shouldTimeout",
        "cfgWorldSize",
        "drafter",
        "ffnBudget",
        "weights",
    ];
    for sample in samples() {
        let good = value(&sample);
        assert_eq!(read(&good).unwrap(), sample);
        let mut all = Vec::new();
        pointers(&good, "", &mut all);
        for pointer in &all {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let key = key.replace("~1", "/");
            let was = good.pointer(pointer).unwrap();

            if good.pointer(parent).unwrap().is_object() && !parent.is_empty() {
                let mut bad = good.clone();
                bad.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(&key);
                match optional.contains(&key.as_str()) {
                    true => assert!(read(&bad).is_ok(), "without {pointer}"),
                    false => assert_typed(read(&bad), &format!("no {pointer}")),
                }
            }
            let mut wrong = vec![json!([]), json!({}), json!({ "x": 1 }), json!([[[[1]]]]), json!(true)];
            match was {
                Value::Number(_) => wrong.extend([
                    json!("1"),
                    json!(-1),
                    json!(1.5),
                    json!(1e300),
                    json!(2.0),
                    json!(i64::MIN),
                ]),
                Value::String(_) => wrong.extend([json!(1), json!(-1.5)]),
                Value::Null | Value::Bool(_) => wrong.extend([json!(1e300), json!(-1)]),
                Value::Array(_) | Value::Object(_) => wrong.extend([json!(1), json!("x"), json!(null)]),
            }
            if was.is_boolean() {
                wrong.retain(|value| !value.is_boolean());
            }
            if was.is_number()
                && !["budgets", "contextToken", "ffnBudget", "weights"].iter().any(|it| pointer.contains(it))
            {
                wrong.extend([json!(65_537), json!(u64::MAX)]);
            }
            if was.is_number() && pointer.contains("ort") {
                wrong.retain(|value| value.as_u64() != Some(65_537));
                wrong.push(json!(65_536));
            }
            // No experts and no budgets are as good as some.
            if ["experts", "budgets"].contains(&key.as_str()) {
                wrong.retain(|value| *value != json!([]));
            }
            if key == "drafter" {
                wrong.retain(|value| !value.is_null());
            }
            // So is no card, but then there must be no name either.
            if was.is_string() && !["instanceId"].contains(&key.as_str()) {
                wrong.push(json!(""));
            }
            if was.is_string()
                && (pointer.contains("hosts") || key == "0" || key == "1" || pointer.contains("Coordinators"))
            {
                wrong.retain(|value| *value != json!(""));
            }
            for value in wrong {
                let mut bad = good.clone();
                *bad.pointer_mut(pointer).unwrap() = value.clone();
                assert_typed(read(&bad), &format!("{value} at {pointer}"));
            }
            if was.is_object() && key != "modelCard" {
                let mut bad = good.clone();
                bad.pointer_mut(pointer).unwrap()["surprise"] = json!(1);
                assert_typed(read(&bad), &format!("a surprise in {pointer}"));
            }
        }
    }
}

#[test]
fn faults_in_cards_are_told() {
    let mut bad = value(&samples()[0]);
    bad["SkulkInstance"]["modelCard"]["nLayers"] = json!(0);
    let error = read(&bad).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlacementInvalid);
    assert_eq!(error.context()[0], ("field", "SkulkInstance.modelCard.nLayers".to_owned()));
    assert!(error.detail::<Vec<Fault>>().is_some_and(|faults| faults.len() == 1));
}

#[test]
fn the_card_of_every_shard_must_be_the_same() {
    let sample = &samples()[1];
    let mut value = value(sample);
    let pointer = |rank: usize| {
        let runner = sample.runner_id(rank).replace('/', "~1");
        format!("/MlxRingInstance/shardAssignments/runnerToShard/{runner}/PipelineShardMetadata/modelCard")
    };
    *value.pointer_mut(&pointer(1)).unwrap() = json!({
        "model_id": "org/model", "storage_size": { "in_bytes": 1000 }, "n_layers": 6, "hidden_size": 8,
        "supports_tensor": true, "tasks": ["TextGeneration"], "context_length": 4096,
        "runtime": { "mtp_max_depth": 3 },
    });
    assert_eq!(read(&value).unwrap(), *sample, "the same card, written otherwise");
    value.pointer_mut(&pointer(1)).unwrap()["hidden_size"] = json!(16);
    assert_typed(read(&value), "another card");
    *value.pointer_mut(&pointer(1)).unwrap() = Value::Null;
    assert_typed(read(&value), "no card");
    *value.pointer_mut(&pointer(1)).unwrap() = json!({});
    assert_typed(read(&value), "a bad card");
}

#[test]
fn shards_that_do_not_cover_the_model_are_errors() {
    let sample = &samples()[0];
    let set = |changes: &[(&str, Value)]| {
        let mut value = value(sample);
        for (pointer, new) in changes {
            *value.pointer_mut(&format!("/SkulkInstance/{pointer}")).unwrap() = new.clone();
        }
        read(&value)
    };
    let shard = |rank: usize, field: &str| format!("stages/{rank}/shard/PipelineShardMetadata/{field}");
    for (field, new) in [
        (shard(1, "startLayer"), 1),
        (shard(1, "startLayer"), 3),
        (shard(1, "endLayer"), 3),
        (shard(0, "endLayer"), 0),
        (shard(0, "deviceRank"), 1),
        (shard(0, "deviceRank"), 2),
        (shard(0, "worldSize"), 1),
        (shard(1, "nLayers"), 5),
        ("nLayers".to_owned(), 5),
        ("experts/0/endLayer".to_owned(), 5),
        ("experts/0/endLayer".to_owned(), 1),
        ("experts/0/endExpert".to_owned(), 2),
        ("experts/0/startExpert".to_owned(), 1),
        ("experts/0/nExperts".to_owned(), 8),
    ] {
        assert_typed(set(&[(&field, json!(new))]), &format!("{new} in {field}"));
    }
    let expert = json!({ "node": "m", "startLayer": 3, "endLayer": 4, "startExpert": 6, "endExpert": 8, "nExperts": 8, "replica": false });
    let owned = set(&[("experts", json!([expert, value(sample)["SkulkInstance"]["experts"][0]]))]);
    assert_typed(owned, "an expert with two owners");
    let stages = &value(sample)["SkulkInstance"]["stages"];
    let swapped = set(&[("stages", json!([stages[1], stages[0]]))]).unwrap();
    assert_eq!(swapped.stages(), sample.stages(), "the rank tells the order");
    let mut mixed = stages.clone();
    let shard = mixed[1]["shard"]["PipelineShardMetadata"].take();
    mixed[1]["shard"] = json!({ "TensorShardMetadata": shard });
    assert_typed(set(&[("stages", mixed)]), "two kinds of shards");
}

/// As Skulk 1.3 sends it: names drawn at random.
fn foreign() -> Value {
    let card = card(0).to_value();
    let shard = |rank: usize, from: usize, to: usize| {
        json!({ "PipelineShardMetadata": {
            "modelCard": card, "deviceRank": rank, "worldSize": 2, "resolvedBackend": "mlx-metal",
            "immediateException": false, "shouldTimeout": null, "startLayer": from, "endLayer": to, "nLayers": 6,
        } })
    };
    json!({ "MlxRingInstance": {
        "instanceId": "6b5e", "shardAssignments": {
            "modelId": "org/model",
            "runnerToShard": { "r-b": shard(1, 4, 6), "r-a": shard(0, 0, 4) },
            "nodeToRunner": { "b": "r-b", "a": "r-a" },
        },
        "contextTokenLimit": null,
        "hostsByNode": {
            "a": [{ "ip": "0.0.0.0", "port": 50000 }, { "ip": "10.0.0.2", "port": 50000 }],
            "b": [{ "ip": "10.0.0.1", "port": 50000 }, { "ip": "0.0.0.0", "port": 50000 }],
        },
        "ephemeralPort": 50000,
    } })
}

#[test]
fn given_names_are_kept() {
    let read_in = read(&foreign()).unwrap();
    assert_eq!(read_in.stages()[0].node.as_str(), "a");
    assert_eq!(read_in.stages()[0].layers, 0..4);
    assert_eq!(read_in.instance_id(), "6b5e");
    assert_eq!((read_in.runner_id(0), read_in.runner_id(1)), ("r-a".to_owned(), "r-b".to_owned()));
    assert_eq!(read_in.context_limit(), None);
    let written = value(&read_in);
    assert_eq!(written["MlxRingInstance"]["instanceId"], "6b5e");
    assert_eq!(read(&written).unwrap(), read_in);
    // The same values, whatever the order; unset fields that Skulk 1.3 does not have are not written.
    let mut expected = foreign();
    for runner in ["r-a", "r-b"] {
        let pointer =
            format!("/MlxRingInstance/shardAssignments/runnerToShard/{runner}/PipelineShardMetadata");
        let card = &mut expected.pointer_mut(&pointer).unwrap()["modelCard"];
        card.as_object_mut().unwrap().remove("facts");
        let runtime = &mut card["runtime"];
        runtime.as_object_mut().unwrap().retain(|key, _| !key.starts_with("servedSpec"));
    }
    assert_eq!(written, expected);
}

#[test]
fn tags_may_be_missing_and_keys_in_either_case() {
    fn relaxed(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                if let Some((key, inner)) = map.iter().next()
                    && (key.ends_with("Metadata") || key.ends_with("Instance"))
                {
                    return relaxed(inner);
                }
                let snake = |key: &str| match key.contains(['/', '@', ' ']) {
                    true => key.to_owned(),
                    false => crate::strict::snake_case(key).unwrap(),
                };
                Value::Object(map.iter().map(|(key, value)| (snake(key), relaxed(value))).collect())
            }
            Value::Array(list) => list.iter().map(relaxed).collect(),
            other => other.clone(),
        }
    }
    for sample in samples() {
        let relaxed = relaxed(&value(&sample));
        assert!(relaxed.get("instance_id").is_some());
        assert_eq!(read(&relaxed).unwrap(), sample);
        let mut twice = relaxed.clone();
        twice["instanceId"] = twice["instance_id"].clone();
        assert_typed(read(&twice), "a field in both spellings");
    }
}

#[test]
fn an_unknown_context_limit_is_what_the_model_was_trained_for() {
    for mut sample in samples() {
        sample.context_limit = None;
        assert_eq!(read(&value(&sample)).unwrap().context_limit(), Some(4096));
        sample.card = Some(Arc::new(card(-1)));
        assert_eq!(read(&value(&sample)).unwrap().context_limit(), None);
    }
}

#[test]
fn what_no_placement_can_say_is_refused() {
    let mut value = foreign();
    let pointer = "/MlxRingInstance/shardAssignments/runnerToShard/r-a/PipelineShardMetadata";
    value.pointer_mut(pointer).unwrap()["shouldTimeout"] = json!(1.5);
    assert_typed(read(&value), "a timeout");
    value.pointer_mut(pointer).unwrap()["shouldTimeout"] = Value::Null;
    value.pointer_mut(pointer).unwrap()["immediateException"] = json!(true);
    assert_typed(read(&value), "an exception");
    let mut value = foreign();
    value["MlxRingInstance"]["shardAssignments"]["nodeToRunner"]["c"] = json!("r-a");
    assert_typed(read(&value), "a runner on two nodes");
    for text in
        ["", "null", "[]", "{}", "1", "\"x\"", "{\"a\":1}", "{\"MlxRingInstance\":1}", "{\"stages\":[]}"]
    {
        assert_typed(Placement::from_json(text), text);
    }
    assert_typed(Placement::from_json(&"[".repeat(100_000)), "deep nesting");
}

#[test]
fn long_names_cost_no_more_than_themselves() {
    let mut value = foreign();
    let long = "n".repeat(1 << 20);
    let hosts = json!(vec![json!({ "ip": "", "port": 1 }); 20_000]);
    value["MlxRingInstance"]["hostsByNode"] = json!({ long: hosts });
    assert_typed(read(&value), "too many hosts");
}

#[test]
fn shards_are_as_the_reference_gives_them_to_runners() {
    for sample in samples() {
        let world = sample.stages().len();
        for rank in 0..world {
            let shard = sample.shard_metadata(rank).unwrap();
            let (tag, shard) = shard.as_object().unwrap().iter().next().unwrap();
            let cfg = matches!(sample.stages()[rank].part, Part::Cfg { .. });
            assert_eq!(tag == "CfgShardMetadata", cfg);
            assert_eq!(shard["deviceRank"], rank);
            assert_eq!(shard["worldSize"], world);
            assert_eq!(shard["modelCard"]["modelId"], "org/model");
            assert_eq!(shard.as_object().unwrap().len(), if cfg { 13 } else { 9 });
        }
        assert_eq!(sample.shard_metadata(world), None);
    }
}

#[test]
fn derived_names_tell_placements_apart() {
    let mut names = BTreeMap::new();
    for shards in 0..3 {
        for transport in 0..3 {
            for world in [2, 4, 6] {
                for backend in [None, Some("a".to_owned())] {
                    let placement = placement(shards, transport, world, &[backend]);
                    assert_eq!(placement.instance_id(), placement.clone().instance_id());
                    assert_eq!(names.insert(placement.instance_id(), placement), None);
                }
            }
        }
    }
    // It must never change, for other software remembers it.
    let mut plain = placement(0, 0, 2, &[None]);
    assert_eq!(plain.instance_id(), "model@ca312808545f46e7");
    plain.card = Some(Arc::new(card(0)));
    assert!(plain.instance_id().starts_with("org--model@"));
    assert_eq!(plain.runner_id(1), format!("{}/1", plain.instance_id()));
}
