//! A guest that lies, on a real socket: every call of the host ends, with a result or an error, and takes little memory.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use super::*;
use crate::frame::{HEADER_LEN, Header, Kind, put_data, put_json};
use crate::{
    AnswerFrame, ArchiveIn, ArchiveOut, Attach, Call, CallFrame, Endpoint, Entries, ErrorCode, EventKind, ExecFilter,
    ExecInfo, ExecStart, ExecState, Exit, Failure, FileKind, FileStat, Gap, Key, ListDir, Listening, Outcome,
    ProcessInfo, Program, ReadFile, Reply, Request, Stream, StreamEnd, StreamRange, Watch, WatchEvent, WriteFile,
};

/// A call that has not ended by then hangs.
const HANGS: Duration = Duration::from_secs(20);
/// Most items that a call takes of a stream without an end of its own.
const MOST_ITEMS: usize = 2000;
/// The memory of all replies that one call collects in these tests.
const FEW: Limits = Limits { what: "items", count: 5000, bytes: 4 << 20, time: Duration::from_secs(60) };
/// Growth of the whole test program: several frames of the largest size, decoded.
const MOST_GROWTH: usize = 160 << 20;
const EXEC: &str = "exe_1";

/// What becomes of the bytes of a lie.
#[derive(Debug, Clone, Copy)]
enum Manner {
    /// They are sent as they are, and the guest hangs up.
    Whole,
    /// They are sent in small pieces.
    Pieces,
    /// The guest sends them and hangs up in one direction only.
    HalfClosed,
    /// The first frame comes once, the others come again and again without an end.
    Endless,
    /// The header of a large frame comes, and a part of its body.
    Torn,
}

const MANNERS: [Manner; 5] = [Manner::Whole, Manner::Pieces, Manner::HalfClosed, Manner::Endless, Manner::Torn];
/// How many calls there are in [`make_call`].
const CALLS: usize = 18;

type Conn = Connection<TcpStream>;

fn exec() -> ExecInfo {
    ExecInfo {
        id: EXEC.to_owned(),
        pid: 7,
        argv: vec!["sh".to_owned()],
        started_at_ms: 1,
        state: ExecState::Exited(Exit::default()),
        stdout: StreamRange { start: 0, end: 9 },
        stderr: StreamRange::default(),
        pty: false,
        user: "user".to_owned(),
        cwd: "/".to_owned(),
        stdin_open: false,
        tag: None,
        env: [("A".to_owned(), "b".to_owned())].into(),
    }
}

fn stat() -> FileStat {
    FileStat {
        path: "/etc".to_owned(),
        kind: FileKind::Directory,
        size: 4,
        mode: 0o755,
        uid: 0,
        gid: 0,
        user: Some("root".to_owned()),
        group: None,
        modified_ms: 1,
        target: None,
        leads_to: None,
        st_mode: 0o40755,
        attributes: [("a".to_owned(), "b".to_owned())].into(),
    }
}

fn reply(out: &mut Vec<u8>, reply: &Reply) {
    put_json(out, Kind::Reply, reply).unwrap();
}

/// What an honest guest answers to one call or another.
fn honest() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut add = |build: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        build(&mut bytes);
        all.push(bytes);
    };
    add(&|out| reply(out, &Reply::Done));
    add(&|out| {
        reply(out, &Reply::Execs(vec![exec()]));
        reply(out, &Reply::Execs(Vec::new()));
    });
    add(&|out| {
        reply(out, &Reply::Processes(vec![ProcessInfo { pid: 1, ..ProcessInfo::default() }]));
        reply(out, &Reply::Processes(Vec::new()));
    });
    add(&|out| {
        reply(out, &Reply::Exec(exec()));
        put_data(out, Kind::Stdout, b"\0\0\0\0\0\0\0\0output").unwrap();
        put_json(out, Kind::Gap, &Gap { stream: Stream::Stdout, from: 6, to: 8 }).unwrap();
        put_data(out, Kind::Stderr, b"\x08\0\0\0\0\0\0\0error").unwrap();
        put_json(out, Kind::ExecEnd, &exec()).unwrap();
    });
    add(&|out| {
        reply(out, &Reply::Stat(stat()));
        put_json(out, Kind::Entries, &Entries { entries: vec![stat(), stat()] }).unwrap();
        put_json(out, Kind::End, &StreamEnd { count: 2, abort: false }).unwrap();
    });
    add(&|out| {
        reply(out, &Reply::Stat(stat()));
        put_data(out, Kind::FileData, b"data").unwrap();
        put_json(out, Kind::End, &StreamEnd { count: 4, abort: false }).unwrap();
    });
    add(&|out| {
        reply(out, &Reply::Stat(stat()));
        let event = WatchEvent {
            kind: EventKind::Moved,
            path: "/a".to_owned(),
            is_dir: false,
            moved_from: Some("/b".to_owned()),
            moved_away: false,
            stat: Some(Box::new(stat())),
        };
        put_json(out, Kind::WatchEvent, &event).unwrap();
    });
    add(&|out| {
        reply(out, &Reply::Done);
        put_json(out, Kind::Call, &CallFrame { id: 1, call: Call::Info }).unwrap();
    });
    add(&|out| reply(out, &Reply::Listening(Listening { listener: 1, port: 80 })));
    add(&|out| put_json(out, Kind::Failure, &Failure::new(ErrorCode::PathNotFound, "not there")).unwrap());
    all
}

