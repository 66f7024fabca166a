"""What runs in a live Python interpreter: cells one after the other, in one namespace.

Shares its process with child.py, displays.py, cells.py, magics.py and handlers.py, which are executed before it.

Requests, by the channel:

    C nonce                   make a checkpoint
    X flags nonce [source]    run a cell; with it the files of its stdout and stderr, the memory that its stdout is written to first, and as
                              the flags say the files of its stdin and its source
    B ...                     become an image, or a branch of one: branch.py

Answers:

    b                         the interpreter is there
    R reason                  it is not: its directory cannot be its own
    K nonce pid reason        the checkpoint's process, or why there is none
    nonce d data              a part of what a cell displays
    nonce D data              the last part of it
    nonce A ...               how the cell ended

The engine takes none of it on trust, and nothing of what another process sends.
"""

import _posixsubprocess
import _signal
import _thread
import asyncio
import base64
import functools
import inspect
import select
import signal
import subprocess
import time

# Bytes of a display that fit into one packet.
DISPLAY_PACKET = 48 * 1024
# Of what is displayed in one cell, beside which the rest is dropped.
MOST_DISPLAYED = 64 << 20
# A copy of more than this takes longer than most cells.
MOST_RESIDENT = 4 << 30
# A cell that comes within so many seconds does not wait for a rehearsal.
SOON = 0.001
REHEARSAL = "_ = 0\n_ + 0"
NOT_IN_CELL = "display() works only while a cell runs, and none is running; keep the value, and display it in the next cell"

# Of what a cell has to do each time, what `signal` adds to these touches a hundred pages, each of which a copy shares.
set_handler, set_mask = _signal.signal, _signal.pthread_sigmask
BLOCK, UNBLOCK = int(signal.SIG_BLOCK), int(signal.SIG_UNBLOCK)
SIGINT = int(signal.SIGINT)
INTERRUPT = {SIGINT}
# Length of what the engine knows the packets of one cell by.
NONCE = 8
# What a cell request has besides its stdout and stderr.
HAS_STDIN, HAS_FILE = 1, 2
# Rehearsals from one look at what is written to in them to the next.
NOTED_EVERY = 16
# How long a thread that was asked to end is waited for, and how often the kernel's count of threads is read meanwhile.
THREAD_END_SECONDS = 1.0
THREAD_COUNTS = 40


# This interpreter's.
current = None


