"""Access of one replica to the Secret with the shared certificate: it reads, creates and renews it.

All replicas do the same at the same time: the first one creates the Secret, and the others read it. Writes
have the resource version that was read as their precondition. With leader election, only the leader writes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kopf._kits.webhooks.shared_certificates import (
    AUTHORITIES,
    CERTIFICATE,
    KEY,
    Build,
    CertificateSecretError,
    KeyPair,
    SharedCertificate,
)
from kopf._objects.apierrors import AlreadyExists, ApiError, Conflict, Forbidden
from kopf._objects.credentials import LoginError

if TYPE_CHECKING:
    from kopf._runtime.client.api import Api

SECRETS = "v1/secrets"
RETRY = 1.0
"""Seconds between attempts to read the Secret while there is none."""
SETTLING = 10.0
"""Seconds at the start in which the server waits for another replica, or for the API server."""

logger = logging.getLogger("kopf._kits.webhooks")


class CertificateSecret:
    """The Secret of a webhook server.

    Args:
        secret: The name of the Secret, or its namespace and name with a slash.
        api: The client of the operator.
        may_write: Whether this replica writes now: it is the leader, or there is no leader election.
        names: The names for which the certificate must be.
        build: Makes a certificate with its key.
    """

    def __init__(
        self,
        secret: str,
        *,
        api: Api,
        may_write: Callable[[], bool],
        names: Collection[str],
        build: Build,
    ) -> None:
        super().__init__()
        namespace, _, self._name = secret.rpartition("/")
        self._namespace = namespace or os.environ.get("POD_NAMESPACE") or None
        self._api = api
        self._may_write = may_write
        self._names = names
        self._build = build
        self._content: SharedCertificate | None = None
        self._own: KeyPair | None = None
        self._problem = ""

    @property
    def place(self) -> str:
        """The namespace and the name, as far as they are known."""
        return f"{self._namespace}/{self._name}" if self._namespace else self._name

    @property
    def retry(self) -> float | None:
        """Seconds until the next attempt while there is no Secret; None if there is one."""
        return RETRY if self._content is None else None

    def contents(self) -> dict[str, bytes]:
        """The certificate, its key and the authorities that are in use, by the keys of the Secret."""
        served = self._content or SharedCertificate.generated(self._own_pair())
        return {
            CERTIFICATE: served.current.certificate,
            KEY: served.current.key,
            AUTHORITIES: served.authorities,
        }

    def unusable(self, error: Exception) -> CertificateSecretError:
        """The error that the server cannot use the certificate."""
        return CertificateSecretError(f"The certificate in the Secret {self.place} cannot be used: {error}")

    async def open(self) -> None:
        """Read the Secret, or create it.

        If there is none, and this replica cannot create it, it serves its own certificate: a replica of an
        update must become ready, even if the leader is of a version that uses no Secret.

        Raises:
            CertificateSecretError: The Secret cannot be used, or permissions are missing.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLING
        while True:
            try:
                if await self._refresh():
                    return
            except (ApiError, LoginError, RuntimeError) as error:
                self._report(error)
            if loop.time() >= deadline:
                logger.warning(
                    f"The Secret {self.place} does not exist yet: until the leader has created it, the"
                    " webhook server uses a certificate that the API server does not trust."
                )
                return
            await asyncio.sleep(RETRY)

    async def poll(self) -> bool:
        """Read the Secret, and renew it if it is time; whether the content has changed."""
        try:
            is_changed = await self._refresh()
        except Exception as error:  # the current certificate stays in use
            self._report(error)
            return False
        self._problem = ""
        return is_changed

    def _report(self, error: Exception) -> None:
        problem = f"The Secret {self.place} of the webhook server cannot be read or written: {error}"
        text = str(error) if isinstance(error, CertificateSecretError) else problem
        if text != self._problem:  # it is read every minute
            logger.error(text)
        self._problem = text

    async def _refresh(self) -> bool:
        found = await self._read()
        found = await self._renew(found) if found is not None else await self._create()
        if found is None or found == self._content:
            return False
        found.check(self.place, self._names)
        self._content = found
        return True

    async def _read(self) -> SharedCertificate | None:
        try:
            body = await self._api.find(SECRETS, self._name, self._namespace)
        except Forbidden as error:
            raise self._forbidden("get", error) from None
        except ValueError as error:  # the namespace is not known
            raise CertificateSecretError(
                f"The Secret {self.place} cannot be read: {error} Pass secret='NAMESPACE/NAME'."
            ) from None
        return SharedCertificate.parse(body) if body is not None else None

    async def _create(self) -> SharedCertificate | None:
        if not self._may_write():
            return None
        if self._content is None:
            desired = SharedCertificate.generated(self._own_pair())
        elif self._content.is_generated:
            # It was deleted, so that it is replaced: no request fails meanwhile.
            desired = self._content.announcing(self._build, time.time())
        else:
            raise CertificateSecretError(
                f"The Secret {self.place} does not exist any longer: the webhook server uses the last"
                " certificate."
            )
        try:
            body = await self._api.create(desired.to_secret(self._name, self._namespace), self._namespace)
        except AlreadyExists:
            return await self._read()
        except Forbidden as error:
            raise self._forbidden("create", error) from None
        logger.info(f"The Secret {self.place} with the certificate of the webhook server is created.")
        return SharedCertificate.parse(body)

    async def _renew(self, found: SharedCertificate) -> SharedCertificate | None:
        desired = found.renewed(self._build, time.time()) if self._may_write() else None
        if desired is None:
            return found
        patch = desired.to_patch()
        try:
            body = await self._api.patch(SECRETS, self._name, patch, self._namespace, version=found.version)
        except Conflict:
            return await self._read()  # another replica was faster
        except Forbidden as error:
            raise self._forbidden("patch", error) from None
        logger.info(f"{_describe(found, desired)} in the Secret {self.place}.")
        return SharedCertificate.parse(body)

    def _own_pair(self) -> KeyPair:
        if self._own is None:
            self._own = KeyPair(*self._build())
        return self._own

    def _forbidden(self, verb: str, error: Forbidden) -> ApiError | CertificateSecretError:
        if error.code == 401:
            return error
        # Names do not limit the creation of objects.
        rule = (
            "verbs: [create]" if verb == "create" else f"resourceNames: [{self._name}], verbs: [get, patch]"
        )
        return CertificateSecretError(
            f"The webhook server has no permission to {verb} the Secret {self.place}."
            f' Add this rule to the role of the operator: {{apiGroups: [""], resources: [secrets], {rule}}}.'
        )


def _describe(before: SharedCertificate, after: SharedCertificate) -> str:
    """The step of a renewal."""
    if after.following is not None:
        return "The next certificate of the webhook server is announced"
    if after.current != before.current:
        return "The certificate of the webhook server is renewed"
    return "The authority of the previous certificate of the webhook server is removed"
