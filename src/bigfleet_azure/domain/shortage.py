"""Shortages: which offers cannot be had at the moment, and for how long that is believed."""

from collections.abc import Callable
from dataclasses import dataclass, field

from bigfleet_azure.domain.offering import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Capacity, quota or room that is lacking, as the substrate told it.

    Attributes:
        key: what is short, such as `quota standardDSv5Family on_demand`; equal keys are one block.
        text: the same for people, with the figures that are known.
        seconds: how long it is believed unless it is told again.
        covers: whether an offer needs what is short.
    """

    key: str
    text: str
    seconds: float
    covers: Callable[[Offer], bool] = field(compare=False)
