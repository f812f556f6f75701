//! How does this process ask a server for blocks and experts? As a service whose lines are kept connections.

mod connection;
mod crossing;
mod known;
mod line;
mod link;
mod options;
mod questions;
mod reasons;
mod waiting;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hyper::Method;
use hyper::body::Bytes;
use hyper::header::HeaderValue;

use self::connection::{Answer, Answered, Ask, Connection, Failed, Target};
use self::known::{Stats, failed, told};
use self::line::Line;
pub use self::link::measure_link;
pub use self::options::ConnectOptions;
pub use self::questions::{Health, Likely};
use self::waiting::{Ended, Runtime, Until, after};
use super::address::Place;
use super::wire::WireType;
use super::{Address, Roots, tls};
use crate::arch::{ArchSpec, LayerSpec};
use crate::engine::{FfnLine, FfnService};
use crate::error::{Error, Result};
use crate::ids::LayerIdx;
use crate::macros::opaque;
use crate::weights::Checkpoint;

/// Feed-forward blocks and experts on another machine, or in another process: a server of this library, or one of LARQL's.
///
/// Each [line](FfnService::line) keeps a connection. A connection that was lost while nothing was asked is opened anew, and
/// the server asked again what it holds: other weights than before are an error.
pub struct RemoteFfn {
    peer: Arc<Peer>,
    name: String,
    /// Of one layer at least it computes experts.
    has_experts: bool,
}

opaque!(RemoteFfn);

/// What all lines to a server need.
struct Peer {
    target: Target,
    options: ConnectOptions,
    arch: Arc<ArchSpec>,
    /// What it said when it was reached first.
    stats: Stats,
    /// By layer the experts that it computes.
    serves: BTreeMap<usize, Range<usize>>,
}

/// Elements of a row that have a scale together in Q8_K.
const BLOCK: usize = 256;

/// The longest answer that is no frame: what a server says of itself, or of an error.
const WORDS: usize = 1 << 20;

impl RemoteFfn {
    /// Reaches a server, and checks that it computes for this checkpoint's model: sizes, and where the server is of this
    /// library and the checkpoint has them, the weights of each block.
    ///
    /// # Errors
    /// [`PeerLost`](crate::ErrorKind::PeerLost) where it cannot be reached in time;
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed) where it refuses, or serves something else;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a key that no header can hold;
    /// [`Cancelled`](crate::ErrorKind::Cancelled); what is wrong with the checkpoint.
    pub fn connect(address: &Address, checkpoint: &dyn Checkpoint, options: &ConnectOptions) -> Result<Self> {
        let arch = Arc::new(ArchSpec::from_checkpoint(checkpoint)?);
        Self::for_model(address, &arch, checkpoint, options)
    }

    pub(crate) fn for_model(
        address: &Address,
        arch: &Arc<ArchSpec>,
        checkpoint: &dyn Checkpoint,
        options: &ConnectOptions,
    ) -> Result<Self> {
        if options.rows_q8k && !arch.hidden_size.is_multiple_of(BLOCK) {
            let message = format!("expected rows of a multiple of {BLOCK}, found {}", arch.hidden_size);
            return Err(Error::argument("rows_q8k", message).with_hint("leave the option out for this model"));
        }
        if options.rows_q8k && address.is_grpc() {
            let message = format!("expected an address of http, https or unix for it, found {address}");
            return Err(Error::argument("rows_q8k", message)
                .with_hint("leave the option out: rows cross to gRPC servers as they are"));
        }
        let has_experts = |layer: &LayerSpec| layer.ffn.experts.is_some();
        if address.is_grpc() && !arch.layers.iter().any(has_experts) {
            let message = format!("expected a model with experts for {address}, found one without");
            return Err(Error::argument("address", message)
                .with_hint("dense blocks are asked for at an address of http, https or unix"));
        }
        let target = target(address, options)?;
        let runtime = Runtime::new()?;
        let patience = after(options.connect_timeout);
        let until = Until { cancel: &options.cancel, deadline: None, patience };
        let reached = runtime.wait(until.wait(reach(&target, options)))?;
        let (_, stats) = reached.unwrap_or_else(|ended| Err(ended.in_reaching(address, options)))?;
        stats.check(address, arch, checkpoint)?;
        let of_experts = |layer: &usize| arch.layers[*layer].ffn.experts.is_some();
        let mut serves = stats.serves(arch);
        if address.is_grpc() {
            // It has no words for dense blocks.
            serves.retain(|layer, _| of_experts(layer));
        }
        Ok(Self {
            name: format!("{} at {address}", if stats.is_larql() { "LARQL" } else { "skulk" }),
            has_experts: serves.keys().any(of_experts),
            peer: Arc::new(Peer { target, options: options.clone(), arch: Arc::clone(arch), stats, serves }),
        })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.peer.target.address
    }
}

/// `Ok` for an address at which more is answered than experts.
fn expect_http(address: &Address) -> Result<()> {
    if address.is_grpc() {
        let message = format!("expected a server that is asked over HTTP, found {address}");
        return Err(Error::argument("address", message).with_hint("ask it at its address of http or https"));
    }
    Ok(())
}

