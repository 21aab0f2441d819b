//! Services of a real guest: order, restarts, stops, logs, threads.

use std::time::{Duration, Instant};

use crate::support::{Guest, refused};
use roost_wire::client::{Connection, ExecFrame};
use roost_wire::{
    Attach, ErrorCode, Program, Reply, Request, Restart, Service, ServiceInfo, ServiceLimits, ServiceLog, ServiceName,
    ServiceSet, ServiceStart, ServiceState, Shutdown, StartAt,
};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(20);

fn service(name: &str, line: &str) -> Service {
    Service {
        name: name.to_owned(),
        program: Program::Shell(line.to_owned()),
        env: Default::default(),
        cwd: None,
        user: None,
        port: None,
        needs: Vec::new(),
        restart: Restart::Always,
        on_demand: false,
        stopped: false,
        stop_timeout_ms: 5000,
    }
}

fn quick() -> ServiceLimits {
    ServiceLimits { first_pause_ms: 20, longest_pause_ms: 160, healthy_ms: 60_000, log_file: 4096 }
}

/// A guest that has been handed services.
struct Bench {
    guest: Guest,
    connection: Connection<TcpStream>,
    revision: u64,
}

impl Bench {
    async fn new(services: Vec<Service>) -> Self {
        let guest = Guest::with(|config| config.service_limits = quick());
        let connection = guest.connect().await;
        let mut bench = Self { guest, connection, revision: 0 };
        bench.set(services).await;
        bench
    }

    async fn set(&mut self, services: Vec<Service>) {
        self.revision += 1;
        let set = ServiceSet { revision: self.revision, services };
        self.connection.call_done(&Request::ServicesSet(set)).await.unwrap();
    }

    async fn list(&mut self) -> Vec<ServiceInfo> {
        match self.connection.call(&Request::Services).await.unwrap() {
            Reply::Services(all) => all,
            other => panic!("{other:?}"),
        }
    }

    async fn start(&mut self, name: &str, again: bool, demand: bool) -> ServiceInfo {
        let start = ServiceStart { name: name.to_owned(), again, demand, wait_ms: 20_000 };
        match self.connection.call(&Request::ServiceStart(start)).await.unwrap() {
            Reply::Service(info) => *info,
            other => panic!("{other:?}"),
        }
    }

    async fn gone(&mut self, name: &str) {
        let name = ServiceName { name: name.to_owned() };
        self.connection.call_done(&Request::ServiceGone(name)).await.unwrap();
    }

    /// Waits until a service is as wanted.
    async fn until(&mut self, name: &str, wanted: impl Fn(&ServiceInfo) -> bool) -> ServiceInfo {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let all = self.list().await;
            match all.iter().find(|info| info.name == name) {
                Some(info) if wanted(info) => return info.clone(),
                _ => assert!(Instant::now() < deadline, "{name} never was as wanted: {all:#?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn log(&mut self, name: &str) -> String {
        let attach = Attach { stdout: StartAt::Offset(0), stderr: StartAt::Nothing, follow: false, lossless: false };
        let wanted = ServiceLog { name: name.to_owned(), attach };
        let mut stream = self.guest.connect().await.service_log(wanted).await.unwrap();
        let mut log = Vec::new();
        while let Some(frame) = stream.next().await {
            if let ExecFrame::Output { bytes, .. } = frame.unwrap() {
                log.extend_from_slice(&bytes);
            }
        }
        String::from_utf8(log).unwrap()
    }

    fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.guest.pid())).unwrap().count()
    }

    /// How often each thread of the guest has run.
    fn turns(&self) -> Vec<String> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.guest.pid())).unwrap().flatten();
        let text = |path: std::path::PathBuf| std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        threads.map(|thread| text(thread.path()).split(' ').nth(2).unwrap_or_default().to_owned()).collect()
    }

    /// Checks that no thread of the guest runs while nothing happens.
    async fn is_at_rest(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = self.turns();
            tokio::time::sleep(Duration::from_millis(300)).await;
            if self.turns() == before {
                return;
            }
            // The last answer may still have been on its way.
            assert!(Instant::now() < deadline, "threads run on: {before:?}");
        }
    }
}

fn is_running(info: &ServiceInfo) -> bool {
    info.state == ServiceState::Running
}

