//! Streams of users' code: a task that reads from the server, and a queue from which the items are taken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kopf_core::user_request::Change;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::{Api, CallError};
use crate::supervision::guarded;

/// The maximum number of streams of one api.
const MAX_STREAMS: usize = 100;

/// The maximum number of items in the queue: then reading from the connection waits.
const MAX_QUEUED: usize = 256;

/// An item of a stream.
#[derive(Clone, Debug)]
pub enum StreamItem {
    /// A change of an object.
    Change(Change),
    /// A listing is complete: objects that were not delivered do not exist.
    Synced,
    /// A line of a log.
    Line(String),
    /// The end of the stream; the last item. Watches end by errors only.
    End(Result<(), CallError>),
}

/// A watch, or a log that is read. Dropping it closes the stream.
pub struct UserStream {
    queue: Arc<Queue>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Default)]
pub(super) struct Queue {
    items: Mutex<VecDeque<StreamItem>>,
    filled: Notify,
    taken: Notify,
}

/// Counts an open stream until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Api {
    /// Opens a stream, which the future fills until its end.
    pub(super) fn open_stream<F>(
        &self,
        runtime: &Handle,
        fill: impl FnOnce(Arc<Queue>) -> F,
    ) -> Result<UserStream, CallError>
    where
        F: Future<Output = Result<(), CallError>> + Send + 'static,
    {
        let counted = Counted(Arc::clone(&self.streams));
        if self.streams.fetch_add(1, Ordering::Relaxed) >= MAX_STREAMS {
            return Err(CallError::TooManyStreams(MAX_STREAMS));
        }
        let queue = Arc::<Queue>::default();
        let filling = guarded("The task of a watch or a log", fill(Arc::clone(&queue)));
        let (closing, filled) = (self.closing.clone(), Arc::clone(&queue));
        let task = runtime.spawn(async move {
            let _counted = counted;
            let end = tokio::select! {
                biased;
                end = filling => end.unwrap_or_else(|panicked| Err(CallError::Panicked(panicked))),
                () = closing.cancelled() => Err(CallError::Closed),
            };
            filled.put(StreamItem::End(end));
        });
        Ok(UserStream { queue, _task: AbortOnDropHandle::new(task) })
    }
}

impl Drop for UserStream {
    fn drop(&mut self) {
        // Others may still wait for items.
        self.queue.put(StreamItem::End(Err(CallError::Closed)));
    }
}

impl UserStream {
    /// Waits until there are items. Cancel safe.
    pub async fn ready(&self) {
        self.queue.until(&self.queue.filled, |items| !items.is_empty()).await;
    }

    /// The same as a future that does not borrow the stream.
    pub fn ready_owned(&self) -> impl Future<Output = ()> + Send + 'static {
        let queue = Arc::clone(&self.queue);
        async move { queue.until(&queue.filled, |items| !items.is_empty()).await }
    }

    /// Takes all items that are ready.
    pub fn take(&self) -> VecDeque<StreamItem> {
        let items = std::mem::take(&mut *self.queue.items());
        self.queue.taken.notify_waiters();
        items
    }
}

impl Queue {
    fn items(&self) -> MutexGuard<'_, VecDeque<StreamItem>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether reading is to wait.
    pub(super) fn is_full(&self) -> bool {
        self.items().len() >= MAX_QUEUED
    }

    /// Waits until the queue is not full any more.
    pub(super) async fn until_taken(&self) {
        self.until(&self.taken, |items| items.len() < MAX_QUEUED).await;
    }

    pub(super) fn put(&self, item: StreamItem) {
        self.items().push_back(item);
        self.filled.notify_waiters();
    }

    async fn until(&self, notify: &Notify, is_reached: impl Fn(&VecDeque<StreamItem>) -> bool) {
        loop {
            // Created first: later notifications are not lost.
            let notified = notify.notified();
            if is_reached(&self.items()) {
                return;
            }
            notified.await;
        }
    }
}
