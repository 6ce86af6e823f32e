//! One batch of sub-handlers: the due ones, and their progress.
//!
//! Sub-handlers have the rules of change handlers, within one attempt of their parent. The parent declares them in each attempt.
//! This module purges no records: the parent's cycle does that when it is finished.

use crate::cause::Reason;
use crate::handler::ErrorsMode;
use crate::handling::attempt::{Attempt, Outcome};
use crate::handling::progress::HandlingProgress;
use crate::persistence::progress::Record;
use crate::time::Timestamp;
use std::sync::Arc;

/// A sub-handler for this change: its id and its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct SubHandler {
    /// The full id, with those of its parents as prefixes.
    pub id: Arc<str>,
    /// The label in logs: `Handler 'id'`.
    pub label: Box<str>,
    /// The error mode for arbitrary exceptions.
    pub errors: ErrorsMode,
    /// Seconds since the start after which the sub-handler fails.
    pub timeout: Option<f64>,
    /// The maximum number of attempts.
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
    /// A batch with the records on the object, including those of declared sub-handlers that do not match this change.
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

    /// The sub-handlers that can be called now, by their positions, with the numbers of their attempts.
    pub fn due(&self, now: Timestamp) -> Vec<(usize, u64)> {
        self.state.due(now)
    }

    /// All records, including those of declared sub-handlers that do not match this change.
    pub fn records(&self) -> impl Iterator<Item = (&Arc<str>, &Record)> {
        self.state.records()
    }

    /// The next attempt of a sub-handler.
    pub fn attempt(&self, index: usize) -> Option<Attempt> {
        let child = self.children.get(index)?;
        let record = self.state.record(index)?;
        Some(Attempt {
            handler: index,
            label: child.label.clone(),
            errors: child.errors,
            timeout: child.timeout,
            retries: child.retries,
            backoff: Some(child.backoff),
            started: record.started.unwrap_or(self.began),
            retry: record.retries,
        })
    }

    /// Records the outcome of an attempt.
    pub fn record_outcome(&mut self, outcome: &Outcome) {
        self.state.record_outcome(outcome);
    }

    /// The records to write: those that differ from the object.
    pub fn changed(&self) -> impl Iterator<Item = (&Arc<str>, &Record)> {
        let changed = self.state.entries.iter().filter(|entry| entry.is_changed());
        changed.map(|entry| (&entry.id, &entry.record))
    }

    /// Whether all sub-handlers are finished.
    pub fn is_done(&self) -> bool {
        self.state.is_done()
    }

    /// Seconds until the next sub-handler can be called, and so its parent; none if all are finished.
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

    /// The records that the next attempt of the parent finds on the object.
    fn written(batch: &SubHandlers) -> Vec<(Arc<str>, Record)> {
        batch.changed().map(|(id, record)| (Arc::clone(id), record.clone())).collect()
    }

    fn temporary(delay: f64) -> CallResult {
        CallResult::Temporary { message: "later".to_owned(), delay: Some(delay) }
    }

    #[test]
    fn an_empty_batch_is_done_at_once() {
        let batch = open(vec![], &[], 0.0);
        assert!(batch.is_done() && batch.due(at(0.0)).is_empty() && written(&batch).is_empty());
        assert_eq!(batch.delay(at(0.0)), None);
    }

    #[test]
    fn all_sub_handlers_get_records_even_if_not_called() {
        let mut batch = open(vec![], &["p/a", "p/b"], 5.0);
        assert_eq!(batch.due(at(5.0)), [(0, 0), (1, 0)]);
        run(&mut batch, 0, &CallResult::Nothing, 6.0);
        let records = written(&batch);
        assert_eq!(records.len(), 2);
        assert!(records[0].1.success && records[0].1.retries == 1);
        assert_eq!((records[1].1.started, records[1].1.retries), (Some(at(5.0)), 0));
        assert_eq!(records[1].1.purpose.as_deref(), Some("update"));
        // The other sub-handler is pending.
        assert!(!batch.is_done());
        assert_eq!(batch.delay(at(6.0)), Some(0.0));
    }

    #[test]
    fn the_parent_is_delayed_until_the_first_sub_handler_is_due() {
        let mut batch = open(vec![], &["p/a", "p/b"], 0.0);
        run(&mut batch, 0, &temporary(9.0), 1.0);
        run(&mut batch, 1, &temporary(5.0), 2.0);
        assert_eq!(batch.delay(at(3.0)), Some(4.0));
        let again = open(written(&batch), &["p/a", "p/b"], 7.0);
        assert_eq!(again.due(at(7.0)), [(1, 1)]);
        assert_eq!(again.attempt(1).unwrap().started, at(0.0));
    }

    // contract: engine 7.10
    #[test]
    fn finished_sub_handlers_are_not_called_again() {
        let mut batch = open(vec![], &["p/a", "p/b", "p/c"], 0.0);
        run(&mut batch, 0, &CallResult::Nothing, 1.0);
        run(&mut batch, 1, &CallResult::Permanent { message: "no".to_owned() }, 1.0);
        run(&mut batch, 2, &temporary(0.0), 1.0);
        let mut again = open(written(&batch), &["p/a", "p/b", "p/c"], 2.0);
        assert_eq!(again.due(at(2.0)), [(2, 1)]);
        // This is the last attempt. A failed sub-handler is finished too.
        run(&mut again, 2, &temporary(0.0), 2.0);
        assert!(again.is_done());
        assert_eq!(written(&again).iter().map(|(id, _)| &**id).collect::<Vec<_>>(), ["p/c"]);
        assert!(written(&again)[0].1.failure);
    }

    #[test]
    fn sub_handlers_of_other_changes_block_nothing_and_keep_their_records() {
        let mut before = open(vec![], &["p/a", "p/b"], 0.0);
        run(&mut before, 0, &temporary(9.0), 1.0);
        let batch = open(written(&before), &[], 2.0);
        assert!(batch.is_done() && written(&batch).is_empty());
    }

    // contract: engine 7.10
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
