"""`gptlab report`: a study as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gptlab.cli.arguments import Parser, about_options
from gptlab.cli.output import tell
from gptlab.errors import ConfigError, GptlabError

HELP = """\
usage: gptlab report STUDY [-o FILE] [--margin 0.01|1%] [--label LABEL=NAME ...]

Writes a study (its folder) as one HTML file, report.html in that folder: verdicts, figures, what each variant changed,
generated texts, failures, environment. The file opens from disk, asks no network for anything, and can be sent around.
-o, --output  another file to write
--margin      a difference in the primary metric that does not matter: unlocks the verdict "equivalent within margin"
--label       what the report calls a variant (several times), beside the names that experiment.labels has

  gptlab report outputs/chapter4"""


def main(arguments: Sequence[str]) -> int:
    """Write the report, print its path on stdout."""
    parser = Parser()
    parser.option("--output", "-o")
    parser.option("--margin")
    parser.repeated("--label")
    given = parser.read(arguments)
    words = given.words
    if given.help:
        print(HELP)
        return 0
    if len(words) != 1:
        raise ConfigError(
            f"report: name one study's folder, and this names {len(words) or 'none'} (gptlab ls lists them).",
            code="report-takes-one-study",
            value=words,
        )
    folder = Path(words[0])
    if not folder.is_dir():
        raise ConfigError(f"report: there is no folder {words[0]!r}.", code="report-no-such-folder", value=words[0])
    from gptlab.comparing.assemble import compare
    from gptlab.comparing.caption import lost_runs
    from gptlab.comparing.naming import named_study
    from gptlab.show.report.page import write_report
    from gptlab.store.study import load_study
    from gptlab.texts import printable

    with about_options(given, "margin", "label"):
        comparison = compare([folder], margin=given.margin, labels=given.label)
        study = named_study(load_study(folder), given.label)
    target = given.output
    try:
        path = write_report(folder, target, study=study, comparison=comparison)
    except OSError as error:
        where = target or folder
        raise GptlabError(
            f"report: cannot write into {where}: {error.strerror or error}.", code="report-not-written", where=where
        ) from error
    print(path)
    for text in (*lost_runs(comparison), *(printable(text) for text in comparison.warnings)):
        tell(text)
    return 0
