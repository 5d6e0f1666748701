"""Tuned rates: what the trials say of each arm, where its optimum lies, and what an audit makes of it."""
