//! Background controllers: garbage collector, deletion of namespaces and CRDs, simulated workloads.
//!
//! One task processes the work queue item by item; it is idle without writes.

mod crds;
mod gc;
mod namespaces;
mod workloads;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::work_queue::WorkItem;

/// Processes the work queue until the task is cancelled. An item whose processing panics is dropped.
pub(crate) async fn run(cluster: Arc<Cluster>) {
    loop {
        let work = cluster.queue.next().await;
        // The panic hook of the process reports it.
        let _panicked = catch_unwind(AssertUnwindSafe(|| process(&cluster, work)));
        // Lets requests run between the items of a long queue.
        tokio::task::yield_now().await;
    }
}

/// Processes one item.
pub(crate) fn process(cluster: &Arc<Cluster>, work: WorkItem) {
    match work {
        WorkItem::OwnerDeleted(uid) => gc::collect_dependents(cluster, &uid),
        WorkItem::DependentReleased(uid) => gc::recheck_owner(cluster, &uid),
        WorkItem::OwnersChanged(table, namespace, name) => {
            gc::check_owners(cluster, &table, &namespace, &name);
        }
        WorkItem::DeletionStarted(table, namespace, name) => {
            gc::wait_for_dependents(cluster, &table, &namespace, &name);
        }
        WorkItem::NamespaceDeletion(name) => namespaces::finalize_namespace(cluster, &name),
        WorkItem::CrdDeletion(name) => crds::finalize_crd(cluster, &name),
        WorkItem::Reconcile(table, namespace, name) => {
            workloads::reconcile(cluster, &table, &namespace, &name);
        }
        WorkItem::AdvancePod(namespace, name) => workloads::advance_pod(cluster, &namespace, &name),
    }
}
