//! The model: a cluster with one object, two dispatchers, an oracle, and all possible next steps.

use crate::dispatcher::{Dispatcher, Holder, ModelSlot};
use crate::injected_defects::Defect;
use crate::oracle::Oracle;
use crate::scenario::{Act, Budget, Scenario, Turn};
use kopf_core::cause::EventType;
use kopf_core::object_worker::OperatorState;
use kopf_core::time::Timestamp;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Model {
    pub budget: Budget,
    pub oracle: Oracle,
    pub dispatchers: Vec<Dispatcher>,
    /// The slot of a busy object whose work is done, on its way to the successor.
    pub adopting: Option<Box<ModelSlot>>,
    pub version: u8,
    pub exists: bool,
    pub is_selected: bool,
    pub stream: VecDeque<(EventType, u8)>,
    /// The watch is interrupted: a listing follows.
    pub needs_listing: bool,
    pub is_gate_open: bool,
    pub is_full: bool,
    pub is_paused: bool,
    pub is_standby: bool,
    pub pauses: u64,
    pub terms: u64,
    pub has_ended: bool,
    pub now: Timestamp,
}

impl Model {
    pub fn new(scenario: &Scenario, budget: Budget) -> Self {
        Self {
            budget,
            oracle: Oracle::default(),
            dispatchers: vec![Dispatcher::new(scenario.is_gated, 0)],
            adopting: None,
            version: 1,
            exists: true,
            is_selected: true,
            stream: VecDeque::new(),
            needs_listing: true,
            is_gate_open: !scenario.is_gated,
            is_full: false,
            is_paused: false,
            is_standby: false,
            pauses: 0,
            terms: 0,
            has_ended: false,
            now: Timestamp::from_micros(0),
        }
    }

    pub fn active(&self) -> usize {
        self.dispatchers.len() - 1
    }

    pub fn is_paused_in(&self, index: usize) -> bool {
        self.is_paused || self.is_standby || self.pauses != self.dispatchers[index].pauses
    }

    pub fn operator(&self, index: usize) -> OperatorState {
        OperatorState { paused: self.is_paused_in(index), stopping: false }
    }

    /// All possible next steps.
    pub fn choices(&self) -> Vec<Act> {
        let mut acts = self.own_choices();
        let (is_visible, is_reading) = (self.exists && self.is_selected, !self.is_paused && !self.has_ended);
        if self.exists {
            acts.extend([Act::Change, Act::Delete]);
            acts.push(if self.is_selected { Act::Hide } else { Act::Show });
        }
        if is_reading && !self.needs_listing {
            acts.push(Act::Interrupt);
        }
        if self.dispatchers.len() == 1 && !self.has_ended {
            acts.push(Act::HandOver);
        }
        if !self.is_paused {
            acts.push(Act::Pause(true));
        }
        // A cycle is opened without an interruption.
        let is_opening = |dispatcher: &Dispatcher| matches!(dispatcher.holder, Holder::Opening(_));
        if !self.is_standby && !self.dispatchers.iter().any(is_opening) {
            acts.push(Act::StandBy(true));
        }
        if is_visible && !self.is_full {
            acts.push(Act::Fill(true));
        }
        if !self.has_ended {
            acts.push(Act::End);
        }
        for (index, dispatcher) in self.dispatchers.iter().enumerate() {
            let turns: &[Turn] = match dispatcher.holder {
                Holder::Opening(_) => &[Turn::Detach, Turn::Continue, Turn::Fail, Turn::Delay, Turn::Panic],
                Holder::Detached(_) => &[Turn::Continue, Turn::Fail, Turn::Delay, Turn::Panic],
                Holder::Worker(Some(_)) => &[Turn::Fail, Turn::Delay, Turn::Panic],
                _ => &[],
            };
            acts.extend(turns.iter().map(|turn| Act::Proceed(index, *turn)));
        }
        let mut budget = self.budget;
        acts.retain(|act| budget.of(*act).is_none_or(|left| *left > 0));
        acts
    }

    /// Possible next steps without any interference.
    pub fn own_choices(&self) -> Vec<Act> {
        let mut acts = Vec::new();
        let is_reading = !self.is_paused && !self.has_ended;
        if is_reading && self.needs_listing {
            acts.push(Act::Relist);
        } else if is_reading && !self.stream.is_empty() {
            acts.push(Act::Deliver);
        }
        for (index, dispatcher) in self.dispatchers.iter().enumerate() {
            if dispatcher.messages > 0 {
                acts.push(Act::Index(index));
            } else if dispatcher.held > 0 && self.is_gate_open {
                acts.push(Act::Release(index));
            }
            match dispatcher.holder {
                Holder::None => {}
                Holder::Opening(_) | Holder::Detached(_) | Holder::Worker(Some(_)) => {
                    acts.push(Act::Proceed(index, Turn::Decide));
                }
                Holder::Worker(None) | Holder::Sleeping(_) => acts.push(Act::Next(index)),
            }
            if dispatcher.following > 0 {
                acts.push(Act::Follow(index));
            }
            if dispatcher.has_key && !self.is_full && !self.is_paused && !self.is_standby {
                acts.push(Act::Unpark(index));
            }
        }
        let is_indexed = self.dispatchers.iter().all(|dispatcher| dispatcher.messages == 0);
        if !self.is_gate_open && is_indexed && !self.needs_listing {
            acts.push(Act::OpenGate);
        }
        if self.adopting.is_some() {
            acts.push(Act::Adopt);
        }
        if self.is_full {
            acts.push(Act::Fill(false));
        }
        if self.is_paused {
            acts.push(Act::Pause(false));
        }
        if self.is_standby {
            acts.push(Act::StandBy(false));
        }
        acts
    }

