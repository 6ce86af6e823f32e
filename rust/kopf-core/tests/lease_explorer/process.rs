//! A process: it performs the actions of its candidate, opens and closes its fence, and calls handlers.

use crate::injected_defects::Defect;
use crate::oracle::Oracle;
use crate::server::{Message, Request, Server};
use kopf_core::lease::{
    Action, Candidate, Command, Fence, Input, Lease, Options, Term, Unavailable, WriteError,
};
use kopf_core::time::BootInstant;

/// Clock rates in millionths: they differ by up to 1.4.
const RATES: [i64; 4] = [850_000, 1_000_000, 1_100_000, 1_190_000];

/// A request without a result so far.
#[derive(Clone, Copy, Debug)]
pub struct Outstanding {
    pub id: u64,
    is_read: bool,
    began: BootInstant,
}

/// The Lease as the process has last received it.
#[derive(Clone, Debug)]
struct Known {
    lease: Option<Lease>,
    first: BootInstant,
    /// The beginning of the last read that has returned it.
    read: Option<BootInstant>,
}

#[derive(Clone, Debug)]
pub struct Process {
    pub number: usize,
    pub place: usize,
    pub candidate: Candidate,
    pub fence: Fence,
    /// The terms of the running calls.
    pub calls: Vec<i64>,
    pub outstanding: Option<Outstanding>,
    pub wake_at: BootInstant,
    pub is_stopped: bool,
    pub is_dead: bool,
    pub is_finished: bool,
    pub is_releasing: bool,
    pub is_draining: bool,
    pub is_watching: bool,
    pub is_healthy: bool,
    pub is_synced: bool,
    /// The last term that has begun.
    pub term: Option<i64>,
    known: Option<Known>,
    defect: Option<Defect>,
    rate: i64,
    offset: i64,
}

impl Process {
    pub fn new(number: usize, place: usize, defect: Option<Defect>) -> Self {
        let owner = if defect == Some(Defect::KeepsIdentity) { place } else { number };
        let seed = number as u64;
        Self {
            number,
            place,
            candidate: Candidate::new(&format!("process-{owner}"), Options::default(), seed),
            fence: Fence::default(),
            calls: Vec::new(),
            outstanding: None,
            wake_at: BootInstant::from_micros(i64::MIN),
            is_stopped: false,
            is_dead: false,
            is_finished: false,
            is_releasing: false,
            is_draining: false,
            is_watching: false,
            is_healthy: true,
            is_synced: false,
            term: None,
            known: None,
            defect,
            rate: RATES[number % RATES.len()],
            offset: 1_000_000_000 * i64::try_from(number).unwrap(),
        }
    }

    /// Whether it exists and takes part.
    pub fn is_alive(&self) -> bool {
        !self.is_dead && !self.is_finished
    }

    pub fn is_running(&self) -> bool {
        self.is_alive() && !self.is_stopped
    }

    /// The reading of its clock.
    pub fn clock(&self, now: i64) -> BootInstant {
        BootInstant::from_micros(
            self.offset + now / 1_000_000 * self.rate + now % 1_000_000 * self.rate / 1_000_000,
        )
    }

    /// The first moment at which its clock has reached the instant.
    pub fn moment(&self, instant: BootInstant) -> i64 {
        let passed = i128::from(instant.micros() - self.offset);
        i64::try_from((passed * 1_000_000 / i128::from(self.rate) + 2).max(0)).unwrap()
    }

    /// Whether its fence admits its last term. The process may be stopped.
    pub fn is_open(&self, now: i64) -> bool {
        !self.is_dead && self.term.is_some_and(|term| self.fence.clone().admits(term, self.clock(now)))
    }

    /// Whether `Drained` is due.
    pub fn may_drain(&self) -> bool {
        let ignores_calls = match self.defect {
            Some(Defect::ReleasesBeforeDrain) => self.is_releasing && !self.is_draining,
            Some(Defect::AcquiresBeforeDrain) => self.is_draining,
            _ => false,
        };
        (self.is_draining || self.is_releasing) && (self.calls.is_empty() || ignores_calls)
    }

    pub fn drain(&mut self, server: &mut Server, oracle: &mut Oracle, now: i64) {
        self.step(Input::Drained, server, oracle, now);
        self.is_draining = false;
    }

    pub fn command(&mut self, command: Command, server: &mut Server, oracle: &mut Oracle, now: i64) {
        match command {
            Command::Release => self.is_releasing = true,
            Command::SetHealthy(value) => self.is_healthy = value,
            Command::SetSynced(value) => self.is_synced = value,
            Command::SetWatching(value) => self.is_watching = value,
        }
        self.step(Input::Command(command), server, oracle, now);
    }

