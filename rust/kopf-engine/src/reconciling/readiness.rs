//! The readiness of reconcilers: the streams that they wait for before their first call, and after pauses.

use std::collections::HashSet;
use std::sync::Arc;

use kopf_core::log_level::Level;
use kopf_core::readiness::{ReadinessBarrier, Requirement, StreamState};
use kopf_core::resource::Resource;
use kopf_core::time::Timestamp;

use super::Reconcilers;
use super::effects::Effects;
use super::lists::Relisting;
use super::state::{Reconciler, State, kept};
use crate::host::{LogRecord, Logger};
use crate::watch_health::WatchHealth;

const LOGGER: Logger = Logger::Orchestration;

/// A stream that reconcilers need.
pub struct RequiredStream {
    /// Its name.
    pub name: String,
    /// The indices of the reconcilers among the handlers.
    pub reconcilers: Vec<usize>,
}

impl Reconcilers {
    /// Sets the served resources with their streams. Before the served namespaces are known, no reconciler is ready.
    pub fn require(self: &Arc<Self>, served: &[Arc<Resource>], streams: &[RequiredStream], is_located: bool) {
        self.with_state(|state, now, _| state.require(served, streams, is_located, now));
    }

    /// Reports of the reconcilers that are not ready, with the missing streams.
    pub fn missing(&self) -> Vec<String> {
        let state = self.state();
        let waiting = state.reconcilers.iter().filter(|reconciler| !reconciler.barrier.is_open());
        waiting.map(|reconciler| reconciler.report(&reconciler.barrier)).collect()
    }

    /// The same, with those of the reconcilers that wait for the lists after a pause.
    pub fn waiting(&self) -> Vec<String> {
        let mut waiting = self.missing();
        let Some(pauses) = self.pauses() else { return waiting };
        for reconciler in &mut self.state().reconcilers {
            reconciler.update_relisting(&self.health, pauses);
            let relisting = reconciler.relisting.as_ref().filter(|it| it.pauses == pauses);
            waiting.extend(relisting.map(|relisting| reconciler.report(&relisting.barrier)));
        }
        waiting
    }
}

impl Reconciler {
    /// Whether some lists are not from after so many pauses and terms.
    pub(super) fn awaits_lists(&mut self, pauses: u64, now: Timestamp) -> bool {
        if self.lists.are_after(pauses) {
            self.relisting = None;
            return false;
        }
        if self.relisting.as_ref().is_none_or(|relisting| relisting.pauses != pauses) {
            let streams = self.lists.before(pauses).map(|name| (name.to_owned(), Requirement::Kind));
            let mut barrier = ReadinessBarrier::new(streams, self.options.warn_after, now);
            barrier.set_handlers_ready();
            self.relisting = Some(Relisting { pauses, barrier });
        }
        true
    }

    /// Records which lists have arrived since the pause, and why others have not.
    fn update_relisting(&mut self, health: &WatchHealth, pauses: u64) {
        let Some(relisting) = self.relisting.as_mut().filter(|relisting| relisting.pauses == pauses) else {
            return;
        };
        let missing: HashSet<&str> = self.lists.before(pauses).collect();
        for name in relisting.barrier.names() {
            let state = match health.error_of(&name) {
                _ if !missing.contains(&*name) => StreamState::Listed,
                Some(error) => StreamState::Failed(error),
                None => continue,
            };
            relisting.barrier.set_stream(&name, state);
        }
    }

    /// The warning about missing lists that is due now.
    fn relisting_warning(&mut self, health: &WatchHealth, pauses: u64, now: Timestamp) -> Option<LogRecord> {
        let next = self.relisting.as_ref()?.barrier.next_warning()?;
        if now < next {
            return None;
        }
        self.update_relisting(health, pauses);
        let relisting = self.relisting.as_mut().filter(|relisting| relisting.pauses == pauses)?;
        let text = relisting.barrier.warning(&self.label, self.options.warn_after, now)?;
        Some(LogRecord::general(Level::Warning, LOGGER, text))
    }

    fn report(&self, barrier: &ReadinessBarrier) -> String {
        format!("{}: {}", self.label, barrier.missing().join("; "))
    }
}

impl Reconciler {
    /// Sets which named kinds are namespaced. Until a kind is served, it counts as namespaced.
    fn set_namespaced_kinds(&mut self, resources: &[Arc<Resource>]) {
        for relation in &mut self.relations {
            let kind = resources.iter().find(|resource| relation.selects(resource));
            if relation.set_namespaced(kind.is_none_or(|resource| resource.namespaced)) {
                for (key, primary) in self.primaries.iter().filter(|(_, primary)| !primary.is_gone) {
                    relation.observe_primary(key, Some(&kept(&primary.object)));
                }
            }
        }
    }
}

