//! What every engine must do, as checks that run against a real one.
//!
//! A test of an engine implements [`Fixture`] and calls [`all`]. Each check makes its own sandboxes and ends them; a check
//! that does not hold panics with what was expected.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use roost_model::SandboxId;

use crate::{Engine, EngineError, Presence, Running, StartSpec};

/// What a check may wait for at most before it calls it never.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long is looked at what a sandbox uses that does nothing.
const QUIET: Duration = Duration::from_millis(500);

/// The room for an image that is too small, and what may be written beyond it before that is noticed.
const SMALL_ROOM: u64 = 16 << 20;
const OVERSHOOT: u64 = 16 << 20;

/// Gives the checks an engine and sandboxes to start with it.
#[async_trait]
pub trait Fixture: Sync {
    /// The engine under test.
    fn engine(&self) -> &dyn Engine;

    /// A sandbox that can be started, with a disk of its own.
    async fn spec(&self) -> StartSpec;

    /// A sandbox whose start must fail.
    async fn broken_spec(&self) -> StartSpec;

    /// Runs a shell command in a started sandbox and returns its output; `None` if this engine runs no processes.
    async fn run(&self, id: &SandboxId, running: &Running, command: &str) -> Option<String>;

    /// A second engine over the same world, as a new daemon would open it; `None` if it survives no daemon.
    async fn reopen(&self) -> Option<Box<dyn Engine>>;
}

/// Runs every check, one after the other.
pub async fn all(fixture: &dyn Fixture) {
    starts_and_ends(fixture).await;
    refuses_what_is_not_there(fixture).await;
    tells_of_the_end(fixture).await;
    freezes_and_thaws(fixture).await;
    changes_limits(fixture).await;
    renames(fixture).await;
    leaves_nothing_of_a_failed_start(fixture).await;
    sweeps_only_the_unknown(fixture).await;
    keeps_sandboxes_apart(fixture).await;
    is_found_by_the_next_daemon(fixture).await;
    saves_and_restores(fixture).await;
    refuses_images_that_are_none(fixture).await;
    keeps_images_within_their_room(fixture).await;
}

/// A folder that goes away with its value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("roost-image-{}", SandboxId::generate()));
        std::fs::create_dir(&path).expect("make a folder");
        Self(path)
    }

    /// The bytes that its files take on the disk.
    fn bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let files = std::fs::read_dir(&self.0).expect("list a folder").flatten();
        files.filter_map(|file| Some(file.metadata().ok()?.blocks() * 512)).sum()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

async fn start(fixture: &dyn Fixture) -> (SandboxId, Running) {
    let spec = fixture.spec().await;
    let id = spec.id.clone();
    let running = fixture.engine().start(spec).await.expect("a good spec starts");
    (id, running)
}

async fn presence(engine: &dyn Engine, id: &SandboxId) -> Presence {
    engine.inspect(id).await.expect("inspect answers")
}

async fn kill(engine: &dyn Engine, id: &SandboxId) {
    engine.kill(id).await.expect("kill succeeds");
}

/// A sandbox runs after its start and is absent after its kill, which may be repeated.
pub async fn starts_and_ends(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    let (id, running) = start(fixture).await;
    assert_eq!(presence(engine, &id).await, Presence::Running);
    if let Some(output) = fixture.run(&id, &running, "echo hello").await {
        assert_eq!(output, "hello\n");
    }
    let usage = engine.usage(&id).await.expect("usage of a running sandbox");
    assert!(usage.pids >= 1, "a running sandbox has processes: {usage:?}");
    assert!(usage.memory >= usage.memory_anon, "a part is not more than the whole: {usage:?}");
    counts_what_is_used(fixture, &id, &running).await;
    kill(engine, &id).await;
    assert_eq!(presence(engine, &id).await, Presence::Absent);
    kill(engine, &id).await;
}

