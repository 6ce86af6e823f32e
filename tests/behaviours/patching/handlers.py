"""Changes widgets in all supported ways."""

import kopf


@kopf.on.create("widgets", labels={"way": "fields"})
def by_fields(patch, **_):
    patch.spec["size"] = 100
    patch.meta.labels["patched"] = "yes"
    patch.meta.annotations["example.com/note"] = "hello"
    patch.status["phase"] = "Ready"


@kopf.on.create("widgets", labels={"way": "function"})
def by_function(patch, **_):
    def append(body):
        body["spec"]["items"].append(3)

    patch.fns.append(append)


@kopf.on.event("widgets", labels={"way": "event"})
def by_event(patch, status, **_):
    if "events" not in status:
        patch.status["events"] = 1
