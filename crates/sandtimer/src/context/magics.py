"""What a notebook's cells may have besides Python: shell commands, magics, and what IPython and Plotly display there."""

import re
import shlex
import subprocess
import time

# What a magic of this name would do, in Python.
INSTEAD = {
    "autoreload": "importlib.reload(module)",
    "load_ext": "an import of what the extension offers",
    "reload_ext": "an import of what the extension offers",
    "conda": "%pip, or !conda",
    "run": "exec(open(path).read())",
    "debug": "print() or logging",
    "pdb": "print() or logging",
    "prun": "cProfile.run(statement)",
    "lprun": "cProfile.run(statement)",
    "memit": "tracemalloc",
    "who": "dir()",
    "whos": "globals()",
    "store": "pickle.dump() to a file of the workspace",
    "history": "the runs of this context",
    "capture": "contextlib.redirect_stdout()",
    "javascript": "a context with the language javascript",
    "js": "a context with the language javascript",
}
COMMANDS = ("ls", "ll", "cat", "cp", "mv", "rm", "mkdir", "rmdir", "head", "tail", "man", "less", "more")
SHELLS = ("bash", "sh")
MARKUP = {"html": "text/html", "HTML": "text/html", "markdown": "text/markdown", "latex": "text/latex", "svg": "image/svg+xml"}
# Options of `%timeit` that take a number.
NUMBERS = {"-n": "number", "-r": "repeat"}


