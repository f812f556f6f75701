//! Do rows in chunks do what rows do one by one, however fast states decay and however alike keys are?

use candle_core::Device;

use super::*;

/// What rows are like: all share a key, states decay fast, or now and then at once.
#[derive(Debug, Clone, Copy)]
enum Like {
    Anything,
    OneKey,
    FastDecay,
    Resets,
}

/// Of sequences of rows all numbers, as [`Rows`] has them: queries, keys, values, decays, shares.
struct Case {
    sizes: Sizes,
    replaces: bool,
    numbers: [Vec<f32>; 5],
}

impl Case {
    fn new(sizes: Sizes, replaces: bool, like: Like) -> Self {
        let mut state = 7u64;
        let mut floats = |n: usize| -> Vec<f32> {
            let next = |_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 40) as f32 / (1 << 23) as f32 - 1.0
            };
            (0..n).map(next).collect()
        };
        let Sizes { sequences, rows, key_heads, of_head, key, value, left } = sizes;
        let [n_rows, heads] = [sequences * rows, key_heads * of_head];
        let mut numbers = [key_heads * key, key_heads * key, heads * value, heads * left, heads]
            .map(|width| floats(n_rows * width));
        let [query, keys, _, decay, share] = &mut numbers;
        if let Like::OneKey = like {
            let one = keys[..key].to_vec();
            keys.chunks_exact_mut(key).for_each(|own| own.copy_from_slice(&one));
        }
        for x in [query, keys] {
            for head in x.chunks_exact_mut(key) {
                let length = head.iter().map(|x| x * x).sum::<f32>().sqrt();
                head.iter_mut().for_each(|x| *x /= length);
            }
        }
        let size = decay.len();
        for (at, x) in decay.iter_mut().enumerate() {
            *x = match like {
                Like::Anything => -0.1 * x.abs(),
                Like::OneKey => 0.0,
                Like::FastDecay => -40.0 * x.abs(),
                // Everything is forgotten at some rows, and next to nothing at others.
                Like::Resets if at / (size / n_rows) % 37 == 5 => -300.0,
                Like::Resets => -0.01 * x.abs(),
            };
        }
        share.iter_mut().for_each(|x| *x = if let Like::OneKey = like { 1.0 } else { 0.5 + 0.5 * *x });
        Self { sizes, replaces, numbers }
    }

    /// Reads of all rows, the states behind `mark` rows and behind all.
    fn run(&self, mark: Option<usize>) -> [Vec<f32>; 3] {
        let Sizes { sequences, rows, key_heads, of_head, key, value, left } = self.sizes;
        let tensor = |at: usize, dims: &[usize]| {
            let dims = [&[sequences, rows, key_heads], dims].concat();
            Tensor::from_slice(&self.numbers[at], dims, &Device::Cpu).unwrap()
        };
        let rows = Rows {
            query: tensor(0, &[key]),
            key: tensor(1, &[key]),
            value: tensor(2, &[of_head, value]),
            left: tensor(3, &[of_head, left]),
            share: tensor(4, &[of_head]),
            unit: self.replaces.then(|| {
                Tensor::eye(key, candle_core::DType::F32, &Device::Cpu).unwrap().unsqueeze(0).unwrap()
            }),
        };
        let zeros = (sequences, key_heads, of_head, key, value);
        let zeros = Tensor::zeros(zeros, candle_core::DType::F32, &Device::Cpu).unwrap();
        let (read, marked, last) = rows.recur(&TrianglesOf::default(), zeros, mark).unwrap();
        let host = |x: Tensor| x.flatten_all().unwrap().to_vec1().unwrap();
        [host(read), marked.map_or(Vec::new(), host), host(last)]
    }

    /// The same, one row after another, in f64.
    fn expected(&self, mark: usize) -> [Vec<f64>; 3] {
        let Sizes { sequences, rows, key_heads, of_head, key, value, left } = self.sizes;
        let heads = key_heads * of_head;
        let [queries, keys, values, decays, shares] =
            self.numbers.each_ref().map(|x| x.iter().copied().map(f64::from).collect::<Vec<_>>());
        let mut states = vec![vec![0.0; key * value]; sequences * heads];
        let (mut read, mut marked) = (vec![0.0; sequences * rows * heads * value], Vec::new());
        for row in 0..rows {
            for (at, state) in states.iter_mut().enumerate() {
                let (sequence, head) = (at / heads, at % heads);
                let row = sequence * rows + row;
                let of_key = |x: &[f64]| x[(row * key_heads + head / of_head) * key..][..key].to_vec();
                let (query, own) = (of_key(&queries), of_key(&keys));
                let decay = &decays[(row * heads + head) * left..][..left];
                for (i, cells) in state.chunks_exact_mut(value).enumerate() {
                    cells.iter_mut().for_each(|x| *x *= decay[i % left].exp());
                }
                for j in 0..value {
                    let of_state = |state: &[f64], by: &[f64]| -> f64 {
                        by.iter().enumerate().map(|(i, by)| by * state[i * value + j]).sum()
                    };
                    let known = if self.replaces { of_state(state, &own) } else { 0.0 };
                    let news =
                        (values[(row * heads + head) * value + j] - known) * shares[row * heads + head];
                    own.iter().enumerate().for_each(|(i, own)| state[i * value + j] += own * news);
                    read[(row * heads + head) * value + j] = of_state(state, &query);
                }
            }
            if row + 1 == mark {
                marked = states.concat();
            }
        }
        [read, marked, states.concat()]
    }
}

fn sizes(
    [sequences, rows]: [usize; 2],
    [key_heads, of_head]: [usize; 2],
    [key, value, left]: [usize; 3],
) -> Sizes {
    Sizes { sequences, rows, key_heads, of_head, key, value, left }
}

#[test]
fn chunks_do_what_rows_do() {
    for rows in [2, 3, 63, 64, 65, 200, 600] {
        for (sizes, replaces) in [
            (sizes([1, rows], [2, 2], [16, 12, 1]), true),
            (sizes([2, rows], [1, 1], [8, 20, 1]), true),
            (sizes([2, rows], [1, 3], [16, 8, 1]), false),
            (sizes([1, rows], [1, 2], [12, 16, 12]), true),
        ] {
            for like in [Like::Anything, Like::OneKey, Like::FastDecay, Like::Resets] {
                let (case, mark) = (Case::new(sizes, replaces, like), rows / 2 + 1);
                let (found, expected) = (case.run(Some(mark)), case.expected(mark));
                for (part, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    assert_eq!(found.len(), expected.len());
                    let largest = expected.iter().fold(0.0f64, |a, x| a.max(x.abs()));
                    // Sums of up to 64 products three times over: some 1e-6, and five times that.
                    let off = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs();
                    let off = found.iter().zip(expected).map(off).fold(0.0, f64::max);
                    let what = (rows, replaces, like, part);
                    assert!(off <= 1e-5 * largest, "{what:?}: off by {off} of {largest}");
                }
            }
        }
    }
}
