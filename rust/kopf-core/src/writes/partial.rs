//! Partial patches: the acceptable parts of a patch that the server repeatedly rejects as a whole.
//!
//! The outcomes of handlers are written first: they are in our annotations, which schemas do not restrict. The fields
//! not named in the response follow. The rest is a [`Rejection`]: it is logged, and sent again later, separately.

use super::merged::Ended;
use super::merging::Merging;
use super::outcome::WriteFailure;
use super::rejection::{Rejection, named_fields};
use super::sending::Pending;
use super::{Input, Scope};
use crate::json::merge_patch::{Patch, subtract};
use crate::json::value::{Map, Value};
use crate::persistence::{Persistence, own_annotations, pending_state};
use crate::request_error::RequestError;

/// The writing of those parts of a rejected patch that the server accepts.
#[derive(Clone, Debug)]
pub(super) struct PartialMerge {
    /// The rejection of the whole patch.
    cause: RequestError,
    whole: Map<String, Value>,
    /// The parts to be tried, each with the rest.
    parts: std::vec::IntoIter<(Map<String, Value>, Map<String, Value>)>,
    /// The part that is being written, and the rest.
    current: Option<(Merging, Map<String, Value>)>,
}

impl PartialMerge {
    /// Begins after the rejection of a patch.
    pub(super) fn begin(
        cause: RequestError,
        persistence: &Persistence,
        scope: &mut Scope<'_>,
    ) -> (Self, Option<Ended>) {
        let whole = std::mem::take(&mut scope.outcome.unwritten);
        let own = own_annotations::own_annotations(scope.object, &whole, persistence);
        let parts = parts(own, &whole, &cause).into_iter();
        let mut partial = Self { cause, whole, parts, current: None };
        let ended = partial.proceed(scope);
        (partial, ended)
    }

    pub(super) fn pending(&self) -> Option<Pending<'_>> {
        self.current.as_ref().and_then(|(merging, _)| merging.pending())
    }

    /// The end: the rejection, if the server accepts no part; both errors, if writing a part has failed for another reason.
    pub(super) fn on(&mut self, input: Input, scope: &mut Scope<'_>) -> Option<Ended> {
        let (merging, _) = self.current.as_mut()?;
        let ended = merging.on(input, &Map::new(), scope)?;
        self.after_part(ended, scope)
    }

    fn proceed(&mut self, scope: &mut Scope<'_>) -> Option<Ended> {
        let Some((kept, rest)) = self.parts.next() else {
            scope.outcome.unwritten = std::mem::take(&mut self.whole);
            return Some(Err(self.cause.clone().into()));
        };
        let kept = match scope.context.release_cleanup {
            Some((resource_handlers, persistence)) => {
                pending_state::without_rejected(kept, &rest, scope.object, persistence, resource_handlers)
            }
            None => kept,
        };
        if kept.is_empty() {
            self.written(rest, scope);
            return Some(Ok(()));
        }
        let (merging, ended) = Merging::begin(kept, &Map::new(), false, scope);
        self.current = Some((merging, rest));
        ended.and_then(|ended| self.after_part(ended, scope))
    }

    fn after_part(&mut self, ended: Ended, scope: &mut Scope<'_>) -> Option<Ended> {
        let (_, rest) = self.current.take()?;
        match ended {
            Ok(()) => {
                self.written(rest, scope);
                Some(Ok(()))
            }
            Err(failure) if failure.is_rejection() => self.proceed(scope),
            Err(WriteFailure::Request(error)) if error.status() != Some(404) => {
                scope.outcome.unwritten = std::mem::take(&mut self.whole);
                let rejection = Box::new(self.cause.clone().into());
                Some(Err(WriteFailure::Partial { rejection, error }))
            }
            Err(failure) => Some(Err(failure)),
        }
    }

    fn written(&self, rest: Map<String, Value>, scope: &mut Scope<'_>) {
        if !rest.is_empty() {
            let error = self.cause.clone();
            scope.outcome.rejections.push(Rejection { patch: rest, is_status: false, error });
        }
    }
}

/// The parts to be written and the respective rest, the largest part first.
fn parts(
    own: Map<String, Value>,
    patch: &Map<String, Value>,
    cause: &RequestError,
) -> Vec<(Map<String, Value>, Map<String, Value>)> {
    let rest = subtract(patch.clone(), &own);
    let named = named_fields(cause, &rest);
    let unnamed = subtract(rest.clone(), &named);
    let mut parts = Vec::new();
    if !named.is_empty() && !unnamed.is_empty() {
        let mut more = Patch(own.clone());
        more.merge(unnamed);
        parts.push((more.0, named));
    }
    parts.push((own, rest));
    parts
}
