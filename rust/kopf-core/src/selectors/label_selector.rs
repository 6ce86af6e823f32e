//! Label selectors in the grammar of the Kubernetes API: `a=b, c in (d, e), !f`.

use std::collections::BTreeSet;
use std::fmt;

use thiserror::Error;

use crate::object::Object;

/// A parsed label selector: all its requirements must be satisfied. The empty selector matches all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    DoesNotExist,
    In(BTreeSet<String>),
    /// Also satisfied by objects without the label, as in Kubernetes.
    NotIn(BTreeSet<String>),
}

/// A text that is no label selector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not a label selector: {selector:?}, near {part:?}")]
pub struct SelectorError {
    /// The whole text.
    pub selector: String,
    /// The requirement that cannot be parsed.
    pub part: String,
}

impl LabelSelector {
    /// Parses a selector.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        if text.trim().is_empty() {
            return Ok(Self(requirements));
        }
        for part in split(text) {
            let error = || SelectorError { selector: text.to_owned(), part: part.to_owned() };
            requirements.push(Requirement::parse(part.trim()).ok_or_else(error)?);
        }
        Ok(Self(requirements))
    }

    /// The requirements that all these selectors share, in their weaker forms; the empty selector if there are none.
    pub fn common(selectors: &[Self]) -> Self {
        let Some((first, others)) = selectors.split_first() else { return Self::default() };
        let shared = |requirement: &Requirement| {
            let mut operator = requirement.operator.clone();
            for other in others {
                let its = other.0.iter().filter(|one| one.key == requirement.key);
                operator = its.map(|one| &one.operator).find_map(|its| operator.or(its))?;
            }
            Some(Requirement { key: requirement.key.clone(), operator })
        };
        Self(first.0.iter().filter_map(shared).collect())
    }

    /// Whether the labels of the object satisfy all requirements.
    pub fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|Requirement { key, operator }| {
            let label = object.label(key);
            match operator {
                Operator::Exists => label.is_some(),
                Operator::DoesNotExist => label.is_none(),
                Operator::In(values) => label.is_some_and(|label| values.contains(label.as_ref())),
                Operator::NotIn(values) => label.is_none_or(|label| !values.contains(label.as_ref())),
            }
        })
    }
}

impl Operator {
    /// The operator that is satisfied if one of the two is; none if that has no form here.
    fn or(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::In(one), Self::In(others)) => {
                let either = one | others;
                // Not every API server parses an empty value in a set of values.
                let is_plain = either.len() == 1 || !either.contains("");
                Some(if is_plain { Self::In(either) } else { Self::Exists })
            }
            (Self::NotIn(one), Self::NotIn(others)) => {
                let both = one & others;
                (!both.is_empty()).then_some(Self::NotIn(both))
            }
            (Self::Exists | Self::In(_), Self::Exists) | (Self::Exists, Self::In(_)) => Some(Self::Exists),
            (Self::DoesNotExist, Self::DoesNotExist) => Some(Self::DoesNotExist),
            _ => None,
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, Requirement { key, operator }) in self.0.iter().enumerate() {
            f.write_str(if position == 0 { "" } else { "," })?;
            let listed = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(",");
            match operator {
                Operator::Exists => write!(f, "{key}")?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
                Operator::In(values) => match values.first().filter(|_| values.len() == 1) {
                    Some(value) => write!(f, "{key}={value}")?,
                    None => write!(f, "{key} in ({})", listed(values))?,
                },
                Operator::NotIn(values) => write!(f, "{key} notin ({})", listed(values))?,
            }
        }
        Ok(())
    }
}

impl Requirement {
    fn parse(part: &str) -> Option<Self> {
        let one = |value: &str| Some(BTreeSet::from([word(value.trim(), true)?]));
        let (key, operator) = if let Some(key) = part.strip_prefix('!') {
            (key, Operator::DoesNotExist)
        } else if let Some((key, value)) = part.split_once("!=") {
            (key, Operator::NotIn(one(value)?))
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (key, Operator::In(one(value)?))
        } else if let Some((head, values)) = part.split_once('(') {
            let values = values.strip_suffix(')')?.split(',').map(|value| word(value.trim(), true));
            let values = values.collect::<Option<BTreeSet<_>>>()?;
            match head.trim_end().rsplit_once(char::is_whitespace)? {
                (key, "in") => (key, Operator::In(values)),
                (key, "notin") => (key, Operator::NotIn(values)),
                _ => return None,
            }
        } else {
            (part, Operator::Exists)
        };
        Some(Self { key: word(key.trim(), false)?, operator })
    }
}

/// The text, if it consists of the characters of keys and values only.
fn word(text: &str, is_value: bool) -> Option<String> {
    let is_valid =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') || (!is_value && c == '/');
    (text.chars().all(is_valid) && (is_value || !text.is_empty())).then(|| text.to_owned())
}

/// Splits at the commas outside of parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        depth = match c {
            '(' => depth + 1,
            ')' => depth.saturating_sub(1),
            _ => depth,
        };
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(labels: &Value) -> Object {
        Object::decode(&json!({"metadata": {"labels": labels}}).to_string()).unwrap()
    }

    #[test]
    fn k3_requirements_are_those_of_kubernetes() {
        let web = object(&json!({"app": "web", "tier": "front", "empty": ""}));
        for (selector, expected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app=web", true),
            ("app == web,tier=front", true),
            ("app=web,tier=back", false),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (api, web)", true),
            ("app in (api,db),tier", false),
            ("app notin (api,db)", true),
            ("other notin (x)", true),
            ("empty=", true),
            ("app in (web),tier in (front,back), !x.y/z", true),
        ] {
            assert_eq!(LabelSelector::parse(selector).unwrap().matches(&web), expected, "{selector}");
        }
    }

    #[test]
    fn the_common_selector_is_satisfied_by_all_objects_that_one_selector_matches() {
        let objects = [json!({}), json!({"a": "1"}), json!({"a": "2", "b": "x"}), json!({"b": ""})];
        for (one, other, expected) in [
            ("a=1", "a=2", "a in (1,2)"),
            ("a", "a=2", "a"),
            ("!a", "!a,b", "!a"),
            ("a", "b", ""),
            ("", "a", ""),
            ("a notin (1,2),b", "b=x,a!=2", "a notin (2),b"),
            ("a!=1", "a!=2", ""),
            ("a", "!a", ""),
        ] {
            let parsed = [one, other].map(|text| LabelSelector::parse(text).unwrap());
            let common = LabelSelector::common(&parsed);
            assert_eq!(common.to_string(), expected);
            assert_eq!(LabelSelector::parse(expected).unwrap(), common);
            for object in objects.iter().map(object) {
                assert!(common.matches(&object) || !parsed.iter().any(|selector| selector.matches(&object)));
            }
        }
        assert_eq!(LabelSelector::common(&[]), LabelSelector::default());
    }

    #[test]
    fn other_texts_are_rejected() {
        for selector in ["=x", "a=b=c", "a in b", "a in (b", "a,", "a b", "in (x)", "a maybe (b)", "a=(b)"] {
            let error = LabelSelector::parse(selector).unwrap_err();
            assert!(error.to_string().contains(selector), "{error}");
        }
    }
}
