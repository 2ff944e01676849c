"""Bad input for the command: lines that cannot be meant, and damaged files. ``CASES`` has them by hand, ``drawn`` by seed.

The command has to refuse each of them with one line and exit code 2, and to leave every file as it was. A file that was drawn may
happen to be fine: then the command has to do its work.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import bad_files
import bad_lines
import damage
from case import CUT, MINE, NETWORKS, PORES, RUN, TINY, Case
from command import convergent
from damage import Damage, entry, flipped, heading, kept


def playground(folder: Path) -> Path:
    """A finished run, one that was cut off, one on tables of its own, and such tables."""
    for arguments in (
        ("data", "pore-networks", "--graphs", 4, "--out", folder / NETWORKS, *PORES),
        ("train", "pore-networks", *TINY, "--out", folder / RUN, *PORES),
        (
            "train",
            "folder",
            "--data",
            folder / NETWORKS,
            "--target",
            "pressure",
            *TINY,
            "--set",
            "logs=length",
            "--out",
            folder / MINE,
        ),
    ):
        code, _, complained = convergent(*arguments)
        assert code == 0, complained
    shutil.copytree(folder / RUN, folder / CUT)
    (folder / CUT / "result.json").unlink()
    entry("steps", 4)(folder / CUT / "config.json")
    return folder


def violation(case: Case, ground: Path, scratch: Path) -> str | None:
    """What is wrong with how the command meets the case, in a copy of the playground; None: nothing."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(ground, scratch)
    if case.file is not None and case.damage is not None:
        case.damage(scratch / case.file)
    before = contents(scratch)
    try:
        code, said, complained = convergent(*(_placed(each, scratch) for each in case.arguments))
    except Exception as error:  # what would be a traceback
        return f"{type(error).__name__}: {error}"
    if code == 0 and not case.hopeless:
        return None
    if code != 2:
        return f"exit code {code}: {said}{complained}"
    if not complained.startswith("convergent: ") or complained.count("\n") != 1 or said:
        return f"expected one line, but got {said!r} and {complained!r}"
    after = contents(scratch)
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return f"left behind or changed: {', '.join(changed)}" if changed else None


def _placed(argument: str, scratch: Path) -> str:
    return str(scratch / argument[1:]) if argument.startswith("/") else argument


def contents(folder: Path) -> dict[str, str]:
    """Every file and folder by name, with its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
    return found


CASES: tuple[Case, ...] = (*bad_lines.cases(), *bad_files.cases())

# --- by seed ---

# fmt: off
JUNK: tuple[object, ...] = (
    None, True, "x", "", "\x1b[31m", -1, 0.5, float("nan"), float("inf"), 10**30, [], [[]], {}, {"a": 1}, "\ud800", [None],
)
TYPED = (
    "x", "0", "-1", "1.5", "true", "null", "NaN", "1e999", "99999999999", "9" * 30, "[]", "{}", "1,2,3", "x,y", "[/b]", "é", "a\nb",
    "'", "\\", "\x1b[31m", "\udcff",
)
# fmt: on
SETTINGS = {
    "--set": ("pores", "generator", "wide", "colour"),
    "--model-set": (
        "heads",
        "hidden",
        "decoder",
        "dropout",
        "gamma",
        "solver",
        "last",
        "nonlinearity",
        "normalization",
        "fixed_bias",
    ),
}
# Not --rate: with a large one a training begins, diverges, and keeps what it has done.
OPTIONS = (
    "--seed",
    "--clip",
    "--schedule",
    "--model",
    "--device",
    "--devices",
    "--patience",
    "--renew",
    "--target",
    "--data",
)


def drawn(seed: int, count: int) -> Iterator[Case]:
    """Damaged files at random, and junk for a random setting."""
    rng = random.Random(seed)
    doors = [
        (f"{CUT}/config.json", ("train", "--resume", f"/{CUT}")),
        (f"{RUN}/result.json", ("train", "--resume", f"/{RUN}")),
        (f"{CUT}/checkpoint.pt", ("train", "--resume", f"/{CUT}")),
        (f"{MINE}/model.safetensors", ("evaluate", f"/{MINE}", "--data", f"/{NETWORKS}")),
        (f"{NETWORKS}/nodes.csv", ("evaluate", f"/{MINE}", "--data", f"/{NETWORKS}")),
        (f"{NETWORKS}/nodes.parquet", ("data", "folder", "--data", f"/{NETWORKS}", "--target", "pressure")),
        (f"{NETWORKS}/edges.csv", ("data", "folder", "--data", f"/{NETWORKS}", "--target", "pressure")),
    ]
    for number in range(count):
        if rng.random() < 0.3:
            yield Case(_line(rng), name=f"{number} of seed {seed}", hopeless=False)
            continue
        file, reads = rng.choice(doors)
        name, each = _drawn(rng, file)
        if file.endswith(".parquet"):  # made first, of the table that is there
            file, each = NETWORKS, damage.together(damage.parquet(lambda read: read), damage.table(each, "nodes.parquet"))
        yield Case(reads, file, each, f"{name}, {number} of seed {seed}", hopeless=False)


def _line(rng: random.Random) -> tuple[str, ...]:
    """A short training with junk for an option or a setting."""
    option = rng.choice((*OPTIONS, *SETTINGS, *SETTINGS))
    typed = rng.choice(TYPED)
    given = f"{rng.choice(SETTINGS[option])}={typed}" if option in SETTINGS else typed
    pores = () if given.startswith("pores=") else PORES
    return (*bad_lines.TRAIN, *pores, option, given)


def _drawn(rng: random.Random, file: str) -> tuple[str, Damage]:
    wrong = {
        "config.json": bad_files.WRONG_CONFIG,
        "result.json": bad_files.WRONG_RESULT,
        "model.safetensors": bad_files.WRONG_HEADER,
        "checkpoint.pt": bad_files.WRONG_CHECKPOINT,
    }
    names = wrong.get(file.rpartition("/")[2])
    if names is not None and rng.random() < 0.5:
        name, value = rng.choice(list(names)), rng.choice(JUNK)
        change = {"model.safetensors": heading, "checkpoint.pt": kept}.get(file.rpartition("/")[2], entry)
        return f"{name} {value!r}", change(name, value)
    if rng.random() < 0.2:
        return "cut", damage.cut(rng.random())
    bits = rng.choice((1, 3, 30))
    return f"{bits} bits", flipped(rng.randrange(2**32), bits)
