//! The credential store: the connections with working credentials, and the only place where logins start.
//!
//! A request uses the connection with the highest priority. When the API server rejects its credentials, the connection
//! is removed. When the last one is removed, the login handlers run again while all requests wait. Recently rejected
//! credentials are not used again. When logins start and end, and which credentials are used, is decided by `kopf_core::logins`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use kopf_core::log_level::Level;
use kopf_core::logins::candidates::{self, Candidate};
use kopf_core::logins::{Known, LoginFailure, LoginState, Retry, expired};
use kopf_core::time::Timestamp;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::client::connection::{Connection, ConnectionOptions, KubeconfigFailure};
use crate::error::LoginError;
use crate::host::credentials::{Credentials, Login};
use crate::host::{Host, HostTask, LogRecord, Logger, LoginTask};
use crate::metrics::Counter;
use crate::time::clock::Clock;
use crate::time::duration::seconds;

const LOGGER: Logger = Logger::Activities;
const INTERRUPTED: &str = "The login was interrupted by the operator's exit.";
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
    /// The last request was accepted, which is recorded already.
    is_settled: AtomicBool,
    /// The successful and the failed logins.
    login_counts: [Counter; 2],
}

/// A login that has failed.
enum FailedLogin {
    /// Permanently: logins are not repeated.
    Final(LoginError),
    /// Temporarily: the login may be repeated.
    Passing(LoginFailure),
}

impl FailedLogin {
    /// A temporary failure that is not logged yet.
    fn passing(failure: impl Into<KubeconfigFailure>) -> Self {
        let KubeconfigFailure { error, is_of_plugin } = failure.into();
        Self::Passing(LoginFailure { error, is_logged: false, is_of_plugin })
    }

    /// A temporary failure that is logged already.
    fn logged(failure: impl Into<KubeconfigFailure>) -> Self {
        let KubeconfigFailure { error, is_of_plugin } = failure.into();
        Self::Passing(LoginFailure { error, is_logged: true, is_of_plugin })
    }
}

