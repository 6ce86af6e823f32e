//! The plan of one call: the documents to be sent, in ranks.

use std::collections::{BTreeMap, BTreeSet};

use super::ConflictPolicy;
use super::apply_set::apply_set_id;
use super::child::{Child, ChildKey};
use super::digest::Digest;
use super::marks::{PART_OF, SET_NAME};
use super::owner::Owner;
use super::ownership::{Link, set_entry};
use super::rank::rank;
use crate::json::value::Value;

/// The options of a plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// The name of the `ApplySet`; usually empty.
    pub name: String,
    /// Whether objects that are not desired any more are deleted.
    pub prune: bool,
    /// Whether the kinds that others need are applied first.
    pub order: bool,
    /// What to do about conflicts.
    pub conflict: ConflictPolicy,
}

/// A child that is ready to be applied.
#[derive(Clone, Debug)]
pub struct PlannedChild {
    /// Its identity.
    pub key: ChildKey,
    /// The name of the kind for discovery.
    pub kind_name: String,
    /// Its rank: lower ones are applied first.
    pub rank: u8,
    /// The name of the CRD among the children that must be established first.
    pub crd: Option<String>,
    /// How it is linked to the owner.
    pub link: Link,
    /// The document to be sent.
    pub document: Value,
    /// The digest of the document and of the policy of conflicts.
    pub digest: Digest,
}

/// A kind that a CRD among the children defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredKind {
    /// The name of the CRD.
    pub crd: String,
    /// Whether its objects are namespaced.
    pub is_namespaced: bool,
}

/// The kinds that the CRDs among the children define, by group and kind.
pub fn declared_kinds(children: &[Child]) -> BTreeMap<(String, String), DeclaredKind> {
    let crds = children.iter().filter(|it| {
        (it.group.as_str(), it.kind.as_str()) == ("apiextensions.k8s.io", "CustomResourceDefinition")
    });
    let text = |crd: &Child, path: &str| {
        crd.document.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    crds.map(|crd| {
        let key = (text(crd, "/spec/group"), text(crd, "/spec/names/kind"));
        let is_namespaced = text(crd, "/spec/scope") == "Namespaced";
        (key, DeclaredKind { crd: crd.name.clone(), is_namespaced })
    })
    .collect()
}

/// Plans the children: `is_namespaced` is whether the kind of the n-th one is namespaced.
///
/// # Errors
/// A text for a `ValueError`.
pub fn plan(
    children: Vec<Child>,
    owner: &Owner,
    is_namespaced: &[bool],
    options: &PlanOptions,
) -> Result<Vec<PlannedChild>, String> {
    if options.prune && !options.name.is_empty() {
        return Err(
            "An owner has only one ApplySet that is pruned: pass either name=... or prune=True.".to_owned()
        );
    }
    let declared = declared_kinds(&children);
    let id = apply_set_id(owner);
    let mut seen = BTreeSet::new();
    let mut planned = vec![];
    for (child, is_namespaced) in children.into_iter().zip(is_namespaced.iter().copied()) {
        let namespace = namespace_of(&child, owner, is_namespaced)?;
        let kind_name = child.kind_name();
        let Child { group, kind, name, mut document, .. } = child;
        let crd = declared.get(&(group.clone(), kind.clone())).map(|declared| declared.crd.clone());
        let key = ChildKey { group, kind, namespace, name };
        if !seen.insert(key.clone()) {
            return Err(format!("{key} is given twice."));
        }
        let link = Link::of(owner, key.namespace.as_deref());
        if link == Link::Mark && !options.prune {
            return Err(format!(
                "{key} cannot have an owner reference to {} {}, which is in another namespace: pass prune=True, so that Kopf \
                 deletes it with its owner.",
                owner.kind, owner.name
            ));
        }
        if let Some(namespace) = &key.namespace {
            document["metadata"]["namespace"] = namespace.as_str().into();
        }
        link.add(&mut document, owner);
        set_entry(&mut document, "labels", PART_OF, &id);
        if !options.name.is_empty() {
            set_entry(&mut document, "labels", SET_NAME, &options.name);
        }
        let digest = Digest::of(&serde_json::json!([document, format!("{:?}", options.conflict)]));
        let rank = match (options.order, &crd) {
            (true, _) => rank(&key.group, &key.kind),
            (false, None) => 0,
            (false, Some(_)) => 1,
        };
        planned.push(PlannedChild { key, kind_name, rank, crd, link, document, digest });
    }
    planned.sort_by_key(|child| child.rank);
    Ok(planned)
}

fn namespace_of(child: &Child, owner: &Owner, is_namespaced: bool) -> Result<Option<String>, String> {
    match (is_namespaced, &child.namespace, &owner.namespace) {
        (false, None, _) => Ok(None),
        (false, Some(namespace), _) => Err(format!(
            "{} {} is cluster-scoped, so it cannot be in the namespace {namespace}.",
            child.kind, child.name
        )),
        (true, Some(namespace), _) | (true, None, Some(namespace)) => Ok(Some(namespace.clone())),
        (true, None, None) => Err(format!(
            "{} {} needs metadata.namespace, because its owner is cluster-scoped.",
            child.kind, child.name
        )),
    }
}

impl PlannedChild {
    /// The rank of a kind by its name with the group: for pruning.
    pub fn rank_of(group_kind: &str) -> u8 {
        let (kind, group) = group_kind.split_once('.').unwrap_or((group_kind, ""));
        rank(group, kind)
    }
}
