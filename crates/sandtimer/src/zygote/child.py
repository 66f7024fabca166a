"""What runs in a Python zygote and in its children. Standard library only; any CPython from 3.9 on.

Zygote: takes its settings from SETTINGS, imports what is to be preloaded, tells the engine, and hands itself to the
native loop. Child: returns from that loop sealed, runs a dummy job, tells the engine that it is ready, waits for one
job, answers once. Nothing here is trusted by the engine: a job can reach all of it and gains only its own answer.
"""

import gc
import importlib.machinery
import io
import os
import pickle
import signal
import sys
import time
import traceback
import types

ORDERS = 5
LIBRARY = 4
ANSWER, SEND = b"A", b"S"
VALUE, RAISED, REFUSED = 0, 1, 2
INLINE = 48 * 1024
# What the packet of a program that is a run of its own begins with: no job has options of this length.
SCRIPT = b"\xff\xff\xff\xff"
# So many addresses and lengths fit into a packet.
MOST_BUFFERS = 2000
# Frames of a traceback that are written out; of more, the first and the last half of as many.
MOST_FRAMES = 2000
# Exceptions that come from one another and are written out.
MOST_EXCEPTIONS = 100
# What a job without options asks for.
PLAIN_CALL = {"kind": "call", "seed": None, "stdout": "capture"}
# Types whose values hold nothing and run nothing when they are written down.
PLAIN = frozenset((type(None), bool, int, float, str))


def load_native():
    """The native half, from its sealed memfd."""
    import importlib.machinery
    import importlib.util

    name = "_sandtimer_zygote"
    loader = importlib.machinery.ExtensionFileLoader(name, "/proc/self/fd/%d" % LIBRARY)
    spec = importlib.util.spec_from_file_location(name, loader.path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def tell(kind, text):
    """One packet for the engine: a letter and a text."""
    os.write(ORDERS, (kind + text)[:32000].encode("utf-8", "replace"))


def uses_glibc():
    """Whether memory is allocated by the GNU C library."""
    try:
        return "LD_PRELOAD" not in os.environ and bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):
        return False


def prewarm(source, namespace):
    """Runs a script whose imports and definitions are to be there for all children; tells why where that is not to be."""
    tell("P", "")
    try:
        exec(compile(source, "<prewarm>", "exec"), namespace)
    except BaseException as error:
        tell("W", "it raised " + traceback.format_exception_only(type(error), error)[-1].strip())
        os._exit(1)
    if threads() > 1:
        tell("W", "it has left %d threads running, and a process with threads cannot be forked safely" % (threads() - 1))
        os._exit(1)


def zygote(settings):
    if sys.version_info < (3, 9):
        tell("E", "is Python %d.%d, which is too old: 3.9 or newer is needed" % sys.version_info[:2])
        os._exit(1)
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        tell("E", "is %s, which cannot be a zygote: it must be a CPython with a GIL" % sys.implementation.name)
        os._exit(1)
    if settings["paths"] is not None:
        sys.path[:] = settings["paths"]
    sys.path += [each for each in settings["shown"] if each not in sys.path]
    sys.argv = [""]
    heap = uses_glibc()
    # The loader has seen it; what a job starts is to be as it is anywhere.
    os.environ.pop("LD_BIND_NOW", None)
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, Seeding)
    global native, live, programs
    live, programs = settings["live"], settings["programs"]
    native = load_native()
    # What the package, imported here, knows by that it is inside a sandbox; children add the channel that it reports to.
    sys.modules["_sandtimer_inside"] = native
    os.close(3)
    os.close(LIBRARY)
    try:
        if not programs:
            # What lambdas and functions of __main__ are sent by.
            import cloudpickle  # noqa: F401
    except ImportError:
        pass
    reason = preload(settings["preload"], settings["learned"])
    if reason is None and threads() > 1:
        reason = "has %d threads before anything is imported" % threads()
    if reason is not None:
        tell("E", reason)
        os._exit(1)
    open_streams()
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if settings["prewarm"] is not None:
        prewarm(settings["prewarm"], main.__dict__)
    warm_up()
    native.lay_out()
    hooks = Hooks()
    hooks.spare()
    gc.collect()
    gc.freeze()
    gc.disable()
    native.shelve(4096 if sys.version_info < (3, 10) else 16384, heap)
    # What every child touches it then has at once.
    reseed()
    warm()
    # Children inherit it, and load what it leaves open for their making.
    native.restrict(bytes.fromhex(settings["filter"]))
    tell("R", "%d.%d.%d" % sys.version_info[:3])
    born = native.serve(ORDERS)
    hooks.restore()
    child(*born)


