//! The transitions of a slot: each state with each input. The laws of sequences are in `tests/slot_explorer`.

use super::*;
use crate::cycle::OperatorConfig;
use crate::handler::lifecycle::Lifecycle;
use crate::handler::registry::{Registry, ResourceHandlers};
use crate::object::Object;
use crate::object_worker::QueuedEvent;
use crate::resource::Resource;
use serde_json::json;
use std::sync::Arc;

type TestSlot = Slot<u8, u8>;

const STATES: [&str; 7] = ["idle", "gated", "parked", "awaiting", "opening", "detached", "working"];

/// Each input with the actions in these states, and the next state if it is another one.
const TABLE: [(&str, [&str; 7]); 20] = [
    ("event", ["open: opening", "wait", "unpark 1,3: idle", "wait", "wait", "wait", "wait"]),
    ("listed", ["open: opening", "wait", "unpark 1,3: idle", "wait", "wait", "wait", "wait"]),
    ("listed when full", ["park: parked", "wait", "wait", "wait", "wait", "wait", "wait"]),
    ("deleted", ["open: opening", "wait", "unpark 1,3: idle", "wait", "wait", "wait", "wait"]),
    ("event in a pause", ["nothing", "wait", "wait", "wait", "wait", "wait", "wait"]),
    ("deleted in a pause", ["open: opening", "wait", "unpark 3: idle", "wait", "wait", "wait", "wait"]),
    ("event of a standby", ["index: gated", "wait", "wait", "wait", "wait", "wait", "wait"]),
    ("deleted in a standby", ["remove", "remove", "remove", "remove", "remove", "remove", "remove"]),
    ("event before the gate", ["wait: gated", "wait", "passed", "wait", "passed", "passed", "passed"]),
    ("event after the gate", ["open gate", "wait", "passed", "wait", "passed", "passed", "passed"]),
    ("wake", ["open: opening", "nothing", "nothing", "wait", "wait", "wait", "wait"]),
    ("release", ["events", "events 1: idle", "events", "events", "events", "events", "events"]),
    (
        "turn in the backlog",
        ["nothing", "nothing", "unpark 1: idle", "nothing", "nothing", "nothing", "nothing"],
    ),
    ("turn in a pause", ["nothing", "nothing", "unpark: idle", "nothing", "nothing", "nothing", "nothing"]),
    ("removed", ["over", "over: idle", "over, bytes left: idle", "later", "later", "later", "later"]),
    ("handed over", ["moved", "moved: idle", "moved, bytes left: idle", "kept", "kept", "kept", "kept"]),
    ("completed", ["nothing", "nothing", "nothing", "nothing", "nothing", "cycle 1: opening", "nothing"]),
    ("another completed", ["nothing", "nothing", "nothing", "nothing", "nothing", "nothing", "nothing"]),
    ("newest to index", ["nothing", "event 1", "nothing", "nothing", "nothing", "nothing", "nothing"]),
    ("first to index", ["nothing", "event 1", "nothing", "nothing", "nothing", "nothing", "nothing"]),
];

struct Config {
    resource_handlers: Arc<ResourceHandlers>,
    config: Arc<OperatorConfig>,
}

impl Config {
    fn new() -> Self {
        let handler = json!({"id": "see", "kind": "watching"});
        let registry = Arc::new(Registry { handlers: vec![serde_json::from_value(handler).unwrap()] });
        let resource: Resource = serde_json::from_value(json!({
            "group": "example.com", "version": "v1", "plural": "things", "kind": "Thing", "singular": "thing",
            "shortcuts": [], "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
        }))
        .unwrap();
        let resource_handlers = Arc::new(registry.handlers_of(&Arc::new(resource), &|_| true));
        let config = OperatorConfig { registry, settings: Arc::default(), lifecycle: Lifecycle::Asap };
        Self { resource_handlers, config: Arc::new(config) }
    }

    fn context(&self) -> WorkerContext<'_> {
        WorkerContext {
            resource_handlers: &self.resource_handlers,
            startup_config: &self.config,
            live_config: &self.config,
        }
    }

    fn report(&self, slot: &mut TestSlot, event: QueuedEvent, admission: Admission) -> Action {
        slot.on_event(event, admission, self.context(), || Timestamp::from_micros(7))
    }
}

