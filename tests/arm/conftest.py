"""A double whose time passes as tests let it, and the clients that speak to it."""

import aiohttp
import pytest
from azure.identity.aio import ClientSecretCredential
from azure.mgmt.compute.aio import ComputeManagementClient
from azure.mgmt.network.aio import NetworkManagementClient

from tests.arm.client import Client, connector
from tests.support.arm.clock import SteppedClock
from tests.support.arm.double import ArmDouble
from tests.support.arm.identity import CLIENT, SECRET, TENANT


@pytest.fixture
async def arm():
    async with ArmDouble(clock=SteppedClock()) as double:
        yield double


@pytest.fixture
async def client(arm):
    async with aiohttp.ClientSession(connector=connector(arm)) as session:
        yield Client(arm, session)


@pytest.fixture
async def credential(arm):
    async with ClientSecretCredential(
        TENANT,
        CLIENT,
        SECRET,
        authority=arm.authority,
        disable_instance_discovery=True,
        connection_verify=arm.ca_file,
    ) as found:
        yield found


def settings(arm):
    return {
        "base_url": arm.endpoint,
        "credential_scopes": [f"{arm.endpoint}/.default"],
        "connection_verify": arm.ca_file,
        "polling_interval": 0.05,
        "retry_total": 0,
    }


@pytest.fixture
async def compute(arm, credential):
    arm.operations.retry_after.none()
    async with ComputeManagementClient(
        credential, arm.cloud.subscription, **settings(arm)
    ) as found:
        yield found


@pytest.fixture
async def network(arm, credential):
    arm.operations.retry_after.none()
    async with NetworkManagementClient(
        credential, arm.cloud.subscription, **settings(arm)
    ) as found:
        yield found
