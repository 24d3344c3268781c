"""Images: the operator's text, the reference in the PUT, and what Azure says of each kind."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet_azure.backends.azure.images import (
    ImageFacts,
    image_of,
    look_up,
    plan_of,
    reference_of,
)
from tests.azure.things import GROUP, LOCATION
from tests.support.arm.cloud import Cloud
from tests.support.arm.double import ArmDouble
from tests.support.arm.images import ImageTraits, PlatformImage
from tests.support.arm.wire import Call, Json, Refusal

URN = "Canonical:ubuntu-24_04-lts:server:latest"
MANAGED = f"{GROUP}/images/talos-v1-12-5"
DEFINITION = f"{GROUP}/galleries/gallery/images/talos"


class DoubleReads:
    """The calls that `look_up` makes, answered by the double's handlers."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.calls: list[tuple[str, str]] = []

    async def platform_versions(self, image: str) -> list[Json]:
        try:
            return list(self._cloud.images.list_platform(self._call(image)).body)
        except Refusal:
            return []

    async def platform_image(self, image: str, version: str) -> Json | None:
        try:
            return dict(self._cloud.images.get_platform(self._call(image, version=version)).body)
        except Refusal:
            return None

    async def read(self, call: str, path: str, version: str) -> Json | None:
        self.calls.append((call, path))
        found = self._cloud.world.get(path)
        return found.view() if found is not None else None

    def _call(self, image: str, **parameters: str) -> Call:
        publisher, offer, sku, _ = image.split(":")
        names = {"publisherName": publisher, "offer": offer, "skus": sku, **parameters}
        return Call("GET", "platform-image", f"/{LOCATION}", names, {}, {}, None)


def asked(cloud: Cloud, image: str) -> ImageFacts | None:
    return asyncio.run(look_up(DoubleReads(cloud), image))


def test_a_urn_becomes_its_four_parts() -> None:
    assert reference_of(URN) == {
        "publisher": "Canonical",
        "offer": "ubuntu-24_04-lts",
        "sku": "server",
        "version": "latest",
    }
    assert reference_of("a:b:c:24.04.202611010")["version"] == "24.04.202611010"


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        (MANAGED, MANAGED),
        (MANAGED.upper(), MANAGED.upper()),
        (DEFINITION, DEFINITION),
        (f"{DEFINITION}/versions/1.12.5", f"{DEFINITION}/versions/1.12.5"),
        (f"{DEFINITION}/versions/latest", DEFINITION),
        (f"{DEFINITION}/Versions/Latest", DEFINITION),
    ],
)
def test_an_id_stays_as_it_is_and_the_newest_version_is_named_by_none(
    text: str, identity: str
) -> None:
    assert reference_of(text) == {"id": identity}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Canonical:ubuntu:server",
        "Canonical:ubuntu:server:",
        "Canonical:ubuntu:server:newest",
        "Canonical:ubuntu:server:latest:plan",
        "Canonical: ubuntu:server:latest",
        f"{URN}\n",
        "ubuntu-24.04",
        "/images/talos",
        f"{GROUP}/images/",
        f"{GROUP}/images/talos/versions/1.0.0",
        f"{GROUP}/galleries/gallery",
        f"{DEFINITION}/versions/1.0",
        f"{DEFINITION}/versions/1.0.0/more",
        f"{GROUP}/virtualMachines/talos",
        f"{MANAGED} ",
    ],
)
def test_a_malformed_image_is_refused_with_what_may_be_given(text: str) -> None:
    with pytest.raises(ValueError, match="publisher:offer:sku:version") as refused:
        reference_of(text)
    assert repr(text) in str(refused.value)


_NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
_VERSION = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,9}){2}", fullmatch=True)


@given(st.lists(_NAME, min_size=3, max_size=3), _VERSION)
def test_every_well_formed_urn_is_taken_apart(names: list[str], version: str) -> None:
    assert list(reference_of(":".join([*names, version])).values()) == [*names, version]
    assert list(plan_of(":".join(names)).values()) == names


def test_a_plan_is_publisher_product_and_name() -> None:
    assert plan_of("kinvolk:flatcar:stable") == {
        "publisher": "kinvolk",
        "product": "flatcar",
        "name": "stable",
    }


