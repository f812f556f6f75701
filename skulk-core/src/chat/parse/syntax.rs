//! Which markup does a model's answer use? What its profile says, else its chat template.

use serde::Serialize;

use super::recognise;
use crate::card::{OutputParser, Profile, ReasoningFormat, ToolCallFormat};
use crate::macros::closed_set;

/// How a model marks reasoning and tool calls in what it writes.
///
/// ```
/// use skulk::chat::{OutputSyntax, ToolSyntax};
/// use skulk::card::{Profile, ProfileHints};
/// let profile = Profile::resolve("google/gemma-4-12B-it", None, &ProfileHints::default());
/// let syntax = OutputSyntax::of(&profile, None);
/// assert_eq!(syntax.tools, Some(ToolSyntax::Gemma4));
/// assert_eq!(syntax.reasoning.unwrap().end, "<channel|>");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OutputSyntax {
    /// The markers around reasoning; none where it has none, or where the syntax of tool calls includes it.
    pub reasoning: Option<ReasoningSyntax>,
    /// How tool calls are written; none where all is text.
    pub tools: Option<ToolSyntax>,
}

/// The markers around reasoning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReasoningSyntax {
    /// What begins it.
    pub start: String,
    /// What ends it.
    pub end: String,
}

closed_set! {
    /// How tool calls are written. Named after who began with it.
    pub enum ToolSyntax {
        /// `<tool_call>{"name": …, "arguments": …}</tool_call>`. Reads `Qwen3Coder`, too.
        Hermes = "hermes",
        /// `<tool_call><function=NAME><parameter=KEY>…</parameter></function></tool_call>`. Reads `Hermes`, too.
        Qwen3Coder = "qwen3_coder",
        /// The same within `<seed:tool_call>`.
        Seed = "seed",
        /// `<tool_call>NAME<arg_key>…</arg_key><arg_value>…</arg_value></tool_call>`.
        Glm = "glm",
        /// The same with `:opensource` in all tags, and a tag around all calls.
        Hunyuan = "hunyuan",
        /// `<tool_calls>` around a list of objects, or objects one after the other.
        ToolCalls = "tool_calls",
        /// `<TOOLCALL>[…]</TOOLCALL>`.
        Nemotron = "nemotron",
        /// `<longcat_tool_call>{…}</longcat_tool_call>`.
        Longcat = "longcat",
        /// `[TOOL_CALLS][…]`, or `[TOOL_CALLS]NAME[CALL_ID]…[ARGS]{…}`.
        Mistral = "mistral",
        /// `<|tool_call|>[…]`.
        Granite = "granite",
        /// `<|START_ACTION|>[{"tool_name": …, "parameters": …}]<|END_ACTION|>`.
        Cohere = "cohere",
        /// The same in a block of Markdown behind `Action:`.
        CommandR = "command_r",
        /// `functools[…]`.
        Functools = "functools",
        /// `<|tools_prefix|>[{"NAME": {…}}]<|tools_suffix|>`.
        Apertus = "apertus",
        /// `<|function_call|>{…}`.
        GigaChat = "gigachat",
        /// The same as a message of the role `function call`.
        GigaChatRole = "gigachat_role",
        /// `{"name": …, "parameters": …}` as the whole answer, or `<|python_tag|>NAME.call(…)`.
        Llama = "llama",
        /// `<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`.
        Kimi = "kimi",
        /// `<|open|>call tool="NAME"<|sep|><|open|>argument key="KEY"<|sep|>…`, of Kimi K3.
        KimiXtml = "kimi_xtml",
        /// `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`, of DeepSeek R1 and V3.
        DeepSeek = "deepseek",
        /// `<｜DSML｜invoke name="NAME">` within `<｜DSML｜function_calls>`, of DeepSeek V3.2.
        Dsml = "dsml",
        /// The same within `<｜DSML｜tool_calls>`, of DeepSeek V4.
        DsmlToolCalls = "dsml_tool_calls",
        /// `<minimax:tool_call><invoke name="NAME"><parameter name="KEY">…`.
        Minimax = "minimax",
        /// Elements named after arguments, each behind `]<]minimax[>[`, of MiniMax M3.
        MinimaxNested = "minimax_nested",
        /// `<function name="NAME"><param name="KEY">…</param></function>`.
        MiniCpm = "minicpm",
        /// `<atem:invoke name="NAME">…` in messages with recipients.
        Muse = "muse",
        /// `<function=NAME>{…}</function>`.
        FunctionaryTags = "functionary_tags",
        /// `>>>NAME`, a line break and JSON; text is `>>>all`.
        Functionary = "functionary",
        /// `<|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>{…}<|tool_call:end|>`.
        Solar = "solar",
        /// `<|tool_call_start|>[NAME(key="value")]<|tool_call_end|>`.
        Pythonic = "pythonic",
        /// `<|tool_call>call:NAME{key:<|"|>value<|"|>}<tool_call|>`.
        Gemma4 = "gemma4",
        /// `<start_function_call>call:NAME{key:<escape>value<escape>}<end_function_call>`.
        FunctionGemma = "function_gemma",
        /// Harmony, of gpt-oss: reasoning, answer and calls as messages on channels.
        Harmony = "harmony",
    }
}

