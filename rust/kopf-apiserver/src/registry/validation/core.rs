//! Validation of services, config maps, secrets and endpoints.

use serde_json::{Map, Value};

use super::list;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;
use crate::registry::rules::check;
use crate::schema::formats;
use crate::scheme::go_values;

/// The spec of a service.
pub(super) fn service(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    let kind = member_text(spec, "type");
    let field = |key: &str| format!("{path}.{key}");
    let is_external = kind == "ExternalName";
    if list(spec, "ports").is_empty() && !is_external && member_text(spec, "clusterIP") != "None" {
        out.push(Cause::required(field("ports"), ""));
    }
    if is_external {
        let name = member_text(spec, "externalName");
        if name.is_empty() {
            out.push(Cause::required(field("externalName"), ""));
        } else {
            for error in meta::subdomain_errors(name.trim_end_matches('.')) {
                out.push(Cause::invalid(field("externalName"), &name.into(), &error));
            }
        }
        for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if spec.get(key).is_some() {
                out.push(Cause::forbidden(field(key), "may not be set for ExternalName services"));
            }
        }
    }
    for (key, value) in spec.get("selector").and_then(Value::as_object).into_iter().flatten() {
        meta::check_label(&field("selector"), key, value, out);
    }
    if member_text(spec, "ipFamilyPolicy") == "RequireDualStack"
        && !is_external
        && member_text(spec, "clusterIP") != "None"
    {
        let detail = "this cluster is not configured for dual-stack services";
        out.push(Cause::invalid(field("ipFamilyPolicy"), &"RequireDualStack".into(), detail));
    }
    ports(spec, kind, path, out);
    addresses(spec, path, out);
    balancer(spec, kind, path, out);
    let known = |key: &str, options: &[&str], out: &mut Vec<Cause>| {
        let value = member_text(spec, key);
        if !value.is_empty() && !options.contains(&value) {
            let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
            out.push(Cause::unsupported(field(key), &value.into(), &options));
        }
    };
    known("trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"], out);
    for (i, family) in list(spec, "ipFamilies").iter().enumerate() {
        if !is_external && !matches!(family.as_str(), Some("IPv4" | "IPv6")) {
            let options = ["IPv4", "IPv6"].map(str::to_owned);
            out.push(Cause::unsupported(format!("{path}.ipFamilies[{i}]"), family, &options));
        }
    }
    if let Some(seconds) = spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds")
        && seconds.as_i64().is_none_or(|s| !(1..=86_400).contains(&s))
        && member_text(spec, "sessionAffinity") == "ClientIP"
    {
        let detail = "must be greater than 0 and less than 86400";
        out.push(Cause::invalid(field("sessionAffinityConfig.clientIP.timeoutSeconds"), seconds, detail));
    }
}

fn ports(spec: &Value, kind: &str, path: &str, out: &mut Vec<Cause>) {
    let ports = list(spec, "ports");
    for (i, port) in ports.iter().enumerate() {
        let place = format!("{path}.ports[{i}]");
        let name = member_text(port, "name");
        let earlier = || ports.iter().take(i);
        if ports.len() > 1 && name.is_empty() {
            out.push(Cause::required(format!("{place}.name"), ""));
        } else if !name.is_empty() && earlier().any(|p| member_text(p, "name") == name) {
            out.push(Cause::duplicate(format!("{place}.name"), &name.into()));
        }
        if kind == "ClusterIP" && port.get("nodePort").and_then(Value::as_i64).is_some_and(|n| n != 0) {
            let detail = "may not be used when `type` is 'ClusterIP'";
            out.push(Cause::forbidden(format!("{place}.nodePort"), detail));
        }
    }
}

/// Ports of a service with the same number and protocol. kube-apiserver reports them after the fields of all ports.
pub(super) fn duplicate_ports(spec: &Value, out: &mut Vec<Cause>) {
    let ports = list(spec, "ports");
    for (i, port) in ports.iter().enumerate() {
        let same = |key: &str, other: &Value| other.get(key) == port.get(key);
        if ports.iter().take(i).any(|p| same("port", p) && same("protocol", p)) {
            let shown = serde_json::json!({"protocol": port["protocol"], "port": port["port"]});
            let shown = go_values::internal_text(&shown, "core.v1.ServicePort");
            out.push(Cause::duplicate_raw(format!("spec.ports[{i}]"), &shown));
        }
    }
}

