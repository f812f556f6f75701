//! How does the CPU multiply each head with a matrix of its own? All heads' products at once, of a few rows at a time.

use super::experts::reserve;
use super::kernels::Matrix;
use super::{Buffer, Cpu, LEAST_ELEMENTS, Stream};
use crate::error::{Error, ErrorKind, Result};

/// Rows at a time: for as many, matrices are read once.
const ROWS: usize = 32;

/// Scratch memory: heads' inputs and outputs, `[head][row][element]`.
#[derive(Default)]
pub(super) struct ByHead {
    input: Vec<f32>,
    output: Vec<f32>,
}

/// See [`Backend::linear_heads`](crate::engine::backend::Backend::linear_heads).
pub(super) fn linear(
    cpu: &Cpu,
    stream: &mut Stream,
    weights: &[Matrix],
    x: &Buffer,
    rows: usize,
    out: &mut Buffer,
) -> Result<()> {
    let Some(first) = weights.first() else {
        return Err(Error::new(ErrorKind::Internal, "no head has a matrix"));
    };
    let (heads, n_in, n_out) = (weights.len(), first.n_in(), first.n_out());
    let of_head = x.width / heads;
    let Some(behind) = of_head.checked_sub(n_in) else {
        return Err(Error::new(ErrorKind::Internal, "matrices that take more than their heads have"));
    };
    let to_head = n_out + behind;
    out.width = heads * to_head;
    let Stream { products: scratch, by_head: ByHead { input, output }, .. } = stream;
    // Of one row heads' inputs lie behind each other already, and so do their outputs.
    if rows == 1 && behind == 0 {
        let (x, out) = (&x.data[..heads * n_in], &mut out.data[..heads * n_out]);
        let mut products = scratch.products(cpu.kernels, &cpu.pool, x, n_in, cpu.precision);
        for (head, (matrix, out)) in weights.iter().zip(out.chunks_exact_mut(n_out)).enumerate() {
            products.push(matrix, head..head + 1, out);
        }
        products.run();
        return Ok(());
    }
    let most = rows.min(ROWS) * heads;
    reserve(input, most.checked_mul(n_in))?;
    reserve(output, most.checked_mul(n_out))?;

    for block in (0..rows).step_by(ROWS) {
        let n = ROWS.min(rows - block);
        let input = &mut input[..heads * n * n_in];
        cpu.pool.rows(input, n_in, LEAST_ELEMENTS.div_ceil(n_in), |at, to, _| {
            let (head, row) = (at / n, block + at % n);
            to.copy_from_slice(&x.row(row)[head * of_head..][..n_in]);
        });
        let mut products = scratch.products(cpu.kernels, &cpu.pool, input, n_in, cpu.precision);
        for (head, (matrix, output)) in weights.iter().zip(output.chunks_exact_mut(n * n_out)).enumerate() {
            products.push(matrix, head * n..(head + 1) * n, output);
        }
        products.run();
        let (output, width) = (&*output, out.width);
        let to = &mut out.data[block * width..(block + n) * width];
        cpu.pool.rows(to, to_head, LEAST_ELEMENTS.div_ceil(to_head), |at, to, _| {
            let (row, head) = (at / heads, at % heads);
            to[..n_out].copy_from_slice(&output[(head * n + row) * n_out..][..n_out]);
            to[n_out..].copy_from_slice(&x.row(block + row)[head * of_head + n_in..][..behind]);
        });
    }
    Ok(())
}