impl CredentialStore {
    /// A store with the given credentials. If there are none, the first request starts a login.
    pub fn new(
        host: Arc<dyn Host>,
        options: CredentialStoreOptions,
        given: &[(String, Credentials)],
    ) -> Result<Self, LoginError> {
        let logins = Mutex::new(LoginState::new(options.login_timeout));
        let store = Store {
            host,
            options,
            open: RwLock::default(),
            logins,
            turn: AtomicUsize::default(),
            is_settled: AtomicBool::default(),
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
        if self.store.is_settled.load(Ordering::Relaxed) {
            return;
        }
        let mut logins = self.store.logins();
        logins.on_authorized();
        self.store.is_settled.store(true, Ordering::Relaxed);
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
        self.store.unsettled().on_rejected(known(rejected));
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
        self.store.logins().is_rejected(self.has_connection())
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

    /// The state of logins, which is about to change because of a failure.
    fn unsettled(&self) -> MutexGuard<'_, LoginState> {
        let logins = self.logins();
        self.is_settled.store(false, Ordering::Relaxed);
        logins
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
        let candidates = open.iter().map(|known| candidate(known));
        let turn = || self.turn.fetch_add(1, Ordering::Relaxed);
        let best = candidates::best(candidates, || self.unix_now(), turn)?;
        open.get(best).map(Arc::clone)
    }

    /// Whether the credentials have not expired yet.
    fn is_valid(&self, connection: &Connection) -> bool {
        candidate(connection).is_valid(|| self.unix_now())
    }

    /// The time for expirations. They are set by other machines, so this is the clock that advances while this machine is suspended.
    fn unix_now(&self) -> f64 {
        unix(self.clock().now_for_others())
    }

    /// Logs in until there is a connection, or until more logins are useless.
    async fn obtain(&self) -> Result<(), LoginError> {
        loop {
            if self.best().is_some() {
                return Ok(());
            }
            let retry = self.unsettled().before_login(self.clock().now())?;
            if let Some(retry) = retry {
                self.wait(retry).await;
            }
            let outcome = self.log_in(false).await;
            if self.best().is_some() {
                return Ok(());
            }
            let failure = match outcome {
                Ok(()) => None,
                Err(FailedLogin::Final(error)) => return Err(error),
                Err(FailedLogin::Passing(failure)) => Some(failure),
            };
            let retry = self.unsettled().after_login(failure, self.clock().now())?;
            self.wait(retry).await;
        }
    }

    /// Waits before the next login.
    async fn wait(&self, retry: Retry) {
        self.log(Level::Warning, LOGGER, retry.text);
        self.clock().sleep(seconds(retry.seconds)).await;
        self.logins().on_waited();
    }

    /// Whether the credentials are read again now because of certificates.
    fn can_renew(&self, distrusted: &Connection) -> bool {
        self.has(distrusted) && self.unsettled().can_renew(self.clock().now())
    }

    async fn renew(&self, server: &str) -> Result<(), LoginError> {
        let what = format!("Certificates are not accepted between {server} and us");
        self.log(Level::Warning, LOGGER, format!("{what}: the credentials are read again."));
        if let Err(FailedLogin::Final(error) | FailedLogin::Passing(LoginFailure { error, .. })) =
            self.log_in(true).await
        {
            self.log(Level::Warning, LOGGER, format!("The credentials cannot be read again: {error}"));
        }
        Ok(())
    }

    async fn log_in(&self, is_renewal: bool) -> Result<(), FailedLogin> {
        let result = self.try_to_log_in(is_renewal).await;
        self.login_counts[usize::from(result.is_err())].increment();
        result
    }

    async fn try_to_log_in(&self, is_renewal: bool) -> Result<(), FailedLogin> {
        let title = self.logins().begin();
        self.log(Level::Info, LOGGER, format!("{title} has been initiated."));
        let (reply, receiver) = oneshot::channel();
        self.host.submit(HostTask::Login(LoginTask { reply, is_renewal }));
        let login = receiver.await.map_err(|_| FailedLogin::Final(LoginError(INTERRUPTED.to_owned())))?;
        let login = match login {
            Ok(login) => login,
            Err(text) => return Err(self.failed(LoginError(text)).await),
        };
        let found = match &login {
            // The files may be incomplete while they are being written.
            Login::Provided(items) => self.connect(items).map_err(FailedLogin::logged)?,
            Login::Fallback => self.fall_back().await.map_err(FailedLogin::logged)?,
            Login::Kubeconfig { path, context } => {
                let options = &self.options.connections;
                let connecting = Connection::from_context(path.as_deref(), context.as_deref(), options);
                vec![connecting.await.map_err(FailedLogin::passing)?]
            }
        };
        let fresh = self.without_rejected(found);
        if fresh.is_empty() {
            let why = "no credentials were retrieved from the login handlers.";
            self.log(Level::Warning, LOGGER, format!("{title} has failed: {why}"));
            return Ok(());
        }
        if !fresh.iter().any(|one| self.is_valid(one)) {
            let keys = fresh.iter().map(|one| one.key.as_str());
            return Err(FailedLogin::passing(expired(keys)));
        }
        self.log(Level::Info, LOGGER, format!("{title} has finished."));
        self.replace(fresh);
        Ok(())
    }

    /// The connections of a login without those whose credentials were rejected recently.
    fn without_rejected(&self, found: Vec<Connection>) -> Vec<Arc<Connection>> {
        let fresh = self.logins().fresh(&found.iter().map(known).collect::<Vec<_>>());
        let fresh =
            found.into_iter().zip(fresh).filter_map(|(one, is_fresh)| is_fresh.then(|| Arc::new(one)));
        fresh.collect()
    }

    /// The login handlers have failed permanently, which stops the operator. Kopf 1.45 continues without credentials
    /// until it is stopped.
    async fn failed(&self, error: LoginError) -> FailedLogin {
        if self.options.connections.compat {
            self.options.stopping.cancelled().await;
        }
        FailedLogin::Final(error)
    }

    fn log(&self, level: Level, logger: Logger, text: String) {
        self.host.log(LogRecord::general(level, logger, text));
    }
}

/// The credentials of a connection.
fn known(connection: &Connection) -> Known<'_> {
    Known { server: &connection.server, key: &connection.key, fingerprint: connection.fingerprint }
}

fn candidate(connection: &Connection) -> Candidate {
    Candidate { priority: connection.priority, expiration: connection.expiration }
}

/// Seconds since the epoch, as in the expiration of credentials.
#[expect(clippy::cast_precision_loss, reason = "microseconds of today are exact in a float")]
fn unix(moment: Timestamp) -> f64 {
    moment.micros() as f64 / 1_000_000.0
}

mod fallback;
mod provided;
#[cfg(test)]
mod tests;
