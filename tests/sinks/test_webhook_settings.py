"""What may be written under a webhook's keys."""

import json
import pickle
from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import TypeAdapter, ValidationError

from penstock.delivery.settings import Batch
from penstock.retry import Retry
from penstock.sinks.webhook.endpoint import parse
from penstock.sinks.webhook.sink import WebhookSink

URL = "https://example.org/hooks/orders"


def written(**keys):
    """A sink as the pipeline file gives it."""
    return TypeAdapter(WebhookSink).validate_json(json.dumps({"url": URL, **keys}))


def test_only_the_url_must_be_given():
    sink = written()
    assert (sink.format, sink.batch, sink.timeout) == ("penstock", Batch(), timedelta(seconds=5))
    assert (sink.batch.size, sink.batch.delay) == (100, timedelta(milliseconds=5))
    assert (sink.retry.tries, sink.retry.policy, sink.retry.then) == (10, "exponential", "halt")


def test_every_key_is_read():
    sink = written(
        format="rqlite",
        service_id="shop",
        batch={"size": 7, "delay": "1s"},
        parallel=8,
        timeout="2m",
        retry={"tries": "forever", "policy": "linear", "min": "5ms", "max": "1h", "then": "halt"},
    )
    retry = Retry(tries="forever", policy="linear", min=timedelta(milliseconds=5), max=timedelta(hours=1))
    batch = Batch(size=7, delay=timedelta(seconds=1))
    assert sink == WebhookSink(
        url=URL, format="rqlite", service_id="shop", batch=batch, parallel=8, timeout=timedelta(minutes=2), retry=retry
    )


def test_settings_travel_to_workers():
    sink = written(retry={"tries": 3})
    assert pickle.loads(pickle.dumps(sink)) == sink


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "target", "shown"),
    [
        ("http://localhost", "http", "localhost", 80, "/", "http://localhost"),
        ("https://localhost", "https", "localhost", 443, "/", "https://localhost"),
        ("http://localhost:8080/a/b", "http", "localhost", 8080, "/a/b", "http://localhost:8080/a/b"),
        ("HTTP://127.0.0.1:80/?x=1&y=%20", "http", "127.0.0.1", 80, "/?x=1&y=%20", "http://127.0.0.1:80/"),
        ("http://[::1]:8080/hook", "http", "::1", 8080, "/hook", "http://[::1]:8080/hook"),
        ("https://anna:pw@example.org/hook?key=1", "https", "example.org", 443, "/hook?key=1", "https://example.org/hook"),
    ],
)
def test_urls_are_understood_however_they_are_spelled(url, scheme, host, port, target, shown):
    assert written(url=url).url == url
    endpoint = parse(url)
    assert (endpoint.scheme, endpoint.host, endpoint.port, endpoint.target, endpoint.shown) == (scheme, host, port, target, shown)


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("http://Example.org/", "example.org"),
        ("https://example.org:443/", "example.org"),
        ("https://example.org:80/", "example.org:80"),
        ("http://[::1]:8080/", "[::1]:8080"),
        ("http://[fe80::1%25eth0]/", "[fe80::1]"),
    ],
)
def test_the_host_is_named_to_servers_as_they_expect_it(url, authority):
    assert parse(url).authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "",
        "stdout",
        "example.org/hook",
        "ftp://example.org/",
        "/hooks",
        "http://",
        "http:///hook",
        "http://:8080/",
        "http://h:99999/",
        "http://h:0/",
        "http://h:port/",
        "http://[::1/",
        "http://exa..mple/",
        "http://.example/",
        f"http://{64 * 'x'}.org/",
        "http://h/a b",
        "http://h/\n",
        "http://h/ä",
        "http://h/#part",
        " http://h/",
    ],
)
def test_a_url_that_cannot_work_is_refused_with_its_name(url):
    with pytest.raises(ValidationError, match="url "):
        written(url=url)


@pytest.mark.parametrize(
    "url", ["ftp://anna:s3cret@h/", "http://anna:s3cret/@h/", "http://anna:s3cret@h:x/", "http://anna:s3cret@h/#x"]
)
def test_a_refused_url_is_not_quoted(url):
    with pytest.raises(ValueError, match="url ") as raised:
        WebhookSink(url=url)
    assert "cret" not in str(raised.value)


def test_settings_do_not_show_the_url():
    assert "s3cret" not in repr(WebhookSink(url="http://anna:s3cret@h/"))


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"batch": {"size": 0}}, "batch.size"),
        ({"batch": {"size": "10"}}, "batch.size"),
        ({"batch": {"delay": 5}}, "batch.delay"),
        ({"batch": {"much": 5}}, "batch.much"),
        ({"parallel": 0}, "parallel is 0: it must be from 1 to 64"),
        ({"parallel": 65}, "parallel is 65: it must be from 1 to 64"),
        ({"parallel": "4"}, "parallel"),
        ({"bisections": -1}, "bisections is -1: it must be from 0 to 64"),
        ({"bisections": 65}, "bisections is 65: it must be from 0 to 64"),
        ({"inquests": 65}, "bisections is 65: it must be from 0 to 64"),
        ({"inquests": 4, "bisections": 4}, "inquests is the former name of bisections, which is given, too: remove inquests"),
        ({"inquests": 4, "bisections": 16}, "inquests is the former name of bisections, which is given, too: remove inquests"),
        ({"inquests": 4, "bisections": 5}, "inquests is the former name of bisections, which is given, too: remove inquests"),
        ({"timeout": "0s"}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"retry": {"tries": 0}}, "retry.tries"),
        ({"retry": {"tries": "often"}}, "retry.tries"),
        ({"retry": {"min": "0ms"}}, "retry.min"),
        ({"retry": {"min": "2s", "max": "1s"}}, "retry.min"),
        ({"retry": {"policy": "hopeful"}}, "retry.policy"),
        ({"retry": {"then": "shrug"}}, "retry.then"),
        ({"format": "xml"}, "format"),
        ({"service_id": "shop"}, "service_id"),
        ({"colour": "blue"}, "colour"),
        ({"url": 5}, "url"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(keys, named):
    with pytest.raises(ValidationError) as raised:
        written(**keys)
    assert named in str(raised.value)


def test_a_negative_delay_is_refused():
    with pytest.raises(ValueError, match=r"batch\.delay"):
        Batch(delay=timedelta(seconds=-1))


@pytest.mark.parametrize("then", ["halt", "drop", "dead-letter"])
def test_what_becomes_of_poison_can_be_chosen(then):
    assert written(retry={"then": then}).retry.then == then


@pytest.mark.parametrize("then", ["halt", "drop"])
def test_keys_that_go_on_belong_to_dead_letters(then):
    assert written(retry={"then": "dead-letter", "keys": "go-on"}).retry.keys == "go-on"
    with pytest.raises(ValidationError, match=r"retry\.keys: go-on belongs to then: dead-letter"):
        written(retry={"then": then, "keys": "go-on"})


def test_the_former_name_of_bisections_is_accepted_with_a_warning():
    sink = written(inquests=0)
    assert sink.pace.bisections == 0
    assert sink.warnings == ["inquests is now called bisections: rename the key; the next release refuses the old name"]
    assert replace(sink, retry=Retry(tries=1)).pace.bisections == 0
