//! `roost doctor`

use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use roost_attack::{Plan, attack};
use roost_client::Client;
use roost_intruder::Thing;
use roost_model::{
    DoctorCheck, DoctorReport, Doctoring, EngineAbilities, EngineDoctor, EngineFigures, EngineKind, Span,
};

use crate::failure::{Interrupted, ROOST_FAILED, interrupted};
use crate::output::{self, Palette, printable};
use crate::progress::{SharedSteps, Steps};
use crate::receipt::show_ms;
use crate::units::{show_age, show_size};

const INTRUDER: &[u8] = include_bytes!(env!("ROOST_INTRUDER_BIN"));

/// Say which engines this host can run, what each keeps and takes, and prove it by running one
#[derive(Debug, Args)]
#[command(after_help = "\
Ends with 125 if something is missing that Roost cannot do without, or if an attack was not held.

--attack makes sandboxes of its own that try to take the host's resources from a neighbour, calls that no sandbox may make, and files
that configure the host: after a start, after a restore from disk and in a fork, on each engine that works here. It takes some minutes
and loads the host meanwhile. If an attack is not held, the host may be short of memory or other resources until it ends.

Examples:
  roost doctor
  roost doctor --measure          how long starts and wakes take on each engine
  roost doctor --attack           attack this host from sandboxes, and report each attack that is not held
  roost doctor --attack --engine native --only watches,timers
  roost doctor --attack --crowd 5m
  roost doctor --no-prove --json")]
pub(crate) struct DoctorArgs {
    /// Only look, start nothing
    #[arg(long)]
    no_prove: bool,
    /// Measure how long starts and wakes take, for some seconds; the figures are kept and shown from then on
    #[arg(long, conflicts_with = "no_prove")]
    measure: bool,
    /// Attack this host from sandboxes, and report what holds
    #[arg(long, conflicts_with_all = ["no_prove", "measure"])]
    attack: bool,
    /// Attack from sandboxes on this engine only
    #[arg(long, value_name = "ENGINE", requires = "attack")]
    engine: Option<EngineKind>,
    /// Take these things only, such as `watches,tcp-memory`; calls and files are tried in any case
    #[arg(long, value_name = "THINGS", value_delimiter = ',', requires = "attack", value_parser = thing)]
    only: Vec<Thing>,
    /// Let twenty attackers work at once for this time, beside a neighbour that serves requests
    #[arg(long, value_name = "TIME", requires = "attack")]
    crowd: Option<Span>,
    /// Print everything, as JSON
    #[arg(long)]
    json: bool,
}

fn thing(name: &str) -> Result<Thing, String> {
    let known = || Thing::ALL.map(|(_, name)| name).join(", ");
    Thing::named(name).ok_or_else(|| format!("no attack takes `{name}`: give some of {}", known()))
}

pub(crate) async fn doctor(client: &Client, wanted: DoctorArgs) -> anyhow::Result<u8> {
    if wanted.attack {
        return attack_host(client, wanted).await;
    }
    let mut steps = Steps::new();
    let how = match (wanted.no_prove, wanted.measure) {
        (true, _) => Doctoring::Look,
        (false, false) => Doctoring::Prove,
        (false, true) => Doctoring::Measure,
    };
    match how {
        Doctoring::Look => {}
        Doctoring::Prove => steps.tell("running a sandbox to prove that it works", None),
        Doctoring::Measure => steps.tell("measuring starts and wakes of each engine", None),
    }
    let report = client.doctor(how).await?;
    steps.done();
    if wanted.json {
        output::json(&report)?;
    } else {
        print(&report)?;
    }
    Ok(if is_well(&report) { 0 } else { ROOST_FAILED })
}

