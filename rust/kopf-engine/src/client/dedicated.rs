//! Requests of leader election: single attempts over separate connections, without permits, with their own timeout. And the
//! fence, which admits the other requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use kopf_core::logins::unauthorized::OnUnauthorized;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::compression::read_whole;
use super::connection::{MAX_BODY, Pool};
use super::spans::{record_result, request_span};
use super::{Client, OpenOptions, RequestBody, head_of, within};
use crate::error::RequestError;
use crate::fence::{Fence, Rejection};

/// Waits for the response while the fence is open: after the end of the term, no caller needs it.
pub(super) async fn while_open<T>(
    fence: &Fence,
    sent: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    let term = fence.term().ok_or(RequestError::Fenced)?;
    tokio::select! {
        biased;
        sent = sent => sent,
        () = fence.closed(term) => {
            // Whether the server has accepted it is not known: it is only counted.
            let _counted = fence.admit(Rejection::Late);
            Err(RequestError::Fenced)
        }
    }
}

impl Client {
    /// The client whose requests are sent only while the fence is open, apart from those that only read, and those of leader
    /// election.
    #[must_use]
    pub fn fenced_by(self, fence: Option<Arc<Fence>>) -> Self {
        Self { fence, ..self }
    }

    /// Whether requests that write may be sent now: without leader election, or in a term.
    pub(crate) fn may_write(&self) -> bool {
        self.fence.as_ref().is_none_or(|fence| fence.is_open())
    }

    /// The fence that the request has to pass again when its connection is open, if there is one.
    ///
    /// # Errors
    /// The fence is closed.
    pub(super) fn fence_of(&self, method: &Method, pool: Pool) -> Result<Option<&Fence>, RequestError> {
        let Some(fence) = &self.fence else { return Ok(None) };
        if *method == Method::GET || pool == Pool::Dedicated {
            return Ok(None);
        }
        fence.admit(Rejection::Write).map_err(|_| RequestError::Fenced)?;
        Ok(Some(fence))
    }

    /// Sends a request once, and returns the whole body of the response. It waits for no other request. The timeout includes
    /// the wait for credentials. Cancel safe: the connection of an abandoned request is closed.
    ///
    /// # Errors
    /// The request was not sent, or was rejected, or has no response.
    pub async fn request_dedicated(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
        limit: Duration,
    ) -> Result<Bytes, RequestError> {
        let options = OpenOptions {
            timeout: Some(limit.as_secs_f64()),
            permits: None,
            pool: Pool::Dedicated,
            on_unauthorized: OnUnauthorized::Replace,
        };
        let span = request_span(method, url);
        let attempt = async {
            let content = (&*self.headers, payload.bytes());
            let opened = self.open(head_of(method, url, payload), content, options, &span).await?;
            Ok(within(opened.deadline, read_whole(opened.response, MAX_BODY)).await?.into_body())
        };
        let result = timeout(limit, attempt.instrument(span.clone())).await;
        let result = result.unwrap_or(Err(RequestError::Timeout));
        record_result(&span, &result);
        result
    }
}
