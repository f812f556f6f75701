//! How does a conversation become a prompt, and an answer reasoning, text and tool calls?

mod dsml;
mod gemma4;
mod guard;
mod json;
mod message;
pub mod parse;
mod render;
mod template;

pub use json::Json;
pub use message::{Content, Message, Part, Tool, ToolCall};
pub use parse::{
    CallProblem, Delta, MalformedCall, OutputSyntax, ParseOptions, ReasoningSyntax, StreamParser, ToolSyntax,
};
pub use render::{ChatOptions, ChatPrompt, ChatRenderer};
pub use template::{ChatTemplate, TemplateOptions};
