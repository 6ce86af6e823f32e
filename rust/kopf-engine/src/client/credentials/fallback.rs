//! The login without login handlers.

use kopf_core::log_level::Level;

use super::Store;
use crate::client::connection::{Connection, has_kubeconfig, has_named_kubeconfig, has_service_account};
use crate::error::LoginError;
use crate::host::Logger;

const FALLBACK_LOGGER: Logger = Logger::Authentication;

impl Store {
    /// Logs in without login handlers: with the service account and the kubeconfig. If one of them is unusable, the
    /// other one is used. If `KUBECONFIG` names a file, the service account is not used, as in kubectl. Kopf 1.45
    /// prefers the service account.
    pub(super) async fn fall_back(&self) -> Result<Vec<Connection>, LoginError> {
        let options = &self.options.connections;
        let mut found = vec![];
        let mut failure = None;
        if has_service_account() && (options.compat || !has_named_kubeconfig()) {
            self.keep(Connection::from_service_account(options), &mut found, &mut failure);
        }
        if has_kubeconfig() {
            self.keep(Connection::from_kubeconfig(options).await, &mut found, &mut failure);
        }
        match failure {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    fn keep(
        &self,
        got: Result<Connection, LoginError>,
        found: &mut Vec<Connection>,
        failure: &mut Option<LoginError>,
    ) {
        match got {
            Ok(connection) => {
                let text = format!("Activity '{}' succeeded.", connection.key);
                self.log(Level::Info, FALLBACK_LOGGER, text);
                found.push(connection);
            }
            Err(error) => {
                self.log(Level::Error, FALLBACK_LOGGER, error.to_string());
                *failure = Some(error);
            }
        }
    }
}
