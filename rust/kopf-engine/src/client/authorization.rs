//! The `Authorization` header: fixed, or read again from a file or an exec plugin, as `kopf_core::tokens` decides.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use http::HeaderValue;
use kopf_core::time::Timestamp;
use kopf_core::tokens::{FileReads, PluginToken, TokenChoice};
use kube::config::{AuthInfo, ExecConfig};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::AbortHandle;
use tokio_util::task::AbortOnDropHandle;

use super::exec::{self, ExecStatus};
use crate::error::LoginError;
use crate::time::clock::Clock;

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
    last: Mutex<FileToken>,
}

/// The last token of a file, as a header.
struct FileToken {
    value: HeaderValue,
    reads: FileReads,
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

/// The last token of a plugin, as a header.
struct Current {
    value: HeaderValue,
    token: PluginToken,
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
            let last = Mutex::new(FileToken { value, reads: FileReads::new(clock.now()) });
            return Ok(Self::File(TokenFile { path, last }));
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
        let Some(current) = current_of(status, clock)? else { return Ok(Self::None) };
        if status.expiration_timestamp.is_none() {
            return Ok(Self::Fixed(current.value));
        }
        let current = Arc::new(Mutex::new(current));
        Ok(Self::Plugin(Box::new(Plugin { config, current, renewal: Mutex::default() })))
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
            Self::File(TokenFile { last, .. }) => lock(last).value.as_bytes().to_vec(),
            Self::Plugin(plugin) => lock(&plugin.current).value.as_bytes().to_vec(),
        }
    }
}

impl TokenFile {
    fn header(&self, clock: &Clock) -> HeaderValue {
        let mut last = lock(&self.last);
        if last.reads.is_due(clock.now())
            && let Ok(value) = read(&self.path)
        {
            last.value = value;
        }
        last.value.clone()
    }
}

impl Plugin {
    async fn header(&self, clock: &Clock) -> Result<HeaderValue, LoginError> {
        match self.choose(clock)? {
            (_, Some(renewal)) => renewal.outcome.await,
            (last, None) => Ok(last),
        }
    }

    /// The last token, and the renewal that the request has to wait for, if it has to.
    fn choose(&self, clock: &Clock) -> Result<(HeaderValue, Option<Renewal>), LoginError> {
        let mut renewal = lock(&self.renewal);
        let (choice, last) = {
            let current = lock(&self.current);
            (current.token.choose(clock.now_for_others()), current.value.clone())
        };
        let mut join_renewal = || {
            let running = renewal.take().filter(|renewal| !renewal.task.is_finished());
            renewal.insert(running.unwrap_or_else(|| self.start_renewal(clock))).clone()
        };
        match choice {
            TokenChoice::Last => Ok((last, None)),
            TokenChoice::LastDuringRenewal => {
                let _running = join_renewal();
                Ok((last, None))
            }
            TokenChoice::Next => Ok((last, Some(join_renewal()))),
            TokenChoice::None(error) => Err(error),
        }
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
        Err(error) => current.token.on_failure(error, clock.now_for_others())?,
    }
    Ok(current.value.clone())
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
    let token = PluginToken::new(clock.now_for_others(), expiration_of(status)?);
    Ok(Some(Current { value, token }))
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
