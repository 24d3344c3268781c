"""Exit codes, for scripts to rely on; the reference page is generated from here."""

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended. A number never changes its meaning.

    Attributes:
        meaning: one sentence for the reference page.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str) -> "Exit":
        """Make a member from its number and its meaning."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    OK = 0, "Done. With `--wait`, the machine reached its goal."
    UNEXPECTED = (
        1,
        "A fault of the program itself; the trace on standard error belongs in a report.",
    )
    USAGE = 2, "Unusable flags, variables, configuration or offerings file; every fault is listed."
    UNREACHABLE = (
        3,
        "No daemon, price service or Azure answered at that address in time, or TLS failed.",
    )
    NOT_FOUND = 4, "There is no machine of that id, or no price of that size."
    REFUSED = 5, "The daemon refused: wrong state, stale token, bad argument or no permission."
    FAILED = 6, "The operation was accepted and the machine ended in FAILED; the reason is shown."
    TIMED_OUT = 7, "`--wait` gave up; the operation itself goes on."
    STATE_UNUSABLE = 8, "The state file cannot be used: damaged, foreign, locked or too new."
    CANNOT_LISTEN = 9, "The gRPC address cannot be listened on, mostly because it is taken."
    INTERRUPTED = 130, "Ended by Ctrl-C; an operation that was waited for goes on."
