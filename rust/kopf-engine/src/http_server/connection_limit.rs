//! The limit of open connections. When it is reached, a new connection replaces the one that has been idle for longest.
//!
//! Clients reconnect after an idle connection is closed. A connection whose request is being handled is not closed. If
//! none is idle, the new connection waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The limit of open connections of a server.
pub(crate) struct ConnectionLimit {
    limit: usize,
    connections: Mutex<Connections>,
    change: Notify,
}

#[derive(Default)]
struct Connections {
    count: usize,
    turn: u64,
    /// The idle connections, in the order of their last activity, with the tokens that close them.
    idle: BTreeMap<u64, CancellationToken>,
}

/// The permit of one connection, released on drop.
pub(crate) struct ConnectionPermit {
    connection_limit: Arc<ConnectionLimit>,
    eviction: CancellationToken,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
enum State {
    Idle(u64),
    Active,
}

/// Marks a connection as active, not idle, until it is dropped.
pub(crate) struct Service<'a>(&'a ConnectionPermit);

impl ConnectionLimit {
    /// A limit of `limit` connections.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, connections: Mutex::default(), change: Notify::new() })
    }

    /// Waits for a permit; closes the longest idle connection if the limit is reached.
    pub(crate) async fn enter(self: &Arc<Self>) -> ConnectionPermit {
        loop {
            let change = self.change.notified();
            if let Some(permit) = self.try_enter() {
                return permit;
            }
            change.await;
        }
    }

    /// A permit, maybe in place of the longest idle connection; none if all connections are active.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut connections = self.lock();
        if connections.count < self.limit {
            connections.count += 1;
        } else {
            let (_, eviction) = connections.idle.pop_first()?;
            eviction.cancel();
        }
        let eviction = CancellationToken::new();
        let state = Mutex::new(State::Idle(connections.add_idle(&eviction)));
        Some(ConnectionPermit { connection_limit: Arc::clone(self), eviction, state })
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connections {
    fn add_idle(&mut self, eviction: &CancellationToken) -> u64 {
        self.turn += 1;
        self.idle.insert(self.turn, eviction.clone());
        self.turn
    }
}

impl ConnectionPermit {
    /// Waits until the connection is evicted: closed in favour of another one.
    pub(crate) async fn evicted(&self) {
        self.eviction.cancelled().await;
    }

    /// Marks the connection as active.
    pub(crate) fn serve(&self) -> Service<'_> {
        let mut state = self.state();
        // An evicted connection stays evicted.
        if let State::Idle(turn) = *state
            && self.connection_limit.lock().idle.remove(&turn).is_some()
        {
            *state = State::Active;
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
        if matches!(*state, State::Active) {
            *state = State::Idle(self.0.connection_limit.lock().add_idle(&self.0.eviction));
            self.0.connection_limit.change.notify_one();
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let state = *self.state();
        let mut connections = self.connection_limit.lock();
        // The permit of an evicted connection was already passed on.
        let had_permit = match state {
            State::Idle(turn) => connections.idle.remove(&turn).is_some(),
            State::Active => true,
        };
        if had_permit {
            connections.count -= 1;
            self.connection_limit.change.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use futures::FutureExt as _;

    /// The numbers of all and of idle connections.
    fn figures(connection_limit: &ConnectionLimit) -> (usize, usize) {
        let connections = connection_limit.lock();
        (connections.count, connections.idle.len())
    }

    fn is_evicted(permit: &ConnectionPermit) -> bool {
        permit.eviction.is_cancelled()
    }

    /// Two connections opened one after the other; the first one was active after that.
    fn two_of(connection_limit: &Arc<ConnectionLimit>) -> [ConnectionPermit; 2] {
        let [first, second] =
            [connection_limit.try_enter(), connection_limit.try_enter()].map(Option::unwrap);
        drop(first.serve());
        [first, second]
    }

    #[test]
    fn the_longest_idle_connection_is_evicted() {
        let connection_limit = ConnectionLimit::new(2);
        let [first, second] = two_of(&connection_limit);
        let _third = connection_limit.try_enter().unwrap();
        assert_eq!([is_evicted(&first), is_evicted(&second)], [false, true]);
        // The second connection's permit was passed on: its end releases nothing.
        drop(second);
        let _fourth = connection_limit.try_enter().unwrap();
        assert!(is_evicted(&first));
        assert_eq!(connection_limit.lock().count, 2);
    }

    #[test]
    fn active_connections_are_not_evicted_and_new_ones_wait() {
        let connection_limit = ConnectionLimit::new(1);
        let only = connection_limit.try_enter().unwrap();
        let service = only.serve();
        assert!(connection_limit.try_enter().is_none());
        let mut entering = Box::pin(connection_limit.enter());
        assert!(entering.as_mut().now_or_never().is_none());
        drop(service);
        assert!(entering.now_or_never().is_some());
        assert!(is_evicted(&only));
    }

    #[test]
    fn permits_are_released_when_connections_end() {
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
    fn connections_evicted_while_idle_leave_no_state() {
        let connection_limit = ConnectionLimit::new(1);
        let [first, second] = two_of(&connection_limit);
        drop(first);
        assert_eq!(figures(&connection_limit), (1, 1));
        drop(second);
        assert_eq!(figures(&connection_limit), (0, 0));
    }
}