fn addresses(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    for (i, address) in list(spec, "externalIPs").iter().enumerate() {
        if address.as_str().is_none_or(|a| a.parse::<std::net::IpAddr>().is_err()) {
            out.push(Cause::invalid(format!("{path}.externalIPs[{i}]"), address, check::IP));
        }
    }
    let (first, all) = (member_text(spec, "clusterIP"), list(spec, "clusterIPs"));
    if member_text(spec, "type") == "ExternalName" || all.is_empty() {
        return;
    }
    for (i, address) in all.iter().enumerate() {
        let text = address.as_str().unwrap_or_default();
        if text != "None" && text.parse::<std::net::IpAddr>().is_err() {
            out.push(Cause::invalid(format!("{path}.clusterIPs[{i}]"), address, check::IP));
        }
    }
    if all.first().and_then(Value::as_str) != Some(first) {
        let detail = if first.is_empty() {
            "must be empty when `clusterIP` is not specified"
        } else {
            "first value must match `clusterIP`"
        };
        out.push(Cause::invalid(format!("{path}.clusterIPs"), &spec["clusterIPs"], detail));
    }
}

/// Whether a service can be reached from outside of the cluster.
pub(super) fn is_reachable(spec: &Map<String, Value>) -> bool {
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
    let has_addresses = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    matches!(kind, "LoadBalancer" | "NodePort") || (kind == "ClusterIP" && has_addresses)
}

fn balancer(spec: &Value, kind: &str, path: &str, out: &mut Vec<Cause>) {
    let is_balancer = kind == "LoadBalancer";
    let ranges = list(spec, "loadBalancerSourceRanges");
    for (i, range) in ranges.iter().enumerate() {
        if !range.as_str().is_some_and(|r| formats::matches("cidr", r)) {
            let field = format!("{path}.LoadBalancerSourceRanges[{i}]");
            out.push(Cause::invalid(field, range, check::CIDR));
        }
    }
    let only = "may only be used when `type` is 'LoadBalancer'";
    if !is_balancer {
        if !ranges.is_empty() {
            out.push(Cause::forbidden(format!("{path}.LoadBalancerSourceRanges"), only));
        }
        for key in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if spec.get(key).is_some() {
                out.push(Cause::forbidden(format!("{path}.{key}"), only));
            }
        }
    }
    let policy = member_text(spec, "externalTrafficPolicy");
    if !policy.is_empty() && !spec.as_object().is_some_and(is_reachable) {
        let detail = "may only be set for externally-accessible services";
        out.push(Cause::invalid(format!("{path}.externalTrafficPolicy"), &policy.into(), detail));
    }
    let health = spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or_default();
    if health != 0 && !(is_balancer && policy == "Local") {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        out.push(Cause::invalid(format!("{path}.healthCheckNodePort"), &health.into(), detail));
    }
}

