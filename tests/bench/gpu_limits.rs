//! What does the device allow? Bytes copied a second, and multiply-adds of f32 and f16 in shaders.
//!
//! Each figure is the best of several trials, timed from before work is handed over until it is done; the
//! work grows until that takes far longer than handing it over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wgpu::{Backends, BufferUsages, Features};

use crate::{AnyError, note};

/// Work is doubled until it takes this long.
const LONG: Duration = Duration::from_millis(25);
const TRIALS: usize = 6;
/// How long a device may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Threads of a workgroup, and the most workgroups of a dispatch.
const THREADS: u32 = 256;
const GROUPS: u32 = 8192;
/// Multiply-adds of a thread: rounds, times copies of the round's body, times vectors of four.
const ROUNDS: u32 = 64;
const COPIES: u32 = 8;
const VECTORS: u32 = 8;

/// What the device does in a second.
pub(crate) struct Limits {
    /// Bytes read and written by the best way to copy, and by each.
    pub(crate) copy: f64,
    copy_command: f64,
    copy_shader: f64,
    /// Operations, two for a multiply-add.
    pub(crate) f32: f64,
    /// The same in half precision, where shaders have that.
    pub(crate) f16: Option<f64>,
    /// Bytes of the buffers that were copied.
    pub(crate) copied: u64,
}

impl Limits {
    pub(crate) fn json(&self) -> Value {
        json!({
            "copy_bytes_per_second": self.copy,
            "copy_command_bytes_per_second": self.copy_command,
            "copy_shader_bytes_per_second": self.copy_shader,
            "copied_bytes": self.copied,
            "f32_flops": self.f32,
            "f16_flops": self.f16,
        })
    }
}

/// Measures the device of a wgpu engine, with buffers of up to `bytes` bytes.
pub(crate) fn measure(engine: &str, bytes: u64) -> Result<Limits, AnyError> {
    let device = Device::open(engine)?;
    let (copied, copy_command, copy_shader) = device.copies(bytes)?;
    let f32 = device.multiply_adds("f32")?;
    // Drivers may offer halves that do not work: the rest is of use without.
    let f16 = device.has_f16.then(|| device.multiply_adds("f16")).transpose().unwrap_or_else(|error| {
        note(&format!("f16: {error}"));
        None
    });
    Ok(Limits { copy: copy_command.max(copy_shader), copy_command, copy_shader, f32, f16, copied })
}

struct Device {
    device: wgpu::Device,
    queue: wgpu::Queue,
    has_f16: bool,
    /// The first thing that went wrong.
    fault: Arc<Mutex<Option<String>>>,
}

