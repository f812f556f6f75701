//! Does a text keep to what was asked for, whichever of the allowed tokens are chosen?

use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::error::ErrorKind;
use crate::ids::TokenId;

fn fixture(name: &str) -> Arc<Tokenizer> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models")).join(name);
    let path = if path.join("model.gguf").exists() { path.join("model.gguf") } else { path };
    Arc::new(Tokenizer::from_checkpoint(&*crate::open_checkpoint(&path).unwrap()).unwrap())
}

const FIXTURES: [&str; 5] = ["stories260K", "llama", "gemma3", "qwen2", "qwen2_gguf"];

fn begin(tokenizer: &Arc<Tokenizer>, constraint: &Constraint) -> Result<Grammar> {
    let prompt = tokenizer.encode("Once", true).unwrap();
    Grammars::default().begin(constraint, tokenizer, &Detokenizer::new(Arc::clone(tokenizer), &prompt, true))
}

fn refused(constraint: &Constraint) -> crate::error::Error {
    begin(&fixture("llama"), constraint).err().unwrap_or_else(|| panic!("{constraint:?} was taken"))
}

fn schema(schema: Value) -> Constraint {
    Constraint::JsonSchema(schema)
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// All tokens that a mask leaves.
fn left(grammar: &mut Grammar, tokens: usize) -> Vec<TokenId> {
    let mut logits = vec![0.0; tokens + 3];
    grammar.narrow(&mut logits).unwrap();
    let ids = (0..logits.len()).filter(|&id| logits[id] == 0.0);
    ids.map(|id| TokenId(id as u32)).collect()
}

/// A text of tokens that may come, chosen at random; whether it was whole where it ended.
fn written(
    tokenizer: &Arc<Tokenizer>,
    constraint: &Constraint,
    random: &mut Random,
    exhaustive: bool,
) -> (String, bool) {
    let mut grammar = begin(tokenizer, constraint).unwrap();
    let mut text = Vec::new();
    for _ in 0..200 {
        let forced = grammar.forced().unwrap();
        let token = match forced {
            Some(token) => token,
            None => {
                let left = left(&mut grammar, tokenizer.vocab_size());
                if exhaustive {
                    let all = (0..tokenizer.vocab_size() as u32 + 3).map(TokenId);
                    let one_by_one: Vec<_> = all.filter(|id| grammar.allows(*id).unwrap()).collect();
                    assert_eq!(left, one_by_one, "behind {:?}", String::from_utf8_lossy(&text));
                }
                left[random.below(left.len())]
            }
        };
        if tokenizer.eos_ids().contains(&token) {
            assert_eq!(forced, None);
            return (String::from_utf8(text).unwrap(), true);
        }
        assert!(!tokenizer.is_special(token));
        grammar.take(token).unwrap();
        tokenizer.append_piece(token, true, false, &mut text);
        if grammar.is_over() {
            return (String::from_utf8(text).unwrap(), true);
        }
    }
    (String::from_utf8_lossy(&text).into_owned(), false)
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 6},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "kind": {"enum": ["cat", "cattle", "dög"]},
            "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        },
        "required": ["name", "age", "kind", "tags"],
        "additionalProperties": false,
        "x-guidance": {"whitespace_flexible": false},
    })
}

fn is_person(text: &str) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return false };
    let keys: Vec<_> = ["\"name\"", "\"age\"", "\"kind\"", "\"tags\""].map(|key| text.find(key)).to_vec();
    keys.is_sorted()
        && fields.len() == 4
        && fields["name"].as_str().is_some_and(|name| name.chars().count() <= 6)
        && fields["age"].as_u64().is_some_and(|age| age <= 150)
        && ["cat", "cattle", "dög"].contains(&fields["kind"].as_str().unwrap())
        && fields["tags"].as_array().is_some_and(|tags| tags.len() <= 3 && tags.iter().all(Value::is_boolean))
}

