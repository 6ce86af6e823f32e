//! `ApiServer`: the embedded API server as used by tests: start, requests, faults, inspection, shutdown.
//!
//! Requests made through the handle use no sockets, are not in the request log, and are not affected by faults: those are for
//! the operator under test. Clusters of tests are implemented in Python (`kopf._testing.cluster`).

use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kopf_apiserver::{Controllers, CutOffPoint, Fault, Injection, Server, ServerError, ServerOptions};
use pyo3::exceptions::{PyLookupError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::convert::{python_to_value, value_to_python};
use crate::errors::misuse;
use crate::runtime::{check_process, runtime, runtime_unless_exiting};
use crate::testing_kit::asyncio_bridge::awaitable;

/// An API server embedded in this process.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct ApiServer {
    server: Mutex<Option<Arc<Server>>>,
    pid: u32,
}

#[pymethods]
impl ApiServer {
    /// Starts the server; when this returns, it serves requests.
    #[new]
    #[pyo3(signature = (*, port = 0, tls = true, token = None, controllers = false, access = false))]
    fn new(
        py: Python<'_>,
        port: u16,
        tls: bool,
        token: Option<String>,
        controllers: bool,
        access: bool,
    ) -> PyResult<Self> {
        let runtime = runtime()?;
        let options = options_of(port, tls, token, controllers, access);
        let server =
            py.detach(|| runtime.block_on(kopf_apiserver::start(options))).map_err(|error| failed(&error))?;
        Ok(Self { server: Mutex::new(Some(Arc::new(server))), pid: process::id() })
    }

    /// Starts the server without blocking the event loop; returns an awaitable.
    #[staticmethod]
    #[pyo3(signature = (*, port = 0, tls = true, token = None, controllers = false, access = false))]
    fn launch(
        py: Python<'_>,
        port: u16,
        tls: bool,
        token: Option<String>,
        controllers: bool,
        access: bool,
    ) -> PyResult<Bound<'_, PyAny>> {
        let options = options_of(port, tls, token, controllers, access);
        awaitable(py, async move {
            let server = kopf_apiserver::start(options).await.map_err(|error| failed(&error))?;
            Ok(Self { server: Mutex::new(Some(Arc::new(server))), pid: process::id() })
        })
    }

    /// The base URL.
    #[getter]
    fn url(&self) -> PyResult<String> {
        Ok(self.running()?.url())
    }

    /// The port on loopback.
    #[getter]
    fn port(&self) -> PyResult<u16> {
        Ok(self.running()?.port())
    }

    /// The administrator's token.
    #[getter]
    fn token(&self) -> PyResult<String> {
        Ok(self.running()?.token().to_owned())
    }

    /// The CA certificate (PEM); none without TLS.
    #[getter]
    fn ca(&self) -> PyResult<Option<String>> {
        Ok(self.running()?.ca_pem().map(str::to_owned))
    }

    /// The text of the administrator's kubeconfig file.
    #[getter]
    fn kubeconfig(&self) -> PyResult<String> {
        Ok(self.running()?.kubeconfig_text())
    }

    /// The newest resource version of all objects.
    #[getter]
    fn resource_version(&self) -> PyResult<u64> {
        Ok(self.running()?.resource_version())
    }

    /// Executes one request in memory; returns the status code and the body of the response. Patches are merge patches.
    #[pyo3(signature = (method, path, body = None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        path: &str,
        body: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(u16, Bound<'py, PyAny>)> {
        let server = self.running()?;
        let runtime = runtime()?;
        let body = body.map(python_to_value).transpose()?;
        match py.detach(|| runtime.block_on(server.call(method, path, body.as_ref()))) {
            Ok(value) => Ok((200, value_to_python(py, &value)?)),
            Err(ServerError::Rejected { code, reason, message }) => {
                let status = PyDict::new(py);
                status.set_item("reason", reason)?;
                status.set_item("message", message)?;
                Ok((code, status.into_any()))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    /// Executes many requests in memory, one after another, as `call` does, for loads that are too large for single calls.
    /// Stops at the first rejected one.
    fn call_all(
        &self,
        py: Python<'_>,
        requests: Vec<(String, String, Option<Bound<'_, PyAny>>)>,
    ) -> PyResult<()> {
        let server = self.running()?;
        let runtime = runtime()?;
        let requests = requests
            .into_iter()
            .map(|(method, path, body)| Ok((method, path, body.as_ref().map(python_to_value).transpose()?)))
            .collect::<PyResult<Vec<_>>>()?;
        let work = async {
            for (method, path, body) in &requests {
                server.execute(method, path, body.as_ref()).await?;
            }
            Ok::<(), ServerError>(())
        };
        py.detach(|| runtime.block_on(work)).map_err(|error| failed(&error))
    }

    /// Number of requests received over the network, including those removed from the request log.
    fn request_count(&self) -> PyResult<u64> {
        Ok(*self.running()?.request_log().subscribe().borrow())
    }

    /// An awaitable of asyncio: waits until more than `after` requests have been served; returns their number.
    fn wait_for_request<'py>(&self, py: Python<'py>, after: u64) -> PyResult<Bound<'py, PyAny>> {
        // It must not hold the server, which may be shut down meanwhile.
        let mut counts = self.running()?.request_log().subscribe();
        awaitable(py, async move {
            let count = counts.wait_for(|count| *count > after).await;
            count.map(|count| *count).map_err(|_| misuse("The API server is shut down."))
        })
    }

    /// The requests received over the network: time, method, path, query, content type, agent, body, code, user, accepted
    /// types. Returns only those after the first `after` ones, with their total number.
    #[pyo3(signature = (after = 0))]
    fn request_log<'py>(&self, py: Python<'py>, after: u64) -> PyResult<(u64, Bound<'py, PyList>)> {
        let list = PyList::empty(py);
        let (count, entries) = self.running()?.request_log().since(after);
        for entry in entries {
            let row = (
                entry.at.as_secs_f64(),
                entry.method,
                entry.path,
                entry.query,
                entry.content_type,
                entry.user_agent,
                entry.body.as_ref(),
                entry.code,
                entry.user,
                entry.accept,
            );
            let row: Bound<'py, PyTuple> = row.into_pyobject(py)?;
            list.append(row)?;
        }
        Ok((count, list))
    }

    /// Removes all requests from the request log.
    fn clear_request_log(&self) -> PyResult<()> {
        self.running()?.request_log().clear();
        Ok(())
    }

    /// Injects a fault: its name, its parameter, the verb, the resource and the client that it is limited to, and how many times it
    /// occurs.
    #[pyo3(signature = (fault, number = 0.0, *, verb = "", plural = "", client = "", times = None, after = 0))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments")]
    fn inject(
        &self,
        fault: &str,
        number: f64,
        verb: &str,
        plural: &str,
        client: &str,
        times: Option<u32>,
        after: u32,
    ) -> PyResult<()> {
        let fault = read_fault(fault, number)?;
        let injection = Injection { times, ..Injection::always(fault).after(after) };
        self.running()?.faults().inject(injection.on_verb(verb).on_resource(plural).on_client(client));
        Ok(())
    }

    /// Removes all faults.
    fn clear_faults(&self) -> PyResult<()> {
        self.running()?.faults().clear();
        Ok(())
    }

    /// Blocks access to the server over the network until the faults are removed.
    fn cut_off(&self) -> PyResult<()> {
        self.running()?.faults().cut_off();
        Ok(())
    }

    /// Whether access to the server over the network is blocked.
    #[getter]
    fn is_cut_off(&self) -> PyResult<bool> {
        Ok(self.running()?.faults().is_cut_off())
    }

    /// Appends lines to the log of a pod's container.
    fn append_log(&self, namespace: &str, pod: &str, container: &str, lines: Vec<String>) -> PyResult<()> {
        let is_known = self.running()?.append_log((namespace, pod), container, lines);
        let unknown = || PyLookupError::new_err(format!("There is no pod {pod:?} in {namespace:?}."));
        if is_known { Ok(()) } else { Err(unknown()) }
    }

    /// Closes the open watches of a resource; of all resources if the name is empty.
    #[pyo3(signature = (plural = ""))]
    fn cut_watches(&self, plural: &str) -> PyResult<()> {
        self.running()?.faults().cut_watches(plural);
        Ok(())
    }

    /// Removes the history: a watch from an earlier version has to relist.
    fn compact(&self) -> PyResult<()> {
        self.running()?.compact();
        Ok(())
    }

    /// Stops the server and closes its connections. Further calls have no effect.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        check_process(self.pid)?;
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Calls from other threads may still hold the server; then the last of them stops it by its drop.
        if let Some(server) = server.and_then(Arc::into_inner) {
            let Some(runtime) = runtime_unless_exiting()? else { return Ok(()) };
            py.detach(|| runtime.block_on(server.shutdown()));
        }
        Ok(())
    }
}

