"""The reference page: the OpenAPI document for people, without a line of script."""

from __future__ import annotations

import json
from html import escape
from typing import Any, Final

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
section { border-top: 1px solid #ccc; padding: .5rem 0 1rem; }
h2 code { font-size: 1rem; } table { border-collapse: collapse; }
td, th { padding: .2rem 1rem .2rem 0; text-align: left; vertical-align: top; }
.method { display: inline-block; min-width: 4rem; font-weight: bold; }
"""


def page(described: dict[str, Any]) -> str:
    """The page for a document."""
    schemas = described["components"]["schemas"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name="viewport" content="width=device-width">',
        f"<title>Onefold API</title><style>{_STYLE}</style>",
        f"<h1>Onefold API <small>{escape(described['info']['version'])}</small></h1>",
        f"<p>{escape(described['info']['description'])}</p>",
        '<p>The same as <a href="openapi.json">OpenAPI 3.1</a>.</p>',
    ]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(path, method, operation, schemas))
    parts.append("</html>")
    return "\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    lines = [
        f'<section id="{escape(operation["operationId"])}">',
        f"<h2><span class=method>{method.upper()}</span> <code>{escape(path)}</code></h2>",
        f"<p>{escape(operation['summary'])}</p>",
    ]
    if description := operation.get("description"):
        lines.append(f"<p>{escape(description)}</p>")
    rows = [
        (given["name"], f"{given['in']}, {_kind(given['schema'])}", given.get("description", ""))
        for given in operation["parameters"]
    ]
    body = operation.get("requestBody")
    if body is not None:
        rows += _members(body["content"]["application/json"]["schema"], schemas)
    if rows:
        lines.append("<table>" + "".join(map(_row, rows)) + "</table>")
    if body is not None:
        lines.append(f"<pre>{escape(_curl(path, method, body))}</pre>")
    answers = ", ".join(operation["responses"])
    lines.append(f"<p>Answers: {answers}</p></section>")
    return "\n".join(lines)


def _curl(path: str, method: str, body: dict[str, Any]) -> str:
    value = body["content"]["application/json"]["examples"]["usual"]["value"]
    text = json.dumps(value).replace("'", "'\\''")
    return (
        f"curl -X {method.upper()} http://127.0.0.1:7890{path} \\\n"
        '  -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\\n'
        f"  -d '{text}'"
    )


def _members(schema: dict[str, Any], schemas: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    required = set(found.get("required", ()))
    return [
        (name, f"body, {_kind(given)}{', required' if name in required else ''}", "")
        for name, given in found.get("properties", {}).items()
    ]


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(str(one) for one in schema["enum"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    return str(schema.get("type", "any"))


def _row(cells: tuple[str, str, str]) -> str:
    name, kind, text = map(escape, cells)
    return f"<tr><td><code>{name}</code></td><td>{kind}</td><td>{text}</td></tr>"
