//! What becomes of calls that are none? Reports with all that was written, and the answer goes on.

use super::*;

fn problem(tools: ToolSyntax, text: &str) -> CallProblem {
    let found = read(tools, &format!("{text}after"));
    assert!(found.calls.is_empty(), "{text}");
    assert_eq!(found.broken.len(), 1, "{text}: {found:?}");
    let all = format!("{}{}", found.broken[0].2, found.text);
    assert_eq!(all, format!("{text}after"), "nothing is lost");
    found.broken[0].0
}

#[test]
fn malformed_calls_say_what_is_wrong() {
    let hermes = |body: &str| problem(ToolSyntax::Hermes, &format!("<tool_call>{body}</tool_call>"));
    assert_eq!(hermes(""), CallProblem::NoName);
    assert_eq!(hermes("{\"arguments\": {}}"), CallProblem::NoName);
    assert_eq!(hermes("{\"name\": 3, \"arguments\": {}}"), CallProblem::NoName);
    assert_eq!(hermes("{\"name\": \"f\"}"), CallProblem::NoArguments);
    assert_eq!(hermes("{\"name\": \"f\", \"arguments\": [1]}"), CallProblem::NoArguments);
    assert_eq!(hermes("{\"name\": \"f\", \"arguments\": {\"a\" 1}}"), CallProblem::InvalidJson);
    assert_eq!(hermes("{\"name\": \"f\", \"arguments\": {\"a\": \"\n\"}}"), CallProblem::InvalidJson);
    assert_eq!(hermes("{\"name\": \"f\", \"arguments\": {}} and more"), CallProblem::Syntax);
    assert_eq!(hermes("{\"name\": \"f\", \"name\": \"g\", \"arguments\": {}}"), CallProblem::Syntax);
    assert_eq!(hermes("no call"), CallProblem::NoName);
    let deep =
        format!("{{\"name\": \"f\", \"arguments\": {{\"a\": {}{}}}}}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(hermes(&deep), CallProblem::TooDeep);
    let gemma = |body: &str| problem(ToolSyntax::Gemma4, &format!("<|tool_call>{body}<tool_call|>"));
    assert_eq!(gemma("nothing"), CallProblem::NoName);
    assert_eq!(gemma("call:f{a}"), CallProblem::Syntax);
    assert_eq!(gemma(&format!("call:f{{a:{}", "[".repeat(5000))), CallProblem::TooDeep);
    let nested = format!(
        "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">{}]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
        "]<]minimax[>[<a>".repeat(5000)
    );
    assert_eq!(problem(ToolSyntax::MinimaxNested, &nested), CallProblem::TooDeep);
    let seed = "<seed:tool_call><function=}\"Δ\": \"Α\"></function></seed:tool_call>";
    assert_eq!(problem(ToolSyntax::Seed, seed), CallProblem::NoName);
    let quoted =
        "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"Α></｜DSML｜invoke></｜DSML｜function_calls>";
    assert_eq!(problem(ToolSyntax::Dsml, quoted), CallProblem::NoName);
    let dsml = "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" string=\"false\">x\
                </｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>";
    assert_eq!(problem(ToolSyntax::Dsml, dsml), CallProblem::InvalidJson);
}

#[test]
fn unfinished_calls_keep_their_text() {
    for (syntax, text) in super::samples::SAMPLES {
        let mut ended = 0;
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let found = read(*syntax, &text[..end]);
            for (problem, _, raw) in &found.broken {
                assert_eq!(*problem, CallProblem::Unfinished, "{syntax}: {}", &text[..end]);
                assert!(text[..end].ends_with(raw.as_str()), "{syntax}: {raw}");
            }
            assert!(found.calls.len() + found.broken.len() <= 2);
            ended += found.broken.len();
        }
        assert!(ended > 10, "{syntax}");
    }
}

#[test]
fn calls_that_are_whole_count_though_others_are_not() {
    let text = "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": oops}]</TOOLCALL> so";
    let found = read(ToolSyntax::Nemotron, text);
    assert_eq!(found.called(), [("f", json!({}))]);
    assert_eq!(found.broken[0].2, ", {\"name\": oops}]</TOOLCALL>");
    assert_eq!(found.text, " so");
}

#[test]
fn text_between_calls_is_text() {
    let text = "<｜tool▁calls▁begin｜>I call <｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>.";
    let found = read(ToolSyntax::DeepSeek, text);
    assert_eq!((&found.text[..], found.called()), ("I call .", vec![("f", json!({}))]));
}

