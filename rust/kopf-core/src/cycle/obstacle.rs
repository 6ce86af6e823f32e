//! Why a change handler is not called in a cycle, for [`explaining`](crate::explaining).
//!
//! The rules are those of the other phases. Filters that are functions are no obstacles here.

use super::Cycle;
use super::detect::ReasonMismatch;
use crate::cause::{EventType, Reason};
use crate::handler::filters::FilterVerdict;
use crate::handler::filters::obstacle::{self, Obstacle};
use crate::handling::attempt::Limit;
use crate::handling::change::Change;
use crate::persistence::progress::Record;
use std::sync::Arc;

/// Why a change handler is not called.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeObstacle {
    /// It is not for the reason of this cycle.
    Reason,
    /// The object is being deleted, or is gone.
    Deleted,
    /// It is a resume handler, and the object is new, or was handled by this run of the operator.
    Initial,
    /// It does not match the object or the change.
    Filter(Obstacle),
    /// It has succeeded in this handling.
    Done(Box<Record>),
    /// It has failed permanently in this handling.
    Failed(Box<Record>),
    /// It is to be retried later.
    Delay(Box<Record>),
    /// The finalizer is added or removed first.
    FinalizerFirst,
    /// The object is being deleted, and does not have the finalizer.
    Unblocked,
    /// Its limits do not allow another attempt.
    Limit(Limit, Box<Record>),
}

impl Cycle {
    /// The reason to act, regardless of what the cycle does for it; none if no change handler can match the object.
    pub(crate) fn explained_reason(&mut self) -> Option<Reason> {
        if self.resource_handlers.changing.is_empty() { None } else { self.detect_reason() }
    }

    /// The change of the essence.
    pub(crate) fn explained_change(&mut self, reason: Reason) -> Change {
        let initial = self.is_initial();
        let (object, handlers, config) =
            (Arc::clone(&self.object), Arc::clone(&self.resource_handlers), Arc::clone(&self.config));
        self.comparison().change(&object, &handlers, &config, reason, initial)
    }

    /// The first obstacle in the declaration of a change handler.
    pub(crate) fn declared_obstacle(&mut self, index: usize) -> Option<ChangeObstacle> {
        let changing = self.changing(index)?.clone();
        let Some(reason) = self.explained_reason() else {
            return self.filter_obstacle(index).map(ChangeObstacle::Filter);
        };
        if !reason.is_handled() {
            return Some(match reason {
                Reason::Free if changing.reason == Some(Reason::Delete) => ChangeObstacle::Unblocked,
                Reason::Free | Reason::Gone => ChangeObstacle::Deleted,
                _ if changing.initial => ChangeObstacle::Initial,
                _ => ChangeObstacle::Reason,
            });
        }
        match self.mismatch(&changing, reason) {
            Some(ReasonMismatch::Reason) => Some(ChangeObstacle::Reason),
            Some(ReasonMismatch::Initial) => Some(ChangeObstacle::Initial),
            Some(ReasonMismatch::Deleted) => Some(ChangeObstacle::Deleted),
            None => self.filter_obstacle(index).map(ChangeObstacle::Filter),
        }
    }

    fn filter_obstacle(&mut self, index: usize) -> Option<Obstacle> {
        let config = Arc::clone(&self.config);
        let (object, handlers) = (Arc::clone(&self.object), Arc::clone(&self.resource_handlers));
        let handler = config.registry.handlers.get(index)?;
        obstacle::on_change(handler, handler.changing()?, &object, |field| {
            self.comparison().field(&object, &handlers, &config, field)
        })
    }

    /// The first obstacle in the progress of a change handler whose filters match.
    pub(crate) fn progress_obstacle(&self, index: usize) -> Option<ChangeObstacle> {
        let handler = self.handler(index)?;
        let record = Box::new(self.fetch_record(&handler.id).ok().flatten().unwrap_or_default());
        if record.success {
            return Some(ChangeObstacle::Done(record));
        }
        if record.failure {
            return Some(ChangeObstacle::Failed(record));
        }
        if record.delayed.is_some_and(|delayed| delayed > self.moment.now) {
            return Some(ChangeObstacle::Delay(record));
        }
        if self.finalizer.is_some() {
            return Some(ChangeObstacle::FinalizerFirst);
        }
        let started = record.started.unwrap_or(self.moment.now);
        let limit = self.attempt(index, started, record.retries)?.precheck(self.moment.now)?.limit?;
        Some(ChangeObstacle::Limit(limit, record))
    }

    /// The change handlers that block the deletion of the object.
    pub(crate) fn blocking_handlers(&self) -> Vec<usize> {
        let blocking = self
            .candidates
            .iter()
            .filter(|one| one.prematch == FilterVerdict::Yes && self.requires_finalizer(one.handler));
        blocking.map(|one| one.handler).collect()
    }

    /// Whether the object has the operator's finalizer.
    pub(crate) fn has_finalizer(&self) -> bool {
        self.is_blocked()
    }

    /// Whether the object exists, and its deletion is not requested.
    pub(crate) fn is_alive(&self) -> bool {
        self.event.kind != EventType::Deleted && !self.is_deleting()
    }
}
