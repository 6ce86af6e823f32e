//! The functions of Kubernetes for authorization checks in expressions of admission. Maps stand for their values.

use std::collections::HashMap;
use std::sync::Arc;

use cel::extractors::This;
use cel::objects::{Key, Map};
use cel::{Context, ExecutionError};

type Cel = cel::Value;
type Text = Arc<String>;

/// An authorization check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Path of a non-resource request; empty for resources.
    pub(crate) path: String,
    /// Name of another user than that of the request.
    pub(crate) service_account: String,
}

/// Decides whether a check is allowed.
pub(crate) type Authorizer = Arc<dyn Fn(&Check) -> bool + Send + Sync>;

/// Functions that add their argument to a check. RBAC does not read the selectors.
const MEMBERS: [&str; 8] =
    ["group", "resource", "subresource", "namespace", "name", "path", "fieldSelector", "labelSelector"];

/// Value of the variable `authorizer`. `request_resource` has the members of the request.
pub(super) fn value(request_resource: &[(&'static str, String)]) -> Cel {
    let members: HashMap<&str, String> = request_resource.iter().cloned().collect();
    HashMap::from([("requestResource", Cel::from(members))]).into()
}

/// Adds the functions.
pub(super) fn add_functions(context: &mut Context, authorizer: &Authorizer) {
    for member in MEMBERS {
        let _ = context
            .add_function(member, move |This(check): This<Cel>, text: Text| with(member, &check, &text));
    }
    let _ = context.add_function("serviceAccount", |This(check): This<Cel>, namespace: Text, name: Text| {
        with("serviceAccount", &check, &format!("system:serviceaccount:{namespace}:{name}"))
    });
    let authorizer = Arc::clone(authorizer);
    let _ = context.add_function(
        "check",
        move |This(check): This<Cel>, verb: Text| -> Result<Cel, ExecutionError> {
            let is_allowed = authorizer(&read(&check, &verb)?);
            let decision = HashMap::from([("allowed", Cel::Bool(is_allowed))]);
            Ok(decision.into())
        },
    );
    let _ = context.add_function("allowed", |This(decision): This<Cel>| -> Result<Cel, ExecutionError> {
        let decision = map("allowed", &decision)?;
        Ok(decision.map.get(&Key::from("allowed")).cloned().unwrap_or(Cel::Bool(false)))
    });
    let _ = context.add_function("errored", |This(_): This<Cel>| -> bool { false });
    for text in ["reason", "error"] {
        let _ = context.add_function(text, |This(_): This<Cel>| -> Cel { String::new().into() });
    }
}

fn map<'m>(function: &str, value: &'m Cel) -> Result<&'m Map, ExecutionError> {
    match value {
        Cel::Map(map) => Ok(map),
        _ => Err(ExecutionError::function_error(function, "no such overload")),
    }
}

/// A check with one more member.
fn with(member: &str, check: &Cel, text: &str) -> Result<Cel, ExecutionError> {
    let mut members: HashMap<Key, Cel> = (*map(member, check)?.map).clone();
    members.insert(Key::from(member), text.into());
    Ok(members.into())
}

fn read(check: &Cel, verb: &str) -> Result<Check, ExecutionError> {
    let members = map("check", check)?;
    let text = |member: &str| match members.map.get(&Key::from(member)) {
        Some(Cel::String(text)) => text.to_string(),
        _ => String::new(),
    };
    Ok(Check {
        verb: verb.to_owned(),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        path: text("path"),
        service_account: text("serviceAccount"),
    })
}
