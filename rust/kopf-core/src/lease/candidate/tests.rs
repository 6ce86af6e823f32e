//! The rules of part 4.3 of the specification of operations, by their numbers.

use super::*;

const DEADLINE: f64 = 10.0;
const PERIOD: f64 = 2.0;
const DURATION: f64 = 15.0;

fn at(seconds: f64) -> BootInstant {
    BootInstant::from_micros(0).plus(seconds)
}

fn wait(seconds: f64) -> Action {
    Action::WaitUntil(at(seconds))
}

fn held_by(holder: &str, transitions: i64) -> Record {
    Record { holder: Some(holder.to_owned()), duration: 15, transitions }
}

#[expect(clippy::unnecessary_wraps, reason = "the inputs contain None if there is no Lease")]
fn lease(version: &str, record: Record) -> Option<Lease> {
    Some(Lease { version: version.to_owned(), record })
}

fn update(version: &str, record: Record) -> Action {
    Action::Update { version: version.to_owned(), record }
}

fn term(number: i64, until: f64) -> Action {
    Action::Lead(Term { number, until: at(until) })
}

/// A candidate "me" that is synced, watches the Lease, and has sent its first read at second 0.
struct Replica(Candidate);

impl Replica {
    fn new() -> Self {
        let mut replica = Self::unsynced(Options::default());
        replica.command(Command::SetSynced(true), 0.0);
        replica
    }

    fn unsynced(options: Options) -> Self {
        let mut candidate = Candidate::new("me", options, 7);
        let first = candidate.step(Input::Command(Command::SetWatching(true)), at(0.0));
        assert_eq!(first, Action::Read);
        Self(candidate)
    }

    /// A replica whose term 4 was acquired by a write that was sent at second 0 and acknowledged at 0.5 with version 2.
    fn leading() -> Self {
        let mut replica = Self::unsynced(Options { warm: false, ..Options::default() });
        let released = lease("1", Record::released(3));
        let Action::WaitUntil(delayed) = replica.read(released, -1.0) else { panic!("it does not wait") };
        assert!(delayed < at(0.0));
        assert_eq!(replica.wake(0.0), update("1", held_by("me", 4)));
        assert_eq!(replica.written("2", 0.5), term(4, DEADLINE));
        assert_eq!(replica.wake(0.5), wait(PERIOD));
        replica
    }

    /// A replica whose fence has closed since the response to the renewal at second 2 was lost.
    fn stopped() -> Self {
        let mut replica = Self::leading();
        assert_eq!(replica.wake(2.0), update("2", held_by("me", 4)));
        assert_eq!(replica.wake(DEADLINE), Action::Stop);
        replica
    }

    fn wake(&mut self, seconds: f64) -> Action {
        self.0.step(Input::Woken, at(seconds))
    }

    fn command(&mut self, command: Command, seconds: f64) -> Action {
        self.0.step(Input::Command(command), at(seconds))
    }

    fn read(&mut self, lease: Option<Lease>, seconds: f64) -> Action {
        self.0.step(Input::Read(Ok(lease)), at(seconds))
    }

    fn observed(&mut self, lease: Option<Lease>, seconds: f64) -> Action {
        self.0.step(Input::Observed(lease), at(seconds))
    }

    fn written(&mut self, version: &str, seconds: f64) -> Action {
        self.0.step(Input::Written(Ok(version.to_owned())), at(seconds))
    }

    fn failed(&mut self, error: WriteError, seconds: f64) -> Action {
        self.0.step(Input::Written(Err(error)), at(seconds))
    }

    fn drained(&mut self, seconds: f64) -> Action {
        self.0.step(Input::Drained, at(seconds))
    }
}

// Rule 1: a record is judged by its changes.

#[test]
fn a_record_is_valid_for_its_duration_since_it_was_first_seen() {
    let mut replica = Replica::new();
    let record = Record { duration: 20, ..held_by("other", 3) };
    assert_eq!(replica.read(lease("1", record.clone()), 1.0), wait(21.0));
    assert_eq!(replica.observed(lease("1", record), 9.0), wait(21.0));
    assert_eq!(replica.observed(lease("2", held_by("other", 3)), 20.0), wait(35.0));
}

#[test]
fn without_a_watch_the_lease_is_read_every_retry_period() {
    let mut replica = Replica::new();
    replica.command(Command::SetWatching(false), 0.0);
    assert_eq!(replica.read(lease("1", held_by("other", 3)), 1.0), wait(2.0));
    assert_eq!(replica.wake(2.0), Action::Read);
    assert_eq!(replica.read(lease("1", held_by("other", 3)), 2.5), wait(4.0));
}

