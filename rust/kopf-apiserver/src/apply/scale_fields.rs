//! Managed fields of the scale subresource, which are those of the number of replicas of its parent.

use std::collections::BTreeMap;

use super::field_set::{Path, Set};
use super::managed_fields::ManagedFieldsEntry;

/// `apiVersion` of a scale.
pub(crate) const SCALE_VERSION: &str = "autoscaling/v1";

/// The path of the number of replicas by the `apiVersion` of the parent; `None` in versions that have no scale.
pub(crate) type ReplicasPaths = BTreeMap<String, Option<Path>>;

/// The path of the number of replicas in a scale.
fn replicas() -> Path {
    vec!["f:spec".into(), "f:replicas".into()]
}

/// A path like `.spec.replicas`.
pub(crate) fn path_of(text: &str) -> Path {
    text.trim_start_matches('.').split('.').map(|name| format!("f:{name}").into()).collect()
}

/// The entries of the parent that have the number of replicas, as those of the scale.
pub(crate) fn to_scale(parent: &[ManagedFieldsEntry], paths: &ReplicasPaths) -> Vec<ManagedFieldsEntry> {
    let has_replicas = |entry: &&ManagedFieldsEntry| {
        paths
            .get(&entry.api_version)
            .is_some_and(|path| path.as_ref().is_some_and(|it| entry.set.contains(it)))
    };
    let in_scale = |entry: &ManagedFieldsEntry| ManagedFieldsEntry {
        api_version: SCALE_VERSION.to_owned(),
        set: Set::from([replicas()]),
        ..entry.clone()
    };
    parent.iter().filter(has_replicas).map(in_scale).collect()
}

/// The entries of the parent after a write of the scale. `scale` are the entries of the scale after it, `api_version` is that of the
/// request. Entries of unknown versions are dropped.
///
/// As in kube-apiserver, the number of replicas moves from an entry of an update to one without a time, even if it has the same manager.
pub(crate) fn to_parent(
    parent: Vec<ManagedFieldsEntry>,
    mut scale: Vec<ManagedFieldsEntry>,
    paths: &ReplicasPaths,
    api_version: &str,
) -> Vec<ManagedFieldsEntry> {
    // Entries without fields are not written.
    scale.retain(|entry| !entry.set.is_empty());
    let mut entries = Vec::new();
    for mut entry in parent {
        let Some(path) = paths.get(&entry.api_version) else { continue };
        if let Some(path) = path.as_ref().filter(|path| entry.set.contains(*path)) {
            match scale.iter().position(|other| other.has_same_manager(&entry)) {
                Some(kept) => drop(scale.remove(kept)),
                None => drop(entry.set.remove(path)),
            }
        }
        entries.push(entry);
    }
    let Some(Some(path)) = paths.get(api_version) else { return entries };
    entries.extend(scale.into_iter().filter(|entry| entry.set.contains(&replicas())).map(|entry| {
        let (api_version, time) = (api_version.to_owned(), String::new());
        ManagedFieldsEntry { api_version, time, set: Set::from([path.clone()]), ..entry }
    }));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, apply: bool, version: &str, fields: &[&str]) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: manager.into(),
            apply,
            api_version: version.into(),
            time: "10".into(),
            subresource: String::new(),
            set: fields.iter().map(|field| path_of(field)).collect(),
        }
    }

    fn paths() -> ReplicasPaths {
        let path = |text: &str| Some(path_of(text));
        [("a/v1", path(".spec.size")), ("a/v2", path(".spec.count")), ("a/v3", None)]
            .map(|(version, path)| (version.to_owned(), path))
            .into()
    }

    fn parent() -> Vec<ManagedFieldsEntry> {
        vec![
            entry("ann", true, "a/v1", &[".spec.size", ".spec.x"]),
            entry("bob", false, "a/v2", &[".spec.count", ".spec.x"]),
            entry("cid", false, "a/v2", &[".spec.size"]),
            entry("dan", false, "a/v3", &[".spec.size"]),
            entry("eve", false, "a/v4", &[".spec.size"]),
        ]
    }

    fn shown(entries: &[ManagedFieldsEntry]) -> Vec<(&str, &str, &str, Vec<String>)> {
        let fields = |entry: &ManagedFieldsEntry| entry.set.iter().map(|path| path.concat()).collect();
        entries.iter().map(|e| (&*e.manager, &*e.api_version, &*e.time, fields(e))).collect()
    }

    #[test]
    fn a_scale_has_the_managers_of_the_number_of_replicas() {
        let fields = || vec!["f:specf:replicas".to_owned()];
        let expected = [("ann", "autoscaling/v1", "10", fields()), ("bob", "autoscaling/v1", "10", fields())];
        assert_eq!(shown(&to_scale(&parent(), &paths())), expected);
    }

    #[test]
    fn the_number_of_replicas_moves_to_the_managers_of_the_scale() {
        let list = |fields: &[&str]| fields.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>();
        let scale = |manager: &str, apply: bool| entry(manager, apply, SCALE_VERSION, &[".spec.replicas"]);
        let after = vec![scale("ann", true), scale("bob", false), entry("fay", true, SCALE_VERSION, &[])];
        let expected = [
            ("ann", "a/v1", "10", list(&["f:specf:size", "f:specf:x"])),
            ("bob", "a/v2", "10", list(&["f:specf:x"])),
            ("cid", "a/v2", "10", list(&["f:specf:size"])),
            ("dan", "a/v3", "10", list(&["f:specf:size"])),
            ("bob", "a/v1", "", list(&["f:specf:size"])),
        ];
        assert_eq!(shown(&to_parent(parent(), after, &paths(), "a/v1")), expected);
    }
}
