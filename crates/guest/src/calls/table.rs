//! Where each call stands; decides, and waits for nobody.

use std::collections::BTreeMap;
use std::sync::Arc;

use roost_wire::{Answer, AnswerFrame, Call, CallFrame, Outcome, Why};

use crate::wake::Wake;

/// Calls under way at once: enough for every honest program, few enough to hold no memory worth naming.
const MOST: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Table {
    calls: BTreeMap<u64, Entry>,
    next: u64,
    /// The host that listens, and how to tell it that there is something to hear.
    host: Option<(u64, Arc<Wake>)>,
    hosts: u64,
}

#[derive(Debug)]
struct Entry {
    call: Call,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Not sent yet.
    Waiting,
    /// The host has it.
    Sent,
    /// The host had it, and its connection is gone.
    Lost,
    Settled(Outcome),
}

impl Table {
    /// Takes a call in and rings for the host.
    pub(super) fn add(&mut self, call: Call) -> Result<u64, Outcome> {
        if self.calls.len() >= MOST {
            return Err(Outcome::refused("rate_limited", format!("{MOST} calls to the host are under way already")));
        }
        let id = self.next;
        self.next += 1;
        self.calls.insert(id, Entry { call, state: State::Waiting });
        if let Some((_, bell)) = &self.host {
            bell.ring();
        }
        Ok(id)
    }

