//! The port to the language of the handlers: what the engine asks of the other side, and how it is answered.
//!
//! Whoever implements [`Invoker`] runs the user's code. The engine neither knows in which language that is, nor on which
//! threads: it hands over [`Job`]s, which may be collected in batches, and waits for their replies.
//! Nothing here may hold an object of the other side.

use std::fmt;
use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::daemon::Reasons;
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::outcome::{Attempt, Outcome};
use kopf_core::resource::Resource;
use kopf_core::script::{Reply, Script};
use kopf_core::value::{Map, Value};
use tokio::sync::{Notify, oneshot};

use crate::admission::ReviewJob;
use crate::credentials::Login;

/// The number of one processing cycle of one object, unique in the process.
pub type CycleId = u64;

/// The other side of the border. All methods return at once: they only put things into a queue.
pub trait Invoker: Send + Sync + 'static {
    /// Hands over a piece of work. Its reply comes through the channel inside of the job.
    fn submit(&self, job: Job);

    /// Hands over many pieces of work at once.
    fn submit_all(&self, jobs: Vec<Job>) {
        for job in jobs {
            self.submit(job);
        }
    }

    /// Hands over a log line, in order with the jobs.
    fn log(&self, entry: Entry);

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

/// A piece of work for the other side.
#[derive(Debug)]
pub enum Job {
    /// Run the handlers and filters of one object, in the given order.
    Script(ScriptJob),
    /// Apply the transformation functions of a cycle's patch to the freshest state of the object.
    Transform(TransformJob),
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
    Run(RunJob),
    /// Ask a daemon or a timer for its initial delay.
    Delay(DelayJob),
    /// Raise the flags of daemons and timers, and give them a moment.
    Signal(SignalJob),
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
        reasons: Reasons,
    },
    /// Get credentials from the login handlers.
    Login(LoginJob),
    /// Call the handlers of an admission review.
    Review(Box<ReviewJob>),
    /// Ask the selectors that are functions which of the resources they want.
    Select(SelectJob),
    /// Ask the probes how the operator is.
    Probe(ProbeJob),
    /// Ask the patterns of namespaces that only the other side understands.
    Locate(LocateJob),
}

/// One script of one cycle. A cycle may need several, one after another, which share the patch.
#[derive(Debug)]
pub struct ScriptJob {
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
    pub script: Script,
    /// Where the outcomes go; none if they are lost.
    pub reply: Reporter<Option<Reply>>,
}

/// A request to apply the functions of a patch.
#[derive(Debug)]
pub struct TransformJob {
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
pub struct RunJob {
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
    pub reply: Reporter<RunReply>,
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
pub struct DelayJob {
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
    pub reply: Reporter<Option<f64>>,
}

/// A request to raise flags.
#[derive(Debug)]
pub struct SignalJob {
    /// Whose flags, and what is to be seen on them.
    pub signals: Vec<Signal>,
    /// Told when they have had their moment to end at once. What ended is told before.
    pub reply: Reporter<()>,
}

/// One flag to raise.
#[derive(Debug, Clone, Copy)]
pub struct Signal {
    /// Whose flag.
    pub run: RunId,
    /// What is to be seen on it.
    pub reasons: Reasons,
    /// It is also to be cancelled.
    pub cancel: bool,
}

/// A way for a reply which is always answered: if it is lost, with the default.
pub struct Reporter<T: Default>(Option<Box<dyn FnOnce(T) + Send>>);

impl<T: Default> Reporter<T> {
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

impl<T: Send + 'static> Reporter<Option<T>> {
    /// The reply goes through the channel, which is closed without one if it is lost.
    pub fn through(channel: oneshot::Sender<T>) -> Self {
        Self::new(move |reply| {
            // Nobody may wait any longer.
            let _ = reply.map(|reply| channel.send(reply));
        })
    }
}

impl<T: Default> Drop for Reporter<T> {
    fn drop(&mut self) {
        if let Some(report) = self.0.take() {
            report(T::default());
        }
    }
}

impl<T: Default> fmt::Debug for Reporter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reporter").field(&self.0.is_some()).finish()
    }
}

/// A request for credentials.
#[derive(Debug)]
pub struct LoginJob {
    /// The credentials of all login handlers, or why there are none.
    pub reply: oneshot::Sender<Result<Login, String>>,
}

/// A request to evaluate the selectors that are functions.
#[derive(Debug)]
pub struct SelectJob {
    /// The handlers (indices in the registry) with such selectors.
    pub handlers: Vec<usize>,
    /// The resources to choose from.
    pub resources: Vec<Arc<Resource>>,
    /// For each handler, for each resource, whether it is wanted; or what the function raised.
    pub reply: oneshot::Sender<Result<Vec<Vec<bool>>, String>>,
}

/// A request for the operator's health.
#[derive(Debug)]
pub struct ProbeJob {
    /// The results of all probes, as JSON; none if a probe has failed, which was logged then.
    pub reply: oneshot::Sender<Option<String>>,
}

/// A request to match names of namespaces.
#[derive(Debug)]
pub struct LocateJob {
    /// The names.
    pub names: Vec<String>,
    /// For each of them, whether it is to be served.
    pub reply: oneshot::Sender<Vec<bool>>,
}

/// A line for the log of the other side.
#[derive(Debug)]
pub struct Entry {
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

impl Entry {
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
