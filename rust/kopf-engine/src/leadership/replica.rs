//! The part of an operator in the leader election: it stands by, leads, loses the lease, or releases it.
//!
//! After the loss of a term, the elector acquires the next one only when nothing of the lost one runs any more. So all calls and
//! writes of the process belong to the term whose fence is open.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kopf_core::lease::{Command, LeaderElection, OnLost};
use kopf_core::log_level::Level;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::last_term::LastTerm;
use super::lease_client::LeaseClient;
use super::{Election, Elector, LOGGER, LeaseConfig, Role};
use crate::error::{Failure, FailureKind};
use crate::fence::{Fence, Rejection};
use crate::host::LogRecord;
use crate::operator_pause::Pause;
use crate::task_context::TaskContext;
use crate::time::clock::Clock;
use crate::time::duration::seconds;

/// The failure if neither the settings nor the credentials specify a namespace for the Lease.
const NO_NAMESPACE: &str = "Leader election needs the namespace of the lease: neither the pod (POD_NAMESPACE) nor the credentials have \
    one. Set --lease-namespace=NAME.";

/// An operator that takes part in a leader election.
pub struct Replica {
    settings: LeaderElection,
    fence: Arc<Fence>,
    pause: Arc<Pause>,
    clock: Clock,
    /// Cancelled when the lease is lost, and the operator ends for that.
    lost: CancellationToken,
    /// Cancelled when calls of a lost term have not ended in time.
    overdue: CancellationToken,
    /// Cancelled when the elector has ended.
    finished: CancellationToken,
    election: OnceLock<Election>,
    /// The namespace and the name of the Lease, once they are known.
    place: OnceLock<String>,
    is_releasing: AtomicBool,
    changes: [AtomicU32; 3],
}

/// A change of the leadership of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A term has begun.
    Acquired,
    /// A term has ended by a release.
    Released,
    /// A term has ended by the loss of the lease.
    Lost,
}

impl Change {
    /// All of them, with their names in metrics.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Acquired, "acquired"), (Self::Released, "released"), (Self::Lost, "lost")];
}

impl Replica {
    /// A replica that stands by: the operator is paused until it leads.
    pub fn new(settings: LeaderElection, fence: Arc<Fence>, pause: &Arc<Pause>, clock: Clock) -> Self {
        pause.stand_by(settings.options.warm);
        Self {
            settings,
            fence,
            pause: Arc::clone(pause),
            clock,
            lost: CancellationToken::new(),
            overdue: CancellationToken::new(),
            finished: CancellationToken::new(),
            election: OnceLock::new(),
            place: OnceLock::new(),
            is_releasing: AtomicBool::new(false),
            changes: Default::default(),
        }
    }

    /// The elector, which the caller runs with [`Replica::run_elector`].
    ///
    /// # Errors
    /// The durations do not fit together, or there are no credentials, or no namespace.
    pub async fn elector(&self, shared: &TaskContext) -> Result<Elector, Failure> {
        let LeaderElection { name, namespace, identity, options, .. } = &self.settings;
        options.check().map_err(|error| Failure::other(format!("settings.leadership: {error}")))?;
        let namespace = match namespace {
            Some(namespace) => namespace.clone(),
            None => shared.client.default_namespace().await?.ok_or_else(|| Failure::other(NO_NAMESPACE))?,
        };
        let place = format!("{namespace}/{name}");
        let text = format!("Standing by for the lease {place} as {identity}.");
        shared.host.log(LogRecord::general(Level::Info, LOGGER, text));
        let _first = self.place.set(place);
        let config = LeaseConfig {
            namespace,
            name: name.clone(),
            identity: identity.clone(),
            options: options.clone(),
        };
        let (client, host) = (shared.client.clone(), Arc::clone(&shared.host));
        let fence = Arc::clone(&self.fence);
        let (elector, election) = Elector::new(config, client, fence, shared.clock.clone(), host);
        let _first = self.election.set(election);
        Ok(elector)
    }

    /// Takes part in the election until the lease is released.
    pub async fn run_elector(self: Arc<Self>, elector: Elector) {
        let _finished = self.finished.clone().drop_guard();
        elector.run().await;
    }

    /// The role in the election, and its changes; none before the elector exists.
    pub fn roles(&self) -> Option<watch::Receiver<Role>> {
        self.election.get().map(Election::role)
    }

    /// A term has begun: the operator works.
    pub fn lead(&self) {
        self.count(Change::Acquired);
        self.pause.lead();
    }

    /// The term has ended. Returns whether the lease is lost: otherwise, this replica has released it.
    pub fn on_end(&self) -> bool {
        let is_lost = !self.is_releasing();
        self.count(if is_lost { Change::Lost } else { Change::Released });
        is_lost
    }

    /// Whether the operator ends when the lease is lost.
    pub fn ends_on_loss(&self) -> bool {
        self.settings.on_lost == OnLost::Exit
    }

    /// The lease is lost: the operator is paused until the replica leads again.
    pub fn stand_by(&self) {
        self.pause.stand_by(self.settings.options.warm);
    }

    /// Nothing of the lost term runs any more: the replica takes part in the election again.
    pub fn report_drained(&self, shared: &TaskContext) {
        let text = format!("Standing by for the lease {} again.", self.place());
        shared.host.log(LogRecord::general(Level::Info, LOGGER, text));
        if let Some(election) = self.election.get() {
            election.report_drained();
        }
    }

    /// How long cancelled calls may take to end when the lease is lost.
    pub fn loss_grace(&self) -> Duration {
        seconds(self.settings.options.loss_grace)
    }

