//! Log lines: on standard error, each with a time, a level and the part of the program. What
//! scripts wait for and results are on standard output.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;

/// What is logged, and how.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// Log this level and higher ones to standard error: off, error, warn, info, debug
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "ONEPIPE_LOG",
        default_value = "info",
        hide_default_value = true,
        hide_env = true,
        hide = true
    )]
    log: LevelFilter,
    /// Format of log lines
    #[arg(
        long, global = true, value_name = "FORMAT", env = "ONEPIPE_LOG_FORMAT", value_enum,
        default_value_t = Format::Text, hide = true
    )]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Time, level, part of the program, text
    Text,
    /// One JSON object per line
    Json,
}

impl LogArgs {
    /// Installs the logger of the process.
    pub fn install(&self) {
        let logger = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            // The logger would report a failed write to standard error by a panic.
            .log_internal_errors(false)
            .with_max_level(self.log)
            .with_ansi(std::io::stderr().is_terminal());
        match self.log_format {
            Format::Text => logger.init(),
            Format::Json => logger.json().flatten_event(true).init(),
        }
    }
}
