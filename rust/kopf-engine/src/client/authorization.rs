//! The `Authorization` header: fixed, or read again from a file or an exec plugin.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use http::HeaderValue;
use kopf_core::time::Timestamp;
use kube::config::{AuthInfo, ExecConfig};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::AbortHandle;
use tokio_util::task::AbortOnDropHandle;

use super::exec::{self, ExecStatus};
use crate::error::LoginError;
use crate::time::clock::Clock;

/// How often a token file is read again, in seconds. Requests check the time; no task or file watcher is needed. A
/// watcher (inotify) would not be more exact: a pod's token is replaced long before the old one expires, by renaming a
/// folder that a watcher of the file does not observe. client-go reads the files at intervals too.
const FILE_INTERVAL: f64 = 60.0;
/// How long before its expiration a plugin's token is renewed, in seconds. Short-lived tokens are renewed after four
/// fifths of their lifetime.
const RENEWAL_LEAD: f64 = 60.0;
/// The minimum interval between runs of a plugin, in seconds.
const PLUGIN_INTERVAL: f64 = 1.0;
/// The delay before a failed plugin runs again while its old token is valid, in seconds.
const PLUGIN_RETRY: f64 = 5.0;

/// The source of the header.
pub(crate) enum Authorization {
    /// No header: a client certificate, or anonymous requests.
    None,
    /// A constant header.
    Fixed(HeaderValue),
    /// A token from a file, which may be replaced at any time.
    File(TokenFile),
    /// A token from a plugin, with an expiration.
    Plugin(Box<Plugin>),
}

pub(crate) struct TokenFile {
    path: PathBuf,
    current: Mutex<Current>,
}

pub(crate) struct Plugin {
    config: ExecConfig,
    current: Arc<Mutex<Current>>,
    /// The last renewal. It ends with the connection, but not with the requests that wait for it.
    renewal: Mutex<Option<Renewal>>,
}

/// A run of the plugin in a task, and its outcome: the current header.
#[derive(Clone)]
struct Renewal {
    task: AbortHandle,
    outcome: Shared<BoxFuture<'static, Result<HeaderValue, LoginError>>>,
}

#[derive(Clone)]
struct Current {
    value: HeaderValue,
    /// When to run the plugin again.
    renewal: Timestamp,
    /// When the token becomes invalid.
    expiration: Option<Timestamp>,
}

impl Authorization {
    /// The header for the user of a kubeconfig or for a service account.
    pub(crate) fn of(auth: &AuthInfo, clock: &Clock) -> Result<Self, LoginError> {
        if let (Some(user), Some(password)) = (&auth.username, &auth.password) {
            return basic(user, password).map(Self::Fixed);
        }
        if let Some(token) = &auth.token {
            return bearer(token.expose_secret()).map(Self::Fixed);
        }
        if let Some(path) = &auth.token_file {
            let path = PathBuf::from(path);
            let value = read(&path)?;
            let renewal = clock.now().plus(FILE_INTERVAL);
            let current = Mutex::new(Current { value, renewal, expiration: None });
            return Ok(Self::File(TokenFile { path, current }));
        }
        match &auth.auth_provider {
            // The plugins built into old clients do not exist any more; the tokens that they have stored in the file
            // may be valid.
            Some(provider) => {
                let token = ["id-token", "access-token"].iter().find_map(|key| provider.config.get(*key));
                let token = token.ok_or_else(|| {
                    LoginError(format!(
                        "The auth provider {:?} of the kubeconfig is not supported: use an exec plugin.",
                        provider.name
                    ))
                })?;
                bearer(token).map(Self::Fixed)
            }
            None => Ok(Self::None),
        }
    }

    /// The header for the output of a plugin.
    pub(crate) fn of_plugin(
        config: ExecConfig,
        status: &ExecStatus,
        clock: &Clock,
    ) -> Result<Self, LoginError> {
        match current_of(status, clock)? {
            None => Ok(Self::None),
            Some(Current { value, expiration: None, .. }) => Ok(Self::Fixed(value)),
            Some(current) => {
                let current = Arc::new(Mutex::new(current));
                Ok(Self::Plugin(Box::new(Plugin { config, current, renewal: Mutex::default() })))
            }
        }
    }

    /// The current header. Waits for a plugin if its last token has expired. Cancel safe: the plugin goes on.
    ///
    /// # Errors
    /// The token has expired and cannot be renewed.
    pub(crate) async fn header(&self, clock: &Clock) -> Result<Option<HeaderValue>, LoginError> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(value) => Ok(Some(value.clone())),
            Self::File(file) => Ok(Some(file.header(clock))),
            Self::Plugin(plugin) => plugin.header(clock).await.map(Some),
        }
    }

    /// The bytes that distinguish these credentials from others.
    pub(crate) fn identity(&self) -> Vec<u8> {
        match self {
            Self::None => vec![],
            Self::Fixed(value) => value.as_bytes().to_vec(),
            Self::File(TokenFile { current, .. }) => lock(current).value.as_bytes().to_vec(),
            Self::Plugin(plugin) => lock(&plugin.current).value.as_bytes().to_vec(),
        }
    }
}

