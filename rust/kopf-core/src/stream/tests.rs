//! Watch-streams: tables of single steps, series of failures, and properties of random sequences.

use proptest::prelude::*;

use super::*;

fn rejected(status: u16) -> RequestError {
    RequestError::Api(Box::new(ApiError::from_response(status, None, b"no")))
}

fn broken() -> RequestError {
    RequestError::Transport("reset".to_owned())
}

fn malformed() -> RequestError {
    RequestError::Malformed("what?".to_owned())
}

fn state() -> StreamState {
    StreamState::new(FatalRejections::None, 0.1, false)
}

/// A connection that ends like this after so many seconds.
fn ended(end: End, lasted: f64, has_received: bool) -> Connection {
    Connection::new(end, lasted, has_received, false)
}

/// The wait in seconds without jitter, and what follows.
fn brief(step: &Step) -> (f64, &'static str) {
    let next = match step.next {
        Next::Resume => "resume",
        Next::CheckVersion => "check",
        Next::Relist => "relist",
        Next::Restart => "restart",
        Next::Stop(_) => "stop",
    };
    (step.wait.map_or(0.0, |wait| wait.seconds), next)
}

#[test]
fn one_connection_leads_to_the_next_step_of_this_table() {
    let cases = [
        (End::Reconnect, 300.0, true, (0.0, "resume")),
        (End::Closed, 300.0, true, (0.0, "resume")),
        (End::Closed, 300.0, false, (0.0, "resume")),
        (End::Closed, 0.5, true, (0.1, "resume")),
        (End::Closed, 0.5, false, (0.1, "resume")),
        (End::Silent, 60.0, false, (0.0, "resume")),
        (End::Expired, 60.0, true, (0.0, "relist")),
        (End::Failed(rejected(410)), 0.0, false, (0.0, "relist")),
        (End::Failed(broken()), 60.0, true, (0.1, "resume")),
        (End::Failed(RequestError::Timeout), 60.0, false, (0.1, "resume")),
        (End::Failed(rejected(403)), 0.0, false, (1.0, "resume")),
        (End::Failed(rejected(503)), 0.0, false, (1.0, "resume")),
        (End::Failed(malformed()), 1.0, true, (1.0, "restart")),
        (End::Failed(RequestError::Fenced), 1.0, true, (1.0, "restart")),
    ];
    for (end, lasted, has_received, expected) in cases {
        let step = state().on_connection(ended(end.clone(), lasted, has_received), 0.0);
        assert_eq!(brief(&step), expected, "{end:?} after {lasted} s");
    }
}

#[test]
fn broken_connections_are_retried_soon_and_logged_when_they_repeat() {
    let mut state = state();
    let steps: Vec<_> =
        (0..8).map(|_| state.on_connection(ended(End::Failed(broken()), 2.0, false), 0.0)).collect();
    let waits: Vec<_> = steps.iter().map(|step| brief(step).0).collect();
    assert_eq!(waits, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]);
    let logged = |step: &Step| step.failure.as_ref().is_some_and(|failure| failure.logged.is_some());
    assert_eq!(steps.iter().position(logged), Some(3));
    assert!(steps.iter().all(|step| step.next == Next::Resume));
    // Data end the series.
    assert_eq!(brief(&state.on_connection(ended(End::Failed(broken()), 2.0, true), 0.0)), (0.1, "resume"));
}

#[test]
fn rejections_in_a_row_lead_to_growing_delays_and_then_to_a_listing() {
    let mut state = state();
    let steps: Vec<_> =
        (0..7).map(|_| state.on_connection(ended(End::Failed(rejected(500)), 0.1, false), 0.0)).collect();
    let seen: Vec<_> = steps.iter().map(brief).collect();
    let resumed = [1.0, 2.0, 5.0, 10.0, 20.0].map(|delay| (delay, "resume"));
    assert_eq!(seen[..5], resumed);
    assert_eq!(seen[5..], [(30.0, "restart"), (30.0, "restart")]);
    assert!(steps.iter().all(|step| step.failure.as_ref().is_some_and(|failure| failure.is_rejected)));
}

#[test]
fn a_connection_that_lasts_ends_the_series_of_failures_also_without_data() {
    let mut state = state();
    for _ in 0..3 {
        state.on_connection(ended(End::Failed(rejected(500)), 0.1, false), 0.0);
    }
    state.on_connection(ended(End::Closed, 30.0, false), 0.0);
    assert_eq!(
        brief(&state.on_connection(ended(End::Failed(rejected(500)), 0.1, false), 0.0)),
        (1.0, "resume")
    );
}

#[test]
fn malformed_data_do_not_end_the_series_of_failures() {
    let mut state = state();
    let waits =
        (0..3).map(|_| brief(&state.on_connection(ended(End::Failed(malformed()), 5.0, true), 0.0)).0);
    assert_eq!(waits.collect::<Vec<_>>(), [1.0, 2.0, 5.0]);
}

#[test]
fn a_missing_resource_is_reported_from_the_third_time_on() {
    let mut state = state();
    let steps = (0..4).map(|_| state.on_failure(rejected(404), 0.0));
    let missing: Vec<_> = steps.map(|step| step.failure.is_some_and(|failure| failure.is_missing)).collect();
    assert_eq!(missing, [false, false, true, true]);
}

