"""Whole programs: run and ended as `python3 FILE` runs and ends them."""

import atexit
import linecache
import marshal


def program(body, options):
    """Runs a whole program as __main__, to its end; the answer: the value of its last line, if that is an expression.

    With the option `compiled`, `body` is its source and its code, marshalled, and the value is None.
    """
    name, code = options.get("name") or FILE, None
    if options.get("compiled"):
        source, code = marshal.loads(body)
    else:
        source = bytes(body).decode("utf-8", "surrogatepass")
    show_source(name, source)
    sys.argv = [name] + list(options.get("arguments", ()))
    # Not the stream's own, which would put back the ways in which it writes.
    if sys.stdout.errors != sys.stdin.errors:
        type(sys.stdout).reconfigure(sys.stdout, errors=sys.stdin.errors)
    main = sys.modules["__main__"].__dict__
    main["__builtins__"] = sys.modules["builtins"]
    main.setdefault("__annotations__", {})
    sys.path.insert(0, os.getcwd())
    if keep_source(source):
        main["__file__"] = sys.argv[0] = FILE
    # The frames below it are not the program's.
    sys.setrecursionlimit(sys.getrecursionlimit() + depth() + frames_lost)
    last = None
    if code is None:
        code, last = split_last_expression(source, name)
    try:
        exec(code, main)
        said = written(None)
        if last is not None:
            kind, *rest = written(eval(last, main))
            # A program's last line is often not data, and its value was not asked for.
            said = (kind, *rest) if kind == VALUE else written(None)
        end_program(main)
        return said
    except SystemExit as end:
        end_program(main)
        leave_with(end)
    except BaseException as error:
        if sys.excepthook is not sys.__excepthook__:
            sys.excepthook(type(error), error, without_own(error))
        end_program(main)
        raise


def split_last_expression(source, name):
    """The code of a program without its last line, and that of its last line, or None if that is not an expression."""
    import ast

    tree = compile(source, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    code = compile(tree, name, "exec", dont_inherit=True)
    return code, last and compile(ast.Expression(last.value), name, "eval", dont_inherit=True)


def show_source(name, source):
    """Has tracebacks find the lines of a file."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)


# The name of a program's file, in the root of its sandbox, and the descriptor of the program's process that it leads to.
FILE = "/sandtimer/main.py"
SOURCE = 100
# Where commands find sitecustomize.py.
COMMANDS = "/sandtimer/python"


def keep_source(source):
    """Has FILE lead to a program's source. False where there is no room for that."""
    try:
        file = os.memfd_create("main.py")
    except OSError:
        return False
    try:
        rest = source.encode("utf-8", "surrogatepass")
        while rest:
            rest = rest[os.write(file, rest) :]
        os.dup2(file, SOURCE, inheritable=False)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def script(job, files):
    """Runs a whole program as the run that this process is: it has no answer but its exit code.

    `job`: SCRIPT, whether the engine reads stdout and the memory before it (one byte), and the whole environment, its variables
    separated by NUL. `files`: its source, its three standard streams and what it is given from descriptor 3 on.
    """
    # Before anything else is opened: what it is given takes the first numbers.
    take_files([file for file in files if file >= 0])
    source = os.pread(SOURCE, os.fstat(SOURCE).st_size, 0)
    show_source(FILE, source.decode("utf-8", "replace"))
    set_environment(dict(variable.split(b"=", 1) for variable in job[5:].split(b"\0")))
    is_new = reopen_streams()
    if job[4] and (is_new or write_unshared is None):
        share_output(native.open_output)
    elif job[4]:
        # It is another pipe than in the rehearsal.
        native.open_output(write_unshared)
    elif not is_new:
        unshare_output()
    sys.argv = [FILE]
    sys.orig_argv = [sys.executable] + sys.argv
    sys.dont_write_bytecode = False
    own = [os.getcwd()] + [path or os.getcwd() for path in python_path()]
    sys.path[:0] = own
    forget_shadowed(own)
    gc.enable()
    main = sys.modules["__main__"].__dict__
    set_module_attributes(main)
    # The frames below it are not the program's.
    sys.setrecursionlimit(sys.getrecursionlimit() + depth() + frames_lost)
    end = None
    try:
        exec(compile(source, FILE, "exec", dont_inherit=True), main)
    except BaseException as error:
        end = error
        if not isinstance(error, SystemExit):
            error.__traceback__ = without_own(error)
            sys.excepthook(type(error), error, error.__traceback__)
    end_program(main)
    if isinstance(end, KeyboardInterrupt):
        flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    leave_with(end if isinstance(end, SystemExit) else None, int(end is not None))


# What most programs do.
REHEARSAL = b"import sys\nfor number in range(2):\n    print(end=str(number)[2:])\n"


def rehearse_script():
    """Does what every program does, so that its pages are this process's own before there is one. What it leaves, each program replaces."""
    show_source(FILE, REHEARSAL.decode())
    set_environment(dict(os.environb._data))
    forget_shadowed(["/workspace"])
    main = {"__name__": "__main__"}
    set_module_attributes(main)
    exec(compile(REHEARSAL, FILE, "exec", dont_inherit=True), main)
    let_go(main)


def set_module_attributes(main):
    """Sets the attributes of a module that is a program from a file."""
    loader = importlib.machinery.SourceFileLoader("__main__", FILE)
    main.update(__file__=FILE, __cached__=None, __loader__=loader, __builtins__=sys.modules["builtins"])
    main.setdefault("__annotations__", {})


def set_environment(wanted):
    """Changes only what differs: each variable that is set writes to several pages."""
    # What os.environ and os.environb share.
    kept = os.environb._data
    zone = kept.get(b"TZ")
    for name in [name for name in kept if name not in wanted]:
        del os.environb[name]
    for name, value in wanted.items():
        if kept.get(name) != value:
            os.environb[name] = value
    if zone != wanted.get(b"TZ"):
        time.tzset()


def take_files(files):
    """Puts what a program is given at the descriptors that a command has it at."""
    source, *streams = files
    try:
        os.dup2(source, SOURCE, inheritable=False)
    finally:
        os.close(source)
    for number, file in enumerate(streams):
        if number != file:
            os.dup2(file, number)
            os.close(file)


STREAMS = ("stdin", io.BufferedReader), ("stdout", io.BufferedWriter), ("stderr", Through)
# The type and device of the file that each was opened on.
opened_on = [None, None, None]


def reopen_streams():
    """Opens the standard streams as an interpreter opens those that are no terminals at its start, unless they were opened on the same
    kind of file as they are on now. Whether stdout was opened."""
    is_new = [file_kind(number) != opened_on[number] for number in range(3)]
    for number, (name, kind) in enumerate(STREAMS):
        if not is_new[number]:
            continue
        opened_on[number] = file_kind(number)
        before = getattr(sys, name)
        raw = io.FileIO(number, "w" if number else "r", closefd=False)
        raw.name = "<%s>" % name
        # Those of stdin are those of the locale.
        errors = "backslashreplace" if number == 2 else sys.stdin.errors
        stream = io.TextIOWrapper(kind(raw), before.encoding, errors, "\n", number == 2)
        stream.mode = raw.mode[:1]
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)
    return is_new[1]


