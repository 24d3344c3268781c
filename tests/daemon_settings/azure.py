"""What every test of the Azure backend's settings begins with."""

from collections.abc import Mapping

import pytest

from bigfleet_azure.backends.azure.options import AzureOptions
from bigfleet_azure.daemon.settings import Settings, SettingsError, resolve

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
"""As in the guides."""

SCOPE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers"
SUBNET = f"{SCOPE}/Microsoft.Network/virtualNetworks/vnet/subnets/nodes"
NSG = f"{SCOPE}/Microsoft.Network/networkSecurityGroups/nsg"
ASG = f"{SCOPE}/Microsoft.Network/applicationSecurityGroups/asg"
POOL = f"{SCOPE}/Microsoft.Network/loadBalancers/lb/backendAddressPools/pool"
SET = f"{SCOPE}/Microsoft.Compute/availabilitySets/avset"
IDENTITY = f"{SCOPE}/Microsoft.ManagedIdentity/userAssignedIdentities/id"
RESERVATION = f"{SCOPE}/Microsoft.Compute/capacityReservationGroups/crg"
ENCRYPTION = f"{SCOPE}/Microsoft.Compute/diskEncryptionSets/des"

NEEDED = {
    "location": "eastus",
    "subscription-id": SUBSCRIPTION,
    "resource-group": "bigfleet-eastus",
    "subnet-id": SUBNET,
}

Files = Mapping[str, str | bytes]


def resolved(
    *argv: str, env: Mapping[str, str] | None = None, files: Files | None = None, **given: str
) -> Settings:
    """The settings of a daemon with all that is needed; `given` changes it, "-" leaves out."""
    chosen = NEEDED | {name.replace("_", "-"): value for name, value in given.items()}
    flags = [f"--{name}={value}" for name, value in chosen.items() if value != "-"]

    def read(path: str) -> bytes:
        if path not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory", path)
        content = (files or {})[path]
        return content if isinstance(content, bytes) else content.encode()

    return resolve([*flags, *argv], env or {}, read)


def azure_of(
    *argv: str, env: Mapping[str, str] | None = None, files: Files | None = None, **given: str
) -> AzureOptions:
    """The Azure backend's options."""
    azure = resolved(*argv, env=env, files=files, **given).azure
    assert azure is not None
    return azure


def faults_of(
    *argv: str, env: Mapping[str, str] | None = None, files: Files | None = None, **given: str
) -> list[str]:
    """What is wrong with the settings."""
    with pytest.raises(SettingsError) as caught:
        resolved(*argv, env=env, files=files, **given)
    return caught.value.faults
