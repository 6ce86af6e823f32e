//! Who is to be running for an object, against who is.

use super::StopReasons;
use crate::handler::registry::Registry;
use std::sync::Arc;

/// The daemons and timers that should run for an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredDaemons {
    /// Those that match the object, by their indices.
    pub handlers: Vec<usize>,
    /// The object is being deleted: nobody is started any more, and those that run are to stop.
    pub deleting: bool,
    /// The object is no more.
    pub gone: bool,
    /// The object has changed in its essence: idling begins anew.
    pub reset: bool,
}

/// The difference between the desired and the running daemons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonDiff {
    /// Those that are to be started.
    pub start: Vec<usize>,
    /// Those of the running that are to stop, by their positions, with the reason.
    pub stop: Vec<(usize, StopReasons)>,
    /// The deletion of the object is to be held because of them.
    pub holds: bool,
}

/// Compares who is wanted with who is running, and with the ids of those that have ended for good. While the operator is
/// paused or exits, nobody is started, and those that run are to stop for `halted`.
pub fn diff(
    wanted: &DesiredDaemons,
    running: &[usize],
    ended: &[Arc<str>],
    registry: &Registry,
    halted: Option<StopReasons>,
) -> DaemonDiff {
    let id = |index: usize| registry.handlers.get(index).map(|handler| &handler.id);
    let has_ended = |index: usize| id(index).is_none_or(|id| ended.contains(id));
    let eligible: Vec<usize> = wanted.handlers.iter().copied().filter(|index| !has_ended(*index)).collect();
    let holds = !wanted.gone && !eligible.is_empty();
    let all = |reason: StopReasons| (0..running.len()).map(|position| (position, reason)).collect();
    if wanted.deleting || wanted.gone {
        return DaemonDiff { start: Vec::new(), stop: all(StopReasons::RESOURCE_DELETED), holds };
    }
    if let Some(reason) = halted {
        return DaemonDiff { start: Vec::new(), stop: all(reason), holds };
    }
    let mut start: Vec<usize> = Vec::new();
    for &index in &eligible {
        // One id runs once, whatever functions were declared with it; those that are still stopping count as running.
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

    fn wanted(handlers: &[usize]) -> DesiredDaemons {
        DesiredDaemons { handlers: handlers.to_vec(), ..DesiredDaemons::default() }
    }

    fn of(wanted: &DesiredDaemons, running: &[usize], ended: &[&str]) -> DaemonDiff {
        let ended: Vec<Arc<str>> = ended.iter().map(|id| Arc::from(*id)).collect();
        diff(wanted, running, &ended, &registry(), None)
    }

    #[test]
    fn those_that_match_are_started_once_for_one_id() {
        let expected = DaemonDiff { start: vec![0, 1], stop: vec![], holds: true };
        assert_eq!(of(&wanted(&[0, 1, 2]), &[], &[]), expected);
        assert!(of(&wanted(&[0, 1, 2]), &[0, 1], &[]).start.is_empty());
    }

    #[test]
    fn those_that_do_not_match_any_more_are_stopped() {
        let assessed = of(&wanted(&[1]), &[0, 1], &[]);
        assert_eq!((assessed.stop, assessed.holds), (vec![(0, StopReasons::FILTERS_MISMATCH)], true));
    }

    #[test]
    fn those_that_have_ended_neither_start_nor_hold() {
        assert_eq!(of(&wanted(&[0, 2]), &[], &["a"]), DaemonDiff::default());
    }

    #[test]
    fn deletion_stops_all_and_is_held_by_those_that_match() {
        let deleting = DesiredDaemons { deleting: true, ..wanted(&[0, 1]) };
        let assessed = of(&deleting, &[0], &[]);
        assert_eq!((assessed.start, assessed.holds), (vec![], true));
        assert_eq!(assessed.stop, [(0, StopReasons::RESOURCE_DELETED)]);
    }

    #[test]
    fn what_is_gone_starts_nobody_even_if_nobody_knew_of_its_deletion() {
        let gone = DesiredDaemons { gone: true, ..wanted(&[0]) };
        assert_eq!(of(&gone, &[], &[]), DaemonDiff::default());
    }

    #[test]
    fn a_paused_operator_starts_nobody_but_still_holds() {
        let assessed = diff(&wanted(&[0, 1]), &[1], &[], &registry(), Some(StopReasons::OPERATOR_PAUSING));
        let stop = vec![(0, StopReasons::OPERATOR_PAUSING)];
        assert_eq!(assessed, DaemonDiff { start: vec![], stop, holds: true });
    }
}
