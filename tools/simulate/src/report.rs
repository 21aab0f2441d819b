//! The tables and the plot of `docs/design/simulation.md`.

use std::fmt::Write;

use roost_model::IdlePolicy;

use crate::figures::{Costs, Sample, judge, quiet_times, times_in_ram};
use crate::plot::{Panel, draw};
use crate::pools;

/// Small enough for a test to repeat in a build without optimisation.
pub const SAMPLE: Sample = Sample { lives: 100, days: 14, seed: 1 };
const POOL_DAYS: u64 = 7;

/// What was found, as text and as a drawing.
#[derive(Debug)]
pub struct Report {
    /// Tables in Markdown.
    pub tables: String,
    /// The same as curves.
    pub plot: String,
}

/// Judges every setting on the sample.
pub fn report(sample: Sample) -> Report {
    let default = IdlePolicy::default();
    let mut tables = String::new();
    let mut panels = Vec::new();
    for (option, policies) in [("idle.after", quiet_times()), ("deepen_after", times_in_ram())] {
        let quiet = option == "idle.after";
        let name = |policy: &IdlePolicy| if quiet { policy.after } else { policy.deepen_after }.to_string();
        let judged: Vec<(String, bool, Costs)> =
            policies.iter().map(|policy| (name(policy), *policy == default, judge(policy, sample))).collect();
        table_of_policies(&mut tables, option, &judged);
        let points = judged.into_iter().map(|(name, default, costs)| match quiet {
            true => (name, costs.wasted, costs.woken, default),
            false => (name, costs.in_ram, costs.wait, default),
        });
        panels.push(Panel {
            title: if quiet { "idle.after" } else { "deepen_after" },
            across: if quiet { "hours awake for nobody, a day" } else { "hours in RAM, a day" },
            up: if quiet { "% of touches that wake it" } else { "ms that a touch waits, mean" },
            points: points.collect(),
        });
    }
    let creates = pools::creates(POOL_DAYS, sample.seed);
    let judged = pools::BOUNDS.map(|bounds| (bounds, pools::judge(bounds, &creates)));
    line(
        &mut tables,
        format_args!("| pool | creates | found none, % | waiting on average |\n| --- | --- | --- | --- |"),
    );
    for (bounds, costs) in &judged {
        let (min, max) = (bounds.min, bounds.max);
        let (misses, waiting) = (costs.misses(), costs.waiting());
        line(&mut tables, format_args!("| {min} to {max} | {} | {misses:.1} | {waiting:.2} |", costs.asked));
    }
    let points = judged
        .iter()
        .map(|(bounds, costs)| (format!("{}-{}", bounds.min, bounds.max), costs.waiting(), costs.misses(), false));
    panels.push(Panel {
        title: "bounds of a pool",
        across: "sandboxes that wait, on average",
        up: "% of creates that find none",
        points: points.collect(),
    });
    Report { tables, plot: draw(&panels) }
}

fn table_of_policies(tables: &mut String, option: &str, judged: &[(String, bool, Costs)]) {
    line(
        tables,
        format_args!(
            "| `{option}` | asleep, % | awake for nobody, h | in RAM, h | images written | woken, % of touches | wait, ms: \
             mean | p50 | p95 | p99 |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
        ),
    );
    for (name, default, costs) in judged {
        let name = if *default { format!("**{name}**") } else { name.clone() };
        let Costs { asleep, wasted, in_ram, saves, woken, wait, waits: [p50, p95, p99] } = costs;
        line(
            tables,
            format_args!(
                "| {name} | {asleep:.1} | {wasted:.2} | {in_ram:.2} | {saves:.2} | {woken:.1} | {wait:.1} | {p50} | {p95} | \
                 {p99} |"
            ),
        );
    }
    tables.push('\n');
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = writeln!(text, "{arguments}");
}
