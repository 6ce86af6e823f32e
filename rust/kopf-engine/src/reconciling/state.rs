//! The state of all reconcilers: their primaries, work queues, and running calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::Handler;
use kopf_core::handler::label;
use kopf_core::handler::reconciling::Reconciling;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::predicate::{Changed, Digests};
use kopf_core::readiness::ReadinessBarrier;
use kopf_core::relations::ObjectName;
use kopf_core::resource::Resource;
use kopf_core::schedule::{Call, PrimarySchedule, SchedulePolicy, WorkQueue};
use kopf_core::time::Timestamp;
use tracing::Span;

use super::OwnWrites;
use super::cycles::Cycles;
use super::event::{FeedId, PrimaryEvent};
use super::inspections::{FailedInspections, Inspected};
use super::lists::{CompleteLists, Relisting};
use super::measured::Measured;
use super::relation::Relation;
use super::submissions::Submissions;
use super::write_triggers::WriteTriggers;
use crate::host::{Host, RunId};
use crate::operator_pause::Pause;
use crate::task_context::TaskContext;

/// The state of all reconcilers.
pub(super) struct State {
    pub(super) reconcilers: Vec<Reconciler>,
    pub(super) runs: HashMap<RunId, Run>,
    /// The times at which calls are cancelled.
    pub(super) deadlines: BTreeMap<(Timestamp, RunId), Deadline>,
    /// The feeds whose first list is complete, by their names.
    pub(super) listed: BTreeSet<String>,
    /// The operator is exiting: nothing starts.
    pub(super) is_closing: bool,
    pub(super) is_debug: bool,
    pub(super) are_handlers_ready: bool,
    pub(super) pause: Arc<Pause>,
    pub(super) rules: Arc<OperatorConfig>,
    pub(super) started: Timestamp,
    /// The own writes; none if there are no caches.
    pub(super) writes: Option<Arc<dyn OwnWrites>>,
    /// Primaries whose writes are not visible yet: the reconciler, the key, and the numbers of the writes.
    pub(super) unconfirmed: Vec<(usize, Arc<str>, (u64, u64))>,
    pub(super) submissions: Submissions,
    /// The time of the next action that the task expects.
    pub(super) next_step: Option<Timestamp>,
    next_number: u64,
}

/// The reason why a call is cancelled at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    /// Its timeout.
    Timeout,
    /// The end of the grace period after the stop flag was set.
    Exit,
}

/// One reconciler.
pub(super) struct Reconciler {
    /// The index of the handler.
    pub(super) handler: usize,
    /// The label in log lines.
    pub(super) label: Box<str>,
    pub(super) options: Arc<Reconciling>,
    pub(super) policy: SchedulePolicy,
    pub(super) changed: Vec<Changed>,
    pub(super) finalizer: String,
    /// By the numbers of primaries.
    pub(super) queue: WorkQueue<u64>,
    /// By their keys, which are uids.
    pub(super) primaries: HashMap<Arc<str>, Primary>,
    pub(super) numbers: HashMap<u64, Arc<str>>,
    /// The names of the primaries with their keys. Several kinds, or several objects one after another, can have one name.
    pub(super) names: BTreeSet<(ObjectName, Arc<str>)>,
    /// The primaries whose functions are being called by the host.
    pub(super) inspected: HashMap<Arc<str>, Inspected>,
    pub(super) failed: FailedInspections,
    pub(super) relations: Vec<Relation>,
    pub(super) lists: CompleteLists,
    /// The resources of the primaries.
    pub(super) kinds: Vec<Arc<Resource>>,
    pub(super) barrier: ReadinessBarrier,
    /// The wait for the lists after a pause, or at the start of a term.
    pub(super) relisting: Option<Relisting>,
    pub(super) required: Vec<String>,
    pub(super) measured: Measured,
}

/// A primary of one reconciler. Objects that do not match are not kept, unless a call is running.
pub(super) struct Primary {
    /// The key in the work queue.
    pub(super) number: u64,
    pub(super) feed: FeedId,
    pub(super) resource: Arc<Resource>,
    /// The newest known state, which may be from the response to a write.
    pub(super) object: Arc<Object>,
    /// At the last event.
    pub(super) digests: Digests,
    pub(super) schedule: PrimarySchedule,
    pub(super) run: Option<RunId>,
    /// The finalizer is being edited.
    pub(super) is_editing: bool,
    /// It does not exist any more, but a call is running.
    pub(super) is_gone: bool,
    /// The handling cycles of the object, if it has any: they decide about the operator's finalizer.
    pub(super) cycles: Option<Arc<Cycles>>,
    /// The last trigger, for the debug log.
    pub(super) cause: Option<String>,
    /// The triggers by own writes; none if its calls have not written recently.
    pub(super) write_triggers: Option<Box<WriteTriggers>>,
}

/// A running call.
pub(super) struct Run {
    /// The position of the reconciler.
    pub(super) reconciler: usize,
    pub(super) uid: Arc<str>,
    pub(super) call: Call,
    /// The number of the last own write before the call.
    pub(super) writes_before: u64,
    /// The stop flag is set.
    pub(super) is_stopping: bool,
    /// It is cancelled: its patch is not written, unless it has exceeded its timeout.
    pub(super) is_cancelled: bool,
    /// It has exceeded its timeout: its patch has only its own condition.
    pub(super) is_timed_out: bool,
    pub(super) started: Timestamp,
    /// The span of its traces.
    pub(super) span: Span,
}

