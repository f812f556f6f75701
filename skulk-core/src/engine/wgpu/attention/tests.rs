//! Do sequences of all lengths attend together as the formula says, wherever their pages lie? On the software adapter.

use crate::arch::AttentionSpec;
use crate::engine::backend::{Attend, Backend, PAGE, PageSpec, Spans, first_block};
use crate::engine::conformance::{Numbers, attention_spec, kept, oracle, wide};
use crate::engine::wgpu::pages::Pages;
use crate::engine::wgpu::stream::Stream;
use crate::engine::wgpu::{Gpu, Limits};
use crate::engine::{KvType, KvTypes};
use crate::error::ErrorKind;

/// Positions that a sequence can have.
const LEN: usize = 800;

/// Sequences that attend in one layer.
struct Case {
    gpu: Gpu,
    stream: Stream,
    spec: AttentionSpec,
    pages: Pages,
    /// Pages that have memory.
    n_pages: u32,
    sequences: Vec<Sequence>,
}

/// A sequence's queries, keys and values, how many of its positions are stored, and where.
struct Sequence {
    qkv: [Vec<f32>; 3],
    len: usize,
    table: Vec<u32>,
}

impl Case {
    fn new(spec: AttentionSpec, kv: impl Into<KvTypes>, n: usize) -> Self {
        let gpu = Gpu::tested(Limits::default());
        let mut numbers = Numbers::new(7);
        let sequences = (0..n).map(|_| {
            let qkv = widths(&spec).map(|width| numbers.floats(LEN * width));
            Sequence { qkv, len: 0, table: Vec::new() }
        });
        let sequences = sequences.collect();
        let pages = gpu.pages(&PageSpec::new(&spec, kv)).unwrap();
        Self { stream: gpu.stream(LEN, LEN).unwrap(), gpu, spec, pages, n_pages: 0, sequences }
    }

    /// Gives a sequence pages for so many positions.
    fn reserve(&mut self, sequence: usize, positions: usize) {
        let table = &mut self.sequences[sequence].table;
        while table.len() * PAGE < positions {
            self.gpu.add_page(&mut self.pages, self.n_pages).unwrap();
            table.push(self.n_pages);
            self.n_pages += 1;
        }
    }

    /// The next rows of sequences.
    fn spans(&mut self, parts: &[(usize, usize)]) -> Spans {
        let mut spans = Spans::default();
        for &(of, rows) in parts {
            self.reserve(of, self.sequences[of].len + rows);
            let Sequence { len, table, .. } = &self.sequences[of];
            let first = first_block(self.spec.window, *len);
            spans.push(rows, *len, first, table[first..].iter().copied());
        }
        spans
    }

    /// Attends with the next rows of sequences, in `layers` layers with the same pages.
    fn step(&mut self, parts: &[(usize, usize)], layers: usize) -> Vec<Vec<f32>> {
        let (spans, widths) = (self.spans(parts), widths(&self.spec));
        let rows: usize = parts.iter().map(|(_, rows)| rows).sum();
        let buffers = [0, 1, 2].map(|i| {
            let of = |&(of, rows): &(usize, usize)| {
                let Sequence { qkv, len, .. } = &self.sequences[of];
                qkv[i][len * widths[i]..][..rows * widths[i]].to_vec()
            };
            let all: Vec<f32> = parts.iter().flat_map(of).collect();
            let mut buffer = self.gpu.buffer(rows, widths[i]).unwrap();
            self.gpu.write(&mut self.stream, &all, &mut buffer).unwrap();
            buffer
        });
        let mut out = self.gpu.buffer(rows, widths[0]).unwrap();
        for _ in 0..layers {
            let op = Attend { attention: &self.spec, sinks: None, spans: &spans, chosen: None };
            let [q, k, v] = &buffers;
            self.gpu.attend(&mut self.stream, &op, q, Some([k, v]), &mut self.pages, &mut out).unwrap();
        }
        let mut found = vec![f32::NAN; rows * widths[0]];
        self.gpu.read(&mut self.stream, &out, &mut found).unwrap();
        let mut rest = found.as_slice();
        let mut results = Vec::new();
        for &(of, rows) in parts {
            let (result, behind) = rest.split_at(rows * widths[0]);
            results.push(result.to_vec());
            rest = behind;
            self.sequences[of].len += rows;
        }
        results
    }

    /// A step whose results are compared with the formula's.
    fn check(&mut self, parts: &[(usize, usize)]) {
        let width = self.spec.n_heads * self.spec.head_dim;
        let results = self.step(parts, 1);
        for (result, &(of, rows)) in results.iter().zip(parts) {
            let Sequence { qkv, len, .. } = &self.sequences[of];
            let [q, k, v] = [0, 1, 2].map(|i| &qkv[i][..len * widths(&self.spec)[i]]);
            let kv = self.pages.spec.kv;
            let expected = oracle::attention(
                &self.spec,
                None,
                [&wide(q), &kept(kv.keys, self.spec.head_dim, k), &kept(kv.values, self.spec.head_dim, v)],
            );
            for (i, (found, expected)) in result.iter().zip(&expected[(len - rows) * width..]).enumerate() {
                // Scores up to 10 in f32 are off by some 1e-6, and so are weights, relatively. Ten times that.
                let off = (f64::from(*found) - expected).abs();
                assert!(off <= 2e-5, "{found} for {expected} at {i} of {rows} rows of {of}, {:?}", self.spec);
            }
        }
    }
}

