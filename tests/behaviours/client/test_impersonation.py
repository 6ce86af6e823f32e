"""Section 3.10, scenario 12: impersonation needs a permission, and applies to streams, too."""

import pytest
from kopf import client as errors

pytestmark = pytest.mark.kopf_cluster(access=True)

ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
"""


def test_3_10_12_errors_name_the_impersonated_user(client, config_map):
    client.create(config_map)
    jane = client.viewed("impersonating", "jane", groups=["team"])
    with pytest.raises(errors.Forbidden, match="jane") as failure:
        jane.get("cm", "one")
    assert failure.value.code == 403


def test_3_10_12_permitted_calls_and_streams_work(client, cluster, config_map):
    cluster.apply(ROLE)
    cluster.create(config_map)
    jane = client.viewed("impersonating", "jane")
    assert jane.wait_for("cm", "one", errors.exists, timeout=30).metadata.name == "one"
    assert jane.get("cm", "one").metadata.name == "one"
    with pytest.raises(errors.Forbidden, match="jane"):
        jane.delete("cm", "one")
    assert jane.allowed("get", "cm") is True
    assert jane.allowed("delete", "cm") is False
    event = next(cluster.api.impersonating("jane").watch("cm", fields={"metadata.name": "one"}))
    assert event.type == "ADDED"
