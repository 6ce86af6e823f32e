//! `WebhookServer`: the webhook server, and its requests, for users outside of the operator.

use std::collections::VecDeque;
use std::os::fd::{IntoRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::time::Timestamp;
use kopf_engine::admission::AdmissionRouter;
use kopf_engine::admission::server::{Backend, Call as ReceivedRequest, Server};
use kopf_engine::admission::tls::client_auth::{ClientAuth, ClientAuthMode};
use kopf_engine::admission::tls::{Sources, Tls, expiry_of_chain};
use kopf_engine::host::Logger;
use kopf_engine::host::admission::Rejection;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::bridge::WakeFd;
use crate::commands::reply_sender::ReplySender;
use crate::convert::python_to_value;
use crate::convert::{headers_to_python, peer_to_python};
use crate::engine::Engine;
use crate::errors::system;
use crate::runtime::{runtime, runtime_unless_exiting};

/// The requests to be polled by Python.
struct Inbox {
    calls: Mutex<VecDeque<ReceivedRequest>>,
    /// Errors of the server, to be logged.
    errors: Mutex<Vec<String>>,
    wake_fd: WakeFd,
}

impl Backend for Inbox {
    fn call(&self, call: ReceivedRequest) {
        #[cfg(feature = "testing")]
        crate::panics::on_webhook_request();
        let was_empty = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.push_back(call);
            calls.len() == 1
        };
        if was_empty {
            self.wake_fd.notify();
        }
    }

    fn log_error(&self, text: String) {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        self.wake_fd.notify();
    }
}

/// A webhook server. It listens as soon as it is created.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct WebhookServer {
    inbox: Option<Arc<Inbox>>,
    server: Server,
    tls: Option<Arc<Tls>>,
    /// Evaluates the expiry of the certificate.
    admission: Option<Arc<AdmissionRouter>>,
}

/// One webhook request.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct WebhookRequest {
    /// The id of the handler, from the path.
    #[pyo3(get)]
    webhook: String,
    /// The headers.
    #[pyo3(get)]
    headers: Py<PyDict>,
    /// The client's certificate, if there is one.
    #[pyo3(get)]
    sslpeer: Option<Py<PyAny>>,
    /// The body.
    #[pyo3(get)]
    body: Py<PyBytes>,
    reply: ReplySender<Result<Vec<u8>, Rejection>>,
}

#[pymethods]
impl WebhookServer {
    /// Reviews go directly to the engine if there is one; otherwise, they are polled. Without an address to listen at
    /// (`listening` is false), connections are opened by `connect`.
    #[new]
    #[pyo3(signature = (
        *, engine=None, addr=None, port=0, path="", listening=true, insecure=false, certfile=None, pkeyfile=None,
        password=None, cafile=None, cadata=None, hostnames=vec![], demand="none", verify_cafile=None, verify_capath=None,
        verify_cadata=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments, with their names at the call")]
    fn new(
        py: Python<'_>,
        engine: Option<&Engine>,
        addr: Option<&str>,
        port: u16,
        path: &str,
        listening: bool,
        insecure: bool,
        certfile: Option<PathBuf>,
        pkeyfile: Option<PathBuf>,
        password: Option<String>,
        cafile: Option<PathBuf>,
        cadata: Option<Vec<u8>>,
        hostnames: Vec<String>,
        demand: &str,
        verify_cafile: Option<PathBuf>,
        verify_capath: Option<PathBuf>,
        verify_cadata: Option<Vec<u8>>,
    ) -> PyResult<Self> {
        let demand = match demand {
            "required" => ClientAuthMode::Required,
            "optional" => ClientAuthMode::Optional,
            _ => ClientAuthMode::None,
        };
        let clients =
            ClientAuth { demand, cafile: verify_cafile, capath: verify_capath, cadata: verify_cadata };
        let sources = Sources { certfile, pkeyfile, password, cafile, cadata, hostnames, clients };
        let encrypted = listening && !insecure;
        let tls = py
            .detach(|| encrypted.then(|| Tls::load(sources)).transpose())
            .map_err(|error| PyValueError::new_err(error.to_string()))?
            .map(Arc::new);
        let admission = engine.map(Engine::admission_router);
        let (backend, inbox): (Arc<dyn Backend>, _) = if let Some(admission) = &admission {
            (Arc::clone(admission) as Arc<dyn Backend>, None)
        } else {
            let wake_fd =
                WakeFd::new().map_err(|error| system("The server's queue cannot be made", error))?;
            let inbox = Arc::new(Inbox { calls: Mutex::default(), errors: Mutex::default(), wake_fd });
            (Arc::clone(&inbox) as Arc<dyn Backend>, Some(inbox))
        };
        let handle = runtime()?;
        let server = if listening {
            Server::start(handle, backend, (addr, port), path, tls.clone())
                .map_err(|error| cannot_listen(addr, port, &error))?
        } else {
            Server::without_listener(handle, backend, path, port)
        };
        let server = Self { inbox, server, tls, admission };
        server.report_expiry(server.tls.as_ref().and_then(|tls| tls.expiry()));
        Ok(server)
    }

