//! The fence of a term: whether a call or a write may begin.

use crate::lease::Term;
use crate::time::BootInstant;

/// The guard of the terms of one replica. It admits a term until its deadline; once closed, it never admits that term again.
///
/// The engine's fence does the same with atomics, so that its gates can pass from all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// The term that is admitted until its deadline.
    term: Option<Term>,
    /// The highest term that was closed.
    closed: Option<i64>,
}

impl Fence {
    /// Opens the fence for a later term, which closes the present one, or extends the deadline of the present one. Without
    /// effect if the fence of the term has closed, at the latest by its deadline. Returns whether it admits the term.
    pub fn open(&mut self, term: Term, now: BootInstant) -> bool {
        self.close_after_deadline(now);
        let present = self.term.filter(|present| present.number == term.number);
        if let Some(present) = present {
            self.term = Some(Term { until: present.until.max(term.until), ..term });
            return true;
        }
        let highest = self.term.map(|present| present.number).max(self.closed);
        if highest >= Some(term.number) || now >= term.until {
            return false;
        }
        self.close();
        self.term = Some(term);
        true
    }

    /// Closes the fence.
    pub fn close(&mut self) {
        if let Some(term) = self.term.take() {
            self.closed = self.closed.max(Some(term.number));
        }
    }

    /// Whether a call or a write of the term may begin now. From the deadline on, the fence stays closed.
    pub fn admits(&mut self, term: i64, now: BootInstant) -> bool {
        self.close_after_deadline(now);
        self.term.is_some_and(|present| present.number == term)
    }

    fn close_after_deadline(&mut self, now: BootInstant) {
        if self.term.is_some_and(|term| now >= term.until) {
            self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> BootInstant {
        BootInstant::from_micros(seconds * 1_000_000)
    }

    fn term(number: i64, until: i64) -> Term {
        Term { number, until: at(until) }
    }

    #[test]
    fn a_fence_admits_only_its_term_and_only_until_the_deadline() {
        let mut fence = Fence::default();
        assert!(!fence.admits(0, at(0)));
        assert!(fence.open(term(4, 10), at(1)));
        assert!(fence.admits(4, at(9)));
        assert!(!fence.admits(3, at(9)));
        assert!(!fence.admits(5, at(9)));
        assert!(!fence.admits(4, at(10)));
    }

    #[test]
    fn a_renewal_extends_an_open_fence_and_never_shortens_it() {
        let mut fence = Fence::default();
        fence.open(term(4, 10), at(1));
        assert!(fence.open(term(4, 12), at(3)));
        assert!(fence.open(term(4, 11), at(3)));
        assert!(fence.admits(4, at(11)));
    }

    #[test]
    fn a_closed_fence_never_opens_again_for_its_term() {
        let mut by_time = Fence::default();
        by_time.open(term(4, 10), at(1));
        assert!(!by_time.open(term(4, 16), at(10)), "nothing has passed the fence in the meantime");
        let mut closed = Fence::default();
        closed.open(term(4, 10), at(1));
        closed.close();
        for fence in [&mut by_time, &mut closed] {
            assert!(!fence.open(term(4, 30), at(11)));
            assert!(!fence.admits(4, at(11)));
            assert!(fence.open(term(5, 30), at(11)));
            assert!(!fence.open(term(4, 40), at(12)));
            assert!(fence.admits(5, at(12)), "an attempt to open an earlier term changes nothing");
        }
    }

    #[test]
    fn a_fence_does_not_open_after_its_deadline() {
        let mut fence = Fence::default();
        assert!(!fence.open(term(4, 10), at(10)));
        assert!(fence.open(term(4, 20), at(11)), "it was never open");
    }
}
