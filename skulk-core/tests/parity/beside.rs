//! Do stages on different engines make one model, and the CPU beside a device one engine? Whole fixtures, against the
//! CPU engine alone.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use skulk::arch::ArchSpec;
use skulk::engine::{FfnPlan, FfnService, LoadCx, ShardSpec};
use skulk::engines::{CpuFfn, candle_cpu, cpu};
use skulk::{
    ByteSize, CancelToken, Checkpoint, DType, Engine, EngineOptions, ErrorKind, KvType, MappedFile, Memory,
    Metadata, Precision, Result, TensorInfo, TokenId, open_checkpoint,
};

use crate::fixtures::path;
use crate::parity::cpu::stages::{Setup, Stages, assert_near, load_shard};

const NAMES: [&str; 4] = ["llama", "gemma3", "mixtral", "stories260K"];

/// Parts of the largest logit. With f32 caches only summation orders differ: 1e-6 is found. With f16
/// ones, a key or value that lies at the border of two halves may round to the other one, 2⁻¹¹ of it
/// away: 6e-4 is found.
const TOLERANCES: [(KvType, f32); 2] = [(KvType::F32, 1e-5), (KvType::F16, 3e-3)];

fn options() -> EngineOptions {
    EngineOptions::default().threads(2)
}

/// How the layers are cut into as many even stages as there are engines.
fn setup(checkpoint: &dyn Checkpoint, engines: &[Arc<dyn Engine>], kv: KvType) -> Setup {
    let n_layers = ArchSpec::from_checkpoint(checkpoint).unwrap().n_layers();
    let cuts = (1..engines.len()).map(|stage| stage * n_layers / engines.len()).collect();
    Setup { cuts, kv: kv.into(), chunk: 32, context: 128, ..Setup::default() }
}

/// The blocks of these layers on the CPU, and who computes them.
fn on_cpu(
    checkpoint: &dyn Checkpoint,
    layers: &[usize],
    options: &EngineOptions,
) -> Result<(FfnPlan, Arc<CpuFfn>)> {
    let arch = Arc::new(ArchSpec::from_checkpoint(checkpoint).unwrap());
    let experts = |layer: usize| 0..arch.layers[layer].ffn.experts.map_or(1, |experts| experts.n_experts);
    let shares: Vec<_> = layers.iter().map(|&layer| (layer..layer + 1, experts(layer))).collect();
    let never = CancelToken::new();
    let service = Arc::new(CpuFfn::load(checkpoint, &arch, &shares, options, &LoadCx::new(&never, &|| ()))?);
    let share = |plan: FfnPlan, (layers, experts)| plan.share(layers, experts, service.clone());
    Ok((shares.into_iter().fold(FfnPlan::new(), share), service))
}

fn all_layers(checkpoint: &dyn Checkpoint) -> Vec<usize> {
    (0..ArchSpec::from_checkpoint(checkpoint).unwrap().n_layers()).collect()
}

/// Logits of every position of a made-up prompt: chunks first, the last tokens one by one.
fn logits(stages: &Stages) -> Vec<f32> {
    const PROMPT: usize = 90;
    const CHUNKED: usize = 64;
    let vocab = stages.arch.vocab_size;
    let tokens: Vec<_> = (0..PROMPT).map(|i| TokenId((i * i * 31 % vocab) as u32)).collect();
    let seq = stages.open(1);
    let mut rows = stages.feed(seq, 0, &tokens[..CHUNKED]);
    for (start, token) in tokens.iter().enumerate().skip(CHUNKED) {
        rows.extend(stages.feed(seq, start, std::slice::from_ref(token)));
    }
    rows.concat()
}

/// Logits of each of these stages are those of one engine alone, to within so many parts of the largest.
fn agree(
    checkpoint: &dyn Checkpoint,
    alone: &Arc<dyn Engine>,
    stages: &[(Vec<&Arc<dyn Engine>>, FfnPlan)],
    kv: KvType,
    tolerance: f32,
) {
    let load = |engines: &[&Arc<dyn Engine>], ffn: &FfnPlan| {
        let engines: Vec<_> = engines.iter().map(|&engine| Arc::clone(engine)).collect();
        let setup = Setup { ffn: ffn.clone(), ..setup(checkpoint, &engines, kv) };
        Stages::load_from(checkpoint, &setup, &engines).unwrap()
    };
    let expected = logits(&load(&[alone], &FfnPlan::new()));
    for (engines, ffn) in stages {
        let what = format!("{} {kv:?}, {} stages, {ffn:?}", checkpoint.path().display(), engines.len());
        assert_near(&logits(&load(engines, ffn)), &expected, tolerance, &what);
    }
}

