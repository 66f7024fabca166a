def execute():
    """Executes the program at descriptor 3 as `python3 FILE` does. Its file is a name in the sandbox's root that leads to descriptor 100
    of the sandbox's second process, which this is as a rule; elsewhere the program's code names the descriptor, by which tracebacks have
    its lines, and it has no file that another process could open."""
    import os, sys

    source_descriptor, name = min(100, os.sysconf("SC_OPEN_MAX") - 1), "/sandtimer/main.py"
    os.dup2(3, source_descriptor, inheritable=False)
    os.close(3)
    has_file = os.getpid() == 2 and source_descriptor == 100 and os.path.exists(name)
    if not has_file:
        name = f"/proc/self/fd/{source_descriptor}"
    source = os.pread(source_descriptor, os.fstat(source_descriptor).st_size, 0)
    main = sys.modules["__main__"].__dict__
    del main["execute"]
    if has_file:
        main["__file__"] = sys.argv[0] = name
    if sys.path[:1] == [""]:
        sys.path[0] = os.getcwd()

    own = sys._getframe().f_code

    def show(kind, error, trace):
        # The frames up to this function's are not the program's. What is printed is the traceback that the exception has.
        if trace and trace.tb_next and trace.tb_next.tb_frame.f_code is own:
            trace = trace.tb_next.tb_next
            error = error.with_traceback(trace)
        sys.__excepthook__(kind, error, trace)

    sys.excepthook = show
    sys.setrecursionlimit(sys.getrecursionlimit() + 2)
    exec(compile(source, name, "exec", dont_inherit=True), main)


execute()
