//! At which addresses do the nodes of a ring reach each other? Hosts, RDMA interfaces and coordinators.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::topology::Topology;
use crate::plan::cluster::{InterfaceType, NodeId};
use crate::plan::instance::{Host, Instance};

/// The address of oneself.
const ANY: &str = "0.0.0.0";
/// Stands for nodes that one does not talk to; of a network that is for documents only (RFC 5737).
const NOBODY: &str = "198.51.100.1";

/// What an address is wanted for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The data of each token.
    Ring,
    /// Finding each other: what carries the data is left alone.
    Coordinator,
}

impl Use {
    /// How bad an address is. A private network over others comes last, whatever its interface is called:
    /// it may go through a relay.
    fn rank(self, address: &str, interface: InterfaceType) -> u8 {
        if is_vpn_address(address) {
            return 5;
        }
        match (self, interface) {
            (Use::Ring, InterfaceType::Thunderbolt) | (Use::Coordinator, InterfaceType::Ethernet) => 0,
            (Use::Ring, InterfaceType::MaybeEthernet) | (Use::Coordinator, InterfaceType::Wifi) => 1,
            (Use::Ring, InterfaceType::Ethernet) | (Use::Coordinator, InterfaceType::Unknown) => 2,
            (Use::Ring, InterfaceType::Wifi) | (Use::Coordinator, InterfaceType::MaybeEthernet) => 3,
            (Use::Ring, InterfaceType::Unknown) | (Use::Coordinator, InterfaceType::Thunderbolt) => 4,
        }
    }
}

/// Whether an address belongs to Tailscale: 100.64.0.0/10 and fd7a:115c:a1e0::/48. What is no address does
/// not.
///
/// ```
/// assert!(skulk::plan::is_vpn_address("100.100.1.2"));
/// assert!(!skulk::plan::is_vpn_address("192.168.1.2"));
/// ```
pub fn is_vpn_address(address: &str) -> bool {
    let without_zone = address.split_once('%').map_or(address, |(address, _)| address);
    match without_zone.parse() {
        Ok(IpAddr::V4(v4)) => v4.octets()[0] == 100 && v4.octets()[1] & 0xC0 == 64,
        Ok(IpAddr::V6(v6)) => v6.segments()[..3] == [0xfd7a, 0x115c, 0xa1e0],
        Err(_) => false,
    }
}

/// The best address at which a node reaches another. In a mesh, those of the other's interfaces count, where
/// no link says one. Of several as good, the last that is stored; `canonical`: the first by name, so that
/// the order of links does not matter.
fn address<'a>(
    topology: &Topology<'a>,
    [from, to]: [usize; 2],
    wanted: Use,
    canonical: bool,
) -> Option<&'a str> {
    let interfaces = topology.node(to).map_or(&[][..], |node| &node.interfaces);
    let interface = |address: &str| {
        // Of several with the same address, the last counts.
        let known = interfaces.iter().rev().find(|interface| interface.ip_address == address);
        known.map_or(InterfaceType::Unknown, |interface| interface.interface_type)
    };
    let key = |address: &&'a str| (wanted.rank(address, interface(address)), canonical.then_some(*address));
    let linked = topology.addresses(from, to).min_by_key(key);
    let own = interfaces.iter().map(|interface| interface.ip_address.as_str());
    linked.or_else(|| own.min_by_key(key).filter(|_| topology.is_mesh()))
}

/// What each node of a ring knows of the others.
pub(super) fn ring(
    topology: &Topology,
    ring: &[usize],
    port: u16,
    canonical: bool,
) -> Result<Instance, String> {
    let world = ring.len();
    let mut hosts_by_node: BTreeMap<NodeId, Vec<Host>> = BTreeMap::new();
    for (rank, &from) in ring.iter().enumerate() {
        let nobody = Host { ip: NOBODY.to_owned(), port: 0 };
        let mut hosts = vec![nobody; world];
        for neighbour in [(rank + world - 1) % world, (rank + 1) % world] {
            let to = ring[neighbour];
            let ip = if to == from { Some(ANY) } else { address(topology, [from, to], Use::Ring, canonical) };
            let ip = ip.ok_or_else(|| {
                format!(
                    "MLX ring backend requires connectivity between neighbouring nodes: {} has no socket to {}",
                    topology.id(from),
                    topology.id(to)
                )
            })?;
            hosts[neighbour] = Host { ip: ip.to_owned(), port };
        }
        hosts[rank] = Host { ip: ANY.to_owned(), port };
        hosts_by_node.insert(topology.id(from).clone(), hosts);
    }
    Ok(Instance::MlxRing { hosts_by_node, ephemeral_port: port })
}

/// By which interface each reaches each, and where all find rank 0.
pub(super) fn jaccl(
    topology: &Topology,
    ring: &[usize],
    port: u16,
    canonical: bool,
) -> Result<Instance, String> {
    let device = |from: usize, to: usize| {
        let mut interfaces = topology.rdma(from, to);
        let found = if canonical { interfaces.min() } else { interfaces.next() };
        match found {
            _ if from == to => Ok(None),
            Some(interface) => Ok(Some(interface.to_owned())),
            None => Err(format!(
                "Current jaccl backend requires all-to-all RDMA connections: {} has none to {}",
                topology.id(from),
                topology.id(to)
            )),
        }
    };
    let row = |&from: &usize| ring.iter().map(|&to| device(from, to)).collect();
    let jaccl_devices = ring.iter().map(row).collect::<Result<_, _>>()?;
    let coordinator = |&node: &usize| {
        let ip = match ring.first() {
            Some(&first) if first != node => address(topology, [node, first], Use::Coordinator, canonical)
                .ok_or_else(|| {
                    format!(
                        "Current jaccl backend requires all participating devices to be able to communicate: \
                         {} has no socket to {}",
                        topology.id(node),
                        topology.id(first)
                    )
                })?,
            _ => ANY,
        };
        Ok((topology.id(node).clone(), format!("{ip}:{port}")))
    };
    let jaccl_coordinators = ring.iter().map(coordinator).collect::<Result<_, String>>()?;
    Ok(Instance::MlxJaccl { jaccl_devices, jaccl_coordinators })
}
