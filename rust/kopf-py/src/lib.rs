//! The module `kopf._kopf`: the engine as Python sees it. An index of names; each file owns one noun.
//!
//! No rule is here. Only this crate knows pyo3. The engine's threads never attach to the interpreter: they talk through
//! the queue of `border`, up to the news of the operator's end. So they cannot disturb an interpreter that is exiting.
//! Only the testing kit's awaitables attach elsewhere (`awaitables`), and they are gone before the interpreter is.

mod admission;
mod apiserver;
mod awaitables;
mod border;
mod convert;
mod engine;
mod errors;
mod logging;
mod memory;
#[cfg(feature = "testing")]
mod rehearsal;
mod runtime;
mod task;
mod time;
mod views;

/// The engine of the operator, as Python drives it. Private: its names may change at any time.
#[pyo3::pymodule]
mod _kopf {
    #[pymodule_export]
    use crate::admission::certificates::{build_certificate, describe_certificate};
    #[pymodule_export]
    use crate::admission::review::Review;
    #[pymodule_export]
    use crate::admission::server::{Call, WebhookServer};
    #[pymodule_export]
    use crate::apiserver::ApiServer;
    #[pymodule_export]
    use crate::convert::plain;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::logging::Log;
    #[cfg(feature = "testing")]
    #[pymodule_export]
    use crate::rehearsal::{Rehearsal, admit, rehearse};
    #[pymodule_export]
    use crate::task::attempt::{AttemptView, SettledView};
    #[pymodule_export]
    use crate::task::batch::BatchView;
    #[pymodule_export]
    use crate::task::change::ChangeView;
    #[pymodule_export]
    use crate::task::keeping::{Keep, Recall};
    #[pymodule_export]
    use crate::task::requests::{Cancel, Close, Finished, Forget, Locate, Login, Probe, Select, Transform};
    #[pymodule_export]
    use crate::task::run::{Delay, Dismiss, Refresh, Run, Signal};
    #[pymodule_export]
    use crate::task::script::{Handle, Index, IndexCall, Match, Pick, Script, Spawn, Watch};
    #[pymodule_export]
    use crate::time::VirtualTime;
    #[pymodule_export]
    use crate::views::ObjectView;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::convert::register_mapping::<ObjectView>(module.py())
    }
}