class Context:
    """The state of the interpreter beside that of the code that runs in it."""

    def __init__(self, channel):
        global current
        current = self
        self.channel = channel
        self.nonce = b""
        self.count = 0
        self.loop = None
        self.thread = _thread.get_ident()
        # Whether a cell that waits for nothing has made tasks.
        self.has_tasks = False
        self.rehearsed = 0
        self.displayed = 0
        # Threads may display as well, one after the other.
        self.display_lock = _thread.RLock()
        self.may_display = False
        self.has_stdin = 0
        self.empty_stdin = None
        self.handlers = Handlers()
        # What was sent to the interpreter before it is not for this one.
        self.was_checkpoint = False
        self.main = sys.modules["__main__"].__dict__
        self.main["__builtins__"] = __builtins__
        self.main["display"] = self.display
        # An interrupt that comes when its cell has been sent and has not begun waits until it has.
        set_handler(SIGINT, self.handlers.interrupt)
        set_mask(BLOCK, INTERRUPT)
        os.register_at_fork(after_in_child=self.leave_channel)

    def leave_channel(self):
        """In a process that the code has forked: the channel is the interpreter's alone."""
        if not native.is_checkpoint() and self.channel >= 0:
            os.close(self.channel)
            self.channel, native.channel = -1, None
            # Another thread may have had it.
            self.display_lock = _thread.RLock()
            self.handlers.leave()

    # -- requests ----------------------------------------------------------------------------------------------------

    def serve(self):
        while True:
            # One that was a checkpoint has no other threads, and is asked for one at once.
            packet, *files = native.receive(self.channel, not self.was_checkpoint)
            if packet[:1] == b"C":
                self.was_checkpoint = False
                self.checkpoint(packet[1:9], len(packet) > 9)
            elif self.was_checkpoint:
                for file in files:
                    if file >= 0:
                        os.close(file)
            elif packet[:1] == b"B":
                if image(self, packet, [file for file in files if file >= 0]):
                    # This is the branch, and is asked for its first checkpoint.
                    self.was_checkpoint = True
            elif packet[:1] == b"X":
                self.nonce = packet[2 : 2 + NONCE]
                self.cell(packet[1], packet[2 + NONCE :], files)

    def checkpoint(self, nonce, ahead):
        # One that waits now came too late for the cell before this.
        signal.sigtimedwait(INTERRUPT, 0)
        reason, pid = self.why_not(), 0
        if not reason:
            pid = native.checkpoint(self.channel, int.from_bytes(nonce, "little"), ahead)
            if pid == 0:
                # This is the copy, and continues in place of the one it was made from. It is asked again.
                self.was_checkpoint = True
                return
            if pid < 0:
                reason = "a copy could not be made: " + os.strerror(-pid)
        if reason:
            os.write(self.channel, b"K" + nonce + bytes(4) + reason.encode("utf-8", "replace")[:1000])
        elif not select.select([self.channel], [], [], SOON)[0]:
            self.rehearse()

    def why_not(self):
        """Why a copy of this process would not be what this process is; empty if it would."""
        threads, has_children, resident = native.surroundings()
        if threads > 1:
            return "%d other threads are running in the interpreter, and a copy has none of them" % (threads - 1)
        if threads < 0 or resident < 0:
            return "what runs in it cannot be read from /proc: " + os.strerror(-min(threads, resident))
        children = sum(map(is_alive, own_children())) if has_children else 0
        if children:
            return "%d processes that were started here are running, and they are not children of a copy" % children
        torch = sys.modules.get("torch")
        if torch is not None and getattr(torch, "cuda", None) is not None and torch.cuda.is_initialized():
            return "CUDA is in use, and a copy cannot use it"
        if resident > MOST_RESIDENT:
            return "the interpreter uses %d MiB, and is copied up to %d MiB" % (resident >> 20, MOST_RESIDENT >> 20)
        return ""

    # -- a cell ------------------------------------------------------------------------------------------------------

    def cell(self, kind, text, files):
        stdout, stderr, memory, *others = files
        self.has_stdin = kind & HAS_STDIN
        stdin = others.pop(0) if self.has_stdin else -1
        source = (read_all(others[0]) if kind & HAS_FILE else text).decode("utf-8")
        if 0 <= memory < 3:
            # The code has closed its streams, and this has the number of one of them.
            low, memory = memory, os.dup(memory)
            os.close(low)
        failed = native.put_streams(stdin, stdout, stderr)
        if failed:
            # What it prints would come where it is not looked for.
            raise OSError(-failed, os.strerror(-failed))
        native.begin_output(memory)
        self.displayed = 0
        self.may_display = True
        reply = self.reply(source, self.main)
        try:
            reply["results"] = self.figures() + reply["results"]
        except BaseException as error:
            reply = self.raised(error)
        if self.channel < 0:
            # It was forked in the cell, and came to the cell's end.
            flush()
            os._exit(0)
        self.count += 1
        if not self.has_stdin and not native.reads_nothing():
            # It may hold what is not the next cell's.
            self.empty_stdin = None
        flush()
        # Writing down a value may show something itself.
        packet, kept = self.packet(reply)
        native.end_output()
        with self.display_lock:
            self.may_display = False
        os.write(self.channel, self.nonce + packet)
        if kept and os.read(self.channel, 1) == SEND:
            for view in kept:
                for start in range(0, view.nbytes, INLINE):
                    os.write(self.channel, view[start : start + INLINE])
        end_helpers()

    def reply(self, source, namespace, is_rehearsal=False):
        """Executes a cell; what there is to say of it."""
        handlers = self.handlers
        try:
            set_handler(SIGINT, handlers.interrupt)
            sys.stdin = self.stdin()
            try:
                if not is_rehearsal:
                    handlers.begin_cell()
                    set_mask(UNBLOCK, INTERRUPT)
                value = self.run(source, namespace)
                if self.has_tasks:
                    self.begin_tasks()
                results = [self.shown(value)] if value is not None else []
            finally:
                handlers.end_cell()
                set_mask(BLOCK, INTERRUPT)
            return {"status": "ok", "results": results, "interrupted": False}
        except BaseException as error:
            handlers.end_cell()
            set_mask(BLOCK, INTERRUPT)
            return dict(self.raised(error), interrupted=isinstance(error, KeyboardInterrupt))

    def stdin(self):
        # One that there is nothing in is as good for the next cell.
        if self.has_stdin or not is_open(self.empty_stdin):
            stdin = open(0, "r", closefd=False, errors="replace")
            if self.has_stdin:
                return stdin
            self.empty_stdin = stdin
        return self.empty_stdin

    def raised(self, error):
        return {"status": "error", "results": [], "error": self.describe(error), "interrupted": False}

    def packet(self, reply):
        """An answer, and what of it is too long for a packet."""
        reply["execution_count"] = self.count
        return answer(VALUE if reply["status"] == "ok" else RAISED, as_json(reply), ())

    def rehearse(self):
        """Does what every cell does, while nobody waits: the first write to a page that is shared with a copy costs a fault."""
        self.packet(self.reply(REHEARSAL, {}, is_rehearsal=True))
        # The first time there is no copy yet that all other pages are shared with.
        if self.rehearsed % NOTED_EVERY == 1:
            native.note_written()
        self.rehearsed += 1

    def run(self, source, namespace):
        """Executes a cell; the value of its last line, if that is an expression without a semicolon behind it."""
        body, last = compiled(source, "<cell %d>" % (self.count + 1))
        if body is not None:
            self.evaluate(body, namespace)
        if last is None:
            return None
        value = self.evaluate(last, namespace)
        if value is not None:
            namespace["_"] = value
        return value

    def begin_tasks(self):
        """Has the tasks that a cell has made come to their first wait. They continue while later cells wait for something."""
        self.has_tasks = False
        self.wait(self.own_loop().create_task(asyncio.sleep(0)))

    def evaluate(self, code, namespace):
        value = eval(code, namespace)
        if code.co_flags & inspect.CO_COROUTINE:
            return self.wait(self.own_loop().create_task(value))
        return value

    def own_loop(self):
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop

    def wait(self, task):
        # An interrupt that comes just before the loop waits is seen only behind that, unless it wakes the loop as well.
        waker = getattr(self.loop, "_csock", None)
        signal.set_wakeup_fd(-1 if waker is None else waker.fileno(), warn_on_full_buffer=False)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            # One that was interrupted would go on when the next cell waits for something.
            if task.cancel():
                self.loop.run_until_complete(asyncio.wait([task]))
            raise
        finally:
            signal.set_wakeup_fd(-1)

    def describe(self, error):
        if isinstance(error, KeyboardInterrupt):
            leave_out_own(error.__traceback__)
        said = describe(error.with_traceback(from_cell(error.__traceback__)))
        pickled = said["pickled"]
        # For callers that rebuild exceptions; nobody needs one that is longer.
        said["pickled"] = base64.b64encode(pickled).decode() if pickled and len(pickled) <= LONGEST_REPR else None
        return said

    # -- what is displayed -------------------------------------------------------------------------------------------

    def display(self, *values, **_):
        """Shows values as the last expression of a cell is shown, at once."""
        for value in values:
            self.show(bundle(value))

    def show(self, shown):
        """Sends a bundle by MIME type."""
        if self.channel < 0:
            raise RuntimeError("display() is for the context's own process, and not for one that its code has forked")
        flush()
        data = as_json(shown)
        could_run = _thread.get_ident() == self.thread and self.handlers.pause()
        try:
            self.send_display(data)
        finally:
            if could_run:
                self.handlers.resume()

    def send_display(self, data):
        with self.display_lock:
            if not self.may_display:
                raise RuntimeError(NOT_IN_CELL)
            self.displayed += len(data)
            if self.displayed > MOST_DISPLAYED:
                raise ValueError("more than %d MiB are displayed in one cell" % (MOST_DISPLAYED >> 20))
            for start in range(0, len(data), DISPLAY_PACKET):
                last = start + DISPLAY_PACKET >= len(data)
                kind = b"D" if last else b"d"
                os.write(self.channel, self.nonce + kind + data[start : start + DISPLAY_PACKET])

    def shown(self, value):
        """The value of the last expression. A figure is closed: it would be shown a second time as one that was left open."""
        data = bundle(value)
        pyplot = sys.modules.get("matplotlib.pyplot")
        if is_figure(value) and pyplot is not None:
            pyplot.close(value)
        return data

    def figures(self):
        """The figures that the cell left open, which are closed."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        # Another thread may be importing it.
        if not hasattr(pyplot, "get_fignums") or not pyplot.get_fignums():
            return []
        try:
            return [bundle(pyplot.figure(number)) for number in pyplot.get_fignums()]
        finally:
            # Also one that cannot be drawn: it would be the end of every cell to come.
            pyplot.close("all")


def end_helpers():
    """Ends the threads that tqdm leaves to watch its bars: a copy is made of no process that has threads, and the next bar begins another."""
    kind = getattr(sys.modules.get("tqdm._monitor"), "TMonitor", None)
    if kind is None:
        return
    try:
        helpers = [thread for thread in sys.modules["threading"].enumerate() if isinstance(thread, kind)]
        for helper in helpers:
            helper.was_killed.set()
            helper.join(THREAD_END_SECONDS)
        # The kernel counts a thread for a moment after Python does.
        is_alone = helpers and len(sys.modules["threading"].enumerate()) == 1
        for _ in range(THREAD_COUNTS if is_alone else 0):
            if native.surroundings()[0] <= 1:
                return
            time.sleep(0.0005)
    except Exception:
        # Cells may have put something else in the place of any of it.
        pass


def asks_for_own_loop():
    """Whether what is called two frames up was called by a cell on the interpreter's own thread, while no event loop runs."""
    is_cell = sys._getframe(2).f_code.co_filename.startswith(CELL)
    return is_cell and asyncio._get_running_loop() is None and _thread.get_ident() == current.thread


