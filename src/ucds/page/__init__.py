"""The report of a run: one page, in one file, that a person can open, judge, correct and pass on."""
