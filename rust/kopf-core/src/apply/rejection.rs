//! What rejections of an apply mean.

use super::marks::{MARK, PART_OF};
use crate::request_error::SECOND_CONTROLLER;
use crate::user_request::{Class, Failure, FieldConflict, field_conflicts};

/// The meaning of a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The object belongs to another owner or `ApplySet`.
    Ownership,
    /// Other managers own these fields.
    Conflicts(Vec<FieldConflict>),
    /// An immutable field would change.
    Immutable,
    /// Something else.
    Other,
}

/// The meaning of a failed apply.
pub fn classify(failure: &Failure) -> Rejection {
    match failure.class {
        Class::ApplyConflict => {
            let conflicts = field_conflicts(&failure.causes);
            let marks = [format!(".metadata.labels.{PART_OF}"), format!(".metadata.annotations.{MARK}")];
            if conflicts.iter().any(|conflict| marks.contains(&conflict.field)) {
                Rejection::Ownership
            } else {
                Rejection::Conflicts(conflicts)
            }
        }
        Class::Invalid if has_second_controller(failure) => Rejection::Ownership,
        Class::Invalid
            if failure.code == 422
                && failure.causes.iter().any(|it| is_immutable(&it.reason, &it.message)) =>
        {
            Rejection::Immutable
        }
        _ => Rejection::Other,
    }
}

/// Whether the object has the controller reference of another owner. Of Secrets, only the causes are known.
fn has_second_controller(failure: &Failure) -> bool {
    let mut messages = failure.causes.iter().map(|cause| &cause.message).chain([&failure.message]);
    messages.any(|message| message.contains(SECOND_CONTROLLER))
}

/// Stateful sets and others report immutable fields as forbidden.
fn is_immutable(reason: &str, message: &str) -> bool {
    let text = message.to_ascii_lowercase();
    matches!(reason, "FieldValueInvalid" | "FieldValueForbidden")
        && (text.contains("immutable")
            || text.contains("forbidden: updates to")
            || text.starts_with("updates to"))
}
