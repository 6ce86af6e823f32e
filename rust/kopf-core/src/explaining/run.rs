//! The run of the cycle, with the host that evaluates functions.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Answer, Host, Question, Subject};
use crate::activation::{Activation, Command, CommandResult, Completion, FilterResult};
use crate::cause::EventType;
use crate::cycle::{Cycle, CycleStart, Effect, OperatorConfig, QueuedEvent};
use crate::daemon::{self, DesiredDaemons};
use crate::handler::filters::{FilterVerdict, on_object};
use crate::handler::registry::ResourceHandlers;
use crate::indexing::Indexing;
use crate::persistence::consistency::ViewAge;
use crate::persistence::finalizer::Edit;
use crate::persistence::memory::ObjectMemory;
use crate::schedule::{Finalization, PrimaryState};

/// A run of the cycle up to its calls of change handlers.
pub(super) struct Run<'r> {
    pub(super) subject: &'r Subject,
    pub(super) handlers: &'r Arc<ResourceHandlers>,
    pub(super) config: &'r Arc<OperatorConfig>,
    host: &'r mut dyn Host,
    pub(super) cycle: Cycle,
    /// The results of filters that are functions, by handlers.
    pub(super) answers: HashMap<usize, Answer>,
    /// The error of a function, after which the operator calls no handler.
    pub(super) error: Option<String>,
    /// The change handlers and event handlers that are called.
    pub(super) called: Vec<usize>,
    /// Whether the cycle has come to the calls of change handlers.
    pub(super) is_handling: bool,
    /// The daemons and timers that should run; none if the cycle has not come to them.
    pub(super) daemons: Option<DesiredDaemons>,
    /// The index functions that are called.
    pub(super) indexed: Vec<usize>,
    /// The change of the finalizer.
    pub(super) edit: Option<Edit>,
}

impl<'r> Run<'r> {
    /// A run with the state that an operator would read from the object.
    pub(super) fn new(
        subject: &'r Subject,
        handlers: &'r Arc<ResourceHandlers>,
        config: &'r Arc<OperatorConfig>,
        host: &'r mut dyn Host,
    ) -> Self {
        let noticed_by_listing = subject.event == EventType::Listed;
        let mut memory = ObjectMemory { noticed_by_listing, ..ObjectMemory::default() };
        if !handlers.changing.is_empty() {
            memory.observe(&subject.object, &*config.settings, handlers);
        }
        let event = QueuedEvent::of(subject.event, Arc::clone(&subject.object));
        let start = CycleStart { event, memory, view_age: ViewAge::Consistent, index_pass: None };
        let cycle = Cycle::open(start, Arc::clone(handlers), Arc::clone(config), 0, subject.now);
        Self {
            subject,
            handlers,
            config,
            host,
            cycle,
            answers: HashMap::new(),
            error: None,
            called: Vec::new(),
            is_handling: false,
            daemons: None,
            indexed: Vec::new(),
            edit: None,
        }
    }
}

