//! The interface to the host of the handlers: the tasks that the engine submits, and their replies.
//!
//! An implementation of [`Host`] runs the user's code. The engine depends neither on its language nor on its threads.
//! It submits [`HostTask`]s, which may be collected in batches, and waits for their replies. No type here may hold an
//! object of the host's language.

pub mod admission;
pub mod caching;
pub mod credentials;
mod logger;
pub mod reconcile;

use std::fmt;
use std::sync::Arc;

use kopf_core::activation::{Activation, Completion};
use kopf_core::cause::EventType;
use kopf_core::daemon::StopReasons;
use kopf_core::handling::attempt::{Attempt, Outcome};
use kopf_core::handling::cause_id::Handling;
use kopf_core::health::trackers::QueuePosition;
use kopf_core::json::value::{Map, Value};
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use tokio::sync::{Notify, oneshot};
use tracing::Span;

use crate::error::Failure;
use crate::host::admission::AdmissionReviewTask;
use crate::host::caching::ComputeKeysTask;
use crate::host::credentials::Login;
pub use crate::host::logger::Logger;
use crate::host::reconcile::{CallReconcilerTask, Cancellation, InspectObjectTask};

/// The number of one processing cycle of one object, unique in the process.
pub type CycleId = u64;

/// The host of the handlers. All methods return at once: they only put items into a queue.
pub trait Host: Send + Sync + 'static {
    /// Submits a task. Its reply comes through the channel in the task.
    fn submit(&self, task: HostTask);

    /// Submits several tasks at once.
    fn submit_all(&self, tasks: Vec<HostTask>) {
        for task in tasks {
            self.submit(task);
        }
    }

    /// Submits a log record, in order with the tasks.
    fn log(&self, entry: LogRecord);

    /// How many submitted items the host has not taken from the queue yet.
    fn backlog(&self) -> usize {
        0
    }

    /// The position of the queue of tasks, for its age.
    fn queue_position(&self) -> QueuePosition {
        QueuePosition::default()
    }

    /// Notified each time the host takes items from the queue.
    fn taken(&self) -> Option<&Notify> {
        None
    }

    /// Whether log records of this level are enabled, so that disabled ones are not formatted.
    fn enabled(&self, level: Level) -> bool;

    /// The operator has ended; with a failure, unless it was stopped. The operator's task calls this as its last step: nothing
    /// more is submitted.
    fn engine_stopped(&self, failure: Option<Failure>) {
        drop(failure);
    }
}

/// A task for the host.
#[derive(Debug)]
pub enum HostTask {
    /// Run the handlers and filters of one object, in the given order.
    Activation(ActivationTask),
    /// Apply the transformation functions of a cycle's patch to the latest state of the object.
    ApplyPatchFns(ApplyPatchFnsTask),
    /// The cycle has ended: drop its patch and all other data kept for it.
    CycleClosed {
        /// The cycle.
        cycle: CycleId,
        /// Whether to carry the transformation functions over to the object's next cycle, as they could not be applied.
        keep_fns: bool,
    },
    /// The operator is stopping, or the lease is lost: cancel the running handlers of a cycle.
    CancelCycle(CancelCycleTask),
    /// The object is gone: drop its memo.
    ObjectDeleted(Arc<str>),
    /// Call a daemon or a timer.
    CallDaemon(CallDaemonTask),
    /// Get the initial delay of a daemon or a timer.
    GetInitialDelay(GetInitialDelayTask),
    /// Set the stop flags of daemons and timers, and give them a moment to exit.
    StopDaemons(StopDaemonsTask),
    /// The object has changed: replace its live body.
    ObjectUpdated {
        /// The daemons and timers that share the body.
        runs: Vec<RunId>,
        /// Its new state.
        object: Arc<Object>,
    },
    /// A daemon or a timer has ended: drop the data kept for it.
    DaemonEnded {
        /// The run of the daemon or timer.
        run: RunId,
        /// The reasons to set on its stop flag, which may still be referenced.
        reasons: StopReasons,
    },
    /// A one-shot command has written its record to a peering object, or removed it.
    PeeringWritten {
        /// The peering resource.
        resource: Arc<Resource>,
        /// The namespace of the object; none if it is cluster-scoped.
        namespace: Option<String>,
        /// The name of the object.
        name: String,
    },
    /// Get credentials from the login handlers.
    Login(LoginTask),
    /// Call the handlers of an admission review.
    AdmissionReview(Box<AdmissionReviewTask>),
    /// Call the selectors that are functions, to match resources.
    MatchResources(MatchResourcesTask),
    /// Call the probes.
    Probe(ProbeTask),
    /// Match the namespace patterns that only the host can evaluate.
    MatchNamespaces(MatchNamespacesTask),
    /// Call a reconciler.
    CallReconciler(Box<CallReconcilerTask>),
    /// Set the stop flag of a call of a reconciler.
    StopReconciler {
        /// The call.
        run: RunId,
        /// The reasons to set on the flag.
        reasons: StopReasons,
        /// Whether to cancel the call, and why.
        cancel: Option<Cancellation>,
    },
    /// The writes of a call of a reconciler have ended: drop the data kept for it.
    ReconcilerEnded(RunId),
    /// Call the functions of a reconciler's declaration for an object.
    InspectObject(Box<InspectObjectTask>),
    /// Call the functions that compute keys of caches.
    ComputeKeys(Box<ComputeKeysTask>),
}

