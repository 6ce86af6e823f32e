//! Tokens from files and plugins: whitespace, validation, renewal.

use std::time::Duration;

use kube::config::ExecInteractiveMode;
use tokio::time::sleep;

use super::*;

/// A temporary file, which is removed on drop.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kopf-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn read(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn token_file(path: &str) -> AuthInfo {
    AuthInfo { token_file: Some(path.to_owned()), ..AuthInfo::default() }
}

async fn shown(authorization: &Authorization, clock: &Clock) -> String {
    let value = authorization.header(clock).await.unwrap().unwrap();
    assert!(value.is_sensitive());
    value.to_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn token_files_are_trimmed_and_read_again() {
    let file = TestFile::new("token", " first\n");
    let clock = Clock::start();
    let authorization = Authorization::of(&token_file(file.0.to_str().unwrap()), &clock).unwrap();
    assert_eq!(shown(&authorization, &clock).await, "Bearer first");
    std::fs::write(&file.0, "second\n").unwrap();
    assert_eq!(shown(&authorization, &clock).await, "Bearer first");
    sleep(Duration::from_secs(61)).await;
    assert_eq!(shown(&authorization, &clock).await, "Bearer second");
    std::fs::remove_file(&file.0).unwrap();
    sleep(Duration::from_secs(61)).await;
    assert_eq!(shown(&authorization, &clock).await, "Bearer second", "the last one counts");
}

#[test]
fn token_files_that_cannot_be_read_or_are_empty_are_errors() {
    let clock = Clock::start();
    let missing = Authorization::of(&token_file("/nonexistent/token"), &clock).err().unwrap();
    assert!(missing.0.contains("/nonexistent/token cannot be read"), "{missing}");
    let file = TestFile::new("empty-token", " \n");
    let empty = Authorization::of(&token_file(file.0.to_str().unwrap()), &clock).err().unwrap();
    assert!(empty.0.contains("is empty"), "{empty}");
}

#[test]
fn characters_that_headers_cannot_have_are_errors_without_the_secret() {
    for error in [
        bearer("plan\nted").err().unwrap(),
        sensitive("Weird\r\nplanted", "The scheme").err().unwrap(),
        basic("planted:user", &"p".to_owned().into()).err().unwrap(),
        basic("planted\nuser", &"p".to_owned().into()).err().unwrap(),
    ] {
        assert!(!error.0.contains("planted") && !error.0.contains("plan\nted"), "{error}");
    }
    assert_eq!(bearer(" trimmed\n").unwrap(), "Bearer trimmed");
    assert_eq!(basic("u", &"p\n".to_owned().into()).unwrap(), "Basic dTpwCg==");
}

/// A plugin that counts its runs and returns tokens valid for `seconds`, and the file with the count.
fn plugin(name: &str, seconds: i64, then: &str) -> (ExecConfig, TestFile) {
    let runs = TestFile::new(name, "");
    let script = format!(
        "echo run >> {path}; {then}\n\
         expires=$(date -u -d \"@$(($(date +%s) + {seconds}))\" +%Y-%m-%dT%H:%M:%SZ)\n\
         echo '{{\"status\": {{\"token\": \"t'$(wc -l < {path})'\", \"expirationTimestamp\": \"'$expires'\"}}}}'",
        path = runs.0.display()
    );
    let config = ExecConfig {
        command: Some("sh".to_owned()),
        args: Some(vec!["-c".to_owned(), script]),
        interactive_mode: Some(ExecInteractiveMode::Never),
        ..ExecConfig::default()
    };
    (config, runs)
}

/// The token of the plugin has expired.
fn expire(plugin: &Plugin, clock: &Clock) {
    let now = clock.now();
    lock(&plugin.current).token = PluginToken::new(now.plus(-100.0), Some(now.plus(-1.0)));
}

/// The token of the plugin is still valid, but due for renewal.
fn make_due(plugin: &Plugin, clock: &Clock) {
    let now = clock.now();
    lock(&plugin.current).token = PluginToken::new(now.plus(-1000.0), Some(now.plus(50.0)));
}

async fn started(config: &ExecConfig, clock: &Clock) -> Authorization {
    let status = exec::run(config).await.unwrap();
    Authorization::of_plugin(config.clone(), &status, clock).unwrap()
}

#[tokio::test]
async fn a_plugin_does_not_run_for_each_request_although_its_token_expires_soon() {
    for seconds in [5, 0] {
        let (config, runs) = plugin(&format!("soon-{seconds}"), seconds, "");
        let clock = Clock::start();
        let authorization = started(&config, &clock).await;
        for _ in 0..20 {
            authorization.header(&clock).await.unwrap();
        }
        assert!(runs.read().lines().count() <= 2, "{}", runs.read());
    }
}

#[tokio::test]
async fn an_expiring_token_is_renewed_once_for_all_requests() {
    let (config, runs) = plugin("renewal", 1000, "sleep 0.2");
    let clock = Clock::start();
    let authorization = started(&config, &clock).await;
    let Authorization::Plugin(plugin) = &authorization else { panic!() };
    expire(plugin, &clock);
    let all = futures::future::join_all((0..10).map(|_| authorization.header(&clock))).await;
    assert!(all.iter().all(|one| one.as_ref().unwrap().as_ref().unwrap() == "Bearer t2"));
    assert_eq!(runs.read().lines().count(), 2);
}

#[tokio::test]
async fn a_renewal_goes_on_although_the_requests_that_wait_for_it_are_abandoned() {
    let gate = TestFile::new("gate", "");
    let script = format!("until [ -e {} ]; do sleep 0.02; done", gate.0.display());
    let (config, runs) = plugin("abandoned", 1000, &script);
    let clock = Clock::start();
    let authorization = started(&config, &clock).await;
    let Authorization::Plugin(plugin) = &authorization else { panic!() };
    let header = || authorization.header(&clock);
    std::fs::remove_file(&gate.0).unwrap();
    make_due(plugin, &clock);
    let valid = header().now_or_never().expect("a valid token is used without delay");
    assert_eq!(valid.unwrap().unwrap(), "Bearer t1");
    expire(plugin, &clock);
    assert!(header().now_or_never().is_none());
    std::fs::write(&gate.0, "").unwrap();
    assert_eq!(header().await.unwrap().unwrap(), "Bearer t2");
    assert_eq!(runs.read().lines().count(), 2);
}

#[tokio::test]
async fn a_plugin_ends_with_the_connection() {
    let gate = TestFile::new("endless", "");
    let script = format!("until [ -e {} ]; do sleep 0.02; done", gate.0.display());
    let (config, _runs) = plugin("ended", 1000, &script);
    let clock = Clock::start();
    let authorization = started(&config, &clock).await;
    let Authorization::Plugin(plugin) = &authorization else { panic!() };
    std::fs::remove_file(&gate.0).unwrap();
    make_due(plugin, &clock);
    authorization.header(&clock).await.unwrap();
    let renewal = lock(&plugin.renewal).clone().unwrap();
    let task = renewal.task.clone();
    drop((renewal, authorization));
    let ended = async {
        while !task.is_finished() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the plugin is killed");
}

#[tokio::test]
async fn a_failing_plugin_is_no_error_while_its_token_is_valid() {
    let (config, runs) = failing_plugin("failing");
    let clock = Clock::start();
    let authorization = started(&config, &clock).await;
    let Authorization::Plugin(plugin) = &authorization else { panic!() };
    make_due(plugin, &clock);
    assert_eq!(authorization.header(&clock).await.unwrap().unwrap(), "Bearer t1");
    let renewal = lock(&plugin.renewal).clone().unwrap();
    assert_eq!(renewal.outcome.await.unwrap(), "Bearer t1");
    assert_eq!(authorization.header(&clock).await.unwrap().unwrap(), "Bearer t1");
    assert_eq!(runs.read().lines().count(), 2, "not at once again");
    expire(plugin, &clock);
    let error = authorization.header(&clock).await.err().unwrap();
    assert!(error.0.contains("exit status: 1"), "{error}");
}

/// A plugin that succeeds once, and then fails.
fn failing_plugin(name: &str) -> (ExecConfig, TestFile) {
    let (config, runs) = plugin(name, 1000, "[ $(wc -l < $0) -le 1 ] || exit 1");
    let path = runs.0.to_str().unwrap().to_owned();
    let args = config.args.map(|args| args.into_iter().chain([path]).collect());
    (ExecConfig { args, ..config }, runs)
}

#[tokio::test]
async fn a_failing_plugin_does_not_run_for_each_request_although_its_token_has_expired() {
    let (config, runs) = failing_plugin("failed");
    let clock = Clock::start();
    let authorization = started(&config, &clock).await;
    let Authorization::Plugin(plugin) = &authorization else { panic!() };
    expire(plugin, &clock);
    let begun = tokio::time::Instant::now();
    for _ in 0..20 {
        let error = authorization.header(&clock).await.err().unwrap();
        assert!(error.0.contains("exit status: 1"), "{error}");
    }
    // The first run, and at most one per second.
    let most = 3 + begun.elapsed().as_secs();
    assert!(runs.read().lines().count() as u64 <= most, "{}", runs.read());
}

#[tokio::test]
async fn a_renewed_token_without_expiration_is_used_until_it_is_rejected() {
    let runs = TestFile::new("unlimited", "");
    let script = "echo run >> RUNS\n\
        if [ $(wc -l < RUNS) -eq 1 ]; then echo 'status: {token: t1, expirationTimestamp: \"2100-01-01T00:00:00Z\"}'\n\
        else echo 'status: {token: t2}'; fi";
    let (mut config, _) = plugin("unused", 0, "");
    let script = script.replace("RUNS", runs.0.to_str().unwrap());
    config.args = Some(vec!["-c".to_owned(), script]);
    let clock = Clock::start();
    let authorization = started(&config, &clock).await;
    let Authorization::Plugin(plugin) = &authorization else { panic!() };
    expire(plugin, &clock);
    for _ in 0..5 {
        assert_eq!(authorization.header(&clock).await.unwrap().unwrap(), "Bearer t2");
        let renewal = lock(&plugin.renewal).clone().unwrap();
        renewal.outcome.await.unwrap();
    }
    assert_eq!(runs.read().lines().count(), 2, "{}", runs.read());
}

#[test]
fn auth_providers_of_old_clients_are_used_as_far_as_their_tokens_go() {
    let clock = Clock::start();
    let provider = |json: &str| {
        let auth: AuthInfo = serde_json::from_str(&format!("{{\"auth-provider\": {json}}}")).unwrap();
        Authorization::of(&auth, &clock)
    };
    assert!(matches!(
        provider(r#"{"name": "oidc", "config": {"id-token": "t"}}"#),
        Ok(Authorization::Fixed(value)) if value == "Bearer t"
    ));
    let error = provider(r#"{"name": "gcp", "config": {"cmd-path": "planted"}}"#).err().unwrap();
    assert!(error.0.contains("\"gcp\"") && !error.0.contains("planted"), "{error}");
}
