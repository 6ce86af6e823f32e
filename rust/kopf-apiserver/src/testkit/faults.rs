//! Misbehaviour on request: what a test wants the server to do wrong, how often, and to whom.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::error::status::Status;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The answer comes late.
    Latency(Duration),
    /// 429 with `Retry-After` in seconds.
    TooManyRequests(u64),
    /// An answer of this code (5xx and others) instead of the real one.
    Code(u16),
    /// The connection is closed without an answer.
    Reset,
    /// Writes meet a conflict (409).
    Conflict,
    /// Lists and watches from a version are told that it is too old (410).
    Gone,
    /// Open watches say nothing, without closing.
    Silence,
    /// Lists show the state of an earlier version.
    Stale(u64),
    /// The request is done, but the connection is closed without an answer.
    Lost,
    /// Nobody reaches the server from now on, as if whoever asks had died: before the request is done, or after it.
    CutOff(CutOffPoint),
}

/// Whether a request is done before its sender is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOffPoint {
    /// It never arrives.
    BeforeRequest,
    /// It is done, but nobody learns of that.
    AfterRequest,
}

/// A fault and when it strikes. Empty texts match everything.
#[derive(Clone, Debug)]
pub struct Injection {
    /// What goes wrong.
    pub fault: Fault,
    /// The verb that it strikes: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// The resource's plural name; or, for a subresource alone, both: `widgets/status`.
    pub plural: String,
    /// How many times; `None` until it is withdrawn.
    pub times: Option<u32>,
    /// How many requests that fit are spared before the first one is struck.
    pub skip_first: u32,
}

impl Injection {
    /// A fault that strikes every request until it is withdrawn.
    pub fn always(fault: Fault) -> Self {
        Self { fault, verb: String::new(), plural: String::new(), times: None, skip_first: 0 }
    }
    /// Strikes this many times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }
    /// Strikes only after so many requests that fit.
    #[must_use]
    pub fn after(mut self, skip_first: u32) -> Self {
        self.skip_first = skip_first;
        self
    }
    /// Strikes only this verb.
    #[must_use]
    pub fn on_verb(mut self, verb: &str) -> Self {
        verb.clone_into(&mut self.verb);
        self
    }
    /// Strikes only this resource.
    #[must_use]
    pub fn on_resource(mut self, plural: &str) -> Self {
        plural.clone_into(&mut self.plural);
        self
    }
    /// `plural` is followed by the subresource, if the request is about one.
    fn matches(&self, verb: &str, plural: &str) -> bool {
        let matches_filter = |filter: &str, actual: &str| filter.is_empty() || filter == actual;
        let resource = plural.split('/').next().unwrap_or_default();
        let matches_resource = matches_filter(&self.plural, plural) || self.plural == resource;
        matches_filter(&self.verb, verb) && matches_resource && self.times != Some(0)
    }
}

/// The faults of one server.
#[derive(Debug)]
pub struct Faults {
    active: Mutex<Vec<Injection>>,
    /// When the watches of a resource were last cut; an empty name is for all.
    watch_cuts: Mutex<HashMap<String, u64>>,
    /// Nobody reaches the server.
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

/// What is to be done to one request.
#[derive(Debug, Default)]
pub(crate) struct FaultEffects {
    pub(crate) delay: Duration,
    pub(crate) reset: bool,
    /// It is done, but not answered.
    pub(crate) lost: bool,
    pub(crate) status: Option<Status>,
}

impl Faults {
    /// Adds a fault.
    pub fn inject(&self, injection: Injection) {
        self.lock().push(injection);
        self.signal.send_modify(|n| *n += 1);
    }

    /// Lets nobody reach the server from now on, and closes all watches, as if all who ask had died.
    pub fn cut_off(&self) {
        self.cut_off.store(true, Ordering::SeqCst);
        self.cut_watches("");
    }

    /// Whether nobody reaches the server.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::SeqCst)
    }

    /// Withdraws all faults.
    pub fn clear(&self) {
        self.lock().clear();
        self.cut_off.store(false, Ordering::SeqCst);
        self.signal.send_modify(|n| *n += 1);
    }

    /// Closes the open watches of a resource, or all when the name is empty.
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

    /// Whether this watch was cut since it last looked.
    pub(crate) fn is_watch_cut(&self, plural: &str, seen: &mut u64) -> bool {
        let now = *self.signal.borrow();
        let before = std::mem::replace(seen, now);
        if before == now {
            return false;
        }
        let watch_cuts = self.watch_cuts.lock().unwrap_or_else(PoisonError::into_inner);
        ["", plural].iter().any(|name| watch_cuts.get(*name).is_some_and(|at| *at > before))
    }

    pub(crate) fn is_silenced(&self, plural: &str) -> bool {
        self.lock().iter().any(|i| i.fault == Fault::Silence && i.matches("watch", plural))
    }

    pub(crate) fn stale_version(&self, plural: &str) -> Option<u64> {
        self.lock().iter().find_map(|i| match i.fault {
            Fault::Stale(version) if i.matches("list", plural) => Some(version),
            _ => None,
        })
    }

    /// What happens to a request; counts down the faults that strike it.
    pub(crate) fn evaluate(&self, verb: &str, plural: &str) -> FaultEffects {
        let mut out = FaultEffects { reset: self.is_cut_off(), ..FaultEffects::default() };
        let mut active = self.lock();
        for injection in active.iter_mut().filter(|i| i.matches(verb, plural)) {
            if let Some(left) = injection.skip_first.checked_sub(1) {
                injection.skip_first = left;
                continue;
            }
            let writes = matches!(verb, "create" | "update" | "patch" | "delete");
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
                Fault::Conflict if writes => {
                    let message = "Operation cannot be fulfilled: the object has been modified; please apply your changes to the \
                                   latest version and try again";
                    out.status = Some(Status::new(409, "Conflict", message));
                }
                Fault::Gone if matches!(verb, "list" | "watch") => {
                    out.status = Some(Status::gone("too old resource version: injected fault"));
                }
                _ => continue,
            }
            if let Some(times) = &mut injection.times {
                *times -= 1;
            }
        }
        active.retain(|i| i.times != Some(0));
        out
    }
}
