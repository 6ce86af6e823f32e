//! The difference between the daemons that should run for an object and those that run.

use super::StopReasons;
use crate::handler::registry::Registry;
use std::sync::Arc;

/// The daemons and timers that should run for an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredDaemons {
    /// The handlers that match the object, by their indices.
    pub handlers: Vec<usize>,
    /// The object is being deleted: no daemon is started, and the running ones are stopped.
    pub deleting: bool,
    /// The object is deleted.
    pub gone: bool,
    /// The essence has changed: the idle time of the timers restarts.
    pub reset: bool,
}

/// The difference between the desired and the running daemons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonDiff {
    /// The daemons to start, by their indices.
    pub start: Vec<usize>,
    /// The running daemons to stop, by their positions, with the reasons.
    pub stop: Vec<(usize, StopReasons)>,
    /// Whether the daemons block the deletion of the object, so that it needs Kopf's finalizer.
    pub holds: bool,
}

/// Compares the desired daemons with the running ones, and with the ids of those that have exited permanently. While the operator
/// is paused or exiting, no daemon is started, and the running ones are stopped for the reason `halted`.
pub fn diff(
    desired: &DesiredDaemons,
    running: &[usize],
    ended: &[Arc<str>],
    registry: &Registry,
    halted: Option<StopReasons>,
) -> DaemonDiff {
    let id = |index: usize| registry.handlers.get(index).map(|handler| &handler.id);
    let has_ended = |index: usize| id(index).is_none_or(|id| ended.contains(id));
    let eligible: Vec<usize> = desired.handlers.iter().copied().filter(|index| !has_ended(*index)).collect();
    let holds = !desired.gone && !eligible.is_empty();
    let all = |reason: StopReasons| (0..running.len()).map(|position| (position, reason)).collect();
    if desired.deleting || desired.gone {
        return DaemonDiff { start: Vec::new(), stop: all(StopReasons::RESOURCE_DELETED), holds };
    }
    if let Some(reason) = halted {
        return DaemonDiff { start: Vec::new(), stop: all(reason), holds };
    }
    let mut start: Vec<usize> = Vec::new();
    for &index in &eligible {
        // One daemon runs per id, regardless of the functions declared with it. A stopping daemon counts as running.
        let is_there = |other: &usize| id(*other) == id(index);
        if !running.iter().any(is_there) && !start.iter().any(is_there) {
            start.push(index);
        }
    }
    let is_eligible = |index: usize| eligible.iter().any(|other| id(*other) == id(index));
    let mismatching = running.iter().enumerate().filter(|(_, index)| !is_eligible(**index));
    let stop = mismatching.map(|(position, _)| (position, StopReasons::FILTERS_MISMATCH)).collect();
    DaemonDiff { start, stop, holds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn registry() -> Registry {
        let handlers = json!([{"id": "a", "kind": "daemon"}, {"id": "b", "kind": "timer"}, {"id": "a", "kind": "daemon"}]);
        Registry { handlers: serde_json::from_value(handlers).unwrap() }
    }

    fn desired(handlers: &[usize]) -> DesiredDaemons {
        DesiredDaemons { handlers: handlers.to_vec(), ..DesiredDaemons::default() }
    }

    fn of(desired: &DesiredDaemons, running: &[usize], ended: &[&str]) -> DaemonDiff {
        let ended: Vec<Arc<str>> = ended.iter().map(|id| Arc::from(*id)).collect();
        diff(desired, running, &ended, &registry(), None)
    }

    // contract: engine 9.2
    #[test]
    fn matching_daemons_are_started_once_per_id() {
        let expected = DaemonDiff { start: vec![0, 1], stop: vec![], holds: true };
        assert_eq!(of(&desired(&[0, 1, 2]), &[], &[]), expected);
        assert!(of(&desired(&[0, 1, 2]), &[0, 1], &[]).start.is_empty());
    }

    #[test]
    fn mismatching_daemons_are_stopped() {
        let difference = of(&desired(&[1]), &[0, 1], &[]);
        assert_eq!((difference.stop, difference.holds), (vec![(0, StopReasons::FILTERS_MISMATCH)], true));
    }

    // contract: engine 9.2
    #[test]
    fn exited_daemons_neither_restart_nor_block_deletion() {
        assert_eq!(of(&desired(&[0, 2]), &[], &["a"]), DaemonDiff::default());
    }

    #[test]
    fn deletion_stops_all_daemons_and_is_blocked_by_the_matching_ones() {
        let deleting = DesiredDaemons { deleting: true, ..desired(&[0, 1]) };
        let difference = of(&deleting, &[0], &[]);
        assert_eq!((difference.start, difference.holds), (vec![], true));
        assert_eq!(difference.stop, [(0, StopReasons::RESOURCE_DELETED)]);
    }

    #[test]
    fn no_daemon_is_started_for_a_deleted_object() {
        let gone = DesiredDaemons { gone: true, ..desired(&[0]) };
        assert_eq!(of(&gone, &[], &[]), DaemonDiff::default());
    }

    #[test]
    fn a_paused_operator_starts_no_daemon_but_blocks_deletion() {
        let difference = diff(&desired(&[0, 1]), &[1], &[], &registry(), Some(StopReasons::OPERATOR_PAUSING));
        let stop = vec![(0, StopReasons::OPERATOR_PAUSING)];
        assert_eq!(difference, DaemonDiff { start: vec![], stop, holds: true });
    }
}