impl ApiServer {
    fn running(&self) -> PyResult<Arc<Server>> {
        check_process(self.pid)?;
        let server: MutexGuard<'_, Option<Arc<Server>>> =
            self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.clone().ok_or_else(|| misuse("The API server is shut down."))
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // The drop of the server aborts its tasks; a fork has no such tasks.
        if process::id() != self.pid {
            let server = self.server.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            std::mem::forget(server);
        }
    }
}

#[expect(clippy::field_reassign_with_default, reason = "a private field forbids to spell the options out")]
fn options_of(port: u16, tls: bool, token: Option<String>, controllers: bool, access: bool) -> ServerOptions {
    let mut options = ServerOptions::default();
    options.port = port;
    options.tls = tls;
    options.token = token;
    options.authorization = access;
    options.controllers = if controllers { Controllers::all() } else { Controllers::default() };
    options
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates, as intended")]
fn read_fault(name: &str, number: f64) -> PyResult<Fault> {
    Ok(match name {
        "latency" => Fault::Latency(
            Duration::try_from_secs_f64(number).map_err(|error| PyValueError::new_err(error.to_string()))?,
        ),
        "too-many-requests" => Fault::TooManyRequests(number as u64),
        "code" => Fault::Code(number as u16),
        "reset" => Fault::Reset,
        "conflict" => Fault::Conflict,
        "gone" => Fault::Gone,
        "silence" => Fault::Silence,
        "stale" => Fault::Stale(number as u64),
        "lost" => Fault::Lost,
        "cut-off" => {
            Fault::CutOff(if number > 0.0 { CutOffPoint::AfterRequest } else { CutOffPoint::BeforeRequest })
        }
        other => return Err(PyValueError::new_err(format!("There is no fault {other:?}."))),
    })
}

fn failed(error: &ServerError) -> PyErr {
    use std::error::Error as _;
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    let text = format!("The API server: {error}{cause}");
    match error {
        ServerError::Listen { .. } | ServerError::Kubeconfig { .. } => PyOSError::new_err(text),
        ServerError::Certificates(_) | ServerError::Rejected { .. } => PyRuntimeError::new_err(text),
    }
}
