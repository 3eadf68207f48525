"""The command `rpq`: one module per verb; `exit_codes` has the exit codes.

This package may import every other package; no other package imports it. What takes long to import (pyarrow, s3fs,
progress bars) is imported by the verb that needs it, so that ``rpq --help`` answers at once.
"""
