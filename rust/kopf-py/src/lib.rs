//! The module `kopf._kopf`: the engine as Python sees it. This file only lists the names; each module has one topic.
//!
//! This crate contains no rules, and it is the only one that uses pyo3. The engine's threads never attach to the interpreter,
//! not even at the end of the operator: they use the queue of `bridge`. So they cannot disturb an interpreter that is exiting.
//! Only the awaitables of the testing kit attach in other threads (`testing_kit::asyncio_bridge`), and they end before the interpreter is
//! finalised.

mod admission;
mod allocator;
mod bridge;
mod caches;
mod calls;
mod client;
mod commands;
mod convert;
mod engine;
mod errors;
mod explaining;
mod inspection;
mod item_converter;
mod json_line;
mod json_text;
mod kubeconfig;
mod leadership;
mod line_format;
mod line_writer;
mod logging;
#[cfg(feature = "testing")]
mod panics;
mod rules;
mod runtime;
mod status;
#[cfg(feature = "testing")]
mod testing;
mod testing_kit;
mod time;
mod trace;
mod views;

/// The engine of the operator, as Python drives it. Private: its names may change at any time.
#[pyo3::pymodule]
mod _kopf {
    #[pymodule_export]
    use crate::admission::certificates::{build_certificate, describe_certificate};
    #[pymodule_export]
    use crate::admission::server::{WebhookRequest, WebhookServer};
    #[pymodule_export]
    use crate::caches::{CacheChanges, CacheReader};
    #[pymodule_export]
    use crate::calls::handler_call::HandlerCall;
    #[pymodule_export]
    use crate::calls::task_coroutine::TaskCoroutine;
    #[pymodule_export]
    use crate::client::ApiClient;
    #[pymodule_export]
    use crate::client::apply::AppliedChildren;
    #[pymodule_export]
    use crate::client::failure::CallFailure;
    #[pymodule_export]
    use crate::client::outcome::ApiResponse;
    #[pymodule_export]
    use crate::client::references::read_referenced_credentials;
    #[pymodule_export]
    use crate::client::request::{ApiRequest, RequestOptions};
    #[pymodule_export]
    use crate::client::response_queue::{ResponseQueue, RunningCall};
    #[pymodule_export]
    use crate::client::stream::UserStream;
    #[pymodule_export]
    use crate::commands::activation::{
        Activation, CallChangeHandler, CallEventHandler, CallIndexers, FilterDaemons, FilterHandlers,
        IndexerCall, SelectHandlers,
    };
    #[pymodule_export]
    use crate::commands::attempt::{Attempt, Outcome};
    #[pymodule_export]
    use crate::commands::caching::ComputeKeys;
    #[pymodule_export]
    use crate::commands::change::Change;
    #[pymodule_export]
    use crate::commands::daemons::{CallDaemon, DaemonEnded, GetInitialDelay, ObjectUpdated, StopDaemons};
    #[pymodule_export]
    use crate::commands::lazy_attribute::LazyAttribute;
    #[pymodule_export]
    use crate::commands::login::Login;
    #[pymodule_export]
    use crate::commands::matching::{MatchNamespaces, MatchResources};
    #[pymodule_export]
    use crate::commands::notifications::{
        CancelCycle, CycleClosed, EngineStopped, ObjectDeleted, PeeringWritten,
    };
    #[pymodule_export]
    use crate::commands::patch_fns::ApplyPatchFns;
    #[pymodule_export]
    use crate::commands::probe::Probe;
    #[pymodule_export]
    use crate::commands::reconcile::{
        CallReconciler, InspectObject, ReconcilerEnded, StopReconciler, change_conditions,
    };
    #[pymodule_export]
    use crate::commands::review::AdmissionReview;
    #[pymodule_export]
    use crate::commands::storage::{FetchState, StoreState};
    #[pymodule_export]
    use crate::commands::sub_handlers::SubHandlers;
    #[pymodule_export]
    use crate::convert::json_copy;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::explaining::explain;
    #[pymodule_export]
    use crate::inspection::{inspect, live_peers, release_patch};
    #[pymodule_export]
    use crate::kubeconfig::{
        current_address, has_exec_plugin, has_kubeconfig, has_named_kubeconfig, has_service_account,
        read_kubeconfig, read_service_account,
    };
    #[pymodule_export]
    use crate::leadership::{Election, Term};
    #[pymodule_export]
    use crate::line_format::LineFormat;
    #[pymodule_export]
    use crate::line_writer::LineWriter;
    #[pymodule_export]
    use crate::logging::Log;
    #[cfg(feature = "testing")]
    #[pymodule_export]
    use crate::panics::inject_panics;
    #[pymodule_export]
    use crate::rules::{
        is_exact_namespace, json_patch, match_namespace, restore_essence, select_resources,
        unmatched_namespaces,
    };
    #[pymodule_export]
    use crate::status::StatusServer;
    #[cfg(feature = "testing")]
    #[pymodule_export]
    use crate::testing::inject::{InjectedWork, inject, inject_review};
    #[pymodule_export]
    use crate::testing_kit::apiserver::ApiServer;
    #[pymodule_export]
    use crate::testing_kit::virtual_time::VirtualTime;
    #[pymodule_export]
    use crate::views::Object;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("LOGGERS", crate::logging::names())?;
        module.add("CHILDREN_FINALIZER", kopf_core::apply::CHILDREN_FINALIZER)?;
        crate::convert::register_mapping::<Object>(module.py())
    }
}
