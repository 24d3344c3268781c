"""The daemon's settings: how their values are found, and checked against each other.

A value comes from a flag, else the environment, else the file, else the default of `OPTIONS`.
Nothing here opens a file or reads the environment by itself, and start-up pays for every import:
what only a fault or a configuration file needs is imported when it is needed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from bigfleet_azure.daemon.options import ENV_PREFIX, OPTIONS, Option
from bigfleet_azure.daemon.values import BOOLEANS, Address
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.domain.limits import Deadlines
from bigfleet_azure.domain.secret import Secret

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
    reconcile_interval: timedelta
    tls_cert: Path | None
    tls_key: Path | None
    tls_ca: Path | None
    log_level: str
    log_format: Literal["auto", "console", "json"]
    config: Path | None
    fake_seed: int
    fake_latency: timedelta
    fake_quota: int
    fake_evict_rate: float
    fake_fail_rate: float
    fake_throttle: float
    fake_faults: bool
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


@dataclass(frozen=True, slots=True)
class _Given:
    """A value somebody gave: the text, and how to show where it stands."""

    text: str
    shown: str


_BY_NAME = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class _Faults:
    """What was found wrong, and the options it leaves without a value to be compared."""

    texts: list[str] = field(default_factory=list)
    options: set[str] = field(default_factory=set)

    def add(self, text: str, option: str = "") -> None:
        self.texts.append(text)
        self.options.add(option)


def resolve(
    argv: Sequence[str], environ: Mapping[str, str], read_text: Callable[[str], str]
) -> Settings:
    """Find, parse and check every setting.

    Args:
        argv: the arguments after the command.
        environ: the environment.
        read_text: returns the text of a file; OSError and ValueError become faults.

    Raises:
        SettingsError: with every fault at once.
    """
    faults = _Faults()
    given = {**_read_environment(environ), **_read_flags(argv, faults)}
    if "config" in given and given["config"].text:
        given = {**_read_file(given["config"], read_text, faults), **given}
    values = _parse(given, faults)
    _find_contradictions(values, given, faults)
    if faults.texts:
        raise SettingsError(faults.texts)
    warnings = _unknown_variables(environ) + _oddities(values, given)
    location = values["location"] or _FALLBACK_LOCATION
    values["zone_a"] = values["zone_a"] or f"{location}-1"
    values["zone_b"] = values["zone_b"] or f"{location}-2"
    return Settings(**values, warnings=tuple(warnings))


def _parse(given: Mapping[str, _Given], faults: _Faults) -> dict[str, Any]:
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


def _read_flags(argv: Sequence[str], faults: _Faults) -> dict[str, _Given]:
    """Go's rules: one dash or two, `=` or the next argument, bare booleans, the last one wins."""
    given: dict[str, _Given] = {}
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
        given[name] = _Given(text, f"--{name}={option.shown(text)}")
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
    return f"{shown} is unknown{_similar(name, list(_BY_NAME), '--')}"


def _similar(name: str, known: Sequence[str], prefix: str = "") -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=2)
    return f"; did you mean {' or '.join(prefix + match for match in close)}?" if close else ""


def _read_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    for option in OPTIONS:
        for variable in (option.env, *option.env_aliases):
            if variable in environ:
                text = environ[variable]
                given[option.name] = _Given(text, f"{variable}={option.shown(text)}")
                break
    return given


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    known = {variable for option in OPTIONS for variable in (option.env, *option.env_aliases)}
    names = [variable.removeprefix(ENV_PREFIX) for variable in known]
    return [
        f"{variable} is no setting and is ignored"
        + _similar(variable.removeprefix(ENV_PREFIX), names, ENV_PREFIX)
        for variable in sorted(environ.keys() - known - {SERVER_VARIABLE})
        if variable.startswith(ENV_PREFIX) and not _INJECTED.fullmatch(variable)
    ]


