//! What may a caller ask of reaching a server?

use std::fmt;
use std::time::Duration;

use crate::cancel::CancelToken;
use crate::macros::setters;
use crate::remote::wire::WireType;
use crate::remote::{Identity, Roots};

/// How a server is reached, and how long it may take.
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// The key that the server asks for, as a bearer token.
    pub key: Option<String>,
    /// Whom a server's certificate must lead to; `None`: to one of the [public](Roots::public) authorities.
    pub roots: Option<Roots>,
    /// What proves who asks, to servers that want that.
    pub identity: Option<Identity>,
    /// How results of dense blocks come back, and rows and sums of experts cross where one server has all of a layer's.
    /// [`F32`](WireType::F32) changes no bit of them; [`F16`](WireType::F16) halves them; [`I8`](WireType::I8) is for
    /// dense blocks, experts cross in f32 then, as single experts' results always do. A server that does not have a type
    /// answers in one that loses less. A sum of experts beyond 65,504 has no f16, and is an error there.
    pub wire: WireType,
    /// Rows go to dense blocks as integers of 8 bits, in blocks of 256 with a scale each (Q8_K): some 28 % of f32's bytes.
    /// Only where the model's width is a multiple of 256; results come back in f32. This changes them.
    pub rows_q8k: bool,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a job may take, with all that is tried again.
    pub timeout: Duration,
    /// Ends connecting.
    pub cancel: CancelToken,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            key: None,
            roots: None,
            identity: None,
            wire: WireType::F32,
            rows_q8k: false,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            cancel: CancelToken::new(),
        }
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("key", &self.key.as_ref().map(|_| "…"))
            .field("wire", &self.wire)
            .field("rows_q8k", &self.rows_q8k)
            .field("connect_timeout", &self.connect_timeout)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

setters!(ConnectOptions {
    /// Shows this key.
    key: impl Into<String> => Some(key.into());
    /// Trusts servers by these.
    roots: Roots => Some(roots);
    /// Proves with this who asks.
    identity: Identity => Some(identity);
    /// Lets numbers cross like this.
    wire: WireType;
    /// Sends rows to dense blocks as integers, or not.
    rows_q8k: bool;
    /// Gives connecting so long.
    connect_timeout: Duration;
    /// Gives a job so long.
    timeout: Duration;
    /// Ends connecting when the token is cancelled.
    cancel: CancelToken;
});
