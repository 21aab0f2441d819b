//! Memory images as an attack on the host's disk, and small sandboxes that a save must not end.
#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roost_client::{ClientError, EventsFilter};
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
    let long = std::env::var_os(LONG).is_some();
    let (turns, saves) = if long { (1667, 20) } else { (500, 2) };
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
    // The engine's heap grows until it collects what the save left.
    tokio::time::sleep(Duration::from_secs(if long { 60 } else { 5 })).await;
    witness.goes_on(&sandbox).await?;
    let events = EventsFilter { after: None, sandbox: Some(sandbox.id().to_owned()) };
    let events = daemon.client().list_events(&events).await?;
    ensure!(events.iter().all(|event| event.kind != EventKind::Crashed), "{events:?}");
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

/// Fills memory, forks, and sums all of it up in each process whenever that is asked for.
const FORKS: &str = r"
import hashlib, os, sys, time
os.chdir(os.path.expanduser('~'))
fill, most = os.urandom(40 << 20), int(sys.argv[1])
number = 0
for child in range(1, most):
    if os.fork() == 0:
        number = child
        break
if number == 0:
    with open('sum', 'w') as sum: sum.write(hashlib.md5(fill).hexdigest())
    with open('ready', 'w'): pass
asked = 0
while True:
    while not os.path.exists(f'asked-{asked + 1}'): time.sleep(0.1)
    asked += 1
    with open(f'answer-{asked}-{number}', 'w') as answer: answer.write(hashlib.md5(fill).hexdigest())
";

#[tokio::test]
async fn memory_of_forked_processes_is_counted_for_each() -> Result<()> {
    let daemon = daemon(EngineKind::Native, true).await?;
    let (mib, processes) = (256 * MIB, 31);
    let limits = LimitsRequest { memory: Some(mib), disk: Some(mib), images: Some(mib), ..LimitsRequest::default() };
    let sandbox = daemon.sandbox_with(limited("base", limits)).await?;
    sandbox.write("/tmp/forks.py", FORKS).await?;
    sandbox.spawn(&format!("exec python3 /tmp/forks.py {processes}")).await?;
    sandbox.sh_ok("until [ -e ~/ready ]; do sleep 0.05; done").await?;
    for turn in 1..=2 {
        let refused = daemon.client().suspend_sandbox("box", Level::Disk).await;
        let error = expect_code(refused, ErrorCode::MemoryNotSaved)?;
        ensure!(error.to_string().contains("since a fork"), "{error}");
        nothing_is_staged(&daemon).await?;
        let whole = format!(
            "touch ~/asked-{turn}; until [ $(cat ~/answer-{turn}-* | grep -o $(cat ~/sum) | wc -l) = {processes} ]; do sleep 0.2; done"
        );
        sandbox.sh_ok(&whole).await?;
    }
    sandbox.sh_ok("pkill -9 python3; while pgrep python3; do sleep 0.05; done").await?;
    sandbox.suspend(Level::Disk).await?;
    sandbox.answers().await
}

/// Sends clones of a file whose names are gone to itself, and keeps no descriptor of them: messages on their way hold them.
const IN_FLIGHT: &str = r"
import fcntl, hashlib, os, socket, time
os.chdir(os.path.expanduser('~'))
with open('one', 'wb') as one:
    for _ in range(60): one.write(os.urandom(1 << 20))
fill, source = os.urandom(16 << 20), open('one', 'rb')
sum = hashlib.md5(fill).hexdigest()
ours, theirs = socket.socketpair()
for number in range(20):
    clone = os.open(f'clone{number}', os.O_RDWR | os.O_CREAT)
    fcntl.ioctl(clone, 0x40049409, source.fileno())
    os.unlink(f'clone{number}')
    socket.send_fds(ours, [b'x'], [clone])
    os.close(clone)
with open('ready', 'w'): pass
asked = 0
while True:
    while not os.path.exists(f'asked-{asked + 1}'): time.sleep(0.1)
    asked += 1
    with open(f'answer-{asked}', 'w') as answer: answer.write('whole' if hashlib.md5(fill).hexdigest() == sum else 'broken')
";