SPARED = ("threading", "logging", "random")


class Hooks:
    """What is called around every fork, as modules have asked for by os.register_at_fork().

    What the modules of SPARED do then takes a third of the pages that a child makes its own. It puts right what
    other threads may have left, of which a zygote has none, and seeds the generator of random, which is done here at less
    cost. So none of it is called when children are made; they have it again for forks of their own.
    """

    def __init__(self):
        def here(*_):
            pass

        self.lists = [self.list_with(here, name) for name in ("before", "after_in_parent", "after_in_child")]
        self.all = [list(hooks) for hooks in self.lists]

    @staticmethod
    def list_with(hook, name):
        """The interpreter's own list; an empty one where it does not keep any."""
        os.register_at_fork(**{name: hook})
        found = [kept for kept in gc.get_referrers(hook) if type(kept) is list and kept[-1:] == [hook]]
        for kept in found:
            kept.pop()
        return found[0] if len(found) == 1 else []

    def spare(self):
        """In the zygote."""
        import _random

        library = os.path.dirname(getattr(os, "__file__", None) or "?") + os.sep
        modules = {name: sys.modules.get(name) for name in SPARED}
        # A module of the user's own may have one of these names.
        own = {name for name, module in modules.items() if not (getattr(module, "__file__", "") or "").startswith(library)}
        spared = set(SPARED) - own
        generator = getattr(modules["random"], "_inst", None)
        if isinstance(generator, _random.Random) and "random" in spared:
            # In its place: the hooks of others may draw.
            generator.gauss_next = None
            after = self.lists[-1]
            after[:] = [super(type(generator), generator).seed if hook == generator.seed else hook for hook in after]
        for kept in self.lists:
            kept[:] = [hook for hook in kept if getattr(hook, "__module__", None) not in spared]
        thread = getattr(modules["threading"], "_main_thread", None)
        if thread is not None:
            # Every child's number in its own namespace.
            thread._native_id = 2

    def restore(self):
        """In a child."""
        for kept, hooks in zip(self.lists, self.all):
            kept[:] = hooks


def warm():
    """Runs the path that every job takes, so that its pages are this process's own before a job is timed."""
    answer(*run(bytes(4) + pickle.dumps((max, (1, 2), {}), 5), ()))
    flush()


def warm_up():
    """In the zygote: runs the paths that jobs take, so that what they make at first use is there for all of them."""
    options = pickle.dumps(PLAIN_CALL, 5)
    try:
        run(len(options).to_bytes(4, "little") + options + pickle.dumps((divmod, (1, 0), {}), 5), ())
    except ZeroDivisionError as error:
        answer(RAISED, *encode(describe(error)))
    answer(*written([]))
    measure_recursion()
    warm()


class Through(io.BufferedWriter):
    """Writes everything at once, however much a pipe takes at a time."""

    def write(self, data):
        count = super().write(data)
        self.flush()
        return count


def open_streams():
    """Opens the streams again as those of a process whose output is a pipe, as the children's is."""
    reader, writer = os.pipe()
    before = [(number, os.dup(number)) for number in (1, 2)]
    for number, _ in before:
        os.dup2(writer, number)
    if programs:
        reopen_streams()
    else:
        open_plain_streams()
    for number, file in before:
        os.dup2(file, number)
    for file in (reader, writer, *(file for _, file in before)):
        os.close(file)


def open_plain_streams():
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.FileIO(number, "w", closefd=False)
        raw.name = "<%s>" % name
        encoding = getattr(sys, name).encoding
        stream = io.TextIOWrapper(Through(raw), encoding, "backslashreplace", write_through=True)
        stream.mode = "w"
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)


def child(channel, hurried):
    native.channel = channel
    reseed()
    share_output(native.open_cell_output if live else native.open_output)
    if not hurried:
        rehearse_script() if programs else warm()
    interpreter = Context(channel) if live else None
    if live and not hurried:
        interpreter.rehearse()
    os.write(channel, b"R")
    job, *files = native.receive(channel)
    if job[:4] == SCRIPT:
        os.close(channel)
        script(job, files)
    if live:
        context(interpreter, json.loads(job), files)
    finish(channel, lambda: run(job, files))


