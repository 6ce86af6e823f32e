//! One-shot commands of the command line, run instead of the operator.
//!
//! They write or remove a record in the peering objects that the operator would watch (`kopf freeze` and `kopf resume`).

use std::collections::BTreeSet;
use std::sync::Arc;

use kopf_core::log_level::Level;
use kopf_core::object::decode_page;
use kopf_core::peering::Peer;
use kopf_core::resource::{Resource, is_exact_namespace, match_namespace};

use crate::client::Client;
use crate::discovery::namespaces::NamespaceScope;
use crate::discovery::scan::{Scope, scan};
use crate::error::{Failure, RequestError};
use crate::host::{HostTask, LogRecord, Logger};
use crate::peering::{GROUPS, is_peering, plural, write_records};
use crate::task_context::TaskContext;

const LOGGER: Logger = Logger::Peering;

/// A one-shot command to run instead of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Pauses other operators: writes a record with the identity, priority and lifetime of the settings.
    Freeze,
    /// Resumes them: removes this record.
    Resume,
}

/// Runs the command. The host is notified of each written peering object.
///
/// # Errors
/// If there is no peering resource, or if none of the peering objects exists.
pub async fn run(
    shared: &TaskContext,
    identity: &str,
    namespace_scope: &NamespaceScope,
    command: Command,
) -> Result<(), Failure> {
    let settings = &shared.startup_config.settings.peering;
    let groups: BTreeSet<String> = GROUPS.iter().map(|&group| group.to_owned()).collect();
    let scanned = scan(&shared.client, &Scope::Groups(groups)).await?;
    let resources: Vec<_> =
        scanned.iter().filter(|resource| is_peering(resource, settings.clusterwide)).collect();
    if resources.is_empty() {
        let names = GROUPS.map(|group| format!("{}.v1.{group}", plural(settings.clusterwide)));
        return Err(Failure::other(format!(
            "Cannot find the peering resource for [{}]. Apply the CRDs of peerings to the cluster \
             first: they are in examples/10-peering.",
            names.join(", ")
        )));
    }
    let places: Vec<Option<String>> = match namespace_scope {
        NamespaceScope::Cluster => vec![None],
        NamespaceScope::Namespaces { patterns, .. } => {
            namespaces(&shared.client, patterns).await?.into_iter().map(Some).collect()
        }
    };
    let mut written = 0;
    for resource in resources {
        for place in &places {
            written += usize::from(write(shared, identity, (resource, place.as_deref()), command).await?);
        }
    }
    if written == 0 && command == Command::Freeze {
        let name = &settings.name;
        return Err(Failure::other(format!(
            "There is no peering object {name:?}: no operator can be paused by it. Create it first, or name another \
             one with --peering."
        )));
    }
    Ok(())
}

async fn write(
    shared: &TaskContext,
    identity: &str,
    (resource, place): (&Arc<Resource>, Option<&str>),
    command: Command,
) -> Result<bool, RequestError> {
    let settings = &shared.startup_config.settings.peering;
    let lifetime = if command == Command::Freeze { settings.lifetime } else { 0 };
    let (priority, lastseen) = (settings.priority, shared.clock.now());
    let me = Peer { id: identity.to_owned(), priority, lifetime, lastseen };
    let record = (me.id.clone(), me.record());
    let found = write_records(&shared.client, resource, place, &settings.name, [record]).await?.is_some();
    if found {
        shared.host.submit(HostTask::PeeringWritten {
            resource: Arc::clone(resource),
            namespace: place.map(str::to_owned),
            name: settings.name.clone(),
        });
    } else {
        let place = place.map_or_else(|| "cluster-wide".to_owned(), |place| format!("in '{place}'"));
        let text = format!("There is no {resource} named {:?} {place}.", settings.name);
        shared.host.log(LogRecord::general(Level::Warning, LOGGER, text));
    }
    Ok(found)
}

/// The namespaces that match the patterns. If all patterns are names, no request is needed.
async fn namespaces(client: &Client, patterns: &[String]) -> Result<BTreeSet<String>, RequestError> {
    let exact = || patterns.iter().filter(|pattern| is_exact_namespace(pattern)).cloned().collect();
    if patterns.iter().all(|pattern| is_exact_namespace(pattern)) {
        return Ok(exact());
    }
    let body = match client.get("/api/v1/namespaces").await {
        Ok(body) => body,
        Err(error) if error.status() == Some(403) => return Ok(exact()),
        Err(error) => return Err(error),
    };
    let page = decode_page(&body).map_err(|error| RequestError::Malformed(error.to_string()))?;
    let names = page.items.iter().filter_map(|object| object.name());
    Ok(names
        .filter(|name| patterns.iter().any(|pattern| match_namespace(name, pattern)))
        .map(str::to_owned)
        .collect())
}