// Rule 2: when the lease is acquired.

#[test]
fn a_missing_lease_is_created_after_a_short_random_delay() {
    let mut delays = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let options = Options { warm: false, ..Options::default() };
        let mut candidate = Candidate::new("me", options, seed);
        candidate.step(Input::Woken, at(0.0));
        let action = candidate.step(Input::Read(Ok(None)), at(1.0));
        let Action::WaitUntil(then) = action else { panic!("{action:?}") };
        assert!(then >= at(1.0) && then <= at(1.25), "{then:?}");
        delays.insert(then);
        assert_eq!(candidate.step(Input::Woken, then), Action::Create(held_by("me", 0)));
    }
    assert!(delays.len() > 10, "the delays are equal: {delays:?}");
}

#[test]
fn a_released_lease_is_acquired_with_the_next_term() {
    let mut replica = Replica::new();
    replica.read(lease("1", held_by("other", 3)), 0.5);
    let action = replica.observed(lease("2", Record::released(3)), 1.0);
    assert!(matches!(action, Action::WaitUntil(then) if then <= at(1.25)), "{action:?}");
    assert_eq!(replica.wake(1.25), update("2", held_by("me", 4)));
}

#[test]
fn an_expired_record_is_replaced_only_after_a_read_that_began_after_the_expiry() {
    let mut replica = Replica::new();
    replica.command(Command::SetWatching(false), 0.0);
    replica.read(lease("1", held_by("other", 3)), 1.0);
    assert_eq!(replica.wake(15.9), Action::Read);
    assert_eq!(replica.read(lease("1", held_by("other", 3)), 16.5), Action::Read, "it began too early");
    assert_eq!(replica.read(lease("1", held_by("other", 3)), 16.6), update("1", held_by("me", 4)));
}

#[test]
fn a_record_that_has_changed_in_the_confirming_read_is_valid_again() {
    let mut replica = Replica::new();
    replica.read(lease("1", held_by("other", 3)), 1.0);
    assert_eq!(replica.wake(16.0), Action::Read);
    assert_eq!(replica.read(lease("2", held_by("other", 3)), 16.1), wait(31.1));
}

#[test]
fn after_a_conflict_the_candidate_goes_back_to_watching() {
    let mut replica = Replica::new();
    replica.read(lease("1", Record::released(3)), 0.0);
    assert_eq!(replica.wake(0.5), update("1", held_by("me", 4)));
    assert_eq!(replica.failed(WriteError::Conflict, 0.6), Action::Read);
    assert_eq!(replica.read(lease("2", held_by("other", 4)), 0.7), wait(0.7 + DURATION));
}

#[test]
fn a_lease_that_was_deleted_while_it_was_held_is_respected_until_it_would_have_expired() {
    let mut replica = Replica::new();
    replica.read(lease("1", held_by("other", 3)), 1.0);
    assert_eq!(replica.observed(None, 2.0), wait(16.0));
    assert_eq!(replica.wake(16.0), Action::Read);
    assert_eq!(replica.read(None, 16.1), Action::Create(held_by("me", 4)), "terms never go back");
}

// Rule 3: the fence counts from the sending instant.

#[test]
fn the_fence_is_open_until_the_deadline_after_the_last_acknowledged_write_was_sent() {
    let mut replica = Replica::leading();
    assert_eq!(replica.wake(2.0), update("2", held_by("me", 4)));
    assert_eq!(replica.wake(3.0), wait(DEADLINE), "the renewal is not acknowledged yet");
    assert_eq!(replica.written("3", 6.0), term(4, 2.0 + DEADLINE));
    assert_eq!(replica.wake(6.0), update("3", held_by("me", 4)), "two seconds after the last one was sent");
    assert_eq!(replica.wake(12.0), Action::Stop);
}

#[test]
fn an_acquisition_that_is_acknowledged_after_its_deadline_begins_no_term_until_it_is_renewed() {
    let mut replica = Replica::new();
    replica.read(lease("1", Record::released(3)), 0.0);
    assert_eq!(replica.wake(1.0), update("1", held_by("me", 4)));
    assert_eq!(replica.written("2", 11.0), update("2", held_by("me", 4)));
    assert_eq!(replica.written("3", 11.5), term(4, 21.0));
}

// Rule 4: a closed fence stays closed.

