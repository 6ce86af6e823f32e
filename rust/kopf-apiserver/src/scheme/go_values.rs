//! Values in messages as Go formats them: JSON of the published structs, and of the internal structs of kube-apiserver,
//! which have no JSON names and write all their fields.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{builtin, protobuf};
use crate::schema::{Schema, Type};

const INTERNAL: &str = include_str!("builtin/internal.txt");

/// Field of an internal struct.
struct GoField {
    name: String,
    json: String,
    /// Value of an absent field; an empty object stands for a struct.
    zero: Value,
}

static TYPES: LazyLock<HashMap<&'static str, Vec<GoField>>> = LazyLock::new(|| {
    let mut out: HashMap<&str, Vec<GoField>> = HashMap::new();
    let mut current = "";
    for line in INTERNAL.lines().filter(|l| !l.starts_with('#')) {
        let Some(field) = line.strip_prefix(' ') else {
            current = line;
            continue;
        };
        let mut words = field.split(' ').map(str::to_owned);
        let (name, json) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let zero = words.next().and_then(|zero| serde_json::from_str(&zero).ok()).unwrap_or_default();
        out.entry(current).or_default().push(GoField { name, json, zero });
    }
    out
});

/// Go names of fields that are not the JSON name with a capital letter.
const NAMES: [(&str, &str); 30] = [
    ("apiGroup", "APIGroup"),
    ("apiVersion", "APIVersion"),
    ("awsElasticBlockStore", "AWSElasticBlockStore"),
    ("caBundle", "CABundle"),
    ("cephfs", "CephFS"),
    ("cidr", "CIDR"),
    ("csi", "CSI"),
    ("diskURI", "DataDiskURI"),
    ("dnsConfig", "DNSConfig"),
    ("dnsPolicy", "DNSPolicy"),
    ("fc", "FC"),
    ("fsGroup", "FSGroup"),
    ("fsGroupChangePolicy", "FSGroupChangePolicy"),
    ("fsType", "FSType"),
    ("gcePersistentDisk", "GCEPersistentDisk"),
    ("gmsaCredentialSpec", "GMSACredentialSpec"),
    ("gmsaCredentialSpecName", "GMSACredentialSpecName"),
    ("grpc", "GRPC"),
    ("httpGet", "HTTPGet"),
    ("httpHeaders", "HTTPHeaders"),
    ("ip", "IP"),
    ("iqn", "IQN"),
    ("iscsi", "ISCSI"),
    ("iscsiInterface", "ISCSIInterface"),
    ("jsonPath", "JSONPath"),
    ("nfs", "NFS"),
    ("rbd", "RBD"),
    ("storageos", "StorageOS"),
    ("tcpSocket", "TCPSocket"),
    ("targetWWNs", "TargetWWNs"),
];

/// Further names in the types of Ceph block devices.
const RBD_NAMES: [(&str, &str); 4] =
    [("image", "RBDImage"), ("monitors", "CephMonitors"), ("pool", "RBDPool"), ("user", "RadosUser")];

