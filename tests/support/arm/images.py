"""Images: what the marketplace offers in the location, managed images and gallery versions."""

from dataclasses import dataclass

from tests.support.arm.resources import Resource, World, resource_id
from tests.support.arm.wire import Answer, Call, Json, refusal


@dataclass(frozen=True)
class PlatformImage:
    """One SKU of the marketplace."""

    publisher: str
    offer: str
    sku: str
    version: str = "24.04.202611010"
    generation: str = "V2"
    architecture: str = "x64"
    size_gb: int = 30
    controllers: str = "SCSI, NVMe"
    trusted_launch: bool = True
    plan: bool = False
    agent: bool = True
    confidential: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.publisher.lower(), self.offer.lower(), self.sku.lower())


@dataclass(frozen=True)
class ImageTraits:
    """What a VM gets from its image, wherever that comes from."""

    generation: str = "V2"
    architecture: str = "x64"
    size_gb: int = 30
    exact_version: str | None = None
    agent: bool = True
    plan: bool = False
    controllers: str = "SCSI, NVMe"
    trusted_launch: bool = True
    confidential: bool = False


_UBUNTU = "ubuntu-24_04-lts"
USUAL = (
    PlatformImage("Canonical", _UBUNTU, "server"),
    PlatformImage("Canonical", _UBUNTU, "server-gen1", generation="V1", trusted_launch=False),
    PlatformImage("Canonical", _UBUNTU, "server-arm64", architecture="Arm64"),
)


class Images:
    """All images that a VM may name."""

    def __init__(self, world: World, location: str) -> None:
        self._world = world
        self._location = location
        self.platform = {each.key: each for each in USUAL}
        self._traits: dict[str, ImageTraits] = {}

    def add(self, image: PlatformImage) -> None:
        self.platform[image.key] = image

    def add_managed(self, group: str, name: str, traits: ImageTraits | None = None) -> str:
        """A managed image; its id."""
        traits = traits or ImageTraits()
        identity = resource_id(self._world.subscription, group, "Microsoft.Compute/images", name)
        disk = {"osType": "Linux", "osState": "Generalized", "diskSizeGB": traits.size_gb}
        properties: Json = {
            "storageProfile": {"osDisk": disk, "dataDisks": [], "zoneResilient": False},
            "hyperVGeneration": traits.generation,
        }
        return self._seed(identity, "Microsoft.Compute/images", properties, traits)

    def add_gallery_version(
        self,
        group: str,
        gallery: str,
        name: str,
        version: str,
        traits: ImageTraits | None = None,
    ) -> str:
        """A version in a compute gallery, and its definition; the version's id."""
        traits = traits or ImageTraits()
        kind = "Microsoft.Compute/galleries/images"
        definition = resource_id(self._world.subscription, group, kind, gallery, name)
        properties: Json = {
            "osType": "Linux",
            "osState": "Generalized",
            "hyperVGeneration": traits.generation,
            "architecture": traits.architecture,
            "features": _features(traits),
            "identifier": {"publisher": "test", "offer": name, "sku": name},
        }
        if not self._world.get(definition):
            self._seed(definition, kind, properties, traits)
        published: Json = {
            "publishingProfile": {
                "targetRegions": [
                    {
                        "name": self._location,
                        "regionalReplicaCount": 1,
                        "storageAccountType": "Standard_LRS",
                    }
                ],
                "excludeFromLatest": False,
            },
            "storageProfile": {"osDiskImage": {"sizeInGB": traits.size_gb}},
        }
        identity = f"{definition}/versions/{version}"
        return self._seed(identity, f"{kind}/versions", published, traits)

    def traits(self, reference: Json) -> ImageTraits:
        """What the image of a VM is like, or the refusal that the VM's PUT gets."""
        if "id" in reference:
            return self._own(str(reference["id"]))
        image = self._platform(
            str(reference.get("publisher", "")),
            str(reference.get("offer", "")),
            str(reference.get("sku", "")),
        )
        wanted = str(reference.get("version", "latest"))
        if image is None or wanted not in {"latest", image.version}:
            names = ":".join(str(reference.get(k)) for k in ("publisher", "offer", "sku"))
            raise refusal(
                404,
                "PlatformImageNotFound",
                f"The platform image '{names}:{wanted}' is not available. Verify that all fields "
                "in the storage profile are correct. For more details about storage profile "
                "information, please refer to https://aka.ms/storageprofile",
                target="imageReference",
            )
        return ImageTraits(
            image.generation,
            image.architecture,
            image.size_gb,
            image.version,
            image.agent,
            image.plan,
            image.controllers,
            image.trusted_launch,
            image.confidential,
        )

    def get_platform(self, call: Call) -> Answer:
        """One version, with what a VM needs to know of it."""
        image = self._demand(call)
        if call.parameters["version"] != image.version:
            raise refusal(404, "NotFound", "Artifact: VMImage was not found.")
        features = [
            {"name": "DiskControllerTypes", "value": image.controllers},
            {"name": "IsAcceleratedNetworkSupported", "value": "True"},
        ]
        if image.trusted_launch:
            both = "TrustedLaunchAndConfidentialVmSupported"
            value = both if image.confidential else "TrustedLaunchSupported"
            features.insert(0, {"name": "SecurityType", "value": value})
        properties: Json = {
            "hyperVGeneration": image.generation,
            "architecture": image.architecture,
            "osDiskImage": {"operatingSystem": "Linux", "sizeInGb": image.size_gb},
            "dataDiskImages": [],
            "automaticOSUpgradeProperties": {"automaticOSUpgradeSupported": False},
            "features": features,
        }
        if image.plan:
            plan = {"name": image.sku, "product": image.offer, "publisher": image.publisher}
            properties["plan"] = plan
        return Answer(200, {**self._named(call, image), "properties": properties})

    def list_platform(self, call: Call) -> Answer:
        """The versions of one SKU: a bare array."""
        image = self._demand(call)
        named = self._named(call, image)
        if not call.path.rstrip("/").endswith(image.version):
            named["id"] = f"{call.path.rstrip('/')}/{image.version}"
        return Answer(200, [named])

    def _named(self, call: Call, image: PlatformImage) -> Json:
        return {"location": self._location, "name": image.version, "id": call.path}

    def _demand(self, call: Call) -> PlatformImage:
        names = (call.parameters[key] for key in ("publisherName", "offer", "skus"))
        image = self._platform(*names)
        if image is None:
            raise refusal(404, "NotFound", "Artifact: VMImage was not found.")
        return image

    def _platform(self, publisher: str, offer: str, sku: str) -> PlatformImage | None:
        return self.platform.get((publisher.lower(), offer.lower(), sku.lower()))

    def _own(self, identity: str) -> ImageTraits:
        traits = self._traits.get(identity.lower())
        if traits is None:
            raise refusal(
                404,
                "NotFound",
                f"The image '{identity}' was not found.",
                target="imageReference",
            )
        return traits

    def _seed(self, identity: str, kind: str, properties: Json, traits: ImageTraits) -> str:
        resource = Resource(id=identity, type=kind, location=self._location, properties=properties)
        self._world.add(resource, seeded=True)
        self._traits[identity.lower()] = traits
        return identity


def _features(traits: ImageTraits) -> list[Json]:
    """Of a gallery image: what is not listed is not supported, but for SCSI."""
    features = [{"name": "DiskControllerTypes", "value": traits.controllers}]
    if traits.trusted_launch:
        features.append({"name": "SecurityType", "value": "TrustedLaunchSupported"})
    return features
