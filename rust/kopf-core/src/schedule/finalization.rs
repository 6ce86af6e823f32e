//! The finalizer and the deletion of one (reconciler, primary object), rules F1–F9.

use serde_json::json;

use crate::json::json_patch::operations;
use crate::json::value::Value;
use crate::persistence::finalizer::{self, Edit};
use crate::schedule::entry::Conclusion;

/// The facts about a primary that the rules of deletion depend on, in its newest observed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrimaryState {
    /// The selector and the filters of the reconciler match.
    pub matches: bool,
    /// The object has a deletion timestamp.
    pub is_deleting: bool,
    /// A response of the API server has shown the reconciler's finalizer.
    pub has_finalizer: bool,
}

/// The kind of a call: its argument `deleting`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `deleting=False`.
    Ordinary,
    /// `deleting=True`.
    Deleting,
}

/// The action that a reconciler may take for a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Wait for another state.
    Wait,
    /// Call the function when it is due.
    Call(Call),
    /// Edit the finalizer, and call nothing before a response has shown the result.
    Edit(Edit),
}

/// The progress of the deletion of one (reconciler, primary), by uid.
///
/// Kept in memory only: after a restart, the deletion is repeated from its start, as long as the finalizer is present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Finalization(Phase);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Ordinary,
    /// A call with `deleting=True` has started.
    Deleting,
    /// The last call has returned, or the reconciler has given up.
    Released,
}

impl Finalization {
    /// The next action. `has_deletion` is the argument `deletion` of the reconciler; `is_running` whether a call is running.
    pub fn action(self, has_deletion: bool, state: PrimaryState, is_running: bool) -> Action {
        let PrimaryState { matches, is_deleting, has_finalizer } = state;
        if !has_deletion {
            return if matches && !is_deleting { Action::Call(Call::Ordinary) } else { Action::Wait };
        }
        let is_needed = matches && self.0 != Phase::Released;
        match (is_needed, is_deleting, has_finalizer) {
            // F3, F4, F7: no function needs the finalizer any more.
            (false, _, true) if !is_running => Action::Edit(Edit::Allow),
            // F1: first the finalizer.
            (true, false, false) => Action::Edit(Edit::Block),
            (true, true, true) => Action::Call(Call::Deleting),
            // F2: an older state than that of the last call is not reconciled.
            (true, false, true) if self.0 == Phase::Ordinary => Action::Call(Call::Ordinary),
            // F7: an object that was marked for deletion before it got the finalizer is not handled.
            _ => Action::Wait,
        }
    }

    /// Whether the reconciler needs the operator's finalizer, if it shares it with handlers and daemons (F5, F8).
    pub fn needs_finalizer(self, has_deletion: bool, state: PrimaryState, is_running: bool) -> bool {
        let action = self.action(has_deletion, state, is_running);
        has_deletion
            && match action {
                Action::Call(_) | Action::Edit(Edit::Block) => true,
                Action::Edit(Edit::Allow) => false,
                Action::Wait => state.has_finalizer,
            }
    }

    /// Whether the last call of the deletion has ended.
    pub fn is_released(self) -> bool {
        self.0 == Phase::Released
    }

    /// Records the start of a call (F2).
    pub fn start(&mut self, call: Call) {
        if call == Call::Deleting {
            self.0 = Phase::Deleting;
        }
    }

    /// Records the end of a call (F3, F4). Returns whether the primary is released.
    pub fn finish(&mut self, call: Call, conclusion: Conclusion) -> bool {
        let is_over = matches!(conclusion, Conclusion::Succeeded { is_final: true } | Conclusion::GaveUp);
        let is_released = call == Call::Deleting && is_over;
        if is_released {
            self.0 = Phase::Released;
        }
        is_released
    }
}

/// The edit of a finalizer that several functions share: it is removed when no function needs it any more (F5, F8).
///
/// Objects that are being deleted get no finalizer: API servers reject it.
pub fn shared_edit(
    is_deleting: bool,
    has_finalizer: bool,
    mut needs: impl Iterator<Item = bool>,
) -> Option<Edit> {
    match (needs.any(|is_needed| is_needed), has_finalizer) {
        (true, false) if !is_deleting => Some(Edit::Block),
        (false, true) => Some(Edit::Allow),
        _ => None,
    }
}

