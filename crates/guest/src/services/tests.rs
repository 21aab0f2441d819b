//! The plan, without a process: what is done, in which order, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use roost_wire::{ErrorCode, Exit, Program, Restart, Service, ServiceLimits, ServiceSet, ServiceState};

use super::entry::Now;
use super::plan::{Act, Plan};

fn at(ms: u64) -> Now {
    Now { awake: Duration::from_millis(ms), wall_ms: ms }
}

fn service(name: &str, needs: &[&str]) -> Service {
    Service {
        name: name.to_owned(),
        program: Program::Shell("serve".to_owned()),
        env: BTreeMap::new(),
        cwd: None,
        user: None,
        port: None,
        needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        restart: Restart::Always,
        on_demand: false,
        stopped: false,
        stop_timeout_ms: 10_000,
    }
}

/// A plan that is told of sets one after the other.
struct Bench {
    plan: Plan,
    revision: u64,
}

impl Bench {
    fn new(services: Vec<Service>) -> Self {
        let mut bench = Self { plan: Plan::new(ServiceLimits::default()), revision: 0 };
        bench.set(services, 0);
        bench
    }

    fn set(&mut self, services: Vec<Service>, ms: u64) {
        self.revision += 1;
        assert!(self.plan.set(ServiceSet { revision: self.revision, services }, at(ms)).unwrap());
    }

    /// Everything to do at a moment, in short words.
    fn acts(&mut self, ms: u64) -> Vec<String> {
        let mut acts = Vec::new();
        while let Some(act) = self.plan.next(at(ms)) {
            acts.push(match act {
                Act::Start(service) => {
                    self.plan.started(&service.name);
                    format!("start {}", service.name)
                }
                Act::Terminate(name) => format!("term {name}"),
                Act::Kill(name) => format!("kill {name}"),
                Act::Forget(name) => format!("forget {name}"),
            });
            assert!(acts.len() < 1000, "{acts:?}");
        }
        acts
    }

    fn ends(&mut self, name: &str, code: i32, ms: u64) {
        self.plan.ended(name, Exit { code: Some(code), ..Exit::default() }, at(ms));
    }

    fn state(&self, name: &str) -> ServiceState {
        self.plan.state(name).unwrap().0
    }

    fn reason(&self, name: &str) -> String {
        self.plan.state(name).unwrap().1.unwrap_or_default()
    }
}

#[test]
fn needs_come_first_and_have_to_listen() {
    let db = Service { port: Some(5432), ..service("db", &[]) };
    let mut bench = Bench::new(vec![service("app", &["db"]), db, service("zoo", &["app"])]);
    assert_eq!(bench.acts(0), ["start db"]);
    assert_eq!((bench.state("db"), bench.state("app")), (ServiceState::Starting, ServiceState::Starting));
    assert_eq!(bench.reason("app"), "waits for service `db`");
    assert!(bench.plan.watches_ports(at(0)));
    bench.plan.see_ports(&BTreeSet::from([80]), at(5));
    assert!(bench.acts(5).is_empty());
    bench.plan.see_ports(&BTreeSet::from([5432]), at(6));
    assert_eq!(bench.acts(6), ["start app", "start zoo"]);
    assert_eq!(bench.state("db"), ServiceState::Running);
    assert_eq!((bench.plan.watches_ports(at(6)), bench.plan.deadline(at(6))), (false, None));
}

#[test]
fn what_is_only_being_started_is_not_up() {
    let mut bench = Bench::new(vec![service("db", &[]), service("web", &["db"])]);
    assert!(matches!(bench.plan.next(at(0)), Some(Act::Start(_))));
    assert_eq!((bench.plan.next(at(0)), bench.state("db")), (None, ServiceState::Starting));
    bench.plan.not_started("db", Exit { code: Some(127), ..Exit::default() }, "no such command".to_owned(), at(0));
    assert_eq!((bench.state("db"), bench.reason("db")), (ServiceState::Backoff, "no such command".to_owned()));
    assert_eq!(bench.acts(1000), ["start db", "start web"]);
}

