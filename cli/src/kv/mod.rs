//! `onepipe kv`: a transactional key-value store that Redis clients use.

mod bench;
mod check;
mod cli;
mod repair;
mod serve;
mod served;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  onepipe kv serve                              three shards in memory, for redis-cli on port 6379
  onepipe kv serve --data kv-data --replicas 3  three copies of each shard on disk
  onepipe kv cli MSET a 1 b 2 c 3               one transaction over several shards
  onepipe kv bench redis                        beside redis-server and a Redis cluster
  onepipe kv check history.jsonl                whether a recorded history is one of such a store
  onepipe kv repair --data kv-data              completes a damaged log from those of other replicas";

/// A transactional key-value store that speaks the protocol of Redis
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Cli(cli::Arguments),
    Bench(bench::Arguments),
    Check(check::Arguments),
    Repair(repair::Arguments),
}

/// Runs a subcommand.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Cli(arguments) => cli::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Repair(arguments) => repair::run(arguments),
    }
}
