//! The thread that does what the plan says.

use std::sync::Arc;

use roost_wire::{ErrorCode, ExecStart, Exit, Failure, Service, SignalTarget};
use rustix::event::{PollFd, PollFlags, poll};

use super::plan::Act;
use super::{Inner, Run};
use crate::exec::attach::Attachment;
use crate::exec::now_ms;
use crate::exec::pump::timespec;
use crate::exec::start::start_into;
use crate::guest::Guest;
use crate::wake::Wake;

const SIGNAL_KILL: i32 = 9;
const SIGNAL_TERM: i32 = 15;

/// Sees to the services until there are none.
pub(super) fn supervise(guest: &Arc<Guest>, bell: &Arc<Wake>) {
    let services = &guest.services;
    loop {
        bell.clear();
        let mut inner = services.lock();
        inner.note_ends(guest);
        let now = inner.now();
        if inner.plan.watches_ports(now) {
            inner.look_at_ports(guest);
        }
        let act = inner.plan.next(now);
        services.changed.notify_all();
        let Some(act) = act else {
            if inner.plan.is_empty() {
                // Under the lock: whoever brings a service next brings a thread too.
                inner.bell = None;
                return;
            }
            let until = inner.plan.deadline(now);
            let timeout = until.map(|until| timespec(inner.awake.slice(until.saturating_sub(now.awake))));
            drop(inner);
            // Interrupted or not, everything is looked at again.
            poll(&mut [PollFd::new(&**bell, PollFlags::IN)], timeout.as_ref()).ok();
            continue;
        };
        match act {
            Act::Start(service) => {
                let log = inner.log_of(guest, &service.name);
                drop(inner);
                // Without the lock: a program on a slow disk must not hold up those who ask.
                let started = log.and_then(|log| {
                    let exec = start_into(guest, &request(&service), log)?;
                    let ends = Attachment::ringing(&exec, bell.clone());
                    Ok(Run { exec, _ends: ends })
                });
                services.lock().note_start(&service.name, started);
            }
            Act::Terminate(name) => inner.signal(guest, &name, SIGNAL_TERM),
            Act::Kill(name) => inner.signal(guest, &name, SIGNAL_KILL),
            Act::Forget(name) => {
                // Opened if need be: what it wrote in an earlier life goes too.
                if let Ok(log) = inner.log_of(guest, &name) {
                    inner.logs.remove(&name);
                    log.end_log();
                }
            }
        }
    }
}

impl Inner {
    fn note_start(&mut self, name: &str, started: Result<Run, Failure>) {
        let now = self.now();
        match started {
            Ok(run) => {
                self.runs.insert(name.to_owned(), run);
                self.plan.started(name);
            }
            Err(failure) => {
                // The codes by which a shell tells the same.
                let code = match failure.code {
                    ErrorCode::CommandNotFound => 127,
                    ErrorCode::NotExecutable => 126,
                    _ => 125,
                };
                let exit = Exit { code: Some(code), at_ms: now_ms(), ..Exit::default() };
                self.plan.not_started(name, exit, failure.message, now);
            }
        }
    }

    /// Takes note of processes that have ended, and ends what they left behind: it would be in the way of the next.
    fn note_ends(&mut self, guest: &Guest) {
        let ended = |(name, run): (&String, &Run)| run.exec.info().exit().map(|exit| (name.clone(), exit));
        let ended: Vec<(String, Exit)> = self.runs.iter().filter_map(ended).collect();
        for (name, exit) in ended {
            self.signal(guest, &name, SIGNAL_KILL);
            self.runs.remove(&name);
            let now = self.now();
            self.plan.ended(&name, exit, now);
        }
    }

    fn signal(&self, guest: &Guest, name: &str, signal: i32) {
        let Some(run) = self.runs.get(name) else { return };
        if let Err(failure) = guest.execs.signal(&run.exec, signal, SignalTarget::Session) {
            eprintln!("roost-guest: service `{name}`: {}", failure.message);
        }
    }
}

fn request(service: &Service) -> ExecStart {
    let mut start = ExecStart::new(format!("service-{}", service.name), service.program.clone());
    start.env.clone_from(&service.env);
    start.cwd.clone_from(&service.cwd);
    start.user.clone_from(&service.user);
    start
}