/// Work moves its counter, and nothing else does.
async fn counts_what_is_used(fixture: &dyn Fixture, id: &SandboxId, running: &Running) {
    let before = fixture.engine().counters(id).await.expect("counters of a running sandbox");
    let work = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo done";
    let Some(output) = fixture.run(id, running, work).await else { return };
    assert_eq!(output, "done\n");
    let after = fixture.engine().counters(id).await.expect("counters of a running sandbox");
    assert!(after.cpu_us > before.cpu_us + 1000, "work counts: {before:?}, then {after:?}");
    // What it was asked to do may take a moment to be over.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = fixture.engine().counters(id).await.expect("counters of an idle sandbox");
        tokio::time::sleep(QUIET).await;
        let after = fixture.engine().counters(id).await.expect("counters of an idle sandbox");
        // What an engine uses for itself is read apart, so that a counter may go back by a trifle.
        if u128::from(after.cpu_us.saturating_sub(before.cpu_us)) * 100 < QUIET.as_micros() {
            return;
        }
        assert!(Instant::now() < deadline, "it does nothing: {before:?}, then {after:?}");
    }
}

/// What was never started is absent, can be killed, and nothing else.
pub async fn refuses_what_is_not_there(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    let id = SandboxId::generate();
    assert_eq!(presence(engine, &id).await, Presence::Absent);
    kill(engine, &id).await;
    let exited = engine.exited(&id).await.expect("the end of an absent sandbox");
    tokio::time::timeout(PATIENCE, exited).await.expect("an absent sandbox has ended");
    let limits = fixture.spec().await.limits;
    for refused in [
        engine.freeze(&id).await,
        engine.thaw(&id).await,
        engine.set_limits(&id, &limits).await,
        engine.set_hostname(&id, "nobody").await,
        engine.usage(&id).await.map(drop),
        engine.counters(&id).await.map(drop),
    ] {
        assert!(matches!(refused, Err(EngineError::NotRunning { .. })), "not running: {refused:?}");
    }
}

/// Whoever waits for the end hears of it, frozen or not.
pub async fn tells_of_the_end(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    for frozen in [false, true] {
        let (id, _) = start(fixture).await;
        if frozen && engine.capabilities().freeze {
            engine.freeze(&id).await.expect("freeze");
        }
        let exited = engine.exited(&id).await.expect("a future of the end");
        kill(engine, &id).await;
        tokio::time::timeout(PATIENCE, exited).await.expect("the end is told");
    }
}

/// Frozen is told apart from running, and both calls may be repeated.
pub async fn freezes_and_thaws(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    if !engine.capabilities().freeze {
        return;
    }
    let (id, running) = start(fixture).await;
    for _ in 0..2 {
        engine.freeze(&id).await.expect("freeze");
        assert_eq!(presence(engine, &id).await, Presence::Frozen);
    }
    for _ in 0..2 {
        engine.thaw(&id).await.expect("thaw");
        assert_eq!(presence(engine, &id).await, Presence::Running);
    }
    if let Some(output) = fixture.run(&id, &running, "echo again").await {
        assert_eq!(output, "again\n");
    }
    kill(engine, &id).await;
}

/// Limits can be lowered and raised while a sandbox runs.
pub async fn changes_limits(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    if !engine.capabilities().live_limits {
        return;
    }
    let (id, running) = start(fixture).await;
    let mut limits = fixture.spec().await.limits;
    limits.pids = 16;
    engine.set_limits(&id, &limits).await.expect("lower limits");
    let many = "i=0; while [ $i -lt 30 ]; do sleep 30 & i=$((i+1)); done; echo made";
    if let Some(output) = fixture.run(&id, &running, many).await {
        assert!(!output.contains("made"), "more processes than the limit: {output}");
        assert!(engine.usage(&id).await.expect("usage").pids <= 16);
    }
    limits.pids = 200;
    limits.memory *= 2;
    engine.set_limits(&id, &limits).await.expect("raise limits");
    if let Some(output) = fixture.run(&id, &running, many).await {
        assert_eq!(output, "made\n");
    }
    kill(engine, &id).await;
}

/// Processes see the host name they are given, also those that stood still meanwhile.
pub async fn renames(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    let (id, running) = start(fixture).await;
    for (name, frozen) in [("first-name", false), ("second-name", true)] {
        let frozen = frozen && engine.capabilities().freeze;
        if frozen {
            engine.freeze(&id).await.expect("freeze");
        }
        engine.set_hostname(&id, name).await.expect("rename");
        if frozen {
            engine.thaw(&id).await.expect("thaw");
        }
        if let Some(output) = fixture.run(&id, &running, "hostname").await {
            assert_eq!(output, format!("{name}\n"));
        }
    }
    kill(engine, &id).await;
}

