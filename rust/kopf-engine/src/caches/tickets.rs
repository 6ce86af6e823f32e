//! The own writes that are not visible yet, in the order of their starts (W5).

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Caches;
use crate::reconciling::OwnWrites;
use kopf_core::time::Timestamp;

/// The own writes that are not visible yet.
#[derive(Debug, Default)]
pub(super) struct Tickets(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    open: BTreeSet<u64>,
    has_settled: bool,
}

impl Tickets {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a new write.
    pub(super) fn open(&self) -> u64 {
        let mut state = self.state();
        state.last += 1;
        let ticket = state.last;
        state.open.insert(ticket);
        ticket
    }

    /// The writes are visible, or will never be.
    pub(super) fn settle(&self, tickets: &[u64]) {
        let mut state = self.state();
        for ticket in tickets {
            state.has_settled |= state.open.remove(ticket);
        }
    }
}

impl Tickets {
    /// Whether a write after the first number up to the second one is not visible.
    fn has_open(&self, after: u64, until: u64) -> bool {
        self.state().open.range(after.saturating_add(1)..).next().is_some_and(|ticket| *ticket <= until)
    }

    /// Whether writes have become visible since the last call.
    pub(super) fn take_settled(&self) -> bool {
        std::mem::take(&mut self.state().has_settled)
    }
}

impl OwnWrites for Caches {
    fn mark(&self) -> u64 {
        self.tickets.state().last
    }

    fn are_visible(&self, after: u64, until: u64) -> bool {
        !self.tickets.has_open(after, until)
    }

    fn deadline(&self) -> Timestamp {
        let timeout = self.base.live_config.get().settings.persistence.consistency_timeout;
        self.base.clock.now().plus(timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w5_writes_are_open_until_they_are_settled() {
        let tickets = Tickets::default();
        let (first, second) = (tickets.open(), tickets.open());
        tickets.settle(&[first, 77]);
        let open: Vec<_> = tickets.state().open.iter().copied().collect();
        assert_eq!(open, [second]);
        let visible = [(0, first), (first, first), (second, second), (second, 99)]
            .map(|(after, until)| !tickets.has_open(after, until));
        assert_eq!((visible, tickets.has_open(0, second)), ([true; 4], true));
        assert!(tickets.state().has_settled);
    }
}
