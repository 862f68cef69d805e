"""A small generated judged set: a workshop's repair notes, from a seed.

English: 300 notes on 15 devices with 10 faults each, one on repair and one on prevention, and 42
questions. German: 48 repair notes, 12 questions. Three kinds of question, by prefix of their ids,
so that each mode has strengths and weaknesses:

* `meaning`: the fault in a layman's words, which differ from the note's; finding it takes an
  embedding. The repair note is relevant 2, the prevention note 1.
* `code`: a part number that occurs in one note, with similar ones in others; finding it takes
  keywords.
* `both`: a device in other words, and a word of the remedy that several devices share.

It shows that the suite works, not how good a backend is: real texts are harder.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from corral.bench.data.judged import JudgedSet
from corral.bench.data.readers import CORPUS, QRELS, QUERIES, read_beir

MINIATURE = "miniature"


@dataclass(frozen=True, slots=True)
class Wording:
    """One language's words, as pairs of a note's and a layman's words, and sentence templates."""

    devices: tuple[tuple[str, str], ...]
    faults: tuple[tuple[str, str], ...]
    remedies: tuple[str, ...]
    repair: str
    prevention: str
    ask_meaning: tuple[str, ...]
    ask_code: tuple[str, ...]
    ask_both: str


ENGLISH = Wording(
    devices=(
        ("refrigerator", "fridge that keeps our food cold"),
        ("automobile", "car"),
        ("bicycle", "bike I ride to work"),
        ("television", "TV set"),
        ("washing machine", "thing that does my laundry"),
        ("lawn mower", "grass cutter"),
        ("electric kettle", "pot that boils water for tea"),
        ("smoke detector", "fire alarm on the ceiling"),
        ("heating boiler", "furnace in the basement"),
        ("vacuum cleaner", "hoover"),
        ("cellular telephone", "smartphone"),
        ("wristwatch", "timepiece on my arm"),
        ("camera", "device I take pictures with"),
        ("portable computer", "laptop"),
        ("elevator", "lift in our building"),
    ),
    faults=(
        ("does not start", "will not turn on"),
        ("leaks liquid", "leaves a puddle"),
        ("overheats", "gets far too hot"),
        ("rattles loudly", "is terribly noisy"),
        ("consumes excessive energy", "makes my electricity bill huge"),
        ("emits an unpleasant odor", "smells bad"),
        ("has a dark display", "shows only a black screen"),
        ("loses its charge overnight", "has an empty battery each morning"),
        ("vibrates strongly", "shakes a lot"),
        ("corrodes", "gets rusty"),
    ),
    remedies=(
        "replace the gasket",
        "clean the filter",
        "tighten the mounting screws",
        "exchange the fuse",
        "renew the capacitor",
        "lubricate the bearing",
        "solder the loose contact",
        "recalibrate the sensor",
        "install a new drive belt",
        "flush the valve",
    ),
    repair="Repair note: if the {device} {fault}, {remedy}. Use part {code}.",
    prevention="Prevention: {remedy} twice a year, so that the {device} never {fault}.",
    ask_meaning=("My {device} {fault}, what can I do?", "Help, the {device} {fault}!"),
    ask_code=("What is part {code} for?", "{code}"),
    ask_both="Where do I read that I should {remedy} for the {device}?",
)

GERMAN = Wording(
    devices=(
        ("Kühlschrank", "Eisschrank"),
        ("Fahrrad", "Drahtesel"),
        ("Fernseher", "TV-Gerät"),
        ("Rasenmäher", "Grasschneider"),
        ("Wasserkocher", "Teekessel"),
        ("Staubsauger", "Hoover"),
        ("Aufzug", "Lift"),
        ("Rechner", "Computer"),
    ),
    faults=(
        ("startet nicht", "geht nicht an"),
        ("verliert Flüssigkeit", "macht eine Pfütze"),
        ("überhitzt", "wird viel zu heiß"),
        ("klappert laut", "ist furchtbar lärmend"),
        ("verbraucht zu viel Energie", "macht die Stromrechnung hoch"),
        ("riecht unangenehm", "stinkt"),
    ),
    remedies=(
        "Dichtungen erneuern",
        "Filter reinigen",
        "Schrauben nachziehen",
        "Sicherung tauschen",
        "Lager schmieren",
        "Ventile spülen",
    ),
    repair="Reparatur: {device} {fault}? Dann {remedy}. Ersatzteil {code}.",
    prevention="",
    ask_meaning=("Mein {device} {fault}, was tun?",),
    ask_code=("Wofür ist das Ersatzteil {code}?",),
    ask_both="Wo steht, dass ich beim Gerät {device} die {remedy} soll?",
)


