"""Where a setting's value comes from, how it is written, and what is refused."""

import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from bigfleet_azure.daemon import settings as module
from bigfleet_azure.daemon.options import AZURE_OPTIONS, OPTIONS, Option
from bigfleet_azure.daemon.settings import Settings, SettingsError, resolve
from bigfleet_azure.daemon.values import Address
from bigfleet_azure.domain.lifecycle import Kind
from bigfleet_azure.domain.limits import Deadlines

FAKE = "--use-fake-backend"


def resolved(*argv, env=None, files=None):
    def read(path):
        if path not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory", path)
        return files[path].encode()

    return resolve(argv, env or {}, read)


def faults_of(*argv, env=None, files=None):
    with pytest.raises(SettingsError) as caught:
        resolved(*argv, env=env, files=files)
    return caught.value.faults


# The table


def test_every_option_is_a_field_of_the_settings_or_of_the_azure_backend():
    names = [option.field for option in OPTIONS]
    assert len(names) == len(set(names))
    plain = set(names) - {option.field for option in AZURE_OPTIONS}
    assert plain | {"azure", "warnings"} == {field.name for field in fields(Settings)}


def test_every_default_can_be_parsed_and_every_option_says_what_it_means():
    for option in OPTIONS:
        option.parse(option.default)
        assert option.help.endswith("."), option.name
        assert bool(option.metavar) != (option.boolean or option.env_only), option.name


def test_options_of_one_group_stand_together():
    groups = [option.group for option in OPTIONS]
    changes = [now for now, before in zip(groups, ["", *groups], strict=False) if now != before]
    assert len(changes) == len(set(groups))


@pytest.mark.behaviour(90)
def test_the_flags_of_the_go_provider_have_its_defaults():
    settings = resolved()
    assert settings.addr == Address("", 9000)
    assert settings.metrics_addr == Address("", 9090)
    assert settings.provider == "azure"
    assert settings.azure_backend == "auto"
    assert settings.use_fake_backend is False
    assert settings.location == ""
    assert settings.offerings is None
    assert settings.seed_count == 32
    assert (settings.zone_a, settings.zone_b) == ("eastus-1", "eastus-2")
    assert settings.state is None
    assert settings.reconcile_interval == timedelta(minutes=2)
    assert settings.reflection is True
    assert (settings.tls_cert, settings.tls_key, settings.tls_ca) == (None, None, None)


def test_the_certification_runners_command_is_understood():
    settings = resolved(
        "--addr=127.0.0.1:40123",
        "--provider=certify",
        "--use-fake-backend",
        "--seed-count=8000",
        "--state=/tmp/state.db",
    )
    assert settings.addr == Address("127.0.0.1", 40123)
    assert settings.provider == "certify"
    assert settings.seed_count == 8000
    assert settings.state == Path("/tmp/state.db")
    assert settings.warnings == ()


# Go's way of writing flags


