"""The command `rpq`: one file per verb, `render` alone prints, `exit_codes` says what a number means.

May import every other room; no other room imports this one. What takes long to import (pyarrow, s3fs, progress
bars) is imported by the verb that needs it, so that ``rpq --help`` answers at once.
"""
