"""Who a webhook says it is, what else its headers say, and that no secret shows anywhere."""

import base64
import pickle
from datetime import timedelta

import pytest

from deadline import PATIENCE
from penstock.change import Change, Op, to_batch
from penstock.cli import main
from penstock.config import load, parse
from penstock.errors import ConfigInvalid, DeliveryExhausted
from penstock.retry import Retry
from penstock.sinks.webhook.auth import Auth, Basic
from penstock.sinks.webhook.signing import Signing
from penstock.sinks.webhook.sink import WebhookSink

CHANGE = to_batch([Change(1, Op.INSERT, "orders", '{"id":1}', None, '{"id":1}')])
TWICE = Retry(tries=2, min=timedelta(milliseconds=1), max=timedelta(milliseconds=1))
SECRETS = ("s3cret-token", "s3cret-password", "s3cret-header", "s3cret-query")
BASIC, SIGNING = (base64.b64encode(text).decode() for text in (b"anna:s3cret-password", b"a key of 24 random bytes"))


def refusal(**keys):
    """What is said of a pipeline file with these keys of its sink."""
    sink = {"type": "webhook", "url": "https://example.org/", **keys}
    with pytest.raises(ConfigInvalid) as raised:
        parse({"name": "p", "source": {"type": "sqlite", "database": "x.db"}, "sink": sink})
    return raised.value.message


def sent(receiver, deliver, **settings):
    delivery = deliver(receiver.url, **settings)
    delivery.offer(CHANGE, wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    return receiver.requests[0].headers


def test_a_bearer_token_is_sent(receiver, deliver):
    assert sent(receiver, deliver, auth=Auth(bearer="abc.DEF-123=="))["authorization"] == "Bearer abc.DEF-123=="


def test_user_and_password_are_sent_in_utf_8(receiver, deliver):
    header = sent(receiver, deliver, auth=Auth(basic=Basic(user="änna", password="a:b/ä")))["authorization"]
    assert base64.b64decode(header.removeprefix("Basic ")).decode() == "änna:a:b/ä"


def test_further_headers_are_sent_with_every_try(receiver, deliver):
    receiver.turn(script=(500,))
    sent(receiver, deliver, headers={"X-Tenant": "12", "Authorization": "ApiKey x y"})
    for request in receiver.requests:
        assert (request.headers["x-tenant"], request.headers["authorization"]) == ("12", "ApiKey x y")
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (Auth(bearer="s3cret-token"), Auth(bearer="s3cret-tokem")),
        (Auth(basic=Basic(user="anna", password="s3cret-password")), Auth(basic=Basic(user="anna", password="s3cret-passwort"))),
        (Auth(bearer="s3cret-token"), Auth()),
    ],
)
def test_only_the_right_credentials_are_let_in_and_wrong_ones_are_called_so(locked, deliver, right, wrong):
    url = locked(right.header)
    delivery = deliver(url, auth=right, retry=TWICE)
    delivery.offer(CHANGE, wait=PATIENCE)
    assert delivery.drain(PATIENCE)
    delivery = deliver(url, auth=wrong, retry=TWICE)
    delivery.offer(CHANGE, wait=PATIENCE)
    with pytest.raises(DeliveryExhausted) as raised:
        delivery.drain(PATIENCE)
    hint = "check the credentials: sink.auth, headers, signing or url"
    assert raised.value.message == f"{url}: status 401 ({hint}): who are you?; changes 1..1 were not taken in 2 tries"


@pytest.mark.parametrize(
    "value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "käse", "日本", " a", "a ", "", "a\x7f", "\t"], ids=ascii
)
def test_a_value_that_no_header_can_hold_is_refused_with_its_key(value):
    said = refusal(headers={"X-Tenant": value})
    assert "headers.X-Tenant is empty, begins or ends" in said
    assert "Evil" not in said


@pytest.mark.parametrize("name", ["", "X Tenant", "X:", "X\r\nY", "Käse", "(x)"], ids=ascii)
def test_a_name_that_no_header_can_have_is_refused(name):
    assert "is not the name of a header" in refusal(headers={name: "1"})


