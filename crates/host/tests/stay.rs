//! Sleeps that stay, and what comes at the end of a time to live.
//!
//! The pretended engine has no guest to wake with its memory from disk; the end-to-end tests do that.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod bench;

use bench::{named, run, wait_for};
use roost_engine::FakeEngine;
use roost_host::{Handle, Host};
use roost_model::{CreateSandbox, ErrorCode, EventKind, Level, OnTtl, PatchSandbox, SandboxView, State, Suspend};

fn to_stay(to: Level) -> Suspend {
    Suspend { to, stay: true }
}

/// What comes of somebody who needs it awake.
async fn touched(handle: &Handle) -> Result<(), ErrorCode> {
    let busy = handle.request("test");
    handle.awake(&busy).await.map_err(|error| error.code())
}

/// One that goes to sleep at once, at the end of its time.
async fn expired(host: &Host, wanted: CreateSandbox) -> (Handle, SandboxView) {
    let (view, _) = host.create(CreateSandbox { ttl: Some("50ms".parse().unwrap()), ..wanted }, None).await.unwrap();
    wait_for(host, &view, EventKind::Suspended).await;
    let handle = host.find(view.id.as_str()).unwrap();
    let view = handle.view();
    (handle, view)
}

/// Long enough to outlive a test.
async fn live_long(handle: &Handle) {
    let patch = PatchSandbox { ttl: Some("1h".parse().unwrap()), ..PatchSandbox::default() };
    handle.patch(patch).await.unwrap();
}

#[test]
fn what_stays_asleep_is_woken_by_an_order_alone() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let ttl = Some("1h".parse().unwrap());
        let (before, _) = host.create(CreateSandbox { ttl, ..named("box") }, None).await.unwrap();
        let handle = host.find("box").unwrap();
        for level in [Level::Ram, Level::Files] {
            handle.suspend(to_stay(level)).await.unwrap();
            let asleep = handle.view();
            assert_eq!((asleep.level, asleep.stays, asleep.expires_at), (Some(level), true, None));
            assert_eq!(touched(&handle).await, Err(ErrorCode::SandboxAsleep));
            assert_eq!(handle.view().state, State::Suspended);
            // Streams of it are over.
            handle.ended().await;
            handle.wake().await.unwrap();
            let awake = handle.view();
            assert!(!awake.stays && awake.expires_at > before.expires_at, "its time starts anew");
        }
        // One that sleeps lightly is told to stay, without anything else happening to it.
        handle.suspend(Level::Disk).await.unwrap();
        handle.suspend(to_stay(Level::Ram)).await.unwrap();
        let asleep = handle.view();
        assert_eq!((asleep.level, asleep.stays, asleep.expires_at), (Some(Level::Disk), true, None));
        live_long(&handle).await;
        assert_eq!(handle.view().expires_at, None, "its clock stands still");
    });
}

#[test]
fn a_sleep_that_does_not_come_about_leaves_the_clock_as_it_was() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let ttl = Some("1h".parse().unwrap());
        let (before, _) = host.create(CreateSandbox { ttl, ..named("box") }, None).await.unwrap();
        let handle = host.find("box").unwrap();
        engine.refuse_next_dump("a device is open");
        let refused = handle.suspend(to_stay(Level::Disk)).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::MemoryNotSaved);
        let after = handle.view();
        assert_eq!((after.state, after.stays, after.expires_at), (State::Active, false, before.expires_at));
        // The same for one that sleeps in RAM, which goes on to do so.
        handle.suspend(Level::Ram).await.unwrap();
        engine.refuse_next_dump("a device is open");
        handle.suspend(to_stay(Level::Disk)).await.unwrap_err();
        let after = handle.view();
        assert_eq!((after.level, after.stays, after.expires_at), (Some(Level::Ram), false, before.expires_at));
        assert_eq!(touched(&handle).await, Ok(()));
    });
}

#[test]
fn the_end_of_its_time_puts_it_to_a_sleep_that_stays() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        for (wish, level) in [(OnTtl::Disk, Level::Disk), (OnTtl::Files, Level::Files)] {
            let (handle, asleep) =
                expired(&host, CreateSandbox { on_ttl: Some(wish), ..CreateSandbox::default() }).await;
            assert_eq!((asleep.level, asleep.stays, asleep.expires_at), (Some(level), true, None));
            assert!(asleep.reason.unwrap().contains("time to live"));
            assert_eq!(touched(&handle).await, Err(ErrorCode::SandboxAsleep));
            assert_eq!(handle.view().level, Some(level));
            if wish == OnTtl::Files {
                live_long(&handle).await;
                handle.wake().await.unwrap();
                assert_eq!(handle.view().on_ttl, wish, "a wake changes no setting");
                handle.expire().await.unwrap();
                assert!(handle.view().stays);
            }
        }
        // Memory that cannot be saved is kept where it is.
        engine.refuse_next_dump("a device is open");
        let wanted = CreateSandbox { on_ttl: Some(OnTtl::Disk), ..CreateSandbox::default() };
        let (_, asleep) = expired(&host, wanted).await;
        assert_eq!((asleep.level, asleep.stays, asleep.expires_at), (Some(Level::Ram), true, None));
    });
}

#[test]
fn one_that_may_wakes_for_a_touch_if_its_memory_was_kept() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let ttl = Some("1h".parse().unwrap());
        host.create(CreateSandbox { auto_resume: Some(true), ttl, ..named("box") }, None).await.unwrap();
        let handle = host.find("box").unwrap();
        handle.suspend(to_stay(Level::Ram)).await.unwrap();
        assert_eq!(touched(&handle).await, Ok(()));
        let awake = handle.view();
        assert!(awake.state == State::Active && !awake.stays && awake.expires_at.is_some());
        handle.suspend(to_stay(Level::Files)).await.unwrap();
        assert_eq!(touched(&handle).await, Err(ErrorCode::SandboxAsleep));
    });
}

#[test]
fn another_daemon_finds_it_asleep_and_leaves_it_so() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let wanted = CreateSandbox { on_ttl: Some(OnTtl::Disk), ..named("box") };
        let (handle, _) = expired(&host, wanted).await;
        live_long(&handle).await;
        drop(handle);
        host.leave().await;
        let host = bench.host(&FakeEngine::default()).await;
        let handle = host.find("box").unwrap();
        let asleep = handle.view();
        assert_eq!((asleep.level, asleep.stays, asleep.on_ttl), (Some(Level::Disk), true, OnTtl::Disk));
        assert_eq!(touched(&handle).await, Err(ErrorCode::SandboxAsleep));
        assert_eq!(handle.view().expires_at, None);
    });
}

#[test]
fn a_daemon_that_stops_everything_leaves_memory_on_disk_where_it_is() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        for name in ["light", "deep"] {
            host.create(named(name), None).await.unwrap();
        }
        host.find("deep").unwrap().suspend(to_stay(Level::Disk)).await.unwrap();
        host.stop_all().await;
        let level = |name| host.find(name).unwrap().view().level;
        assert_eq!((level("light"), level("deep")), (Some(Level::Files), Some(Level::Disk)));
        assert!(host.find("deep").unwrap().view().stays);
    });
}
