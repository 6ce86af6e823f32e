//! The way to the wheel's task: what comes together is heard together.
//!
//! The other side answers in batches, but each answer alone would wake the wheel up, and it would be asleep again before the
//! next one: waking costs more than what is said.
//!
//! The queue is bounded by the daemons and timers that there are: each of them has one message on its way at most, besides
//! those of its start and its end. The sender may be a thread of Python, which must not wait for the engine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::object::commands::SchedulerCommand;

/// The sender of commands to the scheduler. Clones send to the same scheduler.
#[derive(Clone)]
pub struct CommandSender(Arc<Inner>);

struct Inner {
    sender: UnboundedSender<SchedulerCommand>,
    receiver: Mutex<Option<UnboundedReceiver<SchedulerCommand>>>,
    held: Mutex<Held>,
}

/// What is to be said at once.
#[derive(Default)]
struct Held {
    holders: usize,
    messages: Vec<SchedulerCommand>,
}

impl Default for CommandSender {
    fn default() -> Self {
        let (sender, receiver) = unbounded_channel();
        let receiver = Mutex::new(Some(receiver));
        Self(Arc::new(Inner { sender, receiver, held: Mutex::default() }))
    }
}

impl CommandSender {
    /// Says all that is said meanwhile at once, afterwards.
    pub fn batch(&self, say: impl FnOnce()) {
        let bulk = Bulk::begin(self);
        say();
        drop(bulk);
    }

    pub(super) fn send(&self, message: SchedulerCommand) {
        let mut held = self.held();
        if held.holders > 0 {
            held.messages.push(message);
        } else {
            // It fails only when the operator is over.
            let _ = self.0.sender.send(message);
        }
    }

    /// For the wheel: where it hears. Only once.
    pub(super) fn take(&self) -> Option<UnboundedReceiver<SchedulerCommand>> {
        self.0.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Bulk<'r>(&'r CommandSender);

impl<'r> Bulk<'r> {
    fn begin(command_sender: &'r CommandSender) -> Self {
        command_sender.held().holders += 1;
        Self(command_sender)
    }
}

impl Drop for Bulk<'_> {
    fn drop(&mut self) {
        let mut held = self.0.held();
        held.holders -= 1;
        if held.holders == 0 && !held.messages.is_empty() {
            // While nobody can say anything that would be heard before.
            let messages = std::mem::take(&mut held.messages);
            let _ = self.0.0.sender.send(SchedulerCommand::Many(messages));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(receiver: &mut UnboundedReceiver<SchedulerCommand>) -> Vec<usize> {
        let mut sizes = vec![];
        while let Ok(message) = receiver.try_recv() {
            sizes.push(if let SchedulerCommand::Many(messages) = message { messages.len() } else { 1 });
        }
        sizes
    }

    #[test]
    fn what_is_said_in_bulk_is_heard_at_once_and_in_order() {
        let command_sender = CommandSender::default();
        let mut receiver = command_sender.take().unwrap();
        assert!(command_sender.take().is_none());
        command_sender.send(SchedulerCommand::Wake(vec![]));
        command_sender.batch(|| {
            command_sender.send(SchedulerCommand::Wake(vec![]));
            command_sender.batch(|| command_sender.send(SchedulerCommand::Wake(vec![])));
            assert_eq!(heard(&mut receiver), [1]);
        });
        command_sender.send(SchedulerCommand::Wake(vec![]));
        command_sender.batch(|| {});
        assert_eq!(heard(&mut receiver), [2, 1]);
    }
}
