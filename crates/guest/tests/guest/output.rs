//! Output: offsets, gaps, slow readers, coming back.

use std::time::Duration;

use crate::support::{Guest, collect, read_until, refused, shell};
use roost_wire::client::{ExecFrame, ExecStream};
use roost_wire::{Attach, ErrorCode, ExecId, Gap, Request, SpoolLimits, StartAt, Stream};
use tokio::net::TcpStream;

const MEGABYTE: u64 = 1024 * 1024;

#[tokio::test]
async fn two_hundred_megabytes_arrive_whole() {
    let guest = Guest::start();
    // A counter of fixed width, so that any loss or repeat changes the hash.
    let line = "seq -f %015.0f 1 13107200";
    let mut stream = guest.follow(shell("exe_1", line)).await;
    let (mut hasher, mut length) = (blake3::Hasher::new(), 0);
    loop {
        match stream.next().await.unwrap().unwrap() {
            ExecFrame::Output { offset, bytes, .. } => {
                assert_eq!(offset, length);
                length += bytes.len() as u64;
                hasher.update(&bytes);
            }
            ExecFrame::Gap(gap) => panic!("{gap:?}"),
            ExecFrame::End(_) => break,
        }
    }
    assert_eq!(length, 200 * MEGABYTE);
    let mut expected = blake3::Hasher::new();
    for i in 1..=13_107_200 {
        expected.update(format!("{i:015}\n").as_bytes());
    }
    assert_eq!(hasher.finalize(), expected.finalize());
}

#[tokio::test]
async fn what_is_no_longer_kept_is_a_gap() {
    let guest = Guest::start();
    let mut connection = guest.connect().await;
    connection.exec_start(shell("exe_1", "head -c 20000000 /dev/zero; echo end")).await.unwrap();
    let info = connection.exec_wait("exe_1").await.unwrap();
    assert_eq!(info.stdout.end, 20_000_004);
    assert_eq!(info.stdout.end - info.stdout.start, 16 * MEGABYTE);
    let mut stream = guest.connect().await.attach("exe_1", Attach::whole()).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first, ExecFrame::Gap(Gap { stream: Stream::Stdout, from: 0, to: info.stdout.start }));
    let mut at = info.stdout.start;
    let mut last = Vec::new();
    while let Some(Ok(ExecFrame::Output { offset, bytes, .. })) = stream.next().await {
        assert_eq!(offset, at);
        at += bytes.len() as u64;
        last = bytes.to_vec();
    }
    assert_eq!(at, info.stdout.end);
    assert!(last.ends_with(b"\0end\n"));
}

#[tokio::test]
async fn a_client_leaves_and_comes_back_at_any_offset() {
    let guest = Guest::start();
    let line = "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done; echo done >&2";
    let whole = {
        let mut stream = guest.follow(shell("exe_1", line)).await;
        read_until(&mut stream, "10\n").await;
        drop(stream);
        (0..2000).map(|i| format!("{i}\n")).collect::<String>()
    };
    let mut at = 0;
    let mut read = Vec::new();
    'attachments: loop {
        let attach = Attach { stdout: StartAt::Offset(at), stderr: StartAt::Nothing, follow: true, lossless: true };
        let mut stream = guest.connect().await.attach("exe_1", attach).await.unwrap();
        for _ in 0..2 {
            match stream.next().await.unwrap().unwrap() {
                ExecFrame::Output { offset, bytes, .. } => {
                    assert_eq!(offset, at);
                    // As if the connection was lost in the middle of a piece.
                    let kept = &bytes[..bytes.len().div_ceil(2)];
                    read.extend_from_slice(kept);
                    at += kept.len() as u64;
                    if kept.len() < bytes.len() {
                        continue 'attachments;
                    }
                }
                ExecFrame::End(_) => break 'attachments,
                ExecFrame::Gap(gap) => panic!("{gap:?}"),
            }
        }
    }
    assert_eq!(String::from_utf8(read).unwrap(), whole);
}

#[tokio::test]
async fn from_now_and_without_following() {
    let guest = Guest::start();
    let mut start = shell("exe_1", "echo before; read line; echo $line");
    start.stdin = true;
    let mut first = guest.follow(start).await;
    read_until(&mut first, "before\n").await;
    let snapshot = Attach { follow: false, ..Attach::whole() };
    let snapshot = collect(guest.connect().await.attach("exe_1", snapshot).await.unwrap()).await;
    assert_eq!((snapshot.text(), snapshot.info.exit()), ("before\n", None));
    let now = Attach { stdout: StartAt::Now, stderr: StartAt::Now, follow: true, lossless: false };
    let mut second = guest.connect().await.attach("exe_1", now).await.unwrap();
    first.input().stdin(b"after\n").await.unwrap();
    assert_eq!(read_until(&mut second, "\n").await, "after\n");
    let beyond = Attach { stdout: StartAt::Offset(1000), ..Attach::whole() };
    assert_eq!(refused(guest.connect().await.attach("exe_1", beyond).await), ErrorCode::BadRequest);
}

