//! Applying one child.

use std::sync::Arc;
use std::time::Duration;

use kopf_core::apply::{
    ConflictPolicy, PlannedChild, Rejection, Standing, classify, is_irreplaceable, is_owned_by_others,
    owned_digest, remove_field, shared_document, takeover_patch, write_time,
};
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use kopf_core::user_request::{Class, Failure, FieldConflict};

use super::Run;
use super::cache::CachedChild;
use super::memory::KnownChild;
use super::outcome::{Change, ChildError, Done};
use super::requests::{Answer, Target, has_code};
use crate::user_client::CallError;

/// How often conflicting fields are left out: other managers may add some meanwhile.
const MAX_YIELDS: usize = 5;

/// How long a CRD may take to be served.
const CRD_TIMEOUT: Duration = Duration::from_mins(1);
const CRD_DELAY: Duration = Duration::from_millis(200);

/// The state of a child before its apply.
enum Before {
    /// It was applied by an earlier call, and its present state is not known.
    Applied,
    /// There is no such object.
    Absent,
    /// The object; only its metadata, unless it is a dry run.
    Present(Value),
}

/// An accepted apply.
struct Accepted {
    answer: Answer,
    yielded: Vec<String>,
    is_recreated: bool,
}

impl Run<'_> {
    pub(super) async fn apply_child(&self, child: &PlannedChild) -> Result<Done, ChildError> {
        if let Some(crd) = &child.crd {
            self.wait_for_crd(crd, &child.kind_name).await?;
        }
        let slot = self.memory.child(&child.key);
        let mut known = slot.lock().await;
        let is_own = |known: &KnownChild| {
            let is_allowed = !known.is_shared || self.options.share;
            known.manager == self.manager && known.owner == self.uid && is_allowed
        };
        let previous = known.as_ref().filter(|known| is_own(known)).cloned();
        let target = Target::of(&child.kind_name, &child.key);
        let resource = self.requests.resolve(&child.kind_name).await?;
        let namespace = child.key.namespace.as_deref();
        let cached = self.cache.cached(&resource, namespace, &child.key.name, &self.manager);
        if let Some(previous) =
            previous.as_ref().filter(|known| known.desired == child.digest && !self.is_dry)
            && let Some(object) = self.unchanged(cached.as_ref(), previous)
        {
            let has_yielded = !previous.yielded.is_empty();
            return Ok(Done { change: Change::Unchanged, has_yielded, object });
        }
        let before = self.before(target, cached, previous.as_ref()).await?;
        let mut document = child.document.clone();
        let mut is_shared = false;
        if let Before::Present(live) = &before {
            match self.standing(live) {
                Standing::Free => self.take_over(target, live, previous.as_ref()).await?,
                Standing::Leaving => return Err(leaving(child)),
                Standing::Foreign(_) if self.options.share => {
                    document = shared_document(&document, live, self.owner);
                    is_shared = true;
                }
                Standing::Foreign(others) => return Err(owned_by(child, &others)),
            }
        }
        let remembered = previous.as_ref().filter(|known| known.desired == child.digest);
        let yielded = remembered.map(|known| known.yielded.clone()).unwrap_or_default();
        let accepted = self.send(child, &document, yielded).await?;
        let object = Arc::clone(&accepted.answer.object);
        if object.deletion_timestamp().is_some() {
            return Err(leaving(child));
        }
        let after = KnownChild { is_shared, ..self.known(child, &resource, &accepted) };
        let change = self.change(&before, previous.as_ref(), &after, &accepted);
        if !self.is_dry {
            *known = Some(after);
        }
        Ok(Done { change, has_yielded: !accepted.yielded.is_empty(), object })
    }

    /// The present state of a child that is as the last apply has left it; none if that is not known.
    fn unchanged(&self, cached: Option<&CachedChild>, previous: &KnownChild) -> Option<Arc<Object>> {
        match cached {
            Some(CachedChild::Present { object, owned }) => {
                let is_same_version = object.resource_version() == Some(previous.version.as_str());
                // The owners of the fields that were left out are not part of the digest.
                let has_same_fields =
                    owned.is_some() && *owned == previous.owned && previous.yielded.is_empty();
                let is_staying = object.deletion_timestamp().is_none();
                (is_staying && (is_same_version || has_same_fields)).then(|| Arc::clone(object))
            }
            Some(CachedChild::Absent) => None,
            None => {
                let response =
                    previous.response.as_ref().filter(|response| self.cache.is_newest(response))?;
                // A copy: reading it decompresses it, and the memory keeps only the compressed text.
                Some(response.to_compressed().map_or_else(|| Arc::clone(response), Arc::new))
            }
        }
    }

    /// Whether a child belongs to this owner, as after its last apply: no other operator has worked since then.
    fn is_still_own(&self, known: &KnownChild) -> bool {
        !known.is_shared && known.pauses.is_some() && known.pauses == self.pauses
    }

    /// The state before the apply. It is read before the first apply of this process and after a pause, as the object may be another
    /// owner's, and before each apply if it is.
    async fn before(
        &self,
        target: Target<'_>,
        cached: Option<CachedChild>,
        previous: Option<&KnownChild>,
    ) -> Result<Before, CallError> {
        let needs_managers = previous.is_none() && !self.options.takeover.is_empty();
        match cached {
            Some(CachedChild::Absent) => return Ok(Before::Absent),
            Some(CachedChild::Present { object, .. }) if !needs_managers && !self.is_dry => {
                return Ok(Before::Present(object.to_value()));
            }
            _ if previous.is_some_and(|known| self.is_still_own(known)) && !self.is_dry => {
                return Ok(Before::Applied);
            }
            _ => {}
        }
        let found = self.requests.find(target, !self.is_dry).await?;
        Ok(found.map_or(Before::Absent, Before::Present))
    }

    /// Transfers the fields of other managers, once.
    async fn take_over(
        &self,
        target: Target<'_>,
        live: &Value,
        previous: Option<&KnownChild>,
    ) -> Result<(), CallError> {
        if previous.is_some() || self.is_dry {
            return Ok(());
        }
        let mut live = live.clone();
        for _ in 0..MAX_YIELDS {
            let Some(patch) = takeover_patch(&live, &self.manager, &self.options.takeover) else {
                return Ok(());
            };
            match self.requests.patch(target, &patch).await {
                // The object has changed meanwhile; servers report the failed test of a JSON patch as invalid.
                Err(error) if has_code(&error, 409) || has_code(&error, 422) => {
                    let Some(found) = self.requests.find(target, true).await? else { return Ok(()) };
                    if found.pointer("/metadata/resourceVersion") == live.pointer("/metadata/resourceVersion")
                    {
                        return Err(error);
                    }
                    live = found;
                }
                patched => return patched.map(|_| ()),
            }
        }
        Ok(())
    }

    /// Applies a document, and treats its conflicts and rejections.
    async fn send(
        &self,
        child: &PlannedChild,
        document: &Value,
        mut yielded: Vec<String>,
    ) -> Result<Accepted, ChildError> {
        let target = Target::of(&child.kind_name, &child.key);
        let mut attempts = MAX_YIELDS;
        loop {
            let sent = self.requests.apply(target, &without(document, &yielded), false).await;
            let failure = match sent {
                Ok(answer) => {
                    let others = |field: &String| is_owned_by_others(&answer.value, &self.manager, field);
                    let count = yielded.len();
                    // Fields that no other manager owns any more are applied again.
                    yielded.retain(others);
                    attempts = attempts.saturating_sub(1);
                    if yielded.len() < count && attempts > 0 {
                        continue;
                    }
                    return Ok(Accepted { answer, yielded, is_recreated: false });
                }
                Err(CallError::Failed(failure)) => failure,
                Err(error) => return Err(error.into()),
            };
            match classify(&failure) {
                Rejection::Ownership => return Err(self.foreign(child, *failure).await),
                Rejection::Immutable if self.options.recreate => {
                    if is_irreplaceable(&child.key.group, &child.key.kind) {
                        return Err(CallError::Failed(failure).into());
                    }
                    // No other manager owns fields of the new object.
                    return self.recreated(child, document).await;
                }
                Rejection::Conflicts(conflicts) if *self.policy() == ConflictPolicy::Force => {
                    let answer = self.requests.apply(target, &without(document, &yielded), true).await?;
                    self.log_takeover(child, &conflicts);
                    return Ok(Accepted { answer, yielded, is_recreated: false });
                }
                Rejection::Conflicts(conflicts) => {
                    let fields: Vec<String> = conflicts.into_iter().map(|conflict| conflict.field).collect();
                    let left_out = self.policy().yielded(&fields).filter(|fields| {
                        let mut rest = without(document, &yielded);
                        attempts > 0 && fields.iter().all(|field| remove_field(&mut rest, field))
                    });
                    let Some(left_out) = left_out else { return Err(CallError::Failed(failure).into()) };
                    attempts -= 1;
                    yielded.extend(left_out);
                }
                Rejection::Immutable | Rejection::Other => return Err(CallError::Failed(failure).into()),
            }
        }
    }

    async fn recreated(&self, child: &PlannedChild, document: &Value) -> Result<Accepted, ChildError> {
        let target = Target::of(&child.kind_name, &child.key);
        let accepted = |answer| Accepted { answer, yielded: vec![], is_recreated: true };
        let Some(live) = self.requests.find(target, true).await? else {
            return Ok(accepted(self.requests.apply(target, document, false).await?));
        };
        match self.standing(&live) {
            Standing::Free => {}
            Standing::Leaving => return Err(leaving(child)),
            Standing::Foreign(others) => return Err(owned_by(child, &others)),
        }
        if self.is_dry {
            let object = Object::decode(&live.to_string())
                .map_err(|error| CallError::Misuse(format!("{} cannot be decoded: {error}", child.key)))?;
            return Ok(accepted(Answer { status: 200, value: live, object: Arc::new(object) }));
        }
        if !self.replaced(target, &live).await? {
            return Err(leaving(child));
        }
        Ok(accepted(self.requests.apply(target, document, false).await?))
    }

    /// The error of a rejection because of another owner; names it.
    async fn foreign(&self, child: &PlannedChild, failure: Failure) -> ChildError {
        let target = Target::of(&child.kind_name, &child.key);
        match self.requests.find(target, true).await {
            Ok(Some(live)) => match self.standing(&live) {
                Standing::Foreign(others) => owned_by(child, &others),
                Standing::Leaving => leaving(child),
                Standing::Free => CallError::Failed(Box::new(failure)).into(),
            },
            Ok(None) => CallError::Failed(Box::new(failure)).into(),
            Err(error) => error.into(),
        }
    }

    fn known(&self, child: &PlannedChild, resource: &Resource, accepted: &Accepted) -> KnownChild {
        let Answer { value, object, .. } = &accepted.answer;
        let response = self.cache.knows_versions(resource).then(|| {
            let compressed = object.to_compressed().map(Arc::new);
            compressed.unwrap_or_else(|| Arc::clone(object))
        });
        KnownChild {
            manager: Arc::clone(&self.manager),
            owner: Arc::clone(&self.uid),
            owner_key: Arc::clone(&self.owner_key),
            desired: child.digest,
            version: object.resource_version().unwrap_or_default().to_owned(),
            owned: owned_digest(value, &self.manager),
            written: write_time(value, &self.manager).unwrap_or_default().to_owned(),
            yielded: accepted.yielded.clone(),
            pauses: self.pauses,
            is_shared: false,
            response,
        }
    }

    fn change(
        &self,
        before: &Before,
        previous: Option<&KnownChild>,
        after: &KnownChild,
        accepted: &Accepted,
    ) -> Change {
        let is_unchanged = match (before, previous) {
            _ if accepted.is_recreated => return Change::Recreated,
            (Before::Absent, _) => return Change::Created,
            _ if accepted.answer.status == 201 => return Change::Created,
            (Before::Present(live), _) if self.is_dry => is_equal(live, &accepted.answer.value),
            (Before::Present(live), _) => {
                live.pointer("/metadata/resourceVersion").and_then(Value::as_str)
                    == Some(after.version.as_str())
            }
            // Others may have changed other fields since then, but the server dates the last write of these.
            (Before::Applied, Some(previous)) => {
                let has_same_fields = after.owned == previous.owned && after.written == previous.written;
                after.version == previous.version || (has_same_fields && after.desired == previous.desired)
            }
            (Before::Applied, None) => false,
        };
        if is_unchanged { Change::Unchanged } else { Change::Changed }
    }

    fn log_takeover(&self, child: &PlannedChild, conflicts: &[FieldConflict]) {
        let fields: Vec<_> = conflicts
            .iter()
            .map(|conflict| format!("{} of {:?}", conflict.field, conflict.manager))
            .collect();
        let text = format!("{}: took over {}.", child.key, fields.join(", "));
        self.requests.log(Level::Info, text);
    }

    /// Waits until the CRD is established, and its kind is served.
    async fn wait_for_crd(&self, crd: &str, kind: &str) -> Result<(), CallError> {
        if self.is_dry {
            return Ok(());
        }
        let target =
            Target { kind: "apiextensions.k8s.io/v1/customresourcedefinitions", namespace: None, name: crd };
        let deadline = self.requests.clock().now().plus(CRD_TIMEOUT.as_secs_f64());
        loop {
            let is_established = self.requests.find(target, false).await?.is_some_and(|crd| {
                let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
                conditions.into_iter().flatten().any(|one| {
                    one.get("type").and_then(Value::as_str) == Some("Established")
                        && one.get("status").and_then(Value::as_str) == Some("True")
                })
            });
            if is_established && self.requests.resolve_served(kind).await?.is_some() {
                return Ok(());
            }
            if self.requests.clock().now() >= deadline {
                let text = format!("the CRD {crd} is not established");
                let failure = Failure::unanswered(Class::TimedOut, &text);
                return Err(
                    CallError::Failed(Box::new(failure)).about(&format!("apply objects of the kind {kind}"))
                );
            }
            self.requests.clock().sleep(CRD_DELAY).await;
        }
    }
}

fn without(document: &Value, fields: &[String]) -> Value {
    let mut document = document.clone();
    for field in fields {
        remove_field(&mut document, field);
    }
    document
}

/// Whether a dry run has changed nothing.
fn is_equal(live: &Value, response: &Value) -> bool {
    let stripped = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["managedFields", "resourceVersion", "generation"] {
                metadata.shift_remove(field);
            }
        }
        object
    };
    stripped(live) == stripped(response)
}

fn owned_by(child: &PlannedChild, others: &str) -> ChildError {
    ChildError::OwnedByAnother(format!("{} belongs to {others}.", child.key))
}

fn leaving(child: &PlannedChild) -> ChildError {
    ChildError::Leaving(format!("{} is being deleted.", child.key))
}
