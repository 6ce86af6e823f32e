//! The port to the language of the handlers: what the engine asks of the other side, and how it is answered.
//!
//! Whoever implements [`Host`] runs the user's code. The engine neither knows in which language that is, nor on which
//! threads: it hands over [`HostTask`]s, which may be collected in batches, and waits for their replies.
//! Nothing here may hold an object of the other side.

pub mod admission;
pub mod credentials;

use std::fmt;
use std::sync::Arc;

use kopf_core::activation::{Activation, Completion};
use kopf_core::cause::EventType;
use kopf_core::daemon::StopReasons;
use kopf_core::handling::attempt::{Attempt, Outcome};
use kopf_core::json::value::{Map, Value};
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use tokio::sync::{Notify, oneshot};

use crate::host::admission::ReviewTask;
use crate::host::credentials::Login;

/// The number of one processing cycle of one object, unique in the process.
pub type CycleId = u64;

/// The port to the host of the handlers. All methods return at once: they only put items into a queue.
pub trait Host: Send + Sync + 'static {
    /// Hands over a piece of work. Its reply comes through the channel inside of the job.
    fn submit(&self, job: HostTask);

    /// Hands over many pieces of work at once.
    fn submit_all(&self, jobs: Vec<HostTask>) {
        for job in jobs {
            self.submit(job);
        }
    }

    /// Hands over a log line, in order with the jobs.
    fn log(&self, entry: LogRecord);

    /// How much was handed over and is not taken yet.
    fn backlog(&self) -> usize {
        0
    }

    /// Notified whenever something of that was taken.
    fn taken(&self) -> Option<&Notify> {
        None
    }

    /// Whether log lines of this level are wanted, so that nothing is formatted in vain.
    fn enabled(&self, level: Level) -> bool;
}

/// A task for the host.
#[derive(Debug)]
pub enum HostTask {
    /// Run the handlers and filters of one object, in the given order.
    Activation(ActivationTask),
    /// Apply the transformation functions of a cycle's patch to the freshest state of the object.
    Transform(TransformTask),
    /// The cycle is over: forget its patch and whatever else was kept for it.
    Close {
        /// Which one.
        cycle: CycleId,
        /// The transformation functions could not be applied: put them into the patch of the object's next cycle.
        carry: bool,
    },
    /// The operator stops and does not wait for this cycle any longer: cancel what runs of it.
    Cancel(CycleId),
    /// The object is gone: forget its memo.
    Forget(Arc<str>),
    /// Call a daemon or a timer.
    Run(RunTask),
    /// Ask a daemon or a timer for its initial delay.
    Delay(DelayTask),
    /// Raise the flags of daemons and timers, and give them a moment.
    Signal(SignalTask),
    /// The object has changed: its live body is to be replaced.
    Refresh {
        /// The daemons and timers that share the body.
        runs: Vec<RunId>,
        /// Its new state.
        object: Arc<Object>,
    },
    /// A daemon or a timer has ended: forget what is kept of it.
    Dismiss {
        /// Which one.
        run: RunId,
        /// What is to be seen on its flag, if somebody still looks at it.
        reasons: StopReasons,
    },
    /// Get credentials from the login handlers.
    Login(LoginTask),
    /// Call the handlers of an admission review.
    Review(Box<ReviewTask>),
    /// Ask the selectors that are functions which of the resources they want.
    Select(MatchResourcesTask),
    /// Ask the probes how the operator is.
    Probe(ProbeTask),
    /// Ask the patterns of namespaces that only the other side understands.
    Locate(MatchNamespacesTask),
}

/// One activation of a cycle. The activations of a cycle share the patch.
#[derive(Debug)]
pub struct ActivationTask {
    /// The cycle, the key to what the other side keeps between the scripts of it.
    pub cycle: CycleId,
    /// The key of the object's memo.
    pub uid: Arc<str>,
    /// What kind of object it is.
    pub resource: Arc<Resource>,
    /// The type of the event that is handled.
    pub event: EventType,
    /// The object as it came with that event.
    pub object: Arc<Object>,
    /// What to do.
    pub activation: Activation,
    /// Where the outcomes go; none if they are lost.
    pub reply: Responder<Option<Completion>>,
}

/// A request to apply the functions of a patch.
#[derive(Debug)]
pub struct TransformTask {
    /// The cycle whose patch has the functions.
    pub cycle: CycleId,
    /// The object as it is known to be now.
    pub object: Arc<Object>,
    /// The object as it should be, or what the functions raised.
    pub reply: oneshot::Sender<Result<Value, String>>,
}

/// One daemon or timer of one object, from its start to its end; unique in the process, also among cycles.
pub type RunId = CycleId;

/// One call of a daemon or a timer.
#[derive(Debug)]
pub struct RunTask {
    /// Whose call it is.
    pub run: RunId,
    /// The key of the object.
    pub uid: Arc<str>,
    /// What kind of object it is.
    pub resource: Arc<Resource>,
    /// The object as it is now.
    pub object: Arc<Object>,
    /// What to call, and its limits.
    pub attempt: Attempt,
    /// Keep the transformation functions of the previous call: they could not be applied.
    pub carry: bool,
    /// Where the outcome goes.
    pub reply: Responder<RunReply>,
}

