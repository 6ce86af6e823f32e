//! Entries of `metadata.managedFields`, and their update.
//!
//! Field sets are in `field_set`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::apply::field_set::{self, Comparison, Path, Set};

/// The differences that a write makes to an object in its versions, by `apiVersion`. The fields of an entry are those of its version.
pub(crate) type Changes = BTreeMap<String, Comparison>;

/// Entry of one field manager.
#[derive(Clone, Debug)]
pub(crate) struct ManagedFieldsEntry {
    pub(crate) manager: String,
    pub(crate) apply: bool,
    pub(crate) api_version: String,
    pub(crate) time: String,
    pub(crate) subresource: String,
    pub(crate) set: Set,
}

impl ManagedFieldsEntry {
    pub(crate) fn has_same_manager(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.apply == other.apply
            && self.subresource == other.subresource
            && (self.apply || self.api_version == other.api_version)
    }
    /// Manager in conflict messages.
    pub(crate) fn conflict_name(&self) -> String {
        let sub = if self.subresource.is_empty() {
            String::new()
        } else {
            format!(" with subresource \"{}\"", self.subresource)
        };
        let version = if self.apply { String::new() } else { format!(" using {}", self.api_version) };
        format!("\"{}\"{sub}{version}", self.manager)
    }
}

/// Whether the entries differ only in their times.
pub(crate) fn are_the_same_but_for_times(a: &[ManagedFieldsEntry], b: &[ManagedFieldsEntry]) -> bool {
    let same = |entry: &ManagedFieldsEntry| {
        b.iter().any(|other| {
            other.has_same_manager(entry) && other.api_version == entry.api_version && other.set == entry.set
        })
    };
    a.len() == b.len() && a.iter().all(same)
}

/// Gives the entries the times that those of the same managers had before. New entries get none.
pub(crate) fn keep_times(entries: &mut [ManagedFieldsEntry], known: &[ManagedFieldsEntry]) {
    for entry in entries {
        let before = known.iter().find(|other| other.has_same_manager(entry));
        entry.time = before.map(|other| other.time.clone()).unwrap_or_default();
    }
}

/// Decodes `metadata.managedFields`. Of two entries of a manager, which a write of the scale can leave, the last one counts.
pub(crate) fn read(meta: &Map<String, Value>) -> Vec<ManagedFieldsEntry> {
    let list = meta.get("managedFields").and_then(Value::as_array);
    let mut entries: Vec<ManagedFieldsEntry> = Vec::new();
    for json in list.into_iter().flatten() {
        let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut set = Set::new();
        field_set::from_json(json.get("fieldsV1").unwrap_or(&Value::Null), &mut Vec::new(), &mut set);
        let entry = ManagedFieldsEntry {
            manager: text("manager"),
            apply: text("operation") == "Apply",
            api_version: text("apiVersion"),
            time: text("time"),
            subresource: text("subresource"),
            set,
        };
        entries.retain(|other| !other.has_same_manager(&entry));
        entries.push(entry);
    }
    entries
}

/// Encodes `metadata.managedFields`; removes it if no entry has fields.
pub(crate) fn write(meta: &mut Map<String, Value>, mut entries: Vec<ManagedFieldsEntry>) {
    entries.retain(|e| !e.set.is_empty());
    entries.sort_by(|a, b| {
        (!a.apply, &a.time, &a.manager, &a.api_version, &a.subresource).cmp(&(
            !b.apply,
            &b.time,
            &b.manager,
            &b.api_version,
            &b.subresource,
        ))
    });
    if entries.is_empty() {
        meta.shift_remove("managedFields");
        return;
    }
    let list: Vec<Value> = entries
        .iter()
        .map(|e| {
            let mut out = json!({
                "manager": e.manager, "operation": if e.apply { "Apply" } else { "Update" }, "apiVersion": e.api_version,
                "time": e.time, "fieldsType": "FieldsV1", "fieldsV1": field_set::to_json(&e.set),
            });
            if let (true, Some(map)) = (e.time.is_empty(), out.as_object_mut()) {
                map.shift_remove("time");
            }
            if let (false, Some(map)) = (e.subresource.is_empty(), out.as_object_mut()) {
                map.insert("subresource".into(), e.subresource.clone().into());
            }
            out
        })
        .collect();
    meta.insert("managedFields".into(), Value::Array(list));
}

