"""What crosses tokens beside attention: short convolutions."""
