//! What hardware does the host offer? Nodes with their memory, accelerators and backends, and the links
//! between them. Plain data: nothing here looks at a machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::macros::{closed_set, setters};

/// The name of a node, unique in its cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
#[serde(transparent)]
pub struct NodeId(String);

impl NodeId {
    /// The name of this machine unless it is given another.
    pub const LOCAL: &'static str = "local";

    /// A node's name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for NodeId {
    fn from(name: String) -> Self {
        Self(name)
    }
}

impl From<&str> for NodeId {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

closed_set! {
    /// What a node does.
    #[derive(PartialOrd, Ord, Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Role {
        /// Any part of a model.
        #[default]
        Full = "full",
        /// None: it only coordinates.
        Management = "management",
        /// Feed-forward blocks and experts, never attention.
        FfnOnly = "ffn_only",
    }
}

/// A node's main memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct NodeMemory {
    /// All there is.
    pub ram_total: u64,
    /// What programs can still get.
    pub ram_available: u64,
}

impl NodeMemory {
    /// So much that programs can still get, of so much in all.
    pub const fn new(ram_available: u64, ram_total: u64) -> Self {
        Self { ram_total, ram_available }
    }
}

closed_set! {
    /// Who made an accelerator.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Vendor {
        /// Apple.
        Apple = "apple",
        /// AMD.
        Amd = "amd",
        /// NVIDIA.
        Nvidia = "nvidia",
        /// Intel.
        Intel = "intel",
        /// The CPU itself.
        Cpu = "cpu",
        /// Somebody else.
        #[default]
        Unknown = "unknown",
    }
}

/// A device of a node that computes. What is not known is `None`, which is not 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Accelerator {
    /// Who made it.
    #[cfg_attr(feature = "schema", schemars(extend("default" = "unknown")))]
    pub vendor: Vendor,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its own memory, in bytes.
    #[serde(default)]
    pub vram_total_bytes: Option<u64>,
    /// How much of that is in use.
    #[serde(default)]
    pub vram_used_bytes: Option<u64>,
    /// Main memory that it can reach, in bytes.
    #[serde(default)]
    pub gtt_total_bytes: Option<u64>,
    /// Its memory is main memory. Plans then leave work to the processor, which reads as fast, unless Apple made
    /// it or [`bytes_per_second`](Self::bytes_per_second) says otherwise.
    #[serde(default)]
    pub shares_memory: bool,
    /// The backend of this library that drives it, as in `skulk-wgpu-vulkan`.
    #[serde(default)]
    pub backend: Option<String>,
    /// Bytes a second that it reads from its memory. `None`: what the table of devices has under its name.
    #[serde(default)]
    pub bytes_per_second: Option<f64>,
    /// Operations a second of a prompt's products, a product and a sum being two; what else layers do takes its part of the
    /// second. `None`: as above.
    #[serde(default)]
    pub operations_per_second: Option<f64>,
    /// Seconds that it takes for a layer whatever its size. `None`: as above.
    #[serde(default)]
    pub layer_seconds: Option<f64>,
    /// Seconds until it has answered another device of its node. `None`: 100 µs are assumed.
    #[serde(default)]
    pub round_trip_seconds: Option<f64>,
}

impl Accelerator {
    /// One by this maker of which nothing else is known.
    pub fn new(vendor: Vendor) -> Self {
        Self { vendor, ..Self::default() }
    }
}

setters!(Accelerator {
    /// The same accelerator with this name.
    name: impl Into<String> => name.into();
    /// The same accelerator with so much memory of its own, in bytes.
    vram_total_bytes: u64 => Some(vram_total_bytes);
    /// The same accelerator, with so much of that in use.
    vram_used_bytes: u64 => Some(vram_used_bytes);
    /// The same accelerator, reaching so much main memory, in bytes.
    gtt_total_bytes: u64 => Some(gtt_total_bytes);
    /// Says whether its memory is main memory.
    shares_memory: bool;
    /// The same accelerator, driven by this backend.
    backend: impl Into<String> => Some(backend.into());
    /// The same accelerator, reading its memory at this rate.
    bytes_per_second: f64 => Some(bytes_per_second);
    /// The same accelerator, computing so many operations a second for prompts.
    operations_per_second: f64 => Some(operations_per_second);
    /// The same accelerator, taking so many seconds for a layer whatever its size.
    layer_seconds: f64 => Some(layer_seconds);
    /// The same accelerator, answering other devices of its node after so many seconds.
    round_trip_seconds: f64 => Some(round_trip_seconds);
});