impl Device {
    /// The adapter that the engine of this id runs on.
    fn open(engine: &str) -> Result<Self, AnyError> {
        let (kind, ordinal) = engine.split_once(':').unwrap_or((engine, "0"));
        let backends = match kind {
            "wgpu-vulkan" => Backends::VULKAN,
            "wgpu-metal" => Backends::METAL,
            "wgpu-dx12" => Backends::DX12,
            "wgpu-gl" => Backends::GL,
            _ => return Err(format!("expected an engine on wgpu, found `{engine}`").into()),
        };
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends,
            flags: wgpu::InstanceFlags::empty(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let computes = |adapter: &wgpu::Adapter| {
            let flags = adapter.get_downlevel_capabilities().flags;
            flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
        };
        let all = pollster::block_on(instance.enumerate_adapters(backends));
        let adapter = all.into_iter().filter(computes).nth(ordinal.parse()?);
        let adapter = adapter.ok_or_else(|| format!("there is no device for `{engine}`"))?;
        let has_f16 = adapter.features().contains(Features::SHADER_F16);
        let descriptor = wgpu::DeviceDescriptor {
            required_features: if has_f16 { Features::SHADER_F16 } else { Features::empty() },
            required_limits: adapter.limits(),
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;
        let fault = Arc::new(Mutex::new(None));
        let first = Arc::clone(&fault);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.to_string());
        }));
        Ok(Self { device, queue, has_f16, fault })
    }

    fn buffer(&self, size: u64, usage: BufferUsages) -> wgpu::Buffer {
        let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        self.device.create_buffer(&descriptor)
    }

    /// A kernel with the buffers it works on.
    fn kernel(&self, source: String, entry: &str, buffers: &[(u32, &wgpu::Buffer)]) -> Kernel {
        let source = wgpu::ShaderSource::Wgsl(source.into());
        let module =
            self.device.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some(entry), source });
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(entry),
            layout: None,
            module: &module,
            entry_point: Some(entry),
            compilation_options: Default::default(),
            cache: None,
        });
        let entries: Vec<_> = buffers
            .iter()
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding: *binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(entry),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Kernel { pipeline, group }
    }

    /// Has something computed; how long that takes.
    fn run(&self, record: impl FnOnce(&mut wgpu::CommandEncoder)) -> Result<Duration, AnyError> {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        record(&mut encoder);
        let commands = encoder.finish();
        let started = Instant::now();
        let submission = self.queue.submit([commands]);
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: Some(PATIENCE) };
        self.device.poll(wait)?;
        let took = started.elapsed();
        match &*self.fault.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(took),
            Some(fault) => Err(fault.as_str().into()),
        }
    }

    /// The most units a second; `record` records so many.
    fn best(&self, record: impl Fn(&mut wgpu::CommandEncoder, u32)) -> Result<f64, AnyError> {
        let timed = |units| self.run(|encoder| record(encoder, units));
        timed(1)?;
        let mut units = 1;
        let mut best = timed(units)?;
        while best < LONG && units < 1 << 24 {
            units *= 2;
            best = timed(units)?;
        }
        for _ in 1..TRIALS {
            best = best.min(timed(units)?);
        }
        Ok(f64::from(units) / best.as_secs_f64())
    }

    /// The end of a buffer.
    fn last<const WORDS: usize>(&self, buffer: &wgpu::Buffer) -> Result<[u32; WORDS], AnyError> {
        let bytes = 4 * WORDS as u64;
        let landing = self.buffer(bytes, BufferUsages::COPY_DST | BufferUsages::MAP_READ);
        self.run(|encoder| {
            encoder.copy_buffer_to_buffer(buffer, buffer.size() - bytes, &landing, 0, bytes);
            encoder.map_buffer_on_submit(&landing, wgpu::MapMode::Read, .., |_| ());
        })?;
        let view = landing.slice(..).get_mapped_range()?;
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(view.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(words)
    }

    /// Bytes of a buffer; then what the copy command, and a shader, read and write in a second.
    fn copies(&self, bytes: u64) -> Result<(u64, f64, f64), AnyError> {
        let limits = self.device.limits();
        let largest = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let size = bytes.min(largest) / 4096 * 4096;
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let [a, b] = [(); 2].map(|()| self.buffer(size, usage));
        let fill = self.kernel(COPY.into(), "fill", &[(1, &a)]);
        let copy = self.kernel(COPY.into(), "copy", &[(0, &a), (1, &b)]);
        // Noise, as memory may treat zeros better.
        self.run(|encoder| fill.record(encoder, GROUPS, 1))?;
        let moved = 2.0 * size as f64;
        let command = self.best(|encoder, times| {
            (0..times).for_each(|_| encoder.copy_buffer_to_buffer(&a, 0, &b, 0, size));
        })?;
        self.run(|encoder| encoder.clear_buffer(&b, 0, None))?;
        let shader = self.best(|encoder, times| copy.record(encoder, GROUPS, times))?;
        let expected = noise((size / 16 - 1) as u32);
        if self.last::<4>(&b)? != expected {
            return Err("the device copied something else than it was told to".into());
        }
        Ok((size, moved * command, moved * shader))
    }

    /// Operations a second with numbers of this type.
    fn multiply_adds(&self, float: &str) -> Result<f64, AnyError> {
        let size = 4 * u64::from(GROUPS * THREADS);
        let out = self.buffer(size, BufferUsages::STORAGE | BufferUsages::COPY_SRC);
        let kernel = self.kernel(multiply_adds(float), "multiply_adds", &[(0, &out)]);
        let groups_a_second = self.best(|encoder, groups| {
            let times = groups.div_ceil(GROUPS);
            kernel.record(encoder, groups.min(GROUPS), times);
        })?;
        self.run(|encoder| kernel.record(encoder, GROUPS, 1))?;
        // The sums turn in circles: neither gone nor beyond all bounds.
        if self.last::<64>(&out)?.map(f32::from_bits).iter().any(|x| !(1e-3..1e3).contains(&x.abs())) {
            return Err(format!("the device's {float} arithmetic is wrong").into());
        }
        Ok(groups_a_second * f64::from(THREADS * ROUNDS * COPIES * VECTORS) * 4.0 * 2.0)
    }
}

