"""What a call to Azure does by itself, and what it never does."""

from tests.support.arm.faults import Fault, error
from tests.support.azure import Site, until


async def test_an_unregistered_provider_is_reported_and_never_registered(tmp_path):
    async with Site(tmp_path, "--failed-dwell=0") as site:
        [machine] = await site.ids(1)
        site.arm.access.unregistered.add("Microsoft.Compute")
        await site.create(machine)
        failed = await site.reaches(machine, "FAILED")
        assert "MissingSubscriptionRegistration" in failed.last_error
        assert site.arm.ledger.count("provider.register") == 0


async def test_a_refused_call_is_not_sent_again_behind_the_executors_back(tmp_path):
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(
            Fault("vm.put", answer=error(503, "ServiceUnavailable", headers={"Retry-After": "200"}))
        )
        await site.create(machine)
        await until(lambda: site.arm.ledger.count("vm.put"))
        await site.passes(60)
        assert site.arm.ledger.count("vm.put") == 1
        assert await site.metric("bigfleet_azure_operation_retries_total", kind="create") == 1
        await site.reaches(machine, "IDLE")
        sent = {exchange.request_headers.get("User-Agent", "") for exchange in site.arm.exchanges}
        assert any("bigfleet-azure/" in agent for agent in sent)


async def test_an_operation_that_is_to_be_followed_elsewhere_is_followed_by_its_vm(tmp_path):
    """The token must not go to a host that is not Azure's."""
    async with Site(tmp_path, true=False) as site:
        [machine] = await site.ids(1)
        foreign = {"Azure-AsyncOperation": "https://evil.example/operations/1"}
        site.arm.faults.add(Fault("vm.put", headers=foreign))
        await site.idle(machine)
        assert site.arm.ledger.count("compute.operation") == 0
