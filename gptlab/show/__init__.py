"""How it looks: one formatter, tables for every reader, exports, the listing, figures, and the report."""
