//! What follows each connection of a watch: another one, a new listing, or a delay after failures.

use kopf_core::backoff::{Backoff, Retries};
use kopf_core::log_level::Level;
use kopf_core::persistence::consistency::is_lower;
use tokio::time::{Instant, sleep, timeout};

use super::records::End;
use super::{Cursor, Stream, WatchConsumer, WatchState, list};
use crate::error::RequestError;
use crate::metrics::ConnectionEnd;
use crate::time::duration::seconds;
use crate::watch_health::StreamFailure;

/// The delays after failures in a row. The jitter keeps watches that were disconnected together from reconnecting
/// together.
pub(super) const RETRIES: Backoff = Backoff::endless(&[1.0, 2.0, 5.0, 10.0, 20.0, 30.0]).with_jitter(0.2);
/// Number of failures in a row after which the resource is relisted.
const MOST_FAILURES: u32 = 6;
/// Number of failures in a row from which on a resource that is not found is reported: it may be unavailable for a moment.
const REPORTED_MISSES: u32 = 3;
/// Number of broken connections in a row from which on they are logged.
const LOGGED_BREAKS: u32 = 4;
/// Maximum delay after broken connections, in seconds.
const LONGEST_BREAK: f64 = 5.0;
/// Jitter of this delay, as a fraction of it.
const BREAK_JITTER: f64 = 0.2;
/// Number of silent connections in a row from which on the version of the server is checked.
const CHECKED_SILENCES: u32 = 2;
/// A connection that has lasted for so many seconds works, also without any data.
const LASTING: f64 = 30.0;
/// A connection that is closed within so many seconds without any data is broken.
const VERY_SHORT: f64 = 1.0;

/// What follows a connection.
enum AfterConnection {
    Reconnect,
    Relist,
}

impl Stream {
    /// Lists, then watches until a new listing is needed.
    pub(super) async fn list_and_watch(
        &self,
        consumer: &mut dyn WatchConsumer,
        state: &mut WatchState,
    ) -> Result<(), RequestError> {
        let WatchState { cursor, is_streaming, retries } = state;
        (cursor.initial, cursor.version) = (*is_streaming, None);
        if cursor.initial {
            list::begin_listing(cursor, consumer);
        } else {
            cursor.version = self.list(cursor, consumer).await?;
        }
        let reconnect_backoff = self.settings.watching.reconnect_backoff;
        let mut breaks =
            Backoff::doubling(reconnect_backoff, LONGEST_BREAK).with_jitter(BREAK_JITTER).retries();
        let mut silences = 0;
        loop {
            cursor.received = false;
            let begun = Instant::now();
            let ended = match self.watch(cursor, consumer).await {
                Ok(End::Closed) if !cursor.received && begun.elapsed() < seconds(VERY_SHORT) => {
                    Err(RequestError::Transport(
                        "the connection was closed at once, before anything came".to_owned(),
                    ))
                }
                ended => ended,
            };
            self.activity.metrics().inspect(|metrics| metrics.on_end(end_of(&ended)));
            if cursor.initial {
                return self.initial_stream_ended(ended, is_streaming, retries).await;
            }
            // Malformed data again and again leads to longer and longer pauses.
            let has_lasted = ended.is_ok() && begun.elapsed() >= seconds(LASTING);
            if has_lasted || (cursor.received && !matches!(ended, Err(RequestError::Malformed(_)))) {
                retries.reset();
                breaks.reset();
            }
            let is_silent = matches!(ended, Ok(End::Silent)) && !cursor.received;
            silences = if is_silent { silences + 1 } else { 0 };
            let is_behind = silences >= CHECKED_SILENCES && self.is_server_behind(cursor).await;
            let ended = if is_behind { Ok(End::Relist) } else { ended };
            let is_very_short = begun.elapsed() < seconds(VERY_SHORT);
            match self.next_step(ended, is_very_short, (retries, &mut breaks)).await? {
                AfterConnection::Reconnect => {}
                AfterConnection::Relist => {
                    self.prepare_relisting(retries).await;
                    return Ok(());
                }
            }
        }
    }

    /// The initial objects were streamed, and the connection has ended before all of them: a new start is needed.
    async fn initial_stream_ended(
        &self,
        ended: Result<End, RequestError>,
        is_streaming: &mut bool,
        retries: &mut Retries<'_>,
    ) -> Result<(), RequestError> {
        match ended {
            // The server does not support streaming lists.
            Err(RequestError::Api(rejection)) if matches!(rejection.status, 400 | 422) => {
                let what = self.what();
                let text = format!("The initial objects of {what} cannot be streamed, listing.");
                self.log(Level::Debug, text);
                *is_streaming = false;
                Ok(())
            }
            Ok(End::Relist) => {
                self.prepare_relisting(retries).await;
                Ok(())
            }
            // The objects so far are of no use: the next connection begins with the first one again.
            Ok(End::Closed | End::Reconnect | End::Silent) => Err(RequestError::Transport(
                "the watch ended before all of the initial objects were received".to_owned(),
            )),
            Err(error) => Err(error),
        }
    }

