"""The daemon's settings: how their values are found; `contradictions` compares them.

A value comes from a flag, else the environment, else the file, else the default of `OPTIONS`.
Nothing here opens a file or reads the environment by itself, and start-up pays for every import:
what only a fault, a configuration file or the Azure backend needs is imported when it is needed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bigfleet_azure.daemon.contradictions import Faults, Given, find_contradictions, oddities
from bigfleet_azure.daemon.options import ENV_PREFIX, FAKE_OPTIONS, OPTIONS, PLAIN_OPTIONS, Option
from bigfleet_azure.daemon.values import BOOLEANS, Address
from bigfleet_azure.domain.limits import Deadlines
from bigfleet_azure.domain.secret import Secret

if TYPE_CHECKING:
    from bigfleet_azure.backends.azure.options import AzureOptions

SERVER_VARIABLE = f"{ENV_PREFIX}SERVER"
"""Where the command line's tools find the daemon; the daemon itself does not read it."""

_INJECTED = re.compile(
    r"BIGFLEET_AZURE_(?:\w+_)?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)
"""What Kubernetes puts into every container for a Service named bigfleet-azure, or bigfleet-azure-…
(kubernetes.io/docs/concepts/services-networking/service, "Environment variables")."""

_FALLBACK_LOCATION = "eastus"
"""Whose zones the built-in mix names when no location is given (contract section 16)."""


class SettingsError(Exception):
    """The configuration cannot be used.

    Attributes:
        faults: every fault found, one text each: where the value came from, the value, the fix.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = list(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every option's value, checked, and defaults filled in; meanings stand in `OPTIONS`.

    Attributes:
        azure: what the Azure options come to; None for the simulated region.
        warnings: what is odd but no fault; to be logged at start.
    """

    addr: Address
    metrics_addr: Address | None
    reflection: bool
    provider: str
    location: str
    azure_backend: str
    use_fake_backend: bool
    offerings: Path | None
    seed_count: int
    zone_a: str
    zone_b: str
    state: Path | None
    state_key_file: Path | None
    state_key: Secret | None
    create_timeout: timedelta
    configure_timeout: timedelta
    drain_timeout: timedelta
    delete_timeout: timedelta
    transition_timeout: timedelta | None
    create_concurrency: int
    configure_concurrency: int
    drain_concurrency: int
    delete_concurrency: int
    failed_dwell: timedelta
    leftovers: str
    reconcile_interval: timedelta
    tls_cert: Path | None
    tls_key: Path | None
    tls_ca: Path | None
    log_level: str
    log_format: Literal["auto", "console", "json"]
    config: Path | None
    price_refresh: timedelta
    republish_threshold: float
    eviction_token: Secret | None
    callback_key_file: Path | None
    callback_url: str
    callback_addr: Address | None
    callback_tls_cert: Path | None
    callback_tls_key: Path | None
    fake_seed: int
    fake_latency: timedelta
    fake_quota: int
    fake_evict_rate: float
    fake_fail_rate: float
    fake_throttle: float
    fake_faults: bool
    azure: "AzureOptions | None" = None
    warnings: tuple[str, ...] = ()

    @property
    def deadlines(self) -> Deadlines:
        """How long each kind of operation may take."""
        exact = self.transition_timeout
        return Deadlines(
            create=(exact or self.create_timeout).total_seconds(),
            configure=(exact or self.configure_timeout).total_seconds(),
            drain=(exact or self.drain_timeout).total_seconds(),
            delete=(exact or self.delete_timeout).total_seconds(),
            exact=exact is not None,
        )

    @property
    def cluster_id(self) -> str:
        """The only cluster that machines can join; empty when any can be joined."""
        return self.azure.cluster if self.azure is not None else ""

    @property
    def uses_kubeconfigs(self) -> bool:
        """Whether each cluster has a kubeconfig of its name."""
        return self.azure is not None and self.azure.uses_kubeconfigs


Read = Callable[[str], bytes]
"""Returns the content of a file; OSError becomes a fault."""


_BY_NAME = {option.name: option for option in OPTIONS}


def resolve(argv: Sequence[str], environ: Mapping[str, str], read: Read) -> Settings:
    """Find, parse and check every setting.

    Args:
        argv: the arguments after the command.
        environ: the environment.
        read: opens the files that settings name and that are needed before anything is started.

    Raises:
        SettingsError: with every fault at once.
    """
    faults = Faults()
    given = {**_read_environment(environ), **_read_flags(argv, faults)}
    if "config" in given and given["config"].text:
        given = {**_read_file(given["config"], read, faults), **given}
    values = _parse(given, faults)
    location = values["location"] or _FALLBACK_LOCATION
    values["zone_a"] = values["zone_a"] or f"{location}-1"
    values["zone_b"] = values["zone_b"] or f"{location}-2"
    find_contradictions(values, given, faults)
    if values["callback_key_file"] or values["callback_addr"] or values["callback_tls_cert"]:
        from bigfleet_azure.daemon.callbacks import callback_faults

        callback_faults(values, given, read, faults)
    azure = None
    if _azure_chosen(values, faults):
        from bigfleet_azure.daemon.azure import azure_options

        azure = azure_options(values, given, read, faults)
    if faults.texts:
        raise SettingsError(faults.texts)
    warnings = _unknown_variables(environ) + oddities(values, given, azure is not None)
    plain = {option.field: values[option.field] for option in (*PLAIN_OPTIONS, *FAKE_OPTIONS)}
    return Settings(**plain, azure=azure, warnings=tuple(warnings))


def _azure_chosen(values: Mapping[str, Any], faults: Faults) -> bool:
    if values["use_fake_backend"] or faults.options & {"azure-backend", "use-fake-backend"}:
        return False
    backend = values["azure_backend"]
    located = bool(values["location"]) or "location" in faults.options
    return backend == "azure" or (backend == "auto" and located)


def _parse(given: Mapping[str, Given], faults: Faults) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for option in OPTIONS:
        values[option.field] = option.parse(option.default)
        if option.name not in given:
            continue
        found = given[option.name]
        try:
            values[option.field] = option.parse(found.text)
        except ValueError as error:
            faults.add(f"{found.shown} {error}", option.name)
    return values


def _read_flags(argv: Sequence[str], faults: Faults) -> dict[str, Given]:
    """Go's rules: one dash or two, `=` or the next argument, bare booleans, the last one wins."""
    given: dict[str, Given] = {}
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            for extra in rest:
                faults.add(_unexpected(extra))
            break
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if not argument.startswith("-") or not name:
            faults.add(_unexpected(argument))
            continue
        option = _BY_NAME.get(name)
        if option is None or option.env_only:
            faults.add(_unknown_flag(argument, name))
            if not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)
            continue
        if not equals and option.boolean:
            text = "true"
        elif not equals:
            if not rest or _is_flag(rest[0]):
                faults.add(f"--{name} has no value; write --{name}={option.metavar}", name)
                continue
            text = rest.pop(0)
        given[name] = Given(text, f"--{name}={option.shown(text)}")
    return given


