//! The documentation is true: every command in it is run, page by page, and every page and link in it is there.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use roost_e2e::docs::{Block, Step, read, root};
use roost_e2e::{Daemon, Options, roost_binary};

/// A command of a page that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Blocks with commands that no test of this file can run: page, words in the block, and why.
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("README.md", "make up", "builds and starts a daemon on the host itself"),
    ("docs/quickstart.md", "make up", "builds and starts a daemon on the host itself"),
    ("docs/quickstart.md", "roost exec -it box -- bash", "needs a person at a terminal"),
    ("docs/install.md", "make install", "installs on the host; scripts/install is run by tests/service.rs"),
    ("docs/install.md", "apt install ./target/deb", "installs on the host; tests/service.rs installs it in a sandbox"),
    ("docs/install.md", "systemctl enable", "needs systemd; tests/service.rs plays its part"),
    ("docs/install.md", "lib/roost/criu", "downloads; both are brought for the tests by scripts/test"),
    ("docs/install.md", "make uninstall", "removes from the host; scripts/install is run by tests/service.rs"),
    ("docs/operations.md", "systemctl restart roost", "needs systemd; tests/service.rs plays its part"),
    ("docs/operations.md", "rsync", "needs another machine"),
    ("docs/reverse-proxy.md", "systemctl reload", "needs systemd; tests/tls.rs sends the signal"),
    ("docs/reverse-proxy.md", "https://boxes.example.com", "needs a host of that name; tests/tls.rs does the same"),
    ("docs/awake.md", "roost alarm box --at 07:30", "named zones need tzdata, which the host may lack"),
    ("docs/ssh.md", "ssh -p 2222", "needs a key in the home of whoever runs it; tests/ssh.rs does the same"),
    ("docs/mcp.md", "claude mcp add", "needs another program; tests/mcp.rs starts `roost mcp` as that does"),
    ("docs/security.md", "roost doctor --attack", "takes minutes; tests/hostile_neighbours.rs runs the same attacks"),
    ("docs/templates.md", "docker save", "needs Docker; tests/builds.rs imports archives like that"),
];

/// Pages whose programs in Python and JavaScript are run as they stand; those of others are run by tests/e2b, with the
/// packages they need.
const PROGRAMS_RUN: &[&str] = &["docs/http.md"];

/// Languages of blocks that hold no commands for a shell.
const NO_COMMANDS: &[&str] = &["text", "json", "toml", "ini", "nginx", "caddy", "python", "javascript", "yaml", "http"];

/// Runs the commands of a page, in their order, in one scratch folder against one daemon.
async fn run(page: &str) -> Result<()> {
    let text = read(page)?;
    let steps: Vec<Step> = Block::all(&text).iter().flat_map(|block| steps_of(page, block)).collect();
    if steps.is_empty() {
        return Ok(());
    }
    let options = Options { tcp: true, base: true, template: Some("base".to_owned()), ..Options::default() };
    let daemon = Daemon::with(options).await?;
    let scratch = Scratch::new(&daemon)?;
    for step in steps {
        let outcome = scratch.run(&step).await;
        outcome.with_context(|| format!("{page}, line {}: `{}`", step.line, step.command))?;
    }
    Ok(())
}

/// What is run of a block: its commands, or on a page whose programs are whole, the program.
fn steps_of(page: &str, block: &Block) -> Vec<Step> {
    let interpreter = match block.info.as_str() {
        "console" => return block.steps(),
        "python" => "python3 -",
        "javascript" => "node --input-type=module -",
        _ => return Vec::new(),
    };
    if !PROGRAMS_RUN.contains(&page) {
        return Vec::new();
    }
    let command = format!("{interpreter} <<'PROGRAM'\n{}PROGRAM", block.text);
    vec![Step { command, shown: Vec::new(), line: block.line }]
}

/// Where the commands of a page are run, with what they find there.
struct Scratch<'a> {
    daemon: &'a Daemon,
    folder: tempfile::TempDir,
    /// What a page calls it, and what it is here.
    places: Vec<(&'static str, String)>,
}

impl<'a> Scratch<'a> {
    fn new(daemon: &'a Daemon) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        for name in ["bin", "work", "home"] {
            fs::create_dir(folder.path().join(name))?;
        }
        symlink(roost_binary()?, folder.path().join("bin/roost"))?;
        let address = daemon.address().context("the daemon has no address")?.to_owned();
        let port = address.rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap_or_default();
        let places = vec![
            ("127.0.0.1:7077", address),
            ("localhost:7077", format!("localhost:{port}")),
            ("/run/roost/roost.sock", daemon.socket().display().to_string()),
            ("/var/lib/roost", daemon.data_dir().display().to_string()),
        ];
        Ok(Self { daemon, folder, places })
    }

    async fn run(&self, step: &Step) -> Result<()> {
        let command = self.places.iter().fold(step.command.clone(), |text, (shown, real)| text.replace(shown, real));
        let (state, out) = (self.folder.path().join("state"), self.folder.path().join("out"));
        // Variables and the folder are those of the command before, as for somebody who types.
        let script = format!(
            "set -a; if [ -e {state} ]; then . {state} 2>/dev/null; cd \"$PWD\"; fi\n{command}\nended=$?; {{ declare -px; declare -f; }} >{state}; exit $ended",
            state = state.display()
        );
        let search = format!("{}:{}", self.folder.path().join("bin").display(), std::env::var("PATH")?);
        let printed = fs::File::create(&out)?;
        let mut shell = Command::new("bash");
        shell.args(["--norc", "-c", &script]).current_dir(self.folder.path().join("work"));
        shell.env_clear().env("PATH", search).env("HOME", self.folder.path().join("home"));
        shell.env("ROOST_SOCKET", self.daemon.socket()).env("LC_ALL", "C.UTF-8").env("TERM", "dumb");
        shell.stdin(Stdio::null()).stdout(printed.try_clone()?).stderr(printed).process_group(0);
        let mut child = tokio::process::Command::from(shell).spawn()?;
        let group = child.id().context("the shell is gone")?;
        let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
        // What it left in the background ends with it.
        drop(Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).stderr(Stdio::null()).status());
        let printed = String::from_utf8_lossy(&fs::read(&out)?).into_owned();
        let printed = self.places.iter().fold(printed, |text, (shown, real)| text.replace(real, shown));
        let Ok(status) = ended else { bail!("it does not end; so far it printed:\n{printed}") };
        let code = status?.code();
        ensure!(code == Some(step.exit()), "it ended with {code:?} and printed:\n{printed}");
        ensure!(step.fits(&printed), "it printed\n{printed}\nand the page shows\n{}", step.shown.join("\n"));
        Ok(())
    }
}

macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        /// Every page whose commands are run, by a test of its own.
        const RUN: &[&str] = &[$($path),*];
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() -> Result<()> {
                run($path).await
            }
        )*
    };
}

pages! {
    readme: "README.md",
    awake: "docs/awake.md",
    batch: "docs/batch.md",
    cli: "docs/cli.md",
    concepts: "docs/concepts.md",
    configuration: "docs/configuration.md",
    e2b: "docs/e2b.md",
    engines: "docs/engines.md",
    http: "docs/http.md",
    install: "docs/install.md",
    mcp: "docs/mcp.md",
    moments: "docs/moments.md",
    operations: "docs/operations.md",
    page: "docs/page.md",
    ports: "docs/ports.md",
    quickstart: "docs/quickstart.md",
    reverse_proxy: "docs/reverse-proxy.md",
    security: "docs/security.md",
    services: "docs/services.md",
    sleep: "docs/sleep.md",
    ssh: "docs/ssh.md",
    templates: "docs/templates.md",
    troubleshooting: "docs/troubleshooting.md",
}

/// All pages, by their paths below the root.
fn all_pages() -> Result<BTreeSet<String>> {
    let mut pages = BTreeSet::from(["README.md".to_owned()]);
    for folder in ["docs", "docs/design"] {
        for entry in fs::read_dir(root().join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                pages.insert(format!("{folder}/{name}"));
            }
        }
    }
    Ok(pages)
}

#[test]
fn every_block_is_run_or_has_a_reason_not_to_be() -> Result<()> {
    let mut unused: BTreeSet<_> = NOT_RUN.iter().map(|(page, words, _)| (*page, *words)).collect();
    for page in all_pages()?.iter().filter(|page| !page.starts_with("docs/design/")) {
        for block in Block::all(&read(page)?) {
            let place = format!("{page}, line {}", block.line);
            match block.info.as_str() {
                "console" => {
                    ensure!(RUN.contains(&page.as_str()), "{place}: commands that no test of this file runs");
                    ensure!(!block.steps().is_empty(), "{place}: a console without a command (`$ …`)");
                }
                "sh" => {
                    let reason = NOT_RUN.iter().find(|(of, words, _)| of == page && block.text.contains(words));
                    let (of, words, _) = reason.with_context(|| format!("{place}: `sh` is not run; say why"))?;
                    unused.remove(&(*of, *words));
                }
                language => {
                    ensure!(NO_COMMANDS.contains(&language), "{place}: unknown kind of block `{language}`");
                    ensure!(!block.text.starts_with("$ "), "{place}: commands are `console`");
                }
            }
        }
    }
    ensure!(unused.is_empty(), "reasons for blocks that are not there: {unused:?}");
    Ok(())
}

#[test]
fn the_table_of_contents_has_every_page() -> Result<()> {
    let summary = read("docs/SUMMARY.md")?;
    let listed: BTreeSet<String> = links(&summary).map(|(target, _)| format!("docs/{target}")).collect();
    for page in all_pages()?.iter().filter(|page| *page != "README.md" && *page != "docs/SUMMARY.md") {
        ensure!(listed.contains(page), "docs/SUMMARY.md does not list {page}");
    }
    Ok(())
}

#[test]
fn every_link_leads_somewhere() -> Result<()> {
    for page in all_pages()?.iter().chain([&"CHANGELOG.md".to_owned()]) {
        let text = read(page)?;
        for (target, line) in links(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
            let folder = Path::new(page).parent().unwrap_or(Path::new(""));
            let file = if path.is_empty() { page.into() } else { folder.join(path) };
            ensure!(root().join(&file).exists(), "{page}, line {line}: `{target}` is not there");
            if let Some(anchor) = anchor {
                let there = headings(&fs::read_to_string(root().join(&file))?);
                ensure!(there.contains(anchor), "{page}, line {line}: `{target}` has no such heading: {there:?}");
            }
        }
    }
    Ok(())
}

/// Targets of links in a page with their lines, those in blocks left out.
fn links(page: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut fenced = false;
    let lines = page.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    lines.flat_map(|(number, line)| {
        let starts = line.match_indices("](").map(|(at, _)| at + 2);
        starts.filter_map(move |at| Some((&line[at..at + line[at..].find(')')?], number + 1)))
    })
}

/// The anchors that headings of a page give.
fn headings(page: &str) -> BTreeSet<String> {
    let words = page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |words: &str| {
        let plain = words.to_lowercase().replace(' ', "-");
        plain.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    words.map(anchor).collect()
}