@pytest.mark.behaviour(90)
@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--seed-count=5"], "seed_count", 5),
        (["--seed-count", "5"], "seed_count", 5),
        (["-seed-count=5"], "seed_count", 5),
        (["-seed-count", "5"], "seed_count", 5),
        (["--seed-count=-5"], "seed_count", -5),
        (["--seed-count", "-5"], "seed_count", -5),
        (["--seed-count=+5"], "seed_count", 5),
        (["--seed-count=4", "--seed-count=6"], "seed_count", 6),
        (["--seed-count=5", "--"], "seed_count", 5),
        (["-addr", ":1"], "addr", Address("", 1)),
        (["--addr=127.0.0.1:9000"], "addr", Address("127.0.0.1", 9000)),
        (["--addr=[::1]:9000"], "addr", Address("::1", 9000)),
        (["--addr=localhost:0"], "addr", Address("localhost", 0)),
        (["--metrics-addr="], "metrics_addr", None),
        (["--metrics-addr", ""], "metrics_addr", None),
        (["--state=a=b"], "state", Path("a=b")),
        (["--state", "-"], "state", Path("-")),
        (["--state="], "state", None),
        (["--fake-faults"], "fake_faults", True),
        (["-fake-faults"], "fake_faults", True),
        (["--reflection"], "reflection", True),
        (["--reflection=false"], "reflection", False),
        (["--reflection=F"], "reflection", False),
        (["--reflection=0"], "reflection", False),
        (["-reflection=False"], "reflection", False),
        (["--fake-faults=T"], "fake_faults", True),
        (["--fake-faults=1"], "fake_faults", True),
        (["--create-timeout=1h30m"], "create_timeout", timedelta(minutes=90)),
        (["--failed-dwell", "0"], "failed_dwell", timedelta(0)),
        (["--reconcile-interval=0s"], "reconcile_interval", timedelta(0)),
        (["--fake-fail-rate=.25"], "fake_fail_rate", 0.25),
        (["--fake-throttle=1e-3"], "fake_throttle", 0.001),
        (["--fake-evict-rate=60"], "fake_evict_rate", 60.0),
        (["--log-level=WARN"], "log_level", "warning"),
        (["--log-format=JSON"], "log_format", "json"),
        (["--azure-backend=Fake"], "azure_backend", "fake"),
        (["--location=East US", FAKE], "location", "eastus"),
        (["--location=", FAKE], "location", ""),
    ],
)
def test_a_flag_is_read_as_go_reads_it(argv, name, value):
    assert getattr(resolved(*argv), name) == value


@pytest.mark.parametrize(
    ("argv", "fault"),
    [
        (["--sed-count=5"], "--sed-count is unknown; did you mean --seed-count?"),
        (["--sed-count", "5"], "--sed-count is unknown; did you mean --seed-count?"),
        (["--seed_count=5"], "--seed_count is unknown; did you mean --seed-count?"),
        (["--no-reflection"], "--no-reflection is unknown; write --reflection=false"),
        (["--xyzzy"], "--xyzzy is unknown"),
        (["--addr"], "--addr has no value; write --addr=HOST:PORT"),
        (["--addr", FAKE], "--addr has no value; write --addr=HOST:PORT"),
        (
            ["--reflection", "false"],
            "'false' is neither a flag nor the value of one; "
            "a boolean flag takes its value after '='",
        ),
        (["serve"], "'serve' is neither a flag nor the value of one"),
        (["-"], "'-' is neither a flag nor the value of one"),
        (["--=5"], "'--=5' is neither a flag nor the value of one"),
        (["--", "--addr=:1"], "'--addr=:1' is neither a flag nor the value of one"),
        (
            ["--state-key=0123"],
            "--state-key is not a flag, since every user could read it; "
            "set BIGFLEET_AZURE_STATE_KEY",
        ),
    ],
)
def test_an_argument_that_is_no_flag_is_one_fault_that_names_the_fix(argv, fault):
    assert faults_of(*argv) == [fault]


