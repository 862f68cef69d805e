"""The command line: its help, `corral dbs`, and what every command says where it cannot work."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

from corral.api.principal import Role
from corral.api.rankers import MaxRanker, RRFRanker, WeightedRanker
from corral.api.scoring import Metric
from corral.api.vector_dbs import SearchMode
from corral.providers.stack.stack import Stack
from corral.server.cli import cli, options

Corral = Callable[..., Result]


def settings_of(shown: Result) -> dict[str, str]:
    """Return what `dbs show` printed, by name."""
    assert shown.exit_code == 0, shown.output
    pairs = (line.split(maxsplit=1) for line in shown.stdout.splitlines())
    return {pair[0]: pair[1].strip() if len(pair) > 1 else "" for pair in pairs}


def test_help_imports_nothing_heavy() -> None:
    """`corral --help` answers at once: it loads no web framework, engine, model or tables.

    If this fails: import the named package where it is used.
    """
    code = (
        "import sys, corral.server.cli.cli;"
        "print(*{'fastapi','httpx','numpy','pydantic','rich','onnxruntime','apsw','yaml','asyncio'}"
        "& set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_choices_are_those_of_the_contract() -> None:
    """The command line offers exactly the modes, metrics and rankers that there are."""
    rankers = [ranker().type for ranker in (RRFRanker, WeightedRanker, MaxRanker)]
    assert list(options.MODES.choices) == [mode.value for mode in SearchMode]
    assert list(options.ROLES.choices) == [role.value for role in Role]
    assert list(options.METRICS.choices) == [metric.value for metric in Metric]
    assert list(options.RANKERS.choices) == rankers


def test_every_command_has_help(invoke: Corral) -> None:
    """Each command explains itself, and the list of them is the documented one."""
    assert set(cli.main.list_commands(click.Context(cli.main))) == {
        "serve", "demo", "state", "ingest", "query", "ask", "copy", "bench", "conformance", "dbs",
        "documents", "mcp", "providers", "models", "config", "keys", "reembed", "jobs",
        "export", "import", "sync", "doctor",
    }  # fmt: skip
    for words in (["ingest"], ["query"], ["copy"], ["dbs", "create"], ["config", "show"], ["demo"]):
        shown = invoke(*words, "--help")
        assert shown.exit_code == 0
        assert shown.stdout.startswith("Usage: ")


def all_commands(group: click.Group = cli.main, *words: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command with the words that call it, those of other packages too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from all_commands(command, *words, name)
        else:
            yield " ".join([*words, name]), command


def test_the_page_of_commands_is_complete() -> None:
    """docs/command-line.md lists every command with what its help says first.

    If this fails: change the table there; a user finds commands in it.
    """
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `corral ")]
    assert rows == [
        f"| `corral {words}` | {command.get_short_help_str(400)} |"
        for words, command in all_commands()
    ]


def test_every_option_is_explained() -> None:
    """Every option of every command says what it is, and not its default alone."""
    for words, command in all_commands():
        for option in command.params:
            if isinstance(option, click.Option):
                said = option.help or "["
                assert not said.startswith("["), f"{words} {option.opts}"


@pytest.mark.parametrize("words", [[], ["bench"], ["config"], ["dbs"], ["documents"], ["keys"]])
def test_a_list_of_commands_cuts_no_sentence(invoke: Corral, words: list[str]) -> None:
    """In 80 columns, each line of a list of commands holds all of what it says.

    If this fails: shorten the first sentence of that command's docstring.
    """
    assert "..." not in invoke(*words, "--help").stdout.partition("Commands:")[2]


def test_version(invoke: Corral) -> None:
    """`--version` prints the version of the distribution."""
    assert invoke("--version").stdout.split()[-1][0].isdigit()


# --- vector DBs -------------------------------------------------------------------------------


def test_a_vector_db_is_created_listed_shown_and_deleted(corral: Corral) -> None:
    """The life of a vector DB, with every setting given on the command line."""
    created = corral(
        "dbs", "create", "farm", "--provider", "sqlite", "--model", "hashing", "--mode", "keyword",
        "--language", "nb", "--metric", "l2", "--ranker", "max", "--field-weight", "title=3.5",
    )  # fmt: skip
    assert created.exit_code == 0, created.output
    assert "farm: keyword search on sqlite, embeddings hashing (64 dimensions)" in created.stdout
    listed = corral("dbs", "list").stdout
    assert all(word in listed for word in ("farm", "sqlite", "keyword", "max", "norwegian", "64"))
    shown = settings_of(corral("dbs", "show", "farm"))
    assert shown["field_weights.title"] == "3.5"
    assert shown["field_weights.content"] == "1.0"
    assert (shown["metric"], shown["ranker.type"], shown["language"]) == ("l2", "max", "norwegian")
    assert corral("dbs", "delete", "farm", "--yes").exit_code == 0
    assert corral("dbs", "list").stdout.startswith("No vector DB is registered.")


def test_creating_twice_is_fine_and_a_contradiction_is_not(corral: Corral) -> None:
    """The same settings again change nothing; other settings are refused with exit code 2."""
    assert corral("dbs", "create", "farm").exit_code == 0
    assert corral("dbs", "create", "farm").exit_code == 0
    other = corral("dbs", "create", "farm", "--mode", "vector")
    assert other.exit_code == 2
    assert "search_mode" in other.stderr


@pytest.mark.parametrize("name", ["a/b", "..", 'it\'s "x" ?#%', "emoji 🐄", "[bold]x[/bold]"])
def test_any_name_works(corral: Corral, name: str) -> None:
    """A vector DB may have any name; slashes, dots, quotes and brackets are ordinary.

    If this fails: see how `client` escapes ids in paths, or whether a table reads markup.
    """
    assert corral("dbs", "create", name).exit_code == 0
    assert settings_of(corral("dbs", "show", name))["identifier"] == name
    assert name in corral("dbs", "list").stdout
    assert corral("dbs", "delete", name, "--yes").exit_code == 0
    assert corral("dbs", "show", name).exit_code == 2


def test_deleting_without_a_terminal_needs_yes(corral: Corral) -> None:
    """Nothing is deleted where nobody can be asked."""
    corral("dbs", "create", "farm")
    refused = corral("dbs", "delete", "farm")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert "farm" in corral("dbs", "list").stdout


@pytest.mark.usefixtures("capsys")
@pytest.mark.parametrize(("answer", "left"), [("n", True), ("y", False)])
def test_deleting_on_a_terminal_asks(
    home: Path, corral: Corral, monkeypatch: pytest.MonkeyPatch, answer: str, left: bool
) -> None:
    """On a terminal the answer decides."""
    corral("dbs", "create", "farm")
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with os.fdopen(theirs) as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", terminal)
        with pytest.raises(SystemExit) as ended:
            cli.main(["--home", str(home), "dbs", "delete", "farm"])
    os.close(ours)
    assert ended.value.code == (1 if left else 0)
    assert ("farm" in corral("dbs", "list").stdout.split()) is left


@pytest.mark.parametrize("given", ["title", "=2", "title=heavy"])
def test_a_malformed_field_weight_is_refused(corral: Corral, given: str) -> None:
    """A field weight is FIELD=WEIGHT."""
    refused = corral("dbs", "create", "farm", "--field-weight", given)
    assert refused.exit_code == 2
    assert "FIELD=WEIGHT" in refused.stderr


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--key", "k", "models"], "--key needs --url"),
        (["reembed", "farm", "--abandon", "--model", "hashing"], "--abandon cannot be combined"),
        (["demo", "--max-tokens", "0"], "0 is not in the range x>=1."),
        (["demo", "--ask", " "], "--ask must not be empty."),
    ],
)
def test_what_means_nothing_is_refused_first(
    corral: Corral, invoke: Corral, words: list[str], told: str
) -> None:
    """Options that would be ignored, or fail after a minute's work, are refused at once."""
    refused = invoke(*words) if "demo" in words else corral(*words)
    assert refused.exit_code == 2
    assert told in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize("words", [["dbs", "list"], ["serve"], ["keys", "create", "ann"]])
