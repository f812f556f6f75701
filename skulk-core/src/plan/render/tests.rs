use super::*;
use crate::card::ModelCard;
use crate::plan::cluster::{NodeId, Role};
use crate::plan::report::{
    Bytes, ContextCeiling, ContextLimit, Estimate, NodeReport, Rejection, Rule, RuleReport, Speculation,
};
use crate::plan::request::{Request, Transport};
use proptest::prelude::*;

fn report(model_id: &str) -> PlanReport {
    let card = ModelCard::new(model_id, 0, 1, 1);
    let context = ContextCeiling { tokens: None, limited_by: ContextLimit::Nothing };
    PlanReport::new(&card, &Request::default(), &[&NodeId::new("a")], Vec::new(), context)
}

fn device(node: &str, role: Role, layers: std::ops::Range<usize>, experts: usize) -> NodeReport {
    NodeReport {
        node: NodeId::new(node),
        address: None,
        role,
        backend: Some("skulk-cpu".to_owned()),
        device: "main memory".to_owned(),
        layers,
        experts,
        bytes: Bytes::default(),
        usable: 0,
        on_disk: 0,
        drafter: None,
        seconds_per_token: None,
    }
}

/// The report of a snapshot in JSON.
fn of_json(json: &str) -> PlanReport {
    serde_json::from_str(json).unwrap()
}

/// A small model on the only node there is.
fn one_node() -> PlanReport {
    of_json(include_str!("snapshots/one_node.json"))
}

/// Attention on a GPU, experts on two memory nodes, one of which is asked for more than it has.
fn experts() -> PlanReport {
    of_json(include_str!("snapshots/experts.json"))
}

/// What no node of a ring can hold.
fn refusal() -> PlanReport {
    of_json(include_str!("snapshots/refusal.json"))
}