fn go_name(type_name: &str, json: &str) -> String {
    let is_rbd = type_name.starts_with("core.v1.RBD");
    let listed = NAMES.iter().chain(RBD_NAMES.iter().filter(|_| is_rbd));
    if let Some((_, go)) = listed.into_iter().find(|(name, _)| *name == json) {
        return (*go).to_owned();
    }
    if json.starts_with("seLinux") {
        return json.replacen("seLinux", "SELinux", 1);
    }
    if json.ends_with("wwids") {
        return "WWIDs".to_owned();
    }
    let mut letters = json.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Fields of an internal struct: listed ones, or those of the published type.
fn fields_of(type_name: &str, schema: &Schema) -> Vec<(String, String, Value)> {
    if let Some(listed) = TYPES.get(type_name) {
        return listed.iter().map(|f| (f.name.clone(), f.json.clone(), f.zero.clone())).collect();
    }
    let embedded = protobuf::embedded_types(type_name);
    let mut out = Vec::new();
    let mut inlined: Vec<&str> = Vec::new();
    for holder in &embedded {
        if let Some(listed) = TYPES.get(holder) {
            inlined.extend(listed.iter().map(|f| f.json.as_str()));
        }
    }
    for name in published_order(type_name) {
        if !inlined.contains(&name) {
            let zero = schema.properties.get(name).map_or(Value::Null, |known| zero_of(known, name, schema));
            out.push((go_name(type_name, name), name.to_owned(), zero));
        }
    }
    for field in embedded.iter().filter_map(|holder| TYPES.get(holder)).flatten() {
        out.push((field.name.clone(), field.json.clone(), field.zero.clone()));
    }
    out
}

/// Zero value of a field in Go.
fn zero_of(field: &Schema, name: &str, holder: &Schema) -> Value {
    if let Some(written) = field.always_written.as_ref().filter(|w| !w.is_null()) {
        return if written.is_object() { json!({}) } else { zero_scalar(field) };
    }
    let is_scalar =
        protobuf::omits_zero(&holder.type_name, name) || holder.required.iter().any(|r| r == name);
    let is_pointer = matches!(field.kind, Type::Object | Type::Array | Type::Any) || !is_scalar;
    if is_pointer { Value::Null } else { zero_scalar(field) }
}

fn zero_scalar(field: &Schema) -> Value {
    match field.kind {
        Type::String => "".into(),
        Type::Integer | Type::Number | Type::IntOrString => 0.into(),
        Type::Boolean => false.into(),
        Type::Quantity => "0".into(),
        _ => Value::Null,
    }
}

/// The value of a built-in type as an internal struct.
pub(crate) fn internal(value: &Value, schema: &Schema) -> Value {
    match value {
        Value::Object(map) if schema.type_name.starts_with("meta.v1.") => ordered_object(map, schema),
        Value::Object(map) if schema.type_name.is_empty() => {
            let any = Schema::any();
            let below = schema.additional.as_deref().unwrap_or(&any);
            sorted(map).map(|(k, v)| (k.clone(), internal(v, below))).collect()
        }
        Value::Object(map) => internal_struct(map, schema),
        Value::Array(list) => match &schema.items {
            Some(items) => list.iter().map(|item| internal(item, items)).collect(),
            None => value.clone(),
        },
        _ => value.clone(),
    }
}

fn internal_struct(map: &Map<String, Value>, schema: &Schema) -> Value {
    // The internal security context has the flags of the host.
    let mut moved = None;
    if schema.type_name == "core.v1.PodSpec"
        && let Some(Value::Object(context)) = map.get("securityContext")
    {
        let mut context = context.clone();
        for key in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"] {
            if let Some(flag) = map.get(key) {
                context.insert(key.to_owned(), flag.clone());
            }
        }
        moved = Some(Value::Object(context));
    }
    let mut out = Map::new();
    for (name, json, zero) in fields_of(&schema.type_name, schema) {
        let any = Schema::any();
        let below = schema.properties.get(&json).map_or(&any, |s| s);
        let given =
            if json == "securityContext" { moved.as_ref().or(map.get(&json)) } else { map.get(&json) };
        match given.filter(|v| !v.is_null()) {
            Some(given) if name == "+" => {
                if let Value::Object(embedded) = ordered(given, below) {
                    out.extend(embedded);
                }
            }
            _ if name == "+" => {}
            Some(given) => {
                out.insert(name, internal(given, below));
            }
            None if zero.is_object() => {
                out.insert(name, internal(&zero, below));
            }
            None => {
                out.insert(name, zero);
            }
        }
    }
    Value::Object(out)
}

fn sorted(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(key, _)| *key);
    members.into_iter()
}

/// The value of a built-in type with its members in the order of Go: fields of structs, and sorted keys of maps.
pub(crate) fn ordered(value: &Value, schema: &Schema) -> Value {
    match value {
        Value::Object(map) => ordered_object(map, schema),
        Value::Array(list) => {
            let any = Schema::any();
            let items = schema.items.as_deref().unwrap_or(&any);
            list.iter().map(|item| ordered(item, items)).collect()
        }
        _ => value.clone(),
    }
}

/// Fields of Go structs that do not follow the numbers of protocol buffers: the type, the field, and the one before it.
const MOVED: [(&str, &str, &str); 27] = [
    ("batch.v1.JobSpec", "podFailurePolicy", "activeDeadlineSeconds"),
    ("batch.v1.JobSpec", "successPolicy", "podFailurePolicy"),
    ("batch.v1.JobSpec", "backoffLimit", "successPolicy"),
    ("batch.v1.JobSpec", "backoffLimitPerIndex", "backoffLimit"),
    ("batch.v1.JobSpec", "maxFailedIndexes", "backoffLimitPerIndex"),
    ("apps.v1.ReplicaSetSpec", "minReadySeconds", "replicas"),
    ("core.v1.NodeSpec", "podCIDRs", "podCIDR"),
    ("core.v1.ReplicationControllerSpec", "minReadySeconds", "replicas"),
    ("core.v1.PersistentVolumeClaimSpec", "selector", "accessModes"),
    ("core.v1.PodSpec", "automountServiceAccountToken", "serviceAccount"),
    ("core.v1.PodSecurityContext", "windowsOptions", "seLinuxOptions"),
    ("core.v1.PodSecurityContext", "runAsGroup", "runAsUser"),
    ("core.v1.SecurityContext", "windowsOptions", "seLinuxOptions"),
    ("core.v1.SecurityContext", "runAsGroup", "runAsUser"),
    ("core.v1.ServicePort", "appProtocol", "protocol"),
    ("core.v1.PodSpec", "initContainers", "volumes"),
    ("core.v1.PodSpec", "ephemeralContainers", "containers"),
    ("core.v1.Container", "envFrom", "ports"),
    ("core.v1.Container", "resizePolicy", "resources"),
    ("core.v1.Container", "restartPolicy", "resizePolicy"),
    ("core.v1.Container", "restartPolicyRules", "restartPolicy"),
    ("core.v1.Container", "startupProbe", "readinessProbe"),
    ("core.v1.Container", "terminationMessagePolicy", "terminationMessagePath"),
    ("core.v1.ServiceSpec", "clusterIPs", "clusterIP"),
    ("core.v1.ServiceSpec", "ipFamilies", "publishNotReadyAddresses"),
    ("core.v1.ServiceSpec", "sessionAffinityConfig", "publishNotReadyAddresses"),
    ("autoscaling.v2.HPAScalingRules", "stabilizationWindowSeconds", ""),
];

