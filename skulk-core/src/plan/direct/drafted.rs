//! Is what drafts counted where it runs, whatever the arrangement, and is its time estimated?

use proptest::prelude::*;

use super::tests::{card, clusters, gpu_node, memory_node, mesh, models, request};
use crate::error::ErrorKind;
use crate::plan::{
    Bytes, Drafter, Inventory, LayerBytes, Placement, PlanReport, Planner, Request, Strictness, Transport,
};

const MIB: u64 = 1 << 20;

/// One layer, with the model's embedding table and output head.
fn head() -> LayerBytes {
    LayerBytes { attention: 200 * MIB, ffn: 300 * MIB, kv_per_token: 4096, ..LayerBytes::default() }
}

/// As if it had been counted in a checkpoint, with a head for tokens ahead.
fn counted(card: &crate::ModelCard) -> Inventory {
    let mut inventory = Inventory::from_card(card);
    (inventory.exact, inventory.mtp_layer, inventory.mtp) = (true, Some(head()), 500 * MIB);
    (inventory.embedding, inventory.head) = (100 * MIB, 120 * MIB);
    inventory
}

/// A smaller model.
fn smaller() -> Inventory {
    let mut smaller = Inventory::from_card(&card(1, 12));
    (smaller.exact, smaller.vocabulary) = (true, 32_000);
    smaller
}

fn drafter(placement: &Placement) -> Drafter {
    let report = placement.report().unwrap();
    let found: Vec<_> = report.nodes.iter().filter(|node| node.drafter.is_some()).collect();
    assert_eq!(found.len(), 1, "{report}");
    // On the device of the last stage.
    let last = placement.stages().last().unwrap();
    assert_eq!((&found[0].node, &found[0].backend), (&last.node, &last.backend));
    assert_eq!(found[0].drafter.as_ref(), placement.drafter());
    *placement.drafter().unwrap()
}

#[test]
fn what_drafts_is_counted_on_the_last_stage_s_device() {
    let card = card(20, 40);
    let inventory = counted(&card);
    let cluster = mesh(vec![memory_node("a", 16), memory_node("b", 16)]);
    let asked = Request::default().inventory(inventory.clone()).sessions(2).context_tokens(4096);
    for (request, mtp, weights, kept) in [
        // In two stages the last one needs the embedding table, too.
        (asked.clone().mtp(true), true, 600 * MIB, 4096),
        (
            asked.clone().draft_model(smaller()),
            false,
            1024 * MIB,
            smaller().layers.iter().map(|it| it.kv_per_token).sum(),
        ),
    ] {
        let placement = Planner::plan(&card, &cluster, &request).unwrap();
        placement.check(&card).unwrap();
        placement.check_on(&card, &cluster, 4096).unwrap();
        assert_eq!(placement.stages().len(), 2, "{placement}");
        let found = drafter(&placement);
        assert_eq!((found.mtp, found.bytes.attention + found.bytes.feed_forward), (mtp, weights));
        assert_eq!(found.bytes.kv_cache, kept * 4096 * 2);
        let report = placement.report().unwrap();
        let held: u64 = report.nodes.iter().map(|node| node.bytes.attention + node.bytes.feed_forward).sum();
        assert_eq!(held, inventory.weights() + weights);
        assert!(report.nodes.iter().all(|node| node.over() == 0));
        // It is told, and comes back from JSON.
        let text = report.to_string();
        let line = text.lines().find(|line| line.starts_with("drafts ")).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(placement.stages()[1].node.as_str()), "{line}");
        assert_eq!(Placement::from_json(&placement.to_json()).unwrap().drafter(), Some(&found));
        let read: PlanReport = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(&read, report);
        // Where the first stage is the last one, it has the table.
        let alone = Planner::plan(&card, &mesh(vec![memory_node("a", 64)]), &request).unwrap();
        let copied = if mtp { 100 * MIB } else { 0 };
        let bytes = drafter(&alone).bytes;
        assert_eq!(bytes.attention + bytes.feed_forward, weights - copied);
    }
    let without = Planner::plan(&card, &cluster, &asked).unwrap();
    assert_eq!(without.drafter(), None);
    assert!(!without.to_json().contains("drafter"));
    assert!(!without.report().unwrap().to_json().contains("drafter"));
}

