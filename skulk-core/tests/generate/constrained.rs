//! Do generations keep to their constraints, however they run?

use serde_json::{Value, json};
use skulk::{
    CancelToken, Constraint, ErrorKind, FinishReason, GenerateOptions, LoadOptions, Model, Output, Prompt,
    Sampling, TokenId,
};

use crate::generate::common::{OPENING, fresh, model, on, one_thread, path};

/// Short texts, which small models end, too.
fn person() -> Constraint {
    Constraint::JsonSchema(json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 4},
            "age": {"type": "integer", "minimum": 0, "maximum": 99},
            "tags": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 2},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": false,
        "x-guidance": {"whitespace_flexible": false},
    }))
}

fn is_person(text: &str) -> bool {
    let Ok(Value::Object(person)) = serde_json::from_str(text) else { return false };
    person.len() == 3
        && person["name"].as_str().is_some_and(|name| name.chars().count() <= 4)
        && person["age"].as_u64().is_some_and(|age| age <= 99)
        && person["tags"].as_array().is_some_and(|tags| {
            tags.len() <= 2 && tags.iter().all(|tag| ["red", "blue"].map(Value::from).contains(tag))
        })
}

fn samplings() -> Vec<Sampling> {
    let warm = |seed| Sampling::default().temperature(1.5).seed(seed);
    vec![
        Sampling::default(),
        Sampling::default().repetition_penalty(1.3),
        warm(1),
        warm(2).top_k(5),
        warm(3).top_p(0.9),
        warm(4).min_p(0.1).presence_penalty(0.2),
    ]
}

fn options(constraint: Constraint, sampling: Sampling) -> GenerateOptions {
    GenerateOptions::default().max_tokens(160).sampling(sampling).constraint(constraint)
}

#[test]
fn texts_are_valid_on_every_model_with_every_sampling() {
    let expression = "(yes|no), [a-f]{3}-[0-9]{2,5}";
    let matched = regex::Regex::new(&format!("^(?:{expression})$")).unwrap();
    for name in ["stories260K", "llama", "gemma3", "qwen2", "qwen3_5", "nemotron_h"] {
        let model = model(name);
        for sampling in samplings() {
            let output = fresh(&model, OPENING, &options(person(), sampling.clone()));
            assert!(is_person(&output.text), "{name}: {}", output.text);
            assert_eq!(output.finish.reason, FinishReason::EndOfSequence);
            let output = fresh(&model, OPENING, &options(Constraint::Regex(expression.into()), sampling));
            assert!(matched.is_match(&output.text), "{name}: {}", output.text);
        }
    }
}

#[test]
fn stages_batches_and_ways_of_choosing_do_not_matter() {
    for name in ["llama", "qwen3_5"] {
        let alone = model(name);
        let staged = Model::open(path(name), &one_thread().stages(2)).unwrap();
        for sampling in samplings() {
            let asked = options(person(), sampling);
            let expected = fresh(&alone, OPENING, &asked);
            // All logits are asked for, not the largest first.
            let with_logprobs = fresh(&alone, OPENING, &asked.clone().logprobs(0));
            assert_eq!(with_logprobs.ids, expected.ids, "{name}");
            assert_eq!(fresh(&staged, OPENING, &asked).ids, expected.ids, "{name}");
            let free = GenerateOptions::default().max_tokens(30).ignore_eos(true);
            let other = alone.session().unwrap().generate("A dog", free).unwrap();
            for output in alone.generate_batch([OPENING; 3], &asked) {
                assert_eq!(output.unwrap().ids, expected.ids, "{name}");
            }
            drop(other);
        }
    }
}

/// The way that is always right: all logits of every step, and all tokens tried one by one, with sampling as without a
/// constraint.
#[test]
fn greedy_choices_are_the_likeliest_tokens_that_keep_to_it() {
    let model = model("llama");
    let output =
        fresh(&model, OPENING, &options(Constraint::Regex("[a-z ]{12}".into()), Sampling::default()));
    let prompt = model.tokenizer().encode(OPENING, true).unwrap();
    let all: Vec<TokenId> = prompt.iter().chain(&output.ids).copied().collect();
    let logits = model.logits(all, &CancelToken::new()).unwrap();
    let width = model.arch().vocab_size;
    let mut left = 12;
    for (at, chosen) in output.ids.iter().enumerate() {
        let row = &logits[(prompt.len() + at - 1) * width..][..width];
        let text = |id: u32| model.tokenizer().decode(&[TokenId(0), TokenId(id)], true);
        let begun = model.tokenizer().decode(&[TokenId(0)], true).len();
        let fits = |id: u32| {
            let text = text(id)[begun..].to_owned();
            let written = !text.is_empty() && !model.tokenizer().is_special(TokenId(id));
            written && text.len() <= left && text.bytes().all(|b| b == b' ' || b.is_ascii_lowercase())
        };
        let best = (0..model.tokenizer().vocab_size() as u32)
            .filter(|id| fits(*id))
            .max_by(|a, b| row[*a as usize].total_cmp(&row[*b as usize]).then(b.cmp(a)));
        assert_eq!(Some(chosen.0), best, "token {at} of {:?}", output.text);
        left -= text(chosen.0).len() - begun;
    }
    assert_eq!(left, 0);
}

