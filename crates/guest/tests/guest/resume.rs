//! Before and after a sleep: connections, time limits, identity, hooks.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use crate::support::{Guest, collect, read_until, refused, shell};
use roost_sys::spawn::{Receiver, send_signal};
use roost_wire::client::{Bounded, CallError, Connection, ExecFrame, ExecStream, Limits};
use roost_wire::{Attach, DefaultPlace, ErrorCode, ExecFilter, Key, Request, Resumed, StartAt, Watch, Why, WindowSize};
use tokio::net::TcpStream;

fn resumed(why: Why) -> Resumed {
    Resumed {
        why,
        from_image: why != Why::Wake,
        id: "sbx_other".into(),
        name: "other".into(),
        hostname: "other".into(),
        generation: 2,
        key: None,
        env: None,
        asleep_ms: 1234,
        place: None,
        services: roost_wire::ServiceSet::default(),
    }
}

/// Sockets that the guest has open.
fn sockets(guest: &Guest) -> usize {
    let fds = std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).unwrap();
    let is_socket = |path: std::path::PathBuf| path.to_string_lossy().starts_with("socket:");
    fds.flatten().filter(|fd| std::fs::read_link(fd.path()).is_ok_and(is_socket)).count()
}

fn from(offset: u64) -> Attach {
    Attach { stdout: StartAt::Offset(offset), ..Attach::whole() }
}

