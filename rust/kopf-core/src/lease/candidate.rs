//! The state machine of one replica: when it reads, acquires, renews and releases the Lease.

mod following;
mod leading;

use crate::lease::{Lease, Options, Record, Version};
use crate::time::BootInstant;

#[cfg(test)]
mod tests;

/// One uninterrupted period of leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Its number: `leaseTransitions`.
    pub number: i64,
    /// The instant at which its fence closes, unless it is extended.
    pub until: BootInstant,
}

/// Something that has happened to a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The instant of [`Action::WaitUntil`] has come, or the caller has performed or started another action.
    Woken,
    /// The response to [`Action::Read`]: the Lease, or None if there is none. Each of them has exactly one.
    Read(Result<Option<Lease>, Unavailable>),
    /// A watch event: the Lease, or None if it was deleted. It may be late.
    Observed(Option<Lease>),
    /// The response to [`Action::Create`] or [`Action::Update`]: the new version. Each of them has exactly one; after a
    /// timeout, it is [`WriteError::Unknown`].
    Written(Result<Version, WriteError>),
    /// No call and no write of the term is left: after [`Action::Stop`], or after [`Command::Release`].
    Drained,
    /// A gate has closed the fence of the term at its deadline, before [`Action::Lead`] could extend it.
    Fenced,
    /// A request of the operator itself.
    Command(Command),
}

/// A read without a result. It is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// The reason why a write was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The Lease has another version (409), exists already (409), or does not exist any longer (404).
    Conflict,
    /// The server has rejected it for another reason: it has not changed the Lease.
    Rejected,
    /// No response, or an error after which the server may have changed the Lease or may still change it.
    Unknown,
}

/// A request of the operator to its candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Release the lease when the calls have ended ([`Input::Drained`]), and take no further part in the election.
    Release,
    /// Whether the replica can work. Otherwise it neither acquires nor renews. True at the start.
    SetHealthy(bool),
    /// Whether the replica has received the state of the cluster. False at the start.
    SetSynced(bool),
    /// Whether changes of the Lease are observed by a watch. Otherwise it is read every `retry_period`. False at the start.
    SetWatching(bool),
}

/// The next action of the caller. It passes [`Input::Woken`] immediately after it has started a request or has changed the
/// fence; the result of a request follows when it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the Lease from the server, not from a cache.
    Read,
    /// Create the Lease.
    Create(Record),
    /// Replace the Lease if it has this version.
    Update {
        /// The expected resource version.
        version: Version,
        /// The new content.
        record: Record,
    },
    /// Open the fence for a new term, or extend its deadline if it has the same number as before.
    Lead(Term),
    /// The term has ended: close the fence, end all calls of the term, and pass [`Input::Drained`] then.
    Stop,
    /// Wait for an input, and pass [`Input::Woken`] at this instant, [`BootInstant::NEVER`] excepted.
    WaitUntil(BootInstant),
    /// The candidate has released the lease or does not hold it, after [`Command::Release`].
    Finished,
}

/// The election as one replica sees it. It performs one request at a time.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are observed independently of each other")]
pub struct Candidate {
    identity: String,
    options: Options,
    random: u64,
    phase: Phase,
    pending: Option<Pending>,
    /// The Lease as last read, observed or written; None before the first result.
    seen: Option<Seen>,
    /// Whether `seen` may be outdated, so that the next request is a read: at the start, and after failed writes.
    must_read: bool,
    /// When the Lease is read again if it is not watched.
    poll_at: BootInstant,
    /// The earliest instant of the next read, after a failed one.
    read_after: BootInstant,
    /// The earliest instant of the next write, after a failed one.
    write_after: BootInstant,
    /// The term of the last record that this process has tried to write or has written.
    claimed: Option<i64>,
    /// The highest term of this process that has ended.
    ended: Option<i64>,
    /// The highest term seen.
    highest: Option<i64>,
    /// Renewals that have read the Lease.
    slow_renewals: u64,
    is_releasing: bool,
    is_healthy: bool,
    is_synced: bool,
    is_watching: bool,
}

/// The part that the candidate has in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It does not lead, and nothing of a term of this process is running.
    Following,
    /// The fence of the term is open. `has_read`: the next renewal has already read the Lease.
    Leading { term: Term, renew_at: BootInstant, has_read: bool },
    /// The fence of its term is closed. Calls of the term may still be running.
    Draining,
}