def file_kind(number):
    """The type of an open file, and of what device it is."""
    status = os.fstat(number)
    return status.st_mode & 0o170000, status.st_rdev


def python_path():
    """The directories of PYTHONPATH, which an interpreter reads at its start, without that for the Pythons of commands."""
    value = os.environ.get("PYTHONPATH")
    return [path for path in value.split(os.pathsep) if path != COMMANDS] if value else []


def forget_shadowed(directories):
    """Has modules imported again of which one of these directories, which come first, has another by the same name."""
    found = {name.partition(".")[0] for directory in directories for name in listed(directory)} - at_start
    names = {name for name in found if name in sys.modules}
    # Without any, the names of all modules are left alone, and with them the pages that they are in.
    for name in [name for name in sys.modules if name.partition(".")[0] in names] if names else ():
        del sys.modules[name]


def listed(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


def depth():
    """How many frames there are below the caller, and its own."""
    frame, count = sys._getframe(1), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


RECURSION = """
count = 0
def recur():
    global count
    count += 1
    recur()
try:
    recur()
except RecursionError:
    pass
"""
frames_lost = 0


def measure_recursion():
    """Learns how many frames more exec() takes from the limit of recursion in this version of Python, for all programs to come."""
    global frames_lost
    names, limit, room = {}, sys.getrecursionlimit(), 200
    sys.setrecursionlimit(depth() + room)
    try:
        exec(RECURSION, names)
    finally:
        sys.setrecursionlimit(limit)
    # Of a program's frames one is that of its own module.
    frames_lost = room - 1 - names["count"]


def without_own(error):
    """The traceback of an exception, from the first frame on that is not of this program."""
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename == __file__:
        own = own.tb_next
    return own


def end_program(main):
    """What an interpreter does at a program's end: waits for its threads, calls what it registered, and lets go of its objects."""
    # Where there is nothing to wait for or to call, that would only write to fifty pages that the zygote's children share.
    if threads() > 1 or has_registered():
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
        if threads() > 1:
            # A thread that is not waited for would find them gone.
            return
    let_go(main)


def has_registered():
    """Whether something is to be called at this program's end, besides the shutdown of a `logging` that has only its own handler."""
    threading, logging = sys.modules.get("threading"), sys.modules.get("logging")
    return (
        atexit._ncallbacks() > int(logging is not None)
        or len(getattr(logging, "_handlerList", ())) > 1
        or bool(getattr(threading, "_threading_atexits", ()))
    )


def let_go(main):
    """Lets go of a module's objects, in the order in which an interpreter does."""
    names = [name for name in main if name != "__builtins__"]
    names.sort(key=lambda name: not (isinstance(name, str) and name[:1] == "_" and name[1:2] != "_"))
    for name in names:
        main[name] = None
    gc.collect()


def leave_with(end, code=0):
    """Ends this process as an exception, or None and an exit code, end an interpreter."""
    if isinstance(end, SystemExit):
        code = end.code
    elif end is not None:
        code = 1
        traceback.print_exception(type(end), end, without_own(end))
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    flush()
    os._exit((code or 0) & 0xFF)