@pytest.mark.parametrize("text", ["", "a", "a:b", "a:b:c:d", "a::c", "a: b:c"])
def test_a_malformed_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="publisher:product:name"):
        plan_of(text)


def test_the_newest_marketplace_image_is_looked_up() -> None:
    assert asked(ArmDouble().cloud, URN) == ImageFacts(
        generation="V2",
        architecture="x64",
        controllers=frozenset({"SCSI", "NVMe"}),
        security=frozenset({"trustedlaunchsupported"}),
        accelerated_networking=True,
        os_disk_gib=30,
    )


def test_marks_and_plan_of_a_marketplace_image_are_read() -> None:
    cloud = ArmDouble().cloud
    cloud.images.add(
        PlatformImage(
            "kinvolk",
            "flatcar",
            "stable",
            version="1.2.3",
            generation="V1",
            architecture="Arm64",
            size_gb=8,
            controllers="SCSI",
            trusted_launch=False,
            plan=True,
        )
    )
    found = asked(cloud, "kinvolk:flatcar:stable:1.2.3")
    assert found is not None
    assert (found.generation, found.architecture, found.os_disk_gib) == ("V1", "Arm64", 8)
    assert found.controllers == frozenset({"SCSI"})
    assert found.security == frozenset()
    assert found.plan == "kinvolk:flatcar:stable"


def test_a_managed_image_says_what_it_can_and_no_marks() -> None:
    cloud = ArmDouble().cloud
    identity = cloud.images.add_managed("g", "talos", ImageTraits(size_gb=9))
    assert asked(cloud, identity) == ImageFacts(generation="V2", os_disk_gib=9)


def test_a_gallery_version_is_read_with_the_definition_it_belongs_to() -> None:
    cloud = ArmDouble().cloud
    traits = ImageTraits(architecture="Arm64", size_gb=12, controllers="SCSI")
    identity = cloud.images.add_gallery_version("g", "gallery", "talos", "1.12.5", traits)
    pinned = asked(cloud, identity)
    assert pinned is not None
    assert (pinned.generation, pinned.architecture, pinned.os_disk_gib) == ("V2", "Arm64", 12)
    assert pinned.controllers == frozenset({"SCSI"})
    newest = asked(cloud, identity.rsplit("/", 1)[0] + "/latest")
    assert newest is not None
    assert (newest.architecture, newest.os_disk_gib) == ("Arm64", 0)


@pytest.mark.parametrize(
    "image",
    [
        "Canonical:ubuntu:none:latest",
        "Canonical:ubuntu-24_04-lts:server:1.0.0",
        MANAGED,
        DEFINITION,
        f"{DEFINITION}/versions/1.0.0",
    ],
)
def test_an_image_that_is_not_there_is_told_from_one_that_says_nothing(image: str) -> None:
    assert asked(ArmDouble().cloud, image) is None


def test_a_missing_version_of_a_gallery_image_is_missing() -> None:
    cloud = ArmDouble().cloud
    identity = cloud.images.add_gallery_version("g", "gallery", "talos", "1.12.5")
    assert asked(cloud, identity.replace("1.12.5", "1.12.6")) is None


def test_windows_and_specialized_images_are_known_as_such() -> None:
    windows = image_of({"properties": {"osDiskImage": {"operatingSystem": "Windows"}}})
    assert not windows.linux
    managed = image_of({"properties": {"storageProfile": {"osDisk": {"osType": "Windows"}}}})
    assert not managed.linux
    assert not image_of({"properties": {"osState": "Specialized"}}).generalized


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
_KEYS = [
    "hyperVGeneration",
    "architecture",
    "features",
    "plan",
    "purchasePlan",
    "osDiskImage",
    "storageProfile",
    "osState",
    "osType",
]


@given(st.dictionaries(st.sampled_from(_KEYS), anything) | anything)
def test_whatever_azure_says_of_an_image_is_read_without_a_fault(properties: object) -> None:
    assert image_of({"properties": properties}).os_disk_gib >= 0


def test_an_image_of_which_nothing_is_said_speaks_against_nothing() -> None:
    assert image_of({}) == ImageFacts()
