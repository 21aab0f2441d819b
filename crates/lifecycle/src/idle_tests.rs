//! What a verdict may never be, tried on random lives.

use proptest::prelude::*;
use roost_model::Span;

use super::*;

const AFTER: Duration = Duration::from_secs(15);

fn policy() -> IdlePolicy {
    IdlePolicy::default()
}

/// A sandbox with nothing going on since `start`, read at every step.
fn quiet_window(start: Instant, until: Instant) -> Window {
    let mut window = Window::from(start, Counters::default());
    let mut at = start;
    while at < until {
        at += step_of(AFTER);
        window.push(at.min(until), Counters::default(), AFTER);
    }
    window
}

fn sight(window: &Window, touched: Instant) -> Sight<'_> {
    Sight { raised: &[], touched, window, holds: &[], next_alarm: None, outbound: Some(&[]) }
}

#[test]
fn it_sleeps_after_the_quiet_time_and_not_before() {
    let start = Instant::now();
    for (seconds, sleeps) in [(0, false), (14, false), (15, true), (40, true)] {
        let now = start + Duration::from_secs(seconds);
        let window = quiet_window(start, now);
        let verdict = verdict(&policy(), &sight(&window, start), now);
        assert_eq!(matches!(verdict, Verdict::Sleep { level: Level::Ram, .. }), sleeps, "{seconds} s: {verdict:?}");
    }
}

#[test]
fn never_means_never_and_nobody_looks() {
    let (start, never) = (Instant::now(), IdlePolicy { after: Span::NEVER, ..policy() });
    let now = start + Duration::from_secs(9999);
    let window = quiet_window(start, now);
    let expected = Verdict::Awake { because: Vec::new(), look_again: None };
    assert_eq!(verdict(&never, &sight(&window, start), now), expected);
}

#[test]
fn a_client_keeps_it_awake_and_nobody_looks() {
    let start = Instant::now();
    let now = start + AFTER * 2;
    let window = quiet_window(start, now);
    let seen = Sight { raised: &[Signal::Execs], ..sight(&window, start) };
    let expected = Verdict::Awake { because: vec![Reason::Served(Signal::Execs)], look_again: None };
    assert_eq!(verdict(&policy(), &seen, now), expected);
}

#[test]
fn work_counts_over_the_window_and_one_short_burst_does_not() {
    let start = Instant::now();
    let now = start + AFTER;
    // 1 % of 15 s.
    for (cpu_us, busy) in [(150_000, false), (180_000, true)] {
        let mut window = Window::from(start, Counters::default());
        window.push(now, Counters { cpu_us, ..Counters::default() }, AFTER);
        let verdict = verdict(&policy(), &sight(&window, start), now);
        let awake = matches!(&verdict, Verdict::Awake { because, .. } if matches!(because[..], [Reason::Cpu(_)]));
        assert_eq!(awake, busy, "{verdict:?}");
    }
    let mut window = Window::from(start, Counters::default());
    window.push(now, Counters { disk: 1 << 20, network: 1 << 20, cpu_us: 0 }, AFTER);
    let Verdict::Awake { because, .. } = verdict(&policy(), &sight(&window, start), now) else { panic!() };
    assert!(matches!(because[..], [Reason::Disk(_), Reason::Network(_)]), "{because:?}");
}

#[test]
fn work_before_the_last_request_does_not_delay_its_sleep() {
    let start = Instant::now();
    let worked = Counters { cpu_us: 20_000_000, ..Counters::default() };
    let mut window = Window::from(start, Counters::default());
    let touched = start + Duration::from_secs(10);
    for step in 1..=8 {
        let at = start + step_of(AFTER) * step;
        window.push(at, if at > touched { worked } else { Counters::default() }, AFTER);
    }
    let now = touched + AFTER;
    window.push(now, worked, AFTER);
    assert!(matches!(verdict(&policy(), &sight(&window, touched), now), Verdict::Sleep { .. }));
}

#[test]
fn an_answer_that_is_owed_keeps_it_awake_and_an_idle_connection_does_not() {
    let talk = |said, heard, connecting| Conversation {
        peer: "192.0.2.7:443".to_owned(),
        said: Duration::from_secs(said),
        heard: Duration::from_secs(heard),
        connecting,
        owed: said < heard,
    };
    assert!(talk(40, 41, false).goes_on(AFTER), "our word was the last");
    assert!(talk(599, 700, false).goes_on(AFTER));
    assert!(!talk(601, 700, false).goes_on(AFTER), "no answer will come any more");
    assert!(!talk(40, 39, false).goes_on(AFTER), "it was answered");
    assert!(talk(40, 3, false).goes_on(AFTER), "the answer comes in pieces");
    assert!(talk(20, 20, true).goes_on(AFTER));

    let start = Instant::now();
    let now = start + AFTER;
    let window = quiet_window(start, now);
    let unasked = Sight { outbound: None, ..sight(&window, start) };
    assert_eq!(verdict(&policy(), &unasked, now), Verdict::AskGuest);
    let talks = [talk(40, 41, false), talk(90, 80, false)];
    let asked = Sight { outbound: Some(&talks), ..sight(&window, start) };
    let Verdict::Awake { because, look_again } = verdict(&policy(), &asked, now) else { panic!() };
    assert_eq!(because, [Reason::Outbound(talks[0].clone())]);
    assert_eq!(look_again, Some(now + step_of(AFTER)));
    let ignoring = IdlePolicy { ignore: vec![Signal::Outbound], ..policy() };
    assert!(matches!(verdict(&ignoring, &asked, now), Verdict::Sleep { .. }));
}

