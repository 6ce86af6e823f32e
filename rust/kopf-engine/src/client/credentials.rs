//! The credential store: the connections with working credentials, and the only place where logins start.
//!
//! A request uses the connection with the highest priority. When the API server rejects its credentials, the connection
//! is removed. When the last one is removed, the login handlers run again while all requests wait. Recently rejected
//! credentials are not used again.
//!
//! The first login after an accepted request needs no delay: tokens expire. If the credentials of that login are rejected,
//! too, before any request is accepted, the following logins have growing delays, and end after a time limit. So exec
//! plugins and handlers that return a new token each time do not run in a tight loop while the server rejects all of them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use kopf_core::backoff::Retries;
use kopf_core::log_level::Level;
use kopf_core::time::Timestamp;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::client::connection::{Connection, ConnectionOptions};
use crate::error::LoginError;
use crate::host::credentials::{Credentials, Login};
use crate::host::{Host, HostTask, LogRecord, Logger, LoginTask};
use crate::metrics::Counter;
use crate::time::clock::Clock;

use rejections::{FIRST_RETRIES, RETRIES, Rejected, expired, ran_out};

const LOGGER: Logger = Logger::Activities;
const INTERRUPTED: &str = "The login was interrupted by the operator's exit.";
/// How many rejected credentials are remembered per login handler.
const REMEMBERED: usize = 3;
/// How long a login may continue when the operator is stopping: its last requests may need the credentials.
const EXIT_GRACE: Duration = Duration::from_secs(5);

/// A running login, shared by all requests that wait for it. It is polled only by them, so it pauses while there are
/// none.
type SharedLogin = Shared<BoxFuture<'static, Result<(), LoginError>>>;

/// The store of working connections. All logins start here.
pub struct CredentialStore {
    store: Arc<Store>,
    /// The login that is running, or the last one. There is at most one at a time.
    current_login: Mutex<Option<SharedLogin>>,
}

/// The options of the credential store.
#[derive(Clone)]
pub struct CredentialStoreOptions {
    /// The options of all connections.
    pub connections: ConnectionOptions,
    /// How many seconds logins are repeated while all credentials are rejected, once some were accepted.
    pub login_timeout: f64,
    /// Cancelled when the operator is stopping.
    pub stopping: CancellationToken,
}

/// The connections and the state of logins. Its locks are never held over an `await`.
struct Store {
    host: Arc<dyn Host>,
    options: CredentialStoreOptions,
    open: RwLock<Vec<Arc<Connection>>>,
    logins: Mutex<LoginState>,
    turn: AtomicUsize,
    /// Some credentials were accepted before: from then on, a rejection is treated as temporary.
    was_authorized: AtomicBool,
    /// Credentials or certificates were rejected since the last accepted request.
    in_doubt: AtomicBool,
    /// The successful and the failed logins.
    login_counts: [Counter; 2],
}

struct LoginState {
    happened: bool,
    rejected_fingerprints: HashMap<String, VecDeque<u64>>,
    /// The credentials that the last login has returned although they were rejected before.
    rejected: Option<Rejected>,
    /// The credentials that were rejected since the last accepted request, and are not counted as a login yet.
    newly_rejected: Option<Rejected>,
    /// The number of logins since the last accepted request whose credentials were rejected, including those from before.
    rejected_logins: u32,
    /// Since when all credentials are rejected.
    since: Option<Timestamp>,
    retries: Retries<'static>,
    /// When the credentials may be read again because of certificates.
    renewal: Option<Timestamp>,
}

impl Default for LoginState {
    fn default() -> Self {
        Self {
            happened: false,
            rejected_fingerprints: HashMap::new(),
            rejected: None,
            newly_rejected: None,
            rejected_logins: 0,
            since: None,
            retries: RETRIES.retries(),
            renewal: None,
        }
    }
}

/// The failure of a login.
enum LoginFailure {
    /// A permanent failure: logins are not repeated.
    Final(LoginError),
    /// A temporary failure: the login may be repeated.
    Passing(LoginError),
}

impl CredentialStore {
    /// A store with the given credentials. If there are none, the first request starts a login.
    pub fn new(
        host: Arc<dyn Host>,
        options: CredentialStoreOptions,
        given: &[(String, Credentials)],
    ) -> Result<Self, LoginError> {
        let store = Store {
            host,
            options,
            open: RwLock::default(),
            logins: Mutex::default(),
            turn: AtomicUsize::default(),
            was_authorized: AtomicBool::default(),
            in_doubt: AtomicBool::default(),
            login_counts: Default::default(),
        };
        let options = &store.options.connections;
        let open = given.iter().map(|(key, given)| Connection::from_credentials(key, given, options));
        let open: Result<Vec<_>, _> = open.map(|one| one.map(Arc::new)).collect();
        store.replace(open?);
        Ok(Self { store: Arc::new(store), current_login: Mutex::default() })
    }

