//! Template `base` is a computer an agent can work on.
#![forbid(unsafe_code)]

use anyhow::{Result, ensure};
use roost_e2e::{Daemon, host_reaches_its_mirror};

#[tokio::test]
async fn the_tools_are_there_and_sudo_works() -> Result<()> {
    let mut daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let output =
        sandbox.sh(r#"apt-get --version; python -c "print(1)"; node -e "console.log(2)"; gcc --version"#).await?;
    ensure!(output.exit_code == 0, "{}", output.stderr);
    ensure!(output.stdout.contains("\n1\n2\ngcc"), "{}", output.stdout);
    assert_eq!(sandbox.sh_ok("id -un; id -u; pwd").await?, "user\n1000\n/home/user");
    for tool in ["bash", "python3", "pip", "npm", "git", "curl", "ps", "ip", "tput", "tmux", "make"] {
        sandbox.sh_ok(&format!("command -v {tool}")).await?;
    }
    sandbox.sh_ok("printf 'int main(){return 42;}' > a.c && make a && ./a; test $? = 42").await?;
    if daemon.can("setuid programs", |engine| engine.setuid).await? {
        assert_eq!(sandbox.sh_ok("sudo id -u; sudo apt-get --version > /dev/null && echo 1").await?, "0\n1");
        sandbox.sh_ok("sudo sh -c 'echo precious > /etc/precious'").await?;
    } else {
        sandbox.root_ok("echo precious > /etc/precious").await?;
    }

    daemon.crash_and_restart().await?;
    assert_eq!(sandbox.sh_ok("cat /etc/precious").await?, "precious");
    Ok(())
}

#[tokio::test]
async fn packages_install() -> Result<()> {
    if !tokio::task::spawn_blocking(host_reaches_its_mirror).await? {
        eprintln!("skipped: the host itself does not reach its mirror");
        return Ok(());
    }
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    if daemon.can("setuid programs", |engine| engine.setuid).await? {
        sandbox.sh_ok("sudo apt-get update && sudo apt-get install -y cowsay").await?;
    } else {
        sandbox.root_ok("apt-get update && apt-get install -y cowsay").await?;
    }
    let said = sandbox.sh_ok("/usr/games/cowsay hi").await?;
    ensure!(said.contains("< hi >"), "{said}");
    Ok(())
}
