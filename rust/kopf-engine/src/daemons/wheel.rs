//! The wheel: one task and one heap for all daemons and timers that sleep, and for all reports of those that ran.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

use kopf_core::daemon::Move;
use kopf_core::ids;
use kopf_core::notes::Level;
use kopf_core::outcome::Outcome;
use kopf_core::patch::Patch;
use kopf_core::time::Timestamp;
use tokio::sync::oneshot;

use super::outbox::Outbox;
use super::subject::{Place, Subject};
use crate::api::seconds;
use crate::dispatch::Shared;
use crate::invoke::{Entry, RunId, RunReply};
use crate::patching::{Applied, Change, PatchFailure, Patching, PatchingError};

/// How many reports are taken at once.
const BATCH: usize = 1_000;
/// With so many sleepers, waking up for each of them alone costs more than the calls.
const CROWD: usize = 100;
/// How many seconds the first of a crowd waits for the others.
const GATHERING: f64 = 0.008;
/// Seconds until a patch that was refused is sent again.
const WRITE_PAUSES: [f64; 3] = [1.0, 2.0, 5.0];

/// An entry of the wheel.
pub(super) struct Due {
    pub(super) at: Timestamp,
    pub(super) subject: Weak<Subject>,
    pub(super) run: RunId,
    pub(super) turn: u32,
}

/// What the wheel's task is told.
pub(super) enum Message {
    /// Somebody sleeps.
    Sleep(Due),
    /// An initial delay was asked for; none if the function raised.
    Delayed { subject: Arc<Subject>, run: RunId, delay: Option<f64> },
    /// A call is over.
    Returned { subject: Arc<Subject>, run: RunId, reply: RunReply },
    /// What a call left behind is written.
    Written { subject: Arc<Subject>, run: RunId, outcome: Outcome, result: Result<Applied, PatchFailure> },
    /// All that was told before this is done: answer.
    Pass(oneshot::Sender<()>),
    /// The cycles of these objects are to look again.
    Wake(Vec<Arc<Subject>>),
    /// All this, in this order.
    Many(Vec<Message>),
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// Turns the wheel until the operator is over.
pub async fn turn(shared: Arc<Shared>) {
    let Some(mut receiver) = shared.background.reports.take() else { return };
    let clock = shared.clock.clone();
    let mut wheel = Wheel { shared, heap: BinaryHeap::new(), gathered: None };
    let mut messages = Vec::new();
    loop {
        let next = wheel.next();
        tokio::select! {
            biased;
            count = receiver.recv_many(&mut messages, BATCH) => {
                if count == 0 {
                    return;
                }
            }
            () = clock.sleep_until(next.unwrap_or(Timestamp::from_micros(0))), if next.is_some() => {}
        }
        let mut out = Outbox::default();
        for message in messages.drain(..) {
            wheel.hear(message, &mut out);
        }
        wheel.fire(&mut out);
        for due in out.take_sleeps() {
            wheel.heap.push(Reverse(due));
        }
        out.flush(&wheel.shared);
    }
}

struct Wheel {
    shared: Arc<Shared>,
    heap: BinaryHeap<Reverse<Due>>,
    /// When the last crowd was woken up.
    gathered: Option<Timestamp>,
}

impl Wheel {
    /// When to wake up for somebody.
    fn next(&self) -> Option<Timestamp> {
        let Reverse(first) = self.heap.peek()?;
        let is_crowd = self.heap.len() > CROWD;
        Some(self.gathered.filter(|_| is_crowd).map_or(first.at, |last| first.at.max(last.plus(GATHERING))))
    }

    /// Wakes up all whose time has come.
    fn fire(&mut self, out: &mut Outbox) {
        let now = self.shared.clock.now();
        if self.next().is_none_or(|next| next > now) {
            return;
        }
        while self.heap.peek().is_some_and(|Reverse(first)| first.at <= now) {
            let Some(Reverse(due)) = self.heap.pop() else { break };
            let Some(subject) = due.subject.upgrade() else { continue };
            let mut state = subject.state();
            let Some(position) = state.find(due.run) else { continue };
            let run = &state.runs[position];
            // It was parked, or has another sleep since then.
            if run.place != Place::Asleep || run.turn != due.turn {
                continue;
            }
            state.proceed(&self.shared, &subject, position, Move::Sleep(due.at), now, out);
        }
        self.gathered = Some(now);
    }

    fn hear(&mut self, message: Message, out: &mut Outbox) {
        match message {
            Message::Sleep(due) => self.heap.push(Reverse(due)),
            Message::Delayed { subject, run, delay } => self.delayed(&subject, run, delay, out),
            Message::Returned { subject, run, reply } => self.returned(subject, run, reply, out),
            Message::Written { subject, run, outcome, result } => {
                self.written(&subject, run, &outcome, result, out);
            }
            Message::Pass(reply) => {
                // Whoever waits for it may be gone.
                let _ = reply.send(());
            }
            Message::Wake(subjects) => Message::wake_all(&subjects),
            Message::Many(messages) => {
                for message in messages {
                    self.hear(message, out);
                }
            }
        }
    }