impl TokenFile {
    fn header(&self, clock: &Clock) -> HeaderValue {
        let mut current = lock(&self.current);
        if current.renewal <= clock.now() {
            current.renewal = clock.now().plus(FILE_INTERVAL);
            // Some users remove the file after the start: then the last token stays in use.
            if let Ok(value) = read(&self.path) {
                current.value = value;
            }
        }
        current.value.clone()
    }
}

impl Plugin {
    async fn header(&self, clock: &Clock) -> Result<HeaderValue, LoginError> {
        match self.current(clock) {
            (current, Some(renewal)) if current.is_expired(clock) => renewal.outcome.await,
            (current, _) => Ok(current.value),
        }
    }

    /// The current token, and its renewal if that is due.
    fn current(&self, clock: &Clock) -> (Current, Option<Renewal>) {
        let mut last = lock(&self.renewal);
        let current = lock(&self.current).clone();
        if clock.now_for_others() < current.renewal {
            return (current, None);
        }
        let running = last.take().filter(|renewal| !renewal.task.is_finished());
        let renewal = running.unwrap_or_else(|| self.start_renewal(clock));
        (current, Some(last.insert(renewal).clone()))
    }

    fn start_renewal(&self, clock: &Clock) -> Renewal {
        let renewing = renew(self.config.clone(), Arc::clone(&self.current), clock.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(renewing));
        let interrupted = || LoginError("The auth plugin was interrupted.".to_owned());
        Renewal {
            task: task.abort_handle(),
            outcome: task.map(move |ended| ended.unwrap_or_else(|_| Err(interrupted()))).boxed().shared(),
        }
    }
}

/// Runs the plugin, and returns the header with its token, or with the old one if that is still valid.
async fn renew(
    config: ExecConfig,
    current: Arc<Mutex<Current>>,
    clock: Clock,
) -> Result<HeaderValue, LoginError> {
    let status = exec::run(&config).await.map_err(|error| exec::plugin_error(&error));
    let renewed = status.and_then(|status| {
        current_of(&status, &clock)?.ok_or_else(|| {
            LoginError("The auth plugin gives a certificate now, where it gave a token before.".to_owned())
        })
    });
    let mut current = lock(&current);
    match renewed {
        Ok(renewed) => *current = renewed,
        Err(error) if current.is_expired(&clock) => return Err(error),
        Err(_) => current.renewal = clock.now_for_others().plus(PLUGIN_RETRY),
    }
    Ok(current.value.clone())
}

impl Current {
    fn is_expired(&self, clock: &Clock) -> bool {
        self.expiration.is_some_and(|moment| moment <= clock.now_for_others())
    }
}

/// The expiration in the output of a plugin, if it has one.
pub(crate) fn expiration_of(status: &ExecStatus) -> Result<Option<Timestamp>, LoginError> {
    let Some(text) = &status.expiration_timestamp else { return Ok(None) };
    let parsed = Timestamp::parse(text).ok_or_else(|| {
        LoginError("The kubeconfig cannot be used: the auth plugin's expiration is not a time.".to_owned())
    })?;
    Ok(Some(parsed))
}

fn current_of(status: &ExecStatus, clock: &Clock) -> Result<Option<Current>, LoginError> {
    let Some(token) = &status.token else { return Ok(None) };
    let value = bearer(token.expose_secret())?;
    let now = clock.now_for_others();
    let expiration = expiration_of(status)?;
    let renewal = expiration.map_or(now, |expiration| {
        let left = expiration.seconds_since(now).max(0.0);
        now.plus((left - RENEWAL_LEAD.min(left / 5.0)).max(PLUGIN_INTERVAL))
    });
    Ok(Some(Current { value, renewal, expiration }))
}

fn read(path: &PathBuf) -> Result<HeaderValue, LoginError> {
    let token = std::fs::read_to_string(path)
        .map_err(|error| LoginError(format!("The token file {} cannot be read: {error}", path.display())))?;
    if token.trim().is_empty() {
        return Err(LoginError(format!("The token file {} is empty.", path.display())));
    }
    bearer(&token)
}

/// The header for a token. As in kubectl, whitespace around the token is ignored.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, LoginError> {
    sensitive(&format!("Bearer {}", token.trim()), "The token")
}

/// The header for a user and a password.
pub(crate) fn basic(user: &str, password: &SecretString) -> Result<HeaderValue, LoginError> {
    if user.contains(':') {
        return Err(LoginError("The username has a colon: that is impossible in HTTP.".to_owned()));
    }
    if user.contains(['\r', '\n']) {
        return Err(LoginError("The username has a line break: that is impossible in HTTP.".to_owned()));
    }
    let pair = format!("{user}:{}", password.expose_secret());
    sensitive(&format!("Basic {}", STANDARD.encode(pair)), "The username")
}

/// A header value that is never logged. The error does not quote it.
pub(crate) fn sensitive(text: &str, what: &str) -> Result<HeaderValue, LoginError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        LoginError(format!(
            "{what} cannot be sent as an HTTP header: it has a line break, or other characters that are not allowed there."
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
