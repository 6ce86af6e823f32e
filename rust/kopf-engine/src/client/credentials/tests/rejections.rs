//! Credentials that the server rejects again and again: when the logins are repeated, and when they end.

use std::sync::atomic::AtomicU64;

use futures::future::join_all;
use tokio::time::{Instant, advance};

use super::*;
use crate::host::LogRecord;
use crate::time::duration::seconds;

/// A host whose login handlers return credentials at once.
struct LoginHost {
    start: Instant,
    /// The credentials of a login, by its number from 1.
    returned: Box<dyn Fn(u64) -> Vec<(&'static str, Credentials)> + Send + Sync>,
    /// The seconds of the logins.
    logins: Mutex<Vec<f64>>,
    lines: Mutex<Vec<String>>,
}

impl Host for LoginHost {
    fn submit(&self, task: HostTask) {
        let HostTask::Login(task) = task else { return };
        let number = {
            let mut logins = lock(&self.logins);
            logins.push(self.start.elapsed().as_secs_f64());
            logins.len() as u64
        };
        let items = (self.returned)(number).into_iter().map(|(key, given)| (key.to_owned(), given)).collect();
        let _gone = task.reply.send(Ok(Login::Provided(items)));
    }

    fn log(&self, entry: LogRecord) {
        lock(&self.lines).push(format!("{} {}", entry.level.as_str(), entry.text));
    }

