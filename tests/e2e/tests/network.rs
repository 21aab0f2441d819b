//! What a sandbox reaches and what it does not.
#![forbid(unsafe_code)]

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use roost_e2e::{Daemon, Sandbox, host_addresses};
use roost_model::{Capability, CreateSandbox, NetworkPolicy};

/// Tries TCP connections from inside, all at once; returns those that were made.
async fn reached(sandbox: &Sandbox, targets: &[(String, u16)]) -> Result<String> {
    let tries: String = targets
        .iter()
        .map(|(address, port)| {
            format!("(nc -w 2 {address} {port} </dev/null >/dev/null 2>&1 && echo {address}:{port})& ")
        })
        .collect();
    sandbox.sh_ok(&format!("{tries} wait")).await
}

/// A request for a sandbox whose root configures its network, and whose busybox has the raw socket that its `ping` needs.
fn with_capabilities(name: &str) -> CreateSandbox {
    let capabilities = Some(Capability::ALL.into());
    CreateSandbox { name: Some(name.to_owned()), capabilities, ..CreateSandbox::default() }
}

#[tokio::test]
async fn every_sandbox_sees_the_same_address_and_an_answering_gateway() -> Result<()> {
    let daemon = Daemon::start().await?;
    let (one, two) = (daemon.sandbox_with(with_capabilities("one")).await?, daemon.sandbox("two").await?);
    let line = "ip -4 -o addr show eth0 | awk '{print $4}'; ip route | head -n1";
    let seen = one.sh_ok(line).await?;
    assert_eq!(seen, two.sh_ok(line).await?);
    ensure!(seen.starts_with("10.0.0.2/"), "{seen}");
    one.sh_ok("ping -c 1 -W 2 10.0.0.1").await?;
    assert_eq!(one.sh_ok("cat /etc/resolv.conf").await?, "nameserver 10.0.0.1");
    Ok(())
}

#[tokio::test]
async fn the_host_and_other_sandboxes_are_out_of_reach() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let neighbour = daemon.sandbox("neighbour").await?;
    neighbour.spawn("while :; do echo secret | nc -l -p 4000; done").await?;

    let listener = TcpListener::bind("0.0.0.0:0")?;
    let port = listener.local_addr()?.port();
    let mut targets = vec![("10.0.0.1".to_owned(), port)];
    for address in host_addresses()? {
        // The listener is there for the host itself, so a refusal inside is the policy's doing.
        TcpStream::connect_timeout(&(address, port).into(), Duration::from_secs(2))?;
        targets.push((address.to_string(), port));
    }
    // A neighbour's address seen from inside is one's own; the unique ones are somewhere in this range.
    targets.extend((0..32).flat_map(|last| [1, 4000].map(|port| (format!("100.64.0.{last}"), port))));
    let others = ["169.254.169.254", "10.0.0.6", "192.168.0.1", "172.16.0.1"];
    targets.extend(others.map(|address| (address.to_owned(), 80)));
    assert_eq!(reached(&sandbox, &targets).await?, "");
    sandbox.answers().await?;
    neighbour.answers().await
}

#[tokio::test]
async fn a_sandbox_without_network_still_answers_the_daemon() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let request = CreateSandbox { network: Some(NetworkPolicy { enabled: false }), ..with_capabilities("alone") };
    let sandbox = daemon.sandbox_with(request).await?;
    sandbox.answers().await?;
    sandbox.refuses("nslookup example.com").await?;
    sandbox.refuses("ping -c 1 -W 1 10.0.0.1").await?;
    // Loopback inside is no network.
    sandbox.sh_ok("ping -c 1 -W 1 127.0.0.1").await?;
    daemon.crash_and_restart().await?;
    sandbox.answers().await
}

#[tokio::test]
async fn root_inside_cannot_talk_its_way_past_the_policy() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox_with(with_capabilities("box")).await?;
    let listener = TcpListener::bind("0.0.0.0:0")?;
    let port = listener.local_addr()?.port();
    let host = host_addresses()?.into_iter().filter(|address| !address.is_loopback());
    let mut targets: Vec<(String, u16)> = host.map(|address| (address.to_string(), port)).collect();
    targets.extend(["169.254.169.254", "10.0.0.1"].map(|address| (address.to_owned(), port)));
    // Root owns its own network, so it may change addresses and routes; the policy is on the other side.
    sandbox.sh_ok("ip addr add 100.64.0.9/32 dev eth0 && ip route add 169.254.0.0/16 dev eth0").await?;
    assert_eq!(reached(&sandbox, &targets).await?, "");

    // With another's address nothing gets through at all, the daemon's own connection included, until it is put back.
    let tries: String = targets
        .iter()
        .map(|(address, port)| format!("nc -w 1 {address} {port} </dev/null && echo reached; "))
        .collect();
    let line = format!(
        "exec >/root/said 2>/dev/null; ip addr flush dev eth0; ip addr add 10.0.0.77/24 dev eth0; \
         ip route add default via 10.0.0.1; {tries} ip addr flush dev eth0; ip addr add 10.0.0.2/30 dev eth0; \
         ip route add default via 10.0.0.1; echo restored"
    );
    sandbox.sh(&line).await?;
    assert_eq!(sandbox.sh_ok("cat /root/said").await?, "restored");
    Ok(())
}

#[tokio::test]
async fn listening_ports_are_listed() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.spawn("nc -l -p 4321").await?;
    let line = "until grep -q ':10E1 ' /proc/net/tcp /proc/net/tcp6; do sleep 0.02; done";
    sandbox.sh_ok(line).await?;
    let ports = daemon.client().ports("box").await?;
    ensure!(ports.iter().any(|port| port.port == 4321), "{ports:?}");
    Ok(())
}

#[tokio::test]
async fn names_resolve_where_the_host_resolves_them() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let name = mirror_host();
    let known = name.as_deref().filter(|name| std::net::ToSocketAddrs::to_socket_addrs(&(*name, 80)).is_ok());
    let Some(name) = known else {
        eprintln!("skipped: the host resolves no name either");
        return Ok(());
    };
    sandbox.sh_ok(&format!("nslookup {name}")).await?;
    Ok(())
}

/// The host name of the mirror this host is set up with.
fn mirror_host() -> Option<String> {
    let output =
        std::process::Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.split("://").nth(1))?.split(['/', ':']).next()?;
    Some(host.to_owned())
}

#[tokio::test]
async fn a_sandbox_that_cuts_its_own_network_holds_nobody_up() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox_with(with_capabilities("box")).await?;
    let call = sandbox.sh("ip link set eth0 down; sleep 1000");
    let outcome = tokio::time::timeout(Duration::from_secs(90), call).await;
    ensure!(matches!(outcome, Ok(Err(_))), "the call neither ended nor failed: {outcome:?}");
    sandbox.delete().await
}
