//! The part of a merge patch for the body of an object.

use super::documents::PatchPart;
use super::sending::{Pending, Reading, Sending};
use super::{Input, Scope};
use crate::backoff::{Backoff, Retries};
use crate::json::value::python_repr;
use crate::object::redaction::shown;
use crate::request_error::RequestError;
use bytes::Bytes;

/// The delays in seconds before a patch is sent with the latest version after a conflict.
const CONFLICT_DELAYS: Backoff = Backoff::limited(&[0.0, 0.1, 0.3]);

/// A merge patch for the body. With a version, it is sent again for the latest version after a conflict.
#[derive(Clone, Debug)]
pub(super) struct BodyWrite {
    sending: Sending,
    /// The version in the patch; none without leader election.
    version: Option<String>,
    is_once: bool,
    retries: Retries<'static>,
    conflict: Option<Conflict>,
}

#[derive(Clone, Debug)]
struct Conflict {
    error: RequestError,
    /// The seconds until the object is read.
    wait: Option<f64>,
    reading: Reading,
}

impl BodyWrite {
    /// Sends the part after the last response of the server, if there is one. With `is_once`, temporary failures are not
    /// retried.
    pub(super) fn new(
        part: &PatchPart<'_>,
        response: Option<&[u8]>,
        is_once: bool,
        scope: &Scope<'_>,
    ) -> Self {
        // Without a need of its version, the response is not even parsed.
        let version =
            scope.context.is_versioned.then(|| scope.context.version(&scope.known(response))).flatten();
        let document = scope.context.body_document(scope.object, part, version.as_deref());
        let sending = Sending::body(document, is_once, scope.context);
        Self { sending, version, is_once, retries: CONFLICT_DELAYS.retries(), conflict: None }
    }

    pub(super) fn pending(&self) -> Pending<'_> {
        match &self.conflict {
            None => self.sending.pending(),
            Some(Conflict { wait: Some(seconds), .. }) => Pending::Wait(*seconds),
            Some(conflict) => conflict.reading.pending(),
        }
    }

    /// The result, if the part is not sent again.
    pub(super) fn on(
        &mut self,
        input: Input,
        part: &PatchPart<'_>,
        scope: &Scope<'_>,
    ) -> Option<Result<Bytes, RequestError>> {
        let Some(conflict) = &mut self.conflict else {
            let error = match self.sending.on(input, scope.context)? {
                Err(error) if self.version.is_some() && error.status() == Some(409) => error,
                sent => return Some(sent),
            };
            let Some(delay) = self.retries.next(None, 0.0) else { return Some(Err(error)) };
            self.conflict = Some(Conflict { error, wait: Some(delay.seconds), reading: Reading::new() });
            return None;
        };
        if conflict.wait.take().is_some() {
            return None;
        }
        let latest = match conflict.reading.on(input, scope)? {
            Ok(Some(latest)) => latest,
            // Without the permission to read the object, the conflict is handled like any failure.
            Ok(None) => return self.conflict.take().map(|conflict| Err(conflict.error)),
            Err(error) => return Some(Err(error)),
        };
        self.conflict = None;
        self.version = scope.context.version(&latest);
        let document = scope.context.body_document(scope.object, part, self.version.as_deref());
        self.sending = Sending::body(document, self.is_once, scope.context);
        None
    }
}

impl Scope<'_> {
    /// Sends a part for the body, after the last response of the server, if there is one.
    pub(super) fn write_body(&mut self, part: &PatchPart<'_>, response: Option<&[u8]>) -> BodyWrite {
        self.debug(|object| {
            format!("Merge-patching the resource with: {}", python_repr(&shown(object, &part.to_value())))
        });
        BodyWrite::new(part, response, false, self)
    }
}
