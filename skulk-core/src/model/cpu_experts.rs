//! Who computes feed-forward blocks whose weights a device shall not hold? The CPU, beside it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::experts::{ExpertCall, ExpertProvider, ResidentExperts};
use super::load::Loader;
use crate::engine::backend::{Backend, Routes};
use crate::engine::cpu::Cpu;
use crate::engine::{ShardSpec, StepCx};
use crate::error::Result;
use crate::weights::Memory;

/// Experts that this library's CPU kernels compute, whatever the device of the other operations.
/// Rows cross once each way.
pub(super) struct CpuExperts {
    cpu: Arc<Cpu>,
    memory: Memory,
    blocks: ResidentExperts<Cpu>,
    /// Rows, hidden width and inner width of the largest call.
    sizes: [usize; 3],
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

impl CpuExperts {
    /// Room for the blocks of a shard, whose weights shall lie there.
    pub(super) fn new(cpu: Arc<Cpu>, spec: &ShardSpec, memory: Memory) -> Self {
        let own = &spec.arch.layers[spec.layers.clone()];
        let width = own.iter().map(|layer| layer.ffn.width).max().unwrap_or(0);
        Self {
            cpu,
            memory,
            blocks: ResidentExperts::new(&spec.layers),
            sizes: [spec.max_rows, spec.arch.hidden_size, width],
            rooms: Mutex::default(),
        }
    }

    fn rooms(&self) -> MutexGuard<'_, Vec<Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new room, for as many calls at a time as there have never been.
    fn room(&self) -> Result<Room> {
        let [rows, hidden, width] = self.sizes;
        let buffer = |width| self.cpu.buffer(rows, width);
        Ok(Room {
            stream: self.cpu.stream(rows, hidden.max(width))?,
            routes: Routes::default(),
            input: buffer(hidden)?,
            inner: [buffer(width)?, buffer(width)?],
            output: buffer(hidden)?,
        })
    }

    fn compute<B: Backend>(&self, room: &mut Room, call: ExpertCall<'_, B>, cx: &StepCx<'_>) -> Result<()> {
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
        self.cpu.run(|| self.blocks.forward(on_cpu, cx))?;
        device.write(stream, room.output.rows(rows), output)
    }
}

impl<B: Backend> ExpertProvider<B> for CpuExperts {
    fn load_layer(&mut self, loader: &mut Loader<'_, B>) -> Result<()> {
        let Loader { checkpoint, arch, cancel, .. } = *loader;
        let (backend, memory) = (&*self.cpu, self.memory);
        let mut own = Loader { backend, checkpoint, arch, memory, cancel, bytes: 0 };
        self.blocks.load_layer(&mut own)?;
        loader.bytes += own.bytes;
        Ok(())
    }

    fn forward(&self, call: ExpertCall<'_, B>, cx: &StepCx<'_>) -> Result<()> {
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
    use crate::engine::candle::Tensors;
    use crate::engine::{KvType, Precision};
    use crate::error::ErrorKind;
    use crate::ids::LayerIdx;
    use crate::weights::open_checkpoint;

    /// The last two layers of a fixture without experts, on the CPU beside tensors.
    fn experts(device: &Tensors) -> CpuExperts {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/gemma3");
        let checkpoint = open_checkpoint(folder).unwrap();
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let layers = arch.n_layers() - 2..arch.n_layers();
        let spec = ShardSpec::new(Arc::clone(&arch), layers.clone(), 128, 64, KvType::F16).unwrap();
        let cpu = Arc::new(Cpu::new(2, Precision::Fast).unwrap());
        let mut experts = CpuExperts::new(cpu, &spec, Memory::Resident);
        let (checkpoint, cancel) = (&*checkpoint, &CancelToken::new());
        let mut loader =
            Loader { backend: device, checkpoint, arch: &arch, memory: Memory::Mapped, cancel, bytes: 0 };
        layers.for_each(|_| experts.load_layer(&mut loader).unwrap());
        let block = |layer| arch.names.feed_forward(layer, &arch.layers[layer]);
        let names = spec.layers.flat_map(block);
        assert_eq!(loader.bytes, names.map(|name| checkpoint.tensor(&name).unwrap().len).sum::<u64>());
        experts
    }

    fn forward(experts: &CpuExperts, device: &Tensors, layer: usize, rows: usize) -> Result<Vec<f32>> {
        let hidden = experts.sizes[1];
        let mut host: Vec<_> = (0..rows * hidden).map(|i| (i % 89) as f32 / 44.0 - 1.0).collect();
        let (mut input, mut output) = (device.buffer(rows, hidden)?, device.buffer(rows, hidden)?);
        device.write(&mut (), &host, &mut input)?;
        let (layer, inner) = (LayerIdx(layer), &mut [device.buffer(0, 0)?, device.buffer(0, 0)?]);
        let (stream, routes, input, output) = (&mut (), None, &input, &mut output);
        let call = ExpertCall { backend: device, layer, routes, rows, input, stream, inner, output };
        experts.forward(call, &StepCx::new(&CancelToken::new()))?;
        device.read(&mut (), output, &mut host)?;
        Ok(host)
    }

    #[test]
    fn rooms_are_kept_for_the_next_call() {
        let device = Tensors::cpu();
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
