//! Label, field and shard selectors: parsing, error messages, matching.

use serde_json::Value;

use crate::error::status::{Cause, Status};
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;

/// Requirement of a label selector.
#[derive(Debug, PartialEq)]
enum Requirement {
    Equal(String, String),
    NotEqual(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
    Greater(String, i64),
    Less(String, i64),
}

/// A parsed label selector.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        parser.requirements().map(Self).map_err(Status::bad_request)
    }

    /// Decodes `matchLabels` and `matchExpressions`.
    pub(crate) fn from_json(json: &Value) -> Self {
        let mut out = Vec::new();
        for (k, v) in json.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            out.push(Requirement::Equal(k.clone(), v.as_str().unwrap_or_default().to_owned()));
        }
        for e in json.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let key = e.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
            let values = crate::base::json::strings(e.get("values"));
            out.push(match e.get("operator").and_then(Value::as_str) {
                Some("In") => Requirement::In(key, values),
                Some("NotIn") => Requirement::NotIn(key, values),
                Some("Exists") => Requirement::Exists(key),
                _ => Requirement::DoesNotExist(key),
            });
        }
        Self(out)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Equal(k, v) => label(k) == Some(v),
            Requirement::NotEqual(k, v) => label(k) != Some(v),
            Requirement::In(k, vs) => label(k).is_some_and(|l| vs.iter().any(|v| v == l)),
            Requirement::NotIn(k, vs) => label(k).is_none_or(|l| !vs.iter().any(|v| v == l)),
            Requirement::Exists(k) => label(k).is_some(),
            Requirement::DoesNotExist(k) => label(k).is_none(),
            Requirement::Greater(k, n) => {
                label(k).and_then(|l| l.parse::<i64>().ok()).is_some_and(|l| l > *n)
            }
            Requirement::Less(k, n) => label(k).and_then(|l| l.parse::<i64>().ok()).is_some_and(|l| l < *n),
        })
    }
}

fn tokens(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => {}
            '(' | ')' | ',' => out.push(c.into()),
            '=' | '!' | '<' | '>' => {
                let mut token = String::from(c);
                if chars.peek() == Some(&'=') && (c == '=' || c == '!') {
                    token.extend(chars.next());
                }
                out.push(token);
            }
            _ => {
                let mut token = String::from(c);
                while let Some(next) = chars.peek() {
                    if next.is_whitespace() || "(),=!<>".contains(*next) {
                        break;
                    }
                    token.extend(chars.next());
                }
                out.push(token);
            }
        }
    }
    out
}

struct Parser {
    tokens: Vec<String>,
    at: usize,
}

const OPERATORS: [&str; 8] = ["in", "notin", "=", "==", "!=", ">", "<", "!"];

