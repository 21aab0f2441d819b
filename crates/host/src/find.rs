//! Finding sandboxes by name, id or the beginning of an id.

use roost_model::{Name, SandboxId};

use crate::HostError;
use crate::handle::Handle;
use crate::host::Host;
use crate::view::view;

/// Fewer characters of an id than this fit too much to be meant.
pub(crate) const SHORTEST_PREFIX: usize = 6;

impl Host {
    /// The sandbox called `text`: a name, an id, or the beginning of an id. One that is gone is found by its tombstone.
    pub fn find(&self, text: &str) -> Result<Handle, HostError> {
        if let Ok(id) = text.parse::<SandboxId>() {
            return self.by_id(&id);
        }
        let name = text.parse::<Name>().ok();
        let living = self.handles();
        if let Some(handle) = name.as_ref().and_then(|name| {
            living.iter().find(|handle| {
                let record = handle.record();
                record.name == *name && !record.phase.is_ending()
            })
        }) {
            return Ok(handle.clone());
        }
        if let Some(found) = self.by_prefix(text, &living)? {
            return Ok(found);
        }
        if let Some(record) = name.map(|name| self.shared.store.newest_by_name(&name)).transpose()?.flatten()
            && record.pool.is_none()
        {
            return Err(HostError::Terminated(Box::new(view(&record))));
        }
        let names = living.iter().map(|handle| handle.record().name.to_string());
        Err(HostError::SandboxNotFound { name: text.to_owned(), similar: most_similar(text, names) })
    }

    pub(crate) fn by_id(&self, id: &SandboxId) -> Result<Handle, HostError> {
        let unseen = |record: &roost_store::SandboxRecord| record.pool.is_some();
        if let Some(handle) = self.handle_of(id).filter(|handle| !unseen(&handle.record())) {
            return Ok(handle);
        }
        match self.shared.store.sandbox(id)?.filter(|record| !unseen(record)) {
            Some(record) => Err(HostError::Terminated(Box::new(view(&record)))),
            None => Err(HostError::SandboxNotFound { name: id.to_string(), similar: None }),
        }
    }

    fn by_prefix(&self, text: &str, living: &[Handle]) -> Result<Option<Handle>, HostError> {
        let bare = text.strip_prefix(SandboxId::PREFIX).unwrap_or(text);
        if bare.len() < SHORTEST_PREFIX {
            return Ok(None);
        }
        let prefix = format!("{}{bare}", SandboxId::PREFIX);
        let mut fitting = living.iter().filter(|handle| handle.id().as_str().starts_with(&prefix));
        let Some(first) = fitting.next() else { return Ok(None) };
        match fitting.count() {
            0 => Ok(Some(first.clone())),
            others => Err(HostError::Ambiguous { prefix: text.to_owned(), count: others + 1 }),
        }
    }
}

/// The candidate that differs least, if it differs little.
pub(crate) fn most_similar(text: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    let most = (text.chars().count() / 3).max(1) + 1;
    candidates
        .map(|candidate| (distance(text, &candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be put in, taken out, changed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_guessed() {
        let names = || ["web", "worker", "db"].into_iter().map(str::to_owned);
        assert_eq!(most_similar("wbe", names()), Some("web".to_owned()));
        assert_eq!(most_similar("worke", names()), Some("worker".to_owned()));
        assert_eq!(most_similar("something-else", names()), None);
    }
}
