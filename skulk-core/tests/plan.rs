//! Do plans count a checkpoint's own bytes, and does a model run as planned?

use std::sync::Arc;

use skulk::arch::ArchSpec;
use skulk::engine::{KvType, KvTypes, ShardSpec};
use skulk::plan::{Accelerator, Inventory, Vendor};
use skulk::{
    ByteSize, Cluster, EngineId, ErrorKind, GenerateOptions, LoadOptions, Model, ModelCard, Node, Placement,
    Planner, Precision, Prompt, Request, Stage, TokenId, open_checkpoint,
};

use crate::fixtures::{copied, gemma, path, root};
use crate::parity::cpu::stages::{self, load_shard};

const MODELS: [&str; 4] = ["gemma3", "llama", "mixtral", "stories260K"];

/// The bytes of the weights of a range of layers.
fn held(inventory: &Inventory, layers: std::ops::Range<usize>) -> u64 {
    let last = inventory.layers.len();
    let mut bytes: u64 = inventory.layers[layers.clone()].iter().map(|layer| layer.total()).sum();
    if layers.start == 0 || layers.end == last && inventory.tied_embeddings {
        bytes += inventory.embedding;
    }
    if layers.end == last {
        bytes += inventory.head;
    }
    bytes
}

#[test]
fn inventories_count_what_shards_hold() {
    let engine = skulk::engines::cpu(&skulk::EngineOptions::default().threads(1)).unwrap();
    // Scales beside weights, and experts of which two lie in one tensor.
    let beside = ["llama_mlx", "gpt_oss_mlx", "gpt_oss_mxfp4"].map(path);
    for path in MODELS.map(path).into_iter().chain(beside).chain(gemma()) {
        let checkpoint = open_checkpoint(&path).unwrap();
        let name = path.display().to_string();
        let inventory = Inventory::from_checkpoint(&*checkpoint).unwrap();
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let n = arch.n_layers();
        assert!(inventory.exact && inventory.layers.len() == n);
        for layers in [0..n, 0..1, n - 1..n, 1..n] {
            let spec = ShardSpec::new(Arc::clone(&arch), layers.clone(), 16, 16, KvType::F16).unwrap();
            let shard = load_shard(&*engine, &spec, &*checkpoint).unwrap();
            assert_eq!(held(&inventory, layers.clone()), shard.weight_bytes().bytes(), "{name} {layers:?}");
            let kv: u64 = inventory.layers[layers].iter().map(|layer| layer.kv_per_token * 16).sum();
            assert!(engine.estimate(&spec, &*checkpoint).unwrap().kv_cache.bytes() >= kv, "{name}");
        }
        for layer in &inventory.layers {
            assert_eq!(layer.n_experts > 0, name.ends_with("mixtral") || name.contains("gpt_oss"), "{name}");
            assert!(layer.attention > 0 && layer.feed_forward() > layer.attention / 8);
        }
    }
}

/// Of every model that can run, with bytes that no device holds, as what sees and layers that predict tokens, and of folders that
/// do not say for what context it was trained: what is planned passes its own check, and loading gives the context it says.
#[test]
fn what_is_planned_is_sound() {
    let node = Node::new("local").backends(["skulk-cpu"]).memory(8 << 30, 16 << 30);
    let cluster = Cluster::new(vec![node], Vec::new());
    let folders =
        ["models", "vindex/made", "vindex", "mlx"].map(|folder| root().join("tests/fixtures").join(folder));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut planned = 0;
    for path in entries.map(|entry| entry.unwrap().path()) {
        let Ok(checkpoint) = open_checkpoint(&path) else { continue };
        let Ok(arch) = ArchSpec::from_checkpoint(&*checkpoint) else { continue };
        let name = path.display();
        let card = ModelCard::from_checkpoint(&path).unwrap();
        if !card.placement.compatible_backends.contains("skulk-cpu") {
            continue;
        }
        let trained = arch.context_length as u64;
        for tokens in [64, u64::MAX] {
            let request = Request::default().context_tokens(tokens);
            let placement = match Planner::plan_checkpoint(&path, &cluster, &request) {
                Err(error) => panic!("{name}: {error:?}"),
                Ok(placement) => placement,
            };
            assert_eq!(placement.context_tokens(), Some(tokens.min(trained)), "{name}");
            assert!(placement.context_limit().is_some_and(|limit| limit <= trained), "{name}");
            let by_card = Planner::plan(&card, &cluster, &request).unwrap();
            assert_eq!(by_card.context_tokens(), placement.context_tokens(), "{name}");
            for placement in [&placement, &Placement::from_json(&placement.to_json()).unwrap()] {
                placement.check(&card).unwrap_or_else(|error| panic!("{name}: {error:?}"));
                placement.check_on(&card, &cluster, 64).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            }
            // Half of what was counted is not all of it.
            let text = placement.to_json();
            let held = placement.budgets()[0].bytes.attention;
            let less = text.replace(&format!("\"attention\":{held}"), &format!("\"attention\":{}", held / 2));
            assert!(less != text && Placement::from_json(&less).unwrap().check(&card).is_err(), "{name}");
        }
        planned += 1;
    }
    assert!(planned > 35, "{planned}");
}

