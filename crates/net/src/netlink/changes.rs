//! Reads from the kernel's reports whether another program changed a table of ours.
//!
//! The kernel reports each transaction as the objects it changed, and ends it with the number of the new generation. A
//! transaction that brings the chain of our latest load is our own; any other that names the table is not.

use super::message::{Received, attributes};

const SUBSYSTEM: u16 = libc::NFNL_SUBSYS_NFTABLES as u16;
const NEW_GENERATION: u16 = libc::NFT_MSG_NEWGEN as u16;
const NEW_CHAIN: u16 = libc::NFT_MSG_NEWCHAIN as u16;
/// Whatever the object, its first attribute is the name of its table.
const TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const FAMILY: u8 = libc::NFPROTO_IPV4 as u8;
const HEADER: usize = 4;

/// Follows the changes of one `ip` table.
#[derive(Debug)]
pub(crate) struct TableChanges {
    table: String,
    own: String,
    transaction: Transaction,
    changed: bool,
}

/// What the reports of the transaction under way have said so far.
#[derive(Debug, Default)]
struct Transaction {
    touches: bool,
    is_own: bool,
}

impl TableChanges {
    /// Follows a table whose latest load brought the chain `own`.
    pub(crate) fn new(table: &str, own: &str) -> Self {
        Self { table: table.to_owned(), own: own.to_owned(), transaction: Transaction::default(), changed: false }
    }

    /// Notes that the table was loaded again, with the chain `own`. Reports of earlier transactions may still come.
    pub(crate) fn loaded(&mut self, own: &str) {
        own.clone_into(&mut self.own);
        self.changed = false;
    }

    /// Notes that reports were lost: each of them may have been about the table.
    pub(crate) fn lost(&mut self) {
        self.transaction = Transaction::default();
        self.changed = true;
    }

    /// Whether another program changed the table since our latest load.
    pub(crate) fn changed(&self) -> bool {
        self.changed
    }

    /// Takes in one report.
    pub(crate) fn read(&mut self, report: &Received<'_>) {
        let [subsystem, kind] = [report.kind >> 8, report.kind & 0xff];
        if subsystem != SUBSYSTEM {
            return;
        }
        if kind == NEW_GENERATION {
            let Transaction { touches, is_own } = std::mem::take(&mut self.transaction);
            self.changed = !is_own && (touches || self.changed);
            return;
        }
        let Some((&[family, ..], rest)) = report.payload.split_at_checked(HEADER) else {
            return;
        };
        let named = |attribute, name: &str| {
            attributes(rest)
                .any(|(kind, value)| kind == attribute && value.strip_suffix(&[0]).unwrap_or(value) == name.as_bytes())
        };
        if family != FAMILY || !named(TABLE, &self.table) {
            return;
        }
        self.transaction.touches = true;
        self.transaction.is_own |= kind == NEW_CHAIN && named(CHAIN_NAME, &self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Batch, split};
    use super::*;

    const NEW_TABLE: i32 = libc::NFT_MSG_NEWTABLE;
    const DELETE_TABLE: i32 = libc::NFT_MSG_DELTABLE;
    const NEW_RULE: i32 = libc::NFT_MSG_NEWRULE;

    /// Reports of one transaction: kinds with table and, for chains, name.
    fn report(changes: &mut TableChanges, family: i32, objects: &[(i32, &str, &str)]) {
        let mut batch = Batch::new();
        for (kind, table, name) in objects {
            batch
                .silent("", (SUBSYSTEM << 8) | *kind as u16, 0)
                .raw(&[family as u8, 0, 0, 0])
                .text(TABLE, table)
                .text(CHAIN_NAME, name);
        }
        batch.silent("", (SUBSYSTEM << 8) | NEW_GENERATION, 0).raw(&[0; 4]).big_number(1, 7);
        split(&batch.bytes).for_each(|report| changes.read(&report));
    }

    fn load(changes: &mut TableChanges, mark: &str) {
        let objects = [
            (DELETE_TABLE, "roost_x", ""),
            (NEW_TABLE, "roost_x", ""),
            (libc::NFT_MSG_NEWCHAIN, "roost_x", mark),
            (NEW_RULE, "roost_x", "pre"),
        ];
        report(changes, libc::NFPROTO_IPV4, &objects);
    }

    fn followed() -> TableChanges {
        TableChanges::new("roost_x", "load_1")
    }

    #[test]
    fn own_load_is_no_change() {
        let mut changes = followed();
        load(&mut changes, "load_1");
        assert!(!changes.changed());
    }

    #[test]
    fn deletion_of_the_table_is_a_change() {
        let mut changes = followed();
        report(&mut changes, libc::NFPROTO_IPV4, &[(DELETE_TABLE, "other", ""), (DELETE_TABLE, "roost_x", "")]);
        assert!(changes.changed());
    }

    #[test]
    fn rule_of_another_program_in_the_table_is_a_change() {
        let mut changes = followed();
        report(&mut changes, libc::NFPROTO_IPV4, &[(NEW_RULE, "roost_x", "pre")]);
        assert!(changes.changed());
    }

    #[test]
    fn other_tables_and_families_are_no_change() {
        let mut changes = followed();
        report(&mut changes, libc::NFPROTO_IPV4, &[(DELETE_TABLE, "roost_xy", ""), (DELETE_TABLE, "filter", "")]);
        report(&mut changes, libc::NFPROTO_IPV6, &[(DELETE_TABLE, "roost_x", "")]);
        assert!(!changes.changed());
    }

    #[test]
    fn load_after_a_change_heals_it_whatever_the_order_of_reading() {
        let mut changes = followed();
        report(&mut changes, libc::NFPROTO_IPV4, &[(DELETE_TABLE, "roost_x", "")]);
        changes.loaded("load_2");
        assert!(!changes.changed());
        // A transaction from between the change and the load is read only now, and then the load itself.
        report(&mut changes, libc::NFPROTO_IPV4, &[(NEW_TABLE, "roost_x", "")]);
        load(&mut changes, "load_1");
        assert!(changes.changed());
        load(&mut changes, "load_2");
        assert!(!changes.changed());
        report(&mut changes, libc::NFPROTO_IPV4, &[(DELETE_TABLE, "roost_x", "")]);
        assert!(changes.changed());
    }

    #[test]
    fn lost_reports_count_as_a_change() {
        let mut changes = followed();
        changes.lost();
        assert!(changes.changed());
    }

    #[test]
    fn fuzz_damaged_reports_are_read_without_a_panic() {
        let mut batch = Batch::new();
        batch.silent("", (SUBSYSTEM << 8) | NEW_CHAIN, 0).raw(&[2, 0, 0, 0]).text(TABLE, "roost_x").text(3, "load_1");
        batch.silent("", (SUBSYSTEM << 8) | NEW_GENERATION, 0).raw(&[0; 4]);
        roost_fuzz::attack(&[&batch.bytes], |bytes| {
            let mut changes = followed();
            split(bytes).for_each(|report| changes.read(&report));
        });
    }
}
