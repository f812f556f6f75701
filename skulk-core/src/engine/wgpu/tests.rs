//! Does a GPU compute what its operations promise, and fail as it should? On the software adapter.

use super::kernels::{Heads, Op, attend_threads};
use super::*;
use crate::arch::STATES_HELD;
use crate::bytes::ByteSize;
use crate::engine::KvType;
use crate::engine::conformance::{Numbers, Rounds, Weights, conformance, region, state_cases, stored_floats};
use crate::error::{ErrorKind, Retry};
use crate::weights::DType;

impl Rounds for Gpu {
    fn types(&self) -> Vec<DType> {
        DType::ALL.iter().copied().filter(|dtype| dtype.is_weight() && !dtype.is_for_cpus()).collect()
    }

    fn is_emulated(&self) -> bool {
        Gpu::is_emulated()
    }
}

mod as_it_is {
    use super::*;
    conformance!(Gpu::tested(Limits::default()));
}

/// Bindings hold some rows, or one expert: weights are split.
mod split {
    use super::*;
    conformance!(Gpu::tested(Limits { chunk: Some(110_000), ..Limits::default() }); embed, linear, experts);
}

/// Sums by subgroups, however narrow.
mod subgroups {
    use super::*;
    conformance!(Gpu::tested(Limits { subgroups: Some(true), ..Limits::default() }));
}

fn weights(dtype: DType, shape: [usize; 2]) -> Weights {
    Weights::new(&mut Numbers::new(1), dtype, shape, 0)
}

/// What does not fit is an error that says so, takes nothing, and leaves the device usable.
#[test]
fn memory_is_limited_and_given_back() {
    let gpu = Gpu::tested(Limits { memory: Some(ByteSize(3 << 20)), ..Limits::default() });
    let before = gpu.device.reserved();
    let small = weights(DType::Q8_0, [256, 1024]);
    let matrix = gpu.matrix(small.region.clone(), None).unwrap();
    assert!(gpu.device.reserved() >= before + small.region.bytes().len() as u64);
    let large = weights(DType::F32, [1024, 1024]).region;
    let mut pages = gpu
        .pages(&PageSpec { n_kv_heads: 64, head_dim: 64, latent: None, index: None, kv: KvType::F16.into() })
        .unwrap();
    let failures = [
        gpu.matrix(large, None).err(),
        gpu.buffer(1024, 1024).err(),
        gpu.buffer(usize::MAX, 1024).err(),
        gpu.buffer(1 << 20, 1 << 20).err(),
        gpu.routes(usize::MAX, 8).err(),
        gpu.pages(&PageSpec {
            n_kv_heads: usize::MAX,
            head_dim: 64,
            latent: None,
            index: None,
            kv: KvType::F16.into(),
        })
        .err(),
        gpu.add_page(&mut pages, 15).err(),
        gpu.add_page(&mut pages, u32::MAX).err(),
    ];
    for failure in failures {
        let error = failure.unwrap();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(error.hint().is_some(), "{error}");
    }
    let mut stream = gpu.stream(1, 1024).unwrap();
    let (mut x, mut out) = (gpu.buffer(1, 1024).unwrap(), gpu.buffer(1, 256).unwrap());
    gpu.write(&mut stream, &[1.0; 1024], &mut x).unwrap();
    gpu.linear(&mut stream, &x, 1, &mut [(&matrix, &mut out)]).unwrap();
    let mut found = [0.0; 256];
    gpu.read(&mut stream, &out, &mut found).unwrap();
    let expected: Vec<f64> = small.values.chunks(1024).map(|row| row.iter().sum()).collect();
    assert!(found.iter().zip(expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-3));
    drop((matrix, x, out, stream));
    assert_eq!(gpu.device.reserved(), before);
}