@pytest.mark.parametrize(
    ("flag", "fault"),
    [
        ("--addr=9000", "--addr=9000 has no port; write HOST:PORT such as :9000"),
        ("--addr=here", "--addr=here has no port; write HOST:PORT such as here:9000"),
        (
            "--addr=:http",
            "--addr=:http has the bad port 'http'; a port is a number from 0 to 65535",
        ),
        (
            "--addr=:65536",
            "--addr=:65536 has the bad port '65536'; a port is a number from 0 to 65535",
        ),
        ("--addr=", "--addr='' has no port; write HOST:PORT such as :9000"),
        (
            "--addr=::1:9000",
            "--addr=::1:9000 has an IPv6 address without brackets; write [::1]:9000",
        ),
        ("--addr=[x]:1", "--addr=[x]:1 has 'x' in brackets, which is no IPv6 address"),
        (
            "--addr=a b:1",
            "--addr=a b:1 has the bad host 'a b'; write HOST:PORT such as 127.0.0.1:9000",
        ),
        ("--seed-count=many", "--seed-count=many is not a whole number such as 32"),
        ("--seed-count=", "--seed-count='' is not a whole number such as 32"),
        ("--seed-count=1.5", "--seed-count=1.5 is not a whole number such as 32"),
        ("--seed-count=4194305", "--seed-count=4194305 is too large; the most is 4194304"),
        ("--reflection=no", "--reflection=no is not a boolean; write true or false"),
        ("--drain-timeout=30", "--drain-timeout=30 has no unit; write 30s, 30m or 30h"),
        (
            "--create-timeout=0",
            "--create-timeout=0 must be longer than 0; write a duration such as 8m",
        ),
        (
            "--transition-timeout=-2s",
            "--transition-timeout=-2s must be longer than 0; write a duration such as 8m",
        ),
        (
            "--failed-dwell=-1s",
            "--failed-dwell=-1s is negative; write 0 or a duration such as 90s",
        ),
        ("--create-concurrency=0", "--create-concurrency=0 is too small; the least is 1"),
        ("--delete-concurrency=-3", "--delete-concurrency=-3 is too small; the least is 1"),
        ("--fake-quota=-1", "--fake-quota=-1 is too small; the least is 0"),
        ("--fake-fail-rate=1.1", "--fake-fail-rate=1.1 is not a share from 0 to 1 such as 0.05"),
        ("--fake-throttle=nan", "--fake-throttle=nan is not a share from 0 to 1 such as 0.05"),
        ("--fake-evict-rate=-1", "--fake-evict-rate=-1 is not a number of 0 or more such as 0.5"),
        (
            "--fake-evict-rate=1e999",
            "--fake-evict-rate=1e999 is not a number of 0 or more such as 0.5",
        ),
        (
            "--log-level=loud",
            "--log-level=loud is unknown; write one of debug, info, warning, error",
        ),
        (
            "--azure-backend=aws",
            "--azure-backend=aws is unknown; write one of auto, azure, fake",
        ),
        ("--state=a\0b", r"--state='a\x00b' is not a path"),
    ],
)
def test_a_bad_value_is_one_fault_with_flag_value_and_fix(flag, fault):
    assert faults_of(flag) == [fault]


@pytest.mark.parametrize("name", ["East/US", "3ast", " ", "e"])
def test_what_is_not_the_name_of_a_region_is_refused(name):
    (fault,) = faults_of(f"--location={name}", FAKE)
    assert fault.endswith(" is not the name of an Azure region such as eastus")


def test_names_that_become_label_values_must_be_label_values():
    for flag in ("--provider=", "--provider=a/b", "--zone-a=a b", f"--zone-b={'z' * 64}"):
        (fault,) = faults_of(flag)
        assert "1 to 63 letters, digits" in fault


# Precedence


@pytest.mark.behaviour(90)
def test_a_flag_goes_before_the_environment_before_the_file_before_the_default():
    env = {"BIGFLEET_AZURE_SEED_COUNT": "3", "BIGFLEET_AZURE_PROVIDER": "from-env"}
    files = {"c.yaml": "seed-count: 2\nprovider: from-file\nlog-level: debug\n"}
    settings = resolved("--seed-count=4", "--config=c.yaml", env=env, files=files)
    assert settings.seed_count == 4
    assert settings.provider == "from-env"
    assert settings.log_level == "debug"
    assert settings.log_format == "auto"


@pytest.mark.behaviour(90)
@pytest.mark.parametrize(
    "option",
    [option for option in OPTIONS if option not in AZURE_OPTIONS],
    ids=lambda option: option.name,
)
def test_every_option_is_read_from_its_variable(option):
    sample = {
        "DURATION": "7s",
        "N": "7",
        "SHARE": "0.5",
        "RATE": "0.5",
        "FILE": "some.file",
        "HOST:PORT": "localhost:7",
        "NAME": "name",
        "REGION": "westus",
        "ZONE": "zone-7",
        "PERCENT": "12.5%",
        "URL": "https://daemon.test:9443",
        "": "true" if option.boolean else "secret",
    }
    text = sample.get(option.metavar) or option.metavar.split("|")[-1]
    env = {option.env: text, "BIGFLEET_AZURE_USE_FAKE_BACKEND": "true"}
    if option.name.startswith("state-key"):
        env["BIGFLEET_AZURE_STATE"] = "state.db"
    for name in ("cert", "key") if option.group == "TLS" else ():
        env.setdefault(f"BIGFLEET_AZURE_TLS_{name.upper()}", "other.file")
    if option.name.startswith("callback-"):
        env |= {f"BIGFLEET_AZURE_CALLBACK_{n}": "some.file" for n in ("KEY_FILE", "TLS_CERT")}
        env |= {"BIGFLEET_AZURE_CALLBACK_TLS_KEY": "some.file"}
        env |= {"BIGFLEET_AZURE_CALLBACK_ADDR": "localhost:7"}
    settings = resolved(env=env, files={"some.file": "" if option.name == "config" else "k" * 32})
    assert getattr(settings, option.field) == option.parse(text)
    assert option.env == f"BIGFLEET_AZURE_{option.field.upper()}"