fn event(kind: EventType, version: u8) -> QueuedEvent {
    let text = format!(r#"{{"metadata":{{"name":"x","uid":"u","resourceVersion":"{version}"}}}}"#);
    QueuedEvent::of(kind, Arc::new(Object::decode(&text).unwrap()))
}

const FULL: Admission = Admission { is_full: true, is_standby: false, is_paused: false, only_indexes: false };
const PAUSED: Admission = Admission { is_paused: true, is_full: false, ..FULL };
const STANDBY: Admission = Admission { is_standby: true, only_indexes: true, ..PAUSED };
const NORMAL: Admission = Admission { is_full: false, ..FULL };

/// A slot in this state, with an event of the version 1.
fn slot_in(state: &str, config: &Config) -> TestSlot {
    let mut slot = TestSlot::new(EventType::Added);
    let first = event(EventType::Listed, 1);
    match state {
        "idle" => {}
        "gated" => assert_eq!(slot.on_gated_event(first, true, || true), GateReaction::Waits),
        "parked" => assert!(matches!(config.report(&mut slot, first, FULL), Action::Park(_))),
        _ => assert!(matches!(config.report(&mut slot, first, NORMAL), Action::Open(_))),
    }
    match state {
        "awaiting" => slot = slot.hand_over(1).heir,
        "detached" => slot.detach(1),
        "working" => assert_eq!(slot.enter_worker(|| 1), 1),
        _ => {}
    }
    assert_eq!(name(&slot), state);
    slot
}

fn name(slot: &TestSlot) -> &'static str {
    let (name, is_waiting) = match slot.state() {
        SlotState::Idle => ("idle", false),
        SlotState::Gated => ("gated", true),
        SlotState::Parked(_) => ("parked", true),
        SlotState::Awaiting => ("awaiting", true),
        SlotState::Opening => ("opening", false),
        SlotState::Detached(_) => ("detached", false),
        SlotState::Working(_) => ("working", false),
    };
    assert_eq!(slot.is_idle(), name == "idle");
    assert_eq!(slot.is_busy(), !["idle", "gated", "parked"].contains(&name));
    assert_eq!(slot.is_parked(), name == "parked");
    assert!(!(is_waiting && slot.worker.is_running()), "no cycle runs in a waiting slot");
    name
}

fn versions<'a>(events: impl IntoIterator<Item = &'a QueuedEvent>) -> String {
    let versions: Vec<_> = events.into_iter().filter_map(|event| event.object.resource_version()).collect();
    versions.join(",")
}

fn described(action: &Action) -> String {
    match action {
        Action::Open(_) => "open".to_owned(),
        Action::Drive => "drive".to_owned(),
        Action::Notify(_) => "wait".to_owned(),
        Action::Park(_) => "park".to_owned(),
        Action::Unpark(unparked) => format!("unpark {}", versions(&unparked.events)),
        Action::Index => "index".to_owned(),
        Action::Remove => "remove".to_owned(),
        Action::Ignore => "nothing".to_owned(),
    }
}

/// Reports the input; the action as text.
fn report(slot: &mut TestSlot, input: &str, config: &Config) -> String {
    let of = |kind| event(kind, 3);
    let gate =
        |slot: &mut TestSlot, is_closed| match slot
            .on_gated_event(of(EventType::Modified), true, || is_closed)
        {
            GateReaction::Waits => "wait".to_owned(),
            GateReaction::Open => "open gate".to_owned(),
            GateReaction::Passed => "passed".to_owned(),
        };
    let or_nothing = |text: Option<String>| text.unwrap_or_else(|| "nothing".to_owned());
    let left = |bytes: usize| if bytes > 0 { ", bytes left" } else { "" };
    let turn = |slot: &mut TestSlot, is_paused| {
        slot.unpark(is_paused).map(|unparked| format!("unpark {}", versions(&unparked.events)))
    };
    let text = match input {
        "event" => described(&config.report(slot, of(EventType::Modified), NORMAL)),
        "listed" => described(&config.report(slot, of(EventType::Listed), NORMAL)),
        "listed when full" => described(&config.report(slot, of(EventType::Listed), FULL)),
        "deleted" => described(&config.report(slot, of(EventType::Deleted), NORMAL)),
        "event in a pause" => described(&config.report(slot, of(EventType::Modified), PAUSED)),
        "deleted in a pause" => described(&config.report(slot, of(EventType::Deleted), PAUSED)),
        "event of a standby" => described(&config.report(slot, of(EventType::Modified), STANDBY)),
        "deleted in a standby" => described(&config.report(slot, of(EventType::Deleted), STANDBY)),
        "event before the gate" => gate(slot, true),
        "event after the gate" => gate(slot, false),
        "wake" => {
            let object = of(EventType::Modified).object;
            or_nothing(
                slot.on_wake(object, OperatorState::default(), config.context()).as_ref().map(described),
            )
        }
        "release" => {
            let events = slot.release(false, OperatorState::default(), config.context());
            format!("events {}", versions(&events))
        }
        "turn in the backlog" => or_nothing(turn(slot, false)),
        "turn in a pause" => or_nothing(turn(slot, true)),
        "removed" => {
            let removal = slot.remove(true).unwrap();
            assert_eq!(slot.remove(true), None, "it is removed once");
            format!("{}{}", if removal.is_over { "over" } else { "later" }, left(removal.bytes))
        }
        "handed over" => {
            let HandOver { heir, is_moved, bytes } = slot.hand_over(1);
            assert_eq!(name(&heir), if is_moved { "idle" } else { "awaiting" });
            format!("{}{}", if is_moved { "moved" } else { "kept" }, left(bytes))
        }
        "completed" => or_nothing(slot.take_detached(|id| *id == 1).map(|id| format!("cycle {id}"))),
        "another completed" => or_nothing(slot.take_detached(|id| *id == 2).map(|id| format!("cycle {id}"))),
        "newest to index" => {
            or_nothing(slot.take_newest_gated().map(|it| format!("event {}", versions([&it]))))
        }
        "first to index" => or_nothing(slot.first_gated().map(|it| format!("event {}", versions([it])))),
        other => panic!("no input {other}"),
    };
    text.trim_end().to_owned()
}

