//! The way to the wheel's task: what comes together is heard together.
//!
//! The other side answers in batches, but each answer alone would wake the wheel up, and it would be asleep again before the
//! next one: waking costs more than what is said.
//!
//! The queue is bounded by the daemons and timers that there are: each of them has one message on its way at most, besides
//! those of its start and its end. The sender may be a thread of Python, which must not wait for the engine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::wheel::Message;

/// The way to the wheel. Its copies lead to the same one.
#[derive(Clone)]
pub struct Reports(Arc<Way>);

struct Way {
    sender: UnboundedSender<Message>,
    receiver: Mutex<Option<UnboundedReceiver<Message>>>,
    held: Mutex<Held>,
}

/// What is to be said at once.
#[derive(Default)]
struct Held {
    holders: usize,
    messages: Vec<Message>,
}

impl Default for Reports {
    fn default() -> Self {
        let (sender, receiver) = unbounded_channel();
        let receiver = Mutex::new(Some(receiver));
        Self(Arc::new(Way { sender, receiver, held: Mutex::default() }))
    }
}

impl Reports {
    /// Says all that is said meanwhile at once, afterwards.
    pub fn in_bulk(&self, say: impl FnOnce()) {
        let bulk = Bulk::begin(self);
        say();
        drop(bulk);
    }

    pub(super) fn tell(&self, message: Message) {
        let mut held = self.held();
        if held.holders > 0 {
            held.messages.push(message);
        } else {
            // It fails only when the operator is over.
            let _ = self.0.sender.send(message);
        }
    }

    /// For the wheel: where it hears. Only once.
    pub(super) fn take(&self) -> Option<UnboundedReceiver<Message>> {
        self.0.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Bulk<'r>(&'r Reports);

impl<'r> Bulk<'r> {
    fn begin(reports: &'r Reports) -> Self {
        reports.held().holders += 1;
        Self(reports)
    }
}

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        let mut held = self.0.held();
        held.holders -= 1;
        if held.holders == 0 && !held.messages.is_empty() {
            // While nobody can say anything that would be heard before.
            let messages = std::mem::take(&mut held.messages);
            let _ = self.0.0.sender.send(Message::Many(messages));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(receiver: &mut UnboundedReceiver<Message>) -> Vec<usize> {
        let mut sizes = vec![];
        while let Ok(message) = receiver.try_recv() {
            sizes.push(if let Message::Many(messages) = message { messages.len() } else { 1 });
        }
        sizes
    }

    #[test]
    fn what_is_said_in_bulk_is_heard_at_once_and_in_order() {
        let reports = Reports::default();
        let mut receiver = reports.take().unwrap();
        assert!(reports.take().is_none());
        reports.tell(Message::Wake(vec![]));
        reports.in_bulk(|| {
            reports.tell(Message::Wake(vec![]));
            reports.in_bulk(|| reports.tell(Message::Wake(vec![])));
            assert_eq!(heard(&mut receiver), [1]);
        });
        reports.tell(Message::Wake(vec![]));
        reports.in_bulk(|| {});
        assert_eq!(heard(&mut receiver), [2, 1]);
    }
}