    /// The operator ends, because the lease is lost.
    pub fn end(&self, shared: &TaskContext) {
        self.lost.cancel();
        let place = self.place();
        let text = format!("The lease {place} was lost: this replica ends, and another one continues.");
        shared.failing.raise(Failure::other(text));
    }

    /// The operator ends, because calls of a lost term have not ended in time.
    pub fn end_overdue(&self, shared: &TaskContext) {
        self.overdue.cancel();
        self.lost.cancel();
        let (place, grace) = (self.place(), self.settings.options.loss_grace);
        let text = format!(
            "Leadership was lost: handlers of the lease {place} are still running after {grace} seconds; exiting, as they \
             cannot be stopped."
        );
        shared.failing.raise(Failure { kind: FailureKind::Leadership, ..Failure::other(text) });
    }

    /// Reports to the elector whether the replica can work, and whether it has received the state of the cluster.
    pub fn report(&self, is_healthy: bool, is_synced: bool) {
        if let Some(election) = self.election.get() {
            election.command(Command::SetHealthy(is_healthy));
            election.command(Command::SetSynced(is_synced));
        }
    }

    /// Whether the lease is released at the exit. Otherwise, it expires.
    pub fn releases(&self) -> bool {
        self.settings.release
    }

    /// Releases the lease: no call and no write is left. Without a response, the lease expires. Returns whether it is released.
    pub async fn release(&self) -> bool {
        let Some(election) = self.election.get().filter(|_| self.releases()) else { return false };
        self.is_releasing.store(true, Ordering::Release);
        election.command(Command::Release);
        election.report_drained();
        let limit = seconds(self.settings.options.request_timeout());
        timeout(limit, self.finished.cancelled()).await.is_ok()
    }

    /// After the release: calls the function in one more term, if no other replica acquires the lease within about three
    /// seconds, so that this one is the last.
    pub async fn finish_as_last(&self, shared: &TaskContext, finish: impl Future<Output = ()>) {
        let Some((namespace, name)) = self.place.get().and_then(|place| place.split_once('/')) else {
            return;
        };
        let options = &self.settings.options;
        let place = (namespace.to_owned(), name.to_owned());
        let client = Arc::new(LeaseClient::new(shared.client.clone(), place, options, self.clock.clone()));
        let identity = self.identity();
        if let Some(term) = LastTerm::acquire(&client, &self.fence, (identity, options), &self.clock).await {
            finish.await;
            term.release(&client, &self.fence).await;
        }
    }

    /// Waits until the operator ends for the loss of the lease, and cancelled calls have had the time to end.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
        tokio::select! {
            () = self.clock.sleep(self.loss_grace()) => {}
            () = self.overdue.cancelled() => {}
        }
    }

    /// Waits until the operator ends for the loss of the lease.
    pub async fn losing(&self) {
        self.lost.cancelled().await;
    }

    /// The namespace and the name of the Lease; empty names before they are known.
    pub fn lease(&self) -> (&str, &str) {
        self.place().split_once('/').unwrap_or_default()
    }

    /// The identity of this process in the Lease.
    pub fn identity(&self) -> &str {
        &self.settings.identity
    }

    /// The present term; none if the replica does not lead.
    pub fn term(&self) -> Option<i64> {
        self.fence.term()
    }

    /// The seconds until the fence of the term closes if the lease is not renewed; none if it is closed.
    pub fn expires_in(&self, term: i64) -> Option<f64> {
        let deadline = self.fence.deadline(term)?;
        Some(deadline.seconds_since(self.clock.boot_now()).max(0.0))
    }

    /// Whether the call of a handler may begin.
    pub fn admits_call(&self) -> bool {
        self.fence.admit(Rejection::Call).is_ok()
    }

    /// How much work the fence has rejected.
    pub fn rejected(&self, work: Rejection) -> u64 {
        self.fence.rejected(work)
    }

    /// Whether the replica leads.
    pub fn is_leading(&self) -> bool {
        self.fence.is_open()
    }

    /// Whether the replica was the leader, and has not released the lease, although its fence is closed.
    pub fn is_overdue(&self) -> bool {
        let role = self.election.get().map(|election| *election.role().borrow());
        let has_led = matches!(role, Some(Role::Leader(_) | Role::Draining(_)));
        has_led && !self.is_releasing() && !self.fence.is_open()
    }

    /// The seconds until the fence closes if the lease is not renewed; zero if it is closed.
    pub fn valid_for(&self) -> f64 {
        let role = self.election.get().map(|election| *election.role().borrow());
        let Some(Role::Leader(term)) = role else { return 0.0 };
        self.expires_in(term).unwrap_or_default()
    }

    /// The namespace and the name of the Lease; only the name until the namespace is known.
    pub fn place(&self) -> &str {
        self.place.get().map_or(&self.settings.name, String::as_str)
    }

    /// How many seconds a record of another replica is valid.
    pub fn lease_duration(&self) -> f64 {
        self.settings.options.lease_duration
    }

    /// The number of such changes.
    pub fn changes(&self, change: Change) -> u32 {
        self.changes[change as usize].load(Ordering::Relaxed)
    }

    /// The number of renewals that needed a fresh read of the Lease.
    pub fn slow_renewals(&self) -> u64 {
        self.election.get().map_or(0, Election::slow_renewals)
    }

    fn count(&self, change: Change) {
        self.changes[change as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn is_releasing(&self) -> bool {
        self.is_releasing.load(Ordering::Acquire)
    }
}
