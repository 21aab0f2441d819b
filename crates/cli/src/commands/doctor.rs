//! `roost doctor`

use clap::Args;
use roost_client::Client;
use roost_model::{DoctorCheck, DoctorReport};

use crate::failure::ROOST_FAILED;
use crate::output::{self, Palette, printable};
use crate::progress::Steps;

/// Say which engines this host can run, and prove it by running one
#[derive(Debug, Args)]
#[command(after_help = "\
Ends with 125 if something is missing that Roost cannot do without.

Examples:
  roost doctor
  roost doctor --no-prove --json")]
pub(crate) struct DoctorArgs {
    /// Only look, start nothing
    #[arg(long)]
    no_prove: bool,
    /// Print everything, as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn doctor(client: &Client, wanted: DoctorArgs) -> anyhow::Result<u8> {
    let mut steps = Steps::new();
    if !wanted.no_prove {
        steps.tell("running a sandbox to prove that it works", None);
    }
    let report = client.doctor(!wanted.no_prove).await?;
    steps.done();
    if wanted.json {
        output::json(&report)?;
    } else {
        print(&report)?;
    }
    Ok(if is_well(&report) { 0 } else { ROOST_FAILED })
}

fn is_well(report: &DoctorReport) -> bool {
    let bearable = |check: &DoctorCheck| check.ok || !check.required;
    report.checks.iter().all(bearable) && report.engines.iter().any(|engine| engine.fit)
}

fn print(report: &DoctorReport) -> anyhow::Result<()> {
    let palette = Palette::stdout();
    output::line(format!("roost {} on {}", report.version, printable(&report.kernel)))?;
    for engine in &report.engines {
        output::line("")?;
        let verdict = match (engine.fit, engine.proven_ms) {
            (true, Some(ms)) => palette.green(&format!("works: first output after {ms:.0} ms")),
            (true, None) => palette.green("fit"),
            (false, _) => palette.red("does not work here"),
        };
        output::line(format!("{} {verdict}", palette.bold(&format!("engine {}:", engine.engine))))?;
        if let Some(problem) = &engine.problem {
            output::line(format!("  {}", printable(problem)))?;
        }
        print_checks(&engine.checks, palette)?;
    }
    output::line("")?;
    output::line(palette.bold("host:"))?;
    print_checks(&report.checks, palette)
}

fn print_checks(checks: &[DoctorCheck], palette: Palette) -> anyhow::Result<()> {
    let width = checks.iter().map(|check| check.what.chars().count()).max().unwrap_or(0);
    for check in checks {
        let mark = match (check.ok, check.required) {
            (true, _) => palette.green("ok  "),
            (false, true) => palette.red("no  "),
            (false, false) => palette.yellow("note"),
        };
        output::line(format!("  {mark} {:<width$}  {}", check.what, printable(&check.detail)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_required_makes_a_host_unfit() {
        let check = |ok, required| DoctorCheck { what: "x".to_owned(), ok, required, detail: String::new() };
        let engine = |fit| roost_model::EngineDoctor {
            engine: roost_model::EngineKind::Native,
            fit,
            proven_ms: None,
            problem: None,
            checks: Vec::new(),
        };
        let report = |fit, check| DoctorReport {
            version: String::new(),
            kernel: String::new(),
            engines: vec![engine(fit)],
            checks: vec![check],
        };
        assert!(is_well(&report(true, check(false, false))));
        assert!(!is_well(&report(true, check(false, true))));
        assert!(!is_well(&report(false, check(true, true))));
    }
}