#[test]
fn what_a_binding_cannot_hold_is_an_error() {
    let gpu = Gpu::tested(Limits { buffer: Some(1 << 16), ..Limits::default() });
    let row = weights(DType::F32, [2, 20_000]).region;
    let error = gpu.matrix(row, None).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::EngineUnavailable, "{error}");
    assert!(error.to_string().contains("64.0 KiB"), "{error}");
    let experts = [(); 2].map(|()| weights(DType::F32, [256, 256]).region).to_vec();
    assert_eq!(gpu.stack(experts, None).err().unwrap().kind(), ErrorKind::EngineUnavailable);
    let error = gpu.buffer(1024, 64).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
}

#[test]
fn what_kernels_have_no_room_for_is_refused() {
    let gpu = Gpu::tested(Limits::default());
    let one = weights(DType::F32, [4, 4]).region;
    let mut mixed = vec![one.clone(), weights(DType::F16, [4, 4]).region];
    assert_eq!(gpu.stack(mixed.clone(), None).err().unwrap().kind(), ErrorKind::DTypeUnsupported);
    mixed.truncate(1);
    assert!(gpu.stack(mixed, None).is_ok());
    assert_eq!(gpu.stack(vec![one; 513], None).err().unwrap().kind(), ErrorKind::EngineUnavailable);
    assert_eq!(gpu.stack(vec![], None).err().unwrap().kind(), ErrorKind::Internal);
    for head_dim in [7, 514] {
        let spec = PageSpec { n_kv_heads: 1, head_dim, latent: None, index: None, kv: KvType::F16.into() };
        assert_eq!(gpu.pages(&spec).err().unwrap().kind(), ErrorKind::ArchUnsupported);
    }
    // Latent vectors, with what is behind them, and with keys that choose positions.
    let latent = |rank, head_dim, index, kv: KvType| {
        gpu.pages(&PageSpec { n_kv_heads: 1, head_dim, latent: Some(rank), index, kv: kv.into() })
    };
    for (rank, head_dim, index, kv) in [
        (514, 578, None, KvType::F16),
        (512, 690, None, KvType::F16),
        (48, 64, None, KvType::Q8_0),
        (512, 710, Some([576, 576]), KvType::F16),
        (512, 576 + 4100, Some([576, 576]), KvType::F16),
    ] {
        let error = latent(rank, head_dim, index, kv).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ArchUnsupported, "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("`cpu`")), "{error}");
    }
    assert!(latent(48, 64, None, KvType::F16).is_ok());
    assert!(latent(512, 704, Some([576, 576]), KvType::Q8_0).is_ok());
    // There are kernels for the largest of these: DeepSeek's, and what is beside them.
    for kind in [KvType::F16, KvType::Q8_0] {
        for head_dim in [576, 688] {
            let heads = Heads { head_dim, value_dim: 512, kept_dim: head_dim + 128, latent: true };
            let attend = Op::attend(heads, kind.into(), 4, false, false);
            gpu.kernels.get(&gpu.device, &attend).unwrap();
            gpu.kernels.get(&gpu.device, &Op::attend_chosen(heads, kind, attend_threads(512))).unwrap();
        }
        gpu.kernels.get(&gpu.device, &Op::scores([4096, 576 + 4096], kind, 1)).unwrap();
    }
}

/// A sequence's states take what plans count for it, and stay when others come.
#[test]
fn states_take_what_is_counted() {
    let gpu = Gpu::tested(Limits::default());
    let spec = &state_cases()[0].spec;
    let mut states = gpu.states(spec).unwrap();
    let before = gpu.device.reserved();
    let held = STATES_HELD as u32;
    (0..held).for_each(|number| gpu.add_state(&mut states, number).unwrap());
    assert_eq!(gpu.device.reserved() - before, STATES_HELD * spec.state_bytes());
    let mut stream = gpu.stream(1, 16).unwrap();
    let bytes: Vec<u8> = (0..spec.state_bytes()).map(|i| (i % 251) as u8).collect();
    gpu.write_state(&mut stream, &mut states, 3, &bytes).unwrap();
    let before = gpu.device.reserved();
    // What another sequence keeps.
    gpu.add_state(&mut states, held).unwrap();
    assert_eq!(gpu.device.reserved() - before, STATES_HELD * spec.state_bytes());
    let mut found = Vec::new();
    gpu.read_state(&mut stream, &states, 3, &mut found).unwrap();
    assert_eq!(found, bytes);
    let room = gpu.device.reserved() + spec.state_bytes();
    let small = Gpu::tested(Limits { memory: Some(ByteSize(room)), ..Limits::default() });
    let mut states = small.states(spec).unwrap();
    let error = (0..).find_map(|number| small.add_state(&mut states, number).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("close sessions")), "{error}");
}

