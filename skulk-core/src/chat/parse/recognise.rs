//! Which syntax does a chat template expect of answers? Seen in its source.

use super::syntax::{OutputSyntax, ReasoningSyntax, ToolSyntax};

/// What a source that has all these texts writes. The first line that fits counts. Texts are as they stand in sources,
/// line breaks as `\n`.
const TOOLS: &[(&[&str], ToolSyntax)] = &[
    (&["<|channel|>commentary", "<|message|>"], ToolSyntax::Harmony),
    (&["<atem:function_calls>"], ToolSyntax::Muse),
    (&[">>>${recipient}"], ToolSyntax::Functionary),
    (&["｜DSML｜", "function_calls>"], ToolSyntax::Dsml),
    (&["｜DSML｜", "tool_calls>"], ToolSyntax::DsmlToolCalls),
    (&["<｜tool▁calls▁begin｜>"], ToolSyntax::DeepSeek),
    (&["<|tool_calls_section_begin|>"], ToolSyntax::Kimi),
    (&["'<|open|>'", "open_tag('call'"], ToolSyntax::KimiXtml),
    (&["]<]minimax[>["], ToolSyntax::MinimaxNested),
    (&["<minimax:tool_call>"], ToolSyntax::Minimax),
    (&["<seed:tool_call>"], ToolSyntax::Seed),
    (&["<longcat_tool_call>"], ToolSyntax::Longcat),
    (&["<tool_calls{}>", "<arg_key{}>", ":opensource"], ToolSyntax::Hunyuan),
    (&["<tool_call>", "<arg_key>"], ToolSyntax::Glm),
    (&["<tool_call>", "<function="], ToolSyntax::Qwen3Coder),
    (&["<function="], ToolSyntax::FunctionaryTags),
    (&["<function name=\""], ToolSyntax::MiniCpm),
    (&["<|tool_call>call:"], ToolSyntax::Gemma4),
    (&["<start_function_call>"], ToolSyntax::FunctionGemma),
    (&["<|tool_call_start|>"], ToolSyntax::Pythonic),
    // The LFM family's; its first templates leave the calls to the model.
    (&["List of tools: "], ToolSyntax::Pythonic),
    (&["<|tool_call:begin|>"], ToolSyntax::Solar),
    (&["<|tools_prefix|>"], ToolSyntax::Apertus),
    (&["<|START_ACTION|>"], ToolSyntax::Cohere),
    (&["Action:\\n```json"], ToolSyntax::CommandR),
    (&["functools["], ToolSyntax::Functools),
    (&["<|function_call|>"], ToolSyntax::GigaChat),
    (&["'function call'", "<|role_sep|>"], ToolSyntax::GigaChatRole),
    (&["[TOOL_CALLS]"], ToolSyntax::Mistral),
    (&["<TOOLCALL>"], ToolSyntax::Nemotron),
    (&["<|tool_call|>"], ToolSyntax::Granite),
    (&["{\"name\": function name, \"parameters\":"], ToolSyntax::Llama),
    (&["<tool_calls>"], ToolSyntax::ToolCalls),
    (&["<tool_call>"], ToolSyntax::Hermes),
];

/// The same for the markers around reasoning.
const REASONING: &[(&[&str], &str, &str)] = &[
    (&["<seed:think>"], "<seed:think>", "</seed:think>"),
    (&["<mm:think>"], "<mm:think>", "</mm:think>"),
    (&["<think{}>", ":opensource"], "<think:opensource>", "</think:opensource>"),
    (&["'<|open|>'", "open_tag('think'"], "<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    (&["<|channel>thought"], "<|channel>thought\n", "<channel|>"),
    (&["<|START_THINKING|>"], "<|START_THINKING|>", "<|END_THINKING|>"),
    (&["<|inner_prefix|>"], "<|inner_prefix|>", "<|inner_suffix|>"),
    (&["<|begin|>assistant", "<|think|>"], "<|think|>", "<|end|>"),
    (&["[THINK]"], "[THINK]", "[/THINK]"),
    (
        &["Here are my reasoning steps:\\n", "[BEGIN FINAL RESPONSE]"],
        "Here are my reasoning steps:\n",
        "[BEGIN FINAL RESPONSE]",
    ),
    (&["'<thinking>'"], "<thinking>", "</thinking>"),
    (&["</think>"], "<think>", "</think>"),
];

pub(super) fn syntax(source: &str) -> OutputSyntax {
    let has = |texts: &[&str]| texts.iter().all(|text| source.contains(text));
    // A marker alone is no sign: the template must speak of tools beside it.
    let speaks = |texts: &[&str]| {
        let mut rest = source.to_owned();
        for text in texts {
            rest = rest.replace(text, "");
        }
        rest.contains("tool")
    };
    let tools = TOOLS.iter().find(|(texts, _)| has(texts) && speaks(texts)).map(|(_, syntax)| *syntax);
    let by_headers = matches!(tools, Some(ToolSyntax::Harmony | ToolSyntax::Muse | ToolSyntax::Functionary));
    let reasoning = REASONING.iter().find(|(texts, ..)| !by_headers && has(texts));
    OutputSyntax { reasoning: reasoning.map(|(_, start, end)| ReasoningSyntax::new(*start, *end)), tools }
}
