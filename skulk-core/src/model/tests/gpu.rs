//! Do whole models run on a GPU, beside the CPU, and through its faults? On the software adapter.

use std::path::PathBuf;
use std::sync::Arc;

use crate::arch::ArchSpec;
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::engine::backend::Backend;
use crate::engine::wgpu::{Gpu, Limits};
use crate::engine::{Batch, Engine, KvType, LoadCx, Logits, Precision, Reply, Segment, ShardSpec, StepCx};
use crate::engines::cpu;
use crate::error::ErrorKind;
use crate::generate::{GenerateOptions, LoadOptions, Model, Sampling, Speculate};
use crate::ids::{EngineId, SeqId, TokenId};
use crate::model::{DecoderEngine, EngineOptions};
use crate::plan::{ExpertShard, NodeId, Placement};
use crate::weights::open_checkpoint;

fn software(limits: Limits) -> Arc<Gpu> {
    Arc::new(Gpu::tested(limits))
}

fn wgpu_on(gpu: Arc<Gpu>, options: &EngineOptions) -> Arc<dyn Engine> {
    DecoderEngine::<Gpu>::copying("wgpu", "GPU".to_owned(), options, gpu).unwrap()
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(name)
}

fn load_options(engine: Arc<dyn Engine>) -> LoadOptions {
    LoadOptions::default().engine(engine).context(512).prefill_chunk(64).kv(KvType::F32)
}

fn model(name: &str, engine: Arc<dyn Engine>) -> crate::error::Result<Model> {
    Model::open(fixture(name), &load_options(engine))
}

/// Its feed-forward blocks are the CPU's, or not.
fn beside(name: &str, engine: Arc<dyn Engine>, options: &EngineOptions, on_cpu: bool) -> Model {
    let options = load_options(engine).engine_options(options.clone()).ffn_on_cpu(on_cpu);
    Model::open(fixture(name), &options).unwrap()
}

fn prompt() -> Vec<TokenId> {
    (0..90).map(|i| TokenId(5 + i * i * 31 % 400)).collect()
}

fn greedy(n: usize) -> GenerateOptions {
    GenerateOptions::default().max_tokens(n).ignore_eos(true).sampling(Sampling::default().temperature(0.0))
}

/// One token after the other: submissions of each are counted.
fn text(model: &Model, n: usize) -> Vec<TokenId> {
    model.generate(prompt(), greedy(n).speculate(Speculate::Off)).unwrap().output().unwrap().ids
}

/// The product's own split: attention on the GPU, feed-forward from the map on the CPU.
#[test]
fn feed_forward_on_the_cpu_gives_the_same_text() {
    let gpu = software(Limits::default());
    let options = EngineOptions::default().threads(2).precision(Precision::Exact);
    for name in ["llama", "gemma3", "mixtral", "stories260K"] {
        let expected = text(&model(name, cpu(&options).unwrap()).unwrap(), 24);
        let engine = wgpu_on(Arc::clone(&gpu), &options);
        for on_cpu in [false, true] {
            let model = beside(name, Arc::clone(&engine), &options, on_cpu);
            assert_eq!(model.stages()[0].device.contains("feed-forward on CPU, 2 threads"), on_cpu);
            assert_eq!(model.placement().experts().is_empty(), !on_cpu);
            assert_eq!(text(&model, 24), expected, "{name}");
        }
    }
}

