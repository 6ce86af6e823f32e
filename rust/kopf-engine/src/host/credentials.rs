//! The results of login handlers: the address of the API server and the credentials.
//!
//! Plain data with the field names of `kopf.ConnectionInfo`. Secrets are never printed: `Debug` only shows which fields
//! are set.

use std::fmt;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::Deserialize;

/// The result of a login activity.
#[derive(Debug, Clone)]
pub enum Login {
    /// The credentials by the id of the login handler; empty if no handler has returned any.
    Provided(Vec<(String, Credentials)>),
    /// There are no login handlers: the service account and the kubeconfig are used.
    Fallback,
    /// Only a kubeconfig is used.
    Kubeconfig {
        /// The file; none for those of the environment.
        path: Option<PathBuf>,
        /// The context; none for the current one.
        context: Option<String>,
    },
}

/// The fields of `kopf.ConnectionInfo`.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct Credentials {
    /// The address, such as `https://10.0.0.1:6443`.
    pub server: String,
    /// Credentials of a higher priority are used first.
    pub priority: i64,
    /// The namespace for objects and requests that specify none.
    pub default_namespace: Option<String>,
    /// The end of validity, in seconds since the epoch.
    pub expiration: Option<f64>,
    /// The file with the CA certificates.
    pub ca_path: Option<String>,
    /// The CA certificates: PEM, or its base64.
    pub ca_data: Option<String>,
    /// Whether the server's certificate is not verified.
    pub insecure: Option<bool>,
    /// For basic authentication.
    pub username: Option<String>,
    /// For basic authentication.
    pub password: Option<SecretString>,
    /// The scheme of the `Authorization` header; `Bearer` by default.
    pub scheme: Option<String>,
    /// The token.
    pub token: Option<SecretString>,
    /// The file with the client's certificate.
    pub certificate_path: Option<String>,
    /// The client's certificate: PEM, or its base64.
    pub certificate_data: Option<String>,
    /// The file with the client's private key.
    pub private_key_path: Option<String>,
    /// The client's private key: PEM, or its base64.
    pub private_key_data: Option<SecretString>,
    /// The proxy for requests to the server.
    pub proxy_url: Option<String>,
    /// Whether the proxy variables of the environment are used.
    pub trust_env: bool,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("server", &self.server)
            .field("priority", &self.priority)
            .field("has_token", &self.token.is_some())
            .field("has_password", &self.password.is_some())
            .field("has_certificate", &(self.certificate_path.is_some() || self.certificate_data.is_some()))
            .finish_non_exhaustive()
    }
}
