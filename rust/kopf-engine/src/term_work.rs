//! The work that belongs to a term of a leader election, and its end: what runs is cancelled when the lease is lost.
//!
//! Without leader election, there is one term, which ends only when the operator does not wait any longer at its exit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The work of the present term.
#[derive(Debug)]
pub struct TermWork {
    /// Cancelled when the operator does not wait any longer at its exit.
    giving_up: CancellationToken,
    is_over: AtomicBool,
    present: Mutex<Present>,
}

#[derive(Debug)]
struct Present {
    ending: CancellationToken,
    entered: TaskTracker,
}

/// Work that has begun in a term. The end of the term waits until this is dropped.
#[derive(Debug)]
pub struct EnteredTerm {
    /// Cancelled at the end of the term, or when the operator does not wait any longer at its exit.
    pub ending: CancellationToken,
    _token: TaskTrackerToken,
}

impl Default for TermWork {
    fn default() -> Self {
        let giving_up = CancellationToken::new();
        let present = Present { ending: giving_up.child_token(), entered: TaskTracker::new() };
        Self { giving_up, is_over: AtomicBool::new(false), present: Mutex::new(present) }
    }
}

impl TermWork {
    /// The token that is cancelled when the operator does not wait any longer at its exit.
    pub fn giving_up(&self) -> CancellationToken {
        self.giving_up.clone()
    }

    /// Enters the present term. If it has ended, the work is cancelled at once.
    pub fn enter(&self) -> EnteredTerm {
        let present = self.present();
        EnteredTerm { ending: present.ending.clone(), _token: present.entered.token() }
    }

    /// The token that is cancelled at the end of the present term.
    pub fn ending(&self) -> CancellationToken {
        self.present().ending.clone()
    }

    /// A term begins, after the end of the previous one.
    pub fn begin(&self) {
        let mut present = self.present();
        if present.ending.is_cancelled() {
            *present = Present { ending: self.giving_up.child_token(), entered: TaskTracker::new() };
        }
        self.is_over.store(false, Ordering::Release);
    }

    /// Whether the present term has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Cancels the work of the present term. What enters it from now on is cancelled, too.
    pub fn end(&self) {
        let present = self.present();
        self.is_over.store(true, Ordering::Release);
        present.ending.cancel();
    }

    /// Waits until all work of the present term has left it.
    pub async fn left(&self) {
        let entered = self.present().entered.clone();
        entered.close();
        entered.wait().await;
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn the_work_of_a_term_is_cancelled_at_its_end_and_that_of_the_next_one_is_not() {
        let term = TermWork::default();
        let first = term.enter();
        term.begin();
        assert!(!first.ending.is_cancelled() && !term.ending().is_cancelled());
        assert!(!term.is_over());
        term.end();
        assert!(term.is_over());
        let late = term.enter();
        assert!(first.ending.is_cancelled() && late.ending.is_cancelled());
        assert!(term.left().now_or_never().is_none());
        drop((first, late));
        assert!(term.left().now_or_never().is_some());
        term.begin();
        let second = term.enter();
        assert!(!second.ending.is_cancelled() && !term.is_over());
        term.giving_up().cancel();
        assert!(second.ending.is_cancelled() && term.enter().ending.is_cancelled());
    }
}