/// Some experts of each layer on the CPU, the others on the GPU.
#[test]
fn experts_on_the_cpu_and_on_the_gpu_are_one_layer() {
    let options = EngineOptions::default().threads(2).precision(Precision::Exact);
    for (name, n) in [("mixtral", 8), ("gemma4_moe", 8)] {
        let alone = model(name, cpu(&options).unwrap()).unwrap();
        let (expected, layers) = (text(&alone, 24), alone.arch().n_layers());
        assert_eq!(alone.arch().layers[0].ffn.experts.unwrap().n_experts, n);
        for border in [1, 5] {
            let part = |engine: &str, experts| {
                let node = NodeId::new(NodeId::LOCAL);
                ExpertShard::new(node, &EngineId::new(engine), 0..layers, n).experts(experts)
            };
            let parts = vec![part("cpu", 0..border), part("wgpu", border..n)];
            let placement = Placement::even(layers, 1, &EngineId::new("wgpu")).unwrap();
            let placement = placement.with_experts(parts).unwrap();
            let load =
                load_options(wgpu_on(software(Limits::default()), &options)).engine_options(options.clone());
            let split = Model::open(fixture(name), &load.placement(placement)).unwrap();
            assert!(split.stages()[0].device.contains("feed-forward on CPU"));
            assert_eq!(text(&split, 24), expected, "{name}, {border} on the CPU");
        }
    }
}

/// A device that is lost in the middle of a generation costs this model, and nothing else: the session
/// still has its tokens, from which a model on a new device goes on.
#[test]
fn a_lost_device_ends_the_generation_with_an_error() {
    for on_cpu in [false, true] {
        let options = EngineOptions::default().threads(1).precision(Precision::Exact);
        let load = |gpu| beside("llama", wgpu_on(gpu, &options), &options, on_cpu);
        let undisturbed = load(software(Limits::default()));
        let expected = text(&undisturbed, 16);

        let gpu = software(Limits::default());
        let lost = load(Arc::clone(&gpu));
        let session = lost.session().unwrap();
        let mut generation = session.generate(prompt(), greedy(16)).unwrap();
        let mut ids = Vec::new();
        let error = loop {
            match generation.next() {
                Some(Ok(event)) => ids.extend(event.token.map(|token| token.id)),
                Some(Err(error)) => break error,
                None => panic!("the generation ended on a device that was lost"),
            }
            if ids.len() == 5 {
                gpu.destroy();
            }
        };
        assert_eq!(error.kind(), ErrorKind::EngineFailed, "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("load the model again")), "{error}");
        drop(generation);
        // What was made before the loss is committed; steps that were under way may have ended.
        let tokens = session.tokens().unwrap();
        assert!(tokens.starts_with(&prompt()) && tokens.len() >= prompt().len() + 5);
        let made = &tokens[prompt().len()..];
        assert_eq!(made, &expected[..made.len()]);
        assert!(lost.generate(prompt(), greedy(1)).and_then(|mut g| g.output()).is_err());

        let again = load(software(Limits::default()));
        let rest = again.generate(tokens.clone(), greedy(16 - made.len())).unwrap().output().unwrap();
        assert_eq!([made, &rest.ids].concat(), expected);
    }
}

/// Too little memory is an error at loading. Later, sessions that do nothing make room for others, and one that does not
/// fit alone ends with an error and leaves the rest as it was.
#[test]
fn too_little_memory_is_an_error_that_names_what_did_not_fit() {
    let options = EngineOptions::default().threads(1);
    let small = software(Limits { memory: Some(ByteSize(200 << 10)), ..Limits::default() });
    let error = model("llama", wgpu_on(small, &options)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("tensor"), "{error}");

    // Room for a text of two pages, and no buffer that is larger.
    let ample = software(Limits::default());
    let roomy = model("llama", wgpu_on(Arc::clone(&ample), &options)).unwrap();
    let expected = text(&roomy, 4);
    let gpu = software(Limits { memory: ample.reserved(), ..Limits::default() });
    drop(roomy);
    let model = model("llama", wgpu_on(gpu, &options)).unwrap();
    let prompt_of = |n: u32, len: usize| (0..len as u32).map(|i| TokenId(5 + i * (i + n) % 400)).collect();
    let mut sessions = Vec::new();
    for n in 0..5 {
        let session = model.session().unwrap();
        let prompt: Vec<TokenId> = prompt_of(n, 90);
        assert_eq!(session.generate(prompt, greedy(4)).unwrap().output().unwrap().ids.len(), 4);
        sessions.push(session);
    }
    let long: Vec<TokenId> = prompt_of(9, 400);
    let error = model.generate(long, greedy(4)).unwrap().output().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("cannot reserve") && error.hint().is_some(), "{error}");
    assert_eq!(text(&model, 4), expected);
}

