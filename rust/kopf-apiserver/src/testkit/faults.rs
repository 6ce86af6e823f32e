//! Fault injection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::error::status::Status;

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Delays the response.
    Latency(Duration),
    /// 429 with `Retry-After` in seconds.
    TooManyRequests(u64),
    /// This status code instead of the response.
    Code(u16),
    /// Closes the connection without a response.
    Reset,
    /// 409 for writes.
    Conflict,
    /// 410 for lists and watches.
    Gone,
    /// Open watches send nothing and stay open.
    Silence,
    /// Lists show the state of an earlier version.
    Stale(u64),
    /// Handles the request, but closes the connection without a response.
    Lost,
    /// From now on, the server is unreachable, as after a crash of the client: before or after this request is handled.
    CutOff(CutOffPoint),
}

/// When a request cuts the client off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOffPoint {
    /// The request is not handled.
    BeforeRequest,
    /// The request is handled, but gets no response.
    AfterRequest,
}

/// `user-agent` of the testing kit, whose requests have no faults: they are those of the test itself.
const TEST_AGENT: &str = "kopf-testing";

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestClient<'r> {
    /// Name of the user.
    pub(crate) user: &'r str,
    /// `user-agent` of the request.
    pub(crate) agent: &'r str,
}

impl RequestClient<'_> {
    fn is_test(&self) -> bool {
        self.agent == TEST_AGENT
    }
}

/// A fault with its filter. Empty strings match everything.
#[derive(Clone, Debug)]
pub struct Injection {
    /// The fault.
    pub fault: Fault,
    /// Verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Plural name of the resource; with a subresource `widgets/status`; for discovery `example.com/v1` or `example.com`.
    pub plural: String,
    /// Client: the name of its user, or a part of its `user-agent`.
    pub client: String,
    /// Number of times; `None` for no limit.
    pub times: Option<u32>,
    /// Number of matching requests to skip.
    pub skip_first: u32,
}

impl Injection {
    /// A fault for every request.
    pub fn always(fault: Fault) -> Self {
        let (verb, plural, client) = (String::new(), String::new(), String::new());
        Self { fault, verb, plural, client, times: None, skip_first: 0 }
    }
    /// Limits the number of times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }
    /// Skips the first matching requests.
    #[must_use]
    pub fn after(mut self, skip_first: u32) -> Self {
        self.skip_first = skip_first;
        self
    }
    /// Limits the fault to a verb.
    #[must_use]
    pub fn on_verb(mut self, verb: &str) -> Self {
        verb.clone_into(&mut self.verb);
        self
    }
    /// Limits the fault to a resource.
    #[must_use]
    pub fn on_resource(mut self, plural: &str) -> Self {
        plural.clone_into(&mut self.plural);
        self
    }
    /// Limits the fault to a client: the name of its user, or a part of its `user-agent`.
    #[must_use]
    pub fn on_client(mut self, client: &str) -> Self {
        client.clone_into(&mut self.client);
        self
    }
    /// Whether a request with this verb can have the fault.
    fn is_possible(&self, verb: &str) -> bool {
        match self.fault {
            Fault::Conflict => matches!(verb, "create" | "update" | "patch" | "delete"),
            Fault::Gone => matches!(verb, "list" | "watch"),
            // They are not faults of single requests.
            Fault::Silence | Fault::Stale(_) => false,
            _ => true,
        }
    }
    /// Whether the filter matches. `plural` includes the subresource of the request.
    fn matches(&self, verb: &str, plural: &str, client: RequestClient<'_>) -> bool {
        let matches_filter = |filter: &str, actual: &str| filter.is_empty() || filter == actual;
        let resource = plural.split('/').next().unwrap_or_default();
        let matches_resource = matches_filter(&self.plural, plural) || self.plural == resource;
        let matches_client = self.client == client.user || client.agent.contains(&self.client);
        matches_filter(&self.verb, verb)
            && matches_resource
            && matches_client
            && !client.is_test()
            && self.times != Some(0)
    }
}

/// Injected faults of one server.
#[derive(Debug)]
pub struct Faults {
    active: Mutex<Vec<Injection>>,
    /// Number of the signal that last closed the watches of a resource; an empty name is for all.
    watch_cuts: Mutex<HashMap<String, u64>>,
    /// The server is unreachable.
    cut_off: AtomicBool,
    signal: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            active: Mutex::default(),
            watch_cuts: Mutex::default(),
            cut_off: AtomicBool::new(false),
            signal: watch::channel(0).0,
        }
    }
}

