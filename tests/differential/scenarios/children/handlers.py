"""Handlers that prepare children with the functions of Kopf's hierarchies, and create them."""

import kopf
import kubeapi
from tracer import GROUP, record, trace


def configmap(**meta):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "v"}}


@kopf.on.create(GROUP, "widgets")
def make_children(namespace, **kwargs):
    trace({**kwargs, "namespace": namespace})
    named, nameless, labelled = (
        configmap(name="named"),
        configmap(),
        configmap(name="labelled", labels={"own": "x"}),
    )
    kopf.adopt([named, nameless])
    kopf.label(labelled, {"own": "y", "more": "z"})
    kopf.label(labelled, {"own": "forced"}, forced=True)
    kopf.append_owner_reference(labelled, controller=False, block_owner_deletion=False)
    kopf.append_owner_reference(labelled)
    record("prepared", children=[named, nameless, labelled])
    kubeapi.create(f"/api/v1/namespaces/{namespace}/configmaps", named)
    kubeapi.create(f"/api/v1/namespaces/{namespace}/configmaps", labelled)


@kopf.on.update(GROUP, "widgets")
async def more(namespace, body, **kwargs):
    trace({**kwargs, "namespace": namespace, "body": body})
    deployment = {"metadata": {}, "spec": {"template": {"metadata": {}}, "list": [{"metadata": {}}]}}
    kopf.label(deployment, nested=["spec.template", "spec.list"])
    kopf.harmonize_naming(deployment, strict=True)
    kopf.adjust_namespace(deployment, "elsewhere")
    kopf.adjust_namespace(deployment, "forced", forced=True)
    record("deployment", body=deployment)
    owned = configmap(name="x")
    kopf.append_owner_reference(owned, owner=body)
    before = len(owned["metadata"]["ownerReferences"])
    kopf.remove_owner_reference(owned)
    record("disowned", before=before, after=owned)


@kopf.on.delete("", "v1", "configmaps", labels={"own": kopf.PRESENT})
def child_deleted(**kwargs):
    trace(kwargs)
