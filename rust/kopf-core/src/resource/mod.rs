//! API resources of the cluster, selectors that choose among them, and namespace patterns.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

mod discovery;
mod namespaces;
mod selector;
mod similarity;

pub use discovery::{DiscoveryError, VersionResources, decode_groups, decode_version};
pub use namespaces::{is_exact_namespace, match_namespace, unmatched_namespaces};
pub use selector::{AnyName, Selector};
pub use similarity::{distance, longest_distance};

/// The characters to percent-encode in a path segment: all except the unreserved ones and the colon.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// A resource as the API server describes it in discovery. Group, version and plural name are its identity.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The plural name, as in URLs.
    pub plural: String,
    /// The kind, as in objects.
    #[serde(default)]
    pub kind: Option<String>,
    /// The singular name.
    #[serde(default)]
    pub singular: Option<String>,
    /// Short names.
    #[serde(default)]
    pub shortcuts: BTreeSet<String>,
    /// Categories, such as `all`.
    #[serde(default)]
    pub categories: BTreeSet<String>,
    /// Subresources, such as `status`.
    #[serde(default)]
    pub subresources: BTreeSet<String>,
    /// Supported verbs.
    #[serde(default)]
    pub verbs: BTreeSet<String>,
    /// Whether its objects are namespaced.
    #[serde(default)]
    pub namespaced: bool,
    /// Whether this version is the preferred version of its group.
    #[serde(default = "preferred")]
    pub preferred: bool,
}

/// The verbs of a resource whose CRD is being deleted, in their order.
const TERMINATING_VERBS: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];

fn preferred() -> bool {
    true
}

impl Resource {
    /// The URL path to the list, to one object, or to its subresource. Inapplicable parts are left out: the namespace of a
    /// cluster-scoped resource, and a subresource without a name.
    ///
    /// Each segment is percent-encoded: names of some kinds may contain `?` or `#`. Segments that are empty, `.`, or `..`
    /// stay as they are, and the HTTP client rejects such paths.
    pub fn url(&self, namespace: Option<&str>, name: Option<&str>, subresource: Option<&str>) -> String {
        let core = self.group.is_empty() && self.version == "v1";
        let namespace = namespace.filter(|_| self.namespaced);
        let segments = [
            (!core).then_some(self.group.as_str()).filter(|group| !group.is_empty()),
            Some(self.version.as_str()),
            namespace.and(Some("namespaces")),
            namespace,
            Some(self.plural.as_str()),
            name,
            name.and(subresource),
        ];
        let mut url = if core { "/api" } else { "/apis" }.to_owned();
        for segment in segments.into_iter().flatten() {
            url.push('/');
            url.extend(utf8_percent_encode(segment, SEGMENT));
        }
        url
    }

    /// Whether the resource has this subresource.
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources.contains(name)
    }

    /// Whether its objects can be patched.
    pub fn is_patchable(&self) -> bool {
        self.verbs.contains("patch") || self.is_terminating()
    }

    /// Whether the CRD of the resource is being deleted. The API server then offers neither creations nor changes, but it still
    /// accepts changes of the existing objects, which have to lose their finalizers.
    fn is_terminating(&self) -> bool {
        self.verbs.iter().eq(TERMINATING_VERBS)
    }

    /// Whether the resource is served as the other one, which may be the same resource before its CRD was changed: the same
    /// requests lead to the same objects.
    pub fn is_served_like(&self, other: &Self) -> bool {
        let served = |it: &Self| (it.namespaced, it.kind.clone(), it.subresources.clone());
        self == other && served(self) == served(other)
    }

    fn identity(&self) -> (&str, &str, &str) {
        (&self.group, &self.version, &self.plural)
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Resource {}

impl Hash for Resource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let full = format!("{}.{}.{}", self.plural, self.version, self.group);
        f.write_str(full.trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource(group: &str, version: &str, plural: &str, namespaced: bool) -> Resource {
        serde_json::from_value(
            json!({"group": group, "version": version, "plural": plural, "namespaced": namespaced}),
        )
        .unwrap()
    }

    // contract: engine 1.1
    #[test]
    fn names_and_identity() {
        let pods = resource("", "v1", "pods", true);
        assert_eq!(pods.to_string(), "pods.v1");
        assert_eq!(resource("kopf.dev", "v1", "kopfexamples", true).to_string(), "kopfexamples.v1.kopf.dev");
        assert_eq!(pods, resource("", "v1", "pods", false));
        assert_ne!(pods, resource("", "v2", "pods", true));
        assert!(pods.preferred);
    }

    // contract: engine 1.1
    #[test]
    fn urls() {
        let pods = resource("", "v1", "pods", true);
        assert_eq!(pods.url(None, None, None), "/api/v1/pods");
        assert_eq!(pods.url(Some("ns"), Some("p"), Some("status")), "/api/v1/namespaces/ns/pods/p/status");
        assert_eq!(
            pods.url(Some("a b"), Some("victim?x=1#/../%2e\r\né"), None),
            "/api/v1/namespaces/a%20b/pods/victim%3Fx%3D1%23%2F..%2F%252e%0D%0A%C3%A9"
        );
        assert_eq!(
            pods.url(Some("ns"), Some(""), None),
            "/api/v1/namespaces/ns/pods/",
            "never the path of the list"
        );
        let crds = resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", false);
        assert_eq!(
            crds.url(None, Some("x"), None),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x"
        );
        assert_eq!(
            crds.url(Some("ns"), None, Some("status")),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        );
    }
}