/// How a server is asked.
fn target(address: &Address, options: &ConnectOptions) -> Result<Target> {
    let key = match &options.key {
        None => None,
        Some(key) => {
            let header = HeaderValue::from_str(&format!("Bearer {key}"));
            let mut header = header.map_err(|_| {
                Error::argument("key", "expected a key of letters that a header can hold, found others")
                    .with_hint("use a key of printable ASCII")
            })?;
            header.set_sensitive(true);
            Some(header)
        }
    };
    let host = match address.place() {
        Place::Unix(_) => "localhost".to_owned(),
        Place::Tcp { host, port, .. } => format!("{host}:{port}"),
    };
    let host = HeaderValue::from_str(&host)
        .map_err(|e| Error::argument("address", "expected a host of ASCII, found another").with_source(e))?;
    let tls = match address.is_encrypted() {
        false => None,
        true => {
            let roots = options.roots.clone().unwrap_or_else(Roots::public);
            Some(tls::client(&roots, options.identity.as_ref(), address.is_grpc())?)
        }
    };
    Ok(Target { address: address.clone(), tls, host, key })
}

/// Whether a server that speaks gRPC has nothing else.
fn is_missing(answer: &Answer) -> bool {
    use hyper::StatusCode as S;
    matches!(
        answer.status,
        S::NOT_IMPLEMENTED | S::NOT_FOUND | S::METHOD_NOT_ALLOWED | S::UNSUPPORTED_MEDIA_TYPE
    )
}

async fn open(target: &Target) -> Result<Connection> {
    let opened = Connection::open(target).await;
    opened.map_err(|failed| failed.into_error(&target.address, "cannot be reached"))
}

/// Opens a connection, and asks what the server holds. Of LARQL's gRPC servers that is not to be had.
async fn reach(target: &Target, options: &ConnectOptions) -> Result<(Connection, Stats)> {
    let address = &target.address;
    let reach = async {
        let mut connection = open(target).await?;
        let ask = Ask {
            method: Method::GET,
            path: "/v1/stats",
            content: None,
            accept: None,
            body: Bytes::new(),
            most: WORDS,
        };
        let answer = match connection.ask(target, &ask).await {
            // What is no gRPC may be answered by resetting the request alone.
            Err(Failed::Lost(_)) if address.is_grpc() && !connection.has_ended().await => None,
            answer => Some(answer.map_err(|failed| failed.into_error(address, "was lost"))?),
        };
        connection.answered = Answered::Stats;
        let answer = match answer {
            Some(answer) if !(address.is_grpc() && is_missing(&answer)) => answer,
            _ => return Ok((connection, Stats::default())),
        };
        answer.expect_ok(address)?;
        Ok((connection, Stats::read(address, &answer.body)?))
    };
    let reached = tokio::time::timeout(options.connect_timeout, reach).await;
    reached.unwrap_or_else(|_| Err(Ended::Late.in_reaching(address, options)))
}

impl Peer {
    fn serves(&self, layer: LayerIdx) -> Range<usize> {
        self.serves.get(&layer.0).cloned().unwrap_or(0..0)
    }

    /// A new connection to the server, which still holds what it held at first.
    async fn open(&self) -> Result<Connection> {
        let (connection, stats) = reach(&self.target, &self.options).await?;
        if stats != self.stats {
            return Err(failed(&self.target.address, "expected the weights of before, found others".into())
                .with_hint("the server was started anew with another model or other layers: plan again"));
        }
        Ok(connection)
    }

    /// A new connection in the place of one that the server has ended. Where it had said over that one what it holds, it is not
    /// asked again: it may end every connection behind an answer.
    async fn renew(&self, ended: Answered) -> Result<Connection> {
        if ended == Answered::Other {
            return self.open().await;
        }
        let opened = tokio::time::timeout(self.options.connect_timeout, open(&self.target)).await;
        opened.unwrap_or_else(|_| Err(Ended::Late.in_reaching(&self.target.address, &self.options)))
    }
}

impl Answer {
    /// `Ok` for an answer that is one.
    fn expect_ok(&self, address: &Address) -> Result<()> {
        if self.status.is_success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&self.body);
        let error = serde_json::from_str::<serde_json::Value>(&words);
        let error = error.ok().and_then(|value| Some(value.get("error")?.as_str()?.to_owned()));
        let said = told(error.as_deref().unwrap_or(&words));
        let message = match said.is_empty() {
            true => format!("the server answered {}", self.status),
            false => format!("the server answered {}: {said}", self.status),
        };
        let error = failed(address, message);
        Err(match self.status.as_u16() {
            401 | 403 => error.with_hint("give the server's key with the option key"),
            413 => error.with_hint(
                "let fewer tokens pass together, with the option prefill_chunk, or let the server take more",
            ),
            _ => error,
        })
    }
}

impl FfnService for RemoteFfn {
    fn name(&self) -> &str {
        &self.name
    }

    fn serves(&self, layer: LayerIdx) -> Range<usize> {
        self.peer.serves(layer)
    }

    fn computes(&self) -> String {
        match self.peer.options.wire {
            _ if self.peer.options.rows_q8k => {
                format!("{}, rows crossing in Q8_K", self.peer.stats.computes())
            }
            _ if self.peer.target.address.is_grpc() => self.peer.stats.computes(),
            WireType::F32 => self.peer.stats.computes(),
            wire => format!("{}, crossing in {wire}", self.peer.stats.computes()),
        }
    }

    fn wants_residual(&self) -> bool {
        self.has_experts
    }

    fn weights(&self) -> Vec<(LayerIdx, String)> {
        self.peer.stats.weights().map(|(layer, hash)| (layer, hash.to_owned())).collect()
    }

    fn line(&self, _: usize) -> Result<Box<dyn FfnLine>> {
        Ok(Box::new(Line::new(Arc::clone(&self.peer))?))
    }
}
