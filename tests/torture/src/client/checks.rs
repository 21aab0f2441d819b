//! What must be inside is inside.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::TortureClient;
use crate::blame::Need;
use crate::inside::ask;

/// What is refused for so long after the fire is refused for ever.
const PATIENCE: Duration = Duration::from_secs(120);

impl TortureClient {
    /// Reads one of its files.
    pub(super) async fn read(&mut self, place: usize) -> Result<()> {
        let count = self.sandboxes[place].inside.files.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let which = usize::try_from(self.random.below(count))?;
        let path = self.sandboxes[place].inside.files.keys().nth(which).context("no such file")?.clone();
        self.file_is_right(place, &path).await.map(drop)
    }

    /// Compares a file with what it must be; false if it could not be read, with reason.
    async fn file_is_right(&mut self, place: usize, path: &str) -> Result<bool> {
        let name = self.sandboxes[place].name.clone();
        let read = async |_| self.api.read_file(&name, path).await?.bytes().await;
        let Some(found) = self.attempt("read", Need::Guest(&name), read).await? else { return Ok(false) };
        let files = &mut self.sandboxes[place].inside.files;
        let content = files[path].iter().copied().find(|content| content.bytes() == found);
        let content =
            content.with_context(|| format!("{path} in `{name}` has {} other bytes than written", found.len()))?;
        // From here on it is known which writes were done.
        files.insert(path.to_owned(), vec![content]);
        Ok(true)
    }

    /// The hash of what its keeper remembers; nothing if it could not be asked, with reason.
    pub(super) async fn ask_memory(&mut self, place: usize) -> Result<Option<String>> {
        let line = ask(self.next());
        let Some((code, said, errors)) = self.shell("memory", place, &line).await? else {
            return Ok(None);
        };
        ensure!(code == 0, "the keeper in `{}` does not answer: {code} {said} {errors}", self.sandboxes[place].name);
        Ok(Some(said.trim().to_owned()))
    }

    /// Compares memory with what it must be; false if it could not be asked, with reason.
    pub(super) async fn memory_is_right(&mut self, place: usize) -> Result<bool> {
        self.note_the_shaken();
        if self.sandboxes[place].inside.memory.is_none() {
            return Ok(true);
        }
        if self.sandboxes[place].unsure {
            // Files in memory are gone with it.
            let look = "[ -p /dev/shm/ask ] && echo there || echo gone";
            let Some((_, said, _)) = self.shell("memory", place, look).await? else { return Ok(false) };
            self.sandboxes[place].unsure = false;
            if said == "gone\n" {
                self.sandboxes[place].inside.memory = None;
                return Ok(true);
            }
        }
        let Some(found) = self.ask_memory(place).await? else { return Ok(false) };
        let sandbox = &self.sandboxes[place];
        ensure!(Some(&found) == sandbox.inside.memory.as_ref(), "`{}` remembers something else", sandbox.name);
        Ok(true)
    }

    /// Looks at everything there is, once the fire is out, and removes it.
    pub(crate) async fn check_all(&mut self) -> Result<()> {
        while !self.sandboxes.is_empty() {
            self.check_last().await.with_context(|| format!("client {}, when the fire was out", self.number))?;
        }
        Ok(())
    }

    async fn check_last(&mut self) -> Result<()> {
        let place = self.sandboxes.len() - 1;
        self.until_right(place).await?;
        while let Some(last) = self.sandboxes[place].kept.len().checked_sub(1) {
            let deadline = Instant::now() + PATIENCE;
            while !self.restore(place, last).await? {
                ensure!(Instant::now() < deadline, "`{}` cannot go back", self.sandboxes[place].name);
            }
            self.until_right(place).await?;
            self.sandboxes[place].kept.pop();
        }
        self.delete(place).await
    }

    async fn until_right(&mut self, place: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut right = self.memory_is_right(place).await?;
            for path in self.sandboxes[place].inside.files.clone().into_keys() {
                right &= self.file_is_right(place, &path).await?;
            }
            if right {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "`{}` refuses to be looked at", self.sandboxes[place].name);
        }
    }
}
