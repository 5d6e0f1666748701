"""The report's head: the ten lines of the audit as plain values."""

from __future__ import annotations

import shlex
from typing import Any

from gptlab.comparing.audit import audit_of
from gptlab.comparing.audit_lines import PASS
from gptlab.comparing.comparison import Comparison
from gptlab.store.study import Study
from gptlab.texts import cut, printable

LONGEST = 400  # characters of a reason: variants may be many


def protocol(study: Study, comparison: Comparison) -> dict[str, Any] | None:
    """What `gptlab audit` would say of this study, from the comparison that is at hand; None where it has no plan.

    `asked`: whether there is a protocol to look at first: something was trained, with seeds to compare.
    """
    found = audit_of(study.folder, comparison)
    if found is None:
        return None
    typed = shlex.join(comparison.command)  # what the report says below, and what is to be added is what differs
    return {
        "counted": found.counted,
        "asked": study.trained and len(comparison.seeds) > 1,
        "hash": found.protocol[:12],
        "command": printable(f"gptlab audit {shlex.quote(str(study.folder))}"),
        "lines": [
            {
                "name": line.name, "status": line.status, "word": line.status.replace(" ", "-"),
                "reason": cut(printable(line.reason), LONGEST),
                "mend": "" if line.status == PASS else printable(line.mend.removeprefix(f"{typed} ")),
            }
            for line in found.lines
        ],
    }  # fmt: skip
