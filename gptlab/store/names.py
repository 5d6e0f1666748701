"""What the files and folders of a study and its runs are called, and how times are written there."""

from __future__ import annotations

import re
from datetime import UTC, datetime

PLAN, PLANS = "plan.json", "plans"  # of a study: the latest plan, and the folder of all of them
RESULT, MANIFEST, CONFIG, CRASH = "result.json", "manifest.json", "config.yaml", "crash.json"
LAYERS, GENERATION, SAMPLES, HISTORY = "layers.csv", "generation.json", "samples.json", "metrics.jsonl"
HELDOUT = "heldout.csv"
CHECKPOINTS = "checkpoints"
MARKS = "marks.json"  # what people write beside a run: no part of it
RUN_NAME = re.compile(r".+-s(?P<seed>\d+)-(?P<id>[0-9a-f]{8,64})")
SHOWN_ID = re.compile(r"r[0-9a-f]{8,64}")  # as tables have it
STAMP = re.compile(r"(\d{4}-\d{2}-\d{2})_(\d{2})-(\d{2})-(\d{2})-\d{6}")  # the folders of older studies


ID_LENGTH = 8  # of the 64 hex digits: enough to tell runs apart, short enough to read


def short_id(run_id: str) -> str:
    """An id as tables have it: the letter r and its first digits, for 4e632029 reads as a number; empty for none."""
    return f"r{run_id[:ID_LENGTH]}" if run_id else ""


def bare_id(word: str) -> str:
    """The hex digits of an id, or of its beginning, with or without the letter; empty when `word` is none."""
    digits = word.removeprefix("r")
    return digits if digits and not set(digits) - set("0123456789abcdef") else ""


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def stamp() -> str:
    """The local time to the microsecond, fit for a file name."""
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")


def seed_in(name: str) -> int | None:
    """The seed that the name of a run folder tells; None for another name."""
    match = RUN_NAME.fullmatch(name)
    return int(match["seed"]) if match and len(match["seed"]) < 20 else None
