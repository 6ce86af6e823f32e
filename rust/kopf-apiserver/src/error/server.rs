//! Errors of the embedded server itself.

/// Why a server could not be started, or an object not be had.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The port cannot be listened on: choose another, or 0 for any.
    #[error("cannot listen on port {port} of loopback")]
    Listen {
        /// The port.
        port: u16,
        /// Why.
        source: std::io::Error,
    },
    /// Certificates could not be made.
    #[error("cannot make certificates: {0}")]
    Certificates(String),
    /// The kubeconfig could not be written.
    #[error("cannot write the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The API refused a request made through the handle.
    #[error("{reason} ({code}): {message}")]
    Rejected {
        /// The HTTP code.
        code: u16,
        /// The Status reason.
        reason: String,
        /// The Status message.
        message: String,
    },
}
