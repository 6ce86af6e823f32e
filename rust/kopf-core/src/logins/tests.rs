//! Logins: tables of series of rejections, and a property of random ones.

use proptest::prelude::*;

use super::*;

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(0).plus(seconds)
}

fn known(fingerprint: u64) -> Known<'static> {
    Known { server: "https://one", key: "handler", fingerprint }
}

/// The state after an accepted request, with a time limit of 60 seconds.
fn authorized() -> LoginState {
    let mut state = LoginState::new(60.0);
    state.begin();
    state.on_authorized();
    state
}

fn seconds(retry: Result<Option<Retry>, LoginError>) -> Option<f64> {
    retry.unwrap().map(|retry| retry.seconds)
}

#[test]
fn the_first_login_after_an_accepted_request_needs_no_delay() {
    let mut state = authorized();
    state.on_rejected(known(1));
    assert_eq!(state.before_login(at(0.0)), Ok(None));
    assert_eq!(state.begin(), "Re-authentication");
    assert_eq!(state.fresh(&[known(1), known(2)]), [false, true]);
}

#[test]
fn rejected_logins_in_a_row_have_growing_delays_and_end_after_the_time_limit() {
    let mut state = authorized();
    let mut waits = vec![];
    for fingerprint in 0..6 {
        state.on_rejected(known(fingerprint));
        waits.push(seconds(state.before_login(at(0.0))));
    }
    assert_eq!(waits, [None, Some(0.5), Some(1.0), Some(2.0), Some(5.0), Some(10.0)]);
    assert!(state.is_rejected(true));
    state.on_rejected(known(9));
    let LoginError(text) = state.before_login(at(60.0)).unwrap_err();
    assert_eq!(
        text,
        "Ran out of valid credentials. The API server https://one rejects the credentials from handler (401 Unauthorized): \
         they are wrong or have expired."
    );
    // Accepted credentials end the series.
    state.on_authorized();
    assert!(!state.is_rejected(false));
    state.on_rejected(known(10));
    assert_eq!(state.before_login(at(61.0)), Ok(None));
}

#[test]
fn without_an_accepted_request_there_are_two_delays_for_rejected_credentials_and_none_for_missing_ones() {
    let mut state = LoginState::new(60.0);
    assert_eq!(state.begin(), "Initial authentication");
    let LoginError(missing) = state.after_login(None, at(0.0)).unwrap_err();
    assert!(missing.contains("No login handler has returned any."), "{missing}");

    let mut state = LoginState::new(60.0);
    let mut retries = (0..4).map(|fingerprint| {
        state.on_rejected(known(fingerprint));
        state.before_login(at(0.0)).map(|retry| retry.map(|retry| retry.seconds))
    });
    assert_eq!(retries.next(), Some(Ok(None)));
    assert_eq!(retries.next(), Some(Ok(Some(0.5))));
    assert_eq!(retries.next(), Some(Ok(Some(1.0))));
    assert!(retries.next().unwrap().is_err());
}

#[test]
fn a_login_that_returns_rejected_credentials_again_is_repeated_and_may_use_them_after_the_wait() {
    let mut state = authorized();
    state.on_rejected(known(1));
    assert_eq!(state.before_login(at(0.0)), Ok(None));
    assert_eq!(state.fresh(&[known(1)]), [false]);
    let retry = state.after_login(None, at(0.0)).unwrap();
    assert_eq!(
        retry.text,
        "The API server https://one rejects the credentials from handler (401 Unauthorized). The credentials are read again in 0.5 \
         seconds."
    );
    state.on_waited();
    assert_eq!(state.fresh(&[known(1)]), [true]);
    let LoginError(late) = state.after_login(None, at(90.0)).unwrap_err();
    assert!(late.contains("https://one"), "{late}");
}

#[test]
fn the_error_of_the_login_is_the_one_that_ends_the_logins() {
    let mut state = LoginState::new(60.0);
    let error = LoginError("no such file".to_owned());
    let failure = LoginFailure { error: error.clone(), is_logged: false, is_of_plugin: false };
    assert_eq!(state.after_login(Some(failure), at(0.0)), Err(error));
}

#[test]
fn the_log_line_before_another_login_has_the_failure_unless_it_is_logged_already() {
    for (is_logged, expected) in [(false, "no such file. "), (true, "")] {
        let error = LoginError("no such file".to_owned());
        let failure = LoginFailure { error, is_logged, is_of_plugin: false };
        let retry = authorized().after_login(Some(failure), at(0.0)).unwrap();
        assert_eq!(retry.text, format!("{expected}The credentials are read again in 0.5 seconds."));
    }
}