    /// Adds a connection, as a login does.
    #[cfg(test)]
    pub(crate) fn admit(&self, connection: Connection) {
        self.store.open.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(connection));
    }

    /// The best connection; logs in if there is none. Cancel safe: the login continues for other requests, including
    /// later ones.
    pub async fn connection(&self) -> Result<Arc<Connection>, LoginError> {
        loop {
            if let Some(best) = self.store.best() {
                return Ok(best);
            }
            self.join_login(|store| Box::pin(async move { store.obtain().await })).await?;
        }
    }

    /// Records that the server has accepted the credentials. Never waits.
    pub fn on_authorized(&self) {
        if self.store.was_authorized.swap(true, Ordering::Relaxed)
            && !self.store.in_doubt.load(Ordering::Relaxed)
        {
            return;
        }
        let mut logins = self.store.logins();
        self.store.in_doubt.store(false, Ordering::Relaxed);
        (logins.since, logins.renewal) = (None, None);
        (logins.newly_rejected, logins.rejected_logins) = (None, 0);
        logins.retries.reset();
    }

    /// Removes a connection whose credentials the server rejects. Does nothing if it was removed already: requests that
    /// were rejected at the same time arrive here after a new login, which may return the same credentials.
    pub fn invalidate(&self, rejected: &Connection) {
        let was_known = {
            let mut open = self.store.open.write().unwrap_or_else(PoisonError::into_inner);
            let before = open.len();
            open.retain(|known| !std::ptr::eq(Arc::as_ptr(known), rejected));
            open.len() < before
        };
        if !was_known {
            return;
        }
        let mut logins = self.store.logins();
        self.store.in_doubt.store(true, Ordering::Relaxed);
        logins
            .newly_rejected
            .get_or_insert_with(|| Rejected { server: rejected.server.clone(), keys: BTreeSet::new() })
            .keys
            .insert(rejected.key.clone());
        let history = logins.rejected_fingerprints.entry(rejected.key.clone()).or_default();
        if !history.contains(&rejected.fingerprint) {
            history.push_back(rejected.fingerprint);
            if history.len() > REMEMBERED {
                history.pop_front();
            }
        }
    }

    /// Logs in again if one side rejects the other's certificate, as files with certificates may be replaced at any
    /// time. The connections stay in use if the login finds nothing else: the server's change may be temporary.
    pub async fn renew(&self, distrusted: &Connection) {
        if !self.store.can_renew(distrusted) {
            return;
        }
        let server = distrusted.server.clone();
        // The failure is logged, and the old connections stay.
        let _renewed = self.join_login(|store| Box::pin(async move { store.renew(&server).await })).await;
    }

    /// Whether the connection is still in use.
    pub(super) fn has(&self, connection: &Connection) -> bool {
        self.store.has(connection)
    }

    /// Whether there is a connection with valid credentials.
    pub fn has_connection(&self) -> bool {
        self.store.best().is_some()
    }

    /// Whether the server rejects the credentials of all logins: there are no others, or new ones were rejected as well and no
    /// request was accepted since.
    pub fn is_rejected(&self) -> bool {
        let logins = self.store.logins();
        let is_in_doubt = self.store.in_doubt.load(Ordering::Relaxed);
        is_in_doubt && (logins.since.is_some() || self.store.best().is_none())
    }

    /// The address of the server that requests are sent to now, for the log; empty if there are no connections.
    pub fn server(&self) -> String {
        self.store.best().map(|best| best.server.clone()).unwrap_or_default()
    }

    /// Joins the running login, or starts a new one.
    fn join_login(
        &self,
        login: impl FnOnce(Arc<Store>) -> BoxFuture<'static, Result<(), LoginError>>,
    ) -> SharedLogin {
        let mut current_login = self.current_login.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = current_login.as_ref().filter(|current| current.peek().is_none()) {
            return current.clone();
        }
        let stopping = self.store.options.stopping.clone();
        let login = login(Arc::clone(&self.store));
        let new = async move {
            let exiting = async {
                stopping.cancelled().await;
                sleep(EXIT_GRACE).await;
            };
            tokio::select! {
                biased;
                outcome = login => outcome,
                () = exiting => Err(LoginError(INTERRUPTED.to_owned())),
            }
        };
        current_login.insert(new.boxed().shared()).clone()
    }
}

