"""ValidatingAdmissionPolicies with their bindings, and requests that they admit or deny."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .corpus import APPLY, MERGE, NAMESPACE, Request

ROOT = "/apis/admissionregistration.k8s.io/v1"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
NAME_LABEL = "kubernetes.io/metadata.name"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
Object = dict[str, Any]


def rule(group: str, version: str, resources: str, *operations: str, **more: Any) -> Object:
    """A rule of match constraints."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": resources.split(","),
        "operations": list(operations) or ["*"],
        **more,
    }


RULES = [rule("", "v1", "configmaps"), rule("apps", "v1", "deployments,deployments/scale,deployments/status")]


@dataclass
class PolicyCase:
    """A policy that matches the objects with its label, its binding, and data of config maps to create."""

    name: str
    validations: list[Any]
    policy: Object = field(default_factory=dict)
    binding: Object = field(default_factory=dict)
    constraints: Object = field(default_factory=dict)
    data: list[Object] = field(default_factory=lambda: [{"a": "1"}, {"a": "2", "b": "x"}, {}])

    @property
    def objects(self) -> list[Object]:
        """The policy and its binding."""
        validations = [it if isinstance(it, dict) else {"expression": it} for it in self.validations]
        constraints = {
            "resourceRules": RULES,
            "objectSelector": {"matchLabels": {"case": self.name}},
            **self.constraints,
        }
        spec = {"matchConstraints": constraints, "validations": validations, **self.policy}
        binding = {"policyName": self.name, "validationActions": ["Deny"], **self.binding}
        return [
            _object("ValidatingAdmissionPolicy", self.name, spec),
            _object("ValidatingAdmissionPolicyBinding", f"{self.name}-binding", binding),
        ]

    def config_map(self, data: Object, name: str = "subject") -> Object:
        """A config map that the policy matches."""
        metadata = {"name": name, "labels": {"case": self.name}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def deployment(self, replicas: int) -> Object:
        """A deployment that the policy matches."""
        labels = {"app": "a"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
        metadata = {"name": f"web-{self.name}", "labels": {"case": self.name}}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _object(kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _messages() -> Iterator[PolicyCase]:
    """Messages and reasons of denials."""
    wrong = "object.data.a == '1'"
    yield PolicyCase("plain", [wrong])
    yield PolicyCase("spaces", ["  object.data.a == '1' "])
    yield PolicyCase("message", [{"expression": wrong, "message": "a must be 1"}])
    for reason in ("Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"):
        validation = {"expression": wrong, "message": "a must be 1", "reason": reason}
        yield PolicyCase(f"reason-{reason.lower()}", [validation])
    for name, expression in {
        "text": "'a is ' + object.data.a",
        "blank": "'  '",
        "line": "'a\\nb'",
        "padded": "' a '",
        "error": "object.data.absent",
        "conditional": "has(object.data.b) ? 'with ' + object.data.b : 'without b'",
    }.items():
        message = {"expression": wrong, "messageExpression": expression}
        yield PolicyCase(f"message-{name}", [{**message, "message": "the message"}])
        yield PolicyCase(f"only-message-{name}", [message])
    yield PolicyCase("two", ["object.data.a == '1'", "has(object.data.b)"])
    yield PolicyCase("two-messages", [{"expression": "has(object.data.b)", "message": "no b"}, wrong])
    yield PolicyCase("true", ["true"])
    yield PolicyCase("false", ["false"])


def _failures() -> Iterator[PolicyCase]:
    """Expressions that fail, match conditions, variables."""
    for policy in ("Fail", "Ignore"):
        suffix = policy.lower()
        fails = {"failurePolicy": policy}
        yield PolicyCase(f"no-key-{suffix}", ["object.data.b == 'x'"], fails)
        yield PolicyCase(f"no-index-{suffix}", ["['a'][int(object.data.a)] == 'a'"], fails)
        yield PolicyCase(f"no-number-{suffix}", ["int(object.metadata.name) > 1"], fails)
        yield PolicyCase(f"division-{suffix}", ["1 / (int(object.data.a) - 1) > 5"], fails)
        for name, conditions in {
            "met": ["object.data.a == '2'"],
            "unmet": ["object.data.a == '3'"],
            "failing": ["object.data.b == 'x'"],
            "failing-unmet": ["object.data.b == 'x'", "object.data.a == '3'"],
            "failing-twice": ["object.data.b == 'x'", "object.data.c == 'x'"],
        }.items():
            named = [{"name": f"c{i}", "expression": text} for i, text in enumerate(conditions)]
            yield PolicyCase(f"condition-{name}-{suffix}", ["false"], {**fails, "matchConditions": named})
        variables = [
            {"name": "a", "expression": "object.data.a"},
            {"name": "number", "expression": "int(variables.a) * 10"},
            {"name": "wrong", "expression": "object.data.b"},
            {"name": "next", "expression": "variables.wrong + 'y'"},
        ]
        for name, expression in {
            "read": "variables.number > 10",
            "failing": "variables.wrong == 'x'",
            "chained": "variables.next == 'xy'",
            "lazy": "variables.a == '1' || variables.next == 'xy'",
            "conditional": "has(object.data.b) ? variables.wrong == 'x' : true",
        }.items():
            yield PolicyCase(f"variable-{name}-{suffix}", [expression], {**fails, "variables": variables})


def _actions() -> Iterator[PolicyCase]:
    """Actions of bindings, and their selection."""
    wrong = [{"expression": "object.data.a == '1'", "message": "a must be 1"}]
    yield PolicyCase("warn", wrong, binding={"validationActions": ["Warn"]})
    yield PolicyCase("audit", wrong, binding={"validationActions": ["Audit"]})
    yield PolicyCase("warn-audit", wrong, binding={"validationActions": ["Warn", "Audit"]})
    yield PolicyCase("deny-audit", wrong, binding={"validationActions": ["Deny", "Audit"]})
    yield PolicyCase("warn-twice", [*wrong, "has(object.data.b)"], binding={"validationActions": ["Warn"]})
    for name, resources in {
        "namespace": {"namespaceSelector": {"matchLabels": {NAME_LABEL: NAMESPACE}}},
        "other-namespace": {"namespaceSelector": {"matchLabels": {NAME_LABEL: "other"}}},
        "object": {"objectSelector": {"matchLabels": {"case": "bound-object"}}},
        "other-object": {"objectSelector": {"matchLabels": {"case": "other"}}},
        "rule": {"resourceRules": [rule("", "v1", "configmaps", "CREATE")]},
        "other-rule": {"resourceRules": [rule("", "v1", "secrets")]},
        "excluded": {"excludeResourceRules": [rule("", "v1", "configmaps")]},
        "exact": {"matchPolicy": "Exact"},
    }.items():
        yield PolicyCase(f"bound-{name}", ["false"], binding={"matchResources": resources})


def _constraints() -> Iterator[PolicyCase]:
    """Rules and selectors of policies."""
    for name, constraints in {
        "create": {"resourceRules": [rule("", "v1", "configmaps", "CREATE")]},
        "update": {"resourceRules": [rule("", "v1", "configmaps", "UPDATE")]},
        "delete": {"resourceRules": [rule("", "v1", "configmaps", "DELETE")]},
        "any": {"resourceRules": [rule("*", "*", "*")]},
        "all-subresources": {"resourceRules": [rule("*", "*", "*/*")]},
        "status": {"resourceRules": [rule("apps", "*", "deployments/status")]},
        "cluster": {"resourceRules": [rule("", "v1", "*", scope="Cluster")]},
        "namespaced": {"resourceRules": [rule("", "v1", "*", scope="Namespaced")]},
        "named": {"resourceRules": [rule("", "v1", "configmaps", resourceNames=["subject", "x"])]},
        "other-name": {"resourceRules": [rule("", "v1", "configmaps", resourceNames=["other"])]},
        "excluded": {"excludeResourceRules": [rule("", "v1", "configmaps", "CREATE")]},
        "namespace": {
            "namespaceSelector": {
                "matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [NAMESPACE]}
                ]
            }
        },
        "not-namespace": {
            "namespaceSelector": {
                "matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [NAMESPACE]}
                ]
            }
        },
        "equivalent": {"resourceRules": [rule("autoscaling", "v2", "horizontalpodautoscalers")]},
        "exact": {
            "resourceRules": [rule("autoscaling", "v2", "horizontalpodautoscalers")],
            "matchPolicy": "Exact",
        },
    }.items():
        yield PolicyCase(f"on-{name}", ["false"], constraints=constraints)
    # A scale has no labels.
    constraints = {"resourceRules": [rule("apps", "v1", "deployments/scale")], "objectSelector": {}}
    condition = {"name": "c", "expression": "request.name == 'web-on-scale'"}
    yield PolicyCase("on-scale", ["false"], {"matchConditions": [condition]}, constraints=constraints)


def _variables() -> Iterator[PolicyCase]:
    """What expressions read, and the functions that they call."""
    # Each is denied, and its message shows the value.
    for i, expression in enumerate(
        [
            "request.operation",
            "request.name",
            "request.namespace",
            "request.kind.group + '/' + request.kind.version + '/' + request.kind.kind",
            "request.resource.group + '/' + request.resource.version + '/' + request.resource.resource",
            "request.requestKind.kind + request.requestResource.resource",
            "has(request.subResource) ? request.subResource : 'none'",
            "request.userInfo.username + string(request.userInfo.groups.size())",
            "string(request.dryRun)",
            "request.options.kind",
            "namespaceObject.metadata.name + string(has(namespaceObject.metadata.labels))",
            "namespaceObject.status.phase",
            "string(object == null) + string(oldObject == null)",
            "object.kind + object.apiVersion + object.metadata.namespace",
            "string(type(object.data) == map) + string(has(object.metadata.uid))",
            "string(object.?data.b.orValue('none'))",
            "string(object.?spec.replicas.hasValue())",
            "object.data.map(k, k + object.data[k]).join(',')",
            "string(object.data.all(k, object.data[k].size() < 2))",
            "string('a' in object.data) + string(object.data.exists(k, k == 'b'))",
            "object.metadata.labels['case'].upperAscii()",
            "'%s and %d'.format([object.metadata.name, 5])",
            "object.metadata.name.replace('s', 'S').substring(1)",
            "string(quantity('1Gi').isGreaterThan(quantity('1M')))",
            "string(quantity('1.5k').asInteger())",
            "string(quantity('2').add(quantity('500m')).compareTo(quantity('2.5')))",
            "string(ip('10.0.0.1').family()) + string(cidr('10.0.0.0/8').containsIP('10.1.1.1'))",
            "url('https://example.com:80/a?b=c').getHost()",
            "'abc 123'.find('[0-9]+') + string('1a2'.findAll('[0-9]').size())",
            "string([1, 2, 3].sum()) + string([3, 1].isSorted()) + string([2, 9].max())",
            "string(sets.contains([1, 2], [1])) + string(sets.intersects([1], [2]))",
            "string(format.dns1123Label().validate('Not valid').hasValue())",
            "string(semver('1.2.3').isLessThan(semver('1.10.0')))",
            "string(duration('90s').getMinutes()) + string(timestamp('2020-01-01T00:00:00Z').getFullYear())",
            "string(size(object.data)) + string(size(object.metadata.name))",
            "string(double('1.5')) + string(uint(3)) + string(1.0 == 1)",
            "authorizer.group('').resource('pods').namespace('x').check('create').reason()",
            "string(authorizer.group('').resource('pods').check('get').allowed())",
            "string(authorizer.path('/healthz').check('get').allowed())",
            "string(authorizer.requestResource.check('create').allowed())",
        ]
    ):
        validation = {"expression": "false", "messageExpression": expression, "message": "no value"}
        yield PolicyCase(f"shown-{i}", [validation], data=[{"a": "1"}, {"b": "x", "a": "1"}])


def _parameters() -> Iterator[PolicyCase]:
    """Policies with parameters."""
    maps = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    validation = {
        "expression": "object.data.a == params.data.a",
        "messageExpression": "'a must be ' + params.data.a",
    }
    both = {"namespace": NAMESPACE, "parameterNotFoundAction": "Deny"}
    for name, reference in {
        "named": {"name": "limit-one", **both},
        "own-namespace": {"name": "limit-one", "parameterNotFoundAction": "Deny"},
        "absent-deny": {"name": "absent", **both},
        "absent-allow": {"name": "absent", "namespace": NAMESPACE, "parameterNotFoundAction": "Allow"},
        "selected": {"selector": {"matchLabels": {"limit": "one"}}, **both},
        "selected-two": {"selector": {"matchExpressions": [{"key": "limit", "operator": "Exists"}]}, **both},
        "selected-none": {"selector": {"matchLabels": {"limit": "none"}}, **both},
    }.items():
        yield PolicyCase(f"params-{name}", [validation], maps, {"paramRef": reference})
    yield PolicyCase("params-without-reference", ["params == null", "params.data.a == '1'"], maps)
    yield PolicyCase("params-ignored", ["object.data.a == '1'"], {}, {"paramRef": {"name": "x", **both}})
    absent = {**both, "name": "absent"}
    ignoring = {**maps, "failurePolicy": "Ignore"}
    yield PolicyCase("params-absent-ignored", [validation], ignoring, {"paramRef": absent})
    unknown = {"paramKind": {"apiVersion": "example.com/v1", "kind": "Unknown"}}
    for policy in ("Fail", "Ignore"):
        case = PolicyCase(
            f"params-unknown-{policy.lower()}",
            ["false"],
            {**unknown, "failurePolicy": policy},
            {"paramRef": {"name": "limit-one", **both}},
        )
        yield case
    cluster = {"paramKind": {"apiVersion": "v1", "kind": "Namespace"}}
    for name, reference in {
        "cluster": {"name": NAMESPACE, "parameterNotFoundAction": "Deny"},
        "cluster-in-namespace": {"name": NAMESPACE, **both},
    }.items():
        expression = "params.metadata.name == 'x'"
        yield PolicyCase(f"params-{name}", [expression], cluster, {"paramRef": reference})


CASES = [*_messages(), *_failures(), *_actions(), *_constraints(), *_variables(), *_parameters()]
#: The last policy. When it has an effect, all have.
LAST = PolicyCase("last", ["false"])


def setup() -> Iterator[Request]:
    """Requests that prepare a server: parameters, policies and bindings."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    yield Request("setup", "namespace", "POST", "/api/v1/namespaces", namespace)
    for name, value in (("one", "1"), ("two", "2")):
        limit = LAST.config_map({"a": value}, f"limit-{name}")
        limit["metadata"]["labels"] = {"limit": name}
        yield Request("setup", f"limit {name}", "POST", MAPS, limit)
    for case in CASES:
        if case.name.startswith("on-"):
            yield Request("setup", f"{case.name}: config map", "POST", MAPS, case.config_map({}, case.name))
            yield Request("setup", f"{case.name}: deployment", "POST", DEPLOYMENTS, case.deployment(1))
    for case in [*CASES, LAST]:
        for it in case.objects:
            plural = f"{it['kind'].lower()}s".replace("policys", "policies")
            yield Request("policies: create", f"{case.name}: {it['kind']}", "POST", f"{ROOT}/{plural}", it)


def requests() -> Iterator[Request]:
    """All requests after those of the set-up."""
    body = LAST.config_map({})
    yield Request("setup", "await policies", "POST", f"{MAPS}?dryRun=All", body, extra={"await": "denial"})
    for case in CASES:
        for data in case.data:
            label = f"{case.name}: {data}"
            yield Request("policies: objects", label, "POST", f"{MAPS}?dryRun=All", case.config_map(data))
        if case.name.startswith("on-"):
            yield from _all_verbs(case)


def _all_verbs(case: PolicyCase) -> Iterator[Request]:
    def request(label: str, method: str, path: str, *body: Any) -> Request:
        return Request("policies: verbs", f"{case.name}: {label}", method, path, *body)

    one, web = f"{MAPS}/{case.name}", f"{DEPLOYMENTS}/web-{case.name}"
    stored = case.config_map({"a": "2"}, case.name)
    yield request("update", "PUT", f"{one}?dryRun=All", stored)
    yield request("patch", "PATCH", f"{one}?dryRun=All", {"data": {"b": "c"}}, MERGE)
    yield request("apply", "PATCH", f"{one}?dryRun=All&fieldManager=m&force=true", stored, APPLY)
    yield request("apply new", "PATCH", f"{one}-new?dryRun=All&fieldManager=m", _renamed(stored), APPLY)
    yield request("deployment", "POST", f"{DEPLOYMENTS}?dryRun=All", _renamed(case.deployment(1)))
    yield request("scale", "PATCH", f"{web}/scale?dryRun=All", {"spec": {"replicas": 3}}, MERGE)
    yield request("status", "PATCH", f"{web}/status?dryRun=All", {"status": {"replicas": 1}}, MERGE)
    yield request("delete", "DELETE", f"{one}?dryRun=All")
    yield request("delete all", "DELETE", f"{MAPS}?dryRun=All&labelSelector=case%3D{case.name}")
    labels = {"case": case.name}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "made", "labels": labels}}
    yield request("namespace", "POST", "/api/v1/namespaces?dryRun=All", namespace)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "scaler", "labels": labels},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3},
    }
    for version in ("v1", "v2"):
        path = f"/apis/autoscaling/{version}/namespaces/{NAMESPACE}/horizontalpodautoscalers?dryRun=All"
        yield request(f"scaler {version}", "POST", path, {**scaler, "apiVersion": f"autoscaling/{version}"})


def _renamed(manifest: Object) -> Object:
    manifest = copy.deepcopy(manifest)
    manifest["metadata"]["name"] += "-new"
    return manifest