#[tokio::test]
async fn a_slow_reader_holds_nobody_up_unless_it_asked_for_everything() {
    let guest = Guest::start();
    let slow = Attach { stdout: StartAt::Offset(0), stderr: StartAt::Nothing, follow: true, lossless: false };
    let line = "head -c 50000000 /dev/zero";
    let slow = guest.connect().await.start_and_follow(shell("exe_1", line), slow).await.unwrap();
    // It has not read a byte, and the process ends all the same.
    guest.connect().await.exec_wait("exe_1").await.unwrap();
    drop(slow);

    let mut lossless = guest.follow(shell("exe_2", line)).await;
    let waited = tokio::time::timeout(Duration::from_millis(300), async {
        guest.connect().await.exec_wait("exe_2").await.unwrap()
    });
    assert!(waited.await.is_err(), "nothing held the process back");
    let mut length = 0;
    while let Some(frame) = lossless.next().await {
        match frame.unwrap() {
            ExecFrame::Output { bytes, .. } => length += bytes.len(),
            ExecFrame::Gap(gap) => panic!("{gap:?}"),
            ExecFrame::End(info) => assert_eq!(info.exit().unwrap().code, Some(0)),
        }
    }
    assert_eq!(length, 50_000_000);
}

#[tokio::test]
async fn a_reader_that_stands_still_is_not_waited_for_for_ever() {
    let limits = SpoolLimits { stall_ms: 200, ..SpoolLimits::default() };
    let guest = Guest::with(|config| config.spool = limits);
    let mut stream = guest.follow(shell("exe_1", "head -c 50000000 /dev/zero")).await;
    guest.connect().await.exec_wait("exe_1").await.unwrap();
    let (length, gaps) = lengths(&mut stream).await;
    assert!(gaps > 0);
    assert_eq!(length + gaps, 50_000_000);
}

/// How many bytes come and how many are gone.
async fn lengths(stream: &mut ExecStream<TcpStream>) -> (u64, u64) {
    let (mut length, mut gaps) = (0, 0);
    while let Some(frame) = stream.next().await {
        match frame.unwrap() {
            ExecFrame::Output { bytes, .. } => length += bytes.len() as u64,
            ExecFrame::Gap(gap) => gaps += gap.to - gap.from,
            ExecFrame::End(_) => {}
        }
    }
    (length, gaps)
}

/// Whoever does not read loses output, not those beside it.
#[tokio::test]
async fn a_reader_that_stands_still_does_not_hold_up_others() {
    let guest = Guest::start();
    let mut stuck = guest.follow(shell("exe_1", "head -c 60000000 /dev/zero")).await;
    let mut reading = guest.connect().await.attach("exe_1", Attach::whole()).await.unwrap();
    assert_eq!(lengths(&mut reading).await, (60_000_000, 0));
    assert!(lengths(&mut stuck).await.1 > 0);
}

#[tokio::test]
async fn a_full_disk_costs_old_output_only() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("file");
    std::fs::write(&blocked, "").unwrap();
    let guest = Guest::with(|config| config.spool_dir = blocked.join("spool").to_str().unwrap().to_owned());
    guest.shell("exe_1", "true").await;
    let mut connection = guest.connect().await;
    connection.exec_start(shell("exe_2", "head -c 1000000 /dev/zero; echo end")).await.unwrap();
    let info = connection.exec_wait("exe_2").await.unwrap();
    assert_eq!(info.stdout.end, 1_000_004);
    assert_eq!(info.stdout.end - info.stdout.start, 64 * 1024);
    // Whoever reads along and wants everything still gets it.
    let done = guest.shell("exe_3", "head -c 1000000 /dev/zero; echo end").await;
    assert_eq!(done.stdout.len(), 1_000_004);
}

#[tokio::test]
async fn spool_files_are_private_and_go_with_their_exec() {
    let guest = Guest::start();
    let mut connection = guest.connect().await;
    connection.exec_start(shell("exe_1", "head -c 100000 /dev/zero")).await.unwrap();
    connection.exec_wait("exe_1").await.unwrap();
    let file = guest.folder.path().join("spool/exe_1.stdout");
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    connection.call_done(&Request::ExecRemove(ExecId { id: "exe_1".into() })).await.unwrap();
    // The thread that filled it may still be about to let go of it.
    for _ in 0..500 {
        if !file.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} is still there", file.display());
}