    /// Decides what follows a connection, after the delay that it needs.
    async fn next_step(
        &self,
        ended: Result<End, RequestError>,
        is_very_short: bool,
        (retries, breaks): (&mut Retries<'_>, &mut Retries<'_>),
    ) -> Result<AfterConnection, RequestError> {
        match ended {
            // It has delivered data, but the server may close each connection like this: no tight loop.
            Ok(End::Closed) if is_very_short => {
                let _busy =
                    self.client.clock().busy(|| format!("the pause after a watch of {}", self.what()));
                self.activity.wait(Some(self.settings.watching.reconnect_backoff));
                sleep(seconds(self.settings.watching.reconnect_backoff)).await;
            }
            Ok(End::Reconnect | End::Silent | End::Closed) => {}
            Ok(End::Relist) => return Ok(AfterConnection::Relist),
            Err(RequestError::Api(rejection)) if rejection.status == 410 => {
                return Ok(AfterConnection::Relist);
            }
            Err(error @ (RequestError::Transport(_) | RequestError::Unsent(_) | RequestError::Timeout)) => {
                self.after_break(&error, breaks).await;
            }
            // No event is lost: the watch resumes from the last version, unless it fails too often.
            Err(RequestError::Api(rejection))
                if retries.failures() + 1 < MOST_FAILURES && !self.ends_on(&rejection) =>
            {
                self.back_off(&RequestError::Api(rejection), retries).await;
            }
            Err(error) => return Err(error),
        }
        Ok(AfterConnection::Reconnect)
    }

    /// Whether the version of the server is lower than that of the watch: its data were restored from a backup. It sends only events
    /// with higher versions than that of the watch, so that none would be received until it has caught up.
    async fn is_server_behind(&self, cursor: &Cursor) -> bool {
        let Some((limit, known)) = self.settings.watching.inactivity_timeout.zip(cursor.version.as_deref())
        else {
            return false;
        };
        self.activity.wait(Some(limit));
        let current = timeout(seconds(limit), self.current_version()).await;
        // If the version is unknown, the next connection shows what is wrong.
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

    /// Waits after a connection that broke before it delivered data: no tight loop.
    async fn after_break(&self, error: &RequestError, breaks: &mut Retries<'_>) {
        self.health.record_failure(&self.what(), StreamFailure::Broken, Some(error.to_string()));
        let _busy = self.client.clock().busy(|| format!("the back-off of a watch of {}", self.what()));
        let Some(delay) = breaks.next(None, fastrand::f64()) else { return };
        // A single break is not worth a log line.
        if breaks.failures() >= LOGGED_BREAKS {
            self.log_failure(error, delay.planned);
        }
        self.activity.wait(Some(delay.seconds));
        sleep(seconds(delay.seconds)).await;
    }

    /// Prepares a new listing: at once, unless the last one only led to this one.
    async fn prepare_relisting(&self, retries: &mut Retries<'_>) {
        if let Some(earlier) = retries.failures().checked_sub(1)
            && let Some(delay) = RETRIES.delay(earlier, None, fastrand::f64())
        {
            self.activity.wait(Some(delay.seconds));
            self.client.clock().sleep(seconds(delay.seconds)).await;
        }
        retries.record_failure();
    }

    /// Logs the failure of a watch, and waits before the next attempt.
    pub(super) async fn back_off(&self, error: &RequestError, retries: &mut Retries<'_>) {
        let Some(delay) = retries.next(retry_after(error), fastrand::f64()) else { return };
        let failure = if error.status().is_some() { StreamFailure::Rejected } else { StreamFailure::Broken };
        self.health.record_failure(&self.what(), failure, Some(error.to_string()));
        if let Some(status) = error.status() {
            self.health.on_rejection(&self.what(), status);
            if let Some(on_missing) = &self.on_missing
                && status == 404
                && retries.failures() >= REPORTED_MISSES
            {
                on_missing();
            }
        }
        self.log_failure(error, delay.planned);
        self.activity.wait(Some(delay.seconds));
        self.client.clock().sleep(seconds(delay.seconds)).await;
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

/// Why a connection has ended, as it is counted.
fn end_of(ended: &Result<End, RequestError>) -> ConnectionEnd {
    match ended {
        Ok(End::Closed | End::Reconnect) => ConnectionEnd::Closed,
        Ok(End::Silent) => ConnectionEnd::Silent,
        Ok(End::Relist) => ConnectionEnd::Gone,
        Err(error) => match error.status() {
            Some(410) => ConnectionEnd::Gone,
            Some(_) => ConnectionEnd::Rejected,
            None => ConnectionEnd::Broken,
        },
    }
}

impl Default for WatchState {
    fn default() -> Self {
        Self { cursor: Cursor::default(), is_streaming: false, retries: RETRIES.retries() }
    }
}

/// Seconds to wait after this failure and `failures` earlier ones in a row.
pub fn delay_after(error: &RequestError, failures: u32) -> f64 {
    RETRIES.delay(failures, retry_after(error), 0.0).map(|delay| delay.planned).unwrap_or_default()
}

/// Seconds of the server's `Retry-After`, if there is one.
fn retry_after(error: &RequestError) -> Option<f64> {
    match error {
        RequestError::Api(rejection) => rejection.retry_after,
        _ => None,
    }
}