fn widths(spec: &AttentionSpec) -> [usize; 3] {
    [spec.n_heads, spec.n_kv_heads, spec.n_kv_heads].map(|heads| heads * spec.head_dim)
}

#[test]
fn spans_of_all_lengths_share_a_step() {
    let specs = [
        attention_spec([4, 2], 16, None, None),
        attention_spec([6, 1], 32, Some(100), None),
        attention_spec([2, 1], 160, Some(70), Some(2.0)),
        attention_spec([2, 2], 256, None, None),
        attention_spec([6, 1], 512, None, None),
    ];
    let apart = KvTypes { keys: KvType::Q4_0, values: KvType::Q8_0 };
    let types = [KvType::F16.into(), KvType::Q8_0.into(), apart, KvType::Q4_0.into(), KvType::Q8_0.into()];
    for (spec, kv) in specs.into_iter().zip(types) {
        let mut case = Case::new(spec, kv, 6);
        // In turns, so that pages lie apart.
        for _ in 0..3 {
            case.step(&[(0, 210), (2, 50), (5, 100), (3, 21), (4, 1)], 1);
        }
        case.check(&[(1, 40), (3, 1), (0, 1), (4, 100), (2, 3), (5, 1)]);
        case.check(&[(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]);
        case.check(&[(4, 33), (0, 60), (5, 2)]);
    }
}

/// Many sequences decode with as many dispatches as one does.
#[test]
fn sequences_share_dispatches() {
    // Quantised keys and values are written apart, and queries and results are rotated.
    for (longest, kv, dispatches) in [
        (70, KvType::F16, 2),
        (600, KvType::F16, 3),
        (600, KvType::BF16, 3),
        (70, KvType::Q8_0, 5),
        (600, KvType::Q4_0, 6),
    ] {
        let mut case = Case::new(attention_spec([2, 1], 16, None, None), kv, 16);
        case.step(&[(0, longest)], 1);
        for of in 1..16 {
            case.step(&[(of, 3 * of)], 1);
        }
        let all: Vec<_> = (0..16).map(|of| (of, 1)).collect();
        for n in [1, 2, 16] {
            let before = case.gpu.dispatches();
            case.check(&all[..n]);
            assert_eq!(case.gpu.dispatches() - before, dispatches, "{n} sequences");
        }
    }
}

/// What kernels look up is sent once for all layers: as often as that, there would be no room for it.
#[test]
fn layers_share_a_table() {
    let mut case = Case::new(attention_spec([2, 1], 16, None, None), KvType::F16, 4);
    for of in 0..4 {
        case.reserve(of, LEN);
        case.step(&[(of, 700)], 1);
    }
    // Writing sends nothing of it.
    let before = case.gpu.submissions();
    case.step(&[(0, 1), (1, 1), (2, 1), (3, 1)], 100);
    assert_eq!(case.gpu.submissions() - before, 1);
}

/// Buffers that grow keep what they hold, and give back what they were.
#[test]
fn buffers_grow() {
    let mut case = Case::new(attention_spec([4, 2], 64, None, None), KvType::F16, 2);
    case.step(&[(0, 100)], 1);
    let before = case.gpu.allocated();
    let mut sizes = vec![case.gpu.device.reserved()];
    for positions in (0..60).map(|i| 200 * i) {
        case.reserve(1, positions);
        if sizes.last() != Some(&case.gpu.device.reserved()) {
            sizes.push(case.gpu.device.reserved());
            case.check(&[(0, 1)]);
        }
    }
    // By half, some ten times.
    assert!((8..16).contains(&sizes.len()), "{sizes:?}");
    assert!(sizes.is_sorted());
    let pages = u64::from(case.n_pages) * PageSpec::new(&case.spec, KvType::F16).bytes();
    assert!(sizes[sizes.len() - 1] - sizes[0] < pages * 3 / 2 + (1 << 16));
    assert!(case.gpu.allocated() - before < pages * 3 / 2 + (1 << 20));
}

#[test]
fn buffers_grow_as_far_as_memory_and_bindings_reach() {
    let spec = PageSpec { n_kv_heads: 1, head_dim: 64, latent: None, index: None, kv: KvType::F16.into() };
    // Eight pages' keys.
    let gpu = Gpu::tested(Limits { buffer: Some(1 << 16), ..Limits::default() });
    let mut pages = gpu.pages(&spec).unwrap();
    (0..8).for_each(|page| gpu.add_page(&mut pages, page).unwrap());
    let error = gpu.add_page(&mut pages, 8).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("binds at most 64.0 KiB"), "{error}");
    assert!(error.hint().is_some());
    gpu.add_page(&mut pages, 7).unwrap();

    // Room for four pages, then eight, then nine beside these eight; not for twelve, nor for nine and ten.
    let used = Gpu::tested(Limits::default()).device.reserved();
    let limit = used + 17 * spec.bytes();
    let gpu = Gpu::tested(Limits { memory: Some(crate::ByteSize(limit)), ..Limits::default() });
    let mut pages = gpu.pages(&spec).unwrap();
    let added = (0..20).take_while(|page| gpu.add_page(&mut pages, *page).is_ok()).count();
    assert_eq!((added, gpu.device.reserved() - used), (9, 9 * spec.bytes()));
    drop(pages);
    assert_eq!(gpu.device.reserved(), used);
}

