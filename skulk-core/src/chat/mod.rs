//! How does a conversation become a prompt, and an answer reasoning, text and tool calls?

pub mod parse;

pub use parse::{
    CallProblem, Delta, MalformedCall, OutputSyntax, ParseOptions, ReasoningSyntax, StreamParser, ToolCall,
    ToolSyntax,
};