/// Reads output until the connection is closed, and checks offsets.
async fn read_to_close(stream: &mut ExecStream<TcpStream>, output: &mut Vec<u8>) {
    loop {
        match stream.next().await.unwrap() {
            Ok(ExecFrame::Output { offset, bytes, .. }) => {
                assert_eq!(offset, output.len() as u64);
                output.extend_from_slice(&bytes);
            }
            Ok(other) => panic!("{other:?}"),
            Err(CallError::Closed | CallError::Io(_)) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn quiesce_closes_everything_and_output_goes_on_where_it_was() {
    let guest = Guest::start();
    let line = "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done";
    let mut stream = guest.follow(shell("exe_1", line)).await;
    let mut waiting = guest.connect().await;
    let mut idle = guest.connect().await;
    idle.ping().await.unwrap();
    let watch = Watch { path: ".".into(), recursive: true, ..Watch::default() };
    let mut watch = guest.connect().await.watch(watch).await.unwrap();
    let wait = tokio::spawn(async move { waiting.exec_wait("exe_1").await });

    let begun = Instant::now();
    guest.connect().await.quiesce().await.unwrap();
    let took = begun.elapsed();
    assert_eq!(sockets(&guest), 2, "only those that listen are left");
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert!(matches!(watch.next().await, Some(Err(CallError::Closed | CallError::Io(_)))));
    assert!(idle.ping().await.is_err());
    assert!(wait.await.unwrap().is_err());

    let mut output = Vec::new();
    read_to_close(&mut stream, &mut output).await;
    for _ in 0..20 {
        let mut stream = guest.connect().await.attach("exe_1", from(output.len() as u64)).await.unwrap();
        // Ended already, or at least one piece more each time.
        match stream.next().await.unwrap().unwrap() {
            ExecFrame::Output { offset, bytes, .. } => {
                assert_eq!(offset, output.len() as u64);
                output.extend_from_slice(&bytes);
            }
            ExecFrame::End(_) => break,
            ExecFrame::Gap(gap) => panic!("{gap:?}"),
        }
        guest.connect().await.quiesce().await.unwrap();
    }
    let mut stream = guest.connect().await.attach("exe_1", from(output.len() as u64)).await.unwrap();
    loop {
        match stream.next().await.unwrap().unwrap() {
            ExecFrame::Output { offset, bytes, .. } => {
                assert_eq!(offset, output.len() as u64);
                output.extend_from_slice(&bytes);
            }
            ExecFrame::End(info) => break assert_eq!(info.exit().unwrap().code, Some(0)),
            ExecFrame::Gap(gap) => panic!("{gap:?}"),
        }
    }
    assert_eq!(String::from_utf8(output).unwrap(), (0..20000).map(|i| format!("{i}\n")).collect::<String>());
}

#[tokio::test]
async fn quiesce_is_quick() {
    let guest = Guest::start();
    let _stream = guest.follow(shell("exe_1", "sleep 1000")).await;
    let mut times = Vec::new();
    for _ in 0..50 {
        let mut other = guest.connect().await;
        other.ping().await.unwrap();
        let mut connection = guest.connect().await;
        connection.ping().await.unwrap();
        let begun = Instant::now();
        connection.quiesce().await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    // Generous: the machine may be busy with other tests.
    assert!(times[25] < Duration::from_millis(20), "{:?}", times[25]);
}

#[tokio::test]
async fn a_terminal_goes_on_after_quiesce() {
    let guest = Guest::start();
    let mut start = shell("exe_1", "read a; echo got $a; read b; echo and $b");
    start.pty = Some(WindowSize { cols: 80, rows: 24 });
    let mut stream = guest.follow(start).await;
    stream.input().stdin(b"one\n").await.unwrap();
    let seen = read_until(&mut stream, "got one\r\n").await;
    guest.connect().await.quiesce().await.unwrap();
    let mut stream = guest.connect().await.attach("exe_1", from(seen.len() as u64)).await.unwrap();
    assert!(stream.info().pty && stream.info().stdin_open);
    stream.input().stdin(b"two\n").await.unwrap();
    read_until(&mut stream, "and two\r\n").await;
}

#[tokio::test]
async fn input_that_was_sent_before_hanging_up_is_not_lost() {
    let guest = Guest::start();
    // Reads nothing for as long as the file is there, so that the pipe and all buffers fill.
    let gate = guest.path("work/gate");
    std::fs::write(&gate, "").unwrap();
    let mut start = shell("exe_1", &format!("while [ -e {gate} ]; do sleep 0.01; done; cat"));
    start.stdin = true;
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut stream = guest.follow(start).await;
    let (first, second) = data.split_at(400_000);
    stream.input().stdin(first).await.unwrap();
    stream.input().hang_up().await.unwrap();
    assert!(matches!(stream.next().await, Some(Err(CallError::Closed))));
    guest.connect().await.quiesce().await.unwrap();
    let mut stream = guest.connect().await.attach("exe_1", from(0)).await.unwrap();
    std::fs::remove_file(&gate).unwrap();
    stream.input().stdin(second).await.unwrap();
    stream.input().close_stdin().await.unwrap();
    let done = collect(stream).await;
    assert!(done.stdout == data, "{} bytes of {}", done.stdout.len(), data.len());
}

/// The signal has been sent before, and each thread obeys it in its own time.
fn all_stopped(guest: &Guest) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", guest.pid())).unwrap().flatten();
    let mut stats = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    stats.all(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T ")))
}

#[tokio::test]
async fn a_frozen_guest_keeps_its_connections_and_its_time() {
    let guest = Guest::start();
    let mut start = shell("exe_1", "echo ready; read line; echo $line");
    start.stdin = true;
    start.timeout_ms = Some(2000);
    let mut stream = guest.follow(start).await;
    read_until(&mut stream, "ready\n").await;
    let mut idle = guest.connect().await;
    idle.ping().await.unwrap();

    let pid = guest.pid() as i32;
    send_signal(Receiver::Process(pid), 19).unwrap();
    eventually("the stop of every thread", || all_stopped(&guest)).await;
    // What is sent meanwhile waits in the socket.
    let asked = tokio::spawn(async move { idle.ping().await.map(|_| idle) });
    // The passing of time itself: more than the process has.
    tokio::time::sleep(Duration::from_millis(2300)).await;
    assert!(!asked.is_finished());
    send_signal(Receiver::Process(pid), 18).unwrap();
    let mut idle = asked.await.unwrap().unwrap();
    idle.call_done(&Request::Resumed(Resumed { asleep_ms: 2300, ..resumed(Why::Wake) })).await.unwrap();
    stream.input().stdin(b"still here\n").await.unwrap();
    read_until(&mut stream, "still here\n").await;
    let ExecFrame::End(info) = stream.next().await.unwrap().unwrap() else { panic!() };
    assert_eq!((info.exit().unwrap().code, info.exit().unwrap().timed_out), (Some(0), false));
}

#[tokio::test]
async fn a_fork_is_somebody_else() {
    let guest = Guest::start();
    let file = |name: &str| std::fs::read_to_string(guest.path(name)).unwrap();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    std::fs::write(guest.path("run/boot_id"), &boot_id).unwrap();
    let inode = || std::fs::metadata(guest.path("run/generation")).unwrap().ino();
    let before = inode();
    let mut stale = guest.connect().await;
    stale.ping().await.unwrap();

    let mut connection = guest.connect().await;
    connection.call_done(&Request::Resumed(resumed(Why::Wake))).await.unwrap();
    stale.ping().await.unwrap();
    assert_eq!(file("run/boot_id"), boot_id);

    let key = Key::from_bytes([3; 32]);
    let env = Some([("GREETING".to_owned(), "hello".to_owned())].into());
    let fork = Resumed { key: Some(key.clone()), env, generation: 10, ..resumed(Why::Fork) };
    connection.call_done(&Request::Resumed(fork)).await.unwrap();
    assert!(stale.ping().await.is_err(), "a connection of the parent's");
    connection.ping().await.unwrap();
    assert_eq!((file("run/id"), file("run/name")), ("sbx_other\n".into(), "other\n".into()));
    assert_eq!((file("run/generation"), inode()), ("10\n".into(), before));
    assert_eq!(file("run/env.json"), "{\"GREETING\":\"hello\"}\n");
    assert!(file("run/boot_id").len() == boot_id.len() && file("run/boot_id") != boot_id);
    assert_eq!(refused(guest.connect().await.ping().await), ErrorCode::Unauthorized);
    let mut new = Connection::new(guest.stream().await, &key).unwrap();
    assert_eq!(new.ping().await.unwrap().generation, 10);
}

#[tokio::test]
async fn one_that_goes_on_as_another_has_its_environment_and_place() {
    let guest = Guest::start();
    let folder = guest.folder.path().canonicalize().unwrap().to_str().unwrap().to_owned();
    let place = DefaultPlace { user: "root".into(), workdir: Some(folder.clone()) };
    let fork = Resumed { env: Some([("WHO".into(), "child".into())].into()), place: Some(place), ..resumed(Why::Fork) };
    let mut connection = guest.connect().await;
    connection.call_done(&Request::Resumed(fork)).await.unwrap();
    let told = |seen: crate::support::Finished| String::from_utf8(seen.stdout).unwrap();
    assert_eq!(told(guest.shell("first", "echo $WHO; pwd").await), format!("child\n{folder}\n"));
    connection.call_done(&Request::Resumed(resumed(Why::Wake))).await.unwrap();
    let after = told(guest.shell("second", "echo $WHO; pwd").await);
    assert_eq!(after, format!("child\n{folder}\n"), "what is not told stays");
}

fn hook(guest: &Guest, path: &str, script: &str) {
    let path = guest.folder.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn hooks_run_in_order_and_are_told_why() {
    let guest = Guest::start();
    let told = guest.path("work/told");
    let tell = |name: &str| {
        format!("echo {name} $ROOST_WHY $ROOST_GENERATION $ROOST_ID $ROOST_NAME $ROOST_ASLEEP_MS >> {told}")
    };
    hook(&guest, "etc/roost/on-wake.d/20-second", &format!("{}; touch {told}.done", tell("second")));
    hook(&guest, "etc/roost/on-wake.d/10-first", &format!("{}; echo output; echo trouble >&2; exit 3", tell("first")));
    hook(&guest, "etc/roost/on-fork.d/90-fork", &tell("fork"));
    let mut connection = guest.connect().await;
    for (why, expected) in [
        (Why::Wake, "first wake 2 sbx_other other 1234\nsecond wake 2 sbx_other other 1234\n"),
        (
            Why::Fork,
            "fork fork 2 sbx_other other 1234\nfirst fork 2 sbx_other other 1234\nsecond fork 2 sbx_other other 1234\n",
        ),
    ] {
        connection.call_done(&Request::Resumed(resumed(why))).await.unwrap();
        let done = format!("{told}.done");
        eventually("the last hook", || std::path::Path::new(&done).exists()).await;
        assert_eq!(std::fs::read_to_string(&told).unwrap(), expected);
        std::fs::remove_file(&told).unwrap();
        std::fs::remove_file(&done).unwrap();
        let log = || std::fs::read_to_string(guest.path("log/roost-hooks.log")).unwrap_or_default();
        eventually("the log", || log().contains(&format!("20-second (generation 2, {why}): exit code 0 in "))).await;
        assert!(log().contains(&format!("10-first (generation 2, {why}): exit code 3 in ")));
        assert!(log().contains(" ms\noutput\ntrouble\n"));
    }
    // They are nobody's execs.
    assert_eq!(connection.exec_list(ExecFilter::default(), Bounded::new(Limits::EXECS)).await.unwrap(), []);
}

#[tokio::test]
async fn many_wakes_during_a_hook_make_one_more_run() {
    let guest = Guest::start();
    let (runs, gate) = (guest.path("work/runs"), guest.path("work/gate"));
    hook(
        &guest,
        "etc/roost/on-wake.d/slow",
        &format!("echo $ROOST_GENERATION >> {runs}; while [ ! -e {gate} ]; do sleep 0.01; done"),
    );
    let lines = || std::fs::read_to_string(&runs).unwrap_or_default();
    let mut connection = guest.connect().await;
    connection.call_done(&Request::Resumed(resumed(Why::Wake))).await.unwrap();
    eventually("the first run", || !lines().is_empty()).await;
    for generation in 3..30 {
        let next = Resumed { generation, ..resumed(Why::Wake) };
        connection.call_done(&Request::Resumed(next)).await.unwrap();
    }
    std::fs::write(&gate, "").unwrap();
    let log = guest.path("log/roost-hooks.log");
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("the second run", || text().contains("(generation 29, wake)")).await;
    assert_eq!(lines(), "2\n29\n");
}
