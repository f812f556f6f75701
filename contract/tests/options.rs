//! Are options read as they were given, and refused by name where they cannot be?
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::single_range_in_vec_init, reason = "a test")]

use serde_json::{Map, Value, json};
use skulk::remote::wire::WireType;
use skulk::{ByteSize, Error, ErrorKind, KvType, KvTypes, TokenId, WhenFull};
use skulk_contract::by_hand::PlanRequest;
use skulk_contract::options::{
    DescribeOptions, EmbedOptions, EmbeddingOptions, GenerateOptions, LoadOptions, PlanOptions,
    ProfileOptions, RingsOptions, ServeOptions, SliceOptions, Spelling, grace,
};
use skulk_contract::price::{PriceOptions, PriceRequest};

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn load(value: &Value) -> skulk::Result<skulk::LoadOptions> {
    LoadOptions::read(fields(value), Spelling::Camel)
}

fn generate(value: &Value) -> skulk::Result<(skulk::GenerateOptions, bool)> {
    GenerateOptions::read(fields(value), Spelling::Camel)
}

fn refused<T>(found: skulk::Result<T>) -> Error {
    let error = found.err().expect("expected an error");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    error
}

#[test]
fn what_is_left_out_stays_as_the_library_has_it() {
    let (given, own) = (load(&json!({"threads": null})).unwrap(), skulk::LoadOptions::default());
    assert_eq!(
        (given.stages, given.context, given.prefill_chunk),
        (own.stages, own.context, own.prefill_chunk)
    );
    assert_eq!((given.kv, &given.node, &given.engine_options), (own.kv, &own.node, &own.engine_options));
    assert_eq!(
        (given.sessions, given.kv_memory, given.when_full),
        (own.sessions, own.kv_memory, own.when_full)
    );
    let ((given, append), own) = (generate(&json!({})).unwrap(), skulk::GenerateOptions::default());
    assert_eq!(format!("{:?}{:?}", given.sampling, given.stop), format!("{:?}{:?}", own.sampling, own.stop));
    assert!(!append && given.max_tokens.is_none());
    assert_eq!(PlanOptions::read(Map::new(), Spelling::Snake).unwrap(), PlanRequest::default());
    assert_eq!(PlanRequest::default().request, skulk::Request::default());
    assert_eq!(PriceOptions::read(Map::new(), Spelling::Snake).unwrap(), PriceRequest::default());
    assert_eq!(PriceRequest::default().0, skulk::Request::default());
    let rings = RingsOptions::read(Map::new(), Spelling::Snake).unwrap().0;
    assert_eq!(rings.transport, skulk::plan::Transport::MlxRing);
    assert_eq!(ProfileOptions::read(Map::new(), Spelling::Snake).unwrap().request, None);
}

#[test]
fn each_language_spells_names_in_its_own_way() {
    let snake = json!({"prefill_chunk": 7, "ffn_on_cpu": true});
    let options = LoadOptions::read(fields(&snake), Spelling::Snake).unwrap();
    assert_eq!((options.prefill_chunk, options.ffn_on_cpu), (7, true));
    let options = load(&json!({"prefillChunk": 7, "ffnBudget": 1e6, "kv": "f32"})).unwrap();
    assert_eq!((options.prefill_chunk, options.kv), (7, Some(KvType::F32.into())));
    assert_eq!(options.engine_options.ffn_budget, Some(ByteSize(1_000_000)));
    let options = load(&json!({"kvValues": "q4_0", "kv": "q8_0"})).unwrap();
    assert_eq!(options.kv, Some(KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 }));
    let request = PlanOptions::read(fields(&json!({"kv_values": "q8_0"})), Spelling::Snake).unwrap();
    assert_eq!(request.request.kv, Some(KvTypes { keys: KvType::F16, values: KvType::Q8_0 }));
    let asked =
        json!({"contextTokens": 7, "promptTokens": 8, "sessions": 9, "kv": "q8_0", "kvValues": "q4_0"});
    let asked = PriceOptions::read(fields(&asked), Spelling::Camel).unwrap().0;
    assert_eq!((asked.context_tokens, asked.prompt_tokens, asked.sessions), (7, 8, 9));
    assert_eq!(asked.kv, Some(KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 }));
    let options = load(&json!({"sessions": 3, "kvMemory": 4e6, "whenFull": "evict"})).unwrap();
    assert_eq!(
        (options.sessions, options.kv_memory, options.when_full),
        (Some(3), Some(ByteSize(4_000_000)), WhenFull::Evict)
    );
    assert_eq!(refused(load(&snake)).hint(), Some("`prefillChunk` is the closest option"));
}

#[test]
fn names_that_there_are_not_are_told_the_closest() {
    let error = refused(generate(&json!({"maxToken": 1})));
    assert_eq!(
        (error.context()[0].1.as_str(), error.hint()),
        ("maxToken", Some("`maxTokens` is the closest option"))
    );
    let error = refused(generate(&json!({"q": 1})));
    assert!(error.hint().unwrap().starts_with("options are append, logprobs, maxTokens"), "{error}");
    // However long it is.
    assert!(refused(generate(&json!({"ä".repeat(100_000): 1}))).to_string().len() < 1000);
}

