//! Peering: this operator's keep-alive among its peers, and its pauses in favour of others.
//!
//! For each peering object there is a keep-alive task that renews our record, a watch that is never paused, and a task that
//! evaluates the records (`kopf_core::peering`) and sets the toggle. Errors of the API are logged, and these tasks continue.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, OptionFuture};
use http::Method;
use kopf_core::json::path::FieldPath;
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::peering::{self, LocalPeer, Peer};
use kopf_core::resource::Resource;
use kopf_core::settings::Peering as Settings;
use kopf_core::time::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::client::{Client, RequestBody};
use crate::error::{Failure, RequestError};
use crate::feed::Feed;
use crate::host::{LogRecord, Logger};
use crate::operator_pause::Pause;
use crate::supervision::{Panicked, Restartable, run_restarting, supervised};
use crate::task_context::TaskContext;
use crate::time::duration::seconds;
use crate::watch::Stream;

mod consumer;

use consumer::PeeringConsumer;

const LOGGER: Logger = Logger::Peering;
/// The groups of the peering resources: Kopf's, and its first one.
pub const GROUPS: [&str; 2] = ["kopf.dev", "zalando.org"];
const VERSION: &str = "v1";
/// The reason of a pause when peering is mandatory but its CRD is missing.
pub const MISSING: &str = "peering CRD is missing";
/// Seconds for the removal of our record at the exit. If it stays, it expires.
const LEAVE_TIMEOUT: f64 = 5.0;
/// Seconds until the next attempt if the check of an overdue peer has failed.
const RECHECK_DELAY: f64 = 5.0;

/// The tasks of the orchestrator; the first failure of one is the operator's.
pub type Tasks = JoinSet<Result<(), Failure>>;

/// The plural name of the peering resource.
pub fn plural(clusterwide: bool) -> &'static str {
    if clusterwide { "clusterkopfpeerings" } else { "kopfpeerings" }
}

/// The log line for mandatory peering without its resource.
pub fn missing_text(clusterwide: bool) -> String {
    let plural = plural(clusterwide);
    format!(
        "Paused: the cluster has no resource {plural}.{}. Install its CRD, or run with --standalone.",
        GROUPS[0]
    )
}

/// Whether the resource is the peering resource of such an operator.
pub fn is_peering(resource: &Resource, clusterwide: bool) -> bool {
    GROUPS.contains(&resource.group.as_str())
        && resource.version == VERSION
        && resource.plural == plural(clusterwide)
}

/// One peering object in which this operator takes part.
#[derive(Clone)]
pub struct Peering {
    shared: Arc<TaskContext>,
    identity: Arc<str>,
    pause: Arc<Pause>,
    resource: Arc<Resource>,
    namespace: Option<String>,
    toggle: Arc<str>,
    /// Requests a keep-alive before its time.
    renew: Arc<Notify>,
}

/// The state of the peering object: not seen yet, absent, or its status.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Nothing,
    Absent,
    Status(Arc<Value>),
}

impl Peering {
    /// Creates a peering of an operator with this identity, which is paused through `pause`. If peering is mandatory, the operator is
    /// paused until the object is seen; otherwise, it stays as it is until then.
    pub fn new(
        shared: Arc<TaskContext>,
        (identity, pause): (&str, &Arc<Pause>),
        resource: Arc<Resource>,
        namespace: Option<String>,
    ) -> Self {
        let settings = &shared.startup_config.settings.peering;
        let mut toggle = format!("{}@{}", settings.name, namespace.as_deref().unwrap_or("None"));
        // If both groups are installed, each has its own toggle.
        if resource.group != GROUPS[0] {
            toggle = format!("{toggle} ({})", resource.group);
        }
        if settings.mandatory {
            pause.turn(&toggle, true);
        }
        // Until its object is looked up, it may exist.
        shared.other_operators.set_peering(&toggle, true);
        let (identity, pause) = (Arc::from(identity), Arc::clone(pause));
        Self {
            toggle: Arc::from(toggle),
            renew: Arc::default(),
            shared,
            identity,
            pause,
            resource,
            namespace,
        }
    }

    /// Starts the keep-alive task.
    pub fn spawn_keepalive(&self, tasks: &mut Tasks) -> AbortHandle {
        let peering = self.clone();
        let task = format!("The keep-alive in the peering {}", self.toggle);
        tasks.spawn(supervised(task, async move { peering.keep_alive().await }))
    }

