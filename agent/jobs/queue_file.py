"""The statements behind `JobStore`: rows in and out of `queue.db`.

Invariant: nothing is written outside a transaction, and a transaction that did not come to its end leaves nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import msgspec

from agent import wire
from agent.errors import JobConflict
from agent.jobs import schema
from agent.jobs.rows import AttemptRow, JobRow
from agent.state_db import synchronous

_SELECT = f"SELECT spec, {', '.join(schema.JOB)} FROM job"
_SELECT_ATTEMPT = f"SELECT {', '.join(schema.ATTEMPT)} FROM attempt WHERE job = ? ORDER BY number"
_DEFAULTS = {
    name: default for name, default in zip(JobRow.__struct_fields__[::-1], JobRow.__struct_defaults__[::-1], strict=False)
}
_TASKS = "SELECT id FROM job WHERE array = ?"
_SPECS_CACHED = 1_000


class QueueFile:
    """The open connection."""

    def __init__(self, connection: sqlite3.Connection, path: str, durable: bool) -> None:
        self._db, self._path, self._durable = connection, path, durable
        self._specs: dict[str, wire.JobSpec] = {}

    def close(self) -> None:
        self._db.close()

    # Reading

    def find(self, id: str) -> JobRow | None:
        return next(iter(self._rows("WHERE id = ?", id)), None)

    def unended(self) -> list[JobRow]:
        return self._rows("WHERE state <> 'ended' ORDER BY place")

    def ended(self, limit: int) -> list[JobRow]:
        return self._rows("WHERE state = 'ended' ORDER BY ended_at DESC, place DESC LIMIT ?", limit)

    def tasks(self, array: str) -> list[JobRow]:
        return self._rows("WHERE array = ? ORDER BY array_index", array)

    def array_counts(self, array: str) -> dict[str, int]:
        return dict(self._all("SELECT state, count(*) FROM job WHERE array = ? GROUP BY state", array))

    def array_causes(self, array: str) -> dict[str, int]:
        return {
            cause or "": number
            for cause, number in self._all("SELECT cause, count(*) FROM job WHERE array = ? GROUP BY cause", array)
        }

    def count_ended(self) -> int:
        """Without the arrays' own rows."""
        own = "SELECT DISTINCT array FROM job WHERE array IS NOT NULL"
        return int(self._all(f"SELECT count(*) FROM job WHERE state = 'ended' AND id NOT IN ({own})")[0][0])

    def attempts(self, id: str) -> list[AttemptRow]:
        found = self._all(_SELECT_ATTEMPT, id)
        return [AttemptRow(**_decoded(schema.ATTEMPT, values)) for values in found]

    def _rows(self, where: str, *values: object) -> list[JobRow]:
        found = self._all(f"{_SELECT} {where}", *values)
        return [JobRow(spec=self._spec(spec), **_decoded(schema.JOB, rest)) for spec, *rest in found]

    def _spec(self, id: str) -> wire.JobSpec:
        spec = self._specs.get(id)
        if spec is None:
            if len(self._specs) >= _SPECS_CACHED:
                self._specs.clear()
            ((text,),) = self._all("SELECT text FROM spec WHERE id = ?", id)
            spec = self._specs[id] = _spec_of(text)
        return spec

    def _all(self, sql: str, *values: object) -> list[Any]:
        with schema.QUEUE.translated(self._path):
            return self._db.execute(sql, values).fetchall()

    # Writing

    def insert(self, rows: Sequence[JobRow], specs: Mapping[str, wire.JobSpec]) -> None:
        """New rows, each with the spec of its array or its own. JobConflict: an id is there already."""
        names = [name for name in schema.JOB if any(getattr(row, name) != _DEFAULTS.get(name) for row in rows)]
        marks = ", ".join("?" * (len(names) + 1))
        texts = [(id, msgspec.json.encode(spec).decode()) for id, spec in specs.items()]
        with self.transaction(), _conflicts("a job of this id is there already"):
            self._db.executemany("INSERT INTO spec VALUES (?, ?)", texts)
            self._db.executemany(
                f"INSERT INTO job (spec, {', '.join(names)}) VALUES ({marks})",
                ([row.array or row.id, *_encoded({name: getattr(row, name) for name in names})] for row in rows),
            )

    def compare(self, row: JobRow) -> None:
        """JobConflict unless the job stands in the file as it does in memory: queued, with no stop wanted."""
        same = "SELECT count(*) FROM job WHERE id = ? AND state = 'queued' AND attempt = ? AND stop_cause IS NULL"
        if not self._all(same, row.id, row.attempt)[0][0]:
            raise JobConflict(f"job {row.id} was changed by another program; restart the agent")

    def update(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        for names, some in groupby(changes.items(), key=lambda change: tuple(change[1])):
            wrong = set(names) - schema.JOB.keys()
            if wrong:
                raise ValueError(f"a job has no field {', '.join(sorted(wrong))} that can be set")
            sets = ", ".join(f"{name} = ?" for name in names)
            self._db.executemany(f"UPDATE job SET {sets} WHERE id = ?", ((*_encoded(fields), id) for id, fields in some))

    def begin(self, attempt: AttemptRow) -> None:
        fields = {name: getattr(attempt, name) for name in schema.ATTEMPT}
        marks = ", ".join("?" * len(fields))
        with _conflicts(f"attempt {attempt.number} of job {attempt.job} was begun before"):
            self._db.execute(
                f"INSERT INTO attempt ({', '.join(fields)}) VALUES ({marks})", list(_encoded(fields, schema.ATTEMPT))
            )

    def update_attempt(self, job: str, number: int, fields: Mapping[str, Any]) -> None:
        sets = ", ".join(f"{name} = ?" for name in fields)
        values = (*_encoded(fields, schema.ATTEMPT), job, number)
        self._db.execute(f"UPDATE attempt SET {sets} WHERE job = ? AND number = ?", values)

    def prune(self, before_ms: int, needed: set[str], limit: int) -> tuple[list[str], int]:
        """The ids that were taken out, and how many of them were arrays' own rows."""
        old = """SELECT id, spec FROM job WHERE state = 'ended' AND ended_at < ? AND NOT EXISTS (SELECT 1 FROM job AS own
                 WHERE own.id = job.array AND (own.state <> 'ended' OR own.ended_at >= ?)) ORDER BY ended_at, place LIMIT ?"""
        found = [row for row in self._all(old, before_ms, before_ms, limit + len(needed)) if row[0] not in needed][:limit]
        own = {id for id, spec in found if id == spec and self._spec(spec).array}
        leaving = {id for id, _ in found}
        own_staying = {id for id in own if any(task not in leaving for (task,) in self._all(_TASKS, id))}
        found = [row for row in found if row[0] not in own_staying]
        gone = [(id,) for id, _ in found]
        with self.transaction(durable=False):
            self._db.executemany("DELETE FROM job WHERE id = ?", gone)
            self._db.executemany("DELETE FROM attempt WHERE job = ?", gone)
            self._db.executemany(
                "DELETE FROM spec WHERE id = ? AND NOT EXISTS (SELECT 1 FROM job WHERE job.spec = spec.id)",
                {(spec,) for _, spec in found},
            )
        return [id for id, _ in found], len(own - own_staying)

    @contextmanager
    def transaction(self, durable: bool = True) -> Iterator[None]:
        with schema.QUEUE.translated(self._path):
            if self._durable and not durable:
                synchronous(self._db, False)
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                if self._durable and not durable:
                    synchronous(self._db, True)


@contextmanager
def _conflicts(sentence: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise JobConflict(f"{sentence} ({error})") from None


def _encoded(fields: Mapping[str, Any], columns: Mapping[str, schema.Column] = schema.JOB) -> Iterator[Any]:
    for name, value in fields.items():
        yield None if value is None else columns[name].encode(value)


def _decoded(columns: Mapping[str, schema.Column], values: Iterable[Any]) -> dict[str, Any]:
    found = zip(columns.items(), values, strict=True)
    return {name: column.decode(value) for (name, column), value in found if value is not None}


def _spec_of(text: str) -> wire.JobSpec:
    """Fields that this version does not know (any more) are left out."""
    try:
        return msgspec.json.decode(text, type=wire.JobSpec)
    except msgspec.ValidationError:
        found = msgspec.json.decode(text)
        return msgspec.convert(
            {key: value for key, value in found.items() if key in wire.JobSpec.__struct_fields__}, wire.JobSpec
        )
