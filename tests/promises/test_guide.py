"""The guide from an application to Kafka, done as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

from deadline import PATIENCE
from servers.broker import Broker
from servers.postgres import PostgresServer

GUIDE = (Path(__file__).parents[2] / "docs" / "outbox-to-kafka.md").read_text()
DJANGO, FASTAPI, CONSUMER = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
[PIPELINE] = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
COMMANDS = [line.strip() for line in GUIDE.splitlines() if line.startswith("    penstock ")]

IN_DJANGO = """
import os, django
from urllib.parse import urlsplit
from django.conf import settings
at = urlsplit(os.environ["DATABASE_URL"])
names = {"NAME": at.path[1:], "USER": at.username, "PASSWORD": at.password, "HOST": at.hostname, "PORT": at.port}
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **names}})
django.setup()
from django.db import models
class Order(models.Model):
    state = models.TextField()
    class Meta:
        app_label, db_table = "shop", "shop_order"
"""
PAID = """
pay(Order.objects.create(state="new"))
try:
    with transaction.atomic():
        pay(Order.objects.create(state="new"))
        raise ValueError("rolled back")
except ValueError:
    pass
"""
IN_FASTAPI = """
import asyncio, os
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
async def request():
    engine = create_async_engine(os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"))
    async with AsyncSession(engine) as session:
        await pay(session, 1)
    await engine.dispose()
asyncio.run(request())
"""


def test_the_guide_leads_from_nothing_to_messages_in_kafka(
    postgres: str, postgres_server: PostgresServer, tmp_path: Path, broker: Broker
) -> None:
    told = {**os.environ, "DATABASE_URL": postgres, "KAFKA_SERVERS": broker.servers}

    def done(*command: str) -> str:
        ended = subprocess.run(command, cwd=tmp_path, env=told, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert ended.returncode == 0, f"{command[:4]}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    broker.create("orders")
    (tmp_path / "orders.yaml").write_text(PIPELINE)
    (tmp_path / "orders.yaml").chmod(0o600)
    postgres_server.execute("create table shop_order (id bigserial primary key, state text)", postgres)
    assert [command for command in COMMANDS if "init" in command] == ['penstock outbox init "$DATABASE_URL"']
    done(sys.executable, "-m", "penstock", "outbox", "init", postgres)
    done(sys.executable, "-c", IN_DJANGO + DJANGO + PAID)
    done(sys.executable, "-c", FASTAPI + IN_FASTAPI)
    done(sys.executable, "-m", "penstock", "doctor", "orders.yaml")
    done(sys.executable, "-m", "penstock", "run", "orders.yaml", "--available-now")
    records = broker.records("orders")
    assert [(record.key, json.loads(record.value or b"")) for record in records] == [(b"1", {"id": 1, "state": "paid"})] * 2
    assert [record.headers for record in records] == [[], [("trace", b"abc")]]
    assert postgres_server.execute("select count(*) from outbox", postgres) == [(0,)]
    patient = CONSUMER.replace("poll(30)", f"poll({PATIENCE})")
    with subprocess.Popen([sys.executable, "-u", "-c", patient], env=told, stdout=subprocess.PIPE) as consumer:
        assert consumer.stdout
        seen = list(islice(consumer.stdout, 2))
        consumer.kill()
    assert all(b"paid" in line for line in seen)
    assert len(seen) == 2