/// A start that fails leaves no process and does not stand in the way of the next.
pub async fn leaves_nothing_of_a_failed_start(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    let spec = fixture.broken_spec().await;
    let id = spec.id.clone();
    let outcome = engine.start(spec).await;
    assert!(outcome.is_err(), "a broken spec does not start: {outcome:?}");
    assert_eq!(presence(engine, &id).await, Presence::Absent);
    let removed = engine.sweep(&[]).await.expect("sweep");
    assert!(!removed.iter().any(|name| name.contains(id.as_str())), "left behind: {removed:?}");
    let (next, _) = start(fixture).await;
    kill(engine, &next).await;
}

/// A sweep ends what nobody knows and leaves the rest alone.
pub async fn sweeps_only_the_unknown(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    let (known, _) = start(fixture).await;
    let (unknown, _) = start(fixture).await;
    engine.sweep(std::slice::from_ref(&known)).await.expect("sweep");
    assert_eq!(presence(engine, &known).await, Presence::Running);
    assert_eq!(presence(engine, &unknown).await, Presence::Absent);
    kill(engine, &known).await;
}

/// What happens in one sandbox is not seen in another.
pub async fn keeps_sandboxes_apart(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    let (one, one_running) = start(fixture).await;
    let (other, other_running) = start(fixture).await;
    if fixture.run(&one, &one_running, "echo mine > /tmp/mark; sleep 77 & echo ok").await.is_some() {
        let seen = fixture.run(&other, &other_running, "ls /tmp; ps").await.unwrap_or_default();
        assert!(!seen.contains("mark") && !seen.contains("sleep 77"), "a neighbour is in sight: {seen}");
    }
    kill(engine, &one).await;
    assert_eq!(presence(engine, &other).await, Presence::Running);
    kill(engine, &other).await;
}

/// Another daemon finds a sandbox, can use every call on it, and hears of its end.
pub async fn is_found_by_the_next_daemon(fixture: &dyn Fixture) {
    let (id, running) = start(fixture).await;
    if let Some(next) = fixture.reopen().await {
        assert_eq!(presence(next.as_ref(), &id).await, Presence::Running);
        assert!(next.usage(&id).await.expect("usage of an adopted sandbox").pids >= 1);
        if next.capabilities().freeze {
            next.freeze(&id).await.expect("freeze an adopted sandbox");
            assert_eq!(presence(next.as_ref(), &id).await, Presence::Frozen);
            next.thaw(&id).await.expect("thaw an adopted sandbox");
        }
        if let Some(output) = fixture.run(&id, &running, "echo still here").await {
            assert_eq!(output, "still here\n");
        }
        let exited = next.exited(&id).await.expect("a future of the end");
        kill(next.as_ref(), &id).await;
        tokio::time::timeout(PATIENCE, exited).await.expect("the end is told");
    }
    kill(fixture.engine(), &id).await;
}

/// What was saved comes back, as often as one likes; a dump by itself changes nothing.
pub async fn saves_and_restores(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    if !engine.capabilities().save_memory {
        assert_eq!(engine.image_version(), None, "an engine that saves nothing has no version of it");
        return;
    }
    assert!(engine.image_version().is_some());
    let spec = fixture.spec().await;
    let id = spec.id.clone();
    let running = engine.start(spec.clone()).await.expect("a good spec starts");
    fixture.run(&id, &running, "echo kept > /dev/shm/mark").await;
    for round in 0..2 {
        let image = Folder::new();
        engine.freeze(&id).await.expect("freeze");
        let dumped = engine.dump(&id, &image.0, u64::MAX).await.expect("save memory");
        assert_eq!(presence(engine, &id).await, Presence::Frozen, "round {round}");
        assert!(dumped.bytes > 0 && dumped.processes.iter().any(|process| process.pid == 1), "{dumped:?}");
        engine.thaw(&id).await.expect("thaw");
        if let Some(output) = fixture.run(&id, &running, "cat /dev/shm/mark").await {
            assert_eq!(output, "kept\n");
        }
        kill(engine, &id).await;
        let again = engine.restore(spec.clone(), &image.0).await.expect("restore memory");
        assert_eq!(presence(engine, &id).await, Presence::Running);
        if let Some(output) = fixture.run(&id, &again, "cat /dev/shm/mark").await {
            assert_eq!(output, "kept\n");
        }
    }
    let exited = engine.exited(&id).await.expect("a future of the end");
    kill(engine, &id).await;
    tokio::time::timeout(PATIENCE, exited).await.expect("the end of a restored sandbox is told");
}

