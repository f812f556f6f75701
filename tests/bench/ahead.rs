//! What do tokens ahead gain? The same texts with them and without, taking turns.
//!
//! `cargo run --release -p skulk-bench --bin ahead -- --model FILE --prompts FILE` prints one JSON object: by class of
//! prompts the medians of how many times as many tokens a second are decoded ahead until the last text is there (`gain`), of
//! how many times sooner a text is there on average (`sooner`), of tokens a second without (`plain`), the share of drafted
//! tokens that were right (`accepted`), and the same of `--sessions` at once. Texts that differ are an error.
//!
//! `--draft-model FILE` lets a smaller model draft, too; `--link MILLISECONDS` cuts the model into two stages with a link
//! between them that takes so long each way. `--head-accepts SHARE` lets the checkpoint's head for tokens ahead draft alone,
//! with tokens that are right so often, whatever its weights are.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

#[path = "ahead_engine.rs"]
mod engine;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use engine::{Staged, Told};
use serde_json::{Map, Value, json};
use skulk::{
    EngineOptions, Finish, GenerateOptions, Generation, LoadOptions, Memory, Model, Sampling, Speculate,
    TokenId,
};

type AnyError = Box<dyn std::error::Error>;

/// Measures what tokens ahead gain.
#[derive(Parser)]
struct Args {
    /// A checkpoint.
    #[arg(long)]
    model: PathBuf,
    /// A list of `{ "class": …, "prompt": …, "temperature": … }` in JSON.
    #[arg(long)]
    prompts: PathBuf,
    /// Threads that compute.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Tokens that are decoded of each prompt.
    #[arg(long, default_value_t = 160)]
    tokens: usize,
    /// Sessions that decode a class's prompts at once, beside one after the other; 1 for none.
    #[arg(long, default_value_t = 4)]
    sessions: usize,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Tokens ahead in every step, instead of as many as pay.
    #[arg(long)]
    draft_tokens: Option<usize>,
    /// A smaller model that drafts.
    #[arg(long)]
    draft_model: Option<PathBuf>,
    /// Two stages with a link between them, and how many milliseconds it takes each way.
    #[arg(long)]
    link: Option<f64>,
    /// The checkpoint's head drafts alone, and is right so often.
    #[arg(long, conflicts_with_all = ["draft_model", "link"])]
    head_accepts: Option<f64>,
    /// The only class of prompts.
    #[arg(long)]
    class: Option<String>,
    /// Where weights lie.
    #[arg(long, default_value = "mapped")]
    memory: Memory,
}

struct Prompt {
    ids: Vec<TokenId>,
    temperature: f32,
}

/// A head, and the texts that it is to say.
type Said<'a> = (&'a Told, &'a [Vec<TokenId>]);

/// What one way of decoding took.
struct Taken {
    texts: Vec<Vec<TokenId>>,
    seconds: f64,
    /// Seconds until each text had its end, in sum.
    waited: f64,
    drafted: usize,
    accepted: usize,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<Value, AnyError> {
    let engine = EngineOptions::default().threads(args.threads).memory(args.memory);
    let options = LoadOptions::default().context(4096).sessions(args.sessions.max(1));
    let told = args.head_accepts.map(Told::new);
    let mut options = match (args.link, &told) {
        (None, None) => options.engine_options(engine),
        (link, told) => {
            let cpu = skulk::engines::cpu(&engine)?;
            let staged = Staged::new(cpu, link.unwrap_or(0.0), told.clone())?;
            options.stages(1 + usize::from(link.is_some())).engine(Arc::new(staged))
        }
    };
    if told.is_some() {
        if args.sessions > 1 {
            return Err("a head is told what one session says: --sessions 1".into());
        }
        options.mtp = Some(true);
    }
    options.draft_model.clone_from(&args.draft_model);
    let model = Model::open(&args.model, &options)?;
    let listed: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&args.prompts)?)?;
    let mut classes: BTreeMap<&str, Vec<Prompt>> = BTreeMap::new();
    for (at, of) in listed.iter().enumerate() {
        let text = |field: &str| of[field].as_str().ok_or_else(|| format!("prompt {at} has no `{field}`"));
        let ids = model.tokenizer().encode(text("prompt")?, true)?;
        let temperature = of["temperature"].as_f64().unwrap_or(0.0) as f32;
        let class = text("class")?;
        if args.class.as_deref().is_none_or(|only| only == class) {
            classes.entry(class).or_default().push(Prompt { ids, temperature });
        }
    }
    let mut report = Map::new();
    for (class, prompts) in classes {
        let mut of = Map::new();
        of.insert("1".to_owned(), compared(args, (&model, told.as_deref()), &prompts, 1)?);
        if args.sessions > 1 {
            of.insert(
                args.sessions.to_string(),
                compared(args, (&model, told.as_deref()), &prompts, args.sessions)?,
            );
        }
        report.insert(class.to_owned(), of.into());
    }
    Ok(report.into())
}