@dataclass(frozen=True, slots=True)
class _Note:
    key: str
    text: str
    device: int
    fault: int
    remedy: str
    code: str


def miniature_sets() -> list[JudgedSet]:
    """Return the English and the German set, via files in a scratch folder."""
    with tempfile.TemporaryDirectory() as folder:
        english, german = write_miniature(Path(folder))
        sets = [read_beir(english), read_beir(german, "german")]
    return [replace(each, kind=MINIATURE) for each in sets]


def write_miniature(folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """Write both sets in BEIR layout and return their folders; equal seeds write equal files."""
    rng = np.random.default_rng(seed)
    english, german = folder / f"{MINIATURE}-en", folder / f"{MINIATURE}-de"
    _write(english, ENGLISH, (18, 12, 12), rng)
    _write(german, GERMAN, (4, 4, 4), rng)
    return english, german


def _write(
    folder: Path, words: Wording, counts: tuple[int, int, int], rng: np.random.Generator
) -> None:
    notes = _notes(words, rng)
    repairs = [note for note in notes if note.code]
    drawn = [repairs[n] for n in rng.permutation(len(repairs))[: sum(counts)]]
    queries: list[dict[str, str]] = []
    qrels = ["query-id\tcorpus-id\tscore"]
    kinds = ["meaning"] * counts[0] + ["code"] * counts[1] + ["both"] * counts[2]
    for number, (kind, note) in enumerate(zip(kinds, drawn, strict=True)):
        key = f"{kind}-{number:02d}"
        queries.append({"_id": key, "text": _question(kind, number, note, words)})
        qrels += [f"{key}\t{other}\t{grade}" for other, grade in _relevant(kind, note, notes)]
    (folder / QRELS).mkdir(parents=True, exist_ok=True)
    _write_lines(folder / CORPUS, [{"_id": n.key, "title": "", "text": n.text} for n in notes])
    _write_lines(folder / QUERIES, queries)
    (folder / QRELS / "test.tsv").write_text("\n".join(qrels) + "\n", encoding="utf-8")


def _notes(words: Wording, rng: np.random.Generator) -> list[_Note]:
    """Return the notes on every fault of every device; remedies and part numbers are random."""
    notes = []
    count = len(words.devices) * len(words.faults)
    numbers = rng.permutation(np.arange(1000, 1000 + 7 * count, 7))
    for at in range(count):
        device, fault = divmod(at, len(words.faults))
        remedy = words.remedies[rng.integers(len(words.remedies))]
        code = f"{'KTRS'[at % 4]}X-{numbers[at]}"
        filled = {"device": words.devices[device][0], "fault": words.faults[fault][0]}
        text = words.repair.format(**filled, remedy=remedy, code=code)
        notes.append(_Note(f"repair-{at:03d}", text, device, fault, remedy, code))
        if words.prevention:
            text = words.prevention.format(**filled, remedy=remedy)
            notes.append(_Note(f"prevent-{at:03d}", text, device, fault, remedy, ""))
    return notes


def _question(kind: str, number: int, note: _Note, words: Wording) -> str:
    device, fault = words.devices[note.device][1], words.faults[note.fault][1]
    if kind == "meaning":
        asked = words.ask_meaning[number % len(words.ask_meaning)]
        return asked.format(device=device, fault=fault)
    if kind == "code":
        return words.ask_code[number % len(words.ask_code)].format(code=note.code)
    return words.ask_both.format(device=device, remedy=note.remedy)


def _relevant(kind: str, note: _Note, notes: list[_Note]) -> list[tuple[str, int]]:
    """Return (document id, grade): repair notes 2, their prevention notes 1."""
    if kind == "code":
        return [(note.key, 2)]
    wanted = [n for n in notes if n.device == note.device]
    if kind == "meaning":
        wanted = [n for n in wanted if n.fault == note.fault]
    else:
        wanted = [n for n in wanted if n.remedy == note.remedy]
    return [(n.key, 2 if n.code else 1) for n in wanted]


def _write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
