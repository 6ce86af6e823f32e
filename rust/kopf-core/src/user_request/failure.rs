//! Failures of calls: their class, the server's reason and causes, and the message.

use crate::json::value::Value;

/// The class of a failure; each one is an exception in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Another rejection.
    Rejected,
    /// 404.
    NotFound,
    /// 409 with the reason `AlreadyExists`.
    AlreadyExists,
    /// 409.
    Conflict,
    /// 409 because of other field managers.
    ApplyConflict,
    /// 401 or 403.
    Forbidden,
    /// 400 or 422.
    Invalid,
    /// 410.
    Gone,
    /// 429.
    TooManyRequests,
    /// 5xx.
    ServerFailed,
    /// There is no response.
    Unreachable,
    /// There is no response in time.
    TimedOut,
}

impl Class {
    /// The name of the exception.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rejected => "ApiError",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::ApplyConflict => "ApplyConflict",
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid",
            Self::Gone => "Gone",
            Self::TooManyRequests => "TooManyRequests",
            Self::ServerFailed => "ServerFailed",
            Self::Unreachable => "Unreachable",
            Self::TimedOut => "TimedOut",
        }
    }

    fn of_status(status: u16, reason: &str, causes: &[Cause]) -> Self {
        match status {
            400 | 422 => Self::Invalid,
            401 | 403 => Self::Forbidden,
            404 => Self::NotFound,
            409 if reason == "AlreadyExists" => Self::AlreadyExists,
            409 if causes.iter().any(|cause| cause.reason == CONFLICT) => Self::ApplyConflict,
            409 => Self::Conflict,
            410 => Self::Gone,
            429 => Self::TooManyRequests,
            500.. => Self::ServerFailed,
            _ => Self::Rejected,
        }
    }
}

/// The reason of the causes of conflicts between field managers.
const CONFLICT: &str = "FieldManagerConflict";

/// One cause of a rejection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// The machine-readable reason.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The field, such as `spec.replicas`.
    pub field: String,
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    /// The other manager.
    pub manager: String,
    /// The field, such as `.spec.replicas`.
    pub field: String,
    /// The subresource by which the manager owns the field; empty for the object itself.
    pub subresource: String,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The class.
    pub class: Class,
    /// The HTTP status; 0 if there is no response.
    pub code: u16,
    /// The server's machine-readable reason.
    pub reason: String,
    /// The server's message, or the error of the connection.
    pub message: String,
    /// The server's details.
    pub details: Value,
    /// The causes in the details.
    pub causes: Vec<Cause>,
    /// The delay that the server requests, in seconds.
    pub retry_after: Option<f64>,
    /// Whether the server may have executed the request.
    pub is_uncertain: bool,
    /// The request, for the message.
    pub subject: String,
    /// The object that exists already, as JSON.
    pub existing: Option<Vec<u8>>,
}

impl Failure {
    /// A rejection by the server: the status, the message, and the `Status` object if there is one.
    pub fn rejected(status: u16, message: &str, payload: Option<&Value>, retry_after: Option<f64>) -> Self {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let details = payload.and_then(|payload| payload.get("details")).cloned().unwrap_or(Value::Null);
        let causes =
            details.get("causes").and_then(Value::as_array).into_iter().flatten().map(|cause| Cause {
                reason: text(cause.get("reason")),
                message: text(cause.get("message")),
                field: text(cause.get("field")),
            });
        let causes: Vec<_> = causes.collect();
        let reason = text(payload.and_then(|payload| payload.get("reason")));
        Self {
            class: Class::of_status(status, &reason, &causes),
            code: status,
            reason,
            message: message.to_owned(),
            details,
            causes,
            retry_after,
            is_uncertain: false,
            subject: String::new(),
            existing: None,
        }
    }

    /// A call without a response.
    pub fn unanswered(class: Class, message: &str) -> Self {
        let empty = Self::rejected(0, message, None, None);
        Self { class, reason: class.name().to_owned(), ..empty }
    }

    /// The whole message.
    pub fn text(&self) -> String {
        let status = match (self.code, self.reason.as_str()) {
            (0, _) => String::new(),
            (code, "") => format!(" ({code})"),
            (code, reason) => format!(" ({code} {reason})"),
        };
        let uncertain = if self.is_uncertain { "; the request may have been executed" } else { "" };
        format!("cannot {}: {}{status}{uncertain}", self.subject, self.message)
    }
}

/// The fields that other managers own, by the causes of a conflict.
pub fn field_conflicts(causes: &[Cause]) -> Vec<FieldConflict> {
    let conflicts = causes.iter().filter(|cause| cause.reason == CONFLICT);
    let quoted = |text: &str, before: &str| -> String {
        let rest = text.split_once(before).map(|(_, rest)| rest).unwrap_or_default();
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    conflicts
        .map(|cause| FieldConflict {
            manager: quoted(&cause.message, "conflict with \""),
            field: cause.field.clone(),
            subresource: quoted(&cause.message, "with subresource \""),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conflicts_name_the_managers_and_their_fields() {
        let status = json!({"kind": "Status", "reason": "Conflict", "details": {"causes": [
            {"reason": CONFLICT, "message": "conflict with \"kubectl\" using apps/v1", "field": ".spec.x"},
            {"reason": CONFLICT, "message": "conflict with \"hpa\" with subresource \"scale\" using v1", "field": ".spec.y"},
        ]}});
        let failure = Failure::rejected(409, "2 conflicts", Some(&status), None);
        assert_eq!(failure.class, Class::ApplyConflict);
        let found = field_conflicts(&failure.causes);
        let found: Vec<_> = found.iter().map(|it| (&*it.manager, &*it.field, &*it.subresource)).collect();
        assert_eq!(found, [("kubectl", ".spec.x", ""), ("hpa", ".spec.y", "scale")]);
    }

    #[test]
    fn messages_name_the_request_and_the_status() {
        let mut failure = Failure::rejected(404, "no such pod", Some(&json!({"reason": "NotFound"})), None);
        failure.subject = "get pods ns/p".to_owned();
        assert_eq!(failure.text(), "cannot get pods ns/p: no such pod (404 NotFound)");
        let lost = Failure {
            is_uncertain: true,
            subject: "create pods in ns".to_owned(),
            ..Failure::unanswered(Class::Unreachable, "cut")
        };
        assert_eq!(lost.text(), "cannot create pods in ns: cut; the request may have been executed");
    }

    #[test]
    fn classes_follow_the_status_and_the_reason() {
        let class = |status, reason: &str| {
            Failure::rejected(status, "", Some(&json!({"reason": reason})), None).class
        };
        assert_eq!(class(409, "AlreadyExists"), Class::AlreadyExists);
        assert_eq!(class(409, "Conflict"), Class::Conflict);
        assert_eq!(class(422, "Invalid"), Class::Invalid);
        assert_eq!(class(503, ""), Class::ServerFailed);
        assert_eq!(class(405, "MethodNotAllowed"), Class::Rejected);
    }
}