/// Sessions of several threads share a device without disturbing each other.
#[test]
fn sessions_at_once_give_what_each_gives_alone() {
    let model = model("gemma3", wgpu_on(software(Limits::default()), &EngineOptions::default())).unwrap();
    let expected = text(&model, 12);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| text(&model, 12))).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), expected);
        }
    });
}

/// A token is one submission; with the feed-forward on the CPU, one more for each layer.
#[test]
fn a_decoded_token_is_one_submission() {
    let whole = ["llama", "mixtral", "gemma3", "qwen3_next", "nemotron_h", "deepseek_v3", "gemma3n"];
    for (name, on_cpu) in whole.map(|name| (name, false)).into_iter().chain([("gemma3", true)]) {
        let gpu = software(Limits::default());
        let options = EngineOptions::default().threads(1);
        let model = beside(name, wgpu_on(Arc::clone(&gpu), &options), &options, on_cpu);
        // The next ones find what they share of the prompt.
        text(&model, 9);
        let [short, long] = [4, 9].map(|n| {
            let before = gpu.submissions();
            assert_eq!(text(&model, n).len(), n);
            gpu.submissions() - before
        });
        let per_token = 1 + if on_cpu { model.arch().n_layers() as u64 } else { 0 };
        assert_eq!(long - short, 5 * per_token, "{name}, feed-forward on the CPU: {on_cpu}");
    }
}

/// The first step of a row does not wait for kernels of products.
#[test]
fn kernels_of_products_are_built_while_a_model_loads() {
    let models = [
        "qwen2",
        "mixtral",
        "gpt_oss",
        "deepseek_v3",
        "glm_moe_dsa",
        "qwen3_next",
        "nemotron_h_moe",
        "gemma4",
    ];
    for name in models {
        let gpu = software(Limits::default());
        let engine = wgpu_on(Arc::clone(&gpu), &EngineOptions::default().threads(1));
        let checkpoint = open_checkpoint(fixture(name)).unwrap();
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let never = CancelToken::new();
        let spec = ShardSpec::new(Arc::clone(&arch), 0..arch.n_layers(), 64, 64, KvType::F16).unwrap();
        let shard = engine.load(&spec, &*checkpoint, &LoadCx::new(&never, &|| ())).unwrap();
        shard.open(SeqId(0), &[]).unwrap();
        let built = gpu.product_kernels();
        let segments = [Segment::new(SeqId(0), 0, 1).want_last(Logits::Top(1))];
        let batch = Batch::new(&segments, &[TokenId(5)]);
        shard.forward(&batch, &mut Reply::new(), &StepCx::new(&never)).unwrap();
        assert_eq!(gpu.product_kernels(), built, "{name}");
    }
}

