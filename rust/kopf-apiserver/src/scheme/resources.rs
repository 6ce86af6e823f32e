//! Served resources: names, scopes, verbs and subresources.
//!
//! Built-in resources are listed in `builtin/kinds.txt`. The registry is immutable: a change of CRDs creates a new one,
//! so each request sees a consistent set.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::base::names::{GroupResource, api_version, split_api_version};
use crate::schema::Schema;
use crate::scheme::builtin;
use crate::scheme::custom::CustomVersion;

/// Verbs of stored resources.
pub(crate) const ALL_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A subresource.
#[derive(Clone, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: String,
    pub(crate) verbs: Vec<String>,
    /// Group, version and kind, if they differ from the parent's.
    pub(crate) kind: Option<(String, String, String)>,
}

/// A resource in one version.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
    pub(crate) subresources: Vec<Subresource>,
    /// Table of its objects; shared by all versions.
    pub(crate) store_key: Arc<str>,
    /// `apiVersion` of stored objects.
    pub(crate) storage_api_version: String,
    /// Type in `builtin/types.txt`; empty for custom resources.
    pub(crate) type_name: String,
    pub(crate) custom: Option<Arc<CustomVersion>>,
}

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }
    /// Whether this is its `apiVersion`.
    pub(crate) fn is_of_version(&self, text: &str) -> bool {
        split_api_version(text) == (&self.group, &self.version)
    }
    /// Whether a webhook converts the objects between their versions.
    pub(crate) fn is_converted_by_webhook(&self) -> bool {
        self.custom.as_ref().is_some_and(|custom| custom.conversion.is_some())
    }
    /// Group and plural name, for errors.
    pub(crate) fn group_resource(&self) -> GroupResource<'_> {
        GroupResource { group: &self.group, resource: &self.plural }
    }
    /// Go type of the objects, for messages.
    pub(crate) fn go_type(&self) -> String {
        if self.custom.is_some() {
            return "unstructured.Unstructured".into();
        }
        let package = match self.group.split('.').next().unwrap_or_default() {
            "" | "events" => "core",
            package => package,
        };
        format!("{package}.{}", self.kind)
    }
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
    pub(crate) fn schema(&self) -> Arc<Schema> {
        match &self.custom {
            Some(custom) => custom.schema.clone(),
            None => builtin::schema(&self.type_name),
        }
    }
    /// Schema with that of the metadata, which schemas of CRDs omit.
    pub(crate) fn managed_schema(&self) -> Arc<Schema> {
        match &self.custom {
            Some(custom) => custom.managed.clone(),
            None => builtin::schema(&self.type_name),
        }
    }
    /// Whether updates increment `metadata.generation`.
    pub(crate) fn tracks_generation(&self) -> bool {
        self.custom.is_some() || GENERATIONS.contains(&(self.group.as_str(), self.plural.as_str()))
    }
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

const GENERATIONS: [(&str, &str); 26] = [
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
    ("", "podtemplates"),
    ("networking.k8s.io", "ingresses"),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("discovery.k8s.io", "endpointslices"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("resource.k8s.io", "resourceslices"),
    ("resource.k8s.io", "deviceclasses"),
];

/// Versions of a group in order of preference.
#[derive(Debug, Default, Clone)]
pub(crate) struct Group {
    pub(crate) versions: Vec<(String, BTreeMap<String, Arc<Resource>>)>,
}

/// All served resources.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    /// Group names in the order of discovery; the core group is the first.
    pub(crate) order: Vec<String>,
    pub(crate) groups: BTreeMap<String, Group>,
}

static BUILTIN: LazyLock<Registry> = LazyLock::new(parse);

