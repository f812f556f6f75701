//! Do answers say what models wrote? Scripts say what the model says; everything else is as ever.

#[cfg(feature = "grammar")]
mod constrained;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::json;

use super::*;
use crate::card::{ReasoningEffort, ReasoningRequest};
use crate::chat::{CallProblem, Content, Delta, Json, Tool};
use crate::error::ErrorKind;
use crate::generate::sampler::Narrow;
use crate::generate::writing::{Course, Steering};
use crate::generate::{GenerateOptions, LoadOptions};
use crate::ids::TokenId;
use crate::{CancelToken, ModelCard, Profile, Tokenizer};

/// ChatML with reasoning that can be turned off, and with tools, as Qwen 3 has them.
const TEMPLATE: &str = "{%- if tools %}<|im_start|>system\n<tools>{{ tools | tojson }}</tools>\
    <tool_call> calls them<|im_end|>\n{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}\n\
    {%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\
    {%- for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n\
    {%- endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n\
    {%- if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}";

thread_local! {
    /// What the next answers of this thread are.
    static SCRIPTS: RefCell<VecDeque<Vec<TokenId>>> = const { RefCell::new(VecDeque::new()) };
}

/// Says what is in a script, unless something else is forced.
struct Script {
    tokens: VecDeque<TokenId>,
    guide: Option<Box<dyn Steering>>,
}

impl Steering for Script {
    fn forced(&mut self) -> Result<Option<TokenId>> {
        let forced = self.guide.as_mut().map_or(Ok(None), |guide| guide.forced())?;
        Ok(forced.or_else(|| self.tokens.pop_front()))
    }

    fn narrows(&self) -> bool {
        self.guide.as_ref().is_some_and(|guide| guide.narrows())
    }

    fn narrow(&mut self) -> Option<&mut dyn Narrow> {
        self.guide.as_mut().and_then(|guide| guide.narrow())
    }

    fn note(&mut self, token: TokenId) -> Result<Course> {
        self.guide.as_mut().map_or(Ok(Course::GoesOn), |guide| guide.note(token))
    }
}

pub(super) fn scripted(guide: Option<Box<dyn Steering>>) -> Option<Box<dyn Steering>> {
    match SCRIPTS.with_borrow_mut(VecDeque::pop_front) {
        Some(tokens) => Some(Box::new(Script { tokens: tokens.into(), guide })),
        None => guide,
    }
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models")).join(name)
}

fn load(template: &str) -> Model {
    Model::open(folder("qwen2"), &LoadOptions::default().chat_template(template)).unwrap()
}

fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| load(TEMPLATE))
}

fn tokenizer() -> &'static Arc<Tokenizer> {
    &model().inner.tokenizer
}

/// The next answer, which the model ends.
fn script(text: &str) {
    let tokens = tokenizer().encode(&format!("{text}<|im_end|>"), false).unwrap();
    SCRIPTS.with_borrow_mut(|scripts| scripts.push_back(tokens));
}

fn weather() -> Tool {
    let schema =
        json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
    Tool::new("weather", "Weather of a place.", schema.into()).unwrap()
}

fn options() -> ChatOptions {
    ChatOptions::default().tools([weather()])
}

fn at_most(max_tokens: usize) -> GenerateOptions {
    GenerateOptions::default().max_tokens(max_tokens)
}

fn ask() -> Vec<Message> {
    vec![Message::user("How is the weather?")]
}

/// What a script becomes.
fn said(text: &str, options: &ChatOptions) -> (Vec<ChatEvent>, ChatAnswer) {
    script(text);
    let mut stream = model().chat(&ask(), options).unwrap();
    let events: Vec<_> = stream.by_ref().map(Result::unwrap).collect();
    let answer = stream.answer().unwrap();
    assert!(stream.next().is_none());
    (events, answer)
}

const CALL: &str = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": \"2\", \"city\": \"Oslo\"}}\n</tool_call>";

