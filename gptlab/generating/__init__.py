"""Texts that a model continues: which token comes next, and how it is found without computing everything anew."""