#[test]
fn what_drafts_must_fit_too() {
    let card = card(20, 40);
    let cluster = |gib: u64| mesh(vec![memory_node("a", gib)]);
    let plain = Request::default().inventory(counted(&card));
    let drafting = plain.clone().draft_model(smaller());
    let with = |gib: u64, request: &Request| Planner::plan(&card, &cluster(gib), request);
    let least = (20..64).find(|gib| with(*gib, &plain).is_ok()).unwrap();
    let error = with(least, &drafting).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlanNoFit);
    let report = error.detail::<PlanReport>().unwrap();
    assert!(report.would_fit.iter().any(|way| way == "nothing that drafts"), "{report}");
    assert!(report.nodes.iter().any(|node| node.drafter.is_some()), "{report}");
    with(least + 2, &drafting).unwrap();
    let forced = with(least, &drafting.clone().strictness(Strictness::Force)).unwrap();
    forced.check(&card).unwrap();
    // As much less context fits beside it as it takes.
    let limit = |request: &Request| with(least + 2, request).unwrap().context_limit().unwrap();
    assert!(limit(&drafting) < limit(&plain));
    // Its keys and values are kept as the model's are.
    let kept = |kv| drafter(&with(64, &drafting.clone().kv(kv)).unwrap()).bytes.kv_cache;
    assert_eq!(kept(crate::KvType::F32), 2 * kept(crate::KvType::F16));
}

/// Attention on an accelerator has less room for blocks, and what is fixed by hand leaves room for it.
#[test]
fn all_arrangements_count_it() {
    let card = card(20, 40);
    let inventory = counted(&card);
    let cluster = mesh(vec![gpu_node("a", 12, 64)]);
    let request = Request::default().inventory(inventory.clone()).mtp(true);
    let blocks = |request: &Request| {
        let placement = Planner::plan(&card, &cluster, request).unwrap();
        let report = placement.report().unwrap();
        assert!(report.nodes.iter().all(|node| node.over() == 0), "{report}");
        (report.nodes[0].experts, placement)
    };
    let attention = request.clone().fixed(Placement::builder(&inventory).engine("wgpu@a"));
    let (with, placement) = blocks(&attention);
    assert!(placement.stages().len() == 1 && !placement.experts().is_empty());
    drafter(&placement);
    assert!(with < blocks(&attention.mtp(false)).0);
    let rules = Placement::builder(&inventory).layers(30..40, "cpu@a");
    drafter(&blocks(&request.clone().fixed(rules)).1);
}

#[test]
fn its_time_is_estimated() {
    let card = card(20, 40);
    let cluster = mesh(vec![memory_node("a", 64).bytes_per_second(1e10)]);
    let plain = Request::default().inventory(counted(&card));
    let said = |request: &Request| {
        let placement = Planner::plan(&card, &cluster, request).unwrap();
        let report = placement.report().unwrap();
        let estimate = report.estimate.unwrap();
        let (priced, _) = Planner::price(&card, &cluster, request, &placement).unwrap();
        assert_eq!(priced, estimate);
        (estimate, report.speculation.clone().unwrap())
    };
    let (without, _) = said(&plain);
    assert_eq!(without.draft_seconds, 0.0);
    // Its layer and the model's output head.
    let (estimate, speculation) = said(&plain.clone().mtp(true));
    assert_eq!(estimate.seconds(), without.seconds());
    let read = (500 + 120) * MIB;
    assert!((0.9..1.1).contains(&(estimate.draft_seconds / (read as f64 / 1e10))), "{estimate:?}");
    assert!(speculation.on && speculation.reason.contains("620.0 MiB"), "{}", speculation.reason);
    assert!(speculation.reason.contains("head for tokens ahead takes 66."), "{}", speculation.reason);
    // On a processor a draft looks at 33,792 tokens of a large vocabulary.
    let large = Inventory { vocabulary: 4 * 33_792, ..counted(&card) };
    let (shorter, speculation) = said(&Request::default().inventory(large).mtp(true));
    assert!(speculation.reason.contains("530.0 MiB"), "{}", speculation.reason);
    assert!((shorter.draft_seconds / estimate.draft_seconds - 530.0 / 620.0).abs() < 0.02, "{shorter:?}");
    let percent = |reason: &str| {
        let words: Vec<&str> = reason.split(' ').collect();
        let at = words.iter().position(|word| *word == "%").unwrap();
        words[at - 1].parse::<f64>().unwrap()
    };
    let head = percent(&speculation.reason);
    assert!((200.0..333.0).contains(&head), "{}", speculation.reason);
    let (_, speculation) = said(&plain.clone().draft_model(smaller()));
    assert!(percent(&speculation.reason) < head && percent(&speculation.reason) > 100.0);
    // As large as the model itself: nothing is gained.
    let (_, speculation) = said(&plain.draft_model(counted(&card)));
    assert!(speculation.reason.contains("1 drafted token should"), "{}", speculation.reason);
    assert!(percent(&speculation.reason) < 100.0, "{}", speculation.reason);
}