    /// Receives a response, or its absence: None.
    pub fn receive(&mut self, input: Option<Input>, server: &mut Server, oracle: &mut Oracle, now: i64) {
        let Some(outstanding) = self.outstanding.take() else { return };
        let clock = self.clock(now);
        let extended = outstanding.began.plus(Options::default().renew_deadline);
        let is_acknowledged = matches!(input, Some(Input::Written(Ok(_))));
        let input = input.unwrap_or(if outstanding.is_read {
            Input::Read(Err(Unavailable))
        } else {
            Input::Written(Err(WriteError::Unknown))
        });
        if let Input::Read(Ok(lease)) = &input {
            self.know(lease.as_ref(), Some(outstanding.began), clock);
        }
        let counts_as_renewal = match self.defect {
            Some(Defect::ReopensFence) => is_acknowledged && !self.is_open(now),
            Some(Defect::CountsLostRenewals) => !outstanding.is_read && !is_acknowledged && self.is_open(now),
            _ => false,
        };
        if let Some(number) = self.term.filter(|_| counts_as_renewal && clock < extended) {
            self.fence = Fence::default();
            self.fence.open(Term { number, until: extended }, clock);
        }
        self.step(input, server, oracle, now);
    }

    pub fn observe(&mut self, lease: Option<Lease>, server: &mut Server, oracle: &mut Oracle, now: i64) {
        self.know(lease.as_ref(), None, self.clock(now));
        self.step(Input::Observed(lease), server, oracle, now);
    }

    /// Passes the input, and performs the actions until the candidate waits.
    pub fn step(&mut self, input: Input, server: &mut Server, oracle: &mut Oracle, now: i64) {
        let clock = self.clock(now);
        let mut input = input;
        loop {
            let action = self.candidate.step(input, clock);
            input = Input::Woken;
            match action {
                Action::WaitUntil(instant) => {
                    self.wake_at = instant;
                    return;
                }
                Action::Finished => {
                    self.is_finished = true;
                    return;
                }
                Action::Read => match self.answer_from_cache(clock) {
                    Some(answer) => input = answer,
                    None => self.send(Request::Read, server, clock),
                },
                Action::Create(record) => self.send(Request::Create(record), server, clock),
                Action::Update { version, record } => {
                    self.check_write(&version, record.holder.is_none(), oracle);
                    self.send(Request::Update { version, record }, server, clock);
                }
                Action::Lead(term) => self.lead(term, oracle, clock),
                Action::Stop => {
                    self.fence.close();
                    self.is_draining = true;
                }
            }
        }
    }

    fn lead(&mut self, term: Term, oracle: &mut Oracle, clock: BootInstant) {
        if self.term != Some(term.number) {
            self.term = Some(term.number);
            oracle.begin(term.number, self);
        }
        let from_response = clock.plus(Options::default().renew_deadline);
        let is_defective = self.defect == Some(Defect::FenceFromResponse);
        self.fence.open(Term { until: if is_defective { from_response } else { term.until }, ..term }, clock);
    }

    fn send(&mut self, request: Request, server: &mut Server, clock: BootInstant) {
        server.last_id += 1;
        let id = server.last_id;
        let is_read = matches!(request, Request::Read);
        assert!(self.outstanding.is_none(), "the candidate performs one request at a time");
        self.outstanding = Some(Outstanding { id, is_read, began: clock });
        server.messages.push(Message { id, process: self.number, request });
    }

    fn know(&mut self, lease: Option<&Lease>, read: Option<BootInstant>, clock: BootInstant) {
        match &mut self.known {
            Some(known) if known.lease.as_ref() == lease => known.read = read.or(known.read),
            _ => self.known = Some(Known { lease: lease.cloned(), first: clock, read }),
        }
    }

    /// Answers a confirming read without a request, if it has that defect.
    fn answer_from_cache(&self, clock: BootInstant) -> Option<Input> {
        let known = self.known.as_ref().filter(|_| self.defect == Some(Defect::SkipsConfirmation))?;
        let is_expired = clock >= self.expiry(known)?;
        is_expired.then(|| Input::Read(Ok(known.lease.clone())))
    }

    /// When the record of another process expires.
    fn expiry(&self, known: &Known) -> Option<BootInstant> {
        let record = &known.lease.as_ref()?.record;
        let holder = record.holder.as_ref()?;
        let seconds = f64::from(i32::try_from(record.duration).unwrap());
        (holder != self.candidate.identity()).then(|| known.first.plus(seconds))
    }

    fn check_write(&self, version: &str, is_release: bool, oracle: &mut Oracle) {
        if is_release {
            oracle.release(self);
        }
        let Some(known) = self.known.as_ref() else { return };
        if known.lease.as_ref().is_none_or(|lease| lease.version != version) {
            return;
        }
        if let Some(expires) = self.expiry(known) {
            oracle.take_over(known.read.is_some_and(|began| began >= expires));
        }
    }
}