/// A plan of a smaller model says less than this one takes.
#[test]
fn plans_of_other_models_are_not_loaded() {
    let node = Node::new("local").backends(["skulk-cpu"]).memory(8 << 30, 16 << 30);
    let cluster = Cluster::new(vec![node], Vec::new());
    let plan =
        |name: &str, request: &Request| Planner::plan_checkpoint(path(name), &cluster, request).unwrap();
    let request = Request::default().context_tokens(16);
    let small = plan("stories260K", &request);
    let card = ModelCard::from_checkpoint(path("llama")).unwrap();
    // Its layers, but a tenth of its weights.
    let mut inventory = Inventory::from_checkpoint(&*open_checkpoint(path("llama")).unwrap()).unwrap();
    for layer in &mut inventory.layers {
        (layer.attention, layer.ffn) = (layer.attention / 100, layer.ffn / 100);
    }
    (inventory.embedding, inventory.head) = (inventory.embedding / 100, inventory.head / 100);
    (inventory.step_row, inventory.vocabulary) = (64, 1);
    let described = plan("llama", &request.clone().inventory(inventory.clone()));
    assert_eq!(described.report().unwrap().weights, inventory.weights());
    let checkpoint = open_checkpoint(path("llama")).unwrap();
    let error = Model::load(&*checkpoint, &described, &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlacementInvalid, "{error:?}");
    assert!(error.message().contains("that the placement plans for them"), "{error:?}");
    Model::load(&*checkpoint, &plan("llama", &request), &options()).unwrap();
    let error = Planner::price(&card, &cluster, &request, &small).unwrap_err();
    assert!(error.message().contains("expected a placement of"), "{error:?}");
}

/// Candle's engines do not compute with rows that are padded to whole blocks: plans, checks and prices say so.
#[test]
fn what_an_engine_cannot_run_is_refused_with_the_reason() {
    let path = root().join("tests/fixtures/vindex/made/tiny-llama320.q4k.vindex");
    let card = ModelCard::from_checkpoint(&path).unwrap();
    let node = Node::new("local").backends(["skulk-candle-cpu"]).memory(8 << 30, 16 << 30);
    let cluster = Cluster::new(vec![node], Vec::new());
    let refused = |error: skulk::Error| {
        let reason = error.hint().unwrap_or_default().to_owned();
        assert!(reason.contains("rows are padded to whole blocks"), "{error:?}");
    };
    refused(Planner::plan_checkpoint(&path, &cluster, &Request::default()).unwrap_err());
    let by_hand = Placement::even(card.n_layers, 1, &EngineId::new("candle-cpu")).unwrap();
    refused(by_hand.check(&card).unwrap_err());
    refused(Planner::price(&card, &cluster, &Request::default(), &by_hand).unwrap_err());
    let on_cpu = Placement::even(card.n_layers, 1, &EngineId::new("cpu")).unwrap();
    on_cpu.check(&card).unwrap();
    let error = Planner::price(&card, &cluster, &Request::default(), &on_cpu).unwrap_err();
    assert!(error.message().contains("a device with backend skulk-cpu on the node"), "{error}");
}

/// Of every family, in all ways in which weights are stored.
#[test]
fn inventories_are_what_engines_load() {
    let engine = skulk::engines::cpu(&skulk::EngineOptions::default().threads(1)).unwrap();
    let fixtures = std::fs::read_dir(path("llama").parent().unwrap()).unwrap();
    let mut counted = 0;
    for folder in fixtures.map(|entry| entry.unwrap().path()) {
        let file = Some(folder.join("model.gguf")).filter(|file| file.exists());
        let Ok(checkpoint) = open_checkpoint(file.unwrap_or_else(|| folder.clone())) else { continue };
        let name = folder.display();
        let inventory = Inventory::from_checkpoint(&*checkpoint).unwrap();
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let n = arch.n_layers();
        let spec = ShardSpec::new(Arc::clone(&arch), 0..n, 16, 16, KvType::F16).unwrap();
        let shard = load_shard(&*engine, &spec, &*checkpoint).unwrap();
        assert_eq!(inventory.weights(), shard.weight_bytes().bytes(), "{name}");
        for (at, layer) in inventory.layers.iter().enumerate() {
            let experts = arch.layers[at].ffn.experts.as_ref();
            assert_eq!(layer.n_experts, experts.map_or(0, |experts| experts.n_experts), "{name}");
            assert!((layer.router > 0) == experts.is_some() && layer.router <= layer.attention, "{name}");
            let shared = arch.layers[at].ffn.shared.is_some();
            assert!(layer.n_experts == 0 || (layer.ffn > 0) == shared, "{name}: layer {at}");
        }
        counted += 1;
    }
    assert!(counted > 35, "{counted}");
}

