//! Who computes feed-forward blocks whose weights a device shall not hold? The CPU, beside it, layer by layer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::experts::{ExpertCall, ExpertProvider, FfnWork, ResidentExperts};
use super::load::Loader;
use crate::engine::backend::{Backend, Routes};
use crate::engine::cpu::Cpu;
use crate::engine::{FfnMemory, ShardSpec, StepCx};
use crate::error::Result;
use crate::weights::Memory;

/// Experts of which the device has some layers' and this library's CPU kernels compute the others', whatever
/// the device. Rows of the latter cross once each way.
pub(super) struct CpuExperts<B: Backend> {
    cpu: Arc<Cpu>,
    memory: Memory,
    spec: ShardSpec,
    on_cpu: ResidentExperts<Cpu>,
    on_device: ResidentExperts<B>,
    /// Rooms that no call is using.
    rooms: Mutex<Vec<Room>>,
}

/// What a call needs on the CPU. Kept for the next one: a decoded token allocates nothing.
struct Room {
    stream: <Cpu as Backend>::Stream,
    routes: Routes,
    input: <Cpu as Backend>::Buffer,
    inner: [<Cpu as Backend>::Buffer; 2],
    output: <Cpu as Backend>::Buffer,
}

impl<B: Backend> CpuExperts<B> {
    /// Room for the blocks of a shard. Those that its `spec` leaves to the CPU shall lie in `memory`, and be
    /// computed as `work` says.
    pub(super) fn new(cpu: Arc<Cpu>, spec: &ShardSpec, memory: Memory, work: Arc<FfnWork<Cpu>>) -> Self {
        Self {
            cpu,
            memory,
            spec: spec.clone(),
            on_cpu: ResidentExperts::new(&spec.layers, work),
            on_device: ResidentExperts::new(&spec.layers, FfnWork::whole()),
            rooms: Mutex::default(),
        }
    }

    fn rooms(&self) -> MutexGuard<'_, Vec<Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new room, for as many calls at a time as there have never been.
    fn room(&self) -> Result<Room> {
        let ShardSpec { arch, layers, max_rows: rows, .. } = &self.spec;
        let widths = arch.layers[layers.clone()].iter().map(|layer| layer.ffn.width);
        let (rows, hidden, width) = (*rows, arch.hidden_size, widths.max().unwrap_or(0));
        let buffer = |width| self.cpu.buffer(rows, width);
        Ok(Room {
            stream: self.cpu.stream(rows, hidden.max(width))?,
            routes: Routes::default(),
            input: buffer(hidden)?,
            inner: [buffer(width)?, buffer(width)?],
            output: buffer(hidden)?,
        })
    }

    fn compute(&self, room: &mut Room, call: ExpertCall<'_, B>, cx: &StepCx<'_>) -> Result<()> {
        let ExpertCall { backend: device, layer, routes, rows, input, stream, output, .. } = call;
        device.read(stream, input, room.input.rows_mut(rows))?;
        let routes = match routes {
            Some(routes) => {
                device.read_routes(stream, routes, rows, &mut room.routes)?;
                Some(&room.routes)
            }
            None => None,
        };
        let on_cpu = ExpertCall {
            backend: &*self.cpu,
            layer,
            routes,
            rows,
            input: &room.input,
            stream: &mut room.stream,
            inner: &mut room.inner,
            output: &mut room.output,
        };
        self.cpu.run(cx, || self.on_cpu.forward(on_cpu, cx))?;
        device.write(stream, room.output.rows(rows), output)
    }
}

impl<B: Backend> ExpertProvider<B> for CpuExperts<B> {
    fn load_layer(&mut self, loader: &mut Loader<'_, B>) -> Result<()> {
        if !self.spec.is_ffn_on_cpu(self.on_cpu.next_layer()) {
            self.on_cpu.skip_layer();
            return self.on_device.load_layer(loader);
        }
        self.on_device.skip_layer();
        let Loader { checkpoint, arch, cancel, .. } = *loader;
        let (backend, memory) = (&*self.cpu, self.memory);
        let mut own = Loader { backend, checkpoint, arch, memory, on_demand: false, cancel, bytes: 0 };
        self.on_cpu.load_layer(&mut own)?;
        loader.bytes += own.bytes;
        Ok(())
    }

