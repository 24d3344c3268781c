"""Least rights: with the listed actions of its own options, and no other, everything works."""

from bigfleet_azure.backends.azure.actions import LINKED, actions
from tests.support.arm.double import ArmDouble
from tests.support.arm.faults import Fault
from tests.support.azure import Site

PLAIN = {action.name for action in actions() if not action.option}
HOOK = {action.name for action in actions() if "--bootstrap-method" in action.option}


def listed(*options: str) -> set[str]:
    """Actions that are needed with these options."""
    wanted = {a.name for a in actions() if any(o in a.option for o in options)}
    return PLAIN | HOOK | wanted


async def whole_life(site: Site, kind: str = "od") -> None:
    [machine] = await site.ids(1, kind)
    await site.configured(machine, a="b")
    await site.drain(machine, 30)
    await site.reaches(machine, "IDLE")
    await site.delete(machine)
    await site.reaches(machine, "SPECULATIVE")


def only(arm: ArmDouble, allowed: set[str]) -> None:
    arm.access.allowed = set(allowed)


async def test_a_whole_life_needs_only_the_listed_actions(tmp_path):
    allowed = listed("--image is a marketplace URN")
    arm = ArmDouble(speed=300)
    only(arm, allowed)
    async with arm:
        arm.operations.retry_after.none()
        async with Site(tmp_path, arm=arm, keep=()) as site:
            await whole_life(site)
        assert arm.access.unlisted(allowed) == set()
        assert arm.ledger.count("provider.register") == 0


async def test_leftovers_are_deleted_with_the_listed_actions(tmp_path):
    arm = ArmDouble(speed=300)
    allowed = listed("--image is a marketplace URN", "--public-ip")
    only(arm, allowed)
    async with arm:
        arm.operations.retry_after.none()
        async with Site(tmp_path, "--public-ip", arm=arm, keep=()) as site:
            for left in (("nic", "disk"), ("ip",)):
                arm.faults.add(Fault("vm.delete", leave=left))
                await whole_life(site)
        assert {"Microsoft.Network/publicIPAddresses/delete", "Microsoft.Compute/disks/delete"} <= (
            arm.access.used
        )
        assert arm.access.unlisted(allowed) == set()


async def test_every_option_has_its_linked_actions_on_the_list(tmp_path):
    arm = ArmDouble(speed=300)
    seed = arm.cloud.seed_named
    flags = {
        "--nsg-id": seed("Microsoft.Network/networkSecurityGroups", "rules"),
        "--asg-ids": seed("Microsoft.Network/applicationSecurityGroups", "role"),
        "--lb-backend-pool-ids": seed(
            "Microsoft.Network/loadBalancers/backendAddressPools", "l", "p"
        ),
        "--identity-ids": seed("Microsoft.ManagedIdentity/userAssignedIdentities", "node"),
        "--disk-encryption-set-id": seed("Microsoft.Compute/diskEncryptionSets", "keys"),
        "--image": arm.cloud.images.add_gallery_version("fleet", "gallery", "linux", "1.0.0"),
    }
    allowed = listed(*flags, "--image is in a compute gallery")
    only(arm, allowed)
    given = [f"{flag}={value}" for flag, value in flags.items()]
    async with arm:
        arm.operations.retry_after.none()
        async with Site(tmp_path, *given, arm=arm, keep=()) as site:
            await whole_life(site)
        assert arm.access.unlisted(allowed) == set()
        needed = {a.name for a in LINKED if a.option in flags}
        assert needed <= arm.access.used
        assert len(needed) == 5
