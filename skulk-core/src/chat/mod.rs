//! How does a conversation become a prompt, and an answer reasoning, text and tool calls?
//!
//! [`Model::chat`](crate::Model::chat) does both.

mod dsml;
mod gemma4;
mod guard;
mod json;
mod message;
pub mod parse;
mod render;
mod template;

pub use json::Json;
pub use message::{Content, Message, Part, Tool, ToolCallRef};
pub use parse::{
    CallProblem, Delta, MalformedCall, OutputSyntax, ParseOptions, ReasoningSyntax, StreamParser, ToolCall,
    ToolSyntax,
};
pub use render::{ChatPrompt, ChatRenderer, RenderOptions};
pub(crate) use template::TemplateSources;
pub use template::{ChatTemplate, TemplateOptions};
