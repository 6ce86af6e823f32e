//! Virtual time: it can stand still, and be moved to the next moment for which somebody waits. For tests of operators.
//!
//! As long as it is not in use, it costs one look at a flag. Then it knows all who wait, in the order of their moments, so
//! that nobody is woken up too late or in a wrong order, however far time is moved. It must not know what they wait for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// The time of clocks: all moments are in microseconds since their start.
#[derive(Debug, Default)]
pub struct VirtualTime {
    in_use: AtomicBool,
    /// How many do something that takes real time.
    busy: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where time stands still, if it does.
    still: Option<i64>,
    /// How far it is ahead of real time when it goes.
    ahead: i64,
    /// Who waits, by their moments and in the order of their coming.
    sleepers: BTreeMap<(i64, u64), Arc<Notify>>,
    /// How many have come so far.
    count: u64,
}

/// Something that takes real time, such as a request: until it is over, time is not to be moved.
#[derive(Debug)]
pub struct Busy(Arc<VirtualTime>);

/// Somebody who waits, for as long as it lives.
struct Sleeper<'t> {
    time: &'t VirtualTime,
    key: (i64, u64),
    bell: Arc<Notify>,
}

impl VirtualTime {
    /// From now on, those who begin to wait can be moved through time. It goes as real time until it is told otherwise.
    pub fn use_it(&self) {
        self.in_use.store(true, Ordering::Release);
    }

    /// Whether somebody may move it.
    pub fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }

    /// Whether anything is under way that takes real time.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(self))
    }

    /// Goes with real time again, as if nothing had been.
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

    pub(crate) fn leap(&self, limit: i64) -> bool {
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

    /// Waits until so much has passed.
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

    /// Lets those look at the time again who wait for a moment up to this one.
    fn wake(&self, to: i64) {
        for bell in self.sleepers.range(..=(to, u64::MAX)).map(|(_, bell)| bell) {
            bell.notify_one();
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
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
    async fn it_goes_with_real_time_until_it_is_frozen() {
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
    async fn sleepers_wake_in_the_order_of_their_moments_and_at_their_moments() {
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
        while clock.leap(limit) {
            breathe().await;
        }
        assert_eq!(*woken.lock().unwrap(), [(1, 1.0), (2, 2.0)]);
        assert_eq!(clock.now(), limit);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_already_wait_are_frozen_too_and_go_on_with_time() {
        let (time, clock) = clock();
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_secs(10)).await }
        });
        breathe().await;
        clock.freeze();
        sleep(Duration::from_secs(1000)).await;
        assert!(!sleeper.is_finished());
        clock.leap(clock.now().plus(4.0));
        clock.thaw();
        let left = Instant::now();
        sleeper.await.unwrap();
        assert_eq!(left.elapsed().as_secs(), 6);
        assert!(time.state().sleepers.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_does_not_hold_the_leaps() {
        let (_, clock) = clock();
        clock.freeze();
        let waiting = clock.sleep(Duration::from_secs(5));
        assert!(tokio::time::timeout(Duration::from_secs(1), waiting).await.is_err());
        assert!(!clock.leap(clock.now().plus(100.0)));
    }
}
