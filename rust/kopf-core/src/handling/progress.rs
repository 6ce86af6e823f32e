//! The progress of one handling: of the change handlers in a cycle, or of the sub-handlers in their parent.

use crate::cause::Reason;
use crate::handling::attempt::Outcome;
use crate::persistence::progress::Record;
use crate::time::Timestamp;
use std::sync::Arc;

/// The progress of one handling: the records of its handlers.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandlingProgress {
    pub(crate) entries: Vec<HandlerProgress>,
    /// The handlers of this cause, each with its record. Two functions can share one.
    pub(crate) selected: Vec<Selected>,
    /// Whether some records on the object are unreadable.
    pub(crate) damaged: bool,
}

/// The record of one handler.
#[derive(Clone, Debug)]
pub(crate) struct HandlerProgress {
    pub(crate) id: Arc<str>,
    pub(crate) record: Record,
    /// The record on the object.
    origin: Option<Record>,
    /// Whether a handler of this cause has the record.
    active: bool,
    /// Whether the record belongs to another, superseded cause.
    pub(crate) obsolete: bool,
}

/// A handler of this cause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selected {
    pub(crate) handler: usize,
    pub(crate) entry: usize,
}

/// The numbers of handlers by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) succeeded: usize,
    pub(crate) failed: usize,
    pub(crate) running: usize,
}

impl HandlerProgress {
    pub(crate) fn is_finished(&self) -> bool {
        self.record.success || self.record.failure
    }

    /// The record on the object.
    pub(crate) fn persisted(&self) -> Option<&Record> {
        self.origin.as_ref()
    }

    /// Whether the object has a record of the handler.
    pub(crate) fn is_persisted(&self) -> bool {
        self.origin.is_some()
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.origin.as_ref() != Some(&self.record)
    }
}

impl HandlingProgress {
    /// Adds a record from the object.
    pub(crate) fn found(&mut self, id: &Arc<str>, record: Record) {
        let (record, origin) = (record.clone(), Some(record));
        self.entries.push(HandlerProgress {
            id: Arc::clone(id),
            record,
            origin,
            active: false,
            obsolete: false,
        });
    }

    /// Adds a handler of this cause: it continues with its record, or starts with a new one.
    pub(crate) fn select(&mut self, handler: usize, id: &Arc<str>, reason: Reason, now: Timestamp) {
        let entry = self.entries.iter().position(|entry| entry.id == *id).unwrap_or_else(|| {
            let record = Record { purpose: Some(reason.as_str().to_owned()), ..Record::default() };
            self.entries.push(HandlerProgress {
                id: Arc::clone(id),
                record,
                origin: None,
                active: true,
                obsolete: false,
            });
            self.entries.len() - 1
        });
        let found = &mut self.entries[entry];
        found.active = true;
        found.record.started.get_or_insert(now);
        // A record with only an observed essence has none.
        found.record.purpose.get_or_insert_with(|| reason.as_str().to_owned());
        self.selected.push(Selected { handler, entry });
    }

    /// When the handling for this reason began: the earliest start of its handlers. None without handlers.
    pub(crate) fn began(&self, reason: Reason) -> Option<Timestamp> {
        let ours = self.entries.iter().filter(|entry| !entry.obsolete && entry.record.is_for(reason));
        ours.filter_map(|entry| entry.record.started).min()
    }

    /// The other reasons that have records, with the states of their handlers.
    pub(crate) fn others(&self, reason: Reason) -> Vec<(Reason, Counts)> {
        let others = Reason::HANDLED.into_iter().filter(|other| *other != reason);
        others
            .filter(|other| self.entries.iter().any(|entry| entry.record.is_for(*other)))
            .map(|other| (other, Counts::of(self.entries.iter().filter(|entry| entry.record.is_for(other)))))
            .collect()
    }

    /// Supersedes the other reasons. Handlers of this reason keep their records; all other such records become obsolete.
    pub(crate) fn supersede(&mut self, reason: Reason, others: &[(Reason, Counts)]) {
        if others.is_empty() {
            return;
        }
        for entry in &mut self.entries {
            if entry.active {
                entry.record.purpose = Some(reason.as_str().to_owned());
            } else {
                entry.obsolete = others.iter().any(|(other, _)| entry.record.is_for(*other));
            }
        }
    }