#[test]
fn reasoning_text_and_calls_are_told_apart() {
    let (events, answer) = said(&format!("<think>Rain?</think>I look.{CALL}"), &options());
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("Rain?", "I look."));
    let [call] = &answer.calls[..] else { panic!("{answer:?}") };
    assert_eq!((call.name.as_str(), call.id.as_str()), ("weather", "call00000"));
    assert_eq!(call.arguments, json!({"city": "Oslo", "days": 2}));
    let started = events.iter().position(|event| {
        *event == ChatEvent::CallStarted { index: 0, id: "call00000".into(), name: "weather".into() }
    });
    let finished = events.iter().position(|event| matches!(event, ChatEvent::CallFinished { .. }));
    assert!(started.unwrap() < finished.unwrap(), "{events:?}");
    let Some(ChatEvent::Finish { finish }) = events.last() else { panic!("{events:?}") };
    assert_eq!(finish, &answer.finish);
    assert_eq!(finish.reason, ChatFinishReason::ToolCalls);
    let reasoning = tokenizer().encode("Rain?", false).unwrap().len();
    assert_eq!(finish.usage.reasoning_tokens, reasoning);
    assert!(finish.usage.completion_tokens > reasoning && finish.usage.prompt_tokens > 0);
    // The message goes back, and its call is known by its id.
    assert_eq!(answer.message.reasoning_content(), Some("Rain?"));
    let [sent] = &answer.message.tool_calls()[..] else { panic!("{answer:?}") };
    assert_eq!((sent.id, sent.name), (Some("call00000"), "weather"));
    let mut messages = ask();
    messages.extend([answer.message.clone(), Message::tool(&call.id, "Rain.")]);
    script(CALL);
    let again = model().chat(&messages, &options()).unwrap().answer().unwrap();
    assert_eq!(again.calls[0].id, "call00001");
}

#[test]
fn arguments_keep_the_models_order_where_nothing_was_converted() {
    let call = |days: &str| {
        format!(
            "<tool_call>{{\"name\": \"weather\", \"arguments\": {{\"days\": {days}, \"city\": \"Oslo\"}}}}</tool_call>"
        )
    };
    let arguments = |text: &str| {
        let (_, answer) = said(text, &options());
        let calls = answer.message.tool_calls();
        calls[0].arguments.and_then(Json::as_str).unwrap().to_owned()
    };
    assert_eq!(arguments(&call("2")), r#"{"days": 2, "city": "Oslo"}"#);
    let converted: serde_json::Value = serde_json::from_str(&arguments(&call("\"2\""))).unwrap();
    assert_eq!(converted, json!({"city": "Oslo", "days": 2}));
}

/// Events, with texts of one kind joined.
fn joined(deltas: Vec<Delta>) -> Vec<Delta> {
    let mut out: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (out.last_mut(), delta) {
            (Some(Delta::Text { text }), Delta::Text { text: more })
            | (Some(Delta::Reasoning { text }), Delta::Reasoning { text: more })
            | (Some(Delta::CallArguments { text, .. }), Delta::CallArguments { text: more, .. }) => {
                text.push_str(&more);
            }
            (_, delta) => out.push(delta),
        }
    }
    out
}

#[test]
fn however_tokens_cut_an_answer_it_is_the_same() {
    let text = format!(
        "<think>Är es 日本?</think>One STOP two.{CALL}Thr<tool_call>{{\"name\"</tool_call>ee. ST OP STO"
    );
    for stop in [vec![], vec!["STOP"], vec!["ST OP", "ee."], vec!["never"]] {
        let options = options().generate(GenerateOptions::default().stop(stop));
        let renderer = model().chat_renderer().unwrap();
        let asked = Asked::of(renderer, tokenizer(), &ask(), &options).unwrap();
        let read = |pieces: &[&str]| {
            let mut reader = Reader::new(tokenizer(), &asked, &options).unwrap();
            let mut deltas = Vec::new();
            let tokens = pieces.iter().flat_map(|piece| tokenizer().encode(piece, false).unwrap());
            for token in tokens {
                if !reader.push(token, &mut deltas) {
                    break;
                }
            }
            reader.finish(&mut deltas);
            joined(deltas)
        };
        let whole = read(&[&text]);
        let mut random = 1u64;
        for most in [1, 2, 3, 7, 20] {
            for _ in 0..20 {
                let (mut pieces, mut rest) = (Vec::new(), text.as_str());
                while !rest.is_empty() {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let n = 1 + (random >> 33) as usize % most;
                    let at = rest.char_indices().nth(n).map_or(rest.len(), |(at, _)| at);
                    let (piece, behind) = rest.split_at(at);
                    pieces.push(piece);
                    rest = behind;
                }
                assert_eq!(read(&pieces), whole, "{pieces:?}");
            }
        }
    }
}

