//! The rules of a watch-stream: what follows a listing and each connection, and after which delay.
//!
//! Pure: the driver (`kopf-engine/src/watch`) sends the requests, measures the times, draws the random numbers, logs, and sleeps.
//!
//! - The initial objects are listed in pages ([`Listing`]), or streamed by the watch itself ([`Position`]).
//! - After a connection, the watch resumes from its last version: no event is lost.
//! - If the version has expired, or the server has an older one than the watch, all objects are listed again.
//! - Broken connections are retried soon, rejections after growing delays; after many in a row, all objects are listed again.

use crate::backoff::{Backoff, Delay, Retries};
use crate::request_error::{ApiError, RequestError};

mod listing;
mod position;
#[cfg(test)]
mod tests;

pub use listing::Listing;
pub use position::Position;

/// The delays after failures in a row. The jitter keeps watches that were disconnected together from reconnecting
/// together.
const RETRIES: Backoff = Backoff::endless(&[1.0, 2.0, 5.0, 10.0, 20.0, 30.0]).with_jitter(0.2);
/// Number of failures in a row after which the resource is relisted.
const MOST_FAILURES: u32 = 6;
/// Number of failures in a row from which on a resource that is not found is reported: it may be unavailable for a moment.
const REPORTED_MISSES: u32 = 3;
/// Number of broken connections in a row from which on they are logged: a single one is not worth a log line.
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

/// Which rejections end a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalRejections {
    /// None: the watch of an operator's handlers goes on, because permissions may be granted late.
    None,
    /// Those with the status 403, which are neither logged nor retried: the operator works without the resource.
    Forbidden,
    /// Those that a later request would get, too: the watch belongs to code that can decide what to do.
    Permanent,
}

impl FatalRejections {
    fn include(self, rejection: &ApiError) -> bool {
        match self {
            Self::None => false,
            Self::Forbidden => rejection.status == 403,
            Self::Permanent => rejection.status != 429 && rejection.status != 410 && rejection.status < 500,
        }
    }
}

/// The end of a connection of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// We closed it.
    Reconnect,
    /// We closed it, since no data has arrived.
    Silent,
    /// The server, or a proxy, closed it.
    Closed,
    /// The version is too old.
    Expired,
    /// It was rejected, or has failed.
    Failed(RequestError),
}

/// A connection of a watch that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// How it has ended.
    pub end: End,
    /// The seconds from the request to the end.
    pub lasted: f64,
    /// It has delivered a record.
    pub has_received: bool,
    /// It was to deliver the initial objects, and has ended before all of them.
    pub is_initial: bool,
}

impl Connection {
    /// A connection with these facts. One that is closed at once, before anything has come, is broken.
    pub fn new(end: End, lasted: f64, has_received: bool, is_initial: bool) -> Self {
        let end = if end == End::Closed && !has_received && lasted < VERY_SHORT {
            let text = "the connection was closed at once, before anything came".to_owned();
            End::Failed(RequestError::Transport(text))
        } else {
            end
        };
        Self { end, lasted, has_received, is_initial }
    }
}

/// What follows.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Another connection, from the last version.
    Resume,
    /// A request for the version of the server; then [`StreamState::on_version`].
    CheckVersion,
    /// A new listing: the version has expired.
    Relist,
    /// A new listing, since the connections or the listing fail.
    Restart,
    /// The end of the watch.
    Stop(RequestError),
}

/// Why the driver waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// The connection was very short: no tight loop.
    Short,
    /// The connection has broken.
    Broken,
    /// The server has rejected the watch, or its listing has failed.
    BackOff,
    /// One listing has only led to another.
    Relisting,
}

/// A wait before what follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// The reason.
    pub kind: WaitKind,
    /// The duration in seconds.
    pub seconds: f64,
}

/// A failure to be reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The error.
    pub error: RequestError,
    /// Whether the server has rejected the watch.
    pub is_rejected: bool,
    /// The delay to be logged, in seconds; none if the failure is not worth a log line.
    pub logged: Option<f64>,
    /// Whether the resource is not served for longer than a moment.
    pub is_missing: bool,
}

/// A step of a watch: a report, a wait, and the next action.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// A failure to be reported.
    pub failure: Option<Failure>,
    /// The server does not stream initial objects: they are listed from now on.
    pub is_streaming_rejected: bool,
    /// A wait.
    pub wait: Option<Wait>,
    /// What follows.
    pub next: Next,
}

impl Step {
    fn to(next: Next) -> Self {
        Self { failure: None, is_streaming_rejected: false, wait: None, next }
    }

    fn after(self, kind: WaitKind, seconds: f64) -> Self {
        Self { wait: Some(Wait { kind, seconds }), ..self }
    }
}

/// The state of a watch between its connections.
#[derive(Debug)]
pub struct StreamState {
    fatal: FatalRejections,
    /// Seconds between connections.
    pause: f64,
    /// Whether the initial objects are streamed by the watch.
    is_streaming: bool,
    /// The failures in a row.
    failures: Retries<'static>,
    /// The broken connections in a row, since the last listing.
    breaks: Retries<'static>,
    /// The silent connections in a row, since the last listing.
    silences: u32,
}

