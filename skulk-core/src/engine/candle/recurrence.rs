//! How do states go on through rows on a device? A row by itself, many rows in chunks, as products of matrices.
//!
//! Within a chunk, a state is what it was before, decayed, and what the rows up to there brought, each decayed since. So rows
//! read it by two products, and what they bring takes a third (Dao & Gu 2024). By the delta rule rows bring what others
//! before them have not, which a triangular system says (Yang et al. 2024): it is inverted, for all chunks at once, and
//! chunks become linear maps of states, which alone are gone through one by one.
//!
//! What is left of something is the exponential of a sum of logarithms over the rows since, all of them at most 0. Sums
//! are taken over these rows themselves, as products with triangles of ones: differences of sums from the beginning would
//! lose digits, and their exponentials could exceed all numbers.

use candle_core::{Result as CandleResult, Tensor};

use super::triangles::{CHUNK, Triangles, TrianglesOf};

/// Elements of keys of all heads, by which the rows that are computed at a time are bounded.
const AT_ONCE: usize = 1 << 21;
/// Chunks computed at a time.
const CHUNKS: usize = 8;

/// Rows of some sequences, as many of each: what they do to states, and read.
pub(super) struct Rows {
    /// `[sequence, row, key head, key dim]`.
    pub(super) query: Tensor,
    pub(super) key: Tensor,
    /// `[sequence, row, key head, head of it, value dim]`.
    pub(super) value: Tensor,
    /// The logarithm of what is left of the state, of all of it or by element of the key: `[sequence, row, key head, head of
    /// it, 1 or key dim]`.
    pub(super) left: Tensor,
    /// What share of a value is taken up, `[sequence, row, key head, head of it]`.
    pub(super) share: Tensor,
    /// Where what is known under a key is replaced: `[1, key dim, key dim]`, ones on the diagonal. Else values are added.
    pub(super) unit: Option<Tensor>,
}

/// How many there are of what.
#[derive(Clone, Copy)]
struct Sizes {
    sequences: usize,
    rows: usize,
    key_heads: usize,
    of_head: usize,
    key: usize,
    value: usize,
    /// Logarithms of what is left of a head's state: one, or one for each element of a key.
    left: usize,
}

impl Sizes {
    /// All heads' matrices of a chunk.
    fn heads(&self) -> usize {
        self.sequences * self.key_heads * self.of_head
    }
}

impl Rows {
    fn sizes(&self) -> CandleResult<Sizes> {
        let (sequences, rows, key_heads, key) = self.key.dims4()?;
        let (_, _, _, of_head, value) = self.value.dims5()?;
        Ok(Sizes { sequences, rows, key_heads, of_head, key, value, left: self.left.dim(4)? })
    }

    fn narrow(&self, start: usize, n: usize) -> CandleResult<Self> {
        let of = |x: &Tensor| x.narrow(1, start, n);
        Ok(Self {
            query: of(&self.query)?,
            key: of(&self.key)?,
            value: of(&self.value)?,
            left: of(&self.left)?,
            share: of(&self.share)?,
            unit: self.unit.clone(),
        })
    }

    /// Lets states `[sequence, key head, head of it, key dim, value dim]` go through the rows. Returns what rows read,
    /// `[sequence, row, key head, head of it, value dim]`, the states behind `mark` rows, and those behind all.
    pub(super) fn recur(
        &self,
        triangles: &TrianglesOf,
        mut states: Tensor,
        mark: Option<usize>,
    ) -> CandleResult<(Tensor, Option<Tensor>, Tensor)> {
        let sizes = self.sizes()?;
        let most = (AT_ONCE / (sizes.heads() * sizes.key * CHUNK)).clamp(1, CHUNKS) * CHUNK;
        let (mut read, mut marked, mut at) = (Vec::new(), None, 0);
        for end in mark.into_iter().chain([sizes.rows]) {
            while at < end {
                let n = most.min(end - at);
                let rows = self.narrow(at, n)?;
                let of_rows;
                (of_rows, states) = match n {
                    1 => rows.single(sizes, &states)?,
                    _ => rows.chunked(Sizes { rows: n, ..sizes }, triangles, &states)?,
                };
                read.push(of_rows);
                at += n;
            }
            if mark == Some(end) {
                marked = Some(states.clone());
            }
        }
        Ok((Tensor::cat(&read, 1)?, marked, states))
    }