async fn attack_host(client: &Client, wanted: DoctorArgs) -> anyhow::Result<u8> {
    let mut plan = Plan::full(INTRUDER.to_vec());
    plan.engines.extend(wanted.engine);
    if !wanted.only.is_empty() {
        plan.things = wanted.only;
    }
    plan.crowd = wanted.crowd.and_then(Span::get).map(|time| time.as_secs());
    let steps = SharedSteps::new();
    let report = attack(client, &plan, &|what| steps.tell(what), interrupted()).await?.ok_or(Interrupted)?;
    drop(steps);
    if wanted.json {
        output::json(&report)?;
    } else {
        std::io::stdout().lock().write_all(report.text().as_bytes())?;
    }
    Ok(if report.holds() { 0 } else { ROOST_FAILED })
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
        for (name, value) in told(engine, Timestamp::now()) {
            output::line(format!("  {} {value}", palette.dim(&format!("{name:<8}"))))?;
        }
        print_checks(&engine.checks, palette)?;
    }
    output::line("")?;
    output::line(palette.bold("host:"))?;
    print_checks(&report.checks, palette)
}

/// What an engine keeps and takes, one thing to a line.
fn told(engine: &EngineDoctor, now: Timestamp) -> Vec<(&'static str, String)> {
    let EngineAbilities {
        levels,
        own_kernel,
        live_limits,
        survives_daemon,
        tmp_on_disk,
        limits_end_all,
        counts_processes,
        setuid,
    } = &engine.abilities;
    let levels: Vec<String> = levels.iter().map(ToString::to_string).collect();
    let kernel = if *own_kernel { "a kernel of its own" } else { "the host's kernel" };
    let mut rows = vec![("inside", kernel.to_owned()), ("sleeps", levels.join(", "))];
    let unable = [
        (*live_limits, "changed limits hold in full from the next start on"),
        (*survives_daemon, "sandboxes end with the daemon"),
        (*tmp_on_disk, "/tmp and /var/tmp are in memory"),
        (!*limits_end_all, "reaching a limit may end all of a sandbox, which then goes back to its last checkpoint"),
        (
            *counts_processes,
            "the limit of processes bounds those on the host; inside there may be several times as many",
        ),
        (*setuid, "sudo and other setuid programs stay who they are"),
    ];
    rows.extend(unable.into_iter().filter(|(able, _)| !able).map(|(_, text)| ("note", text.to_owned())));
    rows.extend(engine.figures.as_ref().map(|figures| ("takes", show_figures(figures, now))));
    rows
}

fn show_figures(figures: &EngineFigures, now: Timestamp) -> String {
    let EngineFigures { at, create_ms, ram_wake_ms, disk_wake_ms, memory } = figures;
    let wake = |from: &str, ms: &Option<f64>| ms.map(|ms| format!("a wake from {from} {}", show_ms(ms)));
    let parts = [
        Some(format!("a first output {}", show_ms(*create_ms))),
        wake("ram", ram_wake_ms),
        wake("disk", disk_wake_ms),
        Some(format!("{} of memory", show_size(*memory))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{} (measured {} ago)", parts.join(", "), show_age(*at, now))
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
    use roost_model::Level;

    use super::*;

    #[test]
    fn only_what_is_required_makes_a_host_unfit() {
        let check = |ok, required| DoctorCheck { what: "x".to_owned(), ok, required, detail: String::new() };
        let engine = |fit| roost_model::EngineDoctor {
            engine: roost_model::EngineKind::Native,
            fit,
            proven_ms: None,
            problem: None,
            abilities: EngineAbilities {
                levels: vec![Level::Ram, Level::Files],
                own_kernel: true,
                live_limits: false,
                survives_daemon: true,
                tmp_on_disk: true,
                limits_end_all: false,
                counts_processes: false,
                setuid: true,
            },
            figures: None,
            checks: Vec::new(),
        };
        let report = |fit, check| DoctorReport {
            version: String::new(),
            kernel: String::new(),
            engines: vec![engine(fit)],
            checks: vec![check],
        };
        let rows = told(&engine(true), Timestamp::now());
        assert_eq!(rows[..2], [("inside", "a kernel of its own".to_owned()), ("sleeps", "ram, files".to_owned())]);
        let notes: Vec<&str> = rows.iter().filter(|(name, _)| *name == "note").map(|(_, text)| text.as_str()).collect();
        assert!(
            matches!(notes[..], [limits, processes] if limits.contains("next start") && processes.contains("on the host"))
        );
        assert!(is_well(&report(true, check(false, false))));
        assert!(!is_well(&report(true, check(false, true))));
        assert!(!is_well(&report(false, check(true, true))));
    }
}