impl Parser {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }
    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        self.at += 1;
        token
    }
    fn requirements(&mut self) -> Result<Vec<Requirement>, String> {
        let mut out = Vec::new();
        if self.tokens.is_empty() {
            return Ok(out);
        }
        loop {
            out.push(self.requirement()?);
            match self.next().as_str() {
                "" => return Ok(out),
                "," if self.peek().is_empty() => {
                    return Err("found '', expected: identifier after ','".into());
                }
                "," => {}
                other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
            }
        }
    }
    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.peek() == "!" {
            self.next();
            return Ok(Requirement::DoesNotExist(self.key()?));
        }
        let key = self.key()?;
        match self.peek() {
            "" | "," => Ok(Requirement::Exists(key)),
            "=" | "==" => {
                self.next();
                Ok(Requirement::Equal(key.clone(), self.value(&key)?))
            }
            "!=" => {
                self.next();
                Ok(Requirement::NotEqual(key.clone(), self.value(&key)?))
            }
            "in" => Ok(Requirement::In(key.clone(), self.values(&key)?)),
            "notin" => Ok(Requirement::NotIn(key.clone(), self.values(&key)?)),
            sign @ (">" | "<") => {
                let greater = sign == ">";
                self.next();
                let text = self.next();
                let number = text.parse().map_err(|_| {
                    format!("unable to parse requirement: values[0]: Invalid value: \"{text}\": for 'Gt', 'Lt' operators, the value must be an integer")
                })?;
                Ok(if greater { Requirement::Greater(key, number) } else { Requirement::Less(key, number) })
            }
            other => Err(format!(
                "unable to parse requirement: found '{other}', expected: in, notin, =, ==, !=, gt, lt"
            )),
        }
    }
    fn key(&mut self) -> Result<String, String> {
        let key = self.next();
        if key.is_empty()
            || OPERATORS.contains(&key.as_str()) && key != "in" && key != "notin"
            || "(),".contains(&key)
        {
            return Err(format!("found '{key}', expected: !, identifier, or 'end of string'"));
        }
        match crate::registry::meta::qualified_name_error(&key) {
            Some(error) => {
                Err(format!("unable to parse requirement: <nil>: Invalid value: \"{key}\": {error}"))
            }
            None => Ok(key),
        }
    }
    fn value(&mut self, key: &str) -> Result<String, String> {
        if matches!(self.peek(), "" | ",") {
            return Ok(String::new());
        }
        let value = self.next();
        check_value(key, 0, value)
    }
    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        self.next();
        let open = self.next();
        if open != "(" {
            return Err(format!("unable to parse requirement: found '{open}' expected: '('"));
        }
        let mut out = Vec::new();
        loop {
            match self.next().as_str() {
                ")" => return Ok(out),
                "," => {}
                "" => return Err("unable to parse requirement: found '', expected: ',' or ')'".into()),
                value => out.push(check_value(key, out.len(), value.to_owned())?),
            }
        }
    }
}

fn check_value(key: &str, index: usize, value: String) -> Result<String, String> {
    match crate::registry::meta::label_value_error(&value) {
        Some(error) => Err(format!(
            "unable to parse requirement: values[{index}][{key}]: Invalid value: \"{value}\": {error}"
        )),
        None => Ok(value),
    }
}

/// A parsed field selector.
#[derive(Debug, Default)]
pub(crate) struct FieldSelector(Vec<(String, String, bool)>);

/// Selectable fields of a resource, besides `metadata.name` and `metadata.namespace`.
fn selectable_fields(resource: &Resource) -> Vec<String> {
    let extra: &[&str] = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("" | "events.k8s.io", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("", "secrets") => &["type"],
        ("", "namespaces") => &["name", "status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", _) => &["spec.signerName"],
        _ => &[],
    };
    let mut out: Vec<String> = extra.iter().map(|s| (*s).to_owned()).collect();
    if let Some(custom) = &resource.custom {
        out.extend(custom.selectable.iter().cloned());
    }
    out
}

/// The path, the value, and whether they must be equal; none if it is malformed.
fn field_term(term: &str) -> Option<(&str, &str, bool)> {
    if let Some((path, value)) = term.split_once("!=") {
        return Some((path, value, false));
    }
    let (path, value) = term.split_once("==").or_else(|| term.split_once('='))?;
    Some((path, value, true))
}

/// The `metadata.name` that a field selector requires, for the authorization of the request. Nothing else of the selector is checked.
pub(crate) fn required_name(text: &str) -> Option<String> {
    let terms: Option<Vec<_>> = text.split(',').filter(|term| !term.is_empty()).map(field_term).collect();
    let required = terms?.into_iter().find(|(path, _, equal)| *equal && *path == "metadata.name");
    let is_name = |name: &&str| !matches!(*name, "." | "..") && !name.contains(['/', '%']);
    required.map(|(_, name, _)| name).filter(is_name).map(str::to_owned)
}