    /// One row of each sequence.
    fn single(&self, sizes: Sizes, states: &Tensor) -> CandleResult<(Tensor, Tensor)> {
        let Sizes { sequences, key_heads, of_head, key, value, left, .. } = sizes;
        let heads = sizes.heads();
        let of_heads = |x: &Tensor| {
            let x = x.reshape((sequences * key_heads, 1, key))?;
            x.broadcast_as((sequences * key_heads, of_head, key))?.reshape((heads, 1, key))
        };
        let (query, keys) = (of_heads(&self.query)?, of_heads(&self.key)?);
        let left = self.left.exp()?.reshape((heads, left, 1))?;
        let decayed = states.reshape((heads, key, value))?.broadcast_mul(&left)?;
        let mut news = self.value.reshape((heads, 1, value))?;
        if self.unit.is_some() {
            news = (news - keys.matmul(&decayed)?)?;
        }
        let news = news.broadcast_mul(&self.share.reshape((heads, 1, 1))?)?;
        let states = (decayed + keys.reshape((heads, key, 1))?.broadcast_mul(&news)?)?;
        let read = query.matmul(&states)?.reshape((sequences, 1, key_heads, of_head, value))?;
        Ok((read, states.reshape((sequences, key_heads, of_head, key, value))?))
    }

    /// Two or more rows of each sequence.
    fn chunked(
        &self,
        sizes: Sizes,
        triangles: &TrianglesOf,
        states: &Tensor,
    ) -> CandleResult<(Tensor, Tensor)> {
        let Sizes { sequences, rows, key_heads, of_head, key, value, left } = sizes;
        let len = rows.next_power_of_two().min(CHUNK);
        let chunks = rows.div_ceil(len);
        let triangles = triangles.of(len, self.query.device())?;
        // Rows that only fill the last chunk up neither change nor decay anything.
        let padded = |x: &Tensor| match chunks * len - rows {
            0 => Ok(x.clone()),
            more => x.pad_with_zeros(1, 0, more),
        };
        // Chunks come first, then sequences; of keys and decays, rows come last.
        let keys_of = |x: &Tensor| {
            let x = padded(x)?.reshape((sequences, chunks, len, key_heads, key))?;
            x.permute((1, 0, 3, 4, 2))?.contiguous()?.reshape((chunks * sequences * key_heads, 1, key, len))
        };
        let heads_of = |x: &Tensor, own: usize| {
            let x = padded(&x.contiguous()?)?.reshape((sequences, chunks, len, key_heads, of_head, own))?;
            x.permute([1, 0, 3, 4, 5, 2].as_slice())?.contiguous()?.reshape((
                chunks * sizes.heads(),
                own,
                len,
            ))
        };
        let all = chunks * sizes.heads();
        let by_key_head = |x: &Tensor| {
            let (_, a, b) = x.dims3()?;
            x.reshape((all / of_head, of_head, a, b))
        };
        let (query, keys) = (keys_of(&self.query)?, keys_of(&self.key)?);
        let left = heads_of(&self.left, left)?;
        let share = heads_of(&self.share.unsqueeze(4)?, 1)?;
        let values = padded(&self.value.contiguous()?)?
            .reshape((sequences, chunks, len, key_heads, of_head, value))?
            .permute([1, 0, 3, 4, 2, 5].as_slice())?
            .contiguous()?
            .reshape((all, len, value))?;

        // What is left at each row of what was before the chunk, and behind the chunk of what the row brings.
        let sums = |over: &Tensor| product_of_rows(&left, over)?.exp();
        let (since, behind) = (sums(&triangles.up_to)?, sums(&triangles.behind)?);
        let whole = since.narrow(2, len - 1, 1)?;
        let decayed = |x: &Tensor, by: &Tensor| x.broadcast_mul(&by_key_head(by)?)?.reshape((all, key, len));
        let reading = decayed(&query, &since)?;
        let kept = decayed(&keys, &behind)?;
        let (weights, known) = self.pairs((&query, &keys), &left, triangles)?;
        let mut news = values.broadcast_mul(&share.reshape((all, len, 1))?)?;
        // By the delta rule, what rows know before the chunk's own is taken off.
        let mut of_states = None;
        if let Some(known) = known {
            let inverse = triangles.inverse(&known.broadcast_mul(&share.neg()?)?)?;
            news = inverse.t()?.matmul(&news)?;
            let asked = decayed(&keys, &since)?.broadcast_mul(&share)?;
            of_states = Some(asked.matmul(&inverse)?);
        }

        let brought = kept.matmul(&news)?;
        let maps = match of_states.as_ref().zip(self.unit.as_ref()) {
            None => None,
            Some((known, unit)) => {
                let own = unit.broadcast_mul(&whole.broadcast_as((all, key, 1))?)?;
                Some((own - kept.matmul(&known.t()?)?)?)
            }
        };
        let of_chunk = |x: &Tensor, chunk: usize| x.narrow(0, chunk * sizes.heads(), sizes.heads());
        let mut before = vec![states.reshape((sizes.heads(), key, value))?];
        for chunk in 0..chunks {
            let last = &before[chunk];
            let going_on = match &maps {
                Some(maps) => of_chunk(maps, chunk)?.matmul(last)?,
                None => last.broadcast_mul(&of_chunk(&whole, chunk)?)?,
            };
            before.push((going_on + of_chunk(&brought, chunk)?)?);
        }
        let states = before.pop().unwrap_or_else(|| states.clone());
        let before = Tensor::cat(&before, 0)?;
        if let Some(known) = of_states {
            news = (news - known.t()?.matmul(&before)?)?;
        }
        let read = (reading.t()?.matmul(&before)? + weights.t()?.matmul(&news)?)?;
        let read = read
            .reshape((chunks, sequences, key_heads, of_head, len, value))?
            .permute([1, 0, 4, 2, 3, 5].as_slice())?
            .contiguous()?
            .reshape((sequences, chunks * len, key_heads, of_head, value))?
            .narrow(1, 0, rows)?;
        Ok((read, states.reshape((sequences, key_heads, of_head, key, value))?))
    }

