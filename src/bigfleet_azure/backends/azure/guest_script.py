"""The script that runs the image's hook inside the guest, as text; how it is sent is `bootstrap`'s.

It runs on what Ubuntu, Azure Linux and Flatcar have without any package: a POSIX shell, coreutils
and util-linux. What it promises:

- The hook runs at most once for an operation, and never for an operation older than the newest one
  that this disk has seen. Numbers order the operations of one incarnation of the store. A new
  incarnation is newer than all that were seen before it, and those are refused from then on. Times
  cannot order operations: a drain with a long grace ends before its deadline, and the deadline of
  the Configure after it is the earlier one.
- A second run of one operation, which trouble with the agent may bring about, waits for the first
  to end and tells how it ended.
- The hook does not start after the operation's deadline: a reimage wipes the disk with all memory
  of what ran, and Azure then runs the last script again.
- The blob is written to a memory file system only, is removed before the script ends, and is
  neither an argument nor in an environment. The script removes its own file first of all. The
  shell's temporary file for the here-document, which bash makes, lies in the same memory.
- Its last line on standard error has the form that `guest_report` reads.
"""

import math
import re
import shlex

STATE_FILE = "/var/lib/bigfleet/operations"
"""One line for each incarnation: its name, its newest operation's number, how that ended."""

MEMORY_PLACES = "/run /dev/shm"
"""Where memory file systems are; /run first, because only root can write there."""

_FAR = 253_402_300_799
"""The last second of the year 9999, for an operation without a deadline."""

_BODY = r"""
memory=

finish() {
    printf '\nbigfleet machine=%s operation=%s result=%s exit=%s: %s\n' \
        "$machine" "$operation" "$1" "$2" "$3" >&2
    exit "$2"
}

forget() {
    [ -z "$memory" ] || rm -rf -- "$memory"
    memory=
}

record() {
    {
        [ ! -e "$seen" ] || sed "/^$incarnation /d" "$seen"
        echo "$incarnation $number $1"
    } >"$seen.new" && mv -f -- "$seen.new" "$seen"
}

take_turn() {
    if ! mkdir -p -- "${seen%/*}" || ! true >>"$seen.lock"; then
        finish broken 95 "$seen cannot be written"
    fi
    exec 9>>"$seen.lock"
    left=$((deadline - $(date +%s)))
    [ "$left" -ge 0 ] || left=0
    [ "$left" -le 86400 ] || left=86400
    flock -w "$left" 9 || finish refused-interrupted 93 'an earlier run has not ended'
}

check_order() {
    earlier=''
    last=''
    [ -e "$seen" ] || return 0
    while read -r which newest how; do
        [ "$which" != "$incarnation" ] || earlier="$newest $how"
        last=$which
    done <"$seen"
    [ -n "$earlier" ] || return 0
    how=${earlier#* } newest=${earlier% *}
    [ "$last" = "$incarnation" ] && [ "$number" -ge "$newest" ] ||
        finish refused-older 92 'this machine has seen a newer operation'
    [ "$number" -eq "$newest" ] || return 0
    case $how in
        0) finish repeated 0 'the hook ran before and succeeded' ;;
        began) finish refused-interrupted 93 'the hook began before and its end was not seen' ;;
        *) finish failed "$how" 'the hook ran before and failed' ;;
    esac
}

check_time() {
    now=$(date +%s)
    [ "$now" -le "$deadline" ] ||
        finish refused-late 91 "the deadline was $deadline, the time here is $now"
}

check_hook() {
    [ -e "$hook" ] || finish hook-missing 127 "$hook does not exist"
    [ -f "$hook" ] && [ -x "$hook" ] || finish hook-missing 126 "$hook cannot be executed"
}

run() {
    record began || finish broken 95 "$seen cannot be written"
    code=0
    "$hook" "$@" </dev/null 9>&- || code=$?
    forget
    record "$code" || :
    [ "$code" -ne 0 ] || finish succeeded 0 'the hook succeeded'
    finish failed "$code" 'the hook failed'
}

trap forget EXIT
# Signals wait until the hook has ended: only then its outcome is known.
trap : HUP INT TERM
# What CustomScript keeps of this text holds the secret.
rm -f -- "$0" /var/lib/waagent/custom-script/download/*/script.sh || :
take_turn
check_order
check_time
check_hook
"""

_MEMORY = rf"""
places='{MEMORY_PLACES}'

take_memory() {{
    for place in $places; do
        case $(stat -f -c %T "$place" 2>/dev/null) in
            tmpfs | ramfs) ;;
            *) continue ;;
        esac
        # Left by a run that was killed.
        rm -rf -- "$place"/bigfleet.?????? 2>/dev/null || :
        memory=$(mktemp -d "$place/bigfleet.XXXXXX" 2>/dev/null) && return 0
        memory=
    done
    finish no-memory 94 "none of these is a memory file system that can be written: $places"
}}
"""

_CONFIGURE = """\
take_memory
(
    TMPDIR=$memory
    base64 -d >"$memory/blob" <<'BLOB'
{blob}
BLOB
) || finish broken 95 'the blob could not be unpacked'
run "$memory/blob"
"""


def configure_script(
    *, hook: str, blob: str, machine_id: str, operation_id: str, deadline: float
) -> str:
    """The script that hands the blob to the hook.

    Args:
        blob: the bootstrap blob in base64. The result is as secret as it is.
        deadline: Unix seconds after which the hook must not start.

    Raises:
        ValueError: the operation id does not end in a number.
    """
    return _head(hook, machine_id, operation_id, deadline) + _MEMORY + _CONFIGURE.format(blob=blob)


def drain_script(
    *, hook: str, grace_seconds: int, machine_id: str, operation_id: str, deadline: float
) -> str:
    """The script that has the hook drain the node, with `grace_seconds` for its workloads.

    Raises:
        ValueError: the operation id does not end in a number.
    """
    head = _head(hook, machine_id, operation_id, deadline)
    return f"{head}run --drain --grace={grace_seconds:d}\n"


def _head(hook: str, machine_id: str, operation_id: str, deadline: float) -> str:
    named = re.fullmatch(r"([A-Za-z0-9-]+)-([0-9]+)", operation_id)
    if named is None:
        raise ValueError(f"the operation id {operation_id!r} does not end in a number")
    return (
        "#!/bin/sh\n"
        "# Runs the image's bootstrap hook for one operation of bigfleet-azure, once.\n"
        "set -eu\n"
        "umask 077\n"
        f"machine={shlex.quote(machine_id)}\n"
        f"operation={operation_id}\n"
        f"incarnation={named[1]}\n"
        f"number={named[2]}\n"
        f"deadline={math.ceil(min(deadline, _FAR))}\n"
        f"hook={shlex.quote(hook)}\n"
        f"seen={STATE_FILE}\n"
        f"{_BODY}"
    )