/// Whether encoded `fieldsV1` contain this path.
fn contains_path(json: &Value, path: &Path) -> bool {
    let found = path.iter().try_fold(json, |at, element| at.get(&**element)).and_then(Value::as_object);
    found.is_some_and(|member| member.is_empty() || member.contains_key("."))
}

/// Fast path of `update`: sets the time of the manager's entry without decoding. Applies if all entries have its version and a time, no
/// field was removed and all changed fields belong to this manager alone; returns whether it did.
pub(crate) fn touch_entry(
    meta: &mut Map<String, Value>,
    changes: &Comparison,
    change: &ManagedFieldsEntry,
) -> bool {
    let Some(list) = meta.get_mut("managedFields").and_then(Value::as_array_mut) else { return false };
    let text = |json: &Value, key: &str, expected: &str| {
        json.get(key).and_then(Value::as_str).unwrap_or_default() == expected
    };
    let is_own = |json: &Value| {
        let operation = if change.apply { "Apply" } else { "Update" };
        text(json, "manager", &change.manager)
            && text(json, "operation", operation)
            && text(json, "subresource", &change.subresource)
            && text(json, "apiVersion", &change.api_version)
    };
    let taken = || changes.added.iter().chain(&changes.modified);
    let is_unchanged = |json: &Value| {
        let fields = json.get("fieldsV1").unwrap_or(&Value::Null);
        let is_own = is_own(json);
        taken().all(|path| contains_path(fields, path) == is_own)
    };
    if !changes.removed.is_empty()
        || list
            .iter()
            .any(|json| !text(json, "apiVersion", &change.api_version) || json.get("time").is_none())
        || change.time.is_empty()
        || list.iter().filter(|json| is_own(json)).count() != 1
        || !list.iter().all(is_unchanged)
    {
        return false;
    }
    if taken().next().is_some()
        && let Some(time) = list.iter_mut().find(|json| is_own(json)).and_then(|json| json.get_mut("time"))
        && time.as_str() != Some(&change.time)
    {
        *time = change.time.as_str().into();
        list.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    }
    true
}

/// Sort key of entries.
fn sort_key(json: &Value) -> (bool, [&str; 4]) {
    let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default();
    (text("operation") != "Apply", ["time", "manager", "apiVersion", "subresource"].map(text))
}

/// Updates the entries after a change that is not an apply. `change` has the manager and the time, and an empty set. Entries of
/// versions without changes are dropped: the resource does not have these versions.
pub(crate) fn update(
    mut entries: Vec<ManagedFieldsEntry>,
    changes: &Changes,
    mut change: ManagedFieldsEntry,
) -> Vec<ManagedFieldsEntry> {
    entries.retain_mut(|entry| {
        let Some(changes) = changes.get(&entry.api_version) else { return false };
        let is_own = entry.has_same_manager(&change);
        entry.set.retain(|p| !changes.removed.contains(p) && (is_own || !changes.takes(p)));
        true
    });
    let taken = changes.get(&change.api_version).map(Comparison::taken).unwrap_or_default();
    if !taken.is_empty() {
        if let Some(entry) = entries.iter_mut().find(|e| e.has_same_manager(&change)) {
            entry.set.extend(taken);
            entry.time = change.time;
        } else {
            change.set = taken;
            entries.push(change);
        }
    }
    merge_oldest_updates(&mut entries);
    entries
}

/// Result of an apply.
pub(crate) struct AppliedEntries {
    pub(crate) entries: Vec<ManagedFieldsEntry>,
    /// Pairs of manager and field.
    pub(crate) conflicts: Vec<(String, String)>,
}

/// Updates the entries after an apply. `applied` has the manager and the set of applied fields. The other managers lose the fields
/// that have changed, which are conflicts. Entries of versions without changes are dropped.
pub(crate) fn apply(
    entries: Vec<ManagedFieldsEntry>,
    changes: &Changes,
    applied: ManagedFieldsEntry,
) -> AppliedEntries {
    let mut out = AppliedEntries { entries: Vec::new(), conflicts: Vec::new() };
    for mut entry in entries.into_iter().filter(|entry| !entry.has_same_manager(&applied)) {
        let Some(changes) = changes.get(&entry.api_version) else { continue };
        let conflicting = entry.set.iter().filter(|path| changes.takes(path));
        out.conflicts.extend(conflicting.map(|path| (entry.conflict_name(), field_set::format_path(path))));
        entry.set.retain(|path| !changes.takes(path) && !changes.removed.contains(path));
        out.entries.push(entry);
    }
    out.entries.push(applied);
    out
}

