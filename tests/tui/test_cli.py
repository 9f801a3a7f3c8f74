"""The commands against a simulated fleet behind real agents: as processes where that is the question, else in this one."""

from __future__ import annotations

import csv
import io
import socket
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.cli import Done, rackrate, rackrate_inside, write_config
from tui import demo
from tui.demo import NODES

NODE_KEYS = {
    "node", "state", "age_seconds", "instance_type", "region", "zone", "purchase", "gpus", "usd_per_hour",
    "idle_usd_per_hour",
}  # fmt: skip
GPU_KEYS = {
    "index", "uuid", "model", "state", "utilization_ratio", "memory_used_bytes", "memory_total_bytes", "power_watts",
    "temperature_celsius", "energy_joules_total", "processes",
}  # fmt: skip
PROCESS_KEYS = {"pid", "user", "command", "memory_used_bytes", "utilization_ratio", "job"}


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A RACKRATE_HOME whose config.toml names the demo fleet, with six hours of history: a day of it takes seconds to make."""
    with patch.object(demo, "DAY_SECONDS", 6 * 3600), demo.simulated_fleet(seed=7) as (context, nodes):
        assert len(nodes) == NODES
        yield context.paths.config_file.parent


def token_and_url(home: Path) -> tuple[str, str]:
    from tui.config import load, resolve_paths

    node = load(resolve_paths(None, {"RACKRATE_HOME": str(home)})).nodes[0]
    assert node.token_file
    return node.token_file, node.url


def one_node(home: Path, **changes: str) -> str:
    token, url = token_and_url(home)
    values = {"name": "n", "url": url, "token_file": token, **changes}
    return "[[nodes]]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items())


def test_nodes_as_json_has_every_key_of_the_design_and_null_for_unknown(home: Path) -> None:
    records = rackrate(home, "nodes", "--json").json()
    assert len(records) == NODES
    for record in records:
        assert record.keys() >= NODE_KEYS
        for gpu in record["gpus"]:
            assert gpu.keys() >= GPU_KEYS
            for process in gpu["processes"] or ():
                assert process.keys() >= PROCESS_KEYS
    lost = [gpu for record in records for gpu in record["gpus"] if gpu["state"] == "lost"]
    assert lost and all(gpu["utilization_ratio"] is None and gpu["uuid"] for gpu in lost)


def test_money_of_a_node_is_a_decimal_string_and_idle_is_at_most_the_price(home: Path) -> None:
    for record in rackrate_inside(home, "nodes", "--json").json():
        assert 0 <= Decimal(record["idle_usd_per_hour"]) <= Decimal(record["usd_per_hour"])


def test_the_sum_of_a_query_is_the_sum_of_its_nodes(home: Path) -> None:
    query = ("gpu:A100",)
    nodes = rackrate_inside(home, "nodes", *query, "--json").json()
    total = rackrate_inside(home, "nodes", *query, "--sum", "--json").json()
    assert 0 < len(nodes) < NODES
    assert total["nodes"] == len(nodes)
    assert Decimal(total["usd_per_hour"]) == sum(Decimal(node["usd_per_hour"]) for node in nodes)


def test_gpus_lists_each_gpu_of_the_selected_nodes(home: Path) -> None:
    records = rackrate_inside(home, "gpus", "gpu:T4", "--json").json()
    assert len(records) == 5
    assert {record["model"] for record in records} == {"Tesla T4"}


def test_alerts_name_the_lost_gpu_with_its_cost(home: Path) -> None:
    lost = [alert for alert in rackrate_inside(home, "alerts", "--json").json() if alert["rule"] == "gpu_lost"]
    assert lost and all(Decimal(alert["usd_per_hour"]) > 0 for alert in lost)


def test_sync_twice_takes_each_row_once(home: Path) -> None:
    first = rackrate(home, "sync", "--json")
    again = rackrate(home, "sync", "--json")
    assert first.code == again.code == 0
    assert sum(record["new_rows"] for record in again.json()) < sum(record["new_rows"] for record in first.json()) / 10


def test_a_report_adds_up_to_the_nodes_price_to_the_cent(home: Path) -> None:
    stop = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    begin = stop - timedelta(hours=3)
    rackrate_inside(home, "sync")
    span = ("--from", begin.isoformat(), "--to", stop.isoformat(), "--no-sync")
    by_node = rackrate_inside(home, "report", "--format", "json", "--by", "node", *span).json()
    prices = {node["node"]: Decimal(node["usd_per_hour"]) for node in rackrate_inside(home, "nodes", "--json").json()}
    assert {row["node"] for row in by_node["rows"]} == set(prices)
    for row in by_node["rows"]:
        assert abs(Decimal(row["total_cost"]) - 3 * prices[row["node"]]) <= Decimal("0.01")
    exact = 3 * sum(prices.values())
    assert abs(Decimal(by_node["totals"]["total_cost"]) - exact) <= Decimal("0.01")
    text = rackrate_inside(home, "report", "--format", "csv", "--by", "user,project,node,job", *span).out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert sum(Decimal(row["total_cost"]) for row in rows) == Decimal(by_node["totals"]["total_cost"])


def test_a_report_goes_whole_into_its_file(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.csv"
    done = rackrate_inside(home, "report", "--format", "csv", "--by", "node", "--out", str(out), "--no-sync")
    assert done.code == 0 and done.out == ""
    assert out.read_text(encoding="utf-8").startswith("node,")
    assert [file.name for file in tmp_path.iterdir()] == ["report.csv"]


def test_cost_prints_today_and_this_month(home: Path) -> None:
    record = rackrate_inside(home, "cost", "--json", "--tz", "UTC").json()
    assert Decimal(record["today"]["total_cost"]) <= Decimal(record["month"]["total_cost"])


def test_prices_are_sorted_by_gpu_hour_and_dated() -> None:
    records = rackrate_inside(Path("/nonexistent"), "prices", "H100", "buy:spot", "cloud:aws", "--json").json()
    each = [record["price_per_gpu_hour"] and Decimal(record["price_per_gpu_hour"]) for record in records]
    known = [price for price in each if price is not None]
    assert known and known == sorted(known)
    assert each[len(known) :] == [None] * (len(each) - len(known)), "unknown is never the cheapest"
    assert all(record["as_of"] and record["source"] for record in records)


def test_a_configured_node_can_be_added_and_removed(home: Path, tmp_path: Path) -> None:
    token, url = token_and_url(home)
    file = write_config(tmp_path, "# my nodes\n")
    assert rackrate_inside(tmp_path, "add", url, "--token-file", token, "--tag", "team=vision").code == 0
    assert file.read_text().startswith("# my nodes\n")
    assert [node["node"] for node in rackrate_inside(tmp_path, "nodes", "--json").json()] == ["h100-train-01"]
    assert rackrate_inside(tmp_path, "add", url, "--token-file", token).code == 2
    assert rackrate_inside(tmp_path, "remove", "h100-train-01").code == 0
    assert file.read_text() == "# my nodes\n"


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def complains(done: Done, code: int, *words: str) -> None:
    """One clear sentence on stderr, the right exit code."""
    assert done.code == code, done
    for word in words:
        assert word in done.err, done.err


def test_an_unreachable_node_is_exit_3_and_names_host_and_port(tmp_path: Path) -> None:
    port = closed_port()
    write_config(tmp_path, f'[[nodes]]\nname = "gone"\nurl = "http://127.0.0.1:{port}"\n')
    complains(rackrate(tmp_path, "nodes"), 3, "gone", str(port))
    for command in (("sync",), ("gpus", "--json")):
        complains(rackrate_inside(tmp_path, *command), 3, "gone", str(port))


def test_some_nodes_unreachable_is_exit_4_and_the_rest_is_printed(home: Path, tmp_path: Path) -> None:
    dead = f'[[nodes]]\nname = "gone"\nurl = "http://127.0.0.1:{closed_port()}"\n'
    write_config(tmp_path, one_node(home) + dead)
    done = rackrate_inside(tmp_path, "nodes", "--json")
    complains(done, 4, "gone")
    assert [record["state"] for record in done.json()] == ["live", "lost"]


def test_a_wrong_token_says_which_and_what_to_do(home: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.token").write_text("rr_0_wrong\n")
    write_config(tmp_path, one_node(home, token_file="bad.token"))
    complains(rackrate_inside(tmp_path, "nodes"), 3, "token")


def test_a_missing_token_file_names_node_and_file(home: Path, tmp_path: Path) -> None:
    write_config(tmp_path, one_node(home, token_file="no.token"))
    complains(rackrate_inside(tmp_path, "nodes"), 3, "`n`", "no.token")


def test_a_wrong_url_is_told_from_an_agent(home: Path, tmp_path: Path) -> None:
    _, url = token_and_url(home)
    write_config(tmp_path, one_node(home, url=url.rstrip("/") + "/elsewhere"))
    complains(rackrate_inside(tmp_path, "nodes"), 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour = 'red'\n", ("config.toml", "colour")),
        ('[[nodes]]\nname = "a"\nurl = "http://x:1"\ntokenfile = "t"\n', ("tokenfile", "token_file")),
        ('[[nodes]]\nname = "a"\nurl = "x:1"\n', ("x:1",)),
        ('[[nodes]]\nname = "a"\n', ("url",)),
        ("[[nodes\n", ("config.toml",)),
        ("timezone = 'Mars/Olympus'\n", ("Mars/Olympus",)),
        ("silent_seconds = 1\n", ("silent_seconds", "4")),
        ('[[nodes]]\nname = "a"\nurl = "http://x:1"\n[[nodes]]\nname = "a"\nurl = "http://x:2"\n', ("`a`",)),
    ],
)
def test_a_wrong_configuration_is_exit_2_and_names_file_and_key(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    write_config(tmp_path, text)
    complains(rackrate_inside(tmp_path, "nodes"), 2, *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "--no-sync", "--from", "2026-02-30"), ("2026-02-30",)),
        (("report", "--no-sync", "--from", "yesterday"), ("yesterday",)),
        (("report", "--no-sync", "--from", "2026-03-02", "--to", "2026-03-01"), ("2026-03-01",)),
        (("report", "--no-sync", "--by", "usre"), ("usre", "user")),
        (("report", "--no-sync", "--tz", "Nowhere/None"), ("Nowhere/None",)),
        (("nodes", "colour:red"), ("colour",)),
        (("nodes", "util<much"), ("much",)),
        (("nodes", "'open"), ("quot",)),
        (("prices", "color:red"), ("color",)),
        (("screenshot", "x.gif"), (".png",)),
        (("remove", "nobody"), ("nobody",)),
        (("add", "no-url"), ("no-url",)),
        (("--config", "/nonexistent/config.toml", "nodes"), ("/nonexistent/config.toml",)),
    ],
)
def test_wrong_usage_is_exit_2_and_one_sentence(home: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    done = rackrate_inside(home, *arguments)
    complains(done, 2, *words)
    assert done.out == ""


def test_no_control_sequence_of_a_file_reaches_the_terminal_in_a_sentence(tmp_path: Path) -> None:
    plan = tmp_path / "w.toml"
    plan.write_text('name = "a\\u001b]52;c;aGk=\\u0007"\n[work]\n"key\\u001b[2J" = 1\n')
    for arguments in (("plan", str(plan)), ("plan", "\x1b[2J.toml"), ("cost", "--tz", "Mars\x1b[31m"), ("ledger", "backup", "/no\x9b/x")):
        done = rackrate(tmp_path, *arguments)
        assert done.code != 0 and done.err.startswith("rackrate: "), done
        assert all(sign.isprintable() or sign == "\n" for sign in done.err), done


def test_a_ledger_of_a_newer_version_is_refused_and_left_alone(home: Path, tmp_path: Path) -> None:
    write_config(tmp_path, one_node(home))
    assert rackrate_inside(tmp_path, "sync").code == 0
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        db.execute("PRAGMA user_version = 9999")
    db.close()
    for command in ("sync", "cost", "report"):
        complains(rackrate_inside(tmp_path, command), 1, "ledger.db", "9999")


def test_a_damaged_ledger_is_named(home: Path, tmp_path: Path) -> None:
    write_config(tmp_path, one_node(home))
    (tmp_path / "ledger.db").write_bytes(b"not a database at all" * 200)
    complains(rackrate(tmp_path, "report"), 1, "ledger.db")


def test_an_output_file_that_cannot_be_written_is_named(home: Path) -> None:
    done = rackrate(home, "report", "--no-sync", "--format", "csv", "--out", "/nonexistent/dir/x.csv")
    complains(done, 1, "/nonexistent/dir")


def test_doctor_checks_nodes_ledger_and_prices(home: Path) -> None:
    records = rackrate(home, "doctor", "--json").json()
    names = {record["name"] for record in records}
    assert {"configuration", "ledger", "prices", "terminal", "node h100-train-01"} <= names


def test_every_command_has_help_and_the_program_a_version(tmp_path: Path) -> None:
    from tui.cli import build_parser

    assert rackrate(tmp_path, "--version").out.startswith("rackrate ")
    [commands] = [action for action in build_parser()._actions if hasattr(action, "choices") and isinstance(action.choices, dict)]
    for name, parser in commands.choices.items():
        assert parser.description, name


def test_completion_prints_a_script(tmp_path: Path) -> None:
    assert "report" in rackrate_inside(tmp_path, "completion", "bash").out


def test_without_a_terminal_the_demo_prints_fleet_and_report_and_leaves_no_process(tmp_path: Path) -> None:
    import subprocess

    done = rackrate(tmp_path, "demo")
    assert done.code == 0
    assert "h100-train-01" in done.out and "(idle)" in done.out and "total" in done.out
    left = subprocess.run(["pgrep", "-f", f"{tmp_path}"], capture_output=True, text=True).stdout
    assert left == ""


def test_with_nothing_configured_this_machine_is_shown_and_its_agent_ends(tmp_path: Path) -> None:
    [record] = rackrate(tmp_path, "nodes", "--json").json()
    assert record["state"] == "live" and record["host"]["memory_total_bytes"] > 0
    assert record["usd_per_hour"] is None and record["price_reason"]
    if not record["gpus"]:
        assert record["gpu_reason"]