/// A class's prompts in both ways, in turns.
fn compared(
    args: &Args,
    (model, told): (&Model, Option<&Told>),
    prompts: &[Prompt],
    sessions: usize,
) -> Result<Value, AnyError> {
    // What a head shall say.
    let texts = match told {
        Some(_) => decode(args, model, prompts, 1, (Speculate::Off, None))?.texts,
        None => Vec::new(),
    };
    let head = told.map(|told| (told, &*texts));
    let ahead = if told.is_some() { Speculate::DraftModel } else { Speculate::Auto };
    let (mut gains, mut sooner, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let (mut drafted, mut accepted) = (0, 0);
    for round in 0..args.rounds {
        // Who goes first alternates.
        let mut ways = [Speculate::Off, ahead].map(|way| (way, None));
        if round % 2 == 1 {
            ways.reverse();
        }
        for (way, taken) in &mut ways {
            *taken = Some(decode(args, model, prompts, sessions, (*way, head))?);
        }
        ways.sort_by_key(|(way, _)| *way != Speculate::Off);
        let [(_, Some(without)), (_, Some(ahead))] = &ways else { return Err("nothing was measured".into()) };
        if without.texts != ahead.texts {
            return Err("a text differs".into());
        }
        let tokens: usize = without.texts.iter().map(|text| text.len() - 1).sum();
        gains.push(without.seconds / ahead.seconds);
        sooner.push(without.waited / ahead.waited);
        plain.push(tokens as f64 / without.seconds);
        drafted += ahead.drafted;
        accepted += ahead.accepted;
    }
    let share = if drafted > 0 { accepted as f64 / drafted as f64 } else { 0.0 };
    let (gain, sooner, plain) = (median(gains), median(sooner), median(plain));
    Ok(json!({ "gain": gain, "sooner": sooner, "plain": plain, "drafted": drafted, "accepted": share }))
}

/// Decodes the prompts, so many at once. Time counts from the first token of all on.
fn decode(
    args: &Args,
    model: &Model,
    prompts: &[Prompt],
    sessions: usize,
    (way, head): (Speculate, Option<Said<'_>>),
) -> Result<Taken, AnyError> {
    let mut taken = Taken { texts: Vec::new(), seconds: 0.0, waited: 0.0, drafted: 0, accepted: 0 };
    let at_once: Vec<_> = prompts.iter().cycle().take(prompts.len().next_multiple_of(sessions)).collect();
    for (number, group) in at_once.chunks(sessions).enumerate() {
        if let Some((told, texts)) = head {
            told.tell([&*group[0].ids, &texts[number]].concat());
        }
        let start = |(at, prompt): (usize, &&Prompt)| {
            let sampling = Sampling::default().temperature(prompt.temperature).seed(at as u64);
            let options =
                GenerateOptions::default().max_tokens(args.tokens).ignore_eos(true).sampling(sampling);
            let mut options = options.speculate(way);
            options.draft_tokens = args.draft_tokens.filter(|_| way != Speculate::Off);
            model.generate(prompt.ids.clone(), options)
        };
        let mut running = group.iter().enumerate().map(start).collect::<skulk::Result<Vec<_>>>()?;
        let mut texts = vec![Vec::new(); running.len()];
        // The first tokens wait for the prompts.
        for (generation, text) in running.iter_mut().zip(&mut texts) {
            let event = generation.next().ok_or("a text has no beginning")??;
            text.extend(event.token.map(|token| token.id));
        }
        let began = Instant::now();
        // Each has a reader of its own: none waits for the events of another.
        let read =
            |generation: Generation, text: &mut Vec<TokenId>| -> skulk::Result<(Option<Finish>, f64)> {
                let mut finish = None;
                for event in generation {
                    let event = event?;
                    text.extend(event.token.map(|token| token.id));
                    finish = event.finish.or(finish);
                }
                Ok((finish, began.elapsed().as_secs_f64()))
            };
        let ends: Vec<_> = std::thread::scope(|scope| {
            let start = |(generation, text)| scope.spawn(move || read(generation, text));
            let readers: Vec<_> = running.into_iter().zip(&mut texts).map(start).collect();
            readers.into_iter().map(|reader| reader.join()).collect()
        });
        for end in ends {
            let (finish, seconds) = end.map_err(|_| "a reader panicked")??;
            let finish = finish.ok_or("a text has no end")?;
            taken.drafted += finish.timings.drafted_tokens;
            taken.accepted += finish.timings.accepted_tokens;
            taken.waited += seconds;
        }
        taken.seconds += began.elapsed().as_secs_f64();
        taken.texts.append(&mut texts);
    }
    Ok(taken)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