    fn memory(&self) -> Option<FfnMemory> {
        self.on_cpu.memory()
    }

    fn forward(&self, call: ExpertCall<'_, B>, cx: &StepCx<'_>) -> Result<()> {
        if !self.spec.is_ffn_on_cpu(call.layer.0) {
            return self.on_device.forward(call, cx);
        }
        let idle = self.rooms().pop();
        let mut room = idle.map_or_else(|| self.room(), Ok)?;
        let done = self.compute(&mut room, call, cx);
        self.rooms().push(room);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::ArchSpec;
    use crate::cancel::CancelToken;
    use crate::engine::{KvType, Precision};
    use crate::error::ErrorKind;
    use crate::ids::LayerIdx;
    use crate::weights::open_checkpoint;

    /// The last two layers of a fixture without experts, on the CPU beside itself.
    fn experts(device: &Cpu) -> CpuExperts<Cpu> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/gemma3");
        let checkpoint = open_checkpoint(folder).unwrap();
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let layers = arch.n_layers() - 2..arch.n_layers();
        let spec = ShardSpec::new(Arc::clone(&arch), layers.clone(), 128, 64, KvType::F16).unwrap();
        let cpu = Arc::new(Cpu::new(2, Precision::Fast).unwrap());
        let mut experts = CpuExperts::new(cpu, &spec, Memory::Resident, FfnWork::whole());
        let (checkpoint, cancel) = (&*checkpoint, &CancelToken::new());
        let (memory, on_demand) = (Memory::Mapped, false);
        let mut loader =
            Loader { backend: device, checkpoint, arch: &arch, memory, on_demand, cancel, bytes: 0 };
        layers.for_each(|_| experts.load_layer(&mut loader).unwrap());
        let block = |layer| arch.names.feed_forward(layer, &arch.layers[layer]);
        let names = spec.layers.flat_map(block);
        assert_eq!(loader.bytes, names.map(|name| checkpoint.tensor(&name).unwrap().len).sum::<u64>());
        experts
    }

    fn forward(experts: &CpuExperts<Cpu>, device: &Cpu, layer: usize, rows: usize) -> Result<Vec<f32>> {
        let hidden = experts.spec.arch.hidden_size;
        let mut host: Vec<_> = (0..rows * hidden).map(|i| (i % 89) as f32 / 44.0 - 1.0).collect();
        let (mut input, mut output) = (device.buffer(rows, hidden)?, device.buffer(rows, hidden)?);
        let stream = &mut device.stream(rows, hidden)?;
        device.write(stream, &host, &mut input)?;
        let (layer, inner) = (LayerIdx(layer), &mut [device.buffer(0, 0)?, device.buffer(0, 0)?]);
        let (routes, input, out) = (None, &input, &mut output);
        let call = ExpertCall {
            backend: device,
            layer,
            routes,
            rows,
            input,
            stream: &mut *stream,
            inner,
            output: out,
        };
        experts.forward(call, &StepCx::new(&CancelToken::new()))?;
        device.read(stream, &output, &mut host)?;
        Ok(host)
    }

    #[test]
    fn rooms_are_kept_for_the_next_call() {
        let device = Cpu::new(1, Precision::Fast).unwrap();
        let experts = experts(&device);
        let expected = forward(&experts, &device, 4, 64).unwrap();
        for _ in 0..3 {
            let one = forward(&experts, &device, 4, 1).unwrap();
            assert_eq!(one, expected[..one.len()]);
            // It holds no other layers than its own, and says so.
            let error = forward(&experts, &device, 3, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal);
            assert_eq!(experts.rooms().len(), 1);
        }
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert!(forward(&experts, &device, 4, 64).unwrap() == expected);
                    }
                });
            }
        });
        assert!((1..=2).contains(&experts.rooms().len()));
    }
}
