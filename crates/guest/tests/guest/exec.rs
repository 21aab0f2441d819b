//! Processes: how they start, what they see, how they end.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::support::{Guest, argv, collect, read_until, refused, shell};
use bytes::Bytes;
use roost_wire::client::{Bounded, ExecFrame, Limits};
use roost_wire::{
    Attach, ErrorCode, ExecFilter, ExecId, ExecResize, ExecSignal, Request, SendSignal, Shutdown, SignalTarget,
    WindowSize,
};

#[tokio::test]
async fn output_and_exit_code_in_one_round_trip() {
    let guest = Guest::start();
    let done = guest.shell("exe_1", "echo out; echo err >&2; exit 3").await;
    assert_eq!((done.text(), done.stderr.as_slice(), done.code()), ("out\n", &b"err\n"[..], 3));
    let done = guest.run(argv("exe_2", &["echo", "a b", "c"])).await;
    assert_eq!((done.text(), done.code()), ("a b c\n", 0));
}

#[tokio::test]
async fn a_signal_is_told_as_one() {
    let guest = Guest::start();
    let done = guest.shell("exe_1", "kill -SEGV $$").await;
    let exit = done.info.exit().unwrap();
    assert_eq!((exit.code, exit.signal, exit.shell_code()), (None, Some(11), 139));
}

