"""One file for each line of models: what their config says here and back, and how their tensors are called."""