def test_the_file_can_be_named_by_the_environment():
    settings = resolved(env={"BIGFLEET_AZURE_CONFIG": "c"}, files={"c": "seed-count: 9"})
    assert settings.seed_count == 9


def test_a_bad_value_that_a_better_source_overrides_is_no_fault():
    assert resolved("--seed-count=4", env={"BIGFLEET_AZURE_SEED_COUNT": "x"}).seed_count == 4


def test_an_empty_variable_is_an_empty_value_and_not_an_absent_one():
    assert resolved(env={"BIGFLEET_AZURE_METRICS_ADDR": ""}).metrics_addr is None
    assert faults_of(env={"BIGFLEET_AZURE_SEED_COUNT": ""}) == [
        "BIGFLEET_AZURE_SEED_COUNT='' is not a whole number such as 32"
    ]


def test_a_further_variable_of_an_option_is_read_after_its_own(monkeypatch):
    option = Option(
        name="provider",
        parse=str,
        default="azure",
        help="",
        group="",
        env_aliases=("PROVIDER_ELSEWHERE",),
    )
    others = tuple(each for each in OPTIONS if each.name != "provider")
    monkeypatch.setattr(module, "OPTIONS", (option, *others))
    assert resolved(env={"PROVIDER_ELSEWHERE": "b"}).provider == "b"
    own = {"BIGFLEET_AZURE_PROVIDER": "a", "PROVIDER_ELSEWHERE": "b"}
    assert resolved(env=own).provider == "a"


# What else is in the environment


@pytest.mark.behaviour(90)
def test_an_unknown_variable_of_ours_is_a_warning_and_no_fault():
    settings = resolved(env={"BIGFLEET_AZURE_SEEDCOUNT": "1", "HOME": "/", "BIGFLEET_X": "y"})
    assert settings.seed_count == 32
    assert settings.warnings == (
        "BIGFLEET_AZURE_SEEDCOUNT is no setting and is ignored; "
        "did you mean BIGFLEET_AZURE_SEED_COUNT?",
    )


def test_what_kubernetes_injects_for_our_services_is_passed_over_in_silence():
    names = [
        f"{service}_{suffix}"
        for service in ("BIGFLEET_AZURE", "BIGFLEET_AZURE_EASTUS", "BIGFLEET_AZURE_WEST_2")
        for suffix in (
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_GRPC",
            "PORT",
            "PORT_9000_TCP",
            "PORT_9000_TCP_PROTO",
            "PORT_9000_TCP_PORT",
            "PORT_9000_TCP_ADDR",
            "PORT_53_UDP",
        )
    ]
    assert resolved(env=dict.fromkeys(names, "tcp://10.0.0.1:9000")) == resolved()


def test_no_option_can_be_mistaken_for_what_kubernetes_injects():
    injected = re.compile(r".*(_PORT|_SERVICE_HOST|_SERVICE_PORT\w*|_PORT_\d+_\w+)")
    assert not [option.env for option in OPTIONS if injected.fullmatch(option.env)]


def test_the_variable_of_the_command_line_tools_is_known():
    assert resolved(env={"BIGFLEET_AZURE_SERVER": "localhost:9000"}).warnings == ()


# The file


