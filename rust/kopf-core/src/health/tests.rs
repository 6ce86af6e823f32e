//! Tables of the checks and of the responses.

use super::*;

fn failing(signals: &Signals, extension: f64) -> Vec<&'static str> {
    let results = evaluate(signals, &HealthLimits::default(), extension);
    results.into_iter().filter(|result| result.failure.is_some()).map(|result| result.name).collect()
}

fn stream(mut stream: StreamSignal) -> Signals {
    "sites.example.com in 'web'".clone_into(&mut stream.name);
    Signals { streams: vec![stream], ..Signals::default() }
}

type MakeSignals = Box<dyn Fn(f64) -> Signals>;

#[test]
fn each_check_of_liveness_fails_beyond_its_limit_and_no_other_one() {
    let idle = |idle| stream(StreamSignal { idle, allowance: Some(70.0), ..StreamSignal::default() });
    let missing = |age| {
        stream(StreamSignal {
            missing: Some(age),
            idle: age,
            allowance: Some(0.0),
            ..StreamSignal::default()
        })
    };
    let table: [(&str, f64, MakeSignals); 6] = [
        ("loop", 60.0, Box::new(|age| Signals { heartbeat: Some(age), ..Signals::default() })),
        ("engine", 30.0, Box::new(|orchestrator| Signals { orchestrator, ..Signals::default() })),
        ("border", 120.0, Box::new(|queue| Signals { queue, ..Signals::default() })),
        ("streams", 60.0, Box::new(missing)),
        ("deaf", 300.0, Box::new(idle)),
        (
            "stuck",
            900.0,
            Box::new(|age| Signals { cycles: vec![("web/home".to_owned(), age)], ..Signals::default() }),
        ),
    ];
    for (name, limit, signals) in table {
        assert!(failing(&signals(limit), 0.0).is_empty(), "{name}");
        assert_eq!(failing(&signals(limit + 0.5), 0.0), [name]);
        assert!(failing(&signals(limit + 0.5), 6.0).is_empty(), "{name}: the process was suspended");
        assert_eq!(failing(&signals(limit + 6.5), 6.0), [name]);
    }
}

#[test]
fn without_a_limit_a_check_is_disabled() {
    let late = Signals {
        heartbeat: Some(1e6),
        orchestrator: 1e6,
        queue: 1e6,
        cycles: vec![("x".to_owned(), 1e6)],
        call: Some(1e6),
        rejected: 1e6,
        ..stream(StreamSignal { idle: 1e6, allowance: Some(0.0), ..StreamSignal::default() })
    };
    assert_eq!(failing(&late, 0.0), ["loop", "engine", "border", "deaf", "stuck", "credentials"]);
    let limits = HealthLimits {
        loop_limit: None,
        engine_limit: None,
        border_limit: None,
        supervision_limit: None,
        deaf_limit: None,
        stall_limit: None,
        credentials_limit: None,
        ..HealthLimits::default()
    };
    assert!(evaluate(&late, &limits, 0.0).iter().all(|result| result.failure.is_none()));
    let limits = HealthLimits { handler_limit: Some(600.0), ..limits };
    let failed = evaluate(&late, &limits, 0.0).into_iter().find(|result| result.failure.is_some()).unwrap();
    assert_eq!((failed.name, failed.endpoints), ("handlers", LIVE));
}

#[test]
fn a_stream_is_not_deaf_within_the_timeout_of_its_attempt() {
    for (allowance, expected) in [(Some(70.0), true), (Some(600.0), false), (None, false)] {
        let signals = stream(StreamSignal { idle: 400.0, allowance, ..StreamSignal::default() });
        assert_eq!(!failing(&signals, 0.0).is_empty(), expected, "{allowance:?}");
    }
}

#[test]
fn readiness_and_startup_have_their_own_checks() {
    let table: [(Signals, &[Endpoint], &str); 6] = [
        (Signals { starting: Some("x".to_owned()), ..Signals::default() }, START_AND_READY, "started"),
        (Signals { unsynced: vec!["sites (403)".to_owned()], ..Signals::default() }, READY, "synced"),
        (Signals { unanswered: vec!["sites".to_owned()], ..Signals::default() }, START, "synced"),
        (Signals { webhooks: Some("x".to_owned()), ..Signals::default() }, READY, "webhooks"),
        (Signals { rejected: 15.5, ..Signals::default() }, READY, "credentials"),
        (Signals { is_stopping: true, ..Signals::default() }, READY, "stopping"),
    ];
    for (signals, endpoints, name) in table {
        let results = evaluate(&signals, &HealthLimits::default(), 0.0);
        assert_eq!(failing(&signals, 0.0), [name]);
        for endpoint in [Endpoint::Live, Endpoint::Ready, Endpoint::Start] {
            assert_eq!(is_passing(&results, endpoint, &[]), !endpoints.contains(&endpoint), "{name}");
            assert!(is_passing(&results, endpoint, &[name]), "{name} is excluded");
        }
    }
}

#[test]
fn troubled_streams_do_not_affect_readiness_unless_the_settings_ask_for_it() {
    let signals = Signals { troubled: vec![("sites".to_owned(), "broken", 12.0)], ..Signals::default() };
    assert!(failing(&signals, 0.0).is_empty());
    let limits = HealthLimits { ready_needs_streams: true, ..HealthLimits::default() };
    let results = evaluate(&signals, &limits, 0.0);
    assert_eq!(report(&results, Endpoint::Ready, &[], false), "[-]synced failed: sites broken for 12 s\n");
    assert!(is_passing(&results, Endpoint::Live, &[]) && is_passing(&results, Endpoint::Start, &[]));
}

#[test]
fn responses_name_the_failed_checks_or_all_of_them() {
    let silent = stream(StreamSignal { idle: 312.4, allowance: Some(70.0), ..StreamSignal::default() });
    let mut results = evaluate(&silent, &HealthLimits::default(), 0.0);
    results.push(probes_result(None));
    let failure = "[-]deaf failed: sites.example.com in 'web' silent for 312 s\n";
    assert_eq!(report(&results, Endpoint::Live, &[], false), failure);
    assert_eq!(report(&results, Endpoint::Live, &["deaf"], false), "ok");
    assert_eq!(report(&results, Endpoint::Ready, &[], false), "ok");
    let verbose = report(&results, Endpoint::Live, &["stuck", "handlers"], true);
    let head = "[+]loop ok\n[+]engine ok\n[+]border ok\n[+]streams ok\n";
    assert_eq!(verbose, format!("{head}{failure}[+]probes ok\n"));
}

#[test]
fn during_the_startup_only_liveness_passes() {
    let results = evaluate_startup();
    assert!(is_passing(&results, Endpoint::Live, &[]));
    let expected = "[-]started failed: the startup handlers have not finished\n";
    assert_eq!(report(&results, Endpoint::Ready, &[], false), expected);
    assert_eq!(report(&results, Endpoint::Start, &[], false), expected);
}

#[test]
fn paths_have_their_endpoints() {
    for (path, expected) in [
        ("/livez", Some(Endpoint::Live)),
        ("/readyz", Some(Endpoint::Ready)),
        ("/ready", Some(Endpoint::Ready)),
        ("/startupz", Some(Endpoint::Start)),
        ("/livez/", None),
        ("/healthz", None),
    ] {
        assert_eq!(Endpoint::of_path(path), expected, "{path}");
    }
}
