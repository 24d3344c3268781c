"""What a call to Azure does by itself, and what it never does."""

import logging
from collections.abc import Iterator

import pytest

from tests.support.arm.faults import Fault, error, operation_error
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


@pytest.fixture
def operations() -> Iterator[list[logging.LogRecord]]:
    """What is logged of operations; the daemon puts its own handlers in place of pytest's."""
    lines: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record)  # type: ignore[method-assign]  # noqa: PLW0108
    logger = logging.getLogger("bigfleet_azure.service.executor")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(handler)


@pytest.mark.parametrize("later", [False, True], ids=["answer", "operation"])
async def test_each_refusal_that_is_waited_out_leaves_one_line_with_azures_ids(
    tmp_path, operations, later
):
    refusal = ("InternalExecutionError", "boom")
    async with Site(tmp_path) as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(
            Fault("vm.put", operation=operation_error(*refusal), times=2)
            if later
            else Fault("vm.put", answer=error(500, *refusal), times=2)
        )
        await site.create(machine)
        await site.reaches(machine, "IDLE")
        await until(lambda: operations[-1].getMessage() == "operation done")
        *waits, done = operations
        sent = {one.headers.get("x-ms-request-id") for one in site.arm.exchanges}
        assert [(one.levelname, one.machine, one.kind, one.code) for one in waits] == [
            ("INFO", machine, "create", "InternalExecutionError")
        ] * 2
        assert {one.operation for one in waits} == {done.operation}
        for one in waits:
            assert "boom" in one.getMessage()
            assert float(one.wait.removesuffix(" s")) > 0
            assert {one.request_id, one.correlation_id} <= sent
        assert len({one.request_id for one in waits}) == 2


async def test_the_line_of_an_operation_that_failed_has_azures_ids(tmp_path, operations):
    async with Site(tmp_path, "--failed-dwell=0") as site:
        [machine] = await site.ids(1)
        site.arm.faults.add(Fault("vm.put", answer=error(403, "AuthorizationFailed", "no")))
        await site.create(machine)
        await site.reaches(machine, "FAILED")
        await until(lambda: operations)
        [failed] = operations
        sent = {one.headers.get("x-ms-request-id") for one in site.arm.exchanges}
        assert {failed.request_id, failed.correlation_id} <= sent
