//! Plans where a model runs, and says why: on this machine, or on a cluster described in JSON.
//!
//! Without arguments it plans the embedded default model on this machine: `cargo run --release --example plan`.
#![allow(clippy::print_stderr, reason = "a command-line program")]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use skulk::plan::{Strictness, Transport};
use skulk::{CardLibrary, Cluster, Error, ErrorKind, ModelCard, Placement, PlanReport, Planner, Request};

/// Plans which node runs which layers and experts of a model.
#[derive(Parser)]
struct Args {
    /// A checkpoint, a card's file, or the id of a card that is built in.
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/stories260K"), hide_default_value = true)]
    model: String,
    /// A JSON file with nodes and links; this machine unless given.
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// How nodes talk: direct, mlx_ring or mlx_jaccl.
    #[arg(long, default_value_t)]
    transport: Transport,
    /// Nodes to use at least.
    #[arg(long, default_value_t = 1)]
    min_nodes: usize,
    /// Tokens for which keys and values are reserved.
    #[arg(long, default_value_t = 8192)]
    context: u64,
    /// How careful the plan is with memory: safe, relaxed or force.
    #[arg(long, default_value_t)]
    strictness: Strictness,
    /// What to print: the report in one of these forms, or the placement itself.
    #[arg(long, default_value = "text", value_parser = ["text", "json", "markdown", "html", "svg", "placement"])]
    print: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(placement) => {
            if let Some(report) = placement.report() {
                show(&printed(&args, report, Some(&placement)));
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            if let Some(report) = error.detail::<skulk::PlanReport>() {
                show(&printed(&args, report, None));
            }
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// Whoever reads may stop in the middle.
fn show(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn run(args: &Args) -> Result<Placement, Error> {
    let cluster = match &args.cluster {
        None => Cluster::local(),
        Some(file) => {
            let invalid = |error: &dyn std::error::Error| {
                Error::new(ErrorKind::InvalidArgument, error.to_string()).with("file", file.display())
            };
            let text = std::fs::read_to_string(file).map_err(|e| invalid(&e))?;
            serde_json::from_str(&text).map_err(|e| invalid(&e))?
        }
    };
    let request = Request::default()
        .transport(args.transport)
        .strictness(args.strictness)
        .min_nodes(args.min_nodes)
        .context_tokens(args.context);
    match CardLibrary::builtin().get(&args.model) {
        Some(card) => Planner::plan(card, &cluster, &request),
        None if args.model.ends_with(".toml") || args.model.ends_with(".json") => {
            Planner::plan(&ModelCard::open(&args.model)?, &cluster, &request)
        }
        None => Planner::plan_checkpoint(&args.model, &cluster, &request),
    }
}

fn printed(args: &Args, report: &PlanReport, placement: Option<&Placement>) -> String {
    match args.print.as_str() {
        "json" => report.to_json(),
        "markdown" => report.to_markdown(),
        "html" => report.to_html(),
        "svg" => report.to_svg(),
        "placement" => placement.map(Placement::to_json).unwrap_or_default(),
        _ => report.to_string(),
    }
}