def test_keys_of_the_file_are_flag_names_with_dashes_or_underscores():
    text = """
    seed-count: 12
    fake_seed: 010   # not octal
    addr: ":9100"
    metrics-addr: ""
    reflection: no
    use_fake_backend: true
    create-timeout: 1m30s
    fake-fail-rate: 0.5
    """
    settings = resolved("--config=c", files={"c": text})
    assert settings.seed_count == 12
    assert settings.fake_seed == 10
    assert settings.addr == Address("", 9100)
    assert settings.metrics_addr is None
    assert settings.reflection is False
    assert settings.use_fake_backend is True
    assert settings.create_timeout == timedelta(seconds=90)
    assert settings.fake_fail_rate == 0.5


def test_an_empty_file_sets_nothing():
    for text in ("", "# nothing\n", "{}"):
        settings = resolved("--config=c", files={"c": text})
        assert settings.seed_count == 32


def test_faults_of_the_file_name_its_line():
    text = "seed-count: x\ntls-kert: a\nstate:\nlog-level: [info]\nprovider: a\nprovider: b\n"
    assert sorted(faults_of("--config=c.yaml", files={"c.yaml": text})) == [
        "c.yaml:1: seed-count: x is not a whole number such as 32",
        "c.yaml:2: tls-kert is unknown; did you mean tls-cert or tls-key?",
        'c.yaml:3: state has no value; write "" or remove the line',
        "c.yaml:4: log-level wants one value, not a list or a map",
        "c.yaml:6: provider stands here a second time",
    ]


def test_one_option_under_both_spellings_is_a_repetition():
    assert faults_of("--config=c", files={"c": "seed-count: 1\nseed_count: 2"}) == [
        "c:2: seed_count stands here a second time"
    ]


def test_a_file_of_settings_must_not_hold_a_key_or_name_a_further_file():
    text = "state-key: 0123\nconfig: other\n"
    assert faults_of("--config=c", files={"c": text}) == [
        "c:1: state-key must not stand in a file of settings; set BIGFLEET_AZURE_STATE_KEY",
        "c:2: config cannot name a further file",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- a\n- b", "--config=c must consist of lines such as 'seed-count: 32'"),
        ("just words", "--config=c must consist of lines such as 'seed-count: 32'"),
        ("a: [", "--config=c is not YAML: .*line 1.*"),
        ("a: \0", "--config=c is not YAML: .*"),
    ],
)
def test_a_file_that_is_not_a_yaml_map_is_a_fault(text, fault):
    (found,) = faults_of("--config=c", files={"c": text})
    assert re.fullmatch(fault, found)


def test_a_file_that_cannot_be_read_is_a_fault_beside_the_others():
    assert faults_of("--config=gone", "--seed-count=x") == [
        "--config=gone cannot be read: No such file or directory",
        "--seed-count=x is not a whole number such as 32",
    ]


# Values that are right alone and wrong together


@pytest.mark.behaviour(87)
@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"cert"}, "--tls-key"),
        ({"key"}, "--tls-cert"),
        ({"ca"}, "--tls-cert and --tls-key"),
        ({"cert", "ca"}, "--tls-key"),
        ({"key", "ca"}, "--tls-cert"),
    ],
)
def test_a_part_of_the_tls_settings_is_a_fault(given, missing):
    (fault,) = faults_of(*(f"--tls-{name}=x.pem" for name in given))
    assert f"cannot be used without {missing};" in fault
    assert all(f"--tls-{name}=x.pem" in fault for name in given)


@pytest.mark.behaviour(87)
@pytest.mark.parametrize("names", [(), ("cert", "key"), ("cert", "key", "ca")])
def test_no_tls_tls_and_mutual_tls_are_the_three_ways(names):
    settings = resolved(*(f"--tls-{name}=x.pem" for name in names))
    assert (settings.tls_cert is not None) == ("cert" in names)
    assert (settings.tls_ca is not None) == ("ca" in names)


@pytest.mark.behaviour(87)
def test_the_tls_files_may_come_from_different_sources():
    settings = resolved("--tls-cert=c.pem", env={"BIGFLEET_AZURE_TLS_KEY": "k.pem"})
    assert settings.tls_key == Path("k.pem")


