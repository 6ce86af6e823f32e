//! Posting of Kubernetes events: in order for each object, concurrently for different objects, without delaying handlers.
//!
//! Posting only puts the event into the queue of its object. A task per object drains the queue and ends when it is empty.
//! Events that cannot be posted are logged and dropped after their retries; events that are not posted when the operator exits
//! are lost. When the queues are full, further events are dropped, and their number is logged. The documents are the core's
//! (`kopf_core::k8s_event`).

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
use crate::error::RequestError;
use crate::host::{LogRecord, Logger};
use crate::supervision::guarded;
use crate::task_context::TaskContext;
use crate::time::duration::seconds;

const LOGGER: Logger = Logger::Posting;
/// Seconds at the exit for posting the events of the last handlers.
const GRACE: f64 = 1.0;

/// Maximum number of queued events; further ones are dropped.
const MOST_WAITING: usize = 10_000;

/// The sender of Kubernetes events. It exists before the operator starts and after it ends.
#[derive(Debug, Clone)]
pub struct EventSender {
    sender: UnboundedSender<Vec<K8sEvent>>,
    load: Arc<Load>,
}

/// The receiving side of [`EventSender`].
#[derive(Debug)]
pub struct EventReceiver {
    receiver: UnboundedReceiver<Vec<K8sEvent>>,
    load: Arc<Load>,
}

/// Number of queued events, which bounds all queues together, and number of events dropped since the last log line.
#[derive(Debug, Default)]
struct Load {
    waiting: Arc<AtomicUsize>,
    dropped: AtomicUsize,
}

/// A channel for Kubernetes events.
pub fn event_channel() -> (EventSender, EventReceiver) {
    let (sender, receiver) = unbounded_channel();
    let load = Arc::<Load>::default();
    (EventSender { sender, load: Arc::clone(&load) }, EventReceiver { receiver, load })
}

impl EventSender {
    /// Queues events in their order, without waiting. They are lost if the operator has ended or the queues are full.
    pub fn post(&self, mut posts: Vec<K8sEvent>) {
        let count = posts.len();
        if self.load.waiting.load(Ordering::Relaxed) + count > MOST_WAITING {
            self.load.dropped.fetch_add(count, Ordering::Relaxed);
            return;
        }
        self.load.waiting.fetch_add(count, Ordering::Relaxed);
        posts.iter_mut().for_each(K8sEvent::truncate_message);
        let _ended = self.sender.send(posts);
    }
}

/// The task that creates the Kubernetes events.
#[derive(Clone)]
pub struct EventRecorder {
    shared: Arc<TaskContext>,
    resource: Arc<Resource>,
    queues: Arc<Mutex<HashMap<String, VecDeque<K8sEvent>>>>,
    load: Arc<Load>,
    limit: Option<Arc<Semaphore>>,
    running: TaskTracker,
    giving_up: CancellationToken,
}

impl EventRecorder {
    /// A poster; `resource` is the resource of Kubernetes events.
    pub fn new(shared: Arc<TaskContext>, resource: Arc<Resource>) -> Self {
        let limit = shared.startup_config.settings.posting.worker_limit;
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

    /// Posts until `ending` is cancelled, then posts the queued events within the grace period.
    pub async fn run(mut self, event_receiver: EventReceiver, ending: CancellationToken) {
        let EventReceiver { mut receiver, load } = event_receiver;
        self.load = load;
        let _first = self.shared.metrics.events.waiting.set(Arc::clone(&self.load.waiting));
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
        self.running.wait().await;
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
                // The next event about the object starts a new queue.
                let lost = poster.queues().remove(&key).map_or(0, |queue| queue.len());
                poster.load.waiting.fetch_sub(lost + 1, Ordering::Relaxed);
                let text = format!("{panicked}. Ignoring and continuing.");
                poster.shared.host.log(LogRecord::general(Level::Error, LOGGER, text));
            }
        });
    }

    /// Called when an event leaves its queue.
    fn done(&self) {
        // In tests, events may bypass the channel.
        let less = |waiting: usize| Some(waiting.saturating_sub(1));
        let _ = self.load.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let dropped = self.load.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            self.shared.metrics.events.dropped.add(dropped);
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
            let posted = self.post(&post).await;
            let events = &self.shared.metrics.events;
            if posted.is_ok() { &events.posted } else { &events.failed }.increment();
            if let Err(error) = posted {
                let text = post.failure(&why(&error));
                self.shared.host.log(LogRecord::general(Level::Warning, LOGGER, text));
            }
            self.done();
        }
    }

    /// The next event of the object's queue; an empty queue is removed.
    fn next(&self, key: &str) -> Option<K8sEvent> {
        let mut queues = self.queues();
        let post = queues.get_mut(key).and_then(VecDeque::pop_front);
        if post.is_none() {
            queues.remove(key);
        }
        post
    }

    async fn post(&self, post: &K8sEvent) -> Result<(), RequestError> {
        let default = self.shared.client.default_namespace().await?;
        let namespace = post.namespace(default.as_deref());
        let document = post.document(namespace, &self.shared.live_config.get().settings.posting).to_string();
        let url = self.resource.url(Some(namespace), None, None);
        let payload = RequestBody::Json(document.as_bytes());
        let backoffs = post.backoffs.clone().into();
        self.shared.client.request_with(&Method::POST, &url, payload, &backoffs).await?;
        Ok(())
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<String, VecDeque<K8sEvent>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The messages of an error and its sources, as sentences.
fn why(error: &RequestError) -> String {
    match error {
        RequestError::Api(rejection) => {
            let details = rejection.payload.as_ref().and_then(|payload| payload.get("details"));
            let details = details.map_or_else(|| "None".to_owned(), kopf_core::json::value::python_repr);
            format!("Code: {}. Message: {}. Details: {details}.", rejection.status, rejection.message)
        }
        other => format!("Message: {other}."),
    }
}

#[cfg(test)]
mod tests;
