//! The watch of the Lease by a replica that does not lead, so that it notices a release at once.
//!
//! The watch is optional: without the permission, or while it fails, the candidate reads the Lease every `retry_period`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kopf_core::lease::{Command, Input, Options};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::Role;
use super::lease_client::LeaseClient;
use crate::client::StreamBody;
use crate::error::RequestError;
use crate::time::clock::Clock;
use crate::time::duration::seconds;
use crate::watch::lines::Lines;

/// The delay after a rejection: the permission is granted later, or never.
const REJECTED_DELAY: Duration = Duration::from_mins(1);
/// The maximum length of a watch event in bytes: far more than a Lease has.
const MAX_LINE: usize = 1024 * 1024;

/// The watch of one Lease.
pub(super) struct LeaseWatch {
    client: Arc<LeaseClient>,
    clock: Clock,
    sender: mpsc::UnboundedSender<Input>,
    role: watch::Receiver<Role>,
    retry_period: Duration,
    /// While a replica leads, there are more frequent events. After such a silence, the connection is opened again.
    silence: Duration,
}

impl LeaseWatch {
    pub(super) fn new(
        client: Arc<LeaseClient>,
        clock: Clock,
        (sender, role): (mpsc::UnboundedSender<Input>, watch::Receiver<Role>),
        options: &Options,
    ) -> Self {
        let (retry_period, silence) = (seconds(options.retry_period), seconds(options.lease_duration));
        Self { client, clock, sender, role, retry_period, silence }
    }

    /// Watches the Lease while the replica does not lead, and passes its states to the candidate, until it is cancelled.
    pub(super) async fn run(&self) -> Infallible {
        loop {
            self.until(|role| !matches!(role, Role::Leader(_))).await;
            let delay = tokio::select! {
                delay = self.watch() => delay,
                () = self.until(|role| matches!(role, Role::Leader(_))) => Duration::ZERO,
            };
            self.pass(Input::Command(Command::SetWatching(false)));
            self.clock.sleep(delay).await;
        }
    }

    /// Watches over one connection; the delay before the next one.
    async fn watch(&self) -> Duration {
        match self.client.watch().await {
            Ok(body) => {
                self.read(body).await;
                self.retry_period
            }
            Err(RequestError::Api(error)) if error.status == 403 => REJECTED_DELAY,
            Err(_) => self.retry_period,
        }
    }

    /// Passes the states on until the connection ends.
    async fn read(&self, mut body: StreamBody) {
        let mut lines = Lines::default();
        let mut is_watching = false;
        while let Ok(Some(Ok(frame))) = timeout(self.silence, body.frame()).await {
            let Ok(data) = frame.into_data() else { continue };
            let is_over = lines.feed(&data, |line| {
                let Some(observed) = self.client.parse_event(line)? else { return Ok(false) };
                if !std::mem::replace(&mut is_watching, true) {
                    self.pass(Input::Command(Command::SetWatching(true)));
                }
                self.pass(observed);
                Ok::<_, String>(false)
            });
            // The candidate reads the Lease then, and logs what is wrong with it.
            if is_over.is_err() || lines.pending() > MAX_LINE {
                return;
            }
        }
    }

    /// Waits for the role. The elector, which changes it, runs as long as this task.
    async fn until(&self, condition: impl FnMut(&Role) -> bool) {
        let mut role = self.role.clone();
        let _ended = role.wait_for(condition).await;
    }

    fn pass(&self, input: Input) {
        // The elector receives in the same task.
        let _ended = self.sender.send(input);
    }
}
