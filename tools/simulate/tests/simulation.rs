//! The core holds under fire, and what the design page says of its settings is so.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use roost_model::IdlePolicy;
use roost_simulate::crowd::crowd;
use roost_simulate::life::Fate;
use roost_simulate::report::{SAMPLE, report};
use roost_simulate::trace::DAY;
use roost_simulate::world::Odds;

/// Ordinary bad luck, and a daemon that dies at every seventh place.
#[test]
fn lives_lose_nothing_whatever_dies() {
    for (crash, order, seed) in [(150, 100, 1), (7, 10, 2), (3, 5, 3)] {
        let fate = Fate { odds: Odds { crash, reboot: 10, failure: 20 }, order };
        let spent = crowd(100, seed, &IdlePolicy::default(), fate, 10 * DAY);
        assert!(spent.deaths() > 100, "{} deaths", spent.deaths());
        if crash <= 7 {
            // Every phase that is ever stored, and every effect after it.
            assert!(spent.crashes.len() >= 30, "{:#?}", spent.crashes);
        }
    }
}

#[test]
fn a_seed_makes_the_same_lives_again() {
    let fate = Fate { odds: Odds { crash: 20, reboot: 10, failure: 20 }, order: 20 };
    let once = crowd(30, 4, &IdlePolicy::default(), fate, 5 * DAY);
    assert_eq!(once, crowd(30, 4, &IdlePolicy::default(), fate, 5 * DAY));
}

/// If this fails after a change of a default or of the core: look at the tables, then
/// `cargo run -p roost-simulate -- policies --plot docs/bench/simulation.svg`, and put the tables into the page.
#[test]
fn the_design_page_shows_what_the_settings_cost() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |path: &str| fs::read_to_string(docs.join(path)).unwrap_or_default();
    let report = report(SAMPLE);
    assert!(read("bench/simulation.svg") == report.plot, "docs/bench/simulation.svg is of other lives");
    for row in report.tables.lines().filter(|row| !row.is_empty()) {
        assert!(read("design/simulation.md").contains(row), "docs/design/simulation.md has no row\n{row}");
    }
}
