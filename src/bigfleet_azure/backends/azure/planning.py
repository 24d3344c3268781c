"""What each offering comes to: its profile, its PUT, what is published of it, and what it lacks.

Holds what Azure said of sizes and images; asking is `surveying`'s.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bigfleet_azure.backends.azure import errors, fitting, preflight, published, quota, shortages
from bigfleet_azure.backends.azure.arm import Failure
from bigfleet_azure.backends.azure.images import ImageFacts
from bigfleet_azure.backends.azure.market import Market, Quote, Source
from bigfleet_azure.backends.azure.options import (
    AzureOptions,
    BootstrapMethod,
    Callback,
    VmProfile,
)
from bigfleet_azure.backends.azure.profiles import (
    CALLBACK_TOKEN,
    CALLBACK_URL,
    MACHINE_ID,
    filled,
    profile_of,
    with_user_data,
)
from bigfleet_azure.backends.azure.sizes import SizeTable
from bigfleet_azure.backends.azure.tags import birth_tags
from bigfleet_azure.backends.azure.vm import vm_body
from bigfleet_azure.backends.base import Assignment
from bigfleet_azure.domain.errors import BackendError, FailureKind
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Facts, Offer
from bigfleet_azure.domain.shortage import Shortage
from bigfleet_azure.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

Json = dict[str, Any]

IMPOSSIBLE_SECONDS = 900.0
"""How long an offering counts as impossible without being looked at again: longer than the time
between two surveys."""

_KEY_BITS = 3072
"""Azure takes RSA keys of 2,048 bits or more; 3,072 is what is recommended to last past 2030."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """An offer's chances.

    Attributes:
        quote: what it costs, and who says so.
        probability: of an eviction within an hour.
        rate_known: whether Azure told the eviction rate, or it is a table's.
        room: what quota leaves.
        faults: why it can never be had; empty when it can.
    """

    quote: Quote
    probability: float
    rate_known: bool
    room: quota.Room
    faults: tuple[str, ...]


class Planner:
    """See the module."""

    def __init__(
        self, options: AzureOptions, metrics: Metrics, market: Market, callback: Callback
    ) -> None:
        self._options = options
        self._callback = callback
        self._market = market
        self._metrics = metrics
        self._sizes = SizeTable(options.location)
        self._images: dict[str, ImageFacts] = {}
        self._absent: dict[str, str] = {}
        self._offers: dict[tuple[object, ...], Offer] = {}
        self._told: set[str] = set()
        self._usages: tuple[Sequence[Json], Sequence[Json]] = ((), ())
        self._throwaway_key = ""
        self.sizes_changed: Callable[[], None] = lambda: None

    # What is known

    def learn_sizes(self, skus: Iterable[Json]) -> None:
        """Take over Azure's list of sizes."""
        anew = self._sizes.known
        self._sizes.replace(skus)
        if anew:
            self.sizes_changed()
        if self._sizes.odd:
            logger.warning("%d entries of Azure's list of sizes are odd", self._sizes.odd)

    def learn_image(self, image: str, facts: ImageFacts) -> None:
        """Take over what Azure says of an image."""
        self._images[image] = facts

    def learn_absent(self, name: str, fault: str) -> None:
        """Take over that an image or a subnet cannot be had, and why; "" when it can."""
        self._absent[name] = fault

    def images(self) -> set[str]:
        """The images of all offerings."""
        return {profile.image for profile in self._profiles()}

    def subnets(self) -> dict[str, bool]:
        """The subnets of all offerings; whether all machines there get addresses of their own."""
        found: dict[str, bool] = {}
        for profile in self._profiles():
            found[profile.subnet_id] = found.get(profile.subnet_id, True) and profile.public_ip
        return found

    def _profiles(self) -> Iterator[VmProfile]:
        """Those of the offerings; while none is known, what the flags say."""
        if not self._offers:
            yield self._options.profile
        for offer in self._offers.values():
            yield self.profile(offer)

    # Offerings

    def profile(self, offer: Offer) -> VmProfile:
        """How the VMs of an offering look."""
        return profile_of(self._options.profile, offer)

    def resolved(self, offer: Offer) -> fitting.Resolved:
        """What the profile comes to for size and image.

        Raises:
            BackendError: INVALID, the zone is not one of the location's.
        """
        profile = self.profile(offer)
        size, image = self._sizes.get(offer.vm_size), self._images.get(profile.image)
        try:
            return fitting.resolve(offer, profile, size, image, self._options.location)
        except ValueError as error:
            raise BackendError(FailureKind.INVALID, str(error), code="Zone") from error

    def offered(self, offers: Iterable[Offer]) -> None:
        """Forget all offers but these."""
        self._offers = {_identity(offer): offer for offer in offers}

    def facts(self, offer: Offer) -> Facts:
        """What is published about an offer."""
        if offer.zone:  # without one only the size is asked about
            self._offers[_identity(offer)] = offer
        profile = self.profile(offer)
        return published.facts(
            offer,
            sizes=self._sizes,
            profile=profile,
            image=self._images.get(profile.image),
            reservation=self._options.reservation,
            market=self._market,
        )

    def size_names(self) -> list[str]:
        """The sizes of all offerings, as Azure writes them."""
        names = {offer.vm_size.lower(): offer.vm_size for offer in self._offers.values()}
        known = {name: self._sizes.get(name) for name in names}
        return sorted(size.name if (size := known[name]) else names[name] for name in names)

    def quote(self, offer: Offer) -> Quote:
        """What an offer costs, and who says so.

        Raises:
            BackendError: as `facts`.
        """
        hardware = published.hardware(offer, self._sizes)
        return self._market.quote(offer.vm_size, offer.capacity_type, hardware)

    def unpriced(self) -> list[str]:
        """Sizes that are offered at a guessed price."""
        guessed = set()
        for offer in self._offers.values():
            with suppress(BackendError):  # what is not known at all is not offered either
                if self.quote(offer).source is Source.ESTIMATE:
                    guessed.add(offer.vm_size)
        return sorted(guessed)

    def faults(self, offer: Offer) -> list[str]:
        """Why an offer cannot be had at all, as far as that is known."""
        profile = self.profile(offer)
        absent = [self._absent.get(name) for name in (profile.image, profile.subnet_id)]
        known = preflight.faults(offer, profile, self._sizes, self._images.get(profile.image))
        return [*(fault for fault in absent if fault), *known]

    def body(self, work: Assignment, suffix: str) -> Json:
        """The PUT that makes the operation's VM.

        Raises:
            BackendError: the user data cannot be read; or Azure could only refuse the PUT, which is
                held like a lack of capacity: nobody gains by a FAILED machine, and the setting
                may be mended meanwhile.
        """
        faults = self.faults(work.offer)
        if faults:
            raise BackendError(
                FailureKind.OUT_OF_CAPACITY,
                "; ".join(faults),
                code="Impossible",
                shortage=self._impossible(work.offer, faults),
            )
        profile = filled(with_user_data(self.profile(work.offer)), self._own_values(work))
        return vm_body(
            name=work.machine_id,
            suffix=suffix,
            offer=work.offer,
            location=self._options.location,
            profile=profile,
            resolved=self.resolved(work.offer),
            tags=birth_tags(
                owner=self._options.owner,
                machine_id=work.machine_id,
                operation_id=work.operation_id,
                capacity=work.offer.capacity_type,
                user_tags=profile.tags,
            ),
            ssh_public_key=profile.ssh_public_key or self._throwaway(),
            extensions=self._options.bootstrap_method is BootstrapMethod.EXTENSION,
        )

    def _own_values(self, work: Assignment) -> dict[bytes, str]:
        """What user data may ask for about the machine that this operation makes."""
        return {
            MACHINE_ID: work.machine_id,
            CALLBACK_URL: self._callback.url,
            CALLBACK_TOKEN: self._callback.token(work.machine_id, work.operation_id),
        }

    # What is short

    def refused(self, failure: Failure, work: Assignment) -> BackendError:
        """A refusal as the service understands it, with what it says about other offers."""
        verdict = errors.classify(failure)
        refusal = errors.backend_error(failure, work.machine_id)
        if verdict.seconds:
            refusal.shortage = shortages.shortage(
                verdict.scope,
                verdict.seconds_for(spot=work.offer.capacity_type is CapacityType.SPOT),
                work.offer,
                verdict.code,
                sizes=self._sizes,
                profile_of=self.profile,
                quota=verdict.quota,
            )
        return refusal

    def quota_shortages(
        self, compute: Sequence[Json], network: Sequence[Json]
    ) -> Sequence[Shortage]:
        """What the quota that is left is too small for; the figures become metrics."""
        self._usages = compute, network
        levels = quota.shown(compute, network, self._offers.values(), self._sizes)
        for name, level in levels.items():
            self._metrics.quota_limit.labels(name).set(level.limit)
            self._metrics.quota_used.labels(name).set(level.used)
        return quota.quota_shortages(compute, network, self._sizes, self.profile)

    def outlook(self, offer: Offer) -> Outlook:
        """All that is known of an offer's chances, for people.

        Raises:
            BackendError: as `facts`.
        """
        hardware = published.hardware(offer, self._sizes)
        name, capacity = offer.vm_size, offer.capacity_type
        return Outlook(
            quote=self._market.quote(name, capacity, hardware),
            probability=self._market.probability(name, capacity, hardware),
            rate_known=self._market.rate_known(name),
            room=quota.room(*self._usages, offer, self.profile(offer), self._sizes),
            faults=tuple(self.faults(offer)),
        )

    def impossible(self) -> list[Shortage]:
        """Offers that Azure could only refuse; each is logged once."""
        found = []
        for offer in self._offers.values():
            faults = self.faults(offer)
            if not faults:
                continue
            found.append(self._impossible(offer, faults))
            for fault in faults:
                if fault not in self._told:
                    self._told.add(fault)
                    logger.warning("an offering is impossible and withheld: %s", fault)
        return found

    @staticmethod
    def _impossible(offer: Offer, faults: list[str]) -> Shortage:
        same = _identity(offer)
        return Shortage(
            key=f"impossible {' '.join(map(str, same))}",
            text="; ".join(faults),
            seconds=IMPOSSIBLE_SECONDS,
            covers=lambda other: _identity(other) == same,
        )

    async def prepare(self) -> None:
        """Have at hand what takes too long to be made on the loop: an RSA key, up to seconds."""
        if not self._options.profile.ssh_public_key:
            await asyncio.to_thread(self._throwaway)

    def _throwaway(self) -> str:
        """A public key whose private half is forgotten at once: Azure makes no VM without one."""
        if not self._throwaway_key:
            from cryptography.hazmat.primitives.asymmetric import rsa
            from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

            key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
            self._throwaway_key = (
                key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
            )
        return self._throwaway_key


def _identity(offer: Offer) -> tuple[object, ...]:
    """Equal for offers that differ in their count at most."""
    return *offer.place, offer.shape_digest
