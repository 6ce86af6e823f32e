"""Validating webhooks through the managed configuration and the built-in server."""

from tests.differential.harness.session import Session

OWN_GROUP = True
KINDS = ["widgets", "validatingwebhookconfigurations"]
UNORDERED = ["check_size", "check_deletion", "check_owner"]


def run(s: Session) -> None:
    s.start(env=s.certificate())
    s.wait_object(
        "validatingwebhookconfigurations", f"{s.token}.example.dev", lambda obj: obj.get("webhooks")
    )
    s.sleep(2)
    s.snapshot("configured")
    s.attempt("small", s.create, "widgets", "small", {"size": 1})
    s.attempt("big", s.create, "widgets", "big", {"size": 6}, labels={"locked": ""})
    s.attempt("too big", s.create, "widgets", "huge", {"size": 11})
    s.attempt("owned", s.create, "widgets", "owned", {"owner": "me"})
    s.settle("created")
    s.attempt("grown", s.patch, "widgets", "small", {"spec": {"size": 20}})
    s.quiesce()
    s.attempt("resized", s.patch, "widgets", "small", {"spec": {"size": 2}})
    s.quiesce()
    s.attempt("locked", s.delete, "widgets", "big")
    s.quiesce()
    s.attempt("unlocked", s.delete, "widgets", "small")
    s.settle("changed")
    s.stop()
