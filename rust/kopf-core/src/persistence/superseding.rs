//! Rejected fields that are superseded: all handlers that may have set them were called for a newer change.
//!
//! The new calls decide about these fields. Those that they do not set are not sent again.

use super::Persistence;
use super::memory::ObjectMemory;
use super::own_annotations::own_annotations;
use super::pending_state::PendingState;
use crate::object::Object;
use std::sync::Arc;

/// An event handler or a change handler that a cycle has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalledHandler {
    /// The index of the handler.
    pub handler: usize,
    /// Whether it is the first attempt of a handling. Later attempts call only some of the sub-handlers.
    pub is_first_attempt: bool,
}

impl PendingState {
    /// Whether the rejected fields are superseded by these calls.
    pub(crate) fn is_superseded(&self, called: &[CalledHandler]) -> bool {
        !self.called.is_empty() && self.called.iter().all(|handler| is_called_again(*handler, called))
    }

    /// Forgets the handlers if there are no fields that they may have set.
    pub(super) fn forget_called(&mut self) {
        if self.unwritten.patch.is_empty() && self.rejected_patch.due().is_none() {
            self.called.clear();
        }
    }
}

impl ObjectMemory {
    /// Drops the rejected fields that the calls of a cycle have superseded, apart from Kopf's own.
    pub fn supersede_rejected(
        &mut self,
        object: &Object,
        called: &[CalledHandler],
        persistence: &Persistence,
    ) {
        let Some(pending_state) = self.pending_state.as_mut().filter(|it| !it.called.is_empty()) else {
            return;
        };
        let is_superseded = pending_state.is_superseded(called);
        let pending_state = Arc::make_mut(pending_state);
        pending_state.called.retain(|handler| !is_called_again(*handler, called));
        if is_superseded {
            let own = own_annotations(object, pending_state.rejected_patch.patch(), persistence);
            pending_state.rejected_patch.retain(own);
        }
    }

    /// Records the handlers whose fields could not be written. `has_rejections` is whether the API server has rejected some of
    /// their fields for the first time.
    pub fn record_called(&mut self, called: &[CalledHandler], has_rejections: bool) {
        let Some(pending_state) = self.pending_state.as_mut() else { return };
        let pending_state = Arc::make_mut(pending_state);
        if has_rejections || !pending_state.unwritten.patch.is_empty() {
            for CalledHandler { handler, .. } in called {
                if !pending_state.called.contains(handler) {
                    pending_state.called.push(*handler);
                }
            }
        }
        pending_state.forget_called();
        if pending_state.is_empty() {
            self.pending_state = None;
        }
    }
}

fn is_called_again(handler: usize, called: &[CalledHandler]) -> bool {
    called.iter().any(|it| it.handler == handler && it.is_first_attempt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persistence::pending_state::PendingState;
    use crate::testing::object;
    use crate::time::Timestamp;
    use serde_json::{Value, json};

    const PROGRESS: &str = "kopf.zalando.org/h";

    fn first(handler: usize) -> CalledHandler {
        CalledHandler { handler, is_first_attempt: true }
    }

    fn later(handler: usize) -> CalledHandler {
        CalledHandler { handler, is_first_attempt: false }
    }

    /// The memory after a cycle with these calls, whose field was rejected, with some progress.
    fn rejected(memory: &mut ObjectMemory, called: &[CalledHandler], field: &str) {
        let settings = crate::settings::Settings::default();
        let patch = json!({"spec": {field: 1}, "metadata": {"annotations": {PROGRESS: "{}"}}});
        let Value::Object(patch) = patch else { panic!() };
        memory.rejected(patch, Timestamp::from_micros(0), &settings);
        memory.record_called(called, true);
    }

    fn fields(memory: &ObjectMemory) -> Value {
        let pending_state = memory.pending_state.as_deref().map(PendingState::rejected_patch);
        let patch = pending_state.map(|rejected| rejected.patch().clone()).unwrap_or_default();
        assert!(patch.is_empty() || patch["metadata"]["annotations"][PROGRESS] == "{}", "own state is kept");
        patch.get("spec").cloned().unwrap_or_default()
    }

    fn call(memory: &mut ObjectMemory, called: &[CalledHandler]) -> Value {
        memory.supersede_rejected(&object("x").build(), called, &Persistence::default());
        memory.record_called(called, false);
        fields(memory)
    }

    #[test]
    fn fields_are_superseded_when_all_their_handlers_are_called_for_a_newer_change() {
        let mut memory = ObjectMemory::default();
        rejected(&mut memory, &[first(1), later(2)], "a");
        for (called, expected) in [
            (vec![first(3)], json!({"a": 1})),
            (vec![first(1)], json!({"a": 1})),
            (vec![later(2)], json!({"a": 1})),
            (vec![first(2)], json!(null)),
        ] {
            assert_eq!(call(&mut memory, &called), expected, "{called:?}");
        }
    }

    #[test]
    fn fields_of_several_handlers_wait_for_all_of_them() {
        let mut memory = ObjectMemory::default();
        rejected(&mut memory, &[first(1)], "a");
        rejected(&mut memory, &[first(2)], "b");
        assert_eq!(call(&mut memory, &[first(1)]), json!({"a": 1, "b": 1}));
        rejected(&mut memory, &[first(1)], "a");
        assert_eq!(call(&mut memory, &[first(2)]), json!({"a": 1, "b": 1}), "the first one has set it again");
        assert_eq!(call(&mut memory, &[first(1)]), json!(null));
    }
}
