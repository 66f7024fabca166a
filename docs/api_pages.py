"""Pages of the site that are made from spec/: every HTTP operation, and every MCP tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPEC = Path(__file__).resolve().parent.parent / "spec"

# How deep the fields of fields are listed.
MAX_DEPTH = 4

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
    if "properties" in schema:
        return lines + fields(schema, "field")
    objects = [one for one in alternatives(schema) if "properties" in one]
    if len(objects) < 2:
        return [*lines, shown_type(schema), "", *(fields(objects[0], "field") if objects else [])]
    lines += [f"One of {len(objects)} objects:", ""]
    for one in objects:
        lines += [f"**{condition(one)}.** {one.get('description', '')}".rstrip(), "", *fields(one, "field")]
    return lines


def fields(schema: dict[str, Any], name: str) -> list[str]:
    """Returns the table of the members of an object, and of the objects in it by dotted names."""
    rows = members(schema, "", 0)
    return table([name, "type", "required", "meaning"], rows) if rows else [f"No {name}s.", ""]


def members(schema: dict[str, Any], prefix: str, depth: int) -> list[list[str]]:
    """Returns a row for each member of an object, and after it those of its own members, once if several have the same."""
    required = schema.get("required", [])
    rows = []
    first_with: dict[str, str] = {}
    for field, one in schema.get("properties", {}).items():
        row = [f"`{prefix}{field}`", shown_type(one), "yes" if field in required else "", meaning(one)]
        rows.append(row)
        inner = inner_members(one, prefix + field, depth + 1) if depth < MAX_DEPTH else []
        first = first_with.setdefault(json.dumps(one, sort_keys=True), field)
        if inner and first != field:
            row[3] = f"{row[3]} Its fields are those of `{prefix}{first}`.".lstrip()
        else:
            rows += inner
    return rows


def inner_members(schema: dict[str, Any], name: str, depth: int) -> list[list[str]]:
    """Returns the rows of the members of a field: `name.member`, `name[].member` of a list, `name.*.member` of a map."""
    if "properties" in schema:
        return members(schema, f"{name}.", depth)
    if isinstance(schema.get("items"), dict):
        return inner_members(schema["items"], f"{name}[]", depth)
    if isinstance(schema.get("additionalProperties"), dict):
        return inner_members(schema["additionalProperties"], f"{name}.*", depth)
    objects = [(one, inner_members(one, name, depth)) for one in alternatives(schema)]
    objects = [(one, rows) for one, rows in objects if rows]
    if len(objects) > 1:
        for one, rows in objects:
            for row in rows:
                row[3] = f"({condition(one)}) {row[3]}".rstrip()
    return [row for _, rows in objects for row in rows]


def alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for key in ("oneOf", "anyOf") for one in schema.get(key, [])]


def condition(schema: dict[str, Any]) -> str:
    """Returns what distinguishes an alternative: the fields that have one value only, or else the names of its fields."""
    constants = [
        f"`{field}` is {shown_type(one)}" for field, one in schema.get("properties", {}).items() if len(one.get("enum", [])) == 1
    ]
    return " and ".join(constants) or "with " + ", ".join(f"`{field}`" for field in schema.get("properties", {}))


def meaning(schema: dict[str, Any]) -> str:
    """Returns the description of a field, or that of the alternative that has one."""
    descriptions = [one.get("description", "") for one in (schema, *alternatives(schema))]
    return str(next(filter(None, descriptions), ""))


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
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object, each value {shown_type(schema['additionalProperties'])}"
    return str(kind)
