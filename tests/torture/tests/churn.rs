//! What comes and goes leaves nothing: sandboxes in any order, and one that sleeps a hundred times.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Sandbox, Seed, no_orphans};
use roost_model::{Fork, Level};
use roost_torture::Objects;

/// How many, unless `TORTURE_FULL=1` asks for all of them.
fn count(few: usize, all: usize) -> usize {
    if std::env::var("TORTURE_FULL").is_ok_and(|full| full == "1") { all } else { few }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sandbox_sleeps_on_disk_again_and_again() -> Result<()> {
    let daemon = Daemon::start().await?;
    // The first one mounts its template, which stays.
    daemon.sandbox("first").await?.delete().await?;
    let start = Objects::of(&daemon).await?;
    let sandbox = daemon.sandbox("box").await?;
    // Only its memory knows the number that it counts.
    sandbox
        .spawn("mkfifo /tmp/ask; exec 3<>/tmp/ask; n=0; while read x <&3; do n=$((n+1)); echo $n > /tmp/n; done")
        .await?;
    sandbox.becomes_true("[ -p /tmp/ask ]").await?;
    for expected in 1..=count(12, 100) {
        sandbox.suspend(Level::Disk).await?;
        sandbox.sh_ok(&format!("echo > /tmp/ask; until grep -qx {expected} /tmp/n; do sleep 0.01; done")).await?;
    }
    sandbox.delete().await?;
    no_orphans(&daemon).await?;
    start.is_reached_again(&daemon).await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_come_and_go_in_any_order_and_leave_nothing() -> Result<()> {
    let (all, most) = (count(60, 1000), 24);
    let daemon = Daemon::start().await?;
    // The first one mounts its template, which stays.
    daemon.sandbox("first").await?.delete().await?;
    let start = Objects::of(&daemon).await?;
    let mut random = Seed::new(all as u64);
    let (mut made, mut living) = (0, Vec::<Sandbox>::new());
    while made < all || !living.is_empty() {
        let place = usize::try_from(random.below(living.len() as u64))?;
        match random.below(10) {
            0..4 if made < all && living.len() < most => {
                living.push(daemon.sandbox(&format!("box-{made}")).await?);
                made += 1;
            }
            4 if made < all && !living.is_empty() && living.len() < most => {
                let names = Some(vec![format!("child-{made}")]);
                let born = living[place].fork(&Fork { names, ..Fork::default() }).await?;
                living.push(born.into_iter().next().context("no child")?.0);
                made += 1;
            }
            5..8 if !living.is_empty() => {
                let level = [Level::Ram, Level::Disk, Level::Files][usize::try_from(random.below(3))?];
                // One that sleeps deeper stays there.
                daemon.client().suspend_sandbox(living[place].name(), level).await?;
            }
            8 | 9 if !living.is_empty() => {
                let gone = living.swap_remove(place);
                if random.below(4) == 0 {
                    gone.answers().await?;
                }
                gone.delete().await?;
            }
            _ => {}
        }
        ensure!(living.len() <= most);
    }
    no_orphans(&daemon).await?;
    start.is_reached_again(&daemon).await
}