/// The request whose result is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pending {
    Read { began: BootInstant },
    Write { sent: BootInstant, record: Record },
}

/// A state of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// None if there is no Lease.
    lease: Option<Lease>,
    /// When exactly this version was seen for the first time.
    first: BootInstant,
    /// When the candidate acquires the Lease if it is not held: after a random delay.
    acquire_at: BootInstant,
    /// The beginning of the last read that has returned this version.
    read: Option<BootInstant>,
    /// Since when no replica holds the Lease, if that is known from earlier states.
    vacant_since: Option<BootInstant>,
    /// A Lease that was deleted while its holder may have led: until when others respect the deleted record.
    reserved_until: Option<BootInstant>,
}

impl Candidate {
    /// A candidate that has not sent any request yet.
    ///
    /// `identity` must be unique per process: a restarted process must not take the record of its predecessor for its
    /// record. `seed` is a random number, the source of the jitter.
    pub fn new(identity: &str, options: Options, seed: u64) -> Self {
        let start = BootInstant::from_micros(i64::MIN);
        Self {
            identity: identity.to_owned(),
            options,
            random: seed,
            phase: Phase::Following,
            pending: None,
            seen: None,
            must_read: true,
            poll_at: start,
            read_after: start,
            write_after: start,
            claimed: None,
            ended: None,
            highest: None,
            slow_renewals: 0,
            is_releasing: false,
            is_healthy: true,
            is_synced: false,
            is_watching: false,
        }
    }

    /// The next action after the input. `now` is the present instant: for [`Action::Create`] and [`Action::Update`], an
    /// instant before the first byte of the request is sent.
    pub fn step(&mut self, input: Input, now: BootInstant) -> Action {
        match input {
            Input::Read(result) => self.receive(result, now),
            Input::Observed(lease) => self.observe(lease, None, now),
            Input::Written(result) => {
                if let Some(action) = self.complete(result, now) {
                    return action;
                }
            }
            Input::Drained => {
                if let Some(action) = self.drained() {
                    return action;
                }
            }
            Input::Fenced if matches!(self.phase, Phase::Leading { .. }) => return self.stop(),
            Input::Woken | Input::Fenced => {}
            Input::Command(command) => self.command(command),
        }
        self.next(now)
    }