#[test]
fn stages_on_any_engines_agree_with_the_cpu_engine() {
    let (cpu, tensors) = (cpu(&options()).unwrap(), candle_cpu(&options()).unwrap());
    for name in NAMES {
        let checkpoint = open_checkpoint(path(name)).unwrap();
        let (plan, _) = on_cpu(&*checkpoint, &all_layers(&*checkpoint), &options()).unwrap();
        let stages = [
            (vec![&cpu, &tensors], FfnPlan::new()),
            (vec![&tensors, &cpu], FfnPlan::new()),
            (vec![&tensors], FfnPlan::new()),
            (vec![&tensors], plan.clone()),
            (vec![&tensors, &cpu], plan.clone()),
            (vec![&tensors, &tensors], plan),
        ];
        for (kv, tolerance) in TOLERANCES {
            agree(&*checkpoint, &cpu, &stages, kv, tolerance);
        }
    }
}

#[test]
fn feed_forward_of_some_layers_on_the_cpu_agrees_with_the_cpu_engine() {
    let (cpu, tensors) = (cpu(&options()).unwrap(), candle_cpu(&options()).unwrap());
    for name in NAMES {
        let checkpoint = open_checkpoint(path(name)).unwrap();
        let plan = |layers: &[usize]| on_cpu(&*checkpoint, layers, &options()).unwrap().0;
        let stages = [&[][..], &[0], &[1, 2], &[0, 2]]
            .into_iter()
            .flat_map(|layers| [(vec![&tensors], plan(layers)), (vec![&tensors, &tensors], plan(layers))]);
        agree(&*checkpoint, &cpu, &stages.collect::<Vec<_>>(), KvType::F32, 1e-5);
    }
}

/// Of some experts, too, beside those that the device has.
#[test]
fn experts_on_the_cpu_and_on_a_device_are_one_layer() {
    let (cpu, tensors) = (cpu(&options()).unwrap(), candle_cpu(&options()).unwrap());
    let checkpoint = open_checkpoint(path("mixtral")).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    let n = arch.layers[0].ffn.experts.unwrap().n_experts;
    let (layers, never) = (0..arch.n_layers(), CancelToken::new());
    for experts in [0..1, 1..n, 1..n - 1] {
        let shares = [(layers.clone(), experts.clone())];
        let service = CpuFfn::load(&*checkpoint, &arch, &shares, &options(), &LoadCx::new(&never, &|| ()));
        let plan = FfnPlan::new().share(layers.clone(), experts, Arc::new(service.unwrap()));
        agree(&*checkpoint, &cpu, &[(vec![&tensors], plan.clone()), (vec![&cpu], plan)], KvType::F32, 1e-5);
    }
}

#[test]
fn what_the_cpu_computes_beside_a_device_lies_where_its_options_say() {
    let checkpoint = open_checkpoint(path("mixtral")).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    let layers = 0..arch.n_layers();
    let spec = ShardSpec::new(arch, layers.clone(), 64, 8, KvType::F16).unwrap();
    let copying = candle_cpu(&options()).unwrap();
    let whole = copying.estimate(&spec, &*checkpoint).unwrap();
    for memory in [Memory::Mapped, Memory::Resident, Memory::Auto] {
        let (plan, service) =
            on_cpu(&*checkpoint, &all_layers(&*checkpoint), &options().memory(memory)).unwrap();
        assert!(service.name().starts_with("CPU, 2 threads, "), "{}", service.name());
        let spec = spec.clone().ffn(plan);
        let (estimate, bytes) =
            (copying.estimate(&spec, &*checkpoint).unwrap(), service.weight_bytes(layers.clone()));
        assert_eq!((estimate.kv_cache, estimate.weights + bytes), (whole.kv_cache, whole.weights));
        let shard = load_shard(&*copying, &spec, &*checkpoint).unwrap();
        assert_eq!(service.weight_bytes(layers.end..layers.start).0, 0);
        assert_eq!((shard.weight_bytes(), shard.memory()), (estimate.weights, Memory::Mapped));
        assert_eq!(service.weights() == memory, memory != Memory::Auto);
    }
}

