//! The rules of tokens that are replaced from time to time: when a token file is read again, when an exec plugin runs again, and
//! which token a request uses meanwhile.
//!
//! Pure: the driver (`kopf-engine/src/client/authorization.rs`) reads files, and runs plugins, each one at most once at a time.

use crate::request_error::LoginError;
use crate::time::Timestamp;

#[cfg(test)]
mod tests;

/// How often a token file is read again, in seconds. Requests check the time; no task or file watcher is needed. A
/// watcher (inotify) would not be more exact: a pod's token is replaced long before the old one expires, by renaming a
/// folder that a watcher of the file does not observe. client-go reads the files at intervals too.
const FILE_INTERVAL: f64 = 60.0;
/// How long before its expiration a plugin's token is renewed, in seconds. Short-lived tokens are renewed after four
/// fifths of their lifetime.
const RENEWAL_LEAD: f64 = 60.0;
/// The minimum interval between runs of a plugin, in seconds.
const PLUGIN_INTERVAL: f64 = 1.0;
/// The maximum delay before a failed plugin runs again, in seconds. It is shorter if its old token expires earlier.
const PLUGIN_RETRY: f64 = 5.0;

/// The reads of a token file.
#[derive(Clone, Debug)]
pub struct FileReads {
    next: Timestamp,
}

impl FileReads {
    /// The file is read now.
    pub fn new(now: Timestamp) -> Self {
        Self { next: now.plus(FILE_INTERVAL) }
    }

    /// Whether the file is read again now. If that fails, the last token stays in use: some users remove the file after the start.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        let is_due = self.next <= now;
        if is_due {
            self.next = now.plus(FILE_INTERVAL);
        }
        is_due
    }
}

/// The token that a request uses.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenChoice {
    /// The last token.
    Last,
    /// The last token. The plugin runs meanwhile, for later requests.
    LastDuringRenewal,
    /// The next token: the request waits for the plugin.
    Next,
    /// None: the plugin has just failed.
    None(LoginError),
}

/// The last token of an exec plugin.
#[derive(Clone, Debug)]
pub struct PluginToken {
    /// When the token becomes invalid, if that is known.
    expiration: Option<Timestamp>,
    /// When the plugin runs again.
    renewal: Option<Timestamp>,
    /// The failure of the run after that of the token.
    failure: Option<LoginError>,
}

impl PluginToken {
    /// A token that the plugin has returned now. If it has expired already, the server decides about it. Without an expiration, it is
    /// used until the server rejects it.
    pub fn new(now: Timestamp, expiration: Option<Timestamp>) -> Self {
        let renewal = expiration.map(|expiration| {
            let left = expiration.seconds_since(now).max(0.0);
            now.plus((left - RENEWAL_LEAD.min(left / 5.0)).max(PLUGIN_INTERVAL))
        });
        Self { expiration, renewal, failure: None }
    }

    /// The token for a request.
    pub fn choose(&self, now: Timestamp) -> TokenChoice {
        let is_renewed = self.renewal.is_some_and(|moment| moment <= now);
        match (&self.failure, is_renewed, self.is_expired(now)) {
            (Some(error), false, true) => TokenChoice::None(error.clone()),
            (_, false, _) => TokenChoice::Last,
            (_, true, false) => TokenChoice::LastDuringRenewal,
            (_, true, true) => TokenChoice::Next,
        }
    }

    /// The plugin has failed. If the token is still valid, it stays in use.
    ///
    /// # Errors
    /// The failure, if the token has expired.
    pub fn on_failure(&mut self, error: LoginError, now: Timestamp) -> Result<(), LoginError> {
        let left = self.expiration.map_or(PLUGIN_RETRY, |moment| moment.seconds_since(now));
        self.renewal = Some(now.plus(left.clamp(PLUGIN_INTERVAL, PLUGIN_RETRY)));
        self.failure = Some(error.clone());
        if self.is_expired(now) { Err(error) } else { Ok(()) }
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        self.expiration.is_some_and(|moment| moment <= now)
    }
}
