//! A process that notices when its memory and its files are not of the same moment.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::Sandbox;

/// Counts in memory and in a file, and writes down when the two differ; says a word that is nowhere but in its memory
/// when it is sent `USR1`.
const COUNT: &str = r#"
    word=$(cat /proc/sys/kernel/random/uuid)
    trap 'echo $word > /root/said.new; mv /root/said.new /root/said' USR1
    n=0; echo 0 > /root/n; echo $$ > /root/pid
    while :; do
      was=$(cat /root/n)
      [ "$was" = $n ] || echo "memory $n, file $was" >> /root/skew
      n=$((n+1)); echo $n > /root/n.new; mv /root/n.new /root/n
      sleep 0.01
    done
"#;
/// Longer than a wake on a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The counting process of one sandbox, which forks of it have too.
#[derive(Debug, Clone)]
pub struct Witness {
    word: String,
}

impl Witness {
    /// Starts it.
    pub async fn start(sandbox: &Sandbox) -> Result<Self> {
        sandbox.sh_ok("rm -f /root/skew /root/n /root/pid").await?;
        sandbox.spawn(COUNT).await?;
        sandbox.sh_ok("until [ -s /root/pid ]; do sleep 0.01; done").await?;
        Ok(Self { word: word_of(sandbox).await? })
    }

    /// Checks that the process goes on in this sandbox, with the memory it had and with the files that belong to it.
    pub async fn goes_on(&self, sandbox: &Sandbox) -> Result<()> {
        let word = tokio::time::timeout(PATIENCE, word_of(sandbox)).await;
        let word = word.with_context(|| format!("the witness in `{}` is silent", sandbox.name()))??;
        ensure!(word == self.word, "the witness in `{}` says {word}, not {}", sandbox.name(), self.word);
        let count = sandbox.sh_ok("a=$(cat /root/n); while [ \"$(cat /root/n)\" = \"$a\" ]; do sleep 0.01; done");
        tokio::time::timeout(PATIENCE, count).await.context("the witness does not count any more")??;
        self.files_fit(sandbox).await
    }

    /// Checks that its memory never met files of another moment.
    pub async fn files_fit(&self, sandbox: &Sandbox) -> Result<()> {
        let skew = sandbox.sh_ok("cat /root/skew 2>/dev/null || :").await?;
        ensure!(skew.is_empty(), "memory and files of `{}` are of different moments: {skew}", sandbox.name());
        Ok(())
    }

    /// Whether the process is there at all.
    pub async fn is_there(&self, sandbox: &Sandbox) -> Result<bool> {
        Ok(sandbox.sh("kill -0 $(cat /root/pid)").await?.exit_code == 0)
    }
}

async fn word_of(sandbox: &Sandbox) -> Result<String> {
    let ask =
        "rm -f /root/said; kill -USR1 $(cat /root/pid) && until [ -s /root/said ]; do sleep 0.01; done; cat /root/said";
    sandbox.sh_ok(ask).await
}