/// Layers that use others' keys and values are in the others' stage, however little fits there.
#[test]
fn layers_that_share_keys_and_values_are_planned_together() {
    let path = path("gemma4");
    let checkpoint = open_checkpoint(&path).unwrap();
    let arch = ArchSpec::from_checkpoint(&*checkpoint).unwrap();
    let mut inventory = Inventory::from_checkpoint(&*checkpoint).unwrap();
    let joined: Vec<_> = inventory.layers.iter().map(|layer| layer.joined).collect();
    assert_eq!(joined, (0..arch.n_layers()).map(|at| !arch.can_cut(at)).collect::<Vec<_>>());
    assert!(joined.contains(&true) && !joined[1]);
    // As large as if it did not fit one node.
    inventory.layers.iter_mut().for_each(|layer| layer.attention = 1 << 30);
    let nodes = ["a", "b"].map(|id| Node::new(id).backends(["skulk-cpu"]).memory(8 << 30, 16 << 30));
    let cluster = Cluster::mesh(nodes.to_vec(), skulk::plan::LinkSpeed::new(2e-4, 1e9));
    let card = ModelCard::from_checkpoint(&path).unwrap();
    let request = Request::default().context_tokens(64).min_nodes(2).inventory(inventory);
    let placement = Planner::plan(&card, &cluster, &request).unwrap();
    assert_eq!(placement.stages().len(), 2);
    assert!(arch.can_cut(placement.stages()[1].layers.start), "{placement}");
    // Both stages hold the embedding table, from which tokens' inputs to layers are made.
    let inventory = request.inventory.as_deref().unwrap();
    assert!(inventory.embedding_everywhere && inventory.embedding > 0);
    for (stage, node) in placement.stages().iter().zip(&placement.report().unwrap().nodes) {
        let own: u64 = inventory.layers[stage.layers.clone()].iter().map(|layer| layer.attention).sum();
        let head = if stage.layers.end == arch.n_layers() { inventory.head } else { 0 };
        assert_eq!(node.bytes.attention, own + inventory.embedding + head);
    }
    assert!(Planner::plan(&card, &cluster, &request.min_nodes(1)).is_ok());
}

/// All residual streams go from stage to stage, and what makes them and one of them is in the first and the last.
#[test]
fn streams_are_counted() {
    let path = path("gemma3n");
    let checkpoint = open_checkpoint(&path).unwrap();
    let inventory = Inventory::from_checkpoint(&*checkpoint).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    assert_eq!((inventory.row, arch.row_width()), (4 * 4 * 64, 4 * 64));
    let engine = skulk::engines::cpu(&skulk::EngineOptions::default().threads(1)).unwrap();
    for layers in [0..6, 0..1, 1..6, 2..6] {
        let spec = ShardSpec::new(Arc::clone(&arch), layers.clone(), 64, 16, KvType::F16).unwrap();
        let shard = load_shard(&*engine, &spec, &*checkpoint).unwrap();
        // All stages hold the embedding table with a small norm, and their part of one tensor.
        let own: u64 = inventory.layers[layers.clone()].iter().map(|layer| layer.total()).sum();
        let head = if layers.end == 6 { inventory.head } else { 0 };
        let (counted, held) = (own + inventory.embedding + head, shard.weight_bytes().bytes());
        assert_eq!(counted, held, "{layers:?}");
        assert_eq!(engine.estimate(&spec, &*checkpoint).unwrap().weights.bytes(), held, "{layers:?}");
    }
    // Layers that use others' keys and values keep none.
    let kv: Vec<_> = inventory.layers.iter().map(|layer| layer.kv_per_token).collect();
    assert_eq!(kv, [256, 256, 256, 256, 0, 0]);
    let joined: Vec<_> = inventory.layers.iter().map(|layer| layer.joined).collect();
    assert_eq!(joined, [false, false, false, true, true, true]);
    // Stages of the plan exchange them, which takes as long as rows are wide.
    let card = ModelCard::from_checkpoint(&path).unwrap();
    assert!(card.placement.compatible_backends.contains("skulk-wgpu"));
    let nodes = ["a", "b"].map(|id| Node::new(id).backends(["skulk-cpu"]).memory(8 << 30, 16 << 30));
    let cluster = Cluster::mesh(nodes.to_vec(), skulk::plan::LinkSpeed::new(1e-6, 1e3));
    let seconds = |row: u64| {
        let mut inventory = inventory.clone();
        inventory.row = row;
        let request = Request::default().context_tokens(64).min_nodes(2).inventory(inventory);
        let placement = Planner::plan(&card, &cluster, &request).unwrap();
        placement.report().unwrap().estimate.as_ref().unwrap().hop_seconds
    };
    assert_eq!(seconds(0), seconds(256));
    assert!(seconds(1024) > 3.9 * seconds(256));
}

