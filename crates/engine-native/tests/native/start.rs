//! What a sandbox looks like from the inside, how a start fails, and how long it takes.

use std::time::Instant;

use roost_engine::{DiskSource, Engine, EngineError, Presence};

use crate::support::{Bench, leftovers};

#[tokio::test(flavor = "multi_thread")]
async fn the_inside_is_a_computer_of_its_own() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    let (code, output) =
        bench.shell(&id, "id -u; hostname; cat /proc/self/uid_map; echo $$; touch /mark; stat -c %u /mark").await;
    let words: Vec<&str> = output.split_whitespace().collect();
    assert_eq!(code, 0, "{output}");
    assert_eq!((words[0], words[1], words[2], words[4]), ("0", "box", "0", "65536"), "{output}");
    assert_eq!(words[6], "0", "{output}");

    // On the disk the owner is root again, whatever range the sandbox was mapped to.
    let mark = std::fs::metadata(bench.disk(&id).join("root/mark")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&mark), 0);

    let (_, mounts) = bench.shell(&id, "cat /proc/mounts").await;
    for wanted in ["/proc proc", "/sys sysfs ro", "/dev/pts devpts", "/dev/shm tmpfs", "/run tmpfs", "/run/roost/guest"]
    {
        assert!(mounts.contains(wanted), "no {wanted} in {mounts}");
    }
    let (_, session) = bench.shell(&id, "awk '{print $1, $5, $6}' /proc/1/stat; ls /proc/1/fd | wc -l").await;
    assert!(session.starts_with("1 1 1\n"), "PID 1 leads its own session: {session}");
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_namespace_is_its_own() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    for name in ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"] {
        let host = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        let (_, inside) = bench.shell(&id, &format!("readlink /proc/self/ns/{name}")).await;
        assert!(inside.starts_with(name), "{inside}");
        assert_ne!(inside.trim(), host.to_string_lossy(), "shared with the host");
    }
    let (_, groups) = bench.shell(&id, "cat /proc/self/cgroup").await;
    assert!(!groups.contains("roost"), "the host's groups are in sight: {groups}");
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_stay_when_it_is_started_again() {
    let bench = Bench::new().await;
    let mut spec = bench.spec();
    spec.uid_range = 11;
    bench.engine.start(spec.clone()).await.unwrap();
    bench
        .shell(&spec.id, "echo kept > /root/file; rm -r /proc /run; rm -rf /sys; ln -s /etc /sys; mv /tmp /moved")
        .await;
    bench.engine.kill(&spec.id).await.unwrap();
    // Another range of ids, and mount points that its root has tampered with.
    spec.uid_range = 12;
    bench.engine.start(spec.clone()).await.unwrap();
    let (code, output) =
        bench.shell(&spec.id, "cat /root/file; stat -c %u /root/file; ls -d /moved /proc/self /sys/class").await;
    assert_eq!((code, output.as_str()), (0, "kept\n0\n/moved\n/proc/self\n/sys/class\n"));
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_need_not_last_is_not_written_out_and_starts_again() {
    let bench = Bench::new().await;
    let mut spec = bench.spec();
    for lasting in [false, false, true, false] {
        spec.lasting = lasting;
        bench.engine.start(spec.clone()).await.unwrap();
        let (code, output) =
            bench.shell(&spec.id, "echo x >> /file; sync; wc -l < /file; grep ' / ' /proc/mounts").await;
        assert_eq!((code, output.contains("volatile")), (0, !lasting), "{output}");
        bench.engine.kill(&spec.id).await.unwrap();
    }
    assert_eq!(std::fs::read_to_string(bench.disk(&spec.id).join("root/file")).unwrap().lines().count(), 4);
    bench.finish().await;
}

/// Living children of this process that run the launcher's program.
fn launchers() -> Vec<u32> {
    let own = std::process::id().to_string();
    let is_ours = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, rest)) = stat.split_once("(roost-launch) ") else { return false };
        let mut words = rest.split(' ');
        words.next() != Some("Z") && words.next() == Some(&own)
    };
    let pids =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_ours(*pid)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn launchers_are_forked_also_after_their_mother_was_killed() {
    let bench = Bench::with_reserve(0).await;
    for _ in 0..3 {
        let id = bench.start().await;
        bench.engine.kill(&id).await.unwrap();
        // Whoever has done its work is gone.
        let [mother] = launchers()[..] else { panic!("{:?}", launchers()) };
        let mother = rustix::process::Pid::from_raw(mother.cast_signed()).unwrap();
        rustix::process::kill_process(mother, rustix::process::Signal::KILL).unwrap();
    }
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_names_its_step_and_leaves_nothing() {
    let bench = Bench::new().await;
    let mut no_layers = bench.spec();
    no_layers.disk = DiskSource::Layers { lower: "/nonexistent".into(), subvolume: "/nonexistent".into() };
    let mut no_upper = bench.spec();
    std::fs::remove_dir(bench.disk(&no_upper.id).join("root")).unwrap();
    no_upper.hostname = "x".into();
    let mut bad_name = bench.spec();
    bad_name.hostname = "x".repeat(200);
    let mut bad_config = bench.spec();
    bad_config.guest_config = b"nonsense".to_vec();
    for (spec, wanted) in [
        (no_layers, "map the owners of the layers"),
        (no_upper, "mount the root"),
        (bad_name, "become root inside"),
        (bad_config, "start the guest"),
    ] {
        let id = spec.id.clone();
        match bench.engine.start(spec).await {
            Err(EngineError::Failed { step, .. }) => assert_eq!(step, wanted),
            other => panic!("{wanted}: {other:?}"),
        }
        assert_eq!(bench.engine.inspect(&id).await.unwrap(), Presence::Absent);
        let left: Vec<_> =
            leftovers(&bench.config.tag).iter().filter(|path| path.join(id.as_str()).exists()).cloned().collect();
        assert!(left.is_empty(), "{left:?}");
    }
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_all_start() {
    let bench = Bench::with_reserve(2).await;
    let starts = (0..16).map(|_| {
        let (engine, spec) = (bench.engine.clone(), bench.spec());
        tokio::spawn(async move {
            let id = spec.id.clone();
            engine.start(spec).await.map(|_| id)
        })
    });
    let mut ids = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        ids.push(start.await.unwrap().unwrap());
    }
    for id in &ids {
        assert_eq!(bench.shell(id, "echo here").await.1, "here\n");
        bench.engine.kill(id).await.unwrap();
    }
    bench.finish().await;
}

/// Not a check but a measurement: `cargo test --release -p roost-engine-native -- --ignored --nocapture timing`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, not a check"]
async fn timing_of_a_start() {
    for (label, reserve) in [("with a reserve", 1), ("without", 0)] {
        let bench = Bench::with_reserve(reserve).await;
        let (mut starts, mut firsts, mut kills, mut last) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..50 {
            tokio::time::sleep(std::time::Duration::from_millis(60)).await;
            let spec = bench.spec();
            let id = spec.id.clone();
            let begun = Instant::now();
            last = bench.engine.start(spec).await.unwrap().parts_us;
            starts.push(begun.elapsed());
            assert_eq!(bench.shell(&id, "echo 1").await.1, "1\n");
            firsts.push(begun.elapsed());
            let begun = Instant::now();
            bench.engine.kill(&id).await.unwrap();
            kills.push(begun.elapsed());
        }
        for (what, mut times) in [("start", starts), ("first output", firsts), ("kill", kills)] {
            times.sort();
            println!("{label}: {what}: p50 {:?}, p95 {:?}, min {:?}", times[25], times[47], times[0]);
        }
        println!("{label}: last: {last:?}");
        bench.finish().await;
    }
}
