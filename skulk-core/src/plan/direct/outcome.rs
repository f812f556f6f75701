//! What came out? A placement with its report, or a refusal that says what would help.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::arrange::Arrangement;
use super::cost::Owner;
use super::disk::OnDisk;
use super::problem::{Load, Problem};
use super::replicas::Replicas;
use super::ways::ways;
use super::{can_be, search_forced, speculation};
use crate::bytes::ByteSize;
use crate::error::{Error, ErrorKind};
use crate::plan::backend::{engine_of, is_candles, keeps, may_run, serves};
use crate::plan::ceiling;
use crate::plan::check::{CANDLE_RUNS_NOT, LISTED};
use crate::plan::cluster::{Cluster, LinkSpeed, NodeId};
use crate::plan::instance::Instance;
use crate::plan::placement::Placement;
use crate::plan::report::{
    Candidate, ContextCeiling, NodeReport, PlanReport, PromptEstimate, Refusal, Rule, RuleReport,
};
use crate::plan::request::Request;
use crate::plan::stage::{Budget, ExpertShard, Part, Stage};
use crate::plan::strictness::Strictness;

/// Tokens beyond which no context is looked for.
const MOST_TOKENS: u64 = 1 << 40;

/// The share of a time, in percent, above which links are worth a warning.
const MOST_ON_LINKS: f64 = 50.0;

fn loads(problem: &Problem<'_>, arrangement: &Arrangement, replicas: &[Owner]) -> Vec<Load> {
    let layers = &problem.inventory.layers;
    let costs = problem.costs();
    let mut loads: BTreeMap<usize, Load> = BTreeMap::new();
    let seats = arrangement.seats(problem);
    let mut away = vec![false; layers.len()];
    arrangement.owners.iter().for_each(|owner| away[owner.layer] = true);
    for (seat, range) in &arrangement.stages {
        let load = loads.entry(*seat).or_insert_with(|| Load::of(*seat));
        load.layers = range.clone();
        let device = &seats[*seat];
        for (layer, away) in layers[range.clone()].iter().zip(&away[range.clone()]) {
            load.seconds += costs.attention(device, layer) + costs.shared(device, layer);
            if *away {
                load.feed_forward = load.feed_forward.saturating_add(layer.shared());
            } else {
                load.feed_forward = load.feed_forward.saturating_add(layer.feed_forward());
                load.experts += layer.blocks().0;
                load.seconds += costs.experts(device, layer, layer.n_experts);
            }
        }
        if range.end == layers.len() {
            load.seconds += costs.head(device);
        }
    }
    let owners = arrangement.owners.iter().map(|owner| (owner, false));
    for (owner, is_replica) in owners.chain(replicas.iter().map(|owner| (owner, true))) {
        let load = loads.entry(owner.seat).or_insert_with(|| Load::of(owner.seat));
        let layer = &layers[owner.layer];
        load.add(owner, layer);
        if !is_replica {
            load.seconds += costs.experts(&seats[owner.seat], layer, owner.experts.len());
        }
    }
    if let Some(disk) = arrangement.disk
        && let Some(load) = loads.get_mut(&disk.seat)
    {
        load.on_disk = disk.bytes;
    }
    // Stages first, by rank.
    let mut ordered: Vec<Load> =
        arrangement.stages.iter().filter_map(|(seat, _)| loads.remove(seat)).collect();
    ordered.extend(loads.into_values());
    ordered
}

fn node_reports(problem: &Problem<'_>, loads: &[Load]) -> Vec<NodeReport> {
    let report = |load: &Load| {
        let seat = &problem.seats[load.seat];
        NodeReport {
            node: problem.ids[seat.node].clone(),
            address: problem.addresses[seat.node].map(str::to_owned),
            role: problem.roles[seat.node],
            backend: seat.backend.clone(),
            device: seat.device.clone(),
            layers: load.layers.clone(),
            experts: load.experts,
            bytes: problem.bytes(load.seat, &load.layers, load.feed_forward.saturating_sub(load.on_disk)),
            usable: seat.usable,
            on_disk: load.on_disk,
            drafter: problem.drafter(load.seat, &load.layers),
            seconds_per_token: Some(load.seconds),
        }
    };
    loads.iter().map(report).collect()
}

