//! Are placements by hand what was asked for, and is what cannot be refused with what to do?

use std::sync::Arc;

use skulk::plan::{ExpertShard, Inventory, LinkSpeed, PlacementBuilder};
use skulk::{
    CancelToken, Checkpoint, Cluster, EngineId, EngineOptions, Error, ErrorKind, LoadOptions, Model,
    ModelCard, Node, NodeId, Placement, Planner, Request, Result, TokenId, open_checkpoint,
};

use crate::fixtures::path;

/// Six layers of eight experts.
fn mixture() -> Inventory {
    Inventory::of_experts(6, 1 << 10, 1 << 10, (8, 2), 1 << 10, 64)
}

fn open(name: &str) -> Arc<dyn Checkpoint> {
    open_checkpoint(path(name)).unwrap()
}

/// What is in a fixture's placement whose layers are on `wgpu`, by a pattern.
fn overridden(name: &str, pattern: &str) -> Result<Placement> {
    let builder = PlacementBuilder::from_checkpoint(&*open(name)).unwrap();
    builder.engine("wgpu").override_tensors(pattern, "CPU").build()
}

/// Layers, experts and place of each shard.
fn listed(placement: &Placement) -> Vec<String> {
    let shard = |shard: &ExpertShard| {
        let (layers, experts) = (&shard.layers, &shard.experts);
        format!("{layers:?} {experts:?}/{} {}@{}", shard.n_experts, shard.engine().unwrap(), shard.node)
    };
    placement.experts().iter().map(shard).collect()
}

fn refused(found: Result<Placement>, kind: ErrorKind, parts: &[&str]) -> Error {
    let error = found.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.hint().is_some(), "{error}");
    for part in parts {
        assert!(error.message().contains(part), "expected {part:?}, found {error}");
    }
    error
}

fn invalid(found: Result<Placement>, parts: &[&str]) -> Error {
    refused(found, ErrorKind::PlacementInvalid, parts)
}

#[test]
fn layers_become_stages() {
    let builder = || Placement::builder(&mixture());
    let placement = builder().layers(4..6, "cpu@shed").layers(0..2, "wgpu").engine("cpu").build().unwrap();
    assert_eq!(
        placement.to_string(),
        "layers 0..2 on wgpu → layers 2..4 on cpu → layers 4..6 on shed (skulk-cpu)"
    );
    assert!(placement.experts().is_empty());
    // Stages are cut where they were named, as those of counts are.
    let placement = builder().layers(0..3, "cpu").layers(3..6, "cpu").build().unwrap();
    assert_eq!(placement, Placement::by_counts([("cpu", 3), ("cpu", 3)]).unwrap());
    assert_eq!(builder().engine(&EngineId::new("cpu")).build().unwrap(), "cpu=6".parse().unwrap());
    // Said twice, but alike.
    let placement = builder().layers(0..4, "cpu").layers(2..6, "CPU").build().unwrap();
    assert_eq!(placement, "cpu=4,cpu=2".parse().unwrap());
}

#[test]
fn experts_have_one_owner_each() {
    let builder = || Placement::builder(&mixture()).engine("wgpu");
    let placement = builder().feed_forward(1..4, "cpu").build().unwrap();
    assert_eq!(listed(&placement), ["1..4 0..8/8 cpu@local"]);
    // What is not named of a layer stays with its attention.
    let placement = builder().experts(1..4, 2..4, "cpu").experts(2..3, 6..8, "cpu@shed").build().unwrap();
    assert_eq!(
        listed(&placement),
        [
            "1..2 0..2/8 wgpu@local",
            "1..2 2..4/8 cpu@local",
            "1..2 4..8/8 wgpu@local",
            "2..3 0..2/8 wgpu@local",
            "2..3 2..4/8 cpu@local",
            "2..3 4..6/8 wgpu@local",
            "2..3 6..8/8 cpu@shed",
            "3..4 0..2/8 wgpu@local",
            "3..4 2..4/8 cpu@local",
            "3..4 4..8/8 wgpu@local",
        ]
    );
    // Rules meet, and may say the same twice.
    let placement = builder().experts(0..2, 4..8, "cpu").experts(0..2, 0..6, "cpu").build().unwrap();
    assert_eq!(listed(&placement), ["0..2 0..8/8 cpu@local"]);
    // What was named stays named, also where it is its layer's engine.
    let placement = builder().feed_forward(5..6, "wgpu").build().unwrap();
    assert_eq!(listed(&placement), ["5..6 0..8/8 wgpu@local"]);
    assert_eq!(Placement::from_json(&placement.to_json()).unwrap(), placement);
    assert_eq!(placement.experts()[0].node, NodeId::new("local"));
}

