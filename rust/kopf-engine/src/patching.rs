//! Patching: one cycle's changes go to the API server in the fewest requests, at most four.
//!
//! The merge patch first, apart for the body and for the status if that is a subresource; then what must be computed from the
//! freshest state, as a JSON patch that fails if somebody was faster: finalizers and transformation functions.
//! Rules: contract/engine 8.3-8.5.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use kopf_core::discretion::{shown, shown_diff, shown_operations};
use kopf_core::finalizer::{self, Edit};
use kopf_core::jsonpatch;
use kopf_core::ledger;
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::patch::Patch;
use kopf_core::registry::Plan;
use kopf_core::resource::Resource;
use kopf_core::settings::Persistence;
use kopf_core::value::{Map, Value, python_repr};
use serde_json::json;
use tokio::sync::oneshot;

use crate::api::{Api, Payload, seconds};
use crate::error::{ApiError, RequestError};
use crate::invoke::{CycleId, Entry, Invoker, Job, TransformJob};

mod documents;

use documents::{Part, holds, is_about_status, to_json};

/// How many times a change is recomposed from a fresh state after a conflict, before it is left to the next cycle.
const CONFLICTS: usize = 3;
/// Seconds between attempts of what has met a conflict that is not its own: a merge patch has no versions to conflict.
const CONFLICT_PAUSES: [f64; 3] = [0.1, 0.3, 1.0];

/// What is to be changed in an object.
pub struct Change {
    /// The cycle which wants it.
    pub cycle: CycleId,
    /// The merge patch.
    pub patch: Patch,
    /// What is to be done with our finalizer.
    pub finalizer: Option<Edit>,
    /// All is done for the deletion of the object: whatever becomes of it, it is to be let go.
    pub parted: bool,
    /// Whether the handlers left transformation functions.
    pub functions: bool,
}

impl Change {
    /// Nothing yet.
    pub fn of(cycle: CycleId) -> Self {
        Self { cycle, patch: Patch::default(), finalizer: None, parted: false, functions: false }
    }

    /// Whether there is nothing to be changed.
    pub fn is_empty(&self) -> bool {
        self.patch.is_empty() && self.finalizer.is_none() && !self.functions
    }
}

/// What came of it.
#[derive(Default)]
pub struct Applied {
    /// The object after the last request; none if nothing was sent.
    pub latest: Option<Arc<Object>>,
    /// The object does not exist any more.
    pub gone: bool,
    /// The functions are to be tried again in the next cycle: somebody was faster.
    pub carry: bool,
    /// The merge patch that was accepted.
    pub merged: Map<String, Value>,
    /// The merge patch that was not, or nobody knows.
    pub unwritten: Map<String, Value>,
    /// What must be computed from the freshest state was refused: it is to be tried again.
    pub refused: bool,
}

/// What is to be computed from the freshest state.
#[derive(Clone, Copy)]
struct Wanted {
    finalizer: Option<Edit>,
    parted: bool,
    functions: bool,
}

/// Sends changes of objects of one resource.
pub struct Patching<'a> {
    /// The way to the server.
    pub api: &'a Api,
    /// For the log and for the transformation functions.
    pub invoker: &'a Arc<dyn Invoker>,
    /// What kind the objects are of.
    pub resource: &'a Resource,
    /// The name of our finalizer.
    pub finalizer: &'a str,
    /// Whether conflicts are left to the next event, as the reference does.
    pub compat: bool,
    /// Whose progress goes with an object that is let go, and where it is; if it has stayed there until then.
    pub parting: Option<(&'a Plan, &'a Persistence)>,
}

/// Why the functions could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum PatchingError {
    /// The server refused, or could not be reached. What was in the change is not applied in full.
    #[error("{0}")]
    Request(#[from] RequestError),
    /// A transformation function raised.
    #[error("{0}")]
    Function(String),
}

impl PatchingError {
    /// Whether it is the content that the server does not like: it will not like it any better later.
    pub fn is_rejection(&self) -> bool {
        matches!(self, Self::Request(error) if matches!(error.status(), Some(400 | 413 | 422)))
    }

