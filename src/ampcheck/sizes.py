"""python -m ampcheck.sizes [NAME]: write an entry of sizes.yaml into params.yaml, comments kept, and check the file."""

import io
import sys
from pathlib import Path

from ruamel.yaml import YAML

from ampcheck import params
from ampcheck.files import write_text


def write_sizes(name: str, params_path: Path, sizes_path: Path) -> None:
    """Replace the section `sizes` of params.yaml by the entry `name`. ValueError if there is no such entry."""
    named = params.read(sizes_path)
    if name not in named:
        raise ValueError(f"{sizes_path}: got {name!r}; it has {', '.join(named)}")
    yaml = YAML()
    yaml.width = 4096
    document = yaml.load(params_path.read_text(encoding="utf-8"))
    for key in set(document["sizes"]) - set(named[name]):
        del document["sizes"][key]
    document["sizes"].update(named[name])
    text = io.StringIO()
    yaml.dump(document, text)
    write_text(params_path, text.getvalue())


def main(arguments: list[str]) -> None:
    """Write the named sizes, if a name is given; then have the whole of params.yaml checked."""
    path = Path("params.yaml")
    params.read(path)
    if len(arguments) > 1:
        raise ValueError(f"got {' '.join(arguments)}; give one name of sizes.yaml, or none")
    for name in arguments:
        write_sizes(name, path, Path("sizes.yaml"))
    params.load(path)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(str(error))
