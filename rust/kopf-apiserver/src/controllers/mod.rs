//! Controllers.

mod definitions;
mod gc;
mod namespaces;
mod workloads;

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::work_queue::Work;

/// Does the work of one server until it stops.
pub(crate) async fn run(cluster: Arc<Cluster>) {
    loop {
        let work = cluster.queue.next().await;
        carry_out(&cluster, work);
        // A long queue must not starve the requests.
        tokio::task::yield_now().await;
    }
}

/// Does one piece.
pub(crate) fn carry_out(cluster: &Arc<Cluster>, work: Work) {
    match work {
        Work::Removed(uid) => gc::collect(cluster, &uid),
        Work::Owner(uid) => gc::release_owner(cluster, &uid),
        Work::Owned(table, namespace, name) => gc::check_owners(cluster, &table, &namespace, &name),
        Work::Deleting(table, namespace, name) => {
            gc::wait_for_dependents(cluster, &table, &namespace, &name);
        }
        Work::Namespace(name) => namespaces::end_namespace(cluster, &name),
        Work::Definition(name) => definitions::end_definition(cluster, &name),
        Work::Control(table, namespace, name) => workloads::look(cluster, &table, &namespace, &name),
        Work::Pod(namespace, name) => workloads::advance_pod(cluster, &namespace, &name),
    }
}
