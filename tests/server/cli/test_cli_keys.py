"""`corral keys`, `--key`, `--tenant`; and the example of two teams, as the page has it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from ..harness import live_server, run_config
from .conftest import Corral

PAGE = Path(__file__).parents[3] / "docs" / "access.md"
SECRET = re.compile(r"^corral_[0-9a-f]{12}_[0-9a-f]{64}$")


def test_a_key_is_printed_once(corral: Corral) -> None:
    """`create` prints the key alone on stdout; `list` and `revoke` never show it again.

    If this fails: a key cannot be piped, or stays in a terminal's history twice.
    """
    made = corral("keys", "create", "ann", "--tenant", "acme", "--group", "hr", "--role", "writer")
    secret = made.stdout.strip()
    assert SECRET.match(secret)
    assert "shown only once" in made.stderr
    key_id = secret.split("_")[1]
    listed = corral("keys", "list")
    assert all(word in listed.stdout for word in (key_id, "ann", "acme", "hr", "writer", "valid"))
    assert corral("keys", "revoke", key_id).stdout == f"Key {key_id} of ann is revoked.\n"
    rows = json.loads(corral("keys", "list", "--json").stdout)
    assert [(row["key_id"], row["state"]) for row in rows] == [(key_id, "revoked")]
    assert secret.split("_")[2] not in listed.stdout + json.dumps(rows)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("keys", "create", ""), "a key needs the name of a user"),
        (("keys", "create", "ann", "--tenant", "*"), "a name must not be '*'"),
        (("keys", "create", "ann", "--group", "sales\n"), "a name must not have control"),
        (("keys", "create", "ann\u200b"), "a name must not have control"),
        (("keys", "create", "ann", "--expires-in-days", "0"), "0"),
        (("keys", "create", "ann", "--role", "root"), "reader"),
        (("--tenant", "*", "models"), "--tenant: a name must not be '*'"),
        (("--tenant", "acme ", "mcp"), "--tenant: a name must not have control"),
        (("ingest", "db", ".", "--acl", "tenant:*\n"), "--acl: a name must not have control"),
        (("keys", "create", "ann", "--expires-in-days", "36501"), "36501.0 is not in the range"),
        (("keys", "revoke", "nothing"), "There is no key 'nothing'."),
        (("--url", "http://127.0.0.1:1", "keys", "list"), "leave out --url"),
        (
            ("--url", "http://127.0.0.1:1", "--tenant", "acme", "models"),
            "the key determines the tenant",
        ),
        (("--tenant", "acme", "config", "show"), "config show works for all tenants; leave out"),
        (("--tenant", "acme", "keys", "list"), "keys list works for all tenants; leave out"),
        (("--url", "http://127.0.0.1:1", "--key", "a b", "models"), "contains invalid characters"),
    ],
)
def test_what_cannot_be_is_refused(invoke: Corral, words: tuple[str, ...], told: str) -> None:
    """The message says what is wrong, and the exit code that the input is to blame."""
    refused = invoke(*words)
    assert refused.exit_code == 2
    assert told in refused.stderr


def test_a_tenant_is_chosen_in_process(corral: Corral) -> None:
    """`--tenant` works for a tenant on the server's machine; each has names of its own."""
    assert corral("--tenant", "acme", "dbs", "create", "notes").exit_code == 0
    assert "notes" in corral("--tenant", "acme", "dbs", "list").stdout
    assert "notes" not in corral("--tenant", "globex", "dbs", "list").stdout
    assert "notes" not in corral("dbs", "list").stdout


def blocks() -> list[list[str]]:
    """Return the commands of the page's example, block by block."""
    example = PAGE.read_text("utf-8").split("## Example")[1].split("\n## ")[0]
    return [block.strip().splitlines() for block in re.findall(r"```\n(.*?)```", example, re.S)]


def test_the_example_of_two_teams_runs(
    tmp_path: Path, invoke: Corral, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of docs/access.md do what the page says that they do.

    If this fails: the page promises a separation that is not there.
    """
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "sales/prices.md": "A sheep is paid with forty coins.",
        "hr/salaries.md": "A shepherd is paid ninety coins.",
        "hr/holidays.md": "Holidays are paid days.",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    making, putting, asking = blocks()
    home = tmp_path / "home"
    made = [invoke("--home", home, *shlex.split(line)[1:]).stdout.strip() for line in making[:2]]
    with live_server(run_config(), home) as url:
        known = {"$URL": url, "$ANN": made[0], "$HAL": made[1]}
        names = ("prices.md", "salaries.md", "holidays.md")
        for line in [*putting, *asking]:
            command, _, wanted = line.partition("#")
            done = invoke(*(known.get(word, word) for word in shlex.split(command)[1:]))
            assert done.exit_code == 0, (line, done.output)
            if wanted:
                found = {name for name in names if name in done.stdout}
                assert found == set(wanted.split()), line
    assert making[2] == "corral serve"
