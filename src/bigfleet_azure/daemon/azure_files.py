"""What stands in the files that settings of the Azure backend name: keys and certificates.

Nothing of a file's content is ever part of a message.
"""

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

MIN_RSA_BITS = 2048
"""Azure's documented least length of an RSA key."""


def ssh_public_key(content: bytes) -> str:
    """The one line of an SSH public key file.

    Raises:
        ValueError: it is not a public key that Azure takes; the rest of a sentence.
    """
    if b"PRIVATE KEY" in content:
        raise ValueError("holds a private key; name the file with the public one, often *.pub")
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if len(lines) != 1:
        raise ValueError(f"must hold one public key in one line, and has {len(lines)} lines")
    try:
        key = load_ssh_public_key(lines[0])
        text = lines[0].decode()
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(
            "is no SSH public key; Azure takes a line that begins with ssh-rsa or ssh-ed25519"
        ) from None
    if isinstance(key, RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        raise ValueError(
            f"is an RSA key of {key.key_size} bits; Azure wants {MIN_RSA_BITS} at least"
        )
    if not isinstance(key, RSAPublicKey | Ed25519PublicKey):
        raise ValueError("is a key of a type that Azure does not take; use ssh-rsa or ssh-ed25519")
    return text


def certificates(content: bytes) -> None:
    """Check a bundle of certificates.

    Raises:
        ValueError: it is none; the rest of a sentence.
    """
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content.decode())
    except (ssl.SSLError, ValueError):
        raise ValueError("holds no certificates in PEM form") from None
