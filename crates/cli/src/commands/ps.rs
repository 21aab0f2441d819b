//! `roost ps`

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use roost_client::Client;
use roost_model::{ProcessList, ProcessView, State};

use crate::args::{SandboxArg, ShowArgs};
use crate::output::{self, Columns, shortened};
use crate::tree::tree;
use crate::units::{show_age, show_size};

/// More parents than anybody has.
const DEEPEST: usize = 1000;
/// Of a command line that is longer, the beginning is shown.
const LONGEST: usize = 120;

/// Show everything that runs in a sandbox
///
/// Neither wakes it nor keeps it awake: of one that sleeps it is said that it does. OF is the exec or the service that a
/// process belongs to.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost ps box
  roost ps --tree box
  roost ps box --json | jq '.items[] | select(.service == \"web\") | .pid'
  roost exec box -- kill $(roost ps -q box | tail -n 1)")]
pub(crate) struct PsArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Show what was started by what
    #[arg(short, long, conflicts_with_all = ["json", "quiet"])]
    tree: bool,
    #[command(flatten)]
    show: ShowArgs,
}

pub(crate) async fn ps(client: &Client, wanted: PsArgs) -> anyhow::Result<()> {
    let list = client.processes(&wanted.sandbox.sandbox).await?;
    if wanted.show.json {
        return output::json(&list);
    }
    if list.state != State::Active {
        eprintln!("{}", asleep(&wanted.sandbox.sandbox, &list));
        return Ok(());
    }
    if wanted.show.quiet {
        return Ok(list.items.iter().try_for_each(|process| output::line(process.pid.to_string()))?);
    }
    Ok(table(&list.items, wanted.tree, Timestamp::now()).print()?)
}

fn asleep(name: &str, list: &ProcessList) -> String {
    let level = list.level.map_or_else(String::new, |level| format!(" ({level})"));
    format!("{name} is {}{level}: what runs in it is known when it is awake; `roost wake {name}` wakes it", list.state)
}

fn table(processes: &[ProcessView], as_tree: bool, now: Timestamp) -> Columns {
    let titles = ["PID", "PPID", "USER", "STATE", "CPU TIME", "MEMORY", "THREADS", "AGE", "OF", "COMMAND"];
    let mut columns = Columns::new(&titles, &["PID", "PPID", "CPU TIME", "MEMORY", "THREADS", "AGE"]);
    let flat = || (0..processes.len()).map(|place| (place, String::new())).collect();
    for (place, branch) in if as_tree { branches(processes) } else { flat() } {
        let process = &processes[place];
        let service = process.service.as_ref().map(|name| format!("service {name}"));
        let owner = service.or_else(|| process.exec.as_ref().map(ToString::to_string));
        columns.row([
            process.pid.to_string(),
            process.ppid.to_string(),
            process.user.clone(),
            process.state.as_str().to_owned(),
            format!("{:.2}s", Duration::from_micros(process.cpu_us).as_secs_f64()),
            show_size(process.rss),
            process.threads.to_string(),
            show_age(process.started_at, now),
            owner.unwrap_or_else(|| "-".to_owned()),
            format!("{branch}{}", shortened(&process.command(), LONGEST)),
        ]);
    }
    columns
}

/// The places of processes in the order of their tree, with the lines before each.
fn branches(processes: &[ProcessView]) -> Vec<(usize, String)> {
    let parents: HashMap<u32, u32> = processes.iter().map(|process| (process.pid, process.ppid)).collect();
    let depth = |pid: u32| {
        let ancestors = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        ancestors.take(DEEPEST).count()
    };
    // Numbers are given anew, so that a parent's may be the higher one.
    let mut places: Vec<usize> = (0..processes.len()).collect();
    places.sort_by_key(|place| (depth(processes[*place].pid), *place));
    let ids: Vec<(u32, Option<u32>)> =
        places.iter().map(|place| (processes[*place].pid, Some(processes[*place].ppid))).collect();
    tree(&ids).into_iter().map(|(place, branch)| (places[place], branch)).collect()
}

#[cfg(test)]
mod tests {
    use roost_model::{Level, ProcessState};

    use super::*;

    fn process(pid: u32, ppid: u32, argv: &[&str]) -> ProcessView {
        ProcessView {
            pid,
            ppid,
            name: "name".to_owned(),
            argv: argv.iter().map(|&argument| argument.to_owned()).collect(),
            user: "root".to_owned(),
            state: ProcessState::Sleeping,
            threads: 1,
            cpu_us: 1_250_000,
            rss: 4 << 20,
            started_at: Timestamp::UNIX_EPOCH,
            exec: None,
            service: None,
        }
    }

    #[test]
    fn a_table_has_all_and_a_tree_shows_who_started_whom() {
        let mut web = process(300, 1, &["httpd", "-f"]);
        web.service = Some("web".parse().unwrap());
        // The numbers have been round once.
        let all = [process(1, 0, &["init"]), process(7, 300, &[]), web, process(301, 7, &["x"])];
        let now = Timestamp::from_second(60).unwrap();
        let lines = table(&all, false, now).lines();
        assert!(lines[3].starts_with("300     1  root  sleeping     1.25s"), "{}", lines[3]);
        assert!(lines[3].ends_with("1m  service web  httpd -f"), "{}", lines[3]);
        assert!(lines[2].ends_with("[name]"), "{}", lines[2]);
        let lines = table(&all, true, now).lines();
        let commands: Vec<&str> = lines.iter().skip(1).map(|line| &line[lines[0].find("COMMAND").unwrap()..]).collect();
        assert_eq!(commands, ["init", "└─ httpd -f", "   └─ [name]", "      └─ x"]);
    }

    #[test]
    fn one_that_sleeps_is_said_to() {
        let list = ProcessList { state: State::Suspended, level: Some(Level::Ram), items: Vec::new() };
        let told = asleep("box", &list);
        assert!(told.starts_with("box is suspended (ram): ") && told.contains("`roost wake box`"), "{told}");
    }
}