/// Tokens whose keys and values fit beside a stage's weights, with what grows with them, and on which node that is least.
fn tokens_in_memory(problem: &Problem<'_>, reports: &[NodeReport]) -> Option<(u64, NodeId)> {
    let tokens = reports.iter().filter_map(|report| {
        let backend = report.backend.as_deref();
        let copied = |tokens: u64| problem.copied_by(backend, &report.layers, tokens);
        let grown = report.bytes.kv_cache.saturating_add(copied(problem.request.context_tokens));
        let room = report.usable.saturating_sub(report.bytes.total().saturating_sub(grown));
        let kv = |tokens: u64| problem.kept_by(&report.layers, tokens).saturating_add(copied(tokens));
        if kv(MOST_TOKENS) <= room {
            return None;
        }
        // The largest number whose keys and values fit, by halving.
        let (mut fits, mut not) = (0, MOST_TOKENS);
        while not - fits > 1 {
            let middle = fits + (not - fits) / 2;
            if kv(middle) <= room { fits = middle } else { not = middle }
        }
        Some((fits, report.node.clone()))
    });
    tokens.min()
}

fn context_ceiling(problem: &Problem<'_>, reports: &[NodeReport]) -> ContextCeiling {
    let memory = match problem.request.strictness {
        Strictness::Force => None,
        _ => tokens_in_memory(problem, reports),
    };
    let engine = reports.iter().find_map(|report| engine_of(report.backend.as_deref()?));
    let memory = memory.as_ref().map(|(tokens, node)| (*tokens, node));
    ceiling::ceiling(problem.card, problem.inventory.context, engine, memory)
}

fn report(problem: &Problem<'_>, rules: Vec<RuleReport>, nodes: Vec<NodeReport>) -> PlanReport {
    let ceiling = context_ceiling(problem, &nodes);
    PlanReport {
        weights: problem.inventory.weights(),
        exact: problem.inventory.exact,
        guessed: problem.guessed(),
        nodes,
        ..PlanReport::new(problem.card, problem.request, &problem.ids, rules, ceiling)
    }
}

fn candidates(problem: &Problem<'_>, best: &Arrangement, others: &[Arrangement]) -> Vec<Candidate> {
    let candidate = |arrangement: &Arrangement, chosen: bool, reason: String| {
        let nodes = arrangement.nodes(problem);
        Candidate {
            nodes: nodes.into_iter().map(|node| problem.ids[node].clone()).collect(),
            arrangement: arrangement.words.clone(),
            estimate: Some(arrangement.estimate),
            chosen,
            reason,
        }
    };
    let reason = match others.len() {
        0 => "nothing else fits".to_owned(),
        n => format!("the fastest of {} that fit", n + 1),
    };
    let slower = others.iter().take(PlanReport::LISTED - 1).map(|other| {
        let ratio = other.estimate.seconds() / best.estimate.seconds().max(f64::MIN_POSITIVE);
        let reason = match ratio {
            ratio if ratio > 1.0 => format!("takes {ratio:.2} times as long"),
            _ => "as fast, on more devices or tried later".to_owned(),
        };
        candidate(other, false, reason)
    });
    [candidate(best, true, reason)].into_iter().chain(slower).collect()
}

fn prompt(problem: &Problem<'_>, arrangement: &Arrangement) -> Option<PromptEstimate> {
    let Arrangement { stages, owners, .. } = arrangement;
    problem.costs().prompt(&arrangement.seats(problem), stages, owners, problem.request.prompt_tokens)
}

