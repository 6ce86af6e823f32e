//! The connections of a watch, one after another, as the rules of its state decide (`kopf_core::stream`).

use kopf_core::log_level::Level;
use kopf_core::persistence::consistency::is_lower;
use kopf_core::stream::{Connection, End, Failure, Next, Position, Step, Wait, WaitKind};
use tokio::time::{Instant, sleep, timeout};

use super::{Cursor, Stream, WatchConsumer, WatchState, list};
use crate::error::RequestError;
use crate::metrics::ConnectionEnd;
use crate::time::duration::seconds;
use crate::watch_health::StreamFailure;

impl Stream {
    /// Lists, then watches until a new listing is needed, or until the watch ends. The step is not executed yet.
    pub(super) async fn list_and_watch(
        &self,
        consumer: &mut dyn WatchConsumer,
        state: &mut WatchState,
    ) -> Step {
        let WatchState { cursor, rules } = state;
        if rules.begin() {
            cursor.position = Position::before_initial_objects();
            list::begin_listing(cursor, consumer);
        } else {
            cursor.position = Position::default();
            match self.list(cursor, consumer).await {
                Ok(version) => cursor.position = Position::after_listing(version),
                Err(error) => return rules.on_failure(error, fastrand::f64()),
            }
        }
        loop {
            cursor.position.on_connecting();
            let begun = Instant::now();
            let end = self.watch(cursor, consumer).await.unwrap_or_else(End::Failed);
            let lasted = begun.elapsed().as_secs_f64();
            let (has_received, is_initial) = (cursor.position.has_received(), cursor.position.is_initial());
            let connection = Connection::new(end, lasted, has_received, is_initial);
            self.activity.metrics().inspect(|metrics| metrics.on_end(counted(&connection.end)));
            let mut step = rules.on_connection(connection, fastrand::f64());
            if step.next == Next::CheckVersion {
                step = rules.on_version(self.is_server_behind(cursor).await, fastrand::f64());
            }
            if step.next != Next::Resume {
                return step;
            }
            self.execute(&step).await;
        }
    }

    /// Reports what the step has to be reported, and waits.
    pub(super) async fn execute(&self, step: &Step) {
        if step.is_streaming_rejected {
            let text = format!("The initial objects of {} cannot be streamed, listing.", self.what());
            self.log(Level::Debug, text);
        }
        if let Some(failure) = &step.failure {
            self.report(failure);
        }
        let Some(Wait { kind, seconds: duration }) = step.wait else { return };
        self.activity.wait(Some(duration));
        let clock = self.client.clock();
        match kind {
            WaitKind::Short => {
                let _busy = clock.busy(|| format!("the pause after a watch of {}", self.what()));
                sleep(seconds(duration)).await;
            }
            WaitKind::Broken => {
                let _busy = clock.busy(|| format!("the back-off of a watch of {}", self.what()));
                sleep(seconds(duration)).await;
            }
            WaitKind::BackOff | WaitKind::Relisting => clock.sleep(seconds(duration)).await,
        }
    }

    fn report(&self, failure: &Failure) {
        let Failure { error, is_rejected, logged, is_missing } = failure;
        let kind = if *is_rejected { StreamFailure::Rejected } else { StreamFailure::Broken };
        self.health.record_failure(&self.what(), kind, Some(error.to_string()));
        if let Some(status) = error.status() {
            self.health.on_rejection(&self.what(), status);
        }
        if let Some(on_missing) = self.on_missing.as_ref().filter(|_| *is_missing) {
            on_missing();
        }
        if let Some(delay) = logged {
            self.log_failure(error, *delay);
        }
    }

    /// Whether the version of the server is lower than that of the watch: its data were restored from a backup. If the version is
    /// unknown, the next connection shows what is wrong.
    async fn is_server_behind(&self, cursor: &Cursor) -> bool {
        let Some((limit, known)) = self.settings.watching.inactivity_timeout.zip(cursor.position.version())
        else {
            return false;
        };
        self.activity.wait(Some(limit));
        let current = timeout(seconds(limit), self.current_version()).await;
        let Ok(Ok(Some(current))) = current else { return false };
        let is_behind = is_lower(&current, known);
        if is_behind {
            let text = format!(
                "The resource version of {} is {current}, and was {known} before: the data of the API server were restored. \
                 Relisting.",
                self.what()
            );
            self.log(Level::Warning, text);
        }
        is_behind
    }

    fn log_failure(&self, error: &RequestError, delay: f64) {
        let hint = match error.status() {
            Some(403) => " The operator's account needs the verbs list and watch for it (check RBAC).",
            Some(404) => " The resource is not served any more.",
            _ => "",
        };
        let what = self.what();
        self.log(
            Level::Error,
            format!("Cannot watch {what}: {error}.{hint} The next attempt is in {delay} seconds."),
        );
    }
}

/// The end of a connection as it is counted.
fn counted(end: &End) -> ConnectionEnd {
    match end {
        End::Closed | End::Reconnect => ConnectionEnd::Closed,
        End::Silent => ConnectionEnd::Silent,
        End::Expired => ConnectionEnd::Gone,
        End::Failed(error) => match error.status() {
            Some(410) => ConnectionEnd::Gone,
            Some(_) => ConnectionEnd::Rejected,
            None => ConnectionEnd::Broken,
        },
    }
}
