//! What somebody with limits may do, on an engine that only pretends.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod bench;

use std::collections::BTreeMap;

use bench::{named, run, wait_for};
use roost_host::{Caller, CreateKey, Host, HostError, ListFilter, Visitor};
use roost_model::{
    Access, CreateCheckpoint, CreateSandbox, ErrorCode, EventKind, Fork, Level, OnTtl, PatchSandbox, Reach, Restore,
    RunRequest, SandboxView, Span,
};

fn visit(host: &Host, access: Access) -> Visitor {
    host.visit(Caller::holder("token", "tok_1", access))
}

fn prefix(text: &str) -> Access {
    Access { reach: Reach::Prefix(text.to_owned()), ..Access::default() }
}

fn label() -> Access {
    Access { reach: Reach::Label { key: "team".to_owned(), value: "a".to_owned() }, ..Access::default() }
}

fn peaceful() -> Access {
    Access { may_destroy: false, ..Access::default() }
}

fn forbidden<T: std::fmt::Debug>(outcome: Result<T, HostError>) -> String {
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Forbidden, "{error}");
    error.to_string()
}

async fn names(visitor: &Visitor) -> Vec<String> {
    let page = visitor.list(&ListFilter { limit: 10, terminated: true, ..ListFilter::default() }).await.unwrap();
    page.items.iter().map(|view| view.name.to_string()).collect()
}

async fn made(host: &Host, wanted: CreateSandbox) -> SandboxView {
    host.create(wanted, None).await.unwrap().0
}

#[test]
fn what_is_out_of_reach_is_neither_seen_nor_touched() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let web = made(&host, named("web")).await;
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let agent = made(&host, CreateSandbox { labels, ..named("agent-1") }).await;
        made(&host, named("agent-gone")).await;
        host.find("agent-gone").unwrap().delete().await.unwrap();
        made(&host, named("gone")).await;
        host.find("gone").unwrap().delete().await.unwrap();

        let visitor = visit(&host, prefix("agent-"));
        for text in ["web", web.id.as_str(), &web.id.as_str()[..20], "gone", "never-was"] {
            let words = forbidden(visitor.find(text));
            assert!(words.starts_with("this token reaches only sandboxes named `agent-…`"), "{words}");
        }
        assert_eq!(visitor.find("agent-1").unwrap().id(), &agent.id);
        assert!(matches!(visitor.find("agent-gone"), Err(HostError::Terminated(_))));
        assert_eq!(visitor.find("agent-2").unwrap_err().hint().as_deref(), Some("did you mean `agent-1`?"));
        assert_eq!(names(&visitor).await, ["agent-1", "agent-gone"]);
        assert_eq!(visitor.handles().len(), 1);
        assert_eq!(visitor.usage().await.unwrap().sandboxes.len(), 1);
        wait_for(&host, &agent, EventKind::Creating).await;
        let told = visitor.events_after(0, 100, None).unwrap();
        assert!(
            !told.is_empty()
                && told.iter().all(|event| event.name.as_ref().is_some_and(|name| name.as_str().starts_with("agent-"))),
            "{told:?}"
        );
        assert_eq!(visitor.events_after(0, 2, None).unwrap(), told[..2]);
        let mut reader = visitor.follow_events(0, None).unwrap();
        for event in &told {
            assert_eq!(reader.next().await.unwrap(), *event);
        }
        let mut overview = visitor.watch_overview();
        let first = overview.next().await.unwrap();
        assert!(first.all && first.rows.iter().map(|row| row.name.as_str()).eq(["agent-1"]), "{first:?}");
        made(&host, named("other")).await;
        made(&host, named("agent-2")).await;
        let second = overview.next().await.unwrap();
        assert!(second.rows.iter().all(|row| row.name.as_str().starts_with("agent-")), "{second:?}");
        host.find("other").unwrap().delete().await.unwrap();
        host.find("agent-2").unwrap().delete().await.unwrap();
        forbidden(visitor.follow_events(0, Some("web")));
        forbidden(visitor.host("make tokens"));

        assert_eq!(names(&visit(&host, label())).await, ["agent-1"]);
        let only = Access { reach: Reach::Sandbox("web".to_owned()), ..Access::default() };
        assert_eq!(names(&visit(&host, only)).await, ["web"]);
        assert!(visit(&host, Access::default()).host("make tokens").is_ok());
    });
}