def test_every_command_tells_a_folder_that_cannot_be(
    invoke: Corral, tmp_path: Path, words: list[str]
) -> None:
    """A data folder below a file: the same message and exit code from all commands.

    If this fails: one of them shows an operating system's error, or blames something else.
    """
    (tmp_path / "file").write_text("", encoding="utf-8")
    refused = invoke("--home", tmp_path / "file" / "home", *words)
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"Error: Cannot create the data folder {tmp_path / 'file' / 'home'}: Not a directory.\n"
        "Hint: Choose another with --home or CORRAL_HOME.\n"
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told_without_a_number(unbuffered: str) -> None:
    """Where the output cannot be written, the system's words say why, without its code.

    If this fails: Python reports at its end, with exit code 120, what it still had in memory.
    """
    code = "from corral.server.cli.cli import main; main(['config', 'show'])"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    assert done.stderr == "Error: No space left on device.\n"


@pytest.mark.parametrize("damage", ["no database at all", "half"])
@pytest.mark.sqlite_state("its damaged file")
def test_a_damaged_registry_is_named(
    corral: Corral, invoke: Corral, home: Path, damage: str
) -> None:
    """A state.db that cannot be read is one line with its path, not a 500 or a traceback."""
    for number in range(60):
        assert corral("dbs", "create", f"farm-{number}").exit_code == 0
    path = home / "state.db"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage == "half" else damage.encode() * 1000)
    for words in (["dbs", "list"], ["serve", "--port", "0"]):
        refused = invoke("--home", home, *words)
        assert refused.exit_code == 2, refused.output
        assert str(path) in refused.stderr
        assert "Traceback" not in refused.output


