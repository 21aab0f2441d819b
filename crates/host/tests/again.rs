//! A request that is sent again because nobody heard its answer.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod bench;

use std::sync::Arc;

use bench::{named, run, wait_for};
use roost_host::{CreateKey, MemoryPolicy, MemoryReading};
use roost_model::{ErrorCode, EventKind, State};

#[test]
fn what_was_made_is_found_where_no_more_may_be_made() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let key = CreateKey::new("once").unwrap();
        let (made, _) = host.create(named("web"), Some(&key)).await.unwrap();
        host.leave().await;

        // Its daemon died with the answer, and the next one has no place for one more.
        let host = bench.host(&engine).await;
        let policy = MemoryPolicy { low: 0, critical: 0, max_active: Some(1) };
        host.guard_memory(policy, Arc::new(|| Some(MemoryReading { available: 1 << 40, ..MemoryReading::default() })));
        assert_eq!(host.create(named("other"), None).await.unwrap_err().code(), ErrorCode::LimitExceeded);
        let (again, replayed) = host.create(named("web"), Some(&key)).await.unwrap();
        assert_eq!((again.id, again.state, replayed), (made.id, State::Active, true));
        host.leave().await;
    });
}

#[test]
fn the_same_request_sent_often_at_once_has_one_answer() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        for round in 0..20 {
            let key = Arc::new(CreateKey::new(&format!("round-{round}")).unwrap());
            let requests = (0..16).map(|_| {
                let (host, key, wanted) = (host.clone(), key.clone(), named(&format!("web-{round}")));
                tokio::spawn(async move { host.create(wanted, Some(&key)).await })
            });
            let (mut ids, mut replays) = (std::collections::BTreeSet::new(), 0);
            for request in requests.collect::<Vec<_>>() {
                let (view, replayed) = request.await.unwrap().unwrap();
                ids.insert(view.id);
                replays += usize::from(replayed);
            }
            assert_eq!((ids.len(), replays), (1, 15));
        }
        host.leave().await;
    });
}

#[test]
fn what_was_never_born_is_told_as_that_each_time() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let key = CreateKey::new("once").unwrap();
        engine.fail_next_start("no luck");
        let first = host.create(named("web"), Some(&key)).await.unwrap_err();
        assert!(first.to_string().contains("no luck"), "{first}");
        let again = host.create(named("web"), Some(&key)).await.unwrap_err();
        assert_eq!(again.code(), ErrorCode::SandboxTerminated);
        let gone = again.sandbox().unwrap();
        assert_eq!(gone.tombstone.as_ref().unwrap().cause, "create_failed");
        wait_for(&host, gone, EventKind::Terminated).await;
        host.leave().await;
    });
}
