"""Three handlers; the lifecycle selects the next ones."""

import kopf


def declare(id):
    @kopf.on.create("widgets", id=id)
    def handler(memo, body, **_):
        memo.calls.append((id, body.metadata["resourceVersion"]))


for id in ("a", "b", "c"):
    declare(id)
