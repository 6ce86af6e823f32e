//! Credentials: selection, rejection, and new logins.

use std::sync::Arc;

use serde_json::json;
use tokio::task::yield_now;

use super::*;
use crate::client::http1::Connector;
use crate::error::RequestError;
use crate::testing::{FakeHost, FakeResponse, Fixture, Got, client, credential_store_options, lock};

mod rejections;

fn credentials(token: &str, priority: i64, expiration: Option<f64>) -> Credentials {
    let fields = json!({"server": "http://127.0.0.1:1", "token": token, "priority": priority, "expiration": expiration});
    serde_json::from_value(fields).unwrap()
}

fn credential_store(given: &[(&str, Credentials)]) -> (Arc<FakeHost>, Arc<CredentialStore>) {
    credential_store_with(credential_store_options(), given)
}

fn credential_store_with(
    options: CredentialStoreOptions,
    given: &[(&str, Credentials)],
) -> (Arc<FakeHost>, Arc<CredentialStore>) {
    let host = Arc::new(FakeHost::default());
    let given: Vec<_> = given.iter().map(|(key, given)| ((*key).to_owned(), given.clone())).collect();
    let as_host: Arc<dyn Host> = Arc::<FakeHost>::clone(&host);
    (host, Arc::new(CredentialStore::new(as_host, options, &given).unwrap()))
}