/// What came of one call of a daemon or a timer.
#[derive(Debug, Default)]
pub struct RunReply {
    /// The outcome; none if the call was cancelled or lost.
    pub outcome: Option<Outcome>,
    /// What is to be merged into the object, results included.
    pub patch: Option<Map<String, Value>>,
    /// Whether there are transformation functions.
    pub fns: bool,
}

/// A request for the initial delay of a daemon or a timer.
#[derive(Debug)]
pub struct DelayTask {
    /// Who is asked.
    pub run: RunId,
    /// Which handler it is.
    pub handler: usize,
    /// The key of the object.
    pub uid: Arc<str>,
    /// What kind of object it is.
    pub resource: Arc<Resource>,
    /// The object as it is now.
    pub object: Arc<Object>,
    /// The seconds; none if the function raised, which is logged on the other side.
    pub reply: Responder<Option<f64>>,
}

/// A request to raise flags.
#[derive(Debug)]
pub struct SignalTask {
    /// Whose flags, and what is to be seen on them.
    pub signals: Vec<Signal>,
    /// Told when they have had their moment to end at once. What ended is told before.
    pub reply: Responder<()>,
}

/// One flag to raise.
#[derive(Debug, Clone, Copy)]
pub struct Signal {
    /// Whose flag.
    pub run: RunId,
    /// What is to be seen on it.
    pub reasons: StopReasons,
    /// It is also to be cancelled.
    pub cancel: bool,
}

/// A reply handle that always replies: with the default if it is dropped.
pub struct Responder<T: Default>(Option<Box<dyn FnOnce(T) + Send>>);

impl<T: Default> Responder<T> {
    /// The reply goes into this function, from any thread.
    pub fn new(report: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Some(Box::new(report)))
    }

    /// Answers.
    pub fn send(mut self, reply: T) {
        if let Some(report) = self.0.take() {
            report(reply);
        }
    }
}

impl<T: Send + 'static> Responder<Option<T>> {
    /// The reply goes through the channel, which is closed without one if it is lost.
    pub fn through(channel: oneshot::Sender<T>) -> Self {
        Self::new(move |reply| {
            // Nobody may wait any longer.
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
        f.debug_tuple("Reporter").field(&self.0.is_some()).finish()
    }
}

/// A request for credentials.
#[derive(Debug)]
pub struct LoginTask {
    /// The credentials of all login handlers, or why there are none.
    pub reply: oneshot::Sender<Result<Login, String>>,
}

/// A request to match resources by functions.
#[derive(Debug)]
pub struct MatchResourcesTask {
    /// The handlers (indices in the registry) with such selectors.
    pub handlers: Vec<usize>,
    /// The resources to choose from.
    pub resources: Vec<Arc<Resource>>,
    /// For each handler, for each resource, whether it is wanted; or what the function raised.
    pub reply: oneshot::Sender<Result<Vec<Vec<bool>>, String>>,
}

/// A request for the operator's health.
#[derive(Debug)]
pub struct ProbeTask {
    /// The results of all probes, as JSON; none if a probe has failed, which was logged then.
    pub reply: oneshot::Sender<Option<String>>,
}

/// A request to match names of namespaces.
#[derive(Debug)]
pub struct MatchNamespacesTask {
    /// The names.
    pub names: Vec<String>,
    /// For each of them, whether it is to be served.
    pub reply: oneshot::Sender<Vec<bool>>,
}

/// A log record for the host.
#[derive(Debug)]
pub struct LogRecord {
    /// How severe it is.
    pub level: Level,
    /// The logger's name.
    pub logger: &'static str,
    /// The text. Secrets never get in here.
    pub text: String,
    /// The object that it is about.
    pub object: Option<Arc<Object>>,
    /// Whether it may become a Kubernetes event of that object, if such posting is on.
    pub posted: bool,
    /// The cycle whose last exception is to be logged along, with its traceback.
    pub exception_of: Option<CycleId>,
}

/// The logger of everything that is about one object.
pub const OBJECTS: &str = "kopf.objects";

impl LogRecord {
    /// A line which is about no object in particular.
    pub fn general(level: Level, logger: &'static str, text: impl Into<String>) -> Self {
        Self { level, logger, text: text.into(), object: None, posted: false, exception_of: None }
    }

    /// A line about an object, which never becomes a Kubernetes event.
    pub fn local(level: Level, object: &Arc<Object>, text: impl Into<String>) -> Self {
        Self { object: Some(Arc::clone(object)), ..Self::general(level, OBJECTS, text) }
    }

    /// A line about an object, which may become a Kubernetes event.
    pub fn posted(level: Level, object: &Arc<Object>, text: impl Into<String>) -> Self {
        Self { posted: true, ..Self::local(level, object, text) }
    }

    /// The same with the traceback of the exception that ended the cycle's script.
    #[must_use]
    pub fn with_exception_of(mut self, cycle: CycleId) -> Self {
        self.exception_of = Some(cycle);
        self
    }
}
