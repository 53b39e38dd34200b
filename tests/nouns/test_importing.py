"""Where a function is looked for, and what is said when it is not there."""

import sys

import pytest

from penstock.config import parse
from penstock.errors import ConfigInvalid
from penstock.transform.user_function import function_of, imported, try_out


@pytest.fixture(autouse=True)
def _as_before():
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    imported.cache_clear()
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def pipeline(folder, function, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    source, sink = {"type": "sqlite", "database": "shop.db"}, {"type": "discard"}
    return parse({"name": "p", "source": source, "sink": sink, "transform": {"function": function}}, folder)


def test_a_module_beside_the_pipeline_file_is_found_with_those_it_imports(tmp_path):
    given = pipeline(
        tmp_path,
        "own_rules:Rules.enrich",
        own_rules="import own_prices\nclass Rules:\n  enrich = own_prices.f",
        own_prices="f = len",
    )
    assert function_of(given).call is len
    assert function_of(given) is function_of(given)


def test_an_installed_module_is_found(tmp_path):
    assert function_of(pipeline(tmp_path, "os.path:basename")).call("a/b") == "b"


def test_without_a_function_there_is_none(tmp_path):
    assert function_of(parse({"name": "p", "source": {"type": "sqlite", "database": "x"}, "sink": {"type": "discard"}})) is None


@pytest.mark.parametrize(
    ("function", "text", "said"),
    [
        ("nowhere:f", "", "there is no module nowhere in "),
        ("own_rules.deeper:f", "", "there is no module own_rules.deeper in "),
        ("own_rules:f", "", "own_rules.py has no f"),
        ("own_rules:f.g", "f = len", "own_rules.py has no f.g"),
        ("own_rules:f", "f = 5", "own_rules:f is of type int and cannot be called"),
        (
            "own_rules:f",
            "\nimport nothing_like_it",
            "importing own_rules raised ModuleNotFoundError: No module named 'nothing_like_it' at ",
        ),
        ("own_rules:f", "\n1 / 0", "raised ZeroDivisionError: division by zero at "),
        ("own_rules:f", "def f(:", "raised SyntaxError"),
        ("own_rules:f", "exit(3)", "raised SystemExit: 3 at "),
        ("own_rules:f", "len.x", "raised AttributeError: "),
    ],
)
def test_what_cannot_be_used_is_told_with_the_reason(tmp_path, function, text, said):
    with pytest.raises(ConfigInvalid) as caught:
        function_of(pipeline(tmp_path, function, own_rules=text))
    assert caught.value.message.startswith("transform.function: ")
    assert said in caught.value.message
    assert caught.value.remedy


def test_two_modules_of_one_name_do_not_fit_into_one_process(tmp_path):
    one, other = (pipeline(tmp_path / name, "own_rules:f", own_rules="f = len") for name in ("one", "other"))
    function_of(one)
    with pytest.raises(ConfigInvalid, match="has the same name"):
        function_of(other)


def test_files_that_are_only_looked_at_may_have_modules_of_one_name(tmp_path):
    path = list(sys.path)
    try_out(pipeline(tmp_path / "one", "own_rules:f", own_rules="f = len"))
    try_out(pipeline(tmp_path / "other", "own_rules:g", own_rules="g = len"))
    with pytest.raises(ConfigInvalid, match="has no f"):
        try_out(pipeline(tmp_path / "other", "own_rules:f"))
    assert sys.path == path