closed_set! {
    /// What kind of network an interface belongs to.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum InterfaceType {
        /// Wireless.
        Wifi = "wifi",
        /// Ethernet.
        Ethernet = "ethernet",
        /// Probably Ethernet.
        MaybeEthernet = "maybe_ethernet",
        /// Thunderbolt.
        Thunderbolt = "thunderbolt",
        /// Nobody knows.
        #[default]
        Unknown = "unknown",
    }
}

/// A network interface of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct NetworkInterface {
    /// Its name, as in `en0`.
    pub name: String,
    /// Its address.
    pub ip_address: String,
    /// What it is.
    #[serde(default)]
    pub interface_type: InterfaceType,
}

impl NetworkInterface {
    /// An interface of this name with this address.
    pub fn new(
        name: impl Into<String>,
        ip_address: impl Into<String>,
        interface_type: InterfaceType,
    ) -> Self {
        Self { name: name.into(), ip_address: ip_address.into(), interface_type }
    }
}

/// A machine. What it has not reported yet is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// What it does.
    #[serde(default)]
    pub role: Role,
    /// Tags of the backends it has, as in `mlx` or `skulk-cpu`.
    #[serde(default)]
    pub backends: Option<BTreeSet<String>>,
    /// Its main memory.
    #[serde(default)]
    pub memory: Option<NodeMemory>,
    /// Bytes a second that it reads from main memory. `None`: what the table of devices has for an accelerator by the
    /// maker `cpu`, as `EPYC 9654` or `DDR5-5600, 2 channels`, or for one that shares main memory.
    #[serde(default)]
    pub bytes_per_second: Option<f64>,
    /// Operations a second of a prompt's products alone, a product and a sum being two. `None`: as above.
    #[serde(default)]
    pub operations_per_second: Option<f64>,
    /// Seconds that its processor takes for a layer whatever its size. `None`: as above.
    #[serde(default)]
    pub layer_seconds: Option<f64>,
    /// Bytes a second that it reads from the disk that has the model. `None`: 3 GB/s are assumed.
    #[serde(default)]
    pub disk_bytes_per_second: Option<f64>,
    /// Its processor cores.
    #[serde(default)]
    pub cores: Option<usize>,
    /// Its accelerators.
    #[serde(default)]
    pub accelerators: Vec<Accelerator>,
    /// Where it serves feed-forward blocks and experts, as in `http://192.168.7.4:8080`.
    #[serde(default)]
    pub address: Option<String>,
    /// Its network interfaces.
    #[serde(default)]
    pub interfaces: Vec<NetworkInterface>,
    /// Which share of a model's bytes lies on its disk, by model: 0 to 1.
    #[serde(default)]
    pub downloads: BTreeMap<String, f64>,
}

impl Node {
    /// A node that has not reported anything yet.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: NodeId::new(id),
            role: Role::default(),
            backends: None,
            memory: None,
            bytes_per_second: None,
            operations_per_second: None,
            layer_seconds: None,
            disk_bytes_per_second: None,
            cores: None,
            accelerators: Vec::new(),
            address: None,
            interfaces: Vec::new(),
            downloads: BTreeMap::new(),
        }
    }

    /// The same node with these backends.
    #[must_use]
    pub fn backends<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.backends = Some(tags.into_iter().map(Into::into).collect());
        self
    }

    /// The same node with so much main memory, in bytes.
    #[must_use]
    pub fn memory(mut self, ram_available: u64, ram_total: u64) -> Self {
        self.memory = Some(NodeMemory::new(ram_available, ram_total));
        self
    }

    /// The same node with one more accelerator.
    #[must_use]
    pub fn accelerator(mut self, accelerator: Accelerator) -> Self {
        self.accelerators.push(accelerator);
        self
    }
}