#[tokio::test]
async fn failures_to_start_have_codes_and_leave_nothing() {
    let guest = Guest::start();
    let plain = guest.path("work/plain");
    std::fs::write(&plain, "not a program").unwrap();
    let script = guest.path("work/script");
    std::fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
    for path in [&plain, &script] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut nowhere = argv("exe_1", &["true"]);
    nowhere.cwd = Some("/nonexistent".to_owned());
    let locked = guest.path("work/locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut outside = argv("exe_1", &["true"]);
    (outside.cwd, outside.user) = (Some(locked), Some("65534".to_owned()));
    let mut nobody = argv("exe_1", &["true"]);
    nobody.user = Some("no-such-user".to_owned());
    let mut connection = guest.connect().await;
    for (start, code) in [
        (argv("exe_1", &["no-such-command"]), ErrorCode::CommandNotFound),
        (argv("exe_1", &["/no/such/command"]), ErrorCode::CommandNotFound),
        (argv("exe_1", &[&script]), ErrorCode::CommandNotFound),
        (argv("exe_1", &["/etc/passwd"]), ErrorCode::NotExecutable),
        (argv("exe_1", &["/etc"]), ErrorCode::NotExecutable),
        (argv("exe_1", &[&plain]), ErrorCode::NotExecutable),
        (argv("exe_1", &[""]), ErrorCode::CommandNotFound),
        (argv("exe_1", &[]), ErrorCode::BadRequest),
        (argv("exe_1", &["a\0b"]), ErrorCode::BadRequest),
        (argv("../exe", &["true"]), ErrorCode::BadRequest),
        (nowhere, ErrorCode::CwdNotFound),
        (outside, ErrorCode::PermissionDenied),
        (nobody, ErrorCode::UserNotFound),
    ] {
        // The same connection all the time: a refusal does not cost it.
        assert_eq!(refused(connection.exec_start(start.clone()).await), code, "{start:?}");
    }
    assert_eq!(connection.exec_list(ExecFilter::default(), Bounded::new(Limits::EXECS)).await.unwrap(), []);
}

#[tokio::test]
async fn environment_folder_and_user() {
    let guest = Guest::with(|config| {
        config.env.insert("FROM_CONFIG".into(), "1".into());
    });
    let mut start = shell("exe_1", "echo $FROM_CONFIG $MORE $HOME $USER $(pwd) $(id -u):$(id -g):$(id -G) $(umask)");
    start.env.insert("MORE".into(), "2".into());
    start.env.insert("USER".into(), "changed".into());
    let done = guest.run(start.clone()).await;
    assert_eq!(done.text(), format!("1 2 /root changed {} 0:0:0 0022\n", guest.path("work")));
    start.id = "exe_2".into();
    start.user = Some("12345:54321".into());
    start.cwd = Some("/usr/../tmp".into());
    let done = guest.run(start.clone()).await;
    assert_eq!(done.text(), "1 2 / changed /tmp 12345:54321:54321 0022\n");
    assert_eq!(done.info.user, "12345");
    start.id = "exe_3".into();
    start.clear_env = true;
    start.program = roost_wire::Program::Argv(vec!["env".into()]);
    assert_eq!(guest.run(start).await.text(), "MORE=2\nUSER=changed\n");
}

#[tokio::test]
async fn a_process_starts_clean() {
    let guest = Guest::start();
    let done = guest
        .shell("exe_1", "ls /proc/self/fd; grep -E '^Sig(Blk|Ign)' /proc/self/status; ps -o sid= -p $$; echo $$")
        .await;
    let words: Vec<&str> = done.text().split_whitespace().collect();
    // Three descriptors and the one `ls` itself opened.
    assert_eq!(words[..4], ["0", "1", "2", "3"]);
    assert_eq!(words[4..8], ["SigBlk:", "0000000000000000", "SigIgn:", "0000000000000000"]);
    assert_eq!(words[8], words[9]);
}

#[tokio::test]
async fn time_is_up_for_the_whole_session() {
    let guest = Guest::start();
    let mut start = shell("exe_1", "sleep 1000 & echo $!; wait");
    start.timeout_ms = Some(500);
    let begun = Instant::now();
    let done = guest.run(start).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    let exit = done.info.exit().unwrap();
    assert!(exit.timed_out && exit.signal == Some(9), "{exit:?}");
    let sleeper: i32 = done.text().trim().parse().unwrap();
    // It was killed along; the guest reaps it as an orphan.
    let gone = || !std::path::Path::new(&format!("/proc/{sleeper}")).exists();
    assert!(eventually(gone).await);
}

async fn eventually(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

#[tokio::test]
async fn signals_reach_the_process_its_group_and_its_session() {
    let guest = Guest::start();
    let mut connection = guest.connect().await;
    let signal = |id: &str, signal, target| Request::ExecSignal(ExecSignal { id: id.into(), signal, target });
    connection.exec_start(argv("exe_1", &["sleep", "1000"])).await.unwrap();
    connection.call_exec(&signal("exe_1", 15, SignalTarget::Group)).await.unwrap();
    let info = connection.exec_wait("exe_1").await.unwrap();
    assert_eq!(info.exit().unwrap().signal, Some(15));
    assert_eq!(refused(connection.call(&signal("exe_1", 15, SignalTarget::Group)).await), ErrorCode::Conflict);
    assert_eq!(refused(connection.call(&signal("exe_9", 15, SignalTarget::Group)).await), ErrorCode::ExecNotFound);
    assert_eq!(refused(connection.call(&signal("exe_1", 99, SignalTarget::Group)).await), ErrorCode::BadRequest);

    let mut stream =
        guest.follow(shell("exe_2", "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.01; done")).await;
    read_until(&mut stream, "ready").await;
    stream.input().signal(SendSignal { signal: 10, target: SignalTarget::Process }).await.unwrap();
    read_until(&mut stream, "caught").await;
    assert!(matches!(stream.next().await, Some(Ok(ExecFrame::End(info))) if info.exit().unwrap().code == Some(7)));

    // A child that outlives its shell is still of its session.
    let done = guest.shell("exe_3", "sleep 1000 >/dev/null 2>&1 & echo $!").await;
    let sleeper: i32 = done.text().trim().parse().unwrap();
    let alive = || std::path::Path::new(&format!("/proc/{sleeper}")).exists();
    assert!(alive());
    connection.call_exec(&signal("exe_3", 9, SignalTarget::Session)).await.unwrap();
    assert!(eventually(|| !alive()).await);
}

#[tokio::test]
async fn standard_input_by_attachment_and_by_call() {
    let guest = Guest::start();
    let mut start = argv("exe_1", &["cat"]);
    start.stdin = true;
    let mut stream = guest.follow(start.clone()).await;
    stream.input().stdin(b"one\n").await.unwrap();
    read_until(&mut stream, "one\n").await;
    let mut connection = guest.connect().await;
    connection.exec_stdin("exe_1", Bytes::from_static(b"two\n"), false).await.unwrap();
    read_until(&mut stream, "two\n").await;
    stream.input().close_stdin().await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(ExecFrame::End(info))) if !info.stdin_open));
    let late = connection.exec_stdin("exe_1", Bytes::from_static(b"late"), false).await;
    assert_eq!(refused(late), ErrorCode::Conflict);

    // More than any pipe holds, both ways at once.
    start.id = "exe_2".into();
    let (mut output, mut input) = guest.follow(start).await.split();
    let sent: Vec<u8> = (0..8_000_000u32).map(|i| (i / 7) as u8).collect();
    let hash = blake3::hash(&sent);
    let writer = tokio::spawn(async move {
        input.stdin(&sent).await.unwrap();
        input.close_stdin().await.unwrap();
        input
    });
    let mut hasher = blake3::Hasher::new();
    while let Some(frame) = output.next().await {
        if let ExecFrame::Output { bytes, .. } = frame.unwrap() {
            hasher.update(&bytes);
        }
    }
    assert_eq!(hasher.finalize(), hash);
    writer.await.unwrap();
}