impl FieldSelector {
    pub(crate) fn parse(text: &str, resource: &Resource) -> Result<Self, Status> {
        let mut out = Vec::new();
        let known = selectable_fields(resource);
        for term in text.split(',').filter(|t| !t.is_empty()) {
            let Some((path, value, equal)) = field_term(term) else {
                return Err(Status::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                )));
            };
            if !matches!(path, "metadata.name" | "metadata.namespace") && !known.iter().any(|k| k == path) {
                return Err(Status::bad_request(unsupported_field(path, resource)));
            }
            out.push((path.to_owned(), value.to_owned(), equal));
        }
        Ok(Self(out))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The selected `metadata.name`.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.iter().find(|(p, _, equal)| *equal && p == "metadata.name").map(|(_, v, _)| v.as_str())
    }

    pub(crate) fn matches(&self, object: &Stored) -> bool {
        let mut parsed: Option<Value> = None;
        self.0.iter().all(|(path, expected, equal)| {
            let found = match path.as_str() {
                "metadata.name" | "name" => object.name.to_string(),
                "metadata.namespace" => object.namespace.to_string(),
                path => field_text(parsed.get_or_insert_with(|| object.value()), path),
            };
            (found == *expected) == *equal
        })
    }
}

fn unsupported_field(path: &str, resource: &Resource) -> String {
    if resource.custom.is_some() {
        return format!("field label not supported: {path}");
    }
    if selectable_fields(resource).is_empty() {
        return format!(
            "\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
    }
    format!("field label not supported: {path}")
}

fn field_text(object: &Value, path: &str) -> String {
    let path = if path == "status.successful" { "status.succeeded" } else { path };
    let found = path.split('.').try_fold(object, |v, key| v.get(key));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => match path {
            "spec.unschedulable" | "spec.hostNetwork" => "false".into(),
            "status.replicas" | "status.succeeded" => "0".into(),
            _ => String::new(),
        },
        Some(other) => other.to_string(),
    }
}

/// Shard selector of Kubernetes 1.36: `shardRange(object.metadata.uid, 'from', 'to')`, a half-open range of hashes.
#[derive(Debug)]
pub(crate) struct ShardSelector {
    namespace: bool,
    from: u64,
    to: Option<u64>,
}

impl ShardSelector {
    pub(crate) fn parse(text: &str) -> Result<Vec<Self>, Status> {
        text.split("||").map(|part| Self::parse_one(part.trim())).collect::<Option<Vec<_>>>().ok_or_else(
            || {
                let cause =
                    Cause::invalid("shardSelector", &text.into(), "must be a shardRange() expression");
                Status::bad_options("ListOptions", &[cause])
            },
        )
    }
    fn parse_one(text: &str) -> Option<Self> {
        let inner = text.strip_prefix("shardRange(")?.strip_suffix(')')?;
        let mut parts = inner.split(',').map(|p| p.trim().trim_matches(['\'', '"']));
        let namespace = match parts.next()? {
            "object.metadata.uid" => false,
            "object.metadata.namespace" => true,
            _ => return None,
        };
        let number = |t: &str| u64::from_str_radix(t.trim_start_matches("0x"), 16).ok();
        let from = number(parts.next()?)?;
        let to = parts.next()?.trim_start_matches("0x");
        let to = if to.len() > 16 { None } else { Some(number(to)?) };
        Some(Self { namespace, from, to })
    }
    pub(crate) fn matches(&self, object: &Stored) -> bool {
        let hash = fnv(if self.namespace { &object.namespace } else { &object.uid });
        hash >= self.from && self.to.is_none_or(|to| hash < to)
    }
}

/// 64-bit FNV-1a, the hash of shards.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let parsed = LabelSelector::parse(selector).map_err(|s| s.message);
        let label = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        assert_eq!(parsed.map(|l| l.matches(label)), Ok(expected), "{selector}");
    }

    #[test]
    fn label_selectors_match() {
        let labels = [("a", "1"), ("tier", "web")];
        check("", &labels, true);
        check("a=1,tier!=db", &labels, true);
        check("a in (1, 2),!gone", &labels, true);
        check("a notin (1)", &labels, false);
        check("a>0,a<2", &labels, true);
        check("in=x", &[("in", "x")], true);
        check("gone", &labels, false);
    }

    #[test]
    fn malformed_selectors_are_rejected() {
        for text in ["a b", "=", "a,", "a in b", "bad*key", "a=b c", "a>x", "(", "a in (", "!"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }
}
