//! Background operations of all servers in the process, for tests that wait until these are idle.

use std::sync::atomic::{AtomicUsize, Ordering};

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Number of running operations that no request waits for, such as deletions by the garbage collector with their admission.
pub fn background_operations() -> usize {
    RUNNING.load(Ordering::Acquire)
}

/// A background operation, until this is dropped.
#[derive(Debug)]
pub(crate) struct BackgroundOperation(());

impl BackgroundOperation {
    pub(crate) fn start() -> Self {
        RUNNING.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for BackgroundOperation {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}