#[test]
fn masks_and_single_tokens_agree_and_texts_are_valid() {
    let expression = r"(ab?c|[0-9]{2,4} ä)-?(x|y)+z";
    let matched = regex::Regex::new(&format!("^(?:{expression})$")).unwrap();
    let lark = "start: sum\nsum: item (\"+\" item)*\nitem: NUMBER | \"(\" sum \")\"\nNUMBER: /[0-9]{1,3}/\n";
    let mut random = Random(7);
    let mut whole = 0;
    for name in FIXTURES {
        let tokenizer = fixture(name);
        for round in 0..12 {
            let exhaustive = round == 0 && tokenizer.vocab_size() < 2_000;
            let (text, is_whole) = written(&tokenizer, &schema(person()), &mut random, exhaustive);
            assert!(!is_whole || is_person(&text), "{name}: {text}");
            whole += usize::from(is_whole);
            let (text, is_whole) =
                written(&tokenizer, &Constraint::Regex(expression.into()), &mut random, exhaustive);
            assert!(!is_whole || matched.is_match(&text), "{name}: {text}");
            whole += usize::from(is_whole);
            let (text, is_whole) =
                written(&tokenizer, &Constraint::Lark(lark.into()), &mut random, exhaustive);
            let depth = text.bytes().try_fold(0usize, |depth, byte| match byte {
                b'(' => Some(depth + 1),
                b')' => depth.checked_sub(1),
                b'0'..=b'9' | b'+' => Some(depth),
                _ => None,
            });
            assert!(if is_whole { depth == Some(0) } else { depth.is_some() }, "{name}: {text}");
            whole += usize::from(is_whole);
        }
    }
    // Random texts of nested items mostly do not end.
    assert!(whole >= FIXTURES.len() * 12 * 2, "{whole}");
}

#[test]
fn what_is_certain_is_cut_as_the_tokenizer_cuts_it() {
    let tokenizer = fixture("qwen2");
    let text = "The answer, as ever, is";
    let mut grammar = begin(&tokenizer, &Constraint::Regex(format!("{text} [0-9]+ *"))).unwrap();
    let mut forced = Vec::new();
    while let Some(token) = grammar.forced().unwrap() {
        grammar.take(token).unwrap();
        forced.push(token);
    }
    let whole = tokenizer.encode_text(&format!("{text} 1")).unwrap();
    // The last ones may be part of others.
    assert!(!forced.is_empty() && whole.starts_with(&forced), "{forced:?} {whole:?}");
    assert!(forced.len() + 3 >= whole.len(), "{forced:?} {whole:?}");
    assert!(!grammar.is_over());
}

#[test]
fn texts_end_only_where_they_may() {
    let tokenizer = fixture("qwen2");
    let ends = tokenizer.eos_ids().to_vec();
    assert!(!ends.is_empty());
    let mut grammar = begin(&tokenizer, &Constraint::Regex("a{2,3}".into())).unwrap();
    let a = tokenizer.encode_text("a").unwrap()[0];
    for (taken, (may_end, is_over)) in
        [(false, false), (false, false), (true, false), (false, true)].iter().enumerate()
    {
        assert_eq!(grammar.is_over(), *is_over, "behind {taken}");
        if !is_over {
            for end in &ends {
                assert_eq!(grammar.allows(*end).unwrap(), *may_end, "behind {taken}");
                assert_eq!(left(&mut grammar, tokenizer.vocab_size()).contains(end), *may_end);
            }
            if taken < 3 {
                grammar.take(a).unwrap();
            }
        }
    }
}

#[test]
fn a_space_that_is_left_out_of_texts_does_not_come() {
    let tokenizer = fixture("stories260K");
    let grammars = Grammars::default();
    let bos = [tokenizer.bos().unwrap()];
    let constraint = Constraint::Regex(" ?[a-z]+".into());
    for (prompt, spaced) in [(&bos[..], false), (&tokenizer.encode("Once", true).unwrap(), true)] {
        let text = Detokenizer::new(Arc::clone(&tokenizer), prompt, true);
        let mut grammar = grammars.begin(&constraint, &tokenizer, &text).unwrap();
        let begins_spaced = left(&mut grammar, tokenizer.vocab_size()).into_iter().any(|id| {
            let mut bytes = Vec::new();
            tokenizer.append_piece(id, true, false, &mut bytes);
            bytes.starts_with(b" ")
        });
        assert_eq!(begins_spaced, spaced);
    }
}

