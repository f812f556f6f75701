//! How does a conversation outlive its process? A file of its tokens, keys and values.
//!
//! The file is `skulk-kv`, then the layers' pages, an index in JSON, the index' length in 8 bytes, and the SHA-256 of all
//! before, in 32 bytes. Numbers are little-endian.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::model::{Inner, Model};
use super::options::expect_known;
use super::scheduler::{Command, Holder};
use super::session::{Session, common};
use crate::engine::LayerPages;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{SeqId, TokenId};
use crate::macros::opaque;
use crate::weights::{MappedFile, io_error, may_be_replaced};

const MAGIC: &[u8; 8] = b"skulk-kv";
const VERSION: u32 = 1;
const LENGTH: usize = 8;
const DIGEST: usize = 32;

/// What is in the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Index {
    version: u32,
    /// The model's fingerprint.
    model: String,
    /// The conversation's, and how many of them have keys and values.
    tokens: Vec<u32>,
    held: usize,
    layers: Vec<IndexLayer>,
}

/// What an index of any version has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// A layer's pages.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IndexLayer {
    layer: usize,
    layout: String,
    first_block: usize,
    /// Where they lie in the file.
    start: usize,
    len: usize,
}

/// The bytes of a saved session, checked.
///
/// ```
/// let error = skulk::SavedSession::parse(b"skulk-kv and no more").err().unwrap();
/// assert_eq!(error.code(), "session.invalid");
/// ```
pub struct SavedSession<'a> {
    index: Index,
    bytes: &'a [u8],
    tokens: Vec<TokenId>,
}

opaque!(SavedSession<'_>);

impl<'a> SavedSession<'a> {
    /// Reads what [`Session::save`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::SessionInvalid`] when the bytes are something else, fewer, or changed.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let least = MAGIC.len() + LENGTH + DIGEST;
        if !bytes.starts_with(MAGIC) {
            return Err(invalid("expected a saved session, found something else"));
        }
        let (body, digest) = bytes
            .split_at_checked(bytes.len().saturating_sub(DIGEST))
            .filter(|_| bytes.len() >= least)
            .ok_or_else(|| invalid(format!("expected at least {least} bytes, found {}", bytes.len())))?;
        if Sha256::digest(body).as_slice() != digest {
            return Err(invalid("expected bytes of the hash at the file's end, found others"));
        }
        let (body, length) = body.split_at(body.len() - LENGTH);
        let length = length.try_into().map_or(u64::MAX, u64::from_le_bytes);
        let at = usize::try_from(length).ok().and_then(|length| body.len().checked_sub(length));
        let at = at.filter(|at| *at >= MAGIC.len());
        let at = at.ok_or_else(|| {
            invalid(format!("expected an index of up to {} bytes, found {length}", body.len() - MAGIC.len()))
        })?;
        let (pages, index) = body.split_at(at);
        let no_index = |e| invalid("expected an index in JSON, found none").with_source(e);
        // Of another version nothing else is known.
        let Version { version } = serde_json::from_slice(index).map_err(no_index)?;
        if version != VERSION {
            let message = format!("expected version {VERSION} of the format, found {version}");
            return Err(Error::new(ErrorKind::SessionMismatch, message)
                .with_hint("compute the conversation anew, and save it with this version of the library"));
        }
        let index: Index = serde_json::from_slice(index).map_err(no_index)?;
        if index.held > index.tokens.len() {
            let message =
                format!("expected at most {} tokens computed, found {}", index.tokens.len(), index.held);
            return Err(invalid(message));
        }
        let mut end = MAGIC.len();
        for layer in &index.layers {
            if layer.start != end {
                return Err(invalid(format!("expected pages at byte {end}, found {}", layer.start))
                    .with("layer", layer.layer));
            }
            end = end.checked_add(layer.len).filter(|end| *end <= pages.len()).ok_or_else(|| {
                let message = format!("expected pages within {} bytes, found {}", pages.len(), layer.len);
                invalid(message).with("layer", layer.layer)
            })?;
        }
        if end != pages.len() {
            return Err(invalid(format!("expected {end} bytes of pages, found {}", pages.len())));
        }
        let tokens = index.tokens.iter().copied().map(TokenId).collect();
        Ok(Self { index, bytes, tokens })
    }

    /// All tokens of the conversation.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    fn layers(&self) -> Vec<LayerPages<'_>> {
        let mut layers = Vec::with_capacity(self.index.layers.len());
        for IndexLayer { layer, layout, first_block, start, len } in &self.index.layers {
            layers.push(LayerPages::new(*layer, layout, *first_block, &self.bytes[*start..start + len]));
        }
        layers
    }
}