/// LEA-7.
#[test]
fn a_late_response_does_not_reopen_a_term() {
    let mut replica = Replica::leading();
    assert_eq!(replica.wake(2.0), update("2", held_by("me", 4)));
    assert_eq!(
        replica.written("3", DEADLINE),
        Action::Stop,
        "although the deadline of this renewal is later"
    );
    assert_eq!(replica.wake(10.5), Action::WaitUntil(BootInstant::NEVER));
}

#[test]
fn a_term_whose_fence_was_closed_by_a_gate_ends() {
    let mut replica = Replica::leading();
    assert_eq!(replica.0.step(Input::Fenced, at(1.0)), Action::Stop);
    assert_eq!(replica.0.step(Input::Fenced, at(1.0)), Action::WaitUntil(BootInstant::NEVER));
    assert_eq!(replica.drained(1.5), Action::Read);
    assert_eq!(replica.read(lease("2", held_by("me", 4)), 1.6), update("2", held_by("me", 5)));
}

/// LEA-9: the boot clock jumps ahead.
#[test]
fn a_new_term_begins_at_once_but_only_after_all_calls_of_the_last_one_have_ended() {
    let mut replica = Replica::stopped();
    assert_eq!(replica.written("3", 10.1), Action::WaitUntil(BootInstant::NEVER));
    assert_eq!(replica.wake(90.0), Action::WaitUntil(BootInstant::NEVER));
    assert_eq!(replica.drained(91.0), Action::Read);
    assert_eq!(replica.read(lease("3", held_by("me", 4)), 91.1), update("3", held_by("me", 5)));
    assert_eq!(replica.written("4", 91.2), term(5, 101.1));
}

#[test]
fn a_replica_that_has_lost_its_term_respects_the_next_leader() {
    let mut replica = Replica::stopped();
    replica.failed(WriteError::Unknown, 10.1);
    assert_eq!(replica.drained(11.0), Action::Read);
    assert_eq!(replica.read(lease("3", held_by("other", 5)), 11.5), wait(11.5 + DURATION));
}

// Rule 5: a lost response does not renew.

#[test]
fn after_a_lost_response_the_leader_reads_and_renews_again() {
    let mut replica = Replica::leading();
    replica.wake(2.0);
    assert_eq!(replica.failed(WriteError::Unknown, 7.0), Action::Read);
    assert_eq!(replica.read(lease("3", held_by("me", 4)), 7.5), update("3", held_by("me", 4)));
    assert_eq!(replica.wake(8.0), wait(DEADLINE), "the read has not renewed");
    assert_eq!(replica.written("4", 8.5), term(4, 17.5));
}

#[test]
fn a_renewal_that_reads_the_lease_is_counted_once() {
    let mut replica = Replica::leading();
    assert_eq!(replica.wake(2.0), update("2", held_by("me", 4)));
    replica.written("3", 2.1);
    assert_eq!(replica.0.slow_renewals(), 0, "neither the acquisition nor a renewal by one write");
    assert_eq!(replica.wake(4.0), update("3", held_by("me", 4)));
    assert_eq!(replica.failed(WriteError::Rejected, 4.1), wait(6.0));
    assert_eq!(replica.wake(6.0), update("3", held_by("me", 4)));
    assert_eq!(replica.0.slow_renewals(), 0, "a rejected write is repeated without a read");
    assert_eq!(replica.failed(WriteError::Conflict, 6.1), Action::Read);
    assert_eq!(replica.0.slow_renewals(), 1);
    let unavailable = replica.0.step(Input::Read(Err(Unavailable)), at(6.2));
    assert_eq!(unavailable, wait(8.1));
    assert_eq!(replica.wake(8.1), Action::Read);
    assert_eq!(replica.read(lease("4", held_by("me", 4)), 8.2), update("4", held_by("me", 4)));
    assert_eq!(replica.failed(WriteError::Unknown, 8.3), Action::Read);
    assert_eq!(replica.0.slow_renewals(), 1, "the same renewal");
    replica.read(lease("5", held_by("me", 4)), 8.4);
    assert_eq!(replica.wake(10.2), update("5", held_by("me", 4)));
    assert_eq!(replica.written("6", 10.3), term(4, 20.2));
    assert_eq!(replica.wake(12.2), update("6", held_by("me", 4)));
    assert_eq!(replica.failed(WriteError::Conflict, 12.3), Action::Read);
    assert_eq!(replica.0.slow_renewals(), 2);
}

#[test]
fn reads_that_renew_nothing_are_no_slow_renewals() {
    let mut replica = Replica::stopped();
    replica.failed(WriteError::Unknown, 10.1);
    assert_eq!(replica.drained(11.0), Action::Read);
    replica.read(lease("3", held_by("other", 5)), 11.5);
    assert_eq!(replica.wake(26.5), Action::Read);
    assert_eq!(replica.0.slow_renewals(), 0);
}

