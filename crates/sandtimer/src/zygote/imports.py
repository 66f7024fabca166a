"""What a zygote imports before it serves, and what an import must not leave."""


def threads():
    return len(os.listdir("/proc/self/task"))


def uses_gpu():
    """Whether a node is open that only the process it was opened in can use."""
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + number) in ("/dev/kfd", "/dev/nvidia-uvm"):
                return True
        except OSError:
            pass
    return False


def preload(names, learned):
    """Imports modules; the reason why this cannot be a zygote, or None."""
    before = process_state() if learned else None
    for name in (*names, *learned):
        try:
            __import__(name)
        except BaseException as error:
            line = traceback.format_exception_only(type(error), error)[-1].strip()
            return "cannot import %r, which is to be preloaded: %s" % (name, line)
        if uses_gpu():
            return (
                "uses the GPU once %r is preloaded, and a process that is forked from it could not; "
                "leave it out of preload (it is then imported by the calls that need it)" % name
            )
        if threads() > 1:
            return (
                "has other threads once %r is preloaded (%d of them), and a process with threads cannot be forked safely; "
                "leave it out of preload (it is then imported by the calls that need it)" % (name, threads() - 1)
            )
        if name in learned:
            after = process_state()
            for what in after:
                if after[what] - before[what]:
                    verb = "lack" if what in LACKED else "share"
                    return "has %s once %r is preloaded, which all calls would %s" % (what, name, verb)
    return None


# What forks do not have.
LACKED = ("a timer", "processes that it started")


def process_state():
    """What all forks of this process would have in common, continue from alike, or lack, by its kind."""
    files = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            files.add((number, os.readlink("/proc/self/fd/" + number)))
        except OSError:
            # The one that the list was read by.
            pass
    with open("/proc/self/maps", "rb") as maps:
        memory = {line.split(b" ", 1)[0] for line in maps if line.split(b" ", 2)[1][1:4:2] == b"ws"}
    try:
        with open("/proc/self/task/%d/children" % os.getpid(), "rb") as children:
            processes = set(children.read().split())
    except OSError:
        # Kernels without CONFIG_PROC_CHILDREN do not have it.
        processes = set()
    return {
        "files open": files,
        "shared memory": memory,
        "a generator of random numbers of its own": generators(),
        "a timer": {kind for kind in range(3) if signal.getitimer(kind)[0]},
        "processes that it started": processes,
    }


def generators():
    """The addresses of the generators of random numbers that are not seeded again in each fork."""
    # In their place may be modules of the user's own.
    random, numpy = sys.modules.get("random"), sys.modules.get("numpy.random.mtrand")
    kinds = [getattr(random, "Random", None), getattr(numpy, "RandomState", None)]
    kinds.append(getattr(sys.modules.get("numpy.random"), "Generator", None))
    kinds = tuple(kind for kind in kinds if isinstance(kind, type))
    # Of the first two one each is seeded; what draws from the system needs no seed.
    others = {id(getattr(random, "_inst", None)), id(getattr(numpy, "_rand", None))}
    system = getattr(random, "SystemRandom", ())
    found = (each for each in gc.get_objects() if issubclass(type(each), kinds) and not issubclass(type(each), system))
    return {id(each) for each in found} - others