#[tokio::test]
async fn a_process_that_does_not_read_does_not_block_signals() {
    let guest = Guest::start();
    let mut start = argv("exe_1", &["sleep", "1000"]);
    start.stdin = true;
    let mut stream = guest.follow(start).await;
    stream.input().stdin(&vec![b'x'; 200_000]).await.unwrap();
    stream.input().signal(SendSignal { signal: 9, target: SignalTarget::Group }).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(ExecFrame::End(info))) if info.exit().unwrap().signal == Some(9)));
}

#[tokio::test]
async fn a_terminal_echoes_and_changes_its_size() {
    let guest = Guest::start();
    let mut start = shell("exe_1", "stty size; tty -s && echo terminal; read line; echo got $line; stty size; cat");
    start.pty = Some(WindowSize { cols: 91, rows: 27 });
    let mut stream = guest.follow(start).await;
    let seen = read_until(&mut stream, "terminal").await;
    assert!(seen.contains("27 91"), "{seen}");
    let mut connection = guest.connect().await;
    let size = WindowSize { cols: 40, rows: 10 };
    connection.call_exec(&Request::ExecResize(ExecResize { id: "exe_1".into(), size })).await.unwrap();
    stream.input().stdin(b"hello\n").await.unwrap();
    let seen = read_until(&mut stream, "10 40").await;
    assert!(seen.contains("hello\r\n") && seen.contains("got hello"), "{seen}");
    stream.input().resize(WindowSize { cols: 50, rows: 11 }).await.unwrap();
    // Typing the end of input ends `cat` and with it the shell.
    stream.input().close_stdin().await.unwrap();
    loop {
        if let ExecFrame::End(info) = stream.next().await.unwrap().unwrap() {
            assert_eq!(info.exit().unwrap().code, Some(0));
            break;
        }
    }
    let no_terminal = connection.call(&Request::ExecResize(ExecResize { id: "exe_1".into(), size })).await;
    assert_eq!(refused(no_terminal), ErrorCode::BadRequest);
}

#[tokio::test]
async fn control_c_interrupts_what_runs_on_a_terminal() {
    let guest = Guest::start();
    let mut start = argv("exe_1", &["sh", "-c", "echo ready; exec sleep 1000"]);
    start.pty = Some(WindowSize { cols: 80, rows: 24 });
    let mut stream = guest.follow(start).await;
    read_until(&mut stream, "ready").await;
    stream.input().stdin(b"\x03").await.unwrap();
    loop {
        if let ExecFrame::End(info) = stream.next().await.unwrap().unwrap() {
            assert_eq!(info.exit().unwrap().shell_code(), 130);
            break;
        }
    }
}

#[tokio::test]
async fn starting_an_id_again_returns_what_it_is() {
    let guest = Guest::start();
    let marker = guest.path("marker");
    let line = format!("echo x >> {marker}; sleep 0.05");
    let starts = (0..20).map(|_| async {
        let mut connection = guest.connect().await;
        connection.exec_start(shell("exe_1", &line)).await.unwrap().pid
    });
    let pids = futures_util::future::join_all(starts).await;
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    let again = guest.shell("exe_1", "echo something else").await;
    assert_eq!((again.info.pid, again.text()), (pids[0], ""));
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "x\n");
}

#[tokio::test]
async fn the_end_is_told_although_a_child_keeps_the_pipe_open() {
    let guest = Guest::start();
    let gate = guest.path("gate");
    // The child writes only when it is told to, which is after the end of its parent was told.
    let line = format!("mkfifo {gate}; (read go < {gate}; echo late; exec sleep 1000) & echo early");
    let done = guest.shell("exe_1", &line).await;
    assert_eq!(done.text(), "early\n");
    std::fs::write(&gate, "go\n").unwrap();
    // What comes later is kept as well.
    let info =
        || async { guest.connect().await.call_exec(&Request::ExecGet(ExecId { id: "exe_1".into() })).await.unwrap() };
    let deadline = Instant::now() + Duration::from_secs(5);
    while info().await.stdout.end < 11 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let again = collect(guest.connect().await.attach("exe_1", Attach::whole()).await.unwrap()).await;
    assert_eq!(again.text(), "early\nlate\n");
    let kill = ExecSignal { id: "exe_1".into(), signal: 9, target: SignalTarget::Session };
    guest.connect().await.call_exec(&Request::ExecSignal(kill)).await.unwrap();
}