#[tokio::test]
async fn what_crashes_is_started_again_after_longer_and_longer_pauses() {
    let mut bench = Bench::new(vec![service("web", "date +%s%N; echo oops >&2; exit 3")]).await;
    let info = bench.until("web", |info| info.restarts >= 5).await;
    assert_eq!(info.last_exit.unwrap().code, Some(3));
    let log = bench.log("web").await;
    let times: Vec<u64> = log.lines().filter_map(|line| line.parse().ok()).collect();
    let pauses: Vec<u64> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect();
    for (pause, least) in pauses.iter().zip([20, 40, 80, 160, 160]) {
        assert!(*pause >= least, "{pauses:?}");
    }
    // Both streams in the order in which they were written.
    assert!(log.lines().skip(1).step_by(2).all(|line| line == "oops"), "{log}");
}

/// A port of a test's own, by its number here, and below those that the kernel gives to whoever connects.
fn own_port(test: u16) -> u16 {
    10_000 + (std::process::id() % 20_000) as u16 + test
}

#[tokio::test]
async fn order_by_needs_and_ports() {
    let port = own_port(0);
    let mut bench = Bench::new(vec![]).await;
    let folder = bench.guest.path("work");
    let listen = format!(
        "import socket,time\ntime.sleep(0.3)\ns=socket.create_server(('127.0.0.1',{port}))\nopen('db','w')\ntime.sleep(1000)"
    );
    let db = Service {
        program: Program::Argv(vec!["python3".into(), "-c".into(), listen]),
        port: Some(port),
        ..service("db", "")
    };
    let app = Service { needs: vec!["db".into()], ..service("app", "test -e db && echo found; exec sleep 1000") };
    bench.set(vec![app, db]).await;
    let waiting = bench.list().await;
    assert_eq!((waiting[0].state, waiting[0].pid), (ServiceState::Starting, None), "{waiting:?} in {folder}");
    bench.until("app", is_running).await;
    assert_eq!(bench.log("app").await, "found\n");
    assert!(bench.list().await.iter().all(is_running));
}

