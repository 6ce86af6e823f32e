//! Leader election of a replica: one task that reads, acquires, renews and releases the Lease, and opens the fence.
//!
//! The rules are those of [`kopf_core::lease`]; this module waits and sends. The task never waits for Python, and its requests
//! wait for no others. While the replica does not lead, it watches the Lease. [`Replica`] is the part of the operator in it.

mod last_term;
mod lease_client;
mod lease_watch;
mod replica;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use futures::future::{BoxFuture, pending};
use kopf_core::lease::{Action, Candidate, Command, Input, Options, Term};
use kopf_core::log_level::Level;
use kopf_core::time::BootInstant;
use tokio::sync::{mpsc, watch};

use crate::client::Client;
use crate::fence::Fence;
use crate::host::{Host, LogRecord, Logger};
use crate::time::clock::Clock;

use lease_client::LeaseClient;
use lease_watch::LeaseWatch;
pub use replica::{Change, Replica};

const LOGGER: Logger = Logger::Leadership;

/// The part that this replica has in the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It does not lead.
    Standby,
    /// It leads this term. The fence may have closed in the meantime.
    Leader(i64),
    /// The term has ended, but its calls may still run: [`Election::report_drained`] is due.
    Draining(i64),
}

/// The Lease of an operator, and the identity of this replica.
#[derive(Debug, Clone)]
pub struct LeaseConfig {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The identity of this process. A restarted process has another one.
    pub identity: String,
    /// The durations.
    pub options: Options,
}

/// The operator's access to its elector: commands, and the role.
#[derive(Debug, Clone)]
pub struct Election {
    sender: mpsc::UnboundedSender<Input>,
    role: watch::Receiver<Role>,
    slow_renewals: Arc<AtomicU64>,
}

impl Election {
    /// Passes a command to the elector.
    pub fn command(&self, command: Command) {
        // An elector that has finished needs no commands.
        let _finished = self.sender.send(Input::Command(command));
    }

    /// No call and no write of the term is left: after the end of a term, or after [`Command::Release`].
    pub fn report_drained(&self) {
        let _finished = self.sender.send(Input::Drained);
    }

    /// The role, and its changes.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// The number of renewals that needed a fresh read of the Lease.
    pub fn slow_renewals(&self) -> u64 {
        self.slow_renewals.load(Ordering::Relaxed)
    }
}

/// The task of the election.
pub struct Elector {
    candidate: Candidate,
    client: Arc<LeaseClient>,
    fence: Arc<Fence>,
    clock: Clock,
    host: Arc<dyn Host>,
    place: String,
    receiver: mpsc::UnboundedReceiver<Input>,
    lease_watch: Arc<LeaseWatch>,
    role: watch::Sender<Role>,
    /// The count of the candidate, for metrics.
    slow_renewals: Arc<AtomicU64>,
    /// The last logged failure, so that each is logged once.
    failure: Option<String>,
}

/// The result of a request: the input for the candidate, and the failure for the log.
struct Response {
    input: Input,
    failure: Option<String>,
}

