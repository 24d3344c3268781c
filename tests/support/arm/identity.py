"""Microsoft Entra: tokens for service principals and workload identities, and discovery.

Tokens live in real time, since the client library that keeps them knows no other. Who gives tokens
to virtual machines is `metadata`'s.
"""

import base64
import json
import secrets
import time
from collections import Counter
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


SECRET_GRANT = "secret"
ASSERTION_GRANT = "assertion"
METADATA_GRANT = "metadata"

EXPIRED_SECRET = 7000222
WRONG_SECRET = 7000215
UNKNOWN_APPLICATION = 700016
ASSERTION_OUT_OF_TIME = 700024
ASSERTION_UNKNOWN = 700213
OUTAGE = 90033
# Number -> (error, status, text).
_REFUSALS = {
    UNKNOWN_APPLICATION: (
        "unauthorized_client",
        400,
        "Application with identifier '{client}' was not found in the directory '{tenant}'. This "
        "can happen if the application has not been installed by the administrator of the tenant "
        "or consented to by any user in the tenant. You may have sent your authentication request "
        "to the wrong tenant.",
    ),
    WRONG_SECRET: (
        "invalid_client",
        401,
        "Invalid client secret provided. Ensure the secret being sent in the request is the client "
        "secret value, not the client secret ID, for a secret added to app '{client}'.",
    ),
    EXPIRED_SECRET: (
        "invalid_client",
        401,
        "The provided client secret keys for app '{client}' are expired. Visit the Azure portal to "
        "create new keys for your app: https://aka.ms/NewClientSecret, or consider using "
        "certificate credentials for added security: https://aka.ms/certCreds.",
    ),
    ASSERTION_OUT_OF_TIME: (
        "invalid_client",
        401,
        "Client assertion is not within its valid time range.",
    ),
    ASSERTION_UNKNOWN: (
        "invalid_client",
        401,
        "No matching federated identity record found for presented assertion subject.",
    ),
    OUTAGE: (
        "temporarily_unavailable",
        503,
        "The service is temporarily unavailable. Please retry the request.",
    ),
}


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
        """Federated tokens that are accepted; None = any that has not expired."""
        self.expired_secrets: set[str] = set()
        self.refusing: int | None = None
        """While set, every request is refused with this number, like `OUTAGE`."""
        self.lifetime = 86_399
        """Seconds that tokens live; 2 lets two refreshes happen within a short test."""
        self.issued = 0
        self.requests: Counter[str] = Counter()
        """Token requests by grant, refused ones too: `secret`, `assertion`, `metadata`."""
        self._tokens: dict[str, Token] = {}

    def token(self, call: Call) -> Answer:
        form: Mapping[str, str] = call.body if isinstance(call.body, dict) else {}
        client = form.get("client_id", "")
        assertion = form.get("client_assertion")
        self.requests[SECRET_GRANT if assertion is None else ASSERTION_GRANT] += 1
        wrong = self.refusing or self._wrong(client, form.get("client_secret", ""), assertion)
        if wrong is not None:
            raise _refused(wrong, client, call.parameters["tenant"])
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

    def _wrong(self, client: str, secret: str, assertion: str | None) -> int | None:
        if client not in self.clients:
            return UNKNOWN_APPLICATION
        if assertion is not None:
            if _expired(assertion):
                return ASSERTION_OUT_OF_TIME
            known = self.assertions is None or assertion in self.assertions
            return None if known else ASSERTION_UNKNOWN
        if secret in self.expired_secrets:
            return EXPIRED_SECRET
        return None if secret == self.clients[client] else WRONG_SECRET

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


def federated_token(seconds: float = 3600.0) -> str:
    """What a cluster writes into the token file of a workload: a JWT, here without signature."""

    def part(value: Json) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims: Json = {"sub": "system:serviceaccount:fleet:azure", "exp": int(time.time() + seconds)}
    return f"{part({'alg': 'RS256', 'kid': secrets.token_hex(4)})}.{part(claims)}.signature"


def _expired(assertion: str) -> bool:
    """Whether it is a JWT of the past; other texts have no time in them."""
    try:
        claims = assertion.split(".")[1]
        expires = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
    except (IndexError, KeyError, ValueError):
        return False
    return float(expires) <= time.time()


def _refused(number: int, client: str, tenant: str) -> Refusal:
    error, status, wording = _REFUSALS[number]
    text = wording.format(client=client, tenant=tenant)
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
