//! The identity of patched objects: a patch of a deleted object must not change its successor of the same name.
//!
//! A write that finds another object has the same result as one that finds none: the object is gone.
//!
//! - Nothing is sent if the deletion of the object was received.
//! - Merge patches contain the uid. It is immutable, so the server rejects the patch for another object.
//! - Custom resources ignore the metadata in patches of their status subresource. The only precondition there is the
//!   resource version, which fails after each change of the object, and then costs two more requests. So it guards only a
//!   status with Kopf's records: with those of its predecessor, an object would never be handled. Any other status, such as
//!   the results of handlers, is sent without, as before; the rest of the patch is rejected then, and the successor's own
//!   handlers replace their results.
//! - JSON patches test the resource version; no two objects share one.
//!
//! With the behaviour of Kopf 1.45, patches have no precondition.

use bytes::Bytes;
use http::Method;
use kopf_core::json::value::{Map, Value};
use kopf_core::object::Object;
use kopf_core::persistence::own_annotations;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::Patching;
use super::documents::{PatchPart, to_json};
use super::rejections::{causes, is_custom};
use crate::client::RequestBody;
use crate::error::{ApiError, RequestError};

/// The reason in the error of a request that was not applied because the object is gone.
const REPLACED: &str = "Replaced";

/// The error of a request to an object that was deleted, even if another object has its name now.
pub(super) fn gone() -> RequestError {
    let mut gone = ApiError::from_response(404, None, b"the object was deleted");
    gone.reason = Some(REPLACED.to_owned());
    RequestError::Api(Box::new(gone))
}

/// Whether it is certain that the object is gone; a 404 may mean that only the subresource is missing.
pub(super) fn is_gone(error: &RequestError) -> bool {
    matches!(error, RequestError::Api(error) if error.reason.as_deref() == Some(REPLACED))
}

impl Patching<'_> {
    /// Whether the deletion of the object was received.
    pub(super) fn is_known_deleted(&self) -> bool {
        !self.compat && (self.is_deleted)()
    }

    /// Sends a patch, unless the object is gone. With `is_once`, temporary failures are not retried.
    pub(super) async fn send(
        &self,
        object: &Object,
        subresource: Option<&str>,
        payload: RequestBody<'_>,
        is_once: bool,
    ) -> Result<Bytes, RequestError> {
        if self.is_known_deleted() {
            return Err(gone());
        }
        let url = self.resource.url(object.namespace(), object.name(), subresource);
        let sent = if is_once {
            self.client.request_once(&Method::PATCH, &url, payload).await
        } else {
            self.client.request(&Method::PATCH, &url, payload).await
        };
        sent.map_err(|error| if !self.compat && is_about_uid(&error) { gone() } else { error })
    }

    /// Checks that the object in a response is the patched one.
    pub(super) fn check_identity(&self, object: &Object, latest: &Object) -> Result<(), RequestError> {
        let is_other = object.uid().zip(latest.uid()).is_some_and(|(sent, found)| sent != found);
        if is_other && !self.compat { Err(gone()) } else { Ok(()) }
    }

    /// The merge patch for the body, with its precondition.
    pub(super) fn body_document(
        &self,
        object: &Object,
        body: &PatchPart<'_>,
        version: Option<&str>,
    ) -> Vec<u8> {
        to_json(&Guarded { body, uid: object.uid().filter(|_| !self.compat), version })
    }

    /// The merge patch for the status subresource, with the preconditions that it accepts.
    pub(super) fn status_document(
        &self,
        object: &Object,
        status: &Map<String, Value>,
        version: Option<&str>,
    ) -> Vec<u8> {
        let is_checked = !self.compat && !is_custom(self.resource);
        let uid = object.uid().filter(|_| is_checked);
        to_json(&Guarded { body: &PatchPart(status, None), uid, version })
    }

    /// The resource version as the precondition of a status; none if the patch has no records of Kopf in the status.
    pub(super) fn guarding_version(
        &self,
        object: &Object,
        latest: Option<&Object>,
        patch: &Map<String, Value>,
    ) -> Option<String> {
        if self.is_versioned {
            return self.version(object, latest);
        }
        let (_, persistence) = self.release_cleanup?;
        object.uid()?;
        let own = own_annotations::own_annotations(object, patch, persistence);
        let known = latest.unwrap_or(object).resource_version()?;
        own.contains_key("status").then(|| known.to_owned())
    }
}

/// Whether the server has rejected a patch because of the uid.
fn is_about_uid(error: &RequestError) -> bool {
    let RequestError::Api(rejection) = error else { return false };
    match rejection.status {
        422 => causes(error).any(|cause| cause.get("field").and_then(Value::as_str) == Some("metadata.uid")),
        // Servers of aggregated APIs may check it as a precondition, as kube-apiserver does for updates.
        409 => rejection.message.contains("UID in precondition"),
        _ => false,
    }
}

/// A merge patch with preconditions. They are not part of the patch anywhere else, such as in log lines.
struct Guarded<'d> {
    body: &'d PatchPart<'d>,
    uid: Option<&'d str>,
    version: Option<&'d str>,
}

impl Serialize for Guarded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_unguarded = self.uid.is_none() && self.version.is_none();
        let metadata = self.body.fields().find(|(key, _)| *key == "metadata").map(|(_, value)| value);
        let metadata = match metadata {
            _ if is_unguarded => return self.body.serialize(serializer),
            None => None,
            Some(Value::Object(metadata)) if !metadata.contains_key("uid") => Some(metadata),
            // Handlers have put this there.
            Some(_) => return self.body.serialize(serializer),
        };
        let preconditions = Preconditions { uid: self.uid, version: self.version, metadata };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("metadata", &preconditions)?;
        for (key, value) in self.body.fields().filter(|(key, _)| *key != "metadata") {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// The metadata of a merge patch, with the preconditions.
struct Preconditions<'d> {
    uid: Option<&'d str>,
    version: Option<&'d str>,
    metadata: Option<&'d Map<String, Value>>,
}

impl Serialize for Preconditions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(uid) = self.uid {
            map.serialize_entry("uid", uid)?;
        }
        if let Some(version) = self.version {
            map.serialize_entry("resourceVersion", version)?;
        }
        for (key, value) in self.metadata.into_iter().flatten() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
