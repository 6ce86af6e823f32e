//! Validation of volumes, persistent volumes and claims.

use serde_json::{Map, Value};

use super::list;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;
use crate::schema::formats::quantity_value;

/// Sources in the order in which kube-apiserver validates them: the first one counts.
const SOURCES: [&str; 31] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "scaleIO",
    "projected",
    "local",
    "csi",
    "ephemeral",
    "image",
];
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The sources of a volume that are not validated: all but the first.
pub(super) fn skipped_sources(map: &Map<String, Value>) -> Vec<&str> {
    let mut found: Vec<&str> = SOURCES.into_iter().filter(|s| map.contains_key(*s)).skip(1).collect();
    found.sort_unstable();
    found
}

/// Whether a volume has one source, so that it can be mounted.
pub(super) fn has_one_source(volume: &Value) -> bool {
    SOURCES.iter().filter(|s| volume.get(**s).is_some()).count() == 1
}

/// Reports all sources but the first.
fn single_source(volume: &Value, path: &str, out: &mut Vec<Cause>) {
    let found: Vec<&str> = SOURCES.into_iter().filter(|s| volume.get(*s).is_some()).collect();
    if found.is_empty() {
        out.push(Cause::required(path, "must specify a volume type"));
    }
    for other in found.into_iter().skip(1) {
        let shown = match other {
            // As kube-apiserver writes them.
            "downwardAPI" => "downwarAPI",
            "cephfs" => "cephFS",
            other => other,
        };
        out.push(Cause::forbidden(format!("{path}.{shown}"), "may not specify more than 1 volume type"));
    }
}

/// A volume of a pod.
pub(super) fn volume(volume: &Value, path: &str, out: &mut Vec<Cause>) {
    single_source(volume, path, out);
    sources(volume, path, out);
    if let Some(projected) = volume.get("projected") {
        projected_sources(projected, &format!("{path}.projected"), out);
    }
    if let Some(items) = volume.get("downwardAPI") {
        downward_items(items, &format!("{path}.downwardAPI"), out);
    }
}

/// Rules of sources that depend on several fields.
fn sources(volume: &Value, path: &str, out: &mut Vec<Cause>) {
    let first = SOURCES.into_iter().find(|s| volume.get(*s).is_some()).unwrap_or_default();
    let source = volume.get(first).unwrap_or(&Value::Null);
    let path = format!("{path}.{first}");
    match first {
        "flocker"
            if member_text(source, "datasetName").is_empty()
                && member_text(source, "datasetUUID").is_empty() =>
        {
            out.push(Cause::required(path, "one of datasetName and datasetUUID is required"));
        }
        "fc" if list(source, "targetWWNs").is_empty() && list(source, "wwids").is_empty() => {
            let detail = "must specify either targetWWNs or wwids, but not both";
            out.push(Cause::required(format!("{path}.targetWWNs"), detail));
        }
        "quobyte" => {
            let registry = member_text(source, "registry");
            let detail = "must be a host:port pair or multiple pairs separated by commas";
            if registry.is_empty() {
                out.push(Cause::required(format!("{path}.registry"), detail));
            } else if !registry.split(',').all(|pair| pair.contains(':')) {
                out.push(Cause::invalid(format!("{path}.registry"), &registry.into(), detail));
            }
        }
        _ => {}
    }
}

fn projected_sources(projected: &Value, path: &str, out: &mut Vec<Cause>) {
    for (i, source) in list(projected, "sources").iter().enumerate() {
        let place = format!("{path}.sources[{i}]");
        let known = ["secret", "configMap", "downwardAPI", "serviceAccountToken"];
        let count = known.iter().filter(|k| source.get(**k).is_some()).count();
        if count > 1 {
            let detail = "may not specify more than 1 volume type per source";
            out.push(Cause::forbidden(place.clone(), detail));
        }
        if let Some(token) = source.get("serviceAccountToken")
            && member_text(token, "path").is_empty()
        {
            out.push(Cause::required(format!("{path}.path"), ""));
        }
        if let Some(items) = source.get("downwardAPI") {
            downward_items(items, &format!("{place}.downwardAPI"), out);
        }
    }
}

