//! The reaction to responses with the status 401, as `kopf_core::logins` decides.

use http::{HeaderMap, Method};
use kopf_core::logins::unauthorized::{AfterUnauthorized, OnUnauthorized, Verdict};
use tokio::time::Instant;

use super::connection::{Connection, Pool};
use super::{Client, RequestBody, head_of, within};
use crate::time::duration::seconds;

impl Client {
    /// Whether the credentials of the connection are replaced after a 401.
    pub(super) async fn replaces(&self, connection: &Connection, on_unauthorized: OnUnauthorized) -> bool {
        match on_unauthorized.next(self.credential_store.has(connection)) {
            AfterUnauthorized::Fail => false,
            AfterUnauthorized::Replace => true,
            // In a box: this is rare, and would make the futures of all requests large.
            AfterUnauthorized::Verify => Box::pin(self.is_rejected_by_server(connection)).await,
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
        let response = within(deadline, sent).await;
        match response.map(|response| Verdict::of_status(response.status().as_u16())) {
            Ok(Verdict::Rejected) => true,
            Ok(Verdict::Accepted) => {
                self.credential_store.on_authorized();
                false
            }
            Ok(Verdict::Unknown) | Err(_) => false,
        }
    }
}
