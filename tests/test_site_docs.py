"""docs/site-spec.md tells the truth: its examples are valid, its tables list every key with its default."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from webserv_rt.recipe import Recipe
from webserv_rt.site import Data, Entrypoint, Mount, Ready, Service, SiteSpec, Stop, Wait, Warm
from webserv_rt.toml_model import SpecError, Table, load_toml

TEXT = (Path(__file__).resolve().parents[1] / "docs/site-spec.md").read_text()
EXAMPLES = dict(re.findall(r"```toml\n# (recipes/\S+)\n(.*?)```", TEXT, re.DOTALL))
MODELS: dict[str, type[Table]] = {"site.toml": SiteSpec, "recipe.toml": Recipe}
SECTIONS: dict[str, type[Table]] = {
    "The site": SiteSpec,
    "`[[services]]`": Service,
    "`wait`": Wait,
    "`[entrypoint]`": Entrypoint,
    "`[ready]`": Ready,
    "`[[warm]]`": Warm,
    "`[[data]]`": Data,
    "`[[mounts]]`": Mount,
    "`[stop]`": Stop,
    "The recipe": Recipe,
}
# What the default column says in words, because the value comes from elsewhere or is an empty array.
WORDS = 'none|the image\'s.*|the one in `ports`.*|`\\[port\\]`|`{ tcp = port }`|`\\["NAME.test"\\]`'


def write_example(directory: Path, name: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True)
    # The comment that names the file is its first line, as in the document.
    path.write_text(f"# {name}\n{EXAMPLES[name]}")
    return path


def test_every_toml_block_of_the_document_names_its_file() -> None:
    assert TEXT.count("```toml") == len(EXAMPLES) >= 6


@pytest.mark.parametrize("name", [name for name in EXAMPLES if "broken" not in name])
def test_example_is_valid(name: str, tmp_path: Path) -> None:
    path = write_example(tmp_path, name)
    assert load_toml(path, MODELS[path.name])


def test_broken_example_gives_the_errors_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "recipes/broken/site.toml"
    write_example(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    with pytest.raises(SpecError) as caught:
        load_toml(Path(name), SiteSpec)
    assert str(caught.value) == shown.rstrip("\n")


@pytest.mark.parametrize("section", SECTIONS)
def test_table_lists_every_key_with_its_default(section: str) -> None:
    (body,) = re.findall(rf"^##+ {re.escape(section)}\n(.*?)(?=^##|\Z)", TEXT, re.DOTALL | re.MULTILINE)
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (.*?) \|", body, re.MULTILINE))
    fields = SECTIONS[section].model_fields
    assert list(rows) == list(fields)
    for key, shown in rows.items():
        default = fields[key].get_default(call_default_factory=True)
        if fields[key].is_required():
            assert shown == "required", key
        elif default is None or default == ():
            assert re.fullmatch(WORDS, shown), key
        elif isinstance(default, Table):
            assert shown == "`{}`", key
        else:
            assert shown == f"`{json.dumps(default)}`", key
