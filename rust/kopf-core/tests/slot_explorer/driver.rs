//! The driver of the slots: reports events, and executes the actions, as the engine's dispatchers and workers do.

use crate::dispatcher::{Dispatcher, Holder, ModelSlot};
use crate::injected_defects::Defect;
use crate::model::Model;
use crate::scenario::{Scenario, Turn};
use kopf_core::cause::EventType;
use kopf_core::cycle::{Cycle, CycleStart, Decision};
use kopf_core::object::Object;
use kopf_core::object_worker::{DecisionResult, NextAction, QueuedEvent};
use kopf_core::slot::{Action, Admission, Adopted, Ending, GateReaction, HandOver, Unparked};
use std::collections::VecDeque;
use std::sync::Arc;

impl Model {
    /// The watch has an event of the object.
    pub fn event(&mut self, scenario: &Scenario, kind: EventType, version: u8) {
        let index = self.active();
        let event = QueuedEvent::of(kind, object(version));
        self.observe(index, kind);
        let is_gate_open = self.is_gate_open;
        let dispatcher = &mut self.dispatchers[index];
        if dispatcher.is_gated
            && !scenario.has(Defect::IgnoresGate)
            && let Some(slot) = &mut dispatcher.slot
        {
            let messages = &mut dispatcher.messages;
            let close = || {
                *messages += u8::from(!is_gate_open);
                !is_gate_open
            };
            match slot.on_gated_event(event.clone(), true, close) {
                GateReaction::Waits => return,
                GateReaction::Open => dispatcher.is_gated = false,
                GateReaction::Passed => {}
            }
        }
        self.report(scenario, index, event);
    }

    /// Makes the slot of the object, if there is none.
    pub fn observe(&mut self, index: usize, kind: EventType) {
        let dispatcher = &mut self.dispatchers[index];
        if dispatcher.slot.is_none() {
            self.oracle.made();
        }
        let listing = dispatcher.listing;
        dispatcher.slot.get_or_insert_with(|| ModelSlot::new(kind)).observe(kind, listing);
    }

    pub fn report(&mut self, scenario: &Scenario, index: usize, event: QueuedEvent) {
        let admission = Admission {
            is_paused: self.is_paused_in(index) && !scenario.has(Defect::IgnoresPause),
            is_full: self.is_full,
            is_standby: self.is_standby,
            only_indexes: self.is_standby && scenario.is_gated,
        };
        let now = self.now;
        let Some(slot) = &mut self.dispatchers[index].slot else { return };
        let is_running = slot.worker.is_running();
        let action = slot.on_event(event, admission, scenario.context(), || now);
        if is_running && scenario.has(Defect::StartsTwice) {
            self.oracle.started(true, true);
        }
        self.execute(scenario, index, action);
    }

    pub fn execute(&mut self, scenario: &Scenario, index: usize, action: Action) {
        match action {
            Action::Open(event) => {
                if let Some(start) = self.start(scenario, index, event) {
                    self.dispatchers[index].holder = Holder::Opening(Box::new(start));
                }
            }
            Action::Drive => self.drive(index, None),
            Action::Park(bytes) => {
                let dispatcher = &mut self.dispatchers[index];
                dispatcher.bytes += bytes;
                dispatcher.has_key = true;
            }
            Action::Unpark(unparked) => self.unpark(scenario, index, *unparked),
            Action::Remove => self.remove(scenario, index, true),
            Action::Index => {
                let is_followed = !scenario.has(Defect::IndexesNever);
                self.dispatchers[index].following += u8::from(is_followed);
            }
            Action::Notify(_) | Action::Ignore => {}
        }
    }

    /// Takes the inputs of a cycle.
    pub fn start(&mut self, scenario: &Scenario, index: usize, event: QueuedEvent) -> Option<CycleStart> {
        let is_deletion = event.kind == EventType::Deleted && !self.is_standby;
        let is_allowed = is_deletion || !self.is_paused_in(index);
        self.oracle.started(self.is_gate_open, is_allowed);
        let slot = self.dispatchers[index].slot.as_mut()?;
        Some(slot.worker.prepare(event, scenario.context(), self.now))
    }

    pub fn unpark(&mut self, scenario: &Scenario, index: usize, unparked: Unparked) {
        self.dispatchers[index].bytes -= unparked.bytes;
        for event in unparked.events {
            if let Some(slot) = &mut self.dispatchers[index].slot
                && !scenario.has(Defect::DropsUnparked)
            {
                let action = slot.resume(event, scenario.context());
                self.execute(scenario, index, action);
            }
        }
    }

    /// A worker has the object.
    pub fn drive(&mut self, index: usize, cycle: Option<Box<Cycle>>) {
        let dispatcher = &mut self.dispatchers[index];
        if let Some(slot) = &mut dispatcher.slot {
            slot.enter_worker(|| ());
            dispatcher.holder = Holder::Worker(cycle);
        }
    }

