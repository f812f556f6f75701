//! Is a call read in every syntax? Samples as models write them.

use super::*;

/// Around two calls of each syntax: `f` with a text, a number and a list, and `g` without arguments.
pub(super) const SAMPLES: &[(ToolSyntax, &str)] = &[
    (
        ToolSyntax::Hermes,
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}}\n</tool_call>\n\
         <tool_call>{\"arguments\": {}, \"name\": \"g\"}</tool_call>",
    ),
    (
        ToolSyntax::Qwen3Coder,
        "<tool_call>\n<function=f>\n<parameter=s>\na\n<b> é\n</parameter>\n<parameter=n>\n3\n</parameter>\n\
         <parameter=l>\n[1, \"x\"]\n</parameter>\n</function>\n</tool_call>\n<tool_call><function=g></function></tool_call>",
    ),
    (
        ToolSyntax::Seed,
        "<seed:tool_call>\n<function=f>\n<parameter=s>a\n<b> é</parameter>\n<parameter=n>3</parameter>\n\
         <parameter=l>[1, 'x']</parameter>\n</function>\n<function=g></function></seed:tool_call>",
    ),
    (
        ToolSyntax::Glm,
        "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a\n<b> é</arg_value>\n<arg_key>n</arg_key>\n\
         <arg_value>3</arg_value>\n<arg_key>l</arg_key><arg_value>[1, \"x\"]</arg_value>\n</tool_call>\
         <tool_call>g\n</tool_call>",
    ),
    (
        ToolSyntax::Hunyuan,
        "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>s\
         </arg_key:opensource>\n<arg_value:opensource>a\n<b> é</arg_value:opensource>\n<arg_key:opensource>n\
         </arg_key:opensource><arg_value:opensource>3</arg_value:opensource><arg_key:opensource>l\
         </arg_key:opensource><arg_value:opensource>[1, \"x\"]</arg_value:opensource>\n</tool_call:opensource>\n\
         <tool_call:opensource>g<tool_sep:opensource></tool_call:opensource></tool_calls:opensource>",
    ),
    (
        ToolSyntax::ToolCalls,
        "<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}}\n\
         {\"name\": \"g\", \"arguments\": \"{}\"}\n</tool_calls>",
    ),
    (
        ToolSyntax::Nemotron,
        "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}}, \
         {\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>",
    ),
    (
        ToolSyntax::Longcat,
        "<longcat_tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}}\n\
         </longcat_tool_call><longcat_tool_call>{\"name\": \"g\", \"arguments\": {}}</longcat_tool_call>",
    ),
    (
        ToolSyntax::Mistral,
        "[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}\
         [TOOL_CALLS][{\"name\": \"g\", \"arguments\": {}, \"id\": \"def\"}]",
    ),
    (
        ToolSyntax::Granite,
        "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}}, \
         {\"name\": \"g\", \"arguments\": {}}]",
    ),
    (
        ToolSyntax::Cohere,
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"s\": \"a\\n<b> é\", \
         \"n\": 3, \"l\": [1, \"x\"]}},\n {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n]\
         <|END_ACTION|>",
    ),
    (
        ToolSyntax::CommandR,
        "Action:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {\"s\": \"a\\n<b> é\", \
         \"n\": 3, \"l\": [1, \"x\"]}\n    },\n    {\"tool_name\": \"g\", \"parameters\": {}}\n]```",
    ),
    (
        ToolSyntax::Functools,
        "functools[{\"name\": \"f\", \"arguments\": {\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}}, \
         {\"name\": \"g\", \"arguments\": {}}]",
    ),
    (
        ToolSyntax::Apertus,
        "<|tools_prefix|>[{\"f\": {\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}}, {\"g\": {}}]<|tools_suffix|>",
    ),
    (
        ToolSyntax::GigaChat,
        "<|function_call|>{\"name\": \"f\", \"arguments\": {\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}}\
         <|function_call|>{\"name\": \"g\", \"arguments\": {}}",
    ),
    (
        ToolSyntax::GigaChatRole,
        "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\\n<b> é\", \"n\": 3, \
         \"l\": [1, \"x\"]}}<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"g\", \"arguments\": {}}",
    ),
    (
        ToolSyntax::Llama,
        "{\"name\": \"f\", \"parameters\": {\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}}<|python_tag|>g.call()",
    ),
    (
        ToolSyntax::Kimi,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"s\": \
         \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}<|tool_call_end|><|tool_call_begin|>functions.g:1\
         <|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    (
        ToolSyntax::KimiXtml,
        "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"s\" type=\"string\"\
         <|sep|>a\n<b> é<|close|>argument<|sep|><|open|>argument key=\"n\" type=\"number\"<|sep|>3<|close|>argument\
         <|sep|><|open|>argument key=\"l\" type=\"array\"<|sep|>[1, \"x\"]<|close|>argument<|sep|><|close|>call<|sep|>\
         <|open|>call tool=\"g\" index=\"2\"<|sep|><|open|>json type=\"object\"<|sep|>{}<|close|>json<|sep|>\
         <|close|>call<|sep|><|close|>tools<|sep|>",
    ),
    (
        ToolSyntax::DeepSeek,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"s\": \"a\\n<b> é\", \"n\": 3, \
         \"l\": [1, \"x\"]}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>\
         <｜tool▁calls▁end｜>",
    ),
    (
        ToolSyntax::Dsml,
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">a\n<b> é\
         </｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">3</｜DSML｜parameter>\n<｜DSML｜parameter \
         name=\"l\" string=\"false\">[1, \"x\"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n\
         </｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    (
        ToolSyntax::DsmlToolCalls,
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">a\n<b> é\
         </｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">3</｜DSML｜parameter>\n<｜DSML｜parameter \
         name=\"l\" string=\"false\">[1, \"x\"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n\n\
         </｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    ),
    (
        ToolSyntax::Minimax,
        "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">a\n<b> é</parameter>\n<parameter name=\"n\">3\
         </parameter>\n<parameter name=\"l\">[1, \"x\"]</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n\
         </minimax:tool_call>",
    ),
    (
        ToolSyntax::MinimaxNested,
        "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<s>a\n<b> é]<]minimax[>[</s>\
         ]<]minimax[>[<n>3]<]minimax[>[</n>]<]minimax[>[<l>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[<item>x\
         ]<]minimax[>[</item>]<]minimax[>[</l>]<]minimax[>[</invoke>\n]<]minimax[>[<invoke name=\"g\">\
         ]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    ),
    (
        ToolSyntax::MiniCpm,
        "<function name=\"f\"><param name=\"s\"><![CDATA[a\n<b> é]]></param><param name=\"n\">3</param>\
         <param name=\"l\">[1, 'x']</param></function>\n<function name=\"g\"></function>",
    ),
    (
        ToolSyntax::Muse,
        " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter name=\"s\">a\n<b> é\
         </atem:parameter>\n<atem:parameter name=\"n\">3</atem:parameter>\n<atem:parameter name=\"l\">[1, \"x\"]\
         </atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=g<|message|>\
         <atem:function_calls>\n<atem:invoke name=\"g\">\n</atem:invoke>\n</atem:function_calls><|eot|>",
    ),
    (
        ToolSyntax::FunctionaryTags,
        "<function=f>{\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}</function><function=g>{}</function>",
    ),
    (ToolSyntax::Functionary, "f\n{\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \"x\"]}>>>g\n{}"),
    (
        ToolSyntax::Solar,
        "<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>f<|tool_call:args|>{\"s\": \"a\\n<b> é\", \"n\": 3, \
         \"l\": [1, \"x\"]}<|tool_call:end|><|tool_call:begin|>def<|tool_call:name|>g<|tool_call:args|>{}\
         <|tool_call:end|><|calls|>",
    ),
    (
        ToolSyntax::Pythonic,
        "<|tool_call_start|>[f(s=\"a\\n<b> \\u00e9\", n=3, l=[1, 'x']), g()]<|tool_call_end|>",
    ),
    (
        ToolSyntax::Gemma4,
        "<|tool_call>call:f{s:<|\"|>a\n<b> é<|\"|>,n:3,l:[1,<|\"|>x<|\"|>]}<tool_call|><|tool_call>call:g{}<tool_call|>",
    ),
    (
        ToolSyntax::FunctionGemma,
        "<start_function_call>call:f{s:<escape>a\n<b> é<escape>,n:3,l:[1,<escape>x<escape>]}<end_function_call>\
         <start_function_call>call:g{}<end_function_call>",
    ),
    (
        ToolSyntax::Harmony,
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"s\": \"a\\n<b> é\", \"n\": 3, \"l\": [1, \
         \"x\"]}<|call|><|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>",
    ),
];

/// What the samples declare.
pub(super) fn offered() -> Vec<Value> {
    let properties = json!({"s": {"type": "string"}, "n": {"type": "integer"}, "l": {"type": "array"}});
    vec![tool("f", properties), tool("g", json!({}))]
}

#[test]
fn every_syntax_is_read() {
    for syntax in ToolSyntax::ALL {
        let (_, text) = SAMPLES.iter().find(|(known, _)| known == syntax).unwrap();
        let found = read_for(*syntax, &offered(), text);
        let expected = json!({"s": "a\n<b> é", "n": 3, "l": [1, "x"]});
        assert_eq!(found.called(), [("f", expected), ("g", json!({}))], "{syntax}: {found:?}");
        assert!(found.broken.is_empty(), "{syntax}");
        assert_eq!(found.text.trim(), "", "{syntax}");
    }
}

#[test]
fn ids_are_kept() {
    let ids = |syntax: ToolSyntax| {
        let (_, text) = SAMPLES.iter().find(|(known, _)| *known == syntax).unwrap();
        read(syntax, text).calls.into_iter().map(|(id, ..)| id.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids(ToolSyntax::Mistral), ["abc", "def"]);
    assert_eq!(ids(ToolSyntax::Cohere), ["0", "1"]);
    assert_eq!(ids(ToolSyntax::Kimi), ["functions.f:0", "functions.g:1"]);
    assert_eq!(ids(ToolSyntax::Solar), ["abc", "def"]);
}

#[test]
fn values_without_a_type_are_what_their_syntax_says() {
    let value = |syntax: ToolSyntax, text: &str| read(syntax, text).calls[0].2["a"].clone();
    let coder = "<tool_call><function=f><parameter=a>\n3\n</parameter></function></tool_call>";
    assert_eq!(value(ToolSyntax::Qwen3Coder, coder), json!("3"));
    let glm = "<tool_call>f<arg_key>a</arg_key><arg_value>3</arg_value></tool_call>";
    assert_eq!(value(ToolSyntax::Glm, glm), json!(3));
    let dsml = "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\">x</｜DSML｜parameter>\
                </｜DSML｜invoke></｜DSML｜function_calls>";
    assert_eq!(value(ToolSyntax::Dsml, dsml), json!("x"));
    assert_eq!(value(ToolSyntax::Gemma4, "<|tool_call>call:f{a:bare word}<tool_call|>"), json!("bare word"));
    assert_eq!(
        value(ToolSyntax::Pythonic, "<|tool_call_start|>f(a=-1.5e3,)<|tool_call_end|>"),
        json!(-1500.0)
    );
    assert_eq!(
        value(ToolSyntax::Pythonic, "<|tool_call_start|>f(a={'b': (1, None)})<|tool_call_end|>"),
        json!({"b": [1, null]})
    );
}

#[test]
fn harmony_tells_channels_apart() {
    let text = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>\
                <|start|>assistant<|channel|>final<|message|>Done<|return|>";
    let found = read(ToolSyntax::Harmony, text);
    assert_eq!((&found.reasoning[..], &found.text[..]), ("Hm", "I look.Done"));
    // The prompt ends behind the role, so that an answer may begin within its header.
    let found = read(ToolSyntax::Harmony, " to=functions.f<|channel|>commentary json<|message|>{}");
    assert_eq!(found.called(), [("f", json!({}))]);
    assert_eq!(read(ToolSyntax::Harmony, " to be").text, " to be");
    assert_eq!(read(ToolSyntax::Harmony, " to=x\n<|message|>y").text, " to=x\ny");
}

#[test]
fn functionary_addresses_the_user_as_all() {
    let found = read(ToolSyntax::Functionary, "all\nLet me see.>>>f\n{}");
    assert_eq!((&found.text[..], found.called()), ("Let me see.", vec![("f", json!({}))]));
    assert_eq!(read(ToolSyntax::Functionary, "No header here.\nMore").text, "No header here.\nMore");
}

#[test]
fn an_answer_in_json_is_a_call_only_where_it_is_one() {
    let text = "{\"name\": \"Ann\", \"age\": 3}";
    assert_eq!(read(ToolSyntax::Llama, text).text, text);
    let text = "{\"name\": \"f\", \"parameters\": {}}";
    assert_eq!(read(ToolSyntax::Llama, text).called(), [("f", json!({}))]);
    assert_eq!(read_for(ToolSyntax::Llama, &[tool("g", json!({}))], text).text, text, "no such tool");
    assert_eq!(read(ToolSyntax::Llama, "So: {\"name\"").text, "So: {\"name\"");
}
