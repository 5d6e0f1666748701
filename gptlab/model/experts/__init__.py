"""Mixtures of experts: which of them a token goes to, what they compute, and how they are kept equally busy."""