#[test]
fn the_term_of_an_acquisition_with_a_lost_response_begins_with_the_next_acknowledged_write() {
    let mut replica = Replica::new();
    replica.read(lease("1", Record::released(3)), 0.0);
    replica.wake(1.0);
    assert_eq!(replica.failed(WriteError::Unknown, 6.0), Action::Read);
    assert_eq!(replica.read(lease("2", held_by("me", 4)), 6.5), update("2", held_by("me", 4)));
    assert_eq!(replica.written("3", 7.0), term(4, 16.5));
}

#[test]
fn a_record_with_the_same_identity_but_an_unknown_term_is_that_of_another_process() {
    let mut replica = Replica::new();
    assert_eq!(replica.read(lease("1", held_by("me", 3)), 1.0), wait(1.0 + DURATION));
}

#[test]
fn a_leader_that_reads_another_record_stops_at_once() {
    for found in [held_by("other", 5), held_by("me", 5), Record::released(4)] {
        let mut replica = Replica::leading();
        replica.wake(2.0);
        assert_eq!(replica.failed(WriteError::Conflict, 2.1), Action::Read);
        assert_eq!(replica.read(lease("3", found), 2.2), Action::Stop);
    }
}

#[test]
fn a_leader_is_not_misled_by_late_watch_events() {
    let mut replica = Replica::leading();
    assert_eq!(replica.observed(lease("1", held_by("other", 3)), 1.0), wait(PERIOD));
    assert_eq!(replica.observed(None, 1.0), wait(PERIOD));
    assert_eq!(replica.wake(PERIOD), update("2", held_by("me", 4)));
}

#[test]
fn a_leader_whose_lease_was_deleted_creates_it_again_in_the_same_term() {
    let mut replica = Replica::leading();
    replica.wake(2.0);
    assert_eq!(replica.failed(WriteError::Conflict, 2.1), Action::Read);
    assert_eq!(replica.read(None, 2.2), wait(4.0));
    assert_eq!(replica.wake(4.0), Action::Create(held_by("me", 4)));
    assert_eq!(replica.written("9", 4.1), term(4, 14.0));
}

// Rule 7: a replica that cannot work does not hold the lease.

/// LEA-15.
#[test]
fn an_unhealthy_leader_stops_renewing_until_it_is_healthy_again() {
    let mut replica = Replica::leading();
    assert_eq!(replica.command(Command::SetHealthy(false), 1.0), wait(DEADLINE));
    assert_eq!(replica.wake(5.0), wait(DEADLINE));
    let mut recovered = Replica(replica.0.clone());
    assert_eq!(recovered.command(Command::SetHealthy(true), 6.0), update("2", held_by("me", 4)));
    assert_eq!(replica.wake(DEADLINE), Action::Stop);
}

#[test]
fn an_unhealthy_candidate_acquires_nothing() {
    let mut replica = Replica::new();
    replica.command(Command::SetHealthy(false), 0.0);
    assert_eq!(replica.read(lease("1", Record::released(3)), 1.0), Action::WaitUntil(BootInstant::NEVER));
    assert_eq!(replica.command(Command::SetHealthy(true), 60.0), update("1", held_by("me", 4)));
}

// Rule 8: a candidate that is not synced waits for a synced one.

#[test]
fn an_unsynced_candidate_waits_until_no_replica_has_held_the_lease_for_two_durations() {
    let mut replica = Replica::unsynced(Options::default());
    assert_eq!(replica.read(lease("1", held_by("other", 3)), 1.0), wait(1.0 + 3.0 * DURATION));
    assert_eq!(replica.observed(lease("2", Record::released(3)), 5.0), wait(5.0 + 2.0 * DURATION));
    assert_eq!(replica.observed(None, 6.0), wait(5.0 + 2.0 * DURATION), "it was not held since second 5");
    assert_eq!(replica.observed(lease("4", held_by("other", 4)), 20.0), wait(20.0 + 3.0 * DURATION));
    assert_eq!(replica.wake(65.0), Action::Read);
    assert_eq!(replica.read(lease("4", held_by("other", 4)), 65.5), update("4", held_by("me", 5)));
}

#[test]
fn a_candidate_acquires_as_soon_as_it_is_synced() {
    let mut replica = Replica::unsynced(Options::default());
    assert_eq!(replica.read(None, 1.0), wait(31.0));
    assert_eq!(replica.command(Command::SetSynced(true), 2.0), Action::Create(held_by("me", 0)));
}