class Magics:
    """What the lines and cells that begin with `!` and `%` call."""

    def __init__(self):
        self.previous = None

    def line(self, sign, written):
        text, is_assigned = written
        if sign == "!!":
            return self.shell(text, True)
        if sign == "!":
            return self.shell(text, is_assigned)
        name, _, arguments = text.partition(" ")
        if name in COMMANDS:
            return self.shell({"ll": "ls -l"}.get(name, name) + " " + arguments, is_assigned)
        return self.of(name, "line_", "%")(arguments.strip())

    def cell(self, name, arguments, body):
        if name in SHELLS:
            return self.script([name, *shlex.split(arguments)], body)
        if name in MARKUP:
            return show({MARKUP[name]: body})
        return self.of(name, "cell_", "%%")(arguments, body)

    def of(self, name, prefix, sign):
        found = getattr(self, prefix + name, None) if name.isidentifier() else None
        if found is None:
            instead = INSTEAD.get(name)
            here = [each[len(prefix) :] for each in dir(self) if each.startswith(prefix)]
            here += COMMANDS if prefix == "line_" else (*SHELLS, *MARKUP)
            hint = "write %s instead" % instead if instead else "there are " + ", ".join(sign + each for each in sorted(here))
            raise RuntimeError("%s%s is not available in this interpreter; %s" % (sign, name, hint))
        return found

    # -- the shell ---------------------------------------------------------------------------------------------------

    def shell(self, command, is_assigned):
        """Runs a command; its lines, where they are assigned."""
        flush()
        shell = "/bin/bash" if os.path.exists("/bin/bash") else None
        out = subprocess.PIPE if is_assigned else None
        done = subprocess.run(filled_in(command), shell=True, executable=shell, stdout=out)
        namespace()["_exit_code"] = done.returncode
        return done.stdout.decode("utf-8", "replace").splitlines() if is_assigned else None

    def script(self, command, body):
        flush()
        subprocess.run(command, input=body.encode("utf-8", "surrogateescape"), check=True)

    def line_pip(self, arguments):
        flush()
        done = subprocess.run([sys.executable, "-m", "pip", *shlex.split(filled_in(arguments))])
        namespace()["_exit_code"] = done.returncode

    # -- the process -------------------------------------------------------------------------------------------------

    def line_cd(self, arguments):
        words = shlex.split(filled_in(arguments))
        target = words[-1] if words else "~"
        if target == "-":
            if self.previous is None:
                raise RuntimeError("%cd -: there is no earlier directory")
            target = self.previous
        before = os.getcwd()
        os.chdir(os.path.expanduser(target))
        self.previous = before
        print(os.getcwd())

    def line_pwd(self, _):
        return os.getcwd()

    def line_env(self, arguments):
        name, sign, value = arguments.partition("=")
        if not sign:
            name, sign, value = arguments.partition(" ")
        name, value = name.strip(), value.strip()
        if not name:
            return dict(os.environ)
        if not sign:
            return os.environ[name]
        os.environ[name] = filled_in(value)
        print("env: %s=%s" % (name, os.environ[name]))

    line_set_env = line_env

    def line_matplotlib(self, _):
        # Figures are shown as they are.
        return None

    line_config = line_precision = line_matplotlib

    # -- time --------------------------------------------------------------------------------------------------------

    def line_time(self, statement):
        if not statement:
            raise RuntimeError("%time: expected a statement after it, as in %time f(1)")
        began = time.perf_counter(), time.process_time()
        value = executed(statement)
        wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
        print("CPU times: %s\nWall time: %s" % (readable(cpu), readable(wall)))
        return value

    def cell_time(self, arguments, body):
        return self.line_time(arguments + "\n" + body if arguments else body)

    def line_timeit(self, arguments, setup="pass"):
        import timeit

        wanted = {"number": 0, "repeat": 7}
        while arguments[:2] in NUMBERS or arguments[:2] in ("-q", "-o"):
            option, arguments = arguments[:2], arguments[2:].lstrip()
            if option in NUMBERS:
                value, _, arguments = arguments.partition(" ")
                if not value.isdigit() or value == "0":
                    raise RuntimeError("%%timeit %s: expected a number, got %r" % (option, value))
                wanted[NUMBERS[option]] = int(value)
        if not arguments.strip():
            raise RuntimeError("%timeit: expected a statement after it, as in %timeit f(1)")
        timer = timeit.Timer(arguments, setup, globals=namespace())
        number = wanted["number"] or timer.autorange()[0]
        times = [taken / number for taken in timer.repeat(wanted["repeat"], number)]
        mean = sum(times) / len(times)
        spread = (sum((taken - mean) ** 2 for taken in times) / len(times)) ** 0.5
        shape = "%s ± %s per loop (mean ± std. dev. of %d runs, %d loops each)"
        print(shape % (readable(mean), readable(spread), len(times), number))

    def cell_timeit(self, arguments, body):
        options = re.match(r"((?:-[nr]\s*\d+\s*|-[qo]\s*)*)(.*)", arguments, re.DOTALL)
        self.line_timeit(options[1] + body, options[2] or "pass")

    # -- files -------------------------------------------------------------------------------------------------------

    def cell_writefile(self, arguments, body):
        words = shlex.split(filled_in(arguments))
        if not words or words[:-1] not in ([], ["-a"]):
            raise RuntimeError("%%writefile: expected the name of a file, got " + repr(arguments))
        with open(os.path.expanduser(words[-1]), "a" if words[0] == "-a" and len(words) > 1 else "w") as file:
            file.write(body)
        print("Writing " + words[-1])

    cell_file = cell_writefile


magics = Magics()


def namespace():
    return sys.modules["__main__"].__dict__


def executed(statement):
    """Executes Python in the cells' namespace; the value of the last line, if that is an expression."""
    body, last = compiled(statement, "<magic>")
    for code in (body, last):
        if code is not None and code.co_flags & inspect.CO_COROUTINE:
            raise RuntimeError("`await` does not work within a magic; leave the magic out")
    if body is not None:
        eval(body, namespace())
    return None if last is None else eval(last, namespace())


def filled_in(command):
    """A command with `{expression}` and `$name` of Python's in it; `$name` that Python has not is the shell's."""
    names = namespace()

    def value(found):
        try:
            return str(eval(found[1], names))
        except Exception:
            return found[0]

    def variable(found):
        return str(names[found[1]]) if found[1] in names else found[0]

    command = re.sub(r"\{([^{}]+)\}", value, command)
    return re.sub(r"(?<![\\$])\$([A-Za-z_]\w*)", variable, command)


