//! The credentials that login handlers have returned, and the numbers of logins.

use kopf_core::log_level::Level;
use kopf_core::logins::candidates::usable;

use super::{CredentialStore, LOGGER, Store};
use crate::client::connection::Connection;
use crate::error::LoginError;
use crate::host::credentials::Credentials;

impl CredentialStore {
    /// The numbers of successful and of failed logins.
    pub(crate) fn login_counts(&self) -> [u64; 2] {
        let [succeeded, failed] = &self.store.login_counts;
        [succeeded.get(), failed.get()]
    }
}

impl Store {
    /// Connects with the results of login handlers. Unusable ones are skipped, unless there are no others.
    pub(super) fn connect(&self, items: &[(String, Credentials)]) -> Result<Vec<Connection>, LoginError> {
        let (mut found, mut failure) = (vec![], None);
        for (key, given) in items {
            match Connection::from_credentials(key, given, &self.options.connections) {
                Ok(connection) => found.push(connection),
                Err(error) => {
                    let text =
                        format!("The credentials of the login handler {key:?} cannot be used: {error}");
                    self.log(Level::Error, LOGGER, text);
                    failure = failure.or(Some(error));
                }
            }
        }
        usable(found, failure)
    }
}