impl Session {
    /// Writes the conversation to a file: its tokens, and the keys and values that the model holds of them, so that
    /// [`Model::restore`] need not compute them again. A file that is there is replaced when all is written.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// # use skulk::{GenerateOptions, LoadOptions, Model, Prompt};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let file = folder.path().join("conversation.skulk");
    /// let model = Model::open(path, &LoadOptions::default())?;
    /// let session = model.session()?;
    /// session.generate("Once upon a time", GenerateOptions::default().max_tokens(8))?.output()?;
    /// session.save(&file)?;
    ///
    /// let session = model.restore(&file)?;
    /// let mut next = session.generate(Prompt::Append(" Then".into()), GenerateOptions::default().max_tokens(8))?;
    /// assert!(next.output()?.finish.usage.cached_tokens > 8);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::SessionBusy`] while a generation runs; [`ErrorKind::FileIo`] and [`ErrorKind::FileNotFound`] for what
    /// the system says of the file, its folder, or the model's.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (turn, path) = (self.turn()?, path.as_ref());
        let model = &self.shared.model;
        let (tokens, copy) = {
            let state = turn.shared.state();
            let shared = common(&state.history, &state.held);
            let fork = |seq| Snapshot::of(model, seq, shared);
            (state.history.clone(), state.seq.map(fork).transpose()?)
        };
        may_be_replaced(path).map_err(|e| io_error(e, path, "write"))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut file = tempfile::Builder::new()
            .prefix(".skulk-")
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .map_err(|e| io_error(e, path, "write"))?;
        let mut index = Index {
            version: VERSION,
            model: model.fingerprint.get()?.to_owned(),
            tokens: tokens.iter().map(|token| token.0).collect(),
            held: copy.as_ref().map_or(0, |copy| copy.len),
            layers: Vec::new(),
        };
        let failed = |e| io_error(e, path, "write");
        let mut to = Hashed { to: BufWriter::new(file.as_file_mut()), hasher: Sha256::new() };
        to.write_all(MAGIC).map_err(failed)?;
        let mut start = MAGIC.len();
        if let Some(copy) = copy {
            model.shards.save(copy.seq, &mut |pages| {
                to.write_all(pages.bytes).map_err(failed)?;
                let (layer, layout) = (pages.layer, pages.layout.to_owned());
                let (first_block, len) = (pages.first_block, pages.bytes.len());
                index.layers.push(IndexLayer { layer, layout, first_block, start, len });
                start += len;
                Ok(())
            })?;
        }
        let index = serde_json::to_vec(&index)
            .map_err(|e| Error::new(ErrorKind::Internal, "the index cannot be written").with_source(e))?;
        to.write_all(&index).map_err(failed)?;
        to.write_all(&(index.len() as u64).to_le_bytes()).map_err(failed)?;
        to.finish().map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(path).map_err(|e| failed(e.error))?;
        Ok(())
    }
}

impl Model {
    /// A session as [`Session::save`] wrote it, to be gone on with. The file is not needed afterwards.
    ///
    /// It has to be of the same model, loaded with the same types of keys and values and the same precision on the same
    /// kind of engine; it may be cut into other stages. Restore only files that you trust: keys and values in them are
    /// taken as they are, also for other sessions that begin with the same tokens. The file must not be changed meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::SessionInvalid`] when the file is something else, incomplete or changed;
    /// [`ErrorKind::SessionMismatch`] when it is of another model; [`ErrorKind::ContextOverflow`] when the conversation is
    /// longer than this model's context; [`ErrorKind::OutOfMemory`] when there is no room for its keys and values;
    /// [`ErrorKind::FileNotFound`] and [`ErrorKind::FileIo`].
    pub fn restore(&self, path: impl AsRef<Path>) -> Result<Session> {
        let path = path.as_ref();
        let bytes = MappedFile::open(path)?.map_all()?;
        SavedSession::parse(&bytes)
            .and_then(|saved| self.start_saved(&saved))
            .map_err(|e| e.with("file", path.display()))
    }

