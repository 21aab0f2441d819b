//! Memory images as an attack on the host's disk, and small sandboxes that a save must not end.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_client::ClientError;
use roost_e2e::{Daemon, Options, Witness, no_orphans};
use roost_model::{
    CheckpointView, CreateCheckpoint, CreateSandbox, EngineKind, ErrorCode, EventKind, IdleRequest, Level,
    LimitsRequest, Origin, PatchSandbox, Span, State,
};

const MIB: u64 = 1 << 20;
/// Set to run the long version: more programs, more saves.
const LONG: &str = "ROOST_TEST_LONG";

async fn daemon(engine: EngineKind, base: bool) -> Result<Daemon> {
    Daemon::with(Options { engine: Some(engine), base, ..Options::default() }).await
}

fn limited(template: &str, limits: LimitsRequest) -> CreateSandbox {
    CreateSandbox {
        name: Some("box".to_owned()),
        template: Some(template.to_owned()),
        limits: Some(limits),
        ..CreateSandbox::default()
    }
}

/// A kernel in user space remembers much of each program that it ran, and a save needs memory for all of that again.
#[tokio::test]
async fn small_gvisor_sandbox_that_ran_many_programs_survives_its_saves() -> Result<()> {
    let (turns, saves) = if std::env::var_os(LONG).is_some() { (1667, 20) } else { (500, 2) };
    let daemon = daemon(EngineKind::Gvisor, false).await?;
    let limits = LimitsRequest { memory: Some(128 * MIB), ..LimitsRequest::default() };
    let idle = IdleRequest { deepen_after: Some(Span::seconds(1)), ..IdleRequest::default() };
    let sandbox = daemon.sandbox_with(CreateSandbox { idle: Some(idle), ..limited("mini", limits) }).await?;
    let witness = Witness::start(&sandbox).await?;
    let programs = format!(
        "i=0; touch /root/a; while [ $i -lt {turns} ]; do mv /root/a /root/b; mv /root/b /root/a; sleep 0.001; i=$((i+1)); done"
    );
    sandbox.sh_ok(&programs).await?;
    for save in 0..saves {
        sandbox.suspend(Level::Disk).await.with_context(|| format!("save {save}"))?;
        sandbox.wake().await?;
        witness.goes_on(&sandbox).await.with_context(|| format!("save {save}"))?;
    }
    sandbox.checkpoint().await?;
    witness.goes_on(&sandbox).await?;
    // Its memory goes to disk by itself.
    let before = sandbox.newest_event().await?;
    sandbox.suspend(Level::Ram).await?;
    let slept = sandbox.happens_after(before, EventKind::Suspended).await?;
    sandbox.happens_after(slept.id, EventKind::Suspended).await?;
    assert_eq!(daemon.client().sandbox("box").await?.level, Some(Level::Disk));
    witness.goes_on(&sandbox).await?;
    sandbox.delete().await?;
    no_orphans(&daemon).await
}

/// Holds clones of one file open whose names are gone; each would be copied in full.
const CLONES: &str = r"
import fcntl, os, time
os.chdir(os.path.expanduser('~'))
with open('one', 'wb') as one:
    for _ in range(60): one.write(os.urandom(1 << 20))
source, held = open('one', 'rb'), []
for number in range(20):
    clone = open(f'clone{number}', 'w+b')
    fcntl.ioctl(clone, 0x40049409, source.fileno())
    os.unlink(f'clone{number}')
    held.append(clone)
with open('ready.new', 'w') as ready: ready.write(str(os.getpid()))
os.rename('ready.new', 'ready')
time.sleep(1000)
";

#[tokio::test]
async fn deleted_clones_are_refused_before_an_image_is_written() -> Result<()> {
    let daemon = daemon(EngineKind::Native, true).await?;
    let limits = LimitsRequest { memory: Some(256 * MIB), disk: Some(512 * MIB), ..LimitsRequest::default() };
    let sandbox = daemon.sandbox_with(limited("base", limits)).await?;
    sandbox.write("/tmp/clones.py", CLONES).await?;
    sandbox.spawn("exec python3 /tmp/clones.py").await?;
    sandbox.sh_ok("until [ -e ~/ready ]; do sleep 0.05; done").await?;

    for level in [Level::Disk, Level::Ram] {
        let refused = daemon.client().suspend_sandbox("box", level).await;
        if level == Level::Ram {
            refused?;
            let deepened = daemon.client().suspend_sandbox("box", Level::Disk).await;
            expect_code(deepened, ErrorCode::MemoryNotSaved)?;
            let view = daemon.client().sandbox("box").await?;
            assert_eq!((view.state, view.level), (State::Suspended, Some(Level::Ram)));
        } else {
            let error = expect_code(refused, ErrorCode::MemoryNotSaved)?;
            ensure!(error.to_string().contains("deleted"), "{error}");
        }
        sandbox.answers().await?;
        sandbox.sh_ok("kill -0 $(cat ~/ready)").await?;
    }
    let kept = daemon.client().create_checkpoint("box", &CreateCheckpoint::default()).await;
    expect_code(kept, ErrorCode::MemoryNotSaved)?;
    sandbox.sh_ok("kill -9 $(cat ~/ready); while kill -0 $(cat ~/ready) 2>/dev/null; do sleep 0.05; done").await?;
    sandbox.suspend(Level::Disk).await?;
    sandbox.answers().await
}