/// What a user should know of times: links that take most of them, devices of which nobody says how fast they are.
fn warnings(problem: &Problem<'_>, best: &Arrangement, prompt: Option<&PromptEstimate>) -> Vec<String> {
    let estimate = &best.estimate;
    let mut warnings = Vec::new();
    let mut seats: Vec<usize> = best.stages.iter().map(|(seat, _)| *seat).collect();
    seats.extend(best.owners.iter().map(|owner| owner.seat));
    seats.sort_unstable();
    seats.dedup();
    for seat in seats.into_iter().map(|seat| &problem.seats[seat]) {
        if let Some(name) = &seat.unknown {
            warnings.push(format!(
                "no speed is known of `{name}` on node `{}`: {:.0} GB/s are assumed; give its bytes_per_second",
                problem.ids[seat.node],
                seat.rate / 1e9
            ));
        }
    }
    if let Some(seat) = best.disk.filter(OnDisk::is_read).map(|disk| &problem.seats[disk.seat])
        && let Some(disk) = seat.disk.filter(|disk| disk.assumed)
    {
        warnings.push(format!(
            "no speed is known of the disk of node `{}`: {:.0} GB/s are assumed; give its disk_bytes_per_second",
            problem.ids[seat.node],
            disk.rate / 1e9
        ));
    }
    warnings.truncate(PlanReport::LISTED);
    let percent = |part: f64, whole: f64| 100.0 * part / whole.max(f64::MIN_POSITIVE);
    let token = percent(estimate.hop_seconds + estimate.fan_out_seconds, estimate.seconds());
    if token > MOST_ON_LINKS {
        warnings.push(format!(
            "links take {token:.0} % of a token's time: use links with shorter round trips, or fewer nodes"
        ));
    }
    if let Some(prompt) = prompt {
        let share = percent(prompt.link_seconds, prompt.seconds);
        if share > MOST_ON_LINKS {
            warnings.push(format!(
                "links take {share:.0} % of the {:.1} s until the first token of a prompt of {} tokens: use links of \
                 more bytes a second, or fewer nodes",
                prompt.seconds, prompt.tokens
            ));
        }
    }
    warnings
}

/// The placement that an arrangement means.
pub(super) fn placement(
    problem: &Problem<'_>,
    mut rules: Vec<RuleReport>,
    best: &Arrangement,
    others: &[Arrangement],
) -> Placement {
    rules.push(RuleReport::new(Rule::Best, 1 + others.len(), Vec::new()));
    let loads_alone = loads(problem, best, &[]);
    let mut free = vec![0; problem.seats.len()];
    for (seat, free) in free.iter_mut().enumerate() {
        *free = problem.room_for_blocks(seat, 1.0).bytes;
    }
    for (load, report) in loads_alone.iter().zip(node_reports(problem, &loads_alone)) {
        free[load.seat] = report.usable.saturating_sub(report.bytes.total());
    }
    let replicas = Replicas::new(problem, best, &mut free, problem.request.replicas);
    let nodes = node_reports(problem, &loads(problem, best, &replicas.owners));

    let stage = |(seat, layers): &(usize, Range<usize>)| Stage {
        node: problem.ids[problem.seats[*seat].node].clone(),
        backend: problem.seats[*seat].backend.clone(),
        layers: layers.clone(),
        part: Part::Whole,
    };
    let stages: Vec<Stage> = best.stages.iter().map(stage).collect();
    let budgets = nodes.iter().map(|report| Budget::new(report, problem.request.strictness)).collect();
    let coordinator = stages.first().map_or_else(|| NodeId::new(NodeId::LOCAL), |stage| stage.node.clone());
    let mut report = report(problem, rules, nodes);
    report.candidates = candidates(problem, best, others);
    report.estimate = Some(best.estimate);
    report.prompt = prompt(problem, best);
    report.warnings.extend(warnings(problem, best, report.prompt.as_ref()));
    report.warnings.extend(replicas.warning(problem.request.replicas));
    report.speculation = Some(speculation::decide(problem, best));
    let experts = expert_shards(problem, &best.owners, &replicas.owners);
    Placement {
        n_layers: problem.inventory.layers.len(),
        stages,
        addresses: addresses(&experts, &report),
        experts,
        budgets,
        ffn_budget: best.disk.map(|disk| disk.budget),
        weights: Some(problem.inventory.weights()).filter(|weights| *weights > 0),
        context_tokens: Some(problem.request.context_tokens),
        sessions: Some(problem.request.sessions),
        kv: problem.request.kv,
        context_limit: report.context.tokens,
        card: Some(Arc::new(problem.card.clone())),
        instance: Instance::Direct { coordinator },
        ids: None,
        report: Some(Arc::new(report)),
    }
}

/// Where nodes serve experts, as far as that is known.
fn addresses(experts: &[ExpertShard], report: &PlanReport) -> BTreeMap<NodeId, String> {
    let serving = report.nodes.iter().filter(|node| experts.iter().any(|shard| shard.node == node.node));
    serving.filter_map(|node| Some((node.node.clone(), node.address.clone()?))).collect()
}