impl State {
    /// The state of the reconcilers of the registry; none if it has none.
    pub(super) fn of(base: &TaskContext, pause: &Arc<Pause>) -> Option<Self> {
        let rules = &base.startup_config;
        let now = base.clock.now();
        let handlers = rules.registry.handlers.iter().enumerate();
        let reconcilers: Vec<_> =
            handlers.filter_map(|(index, handler)| Reconciler::of(index, handler, rules, now)).collect();
        (!reconcilers.is_empty()).then(|| Self {
            reconcilers,
            runs: HashMap::new(),
            deadlines: BTreeMap::new(),
            listed: BTreeSet::new(),
            is_closing: false,
            is_debug: base.host.enabled(Level::Debug),
            are_handlers_ready: false,
            pause: Arc::clone(pause),
            rules: Arc::clone(rules),
            started: now,
            writes: None,
            unconfirmed: vec![],
            submissions: Submissions::default(),
            next_step: None,
            next_number: 0,
        })
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// The time of the next action after so many pauses and terms; none if nothing is scheduled. With no number, the operator is paused.
    pub(super) fn next_time(&self, pauses: Option<u64>) -> Option<Timestamp> {
        let pauses = pauses.filter(|_| !self.is_closing);
        let due = self.reconcilers.iter().filter_map(|reconciler| {
            let pauses = pauses?;
            match (reconciler.barrier.is_open(), reconciler.lists.are_after(pauses)) {
                (true, true) => reconciler.queue.next_due(),
                (true, false) => reconciler.relisting.as_ref()?.barrier.next_warning(),
                (false, _) => reconciler.barrier.next_warning(),
            }
        });
        let deadline = self.deadlines.keys().next().map(|(at, _)| *at);
        let failed = self.reconcilers.iter().filter_map(|reconciler| reconciler.failed.next_due());
        due.chain(deadline).chain(failed.filter(|_| !self.is_closing)).min()
    }

    /// Whether a call that began before the deletion of the object is running. Cancelled calls do not count.
    pub(super) fn has_ordinary_call(&self, key: &str) -> bool {
        self.runs.values().any(|run| run.call == Call::Ordinary && !run.is_cancelled && *run.uid == *key)
    }

    /// The longest exit timeout of all reconcilers.
    pub(super) fn exit_timeout(&self) -> f64 {
        self.reconcilers.iter().map(|reconciler| reconciler.options.exit_timeout).fold(0.0, f64::max)
    }

    pub(super) fn refresh_level(&mut self, host: &dyn Host) {
        self.is_debug = host.enabled(Level::Debug);
    }
}

impl Primary {
    pub(super) fn new(number: u64, event: &PrimaryEvent, digests: Digests) -> Self {
        Self {
            number,
            feed: event.feed,
            resource: Arc::clone(&event.resource),
            object: kept(&event.object),
            digests,
            schedule: PrimarySchedule::default(),
            run: None,
            is_editing: false,
            is_gone: false,
            cycles: event.cycles.clone(),
            cause: None,
            write_triggers: None,
        }
    }

    /// Holds back its calls while a deletion handler needs the operator's finalizer, and this state does not have it.
    pub(super) fn await_finalizer(&mut self, state: &Object) {
        let adds_finalizer = self.cycles.as_ref().is_some_and(|cycles| cycles.adds_finalizer(state));
        self.schedule.await_finalizer(adds_finalizer);
    }
}

impl Reconciler {
    fn of(index: usize, handler: &Handler, rules: &OperatorConfig, now: Timestamp) -> Option<Self> {
        let options = Arc::new(handler.reconciling()?.clone());
        let retries = handler.retries.map(|retries| u32::try_from(retries).unwrap_or(u32::MAX));
        let policy = SchedulePolicy { retries, timeout: handler.timeout, ..SchedulePolicy::from(&*options) };
        let operators = &rules.settings.persistence.finalizer;
        let relations = options.related().map(Relation::new).collect();
        Some(Self {
            handler: index,
            label: label::label(handler),
            policy,
            // Unknown words are rejected at the declaration.
            changed: options.changed.iter().filter_map(|part| Changed::try_from(part).ok()).collect(),
            finalizer: options.finalizer.clone().unwrap_or_else(|| operators.clone()),
            queue: WorkQueue::new(options.concurrency),
            primaries: HashMap::new(),
            numbers: HashMap::new(),
            names: BTreeSet::new(),
            inspected: HashMap::new(),
            failed: FailedInspections::default(),
            relations,
            lists: CompleteLists::default(),
            kinds: Vec::new(),
            barrier: ReadinessBarrier::new([], options.warn_after, now),
            relisting: None,
            required: Vec::new(),
            measured: Measured::default(),
            options,
        })
    }

    /// The keys of the primaries of this name.
    pub(super) fn named(&self, name: &ObjectName) -> Vec<Arc<str>> {
        let from = (name.clone(), Arc::from(""));
        let named = self.names.range(from..).take_while(|(other, _)| other == name);
        named.map(|(_, key)| Arc::clone(key)).collect()
    }

    /// Whether the operator's finalizer of an object stays until it is known whether the object matches.
    pub(super) fn holds_inspected(&self, object: &Object) -> bool {
        self.options.deletion && self.shares_finalizer() && object.has_finalizer(&self.finalizer)
    }

    /// Whether another reconciler or the handlers can use the same finalizer.
    pub(super) fn shares_finalizer(&self) -> bool {
        self.options.finalizer.is_none()
    }
}

/// The object as stored while nothing reads it.
pub(super) fn kept(object: &Arc<Object>) -> Arc<Object> {
    object.to_compressed().map_or_else(|| Arc::clone(object), Arc::new)
}
