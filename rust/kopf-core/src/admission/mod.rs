//! Admission: what an admission review asks, which handlers it is for, and what it is answered.
//!
//! Owns the reading of reviews, the choice of handlers, and the answers with their priority of errors; `configuration` is what
//! the cluster is told of the webhooks. Must not know: how reviews come, or how handlers are called.
//! Rules: contract/engine 3.4, contract/api 9.

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
pub use response::{Denial, ErrorPrecedence, answer, operations};

/// Why a review cannot be answered. The same review fails again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The text is not JSON.
    #[error("{0}")]
    NotJson(String),
    /// It is JSON, but not a review: something that is always there is not, or is of another type.
    #[error("{0}")]
    Malformed(String),
    /// An object is nested more deeply than handlers can look at. It must not pass for that reason, not even where failures
    /// are ignored: so the review is answered, with a denial.
    #[error("{message}")]
    TooDeep {
        /// What is wrong.
        message: String,
        /// The answer as JSON.
        denial: String,
    },
    /// What the review is about is not in it.
    #[error("{0}")]
    MissingData(&'static str),
    /// The review is addressed to a handler that is not declared.
    #[error("There is no admission handler with the id {0:?}.")]
    UnknownHandler(String),
    /// No handler is for that resource.
    #[error("The specified resource has no handlers: {0}")]
    UnknownResource(String),
    /// Several resources are meant by the same words.
    #[error("The specified resource is ambiguous: {0}")]
    AmbiguousResource(String),
}

/// The handler or the type of webhook that the URL of a review names.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReviewFilter<'a> {
    /// The id of the only handler that is asked. None is for all handlers; an unknown one is for none.
    pub webhook: Option<&'a str>,
    /// `validating` or `mutating`: only handlers of this type are asked.
    pub reason: Option<&'a str>,
}

/// A handler that is to be called for a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its position in the registry.
    pub handler: usize,
    /// Whether its filters have callbacks, which have the last word.
    pub guarded: bool,
}

/// The resources with admission handlers, each with its handlers in the order of their declaration.
#[derive(Debug, Clone, Default)]
pub struct AdmissionResources(pub Vec<(Arc<Resource>, Vec<usize>)>);

impl AdmissionResources {
    /// Chooses among the scanned resources. `wanted` is the verdict of selectors that are functions.
    ///
    /// What one handler brings in, is served to all others that it fits, too.
    pub fn select(
        handlers: &[Handler],
        scanned: &[Arc<Resource>],
        wanted: &dyn Fn(usize, &Resource) -> bool,
    ) -> Self {
        let webhooks = || handlers.iter().enumerate().filter(|(_, one)| matches!(one.kind, Kind::Webhook(_)));
        let mut resources: Vec<Arc<Resource>> =
            webhooks().flat_map(|(index, handler)| found(handler, index, scanned, wanted)).collect();
        let key = |one: &Arc<Resource>| (one.group.clone(), one.plural.clone(), one.version.clone());
        resources.sort_by_key(key);
        resources.dedup();
        let served = resources.into_iter().map(|resource| {
            let fits = |handler: &Handler, index: usize| {
                handler.selector.as_ref().is_none_or(|selector| {
                    selector.check(&resource) && (!selector.callable || wanted(index, &resource))
                })
            };
            let fitting = webhooks().filter(|(index, handler)| fits(handler, *index));
            let fitting = fitting.map(|(index, _)| index).collect();
            (resource, fitting)
        });
        Self(served.collect())
    }

    /// What a review is about. It is named exactly, so that nothing is guessed.
    pub fn find(&self, wanted: &RequestedResource) -> Result<(&Arc<Resource>, &[usize]), ReviewError> {
        let fits = |one: &&(Arc<Resource>, Vec<usize>)| {
            one.0.group == wanted.group && one.0.version == wanted.version && one.0.plural == wanted.plural
        };
        let mut found = self.0.iter().filter(fits);
        let told = || python_repr(&wanted.told);
        match (found.next(), found.next()) {
            (None, _) => Err(ReviewError::UnknownResource(told())),
            (Some(_), Some(_)) => Err(ReviewError::AmbiguousResource(told())),
            (Some((resource, handlers)), None) => Ok((resource, handlers)),
        }
    }
}

/// The handlers that a review is for, of those that are for its resource; `handlers` are all that are declared.
///
/// Operations are not looked at, as the server has done it; only mutations of what is being deleted must be asked for
/// in so many words.
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

/// An object as a value, for what cannot be done on its text.
fn as_map(object: &Object) -> Map<String, Value> {
    match object.to_value() {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
