//! Conformance tests: the same requests go to kube-apiserver and to the embedded server, and normalized responses are compared.
//!
//! The requests are in `requests.jsonl`, the responses of kube-apiserver in `recorded.jsonl`. The test belongs to the crate
//! `kopf-apiserver` (`cargo test -p kopf-apiserver --test conformance`). With `KOPF_CONFORMANCE_KUBECONFIG`, the kubeconfig of a
//! new control plane (admin token, no controllers), the requests go there, and `KOPF_CONFORMANCE_RECORD` stores the responses.
//! `KOPF_CONFORMANCE_SHOW` prints the differences.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test may stop, and prints the result")]

#[path = "../../rust/kopf-apiserver/tests/server/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kopf_apiserver::{ServerOptions, start};
use serde_json::{Map, Value, json};
use support::client::{Answer, Client};

/// Minimum percentage of equal responses.
const REQUIRED_PERCENT: usize = 97;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance")
}

fn lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder().join(name)).unwrap_or_default();
    text.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect()
}

async fn replay(client: &Client, requests: &[Value], longest_pause: u64) -> Vec<Answer> {
    let mut out = Vec::new();
    for request in requests {
        let text = |key: &str| request[key].as_str().unwrap_or_default();
        let mut headers: BTreeMap<String, String> =
            [("user-agent", "fidelity/1"), ("accept", "application/json")]
                .map(|(k, v)| (k.into(), v.into()))
                .into();
        headers.insert("authorization".into(), format!("Bearer {}", client.token));
        if !text("type").is_empty() {
            headers.insert("content-type".into(), text("type").into());
        }
        for (key, value) in request["headers"].as_object().into_iter().flatten() {
            headers.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
        }
        headers.retain(|_, v| !v.is_empty());
        out.push(client.send(text("method"), text("path"), &headers, text("body")).await);
        if let Some(pause) = request["pause"].as_u64() {
            // Time for background work, whose end is not observable.
            tokio::time::sleep(std::time::Duration::from_millis(pause.min(longest_pause))).await;
        }
    }
    out
}

/// Replaces values that differ between servers: uids, times, versions, addresses.
struct Normaliser {
    patterns: Vec<(regex::Regex, &'static str)>,
}

impl Normaliser {
    fn new() -> Self {
        let pattern = |text: &str, with| (regex::Regex::new(text).expect("a pattern"), with);
        Self {
            patterns: vec![
                pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
                pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
                pattern(r"10\.0\.\d+\.\d+", "<ip>"),
                pattern(r"resource version: \d+", "resource version: <rv>"),
                pattern(r"current: \d+", "current: <rv>"),
                pattern(r"ResourceVersion in record \(\d+\)", "ResourceVersion in record (<rv>)"),
            ],
        }
    }

    fn text(&self, text: &str) -> String {
        self.patterns
            .iter()
            .fold(text.to_owned(), |t, (pattern, with)| pattern.replace_all(&t, *with).into_owned())
    }

    /// A message that quotes a whole object: the object's members may stand in any order.
    fn message(&self, text: &str) -> Value {
        let Some((head, tail)) = text.split_once("Invalid value: \"{") else { return self.text(text).into() };
        let quoted = format!("\"{{{tail}");
        let mut reader = serde_json::Deserializer::from_str(&quoted).into_iter::<String>();
        let inner = reader.next().and_then(Result::ok).and_then(|t| serde_json::from_str::<Value>(&t).ok());
        let rest = quoted.get(reader.byte_offset()..).unwrap_or_default().to_owned();
        match inner {
            Some(object) => json!([self.text(head), self.value("", &object), self.text(&rest)]),
            None => self.text(text).into(),
        }
    }

    fn value(&self, key: &str, value: &Value) -> Value {
        match value {
            Value::String(text) => match key {
                "resourceVersion" | "continue" if !text.is_empty() => format!("<{key}>").into(),
                "message" => self.message(text),
                _ => self.text(text).into(),
            },
            Value::Array(list) => {
                let mut out: Vec<Value> = list.iter().map(|v| self.value(key, v)).collect();
                // Entries of equal seconds and complaints about members of maps have no order in the real server either.
                if key == "managedFields" || key == "causes" {
                    out.sort_by_key(|v| sorted(v).to_string());
                }
                out.into()
            }
            Value::Object(map) => {
                let mut out: Map<String, Value> =
                    map.iter().map(|(k, v)| (k.clone(), self.value(k, v))).collect();
                let several =
                    out.get("details").and_then(|d| d["causes"].as_array()).is_some_and(|c| c.len() > 1);
                if several {
                    // The message repeats the causes in their accidental order.
                    out.insert("message".into(), "<see causes>".into());
                }
                Value::Object(out)
            }
            other => other.clone(),
        }
    }