impl State {
    fn require(
        &mut self,
        resources: &[Arc<Resource>],
        streams: &[RequiredStream],
        is_located: bool,
        now: Timestamp,
    ) {
        let names: HashSet<&str> = streams.iter().map(|stream| &*stream.name).collect();
        self.listed.retain(|name| names.contains(&**name));
        for reconciler in &mut self.reconcilers {
            let Some(handler) = self.rules.registry.handlers.get(reconciler.handler) else { continue };
            reconciler.kinds = handler.selector.as_ref().map(|own| own.select(resources)).unwrap_or_default();
            reconciler.set_namespaced_kinds(resources);
            let mut names = Vec::new();
            let mut unknown = Vec::new();
            if !is_located {
                names.push("namespaces".to_owned());
            }
            for selector in handler.selectors() {
                if selector.select(resources).is_empty() {
                    unknown.push(selector.name().map_or_else(|| selector.to_string(), str::to_owned));
                }
            }
            let required = streams.iter().filter(|stream| stream.reconcilers.contains(&reconciler.handler));
            names.extend(required.map(|stream| stream.name.clone()));
            let all: Vec<String> = names.iter().chain(&unknown).cloned().collect();
            if reconciler.barrier.is_open() || (reconciler.required == all && !all.is_empty()) {
                continue;
            }
            let required = all.iter().map(|name| (name.clone(), Requirement::Kind));
            let warn_after = reconciler.options.warn_after;
            // The time of the start is kept: it is shown in the warnings.
            let since = if reconciler.required.is_empty() { now } else { self.started };
            reconciler.barrier = ReadinessBarrier::new(required, warn_after, since);
            for name in unknown {
                reconciler.barrier.set_stream(&name, StreamState::NoSuchKind);
            }
            for name in &self.listed {
                reconciler.barrier.set_stream(name, StreamState::Listed);
            }
            reconciler.required = all;
            if self.are_handlers_ready {
                reconciler.barrier.set_handlers_ready();
            }
        }
    }

    /// Records that the startup handlers are done and the indices are filled.
    pub(super) fn set_handlers_ready(&mut self) {
        self.are_handlers_ready = true;
        // Without the streams, which are not known yet, a barrier would open.
        for reconciler in self.reconcilers.iter_mut().filter(|reconciler| !reconciler.required.is_empty()) {
            reconciler.barrier.set_handlers_ready();
        }
    }

    /// Records that the first list of a feed is complete.
    pub(super) fn set_listed(&mut self, name: &str) {
        self.listed.insert(name.to_owned());
        for reconciler in self.reconcilers.iter_mut().filter(|reconciler| !reconciler.required.is_empty()) {
            reconciler.barrier.set_stream(name, StreamState::Listed);
        }
    }

    /// Logs the warnings that are due.
    pub(super) fn warn(
        &mut self,
        health: &WatchHealth,
        pauses: Option<u64>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        for reconciler in &mut self.reconcilers {
            if let Some(pauses) = pauses {
                effects.records.extend(reconciler.relisting_warning(health, pauses, now));
            }
            if reconciler.barrier.next_warning().is_none_or(|next| now < next) {
                continue;
            }
            for name in &reconciler.required {
                if let Some(error) = health.error_of(name) {
                    reconciler.barrier.set_stream(name, StreamState::Failed(error));
                }
            }
            let warn_after = reconciler.options.warn_after;
            if let Some(text) = reconciler.barrier.warning(&reconciler.label, warn_after, now) {
                effects.records.push(LogRecord::general(Level::Warning, LOGGER, text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::testing::{Fixture, resource};

    #[tokio::test]
    async fn the_names_of_former_streams_are_forgotten() {
        let handler = json!({"id": "sync", "kind": "reconciling", "selector": {"any_name": "shops"}});
        let fixture = Fixture::with_handlers(vec![handler], &json!({}), |_| (200, None));
        let mut state = State::of(&fixture.shared.base, &Arc::default()).unwrap();
        let stream = |name: &str| RequiredStream { name: name.to_owned(), reconcilers: vec![0] };
        let now = Timestamp::from_micros(0);
        state.require(&[], &[stream("shops in a"), stream("shops in b")], true, now);
        for name in ["shops in a", "shops in b"] {
            state.set_listed(name);
        }
        state.require(&[], &[stream("shops in b")], true, now);
        assert!(state.listed.iter().eq(["shops in b"]));
    }

    #[tokio::test(start_paused = true)]
    async fn s0_3_10_the_wait_for_the_lists_after_a_pause_is_reported() {
        let handler = json!({"id": "sync", "kind": "reconciling", "selector": {"any_name": "shops"}});
        let fixture = Fixture::with_handlers(vec![handler], &json!({}), |_| (200, None));
        let pause = &fixture.shared.pause;
        let reconcilers = Reconcilers::of(&fixture.shared.base, &fixture.health, pause).unwrap();
        let stream = RequiredStream { name: "shops".to_owned(), reconcilers: vec![0] };
        reconcilers.require(&[resource("example.com", "shops", true)], &[stream], true);
        let record_list = |pauses: u64| {
            reconcilers.with_state(|state, _, _| {
                state.set_handlers_ready();
                state.set_listed("shops");
                state.reconcilers[0].lists.insert(1, &"shops".into(), pauses);
            });
        };
        let step_after = async |seconds: u64| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            reconcilers.step()
        };
        record_list(0);
        assert!(reconcilers.waiting().is_empty() && reconcilers.step().is_none());

        pause.turn("a test", true);
        assert!(step_after(60).await.is_none() && reconcilers.waiting().is_empty());
        pause.turn("a test", false);
        let first = reconcilers.step();
        let missing = "list shops: no response yet";
        assert!(reconcilers.waiting()[0].ends_with(missing) && reconcilers.missing().is_empty());
        assert!(fixture.lines("has been waiting").is_empty() && first.is_some());
        assert!(step_after(30).await > first);
        step_after(30).await;
        let lines = fixture.lines("has been waiting");
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with(&format!("has been waiting for 30 s. Missing: {missing}")), "{lines:?}");

        record_list(1);
        assert!(step_after(30).await.is_none() && reconcilers.waiting().is_empty());
        assert_eq!(fixture.lines("has been waiting").len(), 2);
    }
}
