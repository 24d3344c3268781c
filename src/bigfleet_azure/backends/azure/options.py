"""What the operator decides about the Azure backend, as facts; nothing is read or checked here.

`VmProfile` is how one VM is to look: the flags give one for all, an offering's keys change it for
its own machines. Every field that has a counterpart on the wire says which.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from bigfleet_azure.domain.secret import Secret


class Choice(StrEnum):
    """A switch that may be left to what size and image can do."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class BootstrapMethod(StrEnum):
    """How the bootstrap blob gets into the machine."""

    EXTENSION = "extension"
    NONE = "none"
    """Not at all: the image joins its cluster from its user data (Talos)."""


class GuestMethod(StrEnum):
    """Who says that a node is ready, and who drains it."""

    HOOK = "hook"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True, kw_only=True)
class VmProfile:
    """How a VM is made. Ids are full ARM ids.

    Attributes:
        image: a marketplace URN (publisher:offer:sku:version), the id of a managed image, or the
            id of a compute-gallery image or of one of its versions.
        plan: marketplace plan as publisher:product:name; "" for none.
        admin_username: user that the SSH key lets in.
        ssh_public_key: one line of an authorized_keys file; "" for a throw-away key.
        base_user_data: becomes customData byte for byte.
        base_user_data_file: an offering's own, read for each VM and used in place of
            `base_user_data`; what is in it may be secret, so it is stored nowhere.
        os_disk_gib: size of the OS disk; 0 for the image's.
        os_disk_type: storage account type, or `auto`: premium where the size has it.
        ephemeral_os_disk: AUTO = where it fits, ON = or the offering is impossible.
        security_type: Standard, TrustedLaunch or ConfidentialVM; always sent.
        disk_controller: SCSI, NVMe, or `auto`: from size and image.
        accelerated_networking: AUTO = where the size can.
        subnet_id, nsg_id: where the interface is attached; `nsg_id` may be "".
        asg_ids: application security groups.
        lb_pool_ids: backend pools of load balancers.
        public_ip: a Standard, static public IP address for each VM.
        ip_forwarding: whether the interface may forward.
        availability_set_id: excludes zones; "" for none.
        azure_zone: `1`, `2`, `3`, `none` (regional), or "": from the offering's zone.
        identity_ids: user-assigned identities that the VM gets.
        tags: user tags for VM, interface and address.
        eviction_policy: Delete or Deallocate (Spot).
        max_price: USD per hour, -1 for up to the on-demand price (Spot).
        capacity_reservation_group_id: for reserved capacity.
        encryption_at_host: encrypts caches and temporary disks too.
        disk_encryption_set_id: customer-managed key of the OS disk.
        boot_diagnostics: managed boot diagnostics, the only evidence of a guest that is silent.
    """

    subnet_id: str = ""
    image: str = "Canonical:ubuntu-24_04-lts:server:latest"
    plan: str = ""
    admin_username: str = "bigfleet"
    ssh_public_key: str = ""
    base_user_data: bytes = field(default=b"", repr=False)
    base_user_data_file: Path | None = None
    os_disk_gib: int = 0
    os_disk_type: str = "auto"
    ephemeral_os_disk: Choice = Choice.OFF
    security_type: str = "Standard"
    disk_controller: str = "auto"
    accelerated_networking: Choice = Choice.AUTO
    nsg_id: str = ""
    asg_ids: tuple[str, ...] = ()
    lb_pool_ids: tuple[str, ...] = ()
    public_ip: bool = False
    ip_forwarding: bool = False
    availability_set_id: str = ""
    azure_zone: str = ""
    identity_ids: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    eviction_policy: str = "Delete"
    max_price: float = -1.0
    capacity_reservation_group_id: str = ""
    encryption_at_host: bool = False
    disk_encryption_set_id: str = ""
    boot_diagnostics: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who we are to Azure.

    Attributes:
        method: auto, workload-identity, managed-identity, service-principal or cli.
        tenant_id, client_id: of the identity; "" where the method finds them by itself.
        client_secret: for service-principal.
        token_file: federated token, for workload-identity.
        authority: address of the token service; "" for the cloud's.
    """

    method: str = "auto"
    tenant_id: str = ""
    client_id: str = ""
    client_secret: Secret | None = None
    token_file: Path | None = None
    authority: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What kubelet and system keep for themselves; None = by the documented formula.

    Attributes:
        cpu_millicores, memory_bytes: taken off the size's.
        ephemeral_storage_bytes: taken off the OS disk's.
        pods: most pods of a node.
    """

    cpu_millicores: int | None = None
    memory_bytes: int | None = None
    ephemeral_storage_bytes: int | None = None
    pods: int = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """What a machine is given to call its daemon back with.

    Attributes:
        url: where; "" for nowhere.
        token: what it may speak for itself with, by its id and the operation that makes it; "" for
            none.
    """

    url: str = ""
    token: Callable[[str, str], str] = lambda _machine, _operation: ""


NO_CALLBACK = Callback()


class ReservedTerm(StrEnum):
    """Which reservation reserved capacity is paid by."""

    NONE = "none"
    ONE_YEAR = "1y"
    THREE_YEARS = "3y"


class RateBasis(StrEnum):
    """What Azure's eviction rates are read as rates of."""

    HOUR = "hour"
    MONTH = "month"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketOptions:
    """How prices and eviction rates are found.

    Attributes:
        endpoint: address of the Retail Prices API; "" where there is none.
        prices: the operator's own by lower-case size, as read at start.
        price_file: where they stand; read again at each refresh.
        discount: share taken off on-demand and reserved retail prices.
    """

    endpoint: str = ""
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    price_file: Path | None = None
    discount: float = 0.0
    reserved_term: ReservedTerm = ReservedTerm.NONE
    rate_basis: RateBasis = RateBasis.HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions:
    """Everything the backend is told at start.

    Attributes:
        subscription_id, resource_group, location: where machines are made; `location` is the
            short name, in lower case.
        owner: value of the tag `bigfleet-owner`: what carries another one is never touched.
        profile: how VMs look unless their offering says otherwise.
        cloud: public, usgov or china.
        arm_endpoint: address of Azure Resource Manager; "" for the cloud's.
        arm_ca: CA bundle (PEM) that the endpoint's and the token service's certificates come from;
            None for the system's.
        bootstrap_hook: program in the image that applies the blob.
        bootstrap_method, drain_method, readiness: see the enums.
        kubeconfig_dir: holds one kubeconfig for each cluster, named as the cluster.
        cluster: the one cluster of `BootstrapMethod.NONE`.
    """

    subscription_id: str
    resource_group: str
    location: str
    owner: str
    profile: VmProfile
    credentials: Credentials = Credentials()
    cloud: str = "public"
    arm_endpoint: str = ""
    arm_ca: Path | None = None
    bootstrap_hook: str = "/opt/bigfleet/bootstrap"
    bootstrap_method: BootstrapMethod = BootstrapMethod.EXTENSION
    drain_method: GuestMethod = GuestMethod.HOOK
    readiness: GuestMethod = GuestMethod.HOOK
    kubeconfig_dir: Path | None = None
    cluster: str = ""
    reservation: Reservation = Reservation()
    market: MarketOptions = MarketOptions()

    @property
    def uses_kubeconfigs(self) -> bool:
        """Whether clusters are asked about Nodes."""
        return GuestMethod.KUBERNETES in (self.readiness, self.drain_method)
