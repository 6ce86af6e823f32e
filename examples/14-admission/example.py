"""Validate and complete cakes before they are stored, with a webhook server in the operator."""

import kopf


@kopf.on.startup()
def configure(settings, **_):
    # For other clusters, the host is the name of a service, or use a tunnel: see docs/admission.md.
    settings.admission.server = kopf.WebhookServer(addr="127.0.0.1", host="127.0.0.1")
    settings.admission.managed = "cakes.bakery.examples.kopf.dev"


@kopf.on.mutate("cakes", operations=["CREATE"])
def add_sugar(spec, patch, **_):
    if "sugar" not in spec:
        patch.spec["sugar"] = "100g"


@kopf.on.validate("cakes", operations=["CREATE", "UPDATE"])
def check_time(spec, warnings, **_):
    minutes = spec.get("minutes", 0)
    if minutes > 60:
        raise kopf.AdmissionError("It would burn.", code=422)
    if minutes > 50:
        warnings.append("It will be rather dark.")


@kopf.on.validate("cakes", operations=["DELETE"], labels={"wedding": kopf.PRESENT})
def keep_wedding_cakes(userinfo, **_):
    raise kopf.AdmissionError(f"Not even {userinfo['username']} may throw away a wedding cake.", code=403)
