//! Holds 16 conversations at once, with a progress line each, and ends with the speed of all together.
//!
//! Without arguments it runs the embedded default model: `cargo run --release --example conversations`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use skulk::{
    ByteSize, EngineOptions, GenerateOptions, Generation, LoadOptions, Model, Prompt, Sampling, Session,
};

/// Holds many conversations with a model at once.
#[derive(Parser)]
struct Args {
    /// A GGUF file, a folder with safetensors, or a vindex.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/stories260K"), hide_default_value = true)]
    model: PathBuf,
    /// Conversations.
    #[arg(long, default_value_t = 16)]
    conversations: usize,
    /// Answers in each of them.
    #[arg(long, default_value_t = 2)]
    turns: usize,
    /// Tokens of an answer at most.
    #[arg(long, default_value_t = 32)]
    max_tokens: usize,
    /// Bytes that keys and values may take; what they need, unless given.
    #[arg(long)]
    kv_memory: Option<u64>,
    /// Threads to compute with; all cores unless given.
    #[arg(long)]
    threads: Option<usize>,
}

/// How every conversation begins: it is computed once.
const OPENING: &str = "Once upon a time, there was a little girl named Lily. She lived in a big house with her mom and \
    her dad. She had many friends, and she loved to play with them in the park.";

/// What is said to the model, turn by turn.
const TURNS: [&str; 3] = [" One day, Lily met a", " Her mom said,", " Then"];

const FRIENDS: [&str; 8] = [" cat", " dog", " bird", " boy", " fish", " bear", " bug", " duck"];

struct Conversation {
    session: Session,
    line: ProgressBar,
    /// What was said, without the opening.
    text: String,
    tokens: usize,
    /// Tokens of prompts that were there already.
    cached: usize,
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

fn run(args: &Args) -> skulk::Result<()> {
    let mut engine = EngineOptions::default();
    engine.threads = args.threads.unwrap_or(engine.threads);
    let mut options = LoadOptions::default().engine_options(engine);
    options.kv_memory = args.kv_memory.map(ByteSize);
    let model = Model::open(&args.model, &options)?;

    let opening = model.session()?;
    let read = opening.generate(OPENING, GenerateOptions::default().max_tokens(1))?.output()?;
    opening.truncate(read.finish.usage.prompt_tokens)?;

    let lines = MultiProgress::new();
    let conversation = |_| {
        let line = lines.add(ProgressBar::new((args.turns * args.max_tokens) as u64));
        if let Ok(style) = ProgressStyle::with_template("{bar:16} {pos:>4} tokens {wide_msg}") {
            line.set_style(style);
        }
        Ok(Conversation { session: opening.fork()?, line, text: String::new(), tokens: 0, cached: 0 })
    };
    let mut all = (0..args.conversations).map(conversation).collect::<skulk::Result<Vec<_>>>()?;
    let began = Instant::now();
    for turn in 0..args.turns {
        let start = |(i, one): (usize, &mut Conversation)| one.say(args, turn, i);
        let mut running = all.iter_mut().enumerate().map(start).collect::<skulk::Result<Vec<_>>>()?;
        // Each step has a token for everyone: this reads one of each in turn. Who has ended is left out.
        while !running.is_empty() {
            let mut going = Vec::with_capacity(running.len());
            for (i, mut generation) in running {
                if all[i].hear(&mut generation)? {
                    going.push((i, generation));
                }
            }
            running = going;
        }
    }
    let seconds = began.elapsed().as_secs_f64();

    for (i, one) in all.iter().enumerate() {
        one.line.finish_and_clear();
        let Conversation { text, tokens, cached, .. } = one;
        println!("{i:>2}: {tokens} tokens, {cached} not computed again:{}", text.replace('\n', " "));
    }
    let tokens: usize = all.iter().map(|one| one.tokens).sum();
    let memory = model.kv_memory();
    println!(
        "{} conversations: {tokens} tokens in {seconds:.2} s, {:.0} tok/s; keys and values {}",
        all.len(),
        tokens as f64 / seconds,
        memory.in_use
    );
    Ok(())
}

impl Conversation {
    /// Says something to the model, which begins to answer.
    fn say(&mut self, args: &Args, turn: usize, i: usize) -> skulk::Result<(usize, Generation)> {
        let friend = if turn == 0 { FRIENDS[i % FRIENDS.len()] } else { "" };
        let text = format!("{}{friend}", TURNS[turn % TURNS.len()]);
        self.text.push_str(&text);
        let options = GenerateOptions::default()
            .max_tokens(args.max_tokens)
            .sampling(Sampling::default().temperature(0.7).seed(i as u64));
        Ok((i, self.session.generate(Prompt::Append(text), options)?))
    }

    /// Hears the next token; false when the answer is at its end.
    fn hear(&mut self, generation: &mut Generation) -> skulk::Result<bool> {
        let Some(event) = generation.next().transpose()? else { return Ok(false) };
        self.text.push_str(&event.text);
        self.tokens += usize::from(event.token.is_some());
        self.cached += event.finish.as_ref().map_or(0, |finish| finish.usage.cached_tokens);
        self.line.set_position(self.tokens as u64);
        self.line.set_message(self.text.replace('\n', " "));
        Ok(event.finish.is_none())
    }
}
