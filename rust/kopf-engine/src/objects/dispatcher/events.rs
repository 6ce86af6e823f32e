//! The events of objects: from an event to the start of its cycle, or of a worker.
//!
//! The slot decides what follows an event, while the slots are locked. Anything that may take long is an [`Effect`], executed after the
//! lock is released: cycles are opened, workers are started, lines are logged.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};

use kopf_core::activation::log::LogMessage;
use kopf_core::cause::EventType;
use kopf_core::cycle::Cycle;
use kopf_core::object::Object;
use kopf_core::object_worker::{Finished, QueuedEvent, WorkerLog, WorkerMessage};
use kopf_core::slot::{Action, Admission};
use tokio::runtime::Handle;

use super::{Dispatcher, Work, WorkerTask};
use crate::daemons::DaemonDiffResult;
use crate::host::{CycleId, HostTask, LogRecord};
use crate::object_key::key_of;
use crate::objects::open_cycle::{OpenCycle, PreparedCycle};
use crate::objects::slots::{RemovedObject, Slot, Slots};
use crate::supervision::shielded;

#[cfg(test)]
thread_local! {
    /// Whether the next start of a cycle panics.
    pub(super) static INJECTED_START_PANIC: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The effects of an event or of the end of a cycle, executed in the order of the calls.
#[derive(Default)]
pub(crate) struct Effects {
    /// Most events have one effect: it needs no allocation.
    first: Option<Effect>,
    rest: Vec<Effect>,
}

/// An effect, executed after the lock of the slots is released.
pub(crate) enum Effect {
    /// Log a line.
    Log(LogRecord),
    /// Open a cycle.
    Open(Arc<str>, PreparedCycle),
    /// End a cycle that could not be opened.
    End(Arc<str>),
    /// Report the end of a cycle: see [`Dispatcher::close_cycle`].
    Close((CycleId, bool), Finished),
    /// Start a worker.
    Spawn(Work),
    /// Stop the daemons of a removed object, and drop the host's state of it.
    Remove(RemovedObject),
    /// Drop the host's state of an object whose slot is removed.
    Forget(Arc<str>),
    /// Hand an idle object over to the successor.
    HandOver(Arc<str>, Box<Slot>),
    /// Start the indexing of an object by a standby.
    Index(Arc<str>),
    /// Start the next objects of the backlog.
    Advance,
}

impl Effects {
    /// Adds an effect.
    pub(crate) fn push(&mut self, effect: Effect) {
        if self.first.is_none() {
            self.first = Some(effect);
        } else {
            self.rest.push(effect);
        }
    }

    /// Adds the report of the end of a cycle, if there is anything to report.
    pub(super) fn push_close(&mut self, (id, closed): (CycleId, bool), finished: Finished) {
        if !closed || finished.log.is_some() {
            self.push(Effect::Close((id, closed), finished));
        }
    }
}

impl Dispatcher {
    /// Takes a watch event of an object.
    pub fn dispatch(self: &Arc<Self>, kind: EventType, object: Arc<Object>) {
        let key = key_of(&object);
        let event = QueuedEvent::of(kind, object);
        self.with_slots(|slots, effects| {
            let first = self.first_observed_by(kind, slots);
            slots.entry(&key, first);
            self.enqueue(slots, &key, event, effects);
        });
    }

    /// Dispatches the buffered events of an object after the initial indexing.
    pub fn release(self: &Arc<Self>, key: &Arc<str>) {
        self.with_slots(|slots, effects| {
            let (operator, current) = (self.operator_state(slots), self.shared.base.live_config.get());
            let Some(slot) = slots.get(key) else { return };
            let events = slot.release(self.only_indexes(), operator, self.worker_context(&current));
            self.enqueue_all(slots, key, events, effects);
        });
    }

    /// Handles the object again without a watch event.
    pub fn wake(self: &Arc<Self>, key: &Arc<str>, object: Arc<Object>) {
        if self.shared.base.stopping.is_cancelled() {
            return;
        }
        self.with_slots(|slots, effects| {
            let (operator, current) = (self.operator_state(slots), self.shared.base.live_config.get());
            let Some(slot) = slots.get(key) else { return };
            if let Some(action) = slot.on_wake(object, operator, self.worker_context(&current)) {
                self.execute(slots, key, action, effects);
            }
        });
    }

    /// Calls the function with the locked slots, and executes the effects after the lock is released.
    pub(crate) fn with_slots<T>(self: &Arc<Self>, act: impl FnOnce(&mut Slots, &mut Effects) -> T) -> T {
        self.with_locked(self.slots(), None, act)
    }

    /// The same with slots that are locked already. With a runtime, the calling thread may be the host's: it must not wait, and tasks
    /// are spawned on that runtime.
    pub(super) fn with_locked<T>(
        self: &Arc<Self>,
        mut slots: MutexGuard<'_, Slots>,
        runtime: Option<&Handle>,
        act: impl FnOnce(&mut Slots, &mut Effects) -> T,
    ) -> T {
        let mut effects = Effects::default();
        let done = act(&mut slots, &mut effects);
        drop(slots);
        for effect in effects.first.into_iter().chain(effects.rest) {
            self.take_place(effect, runtime);
        }
        done
    }

    fn take_place(self: &Arc<Self>, effect: Effect, runtime: Option<&Handle>) {
        match effect {
            Effect::Log(record) => self.shared.base.host.log(record),
            Effect::Open(key, prepared) => self.run(&key, prepared),
            Effect::End(key) => self.with_slots(|slots, effects| self.on_idle(slots, &key, false, effects)),
            Effect::Close(cycle, finished) => self.close_cycle(cycle, finished),
            Effect::Spawn(work) => self.pool.spawn(work, runtime),
            Effect::Remove(removed) => self.terminate_daemons(vec![removed]),
            Effect::Forget(key) => self.shared.base.host.submit(HostTask::ObjectDeleted(key)),
            Effect::HandOver(key, slot) => {
                let Some(successor) = self.successor.get() else { return };
                match runtime {
                    Some(runtime) => successor.adopt_soon(&key, slot, runtime),
                    None => successor.adopt(&key, *slot),
                }
            }
            Effect::Index(key) => self.start_standby_indexing(key),
            Effect::Advance => {
                // Otherwise, the calling thread starts the next ones itself.
                if let Some(runtime) = runtime {
                    self.advance_soon(runtime);
                }
            }
        }
    }

    /// How the first event of an object counts. An object that is added during a pause is handled after the next listing, and
    /// that is a start for it: resume handlers are called.
    pub(crate) fn first_observed_by(&self, kind: EventType, slots: &Slots) -> EventType {
        let is_delayed = kind == EventType::Added && self.has_paused_since(slots.pauses());
        if is_delayed { EventType::Listed } else { kind }
    }

    /// The state of the operator and of this watch, as it matters for an event.
    fn admission(&self, slots: &Slots) -> Admission {
        let pause = self.shared.pause.snapshot();
        let is_paused = pause.is_on || pause.count != slots.pauses();
        Admission {
            is_standby: pause.is_standby,
            is_paused: is_paused && !self.shared.base.startup_config.settings.compat,
            only_indexes: pause.is_standby && !self.resource_handlers.indexing.is_empty(),
            is_full: slots.backlog.is_full(self.window()),
        }
    }

    /// Reports an event of the object, and executes what follows.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: &Arc<str>,
        event: QueuedEvent,
        effects: &mut Effects,
    ) {
        let (admission, current) = (self.admission(slots), self.shared.base.live_config.get());
        let Some(slot) = slots.get(key) else { return };
        let (context, now) = (self.worker_context(&current), || self.shared.base.clock.now());
        let action = slot.on_event(event, admission, context, now);
        self.execute(slots, key, action, effects);
    }

    /// Queues the events again that have waited for the object.
    pub(super) fn enqueue_all(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: &Arc<str>,
        events: VecDeque<QueuedEvent>,
        effects: &mut Effects,
    ) {
        for event in events {
            if slots.get(key).is_none() {
                let first = self.first_observed_by(event.kind, slots);
                slots.entry(key, first);
            }
            self.enqueue(slots, key, event, effects);
        }
    }

    /// Executes an action of the object's slot.
    pub(super) fn execute(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: &Arc<str>,
        action: Action,
        effects: &mut Effects,
    ) {
        match action {
            Action::Open(event) => {
                let is_listed = event.kind == EventType::Listed;
                match self.prepare(slots, key, event, effects) {
                    Some(prepared) => {
                        if is_listed {
                            slots.backlog.began();
                        }
                        effects.push(Effect::Open(Arc::clone(key), prepared));
                    }
                    None => effects.push(Effect::End(Arc::clone(key))),
                }
            }
            // The worker waits for the rest of the error back-off.
            Action::Drive => effects.push(Effect::Spawn(self.work(slots, key, false, None))),
            Action::Notify(skipped) => {
                if let Some(slot) = slots.get(key) {
                    slot.notify();
                }
                if let Some(line) = skipped {
                    effects.push(Effect::Log(record_of(&line, None)));
                }
            }
            Action::Park(bytes) => {
                slots.backlog.push(Arc::clone(key), bytes);
                self.backlogged.notify_one();
            }
            Action::Unpark(unparked) => self.start_unparked(slots, key, *unparked, effects),
            Action::Index => effects.push(Effect::Index(Arc::clone(key))),
            Action::Remove => {
                if let Some(removed) = slots.mark_removed(key) {
                    effects.push(Effect::Remove(removed));
                }
            }
            Action::Ignore => {}
        }
    }

    /// Takes the inputs of a cycle for the event. If that panics, the memory is unchanged, and the event is handled after the
    /// error back-off, if there is one.
    pub(crate) fn prepare(
        &self,
        slots: &mut Slots,
        key: &Arc<str>,
        event: QueuedEvent,
        effects: &mut Effects,
    ) -> Option<PreparedCycle> {
        let pauses = slots.pauses();
        let slot = slots.get(key)?;
        let (memory, kept) = (slot.worker.memory.clone(), event.clone());
        let current = self.shared.base.live_config.get();
        let prepared = shielded("The cycle of the object", || {
            #[cfg(test)]
            assert!(!INJECTED_START_PANIC.take(), "an injected panic");
            self.refresh(slot, &event.object);
            slot.worker.prepare(event, self.worker_context(&current), self.shared.base.clock.now())
        });
        match prepared {
            Ok(start) => Some(PreparedCycle { start, pauses }),
            Err(panicked) => {
                slot.worker.memory = memory;
                self.on_internal_error(slot, kept, &panicked.into(), false, effects);
                None
            }
        }
    }

    /// Runs a cycle without a worker, as far as that is possible; then starts a worker if it is needed.
    fn run(self: &Arc<Self>, key: &Arc<str>, prepared: PreparedCycle) {
        let is_listed = prepared.start.event.kind == EventType::Listed;
        let Some(mut running) = self.open(key, prepared) else {
            return self.with_slots(|slots, effects| self.on_idle(slots, key, is_listed, effects));
        };
        if running.only_watches() && self.limit.is_none() && !self.shared.force_stopping.is_cancelled() {
            return self.submit_detached(key, Box::new(running));
        }
        if running.is_decided() {
            // The host does not know this cycle.
            running.closed = true;
            return self.with_slots(|slots, effects| self.conclude(slots, key, &mut running, effects));
        }
        let task = WorkerTask::Cycle(Box::new(running));
        let work = self.work(&mut self.slots(), key, is_listed, Some(task));
        self.pool.spawn(work, None);
    }

    /// Opens a cycle, without a lock on the slots. None if that has panicked: see [`Dispatcher::prepare`].
    pub(crate) fn open(self: &Arc<Self>, key: &Arc<str>, prepared: PreparedCycle) -> Option<OpenCycle> {
        let PreparedCycle { start, pauses } = prepared;
        let kept = start.event.clone();
        let opened = shielded("The cycle of the object", || {
            let (config, now) = (self.shared.base.live_config.get(), self.shared.base.clock.now());
            let id = self.shared.base.next_id();
            let mut running = Cycle::open(start, Arc::clone(&self.resource_handlers), config, id, now);
            let applied = running.desired_daemons().and_then(|desired| {
                let mut slots = self.slots();
                Some(self.apply_daemon_diff(slots.get(key)?, &running.event().object, desired))
            });
            if let Some(DaemonDiffResult::Done { delay, holds }) = applied {
                running.on_daemons(delay, holds, now);
            }
            running
        });
        match opened {
            Ok(running) => {
                let mut running = OpenCycle::new(running, pauses, &self.resource_handlers.resource);
                self.emit_log(&mut running);
                Some(running)
            }
            Err(panicked) => {
                self.with_slots(|slots, effects| {
                    if let Some(slot) = slots.get(key) {
                        self.on_internal_error(slot, kept, &panicked.into(), false, effects);
                    }
                });
                None
            }
        }
    }

    /// Emits the log records of the cycle so far.
    pub(crate) fn emit_log(&self, running: &mut Cycle) {
        let host = &self.shared.base.host;
        for message in running.drain_log() {
            if matches!(message, LogMessage::Stripped(_)) {
                self.metrics.patches.strips.increment();
            }
            if let LogMessage::AnotherOperator(write) = message {
                self.report_other_operator(running.object(), write);
            } else if host.enabled(message.level()) {
                let object = running.object();
                let record = LogRecord::posted(message.level(), object, message.text(object));
                host.log(record.of(running.handling()));
            }
        }
    }

    /// Work for a worker of the object.
    pub(super) fn work(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: &Arc<str>,
        is_listed: bool,
        task: Option<WorkerTask>,
    ) -> Work {
        let signals = slots.get(key).map(|slot| slot.enter_worker(Arc::default)).unwrap_or_default();
        let term = self.shared.base.term.enter();
        Work { dispatcher: Arc::clone(self), key: Arc::clone(key), signals, is_listed, task, term }
    }
}

/// The log record of a message about an object.
pub(super) fn record_of(line: &WorkerLog, cycle: Option<CycleId>) -> LogRecord {
    let record = LogRecord::local(line.level(), &line.object, line.text());
    match (&line.message, cycle) {
        (WorkerMessage::Failed { with_exception: true, .. }, Some(cycle)) => record.with_exception_of(cycle),
        _ => record,
    }
}
