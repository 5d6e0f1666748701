"""What is on disk: one writer, one reader, locks and states. Files only: no model, no torch."""