#[test]
fn what_cannot_be_enforced_is_refused_by_name() {
    let deep = (0..200).fold(json!({"type": "null"}), |inner, _| json!({"items": inner}));
    let wide = json!({"enum": vec!["x".repeat(100); 20_000]});
    let loops =
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    let cases = [
        ("json_schema", schema(json!(false))),
        ("json_schema", schema(json!({"type": "string", "minLength": 5, "maxLength": 2}))),
        ("json_schema", schema(json!({"type": "integer", "minimum": 5, "maximum": 2}))),
        ("json_schema", schema(json!({"allOf": [{"type": "string"}, {"type": "number"}]}))),
        ("json_schema", schema(json!({"$ref": "https://example.com/other.json"}))),
        ("json_schema", schema(json!({"$ref": "#/$defs/none"}))),
        ("json_schema", schema(json!({"type": "tree"}))),
        ("json_schema", schema(json!(7))),
        ("json_schema", schema(json!({"type": "object", "unevaluatedProperties": false}))),
        ("json_schema", schema(json!({"allOf": [{"$ref": "#"}]}))),
        ("json_schema", schema(loops)),
        ("json_schema", schema(deep)),
        ("json_schema", schema(wide)),
        ("regex", Constraint::Regex("(".into())),
        ("regex", Constraint::Regex(String::new())),
        ("regex", Constraint::Regex(r"[^\s\S]".into())),
        ("regex", Constraint::Regex("(?=a)b".into())),
        ("regex", Constraint::Regex("(".repeat(100_000))),
        ("regex", Constraint::Regex("a".repeat(2_000_000))),
        ("grammar", Constraint::Lark(String::new())),
        ("grammar", Constraint::Lark("start: other".into())),
        ("grammar", Constraint::Lark("start: start".into())),
        ("grammar", Constraint::Lark(format!("start: {}", "(".repeat(100_000)))),
        ("grammar", Constraint::Lark("%import missing.rule\nstart: rule".into())),
    ];
    for (field, constraint) in cases {
        let begun = std::time::Instant::now();
        let error = refused(&constraint);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.context().contains(&("field", field.to_owned())), "{error}");
        assert!(error.message().len() > 20 && error.hint().is_some(), "{error}");
        assert!(begun.elapsed().as_secs() < 60, "{error}");
    }
}

#[test]
fn numbers_are_kept_or_refused() {
    let tokenizer = fixture("llama");
    let integer = |bounds: Value| {
        let mut schema = json!({"type": "integer"});
        schema.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
        schema
    };
    for refused_one in [
        // llguidance recurses without end over the first one.
        integer(json!({"minimum": i64::MIN, "maximum": i64::MIN})),
        integer(json!({"minimum": -1e30, "maximum": -1e25})),
        integer(json!({"minimum": 9_007_199_254_740_993_u64})),
        json!({"type": "number", "maximum": 12_345_678_901_234_567_890_u64}),
        integer(json!({"exclusiveMaximum": 1_u64 << 60})),
        integer(json!({"minimum": u64::MAX})),
        json!({"enum": [1, 1_234_567_890_123_456_789_u64]}),
        json!({"const": {"id": [9_007_199_254_740_993_u64]}}),
        json!({"const": 1e300}),
        json!({"properties": {"const": {"const": 9_007_199_254_740_993_u64}}}),
        json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5}),
        json!({"type": "number", "exclusiveMinimum": 3, "maximum": 3.25}),
        json!({"type": "number", "minimum": -0.5, "exclusiveMaximum": 0}),
        json!({"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 0.5}),
    ] {
        for constraint in
            [schema(refused_one.clone()), Constraint::Lark(format!("start: %json {refused_one}"))]
        {
            let error = refused(&constraint);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.context().contains(&("field", constraint.field().to_owned())), "{error}");
        }
    }
    let mut random = Random(11);
    for (kept, is_valid) in [
        (json!({"const": 1_i64 << 60}), (|text| text == "1152921504606846976") as fn(&str) -> bool),
        (integer(json!({"minimum": i64::MAX, "maximum": i64::MAX})), |text| text == "9223372036854775807"),
        (integer(json!({"minimum": 1_i64 << 62, "maximum": u64::MAX})), |text| {
            text.parse::<u64>().is_ok_and(|found| found >= 1 << 62)
        }),
        (json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 1e300}), |text| {
            text.parse::<f64>().is_ok_and(|number| number > 0.0 && number <= 1.0)
        }),
        (
            json!({"properties": {"default": {"const": 7}}, "required": ["default"], "type": "object", "additionalProperties": false}),
            |text| serde_json::from_str::<Value>(text).is_ok_and(|found| found == json!({"default": 7})),
        ),
    ] {
        for _ in 0..20 {
            let (text, whole) = written(&tokenizer, &schema(kept.clone()), &mut random, false);
            assert!(!whole || is_valid(&text), "{kept}: {text}");
        }
    }
}