#[test]
fn stop_strings_end_the_answers_text_and_nothing_else() {
    let options = options().generate(GenerateOptions::default().stop(["END", "Rain"]));
    let (_, answer) = said("<think>Rain END</think>One EN two END three four five six", &options);
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("Rain END", "One EN two "));
    assert_eq!(answer.finish.reason, ChatFinishReason::Stop);
    // It ended where the stop string did, not where its reader saw it.
    let expected = tokenizer().encode("<think>Rain END</think>One EN two END", false).unwrap().len();
    let usage = answer.finish.usage;
    assert!(usage.completion_tokens <= expected + 1, "{usage:?}, {expected}");
    let (_, call) = said(&CALL.replace("Oslo", "END"), &options);
    assert_eq!(call.calls[0].arguments["city"], "END");
}

#[test]
fn a_budget_leaves_calls_within_reasoning_whole() {
    let apertus =
        load("<|inner_prefix|>{% for m in messages %}{{ m.content }}{% endfor %}<|tools_prefix|>{{ tools }}");
    let call = "<|tools_prefix|>[{\"weather\": {\"city\": \"Oslo\", \"days\": 2}}]<|tools_suffix|>";
    let tokens =
        tokenizer().encode(&format!("<|inner_prefix|>a b{call} c d e f g<|im_end|>"), false).unwrap();
    let whole = tokens.len();
    SCRIPTS.with_borrow_mut(|scripts| scripts.push_back(tokens));
    // Here the markers are several tokens, of which the last is no reasoning.
    let thought = tokenizer().encode("a b<|tools_prefix|>", false).unwrap().len();
    let options = options().reasoning_budget(thought);
    let answer = apertus.chat(&ask(), &options).unwrap().answer().unwrap();
    let [called] = &answer.calls[..] else { panic!("{answer:?}") };
    assert_eq!(called.arguments, json!({"city": "Oslo", "days": 2}));
    // Behind it, the budget ends reasoning as ever.
    assert!(answer.reasoning.starts_with("a b") && answer.text.ends_with("g"), "{answer:?}");
    assert!(answer.finish.usage.reasoning_tokens < whole / 2, "{answer:?}");
}

#[test]
fn a_budget_ends_reasoning() {
    let long = "a b c d e f g h i j k l m n o p";
    let tokens = tokenizer().encode(long, false).unwrap();
    for limit in [0, 1, 5] {
        let (_, answer) = said(&format!("<think>{long}"), &options().reasoning_budget(limit));
        assert_eq!(answer.reasoning, tokenizer().decode(&tokens[..limit], false), "{limit}");
        assert_eq!(answer.text, tokenizer().decode(&tokens[limit..], false));
        assert_eq!(answer.finish.usage.reasoning_tokens, limit);
        // Every token of the script, the end, and the one that was forced.
        assert_eq!(answer.finish.usage.completion_tokens, tokens.len() + 3);
    }
    // Reasoning that ends by itself is left alone, and what begins again behind the budget ends at once.
    let (_, within) = said("<think>a b</think>c", &options().reasoning_budget(16));
    assert_eq!((within.reasoning.as_str(), within.text.as_str()), ("a b", "c"));
    let (_, again) = said("<think>a b c</think>d<think>e", &options().reasoning_budget(2));
    assert_eq!(again.finish.usage.reasoning_tokens, 2, "{again:?}");
    assert!(!again.reasoning.contains('e') && again.text.contains('e'), "{again:?}");
    // Where the prompt begins it.
    let begins = load(&TEMPLATE.replace("assistant\n", "assistant\n<think>\n"));
    script(long);
    let answer = begins.chat(&ask(), &ChatOptions::default().reasoning_budget(0)).unwrap().answer().unwrap();
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("", long));
}