impl Elector {
    /// An elector that opens and closes the fence, and the operator's access to it. Nothing happens before it runs.
    pub fn new(
        config: LeaseConfig,
        client: Client,
        fence: Arc<Fence>,
        clock: Clock,
        host: Arc<dyn Host>,
    ) -> (Self, Election) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (role, changes) = watch::channel(Role::Standby);
        let LeaseConfig { namespace, name, identity, options } = config;
        let place = format!("{namespace}/{name}");
        let lease_client = Arc::new(LeaseClient::new(client, (namespace, name), &options, clock.clone()));
        let ends = (sender.clone(), changes.clone());
        let lease_watch = LeaseWatch::new(Arc::clone(&lease_client), clock.clone(), ends, &options);
        let elector = Self {
            candidate: Candidate::new(&identity, options, fastrand::u64(..)),
            client: lease_client,
            fence,
            clock,
            host,
            place,
            receiver,
            lease_watch: Arc::new(lease_watch),
            role,
            slow_renewals: Arc::default(),
            failure: None,
        };
        let slow_renewals = Arc::clone(&elector.slow_renewals);
        (elector, Election { sender, role: changes, slow_renewals })
    }

    /// Takes part in the election until the lease is released. If the task is cancelled, the fence closes at its deadline, and
    /// the lease expires.
    pub async fn run(mut self) {
        let lease_watch = Arc::clone(&self.lease_watch);
        tokio::select! {
            () = self.take_part() => {}
            never = lease_watch.run() => match never {},
        }
    }

    async fn take_part(&mut self) {
        let mut request: Option<BoxFuture<'static, Response>> = None;
        let mut input = Input::Woken;
        loop {
            if input == Input::Drained {
                self.stand_by();
            }
            let action = self.candidate.step(input, self.clock.boot_now());
            self.slow_renewals.store(self.candidate.slow_renewals(), Ordering::Relaxed);
            input = match action {
                Action::Read => {
                    request = Some(Arc::clone(&self.client).read().boxed());
                    Input::Woken
                }
                Action::Create(record) => {
                    request = Some(Arc::clone(&self.client).create(record).boxed());
                    Input::Woken
                }
                Action::Update { version, record } => {
                    request = Some(Arc::clone(&self.client).update(version, record).boxed());
                    Input::Woken
                }
                Action::Lead(term) => self.lead(term),
                Action::Stop => {
                    self.stop();
                    Input::Woken
                }
                Action::Finished => return,
                Action::WaitUntil(instant) => self.wait(&mut request, instant).await,
            };
        }
    }

    /// Waits for a response, a command, or the instant.
    async fn wait(
        &mut self,
        request: &mut Option<BoxFuture<'static, Response>>,
        instant: BootInstant,
    ) -> Input {
        let response = async {
            match request {
                Some(request) => request.await,
                None => pending().await,
            }
        };
        let clock = &self.clock;
        let woken = async {
            match instant {
                BootInstant::NEVER => pending().await,
                instant => clock.sleep_until_boot(instant).await,
            }
        };
        let Response { input, failure } = tokio::select! {
            response = response => response,
            // Without an access, the operator has ended without a release: the elector is cancelled soon.
            Some(input) = self.receiver.recv() => return input,
            () = woken => return Input::Woken,
        };
        *request = None;
        self.log_failure(failure);
        input
    }

    /// Opens the fence for the term, or extends its deadline.
    fn lead(&self, term: Term) -> Input {
        if !self.fence.open(term) {
            return Input::Fenced;
        }
        let role = Role::Leader(term.number);
        if self.role.send_if_modified(|present| std::mem::replace(present, role) != role) {
            self.log(
                Level::Info,
                format!("Became the leader by the lease {} in term {}.", self.place, term.number),
            );
        }
        Input::Woken
    }

    /// Closes the fence.
    fn stop(&self) {
        self.fence.close();
        let present = *self.role.borrow();
        if let Role::Leader(term) = present {
            self.role.send_replace(Role::Draining(term));
            self.log(Level::Warning, format!("The term {term} by the lease {} has ended.", self.place));
        }
    }

    /// No call and no write of the last term is left.
    fn stand_by(&self) {
        let is_draining = matches!(*self.role.borrow(), Role::Draining(_));
        if is_draining {
            self.role.send_replace(Role::Standby);
        }
    }

    /// Logs a failure if it differs from the last one.
    fn log_failure(&mut self, failure: Option<String>) {
        if let Some(failure) = &failure
            && self.failure.as_ref() != Some(failure)
        {
            self.log(Level::Error, failure.clone());
        }
        self.failure = failure;
    }

    fn log(&self, level: Level, text: String) {
        self.host.log(LogRecord::general(level, LOGGER, text));
    }
}

#[cfg(test)]
mod tests;
