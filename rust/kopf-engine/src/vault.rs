//! The vault: the credentials that are known to work, and the one place where new ones are asked for.
//!
//! A request takes the connection of the highest priority. When the server says that it is not let in, the connection is
//! thrown away, and with the last one gone, the login handlers run again; meanwhile all requests wait here. What turned out
//! to be invalid lately is not taken a second time. Rules: contract/api 7.3.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use kopf_core::notes::Level;
use kopf_core::time::Timestamp;
use tokio::sync::{Mutex, oneshot};

use crate::api::seconds;
use crate::client::{Connection, has_kubeconfig, has_service_account};
use crate::clock::Clock;
use crate::credentials::{Credentials, Login};
use crate::error::LoginError;
use crate::invoke::{Entry, Invoker, Job, LoginJob};

const LOGGER: &str = "kopf._core.engines.activities";
const FALLBACK_LOGGER: &str = "kopf.activities.authentication";
const RAN_OUT: &str = "Ran out of valid credentials. Consider installing an API client library or adding a login handler. \
                       See more: https://docs.kopf.dev/en/stable/authentication/";
/// Pauses between logins while the server refuses everybody, in seconds; the last one repeats.
const PAUSES: [f64; 5] = [0.5, 1.0, 2.0, 5.0, 10.0];
/// How many refused credentials of one login handler are remembered.
const REMEMBERED: usize = 3;

/// All the ways to the API server that are open now.
pub struct Vault {
    invoker: Arc<dyn Invoker>,
    agent: String,
    open: RwLock<Vec<Arc<Connection>>>,
    login: Mutex<Logins>,
    turn: AtomicUsize,
    /// Somebody was let in already: a refusal may pass.
    let_in: AtomicBool,
    /// Nobody was let in lately.
    in_doubt: AtomicBool,
    /// For how many seconds refusals may last after that.
    patience: f64,
    /// Expirations are compared with it.
    clock: Clock,
}

#[derive(Default)]
struct Logins {
    happened: bool,
    refused: HashMap<String, VecDeque<u64>>,
    /// Since when nobody is let in.
    since: Option<Timestamp>,
    pauses: usize,
    /// When it makes sense to log in again.
    again: Option<Timestamp>,
    /// The same, if it is because of certificates.
    renewal: Option<Timestamp>,
}

/// Why there was no login.
enum LoginFailure {
    /// It will not be better later.
    Final(LoginError),
    /// It may be.
    Passing(LoginError),
}

impl Vault {
    /// A vault with what is there from the beginning. If it is empty, the first request asks for credentials.
    pub fn new(
        invoker: Arc<dyn Invoker>,
        agent: String,
        given: &[(String, Credentials)],
        clock: Clock,
    ) -> Result<Self, LoginError> {
        let vault = Self {
            invoker,
            agent,
            open: RwLock::default(),
            login: Mutex::default(),
            turn: AtomicUsize::default(),
            let_in: AtomicBool::default(),
            in_doubt: AtomicBool::default(),
            patience: 0.0,
            clock,
        };
        let open = vault.connect(given)?.into_iter().map(Arc::new).collect();
        *vault.open.write().unwrap_or_else(PoisonError::into_inner) = open;
        Ok(vault)
    }

    /// Lets refusals last for so many seconds, if somebody was let in before.
    #[must_use]
    pub fn with_patience(mut self, seconds: f64) -> Self {
        self.patience = seconds;
        self
    }

