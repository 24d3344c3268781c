"""Extensions: what runs, what runs once, what is refused, what is never shown."""

import asyncio
import base64
import gzip

import pytest

from tests.arm.client import encoded, script_body, vm_body
from tests.support.arm.guests import Guest, ScriptResult
from tests.support.arm.images import PlatformImage

HOOK = "/extensions/bigfleet-hook"


@pytest.fixture
async def machine(client):
    await client.created()
    return client


async def put(client, body, name="bigfleet-hook"):
    return await client.send("PUT", client.vm(rest=f"/extensions/{name}"), body)


async def test_a_script_runs_in_the_guest(arm, machine):
    seen = []

    class Remembers(Guest):
        def run(self, vm, script):
            seen.append((vm.name, script))
            return ScriptResult(0, "joined")

    arm.cloud.guest = Remembers()
    answer = await put(machine, script_body("join blue"))
    assert (answer.status, answer.body["properties"]["provisioningState"]) == (201, "Creating")
    vm = await machine.get(machine.vm())
    assert vm.body["properties"]["provisioningState"] == "Updating"
    assert (await machine.ended(answer))["status"] == "Succeeded"
    assert seen == [("m-1", "join blue")]
    view = await machine.get(machine.vm(rest=HOOK), query={"$expand": "instanceView"})
    [status] = view.body["properties"]["instanceView"]["statuses"]
    assert status["message"] == "Enable succeeded: \n[stdout]\njoined\n[stderr]\n"


async def test_a_packed_script_is_unpacked(arm, machine):
    body = script_body()
    packed = base64.b64encode(gzip.compress(b"echo packed")).decode()
    body["properties"]["protectedSettings"]["script"] = packed
    await machine.ended(await put(machine, body))
    assert arm.ledger.scripts[0].script == "echo packed"


async def test_protected_settings_are_never_shown(machine):
    answer = await put(machine, script_body("secret"))
    await machine.ended(answer)
    shown = [
        answer,
        await machine.get(machine.vm(rest=HOOK), query={"$expand": "instanceView"}),
        await machine.get(machine.vm(rest="/extensions")),
        await machine.get(machine.vm(), query={"$expand": "instanceView"}),
    ]
    for each in shown:
        assert "protectedSettings" not in str(each.body)
        assert encoded("secret") not in str(each.body)


async def test_equal_settings_do_not_run_again(arm, machine):
    await machine.ended(await put(machine, script_body("a", stamp=1)))
    answer = await put(machine, script_body("a", stamp=1))
    assert answer.status == 200
    assert (await machine.ended(answer))["status"] == "Succeeded"
    assert len(arm.ledger.scripts) == 1
    await machine.ended(await put(machine, script_body("a", stamp=2)))
    assert len(arm.ledger.scripts) == 2


async def test_a_failed_script_tells_exit_code_and_output(arm, machine):
    class Fails(Guest):
        def run(self, vm, script):
            return ScriptResult(126, "", "hook: not found")

    arm.cloud.guest = Fails()
    ended = await machine.ended(await put(machine, script_body()))
    assert ended["error"]["code"] == "VMExtensionProvisioningError"
    assert "exit status=126" in ended["error"]["message"]
    vm = (await machine.get(machine.vm(), query={"$expand": "instanceView"})).body
    assert vm["properties"]["provisioningState"] == "Succeeded"
    assert vm["resources"][0]["properties"]["provisioningState"] == "Failed"
    [extension] = vm["properties"]["instanceView"]["extensions"]
    assert "hook: not found" in extension["statuses"][0]["message"]


async def test_only_the_end_of_the_output_is_kept(arm, machine):
    class Talks(Guest):
        def run(self, vm, script):
            return ScriptResult(0, "x" * 10_000 + "the end")

    arm.cloud.guest = Talks()
    await machine.ended(await put(machine, script_body()))
    view = await machine.get(machine.vm(rest=HOOK), query={"$expand": "instanceView"})
    message = view.body["properties"]["instanceView"]["statuses"][0]["message"]
    assert message.endswith("the end\n[stderr]\n")
    assert len(message) < 4200


async def test_a_guest_may_take_its_time(arm, machine):
    done = asyncio.Event()

    class Waits(Guest):
        async def run(self, vm, script):
            await done.wait()
            return ScriptResult(3)

    arm.cloud.guest = Waits()
    answer = await put(machine, script_body())
    await arm.clock.sleep(300)
    url = answer.headers["Azure-AsyncOperation"]
    assert (await machine.get(url)).body["status"] == "InProgress"
    done.set()
    assert (await machine.ended(answer))["status"] == "Failed"