    /// The handlers that can be called now, with the numbers of their attempts.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<(usize, u64)> {
        let entries =
            self.selected.iter().filter_map(|one| Some((one.handler, self.entries.get(one.entry)?)));
        entries
            .filter(|(_, entry)| !entry.is_finished())
            .filter(|(_, entry)| entry.record.delayed.is_none_or(|delayed| delayed <= now))
            .map(|(handler, entry)| (handler, entry.record.retries))
            .collect()
    }

    /// All records, by the ids of the handlers.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&Arc<str>, &Record)> {
        self.entries.iter().map(|entry| (&entry.id, &entry.record))
    }

    /// The record of a handler of this cause.
    pub(crate) fn record(&self, handler: usize) -> Option<&Record> {
        let one = self.selected.iter().find(|one| one.handler == handler)?;
        self.entries.get(one.entry).map(|entry| &entry.record)
    }

    /// Records the outcome of an attempt. It ignores the outcomes of handlers of other causes.
    pub(crate) fn record_outcome(&mut self, outcome: &Outcome) {
        let Some(one) = self.selected.iter().find(|one| one.handler == outcome.handler) else {
            return;
        };
        let Some(HandlerProgress { record, .. }) = self.entries.get_mut(one.entry) else {
            return;
        };
        record.retries = record.retries.saturating_add(1);
        record.stopped = record.stopped.or(outcome.final_.then_some(outcome.at));
        record.delayed = outcome.delay.map(|delay| outcome.at.plus(delay));
        record.success = outcome.final_ && !outcome.failed;
        record.failure = outcome.final_ && outcome.failed;
        record.message.clone_from(&outcome.message);
        record.subrefs.extend(outcome.subrefs.iter().cloned());
        record.subrefs.sort_unstable();
        record.subrefs.dedup();
    }

    /// Whether all handlers of this cause are finished.
    pub(crate) fn is_done(&self) -> bool {
        self.entries.iter().filter(|entry| entry.active).all(HandlerProgress::is_finished)
    }

    /// Seconds until the next handler of this cause can be called.
    pub(crate) fn delay(&self, now: Timestamp) -> Option<f64> {
        let unfinished = self.entries.iter().filter(|entry| entry.active && !entry.is_finished());
        unfinished
            .map(|entry| entry.record.delayed.map_or(0.0, |delayed| delayed.seconds_since(now).max(0.0)))
            .min_by(f64::total_cmp)
    }

    /// The states of the handlers of this cause, including those that do not match any more.
    pub(crate) fn counts(&self, reason: Reason) -> Counts {
        let ours = |entry: &&HandlerProgress| entry.record.purpose.is_none() || entry.record.is_for(reason);
        Counts::of(self.entries.iter().filter(ours))
    }
}

impl Counts {
    fn of<'e>(entries: impl Iterator<Item = &'e HandlerProgress>) -> Self {
        entries.fold(Self::default(), |mut counts, entry| {
            match entry {
                entry if entry.record.success => counts.succeeded += 1,
                entry if entry.record.failure => counts.failed += 1,
                _ => counts.running += 1,
            }
            counts
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_largest_numbers_of_a_record_do_not_overflow() {
        let record = json!({
            "started": "-009999-01-02T01:59:59Z", "delayed": "9999-12-30T22:00:00Z", "retries": u64::MAX,
        });
        let id: Arc<str> = Arc::from("h");
        let mut state = HandlingProgress::default();
        state.found(&id, Record::from_value(&record).unwrap());
        let now = Timestamp::from_micros(0);
        state.select(0, &id, Reason::Create, now);
        assert!(state.delay(now).is_some_and(f64::is_finite));
        let outcome = Outcome {
            handler: 0,
            at: Timestamp::from_micros(i64::MAX),
            final_: false,
            failed: true,
            delay: Some(f64::MAX),
            message: None,
            subrefs: Vec::new(),
            is_exception: true,
        };
        state.record_outcome(&outcome);
        let record = state.record(0).unwrap();
        assert_eq!(record.retries, u64::MAX);
        let text = record.to_json(false);
        assert!(Record::from_value(&serde_json::from_str(&text).unwrap()).is_ok(), "{text}");
    }
}
