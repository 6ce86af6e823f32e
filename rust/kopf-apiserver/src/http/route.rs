//! Routing of paths. The registry is not consulted.

use crate::http::request::percent_decode;

/// Route of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Non-resource paths: `/`, `/version`, `/healthz`, `/openapi/...`.
    Plain(String),
    /// `/api` (core) or `/apis`.
    Groups {
        core: bool,
    },
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    Version {
        group: String,
        version: String,
    },
    Resource(Target),
}

/// A resource, one of its objects, or a subresource.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// `/api/v1/watch/...`, the deprecated form of watch requests.
    pub(crate) watch: bool,
}

pub(crate) fn parse(path: &str) -> Route {
    let parts: Vec<String> =
        path.split('/').filter(|p| !p.is_empty()).map(|p| percent_decode(p, false)).collect();
    let words: Vec<&str> = parts.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["api"] => Route::Groups { core: true },
        ["apis"] => Route::Groups { core: false },
        ["api", version, rest @ ..] => versioned("", version, rest),
        ["apis", group] => Route::Group((*group).to_owned()),
        ["apis", group, version, rest @ ..] => versioned(group, version, rest),
        _ => Route::Plain(format!("/{}", words.join("/"))),
    }
}

fn versioned(group: &str, version: &str, rest: &[&str]) -> Route {
    let (group, version) = (group.to_owned(), version.to_owned());
    let (watch, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    if rest.is_empty() {
        return Route::Version { group, version };
    }
    let mut target = Target { group, version, watch, ..Target::default() };
    let core = target.group.is_empty();
    let tail = match rest {
        // Subresources of a namespace itself, not objects in it.
        ["namespaces", name, sub @ ("status" | "finalize")] if core => {
            target.subresource = Some((*sub).to_owned());
            &["namespaces", *name][..]
        }
        ["namespaces", namespace, tail @ ..] if !tail.is_empty() => {
            target.namespace = Some((*namespace).to_owned());
            tail
        }
        tail => tail,
    };
    let mut words = tail.iter().map(|w| (*w).to_owned());
    target.plural = words.next().unwrap_or_default();
    target.name = words.next();
    let below: Vec<String> = words.collect();
    if !below.is_empty() {
        target.subresource = Some(below.join("/"));
    }
    Route::Resource(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        match parse(path) {
            Route::Resource(target) => target,
            other => unreachable!("{path} is {other:?}"),
        }
    }

    #[test]
    fn a_namespace_is_an_object_and_a_scope() {
        assert_eq!(target("/api/v1/namespaces/x").name.as_deref(), Some("x"));
        assert_eq!(target("/api/v1/namespaces/x/finalize").subresource.as_deref(), Some("finalize"));
        let pods = target("/api/v1/namespaces/x/pods/y/log");
        assert_eq!((pods.namespace.as_deref(), pods.plural.as_str()), (Some("x"), "pods"));
        assert_eq!((pods.name.as_deref(), pods.subresource.as_deref()), (Some("y"), Some("log")));
    }

    #[test]
    fn versions_groups_and_other_paths_are_distinguished() {
        assert_eq!(parse("/apis/apps"), Route::Group("apps".into()));
        assert_eq!(parse("/apis/apps/v1/"), Route::Version { group: "apps".into(), version: "v1".into() });
        assert_eq!(parse("/healthz/"), Route::Plain("/healthz".into()));
        assert!(target("/apis/a.b/v1/watch/things").watch);
    }
}
