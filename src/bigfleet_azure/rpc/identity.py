"""Who calls: the identity in a client certificate, and what it may speak for (contract section 14).

The checks come before the fence, so that a caller without permission leaves no mark.
"""

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import unquote, urlsplit

import grpc

from bigfleet_azure.domain.fence import Token
from bigfleet_azure.rpc.guard import Context
from bigfleet_azure.rpc.status import Rejection

_SCHEME = "bigfleet"
_ROLE = "shard"
_TLS_VERSION = b"TLSv1.3"

Identify = Callable[[Context], str | None]
"""The shard id that the caller proved, None when the transport proves none; raises Rejection."""


def plaintext(_: Context) -> None:
    """Without TLS there is nothing to check."""


def server_tls(context: Context) -> None:
    """With a server certificate only: the connection is TLS 1.3."""
    _require_tls13(context.auth_context())


def mutual_tls(context: Context) -> str:
    """With client certificates: TLS 1.3, and the shard that the certificate names."""
    facts = context.auth_context()
    _require_tls13(facts)
    return shard_of(facts)


def _require_tls13(facts: Mapping[str, Iterable[bytes]]) -> None:
    """Refuse older versions, should one ever get past `rpc.minimum_tls`.

    Raises:
        Rejection: PERMISSION_DENIED.
    """
    if list(facts.get("ssl_tls_version", ())) != [_TLS_VERSION]:
        raise _denied("TLS 1.3 is required")


def shard_of(facts: Mapping[str, Iterable[bytes]]) -> str:
    """The shard id in a verified client certificate.

    gRPC lists the certificate's URI names, and only those, as `peer_uri`. There must be exactly
    one, `bigfleet://shard/<id>`; a second one of any scheme would leave open who is speaking.

    Raises:
        Rejection: PERMISSION_DENIED.
    """
    names = list(facts.get("peer_uri", ()))
    if len(names) != 1:
        raise _denied(
            f"the client certificate has {len(names)} URI names, exactly one is needed: "
            f"{_SCHEME}://{_ROLE}/<shard id>"
        )
    name = names[0].decode(errors="replace")
    try:
        parts = urlsplit(name)
        shard = unquote(parts.path[1:], errors="strict")
    except ValueError:
        raise _denied(f"the client certificate's URI name {name!r} cannot be read") from None
    if parts.scheme != _SCHEME or "?" in name or "#" in name or not shard or "/" in shard:
        raise _denied(
            f"the client certificate's URI name {name!r} is not {_SCHEME}://{_ROLE}/<shard id>"
        )
    if parts.netloc != _ROLE:
        raise _denied(f"the role {parts.netloc!r} in the client certificate may not call")
    return shard


def require_own_token(token: Token, shard: str) -> None:
    """Let a shard speak for itself only, so that none can raise another's fence marks.

    The absent token names no shard and leaves no mark; it stays allowed.

    Raises:
        Rejection: PERMISSION_DENIED.
    """
    if not token.absent and token.shard_id != shard:
        raise _denied(
            f"the token is of shard {token.shard_id!r}, the client certificate of shard {shard!r}"
        )


def _denied(message: str) -> Rejection:
    return Rejection(grpc.StatusCode.PERMISSION_DENIED, message)
