//! Handling of objects that the watch with a derived selector does not deliver any more.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::object::Object;
use kopf_core::object_worker::{QueuedEvent, SelectorMatch};

use super::Dispatcher;
use crate::object_key::key_of;
use crate::objects::selector_match::PendingLookup;

impl Dispatcher {
    /// Tracks whether the selector matches an event's object. False if it may be deselected: it is looked up then, and the event is not to
    /// be dispatched.
    pub(crate) fn is_selected(&self, kind: EventType, object: &Arc<Object>) -> bool {
        if self.derived.is_none() {
            return true;
        }
        let mut slots = self.slots();
        let Some(tracker) = &mut slots.tracker else { return true };
        let key = key_of(object);
        if kind != EventType::Deleted {
            tracker.on_selected(&key, object);
            return true;
        }
        tracker.record_address(&key, object);
        tracker.enqueue_lookup(&key, Some(Arc::clone(object)));
        slots.on_deselected(&key);
        false
    }

    /// The server has responded to a lookup; `found` is none if the object does not exist.
    pub(crate) fn on_found(self: &Arc<Self>, key: &Arc<str>, ticket: u64, found: Option<Object>) {
        let vanished = self.with_slots(|slots, effects| {
            let tracker = slots.tracker.as_mut().filter(|it| it.is_looked_up(key, ticket))?;
            let lookups = tracker.lookups.remove(key);
            let is_back = found.as_ref().is_some_and(|object| tracker.selector.matches(object));
            if found.is_none() {
                tracker.forget(key);
            }
            match (found, lookups.and_then(|lookups| lookups.last)) {
                // The watch will deliver that.
                (Some(_), _) if is_back => None,
                (Some(object), _) => {
                    // The response does not contain writes made after the request.
                    let is_stale =
                        slots.get(key).is_some_and(|slot| slot.worker.selector_match == SelectorMatch::Stale);
                    let selector_match =
                        if is_stale { SelectorMatch::Stale } else { SelectorMatch::Deselected };
                    slots.entry(key, EventType::Modified).worker.selector_match = selector_match;
                    let event = QueuedEvent::of(EventType::Modified, Arc::new(object));
                    self.enqueue(slots, key, event, effects);
                    None
                }
                (None, Some(last)) => {
                    slots.entry(key, EventType::Deleted);
                    self.enqueue(slots, key, QueuedEvent::of(EventType::Deleted, last), effects);
                    None
                }
                (None, None) => slots.mark_removed(key),
            }
        });
        self.terminate_daemons(vanished.into_iter().collect());
        self.shared.freed.notify_waiters();
    }

    /// The watch has ended and cannot deliver the objects of pending lookups any more: those are handled as deleted.
    pub(crate) fn end_lookups(self: &Arc<Self>) {
        let lookups: Vec<_> = {
            let mut slots = self.slots();
            let lookups = slots.tracker.as_mut().map(|tracker| std::mem::take(&mut tracker.lookups));
            lookups.into_iter().flatten().collect()
        };
        for (key, PendingLookup { ticket, last }) in lookups {
            if last.is_some() {
                if let Some(tracker) = &mut self.slots().tracker {
                    tracker.lookups.insert(Arc::clone(&key), PendingLookup { ticket, last });
                }
                self.on_found(&key, ticket, None);
            }
        }
    }
}
