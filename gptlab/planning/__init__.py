"""What runs? From a command to the list of its runs, all composed and checked before the first one starts."""
