"""What context.py makes of a cell's text before it is executed, and of the traceback when it fails."""

import ast
import asyncio
import io
import linecache
import re

# Signs without which there are few statements, and words that the others begin with. Behind a backslash there may be something
# to warn of, which would be said twice.
STATEMENTS = frozenset("=:;\n\\")
STATEMENT_WORDS = ("import ", "from ", "assert ", "raise ", "del ", "return ", "global ", "*")
LONGEST_EXPRESSION = 200
# What the files of cells are called, with their number.
CELL = "<cell "
# Frames that lead to a cell's own, where it waits for something.
ASYNCIO = os.path.dirname(asyncio.__file__) + os.sep
# A line of a notebook's shell commands and magics: its indent, what its value is assigned to, the sign, and the rest.
MAGIC = re.compile(r"(\s*)([A-Za-z_][^=!%#]*=\s*)?(!!|!|%)(?![=%])(.*)", re.DOTALL)
# Tokens after the last statement's own.
NO_CODE = ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")


def compiled(source, name):
    """A cell's code, and apart from it that of its last line, if that is an expression without a semicolon after it.

    What is not Python is tried as a notebook's cell: with a byte order mark, indented as a whole, with shell commands and magics.
    """
    source = source[1:] if source[:1] == "\ufeff" else source
    written = source
    while True:
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            return compiled_python(written, name)
        except SyntaxError as error:
            failure = error
        again = dedented(written, failure)
        if again is not None:
            source = written = again
            continue
        again = without_magic(written, failure)
        if again is None:
            # Its frames are those of the compiler's callers.
            raise failure.with_traceback(None)
        written = again


def compiled_python(source, name):
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    is_short = len(source) <= LONGEST_EXPRESSION and not source[:1].isspace() and STATEMENTS.isdisjoint(source)
    if is_short and not source.startswith(STATEMENT_WORDS):
        # What may be an expression and nothing else, as short cells are: its tree would take half as many pages again.
        try:
            return None, compile(source, name, "eval", flags=flags, dont_inherit=True)
        except (SyntaxError, ValueError):
            # It is not, or is wrong, which is said below.
            pass
    tree = ast.parse(source, name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not is_silent(source):
        last = ast.Expression(tree.body.pop().value)
    body = compile(tree, name, "exec", flags=flags, dont_inherit=True) if tree.body else None
    return body, last and compile(last, name, "eval", flags=flags, dont_inherit=True)


def is_silent(source):
    """Whether the last statement has a semicolon after it. One in a comment is none."""
    if ";" not in source:
        return False
    import tokenize

    last = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if tokenize.tok_name[token.type] not in NO_CODE:
                last = token.string
    except (tokenize.TokenError, SyntaxError):
        return source.rstrip().endswith(";")
    return last == ";"


def dedented(source, error):
    """A cell that is indented as a whole, without that; None for others."""
    lines = source.splitlines(keepends=True)
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    indent = first[: len(first) - len(first.lstrip())]
    if not indent or not isinstance(error, IndentationError) or lines[: error.lineno].count(first) == 0:
        return None
    return "".join(line[len(indent) :] if line.startswith(indent) else line for line in lines)


def without_magic(source, error):
    """The cell with the line that is not Python, if that is a shell command or a magic, written as Python; else None."""
    lines = source.splitlines()
    at = (error.lineno or 0) - 1
    first = next((index for index, line in enumerate(lines) if line.strip()), None)
    if first is not None and lines[first].startswith("%%"):
        name, _, arguments = lines[first][2:].strip().partition(" ")
        body = "\n".join(lines[first + 1 :]) + "\n"
        lines[first:] = ["%s.cell(%r, %r, %r)" % (magic_name(), name, arguments.strip(), body)]
        return "\n".join(lines)
    found = MAGIC.fullmatch(lines[at]) if 0 <= at < len(lines) else None
    if found is None:
        return None
    indent, target, sign, text = found.groups()
    while text.endswith("\\") and at + 1 < len(lines):
        text = text[:-1] + " " + lines.pop(at + 1).strip()
        # Lines keep their numbers.
        lines.insert(at + 1, "")
        at += 1
    lines[error.lineno - 1] = "%s%s%s.line(%r, %r)" % (indent, target or "", magic_name(), sign, (text.strip(), bool(target)))
    return "\n".join(lines) + "\n"


def magic_name():
    """What cells know the magics by, from their first use on."""
    sys.modules["__main__"].__dict__["__magic__"] = magics
    return "__magic__"


def leave_out_own(trace):
    """Leaves out the frames of this program that the interrupt passed through."""
    while trace is not None and trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code in (Handlers.interrupt.__code__, Handlers.resume.__code__):
            trace.tb_next = None
        trace = trace.tb_next


def from_cell(trace):
    """A traceback from the first frame that is the cell's, without the interpreter's own after that. All of it where frames that are
    neither's come before."""
    first = trace
    while first is not None and is_of_interpreter(first):
        first = first.tb_next
    if first is None or not first.tb_frame.f_code.co_filename.startswith(CELL):
        return trace
    at = first
    while at.tb_next is not None:
        if at.tb_next.tb_frame.f_code.co_filename == __file__:
            at.tb_next = at.tb_next.tb_next
        else:
            at = at.tb_next
    return first


def is_of_interpreter(trace):
    name = trace.tb_frame.f_code.co_filename
    return name == __file__ or name.startswith(ASYNCIO)
