//! The metrics of requests to the API server.

use crate::client::Client;
use crate::client::usage::RequestUsage;
use crate::metrics::instruments::{add_all, add_histograms};
use crate::metrics_text::{add_family, add_sample};
use crate::status::monitor::Gauges;

/// Appends the attempts of requests, with the names and labels of client-go, and the use of the permits.
pub(super) fn add_requests(text: &mut String, gauges: &Gauges, client: &Client) {
    let name = "rest_client_requests_total";
    add_family(text, name, "counter", "Attempts of requests to the API server.");
    let host = gauges.server.split_once("://").map_or(gauges.server.as_str(), |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    for attempts in &gauges.attempts {
        let code = attempts.status.map_or_else(|| "<error>".to_owned(), |status| status.to_string());
        let labels = [("code", code.as_str()), ("method", attempts.method), ("host", host)];
        add_sample(text, name, &labels, attempts.count);
    }
    let RequestUsage { retries, durations, waiting } = client.usage();
    let help = "Seconds from an attempt to the end of its response; without watches.";
    let durations =
        durations.into_iter().map(|(method, histogram)| (vec![("verb", method), ("host", host)], histogram));
    add_histograms(text, "rest_client_request_duration_seconds", help, durations);
    add_family(text, "kopf_requests_active", "gauge", "Request permits in use; watches need none.");
    add_sample(text, "kopf_requests_active", &[], gauges.permits.active);
    add_family(text, "kopf_requests_waiting", "gauge", "Requests that wait for a permit.");
    add_sample(text, "kopf_requests_waiting", &[], waiting);
    if let Some(limit) = gauges.permits.limit {
        add_family(text, "kopf_requests_limit", "gauge", "All request permits.");
        add_sample(text, "kopf_requests_limit", &[], limit);
    }
    let repeated = ("kopf_request_retries_total", "counter", "Requests that were repeated after a failure.");
    add_all(text, repeated, retries.into_iter().map(|(cause, count)| ([("cause", cause)], count)));
    let [succeeded, failed] = client.logins();
    let logins = ("kopf_logins_total", "counter", "Logins by login handlers, and without them.");
    add_all(text, logins, [([("result", "ok")], succeeded), ([("result", "failed")], failed)]);
}