/// Effects of the faults on one request.
#[derive(Debug, Default)]
pub(crate) struct FaultEffects {
    pub(crate) delay: Duration,
    pub(crate) reset: bool,
    /// Handled, but without a response.
    pub(crate) lost: bool,
    pub(crate) status: Option<Status>,
}

impl Faults {
    /// Injects a fault.
    pub fn inject(&self, injection: Injection) {
        self.lock().push(injection);
        self.signal.send_modify(|n| *n += 1);
    }

    /// Makes the server unreachable and closes all watches, as after a crash of the client.
    pub fn cut_off(&self) {
        self.cut_off.store(true, Ordering::SeqCst);
        self.cut_watches("");
    }

    /// Whether the server is unreachable.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::SeqCst)
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.lock().clear();
        self.cut_off.store(false, Ordering::SeqCst);
        self.signal.send_modify(|n| *n += 1);
    }

    /// Closes the watches of a resource; all of them if the name is empty.
    pub fn cut_watches(&self, plural: &str) {
        self.signal.send_modify(|n| {
            *n += 1;
            self.watch_cuts.lock().unwrap_or_else(PoisonError::into_inner).insert(plural.to_owned(), *n);
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Injection>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watch_signal(&self) -> watch::Receiver<u64> {
        self.signal.subscribe()
    }

    /// Whether this watch was closed since the signal `seen`, which is updated.
    pub(crate) fn is_watch_cut(&self, plural: &str, seen: &mut u64) -> bool {
        let now = *self.signal.borrow();
        let before = std::mem::replace(seen, now);
        if before == now {
            return false;
        }
        let watch_cuts = self.watch_cuts.lock().unwrap_or_else(PoisonError::into_inner);
        ["", plural].iter().any(|name| watch_cuts.get(*name).is_some_and(|at| *at > before))
    }

    pub(crate) fn is_silenced(&self, plural: &str, client: RequestClient<'_>) -> bool {
        self.lock().iter().any(|i| i.fault == Fault::Silence && i.matches("watch", plural, client))
    }

    pub(crate) fn stale_version(&self, plural: &str, client: RequestClient<'_>) -> Option<u64> {
        self.lock().iter().find_map(|i| match i.fault {
            Fault::Stale(version) if i.matches("list", plural, client) => Some(version),
            _ => None,
        })
    }

    /// Whether requests for the discovery of a version have faults: the aggregated document must not hide them.
    pub(crate) fn affects_discovery(&self, version: &str, client: RequestClient<'_>) -> bool {
        let active = self.lock();
        let mut named = active.iter().filter(|it| !it.plural.is_empty() && it.is_possible("get"));
        named.any(|it| it.matches("get", version, client))
    }

    /// Faults for a request. Decrements their counters.
    pub(crate) fn evaluate(&self, verb: &str, plural: &str, client: RequestClient<'_>) -> FaultEffects {
        let mut out =
            FaultEffects { reset: self.is_cut_off() && !client.is_test(), ..FaultEffects::default() };
        let mut active = self.lock();
        for injection in active.iter_mut().filter(|i| i.is_possible(verb) && i.matches(verb, plural, client))
        {
            if let Some(left) = injection.skip_first.checked_sub(1) {
                injection.skip_first = left;
                continue;
            }
            match &injection.fault {
                Fault::Latency(delay) => out.delay += *delay,
                Fault::Reset => out.reset = true,
                Fault::Lost => out.lost = true,
                Fault::CutOff(point) => {
                    self.cut_off();
                    match point {
                        CutOffPoint::BeforeRequest => out.reset = true,
                        CutOffPoint::AfterRequest => out.lost = true,
                    }
                }
                Fault::TooManyRequests(seconds) => out.status = Some(Status::too_many_requests(*seconds)),
                Fault::Code(code) => out.status = Some(Status::new(*code, "InternalError", "injected fault")),
                Fault::Conflict => {
                    let message = "Operation cannot be fulfilled: the object has been modified; please apply your changes to the \
                                   latest version and try again";
                    out.status = Some(Status::new(409, "Conflict", message));
                }
                Fault::Gone => {
                    out.status = Some(Status::gone("too old resource version: injected fault"));
                }
                Fault::Silence | Fault::Stale(_) => {}
            }
            if let Some(times) = &mut injection.times {
                *times -= 1;
            }
        }
        active.retain(|i| i.times != Some(0));
        out
    }
}