/// Of each token and layer one, and what chooses positions beside it.
#[test]
fn latent_vectors_are_counted_once() {
    let engine = skulk::engines::cpu(&skulk::EngineOptions::default().threads(1)).unwrap();
    // Latent vector and rotated elements; the indexer's keys begin at a multiple of 32.
    for (model, elements) in [("deepseek_v3", 64 + 16), ("glm4_moe_lite", 32 + 8), ("deepseek_v32", 64 + 32)]
    {
        let checkpoint = open_checkpoint(path(model)).unwrap();
        let inventory = Inventory::from_checkpoint(&*checkpoint).unwrap();
        assert!(inventory.layers.iter().all(|layer| layer.kv_per_token == 2 * elements && layer.latent));
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let n = arch.n_layers();
        let spec = ShardSpec::new(Arc::clone(&arch), 0..n, 128, 16, KvType::F16).unwrap();
        let kv = engine.estimate(&spec, &*checkpoint).unwrap().kv_cache.bytes();
        assert_eq!(kv, 128 * 2 * elements * n as u64, "{model}");
        let shard = load_shard(&*engine, &spec, &*checkpoint).unwrap();
        assert_eq!(held(&inventory, 0..n), shard.weight_bytes().bytes(), "{model}");
    }
}

/// This process with an accelerator that has so many bytes.
fn machine(backend: &str, vram: u64) -> Cluster {
    let accelerator =
        Accelerator::new(Vendor::Unknown).vram_total_bytes(vram).vram_used_bytes(0).backend(backend);
    // So slow that the trips between devices do not count.
    let node =
        Node::new("local").backends(["skulk-cpu", backend]).memory(8 << 30, 16 << 30).bytes_per_second(1e6);
    Cluster::new(vec![node.accelerator(accelerator)], Vec::new())
}

fn text(model: &Model) -> String {
    let options = GenerateOptions::default().max_tokens(24);
    model.generate("Once upon a time", options).unwrap().text().unwrap()
}

fn options() -> LoadOptions {
    LoadOptions::default().context(256)
}

/// Plans for devices of this size, loads as planned and as it came back from JSON, and compares texts.
fn runs_as_planned(backend: &str, vram: u64) -> Placement {
    let path = path("stories260K");
    let expected = text(&Model::open(&path, &options()).unwrap());
    let request = Request::default().context_tokens(256);
    let placement = Planner::plan_checkpoint(&path, &machine(backend, vram), &request).unwrap();
    placement.check(&ModelCard::from_checkpoint(&path).unwrap()).unwrap();
    let checkpoint = open_checkpoint(&path).unwrap();
    for placement in [placement.clone(), Placement::from_json(&placement.to_json()).unwrap()] {
        let model = Model::load(&*checkpoint, &placement, &options()).unwrap();
        assert_eq!(text(&model), expected, "{placement}");
        assert_eq!(model.stages().len(), placement.stages().len());
    }
    placement
}

/// With memory for half of the feed-forward blocks: loading keeps the budget, and what is computed stays the same.
#[test]
fn what_was_planned_to_stay_on_disk_does() {
    let path = path("stories260K");
    let machine = |bytes: u64| {
        let node = Node::new("local").backends(["skulk-cpu"]).memory(bytes, 16 << 30);
        Cluster::new(vec![node.disk_bytes_per_second(1e9)], Vec::new())
    };
    let request = Request::default().context_tokens(256).from_disk(true);
    let plan = |bytes: u64| Planner::plan_checkpoint(&path, &machine(bytes), &request).unwrap();
    let all = plan(8 << 30);
    assert_eq!(all.ffn_budget(), None);
    let bytes = all.report().unwrap().nodes[0].bytes;
    let placement = plan(bytes.total() - bytes.feed_forward / 2);
    let budget = placement.ffn_budget().unwrap();
    assert!(budget < bytes.feed_forward * 6 / 10, "{budget}");
    let checkpoint = open_checkpoint(&path).unwrap();
    let expected = text(&Model::open(&path, &options()).unwrap());
    for placement in [placement.clone(), Placement::from_json(&placement.to_json()).unwrap()] {
        let model = Model::load(&*checkpoint, &placement, &options()).unwrap();
        assert_eq!(text(&model), expected);
        let memory = model.ffn_memory().unwrap();
        assert_eq!(memory.budget.bytes(), budget);
        assert!(memory.peak.bytes() <= budget && memory.let_go.bytes() > 0, "{memory:?}");
    }
    let given = |most: u64| {
        options().engine_options(skulk::EngineOptions::default().ffn_budget(skulk::ByteSize(most)))
    };
    let load = |options: &LoadOptions| Model::load(&*checkpoint, &placement, options);
    assert_eq!(load(&given(budget - 1)).unwrap().ffn_memory().unwrap().budget.bytes(), budget - 1);
    let engine = skulk::engines::cpu(&skulk::EngineOptions::default()).unwrap();
    for refused in [given(budget + 1), options().engine(engine)] {
        let error = load(&refused).unwrap_err();
        assert_eq!(error.kind(), skulk::ErrorKind::InvalidArgument, "{error}");
    }
}

