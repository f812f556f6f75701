//! Which kernels are there, and how are they built? Sources put together, pipelines made once.
//!
//! An operation's shader is a file of `shaders/` with its parameters' declaration, constants and the helpers
//! it needs. Operands are storage buffers in group 0, read ones first; parameters are a uniform buffer
//! in group 1, at a dynamic offset.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use super::device::Device;
use super::params::{self, Params};
use super::several;
use crate::arch::Activation;
use crate::engine::{KvType, KvTypes};
use crate::error::Result;
use crate::weights::DType;

/// Bytes of parameters that a kernel may have.
pub(super) const PARAMS: u64 = 64;

/// Buffers that a kernel may have. Every device of WebGPU binds eight; kernels with more are asked for where a device
/// [has room](Device::binds).
pub(super) const OPERANDS: usize = 12;

/// Matrices that a kernel may have.
pub(super) const MATRICES: usize = 4;

/// Outputs that a workgroup of a product of few rows computes.
pub(super) const OUTPUTS: u32 = 4;

/// Logits that a workgroup finds the largest ones of.
pub(super) const SLICE: u32 = 2048;

/// Rows, and outputs, of a tile of a product of many rows.
pub(super) const TILE: u32 = 64;

macro_rules! shader {
    ($name:literal) => {
        include_str!(concat!("shaders/", $name, ".wgsl"))
    };
}

/// What becomes of an element; the shader knows it by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Elementwise {
    /// Its activation times the other one.
    Silu = 0,
    GeluTanh = 1,
    Gelu = 2,
    Softcap = 4,
    ClampedSilu = 5,
    ClampedGlu = 6,
    /// The element times a number.
    Scale = 7,
    /// Its square where it is positive, whatever the other one is.
    SquaredRelu = 8,
    /// The element times its row's number.
    ScaleRows = 9,
    /// The product with the other one.
    Multiply = 10,
}

impl Elementwise {
    /// What an activation is here, and its numbers.
    pub(super) fn activation(activation: Activation) -> (Self, [f32; 2]) {
        match activation {
            Activation::Silu => (Self::Silu, [0.0; 2]),
            Activation::ClampedSilu(limit) => (Self::ClampedSilu, [limit, 0.0]),
            Activation::ClampedGlu { alpha, limit } => (Self::ClampedGlu, [limit, alpha]),
            Activation::GeluTanh => (Self::GeluTanh, [0.0; 2]),
            Activation::Gelu => (Self::Gelu, [0.0; 2]),
            Activation::SquaredRelu => (Self::SquaredRelu, [0.0; 2]),
        }
    }
}

/// Constants that a kernel may have.
const CONSTANTS: usize = 10;

/// What tells kernels apart: the operation, how weights are stored, and the values of constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) name: &'static str,
    weights: [Option<DType>; MATRICES],
    values: [u32; CONSTANTS],
}

/// An operation with the parameters that its shader declares.
pub(super) struct Op<P> {
    pub(super) key: Key,
    constants: &'static [&'static str],
    files: &'static [&'static str],
    /// Those that each of several matrices has a copy of.
    of_each: &'static [&'static str],
    params: PhantomData<fn(P)>,
}

/// `name(arguments): Params; how weights are stored; constants; files of shaders/; and of each matrix;`
macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*): $params:ident; $weights:expr;
        $($constant:ident = $value:expr),*; $($file:literal),* $([$($each:literal),*])?;)*) => {$(
        impl Op<params::$params> {
            $(#[$doc])*
            pub(super) fn $name($($arg: $type),*) -> Self {
                let mut values = [0; CONSTANTS];
                values.iter_mut().zip([$(u32::from($value)),*]).for_each(|(to, value): (_, u32)| *to = value);
                let mut weights = [None; MATRICES];
                weights.iter_mut().zip($weights).for_each(|(to, dtype): (_, &DType)| *to = Some(*dtype));
                Self {
                    key: Key { name: stringify!($name), weights, values },
                    constants: &[$(stringify!($constant)),*],
                    files: &[$(shader!($file)),*],
                    of_each: &[$($(shader!($each)),*)?],
                    params: PhantomData,
                }
            }
        }
    )*};
}