#[test]
fn cold_candidates_do_not_wait_for_synced_ones() {
    let mut replica = Replica::unsynced(Options { warm: false, ..Options::default() });
    replica.read(None, 1.0);
    assert_eq!(replica.wake(1.25), Action::Create(held_by("me", 0)));
}

// Rule 9: the lease is released last.

#[test]
fn the_lease_is_released_only_after_the_last_call_and_the_fence_is_closed_before() {
    let mut replica = Replica::leading();
    assert_eq!(replica.command(Command::Release, 1.0), wait(PERIOD));
    assert_eq!(replica.wake(2.0), update("2", held_by("me", 4)), "renewals continue");
    assert_eq!(replica.written("3", 2.1), term(4, 12.0));
    assert_eq!(replica.drained(3.0), Action::Stop);
    assert_eq!(replica.wake(3.0), update("3", Record::released(4)));
    assert_eq!(replica.written("4", 3.1), Action::Finished);
}

#[test]
fn a_renewal_in_flight_is_awaited_before_the_release() {
    let mut replica = Replica::leading();
    replica.command(Command::Release, 1.0);
    replica.wake(2.0);
    assert_eq!(replica.drained(2.1), Action::Stop);
    assert_eq!(replica.wake(2.1), Action::WaitUntil(BootInstant::NEVER));
    assert_eq!(replica.written("3", 2.2), update("3", Record::released(4)));
}

#[test]
fn a_release_is_repeated_after_a_conflict_but_only_of_the_own_record() {
    let mut replica = Replica::leading();
    replica.command(Command::Release, 1.0);
    replica.drained(1.0);
    assert_eq!(replica.wake(1.0), update("2", Record::released(4)));
    assert_eq!(replica.failed(WriteError::Conflict, 1.1), Action::Read);
    let mut overtaken = Replica(replica.0.clone());
    assert_eq!(overtaken.read(lease("3", held_by("other", 5)), 1.2), Action::Finished);
    assert_eq!(replica.read(lease("3", held_by("me", 4)), 1.2), wait(3.0));
    assert_eq!(replica.wake(3.0), update("3", Record::released(4)));
}

#[test]
fn a_candidate_that_never_held_the_lease_leaves_at_once() {
    let mut replica = Replica::new();
    replica.read(lease("1", held_by("other", 3)), 1.0);
    assert_eq!(replica.command(Command::Release, 2.0), Action::Finished);
}

#[test]
fn a_lease_that_is_acquired_during_the_exit_is_released_without_a_term() {
    let mut replica = Replica::new();
    replica.read(lease("1", Record::released(3)), 0.0);
    assert_eq!(replica.wake(1.0), update("1", held_by("me", 4)));
    replica.command(Command::Release, 1.1);
    assert_eq!(replica.written("2", 1.2), update("2", Record::released(4)));
    assert_eq!(replica.written("3", 1.3), Action::Finished);
}

#[test]
fn drained_without_an_end_of_the_term_changes_nothing() {
    let mut replica = Replica::leading();
    assert_eq!(replica.drained(1.0), wait(PERIOD));
    assert_eq!(Replica::new().drained(1.0), Action::WaitUntil(BootInstant::NEVER), "a read is pending");
}

// Rule 10: the election never ends by itself.

#[test]
fn failed_reads_and_writes_are_repeated_after_the_retry_period_forever() {
    let mut replica = Replica::new();
    for round in 0..100 {
        let now = f64::from(round) * PERIOD;
        assert_eq!(replica.0.step(Input::Read(Err(Unavailable)), at(now + 0.5)), wait(now + PERIOD));
        assert_eq!(replica.wake(now + PERIOD), Action::Read);
    }
    replica.read(lease("1", Record::released(3)), 200.0);
    for round in 100..200 {
        let now = 1.0 + f64::from(round) * PERIOD;
        assert_eq!(replica.wake(now), update("1", held_by("me", 4)));
        assert_eq!(replica.failed(WriteError::Rejected, now + 0.5), wait(now + PERIOD));
    }
}

#[test]
fn unexpected_responses_are_ignored() {
    let mut replica = Replica::leading();
    assert_eq!(replica.written("9", 1.0), wait(PERIOD));
    assert_eq!(replica.read(lease("9", held_by("other", 9)), 1.0), wait(PERIOD));
    assert_eq!(replica.failed(WriteError::Conflict, 1.0), wait(PERIOD));
}