    /// What came of a call; it leaves the table then.
    pub(super) fn take_settled(&mut self, id: u64) -> Option<Outcome> {
        if !matches!(self.calls.get(&id)?.state, State::Settled(_)) {
            return None;
        }
        match self.calls.remove(&id)?.state {
            State::Settled(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Whether nothing can become of a call before a host connects.
    pub(super) fn needs_host(&self, id: u64) -> bool {
        match self.calls.get(&id).map(|entry| &entry.state) {
            Some(State::Waiting) => self.host.is_none(),
            Some(State::Lost) => true,
            _ => false,
        }
    }

    pub(super) fn give_up(&mut self, id: u64) {
        self.calls.remove(&id);
    }

    /// A host listens from now on, in the place of any before it.
    pub(super) fn begin(&mut self, bell: Arc<Wake>) -> u64 {
        self.lose();
        for entry in self.calls.values_mut().filter(|entry| entry.state == State::Lost) {
            // Had it led into a sleep, the wake would have settled it before.
            entry.state = if entry.call.is_repeatable() {
                State::Waiting
            } else {
                State::Settled(Outcome::refused("internal", "the daemon was restarted in the middle of it: try again"))
            };
        }
        if let Some((_, before)) = &self.host {
            before.ring();
        }
        self.hosts += 1;
        self.host = Some((self.hosts, bell));
        self.hosts
    }

    /// A host has hung up.
    pub(super) fn end(&mut self, host: u64) {
        if self.listens(host) {
            self.host = None;
            self.lose();
        }
    }

    fn listens(&self, host: u64) -> bool {
        self.host.as_ref().is_some_and(|(number, _)| *number == host)
    }

    fn lose(&mut self) {
        for entry in self.calls.values_mut().filter(|entry| entry.state == State::Sent) {
            entry.state = State::Lost;
        }
    }

    /// Calls to send; none at all when another host has taken this one's place.
    pub(super) fn take_waiting(&mut self, host: u64) -> Option<Vec<CallFrame>> {
        if !self.listens(host) {
            return None;
        }
        let waiting = self.calls.iter_mut().filter(|(_, entry)| entry.state == State::Waiting);
        let take = |(id, entry): (&u64, &mut Entry)| {
            entry.state = State::Sent;
            CallFrame { id: *id, call: entry.call.clone() }
        };
        Some(waiting.map(take).collect())
    }

    /// The host has answered; an answer to nothing is dropped.
    pub(super) fn settle(&mut self, answer: AnswerFrame) {
        if let Some(entry) = self.calls.get_mut(&answer.id).filter(|entry| entry.state == State::Sent) {
            entry.state = State::Settled(answer.outcome);
        }
    }

    /// The same on another connection: the one that had the call is gone, whether that was noticed here or not.
    pub(super) fn settle_late(&mut self, answer: AnswerFrame) {
        let asked = |entry: &&mut Entry| matches!(entry.state, State::Sent | State::Lost);
        if let Some(entry) = self.calls.get_mut(&answer.id).filter(asked) {
            entry.state = State::Settled(answer.outcome);
        }
    }

    /// The sandbox goes on. What led into the moment it comes from is done.
    pub(super) fn resumed(&mut self, why: Why, from_image: bool) {
        for entry in self.calls.values_mut() {
            // Frozen in memory it keeps its connection, and the answer comes on that.
            let lost = entry.state == State::Lost || (from_image && entry.state == State::Sent);
            let text = match &entry.call {
                Call::Suspend(_) if lost => "awake again".to_owned(),
                Call::Checkpoint(_) if lost => format!("started from this checkpoint ({why})"),
                _ => continue,
            };
            let data = serde_json::json!({ "resumed": why.as_str() });
            entry.state = State::Settled(Outcome::Ok(Answer { text, data }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roost_wire::{AskCheckpoint, AskSuspend};

    fn bell() -> Arc<Wake> {
        Arc::new(Wake::new().unwrap())
    }

    fn done(text: &str) -> Outcome {
        Outcome::Ok(Answer { text: text.to_owned(), data: serde_json::Value::Null })
    }

    fn suspend() -> Call {
        Call::Suspend(AskSuspend::default())
    }

    #[test]
    fn a_call_is_sent_once_and_settled_once() {
        let mut table = Table::default();
        let id = table.add(Call::Info).unwrap();
        assert!(table.needs_host(id));
        let host = table.begin(bell());
        assert!(!table.needs_host(id));
        assert_eq!(table.take_waiting(host).unwrap(), [CallFrame { id, call: Call::Info }]);
        assert_eq!(table.take_waiting(host).unwrap(), []);
        assert_eq!(table.take_settled(id), None);
        table.settle(AnswerFrame { id: 99, outcome: done("stray") });
        table.settle(AnswerFrame { id, outcome: done("a") });
        table.settle(AnswerFrame { id, outcome: done("b") });
        assert_eq!(table.take_settled(id), Some(done("a")));
        assert!(table.calls.is_empty());
    }

    #[test]
    fn an_answer_finds_a_call_whose_host_is_gone() {
        for noticed in [false, true] {
            let mut table = Table::default();
            let (sleep, later) = (table.add(suspend()).unwrap(), table.add(Call::Info).unwrap());
            let first = table.begin(bell());
            assert_eq!(table.take_waiting(first).unwrap().len(), 2);
            if noticed {
                table.end(first);
            }
            table.settle_late(AnswerFrame { id: sleep, outcome: done("a") });
            table.settle_late(AnswerFrame { id: sleep, outcome: done("b") });
            table.settle_late(AnswerFrame { id: 99, outcome: done("stray") });
            let second = table.begin(bell());
            assert_eq!(table.take_waiting(second).unwrap(), [CallFrame { id: later, call: Call::Info }]);
            assert_eq!(table.take_settled(sleep), Some(done("a")), "noticed: {noticed}");
        }
    }

    #[test]
    fn a_lost_call_is_made_again_if_that_is_harmless() {
        let mut table = Table::default();
        let (info, sleep) = (table.add(Call::Info).unwrap(), table.add(suspend()).unwrap());
        let first = table.begin(bell());
        assert_eq!(table.take_waiting(first).unwrap().len(), 2);
        table.end(first);
        assert!(table.needs_host(info) && table.needs_host(sleep));
        let second = table.begin(bell());
        assert_eq!(table.take_waiting(first), None, "the first one's time is over");
        table.end(first);
        assert_eq!(table.take_waiting(second).unwrap(), [CallFrame { id: info, call: Call::Info }]);
        assert!(matches!(table.take_settled(sleep), Some(Outcome::Error(_))));
    }

    #[test]
    fn a_wake_settles_what_led_to_it() {
        for (call, ends_first) in [(suspend(), true), (suspend(), false)] {
            let mut table = Table::default();
            let id = table.add(call).unwrap();
            let host = table.begin(bell());
            table.take_waiting(host);
            if ends_first {
                table.end(host);
            }
            table.resumed(Why::Wake, true);
            assert!(matches!(table.take_settled(id), Some(Outcome::Ok(_))));
        }
        // In memory the connection is still there, and what the host says counts.
        let mut table = Table::default();
        let id = table.add(Call::Checkpoint(AskCheckpoint::default())).unwrap();
        let waiting = table.add(suspend()).unwrap();
        let host = table.begin(bell());
        let sent = table.take_waiting(host).unwrap();
        table.resumed(Why::Wake, false);
        assert_eq!(table.take_settled(id), None);
        assert_eq!((sent.len(), table.take_settled(waiting)), (2, None));
        // A fork of it knows that it is one.
        table.resumed(Why::Fork, true);
        let Some(Outcome::Ok(answer)) = table.take_settled(id) else { panic!("it was settled") };
        assert_eq!(answer.data["resumed"], "fork");
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut table = Table::default();
        for _ in 0..MOST {
            table.add(Call::Info).unwrap();
        }
        let Err(Outcome::Error(refused)) = table.add(Call::Info) else { panic!("there is no room") };
        assert_eq!(refused.code, "rate_limited");
        table.give_up(0);
        table.add(Call::Info).unwrap();
    }
}
