//! Long computations: they run outside of the engine's thread, which serves all watches, timers and webhooks.

use std::panic::resume_unwind;

use bytes::Bytes;
use tokio::task::spawn_blocking;

/// The length in bytes up to which a body is processed in the engine's thread: this takes some milliseconds at most.
pub const SHORT: usize = 4 * 1024 * 1024;

/// Processes a body of a response. If it is longer than `limit` bytes, this happens in a thread for blocking work.
///
/// Cancel safe: an abandoned computation ends in its thread, and its result is dropped. A panic continues in the caller.
pub async fn process<T: Send + 'static>(
    body: Bytes,
    limit: usize,
    compute: impl FnOnce(&[u8]) -> T + Send + 'static,
) -> T {
    if body.len() <= limit {
        return compute(&body);
    }
    match spawn_blocking(move || compute(&body)).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime shuts down: the caller is dropped, too.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn only_long_computations_leave_the_thread() {
        let here = thread::current().id();
        for (length, is_here) in [(7, true), (8, false)] {
            let body = Bytes::from(vec![b'x'; length]);
            let (sum, place) = process(body, 7, |body| (body.len(), thread::current().id())).await;
            assert_eq!((sum, place == here), (length, is_here));
        }
    }

    #[tokio::test]
    async fn panics_of_long_computations_reach_the_caller() {
        let work =
            process(Bytes::from_static(b"xx"), 1, |body| assert!(body.is_empty(), "an injected panic"));
        let panic = std::panic::AssertUnwindSafe(work).catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"an injected panic"));
    }
}