@pytest.mark.behaviour(93)
def test_both_backends_at_once_are_refused():
    assert faults_of(FAKE, "--azure-backend=azure", "--location=eastus") == [
        "--use-fake-backend=true and --azure-backend=azure contradict each other; "
        "remove one of them"
    ]


@pytest.mark.parametrize("flag", [FAKE, "--azure-backend=fake"])
def test_a_location_can_be_simulated_and_gives_the_zones_their_names(flag):
    settings = resolved("--location=westeurope", flag)
    assert (settings.zone_a, settings.zone_b) == ("westeurope-1", "westeurope-2")
    settings = resolved("--location=westeurope", flag, "--zone-b=elsewhere-3")
    assert (settings.zone_a, settings.zone_b) == ("westeurope-1", "elsewhere-3")


def test_a_key_without_a_state_is_refused_as_a_file_and_odd_in_the_environment():
    assert faults_of("--state-key-file=k") == [
        "--state-key-file=k has no use without a state file; add --state=FILE or remove it"
    ]
    settings = resolved(env={"BIGFLEET_AZURE_STATE_KEY": "k"})
    assert settings.warnings == ("BIGFLEET_AZURE_STATE_KEY=*** has no use without --state",)


def test_two_keys_are_refused():
    (fault,) = faults_of(
        "--state=s", "--state-key-file=k", env={"BIGFLEET_AZURE_STATE_KEY": "hidden"}
    )
    assert "both name a key" in fault
    assert "hidden" not in fault


def test_a_setting_without_effect_is_a_warning():
    settings = resolved("--transition-timeout=2s", "--drain-timeout=1m", FAKE)
    assert settings.warnings == ("--drain-timeout=1m has no effect beside --transition-timeout=2s",)
    settings = resolved("--offerings=o.json", "--seed-count=8", FAKE)
    assert settings.warnings == ("--seed-count=8 has no effect beside --offerings=o.json",)


@pytest.mark.behaviour(93)
def test_all_faults_are_reported_at_once_each_with_its_source():
    faults = faults_of(
        "--nope",
        "--addr=9000",
        "--tls-ca=ca.pem",
        "--state-key-file=k",
        "--config=c",
        env={"BIGFLEET_AZURE_LOG_LEVEL": "loud", "BIGFLEET_AZURE_LOCATION": "eastus"},
        files={"c": "drain-timeout: 30\nnope: 1\n"},
    )
    assert [fault.split(" ")[0] for fault in faults] == [
        "--nope",
        "c:2:",
        "--addr=9000",
        "c:1:",
        "BIGFLEET_AZURE_LOG_LEVEL=loud",
        "--tls-ca=ca.pem",
        "--state-key-file=k",
        "BIGFLEET_AZURE_LOCATION=eastus",
    ]


def test_a_faulty_value_does_not_drag_further_faults_behind_it():
    assert len(faults_of("--azure-backend=fak", "--location=eastus")) == 1
    assert len(faults_of("--state-key-file=k", "--state")) == 1


# What is made of them


def test_the_deadlines_come_from_the_four_timeouts():
    deadlines = resolved("--create-timeout=1m").deadlines
    assert deadlines == Deadlines(create=60, configure=480, drain=900, delete=480)
    assert deadlines.seconds(Kind.DRAIN, 3600) == 3900


def test_the_transition_timeout_sets_all_deadlines_exactly():
    deadlines = resolved("--transition-timeout=2s").deadlines
    assert [deadlines.seconds(kind, 3600) for kind in Kind] == [2, 2, 2, 2]


def test_the_key_is_never_shown():
    settings = resolved("--state=s", env={"BIGFLEET_AZURE_STATE_KEY": "planted-key"})
    assert settings.state_key is not None
    assert settings.state_key.reveal() == b"planted-key"
    assert "planted-key" not in repr(settings)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address("", 9000), ":9000"),
        (Address("::1", 9000), "[::1]:9000"),
        (Address("localhost", 0), "localhost:0"),
    ],
)
def test_an_address_is_written_as_it_is_read(address, text):
    assert str(address) == text
    assert resolved(f"--addr={text}").addr == address
