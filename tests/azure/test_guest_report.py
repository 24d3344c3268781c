"""What is said about a hook that did not succeed."""

from typing import Any

import pytest

from bigfleet_azure.backends.azure.arm import Failure
from bigfleet_azure.backends.azure.guest_report import MAX_GUEST_CHARACTERS, Explained, explain
from bigfleet_azure.domain.secret import Secret
from tests.azure.things import recording

HOOK = "/opt/bigfleet/bootstrap"
IMAGE = "Canonical:ubuntu-24_04-lts:server:latest"
HANDLER = "Microsoft.Azure.Extensions.CustomScript"


def told(
    code: str = "VMExtensionProvisioningError",
    message: str = "",
    view: dict[str, Any] | None = None,
    secret: bytes | None = None,
) -> Explained:
    failure = Failure(call="extension.put", status=200, code=code, message=message)
    blob = Secret(secret) if secret is not None else None
    return explain(failure, view, hook=HOOK, image=IMAGE, secret=blob)


def said(exit_code: int, stderr: str = "", stdout: str = "") -> str:
    """CustomScript's words."""
    return (
        "Enable failed: failed to execute command: command terminated with exit "
        f"status={exit_code}\n[stdout]\n{stdout}\n[stderr]\n{stderr}"
    )


def wrapped(words: str) -> str:
    """Compute's words around them."""
    return (
        "VM has reported a failure when processing extension 'bigfleet-hook' (publisher "
        "'Microsoft.Azure.Extensions' and type 'CustomScript'). Error message: "
        f"'{words}'. More information on troubleshooting is available at "
        "https://aka.ms/VMExtensionCSELinuxTroubleshoot. "
    )


def last_line(result: str, exit_code: int, text: str = "the hook failed") -> str:
    return f"\nbigfleet machine=m-1 operation=op-a1-5 result={result} exit={exit_code}: {text}\n"


def view_of(message: str, code: str = "ProvisioningState/failed/0", **more: Any) -> dict[str, Any]:
    status = {"code": code, "level": "Error", "displayStatus": "", "message": message}
    other = {"name": "other", "type": "Some.Other", "statuses": [{**status, "message": "not us"}]}
    ours = {"name": "bigfleet-hook", "type": HANDLER, "statuses": [status]}
    return {"extensions": [other, ours], **more}


@pytest.mark.parametrize("place", ["operation", "vm", "extension"])
def test_the_exit_code_and_the_last_lines_are_told_wherever_they_are_found(place: str) -> None:
    words = said(41, "cannot reach 10.0.0.1\n" + last_line("failed", 41), "preflight ok\n")
    match place:
        case "operation":
            explained = told(message=wrapped(words))
        case "vm":
            explained = told(view=view_of(words))
        case _:
            explained = told(view=view_of(words)["extensions"][1])
    assert explained == Explained(
        text=f"the hook {HOOK} failed with exit 41; "
        "the guest's last lines: preflight ok | cannot reach 10.0.0.1",
        exit_code=41,
        definite=True,
    )


def test_a_hook_that_says_nothing_is_told_by_its_exit_code() -> None:
    assert told(message=wrapped(said(3))).text == f"the hook {HOOK} failed with exit 3"


@pytest.mark.parametrize(("code", "why"), [(127, "does not exist"), (126, "cannot be executed")])
@pytest.mark.parametrize("line", ["", last_line("hook-missing", 0)])
def test_a_missing_hook_names_the_image_and_the_path(code: int, why: str, line: str) -> None:
    explained = told(message=wrapped(said(code, line.replace("exit=0", f"exit={code}"))))
    assert explained.text.startswith(f"hook missing in image {IMAGE}: {HOOK} (exit {code}: ")
    assert why in explained.text
    assert (explained.exit_code, explained.definite) == (code, True)


@pytest.mark.parametrize(
    ("result", "code", "words"),
    [
        ("refused-late", 91, "its clock says that the deadline of the operation has passed; why"),
        ("refused-older", 92, "it has seen a newer operation; why"),
        ("refused-interrupted", 93, "its end was not seen (was the machine restarted?)"),
        ("no-memory", 94, f"image {IMAGE} must mount a tmpfs"),
        ("broken", 95, f"could not prepare the hook {HOOK}; why"),
    ],
)
def test_each_refusal_of_our_own_script_is_explained(result: str, code: int, words: str) -> None:
    explained = told(message=wrapped(said(code, last_line(result, code, "why"))))
    assert words in explained.text
    assert (explained.exit_code, explained.definite) == (code, True)


def test_a_hook_with_an_exit_code_like_our_refusals_is_still_the_hook() -> None:
    explained = told(message=wrapped(said(91, last_line("failed", 91))))
    assert explained.text == f"the hook {HOOK} failed with exit 91"


def test_only_the_last_result_line_counts() -> None:
    forged = last_line("refused-older", 92) + "command terminated with exit status=1\n[stderr]\n"
    explained = told(message=wrapped(said(7, forged + last_line("failed", 7))))
    assert explained.text.startswith(f"the hook {HOOK} failed with exit 7")


