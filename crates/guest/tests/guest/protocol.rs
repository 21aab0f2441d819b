//! The conversation itself: keys, garbage, identity, what the guest costs.

use std::time::{Duration, Instant};

use crate::support::{Guest, refused, shell};
use roost_wire::client::{Bounded, Connection, Limits};
use roost_wire::frame::{Header, Kind, put_data, put_json};
use roost_wire::{ErrorCode, ExecFilter, ExecId, Hello, Key, ListPorts, PROTOCOL, Reply, Request, SetIdentity, Watch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_connection_carries_many_calls() {
    let guest = Guest::with(|config| config.generation = 7);
    let mut connection = guest.connect().await;
    for _ in 0..100 {
        let info = connection.ping().await.unwrap();
        assert_eq!((info.generation, info.protocol), (7, PROTOCOL));
    }
}

#[tokio::test]
async fn a_wrong_key_opens_nothing() {
    let guest = Guest::start();
    let marker = guest.path("marker");
    let mut connection = Connection::new(guest.stream().await, &Key::from_bytes([1; 32])).unwrap();
    let start = shell("exe_1", &format!("touch {marker}"));
    assert_eq!(refused(connection.exec_start(start).await), ErrorCode::Unauthorized);
    assert!(!connection.is_reusable());
    assert!(!std::path::Path::new(&marker).exists());
    assert_eq!(guest.connect().await.exec_list(ExecFilter::default(), Bounded::new(Limits::EXECS)).await.unwrap(), []);
}

/// Sends bytes and returns everything the guest says until it hangs up.
async fn say(guest: &Guest, bytes: &[u8]) -> Vec<u8> {
    let mut stream = guest.stream().await;
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    answer
}

fn hello(guest: &Guest) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_json(&mut bytes, Kind::Hello, &Hello { protocol: PROTOCOL, key: guest.key.clone() }).unwrap();
    bytes
}

#[tokio::test]
async fn garbage_is_answered_and_harms_nobody() {
    let guest = Guest::start();
    let mut before_greeting: Vec<Vec<u8>> = vec![b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 100_000]];
    let mut request = Vec::new();
    put_json(&mut request, Kind::Request, &Request::Ping).unwrap();
    before_greeting.push(request);
    let mut after: Vec<Vec<u8>> = before_greeting[..2].to_vec();
    let mut misplaced = Vec::new();
    put_data(&mut misplaced, Kind::FileData, &[0; 1000]).unwrap();
    after.push(misplaced);
    let mut too_large = Header::new(Kind::Request, 10).unwrap().to_bytes();
    too_large[6] = 0xff;
    after.push(too_large.to_vec());
    let mut seed = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..50 {
        let noise = (0..200).map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        });
        after.push(b"Rw\x01".iter().copied().chain(noise).collect());
    }
    for bytes in &before_greeting {
        let answer = say(&guest, bytes).await;
        assert!(String::from_utf8_lossy(&answer).contains("\"code\""), "{answer:?}");
    }
    for bytes in &after {
        let mut stream = guest.stream().await;
        stream.write_all(&[hello(&guest), bytes.clone()].concat()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await.unwrap().ok();
    }
    guest.connect().await.ping().await.unwrap();
    assert_eq!(guest.shell("exe_1", "echo fine").await.text(), "fine\n");
}

#[tokio::test]
async fn an_unknown_request_is_refused_and_the_connection_goes_on() {
    let guest = Guest::start();
    let mut stream = guest.stream().await;
    let mut bytes = hello(&guest);
    put_json(&mut bytes, Kind::Request, &"from_the_future").unwrap();
    put_json(&mut bytes, Kind::Request, &Request::Ping).unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("uptime_ms") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
    }
    assert!(String::from_utf8_lossy(&answer).contains("bad_request"));
}