#[test]
fn values_of_another_kind_are_refused_by_name() {
    for (value, expected) in [
        (json!({"threads": "two"}), "expected a whole number from 0 to 18446744073709551615, found `two`"),
        (json!({"threads": -1}), "found -1"),
        (json!({"threads": 1.5}), "found 1.5"),
        (json!({"threads": 1e300}), "found 1e+300"),
        (json!({"ffnOnCpu": 1}), "expected true or false, found 1"),
        (json!({"engine": 3}), "expected a text, found 3"),
        (json!({"kv": "f8"}), "expected `f16`, `bf16`, `f32`, `q8_0` or `q4_0`, found `f8`"),
        (json!({"kv": []}), "found []"),
        (json!({"whenFull": "drop"}), "expected `wait`, `evict` or `fail`, found `drop`"),
        (json!({"sessions": -1}), "found -1"),
    ] {
        let error = refused(load(&value));
        assert!(error.message().contains(expected), "{error}");
        assert_eq!(&error.context()[0].1, value.as_object().unwrap().keys().next().unwrap());
    }
    for (value, expected) in [
        (json!({"stop": "a"}), "expected a list, of each item a text, found `a`"),
        (json!({"stop": [1]}), "a list"),
        (json!({"logitBias": {"-1": 0}}), "a map: from a whole number from 0 to 4294967295 to a number"),
        (json!({"logitBias": {"1": "x"}}), "a map"),
        (json!({"logitBias": [1]}), "a map"),
        (json!({"temperature": "warm"}), "expected a number, found `warm`"),
        (json!({"seed": -1}), "found -1"),
        (json!({"priority": 1.5}), "expected a whole number from -2147483648 to 2147483647, found 1.5"),
        (json!({"priority": 1u64 << 31}), "found 2147483648"),
        (json!({"priority": u64::MAX}), "found 18446744073709551615"),
        (json!({"priority": -1e300}), "found -1e+300"),
    ] {
        assert!(refused(generate(&value)).message().contains(expected), "{value}");
    }
    let plan = |value| PlanOptions::read(fields(&value), Spelling::Camel);
    for value in [
        json!({"port": 65536}),
        json!({"inventory": {}}),
        json!({"rings": ["a"]}),
        json!({"requiredNodes": "a"}),
        json!({"fixed": "0..3=cpu"}),
        json!({"fixed": {"layers": ["cpu"]}}),
        json!({"fixed": {"override_tensors": ["x=cpu"]}}),
    ] {
        refused(plan(value));
    }
    // What is asked of plans, and does not count for a placement that there is.
    for (name, value) in [("minNodes", json!(1)), ("strictness", json!("safe")), ("fromDisk", json!(true))] {
        let error = refused(PriceOptions::read(fields(&json!({name: value})), Spelling::Camel));
        assert_eq!(error.message(), format!("there is no option `{name}`"));
    }
    let slice = |value| SliceOptions::read(fields(&value), Spelling::Camel);
    for value in [json!({"layers": [[0, 1]]}), json!({"layers": [{"start": 0}]}), json!({"parts": ["x"]})] {
        refused(slice(value));
    }
}

#[test]
fn values_reach_the_library() {
    let (options, append) = generate(&json!({
        "append": true, "maxTokens": 3, "temperature": 0.5, "topK": 4, "topP": 0.9, "minP": 0.1,
        "repetitionPenalty": 1.1, "presencePenalty": 0.2, "frequencyPenalty": 0.3, "penaltyWindow": 5,
        "logitBias": {"7": "-Infinity", "9": 1.5}, "seed": u64::MAX, "stop": ["x"], "ignoreEos": true, "logprobs": 2,
        "priority": -3,
    }))
    .unwrap();
    let sampling = &options.sampling;
    assert!(append && options.ignore_eos && options.stop == ["x"]);
    assert_eq!((options.max_tokens, options.logprobs, options.priority), (Some(3), Some(2), -3));
    assert_eq!(
        (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p),
        (0.5, Some(4), 0.9, 0.1)
    );
    assert_eq!((sampling.repetition_penalty, sampling.presence_penalty), (1.1, 0.2));
    assert_eq!((sampling.frequency_penalty, sampling.penalty_window), (0.3, 5));
    assert_eq!(sampling.logit_bias, [(TokenId(7), f32::NEG_INFINITY), (TokenId(9), 1.5)]);
    assert_eq!(sampling.seed, Some(u64::MAX));
    let nan = generate(&json!({"temperature": "NaN"})).unwrap().0.sampling.temperature;
    assert!(nan.is_nan(), "refused by the library, not taken for nothing");

    let slice = json!({"layers": [{"start": 1, "end": 3}], "parts": ["embed"], "preset": "server"});
    let slice = SliceOptions::read(fields(&slice), Spelling::Camel).unwrap();
    assert_eq!((slice.layers, slice.parts.map(|parts| parts.len())), (Some(vec![1..3]), Some(1)));
    let hints = json!({"tokenizerTools": true, "hasTools": true});
    let hints = ProfileOptions::read(fields(&hints), Spelling::Camel).unwrap();
    assert!(
        hints.tokenizer_tools
            && hints.request.is_some_and(|request| request.has_tools && !request.has_messages)
    );
    let embedding = EmbeddingOptions::read(fields(&json!({"threads": 3})), Spelling::Camel).unwrap();
    let embed = |value| EmbedOptions::read(fields(&value), Spelling::Snake);
    let cut = [json!({}), json!({"truncate": false})].map(|value| embed(value).unwrap().truncate);
    assert_eq!((embedding.threads, cut), (3, [true, false]));
    refused(embed(json!({"truncate": "no"})));
    let found = json!({"minScore": 1, "band": "all", "limit": 2.0});
    let found = DescribeOptions::read(fields(&found), Spelling::Camel).unwrap();
    assert_eq!((found.limit, found.min_score), (2, 1.0));
}

