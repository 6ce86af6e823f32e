//! Posting of Kubernetes events: in order for each object, at the same time for different ones, never in anybody's way.
//!
//! Whoever posts only puts the event into a queue. A lane of an object is a task as long as there is something in it. What
//! cannot be posted is logged and given up; what is not posted when the operator exits is lost. If too much waits,
//! because the server is too slow for it, further events are dropped, and their number is logged.
//! The documents are the core's (`kopf_core::k8s_event`). Rules: contract/engine 13.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Method;
use kopf_core::k8s_event::K8sEvent;
use kopf_core::log_level::Level;
use kopf_core::resource::Resource;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::RequestBody;
use crate::context::OperatorContext;
use crate::error::RequestError;
use crate::host::LogRecord;
use crate::supervision::guarded;
use crate::time::duration::seconds;

const LOGGER: &str = "kopf._core.engines.posting";
/// Seconds at the exit for what the last handlers have posted.
const GRACE: f64 = 1.0;

/// How many events wait to be posted at most; further ones are dropped.
const MOST_WAITING: usize = 10_000;

/// The sender of Kubernetes events. It exists before the operator starts and after it ends.
#[derive(Debug, Clone)]
pub struct EventSender {
    sender: UnboundedSender<Vec<K8sEvent>>,
    load: Arc<Load>,
}

/// What comes out of the mailbox.
#[derive(Debug)]
pub struct Mail {
    receiver: UnboundedReceiver<Vec<K8sEvent>>,
    load: Arc<Load>,
}

/// How many events wait, which bounds all queues together; and how many were dropped since that was logged.
#[derive(Debug, Default)]
struct Load {
    waiting: AtomicUsize,
    dropped: AtomicUsize,
}

/// A mailbox and its other end.
pub fn mailbox() -> (EventSender, Mail) {
    let (sender, receiver) = unbounded_channel();
    let load = Arc::<Load>::default();
    (EventSender { sender, load: Arc::clone(&load) }, Mail { receiver, load })
}

impl EventSender {
    /// Puts events in, in their order, without waiting; if the operator has ended, or too many wait already, they are lost.
    pub fn post(&self, posts: Vec<K8sEvent>) {
        let count = posts.len();
        if self.load.waiting.load(Ordering::Relaxed) + count > MOST_WAITING {
            self.load.dropped.fetch_add(count, Ordering::Relaxed);
            return;
        }
        self.load.waiting.fetch_add(count, Ordering::Relaxed);
        let _ended = self.sender.send(posts);
    }
}

/// The task that creates the Kubernetes events.
#[derive(Clone)]
pub struct EventRecorder {
    shared: Arc<OperatorContext>,
    resource: Arc<Resource>,
    queues: Arc<Mutex<HashMap<String, VecDeque<K8sEvent>>>>,
    load: Arc<Load>,
    limit: Option<Arc<Semaphore>>,
    running: TaskTracker,
    giving_up: CancellationToken,
}

impl EventRecorder {
    /// A poster to the given resource, which is that of events.
    pub fn new(shared: Arc<OperatorContext>, resource: Arc<Resource>) -> Self {
        let limit = shared.rules.settings.posting.worker_limit;
        Self {
            shared,
            resource,
            queues: Arc::default(),
            load: Arc::default(),
            limit: limit.map(|limit| Arc::new(Semaphore::new(limit.max(1)))),
            running: TaskTracker::new(),
            giving_up: CancellationToken::new(),
        }
    }

    /// Takes what comes until the given moment, then finishes what can be finished soon.
    pub async fn run(mut self, mail: Mail, ending: CancellationToken) {
        let Mail { mut receiver, load } = mail;
        self.load = load;
        loop {
            let posts = tokio::select! {
                posts = receiver.recv() => posts,
                () = ending.cancelled() => None,
            };
            let Some(posts) = posts else { break };
            self.sort_all(posts);
        }
        while let Ok(posts) = receiver.try_recv() {
            self.sort_all(posts);
        }
        self.running.close();
        let _late = timeout(seconds(GRACE), self.running.wait()).await;
        self.giving_up.cancel();
    }

    fn sort_all(&self, posts: Vec<K8sEvent>) {
        for post in posts {
            self.sort(post);
        }
    }

    fn sort(&self, post: K8sEvent) {
        if !post.is_postable() {
            self.done();
            return;
        }
        let key = post.key();
        let mut queues = self.queues();
        if let Some(queue) = queues.get_mut(&key) {
            queue.push_back(post);
            return;
        }
        queues.insert(key.clone(), VecDeque::from([post]));
        drop(queues);
        let poster = self.clone();
        self.running.spawn(async move {
            let draining = guarded("The posting of Kubernetes events about an object", poster.drain(&key));
            let drained = tokio::select! {
                drained = draining => drained,
                () = poster.giving_up.cancelled() => Ok(()),
            };
            if let Err(panicked) = drained {
                // The next event about the object has a lane of its own again.
                let lost = poster.queues().remove(&key).map_or(0, |queue| queue.len());
                poster.load.waiting.fetch_sub(lost + 1, Ordering::Relaxed);
                let text = format!("{panicked}. Ignoring and continuing.");
                poster.shared.host.log(LogRecord::general(Level::Error, LOGGER, text));
            }
        });
    }

    /// An event does not wait any more.
    fn done(&self) {
        // Events may come past the mailbox in tests.
        let less = |waiting: usize| Some(waiting.saturating_sub(1));
        let _ = self.load.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let dropped = self.load.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let text = format!(
                "{dropped} Kubernetes events were dropped: {MOST_WAITING} wait to be posted already. Post less (see \
                 settings.posting.level), or let the server take more."
            );
            self.shared.host.log(LogRecord::general(Level::Warning, LOGGER, text));
        }
    }

    async fn drain(&self, key: &str) {
        let _permit = match &self.limit {
            Some(limit) => limit.acquire().await.ok(),
            None => None,
        };
        while let Some(post) = self.next(key) {
            if let Err(error) = self.post(&post).await {
                let text = post.failure(&why(&error));
                self.shared.host.log(LogRecord::general(Level::Warning, LOGGER, text));
            }
            self.done();
        }
    }

    /// The next event of the lane; without any, there is no such lane any longer.
    fn next(&self, key: &str) -> Option<K8sEvent> {
        let mut queues = self.queues();
        let post = queues.get_mut(key).and_then(VecDeque::pop_front);
        if post.is_none() {
            queues.remove(key);
        }
        post
    }

    async fn post(&self, post: &K8sEvent) -> Result<(), RequestError> {
        let default = self.shared.api.default_namespace().await?;
        let namespace = post.namespace(default.as_deref());
        let document = post.document(namespace, &self.shared.current.get().settings.posting).to_string();
        let url = self.resource.url(Some(namespace), None, None);
        let payload = RequestBody::Json(document.as_bytes());
        let backoffs = post.backoffs.clone().into();
        self.shared.api.request_with(&Method::POST, &url, payload, &backoffs).await?;
        Ok(())
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<String, VecDeque<K8sEvent>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reasons of a failure, as sentences.
fn why(error: &RequestError) -> String {
    match error {
        RequestError::Api(refusal) => {
            let details = refusal.payload.as_ref().and_then(|payload| payload.get("details"));
            let details = details.map_or_else(|| "None".to_owned(), kopf_core::json::value::python_repr);
            format!("Code: {}. Message: {}. Details: {details}.", refusal.status, refusal.message)
        }
        other => format!("Message: {other}."),
    }
}

#[cfg(test)]
mod tests;
