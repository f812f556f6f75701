//! What would make a request fit? Changes of it, of the model and of the cluster, each tried out.

use super::problem::Problem;
use super::seats::Seat;
use super::{fits, search_sets};
use crate::bytes::ByteSize;
use crate::card::{CardLibrary, ModelCard};
use crate::kv_type::KvType;
use crate::plan::cluster::{Cluster, Link, LinkSpeed, Node, NodeId};
use crate::plan::memory;
use crate::plan::report::NodeReport;
use crate::plan::request::Request;
use crate::plan::strictness::Strictness;

/// Tokens below which no context is proposed.
const LEAST_TOKENS: u64 = 256;
/// Devices of which a proposal says how much more they need.
const LISTED: usize = 4;
/// Main memory that machines have, in GiB.
const MACHINES: [u64; 12] = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

/// The backend of a machine that has nothing but memory.
const OWN: &str = "skulk-cpu";

/// A request that was refused.
struct Refused<'a> {
    problem: &'a Problem<'a>,
    cluster: &'a Cluster,
    /// What each device was to hold in the placement that came closest.
    closest: &'a [NodeReport],
}

/// The ways, in words; the search is made once or twice for each, and where one has sizes, as often as halving takes.
pub(super) fn ways(problem: &Problem<'_>, cluster: &Cluster, closest: &[NodeReport]) -> Vec<String> {
    let refused = Refused { problem, cluster, closest };
    let ways = [
        refused.without_margins(),
        refused.with_quantised_kv(),
        refused.with_less_context(),
        refused.without_drafts(),
        refused.as_another_quantization(),
        refused.with_weights_on_disk(),
        refused.with_all_nodes(),
        refused.with_all_links(),
        refused.with_more_memory(),
        refused.with_another_node(),
    ];
    ways.into_iter().flatten().collect()
}