impl Registry {
    pub(crate) fn builtin() -> Self {
        BUILTIN.clone()
    }
    pub(crate) fn version(&self, group: &str, version: &str) -> Option<&BTreeMap<String, Arc<Resource>>> {
        self.groups.get(group)?.versions.iter().find(|(v, _)| v == version).map(|(_, r)| r)
    }
    pub(crate) fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.values().find(|r| r.kind == kind)
    }
    /// Whether a resource is served in any version.
    pub(crate) fn serves(&self, group: &str, plural: &str) -> bool {
        self.groups.get(group).is_some_and(|g| g.versions.iter().any(|(_, r)| r.contains_key(plural)))
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.values().flat_map(|g| g.versions.iter().flat_map(|(_, r)| r.values()))
    }
    /// Stored resources, each in its preferred version.
    pub(crate) fn stored_resources(&self) -> Vec<Arc<Resource>> {
        let mut seen: BTreeMap<&str, &Arc<Resource>> = BTreeMap::new();
        for resource in self.all().filter(|r| r.has_verb("create") && r.has_verb("get")) {
            seen.entry(&resource.store_key).or_insert(resource);
        }
        seen.into_values().cloned().collect()
    }
    pub(crate) fn add(&mut self, resource: Resource) {
        if !self.groups.contains_key(&resource.group) {
            self.order.push(resource.group.clone());
        }
        let group = self.groups.entry(resource.group.clone()).or_default();
        let version = resource.version.clone();
        let at = group.versions.iter().position(|(v, _)| *v == version).unwrap_or_else(|| {
            group.versions.push((version, BTreeMap::new()));
            group.versions.len() - 1
        });
        if let Some((_, resources)) = group.versions.get_mut(at) {
            resources.insert(resource.plural.clone(), Arc::new(resource));
        }
    }
}

fn parse() -> Registry {
    let mut registry = Registry { order: Vec::new(), groups: BTreeMap::new() };
    let (mut group, mut version) = ("", "");
    for line in builtin::KINDS.lines().filter(|l| !l.starts_with('#')) {
        let mut words = line.split(' ');
        if let Some(rest) = line.strip_prefix("group ") {
            let (g, v) = rest.split_once(' ').unwrap_or((rest, ""));
            (group, version) = (if g == "core" { "" } else { g }, v);
            if !registry.groups.contains_key(group) {
                registry.order.push(group.to_owned());
                registry.groups.insert(group.to_owned(), Group::default());
            }
        } else if let (Some(plural), Some(kind), Some(scope)) = (words.next(), words.next(), words.next()) {
            registry.add(parse_resource((group, version), (plural, kind, scope), words));
        }
    }
    registry
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn parse_resource<'a>(
    (group, version): (&str, &str),
    (plural, kind, scope): (&str, &str, &str),
    flags: impl Iterator<Item = &'a str>,
) -> Resource {
    let mut out = Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: scope == "N",
        verbs: ALL_VERBS.iter().map(|s| (*s).to_owned()).collect(),
        subresources: Vec::new(),
        store_key: store_key(group, plural).into(),
        storage_api_version: api_version(group, version),
        type_name: String::new(),
        custom: None,
    };
    // Events and autoscalers have two versions of one table.
    match (group, plural) {
        ("events.k8s.io", "events") => {
            out.store_key = "events".into();
            out.storage_api_version = "v1".into();
        }
        ("autoscaling", "horizontalpodautoscalers") => out.storage_api_version = "autoscaling/v2".into(),
        _ => {}
    }
    for flag in flags {
        if let Some(sub) = flag.strip_prefix('/') {
            out.subresources.push(parse_subresource(sub));
            continue;
        }
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        match name {
            "singular" => value.clone_into(&mut out.singular),
            "short" => out.short_names = list(value),
            "cat" => out.categories = list(value),
            "verbs" if value == "nocollection" => out.verbs.retain(|v| v != "deletecollection"),
            "verbs" => out.verbs = list(value),
            "type" => value.clone_into(&mut out.type_name),
            _ => {}
        }
    }
    out
}

fn parse_subresource(text: &str) -> Subresource {
    let mut parts = text.splitn(3, ':');
    let name = parts.next().unwrap_or_default().to_owned();
    let verbs = list(parts.next().unwrap_or_default());
    let kind = parts.next().and_then(|gvk| {
        let (gv, kind) = gvk.rsplit_once('.')?;
        let (group, version) = gv.split_once('/')?;
        Some((
            if group == "core" { String::new() } else { group.to_owned() },
            version.to_owned(),
            kind.to_owned(),
        ))
    });
    Subresource { name, verbs, kind }
}

/// Table of a resource.
pub(crate) fn store_key(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{group}/{plural}") }
}
