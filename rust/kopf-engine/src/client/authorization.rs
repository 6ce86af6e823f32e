//! The `Authorization` header: fixed, or read again from a file or a plugin when it is time.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use kopf_core::time::Timestamp;
use kube::config::{AuthInfo, ExecConfig};
use secrecy::{ExposeSecret as _, SecretString};

use super::exec::{self, ExecStatus};
use crate::error::LoginError;
use crate::time::clock::Clock;

/// How often a token file is read again, in seconds.
const FILE_INTERVAL: f64 = 60.0;
/// How long before its expiration a token of a plugin is renewed at most, in seconds: a fifth of its life if that is shorter.
const RENEWAL_LEAD: f64 = 60.0;
/// A plugin does not run more often than this, in seconds.
const PLUGIN_INTERVAL: f64 = 1.0;
/// After how many seconds a failed plugin runs again while its old token is still valid.
const PLUGIN_RETRY: f64 = 5.0;

/// Where the header comes from.
pub(crate) enum Authorization {
    /// There is none: a client certificate, or anonymous requests.
    None,
    /// Always the same.
    Fixed(HeaderValue),
    /// The token is in a file, which is replaced now and then.
    File(TokenFile),
    /// The token comes from a plugin, and expires.
    Plugin(Box<Plugin>),
}

pub(crate) struct TokenFile {
    path: PathBuf,
    current: Mutex<Current>,
}

pub(crate) struct Plugin {
    config: ExecConfig,
    current: Mutex<Current>,
    /// Held while the plugin runs.
    running: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Current {
    value: HeaderValue,
    /// When to look for another one.
    renewal: Timestamp,
    /// When it is of no use any more.
    expiration: Option<Timestamp>,
}

impl Authorization {
    /// The header of what a kubeconfig or a service account says.
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
            // The plugins built into old clients are gone; what they have left in the file may still be valid.
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

    /// The header of what a plugin has printed.
    pub(crate) fn of_plugin(
        config: ExecConfig,
        status: &ExecStatus,
        clock: &Clock,
    ) -> Result<Self, LoginError> {
        match current_of(status, clock)? {
            None => Ok(Self::None),
            Some(Current { value, expiration: None, .. }) => Ok(Self::Fixed(value)),
            Some(current) => {
                let (current, running) = (Mutex::new(current), tokio::sync::Mutex::default());
                Ok(Self::Plugin(Box::new(Plugin { config, current, running })))
            }
        }
    }

    /// The header of this moment. May wait for a plugin.
    ///
    /// # Errors
    /// The token has expired, and there is no other one.
    pub(crate) async fn header(&self, clock: &Clock) -> Result<Option<HeaderValue>, LoginError> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(value) => Ok(Some(value.clone())),
            Self::File(file) => Ok(Some(file.header(clock))),
            Self::Plugin(plugin) => plugin.header(clock).await.map(Some),
        }
    }

    /// The bytes that make these credentials different from others.
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
            // Some remove the file after the start: the last token counts then.
            if let Ok(value) = read(&self.path) {
                current.value = value;
            }
        }
        current.value.clone()
    }
}

impl Plugin {
    async fn header(&self, clock: &Clock) -> Result<HeaderValue, LoginError> {
        let current = lock(&self.current).clone();
        let now = clock.now_for_others();
        if now < current.renewal {
            return Ok(current.value);
        }
        let is_expired = current.expiration.is_some_and(|moment| moment <= now);
        let running = if is_expired { Some(self.running.lock().await) } else { self.running.try_lock().ok() };
        let Some(_running) = running else { return Ok(current.value) };
        // Another request may have renewed it while this one waited.
        let latest = lock(&self.current).clone();
        if clock.now_for_others() < latest.renewal {
            return Ok(latest.value);
        }
        match self.renew(clock).await {
            Ok(value) => Ok(value),
            Err(_) if !is_expired => {
                lock(&self.current).renewal = clock.now_for_others().plus(PLUGIN_RETRY);
                Ok(current.value)
            }
            Err(error) => Err(error),
        }
    }

    async fn renew(&self, clock: &Clock) -> Result<HeaderValue, LoginError> {
        let status = exec::run(&self.config).await.map_err(|error| plugin_error(&error))?;
        let current = current_of(&status, clock)?.ok_or_else(|| {
            LoginError("The auth plugin gives a certificate now, where it gave a token before.".to_owned())
        })?;
        let value = current.value.clone();
        *lock(&self.current) = current;
        Ok(value)
    }
}

/// A login error because of a plugin.
pub(crate) fn plugin_error(error: &exec::ExecError) -> LoginError {
    LoginError(format!("The kubeconfig cannot be used: {error}"))
}

/// When what a plugin has printed expires, if it does.
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

/// The header of a token. As kubectl does, whitespace around the token does not count.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, LoginError> {
    sensitive(&format!("Bearer {}", token.trim()), "The token")
}

/// The header of a user and a password.
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

/// A header that is never shown. The error does not quote it.
pub(crate) fn sensitive(text: &str, what: &str) -> Result<HeaderValue, LoginError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        LoginError(format!(
            "{what} cannot be sent as an HTTP header: it has a line break, or other characters that are not allowed there."
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn lock(current: &Mutex<Current>) -> MutexGuard<'_, Current> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
