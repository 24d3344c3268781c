"""Kubernetes resource quantities, and how much of a machine its workloads may use."""

import re
from fractions import Fraction

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_QUANTITY = re.compile(r"\+?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,2})|([A-Za-z]*))")

GIB = 2**30
MIB = 2**20


def parse(text: str) -> Fraction:
    """The value of a Kubernetes quantity such as `500m`, `2Gi` or `1e3`.

    Raises:
        ValueError: `text` is not a non-negative quantity.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or (match[3] or "") not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a Kubernetes quantity such as 500m, 4 or 16Gi")
    value = Fraction(match[1])
    if match[2]:
        return value * Fraction(10) ** int(match[2])
    return value * _SUFFIXES[match[3] or ""]


_CPU_RESERVED_SHARES = ((1, 0.06), (1, 0.01), (2, 0.005))
_CPU_RESERVED_REST = 0.0025
"""Share of each further core that kubelet and system keep: 6 % of the first, 1 % of the second,
0.5 % of the next two, 0.25 % of the rest. Source: the public GKE allocatable formula, which
kubeadm-style nodes are commonly sized by; Azure publishes none for self-managed nodes."""

_MEMORY_RESERVED_SHARES = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06))
_MEMORY_RESERVED_REST = 0.02
_EVICTION_BYTES = 100 * MIB
"""Regressive memory reservation by GiB plus the kubelet's default hard-eviction threshold
(memory.available<100Mi). Same source."""

_DISK_USABLE_SHARE = 0.85
"""The kubelet evicts at nodefs.available<10% (its default); 5 % more is the file system's own."""


NVIDIA = "nvidia.com/gpu"
"""Resource name of NVIDIA's device plugin."""


def allocatable(
    *,
    vcpus: int,
    memory_bytes: int,
    disk_bytes: int,
    max_pods: int,
    gpus: int = 0,
    gpu_resource: str = NVIDIA,
    reserved_millicores: int | None = None,
    reserved_memory_bytes: int | None = None,
    reserved_disk_bytes: int | None = None,
) -> dict[str, str]:
    """What workloads may use of such a machine, in Kubernetes notation.

    What kubelet, system and eviction keep is taken off: by the formula, which always leaves less
    than the hardware, or as given.
    """
    if reserved_millicores is None:
        cores = vcpus - _tiered(vcpus, _CPU_RESERVED_SHARES, _CPU_RESERVED_REST)
    else:
        cores = vcpus - reserved_millicores / 1000
    if reserved_memory_bytes is None:
        gib = _tiered(memory_bytes / GIB, _MEMORY_RESERVED_SHARES, _MEMORY_RESERVED_REST)
        reserved_memory_bytes = int(gib * GIB) + _EVICTION_BYTES
    if reserved_disk_bytes is None:
        reserved_disk_bytes = disk_bytes - int(disk_bytes * _DISK_USABLE_SHARE)
    result = {
        "cpu": f"{max(0, int(cores * 1000))}m",
        "memory": f"{max(0, memory_bytes - reserved_memory_bytes) // MIB}Mi",
        "ephemeral-storage": f"{max(0, disk_bytes - reserved_disk_bytes) // GIB}Gi",
        "pods": str(max_pods),
    }
    if gpus:
        result[gpu_resource] = str(gpus)
    return result


def _tiered(amount: float, tiers: tuple[tuple[int, float], ...], rest: float) -> float:
    reserved = 0.0
    for size, share in tiers:
        step = min(amount, size)
        reserved += step * share
        amount -= step
    return reserved + amount * rest
