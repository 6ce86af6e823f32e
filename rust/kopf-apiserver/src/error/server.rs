//! Errors of the server itself.

/// Errors of starting a server, and of requests through its handle.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The port cannot be bound. Choose another one, or 0 for any.
    #[error("cannot listen on port {port} of loopback")]
    Listen {
        /// The port.
        port: u16,
        /// Cause.
        source: std::io::Error,
    },
    /// The certificates cannot be generated.
    #[error("cannot make certificates: {0}")]
    Certificates(String),
    /// The kubeconfig cannot be written.
    #[error("cannot write the kubeconfig {path}")]
    Kubeconfig {
        /// Path of the file.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
    /// The API rejected a request of the handle.
    #[error("{reason} ({code}): {message}")]
    Rejected {
        /// HTTP status code.
        code: u16,
        /// Reason of the Status.
        reason: String,
        /// Message of the Status.
        message: String,
    },
}
