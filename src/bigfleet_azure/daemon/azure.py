"""What the settings of the Azure backend come to.

Imported only when that backend is chosen. What can be wrong with them is `azure_faults`'.
"""

from collections.abc import Mapping
from typing import Any

from bigfleet_azure.backends.azure.market import price_file
from bigfleet_azure.backends.azure.options import (
    AzureOptions,
    BootstrapMethod,
    Choice,
    GuestMethod,
    MarketOptions,
    RateBasis,
    Reservation,
    ReservedTerm,
    VmProfile,
)
from bigfleet_azure.backends.azure.profiles import placeholder_faults, tag_faults, user_data
from bigfleet_azure.backends.azure.retail import PUBLIC_ENDPOINT
from bigfleet_azure.daemon import azure_faults
from bigfleet_azure.daemon.azure_faults import Judged
from bigfleet_azure.daemon.azure_files import certificates, ssh_public_key
from bigfleet_azure.daemon.contradictions import Faults, Given
from bigfleet_azure.daemon.settings import Read


def azure_options(
    values: Mapping[str, Any], given: Mapping[str, Given], read: Read, faults: Faults
) -> AzureOptions | None:
    """The backend's options, or None when `faults` had to be added to.

    Args:
        values, given, read: as in `Judged`.
        faults: what was found before; gets what is found here.
    """
    settings = Judged(dict(values), given, read, faults)
    settings.judge_texts()
    settings.content("arm-ca", certificates, None)
    market = _market(settings)
    profile = _profile(settings)
    for text in (*azure_faults.found(settings), *tag_faults(profile.tags)):
        faults.add(text)
    for text in placeholder_faults(
        profile.base_user_data,
        url=bool(settings["callback-url"]),
        token=settings["callback-key-file"] is not None,
    ):
        faults.add(f"{settings.shown('base-user-data')} {text}")
    for text in azure_faults.mix_faults(settings, profile):
        faults.add(text)
    return None if faults.texts else _options(settings, profile, market)


def _profile(settings: Judged) -> VmProfile:
    return VmProfile(
        subnet_id=settings["subnet-id"],
        image=settings["image"],
        plan=settings["plan"],
        admin_username=settings["admin-username"],
        ssh_public_key=settings.content("ssh-public-key", ssh_public_key, ""),
        base_user_data=settings.content("base-user-data", user_data, b""),
        os_disk_gib=settings["os-disk-gib"],
        os_disk_type=settings["os-disk-type"],
        ephemeral_os_disk=Choice(settings["ephemeral-os-disk"]),
        security_type=settings["security-type"],
        disk_controller=settings["disk-controller"],
        accelerated_networking=Choice(settings["accelerated-networking"]),
        nsg_id=settings["nsg-id"],
        asg_ids=settings["asg-ids"],
        lb_pool_ids=settings["lb-backend-pool-ids"],
        public_ip=settings["public-ip"],
        ip_forwarding=settings["ip-forwarding"],
        availability_set_id=settings["availability-set-id"],
        azure_zone=settings["azure-zone"],
        identity_ids=settings["identity-ids"],
        tags=settings["tags"],
        eviction_policy=settings["spot-eviction-policy"],
        max_price=settings["spot-max-price"],
        capacity_reservation_group_id=settings["capacity-reservation-group-id"],
        encryption_at_host=settings["encryption-at-host"],
        disk_encryption_set_id=settings["disk-encryption-set-id"],
        boot_diagnostics=settings["boot-diagnostics"],
    )


def _options(settings: Judged, profile: VmProfile, market: MarketOptions) -> AzureOptions:
    return AzureOptions(
        subscription_id=settings["subscription-id"],
        resource_group=settings["resource-group"],
        location=settings["location"],
        owner=settings["owner-id"] or f"{settings['provider']}/{settings['location']}",
        profile=profile,
        credentials=settings.credentials(),
        cloud=settings["cloud"],
        arm_endpoint=settings["arm-endpoint"],
        arm_ca=settings["arm-ca"],
        bootstrap_hook=settings["bootstrap-hook"],
        bootstrap_method=BootstrapMethod(settings["bootstrap-method"]),
        drain_method=GuestMethod(settings["drain-method"]),
        readiness=GuestMethod(settings["readiness"]),
        kubeconfig_dir=settings["kubeconfig-dir"],
        cluster=settings["cluster-id"],
        reservation=Reservation(
            cpu_millicores=settings["reserved-cpu"],
            memory_bytes=settings["reserved-memory"],
            ephemeral_storage_bytes=settings["reserved-ephemeral-storage"],
            pods=settings["max-pods"],
        ),
        market=market,
    )


def _market(settings: Judged) -> MarketOptions:
    return MarketOptions(
        endpoint=settings["prices-endpoint"]
        or (PUBLIC_ENDPOINT if settings["cloud"] == "public" else ""),
        prices=settings.content("price-file", price_file, {}),
        price_file=settings["price-file"],
        discount=settings["price-discount"],
        reserved_term=ReservedTerm(settings["reserved-term"]),
        rate_basis=RateBasis(settings["eviction-rate-basis"]),
    )