def give_cells_a_loop():
    """Has cells that wait for nothing find the loop of those that do, as in a notebook. All other code finds what Python has."""
    create_task, get_running_loop = asyncio.create_task, asyncio.get_running_loop

    def create_own_task(coroutine, **keywords):
        if asks_for_own_loop():
            current.has_tasks = True
            return current.own_loop().create_task(coroutine, **keywords)
        return create_task(coroutine, **keywords)

    def get_own_loop():
        if asks_for_own_loop():
            current.has_tasks = True
            return current.own_loop()
        return get_running_loop()

    asyncio.create_task = functools.update_wrapper(create_own_task, create_task)
    asyncio.get_running_loop = functools.update_wrapper(get_own_loop, get_running_loop)


give_cells_a_loop()


def flush_before(module, name):
    """Has what was printed written before another program is started, which writes to the same pipe, or the descriptor is another file's."""
    function = getattr(module, name, None)
    if function is None:
        return

    @functools.wraps(function)
    def flushed(*arguments, **keywords):
        native.flush_output()
        return function(*arguments, **keywords)

    setattr(module, name, flushed)
    # Pickled by the name that it has in its own module.
    setattr(sys.modules.get(function.__module__, module), function.__name__, flushed)
    for supported in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
        if function in supported:
            supported.add(flushed)


