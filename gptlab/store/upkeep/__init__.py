"""What is done with runs once they are there: their hashes checked, waste cleared away, marks set by people."""
