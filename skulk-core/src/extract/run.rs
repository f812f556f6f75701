//! How is a plan carried out? File by file; while one batch is written and hashed, the next one is encoded.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::VindexWriter;
use super::index_json::index_json;
use super::options::{ExtractFile, ExtractReport};
use super::output::{Output, is_whole};
use super::plan::{Content, PlanFile, Section};
use super::source::{Source, SourceTensor};
use super::state::{State, identity};
use super::target::{self, Work};
use super::tokens::{Tokens, table};
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::engine::Precision;
use crate::engine::cpu::{Cpu, Nearest};
use crate::error::{Error, ErrorKind, Result};
use crate::vindex::files::{EMBEDDINGS, HASHES, INDEX};
use crate::vindex::hashes::{FileHashes, Hashes};
use crate::vindex::{VindexPart, VindexProgress, check_threads};
use crate::weights::io_error;

/// Bytes of a file that are copied at a time.
const COPY: usize = 4 << 20;

/// An extraction at work.
struct Run<'a> {
    writer: &'a VindexWriter<'a>,
    work: &'a Work,
    pool: Arc<rayon::ThreadPool>,
    state: State,
    done: u64,
    total: u64,
    resumed: u64,
}

/// A piece of a section, encoded as a whole.
struct Batch<'a> {
    section: &'a Section,
    tensor: Option<Arc<SourceTensor>>,
    /// Rows, or columns where it is transposed.
    rows: Range<usize>,
    is_last: bool,
}

/// Room for one batch.
#[derive(Default)]
struct Room {
    bytes: Vec<u8>,
    values: [Vec<f32>; 2],
}

/// Writes the folder, or what an interrupted run has left to be written.
pub(super) fn write(writer: &VindexWriter<'_>, target: &Path) -> Result<ExtractReport> {
    let began = Instant::now();
    let options = &writer.options;
    options.cancel.check()?;
    let work = Work::take(target, writer.checkpoint.path())?;
    let identity = identity(options, &writer.name, &writer.source, &writer.plan, writer.checkpoint)?;
    let left = if options.restart { None } else { work.left()? };
    let state = match left {
        Some(state) => {
            state.expect(&identity, &work.folder())?;
            work.keep(|name| writer.plan.files.iter().any(|file| file.name == name))?;
            state
        }
        None => {
            work.clear()?;
            let state = State::new(identity);
            work.save(&state)?;
            state
        }
    };
    let pool = thread_pool(options.threads)?;
    let total = writer.plan.files.iter().map(|file| file.len).sum();
    let mut run = Run { writer, work: &work, pool: Arc::new(pool), state, done: 0, total, resumed: 0 };
    for file in &writer.plan.files {
        run.file(file)?;
    }
    let mut files: Vec<ExtractFile> = writer.plan.files.iter().map(PlanFile::to_report).collect();
    files.extend(run.finish()?);
    let (resumed, bytes) = (ByteSize(run.resumed), files.iter().map(|file| file.bytes).sum());
    drop(run);
    work.finish()?;
    Ok(ExtractReport {
        path: target.to_owned(),
        files,
        bytes,
        resumed,
        elapsed: began.elapsed(),
        warnings: writer.plan.warnings.clone(),
    })
}

/// As many threads as the caller's options say.
fn thread_pool(threads: usize) -> Result<rayon::ThreadPool> {
    check_threads(threads)?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|i| format!("skulk-extract-{i}"))
        .build()
        .map_err(|e| {
            Error::new(ErrorKind::EngineFailed, "cannot start threads")
                .with_source(e)
                .with_hint("ask for fewer threads")
        })
}