/// What is read back of a page can be written to another one, and tells nothing of positions behind the last.
#[test]
fn pages_are_read_and_written() {
    let apart = KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 };
    for kv in [KvType::F16.into(), KvType::F32.into(), apart, KvType::Q4_0.into()] {
        let mut case = Case::new(attention_spec([4, 2], 80, None, None), kv, 1);
        case.step(&[(0, 150)], 1);
        let bytes = PageSpec::new(&case.spec, kv).bytes() as usize;
        let read = |case: &mut Case, numbers: &[u32], rows| {
            let mut out = Vec::new();
            case.gpu.read_pages(&mut case.stream, &case.pages, numbers, rows, &mut out).unwrap();
            assert_eq!(out.len(), bytes * numbers.len());
            out
        };
        let table = case.sequences[0].table.clone();
        // A page of which 22 positions were written has nothing else to tell, one of which 10 are asked for has less.
        let all = read(&mut case, &table, 22);
        assert_eq!(all, read(&mut case, &table, PAGE), "{kv}");
        let less = read(&mut case, &table, 10);
        assert_eq!(all[..2 * bytes], less[..2 * bytes], "{kv}");
        let filled = |bytes: &[u8]| bytes.iter().filter(|byte| **byte != 0).count() as f64;
        let share = filled(&less[2 * bytes..]) / filled(&all[2 * bytes..]);
        assert!((share * 22.0 - 10.0).abs() < 0.3, "{kv}: {share}");
        for (block, page) in table.iter().enumerate() {
            let to = case.n_pages;
            case.gpu.add_page(&mut case.pages, to).unwrap();
            case.n_pages += 1;
            let from = &all[block * bytes..][..bytes];
            case.gpu.write_page(&mut case.stream, &mut case.pages, to, from).unwrap();
            assert_eq!(read(&mut case, &[*page], 64), read(&mut case, &[to], 64));
            case.sequences[0].table[block] = to;
        }
        case.check(&[(0, 1)]);
    }
}

/// A copy stays, also where the step in which it was made is never sent.
#[test]
fn copies_of_pages_are_not_forgotten() {
    let mut case = Case::new(attention_spec([4, 2], 64, None, None), KvType::F16, 1);
    case.step(&[(0, 150)], 1);
    case.gpu.add_page(&mut case.pages, 9).unwrap();
    for block in [2, 0] {
        let page = &mut case.sequences[0].table[block];
        case.gpu.copy_page(&mut case.stream, &mut case.pages, *page, 9 - block as u32).unwrap();
        *page = 9 - block as u32;
    }
    case.gpu.discard(&mut case.stream);
    case.check(&[(0, 1)]);
}

#[test]
fn pages_without_memory_are_refused() {
    let mut case = Case::new(attention_spec([2, 1], 16, None, None), KvType::F16, 1);
    let q = case.gpu.buffer(1, 32).unwrap();
    let [k, v] = [16, 16].map(|width| case.gpu.buffer(1, width).unwrap());
    let mut out = case.gpu.buffer(1, 32).unwrap();
    let mut attend = |case: &mut Case, start: usize, table: &[u32]| {
        let mut spans = Spans::default();
        spans.push(1, start, 0, table.iter().copied());
        let op = Attend { attention: &case.spec, sinks: None, spans: &spans, chosen: None };
        let error = case.gpu.attend(&mut case.stream, &op, &q, Some([&k, &v]), &mut case.pages, &mut out);
        error.err().map(|error| error.kind())
    };
    assert_eq!(attend(&mut case, 0, &[0]), Some(ErrorKind::Internal));
    case.gpu.add_page(&mut case.pages, 0).unwrap();
    assert_eq!(attend(&mut case, 0, &[0]), None);
    assert_eq!(attend(&mut case, 64, &[0]), Some(ErrorKind::Internal));
    assert_eq!(attend(&mut case, 0, &[1 << 20]), Some(ErrorKind::Internal));
    let error = case.gpu.copy_page(&mut case.stream, &mut case.pages, 0, u32::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}