#[test]
fn peers_are_asked_as_it_was_said() {
    let options = load(&json!({
        "ffnAt": ["http://a", "unix:///run/b"], "addresses": {"shed": "https://c:1"}, "peerKey": "k", "peerWire": "f16",
        "peerTimeout": 1.5,
    }))
    .unwrap();
    let at: Vec<_> = options.ffn_at.iter().map(ToString::to_string).collect();
    assert_eq!(at, ["http://a:80", "unix:///run/b"]);
    assert_eq!(options.addresses.get(&"shed".into()).map(String::as_str), Some("https://c:1"));
    let connect = &options.connect;
    assert_eq!(
        (connect.key.as_deref(), connect.wire, connect.timeout.as_millis()),
        (Some("k"), WireType::F16, 1500)
    );
    let own = skulk::LoadOptions::default();
    let left_out = load(&json!({})).unwrap();
    assert_eq!((left_out.connect.wire, left_out.connect.timeout), (own.connect.wire, own.connect.timeout));
    assert!(left_out.ffn_at.is_empty() && left_out.connect.key.is_none());
    for (field, value) in [
        ("ffnAt", json!("http://a")),
        ("ffnAt", json!(["ftp://a"])),
        ("addresses", json!({"a": 1})),
        ("peerWire", json!("f64")),
        ("peerRoots", json!("none")),
        ("peerIdentity", json!("-----BEGIN PRIVATE KEY-----\nAA==")),
        ("peerTimeout", json!(0)),
        ("peerTimeout", json!("NaN")),
        ("peerTimeout", json!("Infinity")),
    ] {
        let error = refused(load(&json!({ field: value })));
        assert_eq!(error.context().len(), 1, "{error}");
        assert_eq!(error.context()[0].1.replace('_', "").to_lowercase(), field.to_lowercase());
        assert!(!format!("{error:?}").contains("BEGIN"), "{error:?}");
    }
}

#[test]
fn servers_serve_as_it_was_said() {
    let serve = |value: Value| ServeOptions::read(fields(&value), Spelling::Snake);
    let options = serve(json!({
        "listen": "http://[::1]:7", "layers": {"start": 1, "end": 3}, "experts": {"start": 0, "end": 4}, "key": "k",
        "ffn_budget": 9, "threads": 2, "max_rows": 3, "queue": 4, "max_connections": 5, "max_body": 6,
    }))
    .unwrap();
    assert_eq!(options.listen.to_string(), "http://[::1]:7");
    assert_eq!(
        (options.layers, options.experts, options.key.as_deref()),
        (Some(1..3), Some(0..4), Some("k"))
    );
    assert_eq!((options.engine_options.ffn_budget, options.engine_options.threads), (Some(ByteSize(9)), 2));
    let limits = (options.max_rows, options.queue, options.max_connections, options.max_body);
    assert_eq!(limits, (3, 4, 5, ByteSize(6)));
    let (left_out, own) = (serve(json!({})).unwrap(), skulk::ServeOptions::default());
    assert_eq!(format!("{left_out:?}"), format!("{own:?}"));
    let limits = |options: &skulk::ServeOptions| {
        (options.max_rows, options.queue, options.max_connections, options.max_body)
    };
    assert_eq!(limits(&left_out), limits(&own));
    for (field, value) in [
        ("listen", json!("here")),
        ("layers", json!([0, 1])),
        ("identity", json!("none")),
        ("clients", json!("none")),
        ("max_body", json!(-1)),
    ] {
        let error = refused(serve(json!({ field: value })));
        assert_eq!(error.context(), [("field", field.to_owned())], "{error}");
    }
    assert_eq!(grace(0.5).unwrap().as_millis(), 500);
    for seconds in [-1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(refused(grace(seconds)).context(), [("field", "grace".to_owned())]);
    }
}