/// The same bits with a budget for what the CPU has beside a device, of all layers or of some, and no more in memory.
#[test]
fn feed_forward_on_the_cpu_keeps_its_budget() {
    let engine = [candle_cpu(&options()).unwrap()];
    for (name, unit, layers) in [("llama", 6 * 256 * 512, [0, 2, 3]), ("mixtral", 6 * 256 * 128, [0, 1, 2])] {
        let checkpoint = open_checkpoint(path(name)).unwrap();
        let load = |ffn: FfnPlan| {
            let setup = Setup { ffn, ..setup(&*checkpoint, &engine, KvType::F32) };
            Stages::load_from(&*checkpoint, &setup, &engine).unwrap()
        };
        let expected = logits(&load(on_cpu(&*checkpoint, &layers, &options()).unwrap().0));
        for most in [unit, 2 * unit + 1] {
            let options = options().ffn_budget(ByteSize(most));
            let (plan, service) = on_cpu(&*checkpoint, &layers, &options).unwrap();
            assert!(logits(&load(plan)) == expected, "{name} {layers:?} {most}");
            let memory = service.memory().unwrap();
            assert_eq!((service.weights(), memory.budget), (Memory::Mapped, ByteSize(most)));
            assert!(memory.peak.bytes() <= most && memory.let_go > ByteSize(0), "{memory:?}");
        }
        let error = on_cpu(&*checkpoint, &layers, &options().ffn_budget(ByteSize(unit - 1))).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

/// Both round activations alike, but not the same ones: 1e-6 off, some that lie at a border round to
/// the other side, a step of 1/127 of the largest in their block away: 4e-3 is found. In the exact
/// precision a step is 1/127 of that: 3e-5 is found.
#[test]
fn quantised_feed_forward_on_the_cpu_rounds_as_the_cpu_engine_does() {
    for (precision, tolerance) in [(Precision::Fast, 1e-2), (Precision::Exact, 1e-4)] {
        let options = options().precision(precision);
        let cpu = cpu(&options).unwrap();
        for memory in [Memory::Mapped, Memory::Resident] {
            let beside = candle_cpu(&EngineOptions::default().threads(2)).unwrap();
            for dtype in [GgmlDType::Q8_0, GgmlDType::Q4K] {
                let checkpoint = Quantised::new(&path("llama"), dtype);
                let options = options.clone().memory(memory);
                let (plan, _) = on_cpu(&checkpoint, &all_layers(&checkpoint), &options).unwrap();
                agree(&checkpoint, &cpu, &[(vec![&beside], plan)], KvType::F32, tolerance);
            }
        }
    }
}

/// A checkpoint in BF16 whose feed-forward blocks are quantised.
struct Quantised {
    inner: Arc<dyn Checkpoint>,
    files: Vec<MappedFile>,
    tensors: Vec<TensorInfo>,
}

impl Quantised {
    fn new(path: &Path, ggml: GgmlDType) -> Self {
        let inner = open_checkpoint(path).unwrap();
        let dtype = if ggml == GgmlDType::Q8_0 { DType::Q8_0 } else { DType::Q4_K };
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut tensors = inner.tensors().to_vec();
        let mut offset = 0;
        for info in tensors.iter_mut().filter(|info| info.name.contains(".mlp.")) {
            assert_eq!(info.dtype, DType::BF16);
            let region = inner.region(&info.name).unwrap();
            let tensor =
                Tensor::from_raw_buffer(region.bytes(), candle_core::DType::BF16, &info.shape, &Device::Cpu);
            let blocks = QTensor::quantize(&tensor.unwrap(), ggml).unwrap();
            let bytes = blocks.data().unwrap();
            file.write_all(&bytes).unwrap();
            let len = bytes.len() as u64;
            let (name, shape) = (info.name.clone(), info.shape.clone());
            *info = TensorInfo::new(name, dtype, shape, inner.files().len(), offset, len);
            offset += len;
        }
        let paths = inner.files().iter().map(MappedFile::path).chain([file.path()]);
        let files = paths.map(|path| MappedFile::open(path).unwrap()).collect();
        Self { inner, files, tensors }
    }
}

impl Checkpoint for Quantised {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn metadata(&self) -> Metadata<'_> {
        self.inner.metadata()
    }

    fn files(&self) -> &[MappedFile] {
        &self.files
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }
}
