"""Who we are to Azure: one credential, chosen once, for the life of the process.

Trouble with it is one thing that concerns every machine and fails none (field case G1).
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from bigfleet_azure.backends.azure.options import AzureOptions, Credentials

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken, AccessTokenInfo, TokenRequestOptions
    from azure.core.credentials_async import AsyncTokenCredential

logger = logging.getLogger(__name__)

_Token = TypeVar("_Token")

AUTHORITIES = {
    "public": "https://login.microsoftonline.com",
    "usgov": "https://login.microsoftonline.us",
    "china": "https://login.chinacloudapi.cn",
}
"""Token services of the clouds (azure-identity `AzureAuthorityHosts`)."""


IMDS_SECONDS = 10
"""How long the machine's metadata service is given to answer (field case G5)."""


class CredentialTrouble(Exception):
    """No token can be had. The text says what the token service said, without secrets."""


def chosen_method(credentials: Credentials) -> str:
    """What `auto` comes to: a federated token, else a secret, else a managed identity.

    Never the command line's login: it would work until its session ends in the middle of the
    night (field case G4).
    """
    if credentials.method != "auto":
        return credentials.method
    if credentials.token_file is not None:
        return "workload-identity"
    if credentials.client_secret is not None:
        return "service-principal"
    return "managed-identity"


def open_credential(
    options: AzureOptions, trouble: Callable[[str | None], None]
) -> "AsyncTokenCredential":
    """The credential; it asks for no token yet."""
    method = chosen_method(options.credentials)
    logger.info("credential chosen", extra={"credential": method})
    return _Watched(_made(method, options), method, trouble)


def _made(method: str, options: AzureOptions) -> "AsyncTokenCredential":
    from azure.identity import aio

    given = options.credentials
    common: dict[str, Any] = {"authority": given.authority or AUTHORITIES[options.cloud]}
    if given.authority:
        # Its own discovery would ask the public cloud about an authority that is not known there.
        common["disable_instance_discovery"] = True
    if options.arm_ca is not None:
        common["connection_verify"] = str(options.arm_ca)
    match method:
        case "workload-identity":
            file = given.token_file
            assert file is not None
            # azure-identity's own class keeps what it read for ten minutes, be it replaced or not.
            return aio.ClientAssertionCredential(
                given.tenant_id, given.client_id, lambda: file.read_text().strip(), **common
            )
        case "service-principal":
            assert given.client_secret is not None
            secret = given.client_secret.reveal().decode()
            return aio.ClientSecretCredential(given.tenant_id, given.client_id, secret, **common)
        case "managed-identity":
            # An empty id means the one identity that the machine has.
            return aio.ManagedIdentityCredential(
                client_id=given.client_id or None, connection_timeout=IMDS_SECONDS
            )
        case _:
            return aio.AzureCliCredential(tenant_id=given.tenant_id or "")


class _Watched:
    """The credential that the SDK is given: tells when it stops working, and when it works again.

    `ClientAuthenticationError` is raised for a wrong secret and for an outage alike (azure-facts
    section 1.3): the text is what tells them apart, and neither fails a machine.
    """

    def __init__(
        self, inner: "AsyncTokenCredential", method: str, trouble: Callable[[str | None], None]
    ) -> None:
        self._inner = inner
        self._method = method
        self._trouble = trouble

    async def get_token(self, *scopes: str, **kwargs: Any) -> "AccessToken":
        return await self._asked(self._inner.get_token(*scopes, **kwargs))

    async def get_token_info(
        self, *scopes: str, options: "TokenRequestOptions | None" = None
    ) -> "AccessTokenInfo":
        inner: Any = self._inner
        asking: Awaitable[AccessTokenInfo] = inner.get_token_info(*scopes, options=options)
        return await self._asked(asking)

    async def _asked(self, asking: "Awaitable[_Token]") -> "_Token":
        try:
            token = await asking
        except Exception as error:
            text = " ".join(str(error).split())[:500]
            self._trouble(f"{self._method} gives no token: {text}")
            raise CredentialTrouble(text) from error
        self._trouble(None)
        return token

    async def close(self) -> None:
        await self._inner.close()

    async def __aenter__(self) -> "_Watched":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
