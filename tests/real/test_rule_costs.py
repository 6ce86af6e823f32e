"""Estimated costs of CEL rules: the embedded API server accepts and rejects the same CRDs as a real one."""

import json
from typing import Any

import kopf.testing
import pytest

from tests.support import cluster as kube

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
NAME: Schema = {"type": "string", "maxLength": 64}
MOMENT: Schema = {"type": "string", "format": "date-time"}
CHOICE: Schema = {"type": "string", "enum": ["abc", "de"]}
EITHER: Schema = {"x-kubernetes-int-or-string": True}


def array(items: Schema, limit: int | None = None) -> Schema:
    return {"type": "array", "items": items} | ({} if limit is None else {"maxItems": limit})


def mapping(values: Schema, limit: int | None = None) -> Schema:
    limits = {} if limit is None else {"maxProperties": limit}
    return {"type": "object", "additionalProperties": values} | limits


def record(properties: Schema, *rules: str, **more: Any) -> Schema:
    validations = [{"rule": rule} for rule in rules]
    return {"type": "object", "properties": properties, "x-kubernetes-validations": validations, **more}


SQUARE = "self.l.all(x, self.l.all(y, x == y))"
CASES: dict[str, Schema] = {
    "one iteration": record({"l": array(NUMBER)}, "self.l.all(x, x > 0)"),
    "two iterations": record({"l": array(NUMBER)}, SQUARE),
    "two limited iterations": record({"l": array(NUMBER, 100)}, SQUARE),
    "three limited iterations": record(
        {"l": array(NUMBER, 300)}, "self.l.all(x, self.l.all(y, self.l.all(z, x + y + z > 0)))"
    ),
    "a limit that is too high": record({"l": array(NUMBER, 3000)}, "self.l.all(x, self.l.all(y, x > y))"),
    "limited texts": record({"l": array(NAME, 2000)}, "self.l.all(x, self.l.exists_one(y, x == y))"),
    "unlimited texts": record({"l": array(TEXT)}, "self.l.all(x, x.contains('a'))"),
    "pattern": record({"t": TEXT}, "self.t.matches('^[a-z]+$')"),
    "patterns": record({"l": array(TEXT, 10)}, "self.l.all(x, x.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))"),
    "enum": record({"l": array(CHOICE, 1000)}, " && ".join(["self.l.all(x, self.l.exists(y, x == y))"] * 3)),
    "times": record({"l": array(MOMENT, 1500)}, "self.l.all(x, self.l.exists(y, x == y))"),
    **{
        f"as many as fit of format {name}": record(
            {"l": array({"type": "string", "format": name})},
            f"self.l.all(x, {' || '.join(['x < x'] * comparisons)})",
        )
        for name, comparisons in {"date": 16, "date-time": 30, "duration": 4}.items()
    },
    "int or string": record(
        {"p": EITHER, "l": array(NUMBER)},
        "self.l.all(x, self.p == 'a' || string(self.p).matches('^[0-9]+%$'))",
    ),
    "maps": record({"m": mapping(TEXT)}, "self.m.all(k, self.m[k].contains(k))"),
    "limited maps": record(
        {"m": mapping(NAME, 50)},
        "self.m.all(k, self.m.all(j, self.m[k] == self.m[j] || k == j))",
        "self.m.all(k, self.m.all(j, self.m[j].matches('^[a-z]+$')))",
    ),
    "lists of lists": record({"l": array(array(NUMBER))}, "self.l.all(x, x.all(y, y > 0))"),
    "membership": record({"a": array(TEXT), "b": array(TEXT)}, "self.a.filter(x, x in self.b).size() > 0"),
    "items of a list": record({"l": array(record({"n": TEXT}, "self.n.size() > 0"))}),
    "expensive items of a list": record(
        {"l": array(record({"n": TEXT, "m": array(TEXT)}, "self.m.all(x, x == self.n)"))}
    ),
    "items of lists with limits": record(
        {"l": array(record({"k": array(record({"t": TEXT}, "self.t.contains('a')"), 100)}), 100)}
    ),
    "required fields": record(
        {
            "l": array(
                record({"name": NAME, "v": NUMBER}, "self.name == 'a' || self.v > 1", required=["name", "v"])
            )
        }
    ),
    "split": record({"t": TEXT}, "self.t.split(',').all(x, x == 'a')"),
    "join": record({"l": array(NAME, 5000)}, "self.l.join(',').contains(self.l.join('-'))"),
    "replace": record(
        {"t": TEXT, "u": NAME},
        "self.t.replace('a', self.u).lowerAscii().contains('b')"
        " && self.t.replace('ab', 'c').startsWith(self.u)",
    ),
    "concatenation": record(
        {"l": array(NAME, 1000)}, "self.l.all(x, self.l.all(y, (x + y + 'aaaaaaaaaa').size() > 1))"
    ),
    "condition": record(
        {"l": array(TEXT)}, "self.l.all(x, x == 'a' ? x.matches('aaaa') : x.matches('bbbbbbbbbbbbbbb'))"
    ),
    "computed lists and maps": record(
        {"l": array(NAME, 1000)},
        "self.l.all(x, self.l.all(y, ['a', 'b'].exists(z, z == x + y) || {'a': x}.a == 'b'))",
    ),
    "presence": record(
        {"l": array({"type": "object", "properties": {"t": NAME}})}, "self.l.all(x, has(x.t) && x.t != '')"
    ),
    "rules at two levels": record({"a": record({"l": array(NUMBER)}, SQUARE), "l": array(NUMBER)}, SQUARE),
    "rules of which each is cheap": record(
        {f"l{number}": array(NUMBER, 1_000_000 + number) for number in range(30)},
        *[f"self.l{number}.all(x, x > 0)" for number in range(30)],
    ),
    "rules of different costs": record(
        {"l": array(NUMBER), "s": array(NUMBER, 190_000), "m": array(NUMBER, 300_000)},
        "self.s.all(x, x > 0)",
        "self.m.all(x, x > 0)",
        SQUARE,
    ),
}
FUNCTIONS = record(
    {
        "t": TEXT,
        "bytes": {"type": "string", "format": "byte"},
        "texts": array(TEXT),
        "unlimited": array(NUMBER),
        "lists": array(array(NUMBER, 10), 900_000),
        "numbers": array(NUMBER, 3000),
        "names": array(NAME, 3000),
        "few": array(NAME, 100),
        "limits": mapping(TEXT),
        "either": {"x-kubernetes-int-or-string": True},
        "eithers": mapping({"x-kubernetes-int-or-string": True}, 8),
    }
)
CASES |= {
    rule: FUNCTIONS | {"x-kubernetes-validations": [{"rule": rule}]}
    for rule in (
        "self.texts.all(x, isIP(x))",
        "self.texts.all(x, isCIDR(x) && cidr(x).containsIP('10.0.0.1'))",
        "self.names.all(x, cidr(x).containsIP(ip(x)) || cidr(x).containsCIDR(x) || cidr(x).ip() == ip(x))",
        "self.limits.all(k, isQuantity(self.limits[k]))",
        "self.names.all(x, isQuantity(x) && ip.isCanonical(x) && isSemver(x, true))",
        "self.names.all(x, self.few.all(y, quantity(x).add(quantity(y)) == quantity('1')))",
        "self.names.all(x, self.few.all(y, semver(x, true).isLessThan(semver(y)) || url(x) == url(y)))",
        "self.names.all(x, self.few.all(y, url(x).getHost() == y && url(y).getQuery().size() > 0))",
        "self.texts.all(x, bytes(x) == b'a')",
        "self.names.all(x, self.few.all(y, string(bytes(x + y)) == y || strings.quote(x) == y))",
        "self.names.all(x, string(self.bytes) == x)",
        "self.names.all(x, '%s and more than ten characters'.format([x]) == x)",
        "quantity(string(self.eithers['a'])).isLessThan(quantity('1'))",
        "self.few.all(x, quantity(string(self.either)) == quantity(x))",
        "self.few.all(x, quantity(string(self.few.size())) == quantity(string(x == 'a')))",
        "isQuantity(string(self.t))",
        "sets.contains(self.unlimited, self.unlimited)",
        "sets.equivalent(self.numbers, self.numbers)",
        "sets.intersects(self.few, self.names)",
        "self.unlimited.distinct().size() == self.unlimited.size()",
        "self.few.distinct() == self.few",
        "self.numbers.sort() == self.numbers",
        "self.names.sort() == self.names",
        "self.names.sortBy(x, x.size()) == self.names",
        "self.few.sort().all(x, x.size() > 1)",
        "lists.range(20000000).size() > 1",
        "lists.range(self.unlimited.size()).size() > 1",
        "lists.range(1000).all(x, lists.range(10000).all(y, x > y))",
        "self.unlimited.reverse().all(x, x + 1 + 2 + 3 + 4 + 5 + 6 > 1)",
        "self.lists.flatten(20).size() > 1",
        "self.lists.flatten().all(x, x + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 > 1)",
        "self.unlimited.slice(0, 20000000).size() > 1",
        "self.unlimited.slice(1, self.unlimited.size()).all(x, x + 1 + 2 + 3 + 4 + 5 + 6 > 1)",
        "self.t.split(',', 1000).all(x, lists.range(2000).all(y, x == 'a' || y > 1))",
        "!format.dns1123Label().validate(self.t).hasValue()",
        "self.names.all(x, !format.named('uri').value().validate(x).hasValue())",
    )
}
CASES["message"] = {
    "type": "object",
    "properties": {"t": TEXT, "l": array(TEXT, 100)},
    "x-kubernetes-validations": [
        {"rule": "self.l.size() > 0", "messageExpression": "self.l.map(x, x + self.t + self.t).join(',')"}
    ],
}