#[test]
fn what_cannot_be_is_refused() {
    let builder = || Placement::builder(&mixture());
    let open = invalid(builder().layers(0..2, "cpu").layers(4..6, "cpu").build(), &["none for layers 2..4"]);
    assert_eq!(open.context(), [("layer", "2".to_owned())]);
    invalid(builder().build(), &["none for layers 0..6"]);
    invalid(builder().layers(0..7, "cpu").build(), &["within 0..6", "layers 0..7 on cpu"]);
    invalid(builder().engine("cpu").layers(3..3, "cpu").build(), &["at least one", "3..3"]);
    invalid(builder().engine("cpu").feed_forward(0..usize::MAX, "cpu").build(), &["within 0..6"]);
    let twice = builder().layers(0..4, "cpu").layers(2..6, "wgpu").build();
    let twice = invalid(twice, &["one place", "layers 0..4 on cpu", "layers 2..6 on wgpu"]);
    assert_eq!(twice.context(), [("layer", "2".to_owned())]);

    let rest = || builder().engine("wgpu");
    let beyond = rest().experts(0..6, 6..9, "cpu").build();
    invalid(beyond, &["within 0..8 of layer 0", "experts 6..9 of layers 0..6 on cpu"]);
    invalid(rest().experts(0..6, 3..3, "cpu").build(), &["within 0..8"]);
    invalid(
        rest().experts(0..3, 0..4, "cpu").experts(2..4, 3..5, "cpu@shed").build(),
        &["experts 0..4 of layers 0..3 on cpu", "experts 3..5 of layers 2..4 on cpu@shed"],
    );
    // Beside a layer's engine computes the CPU only; another node decides for itself.
    invalid(rest().feed_forward(0..1, "candle-cpu").build(), &["on wgpu", "on candle-cpu"]);
    rest().feed_forward(0..1, "candle-cpu@shed").build().unwrap();
    Placement::builder(&mixture()).engine("wgpu:1").feed_forward(0..1, "wgpu").build().unwrap();

    for target in ["", "@shed", "cpu@", " @ "] {
        refused(builder().engine(target).build(), ErrorKind::InvalidArgument, &["engine@node"]);
    }
    let error = rest().override_tensors("exps", "cpu").build();
    refused(error, ErrorKind::InvalidArgument, &["a checkpoint", "`exps`"]);
    invalid(Placement::builder(&Inventory::default()).engine("cpu").build(), &["at least one stage"]);
}

/// Layers without blocks are passed over; layers that use others' keys and values stay with them.
#[test]
fn layers_differ() {
    let checkpoint = open("nemotron_h");
    let inventory = Inventory::from_checkpoint(&*checkpoint).unwrap();
    let has: Vec<usize> = (0..inventory.layers.len()).filter(|at| inventory.layers[*at].ffn > 0).collect();
    let lacks = (0..inventory.layers.len()).find(|at| !has.contains(at)).unwrap();
    for builder in [Placement::builder(&inventory), PlacementBuilder::from_checkpoint(&*checkpoint).unwrap()]
    {
        let builder = builder.engine("wgpu");
        let all = builder.clone().feed_forward(0..inventory.layers.len(), "cpu").build().unwrap();
        let placed: Vec<usize> = all.experts().iter().flat_map(|shard| shard.layers.clone()).collect();
        assert_eq!(placed, has);
        invalid(builder.clone().feed_forward(lacks..lacks + 1, "cpu").build(), &["blocks", "found none"]);
        invalid(builder.experts(lacks..lacks + 1, 0..1, "cpu").build(), &["within 0..0"]);
    }
    let checkpoint = open("gemma3n");
    let inventory = Inventory::from_checkpoint(&*checkpoint).unwrap();
    let joined = inventory.layers.iter().position(|layer| layer.joined).unwrap();
    let n = inventory.layers.len();
    for builder in [Placement::builder(&inventory), PlacementBuilder::from_checkpoint(&*checkpoint).unwrap()]
    {
        let cut = builder.layers(0..joined, "cpu").layers(joined..n, "wgpu").build();
        invalid(cut, &[&format!("layer {joined} in one stage")]);
    }
}

