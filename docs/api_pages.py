"""Pages of the site that are made from spec/: every HTTP operation, and every MCP tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPEC = Path(__file__).resolve().parent.parent / "spec"

# The heading of paths that are not below /v1.
OTHER_PATHS = "Other paths"


def http_operations() -> str:
    """Returns the page of spec/openapi.json: each operation with its parameters, and each type with its fields."""
    document = json.loads((SPEC / "openapi.json").read_text(encoding="utf-8"))
    lines = ["# Every HTTP operation", "", "Made from the server's own description, `/openapi.json`."]
    lines += ["[HTTP API](http.md) explains how the requests work together.", ""]
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        parts = path.split("/")
        group = "/".join(parts[:3]) if parts[1] == "v1" else OTHER_PATHS
        for method, operation in methods.items():
            groups.setdefault(group, []).extend(described_operation(path, method, operation))
    for group in sorted(groups, key=lambda name: (name == OTHER_PATHS, name)):
        lines += [f"## {group}", "", *groups[group]]
    lines += ["## Types", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += [f"### {name}", "", *described_type(schema)]
    return "\n".join(lines) + "\n"


def mcp_tools() -> str:
    """Returns the page of spec/mcp-tools.json: each tool as clients get it."""
    tools = json.loads((SPEC / "mcp-tools.json").read_text(encoding="utf-8"))["tools"]
    lines = ["# Every MCP tool", "", "Made from what `sandtimer mcp` sends to its clients."]
    lines += ["[MCP tools and clients](../mcp.md) explains how the tools work together.", ""]
    for tool in tools:
        lines += [f"## {tool['name']}", "", tool["description"], "", *fields(tool["inputSchema"], "argument")]
    return "\n".join(lines) + "\n"


def described_operation(path: str, method: str, operation: dict[str, Any]) -> list[str]:
    lines = [f"### {method.upper()} `{path}`", ""]
    for text in (operation.get("summary"), operation.get("description")):
        lines += [text, ""] if text else []
    parameters = operation.get("parameters", [])
    if parameters:
        rows = [
            [f"`{one['name']}`", one["in"], shown_type(one["schema"]), one.get("description", "")] for one in parameters
        ]
        lines += table(["parameter", "in", "type", "meaning"], rows)
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        lines += ["Body: " + ", ".join(content(kind, one) for kind, one in body.items()) + ".", ""]
    answers, errors = [], []
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            errors.append(f"{status} {response['description']}")
        else:
            kinds = ", ".join(content(kind, one) for kind, one in response.get("content", {}).items())
            answers.append(f"{status} {kinds}".rstrip())
    lines += [f"Response: {'; '.join(answers)}.", ""]
    lines += [f"Errors: {'; '.join(errors)}.", ""] if errors else []
    return lines


def content(kind: str, one: dict[str, Any]) -> str:
    shown = shown_type(one.get("schema", {}))
    return shown if kind == "application/json" else f"`{kind}`"


def described_type(schema: dict[str, Any]) -> list[str]:
    lines = [schema["description"], ""] if "description" in schema else []
    return lines + (fields(schema, "field") if "properties" in schema else [shown_type(schema), ""])


def fields(schema: dict[str, Any], name: str) -> list[str]:
    """Returns the table of the members of an object."""
    required = schema.get("required", [])
    rows = [
        [f"`{field}`", shown_type(one), "yes" if field in required else "", one.get("description", "")]
        for field, one in schema.get("properties", {}).items()
    ]
    return table([name, "type", "required", "meaning"], rows) if rows else [f"No {name}s.", ""]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    cells = [head, ["---"] * len(head), *rows]
    return [*("| " + " | ".join(cell.replace("\n", " ").replace("|", "\\|") for cell in row) + " |" for row in cells), ""]


def shown_type(schema: dict[str, Any]) -> str:
    """Returns a type in words, with links to types that have a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(shown_type(one) for one in schema[key]))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(shown_type({**schema, "type": one}) for one in kind)
    if kind == "array":
        return f"list of {shown_type(schema.get('items', {}))}"
    return str(kind)
