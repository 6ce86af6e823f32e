//! The submission of tasks to the host, in the order in which they were decided.
//!
//! Several threads decide. One of them at a time submits, without the lock of the state; meanwhile, the others leave their tasks to it.
//! So a call is never submitted after the request to stop it.

use super::Reconcilers;
use crate::host::HostTask;

/// The tasks that are not submitted yet.
#[derive(Default)]
pub(super) struct Submissions {
    waiting: Vec<HostTask>,
    /// A thread is submitting.
    is_running: bool,
}

impl Submissions {
    /// Adds tasks. Returns those that the caller must submit by [`Reconcilers::submit`]; none if another thread does that.
    pub(super) fn put(&mut self, tasks: Vec<HostTask>) -> Vec<HostTask> {
        if self.is_running {
            self.waiting.extend(tasks);
            return vec![];
        }
        self.is_running = !tasks.is_empty();
        tasks
    }

    /// The tasks that were added since the caller has begun to submit; if there are none, it has ended.
    fn next(&mut self) -> Vec<HostTask> {
        self.is_running = !self.waiting.is_empty();
        std::mem::take(&mut self.waiting)
    }
}

impl Reconcilers {
    /// Submits the tasks, and those that other threads add meanwhile.
    pub(super) fn submit(&self, mut tasks: Vec<HostTask>) {
        while !tasks.is_empty() {
            self.base.host.submit_all(tasks);
            tasks = self.state().submissions.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(run: u64) -> HostTask {
        HostTask::ReconcilerEnded(run)
    }

    fn runs(tasks: &[HostTask]) -> Vec<String> {
        tasks.iter().map(|task| format!("{task:?}")).collect()
    }

    #[test]
    fn one_thread_submits_the_tasks_of_all_in_their_order() {
        let mut submissions = Submissions::default();
        assert!(submissions.put(vec![]).is_empty());
        let first = submissions.put(vec![task(1), task(2)]);
        assert_eq!(runs(&first), runs(&[task(1), task(2)]));
        // Other threads, while the first one submits.
        assert!(submissions.put(vec![task(3)]).is_empty());
        assert!(submissions.put(vec![task(4)]).is_empty());
        assert_eq!(runs(&submissions.next()), runs(&[task(3), task(4)]));
        assert!(submissions.put(vec![task(5)]).is_empty());
        assert_eq!(runs(&submissions.next()), runs(&[task(5)]));
        assert!(submissions.next().is_empty());
        assert_eq!(runs(&submissions.put(vec![task(6)])), runs(&[task(6)]));
    }
}
