//! The request that admission decides about.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::base::user::User;
use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::scheme::conversion;
use crate::scheme::resources::Resource;
use crate::webhook;

/// Operation of an admission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
    fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// Warnings of a response, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds a warning. Errors carry the warnings as well.
    pub(crate) fn add(&self, warning: &str) {
        let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !warnings.iter().any(|known| known == warning) {
            warnings.push(warning.to_owned());
        }
    }
    /// Warnings within the size limits of kube-apiserver: 4096 characters together, or else 256 each.
    pub(crate) fn shortened(&self) -> Vec<String> {
        const TOTAL: usize = 4096;
        const EACH: usize = 256;
        let warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.iter().map(|warning| warning.chars().count()).sum::<usize>() <= TOTAL {
            return warnings.clone();
        }
        warnings.iter().take(TOTAL / EACH).map(|warning| warning.chars().take(EACH).collect()).collect()
    }
}

/// Attributes of an admission request.
pub(crate) struct Attributes<'a> {
    pub(crate) cluster: &'a Arc<Cluster>,
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) subresource: Option<&'a str>,
    pub(crate) namespace: &'a str,
    pub(crate) user: &'a User,
    pub(crate) operation: Operation,
    /// Whether the request deletes a collection. Then, it has no name.
    pub(crate) is_collection: bool,
    pub(crate) dry_run: bool,
    pub(crate) warnings: &'a Warnings,
}

/// The new and the stored object of a request, in one version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objects<'o> {
    pub(super) new: Option<&'o Value>,
    pub(super) old: Option<&'o Value>,
}

impl<'o> Objects<'o> {
    /// The objects in the version of a matching rule.
    pub(super) async fn in_version(
        &self,
        request: &Attributes<'_>,
        matched: &Resource,
    ) -> Result<(Option<Value>, Option<Value>), Status> {
        let new = match self.new {
            Some(object) => Some(request.in_version_of(object, matched).await?),
            None => None,
        };
        let old = match self.old {
            Some(object) => Some(request.in_version_of(object, matched).await?),
            None => None,
        };
        Ok((new, old))
    }
    /// Name of the object.
    fn name(&self) -> &'o str {
        let object = self.new.or(self.old);
        object.and_then(|o| o.pointer("/metadata/name")).and_then(Value::as_str).unwrap_or_default()
    }
}

impl Attributes<'_> {
    /// Name in the request; empty for the deletion of a collection.
    pub(super) fn name_of<'n>(&self, objects: &Objects<'n>) -> &'n str {
        if self.is_collection { "" } else { objects.name() }
    }

    /// Name in errors.
    pub(super) fn shown_name<'n>(&self, objects: &Objects<'n>) -> &'n str {
        match self.name_of(objects) {
            "" => "Unknown",
            name => name,
        }
    }

    /// Namespace of the request. That of a namespace is the namespace itself, unless it is created.
    pub(super) fn namespace_of<'n>(&'n self, objects: &Objects<'n>) -> &'n str {
        if self.resource.is("", "namespaces") && self.operation != Operation::Create {
            return objects
                .old
                .and_then(|o| o.pointer("/metadata/name"))
                .and_then(Value::as_str)
                .unwrap_or_default();
        }
        if self.resource.namespaced { self.namespace } else { "" }
    }

    /// The `AdmissionRequest`, without its objects. `matched` is the resource in the version of the matching rule.
    pub(super) fn admission_request(&self, matched: &Resource, objects: &Objects<'_>) -> Value {
        let kind = |it: &Resource| match self.subresource.and_then(|sub| it.subresource(sub)?.kind.as_ref()) {
            Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
            None => json!({"group": it.group, "version": it.version, "kind": it.kind}),
        };
        let resource =
            |it: &Resource| json!({"group": it.group, "version": it.version, "resource": it.plural});
        let user = self.user;
        let mut request = json!({
            "kind": kind(matched), "resource": resource(matched),
            "requestKind": kind(self.resource), "requestResource": resource(self.resource),
            "name": self.name_of(objects), "operation": self.operation.name(),
            "userInfo": {"username": user.name, "uid": user.name, "groups": user.groups},
            "dryRun": self.dry_run,
            "options": {"kind": self.operation.options_kind(), "apiVersion": "meta.k8s.io/v1"},
        });
        let namespace = self.namespace_of(objects);
        if !namespace.is_empty() {
            request["namespace"] = namespace.into();
        }
        if let Some(sub) = self.subresource {
            request["subResource"] = sub.into();
            request["requestSubResource"] = sub.into();
        }
        request
    }

    /// An object of the request in the version of another resource.
    pub(super) async fn in_version_of(&self, object: &Value, matched: &Resource) -> Result<Value, Status> {
        if self.subresource == Some("scale") {
            return Ok(object.clone());
        }
        converted(object, self.resource, matched).await
    }

    /// An object of another version in that of the request.
    pub(super) async fn back_from_version_of(
        &self,
        object: &Value,
        matched: &Resource,
    ) -> Result<Value, Status> {
        if self.subresource == Some("scale") {
            return Ok(object.clone());
        }
        converted(object, matched, self.resource).await
    }
}

async fn converted(object: &Value, from: &Resource, to: &Resource) -> Result<Value, Status> {
    let mut value = object.clone();
    if (&from.group, &from.version) != (&to.group, &to.version) {
        conversion::to_storage(&mut value, from);
        conversion::from_storage(&mut value, to);
    }
    webhook::conversion::one(to, value, &to.api_version()).await
}