/// One activation of a cycle. The activations of a cycle share the patch.
#[derive(Debug)]
pub struct ActivationTask {
    /// The cycle: the host keeps data between its activations under this key.
    pub cycle: CycleId,
    /// The key of the object's memo.
    pub uid: Arc<str>,
    /// The resource of the object.
    pub resource: Arc<Resource>,
    /// The type of the handled event.
    pub event: EventType,
    /// The object as received with that event.
    pub object: Arc<Object>,
    /// The commands to run.
    pub activation: Activation,
    /// The span of its traces, for those of its calls.
    pub span: Span,
    /// Receives the outcomes; none if the activation was lost.
    pub reply: Responder<Option<Completion>>,
}

/// A request to cancel the handlers of a cycle, which sends no completion then.
#[derive(Debug)]
pub struct CancelCycleTask {
    /// The cycle.
    pub cycle: CycleId,
    /// Notified when its handlers have ended, with the index of the one whose call was cancelled; none if no call was running.
    pub reply: Responder<Option<usize>>,
}

/// A request to call the transformation functions of a patch.
#[derive(Debug)]
pub struct ApplyPatchFnsTask {
    /// The cycle whose patch has the functions.
    pub cycle: CycleId,
    /// The latest known state of the object.
    pub object: Arc<Object>,
    /// Receives the object as changed by the functions, or the error that a function raised.
    pub reply: oneshot::Sender<Result<Value, String>>,
}

/// One daemon or timer of one object, from its start to its end. Unique in the process, also among cycles.
pub type RunId = CycleId;

/// One call of a daemon or a timer.
#[derive(Debug)]
pub struct CallDaemonTask {
    /// The run to which the call belongs.
    pub run: RunId,
    /// The key of the object.
    pub uid: Arc<str>,
    /// The resource of the object.
    pub resource: Arc<Resource>,
    /// The current object.
    pub object: Arc<Object>,
    /// The handler to call, and its limits.
    pub attempt: Attempt,
    /// The span of its traces, for that of the call.
    pub span: Span,
    /// Keep the transformation functions of the previous call, as they could not be applied.
    pub keep_fns: bool,
    /// Receives the result; none if the call is lost.
    pub reply: Responder<Option<CallDaemonReply>>,
}

/// The result of one call of a daemon or a timer.
#[derive(Debug, Default)]
pub struct CallDaemonReply {
    /// The outcome; none if the call was cancelled.
    pub outcome: Option<Outcome>,
    /// The merge patch for the object, results included.
    pub patch: Option<Map<String, Value>>,
    /// Whether there are transformation functions.
    pub fns: bool,
}

/// A request for the initial delay of a daemon or a timer.
#[derive(Debug)]
pub struct GetInitialDelayTask {
    /// The run of the daemon or timer.
    pub run: RunId,
    /// The handler's index in the registry.
    pub handler: usize,
    /// The key of the object.
    pub uid: Arc<str>,
    /// The resource of the object.
    pub resource: Arc<Resource>,
    /// The current object.
    pub object: Arc<Object>,
    /// Receives the delay in seconds; none if the function raised, which the host logs.
    pub reply: Responder<Option<f64>>,
}

/// A request to set stop flags.
#[derive(Debug)]
pub struct StopDaemonsTask {
    /// The runs and the reasons to set on their flags.
    pub signals: Vec<StopSignal>,
    /// Notified after the moment in which they can exit at once. Their results are reported before that.
    pub reply: Responder<()>,
}

