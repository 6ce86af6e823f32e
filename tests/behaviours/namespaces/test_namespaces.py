"""An operator serves its namespaces only."""

import secrets

import pytest


def test_other_namespaces_are_left_alone(run, make, cluster):
    other = f"other-{secrets.token_hex(4)}"
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    make("there", namespace=other)
    running = run(namespaces=[cluster.namespace])
    make("here")
    running.until("created")
    running.settle()
    assert running.of("created") == [cluster.namespace]


@pytest.mark.contract("engine 1.6")
def test_namespaces_come_by_their_patterns(run, make, cluster):
    prefix = f"many-{secrets.token_hex(4)}"
    running = run(namespaces=[f"{prefix}-*"])
    for number in (1, 2):
        name = f"{prefix}-{number}"
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        make("one", namespace=name)
    running.until("created", 2)
    assert sorted(running.of("created")) == [f"{prefix}-1", f"{prefix}-2"]
