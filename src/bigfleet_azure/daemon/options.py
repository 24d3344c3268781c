"""The table of options: every setting of the daemon, once.

It feeds the flag parser, the environment, the configuration file, the help text and the reference
page. How values are found is `settings`'; the rows of the Azure backend stand in `azure_flags`.
"""

from bigfleet_azure.daemon import values
from bigfleet_azure.daemon.azure_flags import AZURE_OPTIONS as _AZURE_OPTIONS
from bigfleet_azure.daemon.market_flags import AZURE_MARKET_OPTIONS, MARKET_OPTIONS
from bigfleet_azure.daemon.option import ENV_PREFIX, Option
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.domain.offering import MAX_SLOTS_PER_OFFERING

__all__ = ["AZURE_OPTIONS", "ENV_PREFIX", "FAKE_OPTIONS", "OPTIONS", "PLAIN_OPTIONS", "Option"]

_BUILT_IN_BUCKETS = 4
"""The built-in mix spreads its slots evenly over four offerings (contract section 16)."""

_SERVING = "Serving"
_BACKEND = "Backend and region"
_CAPACITY = "Capacity offered"
_STATE = "Durable state"
_OPERATIONS = "Operations"
_TLS = "TLS"
_LOGS = "Logs and configuration file"
_FAKE = "Simulated region"


def _deadline(kind: Kind, default: str) -> Option:
    return Option(
        name=f"{kind}-timeout",
        parse=values.timeout,
        default=default,
        metavar="DURATION",
        group=_OPERATIONS,
        help=f"Time a {kind.capitalize()} may take before its machine is FAILED."
        + (" Never shorter than the grace plus 5 minutes." if kind is Kind.DRAIN else ""),
    )


def _concurrency(kind: Kind) -> Option:
    return Option(
        name=f"{kind}-concurrency",
        parse=values.whole(least=1),
        default="1024",
        metavar="N",
        group=_OPERATIONS,
        help=f"{kind.capitalize()} operations worked on at once; further ones wait their turn, "
        "and the wait does not count against the deadline.",
    )


PLAIN_OPTIONS: tuple[Option, ...] = (
    Option(
        name="addr",
        parse=values.address,
        default=":9000",
        metavar="HOST:PORT",
        group=_SERVING,
        help="gRPC listen address: CapacityProvider, health and reflection.",
    ),
    Option(
        name="metrics-addr",
        parse=values.address_or_off,
        default=":9090",
        metavar="HOST:PORT",
        group=_SERVING,
        help="HTTP listen address of /metrics, /healthz and /readyz; empty turns it off. "
        "If it is taken, gRPC is served all the same.",
    ),
    Option(
        name="reflection",
        parse=values.boolean,
        default="true",
        group=_SERVING,
        help="Serve gRPC reflection, so that grpcurl needs no .proto file.",
    ),
    Option(
        name="provider",
        parse=values.label_value,
        default="azure",
        metavar="NAME",
        group=_BACKEND,
        help="Published as host.provider, and the first part of machine ids.",
    ),
    Option(
        name="location",
        parse=values.location,
        default="",
        metavar="REGION",
        group=_BACKEND,
        help="Azure region served, such as eastus or 'East US'; one process serves one region.",
    ),
    Option(
        name="azure-backend",
        parse=values.choice("auto", "azure", "fake"),
        default="auto",
        metavar="auto|azure|fake",
        group=_BACKEND,
        help="Where machines come from: fake is the simulated region; auto is azure when "
        "--location is given, else fake.",
    ),
    Option(
        name="use-fake-backend",
        parse=values.boolean,
        default="false",
        group=_BACKEND,
        help="Use the simulated region, also with --location.",
    ),
    Option(
        name="offerings",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_CAPACITY,
        help="JSON file of the capacity to offer; read again on SIGHUP. "
        "Without it a built-in mix is offered.",
    ),
    Option(
        name="seed-count",
        parse=values.whole(most=MAX_SLOTS_PER_OFFERING * _BUILT_IN_BUCKETS),
        default="32",
        metavar="N",
        group=_CAPACITY,
        help="Slots of the built-in mix; 0 or less means 16.",
    ),
    Option(
        name="zone-a",
        parse=values.zone,
        default="",
        metavar="ZONE",
        group=_CAPACITY,
        derived="<location>-1, eastus-1 without --location",
        help="First zone of the built-in mix.",
    ),
    Option(
        name="zone-b",
        parse=values.zone,
        default="",
        metavar="ZONE",
        group=_CAPACITY,
        derived="<location>-2, eastus-2 without --location",
        help="Second zone of the built-in mix.",
    ),
    Option(
        name="state",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_STATE,
        help="Durable state, a SQLite file on a local disk. Empty keeps everything in memory: "
        "a restart forgets it.",
    ),
    Option(
        name="state-key-file",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_STATE,
        derived="<state>.key, made at first start",
        help="File with the key that seals bootstrap blobs in the state file.",
    ),
    Option(
        name="state-key",
        parse=values.secret,
        default="",
        secret=True,
        env_only=True,
        group=_STATE,
        help="The key itself, instead of a file. Only from the environment: "
        "a command line can be read by every user of the machine.",
    ),
    _deadline(Kind.CREATE, "8m"),
    _deadline(Kind.CONFIGURE, "8m"),
    _deadline(Kind.DRAIN, "15m"),
    _deadline(Kind.DELETE, "8m"),
    Option(
        name="transition-timeout",
        parse=values.timeout_or_none,
        default="",
        metavar="DURATION",
        group=_OPERATIONS,
        help="Sets all four timeouts exactly, drains included. Meant for tests.",
    ),
    _concurrency(Kind.CREATE),
    _concurrency(Kind.CONFIGURE),
    _concurrency(Kind.DRAIN),
    _concurrency(Kind.DELETE),
    Option(
        name="failed-dwell",
        parse=values.interval,
        default="10m",
        metavar="DURATION",
        group=_OPERATIONS,
        help="How long a FAILED machine stays readable before its capacity is offered again "
        "under a new id; 0 = never.",
    ),
    Option(
        name="leftovers",
        parse=values.choice("remove", "report"),
        default="remove",
        metavar="remove|report",
        group=_OPERATIONS,
        help="What is done with hosts and parts of ours that belong to no machine: report only "
        "names what would be removed, as the condition `leftovers`.",
    ),
    Option(
        name="reconcile-interval",
        parse=values.interval,
        default="2m",
        metavar="DURATION",
        group=_OPERATIONS,
        help="How often the inventory is compared with the backend's; 0 = off.",
    ),
    Option(
        name="tls-cert",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_TLS,
        help="Server certificate (PEM); with --tls-key it turns on TLS 1.3. "
        "Read again when it changes.",
    ),
    Option(
        name="tls-key",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_TLS,
        help="Key of the server certificate (PEM).",
    ),
    Option(
        name="tls-ca",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_TLS,
        help="CA bundle (PEM) that client certificates must come from; turns on mutual TLS.",
    ),
    Option(
        name="log-level",
        parse=values.choice("debug", "info", "warning", "error", warn="warning"),
        default="info",
        metavar="debug|info|warning|error",
        group=_LOGS,
        help="Least severe log line that is written.",
    ),
    Option(
        name="log-format",
        parse=values.choice("auto", "console", "json"),
        default="auto",
        metavar="auto|console|json",
        group=_LOGS,
        help="auto is console on a terminal, else json.",
    ),
    Option(
        name="config",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_LOGS,
        help="YAML file with more settings: flag names as keys, one value each.",
    ),
    *MARKET_OPTIONS,
)
"""What every daemon is told: each a field of `Settings`."""

