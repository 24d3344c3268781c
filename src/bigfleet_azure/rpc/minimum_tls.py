"""TLS 1.3 as the minimum, which gRPC for Python can only be told by environment.

This module must not import gRPC: the variable counts only when it is set before that.
"""

import os

_VARIABLE = "GRPC_SSL_CIPHER_SUITES"
_TLS12_SUITES = "ECDHE-PSK-CHACHA20-POLY1305"
"""A pre-shared-key suite is all that is left of TLS 1.2, and no client can complete it. TLS 1.3
suites are not governed by the variable (azure-facts section 1.7)."""


def require_tls13() -> None:
    """Rule out older versions in this process, whatever the environment says; call it first."""
    os.environ[_VARIABLE] = _TLS12_SUITES


def is_required() -> bool:
    """Whether `require_tls13` was called in this process, or in one it inherits from."""
    return os.environ.get(_VARIABLE) == _TLS12_SUITES
