//! The request that admission decides about.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use crate::base::user::User;
use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::schema::decode::{self, DecodeWarnings};
use crate::scheme::resources::Resource;
use crate::scheme::{builtin, conversion};
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
    /// Adds a warning, unless a header cannot contain it. Errors carry the warnings as well.
    pub(crate) fn add(&self, warning: &str) {
        let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = !warning.is_empty() && !warning.chars().any(char::is_control);
        if fits && !warnings.iter().any(|known| known == warning) {
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
        let mut written = 0;
        let mut shortened = Vec::new();
        for warning in warnings.iter() {
            if written >= TOTAL {
                break;
            }
            let short: String = warning.chars().take(EACH).collect();
            written += short.chars().count();
            shortened.push(short);
        }
        shortened
    }
}

/// Attributes of an admission request.
pub(crate) struct Attributes<'a> {
    pub(crate) cluster: &'a Arc<Cluster>,
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) subresource: Option<&'a str>,
    pub(crate) namespace: &'a str,
    /// Name in the request; empty for the deletion of a collection, and as long as a name is not generated.
    pub(crate) name: &'a str,
    pub(crate) user: &'a User,
    pub(crate) operation: Operation,
    /// Options that the client has given.
    pub(crate) options: &'a Map<String, Value>,
    pub(crate) dry_run: bool,
    pub(crate) warnings: &'a Warnings,
}

/// The new and the stored object of a request, in one version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objects<'o> {
    pub(super) new: Option<&'o Value>,
    pub(super) old: Option<&'o Value>,
}

impl Objects<'_> {
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
}

impl Attributes<'_> {
    /// Name in errors.
    pub(super) fn shown_name(&self) -> &str {
        if self.name.is_empty() { "Unknown" } else { self.name }
    }

    /// Namespace of the request. That of a namespace is the namespace itself.
    pub(super) fn namespace(&self) -> &str {
        if self.resource.is("", "namespaces") {
            return self.name;
        }
        if self.resource.namespaced { self.namespace } else { "" }
    }

    /// The `AdmissionRequest`, without its objects. `matched` is the resource in the version of the matching rule.
    pub(super) fn admission_request(&self, matched: &Resource) -> Value {
        let kind = |it: &Resource| match self.subresource.and_then(|sub| it.subresource(sub)?.kind.as_ref()) {
            Some((group, version, kind)) => json!({"group": group, "version": version, "kind": kind}),
            None => json!({"group": it.group, "version": it.version, "kind": it.kind}),
        };
        let resource =
            |it: &Resource| json!({"group": it.group, "version": it.version, "resource": it.plural});
        let mut request = json!({
            "kind": kind(matched), "resource": resource(matched),
            "requestKind": kind(self.resource), "requestResource": resource(self.resource),
            "operation": self.operation.name(),
            "userInfo": self.user.info(),
            "dryRun": self.dry_run,
            "options": {"kind": self.operation.options_kind(), "apiVersion": "meta.k8s.io/v1"},
        });
        for (key, value) in self.options {
            request["options"][key] = value.clone();
        }
        if !self.name.is_empty() {
            request["name"] = self.name.into();
        }
        let namespace = self.namespace();
        if !namespace.is_empty() {
            request["namespace"] = namespace.into();
        }
        if let Some(sub) = self.subresource {
            request["subResource"] = sub.into();
            request["requestSubResource"] = sub.into();
        }
        request
    }

    /// Whether the object of the request has the kind of the subresource, such as `Scale`.
    pub(super) fn has_other_kind(&self) -> bool {
        matches!(self.subresource, Some("scale" | "eviction" | "binding" | "token"))
    }

    /// Checks the types in an object of the kind of the subresource. The error is that of Go's decoder.
    pub(super) fn check_other_kind(&self, object: &Value) -> Result<(), String> {
        let kind = self.subresource.and_then(|name| self.resource.subresource(name)?.kind.as_ref());
        let Some((group, version, kind)) = kind else { return Ok(()) };
        let package = match group.split('.').next().unwrap_or_default() {
            "" => "core",
            package => package,
        };
        let schema = builtin::schema(&format!("{package}.{version}.{kind}"));
        decode::decode(object.clone(), &schema, &mut DecodeWarnings::default()).map(|_| ())
    }

    /// An object of the request in the version of another resource.
    pub(super) async fn in_version_of(&self, object: &Value, matched: &Resource) -> Result<Value, Status> {
        if self.has_other_kind() {
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
        if self.has_other_kind() {
            return Ok(object.clone());
        }
        converted(object, matched, self.resource).await
    }
}

async fn converted(object: &Value, from: &Resource, to: &Resource) -> Result<Value, Status> {
    let mut value = object.clone();
    if (&from.group, &from.version) != (&to.group, &to.version) {
        conversion::convert(&mut value, from, to);
    }
    webhook::conversion::one(to, value, &to.api_version()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_shortened_if_they_are_too_long_together() {
        let warnings = Warnings::default();
        for (number, length) in [(0, 100), (1, 3000), (2, 300), (0, 100)] {
            warnings.add(&number.to_string().repeat(length));
        }
        warnings.add("");
        warnings.add("two\nlines");
        let lengths = |warnings: &Warnings| -> Vec<usize> {
            warnings.shortened().iter().map(|it| it.chars().count()).collect()
        };
        assert_eq!(lengths(&warnings), [100, 3000, 300]);
        warnings.add(&"é".repeat(697));
        assert_eq!(lengths(&warnings), [100, 256, 256, 256]);
        for number in 0..30 {
            warnings.add(&format!("{number:0256}"));
        }
        assert_eq!(lengths(&warnings).len(), 17, "up to the one that exceeds the limit");
    }
}