#[test]
fn a_failing_plugin_runs_again_without_a_time_limit_once_credentials_were_accepted() {
    let failure = |is_of_plugin| {
        Some(LoginFailure { error: LoginError("exit code 1".to_owned()), is_logged: true, is_of_plugin })
    };
    let mut state = authorized();
    state.on_rejected(known(1));
    assert_eq!(state.before_login(at(0.0)), Ok(None));
    let waits: Vec<_> = (0..2_000)
        .map(|number| state.after_login(failure(true), at(f64::from(number) * 10.0)).unwrap().seconds)
        .collect();
    assert_eq!(waits[..6], [0.5, 1.0, 2.0, 5.0, 10.0, 10.0]);
    assert!(state.is_rejected(false), "it is reported meanwhile");
    // The time limit begins when the server rejects the credentials of the plugin, or there are none.
    assert!(state.after_login(failure(false), at(20_000.0)).is_ok());
    assert!(state.after_login(failure(false), at(20_049.0)).is_ok());
    assert!(state.after_login(failure(false), at(20_050.0)).is_err());

    let mut never_accepted = LoginState::new(60.0);
    assert!(never_accepted.after_login(failure(true), at(0.0)).is_err());
    let mut without_timeout = LoginState::new(0.0);
    without_timeout.on_authorized();
    assert!(without_timeout.after_login(failure(true), at(0.0)).is_err());
}

#[test]
fn three_rejected_credentials_of_a_login_handler_are_remembered() {
    let mut state = authorized();
    for fingerprint in 1..=4 {
        state.on_rejected(known(fingerprint));
    }
    let other = Known { key: "other", ..known(4) };
    assert_eq!(
        state.fresh(&[known(1), known(2), known(3), known(4), other]),
        [true, false, false, false, true]
    );
}

#[test]
fn certificates_start_a_login_after_an_accepted_request_but_not_twice_in_a_row() {
    assert!(!LoginState::new(60.0).can_renew(at(0.0)), "nothing was accepted yet");
    let mut state = authorized();
    let renewed: Vec<_> =
        [0.0, 0.4, 0.5, 1.4, 1.5].into_iter().filter(|now| state.can_renew(at(*now))).collect();
    assert_eq!(renewed, [0.0, 0.5, 1.5]);
    assert!(state.is_rejected(false) && !state.is_rejected(true));

    let mut state = LoginState::new(0.0);
    state.on_authorized();
    assert!(!state.can_renew(at(0.0)), "logins are not repeated at all");
}

#[test]
fn certificates_start_few_logins_although_other_servers_accept_requests() {
    // The certificate of one of several API servers is bad: all requests to the others are accepted.
    let mut state = authorized();
    let mut renewed = vec![];
    for tenth in 0..600 {
        let now = f64::from(tenth) / 10.0;
        if state.can_renew(at(now)) {
            renewed.push(now);
        }
        state.on_authorized();
    }
    assert_eq!(renewed, [0.0, 0.5, 1.5, 3.5, 8.5, 18.5, 28.5, 38.5, 48.5, 58.5]);
    // A minute without such failures ends the series.
    let later = [200.0, 200.5].map(|now| state.can_renew(at(now)));
    assert_eq!(later, [true, true]);
}

proptest! {
    /// However credentials and times vary: while nothing is accepted, logins end; each wait is at most ten seconds; and all waits
    /// together are at most the time limit and one wait more.
    #[test]
    fn logins_end_if_nothing_is_accepted(
        timeout in 0.0..200.0_f64,
        was_authorized: bool,
        rejections in proptest::collection::vec(any::<Option<u64>>(), 400),
    ) {
        let mut state = LoginState::new(timeout);
        if was_authorized {
            state.on_authorized();
        }
        let (mut now, mut has_ended) = (0.0, false);
        for rejection in rejections {
            let retry = match rejection {
                Some(fingerprint) => {
                    state.on_rejected(known(fingerprint));
                    state.before_login(at(now))
                }
                None => state.after_login(None, at(now)).map(Some),
            };
            match retry {
                Ok(None) => {}
                Ok(Some(retry)) => {
                    prop_assert!(retry.seconds > 0.0 && retry.seconds <= 10.0);
                    now += retry.seconds;
                    state.on_waited();
                }
                Err(_) => {
                    has_ended = true;
                    break;
                }
            }
        }
        prop_assert!(has_ended && now <= timeout + 10.0, "{now}");
    }
}
