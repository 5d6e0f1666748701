"""One book's claims, figures and analyses: content, not machinery."""
