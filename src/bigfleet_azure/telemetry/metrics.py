"""Every metric family of the daemon, in one place.

Names without a prefix of their own start with `bigfleet_azure_`. Label values are bounded sets:
never a machine id, a cluster or a message. Reference documentation is generated from `Metrics`.
"""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

_PREFIX = "bigfleet_azure"

OPERATION_BUCKETS = (0.05, 0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 90, 120, 180, 300, 480, 600, 900)
"""Seconds, to 15 minutes: creates take minutes (median 67 s, azure-facts section 2.1)."""

RPC_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
COMMIT_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
GROUP_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The families, registered together in one registry.

    Hot paths should keep the child that `labels()` returns instead of looking it up each time.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{_PREFIX}_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"{_PREFIX}_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"{_PREFIX}_{name}", text, labels, buckets=buckets, registry=registry)

        # gRPC edge
        self.grpc_requests = counter(
            "grpc_requests_total", "RPCs by method and gRPC status code.", "method", "code"
        )
        self.grpc_duration = histogram(
            "grpc_request_duration_seconds", "Time to answer an RPC.", RPC_BUCKETS, "method"
        )
        self.panics = counter("panics_total", "RPCs that met a bug and were answered INTERNAL.")
        self.fence_rejections = counter(
            "fence_rejections_total",
            "Mutations refused because their fencing token was not newer than the mark.",
            "method",
        )

        # Operations
        self.machines = gauge("machines", "Machines by lifecycle state.", "state")
        self.operations_in_flight = gauge(
            "operations_in_flight", "Accepted operations that have not ended.", "kind"
        )
        self.oldest_operation = gauge(
            "oldest_operation_age_seconds", "Age of the oldest operation in flight.", "kind"
        )
        self.operation_duration = histogram(
            "operation_duration_seconds",
            "Time from accept to end, by kind and outcome (success, failure).",
            OPERATION_BUCKETS,
            "kind",
            "outcome",
        )
        self.operation_failures = counter(
            "operation_failures_total",
            "Operations that ended in FAILED, by kind and reason.",
            "kind",
            "reason",
        )
        self.operation_retries = counter(
            "operation_retries_total",
            "Substrate refusals that an operation waited out, by kind and reason.",
            "kind",
            "reason",
        )

        # Substrate
        self.api_calls = counter(
            "api_calls_total", "Substrate calls by operation and outcome.", "op", "outcome"
        )
        self.api_duration = histogram(
            "api_duration_seconds", "Duration of substrate calls.", OPERATION_BUCKETS, "op"
        )
        self.arm_calls = counter(
            "arm_calls_total",
            "Calls to Azure Resource Manager by call and outcome.",
            "call",
            "outcome",
        )
        self.arm_failures = counter(
            "arm_failures_total",
            "Refused calls and failed operations by call and error code; rare codes are `other`.",
            "call",
            "code",
        )
        self.arm_throttled = counter(
            "arm_throttled_total", "Calls that Azure refused as too many, by bucket.", "bucket"
        )
        self.arm_headroom = gauge(
            "arm_bucket_headroom_ratio",
            "Share of a bucket of Azure that may still be used, 0 to 1, as we count it.",
            "bucket",
        )
        self.arm_waiting = gauge(
            "arm_calls_waiting", "Calls that wait for a token, by bucket.", "bucket"
        )
        self.arm_ends = counter(
            "arm_operations_ended_total",
            "Ends of Azure's operations, by kind and by what told of them (address, list).",
            "kind",
            "told_by",
        )
        self.price_refresh = counter(
            "price_refresh_total", "Times that prices and eviction rates were read.", "outcome"
        )
        self.price_last_success = gauge(
            "price_last_success_timestamp_seconds",
            "Unix time of the last answer of the Retail Prices API with a price; 0 for none.",
        )
        self.rates_last_success = gauge(
            "eviction_rate_last_success_timestamp_seconds",
            "Unix time of the last answer of Resource Graph with an eviction rate; 0 for none.",
        )
        self.price_rows = counter(
            "price_answers_total",
            "What answers about sizes came to: priced, missing, unbelievable (a Spot price far "
            "from on-demand), ambiguous (several rows fitted), unknown_rate.",
            "outcome",
        )
        self.prices = gauge(
            "offered_price_usd_per_hour",
            "Published price by size and capacity type.",
            "vm_size",
            "capacity_type",
        )
        self.guessed_prices = gauge(
            "guessed_prices", "Sizes that are offered at a guessed price, since none is known."
        )
        self.quota_limit = gauge(
            "quota_limit", "Azure quota of what the offerings need, by name of the quota.", "quota"
        )
        self.quota_used = gauge("quota_used", "What is used of it, by anybody.", "quota")
        self.reconcile = counter("reconcile_total", "Reconcile passes by outcome.", "outcome")
        self.losses = counter(
            "machines_lost_total", "Settled machines whose host was found lost.", "condition"
        )
        self.spot_evictions = counter("spot_evictions_total", "Spot machines found evicted.")
        self.notices = counter(
            "notices_total",
            "Notices of scheduled events by what became of them (taken, duplicate, ignored, "
            "too_early, too_many).",
            "outcome",
        )
        self.notices_refused = counter(
            "notices_refused_total",
            "Notices refused for their token, body, size or method.",
            "reason",
        )
        self.scheduled_events = counter(
            "scheduled_events_total", "Scheduled events that machines told of, by type.", "type"
        )
        self.debts = gauge("debts", "Substrate leftovers that still have to be removed.")
        self.oldest_debt = gauge("oldest_debt_age_seconds", "Age of the oldest unpaid debt.")
        self.withheld = gauge(
            "withheld_slots", "Unused slots left out of List because capacity is unavailable."
        )
        self.blocks = gauge(
            "capacity_blocks",
            "Shortages that are believed, by how they were learnt (refusal, survey).",
            "source",
        )
        self.surveys = counter(
            "capacity_surveys_total", "Times that quota and usage were asked for.", "outcome"
        )
        self.strays = counter(
            "strays_total",
            "Hosts and parts found without a machine, by what became of them (adopted, owed).",
            "outcome",
        )

        # Store and process
        self.commit_duration = histogram(
            "store_commit_duration_seconds", "Time to make one group durable.", COMMIT_BUCKETS
        )
        self.commit_group = histogram(
            "store_commit_group_size", "Change sets per durable write.", GROUP_BUCKETS
        )
        self.conditions = gauge(
            "condition", "1 while the named condition stands, 0 after it cleared.", "name"
        )
        self.certificate_expiry = gauge(
            "tls_certificate_expiry_timestamp_seconds",
            "Unix time at which the served certificate ends.",
        )
        self.build_info = gauge(
            "build_info", "Always 1; the labels say what runs.", "version", "python", "backend"
        )