impl Store {
    fn logins(&self) -> MutexGuard<'_, LoginState> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, open: Vec<Arc<Connection>>) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = open;
    }

    fn has(&self, connection: &Connection) -> bool {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.iter().any(|known| std::ptr::eq(Arc::as_ptr(known), connection))
    }

    fn clock(&self) -> &Clock {
        &self.options.connections.clock
    }

    fn best(&self) -> Option<Arc<Connection>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let valid = || open.iter().filter(|known| self.is_valid(known));
        let highest = valid().map(|known| known.priority).max()?;
        // Connections with the same priority take turns, to spread the load.
        let equals: Vec<_> = valid().filter(|known| known.priority == highest).collect();
        let turn = if equals.len() > 1 { self.turn.fetch_add(1, Ordering::Relaxed) } else { 0 };
        equals.get(turn % equals.len()).map(|chosen| Arc::clone(chosen))
    }

    /// Whether the credentials have not expired yet.
    fn is_valid(&self, connection: &Connection) -> bool {
        // Expirations are set by other machines, so this is the clock that advances while this machine is suspended.
        connection.expiration.is_none_or(|moment| moment > unix(self.clock().now_for_others()))
    }

    /// Logs in until there is a connection, or until more logins are useless.
    async fn obtain(&self) -> Result<(), LoginError> {
        loop {
            if self.best().is_some() {
                return Ok(());
            }
            if let Some(rejected) = self.repeatedly_rejected() {
                let what = format!("{rejected}. ");
                self.wait_for_retry((&what, FIRST_RETRIES), ran_out(Some(&rejected))).await?;
            }
            let outcome = self.log_in(false).await;
            if self.best().is_some() {
                return Ok(());
            }
            let error = match outcome {
                Ok(()) => ran_out(self.logins().rejected.as_ref()),
                Err(LoginFailure::Final(error)) => return Err(error),
                Err(LoginFailure::Passing(error)) => error,
            };
            self.wait_for_retry(("", 0), error).await?;
        }
    }

    /// Whether the credentials may be read again now because of certificates. If so, also sets the earliest moment of the
    /// next attempt.
    fn can_renew(&self, distrusted: &Connection) -> bool {
        if self.options.login_timeout <= 0.0 || !self.was_authorized.load(Ordering::Relaxed) {
            return false;
        }
        let is_known = self.has(distrusted);
        let now = self.clock().now();
        let mut logins = self.logins();
        if !is_known || logins.renewal.is_some_and(|moment| moment > now) {
            return false;
        }
        let Some(delay) = logins.retries.next(None, 0.0) else { return false };
        logins.renewal = Some(now.plus(delay.seconds));
        logins.rejected_fingerprints.clear();
        true
    }

    async fn renew(&self, server: &str) -> Result<(), LoginError> {
        self.in_doubt.store(true, Ordering::Relaxed);
        let what = format!("Certificates are not accepted between {server} and us");
        self.log(Level::Warning, LOGGER, format!("{what}: the credentials are read again."));
        if let Err(LoginFailure::Final(error) | LoginFailure::Passing(error)) = self.log_in(true).await {
            self.log(Level::Warning, LOGGER, format!("The credentials cannot be read again: {error}"));
        }
        Ok(())
    }

    async fn log_in(&self, is_renewal: bool) -> Result<(), LoginFailure> {
        let result = self.try_to_log_in(is_renewal).await;
        self.login_counts[usize::from(result.is_err())].increment();
        result
    }

    async fn try_to_log_in(&self, is_renewal: bool) -> Result<(), LoginFailure> {
        let happened = std::mem::replace(&mut self.logins().happened, true);
        let title = if happened { "Re-authentication" } else { "Initial authentication" };
        self.log(Level::Info, LOGGER, format!("{title} has been initiated."));
        let (reply, receiver) = oneshot::channel();
        self.host.submit(HostTask::Login(LoginTask { reply, is_renewal }));
        let login = receiver.await.map_err(|_| LoginFailure::Final(LoginError(INTERRUPTED.to_owned())))?;
        let login = match login {
            Ok(login) => login,
            Err(text) => return Err(self.failed(LoginError(text)).await),
        };
        let found = match &login {
            // The files may be incomplete while they are being written.
            Login::Provided(items) => self.connect(items).map_err(LoginFailure::Passing)?,
            Login::Fallback => self.fall_back().await.map_err(LoginFailure::Passing)?,
            Login::Kubeconfig { path, context } => {
                let options = &self.options.connections;
                let connecting = Connection::from_context(path.as_deref(), context.as_deref(), options);
                vec![connecting.await.map_err(LoginFailure::Passing)?]
            }
        };
        let fresh = self.without_rejected(found);
        if fresh.is_empty() {
            let why = "no credentials were retrieved from the login handlers.";
            self.log(Level::Warning, LOGGER, format!("{title} has failed: {why}"));
            return Ok(());
        }
        if !fresh.iter().any(|one| self.is_valid(one)) {
            let keys = fresh.iter().map(|one| &one.key);
            return Err(LoginFailure::Passing(expired(keys)));
        }
        self.log(Level::Info, LOGGER, format!("{title} has finished."));
        self.replace(fresh);
        Ok(())
    }

    /// The login handlers have failed permanently, which stops the operator. Kopf 1.45 continues without credentials
    /// until it is stopped.
    async fn failed(&self, error: LoginError) -> LoginFailure {
        if self.options.connections.compat {
            self.options.stopping.cancelled().await;
        }
        LoginFailure::Final(error)
    }

    fn log(&self, level: Level, logger: Logger, text: String) {
        self.host.log(LogRecord::general(level, logger, text));
    }
}

/// Seconds since the epoch, as in the expiration of credentials.
#[expect(clippy::cast_precision_loss, reason = "microseconds of today are exact in a float")]
fn unix(moment: Timestamp) -> f64 {
    moment.micros() as f64 / 1_000_000.0
}

mod fallback;
mod provided;
mod rejections;
#[cfg(test)]
mod tests;
