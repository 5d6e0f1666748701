"""Names that would be code if any place of the report forgot to escape them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.support.synthetic import BASELINE, Variant, make_study

ATTACK = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
NAMES = (
    "none",
    ATTACK,
    "'\"><svg onload=document.title='owned'>",
    "<!--<script>",
    "-->]]>&amp;&#60;{{ 7*7 }}{% raw %}",
    "a\u2028b\u202ec\x1b[31m\ud800",
    "=HYPERLINK(1)$x$\\",
    "__proto__",
)


def make_hostile(root: Path) -> Path:
    """A study whose every text is hostile: names, settings, errors, generated tokens, question, command."""
    variants = [
        replace(
            BASELINE,
            label=name,
            loss=10.9 + 0.01 * place,
            delta={} if not place else {f"model.{name}": ("old " + ATTACK, name)},
            words=(ATTACK, name.encode("utf-8", "replace").decode(), "\x00"),
            warnings=(ATTACK,),
        )
        for place, name in enumerate(NAMES)
    ]
    variants.append(Variant(f"failed {ATTACK}", state="failed", error=f"ValueError: {ATTACK}\nmore {ATTACK}"))
    folder = make_study(root, variants, (1, 2, 3), name="hostile", question=f"Is it safe? {ATTACK}")
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    plan |= {"study": f"study {ATTACK}", "command": ["gptlab", ATTACK]}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    return folder
