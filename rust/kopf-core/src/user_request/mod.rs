//! Requests of users' code to the API server, as data: the paths, queries and bodies of the verbs; when they are repeated; what
//! their failures mean; kinds by name; changes for watches.
//!
//! The engine executes them (`kopf-engine/src/user_client`).

mod changes;
mod failure;
mod kind;
mod log_lines;
mod retry;

use std::fmt::Write as _;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::resource::Resource;

pub use changes::{Change, ChangeKind, KnownObjects};
pub use failure::{Cause, Class, Failure, FieldConflict, field_conflicts};
pub use kind::{KindError, KindName};
pub use log_lines::LogLines;
pub use retry::{FailedAttempt, Idempotency};

/// The longest name of a field manager that API servers accept.
const MAX_MANAGER: usize = 128;

/// A verb of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads an object.
    Get,
    /// Reads one page of a list.
    List,
    /// Follows the changes of objects.
    Watch,
    /// Reads the log of a container.
    Logs,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Replace,
    /// Merges a patch into an object (RFC 7386).
    MergePatch,
    /// Executes the operations of a patch (RFC 6902).
    JsonPatch,
    /// Merges a patch into an object; lists are merged by keys.
    StrategicPatch,
    /// Applies an object, server-side.
    Apply,
    /// Deletes an object.
    Delete,
    /// Deletes all selected objects.
    DeleteAll,
    /// Asks for a decision without storing anything, such as an access review.
    Review,
}

impl Verb {
    /// The verb by its name in calls from Python.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "get" => Self::Get,
            "list" => Self::List,
            "watch" => Self::Watch,
            "logs" => Self::Logs,
            "create" => Self::Create,
            "replace" => Self::Replace,
            "merge-patch" => Self::MergePatch,
            "json-patch" => Self::JsonPatch,
            "strategic-patch" => Self::StrategicPatch,
            "apply" => Self::Apply,
            "delete" => Self::Delete,
            "delete_all" => Self::DeleteAll,
            "review" => Self::Review,
            _ => return None,
        })
    }

    /// The word for messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Logs => "read the logs of",
            Self::Create | Self::Review => "create",
            Self::Replace => "replace",
            Self::MergePatch | Self::JsonPatch | Self::StrategicPatch => "patch",
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::DeleteAll => "delete all",
        }
    }

    /// The HTTP method.
    pub fn method(self) -> &'static str {
        match self {
            Self::Get | Self::List | Self::Watch | Self::Logs => "GET",
            Self::Create | Self::Review => "POST",
            Self::Replace => "PUT",
            Self::MergePatch | Self::JsonPatch | Self::StrategicPatch | Self::Apply => "PATCH",
            Self::Delete | Self::DeleteAll => "DELETE",
        }
    }

    /// Whether the verb is for several objects, and accepts all namespaces.
    fn is_for_many(self) -> bool {
        matches!(self, Self::List | Self::Watch | Self::DeleteAll)
    }

    /// Whether the verb writes fields, and so has a field manager.
    pub fn has_manager(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Replace
                | Self::MergePatch
                | Self::JsonPatch
                | Self::StrategicPatch
                | Self::Apply
        )
    }

    fn is_dry_runnable(self) -> bool {
        self.has_manager() || matches!(self, Self::Delete | Self::DeleteAll)
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::MergePatch => "application/merge-patch+json",
            Self::JsonPatch => "application/json-patch+json",
            Self::StrategicPatch => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
            _ => "application/json",
        }
    }
}

/// The namespace of calls that specify none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultNamespace {
    /// That of the credentials, else `default`.
    OfCredentials,
    /// This one: of the handled object, or of a view of the client.
    Named(String),
    /// The handled object is cluster-scoped: calls must specify a namespace.
    Unknown,
}

/// The options of a view of the client.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Whether nothing is stored.
    pub dry_run: bool,
    /// The field manager.
    pub manager: Option<String>,
    /// How servers treat unknown fields: `Strict`, `Warn`, `Ignore`.
    pub validation: Option<String>,
}

/// A call of a verb.
#[derive(Clone, Debug)]
pub struct Call {
    /// The verb.
    pub verb: Verb,
    /// The namespace argument; `*` means all namespaces.
    pub namespace: Option<String>,
    /// The namespace in the body.
    pub body_namespace: Option<String>,
    /// The name of the object.
    pub name: Option<String>,
    /// The subresource.
    pub subresource: Option<String>,
    /// The body as JSON.
    pub body: Option<Vec<u8>>,
    /// Further parameters of the query.
    pub query: Vec<(String, String)>,
    /// Whether the body names a resource version or a uid that the server compares.
    pub is_guarded: bool,
    /// Whether only the metadata is to be returned.
    pub metadata_only: bool,
}

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The HTTP method.
    pub method: &'static str,
    /// The path and the query.
    pub url: String,
    /// The accepted content types.
    pub accept: &'static str,
    /// The content type of the body, if there is one.
    pub content_type: Option<&'static str>,
    /// The body.
    pub body: Vec<u8>,
    /// When the request may be repeated.
    pub idempotency: Idempotency,
    /// The verb, the kind, the namespace and the name, for messages.
    pub subject: String,
}

