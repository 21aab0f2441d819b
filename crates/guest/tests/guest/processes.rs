//! Everything that runs beside a guest, and signals to it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{Guest, argv, read_until, refused, shell};
use roost_wire::client::{Bounded, Limits};
use roost_wire::{ErrorCode, ProcessInfo, ProcessSignal, Program, Request, Restart, Service, ServiceSet, ServiceStart};

async fn all(guest: &Guest) -> Vec<ProcessInfo> {
    guest.connect().await.processes(Bounded::new(Limits::PROCESSES)).await.unwrap()
}

#[tokio::test]
async fn every_process_is_told_of_with_what_it_belongs_to() {
    let guest = Guest::start();
    // A shell with a child, one that left its session, and an orphan of an exec that has ended.
    let line = "sleep 1001 & setsid sleep 1002 & echo started; wait";
    let mut stream = guest.follow(shell("exe_1", line)).await;
    read_until(&mut stream, "started").await;
    assert_eq!(guest.shell("exe_2", "sleep 1003 >/dev/null 2>&1 & exit 0").await.code(), 0);
    let leader = stream.info().pid;
    // What is told of a process is read piece by piece, and it may execute between two of them: only then is all of it its own.
    let is = |one: &ProcessInfo, time: &str| {
        one.name == "sleep" && one.argv == ["sleep", time] && one.exec.is_some() && one.resident > 0
    };
    let found = loop {
        let found = all(&guest).await;
        if ["1001", "1002", "1003"].iter().all(|time| found.iter().any(|one| is(one, time))) {
            break found;
        }
    };
    assert!(found.is_sorted_by_key(|process| process.pid));
    let of = |time: &str| found.iter().find(|one| is(one, time)).unwrap();
    for (time, exec) in [("1001", "exe_1"), ("1002", "exe_1"), ("1003", "exe_2")] {
        let process = of(time);
        assert_eq!((process.exec.as_deref(), process.service.as_deref()), (Some(exec), None), "{process:?}");
        assert_eq!((process.name.as_str(), process.user.as_str(), process.threads), ("sleep", "root", 1));
        assert!(process.resident > 0, "{process:?}");
    }
    let shell = found.iter().find(|one| one.pid == leader).unwrap();
    assert_eq!((shell.exec.as_deref(), shell.argv.first().map(String::as_str)), (Some("exe_1"), Some("/bin/sh")));
    assert_eq!(shell.started_at_ms, stream.info().started_at_ms);
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    assert!(of("1001").started_at_ms.abs_diff(now) < 60_000, "{:?} at {now}", of("1001"));
    let own = found.iter().find(|one| u32::try_from(one.pid) == Ok(guest.pid())).unwrap();
    assert_eq!((own.exec.as_deref(), own.name.as_str()), (None, "roost-guest"));
    for time in ["1001", "1002", "1003"] {
        let signal = Request::ProcessSignal(ProcessSignal { pid: of(time).pid, signal: 9 });
        guest.connect().await.call_done(&signal).await.unwrap();
    }
}

#[tokio::test]
async fn a_service_owns_its_processes() {
    let service = Service {
        name: "web".to_owned(),
        program: Program::Shell("sleep 1004; true".to_owned()),
        env: Default::default(),
        cwd: None,
        user: None,
        port: None,
        needs: Vec::new(),
        restart: Restart::Never,
        on_demand: false,
        stopped: false,
        stop_timeout_ms: 5000,
    };
    let guest = Guest::with(|config| config.services = ServiceSet { revision: 1, services: vec![service] });
    let start = ServiceStart { name: "web".to_owned(), again: false, demand: false, wait_ms: 20_000 };
    guest.connect().await.call(&Request::ServiceStart(start)).await.unwrap();
    let owned = loop {
        let found = all(&guest).await.into_iter().filter(|one| one.service.as_deref() == Some("web"));
        let owned: Vec<ProcessInfo> = found.collect();
        // Its shell may not have come to it yet.
        if owned.iter().any(|one| one.argv == ["sleep", "1004"]) {
            break owned;
        }
    };
    assert_eq!(owned.len(), 2, "{owned:?}");
    assert!(owned.iter().any(|one| one.argv == ["sleep", "1004"]), "{owned:?}");
}

#[tokio::test]
async fn a_signal_reaches_one_process_and_nobody_else() {
    let guest = Guest::start();
    let mut connection = guest.connect().await;
    let running = connection.exec_start(argv("exe_1", &["sleep", "1005"])).await.unwrap();
    let send = |pid, signal| Request::ProcessSignal(ProcessSignal { pid, signal });
    connection.call_done(&send(running.pid, 15)).await.unwrap();
    let ended = connection.exec_wait("exe_1").await.unwrap();
    assert_eq!(ended.exit().unwrap().signal, Some(15));
    for (pid, signal, code) in [
        (running.pid, 15, ErrorCode::ProcessNotFound),
        (0, 15, ErrorCode::ProcessNotFound),
        (-1, 15, ErrorCode::ProcessNotFound),
        (i32::MAX, 15, ErrorCode::ProcessNotFound),
        (i32::try_from(guest.pid()).unwrap(), 9, ErrorCode::PermissionDenied),
        (i32::MAX, 0, ErrorCode::BadRequest),
    ] {
        assert_eq!(refused(connection.call_done(&send(pid, signal)).await), code, "{pid} {signal}");
    }
    connection.ping().await.unwrap();
}