def forked_child(channel, call):
    """In the child of a caller that forked itself: what is called is there already."""
    sys.modules["_sandtimer_inside"] = native
    native.channel = channel
    sys.meta_path.insert(0, Seeding)
    reseed()
    os.write(channel, b"R")
    job, *files = native.receive(channel)

    def work():
        prepare(load(job, files)[0])
        return written(call())

    finish(channel, work)


def finish(channel, work):
    gc.enable()
    own, raised = os.getpid(), None
    try:
        packet = answer(*work())
    except BaseException as error:
        raised = error
        packet = answer(RAISED, *encode(describe(error)))
    if os.getpid() != own:
        # A fork that the job has made does not answer for it.
        leave_with(raised)
    flush()
    try:
        reply(channel, *packet)
    except OSError:
        # The job has closed the channel: it ends without an answer.
        os._exit(int(raised is not None))
    os._exit(0)


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass


def answer(kind, data, buffers):
    """Header, addresses and lengths of what is too long for a packet, and the rest; and what must be kept alive."""
    if not buffers and len(data) <= INLINE:
        return ANSWER + bytes((kind, 0, 0, 0, 0, 0, 0)) + len(data).to_bytes(8, "little") + data, ()
    kept = [memoryview(buffer).cast("B") for buffer in buffers]
    inline = b"" if len(data) + 16 * len(kept) > INLINE else data
    if not inline:
        kept.insert(0, memoryview(data))
    words = [word for view in kept for word in (native.address(view), view.nbytes | is_bytes(view) << 63)]
    header = ANSWER + bytes([kind]) + b"\0\0" + len(kept).to_bytes(4, "little") + len(inline).to_bytes(8, "little")
    table = b"".join(word.to_bytes(8, "little") for word in words)
    return header + table + inline, kept


def is_bytes(view):
    """Whether the reader should make bytes of it."""
    return type(view.obj) is bytes


def reply(channel, packet, kept):
    os.write(channel, packet)
    # The engine reads what is large from this memory, or, where it may not, asks for it. In the end it ends this process.
    if os.read(channel, 1) == SEND:
        for view in kept:
            for start in range(0, view.nbytes, INLINE):
                os.write(channel, view[start : start + INLINE])
        os.read(channel, 1)


def reseed(seed=None):
    """Draws new numbers in every child, or the same ones for the same seed."""
    Seeding.seed = seed
    if seed is not None:
        import random

        random.seed(seed)
    for name in SEEDED:
        if name in sys.modules:
            SEEDED[name](sys.modules[name], seed)


def seed_numpy(numpy_random, seed):
    numpy_random.seed(int.from_bytes(os.urandom(4), "little") if seed is None else seed % 2**32)
    if seed is not None:
        # What default_rng() takes its entropy from.
        sys.modules["numpy.random.bit_generator"].randbits = __import__("random").Random(seed).getrandbits


def seed_torch(torch, seed):
    if hasattr(torch, "manual_seed"):
        torch.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1 if seed is None else seed)


SEEDED = {"numpy.random": seed_numpy, "torch": seed_torch}


class Seeding:
    """Finds modules that have generators of their own as they are found anyway, and has them seeded once they are imported."""

    seed = None

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in SEEDED:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_seed(module):
            execute(module)
            SEEDED[name](module, cls.seed)

        spec.loader.exec_module = execute_and_seed
        return spec


