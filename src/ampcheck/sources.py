"""What a workload's source is: its file, and all that it imports from its own package or the current folder."""

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path


def source_digest(workload: str) -> str | None:
    """Digest the files of `package.module:callable`, imported anywhere in them; None if they can't be found or read."""
    module = workload.partition(":")[0]
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # noqa: BLE001 - whatever the user's package raises; it is told when the workload is loaded
        return None
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    root = origin.parents[module.count(".") + (origin.name == "__init__.py")]
    try:
        files = _reached(origin, root, module.partition(".")[0])
    except SyntaxError:
        return None
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


def _reached(origin: Path, root: Path, package: str) -> set[Path]:
    """Follow imports: those of `package` below `root`, any below the current folder. Either may hold the other."""
    seen, todo = {origin}, [origin]
    while todo:
        file = todo.pop()
        holding = max((place for place in (root, Path.cwd()) if file.is_relative_to(place)), key=lambda p: len(p.parts))
        for name in _imported(file, holding):
            own = _files(root, name) if name.partition(".")[0] == package else ()
            found = {*own, *_files(Path.cwd(), name)} - seen
            seen |= found
            todo += found
    return seen


def _imported(file: Path, root: Path) -> Iterator[str]:
    """Yield the dotted names that `file` imports, relative ones made absolute below `root`."""
    package = file.relative_to(root).parent.parts
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)


def _files(root: Path, name: str) -> Iterator[Path]:
    """Yield the files below `root` that importing the dotted `name` runs: packages on the way, then the module."""
    path = root
    for part in name.split("."):
        path /= part
        yield from (file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file())
