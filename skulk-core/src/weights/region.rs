//! What is one tensor's memory? Its type, shape and bytes, wherever they lie.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::mmap::{MappedFile, Mapping};
use super::quant::dequantise;
use super::resident::Piece;
use super::woven::{LARGEST, TILE, WORD, Weave};
use super::{DType, Memory, TensorInfo};
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result, ShapeDetail};

/// Formats with padded rows pad them to whole multiples of this many elements.
pub(crate) const PADDED: usize = 256;

/// One tensor, mapped or [resident](Self::resident). Cloning shares its memory, which is given back
/// with the last clone.
#[derive(Debug, Clone)]
pub struct Region {
    name: Arc<str>,
    dtype: DType,
    shape: Arc<[usize]>,
    /// Of one stored row.
    row_bytes: usize,
    /// `None`: its bytes come from none.
    file: Option<MappedFile>,
    /// Of the whole tensor in its file.
    offset: u64,
    bytes: Bytes,
    /// The same in memory, in whole tiles of woven rows.
    woven: Option<Woven>,
    /// The region's bytes within those of the tensor.
    range: Range<usize>,
    /// Pages are read when they are used; nobody is told beforehand.
    on_demand: bool,
    /// Bytes between two rows that belong to others.
    gap: usize,
    /// Of types that have scales beside their elements.
    groups: Option<Box<Groups>>,
}

/// What makes numbers of elements: each group of a row's has a scale and, of an affine type, a bias. They have the
/// tensor's shape, but for the groups in place of the elements; or blocks of a matrix have one, of several rows each.
#[derive(Debug, Clone)]
struct Groups {
    scales: Region,
    biases: Option<Region>,
    /// Elements of a row that share a scale.
    wide: usize,
    rows: ScaleRows,
}

/// Which row of scales is a row's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScaleRows {
    /// How many rows share one.
    pub(crate) tall: usize,
    /// The first row's place among those that the scales are of, and from each to the next.
    pub(crate) first: usize,
    pub(crate) step: usize,
}

impl ScaleRows {
    /// Every row has its own.
    pub(crate) const OWN: Self = Self { tall: 1, first: 0, step: 1 };

    pub(crate) fn of(self, row: usize) -> usize {
        (self.first + row * self.step) / self.tall
    }
}

impl Groups {
    /// Those of `n` rows: `own` makes them of regions that have a row for each, else some rows of the same serve.
    fn cut(&self, [first, step, n]: [usize; 3], own: impl Fn(&Region) -> Region) -> Box<Self> {
        let mut cut = self.clone();
        if self.rows == ScaleRows::OWN {
            cut.scales = own(&self.scales);
            cut.biases = self.biases.as_ref().map(own);
            return Box::new(cut);
        }
        cut.rows.first += first * self.rows.step;
        cut.rows.step *= step;
        let (from, last) = (cut.rows.of(0), cut.rows.of(n.saturating_sub(1)));
        cut.rows.first -= from * cut.rows.tall;
        cut.scales = cut.scales.row_range(from..last + 1);
        Box::new(cut)
    }
}

#[derive(Debug, Clone)]
struct Woven {
    weave: Weave,
    piece: Arc<Piece>,
}

#[derive(Debug, Clone)]
enum Bytes {
    Mapped(Arc<Mapping>),
    Resident(Arc<Piece>),
    /// Made of the tensor's.
    Made(Arc<Vec<u8>>),
}

impl Region {
    pub(crate) fn map(file: &MappedFile, info: &TensorInfo) -> Result<Self> {
        let mapping = file.share(info.offset, info.len)?;
        let mut region = Self {
            name: info.name.as_str().into(),
            dtype: info.dtype,
            shape: info.shape.as_slice().into(),
            row_bytes: 0,
            file: Some(file.clone()),
            offset: info.offset,
            range: 0..mapping.len(),
            bytes: Bytes::Mapped(mapping),
            woven: None,
            on_demand: false,
            gap: 0,
            groups: None,
        };
        let len = region.bytes().len();
        let of_rows = |row: &usize| region.rows().checked_mul(*row) == Some(len);
        let plain = region.dtype.row_bytes(region.row_len()).filter(of_rows);
        let Some(row_bytes) = plain.or_else(|| region.padded_row()).filter(of_rows) else {
            return Err(Error::new(
                ErrorKind::CheckpointInvalid,
                "the tensor's size does not follow from its shape and type",
            )
            .with("file", file.path().display())
            .with("tensor", &info.name));
        };
        region.row_bytes = row_bytes;
        Ok(region)
    }

