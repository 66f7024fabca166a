"""Whole programs: run and ended as `python3 FILE` runs and ends them."""


def program(source, options):
    """Runs a whole program as __main__, to its end; the answer: the value of its last line, if that is an expression."""
    import ast
    import linecache

    name = options.get("name") or "<program>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    sys.argv = [name] + list(options.get("arguments", ()))
    sys.stdout.reconfigure(errors=sys.stdin.errors)
    main = sys.modules["__main__"].__dict__
    main["__builtins__"] = __builtins__
    # The frames below it are not the program's.
    sys.setrecursionlimit(sys.getrecursionlimit() + depth() + frames_lost)
    tree = compile(source, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, name, "exec", dont_inherit=True), main)
        said = nothing()
        if last is not None:
            kind, *rest = written(eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), main))
            # A program's last line is often not data, and its value was not asked for.
            said = (kind, *rest) if kind == VALUE else nothing()
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


def nothing():
    return (VALUE, *encode(None))


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
    import atexit

    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    if threads() > 1:
        # A thread that is not waited for would find them gone.
        return
    names = [name for name in main if name != "__builtins__"]
    names.sort(key=lambda name: not (isinstance(name, str) and name[:1] == "_" and name[1:2] != "_"))
    for name in names:
        main[name] = None
    gc.collect()


def leave_with(end):
    """Ends this process as an exception, or None, ends an interpreter."""
    code = end.code if isinstance(end, SystemExit) else int(end is not None)
    if end is not None and not isinstance(end, SystemExit):
        traceback.print_exception(type(end), end, without_own(end))
    elif code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    flush()
    os._exit((code or 0) & 0xFF)
