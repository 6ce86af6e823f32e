//! The rules of logins: when they start and end, after which delays, and which credentials are not used again.
//!
//! Pure: the driver (`kopf-engine/src/client/credentials.rs`) has the connections, calls the login handlers, and sleeps.
//!
//! The first login after an accepted request needs no delay: tokens expire. If the credentials of that login are rejected,
//! too, before any request is accepted, the following logins have growing delays, and end after a time limit. So exec
//! plugins and handlers that return a new token each time do not run in a tight loop while the server rejects all of them.
//! The time limit does not apply while an exec plugin fails: the server has rejected nothing.
//!
//! Which of several credentials are used is in [`candidates`], and which responses accept or reject them in [`unauthorized`].

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;

use crate::backoff::{Backoff, Retries};
use crate::request_error::LoginError;
use crate::time::Timestamp;

pub mod candidates;
#[cfg(test)]
mod tests;
pub mod unauthorized;

const RAN_OUT: &str = "Ran out of valid credentials.";
const NOT_FOUND: &str = "No login handler has returned any. Set KUBECONFIG, create ~/.kube/config, run in a pod with a \
                         service account, or declare a login handler (@kopf.on.login).";
/// The delays between logins while the server rejects all credentials.
const RETRIES: Backoff = Backoff::endless(&[0.5, 1.0, 2.0, 5.0, 10.0]);
/// The delays between logins because of certificates.
const RENEWALS: Backoff = RETRIES;
/// After so many seconds without such a login, the next one is the first of a series.
const RENEWALS_END: f64 = 60.0;
/// How often the login is repeated with a delay if the server has accepted no credentials yet.
const FIRST_RETRIES: u32 = 2;
/// How many rejected credentials are remembered per login handler.
const REMEMBERED: usize = 3;

/// Credentials that the server rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The address of the server.
    pub server: String,
    /// The keys of the login handlers.
    pub keys: BTreeSet<String>,
}

/// Credentials by which they are recognised.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The address of the server.
    pub server: &'a str,
    /// The key of the login handler.
    pub key: &'a str,
    /// A hash of the credentials.
    pub fingerprint: u64,
}

/// A wait before the next login.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// The log line.
    pub text: String,
    /// The duration in seconds.
    pub seconds: f64,
}

/// The temporary failure of a login.
#[derive(Clone, Debug, PartialEq)]
pub struct LoginFailure {
    /// The error.
    pub error: LoginError,
    /// Whether it is logged already.
    pub is_logged: bool,
    /// Whether it is that of an exec plugin. The plugin runs again without a time limit, once some credentials were accepted: its
    /// token is renewed in the same way.
    pub is_of_plugin: bool,
}

/// The state of the logins of one operator.
#[derive(Debug)]
pub struct LoginState {
    /// How many seconds logins are repeated while all credentials are rejected, once some were accepted.
    timeout: f64,
    has_begun: bool,
    /// Some credentials were accepted before: from then on, a rejection is treated as temporary.
    was_authorized: bool,
    /// Credentials or certificates were rejected since the last accepted request.
    is_in_doubt: bool,
    /// By the keys of the login handlers.
    rejected_fingerprints: HashMap<String, VecDeque<u64>>,
    /// The credentials that the last login has returned although they were rejected before.
    returned_again: Option<Rejected>,
    /// The credentials that were rejected since the last accepted request, and are not counted as a login yet.
    newly_rejected: Option<Rejected>,
    /// The number of logins since the last accepted request whose credentials were rejected, including those from before.
    rejected_logins: u32,
    /// Since when all credentials are rejected.
    since: Option<Timestamp>,
    retries: Retries<'static>,
    /// When the credentials may be read again because of certificates. Accepted requests do not change it: they may be those to other
    /// servers behind the same address.
    renewal: Option<Timestamp>,
    renewals: Retries<'static>,
}

impl LoginState {
    /// Before any login. `timeout` is how many seconds logins are repeated while all credentials are rejected.
    pub fn new(timeout: f64) -> Self {
        Self {
            timeout,
            has_begun: false,
            was_authorized: false,
            is_in_doubt: false,
            rejected_fingerprints: HashMap::new(),
            returned_again: None,
            newly_rejected: None,
            rejected_logins: 0,
            since: None,
            retries: RETRIES.retries(),
            renewal: None,
            renewals: RENEWALS.retries(),
        }
    }

    /// The server has accepted credentials.
    pub fn on_authorized(&mut self) {
        (self.was_authorized, self.is_in_doubt) = (true, false);
        (self.since, self.newly_rejected, self.rejected_logins) = (None, None, 0);
        self.retries.reset();
    }

    /// The server has rejected credentials that were in use.
    pub fn on_rejected(&mut self, rejected: Known<'_>) {
        self.is_in_doubt = true;
        self.newly_rejected
            .get_or_insert_with(|| Rejected { server: rejected.server.to_owned(), keys: BTreeSet::new() })
            .keys
            .insert(rejected.key.to_owned());
        let history = self.rejected_fingerprints.entry(rejected.key.to_owned()).or_default();
        if !history.contains(&rejected.fingerprint) {
            history.push_back(rejected.fingerprint);
            if history.len() > REMEMBERED {
                history.pop_front();
            }
        }
    }