/// Owners, sorted by layer, as ranges of layers.
fn expert_shards(problem: &Problem<'_>, owners: &[Owner], replicas: &[Owner]) -> Vec<ExpertShard> {
    let mut shards = Vec::new();
    for (owners, replica) in [(owners, false), (replicas, true)] {
        // Per device, experts and their number: the shard that may go on with the next layer.
        let mut open: BTreeMap<(usize, usize, usize, usize), ExpertShard> = BTreeMap::new();
        for owner in owners {
            let n_experts = problem.inventory.layers[owner.layer].blocks().0;
            let seat = &problem.seats[owner.seat];
            let new = ExpertShard {
                node: problem.ids[seat.node].clone(),
                backend: seat.backend.clone(),
                layers: owner.layer..owner.layer + 1,
                experts: owner.experts.clone(),
                n_experts,
                replica,
            };
            let key = (owner.seat, owner.experts.start, owner.experts.end, n_experts);
            match open.get_mut(&key) {
                Some(shard) if shard.layers.end == owner.layer => shard.layers.end += 1,
                _ => shards.extend(open.insert(key, new)),
            }
        }
        shards.extend(open.into_values());
    }
    shards.sort_by(|a, b| {
        let key = |it: &ExpertShard| (it.replica, it.layers.start, it.experts.start);
        key(a).cmp(&key(b)).then_with(|| a.node.cmp(&b.node))
    });
    shards
}

/// The error of a refusal, with its report.
pub(super) fn refusal(
    problem: &Problem<'_>,
    cluster: &Cluster,
    rules: Vec<RuleReport>,
    (rule, message): (Rule, String),
    pending: &[NodeId],
) -> Error {
    let mut nodes = Vec::new();
    let mut would_fit = Vec::new();
    let (mut rule, mut message) = (rule, message);
    if rule == Rule::Memory && message.is_empty() {
        let fixed = node_reports(problem, &problem.fixed_loads());
        let over: Vec<&NodeReport> = fixed.iter().filter(|node| node.over() > 0).collect();
        match search_forced(problem).best {
            Some(_) if !over.is_empty() => {
                let listed = over.iter().take(PlanReport::LISTED).map(|node| {
                    let (needed, usable) = (ByteSize(node.bytes.total()), ByteSize(node.usable));
                    format!("{needed} on `{}` ({}), which has {usable}", node.node, node.device)
                });
                let listed: Vec<String> = listed.collect();
                message = format!("expected room for what is fixed by hand, found {}", listed.join("; "));
                would_fit = ways(problem, cluster, &fixed);
                nodes = fixed;
            }
            Some(closest) => {
                nodes = node_reports(problem, &loads(problem, &closest, &[]));
                message = too_little(problem, &closest, &nodes);
                would_fit = ways(problem, cluster, &nodes);
            }
            None if problem.whole_layers(&[]).overflow() => {
                message = "expected less than 16 EiB of weights, keys and values, found more".to_owned();
            }
            None => (rule, message) = left_nothing(problem, cluster),
        }
    }
    let pending = !pending.is_empty() && matches!(rule, Rule::Memory | Rule::Connected | Rule::Required);
    let kind = if pending { ErrorKind::PlanPending } else { ErrorKind::PlanNoFit };
    let hint = match (pending, would_fit.is_empty()) {
        (true, _) => "some nodes have not reported their memory yet: ask again shortly".to_owned(),
        (false, false) => format!("it would fit with {}", would_fit.join("; or with ")),
        (false, true) if rule == Rule::Eligible => eligible_with(problem, cluster).to_owned(),
        (false, true) => advice(rule).to_owned(),
    };
    let mut report = report(problem, rules, nodes);
    report.refused = Some(Refusal { rule, message: message.clone(), pending });
    report.would_fit = would_fit;
    Error::new(kind, message)
        .with("model", &problem.card.model_id)
        .with("rule", rule.as_str())
        .with_hint(hint)
        .with_detail(report)
}

