//! `ReplySender`: sends the reply to a host task at once, unlike `PendingReply`.

use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

/// A one-shot sender of a reply. The receiver may be dropped.
pub(crate) struct ReplySender<T>(Mutex<Option<oneshot::Sender<T>>>);

impl<T> ReplySender<T> {
    pub(crate) fn new(sender: oneshot::Sender<T>) -> Self {
        Self(Mutex::new(Some(sender)))
    }

    pub(crate) fn send(&self, reply: T) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            let _closed = sender.send(reply);
        }
    }
}