    /// A tensor of a type without scales beside, full of a byte, in memory as resident tensors have it.
    #[cfg(feature = "generate")]
    pub(crate) fn filled(dtype: DType, shape: &[usize], byte: u8) -> Result<Self> {
        let rows: usize = shape.split_last().map_or(1, |(_, outer)| outer.iter().product());
        let row_bytes = shape.last().and_then(|len| dtype.row_bytes(*len));
        let len = row_bytes.and_then(|bytes| bytes.checked_mul(rows));
        let (Some(row_bytes), Some(len)) = (row_bytes, len) else {
            return Err(Error::argument("shape", "expected rows of whole blocks, found another shape"));
        };
        let piece = Piece::filled(len, byte)?;
        // Of equal bytes any order is the same.
        let is_whole = |weave: &Weave| len.is_multiple_of(weave.tile_bytes());
        let woven = Weave::of(dtype, row_bytes).filter(is_whole);
        let woven = woven.map(|weave| Woven { weave, piece: Arc::clone(&piece) });
        Ok(Self {
            name: "".into(),
            dtype,
            shape: shape.into(),
            row_bytes,
            file: None,
            offset: 0,
            range: 0..len,
            bytes: Bytes::Resident(piece),
            woven,
            on_demand: false,
            gap: 0,
            groups: None,
        })
    }

    /// Elements with the scales of their groups, and their biases, whose shapes and types have been checked.
    pub(crate) fn with_groups(self, scales: Self, biases: Option<Self>) -> Self {
        let wide = self.row_len().checked_div(scales.row_len()).unwrap_or(0);
        Self { groups: Some(Box::new(Groups { scales, biases, wide, rows: ScaleRows::OWN })), ..self }
    }

    /// A matrix with the scales of its blocks of so many rows and elements of a row, of which the last may be smaller: their
    /// shape and type have been checked.
    pub(crate) fn with_blocks(self, scales: Self, [tall, wide]: [usize; 2]) -> Self {
        let rows = ScaleRows { tall, ..ScaleRows::OWN };
        Self { groups: Some(Box::new(Groups { scales, biases: None, wide, rows })), ..self }
    }

    /// The scale of each group of a row's elements, of types that have them beside: an element is
    /// `scale · element + bias`. Of [`DType::FP8`] they may be those of blocks of several rows.
    pub fn scales(&self) -> Option<&Region> {
        self.groups.as_ref().map(|groups| &groups.scales)
    }

    /// Of an affine type, the bias of each group.
    pub fn biases(&self) -> Option<&Region> {
        self.groups.as_ref().and_then(|groups| groups.biases.as_ref())
    }