/// Neither can an absent sandbox be saved nor one be restored from nothing, and nothing is left of the attempt.
pub async fn refuses_images_that_are_none(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    if !engine.capabilities().save_memory {
        return;
    }
    let image = Folder::new();
    let refused = engine.dump(&SandboxId::generate(), &image.0, u64::MAX).await;
    assert!(matches!(refused, Err(EngineError::NotRunning { .. })), "not running: {refused:?}");
    let spec = fixture.spec().await;
    let id = spec.id.clone();
    let refused = engine.restore(spec, &image.0).await;
    assert!(matches!(refused, Err(EngineError::ImageUnfit { .. })), "no image: {refused:?}");
    assert_eq!(presence(engine, &id).await, Presence::Absent);
}

/// A save that takes more than its room is refused while it is written, and the sandbox goes on with its memory.
pub async fn keeps_images_within_their_room(fixture: &dyn Fixture) {
    let engine = fixture.engine();
    if !engine.capabilities().save_memory {
        return;
    }
    let spec = fixture.spec().await;
    let id = spec.id.clone();
    let running = engine.start(spec.clone()).await.expect("a good spec starts");
    let fill = "head -c 48000000 /dev/urandom > /dev/shm/fill; cksum < /dev/shm/fill";
    let filled = fixture.run(&id, &running, fill).await;
    let rooms: &[u64] = if filled.is_some() { &[1, SMALL_ROOM, SMALL_ROOM] } else { &[1] };
    for room in rooms {
        let image = Folder::new();
        engine.freeze(&id).await.expect("freeze");
        let refused = engine.dump(&id, &image.0, *room).await;
        assert!(matches!(refused, Err(EngineError::NotSaved { .. })), "room of {room} bytes: {refused:?}");
        let written = image.bytes();
        assert!(written <= SMALL_ROOM + OVERSHOOT, "{written} bytes were written into a room of {room}");
        assert_eq!(presence(engine, &id).await, Presence::Frozen, "room of {room} bytes");
        engine.thaw(&id).await.expect("thaw");
        assert_eq!(fixture.run(&id, &running, "cksum < /dev/shm/fill").await, filled, "room of {room} bytes");
    }
    // Nothing of the refused saves is in the way of the next one.
    let image = Folder::new();
    engine.freeze(&id).await.expect("freeze");
    let dumped = engine.dump(&id, &image.0, u64::MAX).await.expect("save memory");
    kill(engine, &id).await;
    if filled.is_some() {
        assert!(dumped.bytes > SMALL_ROOM, "{dumped:?}");
    }
    let again = engine.restore(spec, &image.0).await.expect("restore memory");
    assert_eq!(fixture.run(&id, &again, "cksum < /dev/shm/fill").await, filled);
    kill(engine, &id).await;
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use roost_model::Limits;

    use super::*;
    use crate::{DiskSource, FakeEngine, NetworkPlug};

    #[derive(Debug)]
    struct NoNetwork;

    #[async_trait]
    impl NetworkPlug for NoNetwork {
        async fn plug(&self, _netns: OwnedFd) -> Result<(), EngineError> {
            Ok(())
        }
    }

    #[derive(Default)]
    struct FakeFixture {
        engine: FakeEngine,
    }

    #[async_trait]
    impl Fixture for FakeFixture {
        fn engine(&self) -> &dyn Engine {
            &self.engine
        }

        async fn spec(&self) -> StartSpec {
            StartSpec {
                id: SandboxId::generate(),
                hostname: "fake".into(),
                disk: DiskSource::Layers { lower: "/nowhere".into(), subvolume: "/nowhere".into() },
                lasting: true,
                limits: Limits { cpus: 1.0, memory: 1 << 28, disk: 1 << 30, pids: 64, images: None },
                capabilities: std::collections::BTreeSet::new(),
                uid_range: 0,
                guest_config: Vec::new(),
                network: Arc::new(NoNetwork),
            }
        }

        async fn broken_spec(&self) -> StartSpec {
            self.engine.fail_next_start("on purpose");
            self.spec().await
        }

        async fn run(&self, _: &SandboxId, _: &Running, _: &str) -> Option<String> {
            None
        }

        async fn reopen(&self) -> Option<Box<dyn Engine>> {
            None
        }
    }

    #[tokio::test]
    async fn the_fake_conforms() {
        all(&FakeFixture::default()).await;
    }
}