/// Maximum number of entries of updates.
const MAX_UPDATES: usize = 10;
/// Manager of merged entries.
const MERGED_MANAGER: &str = "ancient-changes";

/// Merges the oldest entries of updates of an API version if there are too many.
fn merge_oldest_updates(entries: &mut Vec<ManagedFieldsEntry>) {
    let mut updates: Vec<usize> = Vec::new();
    updates.extend(entries.iter().enumerate().filter(|(_, e)| !e.apply && !e.set.is_empty()).map(|(i, _)| i));
    let Some(mut excess) = updates.len().checked_sub(MAX_UPDATES).filter(|excess| *excess > 0) else {
        return;
    };
    updates.sort_by_cached_key(|i| {
        entries
            .get(*i)
            .map(|e| (e.time.clone(), e.manager.clone(), e.api_version.clone(), e.subresource.clone()))
    });
    let mut first_of: Vec<(String, usize)> = Vec::new();
    for i in updates {
        let Some(entry) = entries.get(i).filter(|_| excess > 0) else { break };
        let (version, time, set) = (entry.api_version.clone(), entry.time.clone(), entry.set.clone());
        let Some((_, first)) = first_of.iter().find(|(known, _)| *known == version) else {
            first_of.push((version, i));
            continue;
        };
        let is_merged =
            |e: &ManagedFieldsEntry| e.manager == MERGED_MANAGER && !e.apply && e.api_version == version;
        let target = entries.iter().position(is_merged).unwrap_or(*first);
        if let Some(target) = entries.get_mut(target) {
            MERGED_MANAGER.clone_into(&mut target.manager);
            target.subresource.clear();
            target.set.extend(set);
            target.time = time;
        }
        if let Some(entry) = entries.get_mut(i) {
            // Entries without fields are not written.
            entry.set.clear();
        }
        excess -= 1;
    }
    entries.retain(|entry| !entry.set.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    /// A change by one of two managers, through the fast path and through `update`.
    fn changed_by(manager: &str, time: &str, before: &Value, after: &Value) -> (bool, Value, Value) {
        let mut meta = Map::new();
        let fields = |names: &[&str]| names.iter().map(|n| (format!("f:{n}"), json!({}))).collect::<Value>();
        let entry = |manager: &str, fields: Value| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "10", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": fields}})
        };
        let list = vec![entry("ann", fields(&["a", "b"])), entry("bob", fields(&["b", "c"]))];
        meta.insert("managedFields".into(), list.into());
        let mut changes = Comparison::default();
        let (before, after) = (json!({"spec": before}), json!({"spec": after}));
        field_set::compare(Some(&before), Some(&after), &Schema::any(), &mut Vec::new(), &mut changes);
        let change = ManagedFieldsEntry {
            manager: manager.into(),
            apply: false,
            api_version: "v1".into(),
            time: time.into(),
            subresource: String::new(),
            set: Set::new(),
        };
        let mut short = meta.clone();
        let done = touch_entry(&mut short, &changes, &change);
        let known = read(&meta);
        write(&mut meta, update(known, &[("v1".to_owned(), changes)].into(), change));
        (done, Value::Object(short), Value::Object(meta))
    }

    #[test]
    fn the_oldest_updates_are_merged() {
        let entry = |i: usize, apply: bool| ManagedFieldsEntry {
            manager: format!("m{i:02}"),
            apply,
            api_version: if i == 1 { "v2" } else { "v1" }.to_owned(),
            time: format!("{}", 10 + i / 4),
            subresource: String::new(),
            set: [vec![format!("f:{i}").into()]].into(),
        };
        let mut entries: Vec<_> = (0..12).map(|i| entry(i, false)).chain([entry(12, true)]).collect();
        merge_oldest_updates(&mut entries);
        let names: Vec<&str> = entries.iter().map(|e| e.manager.as_str()).collect();
        let expected =
            ["ancient-changes", "m01", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11", "m12"];
        assert_eq!(names, expected);
        assert_eq!((entries[0].set.len(), entries[0].time.as_str()), (3, "10"));
        let mut few: Vec<_> = (0..10).map(|i| entry(i, false)).collect();
        merge_oldest_updates(&mut few);
        assert_eq!(few.len(), 10);
    }

    fn entry_of(manager: &str, apply: bool, version: &str, fields: &[&str]) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: manager.into(),
            apply,
            api_version: version.into(),
            time: String::new(),
            subresource: String::new(),
            set: fields.iter().map(|field| vec![format!("f:{field}").into()]).collect(),
        }
    }

    /// An address has changed, which is a host and a port in v2, where a removed name is another field.
    fn changes_in_two_versions() -> Changes {
        let set = |field: &str| Set::from([vec![format!("f:{field}").into()]]);
        let v1 = Comparison { modified: set("address"), removed: set("host"), ..Comparison::default() };
        let v2 = Comparison { modified: set("host"), removed: set("name"), added: set("port") };
        [("v1".to_owned(), v1), ("v2".to_owned(), v2)].into()
    }

    fn fields_of(entries: &[ManagedFieldsEntry]) -> Vec<(&str, &str, Vec<String>)> {
        let fields =
            |entry: &ManagedFieldsEntry| entry.set.iter().map(|path| path.concat()).collect::<Vec<_>>();
        entries.iter().map(|e| (e.manager.as_str(), e.api_version.as_str(), fields(e))).collect()
    }

    #[test]
    fn an_update_changes_each_entry_in_its_version() {
        let entries = vec![
            entry_of("ann", false, "v1", &["address", "host", "kept"]),
            entry_of("bob", false, "v1", &["address", "host", "kept"]),
            entry_of("ann", false, "v2", &["address", "host", "name"]),
            entry_of("bob", true, "v2", &["host", "name", "port"]),
            entry_of("bob", false, "v3", &["address"]),
        ];
        let updated = update(entries, &changes_in_two_versions(), entry_of("ann", false, "v1", &[]));
        let expected = [
            ("ann", "v1", vec!["f:address".to_owned(), "f:kept".to_owned()]),
            ("bob", "v1", vec!["f:kept".to_owned()]),
            ("ann", "v2", vec!["f:address".to_owned()]),
            // Entries without fields are not written.
            ("bob", "v2", vec![]),
        ];
        assert_eq!(fields_of(&updated), expected);
    }

    #[test]
    fn conflicts_of_an_apply_are_those_in_the_versions_of_the_entries() {
        let entries = vec![
            entry_of("ann", true, "v2", &["host"]),
            entry_of("bob", true, "v2", &["address", "host", "name"]),
            entry_of("eve", false, "v1", &["address", "host"]),
            entry_of("eve", false, "v3", &["address"]),
        ];
        let applied = apply(entries, &changes_in_two_versions(), entry_of("ann", true, "v1", &["address"]));
        let expected = [
            ("bob", "v2", vec!["f:address".to_owned()]),
            ("eve", "v1", vec![]),
            ("ann", "v1", vec!["f:address".to_owned()]),
        ];
        assert_eq!(fields_of(&applied.entries), expected);
        let pair = |manager: &str, field: &str| (manager.to_owned(), field.to_owned());
        assert_eq!(applied.conflicts, [pair("\"bob\"", ".host"), pair("\"eve\" using v1", ".address")]);
    }

    #[test]
    fn the_fast_path_equals_the_update() {
        let before = json!({"a": 1, "b": 1, "c": 1});
        let cases = [
            // Fields of one manager. The entry with the later time is the last one.
            ("ann", "11", json!({"a": 2, "b": 1, "c": 1}), true),
            ("bob", "09", json!({"a": 1, "b": 1, "c": 2}), true),
            ("ann", "10", json!({"a": 2, "b": 1, "c": 1}), true),
            // No change.
            ("ann", "11", before.clone(), true),
            // A shared field, a field of the other manager, a new field, a removed field, another manager.
            ("ann", "11", json!({"a": 1, "b": 2, "c": 1}), false),
            ("ann", "11", json!({"a": 1, "b": 1, "c": 2}), false),
            ("ann", "11", json!({"a": 1, "b": 1, "c": 1, "d": 1}), false),
            ("ann", "11", json!({"b": 1, "c": 1}), false),
            ("eve", "11", json!({"a": 2, "b": 1, "c": 1}), false),
        ];
        for (manager, time, after, expected) in cases {
            let (done, short, long) = changed_by(manager, time, &before, &after);
            assert_eq!(done, expected, "{manager} {after}");
            if done {
                assert_eq!(short.to_string(), long.to_string(), "{manager} {after}");
            } else {
                assert_ne!(short, long, "{manager} {after}");
            }
        }
    }
}