    fn delayed(&self, subject: &Arc<Subject>, run: RunId, delay: Option<f64>, out: &mut Outbox) {
        let mut state = subject.state();
        let Some(position) = state.find(run) else { return };
        let now = self.shared.clock.now();
        let run = &state.runs[position];
        match delay {
            Some(delay) if !run.stopping.is_asked() => {
                let next = run.routine.delayed(delay, now);
                state.proceed(&self.shared, subject, position, next, now, out);
            }
            _ => state.exit(&self.shared, subject, position, out),
        }
    }

    fn returned(&self, subject: Arc<Subject>, run: RunId, reply: RunReply, out: &mut Outbox) {
        let mut state = subject.state();
        let Some(position) = state.find(run) else { return };
        let Some(outcome) = reply.outcome else {
            return state.exit(&self.shared, &subject, position, out);
        };
        let patch = Patch(reply.patch.unwrap_or_default());
        if patch.is_empty() && !reply.fns {
            return state.advance(&self.shared, &subject, position, &outcome, out);
        }
        state.runs[position].place = Place::Writing;
        let object = Arc::clone(state.patched.as_ref().unwrap_or(&state.object));
        let resource = Arc::clone(&state.resource);
        drop(state);
        let (shared, whole) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let writing = async move {
            let change = Change { patch, functions: reply.fns, ..Change::of(run) };
            let patching = Patching {
                api: &shared.api,
                invoker: &shared.invoker,
                resource: &resource,
                finalizer: &shared.current.get().settings.persistence.finalizer,
                compat: shared.rules.settings.compat,
                parting: None,
            };
            let mut pauses = WRITE_PAUSES.iter().filter(|_| !shared.rules.settings.compat);
            let (mut change, functions) = (change, reply.fns);
            let result = loop {
                let result = rejected(patching.apply(&object, change).await);
                let unwritten = match &result {
                    Err(PatchFailure { applied, error: PatchingError::Request(_) }) => &applied.unwritten,
                    _ => break result,
                };
                let patch = Patch(unwritten.clone());
                let Some(pause) = pauses.next().filter(|_| !patch.is_empty()) else { break result };
                tokio::select! {
                    () = shared.clock.sleep(seconds(*pause)) => {}
                    () = shared.stopping.cancelled() => {}
                }
                change = Change { patch, functions, ..Change::of(run) };
            };
            shared.background.tell(Message::Written { subject, run, outcome, result });
        };
        let guarded =
            async move { whole.failing.guard("The patching after a daemon or timer", writing).await };
        self.shared.background.writers.spawn(guarded);
    }

    fn written(
        &self,
        subject: &Arc<Subject>,
        run: RunId,
        outcome: &Outcome,
        result: Result<Applied, PatchFailure>,
        out: &mut Outbox,
    ) {
        if let Ok(applied) = &result
            && let Some(home) = subject.home()
            && let Some(slot) = home.slots().get(&subject.key)
        {
            slot.memory.wrote_aside(applied.accepted(), &self.shared.rules.settings, &home.plan);
        }
        let mut state = subject.state();
        let Some(position) = state.find(run) else { return };
        match result {
            Ok(applied) => {
                state.runs[position].carry = applied.carry;
                if let Some(latest) = applied.latest {
                    state.note_patched(latest);
                }
                state.advance(&self.shared, subject, position, outcome, out);
            }
            Err(PatchFailure { error, .. }) => {
                // A patch that is refused is no reason not to be called any more.
                let is_over =
                    self.shared.rules.settings.compat || matches!(error, PatchingError::Function(_));
                let handler = state.runs[position].routine.handler();
                if let Some(handler) = self.shared.rules.registry.handlers.get(handler) {
                    let label = ids::label(handler);
                    let what = if is_over { " and ends" } else { "" };
                    let text = format!("{label} has failed to patch the object{what}: {error}");
                    let entry = Entry::posted(Level::Error, &state.object, text);
                    let has_traceback = matches!(error, PatchingError::Function(_));
                    self.shared.invoker.log(if has_traceback { entry.with_exception_of(run) } else { entry });
                }
                if is_over {
                    state.exit(&self.shared, subject, position, out);
                } else {
                    state.advance(&self.shared, subject, position, outcome, out);
                }
            }
        }
    }
}

/// Nothing is sent again for daemons and timers after a while: what was rejected of a patch is a failure here.
fn rejected(result: Result<Applied, PatchFailure>) -> Result<Applied, PatchFailure> {
    let mut applied = result?;
    let Some(last) = applied.rejections.pop() else { return Ok(applied) };
    let mut patch = Patch(last.patch);
    for rejection in applied.rejections.drain(..) {
        patch.merge(rejection.patch);
    }
    applied.unwritten = patch.0;
    Err(PatchFailure { applied: Box::new(applied), error: PatchingError::Request(last.error) })
}
