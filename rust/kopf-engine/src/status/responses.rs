//! The responses of the status server.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use kopf_core::health::{self, CheckResult, Endpoint};
use serde_json::json;

use super::{Connected, OperatorStatus, Served, metrics, probing};

const JSON: &str = "application/json; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// What one address serves.
#[derive(Clone)]
pub(super) struct Site {
    /// The path of the probes, if it is served here.
    pub(super) liveness: Option<Arc<str>>,
    /// Whether the other paths are served here.
    pub(super) has_status: bool,
}

/// Whether the path is one of the status endpoints.
pub(super) fn is_status(path: &str) -> bool {
    Endpoint::of_path(path).is_some() || matches!(path, "/streams" | "/metrics" | "/statusz")
}

pub(super) async fn response_to<B>(request: &Request<B>, served: &Served) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let connected = served.shared.connected.get();
    let is_compatible = connected.is_some_and(|connected| connected.status.is_none());
    let is_liveness = served.site.liveness.as_deref() == Some(path);
    if !is_liveness && (is_compatible || !served.has_status() || !is_status(path)) {
        return respond(StatusCode::NOT_FOUND, TEXT, Bytes::from_static(b"404: Not Found"));
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let body = Bytes::from_static(b"405: Method Not Allowed");
        let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, body);
        response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET,HEAD"));
        return response;
    }
    if is_liveness {
        return liveness(served, connected).await;
    }
    let status = connected.and_then(|connected| connected.status.as_ref());
    let python = served.shared.options.python.as_str();
    let mut response = match Endpoint::of_path(path) {
        Some(endpoint) => checks(endpoint, request.uri().query().unwrap_or_default(), served).await,
        None => match status {
            Some(status) => details(path, status, python),
            None => details_of_startup(path, python),
        },
    };
    let no_store = header::HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}

/// The response for the probes: their results, or the failed checks of liveness.
async fn liveness(served: &Served, connected: Option<&Connected>) -> Response<Full<Bytes>> {
    let none = Bytes::from_static(b"{}");
    let Some(connected) = connected else { return respond(StatusCode::OK, JSON, none) };
    if let Some(status) = &connected.status {
        let results = status.monitor.evaluate();
        if !health::is_passing(&results, Endpoint::Live, &[]) {
            let report = health::report(&results, Endpoint::Live, &[], false);
            let problem = format!("500 Internal Server Error\n\n{report}");
            return respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, problem.into());
        }
        if !connected.has_probes {
            return respond(StatusCode::OK, JSON, none);
        }
    }
    if let Some(results) = probing::ask(&served.askers).await {
        return respond(StatusCode::OK, JSON, results);
    }
    let problem = b"500 Internal Server Error\n\nServer got itself in trouble";
    respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, Bytes::from_static(problem))
}

/// The response of `/livez`, `/readyz` and `/startupz`.
async fn checks(endpoint: Endpoint, query: &str, served: &Served) -> Response<Full<Bytes>> {
    let parameters: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let is_verbose = parameters.iter().any(|(name, _)| name == "verbose");
    let excluded = parameters.iter().filter(|(name, _)| name == "exclude");
    let excluded: Vec<&str> = excluded.map(|(_, value)| &**value).collect();
    let mut results = results_of(served);
    let has_probes = served.shared.connected.get().is_some_and(|connected| connected.has_probes);
    if endpoint == Endpoint::Live {
        // If another check has failed, the host may not reply at all.
        let is_needed = has_probes
            && !excluded.contains(&"probes")
            && (is_verbose || health::is_passing(&results, endpoint, &excluded));
        let failure = if is_needed { probing::check(&served.askers).await } else { None };
        results.push(health::probes_result(failure));
    }
    let is_passing = health::is_passing(&results, endpoint, &excluded);
    let status = if is_passing { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    respond(status, TEXT, health::report(&results, endpoint, &excluded, is_verbose).into())
}

fn results_of(served: &Served) -> Vec<CheckResult> {
    let status = served.shared.connected.get().and_then(|connected| connected.status.as_ref());
    status.map_or_else(health::evaluate_startup, |status| status.monitor.evaluate())
}

/// The response of a path without checks.
fn details(path: &str, status: &OperatorStatus, python: &str) -> Response<Full<Bytes>> {
    let OperatorStatus { health, awaited, monitor } = status;
    let streams = || {
        let mut shown = health.to_json();
        if let (Some(reconcilers), Some(shown)) = (&awaited.reconcilers, shown.as_object_mut()) {
            shown.insert("waiting".to_owned(), reconcilers.waiting().into());
        }
        shown
    };
    match path {
        "/streams" => respond(StatusCode::OK, JSON, streams().to_string().into()),
        "/metrics" => {
            let reconcilers = awaited.reconcilers.as_ref().map(|it| it.to_metrics());
            let caches = awaited.caches.as_ref().map(|it| it.to_metrics());
            let own = metrics::to_metrics(python, Some(monitor), &monitor.evaluate());
            let text = [Some(own), Some(health.to_metrics()), reconcilers, caches];
            as_metrics(text.into_iter().flatten().collect())
        }
        _ => {
            let (results, state) = (monitor.evaluate(), monitor.state());
            let body = json!({"state": state, "checks": shown(&results), "watching": streams()});
            respond(StatusCode::OK, JSON, body.to_string().into())
        }
    }
}

/// The same before the engine runs.
fn details_of_startup(path: &str, python: &str) -> Response<Full<Bytes>> {
    let body = match path {
        "/metrics" => return as_metrics(metrics::to_metrics(python, None, &health::evaluate_startup())),
        "/streams" => json!({"streams": [], "expected": 0, "missing": []}),
        _ => json!({"state": "starting", "checks": shown(&health::evaluate_startup())}),
    };
    respond(StatusCode::OK, JSON, body.to_string().into())
}

fn shown(results: &[CheckResult]) -> Vec<serde_json::Value> {
    let shown = |result: &CheckResult| {
        let endpoints = result.endpoints.iter().map(|endpoint| match endpoint {
            Endpoint::Live => "live",
            Endpoint::Ready => "ready",
            Endpoint::Start => "start",
        });
        json!({
            "check": result.name, "endpoints": endpoints.collect::<Vec<_>>(),
            "passes": result.failure.is_none(), "failure": result.failure,
        })
    };
    results.iter().map(shown).collect()
}

fn as_metrics(text: String) -> Response<Full<Bytes>> {
    respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into())
}

fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
