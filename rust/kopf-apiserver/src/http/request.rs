//! Requests: path, query, headers, body, user, and the options in them.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::base::options::FieldValidation;
use crate::base::user::User;
use crate::base::yaml::DuplicateKey;
use crate::error::status::{Cause, Status};
use crate::http::accept::{Accept, Endpoint, OutputFormat};
use crate::testkit::faults::RequestClient;

/// A request with its complete body.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The duplicate keys of a body that was YAML.
    pub(crate) duplicate_keys: Vec<DuplicateKey>,
    pub(crate) user: Arc<User>,
}

impl Request {
    /// The client, as faults select it.
    pub(crate) fn client(&self) -> RequestClient<'_> {
        RequestClient { user: &self.user.name, agent: self.header("user-agent") }
    }
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
        self.has(name) && !self.get(name).eq_ignore_ascii_case("false") && self.get(name) != "0"
    }
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }
}

/// Decodes percent-encoding. With `plus`, `+` is a space.
pub(crate) fn percent_decode(text: &str, plus: bool) -> String {
    let text = if plus { Cow::Owned(text.replace('+', " ")) } else { Cow::Borrowed(text) };
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

/// Options of all writes.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_manager: String,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: bool,
    /// The options that the client has given, for admission.
    pub(crate) given: Map<String, Value>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// Requested format of the response.
    ///
    /// # Errors
    /// 406: none of the media types of the `Accept` header can be served.
    pub(crate) fn output_format(&self, endpoint: Endpoint) -> Result<OutputFormat, Status> {
        match self.header("accept") {
            "" => Ok(OutputFormat::Object),
            header => Accept::parse(header).negotiate(endpoint),
        }
    }

    /// Options of a write. `kind` is their name in error messages.
    pub(crate) fn write_options(&self, kind: &str) -> Result<WriteOptions, Status> {
        let mut causes = Vec::new();
        let dry_run = self.query.all("dryRun");
        if dry_run.iter().any(|d| d != "All") {
            let value = Value::from(dry_run.clone());
            causes.push(Cause::unsupported("dryRun", &value, &["All".to_owned()]));
        }
        let given_manager = self.query.get("fieldManager");
        if given_manager.len() > 128 {
            causes.push(Cause::too_long("fieldManager", 128));
        }
        let field_validation = match self.query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            "" | "Warn" => FieldValidation::Warn,
            other => {
                let known = ["", "Ignore", "Strict", "Warn"].map(str::to_owned);
                causes.push(Cause::unsupported("fieldValidation", &other.into(), &known));
                FieldValidation::Ignore
            }
        };
        if !causes.is_empty() {
            return Err(Status::bad_options(kind, &causes));
        }
        let agent = self.header("user-agent").split('/').next().unwrap_or_default();
        let field_manager = if given_manager.is_empty() {
            if agent.is_empty() { "unknown" } else { agent }
        } else {
            given_manager
        };
        let force = self.query.flag("force");
        let mut given = Map::new();
        if !dry_run.is_empty() {
            given.insert("dryRun".into(), dry_run.clone().into());
        }
        for key in ["fieldManager", "fieldValidation"] {
            let value = self.query.get(key);
            if !value.is_empty() {
                given.insert(key.into(), value.into());
            }
        }
        Ok(WriteOptions {
            given,
            dry_run: !dry_run.is_empty(),
            field_manager: field_manager.to_owned(),
            field_validation,
            force,
        })
    }

    /// The options of a deletion that the client has given in the body or, if there is none, in the query.
    pub(crate) fn given_delete_options(&self, body: &Value) -> Map<String, Value> {
        const KEYS: [&str; 5] =
            ["gracePeriodSeconds", "preconditions", "orphanDependents", "propagationPolicy", "dryRun"];
        if let Some(body) = body.as_object() {
            let given = KEYS.iter().filter_map(|key| Some(((*key).to_owned(), body.get(*key)?.clone())));
            return given.collect();
        }
        let query = &self.query;
        let mut given = Map::new();
        for key in KEYS {
            let value = match key {
                "dryRun" => query.all(key).into(),
                "gracePeriodSeconds" => query.get(key).parse::<i64>().map_or(Value::Null, Value::from),
                "propagationPolicy" => query.get(key).into(),
                _ => continue,
            };
            if !matches!(&value, Value::Null) && value != "" && value != Value::Array(Vec::new()) {
                given.insert(key.to_owned(), value);
            }
        }
        given
    }
}
