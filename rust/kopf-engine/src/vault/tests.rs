//! Credentials that are chosen, refused, and asked for again.

use std::sync::Arc;

use serde_json::json;
use tokio::task::yield_now;

use super::*;
use crate::testing::{Answer, Got, OtherSide, Stage, client, lock};

fn credentials(token: &str, priority: i64, expiration: Option<f64>) -> Credentials {
    let fields = json!({"server": "http://127.0.0.1:1", "token": token, "priority": priority, "expiration": expiration});
    serde_json::from_value(fields).unwrap()
}

fn vault(given: &[(&str, Credentials)]) -> (Arc<OtherSide>, Arc<Vault>) {
    let other_side = Arc::new(OtherSide::default());
    let given: Vec<_> = given.iter().map(|(key, given)| ((*key).to_owned(), given.clone())).collect();
    let invoker: Arc<dyn Invoker> = Arc::<OtherSide>::clone(&other_side);
    (
        other_side,
        Arc::new(Vault::new(invoker, "test".to_owned(), &given, crate::clock::Clock::start()).unwrap()),
    )
}

/// Answers the login that is asked for now.
async fn log_in(other_side: &OtherSide, answer: Result<Vec<(&str, Credentials)>, &str>) {
    loop {
        if let Some(Job::Login(job)) = lock(&other_side.jobs).pop() {
            let items =
                answer.map(|items| items.into_iter().map(|(key, given)| (key.to_owned(), given)).collect());
            let _gone = job.reply.send(items.map(Login::Provided).map_err(str::to_owned));
            return;
        }
        yield_now().await;
    }
}

#[tokio::test]
async fn what_was_given_is_used_without_a_login_the_highest_first_and_equals_in_turns() {
    let (other_side, vault) = vault(&[
        ("low", credentials("l", 1, None)),
        ("a", credentials("a", 9, None)),
        ("b", credentials("b", 9, None)),
    ]);
    let mut keys = vec![];
    for _ in 0..4 {
        keys.push(vault.connection().await.unwrap().key.clone());
    }
    keys.sort();
    assert_eq!(keys, ["a", "a", "b", "b"]);
    assert!(lock(&other_side.jobs).is_empty());
}

#[tokio::test]
async fn expired_ones_are_passed_over() {
    let (_, vault) =
        vault(&[("old", credentials("o", 9, Some(1.0))), ("new", credentials("n", 1, Some(1e12)))]);
    assert_eq!(vault.connection().await.unwrap().key, "new");
}

#[tokio::test]
async fn refused_ones_are_replaced_and_not_taken_again() {
    let (other_side, vault) = vault(&[("given", credentials("g", 0, None))]);
    vault.invalidate(&vault.connection().await.unwrap()).await;
    let (got, ()) =
        tokio::join!(vault.connection(), log_in(&other_side, Ok(vec![("k", credentials("1", 0, None))])));
    let first = got.unwrap();
    assert_eq!(first.key, "k");
    vault.invalidate(&first).await;
    let (got, ()) =
        tokio::join!(vault.connection(), log_in(&other_side, Ok(vec![("k", credentials("2", 0, None))])));
    vault.invalidate(&got.unwrap()).await;
    let again = Ok(vec![("k", credentials("1", 0, None))]);
    let (got, ()) = tokio::join!(vault.connection(), log_in(&other_side, again));
    assert!(got.err().unwrap().0.starts_with("Ran out of valid credentials."));
    assert_eq!(
        other_side.lines("authentication has"),
        [
            "INFO Initial authentication has been initiated.",
            "INFO Initial authentication has finished.",
            "INFO Re-authentication has been initiated.",
            "INFO Re-authentication has finished.",
            "INFO Re-authentication has been initiated.",
            "WARNING Re-authentication has failed: no credentials were retrieved from the login handlers.",
        ]
    );
}

#[tokio::test]
async fn a_login_that_fails_for_good_is_an_error_at_once() {
    let (other_side, vault) = vault(&[]);
    let (got, ()) =
        tokio::join!(vault.connection(), log_in(&other_side, Err("One or more handlers failed.")));
    assert_eq!(got.err().unwrap().0, "One or more handlers failed.");
}

#[tokio::test]
async fn requests_go_on_with_others_after_a_401_and_a_403_is_no_matter_of_credentials() {
    let refusing = |status: u16| move |_: &Got| -> Answer { (status, Some(json!({}))) };
    let stage = Stage::new(&json!({"networking": {"error_backoffs": []}}), refusing(401));
    stage.vault.admit(Connection::fake("second", client(&stage.requests, refusing(200))));
    for _ in 0..3 {
        assert!(stage.shared.api.get("/api").await.is_ok());
    }
    assert!((3..=4).contains(&stage.requests().len()), "the refused ones are tried once, if at all");

    let stage = Stage::new(&json!({"networking": {"error_backoffs": []}}), refusing(403));
    assert_eq!(stage.shared.api.get("/api").await.err().and_then(|error| error.status()), Some(403));
    assert!(lock(&stage.other_side.jobs).is_empty());
    assert!(stage.vault.connection().await.is_ok());
}

/// A vault that has let somebody in, with what it uses now.
async fn renewable(patience: f64) -> (Arc<OtherSide>, Arc<Vault>, Arc<Connection>) {
    let (other_side, vault) = vault(&[("given", credentials("g", 0, None))]);
    let vault = Arc::new(Arc::into_inner(vault).unwrap().with_patience(patience));
    vault.accept().await;
    let connection = vault.connection().await.unwrap();
    (other_side, vault, connection)
}

#[tokio::test(start_paused = true)]
async fn certificates_that_are_not_accepted_let_log_in_again_but_not_at_once_again() {
    let (other_side, vault, old) = renewable(60.0).await;
    tokio::join!(vault.renew(&old), log_in(&other_side, Ok(vec![("k", credentials("1", 0, None))])));
    let new = vault.connection().await.unwrap();
    assert_eq!(new.key, "k");
    vault.renew(&old).await; // by another request, which was on its way
    vault.renew(&new).await; // too early
    assert!(lock(&other_side.jobs).is_empty());
    assert!(Arc::ptr_eq(&new, &vault.connection().await.unwrap()));
    tokio::time::advance(std::time::Duration::from_millis(600)).await;
    tokio::join!(vault.renew(&new), log_in(&other_side, Ok(vec![("k", credentials("1", 0, None))])));
    assert!(!Arc::ptr_eq(&new, &vault.connection().await.unwrap()), "the files were read once more");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_trusted_stays_in_use_if_there_is_nothing_else() {
    let (other_side, vault, old) = renewable(60.0).await;
    for answer in [Ok(vec![]), Err("no luck")] {
        tokio::join!(vault.renew(&old), log_in(&other_side, answer));
        assert!(Arc::ptr_eq(&old, &vault.connection().await.unwrap()));
        tokio::time::advance(std::time::Duration::from_secs(11)).await;
    }
    assert_eq!(other_side.lines("Certificates are not accepted").len(), 2);
    assert_eq!(other_side.lines("cannot be read again: no luck").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_patience_certificates_are_read_once_only() {
    let (other_side, vault, old) = renewable(0.0).await;
    vault.renew(&old).await;
    assert!(lock(&other_side.jobs).is_empty());
}