    pub fn index(&mut self, index: usize) {
        let dispatcher = &mut self.dispatchers[index];
        dispatcher.messages -= 1;
        dispatcher.held += 1;
        if let Some(slot) = &mut dispatcher.slot
            && let Some(object) = slot.first_gated().map(|event| Arc::clone(&event.object))
        {
            slot.mark_indexed(&object);
        }
    }

    pub fn release(&mut self, scenario: &Scenario, index: usize) {
        self.dispatchers[index].held -= 1;
        let operator = self.operator(index);
        if let Some(slot) = &mut self.dispatchers[index].slot
            && !scenario.has(Defect::ForgetsGated)
        {
            let only_indexes = self.is_standby && scenario.is_gated;
            let events = slot.release(only_indexes, operator, scenario.context());
            self.report_all(scenario, index, events);
        }
    }

    /// The task of a standby indexes the newest state, until there is none; then it releases the object.
    pub fn follow(&mut self, scenario: &Scenario, index: usize) {
        let (operator, is_standby) = (self.operator(index), self.is_standby);
        let dispatcher = &mut self.dispatchers[index];
        let Some(slot) = &mut dispatcher.slot else {
            dispatcher.following -= 1;
            return;
        };
        let newest = if is_standby { slot.take_newest_gated() } else { None };
        if newest.is_none_or(|event| event.kind == EventType::Deleted) {
            dispatcher.following -= 1;
            let events = slot.release(is_standby, operator, scenario.context());
            self.report_all(scenario, index, events);
        }
    }

    /// The lease is lost: cycles in progress are dropped.
    pub fn lose_term(&mut self, scenario: &Scenario) {
        self.is_standby = true;
        for index in 0..self.dispatchers.len() {
            let dispatcher = &mut self.dispatchers[index];
            let Some(slot) = &mut dispatcher.slot else { continue };
            let (running, has_worker) = match std::mem::replace(&mut dispatcher.holder, Holder::None) {
                Holder::Detached(running) => {
                    slot.take_detached(|()| true);
                    (running, false)
                }
                Holder::Worker(Some(running)) => (running, true),
                other => {
                    dispatcher.holder = other;
                    continue;
                }
            };
            self.oracle.ended(version_of(running.event()), false);
            if !scenario.has(Defect::KeepsCycles) {
                slot.worker.on_term_lost();
                self.end(scenario, index, has_worker);
            }
        }
    }

    pub fn report_all(&mut self, scenario: &Scenario, index: usize, events: VecDeque<QueuedEvent>) {
        for event in events {
            if self.dispatchers[index].slot.is_none() {
                self.observe(index, event.kind);
            }
            self.report(scenario, index, event);
        }
    }

    /// The holder of the object continues a cycle, or ends it.
    pub fn proceed(&mut self, scenario: &Scenario, index: usize, turn: Turn) {
        let now = self.now;
        let dispatcher = &mut self.dispatchers[index];
        let holder = std::mem::replace(&mut dispatcher.holder, Holder::None);
        let Some(slot) = &mut dispatcher.slot else { return };
        let (running, has_worker) = match holder {
            Holder::Opening(start) => {
                let (handlers, config) =
                    (Arc::clone(&scenario.resource_handlers), Arc::clone(&scenario.config));
                (Box::new(Cycle::open(*start, handlers, config, 0, now)), false)
            }
            Holder::Detached(running) => {
                slot.take_detached(|()| true);
                (running, false)
            }
            Holder::Worker(Some(running)) => (running, true),
            Holder::None | Holder::Worker(None) | Holder::Sleeping(_) => return,
        };
        let version = version_of(running.event());
        let decision = match turn {
            Turn::Detach => {
                slot.detach(());
                dispatcher.holder = Holder::Detached(running);
                return;
            }
            Turn::Continue => return self.drive(index, Some(running)),
            Turn::Panic => {
                self.oracle.ended(version, false);
                if scenario.has(Defect::AbandonsPanicked) {
                    return;
                }
                let event = running.event().clone();
                slot.worker.on_internal_error(event, "a panic".to_owned(), false, scenario.context(), now);
                return self.end(scenario, index, has_worker);
            }
            Turn::Decide => Decision::default(),
            Turn::Delay => Decision { delay: Some(5.0), ..Decision::default() },
            Turn::Fail => Decision { error: Some("an error".to_owned()), ..Decision::default() },
        };
        let is_deleted = running.event().kind == EventType::Deleted;
        self.oracle.ended(version, turn != Turn::Fail || is_deleted);
        match slot.worker.on_decision(&running, decision, scenario.context(), now) {
            DecisionResult::Finished(_) => self.end(scenario, index, has_worker),
            DecisionResult::Write(_) => self.oracle.violate("there is nothing to write"),
        }
    }

