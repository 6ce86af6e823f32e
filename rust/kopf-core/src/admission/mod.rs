//! Admission: the parsing of reviews, the selection of handlers, and the responses with their precedence of errors.
//!
//! `configuration` builds the webhook configurations. Servers and calls of handlers are elsewhere.

use std::sync::Arc;

use crate::handler::filters::{self, FilterVerdict};
use crate::handler::selection::found;
use crate::handler::{Handler, Kind, Webhook};
use crate::json::value::{Map, Value, python_repr};
use crate::object::Object;
use crate::resource::Resource;

pub mod configuration;
mod request;
mod response;

pub use request::{Request, RequestedResource};
pub use response::{Denial, ErrorPrecedence, Verdict, admission_response, operations};

/// The reason why a review cannot be handled. The same review fails again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The text is not JSON.
    #[error("{0}")]
    NotJson(String),
    /// The text is JSON, but not a review: a required field is absent, or has another type.
    #[error("{0}")]
    Malformed(String),
    /// An object is nested too deeply for handlers. It must not be admitted even with the failure policy `Ignore`, so the
    /// response is a denial.
    #[error("{message}")]
    TooDeep {
        /// The error message.
        message: String,
        /// The response as JSON.
        denial: String,
    },
    /// The objects or the user info are missing in the review.
    #[error("{0}")]
    MissingData(&'static str),
    /// The review is addressed to a handler that is not declared.
    #[error("There is no admission handler with the id {0:?}.")]
    UnknownHandler(String),
    /// No admission handler is declared for the resource.
    #[error("The specified resource has no handlers: {0}")]
    UnknownResource(String),
    /// Several resources match the review.
    #[error("The specified resource is ambiguous: {0}")]
    AmbiguousResource(String),
}

/// The handler or the type of webhook that the URL of a review names.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReviewFilter<'a> {
    /// The id of the only handler to call. None is for all handlers; an unknown id is for none.
    pub webhook: Option<&'a str>,
    /// `validating` or `mutating`: only handlers of this type are called.
    pub reason: Option<&'a str>,
}

/// A handler to call for a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The handler's index in the registry.
    pub handler: usize,
    /// Whether it has callable filters, which the host must evaluate.
    pub guarded: bool,
}

/// The resources with admission handlers, each with its handlers in the order of their declaration.
#[derive(Debug, Clone, Default)]
pub struct AdmissionResources(pub Vec<(Arc<Resource>, Vec<usize>)>);

impl AdmissionResources {
    /// Selects among the scanned resources. `callable` is the result of callable selectors.
    ///
    /// A resource that one handler selects is served to all other handlers that match it.
    pub fn select(
        handlers: &[Handler],
        scanned: &[Arc<Resource>],
        callable: &dyn Fn(usize, &Resource) -> bool,
    ) -> Self {
        let webhooks = || handlers.iter().enumerate().filter(|(_, one)| matches!(one.kind, Kind::Webhook(_)));
        let mut resources: Vec<Arc<Resource>> =
            webhooks().flat_map(|(index, handler)| found(handler, index, scanned, callable)).collect();
        let key = |one: &Arc<Resource>| (one.group.clone(), one.plural.clone(), one.version.clone());
        resources.sort_by_key(key);
        resources.dedup();
        let served = resources.into_iter().map(|resource| {
            let fits = |handler: &Handler, index: usize| {
                handler.selector.as_ref().is_none_or(|selector| {
                    selector.check(&resource) && (!selector.callable || callable(index, &resource))
                })
            };
            let fitting = webhooks().filter(|(index, handler)| fits(handler, *index));
            let fitting = fitting.map(|(index, _)| index).collect();
            (resource, fitting)
        });
        Self(served.collect())
    }

    /// The resource of a review with its handlers. It must match exactly.
    pub fn find(&self, requested: &RequestedResource) -> Result<(&Arc<Resource>, &[usize]), ReviewError> {
        let fits = |one: &&(Arc<Resource>, Vec<usize>)| {
            one.0.group == requested.group
                && one.0.version == requested.version
                && one.0.plural == requested.plural
        };
        let mut found = self.0.iter().filter(fits);
        let name = || python_repr(&requested.raw);
        match (found.next(), found.next()) {
            (None, _) => Err(ReviewError::UnknownResource(name())),
            (Some(_), Some(_)) => Err(ReviewError::AmbiguousResource(name())),
            (Some((resource, handlers)), None) => Ok((resource, handlers)),
        }
    }
}

/// The handlers that match a review, among the handlers of its resource. `handlers` are all declared ones.
///
/// The API server has matched the operations already, with one exception: mutating handlers get deletions only if they declare
/// `DELETE` and no other operation.
pub fn candidates(
    handlers: &[Handler],
    of_resource: &[usize],
    request: &Request,
    hint: ReviewFilter<'_>,
) -> Vec<Candidate> {
    let chosen = of_resource.iter().filter_map(|&index| {
        let handler = handlers.get(index)?;
        let Kind::Webhook(webhook) = &handler.kind else { return None };
        let asked = hint.reason.is_none_or(|reason| webhook.reason.as_deref() == Some(reason))
            && hint.webhook.is_none_or(|id| *handler.id == *id)
            && is_about(webhook, request.subresource.as_deref())
            && (!is_deletion(request) || may_see_deletions(webhook));
        let verdict = if asked { filters::on_object(handler, &request.body) } else { FilterVerdict::No };
        (verdict != FilterVerdict::No)
            .then_some(Candidate { handler: index, guarded: verdict == FilterVerdict::Ask })
    });
    chosen.collect()
}

fn is_about(webhook: &Webhook, subresource: Option<&str>) -> bool {
    webhook.subresource.as_deref() == Some("*") || webhook.subresource.as_deref() == subresource
}

fn is_deletion(request: &Request) -> bool {
    request.operation.as_deref() == Some("DELETE")
}

fn may_see_deletions(webhook: &Webhook) -> bool {
    let only_deletions = || {
        webhook.operations.as_ref().is_some_and(|operations| {
            !operations.is_empty() && operations.iter().all(|operation| operation == "DELETE")
        })
    };
    webhook.reason.as_deref() != Some(configuration::WebhookType::Mutating.as_str()) || only_deletions()
}

/// An object as a value, for operations that need more than its text.
fn as_map(object: &Object) -> Map<String, Value> {
    match object.to_value() {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
