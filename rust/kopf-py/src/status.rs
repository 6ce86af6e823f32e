//! `StatusServer`: the status server of an operator, which listens before its engine exists.

use kopf_engine::status::{Endpoint, StatusOptions, StatusServer as EngineStatusServer};
use pyo3::prelude::*;

use crate::runtime::runtime;

/// The status server of one operator. It listens from its creation until it is stopped, or until its engine ends.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct StatusServer(EngineStatusServer);

#[pymethods]
impl StatusServer {
    /// Starts to listen, without waiting for it: the start of the engine reports failures. `liveness` is the host, the port and
    /// the path of the probes; `address` is the host and the port of all other paths, by default those of the probes.
    #[new]
    #[pyo3(signature = (*, liveness=None, address=None))]
    fn new(
        py: Python<'_>,
        liveness: Option<(String, u16, String)>,
        address: Option<(String, u16)>,
    ) -> PyResult<Self> {
        let version = py.version_info();
        let python = format!("{}.{}.{}", version.major, version.minor, version.patch);
        let liveness = liveness.map(|(host, port, path)| Endpoint { host, port, path });
        let options = StatusOptions { liveness, address, python };
        Ok(Self(EngineStatusServer::start(runtime()?, options)))
    }

    /// Serves the status endpoints at this address, and no longer at that of the probes.
    fn serve_status_at(&self, host: String, port: u16) {
        self.0.serve_status_at(host, port);
    }

    /// Closes all connections. Further calls have no effect.
    fn stop(&self) {
        self.0.stop();
    }
}

impl StatusServer {
    /// The server of the engine.
    pub(crate) fn server(&self) -> EngineStatusServer {
        self.0.clone()
    }
}
