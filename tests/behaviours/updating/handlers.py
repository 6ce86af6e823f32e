"""Records the changes of widgets."""

import kopf


@kopf.on.update("widgets")
def changed(memo, old, new, diff, **_):
    memo.calls.append(("changed", [tuple(item) for item in diff], old["spec"], new["spec"]))


@kopf.on.create("widgets")
def created(**_):
    pass
