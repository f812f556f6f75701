//! Which kernels are there, and how are they built? Sources put together, pipelines made once.
//!
//! An operation's shader is a file of `shaders/`, behind constants and the helpers it needs. Operands are
//! storage buffers in group 0, read ones first; parameters are a uniform buffer in group 1, at a dynamic
//! offset.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use super::device::Device;
use crate::error::Result;
use crate::weights::DType;

/// Bytes of parameters that a kernel may have.
pub(super) const PARAMS: u64 = 64;

/// Buffers that a kernel may have.
pub(super) const OPERANDS: usize = 6;

/// Threads that norm one row.
const NORM_THREADS: u32 = 128;

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

/// An operation, as far as it decides the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Op {
    RmsNorm,
    AddNorm,
    Add,
    /// The activation's number in the shader.
    Gated(u32),
    Softcap,
    Gather,
    Embed(DType),
    /// Up to this many rows.
    Matvec(DType, u32),
    Matmul(DType),
    NormRope {
        norm: bool,
        pairs: bool,
    },
    CacheWrite {
        head_dim: u32,
        half: bool,
    },
    Attend {
        head_dim: u32,
        half: bool,
        queries: u32,
        softcap: bool,
        sinks: bool,
    },
    AttendCombine {
        head_dim: u32,
        sinks: bool,
    },
    Top {
        stage: u32,
    },
    Route,
    ExpertsSort,
    ExpertsMatvec(DType),
    ExpertsMatmul(DType),
    ExpertsSum,
}

impl Op {
    /// How many buffers it reads, and how many it writes.
    fn operands(self) -> [usize; 2] {
        match self {
            Op::Softcap => [0, 1],
            Op::Add | Op::Gated(_) => [1, 1],
            Op::RmsNorm | Op::AddNorm | Op::Gather | Op::Embed(_) => [2, 1],
            Op::NormRope { .. } | Op::AttendCombine { .. } | Op::ExpertsSum => [2, 1],
            Op::Matvec(..) | Op::Matmul(_) | Op::ExpertsMatvec(_) => [3, 1],
            Op::CacheWrite { .. } | Op::Top { .. } => [2, 2],
            Op::Attend { .. } => [4, 2],
            Op::Route | Op::ExpertsSort => [1, 2],
            Op::ExpertsMatmul(_) => [4, 1],
        }
    }

    /// Constants, then files, in the order in which the shader wants them.
    fn parts(self, subgroups: bool) -> (Vec<(&'static str, u32)>, Vec<&'static str>) {
        let reduce = if subgroups { shader!("reduce_subgroup") } else { shader!("reduce_shared") };
        let bytes = shader!("formats/bytes");
        match self {
            Op::RmsNorm => (vec![("THREADS", NORM_THREADS)], vec![shader!("sum"), shader!("rms_norm")]),
            Op::AddNorm => (vec![("THREADS", NORM_THREADS)], vec![shader!("sum"), shader!("add_norm")]),
            Op::Add => (vec![], vec![shader!("add")]),
            Op::Gated(activation) => {
                (vec![("ACTIVATION", activation)], vec![shader!("math"), shader!("gated")])
            }
            Op::Softcap => (vec![], vec![shader!("math"), shader!("softcap")]),
            Op::Gather => (vec![], vec![shader!("gather")]),
            Op::Embed(dtype) => (vec![], vec![bytes, format(dtype), shader!("embed")]),
            Op::Matvec(dtype, rows) => (
                vec![("ROWS", rows), ("OUTPUTS", OUTPUTS), ("THREADS", 64)],
                vec![shader!("product"), bytes, format(dtype), shader!("dots"), reduce, shader!("matvec")],
            ),
            Op::Matmul(dtype) => {
                (vec![], vec![shader!("product"), bytes, format(dtype), shader!("tiles"), shader!("matmul")])
            }
            Op::NormRope { norm, pairs } => (
                vec![("THREADS", 64), ("NORM", norm.into()), ("PAIRS", pairs.into())],
                vec![shader!("sum"), shader!("norm_rope")],
            ),
            Op::CacheWrite { head_dim, half } => {
                (vec![("HEAD_DIM", head_dim), ("HALF", half.into())], vec![shader!("cache_write")])
            }
            Op::Attend { head_dim, half, queries, softcap, sinks } => (
                vec![
                    ("HEAD_DIM", head_dim),
                    ("HALF", half.into()),
                    ("THREADS", attend_threads(head_dim)),
                    ("T", queries),
                    ("SOFTCAP", softcap.into()),
                    ("SINKS", sinks.into()),
                ],
                vec![shader!("math"), shader!("attend")],
            ),
            Op::AttendCombine { head_dim, sinks } => {
                (vec![("HEAD_DIM", head_dim), ("SINKS", sinks.into())], vec![shader!("attend_combine")])
            }
            Op::Top { stage } => (vec![("STAGE", stage), ("SLICE", SLICE)], vec![shader!("top")]),
            Op::Route => (vec![], vec![shader!("route")]),
            Op::ExpertsSort => (vec![], vec![shader!("experts_sort")]),
            Op::ExpertsMatvec(dtype) => (
                vec![("ROWS", 1), ("OUTPUTS", OUTPUTS), ("THREADS", 64)],
                vec![bytes, format(dtype), shader!("dots"), reduce, shader!("experts_matvec")],
            ),
            Op::ExpertsMatmul(dtype) => {
                (vec![], vec![bytes, format(dtype), shader!("tiles"), shader!("experts_matmul")])
            }
            Op::ExpertsSum => (vec![], vec![shader!("experts_sum")]),
        }
    }

    fn source(self, subgroups: bool) -> String {
        let (constants, files) = self.parts(subgroups);
        let mut source = String::new();
        for (name, value) in constants {
            // Writing to a string cannot fail.
            let _ = writeln!(source, "const {name}: u32 = {value}u;");
        }
        source.extend(files.into_iter().flat_map(|file| [file, "\n"]));
        source
    }
}

/// Threads of a workgroup that attends, and positions it looks at together.
pub(super) fn attend_threads(head_dim: u32) -> u32 {
    (head_dim / 2).next_power_of_two().clamp(64, 256)
}

fn format(dtype: DType) -> &'static str {
    match dtype {
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
    }
}

/// A built kernel.
pub(super) struct Kernel {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) operands: wgpu::BindGroupLayout,
}

/// The kernels of a device, each built when it is first asked for.
pub(super) struct Kernels {
    pub(super) params: wgpu::BindGroupLayout,
    built: Mutex<HashMap<Op, Arc<Kernel>>>,
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

    pub(super) fn get(&self, device: &Device, op: Op) -> Result<Arc<Kernel>> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = built.get(&op) {
            return Ok(Arc::clone(kernel));
        }
        let kernel = Arc::new(device.scoped(&format!("the kernel {op:?}"), || self.build(device, op))?);
        built.insert(op, Arc::clone(&kernel));
        Ok(kernel)
    }

    fn build(&self, device: &Device, op: Op) -> Kernel {
        let subgroups = device.subgroups;
        let device = &device.device;
        let name = format!("{op:?}");
        let label = Some(name.as_str());
        let [reads, writes] = op.operands();
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
        let source = wgpu::ShaderSource::Wgsl(op.source(subgroups).into());
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