#[cfg(feature = "candle")]
#[test]
fn models_run_as_planned() {
    // Everything on the accelerator, which reads faster.
    let all = runs_as_planned("skulk-candle-cpu", 1 << 30);
    assert_eq!(all.stages()[0].engine(), Some(EngineId::new("candle-cpu")));
    assert!(all.experts().is_empty());
    // Nothing there.
    let none = runs_as_planned("skulk-candle-cpu", 1 << 20);
    assert_eq!(none.stages()[0].engine(), Some(EngineId::new("cpu")));
}

/// What a caller fixed stays where it was put, and what was planned around it runs.
#[cfg(feature = "candle")]
#[test]
fn what_is_completed_around_fixed_parts_runs() {
    let path = path("stories260K");
    let checkpoint = open_checkpoint(&path).unwrap();
    let inventory = Inventory::from_checkpoint(&*checkpoint).unwrap();
    let expected = text(&Model::open(&path, &options()).unwrap());
    let blocks = 2..inventory.layers.len();
    let rules = Placement::builder(&inventory).feed_forward(blocks.clone(), "cpu@local");
    let request = Request::default().context_tokens(256).fixed(rules);
    let placement = Planner::plan_checkpoint(&path, &machine("skulk-candle-cpu", 1 << 30), &request).unwrap();
    assert_eq!(placement.stages()[0].engine(), Some(EngineId::new("candle-cpu")));
    let fixed = placement.experts().iter().filter(|shard| shard.engine() == Some(EngineId::new("cpu")));
    assert_eq!(fixed.map(|shard| shard.layers.len()).sum::<usize>(), blocks.len(), "{placement}");
    for placement in [placement.clone(), Placement::from_json(&placement.to_json()).unwrap()] {
        let model = Model::load(&*checkpoint, &placement, &options()).unwrap();
        assert_eq!(text(&model), expected, "{placement}");
        assert_eq!(model.placement().experts(), placement.experts());
    }
}

/// Layers with states, latent vectors, chosen positions and several streams, too, are planned for GPUs.
#[test]
fn gpus_get_whatever_they_have_operations_for() {
    let cluster = machine("skulk-wgpu", 1 << 30);
    for model in ["qwen3_next", "kimi_linear", "nemotron_h", "deepseek_v3", "deepseek_v32", "gemma3n"] {
        let request = Request::default().context_tokens(64);
        let placement = Planner::plan_checkpoint(path(model), &cluster, &request).unwrap();
        assert_eq!(placement.stages()[0].engine(), Some(EngineId::new("wgpu")), "{model}");
    }
}

/// What is reserved on a GPU once sessions are as long as they may be is what was planned, and no more.
#[cfg(feature = "wgpu")]
#[test]
fn a_gpus_memory_is_as_planned() {
    /// Of the smallest models buffers are most, of which plans know how large they get at most.
    const SMALL: u64 = 8 << 20;
    let engine = stages::engine("wgpu", &Default::default()).unwrap().id().clone();
    let cluster = machine(&format!("skulk-{engine}"), 1 << 30);
    // Without windows, with windows, with experts, with states, with latent vectors.
    for name in ["llama", "gemma3", "mixtral", "qwen3_next", "deepseek_v3"] {
        for sessions in [1, 2] {
            let request = Request::default().context_tokens(192).sessions(sessions);
            let placement = Planner::plan_checkpoint(path(name), &cluster, &request).unwrap();
            let checkpoint = open_checkpoint(path(name)).unwrap();
            let model = Model::load(&*checkpoint, &placement, &LoadOptions::default()).unwrap();
            let prompt = |at: u32| Prompt::Tokens((0..188).map(|token| TokenId(at + token % 100)).collect());
            let options = GenerateOptions::default().max_tokens(2).ignore_eos(true);
            let prompts: Vec<Prompt> = (0..sessions as u32).map(prompt).collect();
            for output in model.generate_batch(prompts, &options) {
                assert_eq!(output.unwrap().ids.len(), 2);
            }
            let memory = model.memory();
            let (planned, used) = (memory.planned.unwrap(), memory.devices[&engine].bytes());
            let planned = planned.total() - planned.headroom;
            println!("{name}, {sessions} sessions: {planned} planned, {used} used");
            assert!(used <= planned, "{name}, {sessions} sessions: {planned} planned, {used} used");
            assert!(planned <= used / 20 * 21 + SMALL, "{name}: {planned} planned, {used} used");
        }
    }
}