    /// Starts the watch of the peering objects and the evaluation of their records. Each is restarted after its panics: the
    /// watch with a new listing, the evaluation with the latest state.
    pub fn spawn_watch(&self, tasks: &mut Tasks, stream: Stream) -> [AbortHandle; 2] {
        let (sender, receiver) = watch::channel(Seen::Nothing);
        let name = self.settings().name.clone();
        let renew = Arc::clone(&self.renew);
        let handler = PeeringConsumer { name, seen: sender, present: false, uid: None, renew };
        [
            tasks.spawn(run_restarting(Evaluation { peering: self.clone(), seen: receiver })),
            tasks.spawn(run_restarting(Feed::new(stream).with(handler))),
        ]
    }

    /// The name of the peering object.
    pub fn name(&self) -> &str {
        &self.toggle
    }

    /// Removes this peering's toggle: it does not pause the operator any longer.
    pub fn forget(&self) {
        self.shared.other_operators.set_peering(&self.toggle, false);
        self.pause.turn(&self.toggle, false);
    }

    /// Removes our record. On failure, an error is logged, and the record expires.
    pub async fn leave(&self) {
        if self.pause.is_standby() {
            return;
        }
        let removal = self.write(self.record(0));
        let why = match timeout(seconds(LEAVE_TIMEOUT), removal).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => RequestError::Timeout.to_string(),
        };
        let text = format!("Couldn't remove self from the peering. Ignoring. {why}");
        self.log(Level::Error, text);
    }

    fn settings(&self) -> &Settings {
        &self.shared.startup_config.settings.peering
    }

    fn record(&self, lifetime: i64) -> (String, Value) {
        let now = self.shared.clock.now_for_others();
        let priority = self.settings().priority;
        let me = Peer { id: self.identity.to_string(), priority, lifetime, lastseen: now };
        (me.id.clone(), me.record())
    }

    /// Renews our record until it is cancelled.
    async fn keep_alive(&self) -> Result<(), RequestError> {
        loop {
            // The replicas of a leader election are one peer, whose record the leader writes.
            self.pause.leading().await;
            match self.touch().await {
                Err(error @ RequestError::Login(_)) => return Err(error),
                Err(error) => {
                    let text = format!("Cannot keep alive in the peering {}: {error}", self.toggle);
                    self.log(Level::Error, text);
                }
                Ok(_) => {}
            }
            let chance = fastrand::u64(..);
            let interval = peering::keep_alive_interval(self.settings().lifetime, chance);
            let interval = seconds(f64::from(i32::try_from(interval).unwrap_or(i32::MAX)));
            // The object may be created meanwhile; our record is missing in it then.
            tokio::select! {
                () = self.shared.clock.sleep(interval) => {}
                () = self.renew.notified() => {}
            }
        }
    }

    /// Renews our record; returns the state of the object in the response.
    async fn touch(&self) -> Result<Seen, RequestError> {
        let seen = self.write(self.record(self.settings().lifetime)).await?;
        let found = seen != Seen::Absent;
        if !found || !self.settings().stealth {
            self.debug(|| peering::keep_alive_text(&self.settings().name, self.namespace.as_deref(), found));
        }
        Ok(seen)
    }

    async fn write(&self, record: (String, Value)) -> Result<Seen, RequestError> {
        let name = &self.settings().name;
        let body =
            write_records(&self.shared.client, &self.resource, self.namespace.as_deref(), name, [record])
                .await?;
        let object = body.and_then(|body| Object::decode(std::str::from_utf8(&body).ok()?).ok());
        Ok(object.map_or(Seen::Absent, |object| status_of(&object)))
    }

    /// Evaluates the state on each change and when a peer's record expires.
    async fn watch(&self, seen: &mut watch::Receiver<Seen>) -> Result<(), RequestError> {
        let mut until: Option<Timestamp> = None;
        let (mut for_peers, mut was_absent) = (false, false);
        let mut removal: OptionFuture<BoxFuture<'_, ()>> = None.into();
        loop {
            let now = self.shared.clock.now_for_others();
            let overdue = until.map(|moment| seconds(moment.seconds_since(now)));
            let latest = tokio::select! {
                changed = seen.changed() => match changed {
                    Ok(()) => seen.borrow_and_update().clone(),
                    Err(_) => return Ok(()), // the watch has ended
                },
                // The response has the current state; ours may be outdated if the watch is interrupted.
                checked = self.check(overdue.unwrap_or_default()), if overdue.is_some() => match checked {
                    Ok(latest) => latest,
                    Err(error @ RequestError::Login(_)) => return Err(error),
                    Err(_) => {
                        until = Some(self.shared.clock.now_for_others().plus(RECHECK_DELAY));
                        continue;
                    }
                },
                // Its retries must not delay a pause.
                Some(()) = &mut removal => {
                    removal = None.into();
                    continue;
                }
            };
            let is_absent = latest == Seen::Absent;
            if is_absent && !was_absent && self.settings().mandatory {
                self.log(Level::Warning, self.absent_text());
            }
            was_absent = is_absent;
            let Some(evaluation) = self.evaluate(&latest, &mut for_peers) else {
                until = None;
                continue;
            };
            until = evaluation.until;
            // The records are also in the latest state if an earlier removal is not done yet.
            if !evaluation.dead.is_empty() && !self.pause.is_standby() {
                removal = Some(self.remove(evaluation.dead).boxed()).into();
            }
        }
    }

    /// Waits until a peer is overdue, and renews our record then; a standby leaves that to the leader.
    async fn check(&self, delay: std::time::Duration) -> Result<Seen, RequestError> {
        self.shared.clock.sleep(delay).await;
        self.pause.leading().await;
        self.touch().await
    }

    /// Pauses or resumes the operator. None if the state of the object is not known.
    fn evaluate(&self, seen: &Seen, for_peers: &mut bool) -> Option<peering::Evaluation> {
        let pause = &self.pause;
        if *seen != Seen::Nothing {
            self.shared.other_operators.set_peering(&self.toggle, *seen != Seen::Absent);
        }
        let status = match seen {
            Seen::Nothing => return None,
            Seen::Absent => {
                *for_peers = false;
                pause.turn(&self.toggle, self.settings().mandatory);
                return None;
            }
            Seen::Status(status) => status,
        };
        let observer = LocalPeer {
            id: self.identity.to_string(),
            priority: self.settings().priority,
            sharded: !self.shared.startup_config.settings.watching.shard_selectors.is_empty(),
        };
        let judgement = peering::evaluate(status, &observer, self.shared.clock.now_for_others());
        for (level, text) in judgement.texts(pause.has(&self.toggle), *for_peers) {
            self.log(level, text);
        }
        *for_peers = judgement.pauses();
        pause.turn(&self.toggle, judgement.pauses());
        Some(judgement)
    }

    /// Removes the records of peers that have expired.
    async fn remove(&self, dead: Vec<String>) {
        let nulls = dead.into_iter().map(|id| (id, Value::Null));
        let (name, namespace) = (&self.settings().name, self.namespace.as_deref());
        let removed = write_records(&self.shared.client, &self.resource, namespace, name, nulls).await;
        if let Err(error) = removed {
            let text = format!("Cannot clean up the dead peers in {}: {error}", self.toggle);
            self.log(Level::Warning, text);
        }
    }

    fn absent_text(&self) -> String {
        let kind = self.resource.kind.as_deref().unwrap_or(&self.resource.plural);
        let place =
            self.namespace.as_ref().map(|name| format!(" in the namespace {name:?}")).unwrap_or_default();
        let name = &self.settings().name;
        format!("Paused: there is no {kind} {name:?}{place}. Create it, or run with --standalone.")
    }

    fn debug(&self, text: impl FnOnce() -> String) {
        if self.shared.host.enabled(Level::Debug) {
            self.log(Level::Debug, text());
        }
    }

    fn log(&self, level: Level, text: String) {
        self.shared.host.log(LogRecord::general(level, LOGGER, text));
    }
}

