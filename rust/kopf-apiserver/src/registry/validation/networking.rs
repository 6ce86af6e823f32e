//! Validation of ingresses and network policies.

use serde_json::Value;

use super::list;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;
use crate::registry::rules::check;
use crate::schema::formats;

/// The spec of a network policy.
pub(super) fn policy(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    if list(spec, "policyTypes").len() > 2 {
        let detail = "may not specify more than two policyTypes";
        out.push(Cause::invalid(format!("{path}.policyTypes"), &spec["policyTypes"], detail));
    }
}

/// A peer of a network policy.
pub(super) fn peer(peer: &Value, path: &str, out: &mut Vec<Cause>) {
    let selectors = ["podSelector", "namespaceSelector"].iter().filter(|k| peer.get(**k).is_some()).count();
    let Some(block) = peer.get("ipBlock") else {
        if selectors == 0 {
            out.push(Cause::required(path, "must specify a peer"));
        }
        return;
    };
    if selectors > 0 {
        out.push(Cause::forbidden(path, "may not specify both ipBlock and another peer"));
    }
    let cidr = member_text(block, "cidr");
    let field = format!("{path}.ipBlock.cidr");
    if cidr.is_empty() {
        out.push(Cause::required(field, ""));
        return;
    }
    if !formats::matches("cidr", cidr) {
        out.push(Cause::invalid(field, &cidr.into(), check::CIDR));
        return;
    }
    for (i, except) in list(block, "except").iter().enumerate() {
        let text = except.as_str().unwrap_or_default();
        let field = format!("{path}.ipBlock.except[{i}]");
        if !formats::matches("cidr", text) {
            out.push(Cause::invalid(field, except, check::CIDR));
        } else if !is_within(text, cidr) {
            let detail = "must be a strict subset of `cidr`";
            out.push(Cause::invalid(field, except, detail));
        }
    }
}

/// Whether a CIDR lies strictly within another.
fn is_within(inner: &str, outer: &str) -> bool {
    let parse = |text: &str| {
        let (address, bits) = text.split_once('/')?;
        let bits: u32 = bits.parse().ok()?;
        Some(match address.parse().ok()? {
            std::net::IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, bits),
            std::net::IpAddr::V6(ip) => (u128::from(ip), bits),
        })
    };
    let (Some((inner, inner_bits)), Some((outer, outer_bits))) = (parse(inner), parse(outer)) else {
        return false;
    };
    let mask = u128::MAX.checked_shl(128 - outer_bits).unwrap_or(0);
    inner_bits > outer_bits && inner & mask == outer & mask
}

/// A port of a network policy.
pub(super) fn policy_port(port: &Value, path: &str, out: &mut Vec<Cause>) {
    let Some(end) = port.get("endPort").and_then(Value::as_i64) else { return };
    let field = format!("{path}.endPort");
    match port.get("port") {
        None => {
            out.push(Cause::invalid(field, &end.into(), "may not be specified when `port` is not specified"));
        }
        Some(Value::String(_)) => {
            out.push(Cause::invalid(field, &end.into(), "may not be specified when `port` is non-numeric"));
        }
        Some(number) => {
            if number.as_i64().is_some_and(|n| end < n) {
                let detail = "must be greater than or equal to `port`";
                out.push(Cause::invalid(field.clone(), number, detail));
            }
            if !(1..=65535).contains(&end) {
                out.push(Cause::invalid(field, &end.into(), "must be between 1 and 65535, inclusive"));
            }
        }
    }
}

/// The spec of an ingress.
pub(super) fn ingress(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    if list(spec, "rules").is_empty() && spec.get("defaultBackend").is_none() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        out.push(Cause::invalid(path, &Value::Null, detail));
    }
}