/// What was told as text is no part of the call behind it.
#[test]
fn text_before_a_call_that_is_none_is_told_once() {
    for (syntax, opening, call, body, close) in [
        (
            ToolSyntax::DeepSeek,
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "f<｜tool▁sep｜>{1}",
            "<｜tool▁calls▁end｜>",
        ),
        (
            ToolSyntax::Dsml,
            "<｜DSML｜function_calls>",
            "<｜DSML｜invoke name=\"",
            "f\"> no",
            "</｜DSML｜function_calls>",
        ),
        (
            ToolSyntax::MinimaxNested,
            "]<]minimax[>[<tool_call>",
            "]<]minimax[>[<invoke name=\"",
            "f\">]<]minimax[>[<",
            "]<]minimax[>[</invoke>",
        ),
        (ToolSyntax::Gemma4, "<|tool_call>", "call:", "f{a}", "<tool_call|>"),
    ] {
        let text = format!("{opening}I call {call}{body}{close}");
        for cut in (1..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let parser = StreamParser::new(&think(syntax), &ParseOptions::default()).unwrap();
            let found = whole(parser, &[(&text[..cut], false), (&text[cut..], false)]);
            assert_eq!(found.text, "I call ", "{syntax}");
            let raws: Vec<&str> = found.broken.iter().map(|(.., raw)| raw.as_str()).collect();
            assert_eq!(raws, [format!("{call}{body}{close}")], "{syntax}");
        }
    }
}

/// What is behind the last call is no text where it is nothing but the end of a list, whatever the call has read.
#[test]
fn what_a_string_escapes_is_not_told() {
    for string in ["A", "\\u0041", "\\x41"] {
        let text = format!("<|tool_call_start|>[f(x=\"{string}\")]");
        let found = read(ToolSyntax::Pythonic, &text);
        assert_eq!((&*found.text, found.called()), ("", vec![("f", json!({"x": "A"}))]), "{string}");
    }
}

/// Beside elements there is no text: with it, a call is none, and all of it is kept.
#[test]
fn text_beside_elements_is_not_lost() {
    let nested = |body: &str| {
        let body = body.replace('<', "]<]minimax[>[<");
        let text = format!(
            "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">{body}]<]minimax[>[</invoke>\
             ]<]minimax[>[</tool_call>"
        );
        read(ToolSyntax::MinimaxNested, &text)
    };
    let found = nested("\n<a> <item>1</item>\n<item>2</item> </a>\n");
    assert_eq!(found.called(), [("f", json!({"a": [1, 2]}))]);
    for body in ["x<a>1</a>", "<a>1</a>x", "<a>x<item>1</item></a>", "<a><item>1</item>x</a>"] {
        let found = nested(body);
        assert_eq!((found.broken.len(), found.calls.len()), (1, 0), "{body}");
        assert!(found.broken[0].2.contains('x'), "{body}");
        assert_eq!(found.broken[0].0, CallProblem::Syntax, "{body}");
    }
}

#[test]
fn half_a_marker_at_the_end_is_text() {
    for half in ["<tool_cal", "<", "<thi"] {
        assert_eq!(read(ToolSyntax::Hermes, half).text, half);
    }
    assert_eq!(read(ToolSyntax::Harmony, "<|channel|>fin").text, "<|channel|>fin");
    assert_eq!(read(ToolSyntax::Hermes, "<think>a</thi").reasoning, "a</thi");
}

/// Quadratic work would take minutes.
#[test]
fn long_answers_are_read_in_a_linear_time() {
    let long = |unit: &str| unit.repeat(300_000 / unit.len());
    for (syntax, text) in [
        (ToolSyntax::Hermes, long("<tool_cal")),
        (
            ToolSyntax::Hermes,
            format!("<tool_call>{{\"name\": \"f\", \"arguments\": {{\"a\": \"{}", long("</tool_call")),
        ),
        (ToolSyntax::Hermes, long("<tool_call>x")),
        (ToolSyntax::Qwen3Coder, format!("<tool_call><function=f><parameter=a>{}", long("</parameter\n"))),
        (ToolSyntax::Gemma4, format!("<|tool_call>call:f{{a:<|\"|>{}", long("<|\"|"))),
        (ToolSyntax::Pythonic, format!("<|tool_call_start|>f(a='{}", long("\\n'"))),
        (ToolSyntax::Harmony, long("<|channel|>final<|message|>a<|end|>")),
        (ToolSyntax::Harmony, long("<|channel|>")),
        (
            ToolSyntax::MinimaxNested,
            format!("]<]minimax[>[<tool_call>{}", long("]<]minimax[>[<invoke name=\"f\">")),
        ),
    ] {
        let mut parser = StreamParser::new(&think(syntax), &ParseOptions::default()).unwrap();
        for c in text.chars() {
            parser.push(c.encode_utf8(&mut [0; 4]), false);
        }
        parser.finish();
    }
}
