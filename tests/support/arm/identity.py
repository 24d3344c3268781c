"""Microsoft Entra: tokens for service principals and workload identities, and discovery.

Tokens live in real time, since the client library that keeps them knows no other.
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.arm.wire import Answer, Call, Json, Refusal, refusal

TENANT = "22222222-2222-4222-8222-222222222222"
CLIENT = "33333333-3333-4333-8333-333333333333"
SECRET = "throw-away"
_SAFE = {
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    "X-Content-Type-Options": "nosniff",
}
_PUBLIC = _SAFE | {"Cache-Control": "max-age=86400, private"}
_SECRET = _SAFE | {"Cache-Control": "no-store, no-cache", "Expires": "-1", "Pragma": "no-cache"}


@dataclass(frozen=True)
class Token:
    """What a token stands for."""

    principal: str
    expires: float


class Identity:
    """The token service of one tenant."""

    def __init__(self, endpoint: str = "") -> None:
        self.endpoint = endpoint
        self.clients = {CLIENT: SECRET}
        self.assertions: set[str] | None = None
        """Federated tokens that are accepted; None = any."""
        self.lifetime = 86_399
        self.issued = 0
        self._tokens: dict[str, Token] = {}

    def token(self, call: Call) -> Answer:
        form: Mapping[str, str] = call.body if isinstance(call.body, dict) else {}
        client = form.get("client_id", "")
        if client not in self.clients:
            raise _invalid_client(
                "unauthorized_client",
                700016,
                f"Application with identifier '{client}' was not found in the directory.",
                status=400,
            )
        assertion = form.get("client_assertion")
        if assertion is not None:
            good = self.assertions is None or assertion in self.assertions
        else:
            good = form.get("client_secret") == self.clients[client]
        if not good:
            raise _invalid_client(
                "invalid_client",
                7000215,
                "Invalid client secret provided. Ensure the secret being sent in the request is "
                "the client secret value, not the client secret ID, for a secret added to app "
                f"'{client}'.",
                status=401,
            )
        return Answer(
            200,
            {
                "token_type": "Bearer",
                "expires_in": self.lifetime,
                "ext_expires_in": self.lifetime,
                "refresh_in": self.lifetime // 2,
                "access_token": self.issue(client),
            },
            dict(_SECRET),
        )

    def issue(self, principal: str, seconds: float | None = None) -> str:
        """A token for whoever needs one without asking over the wire."""
        text = secrets.token_urlsafe(32)
        expires = time.time() + (self.lifetime if seconds is None else seconds)
        self._tokens[text] = Token(principal, expires)
        self.issued += 1
        return text

    def revoke_all(self) -> None:
        self._tokens.clear()

    def principal(self, headers: Mapping[str, str]) -> str:
        """Who calls, or the 401 that ARM gives."""
        given = headers.get("Authorization", "")
        if not given:
            raise _unauthorized(
                "AuthenticationFailed",
                "Authentication failed. The 'Authorization' header is missing.",
            )
        token = self._tokens.get(given.removeprefix("Bearer "))
        if token is None:
            raise _unauthorized("InvalidAuthenticationToken", "The access token is invalid.")
        if token.expires <= time.time():
            raise _unauthorized(
                "ExpiredAuthenticationToken",
                f"The access token expiry UTC time '{time.ctime(token.expires)}' is earlier than "
                f"current UTC time '{time.ctime()}'.",
                "The access token has expired.",
            )
        return token.principal

    def configuration(self, call: Call) -> Answer:
        base = f"{self.endpoint}/{call.parameters['tenant']}"
        body: Json = {
            "token_endpoint": f"{base}/oauth2/v2.0/token",
            "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"],
            "jwks_uri": f"{base}/discovery/v2.0/keys",
            "response_modes_supported": ["query", "fragment", "form_post"],
            "subject_types_supported": ["pairwise"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "response_types_supported": ["code", "id_token"],
            "scopes_supported": ["openid", "profile", "email", "offline_access"],
            "issuer": f"{base}/v2.0",
            "request_uri_parameter_supported": False,
            "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
            "device_authorization_endpoint": f"{base}/oauth2/v2.0/devicecode",
            "http_logout_supported": True,
            "frontchannel_logout_supported": True,
            "end_session_endpoint": f"{base}/oauth2/v2.0/logout",
            "claims_supported": ["sub", "iss", "aud", "exp", "iat"],
            "userinfo_endpoint": f"{base}/oidc/userinfo",
            "kerberos_endpoint": f"{base}/kerberos",
            "tenant_region_scope": "WW",
            "cloud_instance_name": "microsoftonline.com",
            "cloud_graph_host_name": "graph.windows.net",
            "msgraph_host": "graph.microsoft.com",
            "rbac_url": "https://pas.windows.net",
        }
        return Answer(200, body, dict(_PUBLIC))

    def discovery(self, call: Call) -> Answer:
        host = self.endpoint.removeprefix("https://")
        known = {"preferred_network": host, "preferred_cache": host, "aliases": [host]}
        return Answer(
            200,
            {
                "tenant_discovery_endpoint": f"{self.endpoint}/common/.well-known/"
                "openid-configuration",
                "api-version": "1.1",
                "metadata": [known],
            },
            dict(_PUBLIC),
        )


def _unauthorized(code: str, message: str, description: str = "") -> Refusal:
    challenge = (
        'Bearer authorization_uri="https://login.windows.net/", error="invalid_token", '
        f'error_description="{description or message}"'
    )
    return refusal(401, code, message, gateway=True, headers={"WWW-Authenticate": challenge})


def _invalid_client(error: str, number: int, text: str, *, status: int) -> Refusal:
    trace = "00000000-0000-0000-0000-000000000000"
    stamp = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    body: Json = {
        "error": error,
        "error_description": f"AADSTS{number}: {text}\r\nTrace ID: {trace}\r\n"
        f"Correlation ID: {trace}\r\nTimestamp: {stamp}",
        "error_codes": [number],
        "timestamp": stamp,
        "trace_id": trace,
        "correlation_id": trace,
        "error_uri": f"https://login.microsoftonline.com/error?code={number}",
    }
    return Refusal(Answer(status, body))
