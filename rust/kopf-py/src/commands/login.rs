//! `Login`: the call of the login handlers.

use kopf_engine::host::LoginTask;
use kopf_engine::host::credentials::{Credentials, Login as LoginReply};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::commands::reply_sender::ReplySender;
use crate::errors::declaration;

/// Get credentials from the login handlers.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Login {
    #[pyo3(get)]
    is_renewal: bool,
    reply: ReplySender<Result<LoginReply, String>>,
}

impl Login {
    pub(crate) fn new(task: LoginTask) -> Self {
        Self { is_renewal: task.is_renewal, reply: task.reply.into() }
    }
}

#[pymethods]
impl Login {
    /// Replies with the credentials by the ids of the handlers, or none to use the engine's fallbacks (service account,
    /// kubeconfig).
    fn complete(&self, credentials: Option<Vec<(String, Bound<'_, PyDict>)>>) -> PyResult<()> {
        let Some(credentials) = credentials else {
            self.reply.send(Ok(LoginReply::Fallback));
            return Ok(());
        };
        let credentials = credentials.into_iter().map(read_credentials).collect::<PyResult<_>>()?;
        self.reply.send(Ok(LoginReply::Provided(credentials)));
        Ok(())
    }

    /// Replies with the error of the login.
    fn fail(&self, error: String) {
        self.reply.send(Err(error));
    }
}

/// Reads the credentials of one login handler.
pub(crate) fn read_credentials((id, fields): (String, Bound<'_, PyDict>)) -> PyResult<(String, Credentials)> {
    // The error's own message may contain a secret.
    let credentials = pythonize::depythonize::<Credentials>(&fields);
    let credentials = credentials.map_err(|_| declaration("credentials", "a field is of a wrong type"))?;
    Ok((id, credentials))
}
