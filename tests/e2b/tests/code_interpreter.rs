//! The code interpreter's packages, on a template that is built as a user builds it.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use roost_e2b_suite::Suite;
use roost_e2e::host_reaches_its_mirror;

#[tokio::test]
async fn code_runs_and_its_variables_stay() -> Result<()> {
    if !host_reaches_its_mirror() {
        eprintln!("skipped: the host itself does not reach its mirror");
        return Ok(());
    }
    let suite = Suite::start().await?;
    suite.daemon().roost_ok(&["template", "build", "code-interpreter"]).await?;
    suite.python("test_code_interpreter").await?;
    suite.python("test_code_interpreter_async").await?;
    suite.javascript("code_interpreter.test.cjs").await
}

/// The server's own tests need nothing but Python.
#[test]
fn the_server_speaks_the_wire() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/cli/assets/code_interpreter");
    let status = Command::new("python3").args(["-B", "-m", "unittest", "discover"]).current_dir(folder).status()?;
    ensure!(status.success(), "the server's tests ended with {status}");
    Ok(())
}
