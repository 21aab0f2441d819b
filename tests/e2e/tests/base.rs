//! Template `base` is a computer an agent can work on.
#![forbid(unsafe_code)]

use anyhow::{Result, ensure};
use roost_e2e::{Daemon, host_reaches_its_mirror};

#[tokio::test]
async fn the_tools_are_there_and_sudo_works() -> Result<()> {
    let mut daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let output =
        sandbox.sh(r#"sudo apt-get --version; python -c "print(1)"; node -e "console.log(2)"; gcc --version"#).await?;
    ensure!(output.exit_code == 0, "{}", output.stderr);
    ensure!(output.stdout.contains("\n1\n2\ngcc"), "{}", output.stdout);
    assert_eq!(sandbox.sh_ok("id -un; id -u; pwd; sudo id -u").await?, "user\n1000\n/home/user\n0");
    for tool in ["bash", "python3", "pip", "npm", "git", "curl", "ps", "ip", "tput", "tmux", "make"] {
        sandbox.sh_ok(&format!("command -v {tool}")).await?;
    }
    sandbox.sh_ok("printf 'int main(){return 42;}' > a.c && make a && ./a; test $? = 42").await?;
    sandbox.sh_ok("sudo sh -c 'echo precious > /etc/precious'").await?;

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
    let line = "sudo apt-get update && sudo apt-get install -y cowsay && /usr/games/cowsay hi";
    let output = sandbox.sh(line).await?;
    ensure!(output.exit_code == 0, "{}\n{}", output.stdout, output.stderr);
    ensure!(output.stdout.contains("< hi >"), "{}", output.stdout);
    Ok(())
}
