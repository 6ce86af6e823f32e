//! A candidate that does not lead: when it acquires the Lease, and how it releases it at the end.

use super::{Action, Candidate, Seen};
use crate::lease::Record;
use crate::time::BootInstant;

/// How many times `lease_duration` a candidate that is not synced waits for a synced one.
const UNSYNCED_DURATIONS: f64 = 2.0;

/// When a candidate may write its record.
struct Acquisition {
    at: BootInstant,
    /// Whether a read that began since then must show the same state.
    needs_read: bool,
}

impl Candidate {
    /// The next action of a candidate that takes part in the election.
    pub(super) fn follow(&mut self, now: BootInstant) -> Action {
        let Some(seen) = self.seen.as_ref().filter(|_| !self.must_read) else {
            return self.read(now);
        };
        let Acquisition { at, needs_read } = self.acquisition(seen);
        if self.is_healthy && now >= at {
            if needs_read {
                return self.read(now);
            }
            let record = self.claim();
            return self.write(record, now);
        }
        let poll_at = if self.is_watching { BootInstant::NEVER } else { self.poll_at };
        if now >= poll_at {
            return self.read(now);
        }
        Action::WaitUntil(if self.is_healthy { at.min(poll_at) } else { poll_at })
    }

    /// The next action of a candidate that leaves the election: it releases a Lease that it holds.
    pub(super) fn release(&mut self, now: BootInstant) -> Action {
        if self.claimed.is_none() {
            return Action::Finished;
        }
        if self.must_read {
            return self.read(now);
        }
        let lease = self.seen.as_ref().and_then(|seen| seen.lease.as_ref());
        match lease.filter(|lease| self.is_own(&lease.record)) {
            Some(lease) => {
                let record = Record::released(lease.record.transitions);
                self.write(record, now)
            }
            None => Action::Finished,
        }
    }

    /// When the candidate may write its record over the state.
    fn acquisition(&self, seen: &Seen) -> Acquisition {
        if self.has_unacknowledged_claim(seen) {
            return Acquisition { at: seen.first, needs_read: false };
        }
        let expires = self.expires(seen);
        let vacancy = expires.unwrap_or(seen.first);
        let own = seen.lease.as_ref().is_some_and(|lease| self.is_own(&lease.record));
        let mut at = expires.unwrap_or(if own { seen.first } else { seen.acquire_at });
        if self.options.warm && !self.is_synced {
            let since = seen.vacant_since.map_or(vacancy, |since| since.min(vacancy));
            at = at.max(since.plus(UNSYNCED_DURATIONS * self.options.lease_duration));
        }
        // The server compares the version; the read also shows that this replica was connected to it after the expiry.
        let needs_read = expires.is_some_and(|expires| seen.read.is_none_or(|began| began < expires));
        Acquisition { at, needs_read }
    }

    /// Whether the record is an acquisition of this process to which it has not received the response in time. Its term
    /// begins with the next acknowledged write of the record.
    fn has_unacknowledged_claim(&self, seen: &Seen) -> bool {
        let Some(lease) = &seen.lease else { return false };
        self.is_own(&lease.record) && Some(lease.record.transitions) > self.ended
    }

    /// The record by which the candidate acquires the lease in the state that was last seen.
    fn claim(&self) -> Record {
        let unacknowledged = self.seen.as_ref().filter(|seen| self.has_unacknowledged_claim(seen));
        let number = match unacknowledged.and_then(|seen| seen.lease.as_ref()) {
            Some(lease) => lease.record.transitions,
            // Never lower than a term that was seen, although the Lease may have been deleted.
            None => self.highest.max(self.ended).map_or(0, |number| number.saturating_add(1)),
        };
        self.record(number)
    }

    /// The record of this candidate as the holder.
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of seconds; the cast saturates")]
    pub(super) fn record(&self, number: i64) -> Record {
        let duration = self.options.lease_duration as i64;
        Record { holder: Some(self.identity.clone()), duration, transitions: number }
    }
}