async def test_a_second_custom_script_under_another_name_is_refused(machine):
    await machine.ended(await put(machine, script_body()))
    answer = await put(machine, script_body(), name="other")
    assert (answer.status, answer.code) == (400, "BadRequest")
    assert "Multiple VMExtensions per handler not supported" in answer.message
    assert (await machine.get(machine.vm(rest="/extensions/other"))).status == 404


async def test_a_setting_in_both_kinds_fails_in_the_guest(machine):
    body = script_body(commandToExecute="a")
    body["properties"]["protectedSettings"]["commandToExecute"] = "b"
    ended = await machine.ended(await put(machine, body))
    assert ended["error"]["code"] == "VMExtensionProvisioningError"


async def test_a_script_that_is_too_long_is_refused(machine):
    body = script_body("x" * 200_000)
    assert (await put(machine, body)).status == 400


async def test_a_reimage_runs_the_last_script_again(arm, machine):
    await machine.ended(await put(machine, script_body("join")))
    answer = await machine.send("POST", machine.vm(rest="/reimage"), {})
    assert (await machine.ended(answer))["status"] == "Succeeded"
    assert [(run.script, run.why) for run in arm.ledger.scripts] == [
        ("join", "extension"),
        ("join", "reimage"),
    ]


async def test_a_reimage_takes_no_other_custom_data(arm, client):
    await client.created(body=vm_body(arm, data="first"))
    body = {"osProfile": {"customData": encoded("second")}}
    answer = await client.send("POST", client.vm(rest="/reimage"), body)
    assert (answer.status, answer.code) == (400, "BadRequest")


async def test_an_image_without_an_agent_lets_extensions_wait_25_minutes(arm, client):
    arm.cloud.images.add(PlatformImage("Sidero", "talos", "v1", version="1.0.0", agent=False))
    body = vm_body(arm)
    body["properties"]["storageProfile"]["imageReference"] = {
        "publisher": "Sidero",
        "offer": "talos",
        "sku": "v1",
        "version": "1.0.0",
    }
    await client.created(body=body)
    before = arm.clock.now()
    ended = await client.ended(await put(client, script_body()))
    assert ended["error"]["code"] == "VMAgentStatusCommunicationError"
    assert arm.clock.now() - before > 1500
    view = (await client.get(client.vm(rest="/instanceView"))).body
    assert view["vmAgent"]["statuses"][0]["code"] == "ProvisioningState/Unavailable"
    assert view["statuses"][-1]["code"] == "PowerState/running"
    assert arm.ledger.scripts == []


async def test_extensions_can_be_forbidden_and_need_a_running_vm(arm, client):
    body = vm_body(arm)
    body["properties"]["osProfile"]["allowExtensionOperations"] = False
    await client.created(body=body)
    assert (await put(client, script_body())).code == "OperationNotAllowed"
    await client.created("m-2", vm_body(arm, "m-2"))
    arm.shut_down("m-2")
    answer = await client.send("PUT", client.vm("m-2", HOOK), script_body())
    assert (answer.status, answer.code) == (409, "OperationNotAllowed")


async def test_an_extension_is_deleted_and_then_missing(machine):
    await machine.ended(await put(machine, script_body()))
    answer = await machine.send("DELETE", machine.vm(rest=HOOK))
    assert answer.status == 202
    await machine.ended(answer)
    answer = await machine.get(machine.vm(rest=HOOK))
    assert (answer.status, answer.code) == (404, "ResourceNotFound")


async def test_equal_settings_after_a_failure_fail_again_without_a_run(arm, machine):
    class Fails(Guest):
        def run(self, vm, script):
            return ScriptResult(9, "", "once")

    arm.cloud.guest = Fails()
    first = await machine.ended(await put(machine, script_body()))
    arm.cloud.guest = Guest()
    again = await machine.ended(await put(machine, script_body()))
    assert again["status"] == "Failed"
    assert again["error"] == first["error"]
    assert len(arm.ledger.scripts) == 1
    assert (await machine.ended(await put(machine, script_body(stamp=2))))["status"] == "Succeeded"


async def test_the_shell_of_a_failed_create_takes_no_extension(arm, client):
    arm.shortage()
    await client.ended(await client.put_vm())
    answer = await put(client, script_body())
    assert (answer.status, answer.code) == (409, "OperationNotAllowed")