    /// `Ok` where a conversation of so many tokens is no longer than the context.
    pub(super) fn expect_room(&self, tokens: usize) -> Result<()> {
        let context = self.inner.context;
        if tokens <= context {
            return Ok(());
        }
        let message = format!("expected at most {context} tokens, found a session of {tokens}");
        Err(Error::new(ErrorKind::ContextOverflow, message)
            .with_tokens(tokens, context)
            .with_hint("load the model with a larger context"))
    }

    fn start_saved(&self, saved: &SavedSession<'_>) -> Result<Session> {
        let (model, tokens) = (&self.inner, saved.tokens());
        if saved.index.model != model.fingerprint.get()? {
            return Err(Error::new(
                ErrorKind::SessionMismatch,
                format!("expected a session of this model, found one of another ({:.12})", saved.index.model),
            )
            .with_hint("restore it with the model that it was saved with"));
        }
        expect_known("tokens", tokens.iter(), model.arch.vocab_size)
            .map_err(|e| invalid("expected tokens of the model's vocabulary, found others").with_source(e))?;
        self.expect_room(tokens.len())?;
        let held = &tokens[..saved.index.held];
        let session = self.session()?;
        let _holder = model.scheduler.hold();
        let seq = if held.is_empty() { None } else { Some(model.restore(held, &saved.layers())?) };
        {
            let mut state = session.shared.state();
            state.history.extend_from_slice(tokens);
            state.held.extend_from_slice(held);
            state.seq = seq;
        }
        model.scheduler.tell(Command::Idle(std::sync::Arc::clone(&session.shared)));
        Ok(session)
    }
}

impl Inner {
    /// A sequence of these tokens with saved keys and values. Where they have no room, those of idle sessions make it.
    fn restore(&self, tokens: &[TokenId], layers: &[LayerPages<'_>]) -> Result<SeqId> {
        let needed: u64 = layers.iter().map(|layer| layer.bytes.len() as u64).sum();
        // Of what cannot fit nobody makes room.
        let fits = self.shards.kv_memory().budget.is_none_or(|most| needed <= most.bytes());
        // Sessions that were dropped before have given theirs back when the answer comes.
        let mut again = true;
        loop {
            match self.shards.restore(tokens, layers) {
                Err(error)
                    if fits && error.is_full() && (self.scheduler.evict() || std::mem::take(&mut again)) => {}
                Err(error) if error.kind() == ErrorKind::SessionMismatch => {
                    return Err(error.with_hint(
                        "load the model as it was when the session was saved: engine, precision, types of keys and values",
                    ));
                }
                restored => return restored,
            }
        }
    }
}

/// A copy of a session's sequence, which nobody changes or takes.
struct Snapshot<'a> {
    model: &'a Inner,
    seq: SeqId,
    len: usize,
    /// Dropped behind the sequence.
    _holder: Holder<'a>,
}

impl<'a> Snapshot<'a> {
    fn of(model: &'a Inner, from: SeqId, at: usize) -> Result<Self> {
        let _holder = model.scheduler.hold();
        let (seq, len) = model.shards.fork(from, at)?;
        Ok(Self { model, seq, len, _holder })
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        self.model.shards.close(self.seq);
    }
}

/// A file with the hash of what was written.
struct Hashed<'a> {
    to: BufWriter<&'a mut File>,
    hasher: Sha256,
}

impl Hashed<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hasher.update(bytes);
        self.to.write_all(bytes)
    }

    /// Writes the hash.
    fn finish(mut self) -> std::io::Result<()> {
        self.to.write_all(&self.hasher.finalize())?;
        self.to.flush()
    }
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::SessionInvalid, message)
        .with_hint("the file is damaged or none of this library's: save the session again")
}