#[tokio::test]
async fn image_with_deleted_files_in_flight_ends_at_its_room() -> Result<()> {
    let daemon = daemon(EngineKind::Native, true).await?;
    let mib = 256 * MIB;
    let limits = LimitsRequest { memory: Some(mib), disk: Some(mib), images: Some(mib), ..LimitsRequest::default() };
    let sandbox = daemon.sandbox_with(limited("base", limits)).await?;
    sandbox.write("/tmp/flight.py", IN_FLIGHT).await?;
    sandbox.spawn("exec python3 /tmp/flight.py").await?;
    sandbox.sh_ok("until [ -e ~/ready ]; do sleep 0.05; done").await?;
    for turn in 1..=3 {
        let before = sandbox.newest_event().await?;
        if turn == 2 {
            let kept = daemon.client().create_checkpoint("box", &CreateCheckpoint::default()).await;
            expect_code(kept, ErrorCode::MemoryNotSaved)?;
        } else {
            let refused = daemon.client().suspend_sandbox("box", Level::Disk).await;
            let error = expect_code(refused, ErrorCode::MemoryNotSaved)?;
            ensure!(error.to_string().contains("more than the"), "{error}");
        }
        nothing_is_staged(&daemon).await?;
        sandbox.sh_ok(&format!("touch ~/asked-{turn}; until grep -q . ~/answer-{turn}; do sleep 0.1; done")).await?;
        assert_eq!(sandbox.sh_ok(&format!("cat ~/answer-{turn}")).await?, "whole");
        ensure!(sandbox.newest_event().await? >= before);
    }
    sandbox.sh_ok("pkill -9 python3; while pgrep python3; do sleep 0.05; done").await?;
    // CRIU left nothing in the other processes either.
    sandbox.suspend(Level::Disk).await?;
    sandbox.answers().await
}

/// Shares memory that counts for no process, in pieces that fit the room each, and sums it up when that is asked for.
const SHARED: &str = r"
import hashlib, mmap, os, time
os.chdir(os.path.expanduser('~'))
pieces = [mmap.mmap(-1, 40 << 20) for _ in range(5)]
for piece in pieces: piece.write(os.urandom(40 << 20))
def sum(): return hashlib.md5(b''.join(hashlib.md5(piece).digest() for piece in pieces)).hexdigest()
first = sum()
with open('ready', 'w'): pass
asked = 0
while True:
    while not os.path.exists(f'asked-{asked + 1}'): time.sleep(0.1)
    asked += 1
    with open(f'answer-{asked}', 'w') as answer: answer.write('whole' if sum() == first else 'broken')
";

#[tokio::test]
async fn save_beyond_its_room_leaves_the_process_whole_that_criu_is_at() -> Result<()> {
    let environment = vec![("ROOST_TEST_IMAGE_ROOM".to_owned(), (48 * MIB).to_string())];
    let options = Options { engine: Some(EngineKind::Native), base: true, environment, ..Options::default() };
    let daemon = Daemon::with(options).await?;
    let limits = LimitsRequest { memory: Some(512 * MIB), ..LimitsRequest::default() };
    let sandbox = daemon.sandbox_with(limited("base", limits)).await?;
    sandbox.write("/tmp/shared.py", SHARED).await?;
    sandbox.spawn("exec python3 /tmp/shared.py").await?;
    sandbox.sh_ok("until [ -e ~/ready ]; do sleep 0.05; done").await?;
    for turn in 1..=4 {
        let error = expect_code(daemon.client().suspend_sandbox("box", Level::Disk).await, ErrorCode::MemoryNotSaved)?;
        ensure!(error.to_string().contains("48 MiB"), "{error}");
        nothing_is_staged(&daemon).await?;
        sandbox.sh_ok(&format!("touch ~/asked-{turn}; until grep -q . ~/answer-{turn}; do sleep 0.1; done")).await?;
        assert_eq!(sandbox.sh_ok(&format!("cat ~/answer-{turn}")).await?, "whole");
    }
    sandbox.answers().await
}

