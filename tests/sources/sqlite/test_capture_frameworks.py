"""Django and Alembic migrate a captured database as they really do, and one command, or none, makes up for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from replay import assert_log_makes, connect, followed, logged, source_of
from typer.testing import CliRunner

from penstock.cli.capture import app
from penstock.errors import CaptureBroken
from penstock.following import follow
from penstock.source import ANONYMOUS
from penstock.sources.sqlite.install import enable
from penstock.sources.sqlite.rescan import repair
from penstock.sources.sqlite.source import LANE
from penstock.sources.sqlite.survey import survey

MANAGE = """
import sys
from django.conf import settings
from django.core.management import execute_from_command_line
settings.configure(
    INSTALLED_APPS=["store"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": __file__.replace("manage.py", "shop.db")}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
execute_from_command_line(sys.argv)
"""
MODELS = """
from django.db import models

class Order(models.Model):
    pass
"""
DJANGO = {
    "0001_initial": """migrations.CreateModel("Order", [
        ("id", models.BigAutoField(primary_key=True)),
        ("status", models.CharField(max_length=9)),
        ("total", models.FloatField())])""",
    "0002_add_field": 'migrations.AddField("Order", "note", models.CharField(max_length=9, default="new"))',
    "0003_add_nullable": 'migrations.AddField("Order", "extra", models.IntegerField(null=True))',
    "0004_alter_field": 'migrations.AlterField("Order", "status", models.CharField(max_length=99, null=True, unique=True))',
    "0005_rename_field": 'migrations.RenameField("Order", "total", "amount")',
    "0006_add_index": 'migrations.AddIndex("Order", models.Index(fields=["amount"], name="by_amount"))',
    "0007_remove_index": 'migrations.RemoveIndex("Order", "by_amount")',
    "0008_remove_field": 'migrations.RemoveField("Order", "note")',
    "0009_fill": """migrations.RunSQL("update store_order set extra = 7 where id = 1; delete from store_order where id = 2")""",
    "0010_rename_model": 'migrations.RenameModel("Order", "Purchase")',
}
MIGRATION = """
from django.db import migrations, models

class Migration(migrations.Migration):
    dependencies = {before}
    operations = [{deed}]
"""

ENV = """
from alembic import context
from sqlalchemy import create_engine
with create_engine("sqlite:///" + context.config.get_main_option("database")).connect() as connection:
    context.configure(connection=connection, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
"""
ALEMBIC = {
    "create": """op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("status", sa.String(9)), sa.Column("total", sa.Float))""",
    "add_column": 'op.add_column("orders", sa.Column("note", sa.String(9), server_default="new"))',
    "batch_alter": """
    with op.batch_alter_table("orders") as batch:
        batch.alter_column("status", type_=sa.String(99), nullable=True)
        batch.create_unique_constraint("one_status", ["status"])""",
    "rename_column": """
    with op.batch_alter_table("orders") as batch:
        batch.alter_column("total", new_column_name="amount")""",
    "index": 'op.create_index("by_amount", "orders", ["amount"])',
    "drop_index": 'op.drop_index("by_amount", "orders")',
    "drop_column": 'op.drop_column("orders", "note")',
    "fill": """op.execute("update orders set amount = 7 where id = 1")
    op.execute("delete from orders where id = 2")""",
    "rename_table": 'op.rename_table("orders", "purchases")',
}
REVISION = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = {name!r}, {before!r}, None, None

def upgrade():
    {deed}
"""


def django_project(folder: Path) -> None:
    migrations = folder / "store" / "migrations"
    migrations.mkdir(parents=True)
    (folder / "manage.py").write_text(MANAGE)
    for package in (folder / "store", migrations):
        (package / "__init__.py").touch()
    (folder / "store" / "models.py").write_text(MODELS)
    before: list[tuple[str, str]] = []
    for name, deed in DJANGO.items():
        (migrations / f"{name}.py").write_text(MIGRATION.format(before=before, deed=deed))
        before = [("store", name)]


def alembic_project(folder: Path) -> None:
    versions = folder / "versions"
    versions.mkdir(parents=True)
    (folder / "alembic.ini").write_text("[alembic]\nscript_location = %(here)s\npath_separator = os\ndatabase = %(here)s/shop.db\n")
    (folder / "env.py").write_text(ENV)
    before = None
    for name, deed in ALEMBIC.items():
        (versions / f"{name}.py").write_text(REVISION.format(name=name, before=before, deed=deed))
        before = name


class Project:
    """A database, and the migrations that a framework brings to it."""

    def __init__(self, folder: Path, framework: str) -> None:
        self.framework, self.folder, self.path = framework, folder, folder / "shop.db"
        {"django": django_project, "alembic": alembic_project}[framework](folder)
        self.steps = list({"django": DJANGO, "alembic": ALEMBIC}[framework])
        self.migrate(self.steps[0])
        self.writer = connect(self.path)
        self.table = {"django": "store_order", "alembic": "orders"}[framework]
        enable(str(self.path), self.table)
        self.writer.execute(f"insert into {self.table}(id, status, total) values(1, 'a', 1), (2, 'b', 2.5), (3, 'c', 3)")

    def command(self, step: str) -> list[str]:
        if self.framework == "django":
            return [sys.executable, str(self.folder / "manage.py"), "migrate", "store", step, "--verbosity", "0"]
        return [sys.executable, "-m", "alembic", "-c", str(self.folder / "alembic.ini"), "upgrade", step]

    def migrate(self, step: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(step), cwd=self.folder, capture_output=True, text=True, check=False)

    def current(self) -> str:
        """The name that the table has now."""
        names = "('store_order', 'store_purchase', 'orders', 'purchases')"
        [(name,)] = self.writer.execute(f"select name from sqlite_master where type = 'table' and name in {names}")
        return str(name)

    def assert_whole(self) -> None:
        assert_log_makes(self.path, self.writer, [self.current()], is_strict=False)


@pytest.fixture(params=["django", "alembic"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path / "project", request.param)
    with closing(made.writer):
        yield made


def test_frameworks_migrate_in_one_go_while_capture_is_suspended(project: Project) -> None:
    windows = follow(source_of(project.path), LANE, source_of(project.path).begin(LANE, "beginning"), ANONYMOUS)
    followed(windows, upto=3)
    run_suspended(project, project.steps[-1])
    [(head,)] = project.writer.execute("select max(seq) from _penstock_log")
    followed(windows, upto=head)
    project.assert_whole()
    assert {table.table: table.state for table in survey(str(project.path)).tables}[project.current()] == "captured"


NEEDED = {
    "django": {"0002_add_field": "repair", "0004_alter_field": "repair", "0008_remove_field": "suspend"},
    "alembic": {"batch_alter": "repair", "rename_column": "repair", "drop_column": "suspend"},
}


def test_frameworks_migrate_step_by_step_and_need_one_command_or_none(project: Project) -> None:
    needed: dict[str, str] = {}
    for step in project.steps[1:]:
        done = project.migrate(step)
        if done.returncode:
            needed[step] = "suspend"
            assert "_penstock_" in done.stderr
            run_suspended(project, step)
        elif survey(str(project.path)).is_broken and not is_healed(project):
            needed[step] = "repair"
            repair(str(project.path))
        project.assert_whole()
    assert needed == NEEDED[project.framework]


def run_suspended(project: Project, step: str) -> None:
    result = CliRunner().invoke(app, ["suspend", str(project.path), "--", *project.command(step)])
    assert result.exit_code == 0, result.output


def is_healed(project: Project) -> bool:
    try:
        logged(project.path)
    except CaptureBroken:
        return False
    return True
