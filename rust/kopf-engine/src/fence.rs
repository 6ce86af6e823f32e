//! The fence of leader election: whether a call or a write of a term may begin, with atomics for all threads.
//!
//! It decides as [`kopf_core::lease::Fence`], which is the model of it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use kopf_core::lease::Term;
use kopf_core::time::BootInstant;
use tokio::sync::Notify;

use crate::time::clock::Clock;

/// The value of `until` of a closed fence, and that of `term` before the first term.
const NONE: i64 = i64::MIN;

/// The call or the write is not admitted: its term has ended, or has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("leadership was lost")]
pub struct Fenced;

/// The work that the fence stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// A call of a handler that has not begun.
    Call,
    /// A request that was not sent.
    Write,
    /// A request whose response arrived after the end of the term.
    Late,
}

impl Rejection {
    /// All of them, with their names in metrics.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Call, "call"), (Self::Write, "write"), (Self::Late, "late")];
}

/// The guard of the terms of one replica. It admits a term until its deadline; once closed, it never admits that term again.
///
/// One task opens and closes it; any thread may pass it.
#[derive(Debug)]
pub struct Fence {
    term: AtomicI64,
    /// The deadline in microseconds of the boot-time clock.
    until: AtomicI64,
    clock: Clock,
    rejected: [AtomicU64; Rejection::ALL.len()],
    /// Notified when the fence is closed.
    closing: Notify,
}

impl Fence {
    /// A closed fence.
    pub fn new(clock: Clock) -> Self {
        Self {
            term: AtomicI64::new(NONE),
            until: AtomicI64::new(NONE),
            clock,
            rejected: Default::default(),
            closing: Notify::new(),
        }
    }

    /// Admits a call or a write of the term that begins immediately.
    ///
    /// # Errors
    /// The fence is closed for the term.
    pub fn pass(&self, term: i64) -> Result<(), Fenced> {
        // The deadline is read first: a later term is stored before its deadline.
        let mut until = self.until.load(Ordering::Acquire);
        loop {
            if self.term.load(Ordering::Acquire) != term || until == NONE {
                return Err(Fenced);
            }
            if self.clock.boot_now().micros() < until {
                return Ok(());
            }
            // A renewal that is acknowledged from now on must not open it again.
            match self.until.compare_exchange(until, NONE, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Err(Fenced),
                Err(extended) => until = extended,
            }
        }
    }

    /// Whether a call or a write may begin immediately, in the present term.
    pub fn is_open(&self) -> bool {
        self.pass(self.term.load(Ordering::Acquire)).is_ok()
    }

