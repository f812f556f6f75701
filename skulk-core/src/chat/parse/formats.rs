//! Which markup does each syntax of tool calls use? A table; what reads it is in `call`.

use super::format::{Addressing, Body, Channels, Dialect, Format, Header, Json, Named, Nested, Tags, Values};
use super::syntax::ToolSyntax;

const JSON: Body = Body::Json(Json { name_is_key: false, in_list: false, sequence: false });
const PLAIN: Format = Format {
    starts: &[],
    close: "",
    bodies: &[JSON],
    dropped: &[],
    in_reasoning: false,
    bare: false,
    channels: None,
};

const QWEN: Tags = Tags {
    call: "<function=",
    name_end: ">",
    key: "<parameter=",
    key_end: ">",
    value: "",
    value_end: "</parameter>",
    call_end: "</function>",
    whole: None,
    values: Values::Lines,
};

const HERMES: Format =
    Format { starts: &["<tool_call>"], close: "</tool_call>", bodies: &[JSON, Body::Tagged(&QWEN)], ..PLAIN };

const GLM: Tags = Tags {
    call: "",
    name_end: "",
    key: "<arg_key>",
    key_end: "</arg_key>",
    value: "<arg_value>",
    value_end: "</arg_value>",
    call_end: "",
    whole: None,
    values: Values::Json,
};

const DSML_TAGS: Tags = Tags {
    call: "<｜DSML｜invoke name=\"",
    name_end: ">",
    key: "<｜DSML｜parameter name=\"",
    key_end: ">",
    value: "",
    value_end: "</｜DSML｜parameter>",
    call_end: "</｜DSML｜invoke>",
    whole: None,
    values: Values::Json,
};

const HARMONY: Channels = Channels {
    opens: &["<|channel|>", "<|start|>"],
    message: "<|message|>",
    ends: &["<|end|>", "<|return|>", "<|call|>"],
    addressing: Addressing::Harmony,
};