#[test]
fn what_is_made_is_within_reach_of_its_maker() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let visitor = visit(&host, prefix("agent-"));
        forbidden(visitor.create(named("web"), None).await);
        let (made_up, _) = visitor.create(CreateSandbox::default(), None).await.unwrap();
        assert!(made_up.name.as_str().starts_with("agent-"), "{}", made_up.name);
        forbidden(visitor.start_run(RunRequest { sandbox: named("web"), ..RunRequest::default() }).await.map(drop));
        let handle = visitor.find(made_up.id.as_str()).unwrap();
        forbidden(visitor.fork(&handle, Fork { names: Some(vec!["web".to_owned()]), ..Fork::default() }).await);

        let team = visit(&host, label());
        let (theirs, _) = team.create(named("x"), None).await.unwrap();
        assert_eq!(theirs.labels["team"], "a");
        let other = CreateSandbox { labels: BTreeMap::from([("team".to_owned(), "b".to_owned())]), ..named("y") };
        forbidden(team.create(other, None).await);
        let off = PatchSandbox { labels: Some([("team".to_owned(), None)].into()), ..PatchSandbox::default() };
        forbidden(team.find("x").unwrap().patch(off).await);

        let only = Access { reach: Reach::Sandbox("x".to_owned()), ..Access::default() };
        forbidden(visit(&host, only).create(CreateSandbox::default(), None).await);
    });
}

#[test]
fn a_key_of_somebody_else_opens_nothing() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let key = CreateKey::new("once").unwrap();
        let (view, _) = host.create(CreateSandbox::default(), Some(&key)).await.unwrap();
        let visitor = visit(&host, prefix("agent-"));
        forbidden(visitor.create(CreateSandbox::default(), Some(&key)).await);
        assert_eq!(host.create(CreateSandbox::default(), Some(&key)).await.unwrap().0.id, view.id);
        let own = CreateKey::new("own").unwrap();
        let (first, _) = visitor.create(CreateSandbox::default(), Some(&own)).await.unwrap();
        let (second, replayed) = visitor.create(CreateSandbox::default(), Some(&own)).await.unwrap();
        assert_eq!((first.id, replayed), (second.id, true));
    });
}

#[test]
fn no_more_are_made_than_may_be_also_at_once() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        made(&host, named("of-the-owner")).await;
        let visitor = visit(&host, Access { at_most: Some(3), ..Access::default() });
        let births = (0..8).map(|_| {
            let visitor = visitor.clone();
            tokio::spawn(async move { visitor.create(CreateSandbox::default(), None).await })
        });
        let mut views = Vec::new();
        for birth in births.collect::<Vec<_>>() {
            match birth.await.unwrap() {
                Ok((view, _)) => views.push(view),
                refused => assert!(forbidden(refused).starts_with("this token may have 3 sandboxes, has 3")),
            }
        }
        assert_eq!(views.len(), 3);
        let handle = visitor.find(views[0].id.as_str()).unwrap();
        forbidden(visitor.fork(&handle, Fork::default()).await);
        handle.delete().await.unwrap();
        visitor.create(CreateSandbox::default(), None).await.unwrap();
        // Another token has a count of its own.
        let other = host.visit(Caller::holder("token", "tok_2", Access { at_most: Some(1), ..Access::default() }));
        other.create(CreateSandbox::default(), None).await.unwrap();
    });
}

#[test]
fn whoever_may_destroy_nothing_destroys_nothing() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        made(&host, CreateSandbox { ephemeral: true, ..named("brief") }).await;
        made(&host, CreateSandbox { ttl: Some(Span::seconds(600)), ..named("web") }).await;
        let visitor = visit(&host, peaceful());
        let web = visitor.find("web").unwrap();
        let (kept, _) =
            web.checkpoint(CreateCheckpoint { files_only: true, ..CreateCheckpoint::default() }).await.unwrap();
        let words = forbidden(web.delete().await);
        assert_eq!(words, "this token may destroy nothing: it cannot end a sandbox");
        forbidden(web.restore(Restore { checkpoint: kept.id.clone() }).await);
        forbidden(visitor.delete_checkpoint(kept.id.as_str()).await);
        forbidden(web.expire().await);
        forbidden(visitor.find("brief").unwrap().suspend(Level::Files).await);

        let ttl = |seconds| PatchSandbox { ttl: Some(Span::seconds(seconds)), ..PatchSandbox::default() };
        forbidden(web.patch(ttl(60)).await);
        web.patch(ttl(6000)).await.unwrap();
        web.patch(PatchSandbox { on_ttl: Some(OnTtl::Disk), ..ttl(60) }).await.unwrap();
        forbidden(web.patch(PatchSandbox { on_ttl: Some(OnTtl::Delete), ..PatchSandbox::default() }).await);
        web.patch(PatchSandbox { ttl: Some(Span::NEVER), ..PatchSandbox::default() }).await.unwrap();
        forbidden(web.patch(PatchSandbox { on_ttl: Some(OnTtl::Delete), ..ttl(60) }).await);

        visitor.delete_checkpoint("ckp_none").await.unwrap_err();
        host.visit(Caller::owner()).delete_checkpoint(kept.id.as_str()).await.unwrap();
        host.find("web").unwrap().delete().await.unwrap();
    });
}