#[test]
fn a_port_is_looked_for_ever_more_rarely_and_not_for_ever() {
    let mut bench = Bench::new(vec![Service { port: Some(80), ..service("web", &[]) }]);
    bench.acts(0);
    let next = |bench: &Bench, ms: u64| bench.plan.deadline(at(ms)).map(|time| time.as_millis() as u64 - ms);
    assert_eq!((next(&bench, 0), next(&bench, 400), next(&bench, 20_000)), (Some(10), Some(50), Some(1000)));
    assert_eq!((next(&bench, 60_000), bench.plan.watches_ports(at(60_000))), (None, false));
    // Somebody asks for it; somebody else needs it.
    bench.plan.start("web", false, true, at(70_000)).unwrap();
    assert_eq!(next(&bench, 70_000), Some(10));
    bench.set(vec![Service { port: Some(80), ..service("web", &[]) }, service("app", &["web"])], 70_000);
    assert_eq!(next(&bench, 999_000), Some(1000));
}

#[test]
fn crashes_are_followed_by_longer_and_longer_pauses() {
    let mut bench = Bench::new(vec![service("web", &[])]);
    assert_eq!(bench.acts(0), ["start web"]);
    let mut now = 0;
    for (number, pause) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
        now += 100;
        bench.ends("web", 1, now);
        assert_eq!(bench.state("web"), ServiceState::Backoff);
        assert_eq!(bench.reason("web"), format!("ended with code 1; starts again after {pause} s"));
        assert_eq!(bench.plan.deadline(at(now)), Some(Duration::from_millis(now + pause * 1000)));
        assert!(bench.acts(now + pause * 1000 - 1).is_empty());
        now += pause * 1000;
        assert_eq!(bench.acts(now), ["start web"]);
        assert_eq!(bench.plan.get("web").unwrap().restarts, number as u64 + 1);
    }
    // Health lets it begin anew.
    now += 30_000;
    bench.ends("web", 1, now);
    assert_eq!(bench.plan.deadline(at(now)), Some(Duration::from_millis(now + 1000)));
    // So does a person.
    bench.plan.start("web", false, false, at(now)).unwrap();
    assert_eq!(bench.acts(now), ["start web"]);
}

#[test]
fn the_policy_says_what_follows_an_end() {
    for (restart, code, state) in [
        (Restart::Always, 0, ServiceState::Backoff),
        (Restart::OnFailure, 0, ServiceState::Stopped),
        (Restart::OnFailure, 3, ServiceState::Backoff),
        (Restart::Never, 0, ServiceState::Stopped),
        (Restart::Never, 3, ServiceState::Failed),
    ] {
        let mut bench = Bench::new(vec![Service { restart, ..service("job", &[]) }, service("app", &["job"])]);
        assert_eq!(bench.acts(0), ["start job", "start app"]);
        bench.ends("job", code, 10);
        assert_eq!(bench.state("job"), state, "{restart:?} {code}");
    }
    // What is done with its work is as good as up.
    let job = Service { restart: Restart::Never, port: Some(1), ..service("job", &[]) };
    let mut bench = Bench::new(vec![job, service("app", &["job"])]);
    assert_eq!(bench.acts(0), ["start job"]);
    bench.ends("job", 0, 10);
    assert_eq!(bench.acts(10), ["start app"]);
}

#[test]
fn a_stop_sticks_and_a_service_that_does_not_end_is_killed() {
    let mut bench = Bench::new(vec![service("web", &[])]);
    bench.acts(0);
    let stopped = Service { stopped: true, ..service("web", &[]) };
    bench.set(vec![stopped.clone()], 100);
    assert_eq!(bench.acts(100), ["term web"]);
    assert_eq!(bench.plan.deadline(at(100)), Some(Duration::from_millis(10_100)));
    assert!(bench.acts(10_099).is_empty());
    assert_eq!(bench.acts(10_100), ["kill web"]);
    assert_eq!(bench.plan.deadline(at(10_100)), None);
    bench.ends("web", 137, 10_200);
    assert_eq!((bench.acts(10_200), bench.state("web")), (vec![], ServiceState::Stopped));
    for demand in [false, true] {
        assert_eq!(bench.plan.start("web", false, demand, at(1)).unwrap_err().code, ErrorCode::Conflict);
    }
    bench.set(vec![stopped, service("other", &["web"])], 20_000);
    // Neither does one that needs it start it, nor does that one start without it.
    assert!(bench.acts(20_000).is_empty());
    bench.set(vec![service("web", &[]), service("other", &["web"])], 30_000);
    assert_eq!(bench.acts(30_000), ["start web", "start other"]);
}