def readable(seconds):
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return "%.3g %s" % (seconds * factor, unit)
    return "%.3g ns" % (seconds * 1e9)


# -- what libraries display ------------------------------------------------------------------------------------------------


def show(data):
    """Displays what is a bundle by MIME type already."""
    current.show(data)


def display_as_ipython(*values, raw=False, display_id=None, **_):
    for value in values:
        show(dict(value)) if raw else current.display(value)
    handle = getattr(sys.modules.get("IPython.core.display_functions"), "DisplayHandle", None)
    return handle(None if display_id is True else display_id) if display_id and handle else None


def publish(data, *_, **__):
    show(dict(data))


def clear_output(*_, **__):
    """There is nothing to clear: what was displayed was sent."""


def put_display(module, _):
    """IPython's functions, which print where no IPython shell runs."""
    for name, function in (("display", display_as_ipython), ("publish_display_data", publish), ("clear_output", clear_output)):
        if hasattr(module, name):
            setattr(module, name, function)


def put_show(module, _):
    """Plotly's: its figures are data for the client that shows them, and there is no browser."""
    if hasattr(module, "show_elsewhere"):
        return
    show_elsewhere = module.show_elsewhere = module.show

    def show_figure(figure, renderer=None, validate=True, **options):
        if renderer is None and "PLOTLY_RENDERER" not in os.environ:
            current.display(figure)
        else:
            show_elsewhere(figure, renderer=renderer, validate=validate, **options)

    module.show = show_figure
    if "PLOTLY_RENDERER" not in os.environ:
        module.renderers.default = "plotly_mimetype"


# They are called when such a module was imported, and in each child that has it from its zygote.
SEEDED["IPython.core.display_functions"] = put_display
SEEDED["plotly.io._renderers"] = put_show


class DisplayModules:
    """Finds `IPython.display` where IPython is not installed: cells that were written for notebooks import it."""

    NAMES = ("IPython", "IPython.core", "IPython.core.display", "IPython.display")

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.NAMES:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, cls, is_package=name in ("IPython", "IPython.core"))

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        module.get_ipython = lambda: None
        module.version_info = (8, 0, 0, "")
        module.__version__ = "8.0.0"
        module.display, module.publish_display_data, module.clear_output = display_as_ipython, publish, clear_output
        for name, kind in SHOWN_AS.items():
            setattr(module, name, type(name, (Shown,), {"kind": kind, "__module__": "IPython.display"}))


SHOWN_AS = {
    "HTML": "text/html",
    "Markdown": "text/markdown",
    "SVG": "image/svg+xml",
    "Latex": "text/latex",
    "Math": "text/latex",
    "JSON": "application/json",
    "Image": "image/png",
    "Pretty": "text/plain",
}


class Shown:
    """Data that is shown as what it is."""

    kind = "text/plain"

    def __init__(self, data=None, url=None, filename=None, **options):
        if url is not None:
            raise RuntimeError("url=: nothing is fetched from the network to be displayed; give the data, or filename=")
        if isinstance(data, (str, os.PathLike)) and filename is None and self.kind == "image/png":
            data, filename = None, data
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
            if self.kind != "image/png":
                data = data.decode("utf-8", "replace")
        self.data, self.filename, self.options = data, filename, options

    def _repr_mimebundle_(self, include=None, exclude=None):
        kind = self.kind
        if kind == "image/png" and isinstance(self.data, bytes):
            kind = "image/jpeg" if self.data[:2] == b"\xff\xd8" else "image/gif" if self.data[:3] == b"GIF" else kind
        data = "$\\displaystyle %s$" % self.data if type(self).__name__ == "Math" else self.data
        return {kind: mime_data(data)}

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


sys.meta_path.append(DisplayModules)