/// A kernel that the driver or wgpu refuses is an error, and the next one is built.
#[test]
fn a_refused_kernel_is_an_error() {
    let gpu = Gpu::tested(Limits::default());
    let heads = Heads { head_dim: 64, value_dim: 64, kept_dim: 64, latent: false };
    let error =
        gpu.kernels.get(&gpu.device, &Op::attend(heads, KvType::F16.into(), 0, false, false)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::EngineFailed, "{error}");
    assert!(std::error::Error::source(&error).is_some());
    gpu.device.check().unwrap();
    gpu.kernels.get(&gpu.device, &Op::gather()).unwrap();
}

#[test]
fn every_operation_on_a_lost_device_is_an_error() {
    let gpu = Gpu::tested(Limits::default());
    let mut stream = gpu.stream(4, 64).unwrap();
    let matrix = gpu.matrix(weights(DType::Q8_0, [64, 64]).region, None).unwrap();
    let (mut x, mut out) = (gpu.buffer(4, 64).unwrap(), gpu.buffer(4, 64).unwrap());
    gpu.write(&mut stream, &[1.0; 256], &mut x).unwrap();
    gpu.linear(&mut stream, &x, 4, &mut [(&matrix, &mut out)]).unwrap();
    gpu.destroy();
    for _ in 0..3 {
        let error = gpu.read(&mut stream, &out, &mut [0.0; 256]).unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::EngineFailed, Retry::AfterReplan), "{error}");
        let _ = gpu.linear(&mut stream, &x, 4, &mut [(&matrix, &mut out)]);
        assert!(gpu.submit(&mut stream).is_err() || gpu.read(&mut stream, &out, &mut [0.0; 4]).is_err());
    }
    assert!(gpu.buffer(4, 64).is_err() && gpu.stream(4, 64).is_err());
    assert!(gpu.matrix(weights(DType::Q8_0, [64, 64]).region, None).is_err());
}

/// The list made on the device is the host's, whatever the logits.
#[test]
fn the_largest_logits_of_any_kind() {
    let gpu = Gpu::tested(Limits::default());
    let mut numbers = Numbers::new(5);
    for (n, width) in [(1, 4), (5, 4), (70, 32), (5000, 64), (40_000, 32)] {
        let mut table = numbers.floats(n * width);
        for (i, odd) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0].into_iter().enumerate() {
            // Whole rows, so that logits are.
            if n > 10 {
                table[(i * 7 + 3) * width..][..width].fill(odd);
            }
        }
        // Equal ones too.
        let (first, rest) = table.split_at_mut(n / 2 * width);
        rest[..first.len()].copy_from_slice(first);
        let weights = f32_region(&table, [n, width]);
        let matrix = gpu.matrix(weights, None).unwrap();
        let mut stream = gpu.stream(3, width).unwrap();
        let mut x = gpu.buffer(3, width).unwrap();
        let rows = numbers.floats(3 * width).iter().map(|x| x.abs() + 0.1).collect::<Vec<_>>();
        gpu.write(&mut stream, &rows, &mut x).unwrap();
        for softcap in [None, Some(3.0)] {
            let head = Head { matrix: &matrix, n_vocab: n, softcap, shortlist: &[] };
            let mut all = gpu.buffer(3, n).unwrap();
            gpu.logits(&mut stream, &head, &x, 3, &mut all).unwrap();
            let mut host = vec![0.0; 3 * n];
            gpu.read(&mut stream, &all, &mut host).unwrap();
            for k in [1, 2, 40, 64, 65, n] {
                let (mut ids, mut logits) = (vec![TokenId(7); 3 * k], vec![0.0; 3 * k]);
                let out = TopLogits { k, ids: &mut ids, logits: &mut logits };
                gpu.top(&mut stream, &head, &x, 3, out).unwrap();
                let (mut ids_of_host, mut logits_of_host) = (vec![TokenId(0); 3 * k], vec![0.0; 3 * k]);
                TopLogits { k, ids: &mut ids_of_host, logits: &mut logits_of_host }.list(host.chunks(n));
                assert_eq!(ids, ids_of_host, "{k} of {n}, {softcap:?}");
                assert_eq!(logits, logits_of_host, "{k} of {n}, {softcap:?}");
            }
        }
    }
}

