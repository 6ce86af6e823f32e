//! The deletion of marked children before their owner: where owner references are not allowed, the cluster's garbage collection
//! does not delete them.
//!
//! It starts when the operator's handlers have released the owner, and needs no code in the operator. Owners that the derived
//! selector of the feed does not match any more have a separate watch.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::HeaderMap;
use kopf_core::apply::{
    APPLY_SET_ID, CHILDREN_FINALIZER, ChildKey, Membership, Owner, apply_set_id, is_marked_elsewhere,
};
use kopf_core::cause::EventType;
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use kopf_core::stream::delay_after;
use kopf_core::user_request::{DefaultNamespace, WriteOptions};
use serde_json::json;
use tokio::sync::Notify;

use super::deleted_owners::DeletedOwners;
use super::listing::Listing;
use super::members;
use super::requests::{Requests, Target, has_code};
use crate::error::RequestError;
use crate::feed::{Consumer, ConsumerTask};
use crate::operator_pause::Pause;
use crate::time::duration::seconds;
use crate::user_client::{Api, CallError, CallOptions};
use crate::watch::{Stream, WatchConsumer};

/// The delay before it is checked whether the children are gone.
const DELAY: Duration = Duration::from_millis(500);
/// The delay after a failure; it is doubled up to the maximum.
const BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// Deletes the marked children of the objects of a feed before these are gone.
pub(crate) struct ChildrenDeletion {
    task: Arc<Task>,
    /// Where deletions are recorded.
    deleted_owners: Arc<DeletedOwners>,
    /// Whether the events prove deletions.
    proves_deletions: bool,
    /// The namespace of the feed; none for all.
    namespace: Option<String>,
    /// The running listing, if objects are to be forgotten that it does not have.
    listing: Option<Listing>,
}

struct Task {
    api: Api,
    resource: Arc<Resource>,
    /// The finalizers of the operator's handlers and reconcilers, whose ends are awaited.
    finalizers: Vec<String>,
    pause: Arc<Pause>,
    queue: Mutex<Queue>,
    filled: Notify,
    /// Notified when the feed has listed its objects.
    listed: Notify,
    /// Notified when an owner of marked children was observed.
    observed: Notify,
}

#[derive(Default)]
struct Queue {
    /// The namespaces, names and uids of owners.
    waiting: Vec<Doomed>,
    /// The uids of owners whose children are being deleted.
    running: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Doomed {
    namespace: Option<String>,
    name: String,
    uid: String,
}

/// What to do next for an owner.
enum Step {
    Done,
    Wait,
}

impl ChildrenDeletion {
    pub(crate) fn new(
        api: Api,
        (deleted_owners, proves_deletions): (Arc<DeletedOwners>, bool),
        (resource, namespace): (Arc<Resource>, Option<String>),
        finalizers: Vec<String>,
        pause: Arc<Pause>,
    ) -> Self {
        let [filled, listed, observed] = [(); 3].map(|()| Notify::new());
        let task =
            Task { api, resource, finalizers, pause, queue: Mutex::default(), filled, listed, observed };
        Self { task: Arc::new(task), deleted_owners, proves_deletions, namespace, listing: None }
    }
}

impl ChildrenDeletion {
    /// An object is deleted, or has stopped matching the selectors of the watch.
    fn forget(&self, object: &Object) {
        if let Some(uid) = object.uid().filter(|_| self.proves_deletions) {
            self.deleted_owners.add(uid);
        }
        let Resource { group, kind, .. } = &*self.task.resource;
        if let (Some(kind), Some(name)) = (kind, object.name()) {
            let namespace = object.namespace().map(str::to_owned);
            let (group, kind, name) = (group.clone(), kind.clone(), name.to_owned());
            self.deleted_owners.forget_child(&ChildKey { group, kind, namespace, name });
        }
    }
}

impl WatchConsumer for ChildrenDeletion {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        if kind == EventType::Deleted {
            self.forget(object);
        } else if let Some(listing) = &mut self.listing {
            listing.add(object);
        }
        self.task.observe(kind, object);
    }

    fn rejected(&mut self, identity: &Arc<Object>, deleted: bool) {
        if let Some(listing) = self.listing.as_mut().filter(|_| !deleted) {
            listing.add(identity);
        }
    }

    fn on_init(&mut self) {
        let is_needed = self.proves_deletions && !self.deleted_owners.has_no_memory();
        let listing = || Listing::new(Arc::clone(&self.task.resource), self.namespace.clone());
        self.listing = is_needed.then(listing);
    }

    fn on_init_done(&mut self) {
        // The watch may have missed deletions.
        if let Some(listing) = self.listing.take() {
            self.deleted_owners.forget_unlisted(&listing);
        }
        self.task.listed.notify_one();
    }
}