    /// Takes a connection in, as if somebody had logged in.
    #[cfg(test)]
    pub(crate) fn admit(&self, connection: Connection) {
        self.open.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(connection));
    }

    /// The best connection; logs in if there is none.
    pub async fn connection(&self) -> Result<Arc<Connection>, LoginError> {
        if let Some(best) = self.best() {
            return Ok(best);
        }
        let mut logins = self.login.lock().await;
        if let Some(best) = self.best() {
            return Ok(best); // somebody else has logged in while we waited
        }
        loop {
            self.wait(&mut logins).await;
            let outcome = self.log_in(&mut logins).await;
            if let Some(best) = self.best() {
                return Ok(best);
            }
            let error = match outcome {
                Ok(()) => LoginError(RAN_OUT.to_owned()),
                Err(LoginFailure::Final(error)) => return Err(error),
                Err(LoginFailure::Passing(error)) => error,
            };
            let Some(pause) = self.pause(&mut logins) else { return Err(error) };
            self.say(Level::Warning, LOGGER, format!("The credentials are read again in {pause} seconds."));
            logins.again = Some(self.clock.now().plus(pause));
        }
    }

    /// Waits until it is time for the next login. Requests have timeouts: if this one is given up meanwhile, the next one
    /// waits for the same moment.
    async fn wait(&self, logins: &mut Logins) {
        let Some(again) = logins.again else { return };
        self.clock.sleep(seconds(again.seconds_since(self.clock.now()))).await;
        logins.again = None;
        // What was refused may be let in again: it is often the server that is at fault.
        logins.refused.clear();
    }

    /// How long to wait until the next login; none if there is no sense in it.
    fn pause(&self, logins: &mut Logins) -> Option<f64> {
        let now = self.clock.now();
        if !self.let_in.load(Ordering::Relaxed) {
            return None;
        }
        self.in_doubt.store(true, Ordering::Relaxed);
        let since = *logins.since.get_or_insert(now);
        if now.seconds_since(since) >= self.patience {
            return None;
        }
        let pause = PAUSES.get(logins.pauses).or(PAUSES.last()).copied()?;
        logins.pauses += 1;
        Some(pause)
    }

    /// Somebody is let in.
    pub async fn accept(&self) {
        if self.let_in.swap(true, Ordering::Relaxed) && !self.in_doubt.load(Ordering::Relaxed) {
            return;
        }
        self.in_doubt.store(false, Ordering::Relaxed);
        let mut logins = self.login.lock().await;
        (logins.since, logins.pauses, logins.renewal) = (None, 0, None);
    }

    /// Throws away a connection which the server does not let in any more; unless that has happened already: whoever was
    /// refused at the same time may come here after a new login, maybe with the same credentials.
    pub async fn invalidate(&self, refused: &Connection) {
        let mut logins = self.login.lock().await;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let before = open.len();
        open.retain(|known| !std::ptr::eq(Arc::as_ptr(known), refused));
        if open.len() == before {
            return;
        }
        let history = logins.refused.entry(refused.key.clone()).or_default();
        if !history.contains(&refused.fingerprint) {
            history.push_back(refused.fingerprint);
            if history.len() > REMEMBERED {
                history.pop_front();
            }
        }
    }

    /// Logs in again if the server cannot be trusted, or does not trust us: files with certificates are replaced now and then.
    /// What there is stays in use if nothing else is found, for it may be the server that has changed for a while.
    pub async fn renew(&self, distrusted: &Connection) {
        if self.patience <= 0.0 || !self.let_in.load(Ordering::Relaxed) {
            return;
        }
        let mut logins = self.login.lock().await;
        let is_known = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            open.iter().any(|known| std::ptr::eq(Arc::as_ptr(known), distrusted))
        };
        let now = self.clock.now();
        if !is_known || logins.renewal.is_some_and(|moment| moment > now) {
            return;
        }
        let Some(pause) = PAUSES.get(logins.pauses).or(PAUSES.last()).copied() else { return };
        logins.pauses += 1;
        logins.renewal = Some(now.plus(pause));
        logins.refused.clear();
        self.in_doubt.store(true, Ordering::Relaxed);
        let what = format!("Certificates are not accepted between {} and us", distrusted.server);
        self.say(Level::Warning, LOGGER, format!("{what}: the credentials are read again."));
        if let Err(LoginFailure::Final(error) | LoginFailure::Passing(error)) = self.log_in(&mut logins).await
        {
            self.say(Level::Warning, LOGGER, format!("The credentials cannot be read again: {error}"));
        }
    }

    /// The address of the server that requests go to now, for the log; empty if nothing is known of it.
    pub fn server(&self) -> String {
        self.best().map(|best| best.server.clone()).unwrap_or_default()
    }

    fn best(&self) -> Option<Arc<Connection>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let valid = || open.iter().filter(|known| known.expiration.is_none_or(|moment| moment > unix(now)));
        let highest = valid().map(|known| known.priority).max()?;
        // Equals take turns, so that each of them carries its part of the load.
        let equals: Vec<_> = valid().filter(|known| known.priority == highest).collect();
        let turn = if equals.len() > 1 { self.turn.fetch_add(1, Ordering::Relaxed) } else { 0 };
        equals.get(turn % equals.len()).map(|chosen| Arc::clone(chosen))
    }

    async fn log_in(&self, logins: &mut Logins) -> Result<(), LoginFailure> {
        let title = if logins.happened { "Re-authentication" } else { "Initial authentication" };
        logins.happened = true;
        self.say(Level::Info, LOGGER, format!("{title} has been initiated."));
        let (reply, answer) = oneshot::channel();
        self.invoker.submit(Job::Login(LoginJob { reply }));
        let login = answer.await.map_err(|_| {
            LoginFailure::Final(LoginError("The login was interrupted by the operator's exit.".to_owned()))
        })?;
        let login = login.map_err(|text| LoginFailure::Final(LoginError(text)))?;
        let found = match &login {
            // The files are perhaps being written.
            Login::Provided(items) => self.connect(items).map_err(LoginFailure::Passing)?,
            Login::Fallback => self.fall_back().await.map_err(LoginFailure::Passing)?,
        };
        let fresh: Vec<_> = found
            .into_iter()
            .filter(|one| {
                !logins.refused.get(&one.key).is_some_and(|history| history.contains(&one.fingerprint))
            })
            .map(Arc::new)
            .collect();
        if fresh.is_empty() {
            let why = "no credentials were retrieved from the login handlers.";
            self.say(Level::Warning, LOGGER, format!("{title} has failed: {why}"));
            return Ok(());
        }
        self.say(Level::Info, LOGGER, format!("{title} has finished."));
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    fn connect(&self, items: &[(String, Credentials)]) -> Result<Vec<Connection>, LoginError> {
        items.iter().map(|(key, given)| Connection::from_credentials(key, given, &self.agent)).collect()
    }

    /// Without login handlers: the service account, the kubeconfig. One that is broken does not stand in the other's way.
    async fn fall_back(&self) -> Result<Vec<Connection>, LoginError> {
        let mut found = vec![];
        let mut failure = None;
        if has_service_account() {
            self.keep(Connection::from_service_account(&self.agent), &mut found, &mut failure);
        }
        if has_kubeconfig() {
            self.keep(Connection::from_kubeconfig(&self.agent).await, &mut found, &mut failure);
        }
        match failure {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    fn keep(
        &self,
        got: Result<Connection, LoginError>,
        found: &mut Vec<Connection>,
        failure: &mut Option<LoginError>,
    ) {
        match got {
            Ok(connection) => {
                let text = format!("Activity '{}' succeeded.", connection.key);
                self.say(Level::Info, FALLBACK_LOGGER, text);
                found.push(connection);
            }
            Err(error) => {
                self.say(Level::Error, FALLBACK_LOGGER, error.to_string());
                *failure = Some(error);
            }
        }
    }

    fn say(&self, level: Level, logger: &'static str, text: String) {
        self.invoker.log(Entry::general(level, logger, text));
    }
}

/// Seconds since the epoch. Expiration moments of credentials are told in that.
#[expect(clippy::cast_precision_loss, reason = "microseconds of today are exact in a float")]
fn unix(moment: Timestamp) -> f64 {
    moment.micros() as f64 / 1_000_000.0
}

#[cfg(test)]
mod tests;
