"""Runs: the plan of a study, and one run at a time into its folder."""