    /// The region and, where it has them beside, its scales and its biases.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Self> {
        [Some(self), self.scales(), self.biases()].into_iter().flatten()
    }

    /// Bytes that it takes in its file, with what lies beside it.
    pub fn stored_bytes(&self) -> u64 {
        // Without what lies between its rows.
        let gaps = |part: &Self| part.gap * part.rows().saturating_sub(1);
        self.arrays().map(|part| part.range.len().saturating_sub(gaps(part)) as u64).sum()
    }

    /// Bytes of a row's own elements.
    pub(crate) fn own_row_bytes(&self) -> usize {
        self.row_bytes - self.gap
    }

    /// The bytes of one stored row in the file, without what lies beside it; none of a row that there is not.
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        let start = row.checked_mul(self.row_bytes);
        start
            .and_then(|start| self.bytes().get(start..start.checked_add(self.own_row_bytes())?))
            .unwrap_or_default()
    }

    /// The woven tile that a row is in, and which of its rows that is.
    fn tile_of(&self, row: usize) -> Option<(&Weave, &[u8], usize)> {
        let Woven { weave, piece } = self.woven.as_ref()?;
        let start = self.range.start.checked_add(row.checked_mul(self.row_bytes)?)?;
        let start = Some(start).filter(|start| *start < self.range.end)?;
        let row = start.checked_div(self.own_row_bytes())?;
        let start = (row / TILE).checked_mul(weave.tile_bytes())?;
        let tile = piece.get(start..start.checked_add(weave.tile_bytes())?)?;
        Some((weave, tile, row % TILE))
    }

    /// A number of a row of floats.
    fn number(&self, row: usize, at: usize) -> f32 {
        let (mut word, mut number) = ([0; WORD], [0.0]);
        let at = at * self.dtype.block_bytes();
        let bytes = match self.tile_of(row) {
            Some((weave, tile, own)) => {
                let from = at / WORD * WORD;
                let len = self.own_row_bytes().saturating_sub(from).min(WORD);
                weave.copy_block(tile, own, from, &mut word[..len]);
                &word[at % WORD..]
            }
            None => self.row(row).get(at..).unwrap_or_default(),
        };
        dequantise(self.dtype, bytes, &mut number);
        number[0]
    }

    /// Memory that reading a row looks at.
    pub(crate) fn memory_of(&self, row: usize) -> &[u8] {
        self.tile_of(row).map_or_else(|| self.row(row), |(_, tile, _)| tile)
    }

    /// Copies the bytes of one stored row, as they are in the file, without what lies beside it.
    pub(crate) fn copy_row(&self, row: usize, to: &mut [u8]) {
        match self.tile_of(row) {
            Some((weave, tile, own)) => {
                for (at, to) in to.chunks_mut(weave.block()).enumerate() {
                    weave.copy_block(tile, own, at * weave.block(), to);
                }
            }
            None => to.copy_from_slice(self.row(row)),
        }
    }

    /// The numbers of one row, as many as `out` takes.
    pub(crate) fn decode(&self, row: usize, out: &mut [f32]) {
        match self.tile_of(row) {
            // Scales and biases, of which a row is a block.
            Some((weave, ..)) if weave.block() != self.dtype.block_bytes() => {
                out.iter_mut().enumerate().for_each(|(at, x)| *x = self.number(row, at));
            }
            Some((weave, tile, own)) => {
                let mut block = [0; LARGEST];
                let block = &mut block[..weave.block()];
                for (at, out) in out.chunks_mut(self.dtype.block_len()).enumerate() {
                    weave.copy_block(tile, own, at * weave.block(), block);
                    dequantise(self.dtype, block, out);
                }
            }
            None => dequantise(self.dtype, self.row(row), out),
        }
        let Some(Groups { scales, biases, rows, .. }) = self.groups.as_deref() else { return };
        let of = |part: &Self, at: usize| part.number(rows.of(row), at);
        for (at, group) in out.chunks_mut(self.group_len().max(1)).enumerate() {
            let scale = of(scales, at);
            match biases {
                Some(biases) => {
                    let bias = of(biases, at);
                    group.iter_mut().for_each(|value| *value = scale * *value + bias);
                }
                None => group.iter_mut().for_each(|value| *value *= scale),
            }
        }
    }

    /// Elements that share a scale that is beside them; of other types 0.
    pub(crate) fn group_len(&self) -> usize {
        self.groups.as_ref().map_or(0, |groups| groups.wide)
    }

    /// Which rows of scales that are beside it are its rows'.
    pub(crate) fn scale_rows(&self) -> ScaleRows {
        self.groups.as_ref().map_or(ScaleRows::OWN, |groups| groups.rows)
    }

    /// Bytes of a row that is padded to whole multiples of [`PADDED`] elements.
    fn padded_row(&self) -> Option<usize> {
        self.dtype.row_bytes(self.row_len().checked_next_multiple_of(PADDED)?)
    }

    /// The tensor's name in its checkpoint.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How elements are stored.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Row-major shape, outermost dimension first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The stored bytes, where they lie; of an affine type the integers'.
    pub fn bytes(&self) -> &[u8] {
        let bytes: &[u8] = match &self.bytes {
            Bytes::Mapped(mapping) => mapping,
            Bytes::Resident(piece) => piece,
            Bytes::Made(bytes) => bytes,
        };
        &bytes[self.range.clone()]
    }

    /// The file that it comes from; empty where there is none.
    pub fn path(&self) -> &Path {
        self.file.as_ref().map_or(Path::new(""), MappedFile::path)
    }

    /// Where its bytes begin in that file; of a copy in another order, where the tensor's do.
    pub fn offset(&self) -> u64 {
        match &self.bytes {
            Bytes::Made(_) => self.offset,
            _ => self.offset.saturating_add(self.range.start as u64),
        }
    }

    /// Its rows in memory as products take them, if they are so and are whole tiles.
    pub(crate) fn woven(&self) -> Option<&[u8]> {
        let tile = TILE * self.row_bytes;
        let is_whole = |at: usize| at.is_multiple_of(tile);
        let whole = self.gap == 0 && is_whole(self.range.start) && is_whole(self.range.end);
        self.woven.as_ref().filter(|_| whole).and_then(|woven| woven.piece.get(self.range.clone()))
    }

    /// Where the bytes lie: [`Memory::Mapped`] or [`Memory::Resident`].
    pub fn memory(&self) -> Memory {
        match &self.bytes {
            _ if self.woven.is_some() => Memory::Resident,
            Bytes::Mapped(_) => Memory::Mapped,
            Bytes::Resident(_) | Bytes::Made(_) => Memory::Resident,
        }
    }

    /// The same region, its whole tensor read into memory, as [`Memory::Resident`] says; looks at `cancel` every few
    /// megabytes. While anybody holds it, the same opened file gives the same memory again. A tensor
    /// without bytes, one that overlaps another that is held, and one that a model holds woven, stays mapped.
    ///
    /// # Errors
    /// [`ErrorKind::CheckpointTruncated`] when the file shrank since opening, [`ErrorKind::FileIo`]
    /// when it cannot be read, [`ErrorKind::OutOfMemory`], [`ErrorKind::Cancelled`].
    pub fn resident(self, cancel: &CancelToken) -> Result<Self> {
        self.read_into_memory(None, cancel)
    }

    /// The same of what products read: where it has whole tiles of rows of a type that can be woven, it is. Single rows can
    /// still be read, at the cost of their tile's memory; what asks for [`bytes`](Self::bytes) reads the file.
    ///
    /// # Errors
    /// As [`resident`](Self::resident).
    pub(crate) fn resident_for_products(self, cancel: &CancelToken) -> Result<Self> {
        let weave = Weave::of(self.dtype, self.row_bytes);
        self.read_into_memory(weave, cancel)
    }

    /// Reads it, woven like this if it is whole tiles; what is beside it likewise.
    fn read_into_memory(mut self, weave: Option<Weave>, cancel: &CancelToken) -> Result<Self> {
        if let (Bytes::Mapped(mapping), Some(file)) = (&self.bytes, &self.file)
            && !mapping.is_empty()
        {
            let is_whole = |at: usize, weave: &Weave| at.is_multiple_of(weave.tile_bytes());
            let whole = |weave: &Weave| {
                let ends = [mapping.len(), self.range.start, self.range.end];
                // Of a stack each matrix.
                let rows = self.shape.len().checked_sub(2).map_or(0, |at| self.shape[at]);
                let of_tiles = rows.is_multiple_of(TILE) && ends.into_iter().all(|at| is_whole(at, weave));
                self.gap == 0 && of_tiles
            };
            let weave = weave.filter(whole);
            let read = file.read(self.offset, mapping.len() as u64, weave, cancel);
            match (read.map_err(|e| e.with("tensor", &self.name))?, weave) {
                (Some(piece), Some(weave)) => self.woven = Some(Woven { weave, piece }),
                (Some(piece), None) => self.bytes = Bytes::Resident(piece),
                (None, _) => {}
            }
        }
        if let Some(groups) = self.groups.take() {
            let Groups { scales, biases, wide, rows } = *groups;
            let read = |part: Self| {
                let weave = weave.and_then(|_| Weave::beside(part.row_bytes));
                part.read_into_memory(weave, cancel)
            };
            let (scales, biases) = (read(scales)?, biases.map(read).transpose()?);
            self.groups = Some(Box::new(Groups { scales, biases, wide, rows }));
        }
        Ok(self)
    }

    /// The same tensor in another shape, whose bytes were made of its own: plain rows, as many as fit.
    pub(super) fn with_bytes(&self, shape: &[usize], bytes: Arc<Vec<u8>>) -> Self {
        let rows: usize = shape.split_last().map_or(1, |(_, outer)| outer.iter().product());
        let (row_bytes, range) = (bytes.len().checked_div(rows).unwrap_or(0), 0..bytes.len());
        Self { shape: shape.into(), row_bytes, range, bytes: Bytes::Made(bytes), woven: None, ..self.clone() }
    }

    /// The same bytes as numbers of another type.
    pub(super) fn of_type(self, dtype: DType) -> Self {
        Self { dtype, groups: None, woven: None, ..self }
    }

    /// Elements in a row: the innermost dimension; 1 for a scalar.
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Number of rows: all but the innermost dimension.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// Bytes from one stored row to the next.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Whether other rows lie between its own: then the last one ends where its bytes do.
    pub(crate) fn has_gaps(&self) -> bool {
        self.gap > 0
    }

    /// Whether stored rows are longer than [`row_len`](Self::row_len), as in a vindex, where they are padded to whole
    /// blocks. What lies behind a row's elements is to be multiplied with nothing but zeros.
    pub fn is_padded(&self) -> bool {
        self.dtype.row_bytes(self.row_len()) != Some(self.row_bytes - self.gap)
    }

    /// Some rows as numbers, one behind the other, without what they are padded with; `out` takes all of them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for rows that there are not, and for an `out` of another length.
    pub fn read_rows(&self, rows: Range<usize>, out: &mut [f32]) -> Result<()> {
        let width = self.row_len();
        if rows.start > rows.end || rows.end > self.rows() || rows.len().checked_mul(width) != Some(out.len())
        {
            let message = format!(
                "expected some of {} rows of {width} numbers, found {rows:?} for {} numbers",
                self.rows(),
                out.len()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with("tensor", &self.name)
                .with("field", "rows")
                .with_hint("ask for rows that are there, and make room for all their numbers"));
        }
        for (row, out) in rows.zip(out.chunks_exact_mut(width.max(1))) {
            self.decode(row, out);
        }
        Ok(())
    }

    /// `Ok` when rows follow each other and are no longer than their elements take.
    ///
    /// # Errors
    /// [`ErrorKind::DTypeUnsupported`] when they are padded or apart.
    pub(crate) fn expect_plain(&self) -> Result<()> {
        if !self.is_padded() && !self.has_gaps() {
            return Ok(());
        }
        let found = if self.is_padded() { "them padded to whole blocks" } else { "other rows between them" };
        Err(Error::new(
            ErrorKind::DTypeUnsupported,
            format!("expected rows of {} elements, found {found}", self.row_len()),
        )
        .with("tensor", &self.name)
        .with("dtype", self.dtype)
        .with_hint("use the engine cpu or wgpu, or a checkpoint of another format"))
    }

    /// `Ok` when the shape is `expected`.
    ///
    /// # Errors
    /// [`ErrorKind::TensorShape`] naming both shapes.
    pub fn expect_shape(&self, expected: &[usize]) -> Result<()> {
        if *self.shape == *expected {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TensorShape,
            format!("expected shape {expected:?}, found {:?}", self.shape),
        )
        .with("tensor", &self.name)
        .with_detail(ShapeDetail { expected: expected.to_vec(), found: self.shape.to_vec() })
        .with_hint("the weights do not belong to this configuration"))
    }

    /// The tensors that are stacked in this one, in order: views of the same bytes, one for each
    /// index of the outermost dimension. Of a vector or scalar there are none.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = Self> + '_ {
        let n = match *self.shape {
            [n, _, ..] => n,
            _ => 0,
        };
        (0..n).map(move |at| self.part(at, n))
    }

    /// Equally many rows of a matrix each, in order; what is left over is in none.
    pub(crate) fn row_parts(&self, n: usize) -> impl Iterator<Item = Self> + '_ {
        let each = self.rows() / n.max(1);
        (0..n).map(move |at| self.row_range(at * each..(at + 1) * each))
    }

    /// One of `n` parts.
    fn part(&self, at: usize, n: usize) -> Self {
        let len = self.range.len() / n;
        let start = self.range.start + at * len;
        let rows = self.rows() / n;
        let cut = |groups: &Groups| groups.cut([at * rows, 1, rows], |beside| beside.part(at, n));
        let groups = self.groups.as_deref().map(cut);
        let shape = self.shape.get(1..).unwrap_or_default().into();
        Self { shape, range: start..start + len, groups, ..self.clone() }
    }

    /// Some rows of a matrix: a view of the same bytes.
    pub(crate) fn row_range(&self, rows: Range<usize>) -> Self {
        let (first, last) = (rows.start.min(self.rows()), rows.end.min(self.rows()));
        let n = last.saturating_sub(first);
        let start = self.range.start + first * self.row_bytes;
        let cut = |groups: &Groups| groups.cut([first, 1, n], |beside| beside.row_range(rows.clone()));
        let groups = self.groups.as_deref().map(cut);
        let range = start..start + (n * self.row_bytes).saturating_sub(self.gap);
        Self { shape: [n, self.row_len()].into(), range, groups, ..self.clone() }
    }

    /// Every `step`th row of a matrix from `first` on, `n` of them: a view of the same bytes, between whose rows lie
    /// others.
    ///
    /// # Errors
    /// [`ErrorKind::TensorShape`] for rows that there are not.
    pub(crate) fn every(&self, first: usize, step: usize, n: usize) -> Result<Self> {
        let last = n.checked_sub(1).and_then(|n| n.checked_mul(step)?.checked_add(first));
        if step == 0 || last.is_none_or(|last| last >= self.rows()) {
            let message = format!("expected {n} rows, every {step}th from {first} on, found {}", self.rows());
            return Err(Error::new(ErrorKind::TensorShape, message)
                .with("tensor", &self.name)
                .with_hint("the weights do not belong to this configuration"));
        }
        Ok(self.apart(first, step, n))
    }

    /// See [`every`](Self::every).
    fn apart(&self, first: usize, step: usize, n: usize) -> Self {
        let (row_bytes, gap) = (step * self.row_bytes, self.gap + (step - 1) * self.row_bytes);
        let start = self.range.start + first * self.row_bytes;
        let range = start..start + n * row_bytes - gap;
        let cut = |groups: &Groups| groups.cut([first, step, n], |beside| beside.apart(first, step, n));
        let groups = self.groups.as_deref().map(cut);
        Self { shape: [n, self.row_len()].into(), row_bytes, gap, range, groups, ..self.clone() }
    }

    /// The same region for weights of which a step reads only a few, as of experts: no
    /// [`will_need`](Self::will_need) of it or its parts makes the system read pages ahead.
    #[must_use]
    pub fn on_demand(mut self) -> Self {
        self.on_demand = true;
        if let Some(Groups { scales, biases, .. }) = self.groups.as_deref_mut() {
            scales.on_demand = true;
            biases.iter_mut().for_each(|biases| biases.on_demand = true);
        }
        self
    }

    /// Tells the system that a mapped tensor will be read soon, unless it is read
    /// [on demand](Self::on_demand).
    pub fn will_need(&self) {
        for part in self.arrays() {
            if let Bytes::Mapped(mapping) = &part.bytes
                && !part.on_demand
                && part.woven.is_none()
            {
                mapping.will_need(part.range.clone());
            }
        }
    }

    /// Tells the system that a mapped tensor will be read soon, one that is read [on demand](Self::on_demand), too.
    pub(crate) fn fetch(&self) {
        for part in self.arrays() {
            if let Bytes::Mapped(mapping) = &part.bytes {
                mapping.will_need(part.range.clone());
            }
        }
    }

    /// Tells the system to read no more of a mapped tensor than is asked for, by [`fetch`](Self::fetch) or by use.
    pub(crate) fn scattered(&self) {
        for part in self.arrays() {
            if let Bytes::Mapped(mapping) = &part.bytes {
                mapping.scattered(part.range.clone());
            }
        }
    }

    /// Takes a mapped tensor's pages out of this process' memory; they are read again when they are used. Pages
    /// that it shares with others of its stack stay. See [`Mapping::let_go`].
    pub(crate) fn let_go(&self, short: bool) {
        for part in self.arrays() {
            if let Bytes::Mapped(mapping) = &part.bytes {
                mapping.let_go(part.range.clone(), short);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(dtype: DType, shape: &[usize], bytes: &[u8]) -> (tempfile::TempDir, Region) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        std::fs::write(&path, [b"before", bytes].concat()).unwrap();
        let info = TensorInfo {
            name: "weight".to_owned(),
            dtype,
            shape: shape.to_vec(),
            file: 0,
            offset: 6,
            len: bytes.len() as u64,
        };
        let region = Region::map(&MappedFile::open(&path).unwrap(), &info).unwrap();
        assert_eq!((region.path(), region.offset()), (path.as_path(), 6));
        (folder, region)
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn rows_are_read_without_their_padding() {
        let mut stored = vec![0.0; 2 * PADDED];
        stored[..3].copy_from_slice(&[1.0, 2.0, 3.0]);
        stored[PADDED..][..4].copy_from_slice(&[4.0, 5.0, 6.0, 7.0]);
        let (_folder, region) = region(DType::F32, &[2, 3], &bytes(&stored));
        let mut out = [0.0; 6];
        region.read_rows(0..2, &mut out).unwrap();
        assert_eq!(out, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        region.read_rows(1..2, &mut out[..3]).unwrap();
        assert_eq!(out[..3], [4.0, 5.0, 6.0]);
        region.read_rows(2..2, &mut []).unwrap();
        #[allow(clippy::reversed_empty_ranges)] // What callers may pass.
        for (rows, n) in [(0..2, 5), (1..3, 6), (2..1, 0), (2..3, 3), (0..usize::MAX, 0)] {
            let error = region.read_rows(rows, &mut out[..n]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        }
    }

    #[test]
    fn parts_know_where_they_lie() {
        let (_folder, region) = region(DType::F32, &[2, 1, 2], &bytes(&[1.0, 2.0, 3.0, 4.0]));
        let second = region.parts().nth(1).unwrap();
        let mut out = [0.0; 2];
        second.read_rows(0..1, &mut out).unwrap();
        assert_eq!((out, second.offset()), ([3.0, 4.0], 6 + 8));
    }

    #[test]
    fn rows_may_be_apart() {
        let numbers: Vec<f32> = (0..12).map(|x| x as f32).collect();
        let (_folder, region) = region(DType::F32, &[6, 2], &bytes(&numbers));
        for (first, step, n) in [(0, 2, 3), (1, 2, 3), (5, 1, 1), (0, 5, 2), (2, 3, 1)] {
            let some = region.every(first, step, n).unwrap();
            let mut out = vec![0.0; 2 * n];
            some.read_rows(0..n, &mut out).unwrap();
            let expected = (0..n).flat_map(|i| [0, 1].map(|at| (2 * (first + step * i) + at) as f32));
            assert!(out.into_iter().eq(expected), "{first} {step} {n}");
            assert_eq!((some.shape(), some.stored_bytes()), (&[n, 2][..], 8 * n as u64));
            assert_eq!((some.has_gaps(), some.is_padded()), (step > 1, false));
            assert_eq!(some.expect_plain().is_ok(), step == 1);
            // Their last row ends where they do.
            assert_eq!(some.bytes().len(), 8 * ((n - 1) * step + 1));
        }
        for (first, step, n) in [(0, 2, 4), (1, 1, 6), (0, 0, 2), (0, 1, 0), (6, 1, 1), (0, usize::MAX, 3)] {
            let error = region.every(first, step, n).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TensorShape, "{error}");
        }
    }

    /// Rows of woven tensors are those of the file, of all of it and of parts.
    #[test]
    fn rows_are_read_from_woven_tiles() {
        let woven = |dtype: &DType| Weave::of(*dtype, 3 * dtype.block_bytes()).is_some();
        for dtype in DType::ALL.iter().copied().filter(woven) {
            let row_bytes = 3 * dtype.block_bytes();
            // Small numbers only, so that scales are some.
            let stored: Vec<u8> = (0..48 * row_bytes).map(|at| (at * 31 % 59) as u8).collect();
            let (_folder, plain) = region(dtype, &[3, 16, 3 * dtype.block_len()], &stored);
            let woven = plain.clone().resident_for_products(&CancelToken::new()).unwrap();
            assert!(woven.woven().is_some_and(|bytes| bytes != stored), "{dtype}");
            let views = |region: &Region| {
                let second = region.parts().nth(1).unwrap();
                let some = second.row_range(3..14);
                [region.row_range(0..48), some.every(2, 3, 3).unwrap(), second, some]
            };
            for (plain, woven) in views(&plain).into_iter().zip(views(&woven)) {
                let width = plain.row_len();
                let (mut expected, mut found) = (vec![0.0; width], vec![f32::NAN; width]);
                for row in 0..plain.rows() {
                    plain.decode(row, &mut expected);
                    woven.decode(row, &mut found);
                    assert!(expected.iter().any(|x| *x != 0.0) && expected == found, "{dtype} row {row}");
                    let mut copy = vec![0; woven.own_row_bytes()];
                    woven.copy_row(row, &mut copy);
                    assert_eq!(copy, plain.row(row), "{dtype} row {row}");
                    assert_eq!(woven.memory_of(row).len(), TILE * row_bytes);
                }
                assert!(woven.memory_of(plain.rows()).is_empty() && plain.row(plain.rows()).is_empty());
            }
        }
    }

    /// Of several parts, the last of them short, by several threads; or of none, when reading is cancelled.
    #[test]
    fn large_tensors_are_woven_in_parts() {
        let dtype = DType::Q8_0;
        let row_bytes = 3 * dtype.block_bytes();
        let stored: Vec<u8> = (0..101 * TILE * row_bytes).map(|at| (at * 31 % 251) as u8).collect();
        let weave = Weave::of(dtype, row_bytes).unwrap();
        let mut expected = vec![0; stored.len()];
        weave.weave(&stored, &mut expected);
        let (_folder, plain) = region(dtype, &[101 * TILE, 3 * dtype.block_len()], &stored);
        let cancel = CancelToken::new();
        cancel.cancel();
        let error = plain.clone().resident_for_products(&cancel).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        let woven = plain.clone().resident_for_products(&CancelToken::new()).unwrap();
        assert!(woven.woven() == Some(&expected));
        // Whoever wants it as it is while it is woven reads the file.
        let other = plain.resident(&CancelToken::new()).unwrap();
        assert!(other.memory() == Memory::Mapped && other.bytes() == stored);
        drop((woven, other.clone()));
        let again = other.resident(&CancelToken::new()).unwrap();
        assert!(again.memory() == Memory::Resident && again.bytes() == stored);
    }

    /// So are scales and biases beside them.
    #[test]
    fn scales_are_read_from_woven_tiles() {
        for (groups, float) in
            [(8, DType::BF16), (3, DType::F16), (1, DType::BF16), (131, DType::BF16), (3, DType::F32)]
        {
            let some = |dtype: DType, len: usize, by: usize| {
                let bytes: Vec<u8> =
                    (0..32 * dtype.row_bytes(len).unwrap()).map(|at| (at * by % 59) as u8).collect();
                region(dtype, &[32, len], &bytes)
            };
            let parts =
                [some(DType::Affine4, 32 * groups, 31), some(float, groups, 7), some(float, groups, 11)];
            let [elements, scales, biases] = parts.each_ref().map(|(_, region)| region.clone());
            let plain = elements.with_groups(scales, Some(biases));
            let woven = plain.clone().resident_for_products(&CancelToken::new()).unwrap();
            assert!(woven.woven().is_some());
            for part in [woven.scales(), woven.biases()] {
                assert!(part.unwrap().woven().is_some(), "{float}");
                assert_eq!(part.unwrap().memory(), Memory::Resident);
            }
            // By themselves they are numbers as well.
            let numbers = |region: &Region| {
                let mut numbers = vec![f32::NAN; 32 * groups];
                region.scales().unwrap().read_rows(0..32, &mut numbers).unwrap();
                numbers
            };
            assert_eq!(numbers(&woven), numbers(&plain), "{float}");
            let views =
                |region: &Region| [region.clone(), region.row_range(3..29), region.every(1, 3, 10).unwrap()];
            for (plain, woven) in views(&plain).into_iter().zip(views(&woven)) {
                let (mut expected, mut found) = (vec![0.0; 32 * groups], vec![f32::NAN; 32 * groups]);
                for row in 0..plain.rows() {
                    plain.decode(row, &mut expected);
                    woven.decode(row, &mut found);
                    assert!(expected.iter().any(|x| *x != 0.0) && expected == found, "{float} row {row}");
                }
            }
        }
    }

    #[test]
    fn there_may_be_nothing_to_read() {
        for shape in [[0, 3], [3, 0]] {
            let (_folder, region) = region(DType::F32, &shape, &[]);
            region.read_rows(0..shape[0], &mut []).unwrap();
        }
    }
}