/// Operations come out right however many are recorded before the first is waited for.
#[test]
fn long_recordings_are_sent_in_parts() {
    // Room for the parameters of 1024 dispatches, or fewer.
    let gpu = Gpu::tested(Limits { buffer: Some(1 << 16), ..Limits::default() });
    let (vocab, width) = (19, 20);
    let table = Numbers::new(3).floats(vocab * width);
    let matrix = gpu.matrix(f32_region(&table, [vocab, width]), None).unwrap();
    let mut stream = gpu.stream(16, width).unwrap();
    // More and more, so that later ones come to lie where earlier ones did.
    let tokens = |i: usize| -> Vec<_> {
        (0..1 + i / 512).map(|j| TokenId(((i * 7 + j * 5) % vocab) as u32)).collect()
    };
    let mut outputs: Vec<_> = (0..2200).map(|_| gpu.buffer(5, width).unwrap()).collect();
    let before = gpu.submissions();
    for (i, output) in outputs.iter_mut().enumerate() {
        gpu.embed(&mut stream, &matrix, &tokens(i), 1.0, output).unwrap();
    }
    assert!(gpu.submissions() - before >= 2);
    // More words than there is room for at first.
    let many: Vec<_> = (0..6000).map(|i| TokenId((i % vocab) as u32)).collect();
    let gpu_of_many = Gpu::tested(Limits::default());
    let mut other = gpu_of_many.stream(6000, width).unwrap();
    let matrix = gpu_of_many.matrix(f32_region(&table, [vocab, width]), None).unwrap();
    let mut all = gpu_of_many.buffer(6000, width).unwrap();
    gpu_of_many.embed(&mut other, &matrix, &many, 1.0, &mut all).unwrap();
    let row = |token: TokenId| &table[token.0 as usize * width..][..width];
    let mut found = vec![0.0; 6000 * width];
    gpu_of_many.read(&mut other, &all, &mut found).unwrap();
    assert!(found.chunks(width).zip(&many).all(|(found, token)| found == row(*token)));
    for (i, output) in outputs.iter().enumerate() {
        let expected: Vec<f32> = tokens(i).into_iter().flat_map(row).copied().collect();
        let mut found = vec![0.0; expected.len()];
        gpu.read(&mut stream, output, &mut found).unwrap();
        assert_eq!(found, expected, "{i}");
    }
}

fn f32_region(values: &[f32], shape: [usize; 2]) -> Region {
    region("table", DType::F32, shape, &stored_floats(DType::F32, values).0, 0)
}

#[test]
fn software_is_found_by_its_id_only() {
    let all = Adapter::all();
    let software: Vec<_> = all.iter().filter(|adapter| adapter.is_software()).collect();
    assert!(!software.is_empty() || !Gpu::is_emulated());
    for adapter in software {
        let found = Adapter::find(&adapter.name()).unwrap();
        assert!(found.name() == adapter.name() && found.is_software());
    }
    let real = all.iter().any(|adapter| !adapter.is_software());
    match Adapter::find("wgpu") {
        Ok(found) => assert!(real && !found.is_software()),
        Err(error) => {
            assert!(!real && error.kind() == ErrorKind::EngineUnavailable);
            assert!(error.hint().is_some_and(|hint| hint.contains("wgpu-vulkan:")), "{error}");
        }
    }
    for absent in ["wgpu-vulkan:4095", "wgpu-metal:4095", "wgpu-gl:x"] {
        assert_eq!(Adapter::find(absent).err().unwrap().kind(), ErrorKind::EngineUnavailable);
    }
}
