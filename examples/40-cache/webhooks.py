"""A webhook server behind a Service of the cluster."""

import kopf


class ServiceServer(kopf.WebhookServer):
    """Kopf's server, whose webhook configurations refer to a Service instead of a URL.

    API servers resolve the names of Services only by such references.
    """

    def __init__(self, namespace, name, **options):
        super().__init__(host=f"{name}.{namespace}.svc", **options)
        self._service = {"namespace": namespace, "name": name, "port": 443}

    async def __call__(self, fn):
        async for config in super().__call__(fn):
            yield {"service": self._service, "caBundle": config["caBundle"]}
