//! The queue between the engine's threads and Python's event loop: filled by the engine, emptied by Python in batches.
//!
//! The queue is bounded: by the limits of the engine for tasks (pending events of an object wait in its slot, and each daemon
//! or timer has one task at a time), and by a number for log records.
//!
//! A file descriptor becomes readable when the queue becomes non-empty, once per batch. Nothing here attaches to the
//! interpreter or holds Python objects, so the engine's threads never wait for Python.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kopf_core::health::trackers::QueuePosition;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_engine::error::Failure;
use kopf_engine::host::{Host, HostTask, LogRecord, Logger};
use tokio::sync::Notify;

/// Maximum number of items per batch. It is large enough to share the cost of a wake-up. It is small enough that not all
/// objects of a cluster exist in Python at the same time, where the garbage collector would traverse them repeatedly, and that
/// other tasks of the event loop do not wait for long.
const BATCH: usize = 128;

/// Up to so many items without a waiting sender are left in the queue until other items wake Python up.
const MAX_DEFERRED: usize = 32;

/// Maximum number of log records in the queue, for a Python that does not take them for a while. Further ones are dropped, and
/// their number is logged.
const MAX_LOG_RECORDS: usize = 10_000;

/// An item for Python; items are in the order in which the engine submitted them.
#[derive(Debug)]
pub(crate) enum HostItem {
    /// A task of the engine.
    Task(HostTask),
    /// A log record.
    Log(LogRecord),
    /// The engine has ended; with a failure, unless it was stopped. It is the last item.
    EngineStopped(Option<Failure>),
}

impl HostItem {
    /// The object of the item, if it has one.
    pub(crate) fn object(&self) -> Option<Arc<Object>> {
        let Self::Task(task) = self else { return None };
        match task {
            HostTask::Activation(task) => Some(Arc::clone(&task.object)),
            HostTask::CallDaemon(task) => Some(Arc::clone(&task.object)),
            HostTask::GetInitialDelay(task) => Some(Arc::clone(&task.object)),
            HostTask::ApplyPatchFns(task) => Some(Arc::clone(&task.object)),
            HostTask::ObjectUpdated { object, .. } => Some(Arc::clone(object)),
            HostTask::CallReconciler(task) => Some(Arc::clone(&task.object)),
            HostTask::InspectObject(task) => Some(Arc::clone(&task.object)),
            HostTask::ComputeKeys(task) => Some(Arc::clone(&task.object)),
            _ => None,
        }
    }
}

/// The engine's host, as a queue for Python.
pub(crate) struct HostQueue {
    queue: Mutex<Queue>,
    wake_fd: WakeFd,
    /// Notified when items were taken.
    taken: Notify,
    threshold: AtomicU8,
    /// Deferrable items wake Python up too.
    wakes_for_everything: AtomicBool,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<HostItem>,
    log_records: usize,
    /// Number of log records dropped since the last batch.
    dropped: usize,
    /// The descriptor is readable.
    is_signalled: bool,
    /// Number of items taken so far.
    taken: u64,
}

impl Queue {
    /// Adds an item; true if the descriptor is to be made readable.
    fn put(&mut self, item: HostItem, wakes_for_everything: bool) -> bool {
        if matches!(item, HostItem::Log(_)) {
            if self.log_records >= MAX_LOG_RECORDS {
                self.dropped += 1;
                return false;
            }
            self.log_records += 1;
        }
        let is_deferrable = !wakes_for_everything
            && matches!(item, HostItem::Task(HostTask::CycleClosed { keep_fns: false, .. }));
        self.items.push_back(item);
        let wakes = !(self.is_signalled || (is_deferrable && self.items.len() < MAX_DEFERRED));
        self.is_signalled |= wakes;
        wakes
    }

    /// Takes the oldest items, at most a batch. Dropped log records are replaced with a warning.
    fn take(&mut self) -> VecDeque<HostItem> {
        let mut batch = if self.items.len() > BATCH {
            self.items.drain(..BATCH).collect()
        } else {
            std::mem::take(&mut self.items)
        };
        self.taken += batch.len() as u64;
        self.log_records -= batch.iter().filter(|item| matches!(item, HostItem::Log(_))).count();
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let text =
                format!("{dropped} log lines were dropped: the event loop does not take them in time.");
            batch.push_front(HostItem::Log(LogRecord::general(Level::Warning, Logger::Running, text)));
        }
        batch
    }
}