/// Says a lie to a host that has connected.
async fn lie(stream: TcpStream, bytes: &[u8], manner: Manner) -> std::io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    // The host's requests are read all the while, so that it can never wait to be heard.
    let drained = tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
    match manner {
        Manner::Whole => writer.write_all(bytes).await?,
        Manner::Pieces => {
            for piece in bytes.chunks(7) {
                writer.write_all(piece).await?;
                tokio::task::yield_now().await;
            }
        }
        Manner::HalfClosed => {
            writer.write_all(bytes).await?;
            writer.shutdown().await?;
            drained.await.ok();
            return Ok(());
        }
        Manner::Endless => {
            let first = match Header::parse(bytes) {
                Ok(Some(header)) => (HEADER_LEN + header.len).min(bytes.len()),
                _ => 0,
            };
            let (head, tail) = bytes.split_at(first);
            writer.write_all(head).await?;
            while !tail.is_empty() {
                writer.write_all(tail).await?;
            }
        }
        Manner::Torn => {
            writer.write_all(&Header::new(Kind::Reply, 1 << 20).unwrap().to_bytes()).await?;
            writer.write_all(bytes).await?;
        }
    }
    drained.abort();
    Ok(())
}

/// Makes one call and takes all that comes of it.
async fn make_call(which: usize, mut conn: Conn) -> Result<(), CallError> {
    let path = || "/".to_owned();
    let data = || stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"data"))]);
    let start = || ExecStart::new(EXEC, Program::Shell("true".to_owned()));
    match which {
        0 => conn.ping().await.map(drop),
        1 => conn.exec_list(ExecFilter::default(), Bounded::new(FEW)).await.map(drop),
        2 => conn.processes(Bounded::new(FEW)).await.map(drop),
        3 => conn.exec_start(start()).await.map(drop),
        4 => conn.exec_wait(EXEC).await.map(drop),
        5 => conn.exec_stdin(EXEC, Bytes::from_static(b"in"), true).await.map(drop),
        6 | 7 => {
            let attach = Attach::whole();
            let following =
                if which == 6 { conn.start_and_follow(start(), attach).await } else { conn.attach(EXEC, attach).await };
            let mut following = following?;
            let mut items = 0;
            while let Some(frame) = following.next().await {
                if let ExecFrame::Output { offset, bytes, .. } = frame? {
                    // Readers add these without a second thought.
                    let _end = offset + bytes.len() as u64;
                }
                items += 1;
                if items > MOST_ITEMS {
                    break;
                }
            }
            Ok(())
        }
        8 => {
            let list = ListDir { path: path(), user: None, depth: 1 };
            let mut entries = conn.list(list).await?;
            let mut bounded = Bounded::new(FEW);
            while let Some(batch) = entries.next().await {
                bounded.take(&batch?.entries)?;
            }
            Ok(())
        }
        9 => take_all(conn.read_file(ReadFile { path: path(), user: None, offset: 0, len: None }).await?).await,
        10 => take_all(conn.archive_out(ArchiveOut { path: path(), user: None }).await?).await,
        11 => take_all(conn.watch(Watch { path: path(), ..Watch::default() }).await?).await,
        12 => take_all(conn.watch_events("wat_1".to_owned()).await?).await,
        13 => conn.write_file(WriteFile { path: path(), ..WriteFile::default() }, data()).await.map(drop),
        14 => conn.archive_in(ArchiveIn { path: path(), user: None, keep_owners: false }, data()).await.map(drop),
        15 => {
            let mut calls = conn.calls().await?;
            for _ in 0..MOST_ITEMS {
                let CallFrame { id, .. } = calls.next().await?;
                calls.answer(&AnswerFrame { id, outcome: Outcome::refused("no", "no") }).await?;
            }
            Ok(())
        }
        16 => {
            let at = Endpoint::Unix { path: "/s".to_owned() };
            let mut arrivals = conn.listen(at).await?;
            for _ in 0..MOST_ITEMS {
                arrivals.next().await?;
            }
            Ok(())
        }
        _ => {
            conn.call(&Request::Services).await?;
            conn.call(&Request::Activity).await?;
            conn.quiesce().await
        }
    }
}