def load(job, files):
    """Options, body and buffers of a job. The files that came with it are its large parts, and its stdin."""
    length = int.from_bytes(job[:4], "little")
    options = pickle.loads(job[4 : 4 + length]) if length else PLAIN_CALL
    files = [file for file in files if file >= 0]
    sizes = options.get("parts")
    if options.get("stdin"):
        stdin = files.pop()
        os.lseek(stdin, 0, os.SEEK_SET)
        os.dup2(stdin, 0)
        os.close(stdin)
    if not sizes:
        return options, job[4 + length :], []
    import mmap

    size = os.fstat(files[0]).st_size
    # Private: the job may write to its arguments, and nobody else sees it.
    memory = memoryview(mmap.mmap(files[0], size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    os.close(files[0])
    parts, at = [], 0
    for size in sizes:
        parts.append(memory[at : at + size])
        at += (size + 63) // 64 * 64
    return options, parts[0], parts[1:]


def run(job, files):
    options, body, buffers = load(job, files)
    prepare(options)
    if options["kind"] == "program":
        return program(body, options)
    try:
        function, arguments, keywords = pickle.loads(body, buffers=buffers)
    except ModuleNotFoundError as error:
        # Before anything of the call has run: its caller may send the module along.
        return (REFUSED, *encode(("module", error.name or "")))
    return written(function(*arguments, **keywords))


def prepare(options):
    """What a job's options ask for before it begins."""
    seed = options.get("seed")
    if seed is not None:
        reseed(seed)
    if options.get("stdout") == "drop":
        null = os.open("/dev/null", os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)


def written(value):
    """The kind of the answer that a value is, and the value written down."""
    if type(value) in PLAIN:
        return VALUE, pickle.dumps(value, 5), ()
    if isinstance(value, types.CoroutineType):
        import asyncio

        value = asyncio.run(value)
    if isinstance(value, (types.GeneratorType, types.AsyncGeneratorType)):
        return (REFUSED, *encode(("generator", type(value).__name__)))
    try:
        data, buffers = encode(value)
        if len(buffers) > MOST_BUFFERS:
            raise ValueError("it has %d large buffers, and at most %d can be sent" % (len(buffers), MOST_BUFFERS))
        return VALUE, data, buffers
    except Exception as error:
        line = traceback.format_exception_only(type(error), error)[-1].strip()
        return (REFUSED, *encode(("unserializable", type(value).__module__ + "." + type(value).__qualname__, line)))


def formatted(kind, error, trace):
    """The lines of an exception. Of a recursion that is deeper than a reader follows, the first and the last frames."""
    left_out = {}
    for each in chain(error):
        count = cut(trace if each is error else each.__traceback__)
        if count:
            left_out[id(each)] = count
    if not left_out:
        return traceback.format_exception(kind, error, trace)
    whole = traceback.TracebackException(kind, error, trace)
    pairs = [(whole, error)]
    while pairs:
        written, each = pairs.pop()
        if written is not None and each is not None:
            if id(each) in left_out:
                written.stack = Middle(written.stack, left_out.pop(id(each)))
            pairs += (written.__cause__, each.__cause__), (written.__context__, each.__context__)
    return whole.format()


def chain(error):
    """An exception and those that it comes from, at most MOST_EXCEPTIONS."""
    found, more = [], [error]
    while more and len(found) < MOST_EXCEPTIONS:
        each = more.pop()
        if each is not None and all(each is not other for other in found):
            found.append(each)
            more += each.__cause__, each.__context__
    return found


def cut(trace):
    """Takes the middle out of a traceback that is longer than MOST_FRAMES; how many frames that was."""
    count, last = 0, trace
    while last is not None:
        count, last = count + 1, last.tb_next
    if count <= MOST_FRAMES:
        return 0
    first = trace
    for _ in range(MOST_FRAMES // 2 - 1):
        first = first.tb_next
    last = first.tb_next
    for _ in range(count - MOST_FRAMES):
        last = last.tb_next
    first.tb_next = last
    return count - MOST_FRAMES


class Middle:
    """The frames of a traceback whose middle is left out, as its formatting asks for them."""

    def __init__(self, frames, left_out):
        half = MOST_FRAMES // 2
        self.halves = [traceback.StackSummary.from_list(list(frames)[part]) for part in (slice(half), slice(half, None))]
        self.left_out = left_out

    def format(self, **options):
        first, last = (half.format(**options) for half in self.halves)
        return [*first, "  [%d frames are left out]\n" % self.left_out, *last]


def describe(error):
    """An exception in plain data, and, where it can be had, pickled."""
    kind = type(error)
    try:
        text = str(error)
    except BaseException as second:
        text = "<str() of the exception raised %s>" % type(second).__name__
    try:
        trace = "".join(formatted(kind, error, without_own(error)))
    except BaseException:
        trace = "%s: %s" % (kind.__qualname__, text)
    try:
        data, buffers = encode(error)
        pickled = data if not buffers else None
    except BaseException:
        pickled = None
    return {
        "type": kind.__qualname__,
        "module": kind.__module__,
        "message": text[:100000],
        "traceback": trace[-1000000:],
        "pickled": pickled,
    }
