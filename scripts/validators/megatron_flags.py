"""Writes the flags of a Megatron-LM release as JSON, read from its sources: no torch is needed.

    python3 scripts/validators/megatron_flags.py FOLDER > src/launch/megatron/flags.json

FOLDER is an unpacked megatron-core wheel (its `megatron/training/arguments.py` adds flags by hand and, through
`ArgumentGroupFactory`, one for every field of a list of dataclasses). Each flag has how many words follow it
(`0` for a switch, `1`, `+`, `*`, `?` or a number) and, where they are limited, its `choices`.
"""

import ast
import json
import pathlib
import sys


def literal(node):
    try:
        return ast.literal_eval(node)
    except (ValueError, SyntaxError):
        return None


def words_of(keywords, choices):
    """Number of words after a flag that `add_argument` gets these keywords for."""
    action = keywords.get("action")
    if action in ("store_true", "store_false", "store_const", "help"):
        return "0"
    if action is not None and "nargs" not in keywords:
        return "1"
    return str(keywords.get("nargs", "1"))


def add(flags, names, words, choices):
    entry = {"words": words}
    if choices:
        entry["choices"] = [str(choice) for choice in choices]
    for name in names:
        if name.startswith("-"):
            flags[name] = entry


def by_hand(tree, flags):
    """Flags of `add_argument` calls."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "add_argument":
            continue
        names = [literal(argument) for argument in node.args]
        keywords = {keyword.arg: literal(keyword.value) for keyword in node.keywords}
        if any(k.arg == "action" and literal(k.value) is None for k in node.keywords):
            keywords["action"] = "other"
        add(flags, [name for name in names if isinstance(name, str)], words_of(keywords, None), keywords.get("choices"))


def classes(root):
    """Every class of the package by name, with the file's own definitions first."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, node)
    return found


def enums(found):
    return {
        name: [target.id for item in node.body if isinstance(item, ast.Assign) for target in item.targets]
        for name, node in found.items()
        if any("Enum" in ast.unparse(base) for base in node.bases)
    }


def fields(node, found):
    """Fields of a dataclass, those of its bases first."""
    own = {}
    for base in node.bases:
        parent = found.get(ast.unparse(base).split(".")[-1])
        if parent is not None:
            own.update(fields(parent, found))
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            own[item.target.id] = item
    return own


def type_words(annotation, known):
    """(words, choices, is_bool) of an annotation."""
    text = ast.unparse(annotation)
    for wrapper in ("Optional[", "typing.Optional["):
        if text.startswith(wrapper):
            return type_words(annotation.slice, known)
    if isinstance(annotation, ast.BinOp):
        return type_words(annotation.left, known)
    if text.startswith(("list[", "List[")):
        _, choices, _ = type_words(annotation.slice, known)
        return "+", choices, False
    if text.startswith(("Literal[", "typing.Literal[")):
        inner = annotation.slice
        items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        return "1", [literal(item) for item in items], False
    if text in known:
        return "1", known[text], False
    return "1", None, text == "bool"


def by_field(item, known, flags):
    name = item.target.id.replace("_", "-")
    words, choices, is_bool = type_words(item.annotation, known)
    names, default = ["--" + name], literal(item.value) if item.value is not None else None
    meta = {}
    if isinstance(item.value, ast.Call):
        for keyword in item.value.keywords:
            if keyword.arg == "default":
                default = literal(keyword.value)
            if keyword.arg == "init" and literal(keyword.value) is False:
                return
            if keyword.arg == "metadata":
                meta = metadata(keyword.value)
    if is_bool:
        words = "0"
        if default is not False:
            names = ["--no-" + name, "--disable-" + name]
    names = meta.get("arg_names") or names
    if "nargs" in meta:
        words = str(meta["nargs"])
    if meta.get("action") in ("store_true", "store_false"):
        words = "0"
    add(flags, names, words, meta.get("choices", choices))


def metadata(node):
    """The literal entries of `{"argparse_meta": {...}}`."""
    if not isinstance(node, ast.Dict):
        return {}
    for key, value in zip(node.keys, node.values):
        if literal(key) == "argparse_meta" and isinstance(value, ast.Dict):
            return {literal(k): literal(v) for k, v in zip(value.keys, value.values)}
    return {}


def by_factory(tree, found, flags):
    """Flags of the dataclasses that an `ArgumentGroupFactory` is made of."""
    known = enums(found)
    lists = {
        target.id: literal(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, ast.List)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ArgumentGroupFactory"):
            continue
        excluded = []
        for keyword in node.keywords:
            if keyword.arg == "exclude":
                excluded = literal(keyword.value) or lists.get(getattr(keyword.value, "id", ""), [])
        for name, item in fields(found[node.args[0].id], found).items():
            if name not in excluded and not ast.unparse(item.annotation).startswith("ClassVar"):
                by_field(item, known, flags)


def main():
    root = pathlib.Path(sys.argv[1])
    tree = ast.parse((root / "megatron/training/arguments.py").read_text(encoding="utf-8"))
    flags = {}
    by_factory(tree, classes(root / "megatron"), flags)
    by_hand(tree, flags)
    versions = sorted(root.glob("megatron_core-*.dist-info"))
    version = versions[0].name.split("-")[1].removesuffix(".dist") if versions else "unknown"
    document = {"package": "megatron-core", "version": version, "flags": dict(sorted(flags.items()))}
    lines = [f'{{"package": "megatron-core", "version": "{version}", "flags": {{']
    rows = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in document["flags"].items()]
    sys.stdout.write("\n".join(lines) + "\n" + ",\n".join(rows) + "\n}}\n")


if __name__ == "__main__":
    main()