ops! {
    elementwise(what: Elementwise): Elementwise; &[]; OPERATION = what as u32; "math", "activation", "elementwise";
    gate_heads(): GateHeads; &[]; ; "math", "gate_heads";
    gather(): Gather; &[]; ; "gather";
    /// What is added: nothing, rows, or their norm; whether that is normed.
    add_norm(sum: u32, norm: bool): AddNorm; &[]; THREADS = 256u32, SUM = sum, NORM = norm; "sum", "add_norm";
    norm_rope(norm: bool, pairs: bool): NormRope; &[]; THREADS = 64u32, NORM = norm, PAIRS = pairs; "sum", "norm_rope";
    embed(dtype: DType): Weights; &[dtype]; ; "embed";
    /// Of up to so many rows.
    matvec(dtype: DType, rows: u32): Weights; &[dtype]; ROWS = rows, SUMS = rows, OUTPUTS = OUTPUTS, THREADS = 64u32;
        "product", "dots", "put", "matvec";
    /// Of one input with several matrices, without biases and with.
    products(dtypes: &[DType], rows: u32): Several; dtypes;
        ROWS = rows, SUMS = rows, OUTPUTS = OUTPUTS, THREADS = 64u32;
        "products" ["several/plain", "several/product", "dots", "put"];
    biased_products(dtypes: &[DType], rows: u32): Several; dtypes;
        ROWS = rows, SUMS = rows, OUTPUTS = OUTPUTS, THREADS = 64u32;
        "products" ["several/biased", "several/product", "dots", "put"];
    /// A gate's and the other projection's.
    gated(dtypes: &[DType; 2], rows: u32, what: Elementwise): Several; dtypes;
        ROWS = rows, SUMS = 2 * rows, OUTPUTS = OUTPUTS, THREADS = 64u32, OPERATION = what as u32;
        "math", "activation", "gated" ["several/weights", "dots"];
    matmul(dtype: DType): Weights; &[dtype]; ; "product", "tiles", "matmul";
    cache_write(head_dim: u32, kv: KvTypes): CacheWrite; &[];
        HEAD_DIM = head_dim, KEPT_DIM = head_dim, KEYS = kv.keys as u32, VALUES = kv.values as u32;
        "kept", "half", "cache_write";
    /// Whether queries and keys are normed, and values.
    keep_heads(head_dim: u32, kv: KvTypes, norms: [bool; 2], pairs: bool): KeepHeads; &[];
        HEAD_DIM = head_dim, KEPT_DIM = head_dim, KEYS = kv.keys as u32, VALUES = kv.values as u32, NORM = norms[0],
        VALUE_NORM = norms[1], PAIRS = pairs, THREADS = 64u32;
        "sum", "kept", "half", "keep_heads";
    /// Of some of the elements that are kept of a head.
    cache_part(head_dim: u32, kept_dim: u32, kind: KvType): CachePart; &[];
        HEAD_DIM = head_dim, KEPT_DIM = kept_dim, KIND = kind as u32; "kept", "half", "cache_part";
    cache_quantise(head_dim: u32, kept_dim: u32, kind: KvType, values: bool): CacheQuantise; &[];
        HEAD_DIM = head_dim, KEPT_DIM = kept_dim, KIND = kind as u32, VALUES = values, THREADS = 64u32;
        "kept", "half", "hadamard", "cache_quantise";
    rotate(head_dim: u32): Rotate; &[]; HEAD_DIM = head_dim, THREADS = 64u32; "hadamard", "rotate";
    /// `queries` of a workgroup.
    attend(heads: Heads, kv: KvTypes, queries: u32, softcap: bool, sinks: bool): Attend; &[];
        HEAD_DIM = heads.head_dim, VALUE_DIM = heads.value_dim, KEPT_DIM = heads.kept_dim, LATENT = heads.latent,
        KEYS = kv.keys as u32, VALUES = kv.values as u32, THREADS = attend_threads(heads.value_dim), T = queries,
        SOFTCAP = softcap, SINKS = sinks;
        "math", "kept", "keys", "spans", "attend";
    attend_combine(heads: Heads, sinks: bool): Attend; &[];
        VALUE_DIM = heads.value_dim, KEPT_DIM = heads.kept_dim, SINKS = sinks; "kept", "spans", "attend_combine";
    /// Of up to four rows.
    blend(from: u32): Blend; &[]; FROM = from; "blend";
    match_size(): RowsAlone; &[]; THREADS = 128u32; "sum", "match_size";
    cut_off(): RowsAlone; &[]; THREADS = 128u32; "sum", "moments", "cut_off";
    split_heads(): SplitHeads; &[]; ; "split_heads";
    /// Elements of keys and of values, heads of keys and of values.
    state_inputs(shape: [u32; 4], bias: bool, unit: bool, threads: u32): StateInputs; &[];
        KEY_DIM = shape[0], VALUE_DIM = shape[1], KEY_HEADS = shape[2], HEADS = shape[3], BIAS = bias, UNIT = unit,
        THREADS = threads; "math", "sum", "runs", "state_inputs";
    state_steps(shares: bool): StateSteps; &[]; SHARES = shares; "math", "state_steps";
    /// Elements of keys and of values, and parts that keys are in.
    recur(shape: [u32; 2], parts: u32, replaces: bool, of_elements: bool, skip: bool): Recur; &[];
        KEY_DIM = shape[0], VALUE_DIM = shape[1], PARTS = parts, REPLACES = replaces, OF_ELEMENTS = of_elements,
        SKIP = skip; "runs", "recur";
    state_outputs(gate: u32, threads: u32): StateOutputs; &[]; GATE = gate, THREADS = threads;
        "math", "sum", "state_outputs";
    layer_norm(): RowsAlone; &[]; THREADS = 128u32; "sum", "moments", "layer_norm";
    /// Elements of the indexer's heads, and those that are kept of a position; heads at a time.
    scores(dims: [u32; 2], keys: KvType, together: u32): Choose; &[];
        HEAD_DIM = dims[0], KEPT_DIM = dims[1], KEYS = keys as u32, TOGETHER = together;
        "kept", "keys", "choosers", "scores";
    choose(): Choose; &[]; KEPT_DIM = 2u32; "kept", "choosers", "choose";
    attend_chosen(heads: Heads, keys: KvType, threads: u32): AttendChosen; &[];
        HEAD_DIM = heads.head_dim, VALUE_DIM = heads.value_dim, KEPT_DIM = heads.kept_dim, KEYS = keys as u32,
        THREADS = threads; "kept", "keys", "choosers", "attend_chosen";
    top(stage: u32): Top; &[]; STAGE = stage, SLICE = SLICE; "top";
    /// Experts and how many of them are used, the same of their groups; whether scores are sigmoids, corrected, scaled, and
    /// normalised.
    route(counts: [u32; 4], ways: [bool; 4]): Route; &[];
        N_EXPERTS = counts[0], N_USED = counts[1], N_GROUPS = counts[2], GROUPS_USED = counts[3],
        SIGMOID = ways[0], CORRECTED = ways[1], SCALED = ways[2], NORMALISE = ways[3]; "route";
    experts_sort(): ExpertsSort; &[]; ; "experts_sort";
    experts_matvec(dtype: DType): Weights; &[dtype]; ROWS = 1u32, SUMS = 1u32, OUTPUTS = OUTPUTS, THREADS = 64u32;
        "dots", "put", "experts_matvec";
    /// Both projections of a few places, weights of rows multiplying them or not.
    experts_gated(dtypes: &[DType; 2], what: Elementwise, on_input: bool): ExpertsGated; dtypes;
        ROWS = 1u32, SUMS = 2u32, OUTPUTS = OUTPUTS, THREADS = 64u32, OPERATION = what as u32, ON_INPUT = on_input;
        "math", "activation", "experts_gated" ["several/weights", "dots"];
    experts_down(dtype: DType): Weights; &[dtype]; ROWS = 1u32, SUMS = 1u32, OUTPUTS = OUTPUTS, THREADS = 64u32;
        "dots", "put", "experts_down";
    experts_matmul(dtype: DType): Weights; &[dtype]; ; "tiles", "experts_matmul";
    experts_sum(): ExpertsSum; &[]; ; "experts_sum";
    heads_gather(): HeadsGather; &[]; ; "heads_gather";
    heads_matvec(dtype: DType, rows: u32): Weights; &[dtype];
        ROWS = rows, SUMS = rows, OUTPUTS = OUTPUTS, THREADS = 64u32;
        "dots", "put", "heads_matvec";
    heads_matmul(dtype: DType): Weights; &[dtype]; ; "tiles", "heads_matmul";
}