    /// Of all heads' chunks, for each row and each other one, `[row, other]`: what the other reads of what the row brings,
    /// where it is not before it; and by the delta rule what the other knows under its key of that, where it comes later.
    fn pairs(
        &self,
        (query, keys): (&Tensor, &Tensor),
        left: &Tensor,
        triangles: &Triangles,
    ) -> CandleResult<(Tensor, Option<Tensor>)> {
        let (of_keys, _, key, len) = keys.dims4()?;
        let (all, of_left, _) = left.dims3()?;
        let flat = |x: &Tensor| x.reshape((of_keys, key, len));
        let (flat_keys, flat_query) = (flat(keys)?, flat(query)?);
        let transposed = flat_keys.t()?;
        let shape = (of_keys, all / of_keys, len, len);
        let by_head = |x: &Tensor| x.reshape((of_keys, 1, len, len));
        if of_left == 1 {
            // Sums over the rows behind one, up to another.
            let behind = left.broadcast_mul(&triangles.after)?;
            let decay = product_of_rows(&behind, &triangles.up_to)?.exp()?.reshape(shape)?;
            let of = |x: &Tensor, mask: &Tensor| {
                let products = by_head(&transposed.matmul(x)?)?;
                decay.broadcast_mul(mask)?.broadcast_mul(&products)?.reshape((all, len, len))
            };
            let known = self.unit.as_ref().map(|_| of(&flat_keys, &triangles.after)).transpose()?;
            return Ok((of(&flat_query, &triangles.up_to)?, known));
        }
        // A row and a later one lie in two halves of one block of some length, and decay goes by the border between them.
        let own = transposed.matmul(&flat_query)?.broadcast_mul(&triangles.diagonal)?;
        let mut read = by_head(&own)?.broadcast_as(shape)?.reshape((all, len, len))?;
        let mut known: Option<Tensor> = None;
        for level in &triangles.levels {
            let decay = product_of_rows(left, &level.to_border)?.exp()?;
            let decay = decay.reshape((of_keys, all / of_keys, key, len))?;
            let decayed = |x: &Tensor| x.broadcast_mul(&decay)?.reshape((all, key, len));
            let (query, keys) = (decayed(query)?, decayed(keys)?);
            let transposed = keys.t()?;
            read = (read + transposed.matmul(&query)?.broadcast_mul(&level.halves)?)?;
            if self.unit.is_some() {
                let own = transposed.matmul(&keys)?.broadcast_mul(&level.halves)?;
                known = Some(known.map_or(Ok(own.clone()), |known| known + own)?);
            }
        }
        Ok((read, known))
    }
}

/// The product of `[.., n]` with a matrix `[n, n]`.
fn product_of_rows(x: &Tensor, matrix: &Tensor) -> CandleResult<Tensor> {
    let n = matrix.dim(0)?;
    x.reshape(((), n))?.matmul(matrix)?.reshape(x.shape())
}

#[cfg(test)]
mod tests;
