"""The commands of `penstock capture` on SQLite databases."""

from __future__ import annotations

from pathlib import Path

from penstock.capture import Progress, Report, Survey, Verification
from penstock.errors import ConfigInvalid
from penstock.sources.sqlite import install, rescan, survey, suspend, verify
from penstock.sources.sqlite.database import repair_remedy
from penstock.sources.sqlite.shape import ROW_IDS_ONLY


class SqliteCapture:
    """See penstock.capture."""

    def serves(self, address: str) -> bool:
        """A path, not a URL."""
        return "://" not in address

    def enable(
        self, address: str, tables: str | None, columns: str | None, *, row_ids_only: bool, wal: bool, is_trial: bool
    ) -> Report:
        """Put tables under capture."""
        chosen = ROW_IDS_ONLY if row_ids_only else columns
        return install.enable(_existing(address), tables, chosen, wal=wal, is_trial=is_trial)

    def disable(self, address: str, tables: str | None, *, is_trial: bool) -> Report:
        """Take tables out of capture."""
        return install.disable(_existing(address), tables, is_trial=is_trial)

    def survey(self, address: str, tables: str | None) -> Survey:
        """The tables, the log and the registered pipelines."""
        return survey.survey(_existing(address), tables)

    def suspend(self, address: str, tables: str | None) -> Report:
        """Record only the keys of touched rows."""
        return suspend.suspend(_existing(address), tables)

    def resume(self, address: str, tables: str | None, progress: Progress) -> Report:
        """Capture again."""
        return suspend.resume(_existing(address), tables, progress)

    def repair(self, address: str, tables: str | None, progress: Progress) -> Report:
        """Renew the triggers, and log all rows."""
        return rescan.repair(_existing(address), tables, progress)

    def verify(self, address: str, tables: str | None, sample: int | None) -> Verification:
        """Compare tables with the log."""
        return verify.verify(_existing(address), tables, sample)

    def repair_command(self, address: str, table: str) -> str:
        """The command line that repairs a table."""
        return repair_remedy(address, table)


def _existing(path: str) -> str:
    if not Path(path).is_file():
        raise ConfigInvalid(f"there is no database {path}", "check the path; capture never creates a database")
    return path