/// On Mesa's software adapter, where it is.
#[cfg(feature = "wgpu")]
#[test]
fn feed_forward_is_where_it_was_planned() {
    let Some(device) = skulk::engines::devices()
        .into_iter()
        .find(|device| device.engine.as_str().starts_with("wgpu-vulkan"))
    else {
        eprintln!("no Vulkan adapter: not tested");
        return;
    };
    let backend = format!("skulk-{}", device.engine);
    // From what a device keeps free on, up to room for the whole model.
    let request = Request::default().context_tokens(256);
    let roomy = Planner::plan_checkpoint(path("stories260K"), &machine(&backend, 1 << 30), &request).unwrap();
    let bytes = roomy.budgets()[0].bytes;
    let floor = bytes.headroom + bytes.activations;
    let (mut with_blocks, mut partly) = (0, 0);
    for more in (0..24).map(|at| at * 80_000) {
        let cluster = machine(&backend, (floor + more) * 10 / 9);
        let Ok(placement) = Planner::plan_checkpoint(path("stories260K"), &cluster, &request) else {
            continue;
        };
        if placement.stages()[0].engine() != Some(device.engine.clone()) || placement.stages().len() > 1 {
            continue;
        }
        let apart: usize = placement.experts().iter().map(|shard| shard.layers.len()).sum();
        with_blocks += usize::from(apart == 0);
        if apart > 0 && partly < 2 {
            partly += 1;
            let ran = runs_as_planned(&backend, (floor + more) * 10 / 9);
            assert!(ran.experts().iter().all(|shard| shard.engine() == Some(EngineId::new("cpu"))));
        }
    }
    assert!(partly > 0 && with_blocks > 0, "{partly} {with_blocks}");
}

/// So are keys and values as they were planned; options may say otherwise where that takes no more memory.
#[test]
fn keys_and_values_are_kept_as_planned() {
    let checkpoint = open_checkpoint(path("llama")).unwrap();
    let cluster = machine("skulk-candle-cpu", 1 << 20);
    let apart = KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 };
    let planned = |kv: KvTypes| {
        let placement =
            Planner::plan_checkpoint(path("llama"), &cluster, &Request::default().context_tokens(256).kv(kv));
        let placement = placement.unwrap();
        let kept = placement.report().unwrap().nodes[0].bytes.kv_cache;
        (Placement::from_json(&placement.to_json()).unwrap(), kept)
    };
    let loaded = |placement: &Placement, options: LoadOptions| {
        let model = Model::load(&*checkpoint, placement, &options.sessions(1))?;
        Ok::<_, skulk::Error>(model.stages()[0].kv_cache.bytes())
    };
    for kv in [KvType::F16.into(), KvType::Q8_0.into(), apart] {
        let (placement, kept) = planned(kv);
        assert_eq!(placement.kv(), kv);
        // Whole pages of heads that are not multiples of 32.
        let found = loaded(&placement, options()).unwrap();
        assert_eq!(found, kept, "{kv}");
        assert_eq!(loaded(&placement, options().kv(kv)).unwrap(), found);
        assert!(loaded(&placement, options().kv(KvType::Q4_0)).unwrap() < found);
        // Values alone, keys as planned.
        assert!(loaded(&placement, options().kv_values(KvType::Q4_0)).unwrap() <= found);
        let error = loaded(&placement, options().kv(KvType::F32)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.context().contains(&("field", "kv".to_owned())), "{error}");
    }
    // Where a plan was not asked, they are as without one; what a model has, its placement says.
    let node = Node::new("local").backends(["skulk-cpu"]).memory(8 << 30, 16 << 30);
    let cluster = Cluster::new(vec![node], Vec::new());
    let unasked = Planner::plan_checkpoint(path("llama"), &cluster, &Request::default().context_tokens(256));
    let unasked = Placement::from_json(&unasked.unwrap().to_json()).unwrap();
    let asked = Request::default().context_tokens(256).kv(KvType::F16);
    let asked = Planner::plan_checkpoint(path("llama"), &cluster, &asked).unwrap();
    let even = Placement::even(unasked.n_layers(), 1, &EngineId::new("cpu")).unwrap();
    let mut precise = options();
    precise.engine_options = precise.engine_options.precision(Precision::Exact);
    for (placement, options, kv) in [
        (&unasked, options(), KvType::BF16),
        (&even, options(), KvType::BF16),
        (&unasked, precise, KvType::F16),
        (&asked, options(), KvType::F16),
    ] {
        let model = Model::load(&*checkpoint, placement, &options.sessions(1)).unwrap();
        assert_eq!(model.placement().kv(), kv.into());
        let again = Placement::from_json(&model.placement().to_json()).unwrap();
        let model = Model::load(&*checkpoint, &again, &self::options().sessions(1)).unwrap();
        assert_eq!(model.placement().kv(), kv.into());
    }
    // Without a plan options alone say.
    let by_hand = Placement::even(
        ArchSpec::from_checkpoint(&*checkpoint).unwrap().n_layers(),
        1,
        &EngineId::new("cpu"),
    )
    .unwrap();
    assert!(loaded(&by_hand, options().kv(KvType::F32)).unwrap() > loaded(&by_hand, options()).unwrap());
}

