//! The module `kopf._kopf`: the engine as Python sees it. This file only lists the names; each module has one topic.
//!
//! This crate contains no rules, and it is the only one that uses pyo3. The engine's threads never attach to the interpreter,
//! not even at the end of the operator: they use the queue of `bridge`. So they cannot disturb an interpreter that is exiting.
//! Only the awaitables of the testing kit attach in other threads (`asyncio_bridge`), and they end before the interpreter is
//! finalised.

mod admission;
mod allocator;
mod apiserver;
mod asyncio_bridge;
mod bridge;
mod commands;
mod convert;
mod engine;
mod errors;
mod kubeconfig;
mod logging;
#[cfg(feature = "testing")]
mod panics;
mod runtime;
#[cfg(feature = "testing")]
mod testing;
mod time;
mod trace;
mod views;

/// The engine of the operator, as Python drives it. Private: its names may change at any time.
#[pyo3::pymodule]
mod _kopf {
    #[pymodule_export]
    use crate::admission::certificates::{build_certificate, describe_certificate};
    #[pymodule_export]
    use crate::admission::server::{Call, WebhookServer};
    #[pymodule_export]
    use crate::apiserver::ApiServer;
    #[pymodule_export]
    use crate::commands::attempt::{AttemptView, SettledView};
    #[pymodule_export]
    use crate::commands::batch::BatchView;
    #[pymodule_export]
    use crate::commands::change::ChangeView;
    #[pymodule_export]
    use crate::commands::requests::{
        Cancel, Close, Finished, Forget, Locate, Login, Probe, Select, Transform,
    };
    #[pymodule_export]
    use crate::commands::review::Review;
    #[pymodule_export]
    use crate::commands::run::{Delay, Dismiss, Refresh, Run, Signal};
    #[pymodule_export]
    use crate::commands::script::{Handle, Index, IndexCall, Match, Pick, Script, Spawn, Watch};
    #[pymodule_export]
    use crate::commands::storage::{Keep, Recall};
    #[pymodule_export]
    use crate::convert::plain;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::kubeconfig::{
        has_kubeconfig, has_named_kubeconfig, has_service_account, read_kubeconfig,
        read_kubeconfig_references, read_service_account,
    };
    #[pymodule_export]
    use crate::logging::Log;
    #[cfg(feature = "testing")]
    #[pymodule_export]
    use crate::panics::order;
    #[cfg(feature = "testing")]
    #[pymodule_export]
    use crate::testing::inject::{InjectedWork, inject, inject_review};
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