    fn answer(&self, answer: &Answer) -> Value {
        let parsed: Vec<Value> =
            serde_json::Deserializer::from_str(&answer.body).into_iter().filter_map(Result::ok).collect();
        let body = if parsed.is_empty() {
            json!([self.text(&answer.body)])
        } else {
            parsed.iter().map(|v| self.value("", v)).collect()
        };
        let mut warnings = answer.warnings.clone();
        warnings.sort();
        sorted(&json!({"code": answer.code, "body": body, "warnings": warnings}))
    }
}

/// The same with members of maps in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: BTreeMap<&String, Value> = map.iter().map(|(k, v)| (k, sorted(v))).collect();
            Value::Object(ordered.into_iter().map(|(k, v)| (k.clone(), v)).collect())
        }
        Value::Array(list) => list.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// The first place where two values differ.
fn first_difference(a: &Value, b: &Value, path: &str) -> Option<String> {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys: std::collections::BTreeSet<&String> = x.keys().chain(y.keys()).collect();
            keys.into_iter()
                .find_map(|k| first_difference(x.get(k)?, y.get(k)?, &format!("{path}.{k}")))
                .or_else(|| {
                    (a != b).then(|| {
                        format!(
                            "{path}: members {:?} / {:?}",
                            x.keys().collect::<Vec<_>>(),
                            y.keys().collect::<Vec<_>>()
                        )
                    })
                })
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => x
            .iter()
            .zip(y)
            .enumerate()
            .find_map(|(i, (x, y))| first_difference(x, y, &format!("{path}[{i}]"))),
        _ => (a != b).then(|| format!("{path}: {} / {}", cut(a), cut(b))),
    }
}

fn cut(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}

async fn real_answers(requests: &[Value], normaliser: &Normaliser) -> Vec<Value> {
    let Ok(kubeconfig) = std::env::var("KOPF_CONFORMANCE_KUBECONFIG") else {
        println!("no real server: KOPF_CONFORMANCE_KUBECONFIG is not set, so the recorded answers are used");
        return lines("recorded.jsonl");
    };
    let client = Client::from_kubeconfig(Path::new(&kubeconfig));
    let answers: Vec<Value> =
        replay(&client, requests, 5000).await.iter().map(|a| normaliser.answer(a)).collect();
    if std::env::var("KOPF_CONFORMANCE_RECORD").is_ok() {
        let text: Vec<String> = answers.iter().map(Value::to_string).collect();
        std::fs::write(folder().join("recorded.jsonl"), text.join("\n") + "\n")
            .expect("the record is written");
    }
    answers
}

#[tokio::test]
async fn answers_are_those_of_a_real_server() {
    let requests = lines("requests.jsonl");
    assert!(requests.len() >= 600, "only {} requests were found", requests.len());
    let normaliser = Normaliser::new();
    let real = real_answers(&requests, &normaliser).await;
    assert_eq!(real.len(), requests.len(), "the record does not belong to the requests: record it again");
    // The real control plane runs without its controller manager.
    let options = ServerOptions {
        garbage_collection: false,
        namespace_lifecycle: false,
        tls: false,
        ..ServerOptions::default()
    };
    let server = start(options).await.expect("a server");
    let client = Client::plain(server.port(), server.token());
    let ours: Vec<Value> =
        replay(&client, &requests, 50).await.iter().map(|a| normaliser.answer(a)).collect();
    let mut equal = 0;
    for (i, ((request, real), ours)) in requests.iter().zip(&real).zip(&ours).enumerate() {
        if real == ours {
            equal += 1;
        } else if std::env::var("KOPF_CONFORMANCE_SHOW").is_ok() {
            let what = format!("#{i} {} {} {}", request["method"], request["path"], cut(&request["body"]));
            println!("{what}\n    {}", first_difference(real, ours, "").unwrap_or_default());
        }
    }
    println!("{equal} of {} answers are equal", requests.len());
    assert!(
        equal * 100 >= requests.len() * REQUIRED_PERCENT,
        "only {equal} of {} answers are equal",
        requests.len()
    );
}
