//! Logins after rejections: their delays, their end, and the texts.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kopf_core::backoff::Backoff;
use kopf_core::log_level::Level;

use super::{LOGGER, Store};
use crate::client::connection::Connection;
use crate::error::LoginError;
use crate::time::duration::seconds;

const RAN_OUT: &str = "Ran out of valid credentials.";
const NOT_FOUND: &str = "No login handler has returned any. Set KUBECONFIG, create ~/.kube/config, run in a pod with a \
                         service account, or declare a login handler (@kopf.on.login).";
/// The delays between logins while the server rejects all credentials.
pub(super) const RETRIES: Backoff = Backoff::endless(&[0.5, 1.0, 2.0, 5.0, 10.0]);
/// How often the login is repeated with a delay if the server has accepted no credentials yet.
pub(super) const FIRST_RETRIES: u32 = 2;

/// Credentials that the server rejects.
pub(super) struct Rejected {
    pub(super) server: String,
    /// The keys of the login handlers.
    pub(super) keys: BTreeSet<String>,
}

impl Store {
    /// The rejected credentials of the last login, if the credentials before them were rejected, too, and no request was
    /// accepted in between. Counts each login once.
    pub(super) fn repeatedly_rejected(&self) -> Option<Rejected> {
        let mut logins = self.logins();
        let rejected = logins.newly_rejected.take()?;
        logins.rejected_logins = logins.rejected_logins.saturating_add(1);
        (logins.rejected_logins > 1).then_some(rejected)
    }

    /// The connections of a login without those whose credentials were rejected recently.
    pub(super) fn without_rejected(&self, found: Vec<Connection>) -> Vec<Arc<Connection>> {
        let mut logins = self.logins();
        let (known, fresh): (Vec<_>, Vec<_>) = found.into_iter().partition(|one| {
            let history = logins.rejected_fingerprints.get(&one.key);
            history.is_some_and(|history| history.contains(&one.fingerprint))
        });
        if fresh.is_empty() {
            let keys = || known.iter().map(|one| one.key.clone()).collect();
            logins.rejected = known.first().map(|one| Rejected { server: one.server.clone(), keys: keys() });
        }
        fresh.into_iter().map(Arc::new).collect()
    }

    /// Waits before the next login. The log line begins with `what`. Returns the error if the next login would be useless.
    pub(super) async fn wait_for_retry(
        &self,
        (what, first_retries): (&str, u32),
        error: LoginError,
    ) -> Result<(), LoginError> {
        let Some(delay) = self.delay(first_retries) else { return Err(error) };
        let text = format!("{what}The credentials are read again in {delay} seconds.");
        self.log(Level::Warning, LOGGER, text);
        self.clock().sleep(seconds(delay)).await;
        // The rejected credentials may be accepted now: the failure is often that of the server.
        self.logins().rejected_fingerprints.clear();
        Ok(())
    }

    /// The delay in seconds before the next login; none if it would be useless. `first_retries` is the maximum number of
    /// delays while the server has accepted no credentials yet.
    fn delay(&self, first_retries: u32) -> Option<f64> {
        let now = self.clock().now();
        self.in_doubt.store(true, Ordering::Relaxed);
        let mut logins = self.logins();
        let is_first = !self.was_authorized.load(Ordering::Relaxed);
        if is_first && logins.retries.failures() >= first_retries {
            return None;
        }
        let since = *logins.since.get_or_insert(now);
        if now.seconds_since(since) >= self.options.login_timeout {
            return None;
        }
        logins.retries.next(None, 0.0).map(|delay| delay.seconds)
    }
}

/// The error when there is no connection: no credentials were found, or the server has rejected all of them.
pub(super) fn ran_out(rejected: Option<&Rejected>) -> LoginError {
    let reason = match rejected {
        Some(rejected) => format!("{rejected}: they are wrong or have expired."),
        None => NOT_FOUND.to_owned(),
    };
    LoginError(format!("{RAN_OUT} {reason}"))
}

/// The error when all credentials of a login have already expired.
pub(super) fn expired<'k>(keys: impl Iterator<Item = &'k String>) -> LoginError {
    let keys = keys.map(String::as_str).collect::<Vec<_>>().join(", ");
    LoginError(format!(
        "{RAN_OUT} Those from {keys} have already expired: check `expiration` and the clock of this machine."
    ))
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(String::as_str).collect();
        let (server, keys) = (&self.server, keys.join(", "));
        write!(f, "The API server {server} rejects the credentials from {keys} (401 Unauthorized)")
    }
}
