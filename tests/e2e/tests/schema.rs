//! The API under attack: requests that schemathesis makes up after the OpenAPI document. Bad ones are answered as such; none
//! of them is an error of the daemon's.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Options};
use tokio::process::Command;

/// Streams without an end are for other tests, and a run that takes its own token away would try nothing after that.
const LEFT_OUT: &str = r"(/events|/watch|/v1/tokens/\{token\})$";
/// How many requests of each kind; an hour's worth with `ROOST_E2E_FULL`.
const EXAMPLES: (&str, &str) = ("8", "400");

fn schemathesis() -> PathBuf {
    let folder = std::env::var_os("ROOST_SCHEMATHESIS").unwrap_or_else(|| "target/schemathesis".into());
    PathBuf::from(folder).join("bin/st")
}

#[tokio::test]
async fn no_request_is_an_error_of_ours() -> Result<()> {
    let program = schemathesis();
    ensure!(program.is_file(), "`{}` is not there: run scripts/python-packages", program.display());
    let daemon = Daemon::with(Options { tcp: true, ..Options::default() }).await?;
    let web = daemon.sandbox("web").await?;
    web.sh_ok("echo text > /root/plain.txt; mkdir /root/folder").await?;
    daemon.roost_ok(&["checkpoint", "web"]).await?;
    let token = daemon.client().mint_token("schemathesis").await?.secret;
    let full = std::env::var_os("ROOST_E2E_FULL").is_some();
    let seed = std::env::var("ROOST_E2E_SEED").unwrap_or_else(|_| "3".to_owned());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(&program)
        .arg("--config-file")
        .arg(here.join("schema/schemathesis.toml"))
        .arg("run")
        .arg(here.join("../../openapi/roost-v1.json"))
        .args(["--url", &format!("http://{}", daemon.address().context("no TCP address")?)])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--phases", "examples,coverage,fuzzing", "--exclude-path-regex", LEFT_OUT])
        .args(["--max-examples", if full { EXAMPLES.1 } else { EXAMPLES.0 }, "--seed", &seed])
        .args(["--request-timeout", "30", "--generation-database", "none", "--no-color", "--warnings", "off"])
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", here.join("schema"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(daemon.data_dir())
        .stdin(Stdio::null())
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    ensure!(output.status.success(), "seed {seed}: see above; the daemon's log ends:\n{}", daemon.log_tail());
    ensure!(daemon.client().health().await.is_ok(), "seed {seed}: the daemon is gone");
    Ok(())
}