#[test]
fn patterns_mean_whole_blocks_and_experts() {
    // Experts with tensors of their own.
    let found = overridden("mixtral", r"layers\.[12]\.block_sparse_moe\.experts\.").unwrap();
    assert_eq!(listed(&found), ["1..3 0..8/8 cpu@local"]);
    let found = overridden("mixtral", r"layers\.0\..*experts\.[0-3]\.w[123]").unwrap();
    assert_eq!(listed(&found), ["0..1 0..4/8 cpu@local", "0..1 4..8/8 wgpu@local"]);
    // In a stack, with biases and scales beside; without `weight` at the end.
    for name in ["gpt_oss", "gpt_oss_mxfp4", "gpt_oss_mlx", "qwen3_moe_mlx"] {
        let found = overridden(name, r"layers\.1\.mlp\.(experts|switch_mlp)\.").unwrap();
        let [shard] = found.experts() else { panic!("{name}: {found:?}") };
        assert_eq!((shard.layers.clone(), shard.experts.len()), (1..2, shard.n_experts), "{name}");
    }
    // Dense blocks, in both spellings.
    let found = overridden("qwen2_gguf", r"blk\.(0|[2-3])\.ffn_(gate|up|down)\.").unwrap();
    assert_eq!(listed(&found), ["0..1 0..1/1 cpu@local", "2..4 0..1/1 cpu@local"]);
    let found = overridden("llama_mlx", r"^model\.layers\.2\.mlp\.\w+\.weight$").unwrap();
    assert_eq!(listed(&found), ["2..3 0..1/1 cpu@local"]);
    // Two patterns, and a range.
    let builder = || PlacementBuilder::from_checkpoint(&*open("mixtral")).unwrap().engine("wgpu");
    let found = builder()
        .override_tensors(r"layers\.0\..*experts", "CPU")
        .override_tensors(r"layers\.1\..*experts", "cpu@shed")
        .experts(2..3, 0..8, "cpu@shed");
    assert_eq!(listed(&found.build().unwrap()), ["0..1 0..8/8 cpu@local", "1..3 0..8/8 cpu@shed"]);
}

#[test]
fn patterns_that_mean_less_are_refused() {
    for (name, pattern, parts) in [
        ("mixtral", r"blk\..*_exps", &["match tensors", "`model.layers.0.block_sparse_moe.experts."][..]),
        ("mixtral", r"experts\.\d+\.w3", &["all of expert 0 of layer 0", "w3.weight", "not `", "w1.weight"]),
        ("mixtral", r"block_sparse_moe", &["routed experts alone", "gate.weight", "and 2 more"]),
        ("mixtral", "", &["`lm_head.weight` and"]),
        ("mixtral", r"self_attn\.q_proj", &["layers.0.self_attn.q_proj.weight"]),
        ("gpt_oss", r"experts\.down_proj", &["all of the block of layer 0", "not `", "gate_up_proj"]),
        ("gpt_oss", r"down_proj_bias", &["weights of blocks", "down_proj_bias` alone"]),
        ("llama_mlx", r"mlp\.\w+\.scales", &["weights of blocks", "scales"]),
        ("deepseek_v3", r"mlp\.shared_experts", &["shared_experts"]),
        ("qwen2_gguf", r"ffn_", &["ffn_norm.weight"]),
        (
            "qwen2_gguf",
            r"ffn_up\.",
            &["all of the block of layer 0", "`blk.0.ffn_up.weight`", "`blk.0.ffn_down.weight`"],
        ),
        ("qwen2_gguf", r"ffn_up=CPU,ffn_down=CPU", &["found none"]),
    ] {
        let error = invalid(overridden(name, pattern), parts);
        assert_eq!(error.context(), [("pattern", pattern.to_owned())], "{name}");
        assert!(error.message().contains(&format!("`{pattern}`")), "{error}");
    }
    for pattern in ["(", "(?=x)", r"\1", "x{1000}{1000}{1000}"] {
        let error = refused(overridden("mixtral", pattern), ErrorKind::InvalidArgument, &[pattern]);
        assert_eq!(error.context(), [("field", "override_tensors".to_owned())]);
    }
    let builder = || PlacementBuilder::from_checkpoint(&*open("mixtral")).unwrap().engine("wgpu");
    let apart = builder().override_tensors(r"layers\.[01]\..*experts", "CPU");
    let error = invalid(
        apart.clone().override_tensors(r"layers\.[12]\..*experts", "cpu@shed").build(),
        &[r"`layers\.[01]\..*experts` on cpu and", r"`layers\.[12]\..*experts` on cpu@shed"],
    );
    assert_eq!(error.context(), [("layer", "1".to_owned())]);
    invalid(
        apart.experts(0..1, 7..8, "wgpu").build(),
        &["the pattern", "experts 7..8 of layers 0..1 on wgpu"],
    );
}