@pytest.mark.parametrize(
    "name",
    [
        "Content-Length",
        "content-length",
        "Content-Type",
        "Content-Encoding",
        "Transfer-Encoding",
        "Host",
        "HOST",
        "Connection",
        "Upgrade",
        "Expect",
        "Proxy-Authorization",
        "Idempotency-Key",
        "User-Agent",
        "Penstock-Epoch",
        "penstock-anything",
        "webhook-signature",
    ],
)
def test_a_header_that_is_not_the_users_is_refused_with_its_key(name):
    said = refusal(headers={name: "1"})
    assert f"headers.{name} " in said
    assert said.endswith("remove it")


def test_a_header_in_two_cases_is_given_twice():
    assert "headers.x-a is given twice" in refusal(headers={"X-A": "1", "x-a": "2"})


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"auth": {"basic": {"user": "anna"}}}, "auth.basic.password is missing"),
        ({"auth": {"basic": {"password": "s3cret"}}}, "auth.basic.user is missing"),
        ({"auth": {"basic": {"user": "a:b", "password": "s3cret"}}}, "auth.basic.user has a colon"),
        ({"auth": {"basic": {"user": "a", "password": "s3cret\r\nX: 1"}}}, "auth.basic has a character that cannot be seen"),
        ({"auth": {"bearer": "s3cret\r\nX: 1"}}, "auth.bearer is empty or has"),
        ({"auth": {"bearer": "s3crät"}}, "auth.bearer is empty or has"),
        ({"auth": {"bearer": ""}}, "auth.bearer is empty"),
        ({"auth": {"bearer": 5}}, "sink.auth.bearer must be text: put it in quotes"),
        ({"auth": {"bearr": "s3cret"}}, "sink.auth.bearr is unknown: did you mean bearer?"),
        ({"auth": {"bearer": "s3cret", "basic": {"user": "a", "password": "s3cret"}}}, "auth.basic and auth.bearer are both given"),
        ({"auth": {"bearer": "s3cret"}, "url": "https://anna:s3cret@h/"}, "credentials are given by url and by auth: keep one"),
        ({"auth": {"bearer": "s3cret"}, "headers": {"authorization": "s3cret"}}, "by auth and by headers"),
        ({"headers": {"X-Tenant": 5}}, "sink.headers.X-Tenant must be text: put it in quotes"),
    ],
)
def test_credentials_that_cannot_work_are_refused_with_their_key_and_not_quoted(keys, named):
    said = refusal(**keys)
    assert named in said
    assert "s3cr" not in said


FILE = """
name: orders
source: {type: sqlite, database: shop.db}
sink:
  type: webhook
  url: "http://127.0.0.1:PORT/?token=${QUERY}"
  auth: {bearer: "${TOKEN}"}
  headers: {X-Api-Key: "${file:key.txt}"}
"""


@pytest.fixture
def file(receiver, tmp_path, monkeypatch):
    monkeypatch.setenv("QUERY", "s3cret-query")
    monkeypatch.setenv("TOKEN", "s3cret-token")
    (tmp_path / "key.txt").write_text("s3cret-header\n")
    (tmp_path / "orders.yaml").write_text(FILE.replace("PORT", str(receiver.port)))
    return tmp_path / "orders.yaml"


def test_secrets_come_from_the_environment_and_from_files(file, receiver, deliver):
    sink = load(file).sink
    headers = sent(receiver, deliver, auth=sink.auth, headers=sink.headers)
    assert (headers["authorization"], headers["x-api-key"]) == ("Bearer s3cret-token", "s3cret-header")


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_validate_shows_stars_instead_of_secrets(file, capsys, option):
    assert main(["validate", str(file), *option]) == 0
    said = capsys.readouterr().out
    assert not any(secret in said for secret in SECRETS)
    assert "sink.auth.bearer" in said
    assert "X-Api-Key" in said
    assert "***" in said


def test_settings_show_no_secret_and_carry_all_to_workers(file):
    pipeline = load(file)
    with_password = WebhookSink(url="http://h/", auth=Auth(basic=Basic(user="anna", password="s3cret-password")))
    assert not any(secret in repr(pipeline) + repr(with_password) for secret in SECRETS)
    assert pickle.loads(pickle.dumps(pipeline.sink)) == pipeline.sink