def test_a_data_folder_that_is_a_file_is_said(invoke: Corral, tmp_path: Path) -> None:
    """A data folder that cannot be made: one error, one hint, exit code 1."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    refused = invoke("--home", tmp_path / "file", "dbs", "list")
    assert refused.exit_code == 1
    assert "Cannot create the data folder" in refused.stderr
    assert "Hint: " in refused.stderr


def test_a_defect_is_no_traceback_in_process(
    corral: Corral, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the app fails unexpectedly, the command line says so as a server's client would.

    If this fails: an exception of the app went through the transport.
    """

    def broken(stack: Stack) -> None:
        raise RuntimeError("a secret of the user")

    monkeypatch.setattr(Stack, "vector_dbs", broken)
    failed = corral("dbs", "list")
    assert failed.exit_code == 1
    assert failed.stderr == "Error: The server failed on this request.\n"


def test_a_port_that_is_taken_is_said(home: Path) -> None:
    """`serve` on a port in use: what and where, exit code 1, no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            "-m",
            "corral.server.cli.cli",
            "--home",
            str(home),
            "serve",
        ]
        done = subprocess.run(
            [*command, "--port", port], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert f"port {port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_cannot_be_is_refused(corral: Corral) -> None:
    """A port is a number from 0 to 65535."""
    assert corral("serve", "--port", "99999").exit_code == 2


def test_options_that_contradict_each_other_are_refused(invoke: Corral, tmp_path: Path) -> None:
    """A folder of this machine has no meaning for another's server, nor a URL for `serve`."""
    url = "http://127.0.0.1:1"
    for words in (
        ["--url", url, "--home", tmp_path, "dbs", "list"],
        ["--url", url, "serve"],
        ["--url", url, "config", "show"],
        ["--url", url, "demo"],
        ["--home", tmp_path, "demo"],
    ):
        assert invoke(*words).exit_code == 2
