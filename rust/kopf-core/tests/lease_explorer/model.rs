//! The model: the server, the processes, and the acts that may happen between any two steps.

use crate::injected_defects::Defect;
use crate::oracle::Oracle;
use crate::process::Process;
use crate::server::Server;
use kopf_core::lease::{Command, Input};
use kopf_core::time::BootInstant;

/// The number of replicas.
pub const PLACES: usize = 3;

/// The maximum number of processes in a run.
const MOST_PROCESSES: usize = 9;

/// Seconds of the slowest clock until one process leads after the last fault: the duration of a record that was first seen
/// after a retry period, the period after a failed write, the random delay, and a reserve.
const LEADERLESS: f64 = 15.0 + 2.0 + 2.0 + 0.25 + 0.5;
const SLOWEST: f64 = 0.85;

/// How long the leader is observed after the faults, in microseconds.
const OBSERVED: i64 = 30_000_000;

/// Something that may happen next. Numbers are positions of processes, requests and responses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// Time and processes.
    Advance(i64),
    Wake(usize),
    Stop(usize),
    Continue(usize),
    Crash(usize),
    /// A new process starts in the place of one that is stopped or has ended.
    Replace(usize),
    /// Requests and responses.
    Execute(usize),
    ExecuteTwice(usize),
    LoseRequest(usize),
    Reject(usize),
    Deliver(usize),
    TimeOut(usize),
    /// A watch event with the state so many changes ago.
    Observe(usize, usize),
    /// The operator.
    SetWatching(usize, bool),
    SetHealthy(usize, bool),
    SetSynced(usize, bool),
    Call(usize),
    Return(usize),
    Drain(usize),
    Release(usize),
}

#[derive(Clone, Debug)]
pub struct Model {
    pub server: Server,
    pub processes: Vec<Process>,
    pub oracle: Oracle,
    defect: Option<Defect>,
    pub now: i64,
}

impl Model {
    pub fn new(defect: Option<Defect>) -> Self {
        let processes = (0..PLACES).map(|number| Process::new(number, number, defect)).collect();
        let compares_no_versions = defect == Some(Defect::DropsPrecondition);
        let server = Server { compares_no_versions, ..Server::default() };
        Self { server, processes, oracle: Oracle::default(), defect, now: 0 }
    }

    /// Whether the act may happen now.
    pub fn permits(&self, act: Act) -> bool {
        let process = |number: usize| self.processes.get(number).filter(|process| process.is_running());
        match act {
            Act::Advance(_) => true,
            Act::Wake(number) => {
                process(number).is_some_and(|process| process.clock(self.now) >= process.wake_at)
            }
            Act::Stop(number) | Act::Crash(number) => process(number).is_some(),
            Act::Continue(number) => {
                self.processes.get(number).is_some_and(|process| process.is_alive() && process.is_stopped)
            }
            Act::Replace(place) => {
                let last = self.processes.iter().rev().find(|process| process.place == place).unwrap();
                !last.is_running() && self.processes.len() < MOST_PROCESSES
            }
            Act::Execute(position)
            | Act::ExecuteTwice(position)
            | Act::LoseRequest(position)
            | Act::Reject(position) => position < self.server.messages.len(),
            Act::Deliver(position) => {
                self.server.replies.get(position).is_some_and(|reply| process(reply.process).is_some())
            }
            Act::TimeOut(number) => process(number).is_some_and(|process| process.outstanding.is_some()),
            Act::Observe(number, age) => {
                process(number).is_some_and(|process| process.is_watching) && age < self.server.history.len()
            }
            Act::SetWatching(number, value) => process(number).is_some_and(|it| it.is_watching != value),
            Act::SetHealthy(number, value) => process(number).is_some_and(|it| it.is_healthy != value),
            Act::SetSynced(number, value) => process(number).is_some_and(|it| it.is_synced != value),
            Act::Call(number) => process(number)
                .is_some_and(|it| !it.is_releasing && it.is_open(self.now) && it.calls.len() < 2),
            Act::Return(number) => process(number).is_some_and(|process| !process.calls.is_empty()),
            Act::Drain(number) => process(number).is_some_and(Process::may_drain),
            Act::Release(number) => process(number).is_some_and(|process| !process.is_releasing),
        }
    }