/// Which rule leaves no way to place the model, however much memory there is: the one without which there is a way.
fn left_nothing(problem: &Problem<'_>, cluster: &Cluster) -> (Rule, String) {
    let Problem { card, request, .. } = *problem;
    let can_be = |cluster: &Cluster, request: &Request| {
        let problem = Problem::new(card, cluster, request, &mut Vec::new());
        problem.is_ok_and(|(problem, _)| can_be(&problem))
    };
    let linked = Cluster { mesh: cluster.mesh.or(Some(LinkSpeed::DEFAULT)), ..cluster.clone() };
    let of = |min_nodes: usize| can_be(&linked, &Request { min_nodes, ..request.clone() });
    let anyhow = || Request { min_nodes: 1, required_nodes: BTreeSet::new(), ..request.clone() };
    if of(1) && !of(request.min_nodes) {
        let (mut most, mut not) = (1, request.min_nodes);
        while not - most > 1 {
            let middle = most + (not - most) / 2;
            if of(middle) { most = middle } else { not = middle }
        }
        let asked = request.min_nodes;
        return (
            Rule::Layers,
            format!("expected parts of the model for {asked} nodes, found some for {most}"),
        );
    }
    if !of(1) && can_be(&linked, &anyhow()) {
        let nodes = request.required_nodes.iter().take(PlanReport::LISTED).map(|id| format!("`{id}`"));
        let nodes = nodes.collect::<Vec<_>>().join(", ");
        let message =
            format!("expected parts of the model for each node that must be used, found too few for {nodes}");
        return (Rule::Required, message);
    }
    let free = || Request { fixed: None, ..anyhow() };
    if request.fixed.is_some() && !can_be(&linked, &anyhow()) && can_be(&linked, &free()) {
        let message = "expected a way to place the rest around what is fixed by hand, found none";
        return (Rule::Layers, message.to_owned());
    }
    let message = "the nodes that must or may be used are not linked with a coordinator in both directions";
    (Rule::Connected, message.to_owned())
}

/// What the placement that came closest needs, and what the devices have that could take part in it.
fn too_little(problem: &Problem<'_>, closest: &Arrangement, nodes: &[NodeReport]) -> String {
    let node = |seat: usize| problem.seats[seat].node;
    let coordinator = closest.stages.first().map_or(0, |(seat, _)| node(*seat));
    let group = closest.group(problem);
    let is_linked = |seat: &usize| node(*seat) == coordinator || problem.links.join(coordinator, node(*seat));
    let (reached, apart): (Vec<usize>, Vec<usize>) = group.into_iter().partition(is_linked);
    let usable = reached.iter().map(|&seat| problem.seats[seat].usable).fold(0, u64::saturating_add);
    let needed = nodes.iter().map(|node| node.bytes.total()).fold(0, u64::saturating_add);
    let devices = match reached.len() {
        1 => "1 device".to_owned(),
        n => format!("{n} devices that can share the work"),
    };
    let but = match apart.len() {
        _ if usable >= needed => ", in pieces that are too small".to_owned(),
        0 => String::new(),
        n => format!("; not linked with `{}` in both directions: {n} more", problem.ids[coordinator]),
    };
    format!(
        "expected {} for weights, keys and values of {} tokens, and margins, found {} on {devices}{but}",
        ByteSize(needed),
        problem.request.context_tokens,
        ByteSize(usable)
    )
}

/// What to do where no node has a backend that the card lists, or none of those that have one takes attention.
fn eligible_with(problem: &Problem<'_>, cluster: &Cluster) -> &'static str {
    let listed = &problem.card.placement.compatible_backends;
    let tags = || cluster.nodes.iter().filter_map(|node| node.backends.as_ref()).flatten();
    let mut fitting = tags().filter(|tag| listed.iter().any(|card| serves(tag, card))).peekable();
    if fitting.peek().is_none() {
        let is_candles = tags().any(|tag| is_candles(tag) && !may_run(tag, listed));
        return if is_candles { CANDLE_RUNS_NOT } else { LISTED };
    }
    match fitting.any(|tag| keeps(tag, problem.request.kept())) {
        true => "give a node with a backend that the card lists the role full",
        false => "ask for keys and values in f16, or use nodes with backends that keep them so",
    }
}

fn advice(rule: Rule) -> &'static str {
    match rule {
        Rule::SingleNodeEngine => {
            "MLX works over several nodes with the transports mlx_ring and mlx_jaccl; of other engines ask for one node"
        }
        Rule::TensorDivisible => "ask for sharding pipeline, or for the transport mlx_ring or mlx_jaccl",
        Rule::Excluded => "exclude fewer nodes",
        Rule::Layers => "ask for fewer nodes, or fix less by hand",
        Rule::MinVram => "use nodes with larger accelerators, or lower the card's min_vram_gib",
        _ => "add nodes or links, or ask for less",
    }
}
