//! The queue between the engine's threads and Python's loop: put by the engine, emptied by Python in batches.
//!
//! A file descriptor becomes readable when the queue turns non-empty, once per batch. Nothing here attaches to
//! the interpreter or holds Python's objects, so that the engine's threads never wait for Python.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kopf_core::log_level::Level;
use kopf_engine::error::Failure;
use kopf_engine::host::{Host, HostTask, LogRecord};
use tokio::sync::Notify;

/// How much crosses at once. Enough to share the price of a crossing; not so much that the objects of a whole cluster are
/// alive in Python at the same time, where the garbage collector would look through them again and again, nor that other
/// tasks of the loop wait for long.
const BATCH: usize = 128;

/// So many items that nobody waits for are left to be taken along with others.
const QUIET: usize = 32;

/// Something for Python, in the order in which the engine said it.
#[derive(Debug)]
pub(crate) enum Item {
    /// A piece of work.
    Job(HostTask),
    /// A log line.
    Entry(LogRecord),
    /// The engine has ended, for this reason unless it was asked to. Nothing comes after it.
    Finished(Option<Failure>),
}

/// The port of the engine as a queue for Python.
pub(crate) struct HostQueue {
    queue: Mutex<Queue>,
    wake_fd: WakeFd,
    /// Notified whenever something was taken.
    taken: Notify,
    threshold: AtomicU8,
    /// Python wants to know at once even of what nobody waits for.
    prompt: AtomicBool,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// The bell rings.
    rung: bool,
}

impl Queue {
    /// Takes something more; true if the bell is to be rung for it.
    fn put(&mut self, item: Item, prompt: bool) -> bool {
        let waits = !prompt && matches!(item, Item::Job(HostTask::Close { carry: false, .. }));
        self.items.push_back(item);
        let is_silent = self.rung || (waits && self.items.len() < QUIET);
        self.rung |= !is_silent;
        !is_silent
    }
}

impl HostQueue {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            queue: Mutex::default(),
            wake_fd: WakeFd::new()?,
            taken: Notify::new(),
            threshold: AtomicU8::new(0),
            prompt: AtomicBool::new(false),
        })
    }

    /// The descriptor that is readable while there is something to take.
    pub(crate) fn fileno(&self) -> RawFd {
        self.wake_fd.fileno()
    }

    /// Takes what has been there for the longest time, one batch of it. The bell is silenced first: whatever comes later
    /// rings it again, and so does what is left.
    pub(crate) fn take(&self) -> VecDeque<Item> {
        self.wake_fd.clear();
        let mut queue = self.lock();
        queue.rung = queue.items.len() > BATCH;
        let is_all = !queue.rung;
        let batch =
            if is_all { std::mem::take(&mut queue.items) } else { queue.items.drain(..BATCH).collect() };
        drop(queue);
        if !is_all {
            self.wake_fd.notify();
        }
        self.taken.notify_waiters();
        batch
    }

    /// How many there are to take.
    pub(crate) fn pending(&self) -> usize {
        self.lock().items.len()
    }

    /// From now on, nothing is left until something else comes: somebody wants to know when all is done.
    pub(crate) fn be_prompt(&self) {
        self.prompt.store(true, Ordering::Relaxed);
    }

    /// Lines below this level of Python's `logging` are not wanted.
    pub(crate) fn set_threshold(&self, level: u8) {
        self.threshold.store(level, Ordering::Relaxed);
    }

    /// Tells of the end.
    pub(crate) fn finish(&self, failure: Option<Failure>) {
        self.put(Item::Finished(failure));
    }

    fn put(&self, item: Item) {
        let prompt = self.prompt.load(Ordering::Relaxed);
        let rings = self.lock().put(item, prompt);
        if rings {
            self.wake_fd.notify();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host for HostQueue {
    fn submit(&self, job: HostTask) {
        self.put(Item::Job(job));
    }

    fn submit_all(&self, jobs: Vec<HostTask>) {
        let prompt = self.prompt.load(Ordering::Relaxed);
        let rings = {
            let mut queue = self.lock();
            let mut rings = false;
            for job in jobs {
                rings |= queue.put(Item::Job(job), prompt);
            }
            rings
        };
        if rings {
            self.wake_fd.notify();
        }
    }

    fn log(&self, entry: LogRecord) {
        if self.enabled(entry.level) {
            self.put(Item::Entry(entry));
        }
    }

    fn backlog(&self) -> usize {
        self.pending()
    }

    fn taken(&self) -> Option<&Notify> {
        Some(&self.taken)
    }

    fn enabled(&self, level: Level) -> bool {
        crate::logging::number(level) >= self.threshold.load(Ordering::Relaxed)
    }
}

/// A descriptor that is readable after `notify()` and until `clear()`.
pub(crate) struct WakeFd {
    near: File,
    far: Option<File>,
}

impl WakeFd {
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> io::Result<Self> {
        use std::os::fd::{FromRawFd as _, OwnedFd};
        #[expect(
            unsafe_code,
            reason = "the standard library has no eventfd; a valid result is owned by nobody else"
        )]
        let near = unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        Ok(Self { near: File::from(near), far: None })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> io::Result<Self> {
        use std::os::fd::OwnedFd;
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok(Self { near: File::from(OwnedFd::from(near)), far: Some(File::from(OwnedFd::from(far))) })
    }

    pub(crate) fn fileno(&self) -> RawFd {
        self.near.as_raw_fd()
    }

    pub(crate) fn notify(&self) {
        // It fails only when it would block, and then it is ringing already.
        let mut end = self.far.as_ref().unwrap_or(&self.near);
        let _ringing = end.write(&1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // It fails only when it would block, and then it is silent already.
        let mut buffer = [0_u8; 64];
        let _silent = (&self.near).read(&mut buffer);
    }
}
