"""Extensions of a VM, CustomScript above all: what runs, what runs only once, what is refused."""

import asyncio
import copy
import inspect
from collections.abc import Awaitable
from typing import Any

from tests.support.arm.cloud import Cloud
from tests.support.arm.compute import Compute
from tests.support.arm.conflicts import claim
from tests.support.arm.extension_model import Extension
from tests.support.arm.guests import OUTPUT_KEPT, BadScript, ScriptResult, script_of
from tests.support.arm.ledger import VM, ScriptRun
from tests.support.arm.operations import Operation
from tests.support.arm.resources import missing
from tests.support.arm.vms import RUNNING, Vm
from tests.support.arm.wire import Answer, Call, Json, refusal

KIND = f"{VM}/extensions"
CUSTOM_SCRIPT = ("microsoft.azure.extensions", "customscript")
MAX_SCRIPT = 262_144
"""Characters of `script` as sent."""
_RERUN_KEYS = ("settings", "protectedSettings", "forceUpdateTag")


class Extensions:
    """See the module."""

    def __init__(self, cloud: Cloud, compute: Compute) -> None:
        self._cloud = cloud
        self._compute = compute
        self._waiting: set[asyncio.Task[None]] = set()

    def put(self, call: Call) -> Answer:
        vm = self._compute.demand(call)
        body = copy.deepcopy(call.json())
        properties = body.get("properties") or {}
        for key in ("publisher", "type", "typeHandlerVersion"):
            if not properties.get(key):
                message = f"Required parameter '{key}' is missing (null)."
                raise refusal(400, "InvalidParameter", message, target=key)
        self._check(vm, call.name, properties)
        claim(self._cloud, vm, "PutExtension")
        extension = vm.extensions.get(call.name.lower())
        created = extension is None
        if extension is None:
            extension = Extension(
                id=f"{vm.id}/extensions/{call.name}", type=KIND, location=vm.location
            )
            vm.extensions[call.name.lower()] = extension
        extension.publisher = str(properties["publisher"])
        extension.kind = str(properties["type"])
        extension.version = str(properties["typeHandlerVersion"])
        extension.sent = properties
        extension.tags = dict(body.get("tags") or {})
        extension.protected = properties.get("protectedSettings") or {}
        extension.state = "Creating" if created else "Updating"
        operation = self._begin(call, vm, extension)
        headers = self._cloud.operations.headers(operation, call, location=False)
        return Answer(201 if created else 200, extension.view(), headers)

    def get(self, call: Call) -> Answer:
        vm = self._compute.demand(call)
        expand = call.query.get("$expand", "").lower()
        return Answer(200, self._demand(call, vm).view(instance="instanceview" in expand))

    def of_vm(self, call: Call) -> Answer:
        vm = self._compute.demand(call)
        expand = "instanceview" in call.query.get("$expand", "").lower()
        value = [each.view(instance=expand) for each in vm.extensions.values()]
        return Answer(200, {"value": value})

    def delete(self, call: Call) -> Answer:
        vm = self._compute.demand(call)
        if call.name.lower() not in vm.extensions:
            return Answer(204)
        claim(self._cloud, vm, "DeleteExtension")
        extension = vm.extensions[call.name.lower()]
        extension.state = "Deleting"

        def finish() -> None:
            vm.extensions.pop(call.name.lower(), None)

        operation = self._compute.begin(call, vm, "extension.delete", finish=finish)
        return Answer(202, None, self._cloud.operations.headers(operation, call, location=True))

    def run_again(self, vm: Vm) -> None:
        """After a reimage the handler finds no trace of its last run."""
        for extension in vm.extensions.values():
            if _is_custom_script(extension.publisher, extension.kind):
                self._run(vm, extension, "reimage")

    async def close(self) -> None:
        """Stop waiting for guests."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    def _check(self, vm: Vm, name: str, properties: Json) -> None:
        if not vm.os_profile.get("allowExtensionOperations", True):
            raise refusal(
                409,
                "OperationNotAllowed",
                "This operation cannot be performed when extension operations are disallowed. To "
                "allow, please ensure VM Agent is installed on the VM and the "
                "osProfile.allowExtensionOperations property is true.",
            )
        if vm.operation is None and vm.power != RUNNING:
            raise refusal(
                409,
                "OperationNotAllowed",
                "Cannot modify extensions in the VM when the VM is not running.",
            )
        handler = f"{properties['publisher']}.{properties['type']}"
        for other in vm.extensions.values():
            if other.name.lower() != name.lower() and other.handler.lower() == handler.lower():
                raise refusal(
                    400,
                    "BadRequest",
                    "Multiple VMExtensions per handler not supported for OS type 'Linux'. "
                    f"VMExtension '{other.name}' with handler '{handler}' already added or "
                    "specified in input.",
                )
        script = (properties.get("protectedSettings") or {}).get("script", "")
        if len(script) > MAX_SCRIPT:
            message = f"The script has more than {MAX_SCRIPT} characters."
            raise refusal(400, "InvalidParameter", message, target="protectedSettings.script")

    def _begin(self, call: Call, vm: Vm, extension: Extension) -> Operation:
        wanted = {key: extension.sent.get(key) for key in _RERUN_KEYS}
        if not vm.agent:
            return self._end_silent(call, vm, extension)
        if call.operation_error is not None or not _is_custom_script(
            extension.publisher, extension.kind
        ):
            return self._end_plain(call, vm, extension, "extension.put")
        if wanted == extension.ran:
            # The handler tells again what it told the last time.
            call.operation_error = extension.error
            return self._end_plain(call, vm, extension, "extension.equal")
        extension.ran = wanted
        outcome = self._run(vm, extension, "extension")
        return self._end_with(call, vm, extension, outcome)

    def _run(
        self, vm: Vm, extension: Extension, why: str
    ) -> ScriptResult | Awaitable[ScriptResult]:
        try:
            script = script_of(extension.sent.get("settings") or {}, extension.protected)
        except BadScript as problem:
            return ScriptResult(51, "", str(problem))
        self._cloud.ledger.scripts.append(ScriptRun(self._cloud.world.now(), vm.id, script, why))
        return self._cloud.guest.run(vm, script)

    def _end_plain(self, call: Call, vm: Vm, extension: Extension, kind: str) -> Operation:
        def finish() -> None:
            extension.state = "Succeeded"
            extension.statuses = extension.statuses or [_status(0, "Enable succeeded.")]

        def fail(error: Json) -> None:
            extension.state = "Failed"

        return self._compute.begin(call, vm, kind, finish=finish, fail=fail)

    def _end_silent(self, call: Call, vm: Vm, extension: Extension) -> Operation:
        """No agent answers: Azure gives up after some 25 minutes."""
        call.operation_error = call.operation_error or {
            "code": "VMAgentStatusCommunicationError",
            "message": f"VM '{vm.name}' has not reported status for VM agent or extensions. Verify "
            "that the OS is up and healthy, the VM has a running VM agent, and that it can "
            "establish outbound connections to Azure storage. Please refer to "
            "https://aka.ms/vmextensionlinuxtroubleshoot for additional VM agent troubleshooting "
            "information.",
        }
        return self._end_plain(call, vm, extension, "extension.silent-agent")

    def _end_with(
        self,
        call: Call,
        vm: Vm,
        extension: Extension,
        outcome: ScriptResult | Awaitable[ScriptResult],
    ) -> Operation:
        if isinstance(outcome, ScriptResult) and outcome.seconds is not None:
            call.operation_seconds = call.seconds(outcome.seconds)
        results: list[ScriptResult] = [outcome] if isinstance(outcome, ScriptResult) else []

        def finish() -> None:
            self._finish(vm, extension, results[0])

        def fail(error: Json) -> None:
            self._finish(vm, extension, results[0])

        operation = self._compute.begin(call, vm, "extension.put", finish=finish, fail=fail)
        if inspect.isawaitable(outcome):
            if operation.event is not None:
                operation.event.cancelled = True
            task = asyncio.ensure_future(self._await(vm, extension, operation, outcome, results))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        else:
            operation.error = _error(vm, extension, results[0])
        return operation

    async def _await(
        self,
        vm: Vm,
        extension: Extension,
        operation: Operation,
        outcome: Awaitable[Any],
        results: list[ScriptResult],
    ) -> None:
        results.append(await outcome)
        operation.error = _error(vm, extension, results[0])
        self._cloud.operations.end(operation)

    def _finish(self, vm: Vm, extension: Extension, result: ScriptResult) -> None:
        extension.error = _error(vm, extension, result)
        extension.state = "Succeeded" if result.exit_code == 0 else "Failed"
        extension.statuses = [_status(result.exit_code, _message(result))]

    def _demand(self, call: Call, vm: Vm) -> Extension:
        extension = vm.extensions.get(call.name.lower())
        if extension is None:
            raise missing(call.group, KIND, vm.name, call.name)
        return extension


def _is_custom_script(publisher: str, kind: str) -> bool:
    return (publisher.lower(), kind.lower()) == CUSTOM_SCRIPT


def _message(result: ScriptResult) -> str:
    output = f"\n[stdout]\n{result.stdout[-OUTPUT_KEPT:]}\n[stderr]\n{result.stderr[-OUTPUT_KEPT:]}"
    if result.exit_code == 0:
        return f"Enable succeeded: {output}"
    return (
        "Enable failed: failed to execute command: command terminated with exit "
        f"status={result.exit_code}{output}"
    )


def _error(vm: Vm, extension: Extension, result: ScriptResult) -> Json | None:
    if result.exit_code == 0:
        return None
    return {
        "code": "VMExtensionProvisioningError",
        "message": f"VM has reported a failure when processing extension '{extension.name}' "
        f"(publisher '{extension.publisher}' and type '{extension.kind}'). Error message: "
        f"'{_message(result)}'. More information on troubleshooting is available at "
        "https://aka.ms/VMExtensionCSELinuxTroubleshoot. ",
    }


def _status(exit_code: int, message: str) -> Json:
    good = exit_code == 0
    return {
        "code": f"ProvisioningState/{'succeeded' if good else f'failed/{exit_code}'}",
        "level": "Info" if good else "Error",
        "displayStatus": "Provisioning succeeded" if good else "Provisioning failed",
        "message": message,
    }