/// What a decoded token takes of a layer: every weight once, and at most nine dispatches, of a layer with experts two more
/// for which ones it takes. Norms over whole rows of queries and of keys are one each.
#[test]
fn a_layer_of_a_decoded_token_is_few_dispatches() {
    let dense =
        ["llama", "gemma3", "gemma2", "qwen2", "qwen3_vl", "phi3", "ministral3", "smollm3", "granite"];
    let dense = dense.map(|name| (name, Limits::default(), 9));
    let experts = [("mixtral", 11), ("gpt_oss", 11), ("minimax_m2", 13)];
    let experts = experts.map(|(name, most)| (name, Limits::default(), most));
    // What a kernel has more than eight buffers for is more dispatches then.
    let few = ["llama", "gemma3"].map(|name| (name, Limits { operands: Some(8), ..Limits::default() }, 12));
    for (name, limits, most) in dense.into_iter().chain(experts).chain(few) {
        let gpu = software(limits);
        let engine = wgpu_on(Arc::clone(&gpu), &EngineOptions::default().threads(1));
        let checkpoint = open_checkpoint(fixture(name)).unwrap();
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let never = CancelToken::new();
        // A token behind so many others that attention is split, of all layers and of one less.
        let counted = |layers: usize| {
            let spec = ShardSpec::new(Arc::clone(&arch), 0..layers, 512, 64, KvType::F16).unwrap();
            let shard = engine.load(&spec, &*checkpoint, &LoadCx::new(&never, &|| ())).unwrap();
            shard.open(SeqId(0), &[]).unwrap();
            let mut reply = Reply::new();
            let tokens: Vec<_> = prompt().into_iter().cycle().take(386).collect();
            let steps = (0..6).map(|i| (64 * i, 64)).chain([(384, 1), (385, 1)]);
            let mut counts = [0; 2];
            for (start, rows) in steps {
                let segments = [Segment::new(SeqId(0), start, rows)];
                let before = [gpu.dispatches(), gpu.weights()];
                let batch = Batch::new(&segments, &tokens[start..start + rows]);
                shard.forward(&batch, &mut reply, &StepCx::new(&never)).unwrap();
                counts = [gpu.dispatches() - before[0], gpu.weights() - before[1]];
            }
            counts
        };
        let n = arch.n_layers();
        let [all, less] = [counted(n), counted(n - 1)];
        let dispatches = all[0] - less[0];
        assert!(dispatches <= most, "{name}: a layer is {dispatches} dispatches");
        let share = arch.layers[n - 1].ffn.experts.map(|experts| [experts.n_used, experts.n_experts]);
        let bytes = checkpoint.tensors().iter().map(|tensor| match (tensor.shape.len(), share) {
            _ if !tensor.name.contains(&format!("layers.{}.", n - 1)) || tensor.name.contains("bias") => 0,
            (2 | 3, Some([used, all])) if tensor.name.contains("expert") => {
                tensor.len * used as u64 / all as u64
            }
            (2, _) => tensor.len,
            _ => 0,
        });
        assert_eq!(all[1] - less[1], bytes.sum::<u64>(), "{name}: bytes of a layer");
    }
}

/// A step of several sessions has the dispatches of one session's, and sends as much.
#[test]
fn sessions_share_submissions() {
    let gpu = software(Limits::default());
    let engine = wgpu_on(Arc::clone(&gpu), &EngineOptions::default().threads(1));
    let checkpoint = open_checkpoint(fixture("llama")).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    let spec = ShardSpec::new(Arc::clone(&arch), 0..arch.n_layers(), 256, 64, KvType::F16).unwrap();
    let never = CancelToken::new();
    let shard = engine.load(&spec, &*checkpoint, &LoadCx::new(&never, &|| ())).unwrap();
    let mut reply = Reply::new();
    let mut forward = |segments: &[Segment]| {
        let rows = segments.iter().map(|segment| segment.rows).sum();
        let tokens: Vec<_> = prompt().into_iter().cycle().take(rows).collect();
        let before = [gpu.submissions(), gpu.dispatches()];
        shard.forward(&Batch::new(segments, &tokens), &mut reply, &StepCx::new(&never)).unwrap();
        [gpu.submissions() - before[0], gpu.dispatches() - before[1]]
    };
    // Of different lengths, the products of as many rows being the same dispatches.
    let rows = |seq: u64| 3 + 7 * seq as usize;
    for seq in 0..8 {
        shard.open(SeqId(seq), &[]).unwrap();
        forward(&[Segment::new(SeqId(seq), 0, rows(seq))]);
    }
    let one =
        |seq: u64, after: usize| Segment::new(SeqId(seq), rows(seq) + after, 1).want_last(Logits::Top(1));
    let alone = forward(&[one(0, 0)]);
    let together: Vec<_> = (0..8).map(|seq| one(seq, usize::from(seq == 0))).collect();
    // The first time there is room to be made.
    forward(&together);
    assert_eq!(forward(&together), alone);
    assert_eq!(alone[0], 1);
}
