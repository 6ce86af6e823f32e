//! A candidate that leads: when it renews, and when its term ends.

use super::{Action, Candidate, Phase, Term};
use crate::time::BootInstant;

impl Candidate {
    /// The next action in a term whose fence is open.
    pub(super) fn lead(&mut self, term: Term, renew_at: BootInstant, now: BootInstant) -> Action {
        if !self.is_healthy {
            return Action::WaitUntil(term.until);
        }
        let at = if self.must_read { self.read_after } else { renew_at.max(self.write_after) };
        if now < at {
            return Action::WaitUntil(at.min(term.until));
        }
        if self.must_read {
            self.count_slow_renewal();
            return self.read(now);
        }
        // If the Lease was deleted, this creates it again.
        let record = self.record(term.number);
        self.write(record, now)
    }

    /// An acknowledged write of this candidate's record, by which the fence of the term is open until `term.until`. Returns
    /// the action if this begins or extends the term.
    pub(super) fn acknowledge(
        &mut self,
        term: Term,
        renew_at: BootInstant,
        now: BootInstant,
    ) -> Option<Action> {
        let is_accepted = match self.phase {
            // A response that arrives after the fence has closed does not open it again.
            Phase::Leading { term: present, .. } => now < present.until,
            Phase::Following => !self.is_releasing && now < term.until && Some(term.number) > self.ended,
            Phase::Draining => false,
        };
        if !is_accepted {
            return None;
        }
        self.phase = Phase::Leading { term, renew_at, has_read: false };
        Some(Action::Lead(term))
    }

    /// Counts the renewal that is about to read the Lease, unless it has done so before.
    fn count_slow_renewal(&mut self) {
        if let Phase::Leading { has_read, .. } = &mut self.phase
            && !std::mem::replace(has_read, true)
        {
            self.slow_renewals = self.slow_renewals.saturating_add(1);
        }
    }

    /// Whether the term has ended without a release: the fence has closed, or another record was read.
    pub(super) fn has_lost(&self, now: BootInstant) -> bool {
        let Phase::Leading { term, .. } = self.phase else { return false };
        let lease = self.seen.as_ref().and_then(|seen| seen.lease.as_ref());
        let is_current =
            lease.is_none_or(|lease| lease.record.transitions == term.number && self.is_own(&lease.record));
        now >= term.until || !is_current
    }

    /// Ends the term.
    pub(super) fn stop(&mut self) -> Action {
        if let Phase::Leading { term, .. } = self.phase {
            self.ended = self.ended.max(Some(term.number));
        }
        self.phase = Phase::Draining;
        Action::Stop
    }

    /// No call and no write of the term is left. Returns the action if this ends the term.
    pub(super) fn drained(&mut self) -> Option<Action> {
        match self.phase {
            Phase::Draining => {
                self.phase = Phase::Following;
                self.must_read = true;
                None
            }
            // The fence is closed before the release is sent.
            Phase::Leading { .. } if self.is_releasing => {
                let action = self.stop();
                self.phase = Phase::Following;
                Some(action)
            }
            Phase::Leading { .. } | Phase::Following => None,
        }
    }
}
