//! Tokens: tables of single requests, and a property of random times and failures.

use proptest::prelude::*;

use super::*;

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(0).plus(seconds)
}

fn failure() -> LoginError {
    LoginError("no network".to_owned())
}

#[test]
fn token_files_are_read_once_per_minute() {
    let mut reads = FileReads::new(at(0.0));
    let due = [0.0, 59.9, 60.0, 60.1, 119.9, 500.0, 559.9].map(|now| reads.is_due(at(now)));
    assert_eq!(due, [false, false, true, false, false, true, false]);
}

#[test]
fn a_token_is_renewed_shortly_before_it_expires() {
    // The seconds until the expiration, when the renewal begins, and when requests wait for it.
    let table = [
        (3600.0, 3540.0, 3600.0),
        (300.0, 240.0, 300.0),
        (100.0, 80.0, 100.0),
        (5.0, 4.0, 5.0),
        (1.0, 1.0, 1.0),
        (0.0, 1.0, 1.0),
        (-50.0, 1.0, 1.0),
    ];
    for (expiration, renewal, end) in table {
        let token = PluginToken::new(at(0.0), Some(at(expiration)));
        assert_eq!(token.choose(at(0.0)), TokenChoice::Last);
        assert_eq!(token.choose(at(renewal - 0.01)), TokenChoice::Last, "{expiration}");
        let due = if renewal < end { TokenChoice::LastDuringRenewal } else { TokenChoice::Next };
        assert_eq!(token.choose(at(renewal)), due, "{expiration}");
        assert_eq!(token.choose(at(end)), TokenChoice::Next, "{expiration}");
    }
}

#[test]
fn a_token_without_expiration_is_not_renewed() {
    let token = PluginToken::new(at(0.0), None);
    assert_eq!([0.0, 1.0, 1e9].map(|now| token.choose(at(now))), [(); 3].map(|()| TokenChoice::Last));
}

#[test]
fn a_failed_plugin_runs_again_after_five_seconds_or_when_its_token_expires() {
    let mut token = PluginToken::new(at(0.0), Some(at(100.0)));
    assert_eq!(token.on_failure(failure(), at(80.0)), Ok(()));
    assert_eq!(token.choose(at(84.9)), TokenChoice::Last);
    assert_eq!(token.choose(at(85.0)), TokenChoice::LastDuringRenewal);
    assert_eq!(token.on_failure(failure(), at(98.0)), Ok(()));
    assert_eq!(token.choose(at(99.9)), TokenChoice::Last);
    assert_eq!(token.choose(at(100.0)), TokenChoice::Next);
    let mut token = PluginToken::new(at(0.0), Some(at(100.0)));
    assert_eq!(token.on_failure(failure(), at(99.5)), Ok(()));
    assert_eq!(token.choose(at(99.9)), TokenChoice::Last);
    assert_eq!(token.choose(at(100.1)), TokenChoice::None(failure()));
    assert_eq!(token.choose(at(100.5)), TokenChoice::Next);
}

#[test]
fn without_a_valid_token_the_failure_is_that_of_all_requests_of_the_next_second() {
    let mut token = PluginToken::new(at(0.0), Some(at(100.0)));
    assert_eq!(token.on_failure(failure(), at(100.0)), Err(failure()));
    assert_eq!(token.choose(at(100.9)), TokenChoice::None(failure()));
    assert_eq!(token.choose(at(101.0)), TokenChoice::Next);
}

proptest! {
    /// However plugins fail and requests come: no request uses a token that was valid once and has expired; and a plugin does not run
    /// twice in a second.
    #[test]
    fn expired_tokens_are_not_used_and_plugins_do_not_run_in_a_tight_loop(
        lifetime in 2.0..4000.0_f64,
        requests in proptest::collection::vec((0.0..100.0_f64, any::<bool>()), 1..200),
    ) {
        let (mut now, mut last_run) = (0.0, 0.0);
        let (mut token, mut expiration) = (PluginToken::new(at(0.0), Some(at(lifetime))), lifetime);
        for (pause, succeeds) in requests {
            // Most requests follow each other closely.
            now += if pause < 50.0 { pause / 100.0 } else { pause };
            let choice = token.choose(at(now));
            let is_valid = at(now) < at(expiration);
            prop_assert!(is_valid || matches!(choice, TokenChoice::Next | TokenChoice::None(_)));
            if matches!(choice, TokenChoice::Next | TokenChoice::LastDuringRenewal) {
                prop_assert!(now - last_run >= 0.99, "{last_run} {now}");
                last_run = now;
                if succeeds {
                    expiration = now + lifetime;
                    token = PluginToken::new(at(now), Some(at(expiration)));
                } else {
                    prop_assert_eq!(token.on_failure(failure(), at(now)).is_ok(), is_valid);
                }
            }
        }
    }
}