FAKE_OPTIONS: tuple[Option, ...] = (
    Option(
        name="fake-seed",
        parse=values.whole(),
        default="0",
        metavar="N",
        group=_FAKE,
        help="Seed of everything that happens by chance.",
    ),
    Option(
        name="fake-latency",
        parse=values.interval,
        default="20ms",
        metavar="DURATION",
        group=_FAKE,
        help="Time of one step, give or take a quarter: provisioning, handing over the blob, "
        "the node becoming Ready, draining, deleting.",
    ),
    Option(
        name="fake-quota",
        parse=values.whole(least=0),
        default="0",
        metavar="N",
        group=_FAKE,
        help="Most machines of one size, zone and capacity type; 0 = unlimited.",
    ),
    Option(
        name="fake-evict-rate",
        parse=values.rate,
        default="0",
        metavar="RATE",
        group=_FAKE,
        help="Evictions per hour of each running spot machine.",
    ),
    Option(
        name="fake-fail-rate",
        parse=values.share,
        default="0",
        metavar="SHARE",
        group=_FAKE,
        help="Share of machines, from 0 to 1, that cannot be provisioned.",
    ),
    Option(
        name="fake-throttle",
        parse=values.share,
        default="0",
        metavar="SHARE",
        group=_FAKE,
        help="Share of calls, from 0 to 1, that are answered with 'too many requests'.",
    ),
    Option(
        name="fake-faults",
        parse=values.boolean,
        default="false",
        group=_FAKE,
        help="Obey the fault selectors of the certification lane: clusters fault-error, "
        "fault-timeout, fault-slow-ok, fault-drain-error and fault-readiness-block, and the "
        "slots faultcreate-0 to faultcreate-7, whose Creates fail.",
    ),
)
"""What the simulated region is told: each a field of `Settings`, too."""

AZURE_OPTIONS: tuple[Option, ...] = (*_AZURE_OPTIONS, *AZURE_MARKET_OPTIONS)
"""What the Azure backend is told."""

OPTIONS: tuple[Option, ...] = (*PLAIN_OPTIONS, *AZURE_OPTIONS, *FAKE_OPTIONS)
