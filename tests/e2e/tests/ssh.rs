//! OpenSSH's own clients: shells, commands, files, ports.
#![forbid(unsafe_code)]

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_e2e::ports::say_all;
use roost_e2e::ssh::{SshDaemon, ended, hash, noise, ok, said};
use roost_model::{CreateSandbox, Level, State};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin};

const PATIENCE: Duration = Duration::from_secs(60);

fn full() -> bool {
    std::env::var_os("ROOST_E2E_FULL").is_some()
}

/// A client on a terminal of its own, as a person has one: what is typed goes in, what is shown comes out.
struct Typing {
    child: Child,
    input: ChildStdin,
    shown: String,
    output: tokio::process::ChildStdout,
}

impl Typing {
    fn start(mut command: tokio::process::Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = child.stdout.take().context("no output")?;
        Ok(Self { child, input, shown: String::new(), output })
    }

    async fn types(&mut self, text: &str) -> Result<()> {
        self.input.write_all(text.as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    /// Reads on until something is shown; what came before it is forgotten.
    async fn until(&mut self, wanted: &str) -> Result<String> {
        let reading = async {
            loop {
                if let Some(place) = self.shown.find(wanted) {
                    let rest = self.shown.split_off(place + wanted.len());
                    return Ok(std::mem::replace(&mut self.shown, rest));
                }
                let mut piece = [0; 4096];
                let count = self.output.read(&mut piece).await?;
                ensure!(count > 0, "it ended; shown was {:?}", self.shown);
                self.shown.push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        };
        let read = tokio::time::timeout(PATIENCE, reading).await;
        read.with_context(|| format!("`{wanted}` never came"))?
    }

    async fn ends(mut self) -> Result<std::process::ExitStatus> {
        drop(self.input);
        Ok(tokio::time::timeout(PATIENCE, self.child.wait()).await.context("it does not end")??)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_end_as_they_end_inside() -> Result<()> {
    let host = SshDaemon::start(false).await?;
    let _web = host.daemon.sandbox("web").await?;
    ensure!(host.ssh_ok("web", "echo out; echo err >&2").await? == "out\n");
    let both = ended(&mut host.ssh("web", &["echo out; echo err >&2; exit 7"])).await?;
    ensure!(both.status.code() == Some(7), "{}", both.status);
    ensure!((both.stdout.as_slice(), both.stderr.as_slice()) == (b"out\n", b"err\n"), "{both:?}");
    let killed = ended(&mut host.ssh("web", &["kill -KILL $$"])).await?;
    ensure!(killed.status.code() == Some(255), "{}", killed.status);

    // The end of the input is passed on, and all of it before.
    let mut counting = host.ssh("web", &["wc -c"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = counting.stdin.take().context("no input")?;
    let feed = tokio::spawn(async move { input.write_all(&vec![b'x'; 5_000_000]).await });
    let counted = tokio::time::timeout(PATIENCE, counting.wait_with_output()).await??;
    feed.await??;
    ensure!(ok(&counted)?.trim() == "5000000");
    // Output of more than any buffer on the way.
    let lots = ended(&mut host.ssh("web", &["yes | head -c 20000000"])).await?;
    ensure!(ok(&lots)?.len() == 20_000_000);

    // Variables of the client, and those that say that this is SSH.
    let mut with_env = host.client("ssh");
    with_env.args(["-o", "SetEnv=LC_ROOST=yes", "web@sandbox", "echo $LC_ROOST ${SSH_CONNECTION:+ssh} $HOME"]);
    ensure!(ok(&ended(&mut with_env).await?)?.starts_with("yes ssh /"));

    // A line that goes on when its client is gone does not wait for input that never comes.
    let left = host.daemon.client().list_execs("web").await?;
    ensure!(left.iter().all(|exec| !matches!(exec.status, roost_model::ExecState::Running)), "{left:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_has_a_terminal_and_goes_on_when_the_line_is_cut() -> Result<()> {
    let mut host = SshDaemon::start(true).await?;
    let web = host.daemon.sandbox_of("base", "web").await?;
    let on_terminal = |host: &SshDaemon, command: &[&str]| {
        let mut client = host.client("ssh");
        client.args(["-tt", "web@sandbox"]).args(command).env("TERM", "xterm-roost");
        Typing::start(client)
    };
    let mut shell = on_terminal(&host, &[])?;
    shell.types("echo term=$TERM; tty; echo ready=$((40+2))\n").await?;
    let shown = shell.until("ready=42").await?;
    ensure!(shown.contains("term=xterm-roost") && shown.contains("/dev/pts/"), "{shown:?}");
    shell.types("kept=over; sleep 1000 & echo going=$((1+1))\n").await?;
    shell.until("going=2").await?;
    // The line is cut: nobody says goodbye.
    shell.child.kill().await?;

    // Nobody is at it any more as soon as the daemon has noticed.
    let deadline = Instant::now() + PATIENCE;
    let mut again = loop {
        let mut again = on_terminal(&host, &["attach"])?;
        // One that came too early has ended, and takes no more typing.
        let typed = again.types("echo kept=$kept.\n").await;
        match typed.and(again.until("kept=over.").await) {
            Ok(_) => break again,
            Err(error) => ensure!(Instant::now() < deadline, "{error:#}"),
        }
    };
    // What it showed before is shown again.
    again.types("kill $!; exit 3\n").await?;
    let status = again.ends().await?;
    ensure!(status.code() == Some(3), "{status}");

    // One that sleeps on disk under its client wakes for what is typed, and nothing is lost.
    let mut shell = on_terminal(&host, &[])?;
    shell.types("x=1; echo first=$x.\n").await?;
    shell.until("first=1.").await?;
    web.suspend(Level::Disk).await?;
    shell.types("echo second=$((x+1)).\n").await?;
    shell.until("second=2.").await?;
    // The same when the daemon goes and another comes: the session is there to go back to.
    host.daemon.stop().await?;
    host.daemon.start_again().await?;
    host.started_again().await?;
    ensure!(!shell.ends().await?.success());
    let mut again = on_terminal(&host, &["attach"])?;
    again.types("echo third=$((x+2)).; exit\n").await?;
    again.until("third=3.").await?;
    ensure!(again.ends().await?.success());
    let none = ended(host.client("ssh").args(["-tt", "web@sandbox", "attach"])).await?;
    ensure!(
        String::from_utf8_lossy(&none.stdout).contains("no session is left") || said(&none).contains("no session"),
        "{none:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_copied_by_every_client() -> Result<()> {
    let host = SshDaemon::start(true).await?;
    let web = host.daemon.sandbox_of("base", "web").await?;
    let tree = host.path("tree");
    fs::create_dir_all(tree.join("sub/deep"))?;
    fs::write(tree.join("one"), "1\n")?;
    fs::write(tree.join("sub/two words"), "2\n")?;
    fs::write(tree.join("sub/deep/empty"), "")?;
    let tree_text = tree.to_str().context("text")?;

    // scp, by SFTP and by its older way.
    for (way, name) in [(&["-r"][..], "new"), (&["-O", "-r"], "old")] {
        ok(&ended(host.client("scp").args(way).arg(tree_text).arg(format!("web@sandbox:{name}"))).await?)?;
        let found = web.sh_ok(&format!("cd {name} && find . -type f | sort && cat one 'sub/two words'")).await?;
        ensure!(found == "./one\n./sub/deep/empty\n./sub/two words\n1\n2", "{found}");
        let back = host.path(&format!("back-{name}"));
        ok(&ended(host.client("scp").args(way).arg(format!("web@sandbox:{name}")).arg(&back)).await?)?;
        ensure!(fs::read_to_string(back.join("sub/two words"))? == "2\n");
    }

    // sftp with a list of things to do.
    let batch = host.path("batch");
    let big = host.path("big");
    let size = if full() { 1 << 30 } else { 64 << 20 };
    noise(&big, size)?;
    let text = format!(
        "mkdir box\ncd box\nput {big} big\nls -l\nrename big huge\nchmod 600 huge\nln -s huge link\nget huge {back}\n\
         df\nrm link\nmkdir sub\nrmdir sub\nlcd /\npwd\n",
        big = big.display(),
        back = host.path("big-back").display(),
    );
    fs::write(&batch, text)?;
    let began = Instant::now();
    let listed = ok(&ended(host.client("sftp").arg("-b").arg(&batch).arg("web@sandbox")).await?)?;
    eprintln!("{} MiB there and back by sftp in {:?}", size >> 20, began.elapsed());
    ensure!(listed.contains("user") && listed.contains("/home/user/box"), "{listed}");
    ensure!(hash(&big)? == hash(&host.path("big-back"))?);
    ensure!(web.sh_ok("stat -c '%a %s' box/huge").await? == format!("600 {size}"));
    let failed = ended(host.client("sftp").arg("web@sandbox:nowhere").arg(host.path("nowhere"))).await?;
    ensure!(!failed.status.success() && said(&failed).contains("not found"), "{failed:?}");

    // rsync, which most templates have to be given first.
    let rsync = host.path("rsync-inside");
    fs::create_dir(&rsync)?;
    let libraries = tokio::process::Command::new("sh")
        .args(["-c", "cp -L $(command -v rsync) \"$0\" && cp -L $(ldd $(command -v rsync) | grep -o '/[^ ]*' | grep -Ev 'ld-linux|libc\\.so') \"$0\""])
        .arg(&rsync)
        .output()
        .await?;
    ok(&libraries)?;
    ok(&ended(host.client("scp").arg("-r").arg(&rsync).arg("web@sandbox:rsync-inside")).await?)?;
    let inside = "--rsync-path=LD_LIBRARY_PATH=$HOME/rsync-inside $HOME/rsync-inside/rsync";
    let copy = async |from: &str, to: &str| {
        let mut command = tokio::process::Command::new("rsync");
        command.args(["-a", "--delete", "-e", &host.ssh_line(), inside, from, to]).stdin(Stdio::null());
        ok(&ended(&mut command).await?)
    };
    copy(&format!("{tree_text}/"), "web@sandbox:synced/").await?;
    fs::remove_file(tree.join("one"))?;
    fs::write(tree.join("three"), "3\n")?;
    copy(&format!("{tree_text}/"), "web@sandbox:synced/").await?;
    ensure!(web.sh_ok("ls synced").await? == "sub\nthree");
    copy("web@sandbox:synced/", &format!("{}/", host.path("synced").display())).await?;
    ensure!(fs::read_to_string(host.path("synced/three"))? == "3\n");

    // git: a repository inside is cloned, and pushed to.
    web.sh_ok("git init -q --bare repo.git").await?;
    let clone = host.path("clone");
    let git = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new("git");
        command.args(arguments).env("GIT_SSH_COMMAND", host.ssh_line()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
        ok(&ended(&mut command).await?)
    };
    let clone_text = clone.to_str().context("text")?;
    git(&["clone", "-q", "web@sandbox:repo.git", clone_text]).await?;
    fs::write(clone.join("file"), "content\n")?;
    git(&["-C", clone_text, "add", "."]).await?;
    git(&["-C", clone_text, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"]).await?;
    git(&["-C", clone_text, "push", "-q", "origin", "HEAD:main"]).await?;
    let second = host.path("clone-2");
    git(&["clone", "-q", "-b", "main", "ssh://web@sandbox/home/user/repo.git", second.to_str().context("text")?])
        .await?;
    ensure!(fs::read_to_string(second.join("file"))? == "content\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_forwarded_both_ways() -> Result<()> {
    let host = SshDaemon::start(true).await?;
    let web = host.daemon.sandbox_of("base", "web").await?;
    web.write("/home/user/backwards.py", include_str!("../workload/backwards.py")).await?;
    web.spawn("python3 /home/user/backwards.py 5432").await?;
    web.becomes_true("grep -q :1538 /proc/net/tcp").await?;
    let outside = TcpListener::bind("127.0.0.1:0").await?;
    let outside_port = outside.local_addr()?.port();
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = outside.accept().await {
            tokio::spawn(async move {
                let mut heard = String::new();
                stream.read_to_string(&mut heard).await?;
                stream.write_all(format!("outside heard {heard}").as_bytes()).await
            });
        }
    });

    // One connection with everything: into a port, into a socket, and out of the sandbox by a port that is chosen.
    let (local, socket) = (free_port().await?, host.path("socket"));
    let mut client = host.client("ssh");
    client.args(["-N", "-v", "-o", "LogLevel=VERBOSE", "-o", "ExitOnForwardFailure=yes"]);
    client.arg("-L").arg(format!("127.0.0.1:{local}:localhost:5432"));
    client.arg("-L").arg(format!("{}:/tmp/inside.sock", socket.display()));
    client.arg("-R").arg(format!("0:127.0.0.1:{outside_port}")).arg("web@sandbox");
    let mut client = client.stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(client.stderr.take().context("no errors")?).lines();
    let remote = loop {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await?.context("no line")?.context("it ended")?;
        if let Some(rest) = line.strip_prefix("Allocated port ") {
            break rest.split(' ').next().context("no port")?.to_owned();
        }
    };
    let rest = tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    ensure!(say_all(&format!("127.0.0.1:{local}"), b"hello").await? == b"ready olleh");
    web.spawn("python3 -c \"import socket;s=socket.socket(socket.AF_UNIX);s.bind('/tmp/inside.sock');s.listen();c,_=s.accept();c.sendall(c.recv(99).upper())\"").await?;
    web.becomes_true("test -S /tmp/inside.sock").await?;
    let mut stream = tokio::net::UnixStream::connect(&socket).await?;
    stream.write_all(b"loud").await?;
    let mut heard = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut heard)).await??;
    ensure!(heard == "LOUD", "{heard}");
    let ask = format!(
        "python3 -c \"import socket;s=socket.create_connection(('localhost',{remote}));s.sendall(b'me');s.shutdown(1);print(s.recv(99).decode())\""
    );
    ensure!(web.sh_ok(&ask).await? == "outside heard me");
    // It keeps the sandbox awake, and says so.
    let why = host.daemon.client().why("web").await?;
    ensure!(why.keeps_awake.iter().any(|keeper| keeper.what.contains("listener on")), "{why:#?}");
    // Slept on disk by hand and awake again, it listens again.
    web.suspend(Level::Disk).await?;
    web.wake().await?;
    web.becomes_true(&format!("grep -qi \":{:04x} .* 0A\" /proc/net/tcp", remote.parse::<u16>()?)).await?;
    ensure!(web.sh_ok(&ask).await? == "outside heard me");
    client.kill().await?;
    rest.await?;
    // The listener goes with the client.
    web.becomes_true(&format!("! grep -qi \":{:04x} .* 0A\" /proc/net/tcp", remote.parse::<u16>()?)).await?;

    // A port that is closed is told at once.
    let closed = ended(host.client("ssh").args(["-o", "LogLevel=INFO", "-W", "localhost:9", "web@sandbox"])).await?;
    ensure!(!closed.status.success() && said(&closed).contains("nothing listens on port 9"), "{}", said(&closed));
    server.abort();
    Ok(())
}

async fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port())
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_share_a_line_and_a_sleeper_wakes() -> Result<()> {
    let host = SshDaemon::start(true).await?;
    let web = host.daemon.sandbox_of("base", "web").await?;
    // Twenty at once, each with a connection of its own.
    let alone = (0..20).map(|number| {
        let mut client = host.ssh("web", &[&format!("echo {number}; cat /proc/sys/kernel/random/uuid")]);
        async move { ok(&ended(&mut client).await?) }
    });
    let answers = futures_util::future::join_all(alone).await.into_iter().collect::<Result<Vec<_>>>()?;
    for (number, answer) in answers.iter().enumerate() {
        ensure!(answer.starts_with(&format!("{number}\n")), "{answer}");
    }
    // And twenty on one.
    let control = host.path("control");
    let control = format!("ControlPath={}", control.display());
    let mut master = host.client("ssh");
    master.args(["-o", &control, "-o", "ControlMaster=yes", "-N", "web@sandbox"]);
    let mut master = master.spawn()?;
    let deadline = Instant::now() + PATIENCE;
    while !host.path("control").exists() {
        ensure!(Instant::now() < deadline, "no connection to share");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let shared = (0..20).map(|number| {
        let mut client = host.client("ssh");
        client.args(["-o", &control, "web@sandbox", &format!("head -c 300000 /dev/zero | wc -c; exit {number}")]);
        async move { ended(&mut client).await }
    });
    for (number, output) in futures_util::future::join_all(shared).await.into_iter().enumerate() {
        let output = output?;
        ensure!(output.status.code() == Some(i32::try_from(number)?), "{output:?}");
        ensure!(output.stdout == b"300000\n", "{output:?}");
    }
    master.kill().await?;

    // tmux, which is a terminal in a terminal.
    let mut client = host.client("ssh");
    client.args(["-tt", "web@sandbox", "tmux", "new", "-s", "work"]).env("TERM", "xterm");
    let mut tmux = Typing::start(client)?;
    tmux.types("echo in=$((6*7))\n").await?;
    tmux.until("in=42").await?;
    tmux.types("exit\n").await?;
    tmux.until("[exited]").await?;

    for level in [Level::Ram, Level::Disk] {
        web.suspend(level).await?;
        ensure!(host.ssh_ok("web", "echo awake").await? == "awake\n");
        ensure!(host.daemon.client().sandbox("web").await?.state == State::Active);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_let_in_reads_why() -> Result<()> {
    let host = SshDaemon::start(false).await?;
    let (_web, _db) = (host.daemon.sandbox("web").await?, host.daemon.sandbox("db").await?);
    let labels = [("team".to_owned(), "a".to_owned())].into();
    let team = CreateSandbox { name: Some("team-a".to_owned()), labels, ..CreateSandbox::default() };
    let _team = host.daemon.sandbox_with(team).await?;

    // A key that nobody knows.
    host.make_key("stranger").await?;
    let stranger =
        ended(host.client_as("ssh", "stranger").args(["-o", "LogLevel=INFO", "web@sandbox", "true"])).await?;
    ensure!(stranger.status.code() == Some(255), "{}", stranger.status);
    let told = said(&stranger);
    ensure!(told.contains("this key is not known here: SHA256:") && told.contains("roost key add"), "{told}");
    ensure!(told.contains("Permission denied"), "{told}");

    // A sandbox that is not there.
    let slip = ended(&mut host.ssh("wbe", &["true"])).await?;
    ensure!(slip.status.code() == Some(255) && said(&slip).contains("did you mean `web`?"), "{}", said(&slip));

    // Keys with limits.
    for (name, arguments) in [("one", ["--sandbox", "web"]), ("label", ["--label", "team=a"])] {
        host.make_key(name).await?;
        host.let_in(name, &arguments).await?;
    }
    let as_key = async |key: &str, user: &str, command: &str| {
        ended(host.client_as("ssh", key).arg(format!("{user}@sandbox")).arg(command)).await
    };
    ensure!(ok(&as_key("one", "web", "echo hi").await?)? == "hi\n");
    ensure!(ok(&as_key("label", "team-a", "echo hi").await?)? == "hi\n");
    for (key, user, command) in [("one", "db", "true"), ("label", "web", "true"), ("one", "new", "true")] {
        let refused = as_key(key, user, command).await?;
        ensure!(refused.status.code() == Some(255), "{refused:?}");
        ensure!(said(&refused).contains("this key") && said(&refused).contains("reaches only"), "{}", said(&refused));
    }
    let seen = ok(&as_key("label", "roost", "ls").await?)?;
    ensure!(seen.contains("team-a") && !seen.contains("web"), "{seen}");
    let refused = as_key("label", "roost", "rm web").await?;
    ensure!(refused.status.code() == Some(1) && said(&refused).contains("reaches only"), "{}", said(&refused));
    // What it makes is within its reach.
    let made = as_key("label", "new", "echo made").await?;
    ensure!(ok(&made)? == "made\n" && said(&made).contains("this is `"), "{made:?}");
    let seen: Vec<serde_json::Value> = serde_json::from_str(&ok(&as_key("label", "roost", "ls --json").await?)?)?;
    ensure!(seen.len() == 2, "{seen:#?}");

    // A port of a sandbox out of reach.
    let refused =
        ended(host.client_as("ssh", "one").args(["-o", "LogLevel=INFO", "-W", "localhost:80", "db@sandbox"])).await?;
    ensure!(said(&refused).contains("reaches only"), "{}", said(&refused));

    // Taken back, a key is a stranger's.
    let listed = host.daemon.roost_ok(&["key", "ls"]).await?;
    ensure!(listed.contains("SHA256:") && listed.contains("the sandbox `sbx_"), "{listed}");
    host.daemon.roost_ok(&["key", "rm", "one"]).await?;
    ensure!(as_key("one", "web", "true").await?.status.code() == Some(255));
    // The host's own key stays the same over a restart, or the client would say so.
    let mut host = host;
    host.daemon.stop().await?;
    host.daemon.start_again().await?;
    let before = fs::read_to_string(host.path("known_hosts"))?;
    host.started_again().await?;
    host.ssh_ok("web", "true").await?;
    let after = fs::read_to_string(host.path("known_hosts"))?;
    let keys = |text: &str| {
        text.lines()
            .filter_map(|line| line.split_once(' ').map(|(_, key)| key.to_owned()))
            .collect::<std::collections::HashSet<_>>()
    };
    ensure!(keys(&before) == keys(&after), "{before}\n{after}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lobby_sees_to_sandboxes() -> Result<()> {
    let host = SshDaemon::start(false).await?;
    let lobby = async |command: &str| host.ssh_ok("roost", command).await;
    ensure!(lobby("ls").await?.starts_with("no sandboxes"));
    ensure!(lobby("new web").await? == "web\n");
    let listed: serde_json::Value = serde_json::from_str(&lobby("ls --json").await?)?;
    ensure!(listed[0]["name"] == "web" && listed[0]["state"] == "active", "{listed}");
    host.ssh_ok("web", "echo before > state").await?;
    let kept = lobby("checkpoint web --comment 'before it'").await?;
    let checkpoint = kept.split(',').next().context("no id")?.to_owned();
    host.ssh_ok("web", "echo after > state").await?;
    ensure!(lobby("checkpoints web").await?.contains("before it"));
    ensure!(lobby(&format!("fork web --names copy --from {checkpoint}")).await? == "copy\n");
    ensure!(host.ssh_ok("copy", "cat state").await? == "before\n");
    lobby(&format!("restore web {checkpoint}")).await?;
    ensure!(host.ssh_ok("web", "cat state").await? == "before\n");
    ensure!(lobby("suspend web --to disk").await?.contains("suspended to disk"));
    ensure!(lobby("why web").await?.contains("asleep on disk"));
    ensure!(lobby("wake web").await?.contains("web is awake"));
    ensure!(lobby("rm copy").await? == "copy removed\n");
    ensure!(lobby("help").await?.contains("checkpoints"));
    let wrong = ended(&mut host.ssh("roost", &["fly"])).await?;
    ensure!(wrong.status.code() == Some(2) && said(&wrong).contains("fly"), "{wrong:?}");
    let gone = ended(&mut host.ssh("copy", &["true"])).await?;
    ensure!(gone.status.code() == Some(255) && said(&gone).contains("is gone"), "{}", said(&gone));

    // By hand: a typo is edited, a name is completed, an older line comes back.
    let mut client = host.client("ssh");
    client.args(["-tt", "roost@sandbox"]);
    let mut typing = Typing::start(client)?;
    typing.until("roost> ").await?;
    typing.types("wha\x7fy w\t\r").await?;
    typing.until("why web").await?;
    typing.until("awake since").await?;
    typing.until("roost> ").await?;
    typing.types("\x1b[A").await?;
    typing.until("why web").await?;
    typing.types("\x03exit\r").await?;
    ensure!(typing.ends().await?.success());
    // As a script.
    let mut script = host.ssh("roost", &[]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    script.stdin.take().context("no input")?.write_all(b"new second\nls\n").await?;
    let printed = ok(&tokio::time::timeout(PATIENCE, script.wait_with_output()).await??)?;
    ensure!(printed.starts_with("second\n") && printed.contains("NAME"), "{printed}");
    Ok(())
}
