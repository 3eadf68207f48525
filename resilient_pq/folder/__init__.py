"""Many files, whatever they hold: found below a folder or by a pattern, and each looked at or recovered by itself.

`listing` finds them, `one` is what is done with one of them, `many` does it with all and bounds what is under way,
`journal` remembers what is done, `summary` counts. May import `resilient_pq.recovery`, the writer, the reader,
`resilient_pq.arrow`, `resilient_pq.format` and `resilient_pq.io`.
"""
