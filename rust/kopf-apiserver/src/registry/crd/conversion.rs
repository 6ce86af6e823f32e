//! Validation of the conversion of a CRD's versions.

use serde_json::{Value, json};

use crate::base::json::{member_text, strings};
use crate::error::status::Cause;

/// Versions of `ConversionReview` that kube-apiserver sends.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// Field errors of the conversion.
pub(super) fn validate(spec: &Value, out: &mut Vec<Cause>) {
    let Some(conversion) = spec.get("conversion").filter(|conversion| conversion.is_object()) else { return };
    let strategy = member_text(conversion, "strategy");
    if !matches!(strategy, "None" | "Webhook") {
        let known = ["None", "Webhook"].map(str::to_owned);
        match strategy {
            "" => out.push(Cause::required("spec.conversion.strategy", "")),
            other => out.push(Cause::unsupported("spec.conversion.strategy", &other.into(), &known)),
        }
    }
    let webhook = conversion.get("webhook").unwrap_or(&Value::Null);
    let config = webhook.get("clientConfig").filter(|config| config.is_object());
    let reviews = strings(webhook.get("conversionReviewVersions"));
    let (config_field, reviews_field) =
        ("spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions");
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            out.push(Cause::forbidden(config_field, detail));
        }
        if !reviews.is_empty() {
            out.push(Cause::forbidden(reviews_field, detail));
        }
        return;
    }
    match config {
        None => out.push(Cause::required(config_field, "required when strategy is set to Webhook")),
        Some(config) if config.get("url").is_some() == config.get("service").is_some() => {
            out.push(Cause::required(config_field, "exactly one of url or service is required"));
        }
        Some(_) => {}
    }
    if reviews.is_empty() {
        out.push(Cause::required(reviews_field, ""));
    } else if !reviews.iter().any(|version| REVIEWS.contains(&version.as_str())) {
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        out.push(Cause::invalid(reviews_field, &json!(reviews), &detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_are_for_the_strategy_webhook() {
        let url = json!({"url": "https://example.com"});
        for (conversion, expected) in [
            (json!({"strategy": "None"}), 0),
            (json!({"strategy": "Magic"}), 1),
            (json!({"strategy": "Webhook"}), 2),
            (
                json!({"strategy": "Webhook", "webhook": {"clientConfig": url, "conversionReviewVersions": ["v1"]}}),
                0,
            ),
            (
                json!({"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v9"]}}),
                2,
            ),
            (
                json!({"strategy": "None", "webhook": {"clientConfig": url, "conversionReviewVersions": ["v1"]}}),
                2,
            ),
        ] {
            let mut out = Vec::new();
            validate(&json!({"conversion": conversion}), &mut out);
            assert_eq!(out.len(), expected, "{conversion}");
        }
    }
}
