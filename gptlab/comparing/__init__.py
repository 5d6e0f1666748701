"""What differs: statistics, variants, and the evidence for each difference. Files only: no model, no torch."""