#[test]
fn a_stop_ends_a_pause_and_a_failure() {
    let never = Service { restart: Restart::Never, ..service("never", &[]) };
    let mut bench = Bench::new(vec![service("web", &[]), never.clone()]);
    bench.acts(0);
    bench.ends("web", 1, 1);
    bench.ends("never", 1, 1);
    bench.set(vec![Service { stopped: true, ..service("web", &[]) }, Service { stopped: true, ..never }], 2);
    assert!(bench.acts(100_000).is_empty());
    assert_eq!((bench.state("web"), bench.state("never")), (ServiceState::Stopped, ServiceState::Stopped));
}

#[test]
fn demand_reaches_what_is_needed_and_waits_out_a_pause() {
    let lazy = |name, needs: &[&str]| Service { on_demand: true, ..service(name, needs) };
    let mut bench = Bench::new(vec![lazy("db", &[]), lazy("web", &["db"]), lazy("other", &[])]);
    assert!(bench.acts(0).is_empty());
    assert_eq!(bench.state("web"), ServiceState::Stopped);
    bench.plan.start("web", false, true, at(1)).unwrap();
    assert_eq!(bench.acts(1), ["start db", "start web"]);
    bench.ends("web", 1, 10);
    bench.plan.start("web", false, true, at(20)).unwrap();
    assert!(bench.acts(20).is_empty());
    assert_eq!(bench.acts(1010), ["start web"]);
    assert_eq!(bench.plan.start("nope", false, true, at(1)).unwrap_err().code, ErrorCode::ServiceNotFound);
}

#[test]
fn only_what_matters_to_the_process_replaces_it() {
    let mut bench = Bench::new(vec![service("web", &[])]);
    bench.acts(0);
    bench.set(vec![Service { restart: Restart::Never, stop_timeout_ms: 1, ..service("web", &[]) }], 1);
    assert!(bench.acts(1).is_empty());
    bench.set(vec![Service { program: Program::Shell("other".into()), ..service("web", &[]) }], 2);
    assert_eq!(bench.acts(2), ["term web"]);
    assert_eq!(bench.state("web"), ServiceState::Starting);
    bench.ends("web", 0, 3);
    assert_eq!(bench.acts(3), ["start web"]);
    assert_eq!(bench.plan.get("web").unwrap().restarts, 0);
    // And the wish to have it anew does so too.
    bench.plan.start("web", true, false, at(4)).unwrap();
    assert_eq!(bench.acts(4), ["term web"]);
    bench.ends("web", 0, 5);
    assert_eq!(bench.acts(5), ["start web"]);
}

#[test]
fn what_is_removed_ends_first_and_can_come_back() {
    let mut bench = Bench::new(vec![service("web", &[]), service("db", &[])]);
    bench.acts(0);
    bench.set(vec![service("db", &[])], 1);
    assert_eq!(bench.acts(1), ["term web"]);
    assert!(bench.plan.find("web").is_err() && bench.plan.get("web").is_some());
    bench.set(vec![service("db", &[]), service("web", &[])], 2);
    assert!(bench.acts(2).is_empty());
    bench.ends("web", 0, 3);
    assert_eq!(bench.acts(3), ["start web"]);
    bench.set(vec![], 4);
    assert_eq!(bench.acts(4), ["term db", "term web"]);
    bench.ends("web", 0, 5);
    bench.ends("db", 0, 5);
    assert_eq!(bench.acts(5), ["forget db", "forget web"]);
    assert!(bench.plan.is_empty());
}

#[test]
fn an_old_set_changes_nothing_and_odd_names_are_refused() {
    let mut plan = Plan::new(ServiceLimits::default());
    let set = |revision, services| ServiceSet { revision, services };
    assert!(!plan.set(set(0, vec![]), at(0)).unwrap());
    assert!(plan.set(set(2, vec![service("web", &[])]), at(0)).unwrap());
    for revision in [0, 1, 2] {
        assert!(!plan.set(set(revision, vec![]), at(0)).unwrap());
    }
    for name in ["", "../etc", "A", "a/b", "a b"] {
        assert_eq!(plan.set(set(3, vec![service(name, &[])]), at(0)).unwrap_err().code, ErrorCode::BadRequest);
    }
    assert!(plan.set(set(3, vec![service("a", &[]), service("a", &[])]), at(0)).is_err());
    assert_eq!(plan.names(), ["web"]);
}

