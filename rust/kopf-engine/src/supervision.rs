//! Supervision: no panic of a task goes unnoticed.
//!
//! A panic is a bug in the engine. Its effect depends on the task: a worker that panics delays the handling of its
//! object, a watch is restarted, and any other task stops the operator with a [`Failure`] that names the task. So all
//! tasks of a running operator are alive.
//!
//! Mutexes poisoned by a panic stay in use. This is correct for two reasons: most of them guard a single step that
//! cannot panic halfway. Code that does more under a lock (a cycle of an object's slot, a step of its daemons) runs
//! under a guard that resets the object's state or stops the operator.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use futures::FutureExt as _;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::error::{Failure, FailureKind, RequestError};

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
        let message = format!("{panicked}. This is a bug in Kopf; please report it. The operator ends.");
        Self { kind: FailureKind::Other, message }
    }
}

/// Runs a future until it completes or panics.
///
/// # Errors
/// The future has panicked.
pub fn guarded<T>(task: &str, future: impl Future<Output = T>) -> impl Future<Output = Result<T, Panicked>> {
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
        self.first.get().cloned().unwrap_or_else(|| Failure {
            kind: FailureKind::Other,
            message: "The operator has failed.".to_owned(),
        })
    }

    /// Runs a future whose panic stops the operator.
    pub async fn guard(&self, task: &str, future: impl Future<Output = ()>) {
        if let Err(panicked) = guarded(task, future).await {
            self.raise(panicked.into());
        }
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
        let failing = Failing::default();
        failing.guard("Nothing", async {}).await;
        assert!(failing.failed().now_or_never().is_none());
        failing.guard("One", async { panic!("first") }).await;
        failing.guard("Two", async { panic!("second") }).await;
        assert!(failing.failed().await.message.starts_with("One has panicked: first."));
    }
}