impl Consumer for ChildrenDeletion {
    fn tasks<'s>(&mut self, stream: &'s Stream) -> Vec<ConsumerTask<'s>> {
        let task = Arc::clone(&self.task);
        // After a restart of the feed, the new listing has them again.
        task.queue().running.clear();
        let mut tasks: Vec<ConsumerTask<'s>> = vec![];
        if stream.derived.is_some() {
            tasks.push(Box::pin(watch_owners(Arc::clone(&task), stream.of_labelled(APPLY_SET_ID))));
        }
        tasks.push(Box::pin(async move {
            let mut running = FuturesUnordered::new();
            loop {
                tokio::select! {
                    () = task.filled.notified() => {
                        for doomed in task.take() {
                            running.push(task.finish(doomed));
                        }
                    }
                    Some(()) = running.next() => {}
                }
            }
        }));
        tasks
    }
}

/// The consumer of the watch of owners.
struct Owners(Arc<Task>);

impl WatchConsumer for Owners {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        self.0.observe(kind, object);
    }

    fn rejected(&mut self, _identity: &Arc<Object>, _deleted: bool) {}

    fn on_init(&mut self) {}

    fn on_init_done(&mut self) {}
}

/// Follows the watch of owners, from when there is one. Most operators have none.
async fn watch_owners(task: Arc<Task>, owners: Stream) -> Result<Infallible, RequestError> {
    task.listed.notified().await;
    let mut failures = 0;
    loop {
        task.pause.over().await;
        match owners.has_objects().await {
            Ok(true) => break,
            Ok(false) => {
                task.observed.notified().await;
                break;
            }
            Err(error @ RequestError::Login(_)) => return Err(error),
            // The client has logged it.
            Err(error) => {
                owners.client.clock().sleep(seconds(delay_after(&error, failures))).await;
                failures += 1;
            }
        }
    }
    owners.follow(&mut Owners(task)).await
}

impl Task {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a state of an object: the children of an owner that is being deleted follow.
    fn observe(&self, kind: EventType, object: &Object) {
        if !object.has_finalizer(CHILDREN_FINALIZER) {
            return;
        }
        self.observed.notify_one();
        let is_released = !self.finalizers.iter().any(|finalizer| object.has_finalizer(finalizer));
        let is_ours = kind != EventType::Deleted && object.deletion_timestamp().is_some() && is_released;
        if let (Some(name), Some(uid)) = (object.name(), object.uid())
            && is_ours
        {
            let namespace = object.namespace().map(str::to_owned);
            let doomed = Doomed { namespace, name: name.to_owned(), uid: uid.to_owned() };
            self.queue().waiting.push(doomed);
            self.filled.notify_one();
        }
    }

    /// The owners whose children are not being deleted yet.
    fn take(&self) -> Vec<Doomed> {
        let mut queue = self.queue();
        let waiting = std::mem::take(&mut queue.waiting);
        waiting.into_iter().filter(|doomed| queue.running.insert(doomed.uid.clone())).collect()
    }

    /// Deletes the children of an owner, and then removes the finalizer.
    async fn finish(&self, doomed: Doomed) {
        let requests = Requests::new(&self.api, &call_options());
        let mut backoff = BACKOFF;
        loop {
            self.pause.over().await;
            match self.step(&requests, &doomed).await {
                Ok(Step::Done) | Err(CallError::Closed) => break,
                Ok(Step::Wait) => {
                    backoff = BACKOFF;
                    requests.clock().sleep(DELAY).await;
                }
                Err(error) => {
                    let text = format!(
                        "The children of {} {} cannot be deleted yet; will retry in {} seconds: {}",
                        self.resource,
                        doomed.name,
                        backoff.as_secs(),
                        describe(&error)
                    );
                    requests.log(Level::Warning, text);
                    requests.clock().sleep(backoff).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
            }
        }
        self.queue().running.remove(&doomed.uid);
    }

    async fn step(&self, requests: &Requests<'_>, doomed: &Doomed) -> Result<Step, CallError> {
        let Resource { group, version, plural, .. } = &*self.resource;
        let kind = format!("{group}/{version}/{plural}");
        let target = Target { kind: &kind, namespace: doomed.namespace.as_deref(), name: &doomed.name };
        let Some(mut body) = requests.find(target, true).await? else { return Ok(Step::Done) };
        // Partial objects have another kind.
        let api_version = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
        body["apiVersion"] = api_version.into();
        body["kind"] = self.resource.kind.clone().unwrap_or_default().into();
        let owner = Owner::read(&body).map_err(CallError::Misuse)?;
        let has = |finalizer: &str| owner.finalizers.iter().any(|one| one == finalizer);
        // If handlers need the owner again, an event follows when they have released it.
        if owner.uid != doomed.uid
            || !has(CHILDREN_FINALIZER)
            || self.finalizers.iter().any(|finalizer| has(finalizer))
        {
            return Ok(Step::Done);
        }
        let id = apply_set_id(&owner);
        let listed = members::list(requests, &owner, &id, &Membership::of(&owner), false).await?;
        let marked: Vec<_> =
            listed.into_iter().filter(|member| is_marked_elsewhere(&member.object, &owner.uid)).collect();
        if marked.is_empty() {
            return release(requests, target, &owner).await;
        }
        let mut failed = Ok(());
        for member in &marked {
            if member.object.pointer("/metadata/deletionTimestamp").and_then(Value::as_str).is_none() {
                // The others are deleted nevertheless.
                failed =
                    failed.and(requests.delete(member.target(), &member.uid, "Background").await.map(|_| ()));
            }
        }
        failed.map(|()| Step::Wait)
    }
}

fn call_options() -> CallOptions {
    CallOptions {
        write: WriteOptions::default(),
        namespace: DefaultNamespace::OfCredentials,
        timeout: None,
        retries: true,
        headers: HeaderMap::new(),
        run: None,
    }
}

/// Removes the finalizer from the latest state of the owner.
async fn release(requests: &Requests<'_>, target: Target<'_>, owner: &Owner) -> Result<Step, CallError> {
    let rest: Vec<_> = owner.finalizers.iter().filter(|one| *one != CHILDREN_FINALIZER).collect();
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": owner.resource_version},
        {"op": "replace", "path": "/metadata/finalizers", "value": rest},
    ]);
    match requests.patch(target, &patch).await {
        // It has changed meanwhile; servers report the failed test of a JSON patch as invalid.
        Err(error) if has_code(&error, 409) || has_code(&error, 422) => {
            let found = requests.find(target, true).await?;
            let version =
                found.as_ref().and_then(|found| found.pointer("/metadata/resourceVersion")?.as_str());
            if version == Some(&owner.resource_version) { Err(error) } else { Ok(Step::Wait) }
        }
        Err(error) if has_code(&error, 404) => Ok(Step::Done),
        patched => patched.map(|_| Step::Done),
    }
}

