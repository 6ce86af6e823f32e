//! The channel to the scheduler, with batching of commands.
//!
//! The host completes calls in batches. Sent one by one, each completion would wake the scheduler's task, which costs more than
//! processing the command.
//!
//! The queue is bounded in effect by the number of daemons and timers: each has at most one command in the queue, in addition
//! to those of its start and its end. The sender may be a Python thread, which must not wait for the engine.

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

/// The commands collected by [`CommandSender::batch`].
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
    /// Calls the function, and sends all commands sent meanwhile as one batch afterwards.
    pub fn batch(&self, send: impl FnOnce()) {
        let bulk = Bulk::begin(self);
        send();
        drop(bulk);
    }

    pub(super) fn send(&self, message: SchedulerCommand) {
        let mut held = self.held();
        if held.holders > 0 {
            held.messages.push(message);
        } else {
            // It fails only after the end of the operator.
            let _ = self.0.sender.send(message);
        }
    }

    /// The receiver, for the scheduler; none on further calls.
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
            // The lock is still held, so that no later command overtakes the batch.
            let messages = std::mem::take(&mut held.messages);
            let _ = self.0.0.sender.send(SchedulerCommand::Many(messages));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received_sizes(receiver: &mut UnboundedReceiver<SchedulerCommand>) -> Vec<usize> {
        let mut sizes = vec![];
        while let Ok(message) = receiver.try_recv() {
            sizes.push(if let SchedulerCommand::Many(messages) = message { messages.len() } else { 1 });
        }
        sizes
    }

    #[test]
    fn batched_commands_arrive_together_and_in_order() {
        let command_sender = CommandSender::default();
        let mut receiver = command_sender.take().unwrap();
        assert!(command_sender.take().is_none());
        command_sender.send(SchedulerCommand::Wake(vec![]));
        command_sender.batch(|| {
            command_sender.send(SchedulerCommand::Wake(vec![]));
            command_sender.batch(|| command_sender.send(SchedulerCommand::Wake(vec![])));
            assert_eq!(received_sizes(&mut receiver), [1]);
        });
        command_sender.send(SchedulerCommand::Wake(vec![]));
        command_sender.batch(|| {});
        assert_eq!(received_sizes(&mut receiver), [2, 1]);
    }
}
