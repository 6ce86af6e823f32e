//! Impersonation: requests of a user in the name of another one, by the `Impersonate-*` headers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::authz::{self, ANONYMOUS, Attributes};
use crate::base::name_rules::{label_errors, subdomain_errors};
use crate::base::user::User;
use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::http::request::{Request, percent_decode};

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The requested details of the user.
#[derive(Default)]
struct Requested {
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

/// Effective user of the request: the impersonated one, if the headers name one and the user may impersonate it.
///
/// A service account is authorized in its namespace, so a role in that namespace is enough.
pub(crate) fn impersonate(
    cluster: &Cluster,
    request: &Request,
    user: Arc<User>,
) -> Result<Arc<User>, Status> {
    let name = request.header("impersonate-user");
    let requested = Requested::of(request);
    if name.is_empty() {
        return if requested.is_empty() { Ok(user) } else { Err(requested.without_user()) };
    }
    let account = service_account(name);
    let named = match account {
        Some((namespace, name)) => {
            Attributes { namespace: namespace.into(), ..attributes("", "serviceaccounts", name) }
        }
        None => attributes("", "users", name),
    };
    for attributes in [named].into_iter().chain(requested.attributes()) {
        authz::check(cluster, &user, &attributes)?;
    }
    let Requested { groups, uid, extra } = requested;
    let groups = effective_groups(groups, name, account);
    Ok(Arc::new(User { name: name.to_owned(), uid, groups, extra }))
}

impl Requested {
    fn of(request: &Request) -> Self {
        let mut requested = Self::default();
        for (header, value) in &request.headers {
            let Ok(value) = value.to_str() else { continue };
            let value = value.to_owned();
            match header.as_str() {
                "impersonate-group" => requested.groups.push(value),
                "impersonate-uid" => requested.uid = value,
                header => {
                    if let Some(key) = header.strip_prefix("impersonate-extra-") {
                        requested.extra.entry(percent_decode(key, false)).or_default().push(value);
                    }
                }
            }
        }
        requested
    }
    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.uid.is_empty() && self.extra.is_empty()
    }
    /// Attributes of the authorization requests.
    fn attributes(&self) -> Vec<Attributes> {
        let mut all: Vec<Attributes> =
            self.groups.iter().map(|group| attributes("", "groups", group)).collect();
        for (key, value) in self.extra.iter().flat_map(|(key, values)| values.iter().map(move |it| (key, it)))
        {
            let extra = attributes(AUTHENTICATION_GROUP, "userextras", value);
            all.push(Attributes { subresource: key.clone(), ..extra });
        }
        if !self.uid.is_empty() {
            all.push(attributes(AUTHENTICATION_GROUP, "uids", &self.uid));
        }
        all
    }
    /// 400 without the name of a user. The rest is shown as Go shows values.
    fn without_user(&self) -> Status {
        let extra = self.extra.iter().map(|(key, values)| format!("{key:?}:{}", in_go(values)));
        let extra = extra.collect::<Vec<_>>().join(", ");
        let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{extra}}}") };
        Status::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:{}, Extra:map[string][]string{extra}}} without \
             impersonating a user name",
            self.uid,
            in_go(&self.groups),
        ))
    }
}

fn attributes(group: &str, resource: &str, name: &str) -> Attributes {
    Attributes {
        verb: "impersonate".into(),
        group: group.into(),
        resource: resource.into(),
        name: name.into(),
        ..Attributes::default()
    }
}

/// The slice of strings in the syntax of Go.
fn in_go(values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    if quoted.is_empty() { "[]string(nil)".into() } else { format!("[]string{{{}}}", quoted.join(", ")) }
}

/// Namespace and name of the service account that the user is.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (label_errors(namespace).is_empty() && subdomain_errors(name).is_empty()).then_some((namespace, name))
}

/// Groups of the user: with those that every service account and every user has.
fn effective_groups(mut groups: Vec<String>, user: &str, account: Option<(&str, &str)>) -> Vec<String> {
    if groups.is_empty() && account.is_some() {
        groups = authz::service_account_groups(user).unwrap_or_default();
    }
    let has = |group: &str| groups.iter().any(|it| it == group);
    let added = if user == ANONYMOUS {
        (!has(UNAUTHENTICATED)).then_some(UNAUTHENTICATED)
    } else {
        (!has(AUTHENTICATED) && !has(UNAUTHENTICATED)).then_some(AUTHENTICATED)
    };
    groups.extend(added.map(str::to_owned));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_with_valid_names_are_service_accounts() {
        assert_eq!(service_account("system:serviceaccount:shop:robot.v1"), Some(("shop", "robot.v1")));
        for name in ["bob", "system:serviceaccount:shop", "system:serviceaccount:shop:a:b"] {
            assert_eq!(service_account(name), None, "{name}");
        }
        for name in ["system:serviceaccount::robot", "system:serviceaccount:a.b:robot"] {
            assert_eq!(service_account(name), None, "{name}");
        }
    }

    #[test]
    fn users_are_authenticated_unless_they_are_anonymous_or_in_the_opposite_group() {
        let check = |user: &str, groups: &[&str], expected: &[&str]| {
            let groups = groups.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(effective_groups(groups, user, service_account(user)), expected, "{user}");
        };
        check("bob", &["team"], &["team", AUTHENTICATED]);
        check("bob", &[AUTHENTICATED], &[AUTHENTICATED]);
        check("bob", &[UNAUTHENTICATED], &[UNAUTHENTICATED]);
        check(ANONYMOUS, &[], &[UNAUTHENTICATED]);
        check(ANONYMOUS, &[UNAUTHENTICATED], &[UNAUTHENTICATED]);
        let account = "system:serviceaccount:shop:robot";
        check(account, &[], &["system:serviceaccounts", "system:serviceaccounts:shop", AUTHENTICATED]);
        check(account, &["team"], &["team", AUTHENTICATED]);
    }
}