#[test]
fn harmony_is_brought_to_its_answer() {
    let template = "{{ reasoning_effort }}{% if tools %}{% endif %}<|channel|>commentary<|message|>";
    let model = load(template);
    let renderer = model.chat_renderer().unwrap();
    let asked =
        Asked::of(renderer, tokenizer(), &ask(), &ChatOptions::default().reasoning_budget(3)).unwrap();
    assert_eq!(tokenizer().decode(&asked.budget.unwrap().end, false), speech::HARMONY_END);
}

#[test]
fn an_answer_cut_within_a_call_loses_nothing() {
    let tokens = tokenizer().encode(CALL, false).unwrap();
    for n in 1..tokens.len() - 1 {
        let (events, answer) = said(CALL, &options().generate(at_most(n)));
        let written = tokenizer().decode(&tokens[..n], false);
        let content = match answer.message.content() {
            Content::Text(text) => text.to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(answer.finish.reason, ChatFinishReason::Length);
        if answer.calls.is_empty() {
            assert_eq!(content, written);
            let problem = answer.malformed.first().map(|call| call.problem);
            assert!(matches!(problem, None | Some(CallProblem::Unfinished)), "{events:?}");
        }
    }
}

#[test]
fn malformed_calls_are_told_with_their_text() {
    let raw = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": Oslo}}</tool_call>";
    let (events, answer) = said(&format!("So: {raw} and on"), &options());
    let [call] = &answer.malformed[..] else { panic!("{events:?}") };
    assert_eq!((call.raw.as_str(), call.problem), (raw, CallProblem::InvalidJson));
    assert_eq!(answer.text, "So:  and on");
    assert_eq!(answer.message.content(), Content::Text(&format!("So: {raw} and on")));
    assert_eq!(answer.finish.reason, ChatFinishReason::Stop);
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    let always = "{% for m in messages %}<think>{{ m.content }}</think>{% endfor %}";
    let plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let reasoning = |request: ReasoningRequest| ChatOptions::default().reasoning(request);
    let low: ReasoningRequest = ReasoningEffort::Low.into();
    let cases = [
        (plain, reasoning(low), "reasoning"),
        (plain, reasoning(true.into()), "reasoning"),
        (plain, ChatOptions::default().reasoning_budget(3), "reasoning_budget"),
        (plain, options(), "tools"),
        (always, reasoning(false.into()), "reasoning"),
        (always, reasoning(ReasoningEffort::None.into()), "reasoning"),
        (always, reasoning(low), "reasoning"),
        (plain, ChatOptions::default().template("other"), "template"),
        (plain, ChatOptions::default().generate(GenerateOptions::default().logprobs(0)), "logprobs"),
        (plain, ChatOptions::default().generate(GenerateOptions::default().stop([""])), "stop[0]"),
        (plain, ChatOptions::default().generate(at_most(0)), "max_tokens"),
    ];
    for (template, options, field) in cases {
        let error = load(template).chat(&ask(), &options).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(error.context(), [("field", field.to_owned())], "{error}");
        assert!(error.hint().is_some());
    }
    // What goes without saying is none of it.
    for (template, request) in [(plain, false.into()), (always, true.into())] {
        load(template).chat(&ask(), &reasoning(request)).unwrap();
    }
    let told = format!("{always}{{{{ reasoning_effort }}}}");
    let stream = load(&told).chat(&ask(), &reasoning(low)).unwrap();
    assert!(stream.prompt().text.ends_with("low"), "{:?}", stream.prompt());
}

#[test]
fn requests_of_openais_shape_are_read() {
    let request = ChatRequest::from_json(
        r#"{"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}], "n": 1, "user": null,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "tool_choice": "auto",
            "max_completion_tokens": 7, "stop": "X", "seed": 3, "temperature": 0.5, "top_p": 0.9,
            "reasoning_effort": "low", "response_format": {"type": "text"},
            "chat_template_kwargs": {"enable_thinking": true, "x": 1}}"#,
    )
    .unwrap();
    let ChatOptions { render, generate, .. } = &request.options;
    assert_eq!((request.messages.len(), render.tools.len(), generate.max_tokens), (1, 1, Some(7)));
    assert_eq!((generate.stop.as_slice(), generate.sampling.seed), (&["X".to_owned()][..], Some(3)));
    assert_eq!((generate.sampling.temperature, generate.sampling.top_p), (0.5, 0.9));
    assert_eq!(
        render.reasoning,
        ReasoningRequest::default().effort(ReasoningEffort::Low).enable_thinking(true)
    );
    assert_eq!(render.variables, [("x".to_owned(), Json::Int(1))]);
    let none = r#"{"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"}"#;
    assert!(ChatRequest::from_json(none).unwrap().options.render.tools.is_empty());
    for (field, value) in [
        ("response_format.type", r#"{"type": "xml"}"#),
        ("response_format.type", "3"),
        ("tool_choice", r#""required""#),
        ("n", "2"),
        ("logit_bias", "{}"),
        ("max_tokens", r#""many""#),
        ("stop", "[1]"),
        ("seed", "-1"),
        ("reasoning_effort", r#""huge""#),
        ("chat_template_kwargs", "[]"),
    ] {
        let name = field.trim_end_matches(".type");
        let error = ChatRequest::from_json(&format!("{{\"{name}\": {value}}}")).unwrap_err();
        assert_eq!(
            (error.kind(), error.context()),
            (ErrorKind::InvalidArgument, &[("field", field.into())][..])
        );
    }
    for text in ["", "[]", r#"{"messages": 3}"#, r#"{"tools": [{}]}"#] {
        assert_eq!(ChatRequest::from_json(text).unwrap_err().kind(), ErrorKind::ChatInvalid, "{text}");
    }
}

#[test]
fn reasoning_is_turned_off_by_the_template() {
    let stream = model().chat(&ask(), &ChatOptions::default().reasoning(false)).unwrap();
    assert!(stream.prompt().text.ends_with("<think>\n\n</think>\n\n"), "{:?}", stream.prompt());
}

#[test]
fn models_without_a_template_say_so() {
    let bare = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(folder("qwen2").join(name), bare.path().join(name)).unwrap();
    }
    let model = Model::open(bare.path(), &LoadOptions::default()).unwrap();
    let error = model.chat(&ask(), &options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::TemplateInvalid);
    let broken = load("{% for");
    for _ in 0..2 {
        assert_eq!(broken.chat(&ask(), &options()).err().unwrap().kind(), ErrorKind::TemplateInvalid);
    }
}

#[test]
fn a_cancelled_answer_keeps_what_there_is() {
    let options = ChatOptions::default().generate(GenerateOptions::default().ignore_eos(true));
    let mut stream = model().chat(&ask(), &options).unwrap();
    let mut events: Vec<ChatEvent> = stream.by_ref().take(5).map(Result::unwrap).collect();
    stream.cancel();
    events.extend(stream.by_ref().map(Result::unwrap));
    let answer = stream.answer().unwrap();
    assert_eq!(answer.finish.reason, ChatFinishReason::Cancelled);
    assert!(answer.finish.usage.completion_tokens >= 5 && answer.finish.usage.prompt_tokens > 0);
    let text: String = events
        .iter()
        .filter_map(|event| match event {
            ChatEvent::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text, answer.text);
    assert!(!text.is_empty());
    // One that never began.
    let cancel = CancelToken::new();
    cancel.cancel();
    let options = ChatOptions::default().generate(GenerateOptions::default().cancel(cancel));
    let answer = model().chat(&ask(), &options).unwrap().answer().unwrap();
    assert_eq!((answer.finish.reason, answer.text.as_str()), (ChatFinishReason::Cancelled, ""));
    // One that was closed has no end.
    let mut stream = model().chat(&ask(), &ChatOptions::default()).unwrap();
    stream.close();
    assert_eq!(stream.answer().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_conversation_that_goes_on_is_not_computed_again() {
    let options = ChatOptions::default().generate(at_most(4));
    let long = "Tell me all that there is to be told of the weather in the north. ".repeat(12);
    let mut messages = vec![Message::system(long), Message::user("Hello")];
    // Its own: others would take its pages.
    let model = load(TEMPLATE);
    script("It rains.");
    let first = model.chat(&messages, &options).unwrap().answer().unwrap();
    messages.extend([first.message, Message::user("And now?")]);
    let second = model.chat(&messages, &options).unwrap().answer().unwrap();
    let usage = second.finish.usage;
    // At least whole pages of the first prompt.
    let pages = first.finish.usage.prompt_tokens / 64;
    assert!(pages > 0 && usage.cached_tokens >= pages * 64, "{usage:?}");
    // A session has it to the token, with the answer.
    let session = model.session().unwrap();
    let mut messages = ask();
    script("It rains.");
    let first = session.chat(&messages, &ChatOptions::default()).unwrap().answer().unwrap();
    messages.extend([first.message, Message::user("And now?")]);
    let second = session.chat(&messages, &options).unwrap().answer().unwrap();
    let usage = second.finish.usage;
    assert!(usage.cached_tokens >= first.finish.usage.prompt_tokens, "{usage:?}");
}

#[test]
fn an_answer_that_was_begun_is_continued() {
    let mut messages = ask();
    messages.push(Message::assistant("It rains"));
    script(" a lot.");
    let answer = model().chat(&messages, &ChatOptions::default()).unwrap().answer().unwrap();
    assert_eq!(answer.text, " a lot.");
    assert_eq!(answer.message.content(), Content::Text("It rains a lot."));
    script(" a lot.");
    let mut rounds = model().tool_rounds(messages, ChatOptions::default(), 1).unwrap();
    assert!(rounds.by_ref().all(|event| event.is_ok()));
    assert_eq!(rounds.messages().len(), 2);
}

#[test]
fn answers_can_be_polled() {
    script(&format!("Hm.{CALL}"));
    let mut stream = model().chat(&ask(), &options()).unwrap();
    let answer = pollster::block_on(std::future::poll_fn(|cx| stream.poll_answer(cx))).unwrap();
    assert_eq!((answer.text.as_str(), answer.calls.len()), ("Hm.", 1));
    assert!(pollster::block_on(std::future::poll_fn(|cx| stream.poll_event(cx))).is_none());
}

#[test]
fn functions_are_called_and_their_results_told() {
    script(&format!("<think>?</think>{CALL}{}", CALL.replace("weather", "other")));
    script("It rains.");
    let tools = Toolbox::default().tool(weather(), |arguments| Ok(format!("rain in {}", arguments["city"])));
    let mut chat = model().chat_with_tools(ask(), ChatOptions::default(), tools).unwrap();
    let events: Vec<ToolEvent> = chat.by_ref().map(Result::unwrap).collect();
    let results: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            ToolEvent::Result { round: 0, result } => Some((result.content.as_str(), result.failed)),
            _ => None,
        })
        .collect();
    assert_eq!(results[0], ("rain in \"Oslo\"", false));
    assert!(results[1].1 && results[1].0.contains("no function `other`"), "{results:?}");
    let roles: Vec<_> = chat.messages().iter().map(Message::role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant"]);
    assert_eq!(chat.messages()[3].tool_call_id(), Some("call00001"));
    assert_eq!(chat.messages()[4].content(), Content::Text("It rains."));
    assert_eq!(chat.finish().unwrap().reason, ChatFinishReason::Stop);
    // The second prompt begins with the first and its answer.
    assert!(chat.finish().unwrap().usage.cached_tokens > 64);
    assert!(events.iter().any(|event| matches!(event, ToolEvent::Answer { round: 1, .. })));
}

#[test]
fn functions_that_fail_are_told_or_end_it() {
    let failing = || Toolbox::default().tool(weather(), |_| Err("no wire".into()));
    script(CALL);
    script("Sorry.");
    let mut chat = model().chat_with_tools(ask(), ChatOptions::default(), failing()).unwrap();
    let messages = chat.run().unwrap();
    assert_eq!(messages[2].content(), Content::Text("error: no wire"));
    script(CALL);
    let ends = failing().on_failure(OnToolFailure::End);
    let mut chat = model().chat_with_tools(ask(), ChatOptions::default(), ends).unwrap();
    let error = chat.run().unwrap_err();
    assert_eq!(
        (error.kind(), error.context()),
        (ErrorKind::ToolFailed, &[("function", "weather".into())][..])
    );
    assert!(chat.next().is_none());
    assert_eq!(chat.messages().len(), 2);
}

#[test]
fn nothing_is_called_behind_a_cancellation() {
    let called = Arc::new(AtomicUsize::new(0));
    for (behind_result, calls) in [(false, 0), (true, 1)] {
        script(&format!("{CALL}{CALL}"));
        let counted = Arc::clone(&called);
        let tools = Toolbox::default().tool(weather(), move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok("rain".into())
        });
        let mut chat = model().chat_with_tools(ask(), ChatOptions::default(), tools).unwrap();
        while let Some(event) = chat.next() {
            match event.unwrap() {
                ToolEvent::Answer { round: 0, event: ChatEvent::Finish { .. } } if !behind_result => {
                    chat.cancel()
                }
                ToolEvent::Result { .. } if behind_result => chat.cancel(),
                _ => {}
            }
        }
        assert_eq!(called.swap(0, Ordering::Relaxed), calls);
        assert_eq!(chat.finish().unwrap().reason, ChatFinishReason::Cancelled);
        let Content::Text(last) = chat.messages()[3].content() else { panic!("{:?}", chat.messages()) };
        assert!(last.contains("cancelled"), "{last}");
    }
}

#[test]
fn rounds_are_bounded() {
    for rounds in [1, 3] {
        (0..rounds).for_each(|_| script(CALL));
        let tools = Toolbox::default().tool(weather(), |_| Ok("rain".into())).max_rounds(rounds);
        let mut chat = model().chat_with_tools(ask(), ChatOptions::default(), tools).unwrap();
        assert_eq!(chat.run().unwrap().len(), 2 * rounds);
        assert_eq!(chat.finish().unwrap().reason, ChatFinishReason::ToolCalls);
    }
    let none = Toolbox::default().max_rounds(0);
    let error = model().chat_with_tools(ask(), ChatOptions::default(), none).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = model().chat_with_tools(ask(), options(), Toolbox::default()).err().unwrap();
    assert_eq!(error.context(), [("field", "tools".to_owned())]);
    let mut rounds = model().tool_rounds(ask(), ChatOptions::default().generate(at_most(1)), 2).unwrap();
    assert_eq!(rounds.give("call00000", "").unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn profiles_are_those_of_the_checkpoints_cards() {
    for entry in std::fs::read_dir(folder("")).unwrap() {
        let path = entry.unwrap().path();
        let path = if path.join("model.gguf").exists() { path.join("model.gguf") } else { path };
        let checkpoint = crate::open_checkpoint(&path).unwrap();
        let card = ModelCard::from_checkpoint(&path).unwrap().profile();
        let own = Origin::of(&*checkpoint, &LoadOptions::default()).profile;
        let text = |profile: &Profile| Profile {
            supports_image_input: false,
            supports_native_multimodal: false,
            ..profile.clone()
        };
        assert_eq!(text(&own), text(&card), "{}", path.display());
        // A card that is given says it all.
        let options = LoadOptions::default().card(ModelCard::new("google/gemma-4-12b", 1, 1, 1));
        assert_eq!(Origin::of(&*checkpoint, &options).profile.family, "gemma");
    }
}
