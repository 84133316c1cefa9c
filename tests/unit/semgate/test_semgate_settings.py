"""Flags > environment > TOML > defaults; unknown names are refused with the nearest; every field is documented."""

from __future__ import annotations

import argparse
import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from sembase.settings import reference_table, rows_of
from sembase.values import flag, origin, port, seconds, whole
from semgate.cli.arguments import add_settings
from semgate.settings import (
    KINDS,
    PickerSettings,
    ProxySettings,
    RouterSettings,
    ServerSettings,
    load,
)

SEEDS = {
    "SEMANTICKV_UPSTREAM_BASE_URL",
    "SEMANTICKV_TRACE_OUTPUT_DIR",
    "SEMANTICKV_REDACT_TEXT",
    "SEMANTICKV_PROXY_TIMEOUT_SECONDS",
    "SEMANTICKV_REPLICAS",
    "SEMANTICKV_ROUTING_POLICY",
}


def toml(folder: Path, text: str) -> Path:
    path = folder / "semgate.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_win_over_environment_over_file_over_default(tmp_path: Path) -> None:
    config = toml(tmp_path, '[router]\nport = 1\nhost = "file"\nmax_attempts = 7\n')
    around = {"SEMGATE_PORT": "2", "SEMGATE_HOST": "environment"}
    made = load(RouterSettings, {"port": "3", "host": None}, around, config)
    assert (made.port, made.host, made.max_attempts, made.admin_port) == (3, "environment", 7, 0)


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    config = toml(tmp_path, "[proxy]\nport = 77\n[router]\nport = 78\n")
    assert load(ProxySettings, None, {"SEMGATE_CONFIG": str(config)}).port == 77
    assert load(RouterSettings, None, {"SEMGATE_CONFIG": str(config)}).port == 78


def test_replicas_in_every_way_of_writing(tmp_path: Path) -> None:
    expected = ("http://a:1;name=x;events=tcp://a:5557", "http://b:2")
    by_variable = load(RouterSettings, None, {"SEMANTICKV_REPLICAS": ", ".join(expected)})
    config = toml(
        tmp_path,
        '[router]\nreplicas = [{url = "http://a:1", name = "x", events = "tcp://a:5557"}, "http://b:2"]\n',
    )
    assert by_variable.replicas == expected
    assert load(RouterSettings, None, {}, config).replicas == expected


@pytest.mark.parametrize(
    ("around", "message"),
    [
        ({"SEMGATE_PROT": "1"}, "SEMGATE_PROT is not a setting of semgate; the nearest is SEMGATE_PORT"),
        ({"SEMANTICKV_REPLICA": "x"}, "the nearest is SEMANTICKV_REPLICAS"),
        ({"SEMGATE_PORT": "70000"}, "SEMGATE_PORT='70000': expected a port between 0 and 65535"),
        ({"SEMANTICKV_REDACT_TEXT": "perhaps"}, "expected true or false"),
        ({"SEMGATE_LOG_LEVEL": "loud"}, 'expected one of "debug", "info", "warning", "error"'),
        ({"SEMANTICKV_UPSTREAM_BASE_URL": "localhost:1"}, "expected a URL such as"),
    ],
)
def test_what_is_wrong_is_named(around: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(ProxySettings, None, around)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[router]\nprot = 1\n", "unknown key router.prot; the nearest is port"),
        ("[rooter]\n", "unknown table [rooter]; known: [proxy], [router] and [picker]"),
        ("router = 3\n", "'router' must be a table"),
        ("[router\n", "is not TOML"),
        ("[proxy]\nnonsense = 1\n", "unknown key proxy.nonsense"),
        ("[router]\nreplicas = [{name = 'x'}]\n", "a replica with its url"),
    ],
)
def test_a_wrong_file_is_refused_whole(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(RouterSettings, None, {}, toml(tmp_path, text))
    assert message in str(refused.value)


def test_the_seeds_variables_are_kept_and_each_variable_has_one_meaning() -> None:
    by_variable: dict[str, set[str]] = {}
    for kind in KINDS:
        for row in rows_of(kind):
            by_variable.setdefault(row.variable, set()).add(row.name)
    assert set(by_variable) >= SEEDS
    assert {name: meant for name, meant in by_variable.items() if len(meant) > 1} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_in_the_reference_and_its_default_can_be_written(kind: type[ServerSettings]) -> None:
    table = reference_table(kind, ("TOML key (flag)", "Environment", "Default", "Description"))
    for row in rows_of(kind):
        assert f"`{row.name}` (`--{row.name.replace('_', '-')}`) | `{row.variable}`" in table
        assert row.description.strip()
        if row.default_text() != "none":
            assert row.parser(row.default_text()) == row.default


@pytest.mark.parametrize(
    ("kind", "name", "instead"),
    [
        (RouterSettings, "workers", "several routers"),
        (PickerSettings, "workers", "several routers"),
        (PickerSettings, "unary_port", "external processing"),
    ],
)
def test_a_removed_setting_is_answered_by_what_replaced_it(
    kind: type[ServerSettings], name: str, instead: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = f"was removed; .*{instead}"
    with pytest.raises(ConfigurationError, match=f"SEMGATE_{name.upper()} {wanted}"):
        load(kind, None, {f"SEMGATE_{name.upper()}": "2"})
    with pytest.raises(ConfigurationError, match=f"{kind.table}.{name} {wanted}"):
        load(kind, None, {}, toml(tmp_path, f"[{kind.table}]\n{name} = 2\n"))
    parser = argparse.ArgumentParser()
    add_settings(parser, kind)
    flag = f"--{name.replace('_', '-')}"
    assert flag not in parser.format_help()
    with pytest.raises(SystemExit):
        parser.parse_args([flag, "2"])
    assert re.search(f"{flag}: {wanted}", capsys.readouterr().err)


@given(st.text(max_size=20))
def test_parsers_raise_nothing_but_value_errors(text: str) -> None:
    for parse in (flag, whole(), port, seconds, origin):
        with contextlib.suppress(ValueError):
            parse(text)


@pytest.mark.parametrize("text", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_what_people_paste_is_understood(text: str) -> None:
    assert origin(text) == "http://h:1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SEMGATE_ROUTER_SERVICE_HOST", "10.0.0.1"),
        ("SEMGATE_ROUTER_SERVICE_PORT", "8020"),
        ("SEMGATE_ROUTER_SERVICE_PORT_HTTP", "8020"),
        ("SEMGATE_ROUTER_PORT", "tcp://10.0.0.1:8020"),
        ("SEMGATE_ROUTER_PORT_8020_TCP", "tcp://10.0.0.1:8020"),
        ("SEMGATE_ROUTER_PORT_8020_TCP_ADDR", "10.0.0.1"),
        ("SEMGATE_ROUTER_PORT_8020_TCP_PROTO", "tcp"),
    ],
)
def test_the_variables_of_a_kubernetes_service_are_no_settings(name: str, value: str) -> None:
    assert load(RouterSettings, None, {name: value}) == RouterSettings()
    with pytest.raises(ConfigurationError, match="SEMGATE_PORTT"):
        load(RouterSettings, None, {name: value, "SEMGATE_PORTT": "1"})


def test_a_block_has_at_least_one_token() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        load(RouterSettings, None, {"SEMGATE_BLOCK_TOKENS": "0"})
    with pytest.raises(ConfigurationError, match="65535"):
        load(RouterSettings, None, {"SEMGATE_EVENTS_PORT": "70000"})