impl<'a> Run<'a> {
    fn cancel(&self) -> &'a CancelToken {
        &self.writer.options.cancel
    }

    fn file(&mut self, file: &'a PlanFile) -> Result<()> {
        let folder = self.work.folder();
        if let Some(hashes) = self.state.done.get(&file.name) {
            if hashes.bytes == file.len && is_whole(&folder, &file.name, hashes) {
                self.done += file.len;
                self.resumed += file.len;
                return self.tell(file, None);
            }
            self.state.done.remove(&file.name);
        }
        let mut output = Output::open(self.work, &self.state, file, self.cancel())?;
        self.done += output.bytes();
        self.resumed += output.bytes();
        let rest = file.sections.get(output.sections()..).unwrap_or_default();
        let written = match rest.iter().any(Section::is_tokens) {
            true => self.feature_tokens(file, rest, &mut output),
            false => self.sections(file, rest, None, &mut output),
        };
        match written {
            Ok(()) => output.finish(&mut self.state),
            Err(e) => {
                // Why it ended counts, not that this could not be noted too.
                let _ = output.save(&mut self.state);
                Err(e)
            }
        }
    }

    /// Writes sections some of which tell what features write.
    fn feature_tokens(
        &mut self,
        file: &'a PlanFile,
        sections: &'a [Section],
        output: &mut Output<'a>,
    ) -> Result<()> {
        let writer = self.writer;
        let options = &writer.options;
        let is_empty = writer.empty_tokens.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Internal, "tokens of features are planned without a tokenizer")
        })?;
        let written = self.work.folder().join(EMBEDDINGS);
        let embeddings = table(&writer.source, &written, options.storage.floats())?;
        let cpu = Cpu::new(options.threads, Precision::Exact)?;
        let nearest = Nearest::new(&cpu, &embeddings, self.cancel())?;
        let pool = Arc::clone(&self.pool);
        let (source, top_k) = (&writer.source, options.feature_tokens);
        let keys = writer.keys;
        let tokens = Tokens { source, keys, nearest: &nearest, is_empty, pool: &pool, top_k };
        self.sections(file, sections, Some(&tokens), output)
    }

    /// Writes sections, encoding a batch while the one before it is written.
    fn sections(
        &mut self,
        file: &'a PlanFile,
        sections: &'a [Section],
        tokens: Option<&Tokens<'_>>,
        output: &mut Output<'a>,
    ) -> Result<()> {
        let source = &self.writer.source;
        let mut batches = sections.iter().flat_map(|section| Batches::new(source, section));
        let (mut ready, mut room) = (Room::default(), Room::default());
        let mut last: Option<Batch<'a>> = None;
        loop {
            let next = batches.next().transpose()?;
            if last.is_none() && next.is_none() {
                return Ok(());
            }
            self.cancel().check()?;
            let cancel = self.cancel();
            let mut encoded = Ok(());
            // What features write is found by threads of its own.
            if let (Some(layer), Some(tokens)) = (next.as_ref().and_then(Batch::tokens_of), tokens) {
                encoded = tokens.layer(layer, cancel, &mut room.bytes);
            }
            let written = self.pool.in_place_scope(|scope| {
                if let Some(batch) = next.as_ref().filter(|batch| batch.tokens_of().is_none()) {
                    let (room, encoded) = (&mut room, &mut encoded);
                    scope.spawn(move |_| *encoded = batch.encode(cancel, room));
                }
                match &last {
                    Some(_) => output.write(&ready.bytes),
                    None => Ok(()),
                }
            });
            written?;
            if let Some(batch) = &last {
                self.done += ready.bytes.len() as u64;
                if batch.is_last {
                    output.end_section(&mut self.state)?;
                }
                self.tell(file, batch.section.layer)?;
            }
            encoded?;
            std::mem::swap(&mut ready, &mut room);
            last = next;
        }
    }

    fn tell(&self, file: &PlanFile, layer: Option<usize>) -> Result<()> {
        if let Some(progress) = &self.writer.options.progress {
            progress.tell(&VindexProgress::new(&file.name, layer, self.done, self.total));
        }
        self.cancel().check()
    }

    /// Writes the hashes and, last of all, the index.
    fn finish(&mut self) -> Result<[ExtractFile; 2]> {
        let (writer, known) = (self.writer, &self.state.done);
        let index = index_json(&writer.source, &writer.options, &writer.name, &writer.plan, known)?;
        let mut hashes = Hashes::new(known.clone());
        hashes.files.insert(INDEX.to_owned(), FileHashes::of(&index));
        let text = hashes.to_json();
        let file = |name: &str, bytes: &[u8]| {
            target::write(&self.work.folder().join(name), bytes)?;
            let bytes = ByteSize(bytes.len() as u64);
            Ok(ExtractFile { name: name.to_owned(), part: VindexPart::Index, bytes })
        };
        Ok([file(HASHES, text.as_bytes())?, file(INDEX, &index)?])
    }
}

/// A section's batches, in order. The section's tensor is mapped while there are any.
struct Batches<'a> {
    section: &'a Section,
    source: &'a Source<'a>,
    tensor: Option<Arc<SourceTensor>>,
    at: usize,
    end: usize,
    step: usize,
}

impl<'a> Batches<'a> {
    fn new(source: &'a Source<'a>, section: &'a Section) -> Self {
        let (end, step) = match &section.content {
            Content::Rows(tensor) => (tensor.shape[0], tensor.batch()),
            Content::Columns(tensor) => (tensor.transposed()[0], tensor.panel()),
            Content::Copy(_) => (usize::try_from(section.len).unwrap_or(usize::MAX), COPY),
            Content::Bytes(_) | Content::FeatureTokens(_) => (1, 1),
        };
        Self { section, source, tensor: None, at: 0, end, step }
    }

    /// The section's tensor, mapped.
    fn tensor(&mut self) -> Result<Option<Arc<SourceTensor>>> {
        if let (None, Content::Rows(tensor) | Content::Columns(tensor)) =
            (&self.tensor, &self.section.content)
        {
            self.tensor = Some(Arc::new(self.source.tensor(&tensor.key)?));
        }
        Ok(self.tensor.clone())
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let rows = self.at..self.at.saturating_add(self.step).min(self.end);
        self.at = rows.end;
        let is_last = rows.end == self.end;
        let tensor = match self.tensor() {
            Ok(tensor) => tensor,
            Err(e) => return Some(Err(e)),
        };
        if is_last {
            self.tensor = None;
        }
        Some(Ok(Batch { section: self.section, tensor, rows, is_last }))
    }
}

impl Batch<'_> {
    /// The layer whose features' tokens it is.
    fn tokens_of(&self) -> Option<usize> {
        match self.section.content {
            Content::FeatureTokens(layer) => Some(layer),
            _ => None,
        }
    }

    /// Encodes the batch into `room`, on the threads of the pool that it is called on.
    fn encode(&self, cancel: &CancelToken, room: &mut Room) -> Result<()> {
        let rows = self.rows.clone();
        match (&self.section.content, &self.tensor) {
            (Content::Rows(stored), Some(tensor)) => {
                stored.encode_rows(tensor, rows, cancel, &mut room.bytes)
            }
            (Content::Columns(stored), Some(tensor)) => {
                stored.encode_columns(tensor, rows, cancel, &mut room.values, &mut room.bytes)
            }
            (Content::Bytes(bytes), _) => {
                room.bytes.clone_from(bytes);
                Ok(())
            }
            (Content::Copy(path), _) => {
                room.bytes.resize(rows.len(), 0);
                read_at(path, rows.start as u64, &mut room.bytes).map_err(|e| io_error(e, path, "copy"))
            }
            _ => Err(Error::new(ErrorKind::Internal, "a batch has no tensor")),
        }
    }
}

/// Reads bytes of a file from an offset on.
fn read_at(path: &Path, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(bytes)
}
