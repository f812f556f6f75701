//! How do the nodes of a placement reach each other? Hosts, coordinators and devices, by transport.

use std::collections::BTreeMap;
use std::fmt;

use super::cluster::NodeId;

/// An address and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Host {
    /// An address or host name.
    pub ip: String,
    /// A port; 0 where there is no connection.
    pub port: u16,
}

impl Host {
    /// An address, or host name, and a port.
    pub fn new(ip: impl Into<String>, port: u16) -> Self {
        Self { ip: ip.into(), port }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ip, self.port)
    }
}

/// How the nodes of a placement reach each other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Instance {
    /// The coordinator talks to each of the others.
    Direct {
        /// The node that holds the conversation.
        coordinator: NodeId,
    },
    /// Each talks to its neighbours over sockets.
    MlxRing {
        /// What each node knows, by rank.
        hosts_by_node: BTreeMap<NodeId, Vec<Host>>,
        /// The port on which all listen.
        ephemeral_port: u16,
    },
    /// Each talks to each by RDMA.
    MlxJaccl {
        /// The interface by which one rank reaches another, `[from][to]`; `None` on the diagonal.
        jaccl_devices: Vec<Vec<Option<String>>>,
        /// Where each node finds rank 0.
        jaccl_coordinators: BTreeMap<NodeId, String>,
    },
}

/// The names under which other software knows a placement that came from it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ids {
    /// Of the placement.
    pub(super) instance: String,
    /// Of its stages, by rank.
    pub(super) runners: Vec<String>,
}
