//! What does one product take? Made-up weights by made-up activations on one thread, so many times, and nothing else.
//!
//! For tools that count a program's instructions, as `arm` does: counts of two numbers of runs tell what a run takes.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use skulk::internals::{Operations, matrix};
use skulk::{DType, MappedFile, Memory, Precision};

type AnyError = Box<dyn std::error::Error>;

/// Multiplies.
#[derive(Parser)]
struct Args {
    /// The weights' type.
    #[arg(long, value_parser = dtype)]
    dtype: DType,
    /// Outputs, and elements of a row.
    #[arg(long, num_args = 2, required = true)]
    shape: Vec<usize>,
    /// Rows of activations.
    #[arg(long, default_value_t = 1)]
    rows: usize,
    /// How often.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Where weights lie.
    #[arg(long, default_value = "mapped")]
    memory: Memory,
    /// How activations are rounded.
    #[arg(long, default_value = "fast")]
    precision: Precision,
}

fn dtype(label: &str) -> Result<DType, String> {
    let labels = || DType::ALL.iter().map(|dtype| dtype.label()).collect::<Vec<_>>().join(", ");
    let dtype = DType::ALL.iter().find(|dtype| dtype.label().eq_ignore_ascii_case(label));
    dtype.copied().ok_or_else(|| format!("expected one of {}", labels()))
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(instructions) => {
            println!("{instructions}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// The instruction set it was done with.
fn run(args: &Args) -> Result<&'static str, AnyError> {
    let shape = [args.shape[0], args.shape[1]];
    // As half-precision scales and as bfloat16 these bytes are small numbers.
    let len = args.dtype.row_bytes(shape[1]).ok_or("rows are no whole blocks")? * shape[0] * 2;
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(&(0..len).map(|i| 0x2c + (i * 37 % 101 % 16) as u8).collect::<Vec<u8>>())?;
    let operations = Operations::new(1, args.precision)?;
    let weights = matrix(&MappedFile::open(file.path())?, args.dtype, shape, args.memory)?;
    let mut product = operations.linear(weights, args.rows)?;
    (0..args.runs).try_for_each(|_| product())?;
    Ok(operations.instruction_set())
}