#[test]
fn the_version_of_the_server_is_checked_after_two_silent_connections() {
    let mut state = state();
    let silent = || ended(End::Silent, 60.0, false);
    // A connection that has lasted works, and yet the silence is counted.
    assert_eq!(brief(&state.on_connection(silent(), 0.0)).1, "resume");
    assert_eq!(brief(&state.on_connection(silent(), 0.0)).1, "check");
    assert_eq!(brief(&state.on_version(false, 0.0)), (0.0, "resume"));
    assert_eq!(brief(&state.on_connection(silent(), 0.0)).1, "check");
    assert_eq!(brief(&state.on_version(true, 0.0)).1, "relist");
    state.begin();
    assert_eq!(brief(&state.on_connection(silent(), 0.0)).1, "resume");
}

#[test]
fn listings_that_only_lead_to_others_are_delayed() {
    let mut state = state();
    let expired = || ended(End::Expired, 0.1, false);
    let mut waits = vec![];
    for _ in 0..4 {
        state.begin();
        waits.push(brief(&state.on_connection(expired(), 0.0)));
    }
    assert_eq!(waits, [0.0, 1.0, 2.0, 5.0].map(|wait| (wait, "relist")));
    state.on_connection(ended(End::Closed, 60.0, true), 0.0);
    assert_eq!(brief(&state.on_connection(expired(), 0.0)), (0.0, "relist"));
}

#[test]
fn initial_objects_are_listed_if_the_server_does_not_stream_them() {
    let mut state = StreamState::new(FatalRejections::None, 0.1, true);
    assert!(state.begin());
    let step = state.on_connection(Connection::new(End::Failed(rejected(422)), 0.1, false, true), 0.0);
    assert!(step.is_streaming_rejected);
    assert_eq!(brief(&step), (0.0, "relist"));
    assert!(!state.begin());
}

#[test]
fn initial_streams_that_break_are_repeated_after_growing_delays() {
    let mut state = StreamState::new(FatalRejections::None, 0.1, true);
    let ends = [End::Closed, End::Silent, End::Reconnect, End::Failed(broken())];
    let steps = ends.map(|end| state.on_connection(Connection::new(end, 5.0, true, true), 0.0));
    assert_eq!(steps.each_ref().map(brief), [1.0, 2.0, 5.0, 10.0].map(|wait| (wait, "restart")));
    assert!(state.begin(), "the server can stream them");
}

#[test]
fn fatal_rejections_and_missing_credentials_end_the_watch() {
    let stops = |fatal, error: RequestError| {
        let mut state = StreamState::new(fatal, 0.1, false);
        let listed = state.on_failure(error.clone(), 0.0).next == Next::Stop(error.clone());
        let watched = state.on_connection(ended(End::Failed(error.clone()), 0.1, false), 0.0);
        assert_eq!(listed, watched.next == Next::Stop(error));
        listed
    };
    for (fatal, ended) in [
        (FatalRejections::None, [false, false, false, false]),
        (FatalRejections::Forbidden, [true, false, false, false]),
        (FatalRejections::Permanent, [true, true, false, false]),
    ] {
        assert_eq!([403, 404, 429, 500].map(|status| stops(fatal, rejected(status))), ended, "{fatal:?}");
    }
    let login = RequestError::Login(crate::request_error::LoginError("none".to_owned()));
    assert!(stops(FatalRejections::None, login));
}

#[test]
fn retry_after_prolongs_the_delay() {
    let error = RequestError::Api(Box::new(ApiError::from_response(429, Some(7.0), b"")));
    assert_eq!(brief(&state().on_failure(error.clone(), 0.0)), (7.0, "restart"));
    assert_eq!((delay_after(&error, 0), delay_after(&rejected(500), 2)), (7.0, 5.0));
}

fn any_end() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::Reconnect),
        Just(End::Silent),
        Just(End::Closed),
        Just(End::Expired),
        Just(End::Failed(broken())),
        Just(End::Failed(RequestError::Timeout)),
        Just(End::Failed(malformed())),
        (400_u16..600).prop_map(|status| End::Failed(rejected(status))),
    ]
}

proptest! {
    /// No sequence of connections without data ends an operator's watch, or is a tight loop: in ten steps that take no time, there is at
    /// least one wait.
    #[test]
    fn watches_of_operators_go_on_and_never_in_a_tight_loop(
        ends in proptest::collection::vec((any_end(), any::<bool>(), 0.0..1.0_f64), 10..40),
        is_streaming: bool,
    ) {
        let mut state = StreamState::new(FatalRejections::None, 0.1, is_streaming);
        let (mut is_initial, mut waited) = (state.begin(), vec![]);
        for (end, is_behind, chance) in ends {
            let is_own_end = matches!(end, End::Reconnect | End::Silent);
            let mut step = state.on_connection(Connection::new(end, 0.0, false, is_initial), chance);
            if step.next == Next::CheckVersion {
                step = state.on_version(is_behind, chance);
            }
            prop_assert!(!matches!(step.next, Next::Stop(_) | Next::CheckVersion));
            prop_assert!(step.wait.is_none_or(|wait| wait.seconds >= 0.0 && wait.seconds <= 36.0));
            waited.push(step.wait.is_some() || is_own_end);
            if step.next != Next::Resume {
                is_initial = state.begin();
            }
        }
        prop_assert!(waited.windows(10).all(|steps| steps.contains(&true)));
    }
}