impl<P: Params> Op<P> {
    fn source(&self, subgroups: bool) -> String {
        let mut source = P::WGSL.to_owned();
        for (name, value) in self.constants.iter().zip(self.key.values) {
            source += &format!("const {name}: u32 = {value}u;\n");
        }
        let mut files = self.files.to_vec();
        let matrices: Vec<_> = self.key.weights.into_iter().flatten().collect();
        if self.of_each.is_empty() {
            files.extend(matrices.iter().copied().flat_map(format));
        }
        if self.constants.contains(&"SUMS") {
            // They are added up over threads.
            files.push(if subgroups { shader!("reduce_subgroup") } else { shader!("reduce_shared") });
        }
        source + &files.join("\n") + &several::source(self.of_each, &matrices)
    }
}

/// Elements of heads that attend.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    /// Of queries and keys.
    pub(super) head_dim: u32,
    pub(super) value_dim: u32,
    /// What is kept of a position's key, with what other operations read of it.
    pub(super) kept_dim: u32,
    /// Values are the first elements of keys.
    pub(super) latent: bool,
}

/// Threads of a workgroup that attends, and positions it looks at together.
pub(super) fn attend_threads(value_dim: u32) -> u32 {
    (value_dim / 2).next_power_of_two().clamp(64, 256)
}