impl ReasoningSyntax {
    /// Reasoning between these markers.
    pub fn new(start: impl Into<String>, end: impl Into<String>) -> Self {
        Self { start: start.into(), end: end.into() }
    }

    /// `<think>` and `</think>`.
    pub(super) fn think() -> Self {
        Self::new("<think>", "</think>")
    }

    /// Gemma 4's channel of thoughts.
    fn gemma4() -> Self {
        Self::new("<|channel>thought\n", "<channel|>")
    }
}

impl OutputSyntax {
    /// The syntax of a model. What its profile leaves open, the chat template's source tells, where there is one.
    pub fn of(profile: &Profile, template: Option<&str>) -> Self {
        let seen = template.map(Self::of_template).unwrap_or_default();
        match profile.output_parser {
            OutputParser::GptOss => return Self { reasoning: None, tools: Some(ToolSyntax::Harmony) },
            OutputParser::Gemma4 => {
                return Self { reasoning: Some(ReasoningSyntax::gemma4()), tools: Some(ToolSyntax::Gemma4) };
            }
            OutputParser::DeepseekV32 => {
                return Self { reasoning: Some(ReasoningSyntax::think()), tools: Some(ToolSyntax::Dsml) };
            }
            OutputParser::Generic => {}
        }
        let reasoning = match profile.thinking_format {
            ReasoningFormat::None => seen.reasoning,
            ReasoningFormat::TokenDelimited => seen.reasoning.or_else(|| Some(ReasoningSyntax::think())),
            ReasoningFormat::ChannelDelimited => Some(ReasoningSyntax::gemma4()),
        };
        let tools = match profile.tool_call_format {
            ToolCallFormat::Generic if template.is_some() => seen.tools,
            ToolCallFormat::Generic => profile.supports_tool_calling.then_some(ToolSyntax::Hermes),
            ToolCallFormat::Gemma4 => Some(ToolSyntax::Gemma4),
            ToolCallFormat::GptOss => Some(ToolSyntax::Harmony),
            ToolCallFormat::Dsml => Some(ToolSyntax::Dsml),
        };
        Self { reasoning, tools }
    }

    /// What a chat template's source tells of the answers it expects. It is not rendered.
    pub fn of_template(source: &str) -> Self {
        recognise::syntax(source)
    }

    /// Whether an answer to this prompt begins within reasoning: the prompt ends with the marker that begins it.
    pub fn starts_in_reasoning(&self, prompt: &str) -> bool {
        let prompt = prompt.trim_end();
        self.reasoning.as_ref().is_some_and(|reasoning| prompt.ends_with(reasoning.start.trim_end()))
    }
}