    pub fn act(&mut self, act: Act) {
        let Self { server, processes, oracle, now, .. } = self;
        match act {
            Act::Advance(millis) => *now += millis * 1_000,
            Act::Wake(number) => processes[number].step(Input::Woken, server, oracle, *now),
            Act::Stop(number) => processes[number].is_stopped = true,
            Act::Continue(number) => processes[number].is_stopped = false,
            Act::Crash(number) => processes[number].is_dead = true,
            Act::Replace(place) => processes.push(Process::new(processes.len(), place, self.defect)),
            Act::Execute(position) => server.execute(position, 1),
            Act::ExecuteTwice(position) => server.execute(position, 2),
            Act::LoseRequest(position) => {
                server.messages.remove(position);
            }
            Act::Reject(position) => server.reject(position),
            Act::Deliver(position) => {
                let reply = server.replies.remove(position);
                let process = &mut processes[reply.process];
                // The engine has closed the connection after the timeout.
                if process.outstanding.is_some_and(|outstanding| outstanding.id == reply.id) {
                    process.receive(Some(reply.input), server, oracle, *now);
                }
            }
            Act::TimeOut(number) => processes[number].receive(None, server, oracle, *now),
            Act::Observe(number, age) => {
                let lease = server.history[server.history.len() - 1 - age].clone();
                processes[number].observe(lease, server, oracle, *now);
            }
            Act::SetWatching(number, value) => {
                processes[number].command(Command::SetWatching(value), server, oracle, *now);
            }
            Act::SetHealthy(number, value) => {
                processes[number].command(Command::SetHealthy(value), server, oracle, *now);
            }
            Act::SetSynced(number, value) => {
                processes[number].command(Command::SetSynced(value), server, oracle, *now);
            }
            Act::Call(number) => {
                let process = &mut processes[number];
                process.calls.extend(process.term);
            }
            Act::Return(number) => {
                processes[number].calls.pop();
            }
            Act::Drain(number) => processes[number].drain(server, oracle, *now),
            Act::Release(number) => processes[number].command(Command::Release, server, oracle, *now),
        }
        self.oracle.check(&self.processes, self.now);
    }

    /// Ends all faults, and checks that one process leads after the time limit and remains the leader.
    pub fn settle(&mut self) {
        self.end_faults();
        let start = self.now;
        #[expect(clippy::cast_possible_truncation, reason = "seconds")]
        let limit = start + (LEADERLESS / SLOWEST * 1e6) as i64;
        // A process that leads at the start may lose its term: its last renewal was sent before.
        while self.now <= limit && self.oracle.violation.is_none() {
            self.continue_without_faults();
        }
        let Some(leader) = self.leader() else {
            self.oracle.report("no process leads within the time limit".to_owned());
            return;
        };
        let end = self.now + OBSERVED;
        while self.now < end && self.oracle.violation.is_none() {
            self.continue_without_faults();
            if self.leader() != Some(leader) {
                self.oracle.report(format!("{leader:?} does not remain the leader"));
            }
        }
    }

    /// The process whose fence is open, with the term.
    fn leader(&self) -> Option<(usize, Option<i64>)> {
        let leader = self.processes.iter().find(|process| process.is_open(self.now))?;
        Some((leader.number, leader.term))
    }

    fn end_faults(&mut self) {
        for place in 0..PLACES {
            let last = self.processes.iter().rev().find(|process| process.place == place).unwrap();
            if !last.is_alive() || last.is_releasing {
                self.processes.push(Process::new(self.processes.len(), place, self.defect));
            }
        }
        for number in 0..self.processes.len() {
            for act in [
                Act::Continue(number),
                Act::SetHealthy(number, true),
                Act::SetSynced(number, true),
                Act::Return(number),
                Act::Return(number),
            ] {
                self.perform(act);
            }
        }
        while !self.server.messages.is_empty() {
            self.act(Act::Execute(0));
        }
        while !self.server.replies.is_empty() {
            self.act(Act::Deliver(0));
        }
        for number in 0..self.processes.len() {
            let id = self.processes[number].outstanding.map(|outstanding| outstanding.id);
            if !self.server.messages.iter().any(|message| Some(message.id) == id) {
                self.perform(Act::TimeOut(number));
            }
        }
        self.settle_requests();
    }

    /// Advances to the next wake-up; requests take no time.
    fn continue_without_faults(&mut self) {
        let running = self.processes.iter().filter(|process| process.is_alive());
        let next = running.filter(|process| process.wake_at != BootInstant::NEVER);
        let next = next.map(|process| process.moment(process.wake_at)).min();
        // At least a millisecond, and at most a second, so that the leader is observed.
        let next = next.unwrap_or(i64::MAX).clamp(self.now + 1_000, self.now + 1_000_000);
        self.now = next;
        for number in 0..self.processes.len() {
            self.perform(Act::Wake(number));
        }
        self.settle_requests();
        self.oracle.check(&self.processes, self.now);
    }

    fn settle_requests(&mut self) {
        for _ in 0..100 {
            let version = self.server.history.len();
            while !self.server.messages.is_empty() {
                self.act(Act::Execute(0));
            }
            while !self.server.replies.is_empty() {
                // The responses to processes that have ended are discarded.
                let is_dead = !self.permits(Act::Deliver(0));
                if is_dead {
                    self.server.replies.remove(0);
                } else {
                    self.act(Act::Deliver(0));
                }
            }
            for number in 0..self.processes.len() {
                self.perform(Act::Drain(number));
                if self.server.history.len() != version {
                    self.perform(Act::Observe(number, 0));
                }
            }
            if self.server.messages.is_empty() && self.server.replies.is_empty() {
                return;
            }
        }
        self.oracle.report("the candidates send requests without a pause".to_owned());
    }

    fn perform(&mut self, act: Act) {
        if self.permits(act) {
            self.act(act);
        }
    }
}