setters!(Node {
    /// The same node in another role.
    role: Role;
    /// The same node, serving feed-forward blocks and experts there.
    address: impl Into<String> => Some(address.into());
    /// The same node, reading its main memory at this rate.
    bytes_per_second: f64 => Some(bytes_per_second);
    /// The same node, its processor computing so many operations a second for prompts.
    operations_per_second: f64 => Some(operations_per_second);
    /// The same node, its processor taking so many seconds for a layer whatever its size.
    layer_seconds: f64 => Some(layer_seconds);
    /// The same node, reading the model's file at this rate.
    disk_bytes_per_second: f64 => Some(disk_bytes_per_second);
});

/// How fast a link is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LinkSpeed {
    /// Seconds for a message there and an answer back.
    pub round_trip_seconds: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
}

impl LinkSpeed {
    /// So many seconds there and back, so many bytes a second.
    pub const fn new(round_trip_seconds: f64, bytes_per_second: f64) -> Self {
        Self { round_trip_seconds, bytes_per_second }
    }

    /// What is assumed of links that nobody measured: gigabit Ethernet.
    pub const DEFAULT: Self = Self::new(5e-4, 1.17e8);
}

impl Default for LinkSpeed {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What a link goes over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", tag = "type", deny_unknown_fields)]
#[non_exhaustive]
pub enum LinkKind {
    /// Sockets: the address at which the sink was reached.
    #[serde(rename_all = "camelCase")]
    Socket {
        /// A host name or address, without port.
        address: String,
    },
    /// Remote direct memory access.
    #[serde(rename_all = "camelCase")]
    Rdma {
        /// The source's interface.
        source_iface: String,
        /// The sink's interface.
        sink_iface: String,
    },
}

/// A connection that a node has to another, in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Link {
    /// Who connects.
    pub source: NodeId,
    /// To whom.
    pub sink: NodeId,
    /// Over what.
    #[serde(flatten)]
    pub kind: LinkKind,
    /// How fast, where that was measured.
    #[serde(default)]
    pub speed: Option<LinkSpeed>,
}

impl Link {
    /// One over sockets, to the address at which the sink was reached.
    pub fn socket(source: impl Into<NodeId>, sink: impl Into<NodeId>, address: impl Into<String>) -> Self {
        Self::over(source.into(), sink.into(), LinkKind::Socket { address: address.into() })
    }

    /// One by remote direct memory access, from the source's interface to the sink's.
    pub fn rdma(
        source: impl Into<NodeId>,
        sink: impl Into<NodeId>,
        source_iface: impl Into<String>,
        sink_iface: impl Into<String>,
    ) -> Self {
        let kind = LinkKind::Rdma { source_iface: source_iface.into(), sink_iface: sink_iface.into() };
        Self::over(source.into(), sink.into(), kind)
    }

    fn over(source: NodeId, sink: NodeId, kind: LinkKind) -> Self {
        Self { source, sink, kind, speed: None }
    }
}

setters!(Link {
    /// The same link, as fast as this.
    speed: LinkSpeed => Some(speed);
});

/// The nodes of a host and how they are connected. The order of nodes never changes what is planned,
/// but for the names in it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Cluster {
    /// The machines.
    pub nodes: Vec<Node>,
    /// Connections, in one direction each.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Every two nodes are connected in both directions, like this where no link says otherwise.
    #[serde(default)]
    pub mesh: Option<LinkSpeed>,
}

impl Cluster {
    /// Nodes with these connections.
    pub fn new(nodes: Vec<Node>, links: Vec<Link>) -> Self {
        Self { nodes, links, mesh: None }
    }

    /// Nodes that are all connected with each other.
    pub fn mesh(nodes: Vec<Node>, speed: LinkSpeed) -> Self {
        Self { nodes, links: Vec::new(), mesh: Some(speed) }
    }
}
