"""The commands of every day: marks on runs, what was tried before, a sweep that is going on."""
