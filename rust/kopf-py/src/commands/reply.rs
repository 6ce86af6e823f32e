//! The replies of completed items, in one batch.

use kopf_core::activation::Completion;
use kopf_engine::host::reconcile::CallReconcilerReply;
use kopf_engine::host::{CallDaemonReply, Responder};
use pyo3::prelude::*;

use crate::commands::activation::Activation;
use crate::commands::daemons::{CallDaemon, StopDaemons};
use crate::commands::reconcile::CallReconciler;

/// A reply that `complete()` sends, with its receiver.
pub(crate) enum Reply {
    Activation(Responder<Option<Completion>>, Completion),
    CallDaemon(Responder<Option<CallDaemonReply>>, CallDaemonReply),
    StopDaemons(Responder<()>),
    CallReconciler(Responder<Option<CallReconcilerReply>>, CallReconcilerReply),
}

impl Reply {
    /// Takes the prepared reply of an item; none if there is none.
    pub(crate) fn take(item: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if let Ok(activation) = item.cast::<Activation>() {
            return Ok(activation.get().take().map(|(responder, reply)| Self::Activation(responder, reply)));
        }
        if let Ok(call) = item.cast::<CallDaemon>() {
            return Ok(call.get().take().map(|(responder, reply)| Self::CallDaemon(responder, reply)));
        }
        if let Ok(call) = item.cast::<CallReconciler>() {
            return Ok(call.get().take().map(|(responder, reply)| Self::CallReconciler(responder, reply)));
        }
        Ok(item.cast::<StopDaemons>()?.get().take().map(Self::StopDaemons))
    }

    /// Sends the reply.
    pub(crate) fn send(self) {
        match self {
            Self::Activation(responder, reply) => responder.send(Some(reply)),
            Self::CallDaemon(responder, reply) => responder.send(Some(reply)),
            Self::StopDaemons(responder) => responder.send(()),
            Self::CallReconciler(responder, reply) => responder.send(Some(reply)),
        }
    }
}
