//! The work queue of one reconciler: its queued entries by due time, and its permits (1.4).

use std::collections::BTreeMap;

use crate::schedule::Priority;
use crate::schedule::entry::Position;
use crate::time::Timestamp;

/// The order of permits while all priorities have due entries: 8 : 4 : 1, spread as evenly as possible.
const PATTERN: [Priority; 13] = {
    use Priority::{Changed as C, Initial as I, Scheduled as S};
    [C, S, C, C, S, C, I, C, S, C, C, S, C]
};

/// The queued entries of one reconciler, and its permits.
///
/// Each operation takes O(log n) of the number of queued entries. Idle and running entries take no memory here.
///
/// A permit advances the pointer into a fixed pattern of 13 priorities by at least one; priorities without due entries are
/// skipped. So of 13 permits in a row, a priority that has due entries all the time gets at least its share.
#[derive(Clone, Debug)]
pub struct WorkQueue<K> {
    positions: BTreeMap<K, (Position, u64)>,
    changed: BTreeMap<Order, K>,
    scheduled: BTreeMap<Order, K>,
    initial: BTreeMap<Order, K>,
    arrivals: u64,
    pointer: usize,
    concurrency: usize,
    running: usize,
}

/// The order within a priority: by due time, then by arrival.
type Order = (Timestamp, u64);

/// A permit for one reconciliation. It must be given back by [`WorkQueue::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<K> {
    /// The entry that may start.
    pub key: K,
    /// Its position when it was granted.
    pub position: Position,
}

impl<K: Copy + Ord> WorkQueue<K> {
    /// An empty queue with so many permits; at least one.
    pub fn new(concurrency: usize) -> Self {
        Self {
            positions: BTreeMap::new(),
            changed: BTreeMap::new(),
            scheduled: BTreeMap::new(),
            initial: BTreeMap::new(),
            arrivals: 0,
            pointer: 0,
            concurrency: concurrency.max(1),
            running: 0,
        }
    }

    /// Puts an entry at its position, or moves it there; removes it without a position. An entry keeps its arrival as long as
    /// it is queued.
    pub fn set(&mut self, key: K, position: Option<Position>) {
        let before = self.positions.get(&key).copied();
        if before.map(|(before, _)| before) == position {
            return;
        }
        if let Some((before, arrival)) = before {
            self.positions.remove(&key);
            self.of(before.priority).remove(&(before.due, arrival));
        }
        if let Some(position) = position {
            let arrival = before.map_or(self.arrivals, |(_, arrival)| arrival);
            self.arrivals = self.arrivals.saturating_add(u64::from(before.is_none()));
            self.positions.insert(key, (position, arrival));
            self.of(position.priority).insert((position.due, arrival), key);
        }
    }

    /// Grants a permit to the next due entry, and removes it from the queue. None if none is due, or if all permits are held.
    pub fn grant(&mut self, now: Timestamp) -> Option<Grant<K>> {
        if self.running >= self.concurrency {
            return None;
        }
        for step in 0..PATTERN.len() {
            let index = (self.pointer + step) % PATTERN.len();
            let Some(priority) = PATTERN.get(index).copied() else { continue };
            let Some((&(due, arrival), &key)) = self.of(priority).first_key_value() else { continue };
            if due > now {
                continue;
            }
            self.of(priority).remove(&(due, arrival));
            self.positions.remove(&key);
            self.pointer = (index + 1) % PATTERN.len();
            self.running += 1;
            return Some(Grant { key, position: Position { due, priority } });
        }
        None
    }

    /// Gives a permit back: when the function has returned, also in an abandoned thread.
    pub fn release(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// The time at which an entry is due first, to wake up then; none while all permits are held, or if nothing is queued.
    pub fn next_due(&self) -> Option<Timestamp> {
        let first = |queue: &BTreeMap<Order, K>| queue.first_key_value().map(|((due, _), _)| *due);
        let queues = [&self.changed, &self.scheduled, &self.initial];
        let due = queues.into_iter().filter_map(first).min();
        due.filter(|_| self.running < self.concurrency)
    }

    /// The position of an entry; none if it is not queued.
    pub fn position(&self, key: K) -> Option<Position> {
        self.positions.get(&key).map(|(position, _)| *position)
    }

    /// The earliest due time of a priority.
    pub fn first_due(&self, priority: Priority) -> Option<Timestamp> {
        let queued = match priority {
            Priority::Changed => &self.changed,
            Priority::Scheduled => &self.scheduled,
            Priority::Initial => &self.initial,
        };
        queued.keys().next().map(|(due, _)| *due)
    }

    /// The number of queued entries of a priority.
    pub fn len(&self, priority: Priority) -> usize {
        match priority {
            Priority::Changed => self.changed.len(),
            Priority::Scheduled => self.scheduled.len(),
            Priority::Initial => self.initial.len(),
        }
    }

    /// The number of held permits.
    pub fn running(&self) -> usize {
        self.running
    }

    fn of(&mut self, priority: Priority) -> &mut BTreeMap<Order, K> {
        match priority {
            Priority::Changed => &mut self.changed,
            Priority::Scheduled => &mut self.scheduled,
            Priority::Initial => &mut self.initial,
        }
    }
}

#[cfg(test)]
mod tests;