impl Refused<'_> {
    fn fits(&self, request: &Request) -> bool {
        fits(self.problem.card, self.cluster, request)
    }

    fn without_margins(&self) -> Option<String> {
        let request = self.problem.request;
        let relaxed = || request.clone().strictness(Strictness::Relaxed);
        (request.strictness == Strictness::Safe && self.fits(&relaxed()))
            .then(|| "strictness relaxed".to_owned())
    }

    fn with_quantised_kv(&self) -> Option<String> {
        let request = self.problem.request;
        let quantised = || request.clone().kv(KvType::Q8_0);
        (!request.kept().are_quantised() && self.fits(&quantised()))
            .then(|| format!("keys and values in {}", KvType::Q8_0))
    }

    fn with_less_context(&self) -> Option<String> {
        let request = self.problem.request;
        let halvings = (1..u64::BITS).map(|halvings| request.context_tokens >> halvings);
        let smaller: Vec<u64> = halvings.take_while(|&tokens| tokens >= LEAST_TOKENS).collect();
        let tokens = first(&smaller, |&tokens| self.fits(&request.clone().context_tokens(tokens)))?;
        Some(format!("a context of {tokens} tokens"))
    }

    fn without_drafts(&self) -> Option<String> {
        let without = || Request { mtp: false, draft_model: None, ..self.problem.request.clone() };
        (self.problem.drafts.is_some() && self.fits(&without())).then(|| "nothing that drafts".to_owned())
    }

    /// A request's inventory is that of the card's own file: of others, what their cards say counts.
    fn as_another_quantization(&self) -> Option<String> {
        let card = self.problem.card;
        if card.base_model.is_empty() {
            return None;
        }
        let is_smaller = |other: &&ModelCard| {
            other.base_model == card.base_model
                && other.capabilities == card.capabilities
                && other.tasks == card.tasks
                && other.n_layers == card.n_layers
                && other.storage_size.in_bytes < card.storage_size.in_bytes
        };
        let library = CardLibrary::builtin();
        let mut smaller: Vec<&ModelCard> = library.iter().filter(is_smaller).collect();
        smaller.sort_by_key(|other| std::cmp::Reverse(other.storage_size.in_bytes));
        let request = Request { inventory: None, ..self.problem.request.clone() };
        let other = first(&smaller, |other| fits(other, self.cluster, &request))?;
        Some(format!(
            "another quantization: `{}` of {}",
            other.model_id,
            ByteSize(other.storage_size.in_bytes)
        ))
    }

    fn with_weights_on_disk(&self) -> Option<String> {
        let request = self.problem.request.clone().from_disk(true);
        let (problem, _) = Problem::new(self.problem.card, self.cluster, &request, &mut Vec::new()).ok()?;
        let best = search_sets(&problem).best?;
        let way = match best.disk {
            Some(_) => "feed-forward weights from disk",
            None => "`from_disk`, with which all fit in memory another way",
        };
        Some(format!("{way}, {:.2} tok/s", best.estimate.tokens_per_second))
    }

    fn with_all_nodes(&self) -> Option<String> {
        let request = self.problem.request;
        let all = || Request { excluded_nodes: Default::default(), ..request.clone() };
        (!request.excluded_nodes.is_empty() && self.fits(&all())).then(|| "no excluded nodes".to_owned())
    }

    fn with_all_links(&self) -> Option<String> {
        let linked = || Cluster { mesh: Some(LinkSpeed::DEFAULT), ..self.cluster.clone() };
        (self.cluster.mesh.is_none() && fits(self.problem.card, &linked(), self.problem.request))
            .then(|| "links between all nodes".to_owned())
    }

    fn with_more_memory(&self) -> Option<String> {
        let over: Vec<&NodeReport> = self.closest.iter().filter(|node| node.over() > 0).collect();
        let Problem { card, request, inventory, .. } = self.problem;
        // Margins are rounded up for each layer and expert, in all only once.
        let experts = inventory.layers.iter().map(|layer| layer.blocks().0).sum::<usize>();
        let rounding = (experts + inventory.layers.len()) as u64;
        let (mut richer, mut added) = (self.cluster.clone(), Vec::new());
        for device in &over {
            added.push(self.add_memory(
                &mut richer,
                device,
                device.bytes.total().saturating_add(rounding),
            )?);
        }
        if added.is_empty() || !fits(card, &richer, request) {
            return None;
        }
        let listed = over.iter().zip(&added).take(LISTED);
        let listed: Vec<String> = listed
            .map(|(it, added)| format!("{} on `{}` ({})", ByteSize(*added), it.node, it.device))
            .collect();
        let more = match over.len().saturating_sub(LISTED) {
            0 => String::new(),
            others => format!(" and on {others} others"),
        };
        Some(format!("more memory: {}{more}", listed.join(", ")))
    }

    /// Gives a device as much more memory, its own or main memory, as it takes to hold so many bytes: of all memory plans take
    /// a share. Says how much that is.
    fn add_memory(&self, cluster: &mut Cluster, device: &NodeReport, needed: u64) -> Option<u64> {
        let problem = self.problem;
        let is_it = |seat: &&Seat| *problem.ids[seat.node] == device.node && seat.backend == device.backend;
        let place = problem.seats.iter().find(is_it)?.memory;
        let node = cluster.nodes.iter_mut().find(|node| node.id == device.node)?;
        let missing = |share: f64, total: u64| {
            let machine = memory::divide(needed, share).saturating_add(1).saturating_sub(total);
            rounded_up(machine.max(needed.saturating_sub(device.usable)))
        };
        if let Some(place) = place {
            let total = node.accelerators.get_mut(place)?.vram_total_bytes.as_mut()?;
            let added = missing(memory::VRAM_SHARE, *total);
            *total = total.saturating_add(added);
            return Some(added);
        }
        let own = node.memory.as_mut()?;
        let share = match problem.request.strictness {
            Strictness::Relaxed => memory::RAM_SHARE_RELAXED,
            Strictness::Safe | Strictness::Force => memory::RAM_SHARE,
        };
        let added = missing(share, own.ram_total);
        own.ram_total = own.ram_total.saturating_add(added);
        own.ram_available = own.ram_available.saturating_add(added);
        Some(added)
    }

    /// It has nothing else in its memory, runs engine `cpu` where others run this library's engines, and is linked with all.
    fn with_another_node(&self) -> Option<String> {
        let mut wider = self.cluster.clone();
        let mut id = "another".to_owned();
        while wider.nodes.iter().any(|node| node.id.as_str() == id) {
            id.push('+');
        }
        let id = NodeId::new(id);
        if wider.mesh.is_none() {
            let link = |from: &NodeId, to: &NodeId| {
                Link::socket(from.clone(), to.clone(), "").speed(LinkSpeed::DEFAULT)
            };
            let links = wider.nodes.iter().flat_map(|node| [link(&id, &node.id), link(&node.id, &id)]);
            wider.links.extend(links);
        }
        let is_own = self.problem.seats.iter().any(|seat| seat.engine() == Some("skulk"));
        let with = |gib: u64| {
            let mut wider = wider.clone();
            let node = Node::new(id.as_str()).memory(gib << 30, gib << 30);
            wider.nodes.push(if is_own { node.backends([OWN]) } else { node });
            wider
        };
        let request = self.problem.request;
        let gib = first(&MACHINES, |&gib| fits(self.problem.card, &with(gib), request))?;
        Some(format!("one more node of {gib} GiB of memory"))
    }
}

/// The same number of bytes or somewhat more, which messages show without rounding it down.
fn rounded_up(bytes: u64) -> u64 {
    let unit = 1u64 << (bytes.max(1).ilog2() / 10 * 10);
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(unit));
    u64::try_from((tenths * u128::from(unit)).div_ceil(10)).unwrap_or(u64::MAX)
}