/// The image of a sandbox turns out larger than its room: it is refused, and the sandbox goes on.
async fn image_beyond_its_room_is_refused(engine: EngineKind) -> Result<()> {
    let environment = vec![("ROOST_TEST_IMAGE_ROOM".to_owned(), (48 * MIB).to_string())];
    let mut daemon = Daemon::with(Options { engine: Some(engine), environment, ..Options::default() }).await?;
    let sandbox = daemon.sandbox("box").await?;
    let witness = Witness::start(&sandbox).await?;
    let sum = sandbox.root_ok("dd if=/dev/urandom of=/dev/shm/fill bs=1M count=128; md5sum < /dev/shm/fill").await?;
    let whole = || async { Ok::<_, anyhow::Error>(sum == sandbox.root_ok("md5sum < /dev/shm/fill").await?) };
    for _ in 0..2 {
        let refused = daemon.client().suspend_sandbox("box", Level::Disk).await;
        let error = expect_code(refused, ErrorCode::MemoryNotSaved)?;
        ensure!(error.to_string().contains("48 MiB"), "{error}");
        nothing_is_staged(&daemon).await?;
        assert_eq!(daemon.client().sandbox("box").await?.state, State::Active);
        ensure!(whole().await?);
        let kept = daemon.client().create_checkpoint("box", &CreateCheckpoint::default()).await;
        expect_code(kept, ErrorCode::MemoryNotSaved)?;
        nothing_is_staged(&daemon).await?;
        ensure!(whole().await?);
        // Asleep in RAM it stays there.
        sandbox.suspend(Level::Ram).await?;
        expect_code(daemon.client().suspend_sandbox("box", Level::Disk).await, ErrorCode::MemoryNotSaved)?;
        assert_eq!(daemon.client().sandbox("box").await?.level, Some(Level::Ram));
        sandbox.wake().await?;
        ensure!(whole().await?);
        witness.goes_on(&sandbox).await?;
    }
    assert_eq!(daemon.client().usage("box").await?.images, 0);
    // The refused saves are in the way of none that has the room.
    daemon.set_environment(Vec::new());
    daemon.stop().await?;
    daemon.start_again().await?;
    sandbox.suspend(Level::Disk).await?;
    sandbox.wake().await?;
    ensure!(whole().await?);
    witness.goes_on(&sandbox).await
}

#[tokio::test]
async fn native_image_beyond_its_room_is_refused() -> Result<()> {
    image_beyond_its_room_is_refused(EngineKind::Native).await
}

#[tokio::test]
async fn gvisor_image_beyond_its_room_is_refused() -> Result<()> {
    image_beyond_its_room_is_refused(EngineKind::Gvisor).await
}

/// What refused saves wrote is removed.
async fn nothing_is_staged(daemon: &Daemon) -> Result<()> {
    daemon.keeps_nothing_in(&["images/.staging"]).await
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

/// A sandbox, what it fills its memory with, and the budget of its images.
struct Budget {
    engine: EngineKind,
    memory: u64,
    /// MiB of random bytes.
    fill: u64,
    budget: u64,
}

/// Checkpoints may take the budget less the memory limit together.
async fn checkpoints_stay_within_the_budget(Budget { engine, memory, fill, budget }: Budget) -> Result<()> {
    let most = budget - memory;
    let daemon = daemon(engine, false).await?;
    let limits =
        LimitsRequest { memory: Some(memory), disk: Some(64 * MIB), images: Some(budget), ..LimitsRequest::default() };
    let sandbox = daemon.sandbox_with(limited("mini", limits)).await?;
    sandbox.root_ok(&format!("dd if=/dev/urandom of=/dev/shm/fill bs=1M count={fill}")).await?;
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
    let budget = Budget { engine: EngineKind::Native, memory: 64 * MIB, fill: 20, budget: 128 * MIB };
    checkpoints_stay_within_the_budget(budget).await
}

#[tokio::test]
async fn checkpoints_of_a_gvisor_sandbox_stay_within_its_budget() -> Result<()> {
    // The sentry's own memory counts until the image is there. It differs from time to time, so the budget has room for twice as much
    // as it usually is, and the images are large beside it.
    let budget = Budget { engine: EngineKind::Gvisor, memory: 128 * MIB, fill: 60, budget: 428 * MIB };
    checkpoints_stay_within_the_budget(budget).await
}
