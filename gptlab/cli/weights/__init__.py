"""What the command line does with files of weights."""
