"""Fails as set in the spec."""

import kopf


@kopf.on.create("widgets", backoff=0.05, retries=5)
def plain(memo, spec, retry, **_):
    memo.calls.append(("plain", retry))
    match spec.get("fails"):
        case "temporarily" if retry < 2:
            raise kopf.TemporaryError("Not yet.", delay=0.05)
        case "permanently":
            raise kopf.PermanentError("Never.")
        case "arbitrarily" if retry < 1:
            raise ValueError("Oops.")
        case "always":
            raise ValueError("Oops again.")
    return {"attempts": retry + 1}


@kopf.on.create("widgets", errors=kopf.ErrorsMode.IGNORED)
def careless(memo, **_):
    memo.calls.append(("careless", None))
    raise ValueError("Who cares.")


@kopf.on.create("widgets", errors=kopf.ErrorsMode.PERMANENT)
def strict(memo, **_):
    memo.calls.append(("strict", None))
    raise ValueError("That is it.")


@kopf.on.create("widgets", timeout=300)
def limited(memo, spec, retry, **_):
    memo.calls.append(("limited", retry))
    if spec.get("fails") == "for long":
        raise kopf.TemporaryError("Not yet.", delay=200)
