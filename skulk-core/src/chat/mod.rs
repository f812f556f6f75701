//! How does a conversation become a prompt, and what does an answer say?

mod dsml;
mod gemma4;
mod guard;
mod json;
mod message;
mod render;
mod template;

pub use json::Json;
pub use message::{Content, Message, Part, Tool, ToolCall};
pub use render::{ChatOptions, ChatPrompt, ChatRenderer};
pub use template::{ChatTemplate, TemplateOptions};
