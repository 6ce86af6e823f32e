//! Reviews in the responses of webhooks.

use serde_json::Value;

use crate::base::json::{go_kind, json_complaint, member_text, parse_json};

/// Types of members of the response, as Go names them.
const MEMBERS: [(&str, &str); 4] =
    [("uid", "types.UID"), ("allowed", "bool"), ("patchType", "v1.PatchType"), ("warnings", "[]string")];
/// Versions of reviews of both kinds.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Decodes the review in a response. `request` is the review of the request. The error is the text for a Status.
pub(crate) fn decode(bytes: &[u8], request: &Value) -> Result<Value, String> {
    let unreadable = |why: &str| format!("couldn't get version/kind; json parse error: {why}");
    let looks_like_json = bytes.trim_ascii_start().first() == Some(&b'{');
    let review = match parse_json(bytes) {
        Ok((review, _)) => review,
        Err(error) if looks_like_json => return Err(unreadable(&json_complaint(bytes, &error))),
        // Other texts are read as YAML.
        Err(_) => Value::from(""),
    };
    if !review.is_object() {
        let target = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        let found = go_kind(&review);
        return Err(unreadable(&format!("json: cannot unmarshal {found} into Go value of type {target}")));
    }
    check_registered(&review, request)?;
    check_members(&review, member_text(request, "kind"))?;
    Ok(review)
}

/// Checks that a review is of the type of the request, if it has a version and a kind.
fn check_registered(review: &Value, request: &Value) -> Result<(), String> {
    let (given_version, given_kind) = (member_text(review, "apiVersion"), member_text(review, "kind"));
    let (api_version, kind) = (member_text(request, "apiVersion"), member_text(request, "kind"));
    if given_version.is_empty() || given_kind.is_empty() || (given_version, given_kind) == (api_version, kind)
    {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (given_group, short) = given_version.split_once('/').unwrap_or(("", given_version));
    let is_review = given_kind == kind && given_group == group && VERSIONS.contains(&short);
    if is_review || (given_version, given_kind) == ("v1", "Status") {
        return Err(format!("converting ({short}.{given_kind}) to ({version}.{kind}): unknown conversion"));
    }
    Err(format!(
        "no kind \"{given_kind}\" is registered for version \"{given_version}\" in scheme \"pkg/runtime/scheme.go:111\""
    ))
}

fn check_members(review: &Value, kind: &str) -> Result<(), String> {
    let response = review.get("response").unwrap_or(&Value::Null);
    let holder = kind.replace("Review", "Response");
    for (key, go_type) in MEMBERS {
        let found = response.get(key).unwrap_or(&Value::Null);
        let fits = match key {
            "allowed" => found.is_boolean(),
            "warnings" => found.is_array(),
            _ => found.is_string(),
        };
        if !found.is_null() && !fits {
            let found = go_kind(found);
            return Err(format!(
                "json: cannot unmarshal {found} into Go struct field {holder}.response.{key} of type {go_type}"
            ));
        }
    }
    Ok(())
}

/// Checks that a review has the version and the kind of the request.
pub(crate) fn check_type(review: &Value, request: &Value) -> Result<(), String> {
    let (given_version, given_kind) = (member_text(review, "apiVersion"), member_text(review, "kind"));
    let (api_version, kind) = (member_text(request, "apiVersion"), member_text(request, "kind"));
    if (given_version, given_kind) == (api_version, kind) {
        return Ok(());
    }
    let given_version = if given_version.is_empty() { "/" } else { given_version };
    Err(format!(
        "expected webhook response of {api_version}, Kind={kind}, got {given_version}, Kind={given_kind}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_documents_are_rejected() {
        let request = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
        let status = r#"{"apiVersion": "v1", "kind": "Status"}"#;
        let other = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "Review"}"#;
        for (body, expected) in [
            (status, "converting (v1.Status) to (v1.AdmissionReview): unknown conversion"),
            (other, "no kind \"Review\" is registered for version \"admission.k8s.io/v1\" in scheme"),
            ("<html>", "couldn't get version/kind; json parse error: json: cannot unmarshal string into"),
            ("[]", "couldn't get version/kind; json parse error: json: cannot unmarshal array into"),
            ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
            (
                r#"{"response": {"allowed": 1}}"#,
                "json: cannot unmarshal number into Go struct field AdmissionResponse.response.allowed of type bool",
            ),
        ] {
            let error = decode(body.as_bytes(), &request).unwrap_err();
            assert!(error.starts_with(expected), "{body}: {error}");
        }
        let untyped = decode(b"{}", &request).unwrap();
        let error = check_type(&untyped, &request).unwrap_err();
        assert_eq!(
            error,
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
        );
    }
}
