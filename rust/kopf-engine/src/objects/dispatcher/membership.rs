//! Objects that the watch with a derived selector does not deliver any more: what the dispatcher does with them.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::object::Object;

use super::Dispatcher;
use crate::object_key::key_of;
use crate::objects::membership::{Membership, PendingLookup};
use crate::objects::slots::QueuedEvent;

impl Dispatcher {
    /// Sees whether an event of a stream is what it seems to be; gives the object back if so.
    pub(crate) fn filter_event(&self, kind: EventType, object: Object) -> Option<Object> {
        if self.derived.is_none() {
            return Some(object);
        }
        let mut slots = self.slots();
        let Some(departures) = &mut slots.departures else { return Some(object) };
        let key = key_of(&object);
        if kind != EventType::Deleted {
            departures.arrived(&key, &object);
            return Some(object);
        }
        departures.note(&key, &object);
        departures.enqueue_lookup(&key, Some(Arc::new(object)));
        slots.on_deselected(&key);
        None
    }

    /// The server has told what has become of an object.
    pub(crate) fn on_found(self: &Arc<Self>, key: &Arc<str>, ticket: u64, found: Option<Object>) {
        let vanished = self.with_slots(|slots, effects| {
            let departures = slots.departures.as_mut().filter(|it| it.is_looked_up(key, ticket))?;
            let lookups = departures.lookups.remove(key);
            let is_back = found.as_ref().is_some_and(|object| departures.selector.matches(object));
            if found.is_none() {
                departures.forget(key);
            }
            let event =
                |kind, object| QueuedEvent { kind, object, requeued: false, indexed: false, received: None };
            match (found, lookups.and_then(|lookups| lookups.last)) {
                // The stream will tell of that.
                (Some(_), _) if is_back => None,
                (Some(object), _) => {
                    // What was written after the question, is not in the answer.
                    let is_stirred = slots.get(key).is_some_and(|slot| slot.place == Membership::Stale);
                    let place = if is_stirred { Membership::Stale } else { Membership::Deselected };
                    slots.entry(key, EventType::Modified).place = place;
                    let event = event(EventType::Modified, Arc::new(object));
                    self.enqueue(slots, Arc::clone(key), event, effects);
                    None
                }
                (None, Some(last)) => {
                    slots.entry(key, EventType::Deleted);
                    self.enqueue(slots, Arc::clone(key), event(EventType::Deleted, last), effects);
                    None
                }
                (None, None) => slots.mark_removed(key),
            }
        });
        self.terminate_daemons(vanished.into_iter().collect());
        self.shared.freed.notify_waiters();
    }

    /// The stream is over, with all that it could have told of: what seemed to be deleted, is.
    pub(crate) fn end_departures(self: &Arc<Self>) {
        let lookups: Vec<_> = {
            let mut slots = self.slots();
            let lookups = slots.departures.as_mut().map(|departures| std::mem::take(&mut departures.lookups));
            lookups.into_iter().flatten().collect()
        };
        for (key, PendingLookup { ticket, last }) in lookups {
            if last.is_some() {
                if let Some(departures) = &mut self.slots().departures {
                    departures.lookups.insert(Arc::clone(&key), PendingLookup { ticket, last });
                }
                self.on_found(&key, ticket, None);
            }
        }
    }
}