impl HostQueue {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            queue: Mutex::default(),
            wake_fd: WakeFd::new()?,
            taken: Notify::new(),
            threshold: AtomicU8::new(0),
            wakes_for_everything: AtomicBool::new(false),
        })
    }

    /// The descriptor that is readable while there are items.
    pub(crate) fn fileno(&self) -> RawFd {
        self.wake_fd.fileno()
    }

    /// Takes the oldest items, at most a batch. The descriptor is cleared first: later items make it readable again, and so do
    /// remaining ones.
    pub(crate) fn take(&self) -> VecDeque<HostItem> {
        self.wake_fd.clear();
        let mut queue = self.lock();
        queue.is_signalled = queue.items.len() > BATCH;
        let is_all = !queue.is_signalled;
        let batch = queue.take();
        drop(queue);
        if !is_all {
            self.wake_fd.notify();
        }
        self.taken.notify_waiters();
        batch
    }

    /// Number of items in the queue.
    pub(crate) fn pending(&self) -> usize {
        self.lock().items.len()
    }

    /// From now on, no items are deferred: for tests that wait until all work is done.
    pub(crate) fn wake_for_everything(&self) {
        self.wakes_for_everything.store(true, Ordering::Relaxed);
    }

    /// Drops log records below this level of Python's `logging`.
    pub(crate) fn set_threshold(&self, level: u8) {
        self.threshold.store(level, Ordering::Relaxed);
    }

    /// Adds a debug line of the engine's traces, regardless of the threshold.
    pub(crate) fn trace(&self, text: String) {
        self.put(HostItem::Log(LogRecord::general(Level::Debug, Logger::Traces, text)));
    }

    fn put(&self, item: HostItem) {
        let wakes_for_everything = self.wakes_for_everything.load(Ordering::Relaxed);
        let wakes = self.lock().put(item, wakes_for_everything);
        if wakes {
            self.wake_fd.notify();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host for HostQueue {
    fn submit(&self, task: HostTask) {
        #[cfg(feature = "testing")]
        crate::panics::on_submit(&task);
        self.put(HostItem::Task(task));
    }

    fn submit_all(&self, tasks: Vec<HostTask>) {
        #[cfg(feature = "testing")]
        tasks.iter().for_each(crate::panics::on_submit);
        let wakes_for_everything = self.wakes_for_everything.load(Ordering::Relaxed);
        let wakes = {
            let mut queue = self.lock();
            let mut wakes = false;
            for task in tasks {
                wakes |= queue.put(HostItem::Task(task), wakes_for_everything);
            }
            wakes
        };
        if wakes {
            self.wake_fd.notify();
        }
    }

    fn log(&self, entry: LogRecord) {
        if self.enabled(entry.level) {
            self.put(HostItem::Log(entry));
        }
    }

    fn backlog(&self) -> usize {
        #[cfg(feature = "testing")]
        crate::panics::on_watch_event();
        self.pending()
    }

    fn queue_position(&self) -> QueuePosition {
        let queue = self.lock();
        // Without a signal, Python does not know of the deferred items in the queue.
        let waiting = if queue.is_signalled { queue.items.len() as u64 } else { 0 };
        QueuePosition { taken: queue.taken, submitted: queue.taken + waiting }
    }

    fn taken(&self) -> Option<&Notify> {
        Some(&self.taken)
    }

    fn enabled(&self, level: Level) -> bool {
        crate::logging::number(level) >= self.threshold.load(Ordering::Relaxed)
    }

    /// Adds the last item.
    fn engine_stopped(&self, failure: Option<Failure>) {
        self.put(HostItem::EngineStopped(failure));
    }
}

/// A descriptor that is readable after `notify()` and until `clear()`.
pub(crate) struct WakeFd {
    read_end: File,
    write_end: Option<File>,
}

impl WakeFd {
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let read_end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { read_end: File::from(read_end), write_end: None })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> io::Result<Self> {
        use std::os::fd::OwnedFd;
        let (read_end, write_end) = std::os::unix::net::UnixStream::pair()?;
        read_end.set_nonblocking(true)?;
        write_end.set_nonblocking(true)?;
        Ok(Self {
            read_end: File::from(OwnedFd::from(read_end)),
            write_end: Some(File::from(OwnedFd::from(write_end))),
        })
    }

    pub(crate) fn fileno(&self) -> RawFd {
        self.read_end.as_raw_fd()
    }

    pub(crate) fn notify(&self) {
        // It fails only if it would block, and then the descriptor is readable already.
        let mut end = self.write_end.as_ref().unwrap_or(&self.read_end);
        let _written = end.write(&1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // It fails only if it would block, and then the descriptor is cleared already.
        let mut buffer = [0_u8; 64];
        let _cleared = (&self.read_end).read(&mut buffer);
    }
}
