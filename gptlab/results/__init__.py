"""Results: what a study's files say, as tidy frames, tables, figures and listings. Rebuilt from files alone.

Importing this loads no pandas and no matplotlib; they come with the first study that is read or drawn.
"""

from gptlab.results.comparing import compare
from gptlab.results.comparison import Comparison
from gptlab.results.exports import FORMATS, export, write_comparison
from gptlab.results.finish import finish_study
from gptlab.results.listing import RunRow, list_runs, print_runs
from gptlab.results.study import Study, load_study, write_tables
from gptlab.results.table import print_study
from gptlab.results.verdicts import print_comparison

__all__ = [
    "FORMATS",
    "Comparison",
    "RunRow",
    "Study",
    "compare",
    "export",
    "finish_study",
    "list_runs",
    "load_study",
    "print_comparison",
    "print_runs",
    "print_study",
    "write_comparison",
    "write_tables",
]
