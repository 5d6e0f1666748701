"""What is tuned to processors: several ways to compute the same thing.

Their names and what each is for stand in `gptlab.kernels`; this room has the code, and the measurement that chooses.
"""