struct Kernel {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
}

impl Kernel {
    fn record(&self, encoder: &mut wgpu::CommandEncoder, groups: u32, times: u32) {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        (0..times).for_each(|_| pass.dispatch_workgroups(groups, 1, 1));
    }
}

const COPY: &str = "
@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> b: array<vec4<u32>>;

fn noise(i: u32) -> u32 {
    let x = (i ^ (i >> 15u)) * 0x2c1b3c6du;
    return (x ^ (x >> 12u)) * 0x297a2d39u;
}

@compute @workgroup_size(256)
fn fill(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&b); i += 256u * groups.x) {
        b[i] = vec4<u32>(noise(4u * i), noise(4u * i + 1u), noise(4u * i + 2u), noise(4u * i + 3u));
    }
}

@compute @workgroup_size(256)
fn copy(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var i = id.x; i < arrayLength(&b); i += 256u * groups.x) {
        b[i] = a[i];
    }
}
";

/// What [`COPY`] fills a vector with.
fn noise(i: u32) -> [u32; 4] {
    [0, 1, 2, 3].map(|word| {
        let i = i.wrapping_mul(4).wrapping_add(word);
        let x = (i ^ (i >> 15)).wrapping_mul(0x2c1b_3c6d);
        (x ^ (x >> 12)).wrapping_mul(0x297a_2d39)
    })
}

/// Pairs of vectors that turn in circles: they stay bounded, and never become the same numbers again.
fn multiply_adds(float: &str) -> String {
    let pairs = VECTORS / 2;
    let each = |line: &dyn Fn(u32) -> String| (0..pairs).map(line).collect::<String>();
    let start = each(&|i| format!("var x{i} = start + V({i}.0); var y{i} = start - V({i}.0);\n"));
    let turn = each(&|i| format!("x{i} = fma(y{i}, s, x{i});\n"))
        + &each(&|i| format!("y{i} = fma(x{i}, t, y{i});\n"));
    let turns = turn.repeat(COPIES as usize);
    let sum = each(&|i| format!(" + abs(x{i}) + abs(y{i})"));
    let enable = if float == "f16" { "enable f16;" } else { "" };
    format!(
        "{enable}
alias V = vec4<{float}>;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;

@compute @workgroup_size({THREADS})
fn multiply_adds(@builtin(global_invocation_id) id: vec3<u32>) {{
    let own = {float}(id.x & 7u) * 0.01;
    let s = V(0.1, 0.2, 0.3, 0.4) + own;
    let t = -s;
    let start = V(1.0, 0.5, 0.25, 0.75) + own;
    {start}
    for (var i = 0u; i < {ROUNDS}u; i++) {{
        {turns}
    }}
    let sum = V(){sum};
    out[id.x] = f32(sum.x + sum.y + sum.z + sum.w);
}}
"
    )
}