#[test]
fn what_cannot_draft_is_refused_by_name() {
    let card = card(8, 32);
    let cluster = mesh(vec![memory_node("a", 64)]);
    let refused = |request: Request, field: &str| {
        let error = Planner::plan(&card, &cluster, &request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.context().contains(&("field", field.to_owned())), "{error}");
    };
    let headless = Inventory { mtp_layer: None, ..counted(&card) };
    refused(Request::default().inventory(headless).mtp(true), "mtp");
    refused(Request::default().mtp(true).draft_model(smaller()), "mtp");
    refused(Request::default().draft_model(Inventory::default()), "draft_model");
    refused(Request::default().draft_model(Inventory::of_experts(2, 1, 1, (4, 5), 1, 1)), "draft_model");
    refused(Request::default().transport(Transport::MlxRing).mtp(true), "mtp");
    refused(Request::default().transport(Transport::MlxRing).draft_model(smaller()), "draft_model");
    // Of a card alone, whose model has one of unknown size.
    let placement = Planner::plan(&card, &cluster, &Request::default().mtp(true)).unwrap();
    let guessed = placement.report().unwrap().guessed.join("; ");
    assert!(guessed.contains("of what drafts: the head for tokens ahead was taken for"), "{guessed}");
    let bytes = drafter(&placement).bytes;
    assert_eq!(bytes.attention + bytes.feed_forward, Inventory::from_card(&card).layers[31].total());
}

#[test]
fn budgets_say_where_it_is() {
    let card = card(20, 40);
    let cluster = mesh(vec![memory_node("a", 16), memory_node("b", 16)]);
    let request = Request::default().inventory(counted(&card)).mtp(true);
    let placement = Planner::plan(&card, &cluster, &request).unwrap();
    let with = |change: &dyn Fn(&mut Placement)| {
        let mut changed = placement.clone();
        change(&mut changed);
        changed.check(&card).unwrap_err().kind()
    };
    let elsewhere = |placement: &mut Placement| {
        let drafter = placement.budgets[1].drafter.take();
        placement.budgets[0].drafter = drafter;
    };
    let larger = |placement: &mut Placement| {
        let bytes = Bytes { kv_cache: u64::MAX, ..Bytes::default() };
        placement.budgets[1].drafter = Some(Drafter { mtp: true, bytes });
    };
    for change in [&elsewhere as &dyn Fn(&mut Placement), &larger] {
        assert_eq!(with(change), ErrorKind::PlacementInvalid);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the cluster: no device is over, and what fits with something that drafts fits without.
    #[test]
    fn it_fits_where_it_is_planned(
        cluster in clusters(), (card, inventory) in models(1), own in any::<bool>(), from_disk in any::<bool>(),
    ) {
        let inventory = inventory.unwrap_or_else(|| Inventory::from_card(&card));
        let request = request(Some(inventory), 1).from_disk(from_disk);
        let drafting = if own { request.clone().mtp(true) } else { request.clone().draft_model(smaller()) };
        let Ok(placement) = Planner::plan(&card, &cluster, &drafting) else { return Ok(()) };
        prop_assert!(placement.check(&card).is_ok(), "{:?}", placement.check(&card));
        prop_assert!(placement.report().unwrap().nodes.iter().all(|node| node.over() == 0));
        prop_assert_eq!(drafter(&placement).mtp, own);
        prop_assert!(Planner::plan(&card, &cluster, &request).is_ok());
    }
}
