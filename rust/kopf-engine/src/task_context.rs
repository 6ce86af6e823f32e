//! The context that all tasks of an operator share: the configuration, the API client, the host, the clock, and the operator's state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kopf_core::cycle::OperatorConfig;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::host::{CancelCycleTask, CycleId, Host, HostTask, Responder};
use crate::live_config::LiveConfig;
use crate::metrics::OperatorMetrics;
use crate::other_operators::OtherOperators;
use crate::supervision::Failing;
use crate::term_work::TermWork;
use crate::time::clock::Clock;

/// The context that all tasks of an operator share.
pub struct TaskContext {
    /// The handlers and the settings at the start.
    pub startup_config: Arc<OperatorConfig>,
    /// The current handlers and settings.
    pub live_config: LiveConfig,
    /// The API client.
    pub client: Client,
    /// The host of the handlers.
    pub host: Arc<dyn Host>,
    /// The clock.
    pub clock: Clock,
    /// Cancelled when the operator begins to stop: delays are cut short.
    pub stopping: CancellationToken,
    /// The fatal error of the operator, if there is one.
    pub failing: Arc<Failing>,
    /// The warnings about other operators that handle the same objects.
    pub other_operators: OtherOperators,
    /// The work of the present term of a leader election, or of the whole run without one.
    pub term: TermWork,
    /// The counters of the parts of the operator.
    pub metrics: OperatorMetrics,
    /// The source of the ids of cycles and runs.
    ids: AtomicU64,
}

impl TaskContext {
    /// The context of an operator that starts now.
    pub fn new(
        live_config: LiveConfig,
        client: Client,
        host: Arc<dyn Host>,
        clock: Clock,
        stopping: CancellationToken,
    ) -> Arc<Self> {
        let (startup_config, failing, ids) = (live_config.get(), Arc::default(), AtomicU64::new(1));
        let other_operators = OtherOperators::default();
        let metrics = OperatorMetrics::of(&startup_config.registry.handlers);
        Arc::new(Self {
            metrics,
            startup_config,
            live_config,
            client,
            host,
            clock,
            stopping,
            failing,
            other_operators,
            term: TermWork::default(),
            ids,
        })
    }

    /// Cancels the running handlers of a cycle, and counts the cancelled call. The receiver is notified when they have ended; it may be
    /// dropped.
    pub(crate) fn cancel_cycle(self: &Arc<Self>, cycle: CycleId) -> oneshot::Receiver<()> {
        let (sender, ended) = oneshot::channel();
        let base = Arc::clone(self);
        let reply = Responder::new(move |cancelled: Option<usize>| {
            if let Some(metrics) = cancelled.and_then(|handler| base.metrics.handlers.get(handler)) {
                metrics.on_cancelled();
            }
            let _dropped = sender.send(());
        });
        self.host.submit(HostTask::CancelCycle(CancelCycleTask { cycle, reply }));
        ended
    }

    /// An id for a new cycle, run, or scan, unique in the operator.
    pub fn next_id(&self) -> CycleId {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }
}
