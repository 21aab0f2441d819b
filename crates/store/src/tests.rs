//! What every store must do, and what this one must survive.

mod conformance;
mod crash;
mod file;
mod migration;
mod records;
mod samples;

use std::sync::Arc;

use crate::{SqliteStore, Store};

#[test]
fn a_store_in_memory_conforms() {
    conformance::check(|| Arc::new(SqliteStore::in_memory().unwrap()));
}

#[test]
fn a_store_in_a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    conformance::check(|| {
        number += 1;
        let path = folder.path().join(format!("{number}.db"));
        Arc::new(SqliteStore::open(&path).unwrap()) as Arc<dyn Store>
    });
}
