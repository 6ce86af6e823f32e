//! A request as the verbs see it: path, query, body, what form of answer is wanted, and who asks.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::schema::Place;
use crate::status::{Cause, Status};

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The groups that the user is in.
    pub groups: Vec<String>,
}

/// One request, read completely.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) user: Arc<User>,
}

/// Decoded query parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pair = |part: &str| {
            let (k, v) = part.split_once('=').unwrap_or((part, ""));
            (percent_decode(k, true), percent_decode(v, true))
        };
        Self(text.split('&').filter(|p| !p.is_empty()).map(pair).collect())
    }
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(k, _)| k == name).map_or("", |(_, v)| v.as_str())
    }
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(k, _)| k == name)
    }
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(k, v)| k == name && !v.is_empty()).map(|(_, v)| v.clone()).collect()
    }
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.has(name) && !matches!(self.get(name), "false" | "0")
    }
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }
}

/// Undoes percent-encoding; `plus` also reads `+` as a space.
pub(crate) fn percent_decode(text: &str, plus: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'+' if plus => out.push(b' '),
            b'%' => {
                let rest = bytes.clone();
                let digits: Vec<u8> = rest.take(2).collect();
                let code = std::str::from_utf8(&digits).ok().and_then(|d| u8::from_str_radix(d, 16).ok());
                match code {
                    Some(code) if digits.len() == 2 => {
                        out.push(code);
                        bytes.nth(1);
                    }
                    _ => out.push(b),
                }
            }
            _ => out.push(b),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What form of answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Object,
    Table,
    Partial,
    PartialList,
}

/// What to do about fields that are unknown or given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    Ignore,
    Warn,
    Strict,
}

/// Options that all writes share.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) manager: String,
    pub(crate) strictness: Strictness,
    pub(crate) force: bool,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// The first acceptable form of answer.
    pub(crate) fn shape(&self) -> Result<Shape, Status> {
        let accept = self.header("accept");
        if accept.trim().is_empty() {
            return Ok(Shape::Object);
        }
        for entry in accept.split(',') {
            let mut parts = entry.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !matches!(media, "application/json" | "*/*" | "application/*") {
                continue;
            }
            let form = parts.find_map(|p| p.strip_prefix("as="));
            match form {
                None => return Ok(Shape::Object),
                Some("Table") => return Ok(Shape::Table),
                Some("PartialObjectMetadata") => return Ok(Shape::Partial),
                Some("PartialObjectMetadataList") => return Ok(Shape::PartialList),
                Some(_) => {}
            }
        }
        let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        if accept.contains("as=") {
            let message = format!("only the following media types are accepted: {known}");
            return Err(Status::new(406, "NotAcceptable", message));
        }
        let message = format!("406: Not Acceptable\n\nAvailable representations: {known}");
        Err(Status::new(406, "NotAcceptable", message).with(Map::new()))
    }

    /// Reads the options of a write; `kind` names the options in complaints.
    pub(crate) fn write_options(&self, kind: &str) -> Result<WriteOptions, Status> {
        let mut causes = Vec::new();
        let dry = self.query.all("dryRun");
        if dry.iter().any(|d| d != "All") {
            let shown = Value::from(dry.clone());
            causes.push(Cause::unsupported("dryRun", &shown, &["All".to_owned()]));
        }
        let named = self.query.get("fieldManager");
        if named.len() > 128 {
            causes.push(Cause::too_long("fieldManager", 128));
        }
        let strictness = match self.query.get("fieldValidation") {
            "Ignore" => Strictness::Ignore,
            "Strict" => Strictness::Strict,
            "" | "Warn" => Strictness::Warn,
            other => {
                let known = ["", "Ignore", "Strict", "Warn"].map(str::to_owned);
                causes.push(Cause::unsupported("fieldValidation", &other.into(), &known));
                Strictness::Ignore
            }
        };
        if !causes.is_empty() {
            return Err(Status::bad_options(kind, &causes));
        }
        let agent = self.header("user-agent").split('/').next().unwrap_or_default();
        let manager = if named.is_empty() { if agent.is_empty() { "unknown" } else { agent } } else { named };
        let force = self.query.flag("force");
        Ok(WriteOptions { dry_run: !dry.is_empty(), manager: manager.to_owned(), strictness, force })
    }
}

/// Parses JSON and notes fields that are given twice.
pub(crate) fn parse_json(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut twice = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Reader { place: &Place::Top, twice: &mut twice }.deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, twice))
}

struct Reader<'t, 'p> {
    place: &'p Place<'p>,
    twice: &'t mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_, '_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_, '_> {
    type Value = Value;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        loop {
            let place = Place::Item(self.place, out.len());
            match items.next_element_seed(Reader { place: &place, twice: &mut *self.twice })? {
                Some(item) => out.push(item),
                None => return Ok(out.into()),
            }
        }
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let place = Place::Member(self.place, &key);
            if out.contains_key(&key) {
                let path = place.show();
                if !self.twice.contains(&path) {
                    self.twice.push(path);
                }
            }
            let value = members.next_value_seed(Reader { place: &place, twice: &mut *self.twice })?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

/// The text with which Kubernetes complains of malformed JSON.
pub(crate) fn json_complaint(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    // The library counts lines and columns from one; the offending byte is named.
    let line_start: usize =
        bytes.split(|b| *b == b'\n').take(error.line().saturating_sub(1)).map(|l| l.len() + 1).sum();
    let at = (line_start + error.column()).saturating_sub(1);
    let found = bytes.get(at).map_or(' ', |b| char::from(*b));
    let text = error.to_string();
    let place = if text.starts_with("key must be a string") || text.starts_with("expected `\"`") {
        "looking for beginning of object key string"
    } else if text.starts_with("expected `,` or `}`") {
        "after object key:value pair"
    } else if text.starts_with("expected `:`") {
        "after object key"
    } else if text.starts_with("expected `,` or `]`") {
        "after array element"
    } else if text.starts_with("trailing characters") {
        "after top-level value"
    } else {
        "looking for beginning of value"
    };
    format!("invalid character '{found}' {place}")
}
