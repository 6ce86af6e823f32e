//! The operators to explore, the steps of the model, and how many of each kind are possible.

use crate::injected_defects::Defect;
use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::{Registry, ResourceHandlers};
use kopf_core::object_worker::WorkerContext;
use kopf_core::resource::Resource;
use serde_json::json;
use std::sync::Arc;

/// The handlers of an operator, and the defect injected into its driver.
#[derive(Debug)]
pub struct Scenario {
    pub is_gated: bool,
    pub defect: Option<Defect>,
    pub resource_handlers: Arc<ResourceHandlers>,
    pub config: Arc<OperatorConfig>,
}

impl Scenario {
    /// With event handlers, every event is handled; with change handlers, the newest state.
    pub fn all(defect: Option<Defect>) -> Vec<Self> {
        let all = [("watching", false), ("watching", true), ("changing", false), ("changing", true)];
        all.map(|(kind, is_gated)| Self::new(kind, is_gated, defect)).into()
    }

    fn new(kind: &str, is_gated: bool, defect: Option<Defect>) -> Self {
        let handler = json!({"id": "h", "kind": kind, "reason": "update"});
        let registry = Arc::new(Registry { handlers: vec![serde_json::from_value(handler).unwrap()] });
        let resource: Resource = serde_json::from_value(json!({
            "group": "example.com", "version": "v1", "plural": "things", "kind": "Thing", "singular": "thing",
            "shortcuts": [], "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
        }))
        .unwrap();
        let resource_handlers = Arc::new(registry.handlers_of(&Arc::new(resource), &|_| true));
        let config = OperatorConfig { registry, settings: Arc::default(), lifecycle: Lifecycle::Asap };
        Self { is_gated, defect, resource_handlers, config: Arc::new(config) }
    }

    pub fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub fn context(&self) -> WorkerContext<'_> {
        WorkerContext {
            resource_handlers: &self.resource_handlers,
            startup_config: &self.config,
            live_config: &self.config,
        }
    }
}

/// How a cycle continues after it is opened, or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// It is decided: the object is handled.
    Decide,
    /// It is decided, and the object is handled again after a delay.
    Delay,
    /// It waits for a completion without a task.
    Detach,
    /// A worker continues it.
    Continue,
    /// It has failed.
    Fail,
    /// It panics.
    Panic,
}

/// One step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// The watch delivers the next event.
    Deliver,
    /// The object is relisted, after an interruption of the watch.
    Relist,
    /// The watch is interrupted.
    Interrupt,
    /// The next object is indexed.
    Index(usize),
    /// The index gate opens.
    OpenGate,
    /// The next object is released, since the gate is open.
    Release(usize),
    /// The holder of the object continues.
    Proceed(usize, Turn),
    /// The worker executes its next action, or its sleep is over.
    Next(usize),
    /// It is the object's turn in the backlog.
    Unpark(usize),
    /// The successor takes the object over.
    Adopt,
    /// The object changes, is deleted, is excluded from the watch while that is interrupted, or included again.
    Change,
    Delete,
    Hide,
    Show,
    /// The backlog has room for listed objects, or not.
    Fill(bool),
    /// The operator is paused, or continues.
    Pause(bool),
    /// The replica loses the lease, or leads again.
    StandBy(bool),
    /// A standby indexes the newest state of the object, or ends to index it.
    Follow(usize),
    /// The resource gets another version.
    HandOver,
    /// The watch ends for good.
    End,
}

/// Number of further steps of each kind of interference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub changes: u8,
    pub deletions: u8,
    pub hides: u8,
    pub interruptions: u8,
    pub pauses: u8,
    pub losses: u8,
    pub hand_overs: u8,
    pub fills: u8,
    pub panics: u8,
    pub failures: u8,
    pub ends: u8,
}

impl Budget {
    pub const NONE: Self = Self {
        changes: 0,
        deletions: 0,
        hides: 0,
        interruptions: 0,
        pauses: 0,
        losses: 0,
        hand_overs: 0,
        fills: 0,
        panics: 0,
        failures: 0,
        ends: 0,
    };

    pub fn of(&mut self, act: Act) -> Option<&mut u8> {
        Some(match act {
            Act::Change => &mut self.changes,
            Act::Delete => &mut self.deletions,
            Act::Hide => &mut self.hides,
            Act::Interrupt => &mut self.interruptions,
            Act::Pause(true) => &mut self.pauses,
            Act::StandBy(true) => &mut self.losses,
            Act::HandOver => &mut self.hand_overs,
            Act::Fill(true) => &mut self.fills,
            Act::Proceed(_, Turn::Panic) => &mut self.panics,
            Act::Proceed(_, Turn::Fail | Turn::Delay) => &mut self.failures,
            Act::End => &mut self.ends,
            _ => return None,
        })
    }
}