    pub fn act(&mut self, scenario: &Scenario, act: Act) {
        if let Some(left) = self.budget.of(act) {
            *left = left.saturating_sub(1);
        }
        match act {
            Act::Deliver => {
                if let Some((kind, version)) = self.stream.pop_front() {
                    self.event(scenario, kind, version);
                }
            }
            Act::Relist => self.relist(scenario),
            Act::Interrupt => {
                self.stream.clear();
                self.needs_listing = true;
            }
            Act::Index(index) => self.index(index),
            Act::OpenGate => self.is_gate_open = true,
            Act::Release(index) => self.release(scenario, index),
            Act::Proceed(index, turn) => self.proceed(scenario, index, turn),
            Act::Next(index) => self.next(scenario, index),
            Act::Unpark(index) => {
                self.dispatchers[index].has_key = false;
                let is_paused = self.is_paused_in(index);
                let slot = self.dispatchers[index].slot.as_mut();
                if let Some(unparked) = slot.and_then(|slot| slot.unpark(is_paused)) {
                    self.unpark(scenario, index, unparked);
                }
            }
            Act::Adopt => self.adopt(scenario),
            Act::HandOver => self.hand_over(scenario),
            Act::End => {
                self.has_ended = true;
                let index = self.active();
                self.dispatchers[index].end_watch();
                self.stream.clear();
                self.remove(scenario, index, false);
            }
            Act::Fill(is_full) => self.is_full = is_full,
            Act::Pause(is_paused) => self.pause(scenario, is_paused),
            Act::StandBy(true) => self.lose_term(scenario),
            Act::StandBy(false) => {
                self.is_standby = false;
                (self.pauses, self.terms) = (self.pauses + 1, self.terms + 1);
                self.stream.clear();
                self.needs_listing = true;
            }
            Act::Follow(index) => self.follow(scenario, index),
            Act::Change | Act::Delete | Act::Hide | Act::Show => self.change(act),
        }
        for dispatcher in &self.dispatchers {
            dispatcher.check(&mut self.oracle);
        }
    }

    /// Another client changes the object.
    fn change(&mut self, act: Act) {
        self.version += 1;
        let kind = match act {
            Act::Delete => EventType::Deleted,
            Act::Show => EventType::Added,
            _ => EventType::Modified,
        };
        match act {
            Act::Delete => self.exists = false,
            Act::Show => self.is_selected = true,
            Act::Hide => {
                self.is_selected = false;
                self.stream.clear();
                self.needs_listing = true;
            }
            _ => {}
        }
        if self.is_selected && !self.needs_listing && !self.is_paused && !self.has_ended {
            self.stream.push_back((kind, self.version));
        }
    }

    fn pause(&mut self, scenario: &Scenario, is_paused: bool) {
        self.is_paused = is_paused;
        self.stream.clear();
        self.needs_listing = true;
        if is_paused {
            self.pauses += 1;
        } else if scenario.has(Defect::SkipsListing) {
            let active = self.active();
            self.dispatchers[active].pauses = self.pauses;
            self.needs_listing = false;
        }
    }

    fn relist(&mut self, scenario: &Scenario) {
        self.stream.clear();
        self.needs_listing = false;
        let index = self.active();
        let dispatcher = &mut self.dispatchers[index];
        dispatcher.listing += 1;
        let is_after_pause = std::mem::replace(&mut dispatcher.pauses, self.pauses) != self.pauses;
        let is_after_loss = std::mem::replace(&mut dispatcher.terms, self.terms) != self.terms;
        match &mut dispatcher.slot {
            Some(slot) if is_after_loss => slot.begin_term(),
            Some(slot) if is_after_pause => slot.invalidate(),
            _ => {}
        }
        if self.exists && self.is_selected {
            self.event(scenario, EventType::Listed, self.version);
        }
        let dispatcher = &self.dispatchers[index];
        if dispatcher.slot.as_ref().is_some_and(|slot| slot.is_missing(dispatcher.listing)) {
            self.remove(scenario, index, true);
        }
    }

    /// Whether nothing remains to be done without interference.
    pub fn is_idle(&self) -> bool {
        self.own_choices().is_empty() && self.dispatchers.iter().all(Dispatcher::is_idle)
    }

    /// Lets the driver continue without any interference, and checks the laws of the idle state.
    pub fn settle(&mut self, scenario: &Scenario) {
        for _ in 0..100 {
            if self.oracle.violation.is_some() {
                return;
            }
            let Some(act) = self.own_choices().first().copied() else {
                let has_slot = self.dispatchers.iter().any(|dispatcher| dispatcher.slot.is_some());
                let is_visible = self.exists && self.is_selected && !self.has_ended;
                return self.oracle.check_idle(has_slot, is_visible.then_some(self.version));
            };
            self.act(scenario, act);
        }
        self.oracle.violate("the work does not end");
    }
}
