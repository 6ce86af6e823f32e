//! One cache: its objects behind a lock, its streams, and what readers get.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kopf_core::caches::{CacheKey, ObjectStore, Query, QueryError, Selected, UnknownKey};
use kopf_core::handler::Handler;
use kopf_core::handler::caching::Caching;
use kopf_core::handler::namespaces::DeclaredNamespaces;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::relations::has_owner;
use kopf_core::resource::Selector;
use kopf_core::time::Timestamp;
use thiserror::Error;
use tokio::sync::Notify;

use super::projection::Kept;
use super::state::CacheState;
use super::{CacheStream, LOGGER, Tickets};
use crate::host::LogRecord;
use crate::task_context::TaskContext;
use crate::watch_health::WatchHealth;

/// The reason why a cache cannot be read yet.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("The cache {id:?} is not ready: {missing}.")]
pub struct NotReady {
    id: String,
    missing: String,
}

/// One cache of an operator.
pub struct Cache {
    pub(super) handler: usize,
    id: Arc<str>,
    pub(super) declared: Caching,
    pub(super) kept: Kept,
    /// Evaluated for whole objects: the kept ones may lack the fields.
    pub(super) selected: Selected,
    selector: Option<Selector>,
    pub(super) base: Arc<TaskContext>,
    health: Arc<WatchHealth>,
    state: Mutex<CacheState>,
    pub(super) tickets: Arc<Tickets>,
    pub(super) wake: Arc<Notify>,
    /// Notified when the cache becomes ready.
    readiness: Notify,
    /// Notified when there are changes for consumers.
    pub(super) changed: Notify,
}

impl Cache {
    pub(super) fn new(
        handler: usize,
        declared: &Handler,
        base: &Arc<TaskContext>,
        health: &Arc<WatchHealth>,
        (tickets, wake): (&Arc<Tickets>, &Arc<Notify>),
    ) -> Option<Self> {
        let options = declared.caching()?.clone();
        let (store, selected) = ObjectStore::new(&options)
            .and_then(|store| Ok((store, Selected::of(&options)?)))
            .inspect_err(|error| {
                let text = format!("The cache {:?} cannot be used: {error}.", declared.id);
                base.host.log(LogRecord::general(Level::Error, LOGGER, text));
            })
            .ok()?;
        Some(Self {
            handler,
            id: Arc::clone(&declared.id),
            kept: Kept { metadata_only: declared.metadata_only, drop: options.drop.clone() },
            selected,
            declared: options,
            selector: declared.selector.clone(),
            base: Arc::clone(base),
            health: Arc::clone(health),
            state: Mutex::new(CacheState {
                store,
                resource: None,
                owner_kinds: vec![],
                streams: None,
                listed: BTreeSet::new(),
                is_ready: false,
                feeds: HashMap::new(),
                last_number: 0,
                inspected: HashMap::new(),
                awaited: None,
                guards: Vec::new(),
            }),
            tickets: Arc::clone(tickets),
            wake: Arc::clone(wake),
            readiness: Notify::new(),
            changed: Notify::new(),
        })
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether the operator works while the cache is not ready.
    pub fn is_optional(&self) -> bool {
        self.declared.optional
    }

    /// Whether the cache has all objects of its namespaces.
    pub(super) fn is_complete(&self) -> bool {
        self.declared.label_selector.is_empty()
            && self.declared.fields.is_empty()
            && self.declared.namespaces == DeclaredNamespaces::Served
            && self.declared.owner.is_none()
    }

    /// Ends the waits for own writes whose time is over. Returns the objects.
    pub(super) fn expire(&self) -> Vec<CacheKey> {
        self.with_state(|state, now| state.store.expire(now))
    }

    /// The time of the next [`Cache::expire`].
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.state().store.next_expiry()
    }

    pub(super) fn rest(&self) -> f64 {
        self.declared.rest
    }

    pub(super) fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and notifies those who wait for that.
    pub(super) fn with_state<T>(&self, change: impl FnOnce(&mut CacheState, Timestamp) -> T) -> T {
        let now = self.base.clock.now();
        let mut state = self.state();
        let result = change(&mut state, now);
        let opened = state.check_readiness();
        let settled = state.store.take_settled();
        let has_changes = state.store.has_changes();
        drop(state);
        if !settled.is_empty() {
            self.tickets.settle(&settled);
            self.wake.notify_one();
        }
        if has_changes {
            self.changed.notify_waiters();
        }
        if let Some(guards) = opened {
            self.readiness.notify_waiters();
            self.changed.notify_waiters();
            drop(guards);
        }
        result
    }

    // --- The streams.

