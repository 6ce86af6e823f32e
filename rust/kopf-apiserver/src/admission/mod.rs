//! Admission control.

mod attributes;
mod expressions;
mod matching;
pub(crate) mod pods;
mod policies;
mod webhooks;

use serde_json::Value;

pub(crate) use attributes::{Attributes, Operation, Warnings};
pub(crate) use webhooks::{has_mutating_webhooks, mutate};

use crate::cluster::Cluster;
use crate::error::status::Status;
use attributes::Objects;

/// Whether any webhook or policy may decide about requests.
pub(crate) fn is_configured(cluster: &Cluster) -> bool {
    let kinds = [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicybindings",
    ];
    let has = |kind: &&str| {
        !cluster.store.list(&format!("admissionregistration.k8s.io/{kind}"), None).objects.is_empty()
    };
    kinds.iter().any(has)
}

/// Evaluates the policies and calls the validating webhooks that match the request; the error is the first denial. Mutating webhooks
/// are called for deletions, too.
pub(crate) async fn validate(
    request: &Attributes<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let objects = Objects { new, old };
    if request.operation == Operation::Delete {
        webhooks::mutate_deletion(request, &objects).await?;
    }
    policies::validate(request, &objects).await?;
    webhooks::validate(request, &objects).await
}