#[test]
fn holds_and_alarms_are_waited_for() {
    let start = Instant::now();
    let now = start + AFTER;
    let window = quiet_window(start, now);
    let ends = [now + Duration::from_secs(60), now + Duration::from_secs(90)];
    let held = Sight { holds: &ends, ..sight(&window, start) };
    let expected = Verdict::Awake { because: vec![Reason::Held], look_again: Some(ends[1]) };
    assert_eq!(verdict(&policy(), &held, now), expected);
    let over = Sight { holds: &[now], ..sight(&window, start) };
    assert!(matches!(verdict(&policy(), &over, now), Verdict::Sleep { .. }));
    for (seconds, awake) in [(3, true), (60, false)] {
        let alarm = Sight { next_alarm: Some(Duration::from_secs(seconds)), ..sight(&window, start) };
        assert_eq!(matches!(verdict(&policy(), &alarm, now), Verdict::Awake { .. }), awake);
    }
}

/// Something that goes on in a sandbox for a second.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Nothing,
    Serving,
    Computing,
    Loading,
    Waiting,
}

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        4 => Just(Doing::Nothing),
        1 => Just(Doing::Serving),
        1 => Just(Doing::Computing),
        1 => Just(Doing::Loading),
        1 => Just(Doing::Waiting),
    ]
}

fn signal_of(doing: Doing) -> Option<Signal> {
    match doing {
        Doing::Nothing => None,
        Doing::Serving => Some(Signal::Connections),
        Doing::Computing => Some(Signal::Cpu),
        Doing::Loading => Some(Signal::Network),
        Doing::Waiting => Some(Signal::Outbound),
    }
}

/// Lives second by second as the actor would have it; returns when it fell asleep and how often it was looked at.
fn live(policy: &IdlePolicy, life: &[Doing], rest: usize) -> (Option<usize>, usize) {
    let start = Instant::now();
    let after = policy.after.get().unwrap_or(AFTER);
    let mut window = Window::from(start, Counters::default());
    let (mut counters, mut touched, mut look_at, mut looks) = (Counters::default(), start, Some(start), 0);
    let (mut said, mut heard) = (start, start);
    for second in 0..life.len() + rest {
        let now = start + Duration::from_secs(second as u64);
        let doing = life.get(second).copied().unwrap_or(Doing::Nothing);
        let mut raised = Vec::new();
        // The actor is told when the client has left.
        if second > 0 && matches!(life.get(second - 1), Some(Doing::Serving)) && !matches!(doing, Doing::Serving) {
            look_at = Some(now);
        }
        match doing {
            Doing::Nothing => heard = heard.max(said),
            Doing::Serving => {
                raised.push(Signal::Connections);
                if !policy.ignore.contains(&Signal::Connections) {
                    touched = now;
                }
            }
            Doing::Computing => counters.cpu_us += 1_000_000,
            Doing::Loading => counters.network += 1_000_000,
            Doing::Waiting => said = now,
        }
        while look_at.is_some_and(|at| at <= now) {
            looks += 1;
            window.push(now, counters, after);
            let waits = matches!(doing, Doing::Waiting);
            let ago = |moment: Instant| now.saturating_duration_since(moment);
            let talk = Conversation {
                peer: String::new(),
                said: ago(said),
                heard: if waits { ago(said) + after } else { ago(heard) },
                connecting: false,
                owed: waits,
            };
            let talks = [talk];
            let sight = Sight {
                raised: &raised,
                touched,
                window: &window,
                holds: &[],
                next_alarm: None,
                outbound: Some(&talks),
            };
            match verdict(policy, &sight, now) {
                Verdict::Sleep { .. } => return (Some(second), looks),
                Verdict::Awake { look_again, .. } => look_at = look_again,
                Verdict::AskGuest => unreachable!("it was asked"),
            }
        }
    }
    (None, looks)
}

proptest! {
    #[test]
    fn it_never_sleeps_while_a_signal_counts_and_always_in_the_end(
        life in proptest::collection::vec(doing(), 0..120),
        ignore in proptest::sample::subsequence(Signal::ALL.to_vec(), 0..=8),
        seconds in 1u64..40,
    ) {
        let policy = IdlePolicy { after: Span::seconds(seconds), ignore: ignore.clone(), ..policy() };
        let (slept, looks) = live(&policy, &life, 200);
        let slept = slept.expect("it sleeps in the end");
        let counts = |doing: Doing| signal_of(doing).is_some_and(|signal| !ignore.contains(&signal));
        if let Some(doing) = life.get(slept) {
            prop_assert!(!counts(*doing), "slept during {doing:?}");
        }
        // Nothing that counts for the whole quiet time before: a second of it at most may be lost between two looks.
        let window = usize::try_from(seconds).unwrap();
        let busy = (slept.saturating_sub(window / 2)..slept)
            .filter(|second| life.get(*second).is_some_and(|doing| counts(*doing) && !matches!(doing, Doing::Waiting)))
            .count();
        prop_assert!(busy <= 1 + window / 4, "{busy} s of work in the last half of {window} s");
        // It is not delayed for ever either.
        let last = life.iter().rposition(|doing| counts(*doing)).map_or(0, |last| last + 1);
        prop_assert!(slept <= last + 2 * window + 12, "slept at {slept}, last counted at {last}");
        // Looks are a step apart, and one more for every client that left.
        let clients = life.iter().filter(|doing| matches!(doing, Doing::Serving)).count();
        let steps = Duration::from_secs(slept as u64).as_millis() / step_of(Duration::from_secs(seconds)).as_millis();
        prop_assert!(looks as u128 <= steps + 2 * clients as u128 + 2, "{looks} looks in {slept} s");
    }
}