/// The files that say how rows of weights are read.
pub(super) fn format(dtype: DType) -> Vec<&'static str> {
    let own = match dtype {
        DType::F32 => shader!("formats/f32"),
        DType::F16 => shader!("formats/f16"),
        DType::BF16 => shader!("formats/bf16"),
        DType::Q4_0 => shader!("formats/q4_0"),
        DType::Q4_1 => shader!("formats/q4_1"),
        DType::Q5_0 => shader!("formats/q5_0"),
        DType::Q5_1 => shader!("formats/q5_1"),
        DType::Q8_0 => shader!("formats/q8_0"),
        DType::Q2_K => shader!("formats/q2_k"),
        DType::Q3_K => shader!("formats/q3_k"),
        DType::Q4_K => shader!("formats/q4_k"),
        DType::Q5_K => shader!("formats/q5_k"),
        DType::Q6_K => shader!("formats/q6_k"),
        DType::Q6_K_Linear => shader!("formats/q6_k_linear"),
        DType::Q8_K => shader!("formats/q8_k"),
        // Refused where matrices are made.
        DType::Affine2
        | DType::Affine3
        | DType::Affine4
        | DType::Affine5
        | DType::Affine6
        | DType::Affine8
        | DType::FP4
        | DType::NVFP4
        | DType::FP8
        | DType::MXFP4
        | DType::IQ4_NL
        | DType::IQ4_XS
        | DType::TQ2_0
        | DType::IQ1_S
        | DType::IQ1_M
        | DType::IQ2_XXS
        | DType::IQ2_XS
        | DType::IQ2_S
        | DType::IQ3_XXS
        | DType::IQ3_S
        | DType::TQ1_0
        | DType::E8M0
        | DType::E4M3 => "",
    };
    let mut files = vec![shader!("formats/bytes"), own];
    if !dtype.is_quantised() {
        files.push(shader!("formats/plain"));
    }
    files
}

/// A built kernel.
pub(super) struct Kernel {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) operands: wgpu::BindGroupLayout,
}

/// The kernels of a device, each built when it is first asked for.
pub(super) struct Kernels {
    pub(super) params: wgpu::BindGroupLayout,
    built: Mutex<HashMap<Key, Arc<Kernel>>>,
}

impl Kernels {
    pub(super) fn new(device: &Device) -> Self {
        let params = device.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some("parameters"),
            entries: &[wgpu::BindGroupLayoutEntry {
                binding: 0,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Uniform,
                    has_dynamic_offset: true,
                    min_binding_size: wgpu::BufferSize::new(PARAMS),
                },
                count: None,
            }],
        });
        Self { params, built: Mutex::default() }
    }

    pub(super) fn get<P: Params>(&self, device: &Device, op: &Op<P>) -> Result<Arc<Kernel>> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = built.get(&op.key) {
            return Ok(Arc::clone(kernel));
        }
        let make = || self.build(&device.device, op.key.name, op.source(device.subgroups));
        let kernel = Arc::new(device.scoped(&format!("the kernel {:?}", op.key), make)?);
        built.insert(op.key, Arc::clone(&kernel));
        Ok(kernel)
    }

    /// Kernels of products that were built so far, but for those of heads with weights of their own.
    #[cfg(test)]
    pub(super) fn products(&self) -> usize {
        let built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let other = ["embed", "heads_matvec", "heads_matmul"];
        built.keys().filter(|key| key.weights[0].is_some() && !other.contains(&key.name)).count()
    }

    fn build(&self, device: &wgpu::Device, name: &str, source: String) -> Kernel {
        let label = Some(name);
        let [reads, writes] =
            ["read", "read_write"].map(|access| source.matches(&format!("<storage, {access}>")).count());
        let entries: Vec<_> = (0..reads + writes)
            .map(|i| wgpu::BindGroupLayoutEntry {
                binding: i as u32,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: i < reads },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let operands =
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries });
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&operands), Some(&self.params)],
            ..Default::default()
        });
        let source = wgpu::ShaderSource::Wgsl(source.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        Kernel { pipeline, operands }
    }
}