/// Sets that JavaScript reads otherwise than the crate `regex`, and objects that may have a property twice.
#[test]
fn what_would_be_read_otherwise_is_refused() {
    let of_names = |pattern: &str| json!({"type": "object", "patternProperties": {pattern: {}}});
    for (pattern, taken) in [
        ("^[a-c&&[^b]]$", false),
        ("^[a[b]c]$", false),
        ("^[[:digit:]]$", false),
        ("^[!--]$", false),
        ("^[ -~~]$", false),
        ("^[]a]$", false),
        ("^[^]a]$", false),
        (r"^[\[\]&a\-~-]+$", true),
        (r"^\[[a-c]--&&~~\]$", true),
    ] {
        for text in [json!({"items": {"type": "string", "pattern": pattern}}), of_names(pattern)] {
            let begun = begin(&fixture("llama"), &schema(text));
            let field = begun.err().map(|error| error.context()[0].clone());
            assert_eq!(field, (!taken).then(|| ("field", "json_schema".to_owned())), "{pattern}");
        }
    }
    let least = |count: u64, required: &[&str]| {
        let kinds = json!({"type": "object", "minProperties": count, "required": required});
        begin(&fixture("llama"), &schema(json!({"type": "array", "items": kinds}))).is_ok()
    };
    assert!(least(1, &[]) && least(2, &["a"]) && least(3, &["a", "b"]));
    assert!(!least(2, &[]) && !least(3, &["a"]) && !least(3, &["a", "a"]));
    assert!(begin(&fixture("llama"), &schema(json!({"type": "string", "minProperties": 7}))).is_ok());
}

/// As long as a constraint's text may be, with the shortest names.
#[test]
fn long_chains_of_references_are_read_or_refused() {
    let name = |i: usize| {
        let letters = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let letter = |of: usize| char::from(letters[i / of % 36]);
        format!("r{}{}{}", letter(36 * 36), letter(36), letter(1))
    };
    let mut definitions = serde_json::Map::new();
    let mut bytes = 100;
    for i in 0.. {
        let link = json!({"$ref": format!("#/$defs/{}", name(i + 1))});
        bytes += link.to_string().len() + name(i).len() + 4;
        if bytes > 1 << 20 {
            definitions.insert(name(i), json!({"type": "integer"}));
            break;
        }
        definitions.insert(name(i), link);
    }
    let links = definitions.len();
    assert!(links > 20_000);
    let references = json!({"$ref": format!("#/$defs/{}", name(0)), "$defs": definitions});
    let rules = |links: usize, body: &str, spelt: fn(String) -> String| {
        let mut text = format!("start:{}\n", spelt(name(0)));
        for i in 0..links {
            text += &format!("{}:{body}{}\n", spelt(name(i)), spelt(name(i + 1)));
        }
        Constraint::Lark(text + &spelt(name(links)) + ":\"a\"\n")
    };
    let tokenizer = fixture("llama");
    for (constraint, is_read) in [
        (schema(references), true),
        (rules(46_000, "", |name| name), true),
        (rules(20_000, "\"b\" ", |name| name), true),
        // More symbols than there may be.
        (rules(46_000, "\"b\" ", |name| name), false),
        (rules(46_000, "", |name| name.to_uppercase()), true),
        (rules(46_000, "\"b\" ", |name| name.to_uppercase()), true),
    ] {
        let begun = begin(&tokenizer, &constraint).and_then(|mut grammar| {
            for _ in 0..4 {
                let left = left(&mut grammar, tokenizer.vocab_size());
                grammar.take(left[0])?;
                if grammar.is_over() {
                    break;
                }
            }
            Ok(())
        });
        match begun {
            Ok(()) => assert!(is_read),
            Err(error) => assert!(!is_read && error.kind() == ErrorKind::InvalidArgument, "{error}"),
        }
    }
}