/// The JSON patch that edits a finalizer of the latest state of an object: it fails with a conflict if another client has
/// changed the object since (F6). None if there is nothing to edit, or if the state has no resource version.
pub fn finalizer_patch(latest: &Value, finalizer: &str, edit: Edit) -> Option<Vec<Value>> {
    let version = latest.get("metadata")?.get("resourceVersion")?;
    let mut edited = latest.clone();
    finalizer::edit(&mut edited, finalizer, edit);
    let operations = operations(latest, &edited);
    if operations.is_empty() {
        return None;
    }
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
    Some(std::iter::once(test).chain(operations).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUCCESS: Conclusion = Conclusion::Succeeded { is_final: true };

    fn state(matches: bool, is_deleting: bool, has_finalizer: bool) -> PrimaryState {
        PrimaryState { matches, is_deleting, has_finalizer }
    }

    #[test]
    fn f1_to_f7_all_states() {
        use Action::{Call as Do, Edit as Change, Wait};
        let (ordinary, mut deleting) = (Finalization::default(), Finalization::default());
        deleting.start(Call::Deleting);
        let mut released = deleting;
        assert!(released.finish(Call::Deleting, SUCCESS));
        // (matches, deleting, finalizer): the actions in the phases ordinary, deleting, released.
        let table = [
            ((true, false, false), Change(Edit::Block), Change(Edit::Block), Wait),
            ((true, false, true), Do(Call::Ordinary), Wait, Change(Edit::Allow)),
            ((true, true, false), Wait, Wait, Wait),
            ((true, true, true), Do(Call::Deleting), Do(Call::Deleting), Change(Edit::Allow)),
            ((false, false, false), Wait, Wait, Wait),
            ((false, false, true), Change(Edit::Allow), Change(Edit::Allow), Change(Edit::Allow)),
            ((false, true, false), Wait, Wait, Wait),
            ((false, true, true), Change(Edit::Allow), Change(Edit::Allow), Change(Edit::Allow)),
        ];
        for ((matches, is_deleting, has_finalizer), first, second, third) in table {
            let state = state(matches, is_deleting, has_finalizer);
            let actions = [ordinary, deleting, released].map(|phase| phase.action(true, state, false));
            assert_eq!(actions, [first, second, third], "{state:?}");
        }
    }

    #[test]
    fn without_deletion_objects_that_are_being_deleted_are_not_reconciled() {
        let phase = Finalization::default();
        for (matches, is_deleting, expected) in [
            (true, false, Action::Call(Call::Ordinary)),
            (true, true, Action::Wait),
            (false, false, Action::Wait),
        ] {
            let state = state(matches, is_deleting, true);
            assert_eq!(phase.action(false, state, false), expected);
            assert!(!phase.needs_finalizer(false, state, false));
        }
    }

    #[test]
    fn f3_only_a_normal_return_without_requeue_or_giving_up_releases() {
        for (call, conclusion, expected) in [
            (Call::Deleting, SUCCESS, true),
            (Call::Deleting, Conclusion::GaveUp, true),
            (Call::Deleting, Conclusion::Succeeded { is_final: false }, false),
            (Call::Deleting, Conclusion::Retried(1.0), false),
            (Call::Deleting, Conclusion::Cancelled, false),
            (Call::Ordinary, SUCCESS, false),
            (Call::Ordinary, Conclusion::GaveUp, false),
        ] {
            let mut phase = Finalization::default();
            phase.start(call);
            assert_eq!(phase.finish(call, conclusion), expected, "{call:?} {conclusion:?}");
        }
    }

    #[test]
    fn f7_the_finalizer_stays_until_a_running_call_has_ended() {
        let phase = Finalization::default();
        assert_eq!(phase.action(true, state(false, false, true), true), Action::Wait);
        assert!(phase.needs_finalizer(true, state(false, false, true), true));
        assert!(!phase.needs_finalizer(true, state(false, false, true), false));
    }

    #[test]
    fn f5_f8_the_shared_finalizer_waits_for_all_functions() {
        for (is_deleting, has_finalizer, needs, expected) in [
            (false, false, vec![false, true], Some(Edit::Block)),
            (true, false, vec![true], None),
            (true, true, vec![true, false], None),
            (true, true, vec![false, false], Some(Edit::Allow)),
            (false, true, vec![], Some(Edit::Allow)),
            (false, false, vec![false], None),
        ] {
            assert_eq!(shared_edit(is_deleting, has_finalizer, needs.into_iter()), expected);
        }
    }

    #[test]
    fn f6_edits_test_the_resource_version_and_keep_other_finalizers() {
        let body = json!({"metadata": {"resourceVersion": "7", "finalizers": ["other", "a.b/c"]}});
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        assert_eq!(
            finalizer_patch(&body, "a.b/c", Edit::Allow),
            Some(vec![test.clone(), json!({"op": "remove", "path": "/metadata/finalizers/1"})])
        );
        assert_eq!(
            finalizer_patch(&body, "a.b/d", Edit::Block),
            Some(vec![test, json!({"op": "add", "path": "/metadata/finalizers/2", "value": "a.b/d"})])
        );
        assert_eq!(finalizer_patch(&body, "a.b/c", Edit::Block), None);
        assert_eq!(finalizer_patch(&json!({"metadata": {}}), "a.b/c", Edit::Block), None);
    }
}
