//! Who computes feed-forward blocks on other machines, and how are they asked? A server, a client, and LARQL's protocol
//! between them.

mod address;
mod facts;
mod tls;
pub mod wire;

pub use self::address::Address;
pub use self::tls::{Identity, Roots};
