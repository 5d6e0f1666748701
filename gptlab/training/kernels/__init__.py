"""What is tuned to processors: several ways to compute the same thing."""
