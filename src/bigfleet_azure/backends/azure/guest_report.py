"""Why the hook did not succeed, in words for `last_error`: what the guest said, not the symptom.

Read from the failed operation and from the instance view; asking Azure for them is `binding`'s.
What is returned holds no secret that is known or recognised (`guest_secrets`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bigfleet_azure.backends.azure.arm import Failure
from bigfleet_azure.backends.azure.guest_secrets import without_secrets
from bigfleet_azure.domain.secret import Secret

Json = dict[str, Any]

MAX_GUEST_CHARACTERS = 1_000
"""Of the guest's last lines in a text; Azure keeps 4,096 bytes of each stream (field case E7)."""

_SILENT_AGENT = "VMAgentStatusCommunicationError"
_TIMEOUT = "VMExtensionProvisioningTimeout"

_RESULT = re.compile(
    r"^bigfleet machine=\S+ operation=\S+ "
    r"result=(?P<result>[a-z-]+) exit=(?P<exit>\d+): (?P<text>[^\n]*)",
    re.MULTILINE,
)
"""The last line of `guest_script`."""

_EXIT = re.compile(r"command terminated with exit status[= ](-?\d+)")
"""CustomScript's own words. It is read in front of the output only, which may say so as well."""

_WRAPPED = re.compile(r".*?Error message: ['\"](?P<said>.*)", re.DOTALL)
_LINK = re.compile(r"['\"]?\.? More information on troubleshooting is available at \S+\s*\Z")
"""What Compute puts around the words of the guest (recorded)."""

_REFUSALS = {
    "refused-late": "the guest did not start the hook {hook}: its clock says that the deadline of "
    "the operation has passed",
    "refused-older": "the guest did not start the hook {hook}: it has seen a newer operation",
    "refused-interrupted": "the hook {hook} began and its end was not seen (was the machine "
    "restarted?); it is not started twice",
    "no-memory": "the guest has no memory file system to hold the bootstrap blob; image {image} "
    "must mount a tmpfs on /run or /dev/shm",
    "broken": "the guest could not prepare the hook {hook}",
}
"""By the result in the script's last line: why the hook did not run, or not again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What is known about a hook that did not succeed.

    Attributes:
        text: one line for people, without secrets; it does not name the machine.
        exit_code: of the script, which is the hook's own when it ran; None when it did not end.
        definite: the guest has decided and a retry changes nothing; else the trouble is with
            the guest's agent or on the way, and may pass.
    """

    text: str
    exit_code: int | None
    definite: bool


def explain(
    failure: Failure,
    instance_view: Json | None,
    *,
    hook: str,
    image: str,
    secret: Secret | None,
) -> Explained:
    """Why an extension that runs `hook` failed.

    Args:
        failure: of the extension's operation.
        instance_view: of the VM or of the extension; None when it could not be read.
        hook: path of the program in the image.
        image: that the VM was made from.
        secret: the bootstrap blob, whose pieces are masked; None when it is not at hand.
    """
    view = instance_view or {}
    head, output = _split(_said(failure, view))
    result = _last_result(output)
    exit_code = int(result["exit"]) if result else _exit_code(head)
    lines = _last_lines(without_secrets(_RESULT.sub("", output), secret))
    if not exit_code:
        words = _last_lines(without_secrets(head or failure.message, secret))
        agent = _last_lines(without_secrets(_agent_words(view), secret))
        said = f"{failure.code}: {words}" if words else failure.code
        text = _joined(_agent_text(failure, view), said, agent, lines)
        return Explained(text=text, exit_code=None, definite=False)
    name = result["result"] if result else "failed"
    text = _joined(
        _hook_text(name, exit_code, hook, image),
        result["text"] if result and name in _REFUSALS else "",
        lines and f"the guest's last lines: {lines}",
    )
    return Explained(text=text, exit_code=exit_code, definite=True)


def _hook_text(result: str, exit_code: int, hook: str, image: str) -> str:
    if result in _REFUSALS:
        return _REFUSALS[result].format(hook=hook, image=image)
    if exit_code == 127:
        return (
            f"hook missing in image {image}: {hook} "
            "(exit 127: it, or a program that it starts, does not exist)"
        )
    if exit_code == 126:
        return f"hook missing in image {image}: {hook} (exit 126: it cannot be executed)"
    if exit_code < 0:
        return f"the script that runs the hook {hook} was killed"
    if exit_code > 128:
        return f"the hook {hook} failed with exit {exit_code} (signal {exit_code - 128})"
    return f"the hook {hook} failed with exit {exit_code}"


def _agent_text(failure: Failure, view: Json) -> str:
    if failure.code == _SILENT_AGENT or _agent_is_silent(view):
        return (
            "no guest agent answers; an image without one needs --bootstrap-method none, else see "
            "the machine's boot diagnostics"
        )
    if failure.code == _TIMEOUT or _is_running(view):
        return (
            "the guest has not said that the hook ended; it may still run, or have restarted "
            "the machine"
        )
    return "the guest does not say that the hook ran; see the machine's boot diagnostics"


def _said(failure: Failure, view: Json) -> str:
    """The guest's words: from the operation, else from the extension's last failed status."""
    wrapped = _WRAPPED.match(failure.message)
    from_operation = _LINK.sub("", wrapped["said"] if wrapped else "")
    if _EXIT.search(from_operation) or failure.code in (_SILENT_AGENT, _TIMEOUT):
        return from_operation
    from_view = [
        str(status.get("message") or "")
        for status in _extension_statuses(view)
        if "/failed" in str(status.get("code")).lower()
    ]
    return from_view[-1] if from_view else from_operation


def _split(said: str) -> tuple[str, str]:
    """CustomScript's own words, and the output of both streams."""
    head, stdout, rest = said.partition("[stdout]")
    if not stdout:
        head, _, rest = said.partition("[stderr]")
    return head.strip(), rest.replace("[stderr]", "\n")


def _last_result(output: str) -> re.Match[str] | None:
    found = list(_RESULT.finditer(output))
    return found[-1] if found else None


def _exit_code(head: str) -> int | None:
    found = _EXIT.search(head)
    return int(found[1]) if found else None


def _last_lines(text: str) -> str:
    """The end of `text` as one line, without control characters."""
    lines = (
        " ".join("".join(one if one.isprintable() else " " for one in line).split())
        for line in text.splitlines()
    )
    whole = " | ".join(line for line in lines if line)
    if len(whole) <= MAX_GUEST_CHARACTERS:
        return whole
    return f"…{whole[1 - MAX_GUEST_CHARACTERS :]}"


def _extension_statuses(view: Json) -> Iterator[Json]:
    """Of CustomScript, whether the view is the VM's or the extension's."""
    extensions = view.get("extensions") or [view]
    for extension in extensions:
        if str(extension.get("type") or "").lower().endswith("customscript"):
            yield from extension.get("statuses") or []


def _is_running(view: Json) -> bool:
    return any(
        "/transitioning" in str(one.get("code")).lower() for one in _extension_statuses(view)
    )


def _agent_status(view: Json) -> Json:
    statuses = (view.get("vmAgent") or {}).get("statuses") or [{}]
    first: Json = statuses[0]
    return first


def _agent_is_silent(view: Json) -> bool:
    return str(_agent_status(view).get("code") or "").lower().endswith("/unavailable")


def _agent_words(view: Json) -> str:
    message = str(_agent_status(view).get("message") or "")
    return f"the agent's status: {message}" if message and _agent_is_silent(view) else ""


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
