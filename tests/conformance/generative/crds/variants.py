"""CRDs with one mistake or one change, and CRDs whose names are in conflict with those of another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Crd = dict[str, Any]


def _version(crd: Crd) -> dict[str, Any]:
    found: dict[str, Any] = crd["spec"]["versions"][0]
    return found


def _schema(crd: Crd) -> dict[str, Any]:
    found: dict[str, Any] = _version(crd)["schema"]["openAPIV3Schema"]
    return found


def _with(**keywords: Any) -> Callable[[Crd], None]:
    """Adds a property with these keywords."""
    prefixed = {
        k.replace("x_", "x-kubernetes-").replace("_", "-") if k.startswith("x_") else k: v
        for k, v in keywords.items()
    }

    def change(crd: Crd) -> None:
        _schema(crd).setdefault("properties", {})["added"] = prefixed

    return change


def _rule(rule: str, **members: Any) -> Callable[[Crd], None]:
    """Adds a rule to the root of the schema."""

    def change(crd: Crd) -> None:
        _schema(crd).setdefault("x-kubernetes-validations", []).append({"rule": rule, **members})

    return change


def _in_version(**members: Any) -> Callable[[Crd], None]:
    return lambda crd: _version(crd).update(copy.deepcopy(members))


def _in_spec(**members: Any) -> Callable[[Crd], None]:
    return lambda crd: crd["spec"].update(copy.deepcopy(members))


def _in_names(**members: Any) -> Callable[[Crd], None]:
    return lambda crd: crd["spec"]["names"].update(copy.deepcopy(members))


def _columns(*columns: dict[str, Any]) -> Callable[[Crd], None]:
    return _in_version(additionalPrinterColumns=list(columns))


def _in_protected_group(crd: Crd) -> None:
    crd["spec"]["group"] = "x.k8s.io"
    crd["metadata"].update(name=f"{crd['spec']['names']['plural']}.x.k8s.io", annotations={})


_TEXT = {"type": "string"}
_KEYED = {"type": "object", "required": ["k"], "properties": {"k": _TEXT, "v": {"type": "integer"}}}
CHANGES: dict[str, Callable[[Crd], None]] = {
    "list map without keys": _with(type="array", items=_KEYED, x_list_type="map"),
    "list map with unknown keys": _with(type="array", items=_KEYED, x_list_type="map", x_list_map_keys=["z"]),
    "list map with keys of objects": _with(
        type="array",
        items={"type": "object", "required": ["o"], "properties": {"o": {"type": "object"}}},
        x_list_type="map",
        x_list_map_keys=["o"],
    ),
    "list map with nullable keys": _with(
        type="array",
        items={"type": "object", "required": ["k"], "properties": {"k": {**_TEXT, "nullable": True}}},
        x_list_type="map",
        x_list_map_keys=["k"],
    ),
    "list map of optional keys": _with(
        type="array",
        items={"type": "object", "properties": {"k": _TEXT}},
        x_list_type="map",
        x_list_map_keys=["k"],
    ),
    "list type of an object": _with(type="object", x_list_type="set"),
    "unknown list type": _with(type="array", items=_TEXT, x_list_type="bag"),
    "set of objects": _with(
        type="array", items={"type": "object", "properties": {"a": _TEXT}}, x_list_type="set"
    ),
    "set of lists": _with(type="array", items={"type": "array", "items": _TEXT}, x_list_type="set"),
    "set of nullable items": _with(type="array", items={**_TEXT, "nullable": True}, x_list_type="set"),
    "array without items": _with(type="array"),
    "list of items": _with(type="array", items=[_TEXT]),
    "no type": _with(description="no type"),
    "type null": _with(type="null"),
    "type list": _with(type=["string", "null"]),
    "bad pattern": _with(type="string", pattern="("),
    "pattern with look-ahead": _with(type="string", pattern="^(?!x).*$"),
    "unknown format": _with(type="string", format="phone"),
    "enum of other types": _with(type="string", enum=["a", 1, None]),
    "empty enum": _with(type="string", enum=[]),
    "repeated enum": _with(type="string", enum=["a", "a"]),
    "default of a wrong type": _with(type="string", default=1),
    "default not in the enum": _with(type="string", enum=["a"], default="b"),
    "default against a rule": _with(type="integer", default=5, x_validations=[{"rule": "self < 3"}]),
    "default with unknown fields": _with(type="object", default={"a": "x", "b": 1}, properties={"a": _TEXT}),
    "default without required fields": _with(
        type="object", default={}, required=["a"], properties={"a": _TEXT}
    ),
    "default null": _with(type="string", default=None),
    "default null of a nullable": _with(type="string", nullable=True, default=None),
    "default of a list": _with(type="array", items=_TEXT, default=["a", "a"], x_list_type="set"),
    "default of an embedded resource": _with(
        type="object",
        x_embedded_resource=True,
        x_preserve_unknown_fields=True,
        default={"apiVersion": "v1", "kind": "A", "metadata": {"name": "x", "unknown": 1}},
    ),
    "default of metadata": lambda crd: _schema(crd)["properties"].update(
        metadata={"type": "object", "default": {"name": "x"}}
    ),
    "restricted metadata": lambda crd: _schema(crd)["properties"].update(
        metadata={"type": "object", "properties": {"name": {**_TEXT, "maxLength": 5}}}
    ),
    "restricted metadata labels": lambda crd: _schema(crd)["properties"].update(
        metadata={"type": "object", "properties": {"labels": {"type": "object"}}}
    ),
    "metadata of a wrong type": lambda crd: _schema(crd)["properties"].update(metadata=_TEXT),
    "kind of a wrong type": lambda crd: _schema(crd)["properties"].update(kind={"type": "integer"}),
    "properties and additional": _with(type="object", properties={"a": _TEXT}, additionalProperties=_TEXT),
    "additional false": _with(type="object", additionalProperties=False),
    "additional true": _with(type="object", additionalProperties=True),
    "additional of nothing": _with(type="object", additionalProperties={}),
    "int or string with a type": _with(type="string", x_int_or_string=True),
    "int or string preserved": _with(x_int_or_string=True, x_preserve_unknown_fields=True),
    "embedded without properties": _with(type="object", x_embedded_resource=True),
    "embedded string": _with(type="string", x_embedded_resource=True),
    "preserve false": _with(type="object", x_preserve_unknown_fields=False),
    "preserve of a string": _with(type="string", x_preserve_unknown_fields=True),
    "map type of a list": _with(type="array", items=_TEXT, x_map_type="atomic"),
    "unknown map type": _with(type="object", x_map_type="strange"),
    "reference": _with(**{"$ref": "#/x"}),
    "read only": _with(type="string", readOnly=True),
    "definitions": _with(type="object", definitions={"a": _TEXT}),
    "unique items": _with(type="array", items=_TEXT, uniqueItems=True),
    "pattern properties": _with(type="object", patternProperties={"a": _TEXT}),
    "types in alternatives": _with(type="string", anyOf=[{"type": "string"}, {"type": "integer"}]),
    "defaults in alternatives": _with(
        type="object", properties={"a": _TEXT}, oneOf=[{"properties": {"a": {"default": "x"}}}]
    ),
    "undeclared in alternatives": _with(
        type="object", oneOf=[{"required": ["zz"], "properties": {"zz": {"minLength": 1}}}]
    ),
    "descriptions in not": _with(type="string", **{"not": {"description": "x"}}),
    "minimum above maximum": _with(type="integer", minimum=5, maximum=1),
    "length of an integer": _with(type="integer", maxLength=3),
    "fractional multiple": _with(type="integer", multipleOf=0.5),
    "negative length": _with(type="string", maxLength=-1),
    "required twice": _with(type="object", required=["a", "a"], properties={"a": _TEXT}),
    "root of another type": lambda crd: _schema(crd).update(type="array"),
    "nullable root": lambda crd: _schema(crd).update(nullable=True),
    "no schema": lambda crd: _version(crd).pop("schema"),
    "empty schema": _in_version(schema={}),
    "rule with a syntax error": _rule("self."),
    "rule with an unknown variable": _rule("other == 1"),
    "rule with an unknown field": _rule("self.zzz == 1"),
    "rule that is no boolean": _rule("1 + 1"),
    "rule that compares types": _rule("self.kind == 1"),
    "rule with an unknown function": _rule("self.kind.frobnicate()"),
    "rule on metadata": _rule("self.metadata.name.startsWith('a')"),
    "rule on labels": _rule("self.metadata.labels['a'] == 'b'"),
    "empty rule": _rule(" "),
    "message with a line break": _rule("true", message="a\nb"),
    "empty message": _rule("true", message=" "),
    "unknown reason": _rule("false", reason="Because"),
    "field path": _rule("true", fieldPath=".spec"),
    "unknown field path": _rule("true", fieldPath=".zzz"),
    "bad field path": _rule("true", fieldPath="spec"),
    "message expression": _rule("true", messageExpression="'a' + self.kind"),
    "message expression of a number": _rule("true", messageExpression="1"),
    "message expression with an error": _rule("true", messageExpression="self.zzz"),
    "optional old self": _rule("oldSelf.hasValue() || true", optionalOldSelf=True),
    "optional old self without old": _rule("true", optionalOldSelf=True),
    "optional old self misused": _rule("oldSelf.kind == self.kind", optionalOldSelf=True),
    "transition rule in a list": _with(
        type="array", items={**_TEXT, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    ),
    "transition rule in a set": _with(
        type="array",
        x_list_type="set",
        maxItems=3,
        items={**_TEXT, "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
    ),
    "rule that costs too much": _with(
        type="array",
        items={"type": "array", "items": _TEXT},
        x_validations=[{"rule": "self.all(a, self.all(b, a.all(c, b.all(d, c == d))))"}],
    ),
    "rule on unlimited text": _with(
        type="array", items=_TEXT, x_validations=[{"rule": "self.all(a, self.all(b, a == b))"}]
    ),
    "rule in alternatives": _with(type="string", anyOf=[{"x-kubernetes-validations": [{"rule": "true"}]}]),
    "rule below preserved fields": _with(
        type="object", x_preserve_unknown_fields=True, x_validations=[{"rule": "self.a == 1"}]
    ),
    "rule with libraries": _with(
        type="string",
        maxLength=20,
        x_validations=[
            {
                "rule": "quantity(self).isGreaterThan(quantity('1')) || isIP(self) || url(self).getHost() == 'a' || self.find('a') == '' || format.dns1123Label().validate(self).hasValue()"
            }
        ],
    ),
    "rule with optionals": _with(
        type="object",
        properties={"a": _TEXT},
        x_validations=[{"rule": "self.?a.orValue('x') == 'x' && optional.none().hasValue() == false"}],
    ),
    "rule with sets and two variables": _with(
        type="array",
        maxItems=5,
        items={**_TEXT, "maxLength": 5},
        x_validations=[{"rule": "sets.contains(self, ['a']) && self.all(i, v, v != '' || i > 1)"}],
    ),
    "rule with semver": _with(
        type="string", maxLength=20, x_validations=[{"rule": "semver(self).major() > 1 && isSemver(self)"}]
    ),
    "column without a path": _columns({"name": "A", "type": "string"}),
    "column with a bad path": _columns({"name": "A", "type": "string", "jsonPath": "spec.x"}),
    "column with a bad filter": _columns({"name": "A", "type": "string", "jsonPath": ".spec[?(@.a=="}),
    "column of an unknown type": _columns({"name": "A", "type": "text", "jsonPath": ".spec"}),
    "column of an unknown format": _columns(
        {"name": "A", "type": "string", "format": "x", "jsonPath": ".spec"}
    ),
    "columns of one name": _columns(
        {"name": "A", "type": "string", "jsonPath": ".spec"},
        {"name": "A", "type": "string", "jsonPath": ".x"},
    ),
    "column without a name": _columns({"type": "string", "jsonPath": ".spec"}),
    "selectable field that is absent": _in_version(selectableFields=[{"jsonPath": ".spec.zzz"}]),
    "selectable object": _in_version(selectableFields=[{"jsonPath": ".spec"}]),
    "selectable metadata": _in_version(selectableFields=[{"jsonPath": ".metadata.name"}]),
    "selectable field twice": _in_version(
        selectableFields=[{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}]
    ),
    "selectable item": _in_version(selectableFields=[{"jsonPath": ".spec.a[0]"}]),
    "empty selectable field": _in_version(selectableFields=[{"jsonPath": ""}]),
    "scale without paths": _in_version(subresources={"scale": {}}),
    "scale outside of spec": _in_version(
        subresources={"scale": {"specReplicasPath": ".data.n", "statusReplicasPath": ".x.n"}}
    ),
    "scale with an array": _in_version(
        subresources={
            "scale": {
                "specReplicasPath": ".spec.a[0]",
                "statusReplicasPath": "status.n",
                "labelSelectorPath": "x",
            }
        }
    ),
    "unknown subresource": _in_version(subresources={"logs": {}}),
    "deprecation warning without deprecation": _in_version(deprecationWarning="old"),
    "long deprecation warning": _in_version(deprecated=True, deprecationWarning="x" * 300),
    "no storage": _in_version(storage=False),
    "not served": _in_version(served=False),
    "version with a bad name": _in_version(name="V 1"),
    "version with a long name": _in_version(name="v" * 70),
    "versions of one name": lambda crd: crd["spec"]["versions"].append(
        {**copy.deepcopy(_version(crd)), "storage": False}
    ),
    "two storage versions": lambda crd: crd["spec"]["versions"].append(
        {**copy.deepcopy(_version(crd)), "name": "v77"}
    ),
    "no versions": _in_spec(versions=[]),
    "unknown scope": _in_spec(scope="Universe"),
    "no scope": lambda crd: crd["spec"].pop("scope"),
    "bad group": _in_spec(group="not a group"),
    "single group": _in_spec(group="single"),
    "other group": _in_spec(group="other.example.com"),
    "protected group": _in_protected_group,
    "preserve unknown fields": _in_spec(preserveUnknownFields=True),
    "conversion without webhook": _in_spec(conversion={"strategy": "Webhook"}),
    "conversion with webhook": _in_spec(
        conversion={
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"service": {"name": "a", "namespace": "b"}},
            },
        }
    ),
    "conversion with a bad webhook": _in_spec(
        conversion={
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v9"],
                "clientConfig": {"url": "http://x", "service": {"name": "a", "namespace": "b"}},
            },
        }
    ),
    "unknown conversion": _in_spec(conversion={"strategy": "Magic"}),
    "conversion with an unused webhook": _in_spec(
        conversion={"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}
    ),
    "no names": lambda crd: crd["spec"].pop("names"),
    "no kind": lambda crd: crd["spec"]["names"].pop("kind"),
    "bad kind": _in_names(kind="not valid"),
    "lower kind": _in_names(kind="lower"),
    "bad plural": _in_names(plural="Upper Case"),
    "other plural": _in_names(plural="others"),
    "bad singular": _in_names(singular="A b"),
    "bad short name": _in_names(shortNames=["Bad Name"]),
    "repeated short name": _in_names(shortNames=["aa", "aa"]),
    "short name as plural": lambda crd: crd["spec"]["names"].update(
        shortNames=[crd["spec"]["names"]["plural"]]
    ),
    "bad category": _in_names(categories=["Bad Category"]),
    "list kind as kind": lambda crd: crd["spec"]["names"].update(listKind=crd["spec"]["names"]["kind"]),
    "empty names": _in_names(singular="", listKind="", shortNames=[], categories=[]),
}


def crd_variants(crd: Crd) -> Iterator[tuple[str, Crd]]:
    """Label and CRD of each change. The labels depend on the CRD, so that each CRD gets other ones."""
    for label, change in CHANGES.items():
        changed = copy.deepcopy(crd)
        change(changed)
        yield f"{crd['metadata']['name']}: {label}", changed


def conflicts(crd: Crd) -> Iterator[tuple[str, Crd]]:
    """CRDs of the same group that take names of the CRD."""
    names = crd["spec"]["names"]
    own = {"plural": "rivals", "singular": "rival", "kind": "Rival", "listKind": "RivalList"}
    singular = names.get("singular") or names["kind"].lower()
    for label, taken in [
        ("kind", {"kind": names["kind"]}),
        ("list kind", {"listKind": f"{names['kind']}List"}),
        ("kind as list kind", {"listKind": names["kind"]}),
        ("singular", {"singular": singular}),
        ("plural as singular", {"singular": names["plural"]}),
        ("singular as plural", {"plural": singular}),
        ("plural as short name", {"shortNames": [names["plural"], "rv"]}),
        ("short name", {"shortNames": names.get("shortNames", [singular])}),
        (
            "all",
            {"singular": singular, "kind": names["kind"], "shortNames": ["rv", singular, names["plural"]]},
        ),
        ("none", {"shortNames": ["rv"], "categories": ["all"]}),
    ]:
        rival = copy.deepcopy(crd)
        rival["spec"]["names"] = {**own, **taken}
        rival["metadata"]["name"] = f"{rival['spec']['names']['plural']}.{crd['spec']['group']}"
        yield label, rival
