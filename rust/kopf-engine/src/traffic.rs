//! Who may ask the server now, and who waits until another one is answered. How many may ask at once, is said by
//! `kopf_core::lanes`; here they are counted. Watch-streams do not pass here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use kopf_core::lanes::{FEW, Lanes, Step};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// The requests to one server.
pub(crate) struct Traffic {
    free: Semaphore,
    lanes: Mutex<Lanes>,
    waiting: AtomicUsize,
}

impl Default for Traffic {
    fn default() -> Self {
        Self { free: Semaphore::new(FEW), lanes: Mutex::default(), waiting: AtomicUsize::new(0) }
    }
}

/// The right to ask once. If it is dropped, somebody else has it, and nothing is learnt.
pub(crate) struct Lane<'a> {
    traffic: &'a Traffic,
    // It is never closed, so that there always will be one.
    permit: Option<SemaphorePermit<'a>>,
    since: Instant,
}

/// Somebody who waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Traffic {
    /// Waits for its turn.
    pub(crate) async fn enter(&self) -> Lane<'_> {
        let permit = if let Ok(permit) = self.free.try_acquire() {
            Some(permit)
        } else {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let _waiting = Waiting(&self.waiting);
            self.free.acquire().await.ok()
        };
        Lane { traffic: self, permit, since: Instant::now() }
    }
}

impl Lane<'_> {
    /// There was an answer, or there was none to speak of.
    pub(crate) fn leave(self, is_refused: bool) {
        let seconds = self.since.elapsed().as_secs_f64();
        let is_awaited = self.traffic.waiting.load(Ordering::Relaxed) > 0;
        let step = {
            let mut lanes = self.traffic.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            if is_refused { lanes.refused() } else { lanes.answered(seconds, is_awaited) }
        };
        match (step, self.permit) {
            (Step::Widen, _) => self.traffic.free.add_permits(1),
            (Step::Narrow, Some(permit)) => permit.forget(),
            (Step::Narrow, None) | (Step::Keep, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::task::JoinSet;
    use tokio::time::sleep;

    use super::*;

    /// Virtual seconds for so many requests, each of which takes so long.
    async fn spent(traffic: &Arc<Traffic>, count: usize, seconds: f64) -> f64 {
        let start = Instant::now();
        let mut asking = JoinSet::new();
        for _ in 0..count {
            let traffic = Arc::clone(traffic);
            asking.spawn(async move {
                let lane = traffic.enter().await;
                sleep(Duration::from_secs_f64(seconds)).await;
                lane.leave(false);
            });
        }
        while asking.join_next().await.is_some() {}
        start.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_over_a_long_way_are_on_it_at_once() {
        let traffic = Arc::default();
        // 24 + 48 + 96 + 72; with as many as at the beginning, it would take a whole second.
        let seconds = spent(&traffic, 240, 0.1).await;
        assert!((0.39..0.45).contains(&seconds), "{seconds}");
        // And so each time, up to a hundred at once: 24 + 48 + 96 + 8 * 100 + 32. Few again when the way is short.
        assert!(spent(&traffic, 1000, 0.1).await < 1.3);
        spent(&traffic, 200, 0.001).await;
        assert_eq!(traffic.free.available_permits(), FEW);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_over_a_short_way_take_turns() {
        let seconds = spent(&Arc::default(), 240, 0.01).await;
        assert!((0.09..0.12).contains(&seconds), "{seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_given_up_leaves_the_lane_to_others() {
        let traffic = Traffic::default();
        let mut lanes = Vec::new();
        for _ in 0..FEW {
            lanes.push(traffic.enter().await);
        }
        let waited = tokio::time::timeout(Duration::from_secs(1), traffic.enter()).await;
        assert!(waited.is_err());
        assert_eq!(traffic.waiting.load(Ordering::Relaxed), 0);
        lanes.pop();
        assert!(traffic.enter().await.permit.is_some());
    }
}