    /// The identity in the records of this candidate.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The holder of the Lease as last seen, for logs.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref()?.lease.as_ref()?.record.holder.as_deref()
    }

    /// The number of renewals that needed a fresh read, since a write was not acknowledged. Each is counted once, when it first
    /// reads the Lease.
    pub fn slow_renewals(&self) -> u64 {
        self.slow_renewals
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Release => self.is_releasing = true,
            Command::SetHealthy(is_healthy) => self.is_healthy = is_healthy,
            Command::SetSynced(is_synced) => self.is_synced = is_synced,
            Command::SetWatching(is_watching) => self.is_watching = is_watching,
        }
    }

    /// The next action, in the order of precedence.
    fn next(&mut self, now: BootInstant) -> Action {
        if self.has_lost(now) {
            return self.stop();
        }
        let fence_closes = match self.phase {
            Phase::Leading { term, .. } => term.until,
            Phase::Following | Phase::Draining => BootInstant::NEVER,
        };
        if self.pending.is_some() {
            return Action::WaitUntil(fence_closes);
        }
        match self.phase {
            Phase::Leading { term, renew_at, .. } => self.lead(term, renew_at, now),
            Phase::Draining => Action::WaitUntil(BootInstant::NEVER),
            Phase::Following if self.is_releasing => self.release(now),
            Phase::Following => self.follow(now),
        }
    }

    /// The result of a read.
    fn receive(&mut self, result: Result<Option<Lease>, Unavailable>, now: BootInstant) {
        let Some(Pending::Read { began }) =
            self.pending.take_if(|pending| matches!(pending, Pending::Read { .. }))
        else {
            return;
        };
        self.poll_at = began.plus(self.options.retry_period);
        match result {
            Ok(lease) => {
                self.must_read = false;
                self.observe(lease, Some(began), now);
            }
            Err(Unavailable) => self.read_after = self.poll_at,
        }
    }

    /// Remembers a state of the Lease, and when exactly this version was first seen.
    fn observe(&mut self, lease: Option<Lease>, read: Option<BootInstant>, now: BootInstant) {
        // A late watch event may show a state from before the acquisition: a leader trusts only its reads.
        if read.is_none() && matches!(self.phase, Phase::Leading { .. }) {
            return;
        }
        self.highest = self.highest.max(lease.as_ref().map(|lease| lease.record.transitions));
        if let Some(seen) = &mut self.seen
            && seen.lease == lease
        {
            seen.read = read.or(seen.read);
            return;
        }
        let is_held = lease.as_ref().is_some_and(|lease| lease.record.holder.is_some());
        let earlier = self.seen.as_ref().filter(|_| !is_held);
        let vacant_since = earlier.and_then(|seen| self.vacant_since(seen, now));
        let reserved_until = match (&lease, &self.seen) {
            (None, Some(seen)) => self.expires(seen),
            _ => None,
        };
        let acquire_at = now.plus(self.jitter());
        self.seen = Some(Seen { lease, first: now, acquire_at, read, vacant_since, reserved_until });
    }

    /// Since when the Lease is not held, if the state shows that it is not held now.
    fn vacant_since(&self, seen: &Seen, now: BootInstant) -> Option<BootInstant> {
        let vacancy = self.expires(seen).unwrap_or(seen.first);
        (vacancy <= now).then(|| seen.vacant_since.unwrap_or(vacancy).min(vacancy))
    }

    /// When the record expires that another process holds, or that was deleted while another process held it.
    fn expires(&self, seen: &Seen) -> Option<BootInstant> {
        let Some(lease) = &seen.lease else { return seen.reserved_until };
        if lease.record.holder.is_none() || self.is_own(&lease.record) {
            return None;
        }
        let micros = lease.record.duration.saturating_mul(1_000_000);
        Some(BootInstant::from_micros(seen.first.micros().saturating_add(micros)))
    }

    /// Whether this process has written the record.
    fn is_own(&self, record: &Record) -> bool {
        let term = Some(record.transitions);
        record.holder.as_deref() == Some(self.identity.as_str())
            && (term == self.claimed || term <= self.ended)
    }

    fn read(&mut self, now: BootInstant) -> Action {
        if now < self.read_after {
            return Action::WaitUntil(self.read_after);
        }
        self.pending = Some(Pending::Read { began: now });
        Action::Read
    }

    /// Writes the record over the state that was last seen.
    fn write(&mut self, record: Record, now: BootInstant) -> Action {
        if now < self.write_after {
            return Action::WaitUntil(self.write_after);
        }
        if record.holder.is_some() {
            self.claimed = Some(record.transitions);
        }
        self.pending = Some(Pending::Write { sent: now, record: record.clone() });
        match self.seen.as_ref().and_then(|seen| seen.lease.as_ref()) {
            Some(lease) => Action::Update { version: lease.version.clone(), record },
            None => Action::Create(record),
        }
    }

    /// The result of a write. Returns the action if the write has begun or extended a term.
    fn complete(&mut self, result: Result<Version, WriteError>, now: BootInstant) -> Option<Action> {
        let Some(Pending::Write { sent, record }) =
            self.pending.take_if(|pending| matches!(pending, Pending::Write { .. }))
        else {
            return None;
        };
        let version = match result {
            Ok(version) => version,
            Err(error) => {
                // A conflict may be the response to a repeated request of which the first was successful.
                self.must_read |= error != WriteError::Rejected;
                self.write_after = sent.plus(self.options.retry_period);
                return None;
            }
        };
        self.highest = self.highest.max(Some(record.transitions));
        let (holder, number) = (record.holder.clone(), record.transitions);
        let lease = Some(Lease { version, record });
        self.seen = Some(Seen {
            lease,
            first: now,
            acquire_at: now,
            read: None,
            vacant_since: None,
            reserved_until: None,
        });
        // The server may have applied the write immediately after it was sent: others count from that instant.
        let term = Term { number, until: sent.plus(self.options.renew_deadline) };
        holder.and_then(|_| self.acknowledge(term, sent.plus(self.options.retry_period), now))
    }

    /// A random delay before the acquisition of a Lease that is not held, so that not all candidates collide.
    fn jitter(&mut self) -> f64 {
        const LONGEST: f64 = 0.25;
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let thousandth = u32::try_from((mixed ^ (mixed >> 31)) % 1000).unwrap_or_default();
        LONGEST * f64::from(thousandth) / 1000.0
    }
}
