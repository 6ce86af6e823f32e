//! Built-in admission of pods: their priority, and their runtime class.

use serde_json::Value;

use crate::base::json::{at, member_text};
use crate::error::status::Status;
use crate::scheme::resources::Resource;
use crate::storage::store::Store;

/// Classes that every cluster has.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
const DEFAULT_PREEMPTION: &str = "PreemptLowerPriority";

/// Admits a new pod: sets its priority and its overhead from its classes. Rejects it with 403 if a class does not exist, or if the
/// pod has another priority.
pub(crate) fn admit(store: &Store, resource: &Resource, pod: &mut Value) -> Result<(), Status> {
    if !resource.is("", "pods") {
        return Ok(());
    }
    let name = at(pod, "/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let reject = |why: &str| Status::forbidden(resource.group_resource(), &name, why, &[]);
    let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return Ok(()) };
    let class = priority_class(store, spec).map_err(|why| reject(&why))?;
    if let Some(given) = spec.get("priority").and_then(Value::as_i64)
        && given != class.value
    {
        return Err(reject(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed \
             {} from the given PriorityClass name",
            class.value
        )));
    }
    if let Some(given) = spec.get("preemptionPolicy").and_then(Value::as_str)
        && given != class.preemption
    {
        return Err(reject(&format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller \
             computed {} from the given PriorityClass name",
            class.preemption
        )));
    }
    if !class.name.is_empty() {
        spec["priorityClassName"] = class.name.into();
    }
    spec["priority"] = class.value.into();
    spec["preemptionPolicy"] = class.preemption.into();
    let overhead = overhead_of_class(store, spec).map_err(|why| reject(&format!("pod rejected: {why}")))?;
    if let (Some(fixed), None) = (overhead, spec.get("overhead")) {
        spec["overhead"] = fixed;
    }
    Ok(())
}

/// Rejects a valid pod with 403 if its overhead is not that of its runtime class.
pub(crate) fn validate(store: &Store, resource: &Resource, pod: &Value) -> Result<(), Status> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    if !resource.is("", "pods") || spec.get("overhead").is_none() {
        return Ok(());
    }
    let why = match overhead_of_class(store, spec) {
        Ok(Some(fixed)) if spec.get("overhead") == Some(&fixed) => return Ok(()),
        Ok(Some(_)) => "Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned(),
        Ok(None) => "Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned(),
        Err(why) => why,
    };
    let name = at(pod, "/metadata/name").and_then(Value::as_str).unwrap_or_default();
    Err(Status::forbidden(resource.group_resource(), name, &format!("pod rejected: {why}"), &[]))
}

struct PriorityClass {
    name: String,
    value: i64,
    preemption: String,
}

impl PriorityClass {
    fn from_json(class: &Value) -> Self {
        let preemption = match member_text(class, "preemptionPolicy") {
            "" => DEFAULT_PREEMPTION,
            policy => policy,
        };
        Self {
            name: member_text(&class["metadata"], "name").to_owned(),
            value: class.get("value").and_then(Value::as_i64).unwrap_or_default(),
            preemption: preemption.to_owned(),
        }
    }
}

/// The class of a pod, or the default class of the cluster.
fn priority_class(store: &Store, spec: &Value) -> Result<PriorityClass, String> {
    const TABLE: &str = "scheduling.k8s.io/priorityclasses";
    let name = member_text(spec, "priorityClassName");
    if name.is_empty() {
        let stored = store.list(TABLE, None).objects;
        let classes = stored.iter().map(|class| class.value());
        let default = classes.filter(|class| class["globalDefault"] == Value::Bool(true));
        let lowest = default.map(|class| PriorityClass::from_json(&class)).min_by_key(|class| class.value);
        let none =
            || PriorityClass { name: String::new(), value: 0, preemption: DEFAULT_PREEMPTION.to_owned() };
        return Ok(lowest.unwrap_or_else(none));
    }
    if let Some((name, value)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
        let (name, preemption) = ((*name).to_owned(), DEFAULT_PREEMPTION.to_owned());
        return Ok(PriorityClass { name, value: *value, preemption });
    }
    let found = store.get(TABLE, "", name).map(|class| PriorityClass::from_json(&class.value()));
    found.ok_or_else(|| format!("no PriorityClass with name {name} was found"))
}

/// The overhead that the runtime class of a pod defines.
fn overhead_of_class(store: &Store, spec: &Value) -> Result<Option<Value>, String> {
    let name = member_text(spec, "runtimeClassName");
    if name.is_empty() {
        return Ok(None);
    }
    let class = store.get("node.k8s.io/runtimeclasses", "", name);
    let class = class.ok_or_else(|| format!("RuntimeClass \"{name}\" not found"))?.value();
    Ok(at(&class, "/overhead/podFixed").cloned())
}
