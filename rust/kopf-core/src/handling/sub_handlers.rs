//! One batch of sub-handlers: who of them is called now, and what is remembered of them.
//!
//! Sub-handlers live by the rules of change handlers, inside of one attempt of their parent, and are declared anew in each
//! attempt. Owns: the progress of one batch. Must not know: where records are kept, how filters and lifecycles decide, what
//! a parent is; nothing is purged here either, since the parent's cycle does that when it is over.

use crate::cause::Reason;
use crate::handler::ErrorsMode;
use crate::handling::attempt::{Attempt, Outcome};
use crate::handling::progress::HandlingProgress;
use crate::persistence::progress::Record;
use crate::time::Timestamp;
use std::sync::Arc;

/// A sub-handler of this change: its id and its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct SubHandler {
    /// The full id, with those of its parents.
    pub id: Arc<str>,
    /// How it is called in logs: `Handler 'id'`.
    pub label: Box<str>,
    /// What arbitrary exceptions mean.
    pub errors: ErrorsMode,
    /// Seconds since the start after which it is given up.
    pub timeout: Option<f64>,
    /// How many attempts it gets.
    pub retries: Option<u64>,
    /// Seconds between the attempts after arbitrary exceptions.
    pub backoff: f64,
}

/// The sub-handlers that are executed together.
#[derive(Debug)]
pub struct SubHandlers {
    children: Vec<SubHandler>,
    state: HandlingProgress,
    began: Timestamp,
}

impl SubHandlers {
    /// Begins with the records as they are on the object, also of those who are declared but not for this change.
    pub fn open(
        reason: Reason,
        records: impl IntoIterator<Item = (Arc<str>, Record)>,
        children: Vec<SubHandler>,
        now: Timestamp,
    ) -> Self {
        let mut state = HandlingProgress::default();
        for (id, record) in records {
            state.found(&id, record);
        }
        for (index, child) in children.iter().enumerate() {
            state.select(index, &child.id, reason, now);
        }
        Self { children, state, began: now }
    }

    /// Those who may be called now, by their positions, with the numbers of their attempts.
    pub fn due(&self, now: Timestamp) -> Vec<(usize, u64)> {
        self.state.due(now)
    }

    /// The next attempt of a child.
    pub fn attempt(&self, index: usize) -> Option<Attempt> {
        let child = self.children.get(index)?;
        let record = self.state.record(index)?;
        Some(Attempt {
            handler: index,
            label: child.label.clone(),
            errors: child.errors,
            timeout: child.timeout,
            retries: child.retries,
            backoff: child.backoff,
            started: record.started.unwrap_or(self.began),
            retry: record.retries,
        })
    }

    /// Takes what came of an attempt.
    pub fn record_outcome(&mut self, outcome: &Outcome) {
        self.state.record_outcome(outcome);
    }

    /// The records that are to be written: those that are not on the object as they are.
    pub fn changed(&self) -> impl Iterator<Item = (&Arc<str>, &Record)> {
        let changed = self.state.entries.iter().filter(|entry| entry.is_changed());
        changed.map(|entry| (&entry.id, &entry.record))
    }

    /// Whether no child is to be called again.
    pub fn is_done(&self) -> bool {
        self.state.is_done()
    }