async fn take_all<T: FromFrame>(mut incoming: Incoming<TcpStream, T>) -> Result<(), CallError> {
    for _ in 0..MOST_ITEMS {
        match incoming.next().await {
            Some(item) => drop(item?),
            None => break,
        }
    }
    Ok(())
}

/// Lets a call meet a lie. The result of the call does not matter, but it has one.
async fn meet(listener: &TcpListener, bytes: &[u8], manner: Manner, which: usize) -> Result<(), CallError> {
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    let conn = Connection::new(near, &Key::from_bytes([7; 32])).unwrap();
    tokio::select! {
        ended = tokio::time::timeout(HANGS, make_call(which, conn)) => {
            ended.unwrap_or_else(|_| panic!("call {which} hangs on a lie told {manner:?}"))
        }
        never = async {
            // The host hangs up when it has had enough.
            drop(lie(far, bytes, manner).await);
            std::future::pending().await
        } => never,
    }
}

fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn fuzz_lying_guest_ends_every_call_and_takes_little_memory() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let before = resident();
    let mut round = 0;
    roost_fuzz::attack_slow(&honest(), |bytes| {
        for _ in 0..CALLS / 3 {
            let (manner, which) = (MANNERS[round % MANNERS.len()], round % CALLS);
            drop(runtime.block_on(meet(&listener, bytes, manner, which)));
            round += 1;
        }
        let grown = resident().saturating_sub(before);
        assert!(grown < MOST_GROWTH, "{} MiB more than before", grown >> 20);
    });
}

#[tokio::test]
async fn honest_answers_pass() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let honest = honest();
    for (which, answer) in [(1, 1), (2, 2), (3, 3), (6, 3), (7, 3), (8, 4), (9, 5), (14, 4)] {
        let met = meet(&listener, &honest[answer], Manner::Pieces, which).await;
        assert!(met.is_ok(), "call {which}: {met:?}");
    }
    assert!(matches!(meet(&listener, &honest[9], Manner::Whole, 8).await, Err(CallError::Refused(_))));
}

#[tokio::test]
async fn endless_listing_ends_with_its_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut bytes = Vec::new();
    reply(&mut bytes, &Reply::Stat(stat()));
    put_json(&mut bytes, Kind::Entries, &Entries { entries: vec![stat(); 100] }).unwrap();
    let met = meet(&listener, &bytes, Manner::Endless, 8).await;
    assert!(matches!(met, Err(CallError::TooLarge(_))), "{met:?}");
}

#[tokio::test]
async fn page_that_repeats_ends_the_list() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let page = Reply::Processes(vec![ProcessInfo { pid: 1, ..ProcessInfo::default() }]);
    let mut bytes = Vec::new();
    reply(&mut bytes, &page);
    reply(&mut bytes, &page);
    let met = meet(&listener, &bytes, Manner::Endless, 2).await;
    assert!(matches!(met, Err(CallError::Backwards(_))), "{met:?}");
}

#[tokio::test]
async fn answer_about_another_exec_is_a_contradiction() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut bytes = Vec::new();
    reply(&mut bytes, &Reply::Exec(ExecInfo { id: "exe_2".to_owned(), ..exec() }));
    for which in [3, 4, 5, 6, 7] {
        let met = meet(&listener, &bytes, Manner::Whole, which).await;
        assert!(matches!(met, Err(CallError::Contradiction(_))), "call {which}: {met:?}");
    }
}

#[tokio::test]
async fn forward_pages_without_end_meet_their_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    let (mut reader, mut writer) = far.into_split();
    let liar = tokio::spawn(async move {
        let mut pid = 0;
        while reader.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {
            pid += 1;
            let mut page = Vec::new();
            reply(&mut page, &Reply::Processes(vec![ProcessInfo { pid, ..ProcessInfo::default() }]));
            if writer.write_all(&page).await.is_err() {
                return;
            }
        }
    });
    let mut conn = Connection::new(near, &Key::from_bytes([7; 32])).unwrap();
    let met = conn.processes(Bounded::new(Limits { count: 50, ..FEW })).await;
    assert!(matches!(met, Err(CallError::TooLarge(_))), "{met:?}");
    drop(conn);
    liar.await.unwrap();
}