/// The task that evaluates the states of a peering object.
struct Evaluation {
    peering: Peering,
    seen: watch::Receiver<Seen>,
}

impl Restartable for Evaluation {
    fn name(&self) -> String {
        format!("The observer of the peering {}", self.peering.toggle)
    }

    async fn run(&mut self) -> Result<(), Failure> {
        Ok(self.peering.watch(&mut self.seen).await?)
    }

    fn on_panic(&mut self, panicked: Panicked, delay: f64) -> Result<(), Failure> {
        // The state that was being evaluated is evaluated again.
        self.seen.mark_changed();
        let text = format!(
            "{panicked}. This is a bug in Kopf; please report it. It is restarted in {delay} seconds."
        );
        self.peering.log(Level::Error, text);
        Ok(())
    }
}

/// Writes records of a peering object; none if there is no such object.
pub async fn write_records(
    client: &Client,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
    records: impl IntoIterator<Item = (String, Value)>,
) -> Result<Option<Bytes>, RequestError> {
    let subresource = resource.has_subresource("status").then_some("status");
    let url = resource.url(namespace, Some(name), subresource);
    let patch = peering::patch(records).to_string();
    match client.request(&Method::PATCH, &url, RequestBody::MergePatch(patch.as_bytes())).await {
        Ok(body) => Ok(Some(body)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn status_of(object: &Object) -> Seen {
    Seen::Status(Arc::new(object.field(&FieldPath::parse("status")).unwrap_or_default()))
}

#[cfg(test)]
mod tests;