#[test]
fn each_state_takes_each_input() {
    let (config, mut wrong) = (Config::new(), Vec::new());
    for (input, expected) in TABLE {
        for (state, expected) in STATES.iter().zip(expected) {
            let mut slot = slot_in(state, &config);
            let mut found = report(&mut slot, input, &config);
            if name(&slot) != *state {
                found = format!("{found}: {}", name(&slot));
            }
            if found != expected {
                wrong.push(format!("{input} in {state}: {found}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_end_of_a_cycle_keeps_the_slot_or_removes_it_or_needs_a_worker() {
    let config = Config::new();
    for state in ["opening", "working"] {
        for (is_gone, selector_match, has_events, expected) in [
            (false, SelectorMatch::Selected, false, Ending::Keep),
            (true, SelectorMatch::Selected, false, Ending::Remove),
            (false, SelectorMatch::Stale, false, Ending::RemoveUnlessLookedUp),
            (true, SelectorMatch::Deselected, true, Ending::Drive),
        ] {
            let mut slot = slot_in(state, &config);
            if has_events {
                config.report(&mut slot, event(EventType::Modified, 2), NORMAL);
            }
            slot.worker.selector_match = selector_match;
            if is_gone {
                assert!(slot.remove(false).is_some_and(|removal| !removal.is_over));
            }
            assert_eq!(slot.on_cycle_end(), expected);
            assert_eq!(name(&slot), if has_events { state } else { "idle" });
        }
    }
}

#[test]
fn only_the_state_that_was_indexed_is_marked() {
    let mut slot = slot_in("gated", &Config::new());
    let first = Arc::clone(&slot.first_gated().unwrap().object);
    slot.mark_indexed(&event(EventType::Listed, 1).object);
    assert!(slot.first_gated().is_some_and(|event| !event.indexed));
    slot.mark_indexed(&first);
    assert!(slot.first_gated().is_some_and(|event| event.indexed));
}

#[test]
fn an_object_has_one_worker() {
    let mut slot = slot_in("opening", &Config::new());
    assert_eq!((slot.enter_worker(|| 1), slot.enter_worker(|| 2), slot.working()), (1, 1, Some(&1)));
}

#[test]
fn a_removed_object_that_is_back_is_kept() {
    let config = Config::new();
    let mut slot = slot_in("working", &config);
    assert!(slot.remove(true).is_some());
    slot.observe(EventType::Modified, 2);
    assert!(!slot.worker.gone && !slot.worker.is_deleted && !slot.is_missing(2) && slot.is_missing(3));
    assert_eq!(slot.on_cycle_end(), Ending::Keep);
}

#[test]
fn a_standby_indexes_the_newest_state_that_is_not_indexed_yet() {
    let config = Config::new();
    for is_indexed in [true, false] {
        let mut slot = TestSlot::new(EventType::Added);
        config.report(&mut slot, event(EventType::Modified, 1), STANDBY);
        config.report(&mut slot, event(EventType::Modified, 2), STANDBY);
        let newest = QueuedEvent { indexed: is_indexed, ..event(EventType::Modified, 3) };
        config.report(&mut slot, newest, STANDBY);
        let operator = OperatorState { paused: true, ..OperatorState::default() };
        let events = slot.release(true, operator, config.context());
        assert_eq!(versions(&events), if is_indexed { "" } else { "3" });
        assert!(slot.is_idle());
    }
}