type Form = (&'static str, fn(&PlanReport) -> String);

const FORMS: [Form; 5] = [
    ("txt", |report| report.to_string()),
    ("json", PlanReport::to_json),
    ("md", PlanReport::to_markdown),
    ("html", PlanReport::to_html),
    ("svg", PlanReport::to_svg),
];

macro_rules! snapshots {
    ($name:literal) => {
        [
            include_str!(concat!("snapshots/", $name, ".txt")),
            include_str!(concat!("snapshots/", $name, ".json")),
            include_str!(concat!("snapshots/", $name, ".md")),
            include_str!(concat!("snapshots/", $name, ".html")),
            include_str!(concat!("snapshots/", $name, ".svg")),
        ]
    };
}

#[test]
fn reports_read_as_in_the_snapshots() {
    let cases = [
        ("one_node", one_node(), snapshots!("one_node")),
        ("experts", experts(), snapshots!("experts")),
        ("refusal", refusal(), snapshots!("refusal")),
    ];
    for (name, report, expected) in cases {
        for ((extension, render), expected) in FORMS.into_iter().zip(expected) {
            let found = render(&report);
            if std::env::var_os("SKULK_WRITE_SNAPSHOTS").is_some() {
                let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/plan/render/snapshots");
                std::fs::write(format!("{folder}/{name}.{extension}"), &found).unwrap();
            } else {
                assert_eq!(found, expected.replace("\r\n", "\n"), "{name}.{extension}");
            }
        }
    }
}

#[test]
fn json_is_read_as_the_report_it_was() {
    for report in [one_node(), experts(), refusal()] {
        assert_eq!(serde_json::from_str::<PlanReport>(&report.to_json()).unwrap(), report);
    }
}

#[test]
fn every_form_begins_with_the_outcome() {
    for report in [one_node(), experts(), refusal()] {
        let outcome = view::outcome(&report);
        assert!(report.to_string().starts_with(&outcome));
        assert!(report.to_markdown().starts_with("**"));
        assert!(report.to_json().starts_with(&format!("{{\n  \"outcome\": \"{outcome}\"")), "{outcome}");
        for form in [report.to_html(), report.to_svg()] {
            assert!(form.contains(&markup::escape(&outcome)), "{outcome}");
        }
    }
    assert!(refusal().to_string().starts_with("Refused: "));
    let mut pending = refusal();
    pending.refused.as_mut().unwrap().pending = true;
    assert!(pending.to_string().starts_with("Pending: "));
}

/// Elements are closed in the order in which they were opened, attributes are quoted, and there is no
/// other markup.
fn check_markup(text: &str) -> Result<usize, String> {
    let mut open: Vec<&str> = Vec::new();
    let mut tags = 0;
    let mut rest = text;
    loop {
        let (data, tail) = rest.split_once('<').unwrap_or((rest, ""));
        let mut entities = data.split('&');
        entities.next();
        for entity in entities {
            let name = entity.split_once(';').ok_or(format!("a bare & before {entity:.20}"))?.0;
            if !["amp", "lt", "gt", "quot", "#39", "#160"].contains(&name) {
                return Err(format!("entity {name}"));
            }
        }
        if data.contains('>') {
            return Err(format!("a bare > in {data:.80}"));
        }
        if data.chars().any(|c| c.is_control() && c != '\n') {
            return Err("a control character".to_owned());
        }
        if tail.is_empty() {
            return if open.is_empty() { Ok(tags) } else { Err(format!("left open: {open:?}")) };
        }
        let (tag, after) = tail.split_once('>').ok_or("a tag without end")?;
        rest = after;
        tags += 1;
        if tag.matches('"').count() % 2 != 0 || tag.contains('<') {
            return Err(format!("tag {tag}"));
        }
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or("");
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("tag {tag}"));
        }
        if tag.starts_with('/') {
            let opened = open.pop();
            if opened != Some(name) {
                return Err(format!("{name} closes {opened:?}"));
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
}

/// No text of a picture goes beyond its frame or the picture, by the width of its font.
fn check_fits(svg: &str) {
    let number = |line: &str, key: &str| -> f64 {
        let from = line.find(&format!(" {key}=\"")).unwrap() + key.len() + 3;
        line[from..].split('"').next().unwrap().parse().unwrap()
    };
    let (wide, high) = (number(svg, "width"), number(svg, "height"));
    let frames: Vec<[f64; 4]> = svg
        .lines()
        .filter(|line| line.starts_with("<rect") && line.contains("rx=\"6\""))
        .map(|line| ["x", "y", "width", "height"].map(|key| number(line, key)))
        .collect();
    for [x, y, width, height] in &frames {
        assert!(x + width <= wide && y + height <= high);
    }
    for (i, a) in frames.iter().enumerate() {
        for b in &frames[i + 1..] {
            let apart =
                a[0] + a[2] <= b[0] || b[0] + b[2] <= a[0] || a[1] + a[3] <= b[1] || b[1] + b[3] <= a[1];
            assert!(apart, "{a:?} and {b:?}");
        }
    }
    for line in svg.lines().filter(|line| line.starts_with("<text")) {
        let (x, y) = (number(line, "x"), number(line, "y"));
        let text = line.split_once('>').unwrap().1.trim_end_matches("</text>");
        let text = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
            .iter()
            .fold(text.to_owned(), |text, (entity, c)| text.replace(entity, c));
        let end = x + 7.5 * words::width(&text) as f64;
        assert!(end <= wide && y <= high, "{line}");
        if let Some(frame) =
            frames.iter().find(|f| f[0] <= x && x < f[0] + f[2] && f[1] <= y && y < f[1] + f[3])
        {
            assert!(end <= frame[0] + frame[2], "{line}");
        }
    }
}

/// Every row of a table has the cells that its header has.
fn check_markdown(text: &str) {
    let mut columns = None;
    for line in text.lines() {
        if !line.starts_with('|') {
            columns = None;
            continue;
        }
        let pipes = line.matches('|').count() - line.matches("\\|").count();
        assert_eq!(*columns.get_or_insert(pipes), pipes, "{line}");
    }
}

fn check_all(report: &PlanReport) {
    for form in [report.to_html(), report.to_svg()] {
        check_markup(&form).unwrap();
        assert!(!form.contains("<script"));
    }
    check_fits(&report.to_svg());
    check_markdown(&report.to_markdown());
    let text = report.to_string();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(json["modelId"], report.model_id.as_str());
}

#[test]
fn the_check_of_markup_finds_faults() {
    for bad in ["<a>", "<a></b>", "<a>&</a>", "<a>&nbsp;</a>", "<a b=\"></a>", "</a>", "<a>></a>", "<>", "<a"]
    {
        assert!(check_markup(bad).is_err(), "{bad}");
    }
    assert_eq!(check_markup("<a b=\"1\">&lt;<c/></a>"), Ok(3));
}

#[test]
fn pictures_of_many_nodes_are_cut_short_and_say_so() {
    for nodes in [1, 2, 3, 7, 24, 25, 256] {
        for owners in [0, 1, 12, 195] {
            for transport in [Transport::Direct, Transport::MlxRing, Transport::MlxJaccl] {
                let mut report = report("m");
                report.transport = transport;
                report.cluster_nodes = nodes + owners;
                for i in 0..nodes {
                    report.nodes.push(device(&format!("stage-{i}"), Role::Full, i..i + 1, 1));
                }
                for i in 0..owners {
                    report.nodes.push(device(&format!("owner-{i}"), Role::FfnOnly, 0..0, 8));
                }
                check_all(&report);
                let svg = report.to_svg();
                let frames = svg.matches("rx=\"6\"").count();
                assert_eq!(frames, (nodes + owners).min(24));
                let hidden = |noun: &str, all: usize| {
                    let named = (0..all).filter(|i| svg.contains(&format!(">{noun}-{i}<"))).count();
                    let rest = all - named;
                    let says = format!("and {} more", words::count(rest, "node"));
                    assert!(rest == 0 || svg.contains(&says), "{says}");
                };
                hidden("stage", nodes);
                hidden("owner", owners);
            }
        }
    }
}

#[test]
fn long_tables_say_what_they_leave_out() {
    let mut report = report("m");
    for i in 0..70 {
        let mut node = device(&format!("n{i}"), Role::Full, i..i + 1, 1);
        node.bytes.attention = u64::from(i >= 68);
        report.nodes.push(node);
    }
    let rejected = vec![Rejection { nodes: vec![NodeId::new("a")], reason: "too small".to_owned() }];
    report.rules.push(RuleReport { rule: Rule::Memory, before: 100, after: 0, rejected });
    let text = report.to_string();
    assert!(text.contains("and 6 devices more, 2 of them over budget; the JSON has all"), "{text}");
    assert!(text.contains("and 99 more"), "{text}");
    assert!(text.contains("2 devices over budget"), "{text}");
}

fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("<script>alert(1)</script>".to_owned()),
        Just("\"'&<>|`*_[x](y)\\".to_owned()),
        Just("a\nb\r\nc\td\u{0}\u{1b}[31m\u{7f}\u{85}".to_owned()),
        Just("\u{202e}evil\u{2066}\u{feff}\u{ffff}\u{2028}".to_owned()),
        Just("]]>--><!-- &amp; &#60;".to_owned()),
        Just("模型/名字很长".repeat(40)),
        Just("x".repeat(20_000)),
        any::<String>(),
    ]
}

