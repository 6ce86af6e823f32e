//! The server: listener, TLS, and its handle.
//!
//! It listens on loopback only.

pub(crate) mod content;
pub(crate) mod service;
mod tls;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::base::connections::{CountedStream, Listening};
use crate::base::options::ServerOptions;
use crate::base::random::random_token;
use crate::base::user::User;
use crate::cluster::Cluster;
use crate::controllers;
use crate::error::server::ServerError;
use crate::http::response::Response;
use crate::testkit::faults::Faults;
use crate::testkit::request_log::RequestLog;

/// Pause after a failed `accept`, e.g. if there are no file descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

fn check_status(response: &Response) -> Result<(), ServerError> {
    if response.code < 300 {
        return Ok(());
    }
    let value = response.value();
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let message = value.as_str().map_or_else(|| text("message"), str::to_owned);
    Err(ServerError::Rejected { code: response.code, reason: text("reason"), message })
}

/// A running server. It stops when it is shut down or dropped.
pub struct Server {
    address: SocketAddr,
    token: String,
    ca: Option<String>,
    cluster: Arc<Cluster>,
}

/// Starts a server on the current tokio runtime.
pub async fn start(mut options: ServerOptions) -> Result<Server, ServerError> {
    let port = options.port;
    let listen = |source| ServerError::Listen { port, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let (acceptor, ca) = if options.tls {
        let generated = tls::generate()?;
        (Some(TlsAcceptor::from(generated.config)), Some(generated.ca_pem))
    } else {
        (None, None)
    };
    let token = options.token.clone().unwrap_or_else(random_token);
    let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
    let admin = User { name: "admin".into(), uid: "admin".into(), groups, ..User::default() };
    options.users.push((token.clone(), admin));
    let cluster = Cluster::new(options);
    cluster.tasks.spawn(controllers::run(cluster.clone()));
    cluster.tasks.spawn(accept(listener, Listening::new(address), acceptor, cluster.clone()));
    Ok(Server { address, token, ca, cluster })
}

async fn accept(
    listener: TcpListener,
    _listening: Listening,
    acceptor: Option<TlsAcceptor>,
    cluster: Arc<Cluster>,
) {
    loop {
        let (stream, peer) = accepted(|| listener.accept()).await;
        // Small responses must not wait for acknowledgements of the client.
        let _ = stream.set_nodelay(true);
        // It fails only if the connection is closed already.
        let Ok(stream) = CountedStream::new(stream, peer) else { continue };
        cluster.tasks.spawn(service::connection(stream, acceptor.clone(), cluster.clone()));
    }
}

/// The next connection. Accepting fails mostly because there are no file descriptors, and is repeated after a pause.
async fn accepted<T, F: Future<Output = io::Result<T>>>(mut accept: impl FnMut() -> F) -> T {
    loop {
        match accept().await {
            Ok(connection) => return connection,
            Err(_) => sleep(EXHAUSTED_PAUSE).await,
        }
    }
}

impl Server {
    /// The base URL.
    pub fn url(&self) -> String {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.address.port())
    }
    /// Port on loopback.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
    /// Token of the administrator.
    pub fn token(&self) -> &str {
        &self.token
    }
    /// CA certificate as PEM; `None` without TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca.as_deref()
    }
    /// Kubeconfig of the administrator as YAML.
    pub fn kubeconfig_text(&self) -> String {
        let ca = self.ca.as_ref().map_or(String::new(), |pem| {
            let data = base64::engine::general_purpose::STANDARD.encode(pem);
            format!("    certificate-authority-data: {data}\n")
        });
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: kopf\nclusters:\n- name: kopf\n  cluster:\n    server: {}\n{ca}users:\n- \
             name: admin\n  user:\n    token: {}\ncontexts:\n- name: kopf\n  context:\n    cluster: kopf\n    user: admin\n    \
             namespace: default\n",
            self.url(),
            // Quoted: other tokens are numbers or truth values for YAML.
            serde_json::Value::from(self.token.as_str())
        )
    }
    /// Writes the kubeconfig with mode 0600.
    pub fn kubeconfig(&self, path: &Path) -> Result<(), ServerError> {
        let failed = |source| ServerError::Kubeconfig { path: path.display().to_string(), source };
        let mut open = std::fs::OpenOptions::new();
        open.write(true).create(true).truncate(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            open.mode(0o600);
        }
        let mut file = open.open(path).map_err(failed)?;
        std::io::Write::write_all(&mut file, self.kubeconfig_text().as_bytes()).map_err(failed)
    }
    /// Fault injection.
    pub fn faults(&self) -> &Faults {
        &self.cluster.faults
    }
    /// Log of requests.
    pub fn request_log(&self) -> &RequestLog {
        &self.cluster.request_log
    }
    /// Appends lines to the log of a pod's container. Returns whether the pod exists.
    pub fn append_log(&self, (namespace, pod): (&str, &str), container: &str, lines: Vec<String>) -> bool {
        let found = self.cluster.store.get("pods", namespace, pod);
        found.is_some_and(|pod| {
            self.cluster.pod_logs.append(&pod.uid, container, lines);
            true
        })
    }
    /// Newest resource version.
    pub fn resource_version(&self) -> u64 {
        self.cluster.store.version()
    }
    /// Compacts the history: watches and lists from earlier versions get 410.
    pub fn compact(&self) {
        self.cluster.store.compact();
    }
    /// Handles a request in memory, without socket, faults and request log. Watches are not supported.
    pub async fn call(
        &self,
        method: &str,
        path_and_query: &str,
        body: Option<&Value>,
    ) -> Result<Value, ServerError> {
        let response = service::handle(&self.cluster, method, path_and_query, body).await;
        check_status(&response)?;
        Ok(response.value())
    }
    /// Handles a request in memory like `call`, but does not decode the response.
    pub async fn execute(
        &self,
        method: &str,
        path_and_query: &str,
        body: Option<&Value>,
    ) -> Result<(), ServerError> {
        check_status(&service::handle(&self.cluster, method, path_and_query, body).await)
    }
    /// Creates an object in a collection.
    pub async fn create(&self, collection: &str, object: &Value) -> Result<Value, ServerError> {
        self.call("POST", collection, Some(object)).await
    }
    /// Reads an object or a list.
    pub async fn get(&self, path: &str) -> Result<Value, ServerError> {
        self.call("GET", path, None).await
    }
    /// Stops the server, closes its connections, and waits for the end of all tasks.
    pub async fn shutdown(self) {
        self.cluster.tasks.shutdown().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.cluster.tasks.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn accepting_is_repeated_after_pauses_while_it_fails() {
        let begun = Instant::now();
        let mut attempts = 0;
        let accept = || {
            attempts += 1;
            ready(if attempts <= 50 { Err(io::Error::other("too many open files")) } else { Ok(attempts) })
        };
        assert_eq!(accepted(accept).await, 51);
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
    }
}
