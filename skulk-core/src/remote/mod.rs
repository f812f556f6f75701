//! Who computes feed-forward blocks on other machines, and how are they asked? A server, a client, and LARQL's protocol
//! between them.

mod address;
mod client;
mod codes;
mod facts;
mod replicas;
mod server;
mod tls;
pub mod wire;

pub use self::address::Address;
pub use self::client::{ConnectOptions, Health, Likely, RemoteFfn, measure_link};
pub use self::replicas::Replicas;
pub use self::server::{ServeOptions, Server, serve};
pub use self::tls::{Identity, Roots};