/// The first of these that fits, where whatever stands behind one that fits does, too.
fn first<T>(ways: &[T], fits: impl Fn(&T) -> bool) -> Option<&T> {
    let (mut from, mut to) = (0, ways.len().checked_sub(1)?);
    if !fits(&ways[to]) {
        return None;
    }
    while from < to {
        let middle = from + (to - from) / 2;
        if fits(&ways[middle]) { to = middle } else { from = middle + 1 }
    }
    Some(&ways[to])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_type::KvTypes;
    use crate::plan::{Accelerator, PlanReport, Planner, Vendor};

    const GIB: u64 = 1 << 30;

    fn node(id: &str, backend: &str, gib: u64) -> Node {
        Node::new(id).backends([backend]).memory(gib * GIB, 2 * gib * GIB)
    }

    fn mesh(nodes: Vec<Node>) -> Cluster {
        Cluster::mesh(nodes, LinkSpeed::DEFAULT)
    }

    fn card(gib: u64, n_layers: usize, backend: &str) -> ModelCard {
        let mut card = ModelCard::new("org/model", gib * GIB, n_layers, 4096);
        card.num_key_value_heads = Some(8);
        card.placement.compatible_backends = [backend.to_owned()].into();
        card
    }

    /// What a refusal says that would fit.
    fn would_fit(card: &ModelCard, cluster: &Cluster, request: &Request) -> Vec<String> {
        let error = Planner::plan(card, cluster, request).unwrap_err();
        error.detail::<PlanReport>().unwrap().would_fit.clone()
    }

    #[test]
    fn quantised_keys_and_values_are_proposed_where_engines_have_them() {
        let request = |kv: KvTypes| Request::default().context_tokens(32_768).kv(kv);
        let proposed = |backend: &str, kv: KvTypes| {
            let (card, cluster) = (card(1, 32, backend), mesh(vec![node("a", backend, 5)]));
            let way = format!("keys and values in {}", KvType::Q8_0);
            let is_proposed = would_fit(&card, &cluster, &request(kv)).contains(&way);
            assert_eq!(is_proposed, Planner::plan(&card, &cluster, &request(KvType::Q8_0.into())).is_ok());
            is_proposed
        };
        assert!(proposed("skulk-cpu", KvTypes::default()));
        assert!(proposed("skulk-cpu", KvType::F32.into()));
        assert!(!proposed("skulk-candle-cuda", KvTypes::default()));
    }

    #[test]
    fn the_largest_quantization_that_fits_is_proposed() {
        let library = CardLibrary::builtin();
        let card = |bits: &str| library.get(&format!("mlx-community/Qwen3-Coder-Next-{bits}")).unwrap();
        let proposed = |card: &ModelCard, gib: u64| {
            let cluster = mesh(vec![node("a", "mlx", gib)]);
            let ways = would_fit(card, &cluster, &Request::default());
            let found =
                ways.iter().find_map(|way| way.strip_prefix("another quantization: `")?.split('`').next());
            let plans =
                |id: &str| Planner::plan(library.get(id).unwrap(), &cluster, &Request::default()).is_ok();
            assert!(found.is_none_or(plans), "{ways:?}");
            found.and_then(|id| id.rsplit('-').next()).map(str::to_owned)
        };
        assert_eq!(proposed(card("bf16"), 128).as_deref(), Some("8bit"));
        assert_eq!(proposed(card("bf16"), 90).as_deref(), Some("6bit"));
        assert_eq!(proposed(card("8bit"), 60).as_deref(), Some("4bit"));
        assert_eq!(proposed(card("8bit"), 40), None);
        assert_eq!(proposed(card("4bit"), 40), None);
        // Of the same base, but another model.
        let thinks = library.get("mlx-community/Qwen3-Next-80B-A3B-Thinking-8bit").unwrap();
        let ways = would_fit(thinks, &mesh(vec![node("a", "mlx", 80)]), &Request::default());
        assert!(ways.iter().any(|way| way.contains("Thinking-4bit")), "{ways:?}");
        // A checkpoint's own bytes say nothing of another's.
        let request = Request::default().inventory(crate::plan::Inventory::from_card(card("8bit")));
        let ways = would_fit(card("8bit"), &mesh(vec![node("a", "mlx", 60)]), &request);
        assert!(ways.iter().any(|way| way.contains("Next-4bit")), "{ways:?}");
    }

    #[test]
    fn the_disk_is_proposed_with_its_speed() {
        let proposed = |card: &ModelCard, backend: &str| {
            let cluster = mesh(vec![node("a", backend, 40).disk_bytes_per_second(1e9)]);
            let ways = would_fit(card, &cluster, &Request::default());
            let way = ways.iter().find(|way| way.contains("from disk")).cloned();
            let plan = Planner::plan(card, &cluster, &Request::default().from_disk(true));
            assert_eq!(way.is_some(), plan.is_ok());
            way.zip(plan.ok()).map(|(way, plan)| {
                let rate = plan.report().unwrap().estimate.unwrap().tokens_per_second;
                assert!(way.ends_with(&format!("{rate:.2} tok/s")), "{way}");
            })
        };
        assert!(proposed(&card(60, 40, "skulk-cpu"), "skulk-cpu").is_some());
        assert!(proposed(&card(60, 40, "mlx"), "mlx").is_none());
        assert!(proposed(&card(600, 40, "skulk-cpu"), "skulk-cpu").is_none());
    }

    #[test]
    fn one_more_node_is_as_small_as_can_be() {
        let (card, nodes) =
            (card(40, 40, "skulk-cpu"), vec![node("a", "skulk-cpu", 12), node("another", "skulk-cpu", 12)]);
        let both = |a: &str, b: &str| [Link::socket(a, b, ""), Link::socket(b, a, "")];
        for cluster in [mesh(nodes.clone()), Cluster::new(nodes.clone(), both("a", "another").into())] {
            let ways = would_fit(&card, &cluster, &Request::default());
            let gib = ways.iter().find_map(|way| way.strip_prefix("one more node of ")?.split(' ').next());
            let gib: u64 = gib.unwrap_or_else(|| panic!("{ways:?}")).parse().unwrap();
            let with = |gib: u64| {
                let mut nodes = nodes.clone();
                nodes.push(Node::new("c").backends(["skulk-cpu"]).memory(gib * GIB, gib * GIB));
                Planner::plan(&card, &mesh(nodes), &Request::default()).is_ok()
            };
            let smaller = MACHINES[MACHINES.iter().position(|it| *it == gib).unwrap() - 1];
            assert!(with(gib) && !with(smaller), "{gib}");
        }
        let huge = self::card(4000, 40, "skulk-cpu");
        let ways = would_fit(&huge, &mesh(nodes), &Request::default());
        assert!(!ways.iter().any(|way| way.contains("one more node")), "{ways:?}");
    }

    /// As many bytes as are proposed, as they are written, are enough for the machine to have more of.
    #[test]
    fn more_memory_that_is_proposed_is_enough() {
        let gpu = |gib: u64| {
            let device = Accelerator::new(Vendor::Nvidia).name("GPU").backend("skulk-wgpu-vulkan:0");
            device.vram_total_bytes(gib * GIB).vram_used_bytes(0)
        };
        let with_gpu = |gib: u64| {
            let tags = ["skulk-wgpu-vulkan:0"];
            Node::new("a").backends(tags).memory(8 * GIB, 16 * GIB).accelerator(gpu(gib))
        };
        let mut proposed = 0;
        for (backend, node) in [
            ("skulk-cpu", Node::new("a").backends(["skulk-cpu"]).memory(120 * GIB, 128 * GIB)),
            ("skulk-cpu", Node::new("a").backends(["skulk-cpu"]).memory(100 * GIB, 128 * GIB)),
            ("skulk-cpu", Node::new("a").backends(["skulk-cpu"]).memory(10 * GIB, 128 * GIB)),
            ("skulk-wgpu", with_gpu(80)),
        ] {
            let card = card(131, 80, backend);
            let ways = would_fit(&card, &mesh(vec![node.clone()]), &Request::default());
            let Some(way) = ways.iter().find_map(|way| way.strip_prefix("more memory: ")) else { continue };
            let (number, rest) = way.split_once(' ').unwrap();
            assert!(rest == "GiB on `a` (main memory)" || rest == "GiB on `a` (GPU)", "{way}");
            let bytes = (number.parse::<f64>().unwrap() * GIB as f64) as u64 + 1;
            let mut richer = node.clone();
            match richer.accelerators.first_mut() {
                Some(gpu) => gpu.vram_total_bytes = gpu.vram_total_bytes.map(|old| old + bytes),
                None => {
                    let memory = richer.memory.unwrap();
                    richer = richer.memory(memory.ram_available + bytes, memory.ram_total + bytes);
                }
            }
            Planner::plan(&card, &mesh(vec![richer]), &Request::default()).unwrap();
            proposed += 1;
        }
        assert_eq!(proposed, 4);
    }

    #[test]
    fn the_first_that_fits_is_found_in_few_steps() {
        for n in 0..20usize {
            let ways: Vec<usize> = (0..n).collect();
            for least in 0..=n {
                let tried = std::cell::Cell::new(0);
                let fits = |way: &usize| {
                    tried.set(tried.get() + 1);
                    *way >= least
                };
                assert_eq!(first(&ways, fits).copied(), Some(least).filter(|least| *least < n));
                assert!(tried.get() <= 6, "{} of {n}", tried.get());
            }
        }
    }
}