impl StreamState {
    /// A watch that has not begun. `pause` is the setting for the seconds between connections.
    pub fn new(fatal: FatalRejections, pause: f64, is_streaming: bool) -> Self {
        let breaks = Backoff::doubling(pause, LONGEST_BREAK).with_jitter(BREAK_JITTER).retries();
        Self { fatal, pause, is_streaming, failures: RETRIES.retries(), breaks, silences: 0 }
    }

    /// Begins with all objects. Returns whether the watch streams them; otherwise, they are listed.
    pub fn begin(&mut self) -> bool {
        self.breaks.reset();
        self.silences = 0;
        self.is_streaming
    }

    /// What follows a failed listing, and any other failure after which all objects are listed again. `chance` is a random number
    /// from 0 to 1, here and below.
    pub fn on_failure(&mut self, error: RequestError, chance: f64) -> Step {
        match error {
            RequestError::Login(_) => Step::to(Next::Stop(error)),
            RequestError::Api(ref rejection) if self.fatal.include(rejection) => Step::to(Next::Stop(error)),
            error => self.back_off(error, Next::Restart, chance),
        }
    }

    /// What follows a connection.
    pub fn on_connection(&mut self, connection: Connection, chance: f64) -> Step {
        let Connection { end, lasted, has_received, is_initial } = connection;
        if is_initial {
            return self.on_initial(end, chance);
        }
        let has_lasted = !matches!(end, End::Failed(_)) && lasted >= LASTING;
        // Malformed data again and again lead to longer and longer waits.
        if has_lasted || (has_received && !matches!(end, End::Failed(RequestError::Malformed(_)))) {
            self.failures.reset();
            self.breaks.reset();
        }
        self.silences = if end == End::Silent && !has_received { self.silences + 1 } else { 0 };
        if self.silences >= CHECKED_SILENCES {
            return Step::to(Next::CheckVersion);
        }
        match end {
            // It has delivered data, but the server may close each connection like this: no tight loop.
            End::Closed if lasted < VERY_SHORT => Step::to(Next::Resume).after(WaitKind::Short, self.pause),
            End::Reconnect | End::Silent | End::Closed => Step::to(Next::Resume),
            End::Expired => self.relist(chance),
            End::Failed(RequestError::Api(rejection)) if rejection.status == 410 => self.relist(chance),
            End::Failed(
                error @ (RequestError::Transport(_) | RequestError::Unsent(_) | RequestError::Timeout),
            ) => self.on_break(error, chance),
            End::Failed(RequestError::Api(rejection))
                if self.failures.failures() + 1 < MOST_FAILURES && !self.fatal.include(&rejection) =>
            {
                self.back_off(RequestError::Api(rejection), Next::Resume, chance)
            }
            End::Failed(error) => self.on_failure(error, chance),
        }
    }

    /// What follows the request for the version of the server. If it is lower than that of the watch, the data of the server were
    /// restored from a backup: it sends only events with higher versions, so none before it has caught up.
    pub fn on_version(&mut self, is_behind: bool, chance: f64) -> Step {
        if is_behind { self.relist(chance) } else { Step::to(Next::Resume) }
    }

    /// The connection has ended before all initial objects: those that have come are of no use.
    fn on_initial(&mut self, end: End, chance: f64) -> Step {
        match end {
            End::Failed(RequestError::Api(rejection)) if matches!(rejection.status, 400 | 422) => {
                self.is_streaming = false;
                Step { is_streaming_rejected: true, ..Step::to(Next::Relist) }
            }
            End::Expired => self.relist(chance),
            End::Closed | End::Reconnect | End::Silent => {
                let text = "the watch ended before all of the initial objects were received".to_owned();
                self.on_failure(RequestError::Transport(text), chance)
            }
            End::Failed(error) => self.on_failure(error, chance),
        }
    }

    /// A new listing: at once, unless the last one has only led to this one.
    fn relist(&mut self, chance: f64) -> Step {
        let earlier = self.failures.failures().checked_sub(1);
        let delay = earlier.and_then(|earlier| RETRIES.delay(earlier, None, chance));
        self.failures.record_failure();
        let step = Step::to(Next::Relist);
        match delay {
            Some(delay) => step.after(WaitKind::Relisting, delay.seconds),
            None => step,
        }
    }

    fn on_break(&mut self, error: RequestError, chance: f64) -> Step {
        let Some(delay) = self.breaks.next(None, chance) else { return Step::to(Next::Resume) };
        let logged = (self.breaks.failures() >= LOGGED_BREAKS).then_some(delay.planned);
        let failure = Failure { error, is_rejected: false, logged, is_missing: false };
        let step = Step::to(Next::Resume).after(WaitKind::Broken, delay.seconds);
        Step { failure: Some(failure), ..step }
    }

    fn back_off(&mut self, error: RequestError, next: Next, chance: f64) -> Step {
        let Some(Delay { seconds, planned, .. }) = self.failures.next(retry_after(&error), chance) else {
            return Step::to(next);
        };
        let status = error.status();
        let is_missing = status == Some(404) && self.failures.failures() >= REPORTED_MISSES;
        let failure = Failure { error, is_rejected: status.is_some(), logged: Some(planned), is_missing };
        Step { failure: Some(failure), ..Step::to(next).after(WaitKind::BackOff, seconds) }
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
