//! The loggers of the engine's log records.

macro_rules! loggers {
    ($($(#[$doc:meta])* $logger:ident = $name:literal,)*) => {
        /// A logger of the host. Its name is that in Kopf 1.45, if there is one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Logger {
            $($(#[$doc])* $logger,)*
        }

        impl Logger {
            /// All loggers. The engine writes to no others, so that the host can find the most verbose one.
            pub const ALL: &[Self] = &[$(Self::$logger,)*];

            /// The name of the logger.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$logger => $name,)*
                }
            }
        }
    };
}

loggers! {
    /// Objects and their handlers.
    Objects = "kopf.objects",
    /// The login without handlers.
    Authentication = "kopf.activities.authentication",
    /// Requests to the API server.
    Api = "kopf._cogs.clients.api",
    /// Watches.
    Watching = "kopf._cogs.clients.watching",
    /// Logins.
    Activities = "kopf._core.engines.activities",
    /// Webhooks and their configurations.
    Admission = "kopf._core.engines.admission",
    /// Leader election.
    Leadership = "kopf._core.engines.leadership",
    /// Peering.
    Peering = "kopf._core.engines.peering",
    /// Kubernetes events.
    Posting = "kopf._core.engines.posting",
    /// Probes and the status endpoints.
    Probing = "kopf._core.engines.probing",
    /// Caches.
    Caches = "kopf._core.reactor.caches",
    /// Discovery of resources and namespaces.
    Observation = "kopf._core.reactor.observation",
    /// The start of watches.
    Orchestration = "kopf._core.reactor.orchestration",
    /// Queues of objects.
    Queueing = "kopf._core.reactor.queueing",
    /// The operator as a whole.
    Running = "kopf._core.reactor.running",
    /// The engine's traces, which the host enables apart from the levels.
    Traces = "kopf.engine",
}