#[test]
fn at_the_end_each_stops_after_those_that_need_it() {
    let mut bench = Bench::new(vec![service("a", &[]), service("b", &["a"]), service("c", &["b"]), service("d", &[])]);
    assert_eq!(bench.acts(0), ["start a", "start b", "start c", "start d"]);
    bench.plan.close();
    assert_eq!(bench.acts(1), ["term c", "term d"]);
    bench.ends("d", 0, 2);
    bench.ends("c", 1, 2);
    assert_eq!(bench.acts(2), ["term b"]);
    bench.ends("b", 0, 3);
    assert_eq!(bench.acts(3), ["term a"]);
    assert!(!bench.plan.all_down());
    bench.ends("a", 0, 4);
    assert!(bench.plan.all_down() && bench.acts(100_000).is_empty());
    assert!(bench.plan.start("a", false, true, at(5)).is_err());
    assert!(!bench.plan.set(ServiceSet { revision: 99, services: vec![] }, at(5)).unwrap());
}

#[derive(Debug, Clone)]
enum Step {
    Set(u8, u8),
    End(usize, i32),
    Start(usize, bool, bool),
    Ports(u8),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (any::<u8>(), any::<u8>()).prop_map(|(there, stopped)| Step::Set(there, stopped)),
        4 => (0usize..4, 0i32..2).prop_map(|(which, code)| Step::End(which, code)),
        2 => (0usize..4, any::<bool>(), any::<bool>()).prop_map(|(which, again, demand)| Step::Start(which, again, demand)),
        2 => any::<u8>().prop_map(Step::Ports),
        3 => (1u64..70_000).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Whatever happens: one process at most for each, none for what is stopped, needs before those that need them,
    /// and never a moment without either an act, a deadline or a settled state.
    #[test]
    fn the_plan_keeps_its_promises(steps in proptest::collection::vec(step(), 1..80)) {
        let all = ["a", "b", "c", "d"];
        let define = |there: u8, stopped: u8| -> Vec<Service> {
            (0..4usize).filter(|number| there & (1 << number) != 0).map(|number| Service {
                port: (number % 2 == 1).then_some(1000 + number as u16),
                on_demand: number == 2,
                restart: [Restart::Always, Restart::OnFailure, Restart::Never, Restart::Always][number],
                stopped: stopped & (1 << number) != 0,
                needs: all.iter().take(number).enumerate().filter(|(need, _)| there & (1 << need) != 0)
                    .map(|(_, name)| (*name).to_owned()).collect(),
                ..service(all[number], &[])
            }).collect()
        };
        let mut bench = Bench::new(define(15, 0));
        let mut now = 0;
        let mut alive: BTreeSet<String> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Set(there, stopped) => bench.set(define(there, stopped), now),
                Step::End(which, code) => {
                    if alive.remove(all[which]) {
                        bench.ends(all[which], code, now);
                    }
                }
                Step::Start(which, again, demand) => drop(bench.plan.start(all[which], again, demand, at(now))),
                Step::Ports(open) => {
                    let open = (0..4u16).filter(|number| open & (1 << number) != 0).map(|number| 1000 + number).collect();
                    bench.plan.see_ports(&open, at(now));
                }
                Step::Pass(ms) => now += ms,
            }
            let mut count = 0;
            while let Some(act) = bench.plan.next(at(now)) {
                count += 1;
                prop_assert!(count < 100, "no rest");
                match act {
                    Act::Start(service) => {
                        prop_assert!(alive.insert(service.name.clone()), "two of {}", service.name);
                        prop_assert!(!service.stopped);
                        bench.plan.started(&service.name);
                        for need in &service.needs {
                            let state = bench.state(need);
                            prop_assert!(matches!(state, ServiceState::Running | ServiceState::Stopped), "{need} {state:?}");
                        }
                    }
                    Act::Terminate(name) | Act::Kill(name) => prop_assert!(alive.contains(&name)),
                    Act::Forget(name) => prop_assert!(!alive.contains(&name)),
                }
            }
            prop_assert!(bench.plan.deadline(at(now)).is_none_or(|time| time > at(now).awake));
            for name in bench.plan.names() {
                let entry = bench.plan.get(&name).unwrap();
                prop_assert_eq!(entry.has_process(), alive.contains(&name), "{}", name);
                let settled = !(entry.removed || entry.service.stopped) || !entry.wanted;
                prop_assert!(settled);
            }
        }
    }
}
