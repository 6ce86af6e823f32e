//! Content negotiation of request bodies: YAML and protobuf are converted to JSON.
//!
//! Malformed YAML is left unchanged: the API handler reports it.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::base::yaml::{self, DuplicateKey};
use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::http::request::Request;
use crate::http::route::Route;
use crate::scheme::protobuf::{self, DecodeError};

/// Converts the body to JSON.
pub(crate) fn decode(cluster: &Cluster, request: &mut Request, route: &Route) -> Result<(), Status> {
    if request.body.is_empty() {
        return Ok(());
    }
    let media = request.header("content-type").split(';').next().unwrap_or_default().trim();
    match media {
        protobuf::MEDIA_TYPE if !is_custom(cluster, route) => {
            let value = protobuf::decode(&request.body).map_err(decode_error)?;
            request.body = value.to_string().into();
            request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        // JSON is YAML, but faster to decode. An apply patch keeps its content type, which is its patch type.
        "application/yaml" | "application/apply-patch+yaml" => {
            if let Some((json, duplicate_keys)) = yaml_to_json(&request.body) {
                request.body = json;
                request.duplicate_keys = duplicate_keys;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whether the path names a custom resource. There is no protobuf encoding of these.
fn is_custom(cluster: &Cluster, route: &Route) -> bool {
    let Route::Resource(target) = route else { return false };
    let registry = cluster.registry();
    let resource = registry.version(&target.group, &target.version).and_then(|all| all.get(&target.plural));
    resource.is_some_and(|r| r.custom.is_some())
}

/// A YAML object as JSON, and its duplicate keys. `None` if it is JSON already, or no object.
pub(crate) fn yaml_to_json(bytes: &[u8]) -> Option<(Bytes, Vec<DuplicateKey>)> {
    let text = std::str::from_utf8(bytes).ok()?;
    if text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
        return None;
    }
    let (value, duplicate_keys) = yaml::decode(text)?;
    value.is_object().then(|| (value.to_string().into(), duplicate_keys))
}

fn decode_error(error: DecodeError) -> Status {
    let why = match error {
        DecodeError::NotProtobuf => {
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".into()
        }
        DecodeError::UnknownKind(kind) => format!("no kind {kind} is registered"),
        DecodeError::Malformed => "unexpected EOF".into(),
    };
    Status::bad_request(why)
}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test may stop")]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn handwritten_yaml_becomes_json() {
        let yaml =
            b"# a comment\napiVersion: v1\nmetadata: &m\n  name: \"1\"\n  labels: {a: b}\nsize: 3\non: yes\nmode: 0644\n";
        let (json, _) = yaml_to_json(yaml).expect("readable");
        let value: Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(value["metadata"]["name"], "1");
        assert_eq!(value["size"], 3);
        assert_eq!(value["mode"], 0o644);
    }

    #[test]
    fn json_and_malformed_yaml_are_unchanged() {
        for same in
            [&br#"{"a": 1}"#[..], b"{broken", b"just text", b"- a\n- b", &[0xff, 0xfe], b"a: [", b"a: *b"]
        {
            assert_eq!(yaml_to_json(same), None);
        }
    }

    #[test]
    fn yaml_bombs_are_rejected() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let last = format!("*a{}", level - 1);
            bomb = format!("{bomb}a{level}: &a{level} [{}]\n", [last.as_str(); 10].join(", "));
        }
        assert_eq!(yaml_to_json(bomb.as_bytes()), None);
    }
}
