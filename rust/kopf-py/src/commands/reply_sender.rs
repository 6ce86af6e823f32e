//! `ReplySender`: sends the reply to a host task at once, unlike `PendingReply`.

use std::sync::{Mutex, PoisonError};

use kopf_engine::host::Responder;
use tokio::sync::oneshot;

/// A one-shot sender of a reply: through one of the engine's channels, or by one of its responders.
pub(crate) struct ReplySender<T>(Mutex<Option<SendFn<T>>>);

type SendFn<T> = Box<dyn FnOnce(T) + Send>;

impl<T> ReplySender<T> {
    /// Sends the reply; does nothing if one was sent already.
    pub(crate) fn send(&self, reply: T) {
        let send = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(send) = send {
            send(reply);
        }
    }
}

impl<T: Send + 'static> From<oneshot::Sender<T>> for ReplySender<T> {
    fn from(sender: oneshot::Sender<T>) -> Self {
        // The receiver may not exist any more.
        Self(Mutex::new(Some(Box::new(move |reply| drop(sender.send(reply))))))
    }
}

impl<T: Default + 'static> From<Responder<T>> for ReplySender<T> {
    fn from(responder: Responder<T>) -> Self {
        Self(Mutex::new(Some(Box::new(move |reply| responder.send(reply)))))
    }
}
