"""A comparison as LaTeX tables: booktabs and siunitx, for any engine, whatever is in the names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from gptlab.comparing.advice import too_few
from gptlab.comparing.caption import caption, lost_runs
from gptlab.comparing.comparison import Comparison
from gptlab.show.columns import PAPER, Column, Entry
from gptlab.show.tables import Table, tables
from gptlab.texts import printable

# pdfTeX stops at a letter that its fonts lack; it gets the code point, other engines (Umathcode) the letter itself.
OTHERS = r"\DeclareRobustCommand{\gptlabchar}[2]{\ifdefined\Umathcode#1\else{\ttfamily U+#2}\fi}"
LONG = 20  # characters: a longer text is broken into lines
PAGE, LETTER = 345, 4.2  # points: the text of a portrait A4 page (class article), a letter in footnotesize
# Columns that belong together; all others are numbers.
IDEAS = dict.fromkeys(("changed", "matched", "seeds", "parameters_percent", "flops_percent"), "change")
IDEAS |= dict.fromkeys(("tuned", "sensitivity", "at_baseline"), "tuned")
IDEAS |= {"verdict": "words", "note": "words"}
# What pdfTeX's default encoding can set beside ASCII: these, and up to LAST the ASCII letters with these accents.
LETTERS = "ßæÆœŒøØłŁı–—‘’“”…"
LAST = "\u017f"
ACCENTS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c"
_NUMBER = re.compile(r"[+-]?\d+(,\d{3})*(\.\d+)?(e[+-]\d+)?")
_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': '{"}', "±": r"$\pm$", "'": "{'}", "`": "{`}", "[": "{[}", "]": "{]}",
}  # fmt: skip


def latex(comparison: Comparison, columns: Sequence[str] = (), called: str = "") -> str:
    """All tables, with the definitions they need above them. `columns`: one table with these; `called`: its caption."""
    parts = []
    said = printable(f"{too_few(comparison)} {caption(comparison)}".strip())
    for table in tables(comparison, PAPER, columns):
        rest = " ".join(filter(None, (table.common, said)))
        words = printable(called) or f"{table.title}. {rest}".strip()
        said = ""  # how to read the numbers, once
        parts += [
            r"\begin{table}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",  # a comparison is wide
            rf"\caption{{{_tex(words)}}}",
        ]
        for number, places in enumerate(_fitting(table)):
            parts += [r"\par\medskip"] * bool(number) + _tabular(table, places)
        if called and rest:  # a caption of the user's own does not say it
            parts.append(rf"\par\smallskip\parbox{{\linewidth}}{{\scriptsize {_tex(rest)}}}")
        parts.append(r"\end{table}")
    first = ["% In the preamble: \\usepackage{booktabs,siunitx}"]
    first += [OTHERS] if any(r"\gptlabchar" in part for part in parts) else []
    said_too = [f"% Warning: {_comment(text)}" for text in (*lost_runs(comparison), *comparison.warnings)]
    return "\n".join([*first, *parts, *said_too]) + "\n"


def _fitting(table: Table) -> list[list[int]]:
    """The columns of each tabular: as many ideas side by side as a portrait page takes, the variant before each."""
    groups: list[list[int]] = []
    last: tuple[str, str] | None = None
    for place, column in enumerate(table.columns[1:], 1):
        name, _, step = column.name.partition("_at_")
        idea = (IDEAS.get(name, "numbers"), step)
        if idea != last:
            groups.append([])
        groups[-1].append(place)
        last = idea
    found = [[0]]
    for group in groups:
        if sum(_width(table, place) for place in found[-1] + group) > PAGE and len(found[-1]) > 1:
            found.append([0])
        for place in group:
            if sum(_width(table, other) for other in [*found[-1], place]) > PAGE and len(found[-1]) > 1:
                found.append([0])
            found[-1].append(place)
    return found


def _width(table: Table, place: int) -> float:
    """About how wide the column will be, in points."""
    header, texts = table.columns[place].header, [line[place].text for line in table.lines]
    power = 20 if table.columns[place].kind == "number" and any("e" in text for text in texts) else 0
    longest = max(map(len, texts), default=0)
    longest = min(longest, LONG) if table.columns[place].kind == "text" else longest
    return max(LETTER * len(header), LETTER * longest + power) + 6


def _tabular(table: Table, places: Sequence[int]) -> list[str]:
    columns = "".join(_latex_column(table, place) for place in places)
    head = " & ".join(f"{{{_tex(table.columns[place].header)}}}" for place in places)
    lines = [
        " & ".join(_latex_cell(table.columns[place], line[place]) for place in places) + r" \\" for line in table.lines
    ]
    first, last = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
    return [first, r"\toprule", rf"{head} \\", r"\midrule", *lines, r"\bottomrule", last]


def _latex_column(table: Table, place: int) -> str:
    """`l` for text (a paragraph where it is long), siunitx's `S` with room for the column's digits for numbers."""
    if table.columns[place].kind == "text":
        long = max(len(line[place].text) for line in table.lines) > LONG
        return rf">{{\raggedright\arraybackslash}}p{{{LONG / 2:g}em}}" if long else "l"
    texts = [line[place].text for line in table.lines if _NUMBER.fullmatch(line[place].text)]
    whole = max((len(text.lstrip("+-").partition(".")[0]) for text in texts), default=1)
    part = max((len(text.partition("e")[0].partition(".")[2]) for text in texts), default=0)
    sign = "+" if any(text[0] in "+-" for text in texts) else ""
    power = "e-2" if any("e" in text for text in texts) else ""
    kept = ",retain-explicit-plus" if sign else ""
    return f"S[table-format={sign}{whole}.{part}{power}{kept}]"


def _latex_cell(column: Column, entry: Entry) -> str:
    if column.kind == "text":
        return rf"\textbf{{{_tex(entry.text)}}}" if entry.bold else _tex(entry.text)
    if _NUMBER.fullmatch(entry.text):
        return entry.text
    if entry.text.startswith("x") and _NUMBER.fullmatch(entry.text[1:]):
        return rf"{{$\times$\num{{{entry.text[1:]}}}}}"
    return f"{{{_tex(entry.text)}}}"  # braces: siunitx leaves it alone


def _tex(text: str) -> str:
    return "".join(_TEX.get(c) or _letter(c) for c in text).replace("--", "-{}-")


def _letter(character: str) -> str:
    if character.isascii() or character in LETTERS:
        return character
    parts = unicodedata.normalize("NFD", character)
    if character <= LAST and len(parts) == 2 and parts[0].isascii() and parts[1] in ACCENTS:
        return character
    return rf"\gptlabchar{{{character}}}{{{ord(character):04X}}}"


def _comment(text: str) -> str:
    return " ".join(printable(text).split())