#[test]
fn events_have_all_of_the_text_and_no_logprobs_of_what_was_certain() {
    let model = model("stories260K");
    let asked = options(person(), Sampling::default()).logprobs(2);
    let events: Vec<_> = model.generate(OPENING, asked.clone()).unwrap().map(Result::unwrap).collect();
    let text: String = events.iter().map(|event| event.text.as_str()).collect();
    let whole = fresh(&model, OPENING, &asked);
    assert_eq!(text, whole.text);
    assert_eq!(events.iter().filter(|event| event.token.is_some()).count(), whole.ids.len());
    let chosen = events.iter().flat_map(|event| &event.token).filter(|token| token.logprob.is_some()).count();
    assert!(0 < chosen && chosen < whole.ids.len(), "{chosen} of {}", whole.ids.len());
}

#[test]
fn a_text_that_ends_early_is_the_beginning_of_one() {
    let model = model("llama");
    let whole = fresh(&model, OPENING, &options(person(), Sampling::default()));
    let reason = |output: &Output| output.finish.reason;
    for n in (1..whole.ids.len()).step_by(7) {
        let cut = fresh(&model, OPENING, &options(person(), Sampling::default()).max_tokens(n));
        assert_eq!((cut.ids.len(), reason(&cut)), (n, FinishReason::Length));
        assert!(whole.text.starts_with(cut.text.trim_end_matches('\u{fffd}')));
    }
    let exact = fresh(&model, OPENING, &options(person(), Sampling::default()).max_tokens(whole.ids.len()));
    assert_eq!(reason(&exact), FinishReason::EndOfSequence);
    let stopped = fresh(&model, OPENING, &options(person(), Sampling::default()).stop(["\"age"]));
    assert_eq!(reason(&stopped), FinishReason::StopString);
    assert!(whole.text.starts_with(&stopped.text) && stopped.text.ends_with(','), "{}", stopped.text);
}

#[test]
fn sessions_go_on_behind_them() {
    let model = model("llama");
    let session = model.session().unwrap();
    let asked = options(Constraint::Regex("[0-9]{4}".into()), Sampling::default());
    let first = on(&session, OPENING, &asked);
    let second = on(&session, Prompt::Append(" and".into()), &asked);
    assert!(second.text.len() == 4 && second.text.bytes().all(|b| b.is_ascii_digit()), "{second:?}");
    assert!(second.finish.usage.cached_tokens >= first.finish.usage.prompt_tokens);
    let mut tokens = model.tokenizer().encode(OPENING, true).unwrap();
    tokens.extend(&first.ids);
    tokens.extend(model.tokenizer().encode(" and", false).unwrap());
    assert_eq!(fresh(&model, tokens, &asked).ids, second.ids);
}

#[test]
fn impossible_ones_are_refused_before_anything_is_computed() {
    let model = model("llama");
    let error = |options: GenerateOptions| model.generate(OPENING, options).err().unwrap();
    for (constraint, field) in [
        (Constraint::Regex("(".into()), "regex"),
        (Constraint::Lark("start: nothing".into()), "grammar"),
        (Constraint::JsonSchema(json!(false)), "json_schema"),
    ] {
        let error = error(options(constraint, Sampling::default()));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.context(), [("field", field.to_owned())], "{error}");
    }
    let error = error(options(Constraint::JsonObject, Sampling::default()).ignore_eos(true));
    assert_eq!(error.context(), [("field", "ignore_eos".to_owned())]);
    // The session is free.
    let session = model.session().unwrap();
    assert!(session.generate(OPENING, options(Constraint::Regex("(".into()), Sampling::default())).is_err());
    assert_eq!(
        on(&session, OPENING, &options(Constraint::Regex("ab".into()), Sampling::default())).text,
        "ab"
    );
}

#[test]
fn sessions_on_many_threads_keep_to_them() {
    let model = Model::open(path("gemma3"), &LoadOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let model = model.clone();
            scope.spawn(move || {
                let sampling = Sampling::default().temperature(1.0).seed(seed);
                let output = fresh(&model, OPENING, &options(person(), sampling));
                assert!(is_person(&output.text), "{}", output.text);
            });
        }
    });
}
