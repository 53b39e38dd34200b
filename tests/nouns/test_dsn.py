"""What people see of an address."""

import pytest

from penstock.text.dsn import scrubbed, shown


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ("postgresql://", "postgresql://"),
        ("postgresql://app:s3c:ret@db:5432/shop", "postgresql://app:***@db:5432/shop"),
        ("postgresql://app:s3@cret@db/shop", "postgresql://app:***@db/shop"),
        ("postgres://app:s3cret@a:1,b:2/shop?sslmode=require", "postgres://app:***@a:1,b:2/shop?sslmode=require"),
        ("postgresql://app@/shop?host=/run/pg&port=7", "postgresql://app@/shop?host=/run/pg&port=7"),
        ("postgresql://app@db/shop?password=s3cret&x=1", "postgresql://app@db/shop?password=***&x=1"),
        ("postgresql://app@db/shop?sslpassword=s3cret", "postgresql://app@db/shop?sslpassword=***"),
        ("host=db password='s3 cret' dbname=shop", "host=db password=*** dbname=shop"),
        ("mysql://app:s3cret@db/shop", "mysql://app:***@db/shop"),
    ],
)
def test_passwords_never_show(dsn: str, said: str) -> None:
    assert shown(dsn) == said


def test_nothing_secret_is_left_of_what_a_driver_says() -> None:
    dsn = "postgresql://app:s3%2Fcret@db/shop?sslpassword=h1dden"
    said = f'connection to "{dsn}" failed:\n  no such thing: "s3/cret", h1dden'
    assert scrubbed(said, dsn) == ('connection to "postgresql://app:***@db/shop?sslpassword=*** failed: no such thing: "***", ***')
