use jiff::civil::DateTime;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn cron(text: &str) -> Cron {
    text.parse().unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The next `count` moments, in UTC.
fn series(text: &str, after: &str, count: usize) -> Vec<String> {
    let cron = cron(text);
    let mut now = at(after);
    let next = || {
        now = cron.next_after(now, &TimeZone::UTC).unwrap();
        now.strftime("%a %d %b %H:%M").to_string()
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[test]
fn the_usual_forms_mean_what_they_do_elsewhere() {
    let cases: [(&str, &[&str]); 14] = [
        ("* * * * *", &["Sun 15 Nov 06:51", "Sun 15 Nov 06:52"]),
        ("*/20 * * * *", &["Sun 15 Nov 07:00", "Sun 15 Nov 07:20"]),
        ("5/20 * * * *", &["Sun 15 Nov 07:05", "Sun 15 Nov 07:25"]),
        ("10-30/10,45 8 * * *", &["Sun 15 Nov 08:10", "Sun 15 Nov 08:20", "Sun 15 Nov 08:30", "Sun 15 Nov 08:45"]),
        ("0 9 * * mon-fri", &["Mon 16 Nov 09:00", "Tue 17 Nov 09:00"]),
        ("0 0 * * 7", &["Sun 22 Nov 00:00", "Sun 29 Nov 00:00"]),
        ("0 0 * * 5-7", &["Fri 20 Nov 00:00", "Sat 21 Nov 00:00", "Sun 22 Nov 00:00"]),
        // Either day will do, unless one of them is a star.
        ("0 0 20 * Mon", &["Mon 16 Nov 00:00", "Fri 20 Nov 00:00", "Mon 23 Nov 00:00"]),
        ("0 0 */10 * sat", &["Sat 21 Nov 00:00"]),
        ("0 12 1 JAN,jul *", &["Fri 01 Jan 12:00", "Thu 01 Jul 12:00"]),
        ("@hourly", &["Sun 15 Nov 07:00", "Sun 15 Nov 08:00"]),
        ("@daily", &["Mon 16 Nov 00:00"]),
        ("@weekly", &["Sun 22 Nov 00:00"]),
        ("@yearly", &["Fri 01 Jan 00:00"]),
    ];
    for (text, expected) in cases {
        assert_eq!(series(text, "2026-11-15T06:50:21Z", expected.len()), expected, "{text}");
    }
    let leap = cron("0 0 29 2 *").next_after(at("2096-03-01T00:00:00Z"), &TimeZone::UTC).unwrap();
    assert_eq!(leap, at("2104-02-29T00:00:00Z"));
}

#[test]
fn nonsense_is_refused_and_says_where() {
    for (text, part) in [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("* * * * * *", "has 6 fields"),
        ("60 * * * *", "`60` is not a minute of cron, which has numbers from 0 to 59"),
        ("* 24 * * *", "`24` is not a hour"),
        ("* * 0 * *", "`0` is not a day of month"),
        ("* * * 13 *", "`13` is not a month"),
        ("* * * * 8", "`8` is not a day of week"),
        ("* * * * mon-", "`mon-` is not a day of week"),
        ("30-10 * * * *", "`30-10` is not a minute"),
        ("*/0 * * * *", "`*/0` is not a minute"),
        ("1,,2 * * * *", "`1,,2` is not a minute"),
        ("-1 * * * *", "`-1` is not a minute"),
        ("+1 * * * *", "`+1` is not a minute"),
        ("1/2/3 * * * *", "`1/2/3` is not a minute"),
        ("999 * * * *", "`999` is not a minute"),
        ("* * * foo *", "`foo` is not a month"),
        ("@reboot", "`@reboot` is none of"),
        ("0 0 30 2 *", "`0 0 30 2 *` never comes"),
    ] {
        let error = text.parse::<Cron>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// What a time zone's rule looks like without a table of zones.
const ZONES: [&str; 4] =
    ["UTC0", "CET-1CEST,M3.5.0,M10.5.0/3", "EST5EDT,M3.2.0,M11.1.0", "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0"];

fn zone(rule: &str) -> TimeZone {
    TimeZone::posix(rule).unwrap()
}

#[test]
fn a_skipped_time_comes_at_the_jump_and_a_repeated_one_twice() {
    let berlin = zone(ZONES[1]);
    let half_past_two = cron("30 2 * * *");
    let next = |after: &str| half_past_two.next_after(at(after), &berlin).unwrap();
    assert_eq!(next("2026-03-28T12:00:00Z"), at("2026-03-29T01:00:00Z"), "at three o'clock, which is two");
    assert_eq!(next("2026-03-29T01:00:00Z"), at("2026-03-30T00:30:00Z"));
    assert_eq!(next("2026-10-24T12:00:00Z"), at("2026-10-25T00:30:00Z"));
    assert_eq!(next("2026-10-25T00:30:00Z"), at("2026-10-25T01:30:00Z"));
    assert_eq!(next("2026-10-25T01:30:00Z"), at("2026-10-26T01:30:00Z"));
}

/// The same by looking at every minute.
fn brute_force(cron: &Cron, after: Timestamp, zone: &TimeZone, minutes: i64) -> Option<Timestamp> {
    let fits = |shown: DateTime| {
        cron.has_day(shown.date()) && has(cron.hours, shown.hour()) && has(cron.minutes, shown.minute())
    };
    let minute = SignedDuration::from_mins(1);
    let whole = Timestamp::from_second(after.as_second().div_euclid(60) * 60).unwrap();
    let mut shown = zone.to_datetime(whole);
    for number in 1..=minutes {
        let moment = whole + minute * i32::try_from(number).unwrap();
        let now = zone.to_datetime(moment);
        // Minutes that the clock jumped over count at the jump.
        let mut skipped = shown.checked_add(minute).unwrap();
        while skipped < now {
            if fits(skipped) {
                return Some(moment);
            }
            skipped = skipped.checked_add(minute).unwrap();
        }
        if fits(now) {
            return Some(moment);
        }
        shown = now;
    }
    None
}

fn field(low: u8, high: u8) -> impl Strategy<Value = String> {
    let number = low..=high;
    let range = (low..=high, low..=high).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let part = prop_oneof![
        3 => number.prop_map(|number| number.to_string()),
        1 => range.clone(),
        1 => (range, 1..=high).prop_map(|(range, step)| format!("{range}/{step}")),
        1 => (1..=high).prop_map(|step| format!("*/{step}")),
    ];
    prop_oneof![
        3 => Just("*".to_owned()),
        4 => proptest::collection::vec(part, 1..4).prop_map(|parts| parts.join(",")),
    ]
}

/// Anywhere in some years, and often near a day on which some clock is changed.
fn moments() -> impl Strategy<Value = Timestamp> {
    let changes = ["2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"];
    let near = (select(changes.to_vec()), -90_000i64..90_000).prop_map(|(day, seconds)| {
        let day: Date = day.parse().unwrap();
        day.at(2, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap().timestamp() + SignedDuration::from_secs(seconds)
    });
    prop_oneof![near, (1_700_000_000i64..1_900_000_000).prop_map(|second| Timestamp::from_second(second).unwrap())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn it_finds_what_looking_at_every_minute_finds(
        fields in (field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)),
        after in moments(),
        rule in select(ZONES.to_vec()),
    ) {
        const MINUTES: i64 = 8 * 24 * 60;
        let text = format!("{} {} {} {} {}", fields.0, fields.1, fields.2, fields.3, fields.4);
        let Ok(cron) = text.parse::<Cron>() else {
            // The only thing that a well-formed one can be refused for.
            prop_assert!(matches!(text.parse::<Cron>(), Err(CronError::Never(_))), "{text}");
            return Ok(());
        };
        let zone = zone(rule);
        let found = cron.next_after(after, &zone);
        match brute_force(&cron, after, &zone, MINUTES) {
            Some(expected) => prop_assert_eq!(found, Some(expected), "{} after {} in {}", text, after, rule),
            None => {
                let end = after + SignedDuration::from_mins(MINUTES - 1);
                prop_assert!(found.is_none_or(|found| found > end), "{} after {} in {}: {:?}", text, after, rule, found);
            }
        }
    }

    #[test]
    fn whatever_is_typed_is_read_or_refused(text in "[ -~]{0,30}") {
        drop(text.parse::<Cron>());
    }
}