#[tokio::test]
async fn every_exit_is_told_once_under_load() {
    let guest = Guest::start();
    let runs = (0..200).map(|i| {
        let guest = &guest;
        async move {
            let done = guest.shell(&format!("exe_{i:03}"), &format!("echo {i}; exit {}", i % 100)).await;
            assert_eq!((done.text(), done.code()), (format!("{i}\n").as_str(), i % 100));
        }
    });
    futures_util::future::join_all(runs).await;
    let mut connection = guest.connect().await;
    let listed = connection.exec_list(ExecFilter::default(), Bounded::new(Limits::EXECS)).await.unwrap();
    assert_eq!(listed.len(), 200);
    assert!(listed.iter().all(|info| info.exit().is_some()));
    connection.call_done(&Request::ExecRemove(ExecId { id: "exe_007".into() })).await.unwrap();
    assert_eq!(
        refused(connection.call(&Request::ExecGet(ExecId { id: "exe_007".into() })).await),
        ErrorCode::ExecNotFound
    );
    // No zombies: every child is reaped, and the threads that served them are gone.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", guest.pid())).unwrap();
    assert_eq!(children, "");
}

#[tokio::test]
async fn execs_are_found_by_pid_and_tag() {
    let guest = Guest::start();
    let mut tagged = shell("exe_1", "cat");
    (tagged.stdin, tagged.tag) = (true, Some("job".to_owned()));
    tagged.env.insert("A".to_owned(), "1".to_owned());
    let cat = guest.follow(tagged).await;
    let ended = guest.shell("exe_2", "true").await.info;
    let mut connection = guest.connect().await;
    let mut ids = async |filter: ExecFilter| -> Vec<String> {
        connection
            .exec_list(filter, Bounded::new(Limits::EXECS))
            .await
            .unwrap()
            .into_iter()
            .map(|info| info.id)
            .collect()
    };
    assert_eq!(ids(ExecFilter::default()).await, ["exe_1", "exe_2"]);
    assert_eq!(ids(ExecFilter { running: true, ..ExecFilter::default() }).await, ["exe_1"]);
    assert_eq!(ids(ExecFilter { pid: Some(ended.pid), ..ExecFilter::default() }).await, ["exe_2"]);
    let job = ExecFilter { tag: Some("job".to_owned()), ..ExecFilter::default() };
    assert_eq!(ids(job).await, ["exe_1"]);
    assert_eq!(ids(ExecFilter { tag: Some("other".to_owned()), ..ExecFilter::default() }).await, Vec::<String>::new());
    assert_eq!((cat.info().tag.as_deref(), cat.info().env["A"].as_str()), (Some("job"), "1"));
    let mut long = shell("exe_3", "true");
    long.tag = Some("x".repeat(300));
    assert_eq!(refused(guest.connect().await.exec_start(long).await), ErrorCode::BadRequest);
}

/// A reply is one frame, whatever is in it.
#[tokio::test]
async fn long_command_lines_do_not_make_a_list_too_long() {
    let guest = Guest::start();
    // Each of these characters takes six in JSON.
    let long = "\u{1}".repeat(2000);
    for i in 0..200 {
        guest.run(argv(&format!("exe_{i:03}"), &["true", &long])).await;
    }
    let listed = guest.connect().await.exec_list(ExecFilter::default(), Bounded::new(Limits::EXECS)).await.unwrap();
    assert_eq!(listed.len(), 200);
}

#[tokio::test]
async fn finished_execs_are_forgotten_oldest_first() {
    let guest = Guest::with(|config| config.spool.finished_count = 3);
    for i in 0..5 {
        guest.shell(&format!("exe_{i}"), "true").await;
    }
    let ids: Vec<String> = guest
        .connect()
        .await
        .exec_list(ExecFilter::default(), Bounded::new(Limits::EXECS))
        .await
        .unwrap()
        .into_iter()
        .map(|info| info.id)
        .collect();
    assert_eq!(ids, ["exe_2", "exe_3", "exe_4"]);
}

#[tokio::test]
async fn shutdown_asks_first_and_then_kills() {
    let mut guest = Guest::start();
    let mut polite =
        guest.follow(shell("exe_1", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")).await;
    let mut stubborn = guest.follow(shell("exe_2", "trap '' TERM; echo ready; while :; do sleep 0.01; done")).await;
    read_until(&mut polite, "ready").await;
    read_until(&mut stubborn, "ready").await;
    let mut connection = guest.connect().await;
    connection.call_done(&Request::Shutdown(Shutdown { grace_ms: 200 })).await.unwrap();
    assert_eq!(collect_rest(&mut polite).await, Some(0));
    assert_eq!(guest.wait_for_exit(Duration::from_secs(5)), Some(0));
}

/// The exit code, if the end is told before the connection ends.
async fn collect_rest(stream: &mut roost_wire::client::ExecStream<tokio::net::TcpStream>) -> Option<i32> {
    while let Some(Ok(frame)) = stream.next().await {
        if let ExecFrame::End(info) = frame {
            return info.exit().map(|exit| exit.shell_code());
        }
    }
    None
}
