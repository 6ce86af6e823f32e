//! The login without login handlers.

use kopf_core::log_level::Level;
use kopf_core::logins::candidates::{Source, Sources, usable};

use super::Store;
use crate::client::connection::{
    Connection, KubeconfigFailure, has_kubeconfig, has_named_kubeconfig, has_service_account,
};
use crate::host::Logger;

const FALLBACK_LOGGER: Logger = Logger::Authentication;

impl Store {
    /// Logs in without login handlers: with the service account and the kubeconfig. If one of them is unusable, the
    /// other one is used.
    pub(super) async fn fall_back(&self) -> Result<Vec<Connection>, KubeconfigFailure> {
        let options = &self.options.connections;
        let sources = Sources {
            has_service_account: has_service_account(),
            has_kubeconfig: has_kubeconfig(),
            has_named_kubeconfig: has_named_kubeconfig(),
        };
        let (mut found, mut failure) = (vec![], None);
        for source in sources.in_order(options.compat) {
            let connected = match source {
                Source::ServiceAccount => Connection::from_service_account(options).map_err(Into::into),
                Source::Kubeconfig => Connection::from_kubeconfig(options).await,
            };
            self.keep(connected, &mut found, &mut failure);
        }
        usable(found, failure)
    }

    fn keep(
        &self,
        got: Result<Connection, KubeconfigFailure>,
        found: &mut Vec<Connection>,
        failure: &mut Option<KubeconfigFailure>,
    ) {
        match got {
            Ok(connection) => {
                let text = format!("Activity '{}' succeeded.", connection.key);
                self.log(Level::Info, FALLBACK_LOGGER, text);
                found.push(connection);
            }
            Err(failed) => {
                self.log(Level::Error, FALLBACK_LOGGER, failed.error.to_string());
                *failure = Some(failed);
            }
        }
    }
}
