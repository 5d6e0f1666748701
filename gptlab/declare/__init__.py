"""May it be said? From overrides and files to a checked `Config`: the one way in. The only room that imports Hydra."""
