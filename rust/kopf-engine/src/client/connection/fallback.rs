//! Connections without login handlers: with the service account of the pod, or with the kubeconfig.

use std::path::Path;
use std::{env, fmt, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use kube::Config;
use kube::config::Kubeconfig;
use secrecy::{ExposeSecret as _, SecretString};

use super::{Connection, ConnectionOptions, fingerprint};
use crate::client::authorization::{self, Authorization};
use crate::client::config::{authority_in, certificate_file, check_server, config_of_context};
use crate::client::connector::Proxy;
use crate::client::exec;
use crate::client::kubeconfig::{self, Current};
use crate::error::LoginError;

/// The files of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The API server as pods resolve it.
const SERVER_OF_PODS: &str = "https://kubernetes.default.svc";

/// The reason why a kubeconfig cannot be used.
#[derive(Debug)]
pub struct KubeconfigFailure {
    /// The error.
    pub error: LoginError,
    /// Whether it is that of the exec plugin.
    pub is_of_plugin: bool,
}

impl<E: Into<LoginError>> From<E> for KubeconfigFailure {
    fn from(error: E) -> Self {
        Self { error: error.into(), is_of_plugin: false }
    }
}

impl Connection {
    /// Connects with the service account of this pod. Only its token is necessary.
    pub fn from_service_account(options: &ConnectionOptions) -> Result<Self, LoginError> {
        let variables = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];
        let [host, port] = variables.map(|name| env::var(name).unwrap_or_default());
        Self::of_service_account(Path::new(SERVICE_ACCOUNT), server_of_pods(&host, &port), options)
    }

    pub(super) fn of_service_account(
        folder: &Path,
        server: Uri,
        options: &ConnectionOptions,
    ) -> Result<Self, LoginError> {
        let unusable =
            |reason: &dyn fmt::Display| LoginError(format!("The service account cannot be used: {reason}"));
        let account = ServiceAccount::read_from(folder).map_err(|error| unusable(&error))?;
        let account = account.ok_or_else(|| unusable(&"there is no token"))?;
        // NO_PROXY often has the domain of the cluster, but not the server's address.
        let is_proxied =
            options.trust_env && Proxy::of_environment(&Uri::from_static(SERVER_OF_PODS)).is_some();
        let proxy = is_proxied.then(|| Proxy::of_environment(&server)).flatten();
        let mut config = Config::new(server);
        config.root_cert = account.ca_path.as_deref().map(authority_in).transpose()?;
        config.auth_info.token_file = Some(folder.join("token").to_string_lossy().into_owned());
        let authorization = Authorization::of(&config.auth_info, &options.clock)?;
        let fingerprint = fingerprint(&[&authorization.identity()]);
        let connection = Self::new("login_with_service_account", config, proxy, authorization, options)?;
        Ok(Self { priority: 20, fingerprint, default_namespace: account.namespace, ..connection })
    }

    /// Connects with the current context of the kubeconfig: `KUBECONFIG`, else `~/.kube/config`. Runs the exec plugin
    /// of the context, if there is one. Cancelling this kills the plugin.
    pub async fn from_kubeconfig(options: &ConnectionOptions) -> Result<Self, KubeconfigFailure> {
        Self::of_kubeconfig(kubeconfig::read()?, options).await
    }

    /// The same with this file instead of those of the environment, and with this context instead of the current one.
    pub async fn from_context(
        path: Option<&Path>,
        context: Option<&str>,
        options: &ConnectionOptions,
    ) -> Result<Self, KubeconfigFailure> {
        let mut file = path.map_or_else(kubeconfig::read, kubeconfig::read_file)?;
        if let Some(context) = context {
            file.current_context = Some(context.to_owned());
        }
        Self::of_kubeconfig(file, options).await
    }

    pub(super) async fn of_kubeconfig(
        file: Kubeconfig,
        options: &ConnectionOptions,
    ) -> Result<Self, KubeconfigFailure> {
        let text = serde_json::to_string(&file).unwrap_or_default();
        let current = Current::of(&file)?;
        let proxy_url = current.cluster.proxy_url.clone();
        let mut config = config_of_context(current, options.compat)?;
        let proxy = match proxy_url {
            Some(address) => Some(Proxy::parse(&address, &config.cluster_url)?),
            None if options.trust_env => Proxy::of_environment(&config.cluster_url),
            None => None,
        };
        let mut expiration = None;
        let auth = &mut config.auth_info;
        let has_token = auth.username.is_some() || auth.token.is_some() || auth.token_file.is_some();
        let authorization = match auth.exec.take().filter(|_| !has_token) {
            None => Authorization::of(auth, &options.clock)?,
            Some(plugin) => {
                let status = exec::run(&plugin).await.map_err(|error| KubeconfigFailure {
                    error: exec::plugin_error(&error),
                    is_of_plugin: true,
                })?;
                if let (Some(certificate), Some(key)) =
                    (&status.client_certificate_data, &status.client_key_data)
                {
                    auth.client_certificate_data = Some(STANDARD.encode(certificate));
                    auth.client_key_data = Some(SecretString::from(STANDARD.encode(key.expose_secret())));
                    // Other certificates need other connections, which the next login creates.
                    expiration = authorization::expiration_of(&status)?;
                }
                Authorization::of_plugin(plugin, &status, &options.clock)?
            }
        };
        let certificate = config.auth_info.client_certificate_data.clone().unwrap_or_default();
        let file = certificate_file(&config.auth_info);
        // A rotated token or certificate counts as other credentials, although the kubeconfig is the same.
        let parts = [text.as_bytes(), &authorization.identity(), certificate.as_bytes(), &file];
        let fingerprint = fingerprint(&parts);
        let connection = Self::new("login_with_kubeconfig", config, proxy, authorization, options)?;
        Ok(Self { priority: 10, fingerprint, expiration: expiration.map(seconds_of), ..connection })
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of today are exact in a float")]
fn seconds_of(moment: kopf_core::time::Timestamp) -> f64 {
    moment.micros() as f64 / 1_000_000.0
}

/// The server in the variables of pods if they are valid, else by its name.
pub(super) fn server_of_pods(host: &str, port: &str) -> Uri {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let address = match port.parse::<u16>() {
        Ok(443) => format!("https://{host}"),
        Ok(port) => format!("https://{host}:{port}"),
        Err(_) => String::new(),
    };
    let server = address.parse::<Uri>().ok().filter(|server| check_server(server).is_ok());
    server.unwrap_or_else(|| Uri::from_static(SERVER_OF_PODS))
}

/// The files of a pod's service account.
#[derive(Debug)]
pub struct ServiceAccount {
    /// The token; none if the file is empty.
    pub token: Option<SecretString>,
    /// The file with the CA certificates, if it exists.
    pub ca_path: Option<String>,
    /// The namespace of the pod, if it is known.
    pub namespace: Option<String>,
}

impl ServiceAccount {
    /// Reads the files; none if there is no token.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read() -> io::Result<Option<Self>> {
        Self::read_from(Path::new(SERVICE_ACCOUNT))
    }

    fn read_from(folder: &Path) -> io::Result<Option<Self>> {
        if !folder.join("token").exists() {
            return Ok(None);
        }
        let read = |name: &str| std::fs::read_to_string(folder.join(name));
        let content = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let namespace = match read("namespace") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            result => content(result?),
        };
        let ca_path = folder.join("ca.crt");
        Ok(Some(Self {
            token: content(read("token")?).map(SecretString::from),
            ca_path: ca_path.exists().then(|| ca_path.to_string_lossy().into_owned()),
            namespace,
        }))
    }
}

/// Whether this process runs in a cluster's pod with a service account.
pub fn has_service_account() -> bool {
    Path::new(SERVICE_ACCOUNT).join("token").exists()
}

/// Whether there is a kubeconfig: named by the environment, or at the default path.
pub fn has_kubeconfig() -> bool {
    let named = env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
    named || kubeconfig::paths().iter().any(|path| path.exists())
}

/// Whether any of the kubeconfigs named by the environment exists.
pub fn has_named_kubeconfig() -> bool {
    let named = env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
    named && kubeconfig::paths().iter().any(|path| path.is_file())
}