/// One stop flag to set.
#[derive(Debug, Clone, Copy)]
pub struct StopSignal {
    /// The run of the daemon or timer.
    pub run: RunId,
    /// The reasons to set on the flag.
    pub reasons: StopReasons,
    /// Whether the run is also cancelled.
    pub cancel: bool,
}

/// A reply handle that always replies: with the default value if it is dropped.
pub struct Responder<T: Default>(Option<Box<dyn FnOnce(T) + Send>>);

impl<T: Default> Responder<T> {
    /// A handle that calls the function with the reply, from any thread.
    pub fn new(report: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Some(Box::new(report)))
    }

    /// Sends the reply.
    pub fn send(mut self, reply: T) {
        if let Some(report) = self.0.take() {
            report(reply);
        }
    }
}

impl<T: Send + 'static> Responder<Option<T>> {
    /// A handle that sends the reply through the channel. The channel is closed without a reply if that is lost.
    pub fn through(channel: oneshot::Sender<T>) -> Self {
        Self::new(move |reply| {
            // The receiver may not exist any more.
            let _ = reply.map(|reply| channel.send(reply));
        })
    }
}

impl<T: Default> Drop for Responder<T> {
    fn drop(&mut self) {
        if let Some(report) = self.0.take() {
            report(T::default());
        }
    }
}

impl<T: Default> fmt::Debug for Responder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Responder").field(&self.0.is_some()).finish()
    }
}

/// A request for credentials.
#[derive(Debug)]
pub struct LoginTask {
    /// Receives the credentials of all login handlers, or the error of the login.
    pub reply: oneshot::Sender<Result<Login, String>>,
    /// The credentials in use may be valid: they are only read again, as certificates are not accepted.
    pub is_renewal: bool,
}

/// A request to match resources by functions.
#[derive(Debug)]
pub struct MatchResourcesTask {
    /// The handlers (indices in the registry) whose selectors are functions.
    pub handlers: Vec<usize>,
    /// The resources to match.
    pub resources: Vec<Arc<Resource>>,
    /// Receives, for each handler and each resource, whether it matches; or the error that a function raised.
    pub reply: oneshot::Sender<Result<Vec<Vec<bool>>, String>>,
}

/// A request for the results of the probes.
#[derive(Debug)]
pub struct ProbeTask {
    /// Receives the results of all probes as JSON; none if a probe has failed, which the host logs.
    pub reply: oneshot::Sender<Option<String>>,
}

/// A request to match names of namespaces.
#[derive(Debug)]
pub struct MatchNamespacesTask {
    /// The names.
    pub names: Vec<String>,
    /// Receives, for each name, whether the operator serves it.
    pub reply: oneshot::Sender<Vec<bool>>,
}

/// A log record for the host.
#[derive(Debug)]
pub struct LogRecord {
    /// The severity.
    pub level: Level,
    /// The logger.
    pub logger: Logger,
    /// The message. It never contains secrets.
    pub text: String,
    /// The object to which the record belongs.
    pub object: Option<Arc<Object>>,
    /// Whether the record may be posted as a Kubernetes event of that object, if posting is enabled.
    pub posted: bool,
    /// The cycle whose last exception is logged with its traceback.
    pub exception_of: Option<CycleId>,
    /// The handling of the object that the record belongs to.
    pub handling: Option<Handling>,
}

impl LogRecord {
    /// A record without an object.
    pub fn general(level: Level, logger: Logger, text: impl Into<String>) -> Self {
        let (object, posted, exception_of, handling) = (None, false, None, None);
        Self { level, logger, text: text.into(), object, posted, exception_of, handling }
    }

    /// A record about an object, which is never posted as a Kubernetes event.
    pub fn local(level: Level, object: &Arc<Object>, text: impl Into<String>) -> Self {
        Self { object: Some(Arc::clone(object)), ..Self::general(level, Logger::Objects, text) }
    }

    /// A record about an object, which may be posted as a Kubernetes event.
    pub fn posted(level: Level, object: &Arc<Object>, text: impl Into<String>) -> Self {
        Self { posted: true, ..Self::local(level, object, text) }
    }

    /// The same record as a part of a handling, if there is one.
    #[must_use]
    pub fn of(self, handling: Option<Handling>) -> Self {
        Self { handling, ..self }
    }

    /// The same record with the traceback of the exception that ended the cycle's activation.
    #[must_use]
    pub fn with_exception_of(mut self, cycle: CycleId) -> Self {
        self.exception_of = Some(cycle);
        self
    }
}