const PARTIAL_OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const PARTIAL_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

impl Call {
    /// The request for a resource.
    ///
    /// # Errors
    /// A text for a `ValueError`: the arguments contradict the resource or each other.
    pub fn request(
        &self,
        resource: &Resource,
        options: &WriteOptions,
        default: &DefaultNamespace,
        of_credentials: Option<&str>,
    ) -> Result<Request, String> {
        let namespace = self.namespace(resource, default, of_credentials)?;
        let needs_name = !self.verb.is_for_many() && !matches!(self.verb, Verb::Create | Verb::Review);
        if needs_name && self.name.as_deref().is_none_or(str::is_empty) {
            return Err(format!("To {} an object, its name is needed.", self.verb.word()));
        }
        // New objects are posted to the list, but their subresources are posted to the object.
        let named = needs_name || self.subresource.is_some();
        let name = self.name.as_deref().filter(|_| named);
        let mut url = resource.url(namespace.as_deref(), name, self.subresource.as_deref());
        append_query(&mut url, self.query_of(options)?);
        let subject = self.subject(resource, namespace.as_deref());
        Ok(Request {
            method: self.verb.method(),
            url,
            accept: self.accept(),
            content_type: self.body.is_some().then(|| self.verb.content_type()),
            body: self.body.clone().unwrap_or_default(),
            idempotency: Idempotency::of(self),
            subject,
        })
    }

    fn accept(&self) -> &'static str {
        match (self.metadata_only, self.verb) {
            (true, Verb::List) => PARTIAL_LIST,
            (true, _) => PARTIAL_OBJECT,
            (false, Verb::Logs) => "*/*",
            (false, _) => "application/json",
        }
    }

    fn query_of(&self, options: &WriteOptions) -> Result<Vec<(String, String)>, String> {
        let mut query = self.query.clone();
        let mut add = |name: &str, value: &str| query.push((name.to_owned(), value.to_owned()));
        if options.dry_run && self.verb.is_dry_runnable() {
            add("dryRun", "All");
        }
        if self.verb.has_manager() {
            let manager = options.manager.as_deref().unwrap_or("kopf");
            if manager.is_empty() || manager.chars().count() > MAX_MANAGER {
                return Err(format!(
                    "The field manager {manager:?} must have between 1 and {MAX_MANAGER} characters."
                ));
            }
            add("fieldManager", manager);
            if let Some(validation) = &options.validation {
                add("fieldValidation", validation);
            }
        }
        Ok(query)
    }

    /// The namespace of the call; none for cluster-scoped kinds, and for all namespaces.
    ///
    /// # Errors
    /// A text for a `ValueError`.
    pub fn namespace(
        &self,
        resource: &Resource,
        default: &DefaultNamespace,
        of_credentials: Option<&str>,
    ) -> Result<Option<String>, String> {
        let given = self.namespace.as_deref();
        if !resource.namespaced {
            return match given.filter(|given| *given != "*") {
                Some(given) => {
                    Err(format!("{resource} is cluster-scoped, so the namespace {given:?} cannot be used."))
                }
                None => Ok(None),
            };
        }
        match given {
            Some("*") if self.verb.is_for_many() => return Ok(None),
            Some("*") => return Err(format!("Name the namespace: one cannot {} in all.", self.verb.word())),
            Some("") => return Err("The namespace is empty; use '*' for all namespaces.".to_owned()),
            Some(given) => return Ok(Some(given.to_owned())),
            None => {}
        }
        if let Some(namespace) = &self.body_namespace {
            return Ok(Some(namespace.clone()));
        }
        match default {
            DefaultNamespace::Named(namespace) => Ok(Some(namespace.clone())),
            DefaultNamespace::OfCredentials => Ok(Some(of_credentials.unwrap_or("default").to_owned())),
            DefaultNamespace::Unknown => Err(format!(
                "The handled object is cluster-scoped, so it provides no namespace for {resource}: pass \
                 namespace=..., or use api.in_namespace(...)."
            )),
        }
    }

    fn subject(&self, resource: &Resource, namespace: Option<&str>) -> String {
        let kind = match resource.group.as_str() {
            "" => resource.plural.clone(),
            group => format!("{}.{group}", resource.plural),
        };
        let kind =
            self.subresource.as_ref().map_or(kind.clone(), |subresource| format!("{kind}/{subresource}"));
        let object = match (namespace, &self.name) {
            (Some(namespace), Some(name)) => format!(" {namespace}/{name}"),
            (None, Some(name)) => format!(" {name}"),
            (Some(namespace), None) => format!(" in {namespace}"),
            (None, None) => String::new(),
        };
        format!("{} {kind}{object}", self.verb.word())
    }
}

/// Appends parameters to a URL.
pub fn append_query(url: &mut String, query: impl IntoIterator<Item = (String, String)>) {
    for (name, value) in query {
        let separator = if url.contains('?') { '&' } else { '?' };
        let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
        let _ = write!(url, "{separator}{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC));
    }
}

#[cfg(test)]
mod tests;
