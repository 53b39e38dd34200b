"""The trusted authorities of https, and the client certificate."""

from __future__ import annotations

import re
import ssl
from dataclasses import field

from penstock.settings import settings

_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*|[0-9A-Fa-f:.]+"
)
_WRONG_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED


@settings
class Tls:
    """`ca` replaces the system's authorities; `cert` and `key` are shown to the receiver; all are PEM files."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        if self.key is not None and self.cert is None:
            raise ValueError("tls.key is given without tls.cert: name the certificate that it belongs to")
        if self.key_password is not None and self.cert is None:
            raise ValueError("tls.key_password is given without tls.cert and tls.key: name both")
        if self.server_name is not None and not _HOST.fullmatch(self.server_name):
            raise ValueError(f"tls.server_name {self.server_name!r} is not the name of a host: write it like example.org")
        if self.ca is not None and not self.verify:
            raise ValueError("tls.ca names a trusted authority and tls.verify: false turns the check off: keep one")
        if self.ca is not None or self.cert is not None:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def context(self) -> ssl.SSLContext:
        """The TLS context of connections. Raises ValueError for a file that cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if self.ca else ssl.create_default_context()
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        if self.ca is not None:
            _load_authority(context, self.ca)
        if self.cert is not None:
            self._load_certificate(context, self.cert)

    def _load_certificate(self, context: ssl.SSLContext, cert: str) -> None:
        for name, path in (("cert", cert), ("key", self.key)):
            _check_readable(name, path)
        asked: list[bool] = []

        def password() -> str:
            asked.append(True)
            return self.key_password or ""  # without a password, OpenSSL asks for one at the terminal

        try:
            context.load_cert_chain(cert, self.key, password)
        except ssl.SSLError as error:
            raise ValueError(self._refusal(error, is_locked=bool(asked))) from None

    def _refusal(self, error: ssl.SSLError, is_locked: bool) -> str:
        key = "tls.key" if self.key else "tls.cert"
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"{key}: its private key does not belong to the certificate in tls.cert: name the two that were made together"
        if is_locked:
            what = (
                "is encrypted: give tls.key_password" if self.key_password is None else "cannot be decrypted with tls.key_password"
            )
            return f"{key} {what}"
        where = f"tls.cert or {key}" if self.key else "tls.cert"
        return f"{where} cannot be read: cert must be a PEM file with the certificate first, key one with its private key"


def _load_authority(context: ssl.SSLContext, path: str) -> None:
    _check_readable("ca", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise ValueError("tls.ca holds no certificate that can be read: it must be a PEM file, BEGIN CERTIFICATE and all") from None


def _check_readable(name: str, path: str | None) -> None:
    try:
        if path is not None:
            with open(path, "rb"):
                pass
    except OSError as error:
        raise ValueError(f"tls.{name} cannot be read: {path}: {error.strerror}") from None


def explained(error: ssl.SSLError) -> str | None:
    """The failure of a handshake and the key that corrects it; None if the failure has no relation to certificates."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message} ({_way_out(error.verify_code)})"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "it closed the connection without an answer (it may require a certificate: see tls.cert and tls.key)"
    reason = str(error.reason)
    if "_ALERT_" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason or "HANDSHAKE_FAILURE" in reason):
        said = reason.partition("_ALERT_")[2].replace("_", " ").lower()
        return f"it refused the certificate shown to it, or that there is none: {said} (see tls.cert and tls.key)"
    return None


def _way_out(code: int) -> str:
    if code in _WRONG_NAME:
        return "set tls.server_name to the name in the certificate"
    return "renew it at the receiver" if code == _EXPIRED else "name your own authority in tls.ca or SSL_CERT_FILE"
