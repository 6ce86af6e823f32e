//! `QueuedEvent`: an event of an object, from its arrival to the end of its cycle.

use std::sync::Arc;

use crate::cause::EventType;
use crate::object::Object;
use crate::time::Timestamp;

/// An event of an object. It waits while a cycle of the object runs; then a cycle decides about it.
#[derive(Clone, Debug)]
pub struct QueuedEvent {
    /// The type of the event.
    pub kind: EventType,
    /// The new state, as received.
    pub object: Arc<Object>,
    /// Not a watch event: a delay is over, and the last state is handled again.
    pub requeued: bool,
    /// The indices already contain the object.
    pub indexed: bool,
    /// When it was received, if it could not be handled at once.
    pub arrived: Option<Timestamp>,
}

impl QueuedEvent {
    /// A watch event.
    pub fn of(kind: EventType, object: Arc<Object>) -> Self {
        Self { kind, object, requeued: false, indexed: false, arrived: None }
    }

    /// The state of an object to be handled again without a watch event.
    pub fn requeued(object: Arc<Object>) -> Self {
        Self { requeued: true, ..Self::of(EventType::Modified, object) }
    }
}