def _is_flag(argument: str) -> bool:
    dashed = argument.removeprefix("-").removeprefix("-").partition("=")[0]
    return argument.startswith("-") and dashed in _BY_NAME


def _unexpected(argument: str) -> str:
    hint = "; a boolean flag takes its value after '='" if argument in BOOLEANS else ""
    return f"{argument!r} is neither a flag nor the value of one{hint}"


def _unknown_flag(argument: str, name: str) -> str:
    option = _BY_NAME.get(name)
    if option is not None:
        return f"--{name} is not a flag, since every user could read it; set {option.env}"
    plain = name.removeprefix("no-")
    if plain in _BY_NAME and _BY_NAME[plain].boolean:
        return f"{argument} is unknown; write --{plain}=false"
    shown = argument.partition("=")[0]
    return f"{shown} is unknown{similar(name, list(_BY_NAME), '--')}"


def similar(name: str, known: Sequence[str], prefix: str = "") -> str:
    """The end of a message about an unknown name: which known ones look like it; "" for none."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=2, cutoff=0.7)
    return f"; did you mean {' or '.join(prefix + match for match in close)}?" if close else ""


def _read_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for option in OPTIONS:
        for variable in (option.env, *option.env_aliases):
            if variable in environ:
                text = environ[variable]
                given[option.name] = Given(text, f"{variable}={option.shown(text)}")
                break
    return given


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    known = {variable for option in OPTIONS for variable in (option.env, *option.env_aliases)}
    names = [variable.removeprefix(ENV_PREFIX) for variable in known]
    return [
        f"{variable} is no setting and is ignored"
        + similar(variable.removeprefix(ENV_PREFIX), names, ENV_PREFIX)
        for variable in sorted(environ.keys() - known - {SERVER_VARIABLE})
        if variable.startswith(ENV_PREFIX) and not _INJECTED.fullmatch(variable)
    ]


def _read_file(path: Given, read: Read, faults: Faults) -> dict[str, Given]:
    """The values of a YAML file, as the texts that stand in it.

    Texts, not YAML's idea of their types: `addr: 1:30` and `fake-seed: 010` then mean what the
    same words mean on the command line.
    """
    import yaml

    try:
        root = yaml.compose(read(path.text).decode(), Loader=yaml.SafeLoader)
    except (OSError, ValueError) as error:
        faults.add(f"{path.shown} cannot be read: {getattr(error, 'strerror', None) or error}")
        return {}
    except yaml.YAMLError as error:
        faults.add(f"{path.shown} is not YAML: {' '.join(str(error).split())}")
        return {}
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        faults.add(f"{path.shown} must consist of lines such as 'seed-count: 32'")
        return {}
    given: dict[str, Given] = {}
    for key, value in root.value:
        where = f"{path.text}:{key.start_mark.line + 1}:"
        name = str(key.value).replace("_", "-")
        fault = _key_fault(str(key.value), _BY_NAME.get(name), repeated=name in given)
        if fault:
            faults.add(f"{where} {fault}")
        elif not isinstance(value, yaml.ScalarNode):
            faults.add(f"{where} {key.value} wants one value, not a list or a map", name)
        elif value.tag == "tag:yaml.org,2002:null":
            faults.add(f'{where} {key.value} has no value; write "" or remove the line', name)
        else:
            text = _spelled(value.value) if value.tag.endswith(":bool") else value.value
            given[name] = Given(text, f"{where} {key.value}: {_BY_NAME[name].shown(text)}")
    return given


def _key_fault(key: str, option: Option | None, *, repeated: bool) -> str:
    if option is None:
        return f"{key} is unknown{similar(key.replace('_', '-'), list(_BY_NAME))}"
    if option.env_only:
        return f"{key} must not stand in a file of settings; set {option.env}"
    if option.name == "config":
        return "config cannot name a further file"
    return f"{key} stands here a second time" if repeated else ""


def _spelled(word: str) -> str:
    return "true" if word.lower() in ("true", "yes", "on") else "false"
