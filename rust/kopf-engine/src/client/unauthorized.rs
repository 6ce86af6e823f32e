//! The reaction to responses with the status 401.

use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

use super::connection::{Connection, Pool};
use super::{Client, RequestBody, head_of, within};
use crate::time::duration::seconds;

/// The reaction to a response with the status 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnUnauthorized {
    /// It is an error like others.
    Fail,
    /// The credentials are replaced.
    Replace,
    /// The credentials are replaced if the API server itself rejects them. It forwards some requests to aggregated APIs, kubelets,
    /// and services, whose 401 concerns only this request.
    Verify,
}

impl Client {
    /// Whether the credentials of the connection are replaced after a 401.
    pub(super) async fn replaces(&self, connection: &Connection, on_unauthorized: OnUnauthorized) -> bool {
        match on_unauthorized {
            OnUnauthorized::Fail => false,
            OnUnauthorized::Replace => true,
            // If another request has replaced them, this one is sent with the new ones.
            OnUnauthorized::Verify => {
                // In a box: this is rare, and would make the futures of all requests large.
                !self.credential_store.has(connection)
                    || Box::pin(self.is_rejected_by_server(connection)).await
            }
        }
    }

    /// Whether the API server itself rejects the credentials of the connection. If that is unknown, it does not.
    async fn is_rejected_by_server(&self, connection: &Connection) -> bool {
        let networking = &self.settings.networking;
        let connect_timeout = networking.connect_timeout.map(seconds);
        let deadline =
            networking.request_timeout.and_then(|limit| Instant::now().checked_add(seconds(limit)));
        let _busy = self.clock.busy(|| "the verification of credentials".to_owned());
        let sent = async {
            let authorization = connection.authorization().await?;
            let head = head_of(&Method::GET, "/version", RequestBody::None);
            let options = (Pool::Shared, connect_timeout, None);
            let sent = connection.send(head, &HeaderMap::new(), b"", authorization, options).await;
            sent.map_err(|failure| failure.error)
        };
        match within(deadline, sent).await {
            Ok(response) if response.status() == StatusCode::UNAUTHORIZED => true,
            Ok(_) => {
                self.credential_store.on_authorized();
                false
            }
            Err(_) => false,
        }
    }
}
