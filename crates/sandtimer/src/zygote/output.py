"""Standard output written through memory of the native half: as fast as to a buffer, and soon in its pipe."""


def unshare_output():
    """Restores the methods of stdout; there is nothing to restore before it is shared."""


# The stream's own way to write; None where it is not shared.
write_unshared = None


def share_output(open_output):
    """Has stdout written to the memory that `open_output` opens; the stream's own ways are put back for whatever the memory is not for."""
    stream, buffer = sys.stdout, sys.stdout.buffer

    def write(text):
        count = type(stream).write(stream, text)
        type(stream).flush(stream)
        return count

    def put_back():
        native.flush_output()
        for name in ("write", "flush", "reconfigure", "detach", "close"):
            stream.__dict__.pop(name, None)

    def reconfigure(**options):
        put_back()
        return stream.reconfigure(**options)

    def detach():
        put_back()
        return stream.detach()

    def close():
        restore_stream()
        return stream.close()

    def restore_stream():
        put_back()
        for name in ("write", "flush"):
            buffer.__dict__.pop(name, None)

    if not open_output(write):
        return
    global unshare_output, write_unshared
    unshare_output, write_unshared = restore_stream, write
    buffer.write, buffer.flush = native.write_bytes, native.flush_output
    stream.flush, stream.reconfigure, stream.detach, stream.close = native.flush_output, reconfigure, detach, close
    if stream.encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        stream.write = native.write_text
    # The memory is shared with forks until they have their own: nothing may wait in it.
    os.register_at_fork(before=native.flush_output, after_in_child=native.forked_output)
