"""Encryption of tasks for workers on other hosts, by Fernet of `cryptography`: AES and HMAC."""

from __future__ import annotations

from penstock.errors import ConfigInvalid, EngineFailed

KEY = "PENSTOCK_RUN_SECRET"
"""The environment variable with the key of a run, in its JVM and its executors."""


def made_key() -> str:
    """A new key. Raises ConfigInvalid without the extra `cluster`."""
    try:
        from cryptography.fernet import Fernet
    except ImportError:
        raise ConfigInvalid(
            "tasks for a cluster must be encrypted, and the package cryptography is not installed",
            "pip install 'penstock[cluster]', on every host of the cluster",
        ) from None
    return Fernet.generate_key().decode()


def encrypt(data: bytes, key: str) -> str:
    """The encrypted data as one word, different for each call."""
    from cryptography.fernet import Fernet

    return Fernet(key).encrypt(data).decode()


def decrypt(word: str, key: str) -> bytes:
    """The data of an encrypted word. Raises EngineFailed for another key or an altered word."""
    from cryptography.fernet import Fernet, InvalidToken

    try:
        return Fernet(key).decrypt(word)
    except (InvalidToken, ValueError):
        raise EngineFailed(
            f"{KEY} in the environment of this worker is not the key of the run", f"do not set spark.executorEnv.{KEY}"
        ) from None