/// On the engine that uses weights where they lie, bit for bit; beside one that copies them, as near as both compute alike.
#[test]
fn a_model_is_the_same_however_it_is_placed() {
    let checkpoint = open("mixtral");
    let tokens: Vec<_> = (0..40).map(|i: u32| TokenId(i * i * 31 % 2048)).collect();
    let logits = |options: LoadOptions| {
        let options = options.kv(skulk::KvType::F32);
        let model = Model::open(path("mixtral"), &options).unwrap();
        (model.logits(tokens.clone(), &CancelToken::new()).unwrap(), model.stages()[0].device.clone())
    };
    let threads = || LoadOptions::default().engine_options(EngineOptions::default().threads(1));
    let (expected, _) = logits(threads());
    let largest = expected.iter().fold(0.0, |largest: f32, logit| largest.max(logit.abs()));
    let placed = |engine: &str| {
        let builder = PlacementBuilder::from_checkpoint(&*checkpoint).unwrap().layers(0..3, engine);
        let builder =
            builder.feed_forward(0..1, "cpu").override_tensors(r"layers\.2.*experts\.[0-4]\.", "CPU");
        logits(threads().placement(builder.build().unwrap()))
    };
    assert_eq!(placed("cpu").0, expected);
    if !cfg!(feature = "candle") {
        return;
    }
    let (found, device) = placed("candle-cpu");
    assert!(device.contains("feed-forward on"), "{device}");
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() <= 1e-3 * largest, "{found} {expected}");
    }
}

/// Placements by hand are checked and priced as planned ones are.
#[test]
fn what_it_costs_is_known() {
    let checkpoint = open("mixtral");
    let card = ModelCard::from_checkpoint(path("mixtral")).unwrap();
    let node = |id: &str| Node::new(id).backends(["skulk-cpu"]).memory(8 << 30, 16 << 30);
    let cluster = Cluster::mesh(vec![node("local"), node("shed")], LinkSpeed::DEFAULT);
    let inventory = Inventory::from_checkpoint(&*checkpoint).unwrap();
    let request = Request::default().context_tokens(256).inventory(inventory);
    let builder = || PlacementBuilder::from_checkpoint(&*checkpoint).unwrap();
    let price = |placement: &Placement| Planner::price(&card, &cluster, &request, placement);
    let here = builder().engine("cpu").build().unwrap();
    let apart = builder().engine("cpu").override_tensors("experts", "cpu@shed").build().unwrap();
    for placement in [&here, &apart] {
        placement.check(&card).unwrap();
    }
    let ((near, _), (far, _)) = (price(&here).unwrap(), price(&apart).unwrap());
    assert_eq!(near.fan_out_seconds, 0.0);
    assert!(far.fan_out_seconds > 0.0 && far.tokens_per_second < near.tokens_per_second);
    let error = price(&builder().engine("wgpu").build().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlacementInvalid);
}
