//! The observers of CRDs and of namespaces, and the operation without the permissions for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use kopf_core::handler::projection::Projection;
use kopf_core::log_level::Level;

use super::Orchestrator;
use crate::discovery::namespaces::NamespaceScope;
use crate::discovery::observers::{CrdConsumer, DiscoveryEvent, NamespacesConsumer, Source};
use crate::feed::{Consumer, Feed};
use crate::supervision::run_restarting;
use crate::watch::Stream;

impl Orchestrator {
    /// Starts the observers of CRDs and of namespaces.
    pub(super) fn observe(&mut self) {
        let disabled = self.shared.base.startup_config.settings.scanning.disabled;
        if !disabled && let Some(resource) = self.own("apiextensions.k8s.io", "customresourcedefinitions") {
            let handler = CrdConsumer {
                events: Arc::clone(&self.discovery),
                scanned: self.scanned.iter().map(|one| (one.group.clone(), one.plural.clone())).collect(),
                ..CrdConsumer::default()
            };
            let mut stream = self.stream(&resource, None);
            // CRDs are large, and their metadata is sufficient.
            stream.projection = Projection::Metadata;
            self.observe_with(stream, handler, Source::Crds);
        }
        if matches!(self.namespace_scope, NamespaceScope::Cluster) {
            return;
        }
        let resource = self.own("", "namespaces").filter(|_| !disabled);
        let Some(resource) = resource else {
            self.namespaces = self.namespace_scope.exact();
            self.is_located = true;
            return;
        };
        // Exact names need no discovery. If a namespace does not exist, its watch reports that.
        let compat = self.shared.base.startup_config.settings.compat;
        if self.namespace_scope.is_exact() && !compat {
            self.namespaces = self.namespace_scope.exact();
            self.is_located = true;
        }
        let handler = NamespacesConsumer {
            events: Arc::clone(&self.discovery),
            namespace_scope: self.namespace_scope.clone(),
            served: BTreeSet::new(),
            listed: None,
            all: (!compat).then(BTreeSet::new),
            host: Arc::clone(&self.shared.base.host),
        };
        let stream = self.stream(&resource, None);
        self.observe_with(stream, handler, Source::Namespaces);
    }

    /// Starts an observer. Without permissions, the operator continues without it, until they are granted.
    fn observe_with(&mut self, stream: Stream, handler: impl Consumer + 'static, observed: Source) {
        self.observers.insert(observed, stream.name());
        let discovery = Arc::clone(&self.discovery);
        let feed = Feed::new(stream)
            .with(handler)
            .reporting_if_forbidden(move || discovery.send(DiscoveryEvent::Forbidden(observed)));
        self.tasks.spawn(run_restarting(feed));
    }

    /// Continues without the observer, and logs once which permissions it needs.
    pub(super) fn on_forbidden(&mut self, observed: Source) {
        self.observers.remove(&observed);
        self.is_located |= observed == Source::Namespaces;
        let (consequence, plural) = match observed {
            Source::Crds => (
                "watch for resources: changes (creation/deletion/updates) will not be noticed; the resources are only refreshed \
                 on operator restarts."
                    .to_owned(),
                "customresourcedefinitions.apiextensions.k8s.io",
            ),
            Source::Namespaces if self.namespaces.is_empty() => {
                self.namespaces = self.namespace_scope.exact();
                let names: Vec<_> = self.namespaces.iter().map(|name| format!("'{name}'")).collect();
                let consequence = format!(
                    "list namespaces. Falling back to a list of namespaces which are assumed to exist: {{{}}}.",
                    names.join(", ")
                );
                (consequence, "namespaces")
            }
            Source::Namespaces => (
                "watch for namespaces: changes (deletion/creation) will not be noticed; the namespaces are only refreshed on \
                 operator restarts."
                    .to_owned(),
                "namespaces",
            ),
        };
        self.log(
            Level::Warning,
            format!(
                "Not enough permissions to {consequence} A cluster role with the verbs list and watch for {plural} is missing; Kopf \
                 tries again at intervals. Without such a role, set settings.scanning.disabled."
            ),
        );
    }
}