/// How calls are written in this syntax.
pub(super) fn format(syntax: ToolSyntax) -> Format {
    match syntax {
        ToolSyntax::Hermes | ToolSyntax::Qwen3Coder => HERMES,
        ToolSyntax::Seed => Format { starts: &["<seed:tool_call>"], close: "</seed:tool_call>", ..HERMES },
        ToolSyntax::ToolCalls => Format {
            starts: &["<tool_calls>"],
            close: "</tool_calls>",
            bodies: &[Body::Json(Json { name_is_key: false, in_list: false, sequence: true })],
            ..PLAIN
        },
        ToolSyntax::Nemotron => Format { starts: &["<TOOLCALL>"], close: "</TOOLCALL>", ..PLAIN },
        ToolSyntax::Longcat => {
            Format { starts: &["<longcat_tool_call>"], close: "</longcat_tool_call>", ..PLAIN }
        }
        ToolSyntax::Granite => Format { starts: &["<|tool_call|>"], ..PLAIN },
        ToolSyntax::Cohere => Format {
            starts: &["<|START_ACTION|>"],
            close: "<|END_ACTION|>",
            dropped: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"],
            ..PLAIN
        },
        ToolSyntax::CommandR => {
            Format { starts: &["Action:\n```json\n", "Action: ```json\n"], close: "```", ..PLAIN }
        }
        ToolSyntax::Functools => Format {
            starts: &["functools["],
            bodies: &[Body::Json(Json { name_is_key: false, in_list: true, sequence: false })],
            ..PLAIN
        },
        ToolSyntax::Apertus => Format {
            starts: &["<|tools_prefix|>"],
            close: "<|tools_suffix|>",
            bodies: &[Body::Json(Json { name_is_key: true, in_list: false, sequence: false })],
            in_reasoning: true,
            ..PLAIN
        },
        ToolSyntax::GigaChat => {
            Format { starts: &["<|function_call|>"], dropped: &["<|message_sep|>\n\n"], ..PLAIN }
        }
        ToolSyntax::GigaChatRole => {
            Format { starts: &["function call<|role_sep|>\n"], dropped: &["<|message_sep|>\n\n"], ..PLAIN }
        }
        ToolSyntax::Llama => Format {
            starts: &["<|python_tag|>"],
            bodies: &[
                JSON,
                Body::Literal(&Dialect { call: "", open: '(', assign: '=', quote: "", suffix: ".call" }),
            ],
            bare: true,
            ..PLAIN
        },
        ToolSyntax::Mistral => Format {
            starts: &["[TOOL_CALLS]"],
            bodies: &[JSON, Body::Named(&Named { call: "", end: "", header: Header::Mistral })],
            ..PLAIN
        },
        ToolSyntax::Kimi => Format {
            starts: &["<|tool_calls_section_begin|>"],
            close: "<|tool_calls_section_end|>",
            bodies: &[Body::Named(&Named {
                call: "<|tool_call_begin|>",
                end: "<|tool_call_end|>",
                header: Header::Kimi,
            })],
            ..PLAIN
        },
        ToolSyntax::DeepSeek => Format {
            starts: &["<｜tool▁calls▁begin｜>"],
            close: "<｜tool▁calls▁end｜>",
            bodies: &[Body::Named(&Named {
                call: "<｜tool▁call▁begin｜>",
                end: "<｜tool▁call▁end｜>",
                header: Header::DeepSeek,
            })],
            ..PLAIN
        },
        ToolSyntax::Solar => Format {
            starts: &["<|tool_call:begin|>"],
            close: "<|tool_call:end|>",
            bodies: &[Body::Named(&Named { call: "", end: "", header: Header::Solar })],
            dropped: &["<|begin|>assistant", "<|content|>", "<|tool_calls|>", "<|calls|>", "<|end|>"],
            ..PLAIN
        },
        ToolSyntax::FunctionaryTags => Format {
            starts: &["<function="],
            close: "</function>",
            bodies: &[Body::Named(&Named { call: "", end: "", header: Header::Until(">") })],
            ..PLAIN
        },
        ToolSyntax::Glm => Format { bodies: &[JSON, Body::Tagged(&GLM)], ..HERMES },
        ToolSyntax::Hunyuan => Format {
            starts: &["<tool_calls:opensource>"],
            close: "</tool_calls:opensource>",
            bodies: &[Body::Tagged(&Tags {
                call: "<tool_call:opensource>",
                name_end: "<tool_sep:opensource>",
                key: "<arg_key:opensource>",
                key_end: "</arg_key:opensource>",
                value: "<arg_value:opensource>",
                value_end: "</arg_value:opensource>",
                call_end: "</tool_call:opensource>",
                ..GLM
            })],
            ..PLAIN
        },
        ToolSyntax::Minimax => Format {
            starts: &["<minimax:tool_call>"],
            close: "</minimax:tool_call>",
            bodies: &[Body::Tagged(&Tags {
                call: "<invoke name=\"",
                key: "<parameter name=\"",
                call_end: "</invoke>",
                ..QWEN
            })],
            ..PLAIN
        },
        ToolSyntax::MinimaxNested => Format {
            starts: &["]<]minimax[>[<tool_call>"],
            close: "]<]minimax[>[</tool_call>",
            bodies: &[Body::Nested(&Nested {
                prefix: "]<]minimax[>[",
                call: "]<]minimax[>[<invoke name=\"",
                call_end: "]<]minimax[>[</invoke>",
            })],
            ..PLAIN
        },
        ToolSyntax::MiniCpm => Format {
            starts: &["<function name=\""],
            close: "</function>",
            bodies: &[Body::Tagged(&Tags {
                call: "",
                name_end: ">",
                key: "<param name=\"",
                value_end: "</param>",
                call_end: "",
                values: Values::Text,
                ..QWEN
            })],
            ..PLAIN
        },
        ToolSyntax::Dsml => Format {
            starts: &["<｜DSML｜function_calls>"],
            close: "</｜DSML｜function_calls>",
            bodies: &[Body::Tagged(&DSML_TAGS)],
            ..PLAIN
        },
        ToolSyntax::DsmlToolCalls => Format {
            starts: &["<｜DSML｜tool_calls>"],
            close: "</｜DSML｜tool_calls>",
            bodies: &[Body::Tagged(&DSML_TAGS)],
            ..PLAIN
        },
        ToolSyntax::KimiXtml => Format {
            starts: &["<|open|>tools<|sep|>"],
            close: "<|close|>tools<|sep|>",
            bodies: &[Body::Tagged(&Tags {
                call: "<|open|>call tool=\"",
                name_end: "<|sep|>",
                key: "<|open|>argument key=\"",
                key_end: "<|sep|>",
                value: "",
                value_end: "<|close|>argument<|sep|>",
                call_end: "<|close|>call<|sep|>",
                whole: Some(("<|open|>json type=\"object\"<|sep|>", "<|close|>json<|sep|>")),
                values: Values::Json,
            })],
            dropped: &[
                "<|open|>response<|sep|>",
                "<|close|>response<|sep|>",
                "<|close|>message<|sep|>",
                "<|end_of_msg|>",
            ],
            ..PLAIN
        },
        ToolSyntax::Muse => Format {
            starts: &["<atem:function_calls>"],
            close: "</atem:function_calls>",
            bodies: &[Body::Tagged(&Tags {
                call: "<atem:invoke name=\"",
                key: "<atem:parameter name=\"",
                value_end: "</atem:parameter>",
                call_end: "</atem:invoke>",
                values: Values::Json,
                ..QWEN
            })],
            channels: Some(&Channels {
                opens: &["<|start|>"],
                message: "<|message|>",
                ends: &["<|eom|>", "<|eot|>"],
                addressing: Addressing::Recipient,
            }),
            ..PLAIN
        },
        ToolSyntax::Pythonic => Format {
            starts: &["<|tool_call_start|>"],
            close: "<|tool_call_end|>",
            bodies: &[Body::Literal(&Dialect { call: "", open: '(', assign: '=', quote: "", suffix: "" })],
            ..PLAIN
        },
        ToolSyntax::Gemma4 => Format {
            starts: &["<|tool_call>"],
            close: "<tool_call|>",
            bodies: &[Body::Literal(&Dialect {
                call: "call:",
                open: '{',
                assign: ':',
                quote: "<|\"|>",
                suffix: "",
            })],
            ..PLAIN
        },
        ToolSyntax::FunctionGemma => Format {
            starts: &["<start_function_call>"],
            close: "<end_function_call>",
            bodies: &[Body::Literal(&Dialect {
                call: "call:",
                open: '{',
                assign: ':',
                quote: "<escape>",
                suffix: "",
            })],
            ..PLAIN
        },
        ToolSyntax::Harmony => Format { channels: Some(&HARMONY), ..PLAIN },
        ToolSyntax::Functionary => Format {
            channels: Some(&Channels {
                opens: &[">>>"],
                message: "\n",
                ends: &[],
                addressing: Addressing::Line,
            }),
            ..PLAIN
        },
    }
}
