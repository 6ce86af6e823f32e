//! The slots of one watch.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::object::Object;
use kopf_core::object_worker::WorkerContext;
use kopf_core::slot::{Action, Admission, SlotState};
use kopf_core::time::Timestamp;
use serde_json::json;

use super::*;
use crate::testing::resource;

fn key(name: &str) -> Arc<str> {
    Arc::from(name)
}

fn event(name: &str) -> QueuedEvent {
    let object = Object::decode(&format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).unwrap();
    QueuedEvent::of(EventType::Listed, Arc::new(object))
}

/// The slot when its work is done.
fn finished(mut slot: Slot) -> Slot {
    slot.on_cycle_end();
    slot
}

/// Reports an event of the object.
fn report(slot: &mut Slot, event: QueuedEvent, admission: Admission) -> Action {
    let handler = json!({"id": "see", "kind": "watching"});
    let registry = Arc::new(Registry { handlers: vec![serde_json::from_value(handler).unwrap()] });
    let resource_handlers =
        Arc::new(registry.handlers_of(&resource("example.com", "things", true), &|_| true));
    let config =
        Arc::new(OperatorConfig { registry, settings: Arc::default(), lifecycle: Lifecycle::AllAtOnce });
    let context = WorkerContext {
        resource_handlers: &resource_handlers,
        startup_config: &config,
        live_config: &config,
    };
    slot.on_event(event, admission, context, || Timestamp::from_micros(0))
}

/// Lets a worker be in progress.
fn occupy(slot: &mut Slot) {
    assert!(matches!(report(slot, event("busy"), Admission::default()), Action::Open(_)));
    slot.enter_worker(Arc::default);
}

/// Adds the object to the backlog.
fn park(slots: &mut Slots, name: &str) {
    let admission = Admission { is_full: true, ..Admission::default() };
    let action = report(slots.entry(&key(name), EventType::Listed), event(name), admission);
    let Action::Park(bytes) = action else { panic!("{action:?}") };
    slots.backlog.push(key(name), bytes);
}

fn forgotten(vanished: &[RemovedObject]) -> Vec<Arc<str>> {
    vanished.iter().filter(|one| one.forgotten).map(|one| Arc::clone(&one.key)).collect()
}

// contract: engine 11
#[test]
fn objects_missing_in_a_listing_are_removed_unless_they_are_busy() {
    let mut slots = Slots::default();
    slots.entry(&key("stays"), EventType::Added);
    slots.entry(&key("goes"), EventType::Added);
    occupy(slots.entry(&key("busy"), EventType::Added));
    slots.begin_listing(0, 0);
    slots.entry(&key("stays"), EventType::Listed);
    assert_eq!(forgotten(&slots.end_listing()), [key("goes")]);
    assert!(slots.get("goes").is_none());
    assert_eq!(slots.get("stays").map(|slot| slot.worker.gone), Some(false));
    // Its worker removes the slot in the end, unless the object comes back.
    assert_eq!(slots.get("busy").map(|slot| slot.worker.gone), Some(true));
    assert!(!slots.entry(&key("busy"), EventType::Modified).worker.gone);
}

#[test]
fn the_slot_of_an_idle_object_is_small() {
    let kept = size_of::<(Arc<str>, Slot)>();
    assert!(kept <= 112, "a slot has {kept} bytes, in addition to its key of 36 letters");
}

#[test]
fn all_slots_are_removed_with_the_watch() {
    let mut slots = Slots::default();
    slots.entry(&key("idle"), EventType::Listed);
    occupy(slots.entry(&key("busy"), EventType::Listed));
    assert_eq!(forgotten(&slots.end()), [key("idle")]);
    assert_eq!(slots.len(), 1);
}

#[test]
fn waiting_objects_are_not_busy_and_their_bytes_are_released_on_removal() {
    let (mut slots, mut successor) = (Slots::default(), Slots::default());
    for name in ["goes", "moves"] {
        park(&mut slots, name);
    }
    assert!(slots.busy().is_empty() && slots.backlog.bytes() > 0);
    slots.begin_listing(0, 0);
    slots.entry(&key("moves"), EventType::Listed);
    assert_eq!(forgotten(&slots.end_listing()), [key("goes")]);
    slots.hand_over(&mut successor);
    assert_eq!(slots.backlog.bytes(), 0);
    assert!(successor.entry(&key("moves"), EventType::Listed).is_idle());
}