/// Completes the requested login.
async fn log_in(host: &FakeHost, login: Result<Vec<(&str, Credentials)>, &str>) {
    loop {
        if let Some(HostTask::Login(task)) = lock(&host.tasks).pop() {
            let items =
                login.map(|items| items.into_iter().map(|(key, given)| (key.to_owned(), given)).collect());
            let _gone = task.reply.send(items.map(Login::Provided).map_err(str::to_owned));
            return;
        }
        // Paused time advances only if no task is ready to run.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn given_credentials_are_used_without_a_login_by_priority_and_in_turns() {
    let (host, credential_store) = credential_store(&[
        ("low", credentials("l", 1, None)),
        ("a", credentials("a", 9, None)),
        ("b", credentials("b", 9, None)),
    ]);
    let mut keys = vec![];
    for _ in 0..4 {
        keys.push(credential_store.connection().await.unwrap().key.clone());
    }
    keys.sort();
    assert_eq!(keys, ["a", "a", "b", "b"]);
    assert!(lock(&host.tasks).is_empty());
}

// contract: api 7.3
#[tokio::test]
async fn expired_credentials_are_skipped() {
    let (_, credential_store) = credential_store(&[
        ("old", credentials("o", 9, Some(1.0))),
        ("new", credentials("n", 1, Some(1e12))),
    ]);
    assert_eq!(credential_store.connection().await.unwrap().key, "new");
}

// contract: api 7.3
#[tokio::test]
async fn rejected_credentials_are_replaced_and_not_reused() {
    let (host, credential_store) = credential_store(&[("k", credentials("1", 0, None))]);
    credential_store.invalidate(&credential_store.connection().await.unwrap());
    let both = Ok(vec![("k", credentials("1", 0, None)), ("other", credentials("1", 0, None))]);
    let (got, ()) = tokio::join!(credential_store.connection(), log_in(&host, both));
    assert_eq!(got.unwrap().key, "other");
    credential_store.on_authorized();
    credential_store.invalidate(&credential_store.connection().await.unwrap());
    let again = Ok(vec![("k", credentials("1", 0, None))]);
    let (got, ()) = tokio::join!(credential_store.connection(), log_in(&host, again));
    let text = got.err().unwrap().0;
    assert!(text.starts_with("Ran out of valid credentials. The API server http://127.0.0.1:1"), "{text}");
    assert!(text.contains("rejects the credentials from k (401 Unauthorized)"), "{text}");
    assert_eq!(
        host.lines("authentication has"),
        [
            "INFO Initial authentication has been initiated.",
            "INFO Initial authentication has finished.",
            "INFO Re-authentication has been initiated.",
            "WARNING Re-authentication has failed: no credentials were retrieved from the login handlers.",
        ]
    );
}

// contract: observed 8
#[tokio::test]
async fn a_login_that_fails_for_good_is_an_error_at_once() {
    let (host, credential_store) = credential_store(&[]);
    let (got, ()) =
        tokio::join!(credential_store.connection(), log_in(&host, Err("One or more handlers failed.")));
    assert_eq!(got.err().unwrap().0, "One or more handlers failed.");
}

#[tokio::test]
async fn credentials_that_have_already_expired_at_the_login_are_named() {
    let (host, credential_store) = credential_store(&[]);
    let expired = Ok(vec![("k", credentials("1", 0, Some(1.0))), ("other", credentials("1", 0, Some(2.0)))]);
    let (got, ()) = tokio::join!(credential_store.connection(), log_in(&host, expired));
    let text = got.err().unwrap().0;
    assert!(
        text.contains("Ran out of valid credentials. Those from k, other have already expired"),
        "{text}"
    );
}

// contract: engine 1.9
#[tokio::test]
async fn other_credentials_are_used_after_a_401_but_not_after_a_403() {
    let respond_with = |status: u16| move |_: &Got| -> FakeResponse { (status, Some(json!({}))) };
    let fixture = Fixture::new(&json!({"networking": {"error_backoffs": []}}), respond_with(401));
    fixture.credential_store.admit(Connection::fake("second", client(&fixture.requests, respond_with(200))));
    for _ in 0..3 {
        assert!(fixture.shared.base.client.get("/api").await.is_ok());
    }
    let sent = fixture.requests().iter().filter(|got| got.path == "/api").count();
    assert!((3..=4).contains(&sent), "the rejected credentials are used once, if at all");

    let fixture = Fixture::new(&json!({"networking": {"error_backoffs": []}}), respond_with(403));
    assert_eq!(
        fixture.shared.base.client.get("/api").await.err().and_then(|error| error.status()),
        Some(403)
    );
    assert!(lock(&fixture.host.tasks).is_empty());
    assert!(fixture.credential_store.connection().await.is_ok());
}

/// A store whose credentials were accepted once, with its current connection.
async fn renewable(login_timeout: f64) -> (Arc<FakeHost>, Arc<CredentialStore>, Arc<Connection>) {
    let options = CredentialStoreOptions { login_timeout, ..credential_store_options() };
    let (host, credential_store) = credential_store_with(options, &[("given", credentials("g", 0, None))]);
    credential_store.on_authorized();
    let connection = credential_store.connection().await.unwrap();
    (host, credential_store, connection)
}

#[tokio::test(start_paused = true)]
async fn rejected_certificates_start_a_login_but_not_twice_in_a_row() {
    let (host, credential_store, old) = renewable(60.0).await;
    tokio::join!(credential_store.renew(&old), log_in(&host, Ok(vec![("k", credentials("1", 0, None))])));
    let new = credential_store.connection().await.unwrap();
    assert_eq!(new.key, "k");
    credential_store.renew(&old).await; // by another request, which was on its way
    credential_store.renew(&new).await; // too early
    assert!(lock(&host.tasks).is_empty());
    assert!(Arc::ptr_eq(&new, &credential_store.connection().await.unwrap()));
    tokio::time::advance(std::time::Duration::from_millis(600)).await;
    tokio::join!(credential_store.renew(&new), log_in(&host, Ok(vec![("k", credentials("1", 0, None))])));
    assert!(
        !Arc::ptr_eq(&new, &credential_store.connection().await.unwrap()),
        "the files were read once more"
    );
}

#[tokio::test(start_paused = true)]
async fn distrusted_connections_stay_in_use_if_there_are_no_others() {
    let (host, credential_store, old) = renewable(60.0).await;
    for login in [Ok(vec![]), Err("no luck")] {
        tokio::join!(credential_store.renew(&old), log_in(&host, login));
        assert!(Arc::ptr_eq(&old, &credential_store.connection().await.unwrap()));
        tokio::time::advance(std::time::Duration::from_secs(11)).await;
    }
    assert_eq!(host.lines("Certificates are not accepted").len(), 2);
    assert_eq!(host.lines("cannot be read again: no luck").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_login_is_a_renewal_only_if_no_credentials_are_rejected() {
    let (host, credential_store, connection) = renewable(60.0).await;
    let requested = || match lock(&host.tasks).pop() {
        Some(HostTask::Login(task)) => {
            (task.is_renewal, task.reply.send(Ok(Login::Provided(vec![]))).is_ok())
        }
        other => panic!("{other:?}"),
    };
    let replied = async {
        yield_now().await;
        requested()
    };
    let ((), renewal) = tokio::join!(credential_store.renew(&connection), replied);
    assert_eq!(renewal, (true, true));
    credential_store.invalidate(&connection);
    assert!(credential_store.connection().now_or_never().is_none());
    assert_eq!(requested(), (false, true));
}

#[tokio::test(start_paused = true)]
async fn without_a_login_timeout_certificates_are_read_only_once() {
    let (host, credential_store, old) = renewable(0.0).await;
    credential_store.renew(&old).await;
    assert!(lock(&host.tasks).is_empty());
}

/// A client of a server that does not exist, without credentials.
fn connected_client(
    settings: &serde_json::Value,
    options: CredentialStoreOptions,
) -> (Arc<FakeHost>, Arc<CredentialStore>, crate::client::Client) {
    let (host, credential_store) = credential_store_with(options, &[]);
    let settings = Arc::new(serde_json::from_value(settings.clone()).unwrap());
    let as_host: Arc<dyn Host> = Arc::<FakeHost>::clone(&host);
    let client = crate::client::Client::new(Arc::clone(&credential_store), settings, as_host, Clock::start());
    (host, credential_store, client)
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_network_after_a_rejected_certificate_start_no_login() {
    let options = CredentialStoreOptions { login_timeout: 60.0, ..credential_store_options() };
    let (host, credential_store, client) = connected_client(&json!({}), options);
    let attempts = AtomicUsize::new(0);
    let connector: Connector = Box::new(move || {
        let is_first = attempts.fetch_add(1, Ordering::Relaxed) == 0;
        let issuer = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let error: tower::BoxError = if is_first { issuer.into() } else { "no route".into() };
        Box::pin(std::future::ready(Err(error)))
    });
    credential_store.admit(Connection::fake("only", connector));
    credential_store.on_authorized();
    let (failed, ()) = tokio::join!(client.get_once("/api"), log_in(&host, Ok(vec![])));
    assert!(failed.unwrap_err().to_string().contains("UnknownIssuer"));
    for _ in 0..3 {
        // Longer than the delay between logins.
        tokio::time::advance(Duration::from_mins(1)).await;
        let failed = tokio::time::timeout(Duration::from_secs(30), client.get_once("/api")).await;
        let error = failed.expect("no login is awaited").unwrap_err();
        assert!(error.to_string().contains("no route"), "{error}");
    }
    assert!(lock(&host.tasks).is_empty());
    assert_eq!(host.lines("Certificates are not accepted").len(), 1);
}

/// Takes the requested login, waits, and returns credentials.
async fn log_in_slowly(host: &FakeHost, seconds: u64) {
    let task = loop {
        if let Some(HostTask::Login(task)) = lock(&host.tasks).pop() {
            break task;
        }
        yield_now().await;
    };
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let items = vec![("k".to_owned(), credentials("t", 0, None))];
    assert!(task.reply.send(Ok(Login::Provided(items))).is_ok(), "the login is still waited for");
}

#[tokio::test(start_paused = true)]
async fn a_login_may_take_longer_than_requests_and_happens_once_for_all() {
    let settings = json!({"networking": {"request_timeout": 5, "connect_timeout": 5, "error_backoffs": [], "request_limit": 1}});
    let (host, credential_store, client) = connected_client(&settings, credential_store_options());
    let requests = async {
        let (first, second, stream) = tokio::join!(
            client.get("/x"),
            client.get("/y"),
            client.stream("/z", crate::client::RequestBody::None)
        );
        for error in [first.err(), second.err(), stream.err()] {
            let text = error.unwrap().to_string();
            assert!(text.contains("cannot reach"), "they were sent after the login: {text}");
        }
    };
    tokio::join!(requests, log_in_slowly(&host, 8));
    assert!(lock(&host.tasks).is_empty());
    assert!(credential_store.connection().await.is_ok());
    assert_eq!(host.lines("authentication has been initiated").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_login_goes_on_although_the_request_that_started_it_is_abandoned() {
    let (host, credential_store) = credential_store(&[]);
    let abandoned = tokio::time::timeout(Duration::from_secs(1), credential_store.connection());
    let (abandoned, ()) = tokio::join!(abandoned, log_in_slowly(&host, 2));
    assert!(abandoned.is_err());
    assert_eq!(credential_store.connection().await.unwrap().key, "k");
    assert!(lock(&host.tasks).is_empty(), "there is no second login");
}

#[tokio::test(start_paused = true)]
async fn accepted_requests_do_not_wait_for_logins() {
    let (host, credential_store, old) = renewable(60.0).await;
    let renewal = credential_store.renew(&old);
    let mut renewal = std::pin::pin!(renewal);
    tokio::select! {
        biased;
        () = &mut renewal => panic!("the login hangs"),
        () = yield_now() => {}
    }
    credential_store.on_authorized();
    drop(host);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_cannot_be_used_are_reported_and_the_next_login_is_tried() {
    let (host, credential_store, old) = renewable(60.0).await;
    credential_store.invalidate(&old);
    let bad = Credentials { server: "no-scheme:1".to_owned(), ..credentials("t", 0, None) };
    let logins = async {
        log_in(&host, Ok(vec![("k", credentials("plan\nted", 0, None))])).await;
        log_in(&host, Ok(vec![("k", bad)])).await;
        log_in(
            &host,
            Ok(vec![("k", credentials("plan\nted", 0, None)), ("good", credentials("g", 0, None))]),
        )
        .await;
    };
    let (connection, ()) = tokio::join!(credential_store.connection(), logins);
    assert_eq!(connection.unwrap().key, "good");
    assert_eq!(host.lines("The token cannot be sent").len(), 2);
    assert_eq!(host.lines("no scheme").len(), 1);
    assert!(host.lines("ted").iter().all(|line| !line.contains("plan")));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_login_ends_a_moment_after_the_operator_is_stopped() {
    let options = credential_store_options();
    let stopping = options.stopping.clone();
    let (_other_side, credential_store) = credential_store_with(options, &[]);
    stopping.cancel();
    let start = tokio::time::Instant::now();
    assert_eq!(credential_store.connection().await.err().unwrap().0, INTERRUPTED);
    assert_eq!(start.elapsed(), EXIT_GRACE);
}

// contract: observed 8
#[tokio::test(start_paused = true)]
async fn logins_that_fail_for_good_leave_kopf_1_45_without_credentials_until_it_is_stopped() {
    let mut options = credential_store_options();
    options.connections.compat = true;
    let stopping = options.stopping.clone();
    let (host, credential_store) = credential_store_with(options, &[]);
    let waiting = tokio::time::timeout(Duration::from_secs(10_000), credential_store.connection());
    let (waited, ()) = tokio::join!(waiting, log_in(&host, Err("One or more handlers failed.")));
    assert!(waited.is_err());
    stopping.cancel();
    assert!(credential_store.connection().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn requests_without_an_answer_end_at_their_timeout() {
    let fixture =
        Fixture::new(&json!({"networking": {"error_backoffs": []}}), |_: &Got| -> FakeResponse { (0, None) });
    let start = tokio::time::Instant::now();
    let error = fixture.shared.base.client.get("/api").await.err().unwrap();
    assert!(matches!(error, RequestError::Timeout), "{error}");
    assert_eq!(start.elapsed().as_secs(), 300);
    assert_eq!(
        fixture.lines("Request attempt #1/1 failed; escalating: GET http://fake/api -> TimeoutError()").len(),
        1
    );

    let fixture = Fixture::new(&json!({"networking": {"error_backoffs": []}}), |_: &Got| -> FakeResponse {
        (200, None)
    });
    let error = fixture.shared.base.client.get("/api").await.err().unwrap();
    assert!(matches!(error, RequestError::Timeout), "a body that never ends: {error}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_response_ends_with_the_inactivity_timeout() {
    let fixture = Fixture::new(&json!({}), |_: &Got| -> FakeResponse { (0, None) });
    let start = tokio::time::Instant::now();
    let error =
        fixture.shared.base.client.stream("/api", crate::client::RequestBody::None).await.err().unwrap();
    assert!(matches!(error, RequestError::Timeout), "{error}");
    assert_eq!(start.elapsed().as_secs(), 70);
}

#[tokio::test(start_paused = true)]
async fn a_watch_waits_for_a_response_as_long_as_configured() {
    let table = [
        (json!({"watching": {"inactivity_timeout": 7}}), 7),
        (json!({"watching": {"inactivity_timeout": 70}}), 70),
        (json!({"watching": {"inactivity_timeout": 70, "connect_timeout": 5}}), 5),
        (json!({"watching": {"inactivity_timeout": null}, "networking": {"request_timeout": 90}}), 90),
    ];
    for (settings, expected) in table {
        let fixture = Fixture::new(&settings, |_: &Got| -> FakeResponse { (0, None) });
        let start = tokio::time::Instant::now();
        let error =
            fixture.shared.base.client.stream("/api", crate::client::RequestBody::None).await.err().unwrap();
        assert!(matches!(error, RequestError::Timeout), "{error}");
        assert_eq!(start.elapsed().as_secs(), expected, "{settings}");
    }
}

#[tokio::test(start_paused = true)]
async fn too_long_retry_after_delays_are_limited() {
    let status = json!({"kind": "Status", "details": {"retryAfterSeconds": 4_294_967_295_u32}});
    let fixture =
        Fixture::new(&json!({"networking": {"error_backoffs": [1]}}), move |_: &Got| -> FakeResponse {
            (429, Some(status.clone()))
        });
    let start = tokio::time::Instant::now();
    assert!(fixture.shared.base.client.get("/api").await.is_err());
    assert_eq!(start.elapsed().as_secs(), 60);
    assert_eq!(fixture.lines("Overriding the backoff 1s with the retry-after 60s from the server").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_are_limited_by_the_settings() {
    let settings = json!({"networking": {"error_backoffs": [], "request_limit": 3, "request_timeout": 10}});
    let fixture = Fixture::new(&settings, |_: &Got| -> FakeResponse { (0, None) });
    let requests = futures::future::join_all((0..7).map(|_| fixture.shared.base.client.get("/api")));
    let start = tokio::time::Instant::now();
    assert!(requests.await.iter().all(Result::is_err));
    assert_eq!(start.elapsed().as_secs(), 30, "three, three, and one");
}
