"""The report: a study as one HTML file that opens from disk. No server, no account, no network."""

from gptlab.show.report.page import write_report

__all__ = ["write_report"]
