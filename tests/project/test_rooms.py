"""The map in docs/design.md is the tree, and imports run one way."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.checkout import ROOT

PACKAGE = ROOT / "paftbench"
OUTSIDE = ("fault_models", "experiments")  # of the checkout's top, installed under the package
GROUND, DOORS = "the ground", ("trial", "specs", "pytest_plugin")
READERS, TRAINERS = ("analysis", "gate", "paper"), ("attachment", "training", "sweep", "testing", "verify", "step")
ISSUES_COLLECTIVES = ("ranks", "attachment", "training", "testing", "resilience")
TORCHS = {"_parameters"}  # of a module: ours may call one so too
ARE_RANKS = ("trial.py", "verify/mitigation_processes.py", "cli/rank_check.py")


def table() -> dict[str, str]:
    """Room and what the page says is in it, from the ground up."""
    section = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("## Layout\n")[2]
    rows = re.findall(r"^\| `(?:paftbench/)?(\w+)/` \| (.*) \|$", section, re.M)
    return {room: says for room, says in rows}


def files() -> Iterator[Path]:
    yield from PACKAGE.rglob("*.py")
    for folder in OUTSIDE:
        yield from (ROOT / folder).rglob("*.py")


def room_of(parts: tuple[str, ...]) -> str:
    """Of a file's or a module's path below the package."""
    return parts[0] if len(parts) > 1 or (PACKAGE / parts[0]).is_dir() or parts[0] in OUTSIDE else GROUND


def below_package(file: Path) -> tuple[str, ...]:
    return file.relative_to(PACKAGE if file.is_relative_to(PACKAGE) else ROOT).with_suffix("").parts


def imported(file: Path) -> set[tuple[str, ...]]:
    """The package's modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "paftbench":
            parts = tuple((node.module or "").split(".")[1:])
            found |= {parts} if parts else {(alias.name,) for alias in node.names if alias.name != "__version__"}
        elif isinstance(node, ast.Import):
            names = (alias.name.split(".") for alias in node.names)
            found |= {tuple(name[1:]) for name in names if name[0] == "paftbench" and name[1:]}
    return found


def arrows() -> set[tuple[str, str, str]]:
    """(room, imported room, file) for every import that leaves a room."""
    found = set()
    for file in files():
        own = below_package(file)
        if own == ("__init__",) or own[0] in DOORS:
            continue
        found |= {(room_of(own), room_of(parts), "/".join(own)) for parts in imported(file)}
    return {(a, b, file) for a, b, file in found if a != b}


def test_the_table_has_every_room_and_says_what_its_first_line_says() -> None:
    rooms = {path.parent.name: path for path in PACKAGE.glob("*/__init__.py")}
    rooms |= {folder: ROOT / folder / "__init__.py" for folder in OUTSIDE}
    assert set(table()) == set(rooms)
    for room, says in table().items():
        first = (ast.get_docstring(ast.parse(rooms[room].read_text(encoding="utf-8"))) or "").splitlines()[0]
        assert first.startswith(says), f"{room}: docs/design.md says {says!r}, {rooms[room]} {first!r}"


def test_a_room_imports_only_rooms_above_it_in_the_table() -> None:
    order = [GROUND, *table()]
    up = {arrow for arrow in arrows() if order.index(arrow[0]) < order.index(arrow[1])}
    assert up == set()


def test_readers_never_import_what_trains_nor_the_reverse() -> None:
    both = {(a, b) for a in READERS for b in TRAINERS} | {(b, a) for a in READERS for b in TRAINERS}
    assert {arrow for arrow in arrows() if arrow[:2] in both} == set()


def test_only_rooms_that_are_ranks_touch_torch_distributed() -> None:
    touching = {file for file in files() if re.search(r"^\s*(import|from) torch\.distributed", file.read_text(), re.M)}
    others = {
        "/".join(below_package(file)) + ".py" for file in touching if below_package(file)[0] not in ISSUES_COLLECTIVES
    }
    assert others <= set(ARE_RANKS)


def private_names(file: Path) -> list[set[str]]:
    """Names with an underscore in front that a file gives to things of its own, that it takes and that it inherits."""
    own, taken, inherited = set(), set(), set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("paftbench"):
                inherited |= {alias.name for alias in names}
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                inherited.add(name)
            case ast.Attribute(attr=name, ctx=context):
                (own if isinstance(context, ast.Store) else taken).add(name)
    return [{name for name in names if re.match("_[a-zA-Z]", name)} for names in (own, taken, inherited)]


def test_no_file_touches_what_another_calls_private() -> None:
    """Names of torch's and of the standard library are theirs; `__init__` and the like are everybody's."""
    found = {"/".join(below_package(file)): private_names(file) for file in files()}
    touched = {
        (file, name)
        for file, (own, taken, inherited) in found.items()
        for name in taken - own - TORCHS | inherited
        if any(name in others[0] for other, others in found.items() if other != file)
    }
    assert touched == set()


def test_no_file_is_over_300_lines() -> None:
    lengths = {"/".join(below_package(file)): len(file.read_text(encoding="utf-8").splitlines()) for file in files()}
    assert len(lengths) > 200 and {name: lines for name, lines in lengths.items() if lines > 300} == {}


def test_every_file_that_the_page_on_changes_names_is_there() -> None:
    page = (ROOT / "docs" / "where.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:paftbench|fault_models)/[\w/.]+|pyproject\.toml)`", page)
    assert len(named) > 15
    for path in named:
        own = ROOT / path
        assert own.exists() or (re.search(r"/[A-Z]+\.py$", path) and own.parent.is_dir()), path


def test_a_word_is_the_name_of_one_class() -> None:
    """Two classes of one name are two things that a reader takes for one."""
    places: dict[str, list[str]] = {}
    for file in files():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.strip("_"), []).append("/".join(below_package(file)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
