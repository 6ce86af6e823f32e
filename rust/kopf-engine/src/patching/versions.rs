//! The resource versions of merge patches, with leader election.
//!
//! A process can be stopped between its last check of the lease and the system call that sends a patch, and the bytes can travel
//! for long. Meanwhile, another replica may have become the leader. So the server decides: it rejects a patch for another version
//! than the one that the patch was decided for. After a conflict, the object is read, and the same patch is sent with the latest
//! version: the fence admits this only while the replica leads.

use std::sync::Arc;

use bytes::Bytes;
use kopf_core::backoff::Backoff;
use kopf_core::object::Object;

use super::Patching;
use super::documents::PatchPart;
use crate::client::RequestBody;
use crate::error::RequestError;
use crate::time::duration::seconds;

/// The delays in seconds before a patch is sent with the latest version after a conflict.
const CONFLICTS: Backoff = Backoff::limited(&[0.0, 0.1, 0.3]);

impl Patching<'_> {
    /// The version for a patch of the object, after the last response of the server, if there is one; none without versions.
    pub(super) fn version(&self, object: &Object, latest: Option<&Object>) -> Option<String> {
        let version = latest.unwrap_or(object).resource_version();
        version.filter(|_| self.is_versioned).map(str::to_owned)
    }

    /// Sends a merge patch for the body, after the last response of the server, if there is one. With `is_once`, temporary
    /// failures are not retried.
    pub(super) async fn send_body(
        &self,
        object: &Arc<Object>,
        response: Option<&Bytes>,
        body: &PatchPart<'_>,
        is_once: bool,
    ) -> Result<Bytes, RequestError> {
        if self.is_versioned {
            // In a box, to keep the futures of operators without leader election small.
            return Box::pin(self.send_versioned_body(object, response, body, is_once)).await;
        }
        let document = self.body_document(object, body, None);
        self.send_merge_patch(object, &document, is_once).await
    }

    async fn send_merge_patch(
        &self,
        object: &Arc<Object>,
        document: &[u8],
        is_once: bool,
    ) -> Result<Bytes, RequestError> {
        let payload = RequestBody::MergePatch(document);
        if is_once {
            self.send(object, None, payload, true).await
        } else {
            self.ask(object, None, payload).await
        }
    }

    async fn send_versioned_body(
        &self,
        object: &Arc<Object>,
        response: Option<&Bytes>,
        body: &PatchPart<'_>,
        is_once: bool,
    ) -> Result<Bytes, RequestError> {
        let latest = response.and_then(|response| self.read(object, response).ok());
        let mut version = self.version(object, latest.as_deref());
        drop(latest);
        let mut retries = CONFLICTS.retries();
        loop {
            let document = self.body_document(object, body, version.as_deref());
            let error = match self.send_merge_patch(object, &document, is_once).await {
                Err(error) if version.is_some() && error.status() == Some(409) => error,
                sent => return sent,
            };
            let Some(delay) = retries.next(None, 0.0) else { return Err(error) };
            self.client.clock().sleep(seconds(delay.seconds)).await;
            // Without the permission to read the object, the conflict is handled like any failure.
            let Some(latest) = self.reread(object).await? else { return Err(error) };
            version = self.version(object, Some(&latest));
        }
    }
}
