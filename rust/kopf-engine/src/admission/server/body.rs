//! Reading of request bodies, with a limit per body and a shared budget for all incomplete bodies.
//!
//! Clients need not authenticate, so incomplete bodies must not exhaust the memory. The first [`FREE`] bytes of each
//! body do not count, which is enough for most reviews; the rest is taken from the shared budget. When the budget is
//! used up, bodies wait for each other. The oldest body never waits, so that bodies always complete or time out, one
//! after another.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::sync::Notify;

/// The first bytes of each body, which are not taken from the shared budget.
pub(super) const FREE: usize = 32 * 1024;
/// The shared budget, in bytes.
pub(super) const SHARED_LIMIT: usize = 40 * 1024 * 1024;

/// The reason why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError<E> {
    /// The body is longer than the limit.
    #[error("the body is too large")]
    TooLarge,
    /// The connection is broken.
    #[error("the body is incomplete")]
    Broken(#[source] E),
}

/// The shared budget of incomplete bodies.
pub(super) struct BodyBudget {
    limit: usize,
    usage: Mutex<Usage>,
    released: Notify,
}

#[derive(Default)]
struct Usage {
    bytes: usize,
    next: u64,
    /// The bodies that need the shared budget, oldest first.
    bodies: BTreeSet<u64>,
}

/// The bytes that one body has taken from the budget; released on drop.
struct Share {
    budget: Arc<BodyBudget>,
    number: u64,
    bytes: usize,
}

impl BodyBudget {
    /// A budget of `limit` bytes.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, usage: Mutex::default(), released: Notify::new() })
    }

    fn share(self: &Arc<Self>) -> Share {
        let mut usage = self.lock();
        usage.next += 1;
        let number = usage.next;
        usage.bodies.insert(number);
        Share { budget: Arc::clone(self), number, bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Waits until the body may take this many more bytes from the budget.
    async fn grow(&mut self, bytes: usize) {
        let budget = Arc::clone(&self.budget);
        loop {
            let mut released = std::pin::pin!(budget.released.notified());
            // Releases from here on are not missed.
            released.as_mut().enable();
            {
                let mut usage = budget.lock();
                if usage.bytes + bytes <= budget.limit || usage.bodies.first() == Some(&self.number) {
                    usage.bytes += bytes;
                    self.bytes += bytes;
                    return;
                }
            }
            released.await;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut usage = self.budget.lock();
        usage.bytes -= self.bytes;
        usage.bodies.remove(&self.number);
        drop(usage);
        self.budget.released.notify_waiters();
    }
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read<B>(
    mut body: B,
    limit: usize,
    budget: &Arc<BodyBudget>,
) -> Result<Bytes, BodyError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut share: Option<Share> = None;
    let mut buffer = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
        let length = buffer.len() + data.len();
        if length > limit {
            return Err(BodyError::TooLarge);
        }
        if length > FREE {
            share.get_or_insert_with(|| budget.share()).grow(length - buffer.len().max(FREE)).await;
        }
        // The frame is copied, as even a small one keeps the whole read buffer allocated. The capacity is not doubled,
        // as the budget counts only used bytes.
        if buffer.capacity() < length {
            buffer.reserve_exact(data.len().max(buffer.len() / 4));
        }
        buffer.extend_from_slice(&data);
    }
    Ok(buffer.into())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::FutureExt as _;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    type Frames = tokio::sync::mpsc::UnboundedSender<Bytes>;

    /// A body that receives its frames through a channel.
    fn body() -> (Frames, impl Body<Data = Bytes, Error = Infallible> + Unpin) {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let frames = futures::stream::unfold(receiver, |mut receiver| async move {
            let data = receiver.recv().await?;
            Some((Ok(Frame::data(data)), receiver))
        });
        (sender, StreamBody::new(Box::pin(frames)))
    }

    fn is_unused(budget: &BodyBudget) -> bool {
        let usage = budget.lock();
        usage.bytes == 0 && usage.bodies.is_empty()
    }

    fn zeros(length: usize) -> Bytes {
        vec![0; length].into()
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit() {
        let budget = BodyBudget::new(0);
        let read = |length| read(Full::new(zeros(length)), 100, &budget);
        assert_eq!(read(100).await.unwrap().len(), 100);
        assert!(matches!(read(101).await, Err(BodyError::TooLarge)));
    }

    #[tokio::test]
    async fn bodies_beyond_the_budget_wait_for_the_oldest_one_which_never_waits() {
        const LARGE: usize = FREE + 1000;
        let budget = BodyBudget::new(500);
        let (oldest_frames, oldest) = body();
        let (next_frames, next) = body();
        let mut oldest = Box::pin(read(oldest, usize::MAX, &budget));
        let mut next = Box::pin(read(next, usize::MAX, &budget));
        oldest_frames.send(zeros(LARGE)).unwrap();
        assert!(oldest.as_mut().now_or_never().is_none());
        next_frames.send(zeros(LARGE)).unwrap();
        drop(next_frames);
        assert!(next.as_mut().now_or_never().is_none());
        assert_eq!(budget.lock().bytes, 1000);
        // Small bodies do not need the budget.
        assert_eq!(read(Full::new(zeros(FREE)), FREE, &budget).await.unwrap().len(), FREE);
        oldest_frames.send(zeros(1000)).unwrap();
        drop(oldest_frames);
        assert_eq!(oldest.await.unwrap().len(), LARGE + 1000);
        assert_eq!(next.await.unwrap().len(), LARGE);
        assert!(is_unused(&budget));
    }

    #[tokio::test]
    async fn an_abandoned_body_releases_its_part_of_the_budget() {
        let budget = BodyBudget::new(1000);
        let (frames, first) = body();
        let mut first = Box::pin(read(first, usize::MAX, &budget));
        frames.send(zeros(FREE + 1000)).unwrap();
        assert!(first.as_mut().now_or_never().is_none());
        drop(first);
        assert!(is_unused(&budget));
    }
}