    /// Sets the streams of the cache, now that these resources and namespaces are served.
    pub(super) fn require<'s>(&self, streams: impl Iterator<Item = &'s CacheStream>, is_located: bool) {
        let mut names = BTreeMap::new();
        let mut resource = None;
        for stream in streams {
            names.insert(stream.name.clone(), stream.namespace.clone());
            resource = Some(Arc::clone(&stream.resource));
        }
        self.with_state(|state, _| {
            state.listed.retain(|name| names.contains_key(name));
            state.is_ready &= resource.is_some();
            state.resource = resource;
            state.streams = is_located.then_some(names);
        });
    }

    /// Records that a list of the stream is complete.
    pub(super) fn set_listed(state: &mut CacheState, name: &str) {
        state.listed.insert(name.to_owned());
    }

    // --- Readiness.

    /// Whether the cache is filled.
    pub fn is_ready(&self) -> bool {
        self.state().is_ready
    }

    /// Waits until the cache is filled. Cancel safe.
    pub async fn ready(&self) {
        loop {
            // Created first: later notifications are not lost.
            let notified = self.readiness.notified();
            if self.is_ready() {
                return;
            }
            notified.await;
        }
    }

    /// The same, at most for some seconds. Returns whether the cache is filled.
    pub async fn ready_within(&self, timeout: Option<f64>) -> bool {
        let Some(timeout) = timeout else {
            self.ready().await;
            return true;
        };
        tokio::select! {
            biased;
            () = self.ready() => true,
            () = self.base.clock.sleep(crate::time::duration::seconds(timeout)) => false,
        }
    }

    /// The seconds since its streams are failing; zero if none is.
    pub fn stale_for(&self) -> f64 {
        let names: Vec<String> = self.state().streams.iter().flat_map(BTreeMap::keys).cloned().collect();
        names.iter().filter_map(|name| self.health.failing_for(name)).fold(0.0, f64::max)
    }

    /// A report of what is missing; none if the cache is filled.
    pub(super) fn missing(&self) -> Option<String> {
        let state = self.state();
        (!state.is_ready).then(|| format!("cache {:?}: {}", self.id, self.not_ready(&state).missing))
    }

    fn not_ready(&self, state: &CacheState) -> NotReady {
        let missing = match &state.streams {
            None => "the resources and namespaces are being discovered".to_owned(),
            Some(_) if state.resource.is_none() => {
                let kind = self.selector.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("the kind {kind:?} does not exist in the cluster")
            }
            Some(streams) => {
                let missing = streams.keys().filter(|name| !state.listed.contains(*name));
                let missing: Vec<_> = missing
                    .map(|name| match self.health.error_of(name) {
                        Some(error) => format!("{name} ({error})"),
                        None => name.clone(),
                    })
                    .collect();
                if missing.is_empty() {
                    "the functions of its keys are being called".to_owned()
                } else {
                    format!("these are not listed yet: {}", missing.join("; "))
                }
            }
        };
        NotReady { id: self.id.to_string(), missing }
    }

    /// Reads from the objects. Before the cache is ready, an optional one is empty: then this is none.
    fn read<T>(&self, read: impl FnOnce(&mut ObjectStore, Timestamp) -> T) -> Result<Option<T>, NotReady> {
        let mut state = self.state();
        if state.is_ready {
            return Ok(Some(read(&mut state.store, self.base.clock.now())));
        }
        if self.declared.optional { Ok(None) } else { Err(self.not_ready(&state)) }
    }

    // --- Reading.

    /// The object of this name.
    ///
    /// # Errors
    /// The cache is not ready.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<Object>>, NotReady> {
        Ok(self.read(|store, now| store.get(namespace, name, now))?.flatten())
    }

    /// The object of this name, if it has the owner with this uid. The namespace is that of namespaced kinds.
    ///
    /// # Errors
    /// The cache is not ready.
    pub fn get_owned(
        &self,
        namespace: Option<&str>,
        name: &str,
        owner: &str,
    ) -> Result<Option<Arc<Object>>, NotReady> {
        let namespace = namespace.filter(|_| self.is_namespaced() != Some(false));
        Ok(self.get(namespace, name)?.filter(|object| has_owner(object, owner)))
    }

    /// The objects of this name in all namespaces.
    ///
    /// # Errors
    /// The cache is not ready.
    pub fn named(&self, name: &str) -> Result<Vec<Arc<Object>>, NotReady> {
        let named = self.read(|store, now| {
            let namespaces: Vec<String> = store.namespaces_of(name).into_iter().map(str::to_owned).collect();
            namespaces.iter().filter_map(|namespace| store.get(Some(namespace), name, now)).collect()
        })?;
        Ok(named.unwrap_or_default())
    }

    /// The objects that match the query.
    ///
    /// # Errors
    /// The cache is not ready. In the result: the query has undeclared keys, or a malformed selector.
    pub fn select(&self, query: &Query) -> Result<Result<Vec<Arc<Object>>, QueryError>, NotReady> {
        Ok(self.read(|store, now| store.select(query, now))?.unwrap_or_else(|| Ok(vec![])))
    }

    /// The present values of a declared key, as JSON texts.
    ///
    /// # Errors
    /// The cache is not ready. In the result: the key is not declared.
    pub fn keys(&self, by: &str) -> Result<Result<Vec<String>, UnknownKey>, NotReady> {
        Ok(self.read(|store, _| store.keys(by))?.unwrap_or_else(|| Ok(vec![])))
    }

    /// The number of objects.
    ///
    /// # Errors
    /// The cache is not ready.
    pub fn count(&self) -> Result<usize, NotReady> {
        Ok(self.read(|store, _| store.len())?.unwrap_or_default())
    }

    /// Whether objects of the kind are namespaced; none if the kind does not exist.
    pub fn is_namespaced(&self) -> Option<bool> {
        self.state().resource.as_ref().map(|resource| resource.namespaced)
    }

    /// The memory that the objects take, in bytes.
    pub fn memory_size(&self) -> usize {
        self.state().store.memory_size()
    }
}
