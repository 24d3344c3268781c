"""The instance metadata service of a VM that the daemon runs in: tokens of managed identities.

It is spoken to in plain HTTP, on a port of its own; azure-identity is pointed there by the variable
AZURE_POD_IDENTITY_AUTHORITY_HOST. Outages (404, 410, 429, 5xx) are scripted with
`Fault("metadata.token", ...)`.
"""

import time
from dataclasses import dataclass, field

from tests.support.arm.identity import CLIENT, METADATA_GRANT, Identity
from tests.support.arm.wire import Answer, Call, Json, Refusal

API_VERSIONS = frozenset({"2018-02-01", "2019-08-01", "2021-02-01"})


@dataclass
class Metadata:
    """See the module."""

    identity: Identity
    system: bool = True
    """Whether the VM has an identity of its own."""
    assigned: set[str] = field(default_factory=lambda: {CLIENT})
    """Client ids of the identities that were assigned to it."""

    def token(self, call: Call) -> Answer:
        self.identity.requests[METADATA_GRANT] += 1
        lower = {key.lower(): value for key, value in call.headers.items()}
        if lower.get("metadata", "").lower() != "true":
            raise _bad("Required metadata header not specified")
        if call.api_version not in API_VERSIONS:
            raise _bad(f"Bad request. api-version '{call.api_version}' is invalid or missing.")
        if not call.query.get("resource"):
            raise _bad("Required query variable 'resource' is missing")
        client = self._chosen(call.query.get("client_id"))
        now, lifetime = int(time.time()), self.identity.lifetime
        body: Json = {
            "access_token": self.identity.issue(client),
            "client_id": client,
            "expires_in": str(lifetime),
            "expires_on": str(now + lifetime),
            "ext_expires_in": str(lifetime),
            "not_before": str(now),
            "resource": call.query["resource"],
            "token_type": "Bearer",
        }
        return Answer(200, body)

    def _chosen(self, client: str | None) -> str:
        if client is not None:
            if client not in self.assigned:
                raise _bad("Identity not found")
            return client
        if self.system:
            return "the-vm-itself"
        if not self.assigned:
            raise _bad("Identity not found")
        if len(self.assigned) > 1:
            raise _bad(
                "Multiple user assigned identities exist, please specify the clientId / resourceId "
                "of the identity in the token request"
            )
        return next(iter(self.assigned))


def _bad(text: str) -> Refusal:
    return Refusal(Answer(400, {"error": "invalid_request", "error_description": text}))
