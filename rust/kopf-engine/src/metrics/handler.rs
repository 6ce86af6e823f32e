//! The metrics of the handlers. Handlers with the same id share them.

use std::collections::BTreeMap;

use kopf_core::activation::{Activation, Command, CommandResult, Completion};
use kopf_core::handler::{Handler, Kind};
use kopf_core::handling::attempt::Outcome;
use kopf_core::time::Timestamp;

use super::OTHER;
use super::instruments::{Counter, Histogram};

/// The outcomes of calls.
pub(super) const OUTCOMES: [&str; 6] = ["succeeded", "delayed", "errored", "failed", "ignored", "cancelled"];
/// Maximum number of ids; further handlers share one.
const MOST_IDS: usize = 500;

/// The name of the outcome, in metrics and traces.
pub fn outcome_name(outcome: &Outcome) -> &'static str {
    OUTCOMES[number_of(outcome)]
}

/// The index of the outcome in [`OUTCOMES`].
const fn number_of(outcome: &Outcome) -> usize {
    match (outcome.final_, outcome.failed, outcome.is_exception) {
        (true, true, _) => 3,
        (true, false, true) => 4,
        (true, false, false) => 0,
        (false, _, true) => 2,
        (false, _, false) => 1,
    }
}

/// The metrics of the handlers with one id.
#[derive(Debug)]
pub struct HandlerMetrics {
    pub(super) id: String,
    pub(super) outcomes: [Counter; OUTCOMES.len()],
    pub(super) retries: Counter,
    pub(super) duration: Histogram,
    /// Seconds from the due time to the call; only of timers.
    pub(super) lateness: Option<Histogram>,
    pub(super) is_background: bool,
}

/// The metrics of all handlers of a registry.
#[derive(Debug)]
pub struct HandlerTable {
    /// By the index of the handler in the registry; none for handlers that are measured otherwise.
    rows: Vec<Option<usize>>,
    pub(super) all: Vec<HandlerMetrics>,
    ids: BTreeMap<String, usize>,
}

impl HandlerTable {
    /// The metrics of these handlers, before any call.
    pub fn of(handlers: &[Handler]) -> Self {
        let mut table = Self { rows: vec![], all: vec![], ids: BTreeMap::new() };
        for handler in handlers {
            let row = is_measured(handler).then(|| table.row(handler));
            table.rows.push(row);
        }
        table
    }

    fn row(&mut self, handler: &Handler) -> usize {
        let is_known = self.ids.contains_key(&*handler.id);
        let id = if is_known || self.all.len() < MOST_IDS { &*handler.id } else { OTHER };
        let number = *self.ids.entry(id.to_owned()).or_insert(self.all.len());
        if number == self.all.len() {
            self.all.push(HandlerMetrics {
                id: id.to_owned(),
                outcomes: Default::default(),
                retries: Counter::default(),
                duration: Histogram::slow(),
                lateness: None,
                is_background: false,
            });
        }
        let metrics = &mut self.all[number];
        if matches!(handler.kind, Kind::Timer(_)) {
            metrics.lateness.get_or_insert_with(Histogram::fast);
        }
        metrics.is_background |= matches!(handler.kind, Kind::Daemon(_) | Kind::Timer(_));
        number
    }

    /// The metrics of the handler with this index in the registry.
    pub fn get(&self, handler: usize) -> Option<&HandlerMetrics> {
        self.all.get((*self.rows.get(handler)?)?)
    }

    /// The id under which the handler with this index is counted.
    pub(super) fn row_of(&self, handler: usize) -> Option<usize> {
        *self.rows.get(handler)?
    }

    /// Counts the calls that are not the first ones.
    pub fn on_activation(&self, activation: &Activation) {
        for command in &activation.commands {
            if let Command::CallEventHandler { attempt, .. } | Command::CallChangeHandler { attempt } =
                command
                && attempt.retry > 0
                && let Some(metrics) = self.get(attempt.handler)
            {
                metrics.retries.increment();
            }
        }
    }

    /// Counts the calls of an activation that was submitted at `start`. They were made one after the other.
    pub fn on_completion(&self, completion: &Completion, start: Timestamp) {
        let mut start = start;
        for result in &completion.results {
            match result {
                CommandResult::Attempted(outcome) => self.on_outcome(outcome, &mut start),
                CommandResult::Indexed(outcomes) => {
                    outcomes.iter().flatten().for_each(|outcome| self.on_outcome(outcome, &mut start));
                }
                _ => {}
            }
        }
    }

    fn on_outcome(&self, outcome: &Outcome, start: &mut Timestamp) {
        if let Some(metrics) = self.get(outcome.handler) {
            metrics.on_outcome(outcome);
            metrics.duration.observe(outcome.at.seconds_since(*start));
        }
        *start = outcome.at;
    }
}

impl HandlerMetrics {
    /// Counts a call.
    pub fn on_outcome(&self, outcome: &Outcome) {
        self.outcomes[number_of(outcome)].increment();
    }

    /// Counts a call that was cancelled.
    pub fn on_cancelled(&self) {
        self.outcomes[5].increment();
    }

    /// Counts a call of a daemon or a timer; only the durations of timers are of interest.
    pub fn on_background_outcome(&self, outcome: &Outcome, began: Timestamp) {
        self.on_outcome(outcome);
        if self.lateness.is_some() {
            self.duration.observe(outcome.at.seconds_since(began));
        }
    }

    /// Records the call of a timer, so many seconds after its due time.
    pub fn on_due(&self, late: f64) {
        if let Some(lateness) = &self.lateness {
            lateness.observe(late);
        }
    }
}

/// Reconcilers, webhooks, caches and activities have other metrics, or none.
fn is_measured(handler: &Handler) -> bool {
    matches!(
        handler.kind,
        Kind::Watching | Kind::Changing(_) | Kind::Indexing | Kind::Daemon(_) | Kind::Timer(_)
    )
}