@pytest.mark.parametrize(
    ("settings", "query"),
    [
        ({"auth": Auth(bearer="s3cret-token")}, ""),
        ({"auth": Auth(basic=Basic(user="anna", password="s3cret-password"))}, ""),
        ({"headers": {"X-Api-Key": "s3cret-header"}}, ""),
        ({}, "?key=s3cret-query&b=1"),
    ],
)
def test_a_secret_that_the_receiver_says_back_is_hidden_in_errors_and_events(echo, deliver, told, settings, query):
    delivery = deliver(echo + query, retry=TWICE, **settings)
    delivery.offer(CHANGE, wait=PATIENCE)
    with pytest.raises(DeliveryExhausted) as raised:
        delivery.drain(PATIENCE)
    assert "cannot POST" in str(raised.value)
    for text in (str(raised.value), *map(repr, told.events)):
        assert not any(secret in text for secret in (*SECRETS, BASIC))
        assert "***" in text


@pytest.mark.parametrize("token", ["S3cret-Token", "S3cret,Token"])
@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ((200, "Penstock-Refused", "token {}"), "status 200, but its Penstock-Refused cannot be read at 'token ***'"),
        ((302, "Location", "https://{}.example/"), "a redirect to the host '***.example'"),
    ],
)
def test_a_secret_that_the_receiver_says_back_in_a_header_is_hidden_too(parrot, deliver, told, header, reason, token):
    delivery = deliver(parrot(*header), retry=TWICE, auth=Auth(bearer=token))
    delivery.offer(CHANGE, wait=PATIENCE)
    with pytest.raises(DeliveryExhausted) as raised:
        delivery.drain(PATIENCE)
    for text in (str(raised.value), *map(repr, told.events)):
        assert reason in text
        assert "s3cret" not in text.lower()


@pytest.mark.parametrize(
    ("url", "headers", "said"),
    [
        ("http://h/?a%20b&c=d", {}, "<pre>Cannot POST /?a%20b&amp;c=d</pre> a b"),
        ("http://h/?c=d%2Fe&x=y", {}, '{"query":{"c":"d/e","x":"y"}}'),
        ("http://h/?c=d/e==", {}, '{"c":"d/e=="}'),
        ("http://anna:a%40b@h/", {}, 'wrong password "a@b" a%40b'),
        ("http://h/", {"X-Key": 'say "hi"'}, '{"key":"say \\"hi\\""} say &quot;hi&quot;'),
    ],
)
def test_a_secret_is_hidden_however_it_is_spelled(url, headers, said):
    from penstock.sinks.webhook.redaction import redactor

    hidden = redactor(WebhookSink(url=url, headers=headers))(said)
    assert "***" in hidden
    assert not any(secret in hidden for secret in ("a%20b", "a b", "c=d", "d/e", "a@b", "a%40b", "hi", '"y"'))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"headers": {"authorization": "Token s3cret-token"}}, "nobody has the token s3cret-token"),
        ({"headers": {"Authorization": f"Basic {BASIC}"}}, f"anna is not s3cret-password: {BASIC}"),
        ({"headers": {"X-Api-Key": "s3cret\t-header"}}, "s3cret-header is no key"),
        ({"signing": Signing(secret=f"whsec_{SIGNING}")}, f"not signed by {SIGNING}"),
    ],
)
def test_the_secret_part_of_a_setting_is_hidden_by_itself(settings, said):
    from penstock.sinks.webhook.redaction import redactor

    hidden = redactor(WebhookSink(url="http://h/", **settings))(said)
    assert "***" in hidden
    assert not any(secret in hidden for secret in (*SECRETS, BASIC, SIGNING))


@pytest.mark.parametrize("credentials", ["Basic", "Basic %", "Basic /w==", "Basic YW5uYQ==", "Basic YTo=", "Basic YToB"])
def test_credentials_without_a_password_that_could_be_seen_hide_nothing_else(credentials):
    from penstock.sinks.webhook.redaction import redactor

    sink = WebhookSink(url="http://h/", headers={"Authorization": credentials})
    assert redactor(sink)("no such user") == "no such user"


def test_a_short_secret_is_hidden_with_the_long_one_that_holds_it():
    from penstock.sinks.webhook.redaction import redactor

    sink = WebhookSink(url="http://h/", headers={"X-A": "abc", "X-B": "abcdef"})
    assert redactor(sink)("abcdef abc") == "*** ***"