    /// The port of the server.
    #[getter]
    fn port(&self) -> u16 {
        self.server.port()
    }

    /// The certificates (PEM) for clients to trust; `None` without encryption.
    fn ca_bundle<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.tls.as_ref().map(|tls| PyBytes::new(py, &tls.authority()))
    }

    /// Reads the certificate files again; true if they have changed and are used now.
    fn reload(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(tls) = &self.tls else { return Ok(false) };
        let is_changed = py.detach(|| tls.reload()).map_err(|error| PyOSError::new_err(error.to_string()))?;
        self.report_expiry(tls.expiry());
        Ok(is_changed)
    }

    /// Reports the certificate chain (PEM) of connections that are decrypted elsewhere, for the check of its expiry.
    fn report_certificate(&self, chain: &[u8]) {
        self.report_expiry(expiry_of_chain(chain));
    }

    /// Opens a connection to the server for a client that has authenticated as this peer. Returns the descriptor of its socket,
    /// which the caller owns.
    #[pyo3(signature = (sslpeer=None))]
    fn connect(&self, sslpeer: Option<&Bound<'_, PyAny>>) -> PyResult<RawFd> {
        let peer = sslpeer.map(python_to_value).transpose()?.map(Arc::new);
        let failed = |error: std::io::Error| PyOSError::new_err(error.to_string());
        let (client, server) = UnixStream::pair().map_err(failed)?;
        self.server.adopt(server, peer).map_err(failed)?;
        Ok(client.into_raw_fd())
    }

    /// A descriptor that is readable when there is something to poll; -1 if there never is.
    fn fileno(&self) -> RawFd {
        self.inbox.as_ref().map_or(-1, |inbox| inbox.wake_fd.fileno())
    }

    /// Takes all requests received so far.
    fn poll(&self, py: Python<'_>) -> Vec<WebhookRequest> {
        let Some(inbox) = &self.inbox else { return vec![] };
        inbox.wake_fd.clear();
        let mut errors = std::mem::take(&mut *inbox.errors.lock().unwrap_or_else(PoisonError::into_inner));
        let arrived = std::mem::take(&mut *inbox.calls.lock().unwrap_or_else(PoisonError::into_inner));
        let mut requests = Vec::with_capacity(arrived.len());
        for call in arrived {
            match WebhookRequest::new(py, call) {
                Ok(request) => requests.push(request),
                // It is rejected, as the sender of its response is dropped. The other requests are not affected.
                Err(error) => errors.push(format!("A request cannot be converted to Python: {error}")),
            }
        }
        if let Err(error) = log_errors(py, errors) {
            // The descriptor is cleared, so the requests have to be returned now.
            error.write_unraisable(py, None);
        }
        requests
    }

    /// Stops the server: requests that are being processed are answered, and those that are not polled yet are rejected.
    fn stop(&self) {
        self.server.stop();
        if let Some(inbox) = &self.inbox {
            inbox.calls.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Stops the server, and blocks the thread until all its tasks have ended. Requests without a response after 5 seconds are
    /// cancelled.
    fn join(&self, py: Python<'_>) -> PyResult<()> {
        self.stop();
        let Some(runtime) = runtime_unless_exiting()? else { return Ok(()) };
        py.detach(|| runtime.block_on(self.server.join()));
        Ok(())
    }
}

impl WebhookServer {
    fn report_expiry(&self, expiry: Option<Timestamp>) {
        if let Some(admission) = &self.admission {
            admission.set_certificate_expiry(expiry);
        }
    }
}

fn log_errors(py: Python<'_>, errors: Vec<String>) -> PyResult<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let logger = py.import("logging")?.call_method1("getLogger", (Logger::Admission.name(),))?;
    for error in errors {
        logger.call_method1("error", ("%s", error))?;
    }
    Ok(())
}

fn cannot_listen(addr: Option<&str>, port: u16, error: &std::io::Error) -> PyErr {
    let place = addr.map_or_else(|| format!("port {port}"), |addr| format!("{addr}:{port}"));
    let advice = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            ". Another process listens there: choose another port, or stop that process"
        }
        _ => "",
    };
    PyOSError::new_err(format!("The webhook server cannot listen at {place}: {error}{advice}."))
}

impl WebhookRequest {
    fn new(py: Python<'_>, call: ReceivedRequest) -> PyResult<Self> {
        let sslpeer = call.peer.as_ref().map(|peer| peer_to_python(py, peer)).transpose()?;
        Ok(Self {
            webhook: call.webhook,
            headers: headers_to_python(py, &call.headers)?.unbind(),
            sslpeer: sslpeer.map(Bound::unbind),
            body: PyBytes::new(py, &call.body).unbind(),
            reply: call.reply.into(),
        })
    }
}

#[pymethods]
impl WebhookRequest {
    /// Answers the request with JSON.
    fn respond(&self, response: &Bound<'_, PyAny>) -> PyResult<()> {
        self.reply.send(Ok(python_to_value(response)?.to_string().into_bytes()));
        Ok(())
    }

    /// Rejects the request with an HTTP status.
    fn reject(&self, status: u16, reason: String) {
        self.reply.send(Err(Rejection { status, reason }));
    }
}
