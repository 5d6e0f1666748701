"""`gptlab --help`: the commands, and every group with its options, the user's included."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from gptlab.declare.composer import Composer

_HEAD = """\
gptlab: declare a change to a GPT, run it against a baseline, get a table.

usage: gptlab [KEY=VALUE ...]           run; several values, as in ablation=relu,post_ln, make a study
       gptlab plan [KEY=VALUE ...]      what would run: exact differences, parameters, FLOPs, memory
       gptlab add STUDY [KEY=VALUE ...] more seeds or variants for a study that there is
       gptlab check [KEY=VALUE ...]     is a variant, yours included, a correct causal language model?
       gptlab diff-model MODULE:NAME    your own GPT against gptlab's: the first tensor that differs
       gptlab generate RUN|PATH         what the model of a run makes of a prompt
       gptlab inspect PATH              what a file of weights holds, and which model it implies
       gptlab export RUN --to FORM -o F a model as files for transformers, or for the book's code
       gptlab ls [FOLDER]               the studies and runs in a folder (default: outputs), filtered and sorted
       gptlab watch STUDY               a sweep while it goes on: states, losses so far, time left
       gptlab tag RUN TAG               words by which runs are found again; --remove takes them away
       gptlab note RUN TEXT             a sentence about a run, which ls shows
       gptlab archive RUN               runs that ls leaves out, and nothing else does
       gptlab verify [FOLDER]           is every file as its run wrote it?
       gptlab rerun RUN                 repeat one run from its record: do the numbers agree?
       gptlab kernels [KEY=VALUE ...]   which way to compute a training is fastest on this machine
       gptlab explain-id A [B]          what makes a run this run, and why two differ
       gptlab gc [FOLDER]               what killed processes left behind
       gptlab ledger [ablation=NAME]    has this been tried before, and what came out?
       gptlab compare PATH ...          variants against their baseline: differences, intervals, verdicts
       gptlab audit STUDY               the protocol, line by line, computed from files
       gptlab report STUDY              a study as one HTML file
       gptlab figures [NAME]            the seven figures, computed anew, or those of a study (--study)
       gptlab reproduce [--only GROUP]  every published number of the sources, and whether it comes out
       gptlab components [KIND]         what can be chosen by name, with its options

Groups, chosen by group=option (ablation=[a,b] stacks)
"""
_FOOT = """
Examples
  gptlab                                           GPT-2 124M, untrained, measured once
  gptlab experiment=chapter4                       the book's chapter 4, piece by piece
  gptlab ablation=relu                             ReLU against the baseline
  gptlab 'ablation=relu,[relu,post_ln]' seed=1,2,3 two variants, the second one stacked, three seeds
  gptlab model=tiny model.n_layers=2,4,8           any key of the config can take several values
  gptlab experiment=chapter4 workers=4             four runs side by side; the same command again goes on
  gptlab plan model=gpt3_175b                      counted in a moment, nothing is run
  gptlab check model=tiny ablation=relu            does it leak, learn, save and load as it should?

Options
  --config-dir FOLDER        look for options there too (./conf and GPTLAB_CONF_PATH are always searched)
  --cfg job [KEY=VALUE ...]  print the composed config;  --info defaults-tree: where it comes from
  --version, --hydra-help

A folder ./conf beside you adds options of your own: conf/ablation/mine.yaml is ablation=mine.
Exit codes: 0 all finished, 1 a run failed, 2 the command is wrong, 130 interrupted."""


def main(config_dirs: Sequence[str]) -> int:
    """Print it on stdout. The groups come from the repository of files: Hydra's own page copies its store for each."""
    print(_HEAD)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
    for group, options in Composer(config_dirs).groups.items():
        lines = f"{group}: {', '.join(options)}"
        print(textwrap.fill(lines, max(width, 60), subsequent_indent="    ", break_on_hyphens=False))
    print(_FOOT)
    return 0
