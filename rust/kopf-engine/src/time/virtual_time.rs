//! Virtual time for tests of operators: it can be frozen, and advanced to the next wake-up of a sleeping task.
//!
//! While it is not in use, it costs one read of a flag. While it is in use, it knows all sleeping tasks in the order of
//! their wake-ups. So no task is woken up late or out of order, regardless of how far time is advanced.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::time::traffic::{Endpoint, Traffic};

/// Virtual time. All moments are in microseconds since the start of the clock.
#[derive(Debug, Default)]
pub struct VirtualTime {
    in_use: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The moment at which time is frozen, if it is.
    still: Option<i64>,
    /// The offset to real time while it is not frozen.
    ahead: i64,
    /// The sleeping tasks, by their wake-ups and in the order of arrival.
    sleepers: BTreeMap<(i64, u64), Arc<Notify>>,
    /// The number of sleeping tasks and of operations so far.
    count: u64,
    /// The operations that take real time, with their descriptions, in the order of their starts.
    busy: BTreeMap<u64, String>,
    /// The connections of clients.
    traffic: Vec<Weak<Traffic>>,
}

/// An operation that takes real time, such as a request: time is not advanced until it is over.
#[derive(Debug)]
pub struct Busy {
    time: Arc<VirtualTime>,
    number: u64,
}

/// A sleeping task, until it is dropped.
struct Sleeper<'t> {
    time: &'t VirtualTime,
    key: (i64, u64),
    bell: Arc<Notify>,
}

impl VirtualTime {
    /// Registers all sleeps from now on, so that they follow virtual time. Until it is frozen, it runs like real time.
    pub fn use_it(&self) {
        self.in_use.store(true, Ordering::Release);
    }