prop_compose! {
    fn hostile_report()(
        strings in proptest::collection::vec(hostile(), 12),
        numbers in proptest::collection::vec(any::<u64>(), 8),
        float in any::<f64>(),
        refused in any::<bool>(),
        layers in 0usize..9,
    ) -> PlanReport {
        let mut report = if refused { refusal() } else { experts() };
        let mut text = strings.into_iter().cycle();
        let mut next = || text.next().unwrap_or_default();
        report.model_id = next();
        report.weights = numbers[0];
        report.context_tokens = numbers[1];
        report.cluster_nodes = numbers[2] as usize;
        report.context = ContextCeiling {
            tokens: Some(numbers[3]),
            limited_by: ContextLimit::Memory(NodeId::new(next())),
        };
        report.estimate = Some(Estimate {
            tokens_per_second: float,
            attention_seconds: -float,
            feed_forward_seconds: f64::NAN,
            hop_seconds: f64::INFINITY,
            fan_out_seconds: f64::MIN_POSITIVE,
            draft_seconds: float,
        });
        report.speculation = Some(Speculation { on: true, reason: next() });
        for node in &mut report.nodes {
            node.node = NodeId::new(next());
            node.device = next();
            node.backend = Some(next());
            node.layers = numbers[4] as usize..(numbers[4] as usize).saturating_add(layers);
            node.bytes.attention = numbers[5];
            node.bytes.kv_cache = numbers[6];
            node.usable = numbers[7];
            node.seconds_per_token = Some(float);
            node.experts = usize::MAX;
        }
        for rule in &mut report.rules {
            rule.before = numbers[3] as usize;
            for rejection in &mut rule.rejected {
                rejection.nodes = vec![NodeId::new(next()); 9];
                rejection.reason = next();
            }
        }
        for candidate in &mut report.candidates {
            candidate.nodes = vec![NodeId::new(next())];
            candidate.arrangement = next();
            candidate.reason = next();
        }
        if let Some(refusal) = &mut report.refused {
            refusal.message = next();
        }
        report.would_fit = vec![next(), next()];
        report
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hostile_strings_and_numbers_break_no_form(report in hostile_report()) {
        check_all(&report);
    }
}
