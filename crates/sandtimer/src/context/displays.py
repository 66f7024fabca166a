"""How the values of cells are shown: by MIME type, as notebooks do it, and as JSON."""

import base64
import inspect
import io
import json

LONGEST_REPR = 1 << 20
# Of a table's data, what is shown beside its text.
MOST_CELLS = 100_000
MOST_DATA = 16 << 20
TEXT_TYPES = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/pdf", "_repr_pdf_"),
    ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
)
# Kinds of numpy's scalars that are a bool, a number or a string of Python's.
SCALAR_KINDS = "biufU"


def of_numpy(value):
    """A numpy scalar as a value of Python's own; fails for everything else."""
    if is_scalar(value):
        own = value.item()
        if type(own) in PLAIN:
            return own
    raise TypeError("%s is not JSON" % type(value).__name__)


def is_scalar(value):
    kind = getattr(sys.modules.get("numpy"), "generic", None)
    return isinstance(kind, type) and isinstance(value, kind) and value.dtype.kind in SCALAR_KINDS


ENCODER = json.JSONEncoder(allow_nan=False, default=of_numpy)
ENCODE_TEXT, MAKE_WRITER = json.encoder.encode_basestring_ascii, json.encoder.c_make_encoder


def written_natively(value):
    # The first is what it is writing, by which it knows a value that holds itself.
    return "".join(MAKE_WRITER({}, ENCODER.default, ENCODE_TEXT, None, ": ", ", ", False, False, False)(value, 0))


def encoder():
    """What writes a value as JSON: what `json.JSONEncoder` has in C, without the functions that it makes for each value, which touch
    more pages than the writing. It is none of Python's promises, so it is tried."""
    try:
        written_natively({"a": [1, "b"]})
        return written_natively
    except Exception:
        return ENCODER.encode


encoded = encoder()


def as_json(value):
    try:
        return encoded(value).encode("utf-8", "replace")
    except Exception:
        # Something in a bundle is not JSON: the rest of it is.
        return ENCODER.encode(only_json(value)).encode("utf-8", "replace")


def only_json(value):
    if "results" in value:
        return dict(value, results=[only_json(result) for result in value["results"]])
    return {kind: data for kind, data in value.items() if is_json(data)}


def is_json(data):
    try:
        encoded(data)
        return True
    except Exception:
        return False


def bundle(value):
    """A value by MIME type, as notebooks show it."""
    shown = {"text/plain": repr(value)[:LONGEST_REPR]}
    if type(value) in PLAIN or isinstance(value, type):
        if isinstance(value, (bool, int, float, str)) and value == value and abs_is_finite(value):
            shown["application/json"] = value
        return shown
    whole = getattr(value, "_repr_mimebundle_", None)
    if callable(whole):
        said = mime_bundle(whole)
        said = said[0] if isinstance(said, tuple) else said
        if isinstance(said, dict):
            shown.update((str(kind), mime_data(data)) for kind, data in said.items())
    for kind, name in TEXT_TYPES:
        method = getattr(value, name, None)
        if callable(method) and kind not in shown:
            data = method()
            data = data[0] if isinstance(data, tuple) else data
            if data is not None:
                shown[kind] = mime_data(data)
    if is_figure(value):
        shown.setdefault("image/png", picture(value))
    elif is_table(value):
        data = data_resource(value)
        if data is not None:
            shown.setdefault("application/vnd.dataresource+json", data)
    elif (type(value) in (list, tuple, dict) or is_scalar(value)) and "application/json" not in shown:
        try:
            shown["application/json"] = json.loads(encoded(value))
        except Exception:
            pass
    return shown


def mime_bundle(method):
    """Some want to be told what is wanted, as notebooks do."""
    try:
        inspect.signature(method).bind()
    except (TypeError, ValueError):
        return method(include=None, exclude=None)
    return method()


def is_figure(value):
    figures = sys.modules.get("matplotlib.figure")
    return isinstance(value, getattr(figures, "Figure", ()))


def picture(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return mime_data(file.getvalue())


def is_table(value):
    pandas = sys.modules.get("pandas")
    return isinstance(value, (getattr(pandas, "DataFrame", ()), getattr(pandas, "Series", ())))


def data_resource(table):
    """The first rows of a table with its schema, as far as they are few enough. None where pandas has no such form of it."""
    # The index is a part of each row.
    columns = (table.shape[1] if table.ndim > 1 else 1) + table.index.nlevels
    if table.ndim > 1 and not table.columns.is_unique:
        # A row could name only one of two.
        return None
    first = table.head(MOST_CELLS // columns)
    try:
        text = first.to_json(orient="table", date_format="iso", default_handler=str)
    except Exception:
        # Such as several levels of columns.
        return None
    return json.loads(text) if len(text) <= MOST_DATA else None


def abs_is_finite(value):
    return not isinstance(value, float) or abs(value) != float("inf")


def mime_data(data):
    """Bytes as base64, as MIME bundles have them; everything else as it is."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(data)).decode()
    return data