    /// Whether it is in use, so that it can be frozen and advanced.
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }

    /// The operations in progress that take real time, the oldest first.
    pub fn busy_operations(&self) -> Vec<String> {
        self.state().busy.values().cloned().collect()
    }

    /// The number of sleeps and operations so far: it changes with each that starts.
    pub fn count(&self) -> u64 {
        self.state().count
    }

    /// The open connections of clients.
    pub fn connections(&self) -> Vec<Endpoint> {
        let mut state = self.state();
        state.traffic.retain(|traffic| traffic.strong_count() > 0);
        state.traffic.iter().filter_map(Weak::upgrade).map(|traffic| traffic.endpoint()).collect()
    }

    pub(crate) fn busy(self: &Arc<Self>, description: String) -> Busy {
        let mut state = self.state();
        state.count += 1;
        let number = state.count;
        state.busy.insert(number, description);
        drop(state);
        Busy { time: Arc::clone(self), number }
    }

    pub(crate) fn connected(&self, local: SocketAddr, peer: SocketAddr) -> Arc<Traffic> {
        let traffic = Arc::new(Traffic::new(local, peer));
        let mut state = self.state();
        state.traffic.retain(|traffic| traffic.strong_count() > 0);
        state.traffic.push(Arc::downgrade(&traffic));
        traffic
    }

    /// Returns to real time, and discards all offsets.
    pub fn reset(&self) {
        let mut state = self.state();
        state.still = None;
        state.ahead = 0;
        state.wake(i64::MAX);
    }

    pub(crate) fn freeze(&self, real: i64) {
        self.use_it();
        let mut state = self.state();
        state.still = Some(state.passed(real));
        state.wake(i64::MAX);
    }

    pub(crate) fn thaw(&self, real: i64) {
        let mut state = self.state();
        if let Some(still) = state.still.take() {
            state.ahead = still.saturating_sub(real);
            state.wake(i64::MAX);
        }
    }

    pub(crate) fn next(&self) -> Option<i64> {
        self.state().sleepers.keys().next().map(|(due, _)| *due)
    }

    /// Whether a sleeping task is due, but has not continued yet.
    pub(crate) fn is_due(&self, real: i64) -> bool {
        let state = self.state();
        state.sleepers.keys().next().is_some_and(|(due, _)| *due <= state.passed(real))
    }

    pub(crate) fn advance_to(&self, limit: i64) -> bool {
        let mut state = self.state();
        let Some(still) = state.still else { return false };
        let next = state.sleepers.keys().next().map(|(due, _)| *due).filter(|due| *due <= limit);
        let to = next.unwrap_or(limit).max(still);
        state.still = Some(to);
        state.wake(to);
        next.is_some()
    }

    pub(crate) fn passed(&self, real: i64) -> i64 {
        self.state().passed(real)
    }

    /// Sleeps until virtual time reaches `due`.
    pub(crate) async fn wait(&self, due: i64, real: impl Fn() -> i64) {
        let sleeper = self.enter(due);
        loop {
            let (left, stands) = {
                let state = self.state();
                (due.saturating_sub(state.passed(real())), state.still.is_some())
            };
            match u64::try_from(left) {
                Ok(1..) if stands => sleeper.bell.notified().await,
                Ok(left @ 1..) => tokio::select! {
                    () = sleep(Duration::from_micros(left)) => {}
                    () = sleeper.bell.notified() => {}
                },
                _ => return,
            }
        }
    }

    fn enter(&self, due: i64) -> Sleeper<'_> {
        let bell = Arc::new(Notify::new());
        let mut state = self.state();
        state.count += 1;
        let key = (due, state.count);
        state.sleepers.insert(key, Arc::clone(&bell));
        drop(state);
        Sleeper { time: self, key, bell }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn passed(&self, real: i64) -> i64 {
        self.still.unwrap_or_else(|| real.saturating_add(self.ahead))
    }

    /// Wakes up the tasks whose wake-up is not later than `to`, so that they check the time.
    fn wake(&self, to: i64) {
        for bell in self.sleepers.range(..=(to, u64::MAX)).map(|(_, bell)| bell) {
            bell.notify_one();
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.time.state().busy.remove(&self.number);
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.time.state().sleepers.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::time::clock::Clock;

    const DAY: f64 = 86_400.0;

    fn clock() -> (Arc<VirtualTime>, Clock) {
        let time = Arc::new(VirtualTime::default());
        time.use_it();
        (Arc::clone(&time), Clock::under(time))
    }

    async fn breathe() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_follows_real_time_until_it_is_frozen() {
        let (_, clock) = clock();
        let (real, before) = (Instant::now(), clock.now());
        clock.sleep(Duration::from_secs(5)).await;
        assert!((5.0..5.1).contains(&clock.now().seconds_since(before)));
        clock.freeze();
        let frozen = clock.now();
        sleep(Duration::from_secs(100)).await;
        assert_eq!(clock.now(), frozen);
        clock.thaw();
        clock.sleep(Duration::from_secs(1)).await;
        assert!((1.0..1.1).contains(&clock.now().seconds_since(frozen)));
        assert_eq!(real.elapsed().as_secs(), 106);
    }

    #[tokio::test(start_paused = true)]
    async fn sleepers_wake_up_in_order_and_at_their_moments() {
        let (_, clock) = clock();
        clock.freeze();
        let start = clock.now();
        let woken: Arc<Mutex<Vec<(u64, f64)>>> = Arc::default();
        for days in [3, 1, 2] {
            let (clock, woken) = (clock.clone(), Arc::clone(&woken));
            tokio::spawn(async move {
                clock.sleep(Duration::from_secs(days * 86_400)).await;
                woken.lock().unwrap().push((days, clock.now().seconds_since(start) / DAY));
            });
        }
        breathe().await;
        let limit = start.plus(2.5 * DAY);
        while clock.advance_to(limit) {
            breathe().await;
        }
        assert_eq!(*woken.lock().unwrap(), [(1, 1.0), (2, 2.0)]);
        assert_eq!(clock.now(), limit);
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_already_sleep_are_frozen_too_and_continue_with_time() {
        let (time, clock) = clock();
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_secs(10)).await }
        });
        breathe().await;
        clock.freeze();
        sleep(Duration::from_secs(1000)).await;
        assert!(!sleeper.is_finished());
        clock.advance_to(clock.now().plus(4.0));
        clock.thaw();
        let left = Instant::now();
        sleeper.await.unwrap();
        assert_eq!(left.elapsed().as_secs(), 6);
        assert!(time.state().sleepers.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_has_come_is_due_until_its_task_continues() {
        let (_, clock) = clock();
        clock.freeze();
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_secs(10)).await }
        });
        breathe().await;
        assert!(!clock.is_due());
        clock.advance_to(clock.now().plus(100.0));
        assert!(clock.is_due(), "the task is woken up, but not polled");
        sleeper.await.unwrap();
        assert!(!clock.is_due());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_in_running_time_is_due_too() {
        let (_, clock) = clock();
        let mut sleep = std::pin::pin!(clock.sleep(Duration::from_secs(10)));
        assert!(futures::poll!(sleep.as_mut()).is_pending());
        assert!(!clock.is_due());
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(clock.is_due());
        sleep.await;
        assert!(!clock.is_due());
    }

    #[tokio::test]
    async fn operations_are_named_until_they_end() {
        let (time, clock) = clock();
        let before = time.count();
        let (first, second) = (clock.busy(|| "a scan".to_owned()), clock.busy(|| "GET /version".to_owned()));
        assert_eq!(time.busy_operations(), ["a scan", "GET /version"]);
        drop(first);
        assert_eq!(time.busy_operations(), ["GET /version"]);
        drop(second);
        assert!(time.busy_operations().is_empty() && time.count() == before + 2);
        assert!(Clock::start().busy(|| unreachable!()).is_none(), "operators in production have none");
    }

    #[test]
    fn connections_are_known_until_they_are_closed() {
        let (time, clock) = clock();
        let address = SocketAddr::from(([127, 0, 0, 1], 6443));
        let traffic = clock.connected(address, address).unwrap();
        assert_eq!(time.connections().len(), 1);
        drop(traffic);
        assert!(time.connections().is_empty());
        assert!(Clock::start().connected(address, address).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_sleeps_do_not_block_advancing() {
        let (_, clock) = clock();
        clock.freeze();
        let waiting = clock.sleep(Duration::from_secs(5));
        assert!(tokio::time::timeout(Duration::from_secs(1), waiting).await.is_err());
        assert!(!clock.advance_to(clock.now().plus(100.0)));
    }
}