def _read_file(path: _Given, read_text: Callable[[str], str], faults: _Faults) -> dict[str, _Given]:
    """The values of a YAML file, as the texts that stand in it.

    Texts, not YAML's idea of their types: `addr: 1:30` and `fake-seed: 010` then mean what the
    same words mean on the command line.
    """
    import yaml

    try:
        root = yaml.compose(read_text(path.text), Loader=yaml.SafeLoader)
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
    given: dict[str, _Given] = {}
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
            given[name] = _Given(text, f"{where} {key.value}: {_BY_NAME[name].shown(text)}")
    return given


def _key_fault(key: str, option: Option | None, *, repeated: bool) -> str:
    if option is None:
        return f"{key} is unknown{_similar(key.replace('_', '-'), list(_BY_NAME))}"
    if option.env_only:
        return f"{key} must not stand in a file of settings; set {option.env}"
    if option.name == "config":
        return "config cannot name a further file"
    return f"{key} stands here a second time" if repeated else ""


def _spelled(word: str) -> str:
    return "true" if word.lower() in ("true", "yes", "on") else "false"


def _find_contradictions(
    values: Mapping[str, Any], given: Mapping[str, _Given], faults: _Faults
) -> None:
    """Values that are right alone and wrong together; what is faulty already is left out."""
    for names, check in (
        (("azure-backend", "use-fake-backend", "location"), _backend_fault),
        (("tls-cert", "tls-key", "tls-ca"), _tls_fault),
        (("state", "state-key-file", "state-key"), _key_file_fault),
    ):
        fault = "" if faults.options.intersection(names) else check(values, given)
        if fault:
            faults.add(fault)


def _backend_fault(values: Mapping[str, Any], given: Mapping[str, _Given]) -> str:
    backend = values["azure_backend"]
    if values["use_fake_backend"] and backend == "azure":
        return (
            f"{given['use-fake-backend'].shown} and {given['azure-backend'].shown} contradict "
            "each other; remove one of them"
        )
    if backend == "azure":
        return (
            f"{given['azure-backend'].shown}: the azure backend is not part of this version; "
            "use --azure-backend fake"
        )
    if backend == "auto" and values["location"] and not values["use_fake_backend"]:
        return (
            f"{given['location'].shown} selects the azure backend, and the azure backend is not "
            "part of this version; use --azure-backend fake, or add --use-fake-backend, to run "
            "the simulated region for that location"
        )
    return ""


def _tls_fault(values: Mapping[str, Any], given: Mapping[str, _Given]) -> str:
    names = ("tls-cert", "tls-key", "tls-ca")
    present = [name for name in names if values[name.replace("-", "_")] is not None]
    missing = [name for name in names[:2] if name not in present]
    if not present or not missing:
        return ""
    return (
        f"{' and '.join(given[name].shown for name in present)} cannot be used without "
        f"{' and '.join(f'--{name}' for name in missing)}; give none of the three for plaintext, "
        "cert and key for TLS, all three for mutual TLS"
    )


def _key_file_fault(values: Mapping[str, Any], given: Mapping[str, _Given]) -> str:
    if values["state_key_file"] is None:
        return ""
    shown = given["state-key-file"].shown
    if values["state"] is None:
        return f"{shown} has no use without a state file; add --state=FILE or remove it"
    if values["state_key"] is not None:
        return f"{shown} and {given['state-key'].shown} both name a key; keep one of them"
    return ""


def _oddities(values: Mapping[str, Any], given: Mapping[str, _Given]) -> list[str]:
    warnings = []
    if values["transition_timeout"] is not None:
        warnings += [
            f"{given[name].shown} has no effect beside {given['transition-timeout'].shown}"
            for name in (f"{kind}-timeout" for kind in Kind)
            if name in given
        ]
    if values["offerings"] is not None:
        warnings += [
            f"{given[name].shown} has no effect beside {given['offerings'].shown}"
            for name in ("seed-count", "zone-a", "zone-b")
            if name in given
        ]
    if values["state_key"] is not None and values["state"] is None:
        warnings.append(f"{given['state-key'].shown} has no use without --state")
    return warnings