/// Errors of a host, which may start with a wildcard.
fn host_errors(host: &str, path: &str, out: &mut Vec<Cause>) {
    if let Some(rest) = host.strip_prefix("*.") {
        if !meta::subdomain_errors(rest).is_empty() {
            let detail = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                          consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character \
                          (e.g. '*.example.com', regex used for validation is \
                          '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
            out.push(Cause::invalid(path, &host.into(), detail));
        }
        return;
    }
    for error in meta::subdomain_errors(host) {
        out.push(Cause::invalid(path, &host.into(), &error));
    }
}

/// A rule of an ingress.
pub(super) fn ingress_rule(rule: &Value, path: &str, out: &mut Vec<Cause>) {
    let host = member_text(rule, "host");
    if host.is_empty() {
        return;
    }
    if host.parse::<std::net::IpAddr>().is_ok() {
        let detail = "must be a DNS name, not an IP address";
        out.push(Cause::invalid(format!("{path}.host"), &host.into(), detail));
        return;
    }
    host_errors(host, &format!("{path}.host"), out);
}

/// TLS of an ingress.
pub(super) fn ingress_tls(tls: &Value, path: &str, out: &mut Vec<Cause>) {
    for (i, host) in list(tls, "hosts").iter().enumerate() {
        host_errors(host.as_str().unwrap_or_default(), &format!("{path}.hosts[{i}]"), out);
    }
    let secret = member_text(tls, "secretName");
    if !secret.is_empty() {
        for error in meta::subdomain_errors(secret) {
            out.push(Cause::invalid(format!("{path}.secretName"), &secret.into(), &error));
        }
    }
}

/// A path of an ingress.
pub(super) fn ingress_path(value: &Value, path: &str, out: &mut Vec<Cause>) {
    let (kind, text) = (member_text(value, "pathType"), member_text(value, "path"));
    let field = format!("{path}.path");
    if matches!(kind, "Exact" | "Prefix") {
        if !text.starts_with('/') {
            out.push(Cause::invalid(field.clone(), &text.into(), "must be an absolute path"));
        }
        if text.starts_with('/') {
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(part) {
                    out.push(Cause::invalid(
                        field.clone(),
                        &text.into(),
                        &format!("must not contain '{part}'"),
                    ));
                }
            }
            for end in ["/..", "/."] {
                if text.ends_with(end) {
                    out.push(Cause::invalid(
                        field.clone(),
                        &text.into(),
                        &format!("cannot end with '{end}'"),
                    ));
                }
            }
        }
    } else if kind == "ImplementationSpecific" && !text.is_empty() && !text.starts_with('/') {
        out.push(Cause::invalid(field, &text.into(), "must be an absolute path"));
    }
}

/// A backend of an ingress.
pub(super) fn backend(backend: &Value, path: &str, out: &mut Vec<Cause>) {
    let service = backend.get("service");
    match (service, backend.get("resource")) {
        (Some(_), Some(_)) => {
            out.push(Cause::invalid(path, &"".into(), "cannot set both resource and service backends"));
        }
        (None, None) => out.push(Cause::invalid(path, &"".into(), "resource or service backend is required")),
        _ => {}
    }
    let Some(service) = service.filter(|_| backend.get("resource").is_none()) else { return };
    let port = &service["port"];
    let (name, number) = (member_text(port, "name"), port.get("number").and_then(Value::as_i64));
    let number = number.unwrap_or_default();
    if !name.is_empty() && number != 0 {
        out.push(Cause::invalid(path, &"".into(), "cannot set both port name & port number"));
    } else if !name.is_empty() {
        for error in check::port_name_errors(name) {
            out.push(Cause::invalid(format!("{path}.service.port.name"), &name.into(), &error));
        }
    } else if number != 0 {
        if !(1..=65535).contains(&number) {
            let detail = "must be between 1 and 65535, inclusive";
            out.push(Cause::invalid(format!("{path}.service.port.number"), &number.into(), detail));
        }
    } else {
        out.push(Cause::required(path, "port name or number is required"));
    }
}