#[tokio::test]
async fn a_stop_ends_what_the_service_started_and_sticks() {
    let line = "trap 'echo told; exit 0' TERM; sleep 1000 & echo $!; while :; do wait; done";
    let mut bench = Bench::new(vec![service("web", line)]).await;
    bench.until("web", |info| info.log.end > 0).await;
    let child: i32 = bench.log("web").await.trim().parse().unwrap();
    bench.set(vec![Service { stopped: true, ..service("web", line) }]).await;
    bench.gone("web").await;
    let info = &bench.list().await[0];
    assert_eq!((info.state, info.pid, info.last_exit.unwrap().code), (ServiceState::Stopped, None, Some(0)));
    assert!(bench.log("web").await.contains("told"));
    let deadline = Instant::now() + PATIENCE;
    while std::fs::metadata(format!("/proc/{child}")).is_ok() {
        assert!(Instant::now() < deadline, "its child lives on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let start = ServiceStart { name: "web".into(), again: false, demand: true, wait_ms: 0 };
    assert_eq!(refused(bench.connection.call(&Request::ServiceStart(start)).await), ErrorCode::Conflict);
}

#[tokio::test]
async fn what_does_not_listen_to_the_signal_is_killed() {
    let stubborn = Service { stop_timeout_ms: 50, ..service("web", "trap '' TERM; while :; do sleep 1; done") };
    let mut bench = Bench::new(vec![stubborn.clone()]).await;
    bench.until("web", is_running).await;
    bench.set(vec![]).await;
    bench.gone("web").await;
    assert!(bench.list().await.is_empty());
}

#[tokio::test]
async fn a_start_tells_what_came_of_it() {
    let lazy = |name: &str, line: &str| Service { on_demand: true, restart: Restart::Never, ..service(name, line) };
    let odd = Service { program: Program::Argv(vec!["no-such-command".into()]), ..lazy("odd", "") };
    let port = own_port(1);
    let bad = Service { port: Some(port), ..lazy("bad", "echo because; exit 1") };
    let mut bench = Bench::new(vec![lazy("good", "exec sleep 1000"), bad, odd]).await;
    assert!(bench.list().await.iter().all(|info| info.state == ServiceState::Stopped && info.log.end == 0));
    let first = bench.start("good", false, true).await;
    assert!(is_running(&first) && first.pid.is_some());
    assert_eq!(bench.start("good", false, true).await.pid, first.pid);
    let again = bench.start("good", true, false).await;
    assert!(is_running(&again) && again.pid != first.pid);
    let bad = bench.start("bad", false, true).await;
    assert_eq!((bad.state, bad.tail.as_deref()), (ServiceState::Failed, Some("because")));
    let odd = bench.start("odd", false, false).await;
    assert_eq!((odd.state, odd.last_exit.unwrap().code), (ServiceState::Failed, Some(127)));
    assert!(odd.reason.unwrap().contains("no-such-command"));
}

#[tokio::test]
async fn logs_survive_the_guest_and_go_with_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().to_str().unwrap().to_owned();
    let counter = vec![service("web", "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done; exec sleep 1000")];
    let mut ends = Vec::new();
    for _ in 0..2 {
        let guest = Guest::with(|config| {
            config.log_dir.clone_from(&logs);
            config.service_limits = quick();
            config.services = ServiceSet { revision: 1, services: counter.clone() };
        });
        let connection = guest.connect().await;
        let mut bench = Bench { guest, connection, revision: 1 };
        let written = ends.last().map_or(8890, |end| end + 8890);
        let info = bench.until("web", |info| info.log.end >= written).await;
        assert_eq!(info.log.end, written);
        assert!(info.log.start > 0 && info.log.end - info.log.start <= 2 * 4096);
        assert!(bench.log("web").await.ends_with("1998\n1999\n"));
        ends.push(info.log.end);
        bench.connection.call_done(&Request::Shutdown(Shutdown { grace_ms: 1000 })).await.unwrap();
        assert_eq!(bench.guest.wait_for_exit(PATIENCE), Some(0));
    }
    assert_eq!(std::fs::read_dir(folder.path().join("roost/web")).unwrap().count(), 2);
    let guest = Guest::with(|config| {
        config.log_dir.clone_from(&logs);
        config.services = ServiceSet { revision: 1, services: counter };
    });
    let connection = guest.connect().await;
    let mut bench = Bench { guest, connection, revision: 1 };
    bench.until("web", is_running).await;
    let attach = Attach { stdout: StartAt::Now, stderr: StartAt::Nothing, follow: true, lossless: false };
    let wanted = ServiceLog { name: "web".into(), attach };
    let mut following = bench.guest.connect().await.service_log(wanted).await.unwrap();
    bench.set(vec![]).await;
    bench.gone("web").await;
    // Whoever followed it hears of the end.
    while let Some(frame) = following.next().await {
        frame.unwrap();
    }
    assert!(!folder.path().join("roost/web").exists());
}

#[tokio::test]
async fn at_the_end_each_stops_after_those_that_need_it() {
    let named = |name: &str, needs: &[&str]| Service {
        needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        ..service(name, &format!("trap 'echo {name} >> order; exit 0' TERM; echo ready; while :; do sleep 0.01; done"))
    };
    let mut bench = Bench::new(vec![named("a", &[]), named("b", &["a"]), named("c", &["b"])]).await;
    for name in ["a", "b", "c"] {
        bench.until(name, |info| info.log.end > 0).await;
    }
    bench.connection.call_done(&Request::Shutdown(Shutdown { grace_ms: 1000 })).await.unwrap();
    assert_eq!(bench.guest.wait_for_exit(PATIENCE), Some(0));
    assert_eq!(std::fs::read_to_string(bench.guest.path("work/order")).unwrap(), "c\nb\na\n");
}

#[tokio::test]
async fn a_guest_without_services_has_no_thread_for_them() {
    let mut bench = Bench::new(vec![]).await;
    let without = bench.threads();
    bench.set(vec![service("web", "exec sleep 1000")]).await;
    bench.until("web", is_running).await;
    assert_eq!(bench.threads(), without + 2, "the supervisor and the pump of its one process");
    bench.is_at_rest().await;
    bench.set(vec![]).await;
    bench.gone("web").await;
    let deadline = Instant::now() + PATIENCE;
    while bench.threads() != without {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