#[tokio::test]
async fn identity_is_visible_and_can_change() {
    let guest = Guest::start();
    let file = |name: &str| std::fs::read_to_string(guest.path(name)).unwrap();
    assert_eq!(
        (file("run/id").as_str(), file("run/name").as_str(), file("etc/hostname").as_str()),
        ("sbx_test\n", "test\n", "test\n")
    );
    assert!(file("etc/hosts").contains("127.0.1.1\ttest"));
    let key = Key::from_bytes([9; 32]);
    let new = SetIdentity {
        name: Some("fork".into()),
        hostname: Some("fork-1".into()),
        generation: Some(4),
        key: Some(key.clone()),
        ..SetIdentity::default()
    };
    let mut old = guest.connect().await;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(old.call(&Request::SetIdentity(new)).await.unwrap(), Reply::Hostname(host));
    assert_eq!(
        (file("run/id").as_str(), file("run/name").as_str(), file("run/generation").as_str()),
        ("sbx_test\n", "fork\n", "4\n")
    );
    assert!(file("etc/hosts").contains("fork-1") && !file("etc/hosts").contains("test"));
    assert_eq!(refused(guest.connect().await.ping().await), ErrorCode::Unauthorized);
    let mut connection = Connection::new(guest.stream().await, &key).unwrap();
    assert_eq!(connection.ping().await.unwrap().generation, 4);
}

#[tokio::test]
async fn another_environment_holds_for_what_starts_next() {
    let guest = Guest::with(|config| {
        config.env.insert("OLD".into(), "1".into());
    });
    assert_eq!(guest.shell("exe_1", "echo $OLD-$NEW").await.text(), "1-\n");
    let env = Some([("NEW".to_owned(), "2".to_owned())].into());
    let new = SetIdentity { env, ..SetIdentity::default() };
    guest.connect().await.call(&Request::SetIdentity(new)).await.unwrap();
    assert_eq!(guest.shell("exe_2", "echo $OLD-$NEW").await.text(), "-2\n");
    assert_eq!(std::fs::read_to_string(guest.path("run/name")).unwrap(), "test\n");
}

#[tokio::test]
async fn ports_and_activity() {
    let guest = Guest::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut connection = guest.connect().await;
    let Reply::Ports(ports) = connection.call(&Request::Ports(ListPorts { processes: true })).await.unwrap() else {
        panic!()
    };
    let found = ports.iter().find(|found| found.port == port).unwrap();
    assert_eq!((found.address.as_str(), found.pid), ("127.0.0.1", Some(std::process::id() as i32)));
    assert!(ports.iter().all(|found| found.port != guest.address.port()));
    let stream = guest.follow(shell("exe_1", "sleep 1000")).await;
    let Reply::Activity(activity) = connection.call(&Request::Activity).await.unwrap() else { panic!() };
    assert_eq!((activity.running_execs, activity.attached), (1, 1));
    assert!(activity.cpu_us > 0 && activity.listening_ports > 0);
    drop(stream);
}

/// Threads of the guest.
fn threads(guest: &Guest) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", guest.pid())).unwrap().count()
}

async fn settle_at(guest: &Guest, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while threads(guest) != count {
        assert!(Instant::now() < deadline, "{} threads instead of {count}", threads(guest));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn whoever_hangs_up_leaves_no_thread_behind() {
    let guest = Guest::start();
    settle_at(&guest, 2).await;
    let stream = guest.follow(shell("exe_1", "yes")).await;
    let mut waiting = guest.connect().await;
    let watch = Watch { path: ".".into(), recursive: true, ..Watch::default() };
    let watch = guest.connect().await.watch(watch).await.unwrap();
    let limit = Duration::from_millis(50);
    assert!(tokio::time::timeout(limit, waiting.exec_wait("exe_1")).await.is_err());
    // Two of its own, the pump, and one for each connection.
    settle_at(&guest, 6).await;
    drop((stream, waiting, watch));
    settle_at(&guest, 3).await;
    // The process it had followed goes on all the same.
    let info = guest.connect().await.call_exec(&Request::ExecGet(ExecId { id: "exe_1".into() })).await.unwrap();
    assert_eq!(info.exit(), None);
}