#[test]
fn slots_are_handed_over_to_another_version() {
    let (mut slots, mut successor) = (Slots::default(), Slots::default());
    slots.entry(&key("idle"), EventType::Listed).worker.memory.fully_handled_once = true;
    let busy = slots.entry(&key("busy"), EventType::Listed);
    busy.worker.memory.fully_handled_once = true;
    occupy(busy);
    slots.hand_over(&mut successor);
    assert_eq!(slots.busy(), [key("busy")]);
    assert_eq!(slots.len(), 1);
    let idle = successor.entry(&key("idle"), EventType::Listed);
    assert!(idle.worker.memory.fully_handled_once && idle.worker.memory.noticed_by_listing && idle.is_idle());
    let busy = successor.entry(&key("busy"), EventType::Listed);
    assert!(!busy.worker.memory.fully_handled_once);
    assert!(matches!(busy.state(), SlotState::Awaiting));
    assert!(matches!(report(busy, event("busy"), Admission::default()), Action::Notify(None)));
    let (gone, pending) = successor.adopt(&key("busy"), finished(slots.take("busy").unwrap()));
    assert!(gone.is_none() && pending.len() == 1);
    let busy = successor.get("busy").unwrap();
    assert!(busy.worker.memory.fully_handled_once && busy.is_idle());
}

#[test]
fn objects_deleted_in_either_version_are_not_handed_over() {
    for by_predecessor in [true, false] {
        let (mut slots, mut successor) = (Slots::default(), Slots::default());
        occupy(slots.entry(&key("a"), EventType::Listed));
        slots.hand_over(&mut successor);
        if by_predecessor {
            slots.get("a").unwrap().worker.gone = true;
        } else {
            successor.begin_listing(0, 0);
            assert!(forgotten(&successor.end_listing()).is_empty(), "it is still busy");
        }
        let (gone, pending) = successor.adopt(&key("a"), finished(slots.take("a").unwrap()));
        assert!(gone.is_some_and(|gone| gone.forgotten) && pending.is_empty());
        assert!(successor.is_empty());
    }
}

/// As after a deselection that the predecessor has handled as a deletion.
#[test]
fn an_object_that_is_back_in_the_successor_is_handled_there_as_a_new_one() {
    let (mut slots, mut successor) = (Slots::default(), Slots::default());
    occupy(slots.entry(&key("a"), EventType::Listed));
    slots.hand_over(&mut successor);
    slots.get("a").unwrap().worker.gone = true;
    for kind in [EventType::Modified, EventType::Deleted, EventType::Added] {
        let waiting = QueuedEvent { kind, ..event("a") };
        report(successor.entry(&key("a"), kind), waiting, Admission::default());
    }
    let (gone, pending) = successor.adopt(&key("a"), finished(slots.take("a").unwrap()));
    assert!(gone.is_some_and(|gone| gone.forgotten && !gone.is_deleted));
    assert_eq!(pending.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventType::Added]);
    assert!(successor.is_empty());
}

/// The events of this object wait for the initial indexing.
fn held(slots: &mut Slots, name: &str) {
    slots.entry(&key(name), EventType::Listed).on_gated_event(event(name), true, || true);
}

#[test]
fn objects_that_wait_for_the_initial_indexing_are_handed_over_as_idle_ones() {
    let (mut slots, mut successor) = (Slots::default(), Slots::default());
    held(&mut slots, "held");
    assert!(slots.busy().is_empty(), "nothing is done with it");
    slots.hand_over(&mut successor);
    assert!(slots.is_empty());
    assert!(successor.entry(&key("held"), EventType::Listed).is_idle(), "the successor indexes it");
}

#[test]
fn objects_that_wait_for_the_initial_indexing_are_removed_with_the_watch_or_by_a_listing() {
    let mut slots = Slots::default();
    for is_listed in [true, false] {
        held(&mut slots, "held");
        let removed = if is_listed {
            slots.begin_listing(0, 0);
            slots.end_listing()
        } else {
            slots.end()
        };
        assert_eq!(forgotten(&removed), [key("held")]);
        assert_eq!(removed[0].is_deleted, is_listed);
        assert!(slots.is_empty());
    }
    held(&mut slots, "held");
    assert!(slots.mark_removed(&key("held")).is_some_and(|removed| removed.forgotten));
}
