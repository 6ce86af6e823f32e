//! The limit of open connections. Above it, the connection that has been idle for the longest time is closed.
//!
//! Clients reconnect when an idle connection is closed. A connection whose request is being handled is not closed; if there is
//! no idle one, the new connection waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The limit of open connections of a server.
pub(crate) struct ConnectionLimit {
    room: usize,
    present: Mutex<Present>,
    change: Notify,
}

#[derive(Default)]
struct Present {
    count: usize,
    turn: u64,
    /// Those that wait for nothing of ours, in the order of their last signs of life; and how they are sent away.
    idle: BTreeMap<u64, CancellationToken>,
}

/// The permit of one connection, until it is dropped.
pub(crate) struct ConnectionPermit {
    connection_limit: Arc<ConnectionLimit>,
    leaving: CancellationToken,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
enum State {
    Idle(u64),
    Served,
}

/// A connection that waits for an answer, until this is dropped.
pub(crate) struct Service<'a>(&'a ConnectionPermit);

impl ConnectionLimit {
    /// So many at most.
    pub(crate) fn new(room: usize) -> Arc<Self> {
        Arc::new(Self { room, present: Mutex::default(), change: Notify::new() })
    }

    /// Waits until there is room.
    pub(crate) async fn enter(self: &Arc<Self>) -> ConnectionPermit {
        loop {
            let change = self.change.notified();
            if let Some(permit) = self.try_enter() {
                return permit;
            }
            change.await;
        }
    }

    /// Takes the place of another one, if there is no other room.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut present = self.lock();
        if present.count < self.room {
            present.count += 1;
        } else {
            let (_, leaving) = present.idle.pop_first()?;
            leaving.cancel();
        }
        let leaving = CancellationToken::new();
        let state = Mutex::new(State::Idle(present.sit(&leaving)));
        Some(ConnectionPermit { connection_limit: Arc::clone(self), leaving, state })
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present {
    fn sit(&mut self, leaving: &CancellationToken) -> u64 {
        self.turn += 1;
        self.idle.insert(self.turn, leaving.clone());
        self.turn
    }
}

impl ConnectionPermit {
    /// Until it is sent away.
    pub(crate) async fn sent_away(&self) {
        self.leaving.cancelled().await;
    }

    /// It waits for an answer from now on.
    pub(crate) fn serve(&self) -> Service<'_> {
        let mut state = self.state();
        // Who has been sent away meanwhile, stays so.
        if let State::Idle(turn) = *state
            && self.connection_limit.lock().idle.remove(&turn).is_some()
        {
            *state = State::Served;
        }
        Service(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if matches!(*state, State::Served) {
            *state = State::Idle(self.0.connection_limit.lock().sit(&self.0.leaving));
            self.0.connection_limit.change.notify_one();
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let state = *self.state();
        let mut present = self.connection_limit.lock();
        // Of those who were sent away, the place is taken already.
        let had_place = match state {
            State::Idle(turn) => present.idle.remove(&turn).is_some(),
            State::Served => true,
        };
        if had_place {
            present.count -= 1;
            self.connection_limit.change.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures::FutureExt as _;

    /// How many there are, and how many of them are idle.
    fn figures(connection_limit: &ConnectionLimit) -> (usize, usize) {
        let present = connection_limit.lock();
        (present.count, present.idle.len())
    }

    fn is_sent_away(permit: &ConnectionPermit) -> bool {
        permit.leaving.is_cancelled()
    }

    /// Two that have come one after the other; after that, the first one was served.
    fn two_of(connection_limit: &Arc<ConnectionLimit>) -> [ConnectionPermit; 2] {
        let [first, second] =
            [connection_limit.try_enter(), connection_limit.try_enter()].map(Option::unwrap);
        drop(first.serve());
        [first, second]
    }

    #[test]
    fn whoever_is_silent_for_the_longest_time_makes_room() {
        let connection_limit = ConnectionLimit::new(2);
        let [first, second] = two_of(&connection_limit);
        let _third = connection_limit.try_enter().unwrap();
        assert_eq!([is_sent_away(&first), is_sent_away(&second)], [false, true]);
        // The place of the second one is taken: nothing becomes free by its end.
        drop(second);
        let _fourth = connection_limit.try_enter().unwrap();
        assert!(is_sent_away(&first));
        assert_eq!(connection_limit.lock().count, 2);
    }

    #[test]
    fn whoever_is_served_is_not_sent_away_and_newcomers_wait() {
        let connection_limit = ConnectionLimit::new(1);
        let only = connection_limit.try_enter().unwrap();
        let service = only.serve();
        assert!(connection_limit.try_enter().is_none());
        let mut entering = Box::pin(connection_limit.enter());
        assert!(entering.as_mut().now_or_never().is_none());
        drop(service);
        assert!(entering.now_or_never().is_some());
        assert!(is_sent_away(&only));
    }

    #[test]
    fn places_become_free_when_connections_end() {
        let connection_limit = ConnectionLimit::new(1);
        let only = connection_limit.try_enter().unwrap();
        let service = only.serve();
        let mut entering = Box::pin(connection_limit.enter());
        assert!(entering.as_mut().now_or_never().is_none());
        std::mem::forget(service);
        drop(only);
        assert!(entering.now_or_never().is_some());
        assert_eq!(figures(&connection_limit), (0, 0));
    }

    #[test]
    fn who_was_sent_away_before_being_served_leaves_no_trace() {
        let connection_limit = ConnectionLimit::new(1);
        let [first, second] = two_of(&connection_limit);
        drop(first);
        assert_eq!(figures(&connection_limit), (1, 1));
        drop(second);
        assert_eq!(figures(&connection_limit), (0, 0));
    }
}
