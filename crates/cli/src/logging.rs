//! The daemon's log, on standard error.

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// What happens here. The library for MCP tells of every request at the same level.
const USUAL: &str = "info,rmcp=warn";

/// Starts logging; `RUST_LOG` chooses what is told.
pub(crate) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(USUAL));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => log.json().init(),
    }
}