    /// Whether the server may have done it nevertheless: it has not refused, only its answer is missing.
    pub fn is_of_unknown_fate(&self) -> bool {
        match self {
            Self::Request(RequestError::Login(_)) | Self::Function(_) => false,
            Self::Request(error) => matches!(error.status(), None | Some(504)),
        }
    }
}

impl Patching<'_> {
    /// Applies the change to the object, as it was seen by the cycle; an error leaves in `applied` what came before it.
    pub async fn apply(
        &self,
        object: &Arc<Object>,
        change: Change,
        applied: &mut Applied,
    ) -> Result<(), PatchingError> {
        match self.send_all(object, change, applied).await {
            Err(PatchingError::Request(error)) if error.status() == Some(404) => {
                self.debug(object, || "Patching was skipped: the object does not exist anymore.".to_owned());
                applied.gone = true;
                Ok(())
            }
            result => result,
        }
    }

    async fn send_all(
        &self,
        object: &Arc<Object>,
        change: Change,
        applied: &mut Applied,
    ) -> Result<(), PatchingError> {
        let Change { cycle, patch, finalizer, parted, functions } = change;
        // If it comes to nothing, the functions are not lost.
        applied.carry = functions && !self.compat;
        if !patch.is_empty() {
            self.merge(object, patch, applied).await?;
        }
        if functions || finalizer.is_some() {
            let wanted = Wanted { finalizer, parted, functions };
            let result = self.transform(object, cycle, wanted, applied).await;
            applied.carry &= !matches!(result, Err(PatchingError::Function(_)));
            result?;
        }
        Ok(())
    }

    /// Merges the patch into the object, in one request or two.
    pub(crate) async fn merge(
        &self,
        object: &Arc<Object>,
        patch: Patch,
        applied: &mut Applied,
    ) -> Result<(), PatchingError> {
        // Until the server has accepted it all.
        applied.unwritten = patch.0;
        let apart = self.resource.has_subresource("status");
        let body = Part(&applied.unwritten, apart.then_some("status"));
        let status = applied.unwritten.get("status").filter(|status| apart && !status.is_null());
        // The progress is in the body: it is written when all else is, since the operator may die in between.
        let [body_turn, status_turn] = if self.compat { [0, 1] } else { [1, 0] };
        let mut answer = None;
        for turn in 0..2 {
            let (subresource, document) = if turn == body_turn && (!apart || !body.is_empty()) {
                self.debug(object, || {
                    format!(
                        "Merge-patching the resource with: {}",
                        python_repr(&shown(object, &body.to_value()))
                    )
                });
                (None, body.to_json())
            } else if turn == status_turn
                && let Some(status) = status
            {
                self.debug(object, || {
                    let document = json!({ "status": status });
                    format!("Merge-patching the status with: {}", python_repr(&shown(object, &document)))
                });
                (Some("status"), [b"{\"status\":", &*to_json(status), b"}"].concat())
            } else {
                continue;
            };
            // What the first answer says, only matters if there is no second one.
            match self.ask(object, subresource, Payload::MergePatch(&document)).await {
                Ok(last) => answer = Some(last),
                Err(error) => {
                    let first = answer.and_then(|answer| self.read(object, &answer).ok());
                    applied.latest = first.or(applied.latest.take());
                    return Err(error.into());
                }
            }
        }
        if let Some(answer) = answer {
            applied.latest = Some(self.read(object, &answer)?);
        }
        applied.merged = std::mem::take(&mut applied.unwritten);
        self.verify(object, applied);
        Ok(())
    }

    async fn transform(
        &self,
        object: &Arc<Object>,
        cycle: CycleId,
        Wanted { finalizer, parted, functions }: Wanted,
        applied: &mut Applied,
    ) -> Result<(), PatchingError> {
        let mut base = Arc::clone(applied.latest.as_ref().unwrap_or(object));
        for attempt in 0.. {
            // Otherwise, the next cycle decides, since the newer state is to come.
            let finalizer = finalizer.filter(|edit| parted || self.holds(*edit, object, &base));
            let operations = self.operations(&base, cycle, finalizer, functions).await?;
            let Some(remaining) = self.operate(object, &base, &operations, applied).await? else {
                applied.carry = false;
                return Ok(());
            };
            if attempt < CONFLICTS && !self.compat {
                let latest = self.refetch(object).await?;
                if latest.resource_version() == base.resource_version() {
                    // It is not about versions: nothing will be different at once.
                    applied.refused = true;
                } else if holds(&latest, &operations) {
                    // It was applied, and only the answer was lost.
                    applied.latest = Some(latest);
                    applied.carry = false;
                    return Ok(());
                } else {
                    base = Arc::clone(&latest);
                    applied.latest = Some(latest);
                    continue;
                }
            }
            applied.carry = functions;
            self.debug(object, || {
                format!(
                    "Could not apply the patch in full due to conflicts with newer changes. Will try on the next cycle \
                     soon. Remaining: {}",
                    python_repr(&remaining)
                )
            });
            break;
        }
        Ok(())
    }

    async fn refetch(&self, object: &Object) -> Result<Arc<Object>, RequestError> {
        let url = self.resource.url(object.namespace(), object.name(), None);
        let malformed =
            |error: &dyn std::fmt::Display| RequestError::Malformed(format!("GET {url}: {error}"));
        let body = self.api.get(&url).await?;
        let text = std::str::from_utf8(&body).map_err(|error| malformed(&error))?;
        let latest = Object::decode(text).map_err(|error| malformed(&error))?;
        if latest.uid() != object.uid() {
            let gone = ApiError::from_response(404, None, b"the object was deleted and created anew");
            return Err(RequestError::Api(Box::new(gone)));
        }
        Ok(Arc::new(latest))
    }

    /// Sends the operations if the object is still the same; gives them back if it is not.
    async fn operate(
        &self,
        object: &Arc<Object>,
        base: &Arc<Object>,
        operations: &[Value],
        applied: &mut Applied,
    ) -> Result<Option<Value>, PatchingError> {
        let apart = self.resource.has_subresource("status");
        let (status, body): (Vec<_>, Vec<_>) =
            operations.iter().cloned().partition(|one| apart && is_about_status(one));
        for (subresource, what, operations) in [(None, "resource", body), (Some("status"), "status", status)]
        {
            if operations.is_empty() {
                continue;
            }
            let freshest = applied.latest.as_ref().unwrap_or(base);
            let mut document = vec![json!({
                "op": "test", "path": "/metadata/resourceVersion", "value": freshest.resource_version(),
            })];
            document.extend(operations);
            let document = Value::Array(document);
            self.debug(object, || {
                format!(
                    "JSON-patching the {what} with: {}",
                    python_repr(&shown_operations(object, &document))
                )
            });
            let text = document.to_string();
            match self.send(object, subresource, Payload::JsonPatch(text.as_bytes()), applied).await {
                Ok(()) => {}
                Err(error)
                    if error.status() == Some(422) || (error.status() == Some(409) && !self.compat) =>
                {
                    return Ok(Some(document));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// What is to be changed, and nothing more: many objects may wait here for their turn to be written.
    async fn operations(
        &self,
        base: &Arc<Object>,
        cycle: CycleId,
        finalizer: Option<Edit>,
        functions: bool,
    ) -> Result<Vec<Value>, PatchingError> {
        let (before, mut after) = if functions {
            let mut after = self.call_functions(cycle, base).await?;
            if let Some(leftovers) = self.leftovers(base, finalizer) {
                jsonpatch::apply_merge(&mut after, &leftovers.0);
            }
            (base.to_value(), after)
        } else if let Some(leftovers) = self.leftovers(base, finalizer) {
            let before = base.to_value();
            let mut after = before.clone();
            jsonpatch::apply_merge(&mut after, &leftovers.0);
            (before, after)
        } else {
            // Of the whole object, only the finalizers matter.
            let finalizers: Vec<&str> = base.finalizers().collect();
            let known = if finalizers.is_empty() { json!({}) } else { json!({ "finalizers": finalizers }) };
            let before = json!({ "metadata": known });
            (before.clone(), before)
        };
        if let Some(edit) = finalizer {
            finalizer::edit(&mut after, self.finalizer, edit);
        }
        Ok(jsonpatch::operations(&before, &after))
    }

    /// Whether what was decided of the finalizer for one state holds for another one. The reference does not ask.
    fn holds(&self, edit: Edit, decided: &Object, latest: &Object) -> bool {
        self.parting.is_none_or(|(plan, persistence)| {
            finalizer::holds(edit, decided, latest, persistence, &plan.extra_fields)
        })
    }

    /// The progress of a deletion that is over; if there is any on the object.
    fn leftovers(&self, base: &Object, finalizer: Option<Edit>) -> Option<Patch> {
        let (plan, persistence) = self.parting?;
        let is_parting = finalizer == Some(Edit::Allow) && base.deletion_timestamp().is_some();
        is_parting
            .then(|| ledger::leftovers(base, persistence, plan))
            .filter(|leftovers| !leftovers.is_empty())
    }

    async fn call_functions(&self, cycle: CycleId, object: &Arc<Object>) -> Result<Value, PatchingError> {
        let (reply, answer) = oneshot::channel();
        self.invoker.submit(Job::Transform(TransformJob { cycle, object: Arc::clone(object), reply }));
        match answer.await {
            Ok(result) => result.map_err(PatchingError::Function),
            Err(_) => Err(PatchingError::Function("The operator is exiting.".to_owned())),
        }
    }

    async fn send(
        &self,
        object: &Object,
        subresource: Option<&str>,
        payload: Payload<'_>,
        applied: &mut Applied,
    ) -> Result<(), RequestError> {
        let answer = self.ask(object, subresource, payload).await?;
        applied.latest = Some(self.read(object, &answer)?);
        Ok(())
    }

    async fn ask(
        &self,
        object: &Object,
        subresource: Option<&str>,
        payload: Payload<'_>,
    ) -> Result<Bytes, RequestError> {
        let url = self.resource.url(object.namespace(), object.name(), subresource);
        let mut pauses = CONFLICT_PAUSES.iter();
        loop {
            let error = match self.api.request(&Method::PATCH, &url, payload).await {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            let is_merge = matches!(payload, Payload::MergePatch(_));
            match pauses.next() {
                Some(pause) if is_merge && error.status() == Some(409) && !self.compat => {
                    self.api.clock().sleep(seconds(*pause)).await;
                }
                _ => return Err(error),
            }
        }
    }

    /// The object as the server has answered that it is now.
    fn read(&self, object: &Object, answer: &Bytes) -> Result<Arc<Object>, RequestError> {
        let malformed = |error: &dyn std::fmt::Display| {
            let url = self.resource.url(object.namespace(), object.name(), None);
            RequestError::Malformed(format!("PATCH {url}: {error}"))
        };
        let text = std::str::from_utf8(answer).map_err(|error| malformed(&error))?;
        Object::decode(text).map(Arc::new).map_err(|error| malformed(&error))
    }

    /// Tells if the server did not keep what it was asked to: a schema without the field, a webhook.
    fn verify(&self, object: &Arc<Object>, applied: &Applied) {
        let Some(latest) = &applied.latest else { return };
        let lost = documents::lost(latest, &applied.merged);
        if !lost.is_empty() {
            let text = kopf_core::diff::python_repr(&shown_diff(object, &lost));
            let text = format!("Merge-patching finished with inconsistencies: {text}");
            self.invoker.log(Entry::local(Level::Warning, object, text));
        }
    }

    fn debug(&self, object: &Arc<Object>, text: impl FnOnce() -> String) {
        if self.invoker.enabled(Level::Debug) {
            self.invoker.log(Entry::local(Level::Debug, object, text()));
        }
    }
}