/// Fields of a published type in the order of its Go struct.
fn published_order(type_name: &str) -> Vec<&'static str> {
    let mut order = protobuf::field_order(type_name);
    for (_, field, before) in MOVED.iter().filter(|(moved, _, _)| *moved == type_name) {
        order.retain(|name| name != field);
        let place = order.iter().position(|name| name == before).map_or(0, |i| i + 1);
        order.insert(place, field);
    }
    order
}

fn ordered_object(map: &Map<String, Value>, schema: &Schema) -> Value {
    let any = Schema::any();
    let below =
        |key: &String, value: &Value| (key.clone(), ordered(value, schema.child(key).map_or(&any, |s| s)));
    if schema.type_name.is_empty() {
        return sorted(map).map(|(k, v)| below(k, v)).collect();
    }
    let order = published_order(&schema.type_name);
    let place = |key: &str| match key {
        "kind" if !order.contains(&"kind") => Some(0),
        "apiVersion" if !order.contains(&"apiVersion") => Some(1),
        _ => order.iter().position(|name| *name == key).map(|i| i + 2),
    };
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by_key(|(key, _)| place(key).unwrap_or(usize::MAX));
    members.into_iter().map(|(k, v)| below(k, v)).collect()
}

/// Sorts the members that a merge patch has, as maps of Go have them.
pub(crate) fn sort_patched(value: &mut Value, patch: &Value) {
    let (Value::Object(map), Value::Object(changes)) = (&mut *value, patch) else { return };
    map.sort_keys();
    for (key, change) in changes {
        if let Some(child) = map.get_mut(key) {
            sort_patched(child, change);
        }
    }
}

/// The internal struct that a value embeds.
pub(crate) fn embedded(value: &Value, schema: &Schema, type_name: &str) -> Value {
    let any = Schema::any();
    let fields = TYPES.get(type_name).map(Vec::as_slice).unwrap_or_default();
    let member = |field: &GoField| {
        let below = schema.properties.get(&field.json).map_or(&any, |s| s);
        let given = value.get(&field.json).map_or_else(|| field.zero.clone(), |v| internal(v, below));
        (field.name.clone(), given)
    };
    fields.iter().map(member).collect()
}

/// An internal struct of a built-in type, as JSON for messages.
pub(crate) fn internal_text(value: &Value, type_name: &str) -> String {
    escape(&internal(value, &builtin::schema(type_name)).to_string())
}

/// Escapes the characters that Go escapes in JSON.
pub(crate) fn escape(text: &str) -> String {
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_structs_write_all_fields() {
        let role = json!({"name": "r", "kind": "Role"});
        assert_eq!(internal_text(&role, "rbac.v1.RoleRef"), r#"{"APIGroup":"","Kind":"Role","Name":"r"}"#);
        let rules = json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "<"}]}]});
        assert_eq!(
            internal_text(&rules, "batch.v1.PodFailurePolicy"),
            r#"{"Rules":[{"Action":"Ignore","OnExitCodes":null,"OnPodConditions":[{"Type":"\u003c","Status":""}]}]}"#
        );
        let template = json!({"metadata": {"labels": {"b": "1", "a": "2"}}, "spec": {"hostNetwork": true, "securityContext": {}}});
        let shown = internal_text(&template, "core.v1.PodTemplateSpec");
        assert!(shown.starts_with(r#"{"labels":{"a":"2","b":"1"},"Spec":{"Volumes":null,"#), "{shown}");
        assert!(shown.contains(r#""SecurityContext":{"HostNetwork":true,"HostPID":false,"#), "{shown}");
    }

    #[test]
    fn some_fields_do_not_follow_their_numbers() {
        let job = json!({"selector": {}, "backoffLimit": 1, "podFailurePolicy": {}, "parallelism": 1});
        let text = ordered(&job, &builtin::schema("batch.v1.JobSpec")).to_string();
        assert_eq!(text, r#"{"parallelism":1,"podFailurePolicy":{},"backoffLimit":1,"selector":{}}"#);
    }

    #[test]
    fn published_structs_have_the_order_of_go() {
        let schema = builtin::schema("core.v1.ObjectReference");
        let value = json!({"name": "n", "namespace": "s", "kind": "k"});
        assert_eq!(ordered(&value, &schema).to_string(), r#"{"kind":"k","namespace":"s","name":"n"}"#);
        let mut patched = json!({"spec": {"b": 1, "a": {"d": 1, "c": 2}}, "kind": "k"});
        sort_patched(&mut patched, &json!({"spec": {"b": 2}}));
        assert_eq!(patched.to_string(), r#"{"kind":"k","spec":{"a":{"d":1,"c":2},"b":1}}"#);
    }
}
