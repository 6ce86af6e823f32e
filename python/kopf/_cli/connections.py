"""Credentials of commands that make requests themselves, outside of an operator."""

from __future__ import annotations

import dataclasses
import logging

from kopf._intents.settings import OperatorSettings
from kopf._objects.credentials import ConnectionInfo, LoginError
from kopf._runtime import bridge, login


def find_connection(*, use_plugins: bool = True) -> ConnectionInfo | None:
    """The credentials as of an operator without login handlers; None if there are none.

    Without `use_plugins`, also None if they come from an exec plugin of the kubeconfig.
    A plugin that fails is a `LoginError`, a missing token file an `OSError`.
    """
    settings = OperatorSettings()
    logger = logging.getLogger("kopf.activities.authentication")
    if not use_plugins and login.has_kubeconfig() and bridge.has_exec_plugin():
        return None
    if login.has_sync_client() and (login.has_kubeconfig() or login.has_service_account()):
        return login.login_via_client(logger=logger, settings=settings)
    if not login.prefers_kubeconfig(settings):
        account = login.login_with_service_account(settings=settings)
        if account is not None:
            return account
    connection = login.login_with_kubeconfig(settings=settings)
    if connection is None:
        return login.login_with_service_account(settings=settings)
    credentials = bridge.read_referenced_credentials()
    if isinstance(credentials, str):
        raise LoginError(credentials)
    return dataclasses.replace(connection, **credentials)