fn expect_code<T>(outcome: Result<T, ClientError>, code: ErrorCode) -> Result<ClientError> {
    let error = outcome.err().with_context(|| format!("no error, but {code} was expected"))?;
    ensure!(error.code() == Some(code), "{error}");
    Ok(error)
}

async fn checkpoints(daemon: &Daemon) -> Result<Vec<CheckpointView>> {
    Ok(daemon.client().list_checkpoints("box").await?)
}

/// What its images take, by the daemon's own count and by the files.
async fn images(daemon: &Daemon) -> Result<u64> {
    let counted = daemon.client().usage("box").await?.images;
    let shown: u64 = checkpoints(daemon).await?.iter().map(|checkpoint| checkpoint.bytes.memory).sum();
    ensure!(counted == shown, "{counted} bytes are counted, {shown} shown");
    Ok(counted)
}

/// A sandbox of 64 MiB with 20 MiB in memory, whose checkpoints may take its `budget` less 64 MiB together.
async fn checkpoints_stay_within_the_budget(engine: EngineKind, budget: u64) -> Result<()> {
    let most = budget - 64 * MIB;
    let daemon = daemon(engine, false).await?;
    let limits = LimitsRequest {
        memory: Some(64 * MIB),
        disk: Some(64 * MIB),
        images: Some(budget),
        ..LimitsRequest::default()
    };
    let sandbox = daemon.sandbox_with(limited("mini", limits)).await?;
    sandbox.root_ok("dd if=/dev/urandom of=/dev/shm/fill bs=1M count=20").await?;
    let from_inside = || async {
        sandbox.sh_ok("until id=$(roost-guest checkpoint 2>/dev/null); do sleep 0.2; done; echo $id").await
    };
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(from_inside().await?);
        let used = images(&daemon).await?;
        ensure!(used <= most, "{used} bytes of images");
    }
    let left = checkpoints(&daemon).await?;
    let left: Vec<&str> = left.iter().map(|checkpoint| checkpoint.id.as_str()).collect();
    ensure!(!left.is_empty() && left.len() < made.len(), "{left:?} of {made:?}");
    ensure!(made.ends_with(&left.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>()), "{left:?} of {made:?}");

    // The client's own go before those from inside, and never give way.
    let client = daemon.client();
    let wanted = CreateCheckpoint::default();
    let (kept, _) = sandbox.checkpoint().await?;
    let refused = loop {
        match client.create_checkpoint("box", &wanted).await {
            Ok(_) => ensure!(images(&daemon).await? <= most),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code(), Some(ErrorCode::ImageBudgetExceeded), "{refused}");
    let left = checkpoints(&daemon).await?;
    ensure!(left.iter().all(|checkpoint| checkpoint.from == Origin::Outside), "{left:?}");
    ensure!(left.iter().any(|checkpoint| checkpoint.id == kept), "{left:?}");
    // A restore keeps the replaced files where the memory does not fit.
    let restored = sandbox.restore(&kept).await?;
    ensure!(restored.not_kept.iter().any(|lost| lost.what.contains("memory")), "{restored:?}");
    sandbox.answers().await?;
    // It still goes to sleep, because checkpoints leave room for that.
    sandbox.suspend(Level::Disk).await?;
    sandbox.answers().await?;

    let more = LimitsRequest { images: Some(budget * 2), ..LimitsRequest::default() };
    client.patch_sandbox("box", &PatchSandbox { limits: Some(more), ..PatchSandbox::default() }).await?;
    sandbox.checkpoint().await?;
    let own = from_inside().await?;
    ensure!(checkpoints(&daemon).await?.iter().any(|checkpoint| checkpoint.id.as_str() == own));
    // Checkpoints from inside go with their sandbox, those of the client stay.
    let id = sandbox.id().to_owned();
    sandbox.delete().await?;
    let left = client.list_checkpoints(&id).await?;
    ensure!(left.iter().any(|checkpoint| checkpoint.id == kept), "{left:?}");
    ensure!(left.iter().all(|checkpoint| checkpoint.from == Origin::Outside), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn checkpoints_of_a_native_sandbox_stay_within_its_budget() -> Result<()> {
    checkpoints_stay_within_the_budget(EngineKind::Native, 128 * MIB).await
}

#[tokio::test]
async fn checkpoints_of_a_gvisor_sandbox_stay_within_its_budget() -> Result<()> {
    // What the engine uses for itself counts as memory until the image is there.
    checkpoints_stay_within_the_budget(EngineKind::Gvisor, 208 * MIB).await
}
