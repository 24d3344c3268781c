"""The tables of options about prices, eviction rates and eviction notices.

Part of the daemon's one table (`options`). What the values come to is `market`'s and, for the
Azure backend, `azure`'s.
"""

from bigfleet_azure.daemon import market_values, values
from bigfleet_azure.daemon.option import Option

_PRICES = "Prices and eviction rates"
_AZURE_PRICES = "Azure: prices and eviction rates"
_NOTICES = "Eviction notices"

MARKET_OPTIONS: tuple[Option, ...] = (
    Option(
        name="price-refresh",
        parse=values.interval,
        default="1h",
        metavar="DURATION",
        group=_PRICES,
        help="How often prices and eviction rates are read anew; 0 = off. Only with real machines.",
    ),
    Option(
        name="republish-threshold",
        parse=market_values.percent,
        default="20%",
        metavar="PERCENT",
        group=_PRICES,
        help="An unused slot whose price or interruption probability moved by more than this is "
        "left out of one full List, so that BigFleet takes the new value over; 0 = off.",
    ),
    Option(
        name="eviction-token",
        parse=values.secret,
        default="",
        metavar="TOKEN",
        group=_NOTICES,
        secret=True,
        env_aliases=("BIGFLEET_EVICTION_TOKEN",),
        help="Bearer token, shared by all nodes, of POST /internal/eviction on --metrics-addr. It "
        "can raise the interruption probability of a Spot machine and no more. A command line "
        "can be read by every user of the machine: give it in the environment.",
    ),
    Option(
        name="callback-key-file",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_NOTICES,
        help="Keys for the tokens that each machine gets in its user data to speak for itself, one "
        "a line, the newest, which signs, first; read again when it changes.",
    ),
    Option(
        name="callback-url",
        parse=market_values.callback_url,
        default="",
        metavar="URL",
        group=_NOTICES,
        help="Address at which machines reach this daemon's notices; put where the user data has "
        "__BIGFLEET_CALLBACK_URL__.",
    ),
    Option(
        name="callback-addr",
        parse=values.address_or_off,
        default="",
        metavar="HOST:PORT",
        group=_NOTICES,
        help="HTTP listen address for machines' notices and nothing else; without it they go to "
        "--metrics-addr.",
    ),
    Option(
        name="callback-tls-cert",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_NOTICES,
        help="Certificate (PEM) of --callback-addr. Read again when it changes.",
    ),
    Option(
        name="callback-tls-key",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_NOTICES,
        help="Key of that certificate (PEM).",
    ),
)
"""What the daemon itself is told: each a field of `Settings`."""

AZURE_MARKET_OPTIONS: tuple[Option, ...] = (
    Option(
        name="prices-endpoint",
        parse=market_values.prices_endpoint,
        default="",
        metavar="URL",
        group=_AZURE_PRICES,
        derived="Microsoft's public one; none in --cloud=usgov and china",
        help="Address of the Retail Prices API, or of a mirror of it.",
    ),
    Option(
        name="price-file",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_AZURE_PRICES,
        help="JSON file of prices that stand above all others, for negotiated prices and clouds "
        "without a Retail Prices API; read again at each refresh.",
    ),
    Option(
        name="price-discount",
        parse=market_values.discount,
        default="0%",
        metavar="PERCENT",
        group=_AZURE_PRICES,
        help="Taken off on-demand and reserved retail prices; Spot prices and --price-file are "
        "left as they are.",
    ),
    Option(
        name="reserved-term",
        parse=values.choice("none", "1y", "3y"),
        default="none",
        metavar="none|1y|3y",
        group=_AZURE_PRICES,
        help="Which reservation reserved machines are paid by: the price of its term, by the hour. "
        "none is the on-demand price, at which a capacity reservation bills.",
    ),
    Option(
        name="eviction-rate-basis",
        parse=values.choice("hour", "month"),
        default="hour",
        metavar="hour|month",
        group=_AZURE_PRICES,
        help="What Azure's eviction rates are rates of: Microsoft quotes them per hour; month "
        "reads them as the Go provider does.",
    ),
)
"""What only the Azure backend is told."""