impl Run<'_> {
    /// Runs the index functions' filters, which come first, and then the cycle.
    pub(super) fn execute(&mut self) {
        self.indexed = self.run_indexers();
        while self.error.is_none()
            && let Some(effect) = self.cycle.effect()
        {
            let now = self.subject.now;
            match effect {
                Effect::Run(activation) => match self.run(&activation) {
                    Some(completion) => self.cycle.on_completion(completion, now),
                    None => return,
                },
                Effect::AwaitConsistency => self.cycle.on_consistency(true, now),
                Effect::Spawn(desired) => {
                    let holds = daemon::diff(&desired, &[], &[], &self.config.registry, None).holds;
                    self.daemons = Some(desired);
                    let holds = holds || !self.blocking_reconcilers().is_empty();
                    self.cycle.on_daemons(None, holds, now);
                }
                Effect::Done(decision) => {
                    self.edit = decision.finalizer;
                    self.error = self.error.take().or(decision.error);
                    return;
                }
            }
        }
    }

    /// The completion of an activation; none if it calls change handlers, at which the run ends.
    fn run(&mut self, activation: &Activation) -> Option<Completion> {
        let mut completion = Completion::default();
        for command in &activation.commands {
            // The operator executes the commands in this order, up to an error.
            if self.error.is_some() {
                break;
            }
            let result = match command {
                Command::CallChangeHandler { attempt } => {
                    self.is_handling = true;
                    self.called.push(attempt.handler);
                    continue;
                }
                Command::CallEventHandler { handler, guarded, .. } => {
                    if !guarded || self.ask(Question::Event, &[*handler])[0].full {
                        self.called.push(*handler);
                    }
                    CommandResult::Skipped
                }
                Command::FilterDaemons { handlers } => {
                    CommandResult::Filtered(self.ask(Question::Daemon, handlers))
                }
                Command::FilterHandlers { handlers } => {
                    let Some(change) = &activation.change else { continue };
                    CommandResult::Filtered(self.ask(Question::Change(change), handlers))
                }
                Command::SelectHandlers { handlers, records } => {
                    self.is_handling = true;
                    let object = Arc::clone(self.cycle.object());
                    match self.host.select(&object, activation.change.as_ref(), handlers, records) {
                        Ok(selected) => CommandResult::Selected(selected),
                        Err(error) => {
                            self.error = Some(error);
                            CommandResult::Selected(Vec::new())
                        }
                    }
                }
                Command::FetchState { ids, extra_fields } => {
                    match self.host.fetch(&self.subject.object, ids, extra_fields) {
                        Ok(fetched) => CommandResult::Fetched(Box::new(fetched)),
                        Err(error) => {
                            self.error = Some(error);
                            continue;
                        }
                    }
                }
                Command::CallIndexers(_) | Command::StoreState(_) => continue,
            };
            completion.results.push(result);
        }
        completion.error.clone_from(&self.error);
        if self.is_handling && !self.called.is_empty() && completion.results.is_empty() {
            return None;
        }
        Some(completion)
    }

    fn ask(&mut self, question: Question<'_>, handlers: &[usize]) -> Vec<FilterResult> {
        let object = Arc::clone(self.cycle.object());
        let answers = self.host.filter(&object, question, handlers);
        let mut results = Vec::with_capacity(handlers.len());
        for (handler, answer) in handlers.iter().zip(answers) {
            results.push(match &answer {
                Answer::Matches | Answer::Unasked => FilterResult { prematch: true, full: true },
                Answer::Mismatch { prematch, .. } => FilterResult { prematch: *prematch, full: false },
                Answer::Raised(error) => {
                    // Errors of reconcilers' filters are only logged.
                    if question != Question::Reconciler {
                        self.error.get_or_insert_with(|| error.clone());
                    }
                    FilterResult::default()
                }
            });
            self.answers.insert(*handler, answer);
        }
        results.resize(handlers.len(), FilterResult::default());
        results
    }

    /// The verdict of the filters of a handler of whole objects.
    fn matches(&mut self, question: Question<'_>, index: usize) -> bool {
        let Some(handler) = self.config.registry.handlers.get(index) else { return false };
        match on_object(handler, self.cycle.object()) {
            FilterVerdict::Ask if !self.answers.contains_key(&index) => self.ask(question, &[index])[0].full,
            FilterVerdict::Ask => matches!(self.answers[&index], Answer::Matches | Answer::Unasked),
            certain => certain == FilterVerdict::Yes,
        }
    }

    /// The reconcilers that need the operator's finalizer.
    pub(super) fn blocking_reconcilers(&mut self) -> Vec<usize> {
        let mut blocking = self.handlers.reconciling.clone();
        blocking.retain(|index| {
            self.primary_state(*index).is_some_and(|(has_deletion, state, is_shared)| {
                is_shared && Finalization::default().needs_finalizer(has_deletion, state, false)
            })
        });
        blocking
    }

    /// The argument `deletion` of a reconciler, the state of the object for it, and whether it has the operator's finalizer.
    pub(super) fn primary_state(&mut self, index: usize) -> Option<(bool, PrimaryState, bool)> {
        let config = Arc::clone(self.config);
        let reconciling = config.registry.handlers.get(index)?.reconciling()?;
        let own = &config.settings.persistence.finalizer;
        let finalizer = reconciling.finalizer.as_ref().unwrap_or(own);
        let matches = self.matches(Question::Reconciler, index);
        let object = self.cycle.object();
        let is_deleting = object.deletion_timestamp().is_some();
        let state = PrimaryState { matches, is_deleting, has_finalizer: object.has_finalizer(finalizer) };
        Some((reconciling.deletion, state, reconciling.finalizer.is_none()))
    }

    /// The index functions that are called.
    fn run_indexers(&mut self) -> Vec<usize> {
        let config = (&*self.config.registry, &*self.config.settings);
        let (event, now) = (self.subject.event, self.subject.now);
        let pass = Indexing::default().pass(event, self.cycle.object(), self.handlers, config, now);
        let calls = pass.map_or_else(Vec::new, |pass| pass.calls);
        let mut indexed: Vec<usize> = Vec::with_capacity(calls.len());
        for call in calls {
            let index = call.attempt.handler;
            if self.error.is_none() && (!call.guarded || self.ask(Question::Index, &[index])[0].full) {
                indexed.push(index);
            }
        }
        indexed
    }
}
