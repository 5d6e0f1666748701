"""Weights in and out: what a file holds, which model it implies, and how its names become gptlab's and back."""