    /// Seconds until the parent is to be called again for the sake of its children; none if they are done.
    pub fn delay(&self, now: Timestamp) -> Option<f64> {
        self.state.delay(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handling::attempt::CallResult;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    fn children(ids: &[&str]) -> Vec<SubHandler> {
        let child = |id: &&str| SubHandler {
            id: Arc::from(*id),
            label: format!("Handler '{id}'").into(),
            errors: ErrorsMode::Temporary,
            timeout: None,
            retries: Some(2),
            backoff: 60.0,
        };
        ids.iter().map(child).collect()
    }

    fn open(records: Vec<(Arc<str>, Record)>, ids: &[&str], now: f64) -> SubHandlers {
        SubHandlers::open(Reason::Update, records, children(ids), at(now))
    }

    fn run(batch: &mut SubHandlers, index: usize, raised: &CallResult, now: f64) {
        let attempt = batch.attempt(index).unwrap();
        batch.record_outcome(&attempt.evaluate(raised, at(now)).outcome);
    }

    /// What the next batch finds on the object.
    fn written(batch: &SubHandlers) -> Vec<(Arc<str>, Record)> {
        batch.changed().map(|(id, record)| (Arc::clone(id), record.clone())).collect()
    }

    fn temporary(delay: f64) -> CallResult {
        CallResult::Temporary { message: "later".to_owned(), delay: Some(delay) }
    }

    #[test]
    fn nobody_is_done_at_once() {
        let batch = open(vec![], &[], 0.0);
        assert!(batch.is_done() && batch.due(at(0.0)).is_empty() && written(&batch).is_empty());
        assert_eq!(batch.delay(at(0.0)), None);
    }

    #[test]
    fn all_get_records_also_those_who_were_not_called() {
        let mut batch = open(vec![], &["p/a", "p/b"], 5.0);
        assert_eq!(batch.due(at(5.0)), [(0, 0), (1, 0)]);
        run(&mut batch, 0, &CallResult::Nothing, 6.0);
        let records = written(&batch);
        assert_eq!(records.len(), 2);
        assert!(records[0].1.success && records[0].1.retries == 1);
        assert_eq!((records[1].1.started, records[1].1.retries), (Some(at(5.0)), 0));
        assert_eq!(records[1].1.purpose.as_deref(), Some("update"));
        // The other one is simply pending.
        assert!(!batch.is_done());
        assert_eq!(batch.delay(at(6.0)), Some(0.0));
    }

    #[test]
    fn the_parent_waits_for_the_first_of_the_delayed() {
        let mut batch = open(vec![], &["p/a", "p/b"], 0.0);
        run(&mut batch, 0, &temporary(9.0), 1.0);
        run(&mut batch, 1, &temporary(5.0), 2.0);
        assert_eq!(batch.delay(at(3.0)), Some(4.0));
        let again = open(written(&batch), &["p/a", "p/b"], 7.0);
        assert_eq!(again.due(at(7.0)), [(1, 1)]);
        assert_eq!(again.attempt(1).unwrap().started, at(0.0));
    }

    #[test]
    fn the_finished_are_not_called_again_however_they_ended() {
        let mut batch = open(vec![], &["p/a", "p/b", "p/c"], 0.0);
        run(&mut batch, 0, &CallResult::Nothing, 1.0);
        run(&mut batch, 1, &CallResult::Permanent { message: "no".to_owned() }, 1.0);
        run(&mut batch, 2, &temporary(0.0), 1.0);
        let mut again = open(written(&batch), &["p/a", "p/b", "p/c"], 2.0);
        assert_eq!(again.due(at(2.0)), [(2, 1)]);
        // It is the last attempt: failed children are done too.
        run(&mut again, 2, &temporary(0.0), 2.0);
        assert!(again.is_done());
        assert_eq!(written(&again).iter().map(|(id, _)| &**id).collect::<Vec<_>>(), ["p/c"]);
        assert!(written(&again)[0].1.failure);
    }

    #[test]
    fn those_who_are_not_for_this_change_hold_nobody_and_stay_as_they_are() {
        let mut before = open(vec![], &["p/a", "p/b"], 0.0);
        run(&mut before, 0, &temporary(9.0), 1.0);
        let batch = open(written(&before), &[], 2.0);
        assert!(batch.is_done() && written(&batch).is_empty());
    }

    #[test]
    fn records_of_a_superseded_change_go_on() {
        let mut created = SubHandlers::open(Reason::Create, vec![], children(&["p/a", "p/b"]), at(0.0));
        run(&mut created, 0, &CallResult::Nothing, 1.0);
        let updated = open(written(&created), &["p/a", "p/b"], 2.0);
        assert_eq!(updated.due(at(2.0)), [(1, 0)]);
        assert!(written(&updated).is_empty());
    }

    #[test]
    fn the_ids_of_grandchildren_are_kept_with_the_child() {
        let mut batch = open(vec![], &["p/a"], 0.0);
        let attempt = batch.attempt(0).unwrap();
        let raised = CallResult::Children { message: "None".to_owned(), delay: Some(0.0) };
        let mut outcome = attempt.evaluate(&raised, at(1.0)).outcome;
        outcome.subrefs = vec!["p/a/y".to_owned(), "p/a/x".to_owned()];
        batch.record_outcome(&outcome);
        assert_eq!(written(&batch)[0].1.subrefs, ["p/a/x", "p/a/y"]);
    }
}