#[test]
fn what_is_huge_takes_bounded_time() {
    let tokenizer = fixture("llama");
    let product: Vec<Value> = (0..24)
        .map(|i| {
            let one = |letter: &str| json!({"properties": {(format!("{letter}{i}")): {"type": "string"}}});
            json!({"anyOf": [one("a"), one("b")]})
        })
        .collect();
    let cases = [
        schema(json!({"type": "string", "pattern": "(a{1000}){1000}"})),
        schema(json!({"type": "array", "items": {"type": "null"}, "minItems": 1_000_000_000})),
        schema(json!({"type": "string", "minLength": 1_000_000_000})),
        schema(json!({"allOf": product})),
        Constraint::Regex("((a{1000}){1000}){1000}".into()),
        Constraint::Regex("(a|b|ab|ba|(a|b)*c){0,300}z".into()),
        Constraint::Lark("start: \"a\"{1000000000}".into()),
        Constraint::Lark("start: x x x x x x\nx: y*\ny: x | \"a\"".into()),
    ];
    for constraint in cases {
        let begun = std::time::Instant::now();
        let written = begin(&tokenizer, &constraint).and_then(|mut grammar| {
            for _ in 0..20 {
                let mut logits = vec![0.0; tokenizer.vocab_size()];
                grammar.narrow(&mut logits)?;
                let next = logits.iter().position(|logit| *logit == 0.0).unwrap();
                grammar.take(TokenId(next as u32))?;
                if grammar.is_over() {
                    break;
                }
            }
            Ok(())
        });
        if let Err(error) = written {
            assert_eq!((error.kind(), error.context().len()), (ErrorKind::InvalidArgument, 1), "{error}");
        }
        assert!(begun.elapsed().as_secs() < 60, "{constraint:?}");
    }
}

#[test]
fn white_space_is_bounded_unless_the_schema_says_otherwise() {
    let tokenizer = fixture("qwen2");
    let takes = |schema: &Constraint, text: &str| {
        let mut grammar = begin(&tokenizer, schema).unwrap();
        tokenizer.encode_text(text).unwrap().into_iter().all(|id| {
            let allowed = grammar.allows(id).unwrap();
            if allowed {
                grammar.take(id).unwrap();
            }
            allowed
        })
    };
    let object = schema(json!({"type": "object", "additionalProperties": {"type": "integer"}}));
    for object in [&object, &Constraint::JsonObject, &schema(json!(true))] {
        for (space, allowed) in [
            ("", true),
            (" ", true),
            ("  ", false),
            ("\n", true),
            ("\r\n\t\t", true),
            ("\n\n", false),
            (&format!("\n{}", " ".repeat(64)), true),
            (&format!("\n{}", " ".repeat(65)), false),
        ] {
            for text in [format!("{{{space}\"a\": 1}}"), format!("{{\"a\":{space}1{space}}}")] {
                assert_eq!(takes(object, &text), allowed, "{object:?} {text:?}");
            }
        }
    }
    let guided = |guidance: Value| schema(json!({"type": "array", "x-guidance": guidance}));
    assert!(takes(&guided(json!({"whitespace_pattern": "[ ]{1,9}"})), "[    1]"));
    assert!(!takes(&guided(json!({"whitespace_flexible": false})), "[ 1]"));
    assert!(takes(&guided(json!({})), "[\n\n\n  1]"));
}

#[test]
fn recursive_schemas_are_enforced() {
    let tree = json!({
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "additionalProperties": false,
        "x-guidance": {"whitespace_flexible": false},
    });
    let tokenizer = fixture("llama");
    let mut random = Random(3);
    for _ in 0..5 {
        let (text, whole) = written(&tokenizer, &schema(tree.clone()), &mut random, false);
        assert!(!whole || serde_json::from_str::<Value>(&text).is_ok_and(|tree| tree.is_object()), "{text}");
        assert!(text.starts_with('{'));
    }
}

#[test]
fn response_formats_are_read() {
    let read = |json: &str| Constraint::from_response_format(json);
    let any = json!({"type": "string"});
    for (text, expected) in [
        (r#"{"type": "text"}"#, None),
        (r#"{"type": "json_object"}"#, Some(Constraint::JsonObject)),
        (
            r#"{"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": {"type": "string"}}}"#,
            Some(schema(any.clone())),
        ),
        (r#"{"type": "json"}"#, Some(Constraint::JsonObject)),
        (
            r#"{"type": "json", "schema": {"type": "string"}, "name": "n", "description": null}"#,
            Some(schema(any)),
        ),
    ] {
        assert_eq!(read(text).unwrap(), expected, "{text}");
    }
    for (text, field) in [
        ("7", "response_format.type"),
        ("{", "response_format"),
        (r#"{"type": "xml"}"#, "response_format.type"),
        (r#"{"type": "json_schema"}"#, "response_format.json_schema"),
        (r#"{"type": "json_schema", "json_schema": {"name": "n"}}"#, "response_format.json_schema.schema"),
        (r#"{"type": "text", "schema": {}}"#, "response_format.schema"),
        (r#"{"type": "json_object", "grammar": "x"}"#, "response_format.grammar"),
    ] {
        let error = read(text).unwrap_err();
        assert_eq!(
            (error.kind(), error.context()),
            (ErrorKind::InvalidArgument, &[("field", field.to_owned())][..])
        );
    }
}