    /// Whether the server rejects the credentials of all logins: there are no others, or new ones were rejected as well and no
    /// request was accepted since. `has_connection` is whether there are others.
    pub fn is_rejected(&self, has_connection: bool) -> bool {
        self.is_in_doubt && (self.since.is_some() || !has_connection)
    }

    /// A login begins; returns its title in log lines.
    pub fn begin(&mut self) -> &'static str {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        if has_begun { "Re-authentication" } else { "Initial authentication" }
    }

    /// The wait before a login, if the credentials of the last one were rejected like those before them.
    ///
    /// # Errors
    /// If another login is useless.
    pub fn before_login(&mut self, now: Timestamp) -> Result<Option<Retry>, LoginError> {
        let Some(rejected) = self.repeatedly_rejected() else { return Ok(None) };
        match self.retry(&format!("{rejected}. "), FIRST_RETRIES, now) {
            Some(retry) => Ok(Some(retry)),
            None => Err(ran_out(Some(&rejected))),
        }
    }

    /// Which of the found credentials are used: those that were not rejected recently.
    pub fn fresh(&mut self, found: &[Known<'_>]) -> Vec<bool> {
        let is_fresh = |one: &Known<'_>| {
            let history = self.rejected_fingerprints.get(one.key);
            !history.is_some_and(|history| history.contains(&one.fingerprint))
        };
        let fresh: Vec<_> = found.iter().map(is_fresh).collect();
        if !fresh.contains(&true) {
            let keys = || found.iter().map(|one| one.key.to_owned()).collect();
            self.returned_again =
                found.first().map(|one| Rejected { server: one.server.to_owned(), keys: keys() });
        }
        fresh
    }

    /// The wait after a login without usable credentials, with its failure, if it had one.
    ///
    /// # Errors
    /// If another login is useless.
    pub fn after_login(
        &mut self,
        failure: Option<LoginFailure>,
        now: Timestamp,
    ) -> Result<Retry, LoginError> {
        let reason = match (&failure, &self.returned_again) {
            (Some(failure), _) if failure.is_logged => String::new(),
            (Some(failure), _) => format!("{}. ", failure.error.0.trim_end_matches('.')),
            (None, Some(rejected)) => format!("{rejected}. "),
            (None, None) => String::new(),
        };
        if failure.as_ref().is_some_and(|failure| failure.is_of_plugin) {
            self.since = None;
        }
        let retry = self.retry(&reason, 0, now);
        retry.ok_or_else(|| match failure {
            Some(failure) => failure.error,
            None => ran_out(self.returned_again.as_ref()),
        })
    }

    /// The wait is over. The rejected credentials may be accepted now: the failure is often that of the server.
    pub fn on_waited(&mut self) {
        self.rejected_fingerprints.clear();
    }

    /// Whether the credentials are read again now because of certificates that one side rejects. The connections stay in use
    /// meanwhile, and if nothing else is found. Each further attempt has a delay, also if requests were accepted in between: only
    /// one of several servers may have a bad certificate.
    pub fn can_renew(&mut self, now: Timestamp) -> bool {
        let since = self.renewal.map(|moment| now.seconds_since(moment));
        if self.timeout <= 0.0 || !self.was_authorized || since.is_some_and(|since| since < 0.0) {
            return false;
        }
        if since.is_some_and(|since| since >= RENEWALS_END) {
            self.renewals.reset();
        }
        let Some(delay) = self.renewals.next(None, 0.0) else { return false };
        self.renewal = Some(now.plus(delay.seconds));
        self.rejected_fingerprints.clear();
        self.is_in_doubt = true;
        true
    }

    /// The rejected credentials of the last login, if the credentials before them were rejected, too, and no request was
    /// accepted in between. Counts each login once.
    fn repeatedly_rejected(&mut self) -> Option<Rejected> {
        let rejected = self.newly_rejected.take()?;
        self.rejected_logins = self.rejected_logins.saturating_add(1);
        (self.rejected_logins > 1).then_some(rejected)
    }

    /// The wait before the next login; none if that would be useless. `first_retries` is the maximum number of waits while the
    /// server has accepted no credentials yet.
    fn retry(&mut self, what: &str, first_retries: u32, now: Timestamp) -> Option<Retry> {
        self.is_in_doubt = true;
        if !self.was_authorized && self.retries.failures() >= first_retries {
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if now.seconds_since(since) >= self.timeout {
            return None;
        }
        let seconds = self.retries.next(None, 0.0)?.seconds;
        Some(Retry { text: format!("{what}The credentials are read again in {seconds} seconds."), seconds })
    }
}

/// The error when there is no connection: no credentials were found, or the server has rejected all of them.
fn ran_out(rejected: Option<&Rejected>) -> LoginError {
    let reason = match rejected {
        Some(rejected) => format!("{rejected}: they are wrong or have expired."),
        None => NOT_FOUND.to_owned(),
    };
    LoginError(format!("{RAN_OUT} {reason}"))
}

/// The error when all credentials of a login have already expired.
pub fn expired<'k>(keys: impl Iterator<Item = &'k str>) -> LoginError {
    let keys = keys.collect::<Vec<_>>().join(", ");
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