for each in ("system", "posix_spawn", "posix_spawnp", "execv", "execve", "dup2"):
    flush_before(os, each)
flush_before(_posixsubprocess, "fork_exec")
# Where it has a name of its own for that.
flush_before(subprocess, "_fork_exec")


def read(path):
    """The beginning of a file of /proc. Without a file object, which takes more calls than the reading does."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)


def own_children():
    try:
        return read("/proc/self/task/%d/children" % os.getpid()).split()
    except OSError:
        return ()


def is_alive(pid):
    """Whether it runs; else it is dead and only not waited for."""
    try:
        fields = read("/proc/%d/stat" % int(pid)).rpartition(b")")[2].split()
        # The state is that of its first thread, which may have ended before others.
        return fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    except OSError:
        return False


def read_all(file):
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, "rb") as opened:
        return opened.read()


def is_open(stream):
    try:
        return stream is not None and not stream.closed
    except ValueError:
        # It was detached from what it read.
        return False


def context(interpreter, options, files):
    """A job that never answers: the interpreter is the context's from now on."""
    if options["branch"]:
        # Returns only where it fails.
        failed = native.take(*files[:2])
        os.write(interpreter.channel, b"y" + os.strerror(-failed).encode())
        os._exit(1)
    os.environ.update(options["environment"])
    os.environ.setdefault("MPLBACKEND", "Agg")
    if options["directory"]:
        try:
            os.makedirs(options["directory"], exist_ok=True)
            os.chdir(options["directory"])
        except (OSError, ValueError) as error:
            os.write(interpreter.channel, b"R" + str(error).encode("utf-8", "replace")[:1000])
            os._exit(1)
    sys.path[:0] = [""] if "" not in sys.path else []
    gc.enable()
    # Whoever opens the context need not wait for its first checkpoint.
    os.write(interpreter.channel, b"b")
    interpreter.serve()
