"""An operator for a deployment: it counts the words of sites, and has a probe."""

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, memo: kopf.Memo, **_):
    settings.posting.reporting_component = "site-operator"
    memo.handled = set()


@kopf.on.create("sites")
@kopf.on.update("sites", field="spec.text")
def count(spec: kopf.Spec, uid: str, memo: kopf.Memo, body: kopf.Body, **_):
    memo.handled.add(uid)
    words = len(spec["text"].split())
    kopf.info(body, reason="Counted", message=f"There are {words} words.")
    return words


@kopf.on.probe(id="handled")
def handled(memo: kopf.Memo, **_):
    return len(memo.handled)
