//! Calls of processes inside, as the host hears them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

use crate::support::Guest;
use roost_wire::client::{CallError, Calls};
use roost_wire::{Answer, AnswerFrame, AskSuspend, Call, Outcome, Reply, Request, Resumed, Why};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, spawn_blocking};

/// Runs `roost-guest` as a command inside would.
fn command(guest: &Guest, words: &[&str]) -> JoinHandle<Output> {
    let socket = guest.path("run/sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_roost-guest"));
    command.args(words).args(["--socket", &socket]);
    spawn_blocking(move || command.output().unwrap())
}

async fn listen(guest: &Guest) -> Calls<TcpStream> {
    guest.connect().await.calls().await.unwrap()
}

async fn answer(calls: &mut Calls<TcpStream>, id: u64, text: &str) {
    let outcome = Outcome::Ok(Answer { text: text.to_owned(), data: serde_json::json!({ "said": text }) });
    calls.answer(&AnswerFrame { id, outcome }).await.unwrap();
}

fn out(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn a_call_waits_for_the_host_and_hears_its_answer() {
    let guest = Guest::start();
    let mode = std::fs::metadata(guest.path("run/sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666, "any user may ask");
    let asked = command(&guest, &["hold", "--for", "10m"]);
    let mut calls = listen(&guest).await;
    let call = calls.next().await.unwrap();
    let Call::Hold(hold) = call.call else { panic!("{call:?}") };
    assert_eq!(hold.length.as_deref(), Some("10m"));
    answer(&mut calls, call.id, "held").await;
    assert_eq!(out(&asked.await.unwrap()), (Some(0), "held\n".into(), String::new()));

    let asked = command(&guest, &["info", "--json"]);
    let call = calls.next().await.unwrap();
    answer(&mut calls, call.id, "me").await;
    let (code, line, _) = out(&asked.await.unwrap());
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((code, &line["ok"]["data"]["said"]), (Some(0), &"me".into()));

    let asked = command(&guest, &["suspend"]);
    let call = calls.next().await.unwrap();
    let outcome = Outcome::refused("memory_not_saved", "no room");
    calls.answer(&AnswerFrame { id: call.id, outcome }).await.unwrap();
    assert_eq!(out(&asked.await.unwrap()), (Some(1), String::new(), "roost-guest: no room\n".into()));
}

#[tokio::test]
async fn answers_find_their_callers_in_any_order() {
    let guest = Guest::start();
    let mut calls = listen(&guest).await;
    let names = ["a", "b", "c", "d"];
    let asked: Vec<_> = names.iter().map(|name| command(&guest, &["hold", "--name", name])).collect();
    let mut heard = Vec::new();
    for _ in names {
        heard.push(calls.next().await.unwrap());
    }
    for call in heard.iter().rev() {
        let Call::Hold(hold) = &call.call else { panic!("{call:?}") };
        answer(&mut calls, call.id, hold.name.as_deref().unwrap()).await;
    }
    for (name, asked) in names.iter().zip(asked) {
        assert_eq!(out(&asked.await.unwrap()).1, format!("{name}\n"));
    }
}

#[tokio::test]
async fn nonsense_on_the_socket_is_refused_and_the_next_line_is_read() {
    let guest = Guest::start();
    let mut calls = listen(&guest).await;
    let mut stream = UnixStream::connect(guest.path("run/sock")).unwrap();
    stream.write_all(b"{\n\"fly\"\n\"info\"\n").unwrap();
    let call = calls.next().await.unwrap();
    answer(&mut calls, call.id, "me").await;
    let lines: Vec<String> = BufReader::new(&stream).lines().take(3).map(Result::unwrap).collect();
    assert!(lines[0].contains("bad_request") && lines[1].contains("unknown variant `fly`"), "{lines:?}");
    assert!(lines[2].starts_with(r#"{"ok""#), "{lines:?}");
    // A line without an end is not read for ever.
    let mut endless = UnixStream::connect(guest.path("run/sock")).unwrap();
    endless.write_all(&vec![b'x'; 64 * 1024]).unwrap();
    let mut line = String::new();
    BufReader::new(&endless).read_line(&mut line).unwrap();
    assert!(line.contains("at most 65536 bytes"), "{line}");
}

#[tokio::test]
async fn a_lost_host_is_replaced_and_only_harmless_calls_are_made_again() {
    let guest = Guest::start();
    let mut first = listen(&guest).await;
    let held = command(&guest, &["hold"]);
    assert!(matches!(first.next().await.unwrap().call, Call::Hold(_)));
    let slept = command(&guest, &["suspend"]);
    assert!(matches!(first.next().await.unwrap().call, Call::Suspend(_)));
    let mut second = listen(&guest).await;
    assert!(matches!(first.next().await, Err(CallError::Closed | CallError::Io(_))), "it was replaced");
    let again = second.next().await.unwrap();
    assert!(matches!(again.call, Call::Hold(_)));
    answer(&mut second, again.id, "held").await;
    assert_eq!(out(&held.await.unwrap()).1, "held\n");
    let (code, _, said) = out(&slept.await.unwrap());
    assert!(code == Some(1) && said.contains("try again"), "{said}");
}

#[tokio::test]
async fn a_wake_answers_what_led_to_it() {
    let guest = Guest::start();
    for why in [Why::Wake, Why::Fork] {
        let mut calls = listen(&guest).await;
        let slept = command(&guest, &["suspend", "--to", "disk"]);
        let call = calls.next().await.unwrap();
        assert_eq!(call.call, Call::Suspend(AskSuspend { to: Some("disk".to_owned()) }));
        let kept = command(&guest, &["checkpoint"]);
        calls.next().await.unwrap();
        drop(calls);
        let resumed = Resumed {
            why,
            from_image: true,
            id: "sbx_test".into(),
            name: "test".into(),
            hostname: "test".into(),
            generation: 1,
            key: None,
            env: None,
            asleep_ms: 5,
            place: None,
            services: roost_wire::ServiceSet::default(),
        };
        guest.connect().await.call_done(&Request::Resumed(resumed)).await.unwrap();
        assert_eq!(out(&slept.await.unwrap()), (Some(0), "awake again\n".into(), String::new()));
        let (code, said, _) = out(&kept.await.unwrap());
        assert_eq!((code, said), (Some(0), format!("started from this checkpoint ({why})\n")));
    }
}

#[tokio::test]
async fn without_a_cron_daemon_of_its_own_nothing_is_read() {
    let guest = Guest::start();
    std::fs::write(guest.path("etc/crontab"), "* * * * * root true\n").unwrap();
    let Reply::CronJobs(jobs) = guest.connect().await.call(&Request::CronJobs).await.unwrap() else { panic!() };
    // This test shares its machine with whatever runs on it.
    assert!(jobs.is_empty() || !guest_is_alone(), "{jobs:?}");
}

/// Whether nobody on this machine is a cron daemon.
fn guest_is_alone() -> bool {
    let names = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("comm"));
    names.filter_map(|path| std::fs::read_to_string(path).ok()).all(|name| !name.starts_with("cron"))
}
