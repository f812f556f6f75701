//! Talks with a model in the terminal: its answers as they are written, its reasoning dimmed, its calls shown, and its
//! speed at the end.
//!
//! `cargo run --release --example chat -- --model Qwen3-0.6B`. Lines come from standard input, which may be a pipe.
//! Without a model it runs the embedded default one, which goes on with stories and was made for no conversation: its
//! template writes messages one below the other.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use skulk::card::ReasoningEffort;
use skulk::chat::{Message, Tool};
use skulk::{
    ChatEvent, ChatFinish, ChatOptions, EngineOptions, Error, GenerateOptions, LoadOptions, Model, Sampling,
    ToolEvent, Toolbox,
};

/// Talks with a model.
#[derive(Parser)]
struct Args {
    /// A GGUF file, or a folder with safetensors, that has a chat template.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/stories260K"), hide_default_value = true)]
    model: PathBuf,
    /// How the assistant is to behave.
    #[arg(long)]
    system: Option<String>,
    /// How much it reasons: none, minimal, low, medium, high or xhigh.
    #[arg(long)]
    reasoning: Option<ReasoningEffort>,
    /// Tokens that it may reason at most.
    #[arg(long)]
    reasoning_budget: Option<usize>,
    /// Lets the model call a function that adds numbers, to show how it is done.
    #[arg(long)]
    tools: bool,
    /// Tokens of an answer at most.
    #[arg(long, default_value_t = 512)]
    max_tokens: usize,
    /// 0 takes the likeliest token.
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Seed of the random draw.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads to compute with; all cores unless given.
    #[arg(long)]
    threads: Option<usize>,
    /// Engine to run on.
    #[arg(long, default_value = "cpu")]
    engine: String,
    /// Tokens that the conversation can hold; the model's own limit, at most 4096, unless given.
    #[arg(long)]
    context: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Error> {
    let model = load(args)?;
    // Fails now where the model cannot chat.
    model.chat_renderer()?;
    let mut messages: Vec<Message> = args.system.iter().map(Message::system).collect();
    let is_typed = std::io::stdin().is_terminal();
    let mut lines = std::io::stdin().lock().lines();
    let mut last = None;
    loop {
        if is_typed {
            print!("> ");
            let _ = std::io::stdout().flush();
        }
        let Some(Ok(line)) = lines.next() else { break };
        if line.trim().is_empty() {
            continue;
        }
        messages.push(Message::user(line));
        last = answer(args, &model, &mut messages)?.or(last);
    }
    if let Some(ChatFinish { reason, usage, timings, .. }) = last {
        println!(
            "\nfirst token after {:.3} s; prompt {} tokens, {} of them known; answer {} tokens, {} of them reasoning, at {:.0} tok/s ({reason})",
            timings.time_to_first_token.as_secs_f64(),
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            usage.reasoning_tokens,
            timings.decode_tokens_per_second,
        );
    }
    Ok(())
}

fn load(args: &Args) -> Result<Model, Error> {
    let mut engine = EngineOptions::default();
    if let Some(threads) = args.threads {
        engine = engine.threads(threads);
    }
    let mut options = LoadOptions::default().engine_options(engine).engine_name(&args.engine);
    if let Some(context) = args.context {
        options = options.context(context);
    }
    Model::open(&args.model, &options)
}

/// Shows an answer while it is written, and puts it behind the messages.
fn answer(args: &Args, model: &Model, messages: &mut Vec<Message>) -> Result<Option<ChatFinish>, Error> {
    let sampling = Sampling::default().temperature(args.temperature).seed(args.seed);
    let generate = GenerateOptions::default().max_tokens(args.max_tokens).sampling(sampling);
    let mut options = ChatOptions::default().generate(generate);
    options.reasoning_budget = args.reasoning_budget;
    if let Some(effort) = args.reasoning {
        options = options.reasoning(effort);
    }
    let mut toolbox = Toolbox::default();
    if args.tools {
        toolbox = toolbox.tool(addition()?, |arguments| {
            let numbers = arguments["numbers"].as_array().ok_or("expected a list of numbers")?;
            Ok(numbers.iter().filter_map(serde_json::Value::as_f64).sum::<f64>().to_string())
        });
    }
    let mut chat = model.chat_with_tools(std::mem::take(messages), options, toolbox)?;
    let mut show = Show { is_dim: false, styles: std::io::stdout().is_terminal() };
    for event in &mut chat {
        match event? {
            ToolEvent::Answer { event, .. } => show.event(&event),
            ToolEvent::Result { result, .. } => {
                show.line(&format!("{} gave {}", result.name, result.content))
            }
            _ => {}
        }
        // A reader that went away is no failure of the conversation.
        let _ = std::io::stdout().flush();
    }
    show.dim(false);
    println!();
    messages.extend_from_slice(chat.messages());
    Ok(chat.finish().cloned())
}

/// A function that models are bad at.
fn addition() -> Result<Tool, Error> {
    let numbers = serde_json::json!({"type": "array", "items": {"type": "number"}});
    let parameters =
        serde_json::json!({"type": "object", "properties": {"numbers": numbers}, "required": ["numbers"]});
    Tool::new("add", "Adds numbers.", parameters.into())
}

/// Prints events.
struct Show {
    is_dim: bool,
    /// The output is a terminal.
    styles: bool,
}

impl Show {
    fn event(&mut self, event: &ChatEvent) {
        match event {
            ChatEvent::Reasoning { text } => {
                self.dim(true);
                print!("{text}");
            }
            ChatEvent::Text { text } => {
                self.dim(false);
                print!("{text}");
            }
            ChatEvent::CallFinished { call, .. } => {
                self.line(&format!("calls {} with {}", call.name, call.arguments));
            }
            ChatEvent::CallMalformed { call, .. } => {
                self.line(&format!("no call: {}: {}", call.message, call.raw));
            }
            _ => {}
        }
    }

    /// A line of its own.
    fn line(&mut self, line: &str) {
        self.dim(true);
        println!("\n[{line}]");
    }

    fn dim(&mut self, is_dim: bool) {
        if self.styles && self.is_dim != is_dim {
            print!("{}", if is_dim { "\x1b[2m" } else { "\x1b[0m" });
        }
        self.is_dim = is_dim;
    }
}