/// The context that a plan reserves memory for is loaded, also after a trip through JSON; options may say otherwise, as
/// far as the plan allows.
#[test]
fn the_planned_context_is_loaded() {
    let folder = copied(&path("llama"));
    let config = folder.path().join("config.json");
    let long = std::fs::read_to_string(&config).unwrap().replace(": 1024,", ": 65536,");
    std::fs::write(config, long).unwrap();
    let checkpoint = open_checkpoint(folder.path()).unwrap();
    let mut card = ModelCard::from_checkpoint(folder.path()).unwrap();
    assert_eq!(card.context_length, 65_536);
    let cluster = machine("skulk-candle-cpu", 1 << 20);
    for (planned, most, asked, expected) in [
        (32_768, None, None, Some(32_768)),
        (512, None, None, Some(512)),
        (512, None, Some(256), Some(256)),
        (512, None, Some(1024), Some(1024)),
        (512, None, Some(65_537), None),
        (512, Some(1000), Some(1000), Some(1000)),
        (512, Some(1000), Some(1001), None),
        (8192, Some(1000), None, Some(1000)),
        (1 << 20, None, None, Some(65_536)),
    ] {
        card.placement.max_context_tokens = most;
        let request = Request::default().context_tokens(planned);
        let planned = Planner::plan(&card, &cluster, &request).unwrap();
        let mut options = LoadOptions::default();
        options.context = asked;
        for placement in [&planned, &Placement::from_json(&planned.to_json()).unwrap()] {
            match (Model::load(&*checkpoint, placement, &options), expected) {
                (Ok(model), Some(expected)) => assert_eq!(model.context(), expected),
                (Err(error), None) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                    assert!(
                        error.context().contains(&("field", "context".to_owned())) && error.hint().is_some()
                    );
                }
                (found, _) => panic!("{expected:?}, found {found:?}"),
            }
        }
    }
}

/// As many sessions as were planned generate at once; fewer may be asked for, and not more.
#[test]
fn sessions_are_as_planned() {
    let path = path("llama");
    let node = Node::new("local").backends(["skulk-cpu"]).memory(8 << 30, 16 << 30);
    let cluster = Cluster::new(vec![node], Vec::new());
    let request = Request::default().context_tokens(256).sessions(3);
    let checkpoint = open_checkpoint(&path).unwrap();
    let placement = Planner::plan_checkpoint(&path, &cluster, &request).unwrap();
    for placement in [placement.clone(), Placement::from_json(&placement.to_json()).unwrap()] {
        assert_eq!(placement.sessions(), Some(3));
        let load = |options: &LoadOptions| Model::load(&*checkpoint, &placement, options);
        let budget = |options: &LoadOptions| load(options).unwrap().kv_memory().budget.unwrap().bytes();
        let kept = placement.budgets()[0].bytes.kv_cache;
        assert_eq!(budget(&LoadOptions::default()), kept);
        assert_eq!(budget(&LoadOptions::default().context(128)), kept / 2);
        assert_eq!(budget(&LoadOptions::default().sessions(2).kv_memory(ByteSize(1 << 20))), 1 << 20);
        for sessions in [0, 4] {
            let error = load(&LoadOptions::default().sessions(sessions)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.context().contains(&("field", "sessions".to_owned())), "{error}");
        }
    }
}

/// What a plan counts that drafts is loaded, and nothing larger; what it does not count drafts only where options ask.
#[test]
fn what_drafts_is_loaded_as_planned() {
    let node = Node::new("local").backends(["skulk-cpu"]).memory(8 << 30, 16 << 30);
    let cluster = Cluster::new(vec![node], Vec::new());
    let request = Request::default().context_tokens(256).sessions(2);
    let refused = |loaded: skulk::Result<Model>, about: &str| {
        let error = loaded.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.context().contains(&("field", about.to_owned())) && error.hint().is_some(), "{error}");
    };

    let own = path("qwen3_5");
    let checkpoint = open_checkpoint(&own).unwrap();
    let load = |placement: &Placement, options: LoadOptions| {
        let placement = Placement::from_json(&placement.to_json()).unwrap();
        Model::load(&*checkpoint, &placement, &options)
    };
    let planned = Planner::plan_checkpoint(&own, &cluster, &request.clone().mtp(true)).unwrap();
    let memory = load(&planned, LoadOptions::default()).unwrap().memory();
    let (head, bytes) = (memory.draft_model.unwrap(), planned.drafter().unwrap().bytes);
    assert_eq!(head.weights.bytes(), bytes.attention + bytes.feed_forward);
    assert_eq!(2 * head.kv_cache.bytes(), bytes.kv_cache);
    let all = memory.planned.unwrap();
    assert_eq!(memory.weights.bytes(), all.attention + all.feed_forward);
    let drafts = |placement: &Placement, options: LoadOptions| {
        load(placement, options).unwrap().memory().draft_model.is_some()
    };
    assert!(!drafts(&planned, LoadOptions::default().mtp(false)));
    let without = Planner::plan_checkpoint(&own, &cluster, &request).unwrap();
    assert!(!drafts(&without, LoadOptions::default()));
    assert!(drafts(&without, LoadOptions::default().mtp(true)));
    // A whole model is more than was planned.
    refused(load(&planned, LoadOptions::default().draft_model(&own)), "draft_model");

    let counted = Inventory::from_draft_model(&*checkpoint, path("llama")).unwrap();
    assert!(counted.exact && !counted.shares_embedding);
    let planned = Planner::plan_checkpoint(&own, &cluster, &request.clone().draft_model(counted)).unwrap();
    assert!(drafts(&planned, LoadOptions::default().draft_model(path("llama"))));
    // The head is smaller than what was planned.
    assert!(drafts(&planned, LoadOptions::default().mtp(true)));
    assert!(!drafts(&planned, LoadOptions::default().mtp(false)));
    refused(load(&planned, LoadOptions::default()), "draft_model");
}