    fn enabled(&self, _: Level) -> bool {
        true
    }
}

/// A store, its host, and a server that accepts or rejects requests by the number of the last login, and by the time.
struct Scene {
    host: Arc<LoginHost>,
    store: Arc<CredentialStore>,
    accepts: Box<dyn Fn(u64, f64) -> bool + Send + Sync>,
    requests: AtomicU64,
}

impl Scene {
    fn new(
        login_timeout: f64,
        returned: impl Fn(u64) -> Vec<(&'static str, Credentials)> + Send + Sync + 'static,
        accepts: impl Fn(u64, f64) -> bool + Send + Sync + 'static,
    ) -> Self {
        let host = Arc::new(LoginHost {
            start: Instant::now(),
            returned: Box::new(returned),
            logins: Mutex::default(),
            lines: Mutex::default(),
        });
        let options = CredentialStoreOptions { login_timeout, ..credential_store_options() };
        let as_host: Arc<dyn Host> = Arc::<LoginHost>::clone(&host);
        let store = Arc::new(CredentialStore::new(as_host, options, &[]).unwrap());
        Self { host, store, accepts: Box::new(accepts), requests: AtomicU64::default() }
    }

    /// With a new token at each login.
    fn with_new_tokens(
        login_timeout: f64,
        accepts: impl Fn(u64, f64) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::new(login_timeout, |number| vec![("plugin", token(number))], accepts)
    }

    fn elapsed(&self) -> f64 {
        self.host.start.elapsed().as_secs_f64()
    }

    /// Sends a request as the client does: 401 discards the credentials and continues with others.
    async fn request(&self) -> Result<(), LoginError> {
        loop {
            let connection = self.store.connection().await?;
            let earlier = self.requests.fetch_add(1, Ordering::Relaxed);
            assert!(earlier < 1000, "a tight loop of logins and requests");
            // The response takes a moment, in which other requests are sent.
            yield_now().await;
            let logins = lock(&self.host.logins).len() as u64;
            if (self.accepts)(logins, self.elapsed()) {
                self.store.on_authorized();
                return Ok(());
            }
            self.store.invalidate(&connection);
        }
    }

    /// The seconds of the logins since a moment.
    fn logins_since(&self, moment: f64) -> Vec<f64> {
        let logins = lock(&self.host.logins);
        let since = logins.iter().filter(|at| **at > moment - 0.001);
        since.map(|at| ((at - moment) * 1000.0).round() / 1000.0).collect()
    }

    fn lines(&self, part: &str) -> Vec<String> {
        lock(&self.host.lines).iter().filter(|line| line.contains(part)).cloned().collect()
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

fn token(number: u64) -> Credentials {
    credentials(&format!("t{number}"), 0, None)
}

const REJECTED: &str =
    "The API server http://127.0.0.1:1 rejects the credentials from plugin (401 Unauthorized)";

/// The error and the log lines name the server, the handler, and the status.
fn check_texts(scene: &Scene, error: &LoginError, delays: &[f64]) {
    assert_eq!(error.0, format!("Ran out of valid credentials. {REJECTED}: they are wrong or have expired."));
    let line = |delay| format!("WARNING {REJECTED}. The credentials are read again in {delay} seconds.");
    assert_eq!(scene.lines("WARNING"), delays.iter().map(line).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn new_tokens_that_were_never_accepted_are_tried_a_few_times() {
    let scene = Scene::with_new_tokens(60.0, |_, _| false);
    let error = scene.request().await.unwrap_err();
    assert_eq!(scene.logins_since(0.0), [0.0, 0.0, 0.5, 1.5]);
    assert_eq!(scene.requests(), 4);
    check_texts(&scene, &error, &[0.5, 1.0]);
}

#[tokio::test(start_paused = true)]
async fn new_tokens_after_an_accepted_one_are_tried_until_the_login_timeout() {
    let scene = Scene::with_new_tokens(60.0, |number, _| number == 1);
    scene.request().await.unwrap();
    // The first token is revoked.
    let first = scene.store.connection().await.unwrap();
    scene.store.invalidate(&first);
    let error = scene.request().await.unwrap_err();
    let expected = [0.0, 0.5, 1.5, 3.5, 8.5, 18.5, 28.5, 38.5, 48.5, 58.5, 68.5];
    assert_eq!(scene.logins_since(0.0)[1..], expected);
    assert_eq!(scene.requests(), 1 + 11);
    check_texts(&scene, &error, &[0.5, 1.0, 2.0, 5.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]);
    // Other requests get the same error, after one login each.
    let error = scene.request().await.unwrap_err();
    assert!(error.0.contains(REJECTED), "{error}");
    assert_eq!(scene.logins_since(68.5), [0.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn without_a_login_timeout_there_is_one_login_after_a_rejection() {
    let scene = Scene::with_new_tokens(0.0, |_, _| false);
    assert!(scene.request().await.is_err());
    assert_eq!(scene.logins_since(0.0), [0.0, 0.0]);
    assert_eq!(scene.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_accepted_request_resets_the_delays_and_the_time_limit() {
    // Each outage lasts for 40 seconds, with the first one right after the start.
    let is_outage = |now: f64| (1.0..41.0).contains(&now) || (50.0..90.0).contains(&now);
    let scene = Scene::with_new_tokens(60.0, move |_, now| !is_outage(now));
    scene.request().await.unwrap();
    for (from, until) in [(1.0, 41.0), (50.0, 90.0)] {
        advance(seconds(from - scene.elapsed())).await;
        scene.request().await.unwrap();
        assert_eq!(scene.logins_since(from), [0.0, 0.5, 1.5, 3.5, 8.5, 18.5, 28.5, 38.5, 48.5]);
        assert!(scene.elapsed() > until);
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_that_expire_between_accepted_requests_cause_no_delays() {
    let scene = Scene::with_new_tokens(60.0, |_, _| true);
    for number in 0..100 {
        scene.request().await.unwrap();
        scene.request().await.unwrap();
        assert_eq!(lock(&scene.host.logins).len(), number + 1);
        let expired = scene.store.connection().await.unwrap();
        scene.store.invalidate(&expired);
    }
    assert_eq!(scene.elapsed().to_string(), "0");
    assert!(scene.lines("WARNING").is_empty());
}

#[tokio::test(start_paused = true)]
async fn concurrent_rejections_count_as_one_login() {
    let scene = Scene::with_new_tokens(60.0, |number, _| number == 1 || number == 4);
    scene.request().await.unwrap();
    let old = scene.store.connection().await.unwrap();
    advance(seconds(100.0)).await;
    // All of these requests were sent with the old token.
    for _ in 0..20 {
        scene.store.invalidate(&old);
    }
    let late = async {
        for _ in 0..20 {
            // Responses to earlier requests, during the logins and the delays.
            scene.store.invalidate(&old);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (outcomes, ()) = tokio::join!(join_all((0..20).map(|_| scene.request())), late);
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(scene.logins_since(100.0), [0.0, 0.5, 1.5]);
    assert_eq!(scene.lines("WARNING").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn several_rejected_credentials_of_a_login_count_once() {
    let returned = |number| vec![("plugin", token(2 * number)), ("other", token(2 * number + 1))];
    let scene = Scene::new(60.0, returned, |number, _| number == 4);
    scene.request().await.unwrap();
    assert_eq!(scene.logins_since(0.0), [0.0, 0.0, 0.5, 1.5]);
    assert_eq!(scene.requests(), 3 * 2 + 1);
    let [line, _] = &scene.lines("WARNING")[..] else { panic!("{:?}", scene.lines("WARNING")) };
    assert!(line.contains("rejects the credentials from other, plugin (401 Unauthorized)"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn the_same_token_is_tried_again_after_each_delay_if_it_was_accepted_before() {
    let scene = Scene::new(60.0, |_| vec![("plugin", token(1))], |_, now| !(10.0..14.0).contains(&now));
    scene.request().await.unwrap();
    advance(seconds(10.0)).await;
    scene.request().await.unwrap();
    assert_eq!(scene.logins_since(10.0), [0.0, 0.5, 1.5, 3.5, 8.5]);
}

#[tokio::test(start_paused = true)]
async fn the_same_token_is_tried_once_if_it_was_never_accepted() {
    let scene = Scene::new(60.0, |_| vec![("plugin", token(1))], |_, _| false);
    let error = scene.request().await.unwrap_err();
    assert!(error.0.contains(REJECTED), "{error}");
    assert_eq!((scene.logins_since(0.0), scene.requests()), (vec![0.0, 0.0], 1));
}

#[tokio::test(start_paused = true)]
async fn responses_of_a_failing_server_are_no_sign_that_it_accepts_the_credentials() {
    for status in [500, 502, 503, 504] {
        let options = CredentialStoreOptions { login_timeout: 60.0, ..credential_store_options() };
        let (host, store, client) = connected_client(&json!({}), options);
        let requests = Arc::default();
        let respond = move |_: &Got| -> FakeResponse { (status, Some(json!({}))) };
        store.admit(Connection::fake("only", crate::testing::client(&requests, respond)));
        assert_eq!(client.get_once("/api").await.unwrap_err().status(), Some(status));
        store.invalidate(&store.connection().await.unwrap());
        // No credentials were accepted yet, so that missing ones are not awaited.
        let login = async { tokio::join!(store.connection(), log_in(&host, Ok(vec![]))).0 };
        let ended = tokio::time::timeout(Duration::from_secs(5), login).await.expect("there is one login");
        assert!(ended.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn the_reason_for_which_credentials_are_read_again_is_logged() {
    let expired = |number| credentials(&format!("t{number}"), 0, (number == 2).then_some(1.0));
    let scene = Scene::new(60.0, move |number| vec![("plugin", expired(number))], |_, _| true);
    scene.request().await.unwrap();
    scene.store.invalidate(&scene.store.connection().await.unwrap());
    scene.request().await.unwrap();
    let lines = scene.lines("WARNING");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains("Those from plugin have already expired: check `expiration`"), "{line}");
    assert!(line.ends_with(". The credentials are read again in 0.5 seconds."), "{line}");
}
