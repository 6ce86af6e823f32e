//! Supervision: no panic of a task goes unnoticed.
//!
//! A panic is a bug in the engine. Its effect depends on the task: a worker that panics delays the handling of its
//! object, a feed and the webhook server are restarted, a connection of a server is closed, and any other task stops the
//! operator with a [`Failure`] that names the task. So all tasks of a running operator are alive.
//!
//! Mutexes poisoned by a panic stay in use. This is correct for two reasons: most of them guard a single step that
//! cannot panic halfway. Code that does more under a lock (a cycle of an object's slot, a step of its daemons) runs
//! under a guard that resets the object's state or stops the operator.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use futures::FutureExt as _;
use kopf_core::backoff::Backoff;
use tokio::task::JoinError;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::error::{Failure, RequestError};
use crate::time::duration::seconds;

/// The delays before a task that has panicked is restarted.
const RESTARTS: Backoff = Backoff::endless(&[1.0, 2.0, 5.0, 10.0, 20.0, 30.0]);
/// Seconds of running after which a panic counts as the first one again.
const LONG_RUN: f64 = 600.0;

/// A task has panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{task} has panicked: {message}")]
pub struct Panicked {
    /// The purpose of the task.
    pub task: String,
    /// The message of the panic.
    pub message: String,
}

impl Panicked {
    fn of(task: &str, panic: &(dyn Any + Send)) -> Self {
        let message = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "(no message)".to_owned());
        Self { task: task.to_owned(), message }
    }
}

impl From<Panicked> for Failure {
    fn from(panicked: Panicked) -> Self {
        Self::other(format!("{panicked}. This is a bug in Kopf; please report it. The operator ends."))
    }
}

/// Runs a future until it completes or panics.
///
/// # Errors
/// The future has panicked.
pub fn guarded<F: Future>(task: &str, future: F) -> impl Future<Output = Result<F::Output, Panicked>> {
    // Not an `async fn`: its future would be twice as large as the inner one, which may be that of a worker.
    let caught = AssertUnwindSafe(future).catch_unwind();
    caught.map(move |ended| ended.map_err(|panic| Panicked::of(task, &*panic)))
}

/// Runs a task whose failure or panic stops the operator.
///
/// # Errors
/// The task has failed or panicked.
pub async fn supervised(
    task: String,
    future: impl Future<Output = Result<(), RequestError>>,
) -> Result<(), Failure> {
    Ok(guarded(&task, future).await??)
}

/// A task that is restarted after panics.
pub trait Restartable: Send {
    /// The name of the task in reports of its panics.
    fn name(&self) -> String;

    /// Runs the task, for the first time or again.
    fn run(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Reports a panic, after which the task is restarted in `delay` seconds.
    ///
    /// # Errors
    /// The task cannot be restarted.
    fn on_panic(&mut self, panicked: Panicked, delay: f64) -> Result<(), Failure>;
}

/// Runs a task, and restarts it after each panic, with a back-off.
///
/// # Errors
/// The task has failed, or cannot be restarted.
pub async fn run_restarting(mut task: impl Restartable) -> Result<(), Failure> {
    let mut panics = RESTARTS.retries();
    loop {
        let begun = Instant::now();
        let panicked = match guarded(&task.name(), task.run()).await {
            Ok(ended) => return ended,
            Err(panicked) => panicked,
        };
        if begun.elapsed() > seconds(LONG_RUN) {
            panics.reset();
        }
        let delay = panics.next(None, 0.0).map(|delay| delay.seconds).unwrap_or_default();
        task.on_panic(panicked, delay)?;
        sleep(seconds(delay)).await;
    }
}

/// The result of such a task for the operator: no error if we have cancelled the task.
///
/// # Errors
/// The task has failed or panicked.
pub fn joined(ended: Result<Result<(), Failure>, JoinError>) -> Result<(), Failure> {
    match ended {
        Ok(result) => result,
        Err(error) if error.is_cancelled() => Ok(()),
        Err(error) => Err(Panicked { task: "A task".to_owned(), message: error.to_string() }.into()),
    }
}

/// Calls a function and catches its panic.
///
/// # Errors
/// The function has panicked.
pub fn shielded<T>(task: &str, call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| Panicked::of(task, &*panic))
}

