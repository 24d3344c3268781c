"""What a simulated region is asked to be like."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """How fast, how large and how unreliable the region is. The defaults are a perfect one.

    Attributes:
        seed: all chance follows from it, from the VM's name and from how often it lived before, so
            that the order in which calls arrive changes nothing.
        latency: time of one step, give or take a quarter: provisioning, handing over the
            bootstrap blob, the node becoming Ready, draining, deleting.
        quota: most VMs per size, zone and capacity type; None for no limit.
        evict_rate: evictions per hour of each running spot VM.
        fail_rate: share of VMs, 0 to 1, whose provisioning fails for good.
        throttle: share of calls, 0 to 1, that are answered 429.
        faults: obey the fault selectors of the certification lane (`faults`).
        slow_ok_delay: how late a `fault-slow-ok` join is; has to exceed the Configure
            deadline. The lane's deadline is 2 s, and it looks 2 s after that.

    Raises:
        ValueError: a value is out of its range; the text names it.
    """

    seed: int = 0
    latency: timedelta = timedelta(milliseconds=20)
    quota: int | None = None
    evict_rate: float = 0.0
    fail_rate: float = 0.0
    throttle: float = 0.0
    faults: bool = False
    slow_ok_delay: timedelta = timedelta(seconds=4)

    def __post_init__(self) -> None:
        for name, span in (("latency", self.latency), ("slow_ok_delay", self.slow_ok_delay)):
            if span < timedelta(0):
                raise ValueError(f"{name} is {span.total_seconds():g}s, it must not be negative")
        if self.quota is not None and self.quota < 0:
            raise ValueError(f"quota is {self.quota}, it must not be negative")
        if not 0 <= self.evict_rate < float("inf"):
            raise ValueError(f"evict_rate is {self.evict_rate:g}, it must be 0 or more per hour")
        for name, share in (("fail_rate", self.fail_rate), ("throttle", self.throttle)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is {share:g}, it must be a share from 0 to 1")