/// What is counted of a checkpoint that drafts is what loading makes of it.
#[test]
fn what_drafts_is_counted_as_it_is_loaded() {
    let ahead = |name: &str| crate::fixtures::root().join("tests/fixtures/ahead").join(name);
    for (model, drafts, shares) in [
        ("qwen3_5", ahead("qwen3_5_mtp.gguf"), [true, true]),
        ("gemma4", ahead("gemma4_assistant"), [true, false]),
        ("gemma4", ahead("gemma4_assistant-q8_0.gguf"), [true, false]),
        ("llama", ahead("llama_eagle3"), [true, false]),
        ("llama", path("stories260K"), [false, false]),
    ] {
        let checkpoint = open_checkpoint(path(model)).unwrap();
        let counted = Inventory::from_draft_model(&*checkpoint, &drafts).unwrap();
        assert_eq!([counted.shares_embedding, counted.shares_head], shares, "{}", drafts.display());
        if model == "llama" && !shares[0] {
            continue;
        }
        let loaded = Model::open(path(model), &options().draft_model(&drafts)).unwrap();
        let info = loaded.memory().draft_model.unwrap();
        assert_eq!(counted.weights(), info.weights.bytes(), "{}", drafts.display());
        let kept = counted.layers.iter().map(|layer| layer.kv(256)).sum::<u64>();
        assert_eq!(info.kv_cache.bytes(), kept, "{}", drafts.display());
    }
    let checkpoint = open_checkpoint(path("llama")).unwrap();
    let error = Inventory::from_draft_model(&*checkpoint, ahead("gemma4_assistant")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{error}");
    let error = Inventory::from_draft_model(&*checkpoint, ahead("nothing")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileNotFound, "{error}");
}

/// `Model::load` has its placement: options that say where layers run are refused, not forgotten.
#[test]
fn a_placement_and_options_that_place_do_not_go_together() {
    let checkpoint = open_checkpoint(path("llama")).unwrap();
    let placement: Placement = "cpu=4".parse().unwrap();
    for (options, field) in [
        (options().stages(2), "stages"),
        (options().engine_name("cpu"), "engine_name"),
        (options().placement(placement.clone()), "placement"),
    ] {
        let error = Model::load(&*checkpoint, &placement, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.context().contains(&("field", field.to_owned())), "{error}");
    }
}

#[test]
fn what_this_process_cannot_run_is_an_error() {
    let checkpoint = open_checkpoint(path("stories260K")).unwrap();
    let card = ModelCard::from_checkpoint(path("stories260K")).unwrap();
    let load = |placement: &Placement, options: &LoadOptions| Model::load(&*checkpoint, placement, options);
    let n = card.n_layers;
    let node = |id: &str| Node::new(id).backends(["skulk-cpu"]).memory(8 << 30, 16 << 30);
    let elsewhere =
        Planner::plan(&card, &Cluster::new(vec![node("b")], Vec::new()), &Request::default()).unwrap();
    let error = load(&elsewhere, &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlacementInvalid);
    assert!(error.message().contains("`local`") && error.message().contains("`b`"), "{error}");
    // The same under the name that the placement has for this process.
    load(&elsewhere, &options().node("b")).unwrap();

    let mut foreign = Stage::new(&EngineId::new("cpu"), 0..n);
    foreign.backend = Some("mlx-metal".to_owned());
    let error = load(&Placement::new(vec![foreign.clone()], n).unwrap(), &options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlacementInvalid);
    foreign.part = skulk::plan::Part::Tensor;
    let error = load(&Placement::new(vec![foreign], n).unwrap(), &options()).unwrap_err();
    assert!(error.message().contains("whole layers"), "{error}");
}
