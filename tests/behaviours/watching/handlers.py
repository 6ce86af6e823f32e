"""Records every watch event of widgets."""

import kopf


@kopf.on.event("widgets")
def seen(memo, event, name, **_):
    memo.calls.append(("seen", event["type"], name))
    if name == "broken":
        raise ValueError("This is a problem.")
