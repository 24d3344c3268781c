"""Sizes, times and names that bound a request, each with its origin."""

from dataclasses import dataclass

from bigfleet_azure.domain.lifecycle import Kind

MAX_NAME_BYTES = 253
"""Longest machine, shard or cluster id: a DNS name's length (RFC 1035), as in Kubernetes."""

MAX_METADATA_BYTES = 256 * 1024
"""Largest packed shard metadata. Every full List carries every map; real maps have a few hundred
bytes (contract section 7)."""

MAX_GRACE_SECONDS = 24 * 3600
"""Longest grace of a Drain (contract section 8); more is clamped."""

DRAIN_MARGIN_SECONDS = 300
"""Time a Drain gets beyond its grace (contract section 8)."""


def names_a_file(name: str) -> bool:
    """Whether `name` can be the name of a file in a folder, and of one that is not hidden."""
    return bool(name) and not name.startswith(".") and "/" not in name and "\0" not in name


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds each kind of operation may take.

    Attributes:
        exact: the drain deadline stays as given; else it is never shorter than the grace
            plus `DRAIN_MARGIN_SECONDS`.
    """

    create: float
    configure: float
    drain: float
    delete: float
    exact: bool = False

    def seconds(self, kind: Kind, grace_seconds: int) -> float:
        """Seconds an operation of `kind` may take."""
        match kind:
            case Kind.CREATE:
                return self.create
            case Kind.CONFIGURE:
                return self.configure
            case Kind.DELETE:
                return self.delete
            case Kind.DRAIN:
                pass
        if self.exact:
            return self.drain
        return max(self.drain, grace_seconds + DRAIN_MARGIN_SECONDS)