/// The keys of config maps and secrets, and their immutability.
pub(super) fn data(value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    for field in ["data", "binaryData"] {
        for (key, _) in value.get(field).and_then(Value::as_object).into_iter().flatten() {
            for error in check::config_key_errors(key) {
                out.push(Cause::invalid(format!("{field}[{key}]"), &key.as_str().into(), &error));
            }
            if field == "binaryData" && value.pointer("/data").is_some_and(|d| d.get(key).is_some()) {
                let detail = "duplicate of key present in data";
                out.push(Cause::invalid(format!("{field}[{key}]"), &key.as_str().into(), detail));
            }
        }
    }
    if value["kind"] == "Secret" {
        secret(value, out);
    }
    let Some(old) = old else { return };
    if value["kind"] == "Secret" && value["type"] != old["type"] {
        out.push(Cause::invalid("type", &value["type"], "field is immutable"));
    }
    if old.get("immutable") == Some(&Value::Bool(true)) {
        if value.get("immutable") != Some(&Value::Bool(true)) {
            out.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        if value.get("data") != old.get("data") {
            out.push(Cause::forbidden("data", "field is immutable when `immutable` is set"));
        }
    }
}

/// The keys that a type of secrets requires.
fn secret(value: &Value, out: &mut Vec<Cause>) {
    let has = |key: &str| value["data"].get(key).is_some();
    let required: &[&str] = match member_text(value, "type") {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => &["username", "password"],
        _ => &[],
    };
    for key in required.iter().filter(|k| !has(k)) {
        out.push(Cause::required(format!("data[{key}]"), ""));
    }
}

/// Endpoints.
pub(super) fn endpoints(value: &Value, out: &mut Vec<Cause>) {
    for (i, subset) in list(value, "subsets").iter().enumerate() {
        if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            out.push(Cause::required(format!("subsets[{i}]"), detail));
        }
        for key in ["addresses", "notReadyAddresses"] {
            for (j, address) in list(subset, key).iter().enumerate() {
                let ip = member_text(address, "ip");
                if ip.parse::<std::net::IpAddr>().is_err() {
                    let field = format!("subsets[{i}].{key}[{j}].ip");
                    out.push(Cause::invalid(field.clone(), &ip.into(), check::IP));
                    out.push(Cause::invalid(field, &ip.into(), "must be a valid IP address"));
                }
            }
        }
    }
}

/// A slice of endpoints.
pub(super) fn endpoint_slice(value: &Value, out: &mut Vec<Cause>) {
    let kind = member_text(value, "addressType");
    for (i, endpoint) in list(value, "endpoints").iter().enumerate() {
        for (j, address) in list(endpoint, "addresses").iter().enumerate() {
            let text = address.as_str().unwrap_or_default();
            let field = format!("endpoints[{i}].addresses[{j}]");
            match kind {
                "IPv4" | "IPv6" => {
                    let parsed = text.parse::<std::net::IpAddr>();
                    if parsed.is_err() {
                        out.push(Cause::invalid(field, address, check::IP));
                    } else if parsed.is_ok_and(|ip| ip.is_ipv4() != (kind == "IPv4")) {
                        out.push(Cause::invalid(field, address, &format!("must be an {kind} address")));
                    }
                }
                "FQDN" => {
                    for error in meta::subdomain_errors(text) {
                        out.push(Cause::invalid(field.clone(), address, &error));
                    }
                }
                _ => {}
            }
        }
    }
    let ports = list(value, "ports");
    for (i, port) in ports.iter().enumerate() {
        if ports.iter().take(i).any(|p| p.get("name") == port.get("name")) {
            out.push(Cause::duplicate(format!("ports[{i}].name"), &port["name"]));
        }
    }
}

/// An event with `eventTime` has limited texts. Any other one belongs to the namespace of its object.
pub(super) fn event(value: &Value, out: &mut Vec<Cause>) {
    /// The maximum lengths in bytes, although the API server's message speaks of characters.
    const LIMITS: [(&str, usize); 4] =
        [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)];
    if value.get("eventTime").is_some_and(|time| !time.is_null()) {
        for (field, limit) in LIMITS {
            if member_text(value, field).len() > limit {
                let detail = format!("can have at most {limit} characters");
                out.push(Cause::invalid(field, &"".into(), &detail));
            }
        }
        return;
    }
    let namespace = member_text(&value["metadata"], "namespace");
    let of = member_text(&value["involvedObject"], "namespace");
    let is_default = of.is_empty() && namespace == "default";
    if of != namespace && !is_default {
        out.push(Cause::invalid("involvedObject.namespace", &of.into(), "does not match event.namespace"));
    }
}

/// The address range of a node.
pub(super) fn node(spec: &Value, out: &mut Vec<Cause>) {
    let range = member_text(spec, "podCIDR");
    if !range.is_empty() && !formats::matches("cidr", range) {
        out.push(Cause::invalid("spec.podCIDRs[0]", &range.into(), check::CIDR));
    }
}