@pytest.mark.parametrize(
    ("code", "words"),
    [(137, "failed with exit 137 (signal 9)"), (-1, "the script that runs the hook")],
)
def test_a_killed_hook_or_script_is_told_as_such(code: int, words: str) -> None:
    explained = told(message=wrapped(said(code)))
    assert words in explained.text
    assert explained.definite


def test_long_output_is_cut_to_its_end() -> None:
    output = "\n".join(f"line {number}" for number in range(1_000))
    text = told(message=wrapped(said(1, output + last_line("failed", 1)))).text
    assert "line 999" in text
    assert "line 1 " not in text
    quoted = text.split("the guest's last lines: ")[1]
    assert len(quoted) == MAX_GUEST_CHARACTERS
    assert quoted.startswith("…")


def test_control_characters_of_the_guest_do_not_get_into_the_text() -> None:
    text = told(message=wrapped(said(1, "\x1b[31mred\x00\r\nnext\tword\u2028end"))).text
    assert text.isprintable()
    assert text.endswith("[31mred | next word | end")


@pytest.mark.behaviour(69)
@pytest.mark.parametrize("place", ["operation", "view", "handler", "silent", "timeout"])
def test_no_secret_is_told_from_anywhere(place: str) -> None:
    blob = b"join=the-cluster-secret-4711;now"
    leak = "trace: the-cluster-secret-4711 and abcdef.0123456789abcdef"
    agent = {"vmAgent": {"statuses": [{"code": "X/Unavailable", "message": leak}]}}
    words = said(1, leak + last_line("failed", 1))
    explained = {
        "operation": lambda: told(message=wrapped(words), secret=blob),
        "view": lambda: told(view=view_of(words), secret=blob),
        "handler": lambda: told(message=wrapped(leak), secret=blob, view=agent),
        "silent": lambda: told("VMAgentStatusCommunicationError", leak, agent, secret=blob),
        "timeout": lambda: told("VMExtensionProvisioningTimeout", leak, view_of(leak), secret=blob),
    }[place]()
    assert "trace: ***" in explained.text
    assert "4711" not in explained.text
    assert "abcdef" not in explained.text


def test_a_secret_at_the_edge_of_the_cut_is_masked_too() -> None:
    blob = b"the-cluster-secret-4711-" * 3
    output = blob.decode() + "x" * (MAX_GUEST_CHARACTERS - 10)
    assert "secret" not in told(message=wrapped(said(1, output)), secret=blob).text


def test_a_silent_agent_as_recorded_is_told_and_may_come_back() -> None:
    exchanges = recording("vm-lro-failed-agent-timeout.json")["exchanges"]
    error = exchanges[1]["response"]["body"]["error"]
    view = exchanges[2]["response"]["body"]["properties"]["instanceView"]
    explained = told(error["code"], error["message"], view)
    assert explained.text.startswith(
        "no guest agent answers; an image without one needs --bootstrap-method none, else see "
        "the machine's boot diagnostics; VMAgentStatusCommunicationError: VM 'vm-000003' has not"
    )
    assert "the agent's status: VM status blob is found but not yet populated." in explained.text
    assert (explained.exit_code, explained.definite) == (None, False)


def test_another_extensions_failure_as_recorded_is_not_taken_for_the_hooks() -> None:
    error = recording("extension-lro-failed.json")["exchanges"][2]["response"]["body"]["error"]
    explained = told(error["code"], error["message"])
    assert "Enable failed with exit code 52 Couldn't create marker file" in explained.text
    assert "aka.ms" not in explained.text
    assert (explained.exit_code, explained.definite) == (None, False)


def test_an_earlier_failure_does_not_speak_for_an_agent_that_is_silent_now() -> None:
    explained = told("VMAgentStatusCommunicationError", "no status", view_of(said(41)))
    assert "41" not in explained.text
    assert not explained.definite


@pytest.mark.parametrize(
    ("code", "view"),
    [
        ("VMExtensionProvisioningTimeout", None),
        ("VMExtensionProvisioningError", view_of("Enabling", "ProvisioningState/transitioning")),
    ],
)
def test_a_hook_without_end_may_have_restarted_the_machine(
    code: str, view: dict[str, Any] | None
) -> None:
    explained = told(code, "Provisioning of VM extension bigfleet-hook has timed out.", view)
    assert "it may still run, or have restarted the machine" in explained.text
    assert "has timed out" in explained.text
    assert not explained.definite


@pytest.mark.parametrize("view", [None, {}, {"extensions": None}, {"vmAgent": None}])
def test_the_code_alone_is_never_all_that_is_told(view: dict[str, Any] | None) -> None:
    explained = told(view=view)
    assert explained.text == (
        "the guest does not say that the hook ran; see the machine's boot diagnostics; "
        "VMExtensionProvisioningError"
    )
    assert not explained.definite


def test_a_handler_in_trouble_is_told_in_its_own_words() -> None:
    explained = told(message=wrapped("failed to decode script"))
    assert explained.text.endswith("VMExtensionProvisioningError: failed to decode script")
    assert not explained.definite
