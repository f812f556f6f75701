//! What can be asked of a server?

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::super::address::{Address, Place, Scheme};
use super::super::tls::{Identity, Roots};
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::macros::setters;
use crate::model::EngineOptions;

/// Options of a [server](super::serve).
#[derive(Clone)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Where it listens, for HTTP/1.1 and for gRPC. Port 0 is one that is free:
    /// [`Server::address`](super::Server::address) says which.
    pub listen: Address,
    /// The layers whose blocks it serves, by index in the model; `None`: all.
    pub layers: Option<Range<usize>>,
    /// The experts it serves of each layer that has some; `None`: all.
    pub experts: Option<Range<usize>>,
    /// What clients send as `Authorization: Bearer KEY`; `None`: nothing.
    pub key: Option<String>,
    /// What it shows to clients of `https://`.
    pub identity: Option<Identity>,
    /// Clients of `https://` must show a certificate that leads to one of these; `None`: they need none.
    pub clients: Option<Roots>,
    /// Threads, precision, memory and budget of the blocks, as of engine [`cpu`](crate::engines::cpu).
    pub engine_options: EngineOptions,
    /// Rows that are computed together at most, of all clients that wait for the same layer.
    pub max_rows: usize,
    /// Requests that may wait to be computed. Who comes then is told to come again, with status 429.
    pub queue: usize,
    /// Connections at a time. Beyond, one that is idle is closed for a new one, or the new one is refused with status 503.
    pub max_connections: usize,
    /// Bytes of a request's body at most, and of the rows in its reply. Each connection may have one in memory, and its
    /// rows once more; over gRPC eight of them.
    pub max_body: ByteSize,
    /// How long a connection may take to be encrypted, and for the head of a request.
    pub header_timeout: Duration,
    /// How long a request's body may take.
    pub body_timeout: Duration,
    /// How long a connection is kept on which nothing is asked, or whose client does not take its reply.
    pub idle_timeout: Duration,
    /// Ends loading.
    pub cancel: CancelToken,
}

impl Default for ServeOptions {
    /// All layers and experts, for clients on this machine.
    fn default() -> Self {
        Self {
            listen: Address::of(Place::Tcp { scheme: Scheme::Http, host: "127.0.0.1".to_owned(), port: 0 }),
            layers: None,
            experts: None,
            key: None,
            identity: None,
            clients: None,
            engine_options: EngineOptions::default(),
            max_rows: 256,
            queue: 256,
            max_connections: 256,
            max_body: ByteSize(64 << 20),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(120),
            cancel: CancelToken::new(),
        }
    }
}

impl fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeOptions")
            .field("listen", &self.listen)
            .field("layers", &self.layers)
            .field("experts", &self.experts)
            .field("key", &self.key.as_ref().map(|_| "…"))
            .field("engine_options", &self.engine_options)
            .finish_non_exhaustive()
    }
}

setters!(ServeOptions {
    /// Listens there.
    listen: Address;
    /// Serves only these layers.
    layers: Range<usize> => Some(layers);
    /// Serves only these experts of each layer.
    experts: Range<usize> => Some(experts);
    /// Serves only clients that know this key.
    key: impl Into<String> => Some(key.into());
    /// Shows this to clients.
    identity: Identity => Some(identity);
    /// Serves only clients with certificates that lead there.
    clients: Roots => Some(clients);
    /// Computes like this.
    engine_options: EngineOptions;
    /// Computes no more rows together.
    max_rows: usize;
    /// Lets no more requests wait.
    queue: usize;
    /// Keeps no more connections.
    max_connections: usize;
    /// Takes no larger bodies.
    max_body: ByteSize;
    /// Waits no longer for a request's head.
    header_timeout: Duration;
    /// Waits no longer for a request's body.
    body_timeout: Duration;
    /// Keeps idle connections no longer.
    idle_timeout: Duration;
    /// Ends loading when this is cancelled.
    cancel: CancelToken;
});

impl ServeOptions {
    /// `Ok` for options that go together.
    pub(super) fn check(&self) -> Result<()> {
        const MOST: usize = 1 << 20;
        let counts =
            [("max_rows", self.max_rows), ("queue", self.queue), ("max_connections", self.max_connections)];
        for (field, count) in counts {
            if !(1..=MOST).contains(&count) {
                return Err(Error::argument(field, format!("expected 1 to {MOST}, found {count}"))
                    .with_hint("give a number in that range, or leave the option out"));
            }
        }
        let most = isize::MAX as u64;
        if !(1..=most).contains(&self.max_body.bytes()) {
            let message = format!("expected 1 to {most} bytes, found {}", self.max_body.bytes());
            return Err(Error::argument("max_body", message)
                .with_hint("give as many bytes as the largest request may have, or leave the option out"));
        }
        if self.key.as_ref().is_some_and(|key| !is_key(key)) {
            return Err(Error::argument("key", "expected visible characters of ASCII, found others or none")
                .with_hint("choose a long random key of letters and digits"));
        }
        if self.listen.is_grpc() {
            let message = format!("expected http, https or unix, found {}", self.listen);
            return Err(Error::argument("listen", message)
                .with_hint("listen on http or https: gRPC is answered there, too"));
        }
        let encrypted = self.listen.is_encrypted();
        if encrypted && self.identity.is_none() {
            return Err(Error::argument("identity", "expected a certificate for https, found none")
                .with_hint("give the server's certificate and key, or listen on http"));
        }
        for (field, given) in [("identity", self.identity.is_some()), ("clients", self.clients.is_some())] {
            if given && !encrypted {
                return Err(Error::argument(field, format!("expected https for it, found {}", self.listen))
                    .with_hint("listen on https, or leave the option out"));
            }
        }
        if !self.listen.is_local() && self.key.is_none() && self.clients.is_none() {
            let message = format!(
                "expected a key where other machines reach the server, found none for {}",
                self.listen
            );
            return Err(Error::argument("key", message).with_hint(
                "give a key, or certificates of clients; or listen on 127.0.0.1 or a socket of this machine",
            ));
        }
        Ok(())
    }
}

/// Whether it can be sent in a header.
fn is_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())
}