fn describe(error: &CallError) -> String {
    match error {
        CallError::Failed(failure) => failure.text(),
        CallError::Misuse(text) | CallError::Login(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::super::memory::Memory;
    use super::*;
    use crate::testing::{Fixture, Got, resource};

    /// The error after a rejected removal of the finalizer; none if it is tried again at once.
    async fn rejected(version_afterwards: &'static str) -> Option<u16> {
        let fixture = Fixture::new(&json!({}), move |got: &Got| {
            if got.path == "/apis/example.com/v1" {
                let widgets = json!({"name": "widgets", "kind": "Widget", "namespaced": true});
                return (200, Some(json!({"kind": "APIResourceList", "resources": [widgets]})));
            }
            if got.method == "PATCH" {
                return (422, Some(json!({"kind": "Status", "reason": "Invalid", "message": "denied"})));
            }
            (200, Some(json!({"metadata": {"name": "one", "resourceVersion": version_afterwards}})))
        });
        let api = Api::new(fixture.shared.base.client.clone(), CancellationToken::new());
        let requests = Requests::new(&api, &call_options());
        let target = Target { kind: "example.com/v1/widgets", namespace: Some("ns"), name: "one" };
        let owner = Owner { resource_version: "1".to_owned(), ..Owner::default() };
        match release(&requests, target, &owner).await {
            Ok(Step::Wait) => None,
            Err(CallError::Failed(failure)) => Some(failure.code),
            _ => panic!("it is neither an error nor tried again"),
        }
    }

    /// The number of remembered owners after a listing with one of two owners.
    fn owners_after_listing(proves_deletions: bool) -> usize {
        let fixture = Fixture::new(&json!({}), |_| (200, None));
        let api = Api::new(fixture.shared.base.client.clone(), CancellationToken::new());
        let (memory, owners) = (Arc::new(Memory::default()), Arc::<DeletedOwners>::default());
        owners.register(&memory);
        for uid in ["one", "two"] {
            let (group, kind) = ("example.com".to_owned(), "things".to_owned());
            let key = ChildKey { group, kind, namespace: None, name: uid.to_owned() };
            memory.owner(uid).try_lock().unwrap().key = Some(Arc::new(key));
        }
        let kind = Some("things".to_owned());
        let things = Arc::new(Resource { kind, ..(*resource("example.com", "things", false)).clone() });
        let pause = Arc::clone(&fixture.shared.pause);
        let mut consumer =
            ChildrenDeletion::new(api, (owners, proves_deletions), (things, None), vec![], pause);
        consumer.on_init();
        let text = r#"{"metadata": {"name": "one", "uid": "one"}}"#;
        consumer.event(EventType::Listed, &Arc::new(Object::decode(text).unwrap()));
        consumer.on_init_done();
        memory.counts().1
    }

    #[tokio::test(start_paused = true)]
    async fn owners_whose_deletion_was_missed_are_forgotten_with_the_next_listing() {
        assert_eq!(owners_after_listing(true), 1);
        assert_eq!(owners_after_listing(false), 2, "they may not match the selectors any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejected_removal_of_the_finalizer_is_an_error_unless_the_owner_has_changed() {
        assert_eq!(rejected("1").await, Some(422));
        assert_eq!(rejected("2").await, None);
    }
}
