//! The verdicts about the handlers, after the run of the cycle.

use std::sync::Arc;

use super::Answer;
use super::report::{self, Code, Explanation, FinalizerReport, HandlerReport, Verdict};
use super::run::Run;
use crate::cause::{EventType, Reason};
use crate::daemon;
use crate::handler::filters::obstacle::{self, Filter, Obstacle};
use crate::handler::{Handler, Kind};
use crate::persistence::finalizer::Edit;
use crate::schedule::{Action, Finalization};

impl Run<'_> {
    /// The result of the run.
    pub(super) fn into_explanation(mut self) -> Explanation {
        let count = self.config.registry.handlers.len();
        let served: Vec<usize> = (0..count).filter(|index| self.is_served(*index)).collect();
        let handlers = served.iter().map(|&index| {
            let config = Arc::clone(self.config);
            let handler = &config.registry.handlers[index];
            let report = match &handler.kind {
                Kind::Changing(_) => self.explain_change_handler(index),
                Kind::Watching => self.explain_event_handler(handler, index),
                Kind::Daemon(_) | Kind::Timer(_) => self.explain_daemon(handler, index),
                Kind::Indexing => self.explain_indexer(handler, index),
                _ => self.explain_reconciler(handler, index),
            };
            HandlerReport { id: handler.id.to_string(), handler: index, ..report }
        });
        let handlers = handlers.collect();
        let reason = self.cycle.explained_reason();
        let change = reason.filter(|reason| *reason == Reason::Update);
        let change = change.map(|reason| self.cycle.explained_change(reason));
        let changed =
            change.map_or_else(Vec::new, |change| report::changed(change.diff(), self.cycle.object()));
        Explanation { reason, changed, handlers, finalizer: self.explain_finalizer(), error: self.error }
    }

    fn is_served(&self, index: usize) -> bool {
        let handlers = self.handlers;
        let lists = [
            &handlers.watching,
            &handlers.changing,
            &handlers.indexing,
            &handlers.spawning,
            &handlers.reconciling,
        ];
        lists.into_iter().any(|list| list.contains(&index))
    }

    fn explain_change_handler(&mut self, index: usize) -> HandlerReport {
        if let Some(obstacle) = self.cycle.declared_obstacle(index) {
            return report::of_obstacle(obstacle);
        }
        if let Some(report) = self.answered(index) {
            return report;
        }
        let is_called = self.called.contains(&index);
        let is_first = |other: &usize| {
            let handlers = &self.config.registry.handlers;
            (handlers[*other].key, &handlers[*other].id) == (handlers[index].key, &handlers[index].id)
        };
        let earlier =
            self.handlers.changing.iter().take_while(|other| **other != index).filter(|it| is_first(it));
        let earlier: Vec<usize> = earlier.copied().collect();
        if !is_called && earlier.iter().any(|other| self.passes(*other)) {
            return HandlerReport::of(Verdict::No, Code::Duplicate);
        }
        if let Some(obstacle) = self.cycle.progress_obstacle(index) {
            return report::of_obstacle(obstacle);
        }
        match (is_called, self.is_handling) {
            (true, _) => self.yes(index),
            (false, true) => HandlerReport::of(Verdict::Later, Code::Lifecycle),
            // The progress of an earlier handling is removed first.
            (false, false) => HandlerReport::of(Verdict::Later, Code::Done),
        }
    }

    /// Whether a change handler is for the object and the change.
    fn passes(&mut self, index: usize) -> bool {
        self.cycle.declared_obstacle(index).is_none()
            && self
                .answers
                .get(&index)
                .is_none_or(|answer| matches!(answer, Answer::Matches | Answer::Unasked))
    }

    fn explain_event_handler(&mut self, handler: &Handler, index: usize) -> HandlerReport {
        if self.called.contains(&index) {
            return self.yes(index);
        }
        self.filtered(handler, index).unwrap_or_else(|| HandlerReport::of(Verdict::No, Code::Duplicate))
    }

    fn explain_daemon(&mut self, handler: &Handler, index: usize) -> HandlerReport {
        if !self.cycle.is_alive() {
            return HandlerReport::of(Verdict::No, Code::Deleted);
        }
        if let Some(report) = self.filtered(handler, index) {
            return report;
        }
        let registry = &self.config.registry;
        let started =
            self.daemons.as_ref().map(|desired| daemon::diff(desired, &[], &[], registry, None).start);
        let is_started = started.is_some_and(|started| started.contains(&index));
        if is_started { self.yes(index) } else { HandlerReport::of(Verdict::No, Code::Duplicate) }
    }

    fn explain_indexer(&self, handler: &Handler, index: usize) -> HandlerReport {
        if self.subject.event == EventType::Deleted {
            return HandlerReport::of(Verdict::No, Code::Deleted);
        }
        if let Some(report) = self.filtered(handler, index) {
            return report;
        }
        if self.indexed.contains(&index) {
            self.yes(index)
        } else {
            HandlerReport::of(Verdict::No, Code::Duplicate)
        }
    }

    fn explain_reconciler(&mut self, handler: &Handler, index: usize) -> HandlerReport {
        let Some((has_deletion, state, _)) = self.primary_state(index) else {
            return HandlerReport::of(Verdict::No, Code::Selector);
        };
        if self.subject.event == EventType::Deleted {
            return HandlerReport::of(Verdict::No, Code::Deleted);
        }
        if let Some(report) = self.filtered(handler, index) {
            return report;
        }
        match Finalization::default().action(has_deletion, state, false) {
            Action::Call(_) => self.yes(index),
            Action::Edit(_) => HandlerReport::of(Verdict::Later, Code::Finalizer),
            Action::Wait if has_deletion => HandlerReport::of(Verdict::No, Code::Finalizer),
            Action::Wait => HandlerReport::of(Verdict::No, Code::Deleted),
        }
    }

    /// The report of a handler of whole objects whose filters do not match.
    fn filtered(&self, handler: &Handler, index: usize) -> Option<HandlerReport> {
        let obstacle = obstacle::on_object(handler, self.cycle.object());
        obstacle.map(report::of_filter).or_else(|| self.answered(index))
    }

    /// The report of a handler whose filter functions do not match; or the error of any of them: then nothing is called.
    fn answered(&self, index: usize) -> Option<HandlerReport> {
        let text = match (self.answers.get(&index), &self.error) {
            (Some(Answer::Mismatch { obstacle, .. }), _) => return Some(report::of_filter(obstacle.clone())),
            (Some(Answer::Raised(error)), _) | (_, Some(error)) => error.clone(),
            _ => return None,
        };
        Some(report::of_filter(Obstacle { filter: Filter::When, text }))
    }

    /// A handler that is called; or that would be called if its functions match, which were not called.
    fn yes(&self, index: usize) -> HandlerReport {
        let is_unasked = self.answers.get(&index) == Some(&Answer::Unasked);
        HandlerReport {
            verdict: if is_unasked { Verdict::Ask } else { Verdict::Yes },
            ..HandlerReport::default()
        }
    }

    fn explain_finalizer(&mut self) -> FinalizerReport {
        let mut blocking = self.cycle.blocking_handlers();
        if let Some(desired) = &self.daemons {
            blocking.extend(&desired.handlers);
        }
        blocking.extend(self.blocking_reconcilers());
        let ids = blocking.iter().map(|index| self.config.registry.handlers[*index].id.to_string());
        let mut ids: Vec<String> = ids.collect();
        ids.dedup();
        let verdict = match self.edit {
            Some(Edit::Block) => "added",
            Some(Edit::Allow) => "removed",
            None if self.cycle.has_finalizer() => "kept",
            None => "absent",
        };
        FinalizerReport { verdict, handlers: ids }
    }
}
