def execute():
    """Executes the program at descriptor 3 as `python3 FILE` does. Its file is a name in the sandbox's root that leads to descriptor 100
    of the sandbox's second process, which this is as a rule; elsewhere the program has none."""
    import os, sys

    source_descriptor, name = 100, "/sandtimer/main.py"
    os.dup2(3, source_descriptor, inheritable=False)
    os.close(3)
    if os.getpid() != 2 or not os.path.exists(name):
        name = "<string>"
    source = os.pread(source_descriptor, os.fstat(source_descriptor).st_size, 0)
    main = sys.modules["__main__"].__dict__
    del main["execute"]
    if name != "<string>":
        main["__file__"] = sys.argv[0] = name
    if sys.path[:1] == [""]:
        sys.path[0] = os.getcwd()

    def show(kind, error, trace):
        # The first two frames are not the program's.
        sys.__excepthook__(kind, error, trace and trace.tb_next and trace.tb_next.tb_next)

    sys.excepthook = show
    sys.setrecursionlimit(sys.getrecursionlimit() + 2)
    exec(compile(source, name, "exec", dont_inherit=True), main)


execute()