    /// A cycle has ended.
    pub fn end(&mut self, scenario: &Scenario, index: usize, has_worker: bool) {
        if has_worker {
            return self.drive(index, None);
        }
        let Some(slot) = &mut self.dispatchers[index].slot else { return };
        match slot.on_cycle_end() {
            Ending::Drive => self.drive(index, None),
            ending => self.retire(scenario, index, ending),
        }
    }

    /// The worker asks for its next action.
    pub fn next(&mut self, scenario: &Scenario, index: usize) {
        if let Holder::Sleeping(until) = self.dispatchers[index].holder {
            self.now = self.now.max(until);
        }
        let (operator, now) = (self.operator(index), self.now);
        let dispatcher = &mut self.dispatchers[index];
        let Some(slot) = &mut dispatcher.slot else { return };
        match slot.next(scenario.context(), operator, now).next {
            NextAction::Start(_) if self.is_standby => {
                slot.worker.on_term_lost();
                dispatcher.holder = Holder::Worker(None);
            }
            NextAction::Start(event) => {
                let (handlers, config) =
                    (Arc::clone(&scenario.resource_handlers), Arc::clone(&scenario.config));
                if let Some(start) = self.start(scenario, index, event) {
                    let running = Box::new(Cycle::open(start, handlers, config, 0, now));
                    self.dispatchers[index].holder = Holder::Worker(Some(running));
                }
            }
            NextAction::Sleep { until, .. } => self.dispatchers[index].holder = Holder::Sleeping(until),
            NextAction::Touch(_) => self.oracle.violate("only in compat mode"),
            NextAction::Idle => {
                let ending = slot.retire();
                self.dispatchers[index].holder = Holder::None;
                self.retire(scenario, index, ending);
            }
        }
    }

    /// The object is idle: its slot is kept, or handed over, or removed.
    pub fn retire(&mut self, scenario: &Scenario, index: usize, ending: Ending) {
        if index < self.active() {
            let slot = self.dispatchers[index].slot.take();
            self.adopting = slot.map(Box::new).filter(|_| !scenario.has(Defect::NeverAdopts));
        } else if ending == Ending::Remove && !scenario.has(Defect::KeepsGone) {
            self.dispatchers[index].slot = None;
            self.oracle.forgot();
        }
    }

    /// The object does not exist any more, or is not watched any more.
    pub fn remove(&mut self, scenario: &Scenario, index: usize, is_deleted: bool) {
        let dispatcher = &mut self.dispatchers[index];
        let Some(removal) = dispatcher.slot.as_mut().and_then(|slot| slot.remove(is_deleted)) else { return };
        if !scenario.has(Defect::KeepsBytes) {
            dispatcher.bytes -= removal.bytes;
        }
        if removal.is_over {
            dispatcher.slot = None;
        }
        if removal.is_over || scenario.has(Defect::ForgetsEarly) {
            self.oracle.forgot();
        }
    }

    pub fn hand_over(&mut self, scenario: &Scenario) {
        let first = &mut self.dispatchers[0];
        first.end_watch();
        let mut second = Dispatcher::new(!self.is_gate_open, first.pauses);
        second.terms = first.terms;
        if let Some(slot) = &mut first.slot {
            let HandOver { heir, is_moved, bytes } = slot.hand_over(0);
            first.bytes -= bytes;
            if is_moved {
                first.slot = None;
            }
            let is_lost = !is_moved && scenario.has(Defect::HandsOverBusy);
            second.slot = Some(if is_lost { ModelSlot::new(EventType::Listed) } else { heir });
        }
        self.dispatchers.push(second);
        self.stream.clear();
        self.needs_listing = true;
    }

    pub fn adopt(&mut self, scenario: &Scenario) {
        let (Some(slot), index) = (self.adopting.take(), self.active()) else { return };
        let awaiting = self.dispatchers[index].slot.take();
        match slot.adopt(awaiting, self.dispatchers[index].listing) {
            Adopted::Kept(slot, events) => {
                self.dispatchers[index].slot = Some(slot);
                if !scenario.has(Defect::DropsAdopted) {
                    self.report_all(scenario, index, events);
                }
            }
            Adopted::Removed { events, .. } => {
                self.oracle.forgot();
                self.report_all(scenario, index, events);
            }
        }
    }
}

fn object(version: u8) -> Arc<Object> {
    let text = format!(r#"{{"metadata":{{"name":"x","uid":"u","resourceVersion":"{version}"}}}}"#);
    Arc::new(Object::decode(&text).unwrap())
}

fn version_of(event: &QueuedEvent) -> u8 {
    event.object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}