fn downward_items(source: &Value, path: &str, out: &mut Vec<Cause>) {
    for item in list(source, "items") {
        if member_text(item, "path").is_empty() {
            out.push(Cause::required(format!("{path}.path"), ""));
        }
        match (item.get("fieldRef"), item.get("resourceFieldRef")) {
            (Some(_), Some(_)) => {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                out.push(Cause::invalid(path, &"resource".into(), detail));
            }
            (None, None) => {
                out.push(Cause::required(path, "one of fieldRef and resourceFieldRef is required"));
            }
            (None, Some(resource)) if member_text(resource, "containerName").is_empty() => {
                out.push(Cause::required(format!("{path}.resourceFieldRef.containerName"), ""));
            }
            _ => {}
        }
        if let Some(mode) = item.get("mode").and_then(Value::as_i64).filter(|m| !(0..=0o777).contains(m)) {
            let detail = "must be a number between 0 and 0777 (octal), both inclusive";
            out.push(Cause::invalid(format!("{path}.mode"), &mode.into(), detail));
        }
    }
}

fn access_modes(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    for mode in list(spec, "accessModes") {
        if !ACCESS_MODES.contains(&mode.as_str().unwrap_or_default()) {
            let known = ACCESS_MODES.map(str::to_owned);
            out.push(Cause::unsupported(format!("{path}.accessModes"), mode, &known));
        }
    }
}

/// The spec of a persistent volume.
pub(super) fn persistent_volume(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    access_modes(spec, path, out);
    single_source(spec, path, out);
    sources(spec, path, out);
    let capacity = spec.get("capacity");
    let has_only_storage =
        capacity.and_then(Value::as_object).is_some_and(|c| c.len() == 1 && c.contains_key("storage"));
    if !has_only_storage {
        let shown = capacity.unwrap_or(&Value::Null);
        if capacity.is_some_and(|c| c.as_object().is_some_and(Map::is_empty)) {
            out.push(Cause::required(format!("{path}.capacity"), ""));
        }
        let known = ["storage".to_owned()];
        out.push(Cause::unsupported(format!("{path}.capacity"), shown, &known));
    }
    if spec.get("nodeAffinity").is_some_and(|a| a.get("required").is_none()) {
        let detail = "must specify required node constraints";
        out.push(Cause::required(format!("{path}.nodeAffinity.required"), detail));
    }
}

/// The spec of a claim.
pub(super) fn claim(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    access_modes(spec, path, out);
    let field = format!("{path}.resources[storage]");
    match spec.pointer("/resources/requests/storage") {
        None => out.push(Cause::required(field, "")),
        Some(size) => {
            if size.as_str().and_then(quantity_value).is_some_and(|v| v <= 0.0) {
                out.push(Cause::invalid(field, size, "must be greater than zero"));
            }
        }
    }
    for (name, _) in spec.pointer("/resources/requests").and_then(Value::as_object).into_iter().flatten() {
        for error in meta::qualified_name_errors(name) {
            let field = format!("{path}.resources.requests[{name}]");
            out.push(Cause::invalid(field, &name.as_str().into(), &error));
        }
    }
    for key in ["dataSource", "dataSourceRef"] {
        let Some(source) = spec.get(key).filter(|s| s.is_object()) else { continue };
        if member_text(source, "apiGroup").is_empty()
            && member_text(source, "kind") != "PersistentVolumeClaim"
        {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            out.push(Cause::invalid(format!("{path}.{key}"), &source["kind"], detail));
        }
    }
}

/// The address of an Azure disk depends on its kind.
pub(super) fn azure_disk(disk: &Value, path: &str, out: &mut Vec<Cause>) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let is_managed = member_text(disk, "kind") == "Managed";
    let (prefix, known) = if is_managed { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    let address = member_text(disk, "diskURI");
    if !address.starts_with(prefix) {
        out.push(Cause::unsupported(format!("{path}.diskURI"), &address.into(), &[known.to_owned()]));
    }
}

/// The name of an iSCSI target.
pub(super) fn iscsi(source: &Value, is_of_pod: bool, path: &str, out: &mut Vec<Cause>) {
    let name = member_text(source, "iqn");
    if !name.is_empty() && !["iqn", "eui", "naa"].iter().any(|prefix| name.starts_with(prefix)) {
        let detail = if is_of_pod {
            "must be valid format starting with iqn, eui, or naa"
        } else {
            "must be valid format"
        };
        out.push(Cause::invalid(format!("{path}.iqn"), &name.into(), detail));
    }
}
