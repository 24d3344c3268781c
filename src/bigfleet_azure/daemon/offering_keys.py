"""The keys of an offering that say how its machines are made: one value for a flag's.

What they come to in a VM is `backends.azure.profiles`'; the other keys are `offerings_file`'s.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from bigfleet_azure.daemon import azure_values, values


def _by(read: Callable[[str], Any]) -> AfterValidator:
    """A validator from the reader of a flag."""

    def validate(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise ValueError(f"{text!r} {error}") from None

    return AfterValidator(validate)


def _ids(kind: str) -> AfterValidator:
    one = azure_values.arm_id(kind)

    def validate(items: list[str]) -> list[str]:
        try:
            return list(azure_values.distinct_ids(items, one))
        except ValueError as error:
            raise ValueError(f"the list {error}") from None

    return AfterValidator(validate)


def _image(text: str) -> str:
    from bigfleet_azure.backends.azure.images import reference_of

    reference_of(text)
    return text


def _plan(text: str) -> str:
    from bigfleet_azure.backends.azure.images import plan_of

    if text:
        plan_of(text)
    return text


def _needed(text: str) -> str:
    if not text:
        raise ValueError("must not be empty; remove the key to use what the flags say")
    return text


def _zone(value: object) -> object:
    """A number is as good as its digits."""
    return str(value) if type(value) is int else value


def _tags(tags: dict[str, str]) -> dict[str, str]:
    try:
        return azure_values.clean_tags(tags.items())
    except ValueError as error:
        raise ValueError(f"the object {error}") from None


def _price(price: float) -> float:
    if not azure_values.is_price_limit(price):
        raise ValueError(
            f"{price:g} is no price; write -1 for up to the on-demand price, or USD per hour"
        )
    return price


def _choice(*known: str) -> AfterValidator:
    return _by(values.choice(*known))


_Switch = Annotated[str, _choice(*azure_values.SWITCHES)]


class VmKeys(BaseModel):
    """How an offering's machines are made; what is absent is as the flags say."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    image: Annotated[str, AfterValidator(_image)] | None = None
    plan: Annotated[str, AfterValidator(_plan)] | None = None
    admin_username: Annotated[str, _by(azure_values.admin_username)] | None = None
    ssh_public_key: str | None = None
    base_user_data: str | None = None
    os_disk_gib: Annotated[int, Field(ge=0, le=azure_values.MAX_OS_DISK_GIB)] | None = None
    os_disk_type: Annotated[str, _choice(*azure_values.OS_DISK_TYPES)] | None = None
    ephemeral_os_disk: _Switch | None = None
    security_type: Annotated[str, _choice(*azure_values.SECURITY_TYPES)] | None = None
    disk_controller: Annotated[str, _choice(*azure_values.DISK_CONTROLLERS)] | None = None
    accelerated_networking: _Switch | None = None
    subnet_id: (
        Annotated[str, AfterValidator(_needed), _by(azure_values.arm_id("subnet"))] | None
    ) = None
    nsg_id: Annotated[str, _by(azure_values.arm_id("nsg"))] | None = None
    asg_ids: Annotated[list[str], _ids("asg")] | None = None
    lb_backend_pool_ids: Annotated[list[str], _ids("lb-pool")] | None = None
    public_ip: bool | None = None
    ip_forwarding: bool | None = None
    availability_set_id: Annotated[str, _by(azure_values.arm_id("availability-set"))] | None = None
    azure_zone: (
        Annotated[str, BeforeValidator(_zone), _choice(*azure_values.AZURE_ZONES)] | None
    ) = None
    identity_ids: Annotated[list[str], _ids("identity")] | None = None
    tags: Annotated[dict[str, str], AfterValidator(_tags)] | None = None
    spot_eviction_policy: Annotated[str, _choice(*azure_values.EVICTION_POLICIES)] | None = None
    spot_max_price: Annotated[float, AfterValidator(_price)] | None = None
    capacity_reservation_group_id: (
        Annotated[str, _by(azure_values.arm_id("reservation"))] | None
    ) = None
    encryption_at_host: bool | None = None
    disk_encryption_set_id: (
        Annotated[str, _by(azure_values.arm_id("disk-encryption-set"))] | None
    ) = None
    boot_diagnostics: bool | None = None

    def given(self) -> dict[str, Any]:
        """The keys that are there, as JSON."""
        return {
            key: value for key in VmKeys.model_fields if (value := getattr(self, key)) is not None
        }

    def settings(self, folder: Path) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """What the backend is told: the keys, with what their files say; and what is wrong.

        A public key is taken from its file. User data may hold secrets, so only its full path is
        kept, and the file is read again for each VM.

        Args:
            folder: what the paths of files are relative to.

        Returns:
            The settings; pairs of a key and what is wrong with its file.
        """
        from bigfleet_azure.backends.azure.profiles import user_data
        from bigfleet_azure.daemon.azure_files import ssh_public_key

        settings = self.given()
        faults: list[tuple[str, str]] = []
        judges = {"ssh_public_key": ssh_public_key, "base_user_data": user_data}
        for key in (key for key in judges if settings.get(key)):
            path = settings[key] = str((folder / settings[key]).absolute())
            try:
                content = judges[key](Path(path).read_bytes())
            except OSError as error:
                faults.append((key, f"{path!r} cannot be read: {error.strerror}"))
            except ValueError as error:
                faults.append((key, f"{path!r} {error}"))
            else:
                settings[key] = content if key == "ssh_public_key" else path
        return settings, faults
