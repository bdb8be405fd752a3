"""The script of the page: modules in order, their own tests, and libraries as they were published."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ucds.page.render import KEPT, TEMPLATE


def test_no_module_imports_a_later_one() -> None:
    for module in TEMPLATE.glob("[0-9]*.js"):
        found = re.findall(r'^import [^;]* from "\./(.*)";$', module.read_text(), re.MULTILINE)
        assert all(name < module.name for name in found), module.name


def test_kept_libraries_are_as_they_were_published_and_have_a_licence() -> None:
    listed = json.loads((KEPT / "kept.json").read_text())
    files = {name: entry["sha256"] for package in listed.values() for name, entry in package["files"].items()}
    assert files == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in KEPT.iterdir()
        if path.name != "kept.json"
    }
    for package in listed.values():
        assert any(name.endswith(".LICENSE") for name in package["files"])
        assert package["licence"] in ("MIT", "Apache-2.0")


def test_the_tests_of_the_script_pass() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node: apt-get install nodejs")
    done = subprocess.run(
        [node, "--test", *Path(__file__).parent.glob("*.mjs")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