    /// Admits work of the present term, or counts its rejection.
    ///
    /// # Errors
    /// The fence is closed.
    pub fn admit(&self, work: Rejection) -> Result<(), Fenced> {
        let admitted = self.pass(self.term.load(Ordering::Acquire));
        if admitted.is_err() {
            self.rejected[work as usize].fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// How much work was rejected so far.
    pub fn rejected(&self, work: Rejection) -> u64 {
        self.rejected[work as usize].load(Ordering::Relaxed)
    }

    /// The term that the fence admits at present.
    pub fn term(&self) -> Option<i64> {
        let term = self.term.load(Ordering::Acquire);
        self.pass(term).is_ok().then_some(term)
    }

    /// Opens the fence for a later term, which closes the present one, or extends the deadline of the present one. Without
    /// effect if the fence of the term has closed, at the latest by its deadline. Returns whether it admits the term.
    pub fn open(&self, term: Term) -> bool {
        let present = self.term.load(Ordering::Relaxed);
        if present == term.number && self.pass(present).is_ok() {
            return self.extend(term.until);
        }
        if present >= term.number || self.clock.boot_now() >= term.until {
            return false;
        }
        self.close();
        self.term.store(term.number, Ordering::Release);
        self.until.store(term.until.micros(), Ordering::Release);
        true
    }

    /// Closes the fence.
    pub fn close(&self) {
        self.until.store(NONE, Ordering::Release);
        self.closing.notify_waiters();
    }

    /// Waits until the fence is closed for the term. If its deadline passes, the elector closes it.
    pub async fn closed(&self, term: i64) {
        loop {
            let closing = self.closing.notified();
            if self.pass(term).is_err() {
                return;
            }
            closing.await;
        }
    }

    /// The deadline of the term, if the fence admits it.
    pub fn deadline(&self, term: i64) -> Option<BootInstant> {
        let until = self.until.load(Ordering::Acquire);
        self.pass(term).ok()?;
        Some(BootInstant::from_micros(until))
    }

    /// Extends the deadline, unless a gate has closed the fence in the meantime.
    fn extend(&self, until: BootInstant) -> bool {
        let present = self.until.load(Ordering::Acquire);
        let later = until.micros().max(present);
        present != NONE
            && self.until.compare_exchange(present, later, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    fn fence() -> (Fence, Clock) {
        let clock = Clock::start();
        (Fence::new(clock.clone()), clock)
    }

    fn term(number: i64, clock: &Clock, seconds: f64) -> Term {
        Term { number, until: clock.boot_now().plus(seconds) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_admits_only_its_term_and_only_until_the_deadline() {
        let (fence, clock) = fence();
        assert_eq!(fence.pass(0), Err(Fenced));
        assert_eq!(fence.pass(NONE), Err(Fenced));
        let deadline = term(4, &clock, 10.0);
        assert!(fence.open(deadline));
        advance(Duration::from_secs(9)).await;
        assert_eq!((fence.pass(4), fence.pass(3), fence.pass(5)), (Ok(()), Err(Fenced), Err(Fenced)));
        assert_eq!(fence.deadline(4), Some(deadline.until));
        assert!(fence.open(term(4, &clock, 2.0)), "a renewal extends it");
        advance(Duration::from_millis(1999)).await;
        assert_eq!(fence.pass(4), Ok(()));
        advance(Duration::from_millis(1)).await;
        assert_eq!((fence.pass(4), fence.deadline(4)), (Err(Fenced), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_fence_never_opens_again_for_its_term() {
        let (fence, clock) = fence();
        fence.open(term(4, &clock, 10.0));
        advance(Duration::from_secs(10)).await;
        assert!(!fence.open(term(4, &clock, 10.0)));
        assert!(fence.open(term(5, &clock, 10.0)));
        fence.close();
        assert!(!fence.open(term(5, &clock, 10.0)));
        assert_eq!(fence.pass(5), Err(Fenced));
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_work_is_counted() {
        let (fence, clock) = fence();
        assert_eq!((fence.term(), fence.admit(Rejection::Call)), (None, Err(Fenced)));
        fence.open(term(4, &clock, 10.0));
        assert_eq!((fence.term(), fence.admit(Rejection::Write)), (Some(4), Ok(())));
        fence.close();
        assert_eq!((fence.term(), fence.admit(Rejection::Write)), (None, Err(Fenced)));
        let counts = Rejection::ALL.map(|(work, name)| (name, fence.rejected(work)));
        assert_eq!(counts, [("call", 1), ("write", 1), ("late", 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_decides_as_the_fence_of_the_core() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut admitted = 0;
        for _ in 0..300 {
            let (fence, clock) = fence();
            let mut model = kopf_core::lease::Fence::default();
            for _ in 0..40 {
                let number = random.i64(0..4);
                match random.u32(0..10) {
                    0..4 => {
                        let deadline = term(number, &clock, random.f64() * 4.0 - 0.5);
                        assert_eq!(fence.open(deadline), model.open(deadline, clock.boot_now()));
                    }
                    4 => {
                        fence.close();
                        model.close();
                    }
                    _ => advance(Duration::from_millis(random.u64(0..1500))).await,
                }
                for number in 0..4 {
                    let is_admitted = model.admits(number, clock.boot_now());
                    assert_eq!(fence.pass(number).is_ok(), is_admitted);
                    admitted += u32::from(is_admitted);
                }
            }
        }
        assert!(admitted > 1000, "{admitted}");
    }

    #[test]
    fn a_term_that_was_rejected_in_one_thread_is_admitted_in_none() {
        let clock = Clock::start();
        for number in 0..200 {
            let fence = Arc::new(Fence::new(clock.clone()));
            let was_rejected = Arc::new(AtomicBool::default());
            assert!(fence.open(term(number, &clock, 0.0005)));
            let gates: Vec<_> = (0..2)
                .map(|_| {
                    let (fence, was_rejected) = (Arc::clone(&fence), Arc::clone(&was_rejected));
                    std::thread::spawn(move || {
                        loop {
                            let is_closed = was_rejected.load(Ordering::SeqCst);
                            match fence.pass(number) {
                                Ok(()) => assert!(!is_closed, "the fence has opened again"),
                                Err(Fenced) if is_closed => return,
                                Err(Fenced) => was_rejected.store(true, Ordering::SeqCst),
                            }
                        }
                    })
                })
                .collect();
            for _ in 0..200 {
                fence.open(term(number, &clock, 0.0002));
            }
            for gate in gates {
                gate.join().unwrap();
            }
        }
    }
}
