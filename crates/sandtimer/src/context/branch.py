"""What a live Python interpreter does to be branched, beside context.py; and what the process does that becomes its image."""

import asyncio
import io
import marshal

# Directories of the sandbox's own, which a branch has copies of.
WORKSPACE, PRIVATE = "/workspace", ("/tmp", "/var/tmp", "/dev/shm")
MOST_COPIED = 64 << 20
MOST_FILES = 10_000
# What the native half says instead of a length.
WHY_NO_IMAGE = {
    -18: "it shares memory with other processes (multiprocessing, mmap), and a branch would not",
    -14: "some of its memory cannot be read",
    -7: "its memory is in too many pieces",
}


class NoBranch(Exception):
    """Why a branch would not be what this process is."""


def image(context, packet, files):
    """Answers a request for an image. In the process that becomes it, this goes on as well, and returns True."""
    nonce, base, shares = packet[1:9], int.from_bytes(packet[9:17], "little"), packet[17:18] == b"\1"
    said, reason = 0, ""
    try:
        check(context, files)
        directory = os.getcwd()
        native.drop_output()
        said = native.image(files[0], base)
        if said == 0:
            become(context, directory)
            return True
        if said < 0:
            raise NoBranch(WHY_NO_IMAGE.get(said) or os.strerror(-said))
        if said & 3 != 3:
            pack(files[1], private_directories() if shares else (WORKSPACE, *PRIVATE))
    except (NoBranch, OSError) as error:
        said, reason = 0, str(error)
    for file in files:
        os.close(file)
    os.write(context.channel, b"B" + nonce + said.to_bytes(8, "little") + reason.encode("utf-8", "replace")[:1000])
    return False


def private_directories():
    """Those that a branch in the same directories does not see already: its /tmp may be the origin's."""
    own = os.stat("/var/tmp").st_dev
    return [directory for directory in PRIVATE if os.stat(directory).st_dev == own]


def check(context, files):
    reason = context.why_not()
    if reason:
        raise NoBranch(reason)
    if context.loop is not None and not context.loop.is_closed() and asyncio.all_tasks(context.loop):
        raise NoBranch("coroutines are waiting in its event loop")
    held = []
    for name in os.listdir("/proc/self/fd"):
        if int(name) > context.channel and int(name) not in files and int(name) not in loop_files(context):
            try:
                held.append(os.readlink("/proc/self/fd/" + name))
            except OSError:
                # It was the listing's own.
                pass
    if held:
        names = ", ".join(held[:5])
        raise NoBranch("%d files or sockets are open in it, and a branch would not have them: %s" % (len(held), names))


def loop_files(context):
    """What the event loop of the cells holds open; a branch has another loop."""
    loop = context.loop
    if loop is None or loop.is_closed():
        return ()
    return loop._selector.fileno(), loop._ssock.fileno(), loop._csock.fileno()


def become(context, directory):
    """In the process that is the origin from now on, with a sandbox of its own."""
    try:
        unpack(4)
        os.close(4)
        os.chdir(directory)
        files = loop_files(context)
        if files:
            # The numbers are taken, so that closing the loop closes nothing else.
            null = os.open("/dev/null", os.O_RDWR)
            for file in files:
                if file != null:
                    os.dup2(null, file)
            if null not in files:
                os.close(null)
            context.loop.close()
            asyncio.set_event_loop(None)
            context.loop = None
        os.write(context.channel, b"b")
    except BaseException as error:
        said = "%s: %s" % (type(error).__name__, error)
        os.write(context.channel, b"y" + said.encode("utf-8", "replace")[:1000])
        os._exit(1)


def pack(file, roots):
    """Writes the files below some directories down."""
    left = [MOST_FILES, MOST_COPIED]
    with open(file, "wb", closefd=False) as out:
        for root in roots:
            if os.path.isdir(root) and os.access(root, os.W_OK):
                pack_directory(out, root, os.stat(root).st_dev, left)


def pack_directory(out, directory, device, left):
    with os.scandir(directory) as entries:
        for entry in entries:
            stat = entry.stat(follow_symlinks=False)
            if stat.st_dev != device:
                # What is mounted there is shown to a branch as well.
                continue
            kind = stat.st_mode & 0o170000
            left[0] -= 1
            left[1] -= stat.st_size if kind == 0o100000 else 0
            if min(left) < 0:
                raise NoBranch("it has more than %d files or %d MiB in its own directories" % (MOST_FILES, MOST_COPIED >> 20))
            what = os.readlink(entry.path) if kind == 0o120000 else stat.st_size
            marshal.dump((entry.path, kind, stat.st_mode & 0o777, stat.st_mtime_ns, what), out)
            if kind == 0o100000:
                pack_file(out, entry.path, stat.st_size)
            elif kind == 0o040000:
                pack_directory(out, entry.path, device, left)


def pack_file(out, path, size):
    out.flush()
    with open(path, "rb") as source:
        at = 0
        while at < size:
            sent = os.sendfile(out.fileno(), source.fileno(), at, size - at)
            if sent == 0:
                raise NoBranch("%s is changing" % path)
            at += sent
    out.seek(0, os.SEEK_END)


class Packed(io.RawIOBase):
    """A file from its beginning, wherever others that have it are."""

    def __init__(self, file):
        self.file, self.at = file, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        data = os.pread(self.file, len(buffer), self.at)
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


def unpack(file):
    """Writes files down again as they were; sockets, pipes and devices are left out."""
    with io.BufferedReader(Packed(file)) as packed:
        while True:
            try:
                path, kind, mode, time, what = marshal.load(packed)
            except EOFError:
                return
            if kind == 0o040000:
                try:
                    os.mkdir(path)
                    os.chmod(path, mode | 0o700)
                except FileExistsError:
                    pass
            elif kind == 0o120000:
                # What is there already leads to what is shown of an installation, in both.
                if not os.path.lexists(path):
                    os.symlink(what, path)
            elif kind == 0o100000:
                with open(path, "wb") as copy:
                    for start in range(0, what, 1 << 20):
                        copy.write(packed.read(min(1 << 20, what - start)))
                    os.fchmod(copy.fileno(), mode)
                os.utime(path, ns=(time, time))
