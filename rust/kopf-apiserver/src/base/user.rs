//! The user of a request.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// An authenticated user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The id of the user; empty if it has none.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Further attributes, by their keys.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The `UserInfo` in reviews: without the fields that are empty.
    pub(crate) fn info(&self) -> Value {
        let Self { name, uid, groups, extra } = self;
        let fields = [
            ("username", json!(name), name.is_empty()),
            ("uid", json!(uid), uid.is_empty()),
            ("groups", json!(groups), groups.is_empty()),
            ("extra", json!(extra), extra.is_empty()),
        ];
        let present = fields.into_iter().filter(|(.., is_empty)| !is_empty);
        Value::Object(present.map(|(key, value, _)| (key.to_owned(), value)).collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_are_not_in_the_information_about_a_user() {
        let mut user = User { name: "jane".into(), ..User::default() };
        assert_eq!(user.info(), json!({"username": "jane"}));
        user.uid = "1".into();
        user.groups = vec!["team".into()];
        user.extra.insert("scopes".into(), vec!["all".into()]);
        let extra = json!({"scopes": ["all"]});
        assert_eq!(user.info(), json!({"username": "jane", "uid": "1", "groups": ["team"], "extra": extra}));
    }
}
