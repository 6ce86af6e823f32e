//! `PendingReply`: the reply to a task of the engine, from its preparation by Python until `Engine.complete()` sends it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kopf_engine::host::Responder;
use pyo3::PyResult;

use crate::errors::misuse;

/// A reply with its responder.
pub(crate) struct PendingReply<T>(Mutex<State<T>>);

struct State<T> {
    responder: Option<Responder<Option<T>>>,
    reply: Option<T>,
}

impl<T> Default for PendingReply<T> {
    fn default() -> Self {
        Self(Mutex::new(State { responder: None, reply: None }))
    }
}

impl<T> PendingReply<T> {
    /// No reply yet, for this responder.
    pub(crate) fn new(responder: Responder<Option<T>>) -> Self {
        let pending = Self::default();
        pending.attach(responder);
        pending
    }

    /// Sets the responder.
    pub(crate) fn attach(&self, responder: Responder<Option<T>>) {
        self.state().responder = Some(responder);
    }

    /// Prepares the reply, or replaces the prepared one.
    ///
    /// # Errors
    /// If the reply was sent already.
    pub(crate) fn prepare(&self, reply: T) -> PyResult<()> {
        let mut state = self.state();
        if state.responder.is_none() {
            return Err(misuse("The task is completed already."));
        }
        state.reply = Some(reply);
        Ok(())
    }

    /// Takes the prepared reply and its responder. Without a reply, the responder stays.
    pub(crate) fn take(&self) -> Option<(Responder<Option<T>>, T)> {
        let mut state = self.state();
        let reply = state.reply.take()?;
        state.responder.take().map(|responder| (responder, reply))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