def crd(schema: Schema) -> kube.Object:
    names = {"plural": "costs", "singular": "cost", "kind": "Cost", "listKind": "CostList"}
    root = {"type": "object", "properties": {"spec": schema}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "costs.rules.testing.kopf.dev"},
        "spec": {
            "group": "rules.testing.kopf.dev",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def answer(cluster: kube.Cluster, schema: Schema) -> list[tuple[str, str, str]]:
    """The causes of the rejection; empty if the CRD is accepted."""
    try:
        cluster.request("POST", kube.CRDS.path() + "?dryRun=All", crd(schema))
    except kube.ApiError as error:
        causes = json.loads(str(error).partition(": ")[2])["details"]["causes"]
        return [(cause["reason"], cause["field"], cause["message"]) for cause in causes]
    return []


@pytest.fixture(scope="module")
def embedded_cluster():
    with kopf.testing.Cluster() as server:
        yield kube.Cluster(server.kubeconfig)


@pytest.mark.parametrize("title", CASES)
def test_rules_are_rejected_for_their_costs_as_by_a_real_server(title, cluster, embedded_cluster):
    assert answer(embedded_cluster, CASES[title]) == answer(cluster, CASES[title])


def test_the_cases_have_both_verdicts(embedded_cluster):
    rejected = [title for title, schema in CASES.items() if answer(embedded_cluster, schema)]
    assert 10 < len(rejected) < len(CASES) - 5
