# BYTE_STREAM_SPLIT. Included by `_native.pyx`.

def split_streams(const uint8_t[:, ::1] rows not None, uint8_t[:, ::1] out not None):
    """See `reference.split_streams`."""
    if rows.shape[0] != out.shape[1] or rows.shape[1] != out.shape[0]:
        raise ValueError("there must be a stream for each byte of a row, and a byte in it for each row")
    if rows.shape[0] and rows.shape[1]:
        with nogil:
            split_streams_of(&rows[0, 0], rows.shape[0], rows.shape[1], &out[0, 0], out.shape[1])


def join_streams(const uint8_t[:, ::1] streams not None, uint8_t[:, ::1] out not None):
    """See `reference.join_streams`."""
    if streams.shape[0] != out.shape[1] or streams.shape[1] < out.shape[0]:
        raise ValueError("there must be a stream for each byte of a row, and a byte in it for each row")
    if out.shape[0] and out.shape[1]:
        with nogil:
            join_streams_of(&streams[0, 0], streams.shape[1], out.shape[0], out.shape[1], &out[0, 0])
