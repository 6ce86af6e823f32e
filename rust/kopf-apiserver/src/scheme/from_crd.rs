//! Resources of a CRD.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::base::json::{member_text, strings};
use crate::base::names::api_version;
use crate::schema::Schema;
use crate::scheme::custom::{CustomVersion, ScalePaths};
use crate::scheme::resources::{ALL_VERBS, Resource, Subresource, store_key};

/// Sort key of versions: stable before beta before alpha, then newest first.
fn priority(version: &str) -> (u8, u64, u64) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest.get(..digits).and_then(|d| d.parse().ok()).unwrap_or(0);
    let tail = rest.get(digits..).unwrap_or_default();
    let (rank, number) = if tail.is_empty() {
        (3, "0")
    } else if let Some(number) = tail.strip_prefix("beta") {
        (2, number)
    } else if let Some(number) = tail.strip_prefix("alpha") {
        (1, number)
    } else {
        (0, "0")
    };
    (rank, major, number.parse().unwrap_or(0))
}

/// Resources of the served versions.
pub(crate) fn resources_of(crd: &Value) -> Vec<Resource> {
    let spec = &crd["spec"];
    let mut versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    versions.sort_by_key(|v| std::cmp::Reverse(priority(member_text(v, "name"))));
    let storage =
        versions.iter().find(|v| v["storage"] == Value::Bool(true)).map_or("", |v| member_text(v, "name"));
    let served = versions.iter().filter(|v| v["served"] == Value::Bool(true));
    served.map(|version| resource_of(crd, spec, version, storage)).collect()
}

fn resource_of(crd: &Value, spec: &Value, version: &Value, storage: &str) -> Resource {
    let names = &spec["names"];
    let owned = |key: &str| member_text(names, key).to_owned();
    let (group, plural) = (member_text(spec, "group").to_owned(), owned("plural"));
    let verbs = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let mut subresources = Vec::new();
    let declared = version.get("subresources").unwrap_or(&Value::Null);
    if declared.get("status").is_some() {
        subresources.push(Subresource {
            name: "status".into(),
            verbs: verbs(&["get", "patch", "update"]),
            kind: None,
        });
    }
    if declared.get("scale").is_some() {
        let kind = Some(("autoscaling".into(), "v1".into(), "Scale".into()));
        subresources.push(Subresource {
            name: "scale".into(),
            verbs: verbs(&["get", "patch", "update"]),
            kind,
        });
    }
    let scale = declared.get("scale").map(|s| {
        let selector = s.get("labelSelectorPath").and_then(Value::as_str).map(str::to_owned);
        Arc::new(ScalePaths {
            spec: member_text(s, "specReplicasPath").into(),
            status: member_text(s, "statusReplicasPath").into(),
            selector,
        })
    });
    let schema = version.pointer("/schema/openAPIV3Schema").map_or_else(Schema::any, Schema::from_json);
    let mut managed = with_embedded_metadata(&schema);
    managed.properties.insert("metadata".into(), crate::scheme::builtin::schema("meta.v1.ObjectMeta"));
    let selectable = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    Resource {
        store_key: store_key(&group, &plural).into(),
        storage_api_version: api_version(&group, storage),
        version: member_text(version, "name").to_owned(),
        singular: owned("singular"),
        kind: owned("kind"),
        list_kind: owned("listKind"),
        short_names: strings(names.get("shortNames")),
        categories: strings(names.get("categories")),
        namespaced: member_text(spec, "scope") == "Namespaced",
        verbs: verbs(&ALL_VERBS),
        subresources,
        type_name: String::new(),
        custom: Some(Arc::new(CustomVersion {
            crd: crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            published: version
                .pointer("/schema/openAPIV3Schema")
                .cloned()
                .unwrap_or_else(|| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
            managed: Arc::new(managed),
            has_rules: crate::schema::cel::has_rules(&schema),
            schema: Arc::new(schema),
            columns: version
                .get("additionalPrinterColumns")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            selectable: selectable
                .map(|f| member_text(f, "jsonPath").trim_start_matches('.').to_owned())
                .collect(),
            scale,
        })),
        group,
        plural,
    }
}

/// The schema with the metadata of embedded objects, which CRDs omit.
fn with_embedded_metadata(schema: &Schema) -> Schema {
    let mut out = schema.clone();
    let below = |s: &Arc<Schema>| Arc::new(with_embedded_metadata(s));
    out.items = schema.items.as_ref().map(below);
    out.additional = schema.additional.as_ref().map(below);
    out.properties = schema.properties.iter().map(|(name, s)| (name.clone(), below(s))).collect();
    if schema.embedded {
        out.properties
            .entry("metadata".into())
            .or_insert_with(|| crate::scheme::builtin::schema("meta.v1.ObjectMeta"));
    }
    out
}