/// The first failure of any task that stops the operator.
#[derive(Debug, Default)]
pub struct Failing {
    first: OnceLock<Failure>,
    raised: CancellationToken,
}

impl Failing {
    /// Reports a failure that stops the operator. Later failures are ignored.
    pub fn raise(&self, failure: Failure) {
        let _later = self.first.set(failure);
        self.raised.cancel();
    }

    /// Waits for a failure.
    pub async fn failed(&self) -> Failure {
        self.raised.cancelled().await;
        self.first.get().cloned().unwrap_or_else(|| Failure::other("The operator has failed."))
    }

    /// The failure so far.
    ///
    /// # Errors
    /// If there is one.
    pub fn result(&self) -> Result<(), Failure> {
        self.first.get().cloned().map_or(Ok(()), Err)
    }

    /// Runs a future whose panic stops the operator.
    pub fn guard<F: Future<Output = ()>>(
        self: &Arc<Self>,
        task: &'static str,
        future: F,
    ) -> impl Future<Output = ()> + use<F> {
        // Not an `async fn`, as of `guarded`.
        let failing = Arc::clone(self);
        guarded(task, future).map(move |ended| {
            if let Err(panicked) = ended {
                failing.raise(panicked.into());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_named_with_its_message() {
        let explode = async { panic!("at {}", 5) };
        let failed = guarded("The watch of things", explode).await.map(|never: ()| never);
        let failure = Failure::from(failed.unwrap_err());
        assert!(failure.message.starts_with("The watch of things has panicked: at 5. "), "{failure}");
        assert_eq!(shielded("It", || 5), Ok(5));
        let silent = shielded("It", || std::panic::panic_any(5)).map(|never: ()| never);
        assert_eq!(silent.unwrap_err().message, "(no message)");
    }

    #[tokio::test]
    async fn the_first_reason_counts() {
        let failing = Arc::<Failing>::default();
        failing.guard("Nothing", async {}).await;
        assert_eq!(failing.result(), Ok(()));
        assert!(failing.failed().now_or_never().is_none());
        failing.guard("One", async { panic!("first") }).await;
        failing.guard("Two", async { panic!("second") }).await;
        assert!(failing.failed().await.message.starts_with("One has panicked: first."));
        assert_eq!(failing.result().unwrap_err(), failing.failed().await);
    }

    /// Panics `left` times: after a long run if two are left.
    struct Exploding {
        left: u32,
        delays: Vec<(String, f64)>,
        is_final: bool,
    }

    impl Restartable for &mut Exploding {
        fn name(&self) -> String {
            "It".to_owned()
        }

        async fn run(&mut self) -> Result<(), Failure> {
            if self.left == 2 {
                sleep(seconds(LONG_RUN + 1.0)).await;
            }
            assert_eq!(self.left, 0, "too early");
            Ok(())
        }

        fn on_panic(&mut self, panicked: Panicked, delay: f64) -> Result<(), Failure> {
            self.left -= 1;
            self.delays.push((panicked.task.clone(), delay));
            if self.is_final { Err(panicked.into()) } else { Ok(()) }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_restarted_with_growing_delays() {
        let mut task = Exploding { left: 4, delays: vec![], is_final: false };
        assert_eq!(run_restarting(&mut task).await, Ok(()));
        assert_eq!(task.delays, [1.0, 2.0, 1.0, 2.0].map(|delay| ("It".to_owned(), delay)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_cannot_be_restarted_fails() {
        let mut task = Exploding { left: 4, delays: vec![], is_final: true };
        let failure = run_restarting(&mut task).await.unwrap_err();
        assert!(failure.message.starts_with("It has panicked: "), "{failure}");
    }
}
