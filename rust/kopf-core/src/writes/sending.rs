//! Single requests: a document that is sent again after some failures, and the latest state of the object.

use super::identity::{gone, is_about_uid};
use super::outcome::is_final;
use super::request::{Action, Content, Document, Request};
use super::{Input, Scope, WriteContext};
use crate::backoff::{Backoff, Retries};
use crate::object::{Object, decode_page};
use crate::request_error::RequestError;
use bytes::Bytes;
use std::sync::Arc;

/// The delays in seconds before a merge patch is retried after a 409. Such a conflict is not ours: the patch does not depend
/// on the resource version.
const CONFLICT_RETRIES: Backoff = Backoff::limited(&[0.1, 0.3, 1.0]);

/// The delays in seconds before a temporary failure of the status is retried. After that, the progress is written
/// without it.
pub(super) const STATUS_RETRIES: Backoff = Backoff::limited(&[0.2, 0.8, 2.0]);

/// The event that a part of a write waits for.
pub(super) enum Pending<'m> {
    Patch(&'m Sending),
    List(&'m Reading),
    Transform(&'m Arc<Object>),
    Wait(f64),
}

impl<'m> Pending<'m> {
    pub(super) fn action(self, object: &Object, context: &WriteContext<'_>) -> Action<'m> {
        match self {
            Self::Patch(sending) => Action::Send(Request {
                url: context.url(object, sending.is_status),
                content: sending.document.content(),
                is_status: sending.is_status,
                is_once: sending.is_once,
            }),
            Self::List(reading) => Action::Send(Request {
                url: context.list_url(object),
                content: Content::List,
                is_status: false,
                is_once: reading.is_once,
            }),
            Self::Transform(object) => Action::Transform(object),
            Self::Wait(seconds) => Action::Wait(seconds),
        }
    }
}

/// A document that is sent, and sent again after some failures.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) document: Document,
    is_status: bool,
    is_once: bool,
    repeated: Repeated,
    retries: Retries<'static>,
    /// The seconds until it is sent again.
    wait: Option<f64>,
}

/// The failures after which the same document is sent again. Those that the client retries are not among them.
#[derive(Clone, Copy, Debug)]
enum Repeated {
    Never,
    Conflicts,
    /// Temporary failures; conflicts only if the document does not depend on a version.
    Temporary {
        is_versioned: bool,
    },
}

impl Sending {
    /// A document for the body. Conflicts of merge patches without a version are not ours: they are sent again.
    pub(super) fn body(document: Document, is_once: bool, context: &WriteContext<'_>) -> Self {
        let is_repeated = matches!(document, Document::MergePatch(_))
            && !is_once
            && !context.compat
            && !context.is_versioned;
        let repeated = if is_repeated { Repeated::Conflicts } else { Repeated::Never };
        let retries = CONFLICT_RETRIES.retries();
        Self { document, is_status: false, is_once, repeated, retries, wait: None }
    }

    /// A document for the status. With `may_retry`, temporary failures are retried.
    pub(super) fn status(document: Document, is_versioned: bool, may_retry: bool) -> Self {
        let retries = if may_retry { STATUS_RETRIES } else { Backoff::NEVER }.retries();
        let repeated = Repeated::Temporary { is_versioned };
        Self { document, is_status: true, is_once: true, repeated, retries, wait: None }
    }

    /// A document for the status, as in Kopf 1.45: like any other patch.
    pub(super) fn plain_status(document: Document) -> Self {
        let retries = Backoff::NEVER.retries();
        Self { document, is_status: true, is_once: false, repeated: Repeated::Never, retries, wait: None }
    }

    pub(super) fn pending(&self) -> Pending<'_> {
        self.wait.map_or(Pending::Patch(self), Pending::Wait)
    }

    /// The result, if the document is not sent again.
    pub(super) fn on(
        &mut self,
        input: Input,
        context: &WriteContext<'_>,
    ) -> Option<Result<Bytes, RequestError>> {
        let Input::Response(response) = input else {
            self.wait = None;
            return None;
        };
        let error = match response {
            Ok(response) => return Some(Ok(response)),
            Err(error) if !context.compat && is_about_uid(&error) => gone(),
            Err(error) => error,
        };
        let is_repeated = match self.repeated {
            Repeated::Never => false,
            Repeated::Conflicts => error.status() == Some(409),
            Repeated::Temporary { is_versioned } => is_temporary(&error, is_versioned),
        };
        let delay = self.retries.next(None, 0.0).filter(|_| is_repeated);
        let Some(delay) = delay else { return Some(Err(error)) };
        self.wait = Some(delay.seconds);
        None
    }
}

/// The reading of the latest state of the object: a list with this object, since operators have the permission to list, but may
/// lack the permission to get.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    is_once: bool,
}

impl Reading {
    pub(super) fn new() -> Self {
        Self { is_once: true }
    }

    pub(super) fn pending(&self) -> Pending<'_> {
        Pending::List(self)
    }

    /// The result: the current object; none if the permission to list is missing.
    pub(super) fn on(
        &mut self,
        input: Input,
        scope: &Scope<'_>,
    ) -> Option<Result<Option<Arc<Object>>, RequestError>> {
        let Input::Response(response) = input else { return None };
        let response = match response {
            Err(error) if self.is_once && error.status() == Some(403) => return Some(Ok(None)),
            Err(error) if self.is_once && !is_final(&error) => {
                self.is_once = false;
                return None;
            }
            Err(error) => return Some(Err(error)),
            Ok(response) => response,
        };
        let page = match decode_page(&response) {
            Ok(page) => page,
            Err(error) => {
                let url = scope.context.list_url(scope.object);
                return Some(Err(RequestError::Malformed(format!("GET {url}: {error}"))));
            }
        };
        let mut found = page.items.into_iter().filter(|item| item.uid() == scope.object.uid());
        Some(found.next().map(|latest| Some(Arc::new(latest))).ok_or_else(gone))
    }
}

/// Whether the same request may be accepted shortly afterwards. It is not if the server requests a longer delay.
pub(super) fn is_temporary(error: &RequestError, is_versioned: bool) -> bool {
    let longest = STATUS_RETRIES.total();
    match error {
        RequestError::Api(error) if error.is_too_large() => false,
        RequestError::Api(error) => match error.status {
            409 => !is_versioned,
            429 | 500.. => error.retry_after.is_none_or(|asked| asked <= longest),
            _ => false,
        },
        RequestError::Transport(_) | RequestError::Unsent(_) => true,
        RequestError::Timeout
        | RequestError::Malformed(_)
        | RequestError::Login(_)
        | RequestError::Fenced => false,
    }
}
