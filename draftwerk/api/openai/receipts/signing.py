"""Ed25519 signatures of receipts, by the `cryptography` library (extra `receipts`)."""

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import UnsetType
from msgspec.structs import replace

from draftwerk.api.openai.receipts.receipt import Receipt, Signature
from draftwerk.api.shared.ports import ReceiptSigner
from draftwerk.settings.setting_fields import ConfigError

ALGORITHM = "Ed25519"


class Signer:
    """Signs receipts with a private key."""

    def __init__(self, path: Path) -> None:
        """Read an unencrypted Ed25519 key in PEM. Raises ConfigError."""
        keys, library = ed25519(), serialization()
        try:
            self._key: Any = library.load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"signing_key: {path} cannot be read: {error}") from None
        if not isinstance(self._key, keys.Ed25519PrivateKey):
            raise ConfigError(f"signing_key: {path} is no Ed25519 key")
        self.public: str = self._key.public_key().public_bytes_raw().hex()
        """The public key, in hexadecimal digits."""

    def signature(self, digest: str) -> str:
        """Return the signature of a digest, in hexadecimal digits."""
        found: bytes = self._key.sign(digest.encode())
        return found.hex()


def signer_of(path: str) -> Signer | None:
    """Return what signs with a key, if there is one. Raises ConfigError."""
    return Signer(Path(path).expanduser()) if path else None


def signed(receipt: Receipt, signer: ReceiptSigner | None) -> Receipt:
    """Return a receipt with a signature of its digest, if there is what signs."""
    if signer is None:
        return receipt
    return replace(receipt, signature=Signature(signer.public, signer.signature(receipt.digest)))


def is_signed(receipt: Receipt) -> bool:
    """Whether a receipt's signature is of its digest and by its key."""
    signature = receipt.signature
    if isinstance(signature, UnsetType) or signature.algorithm != ALGORITHM:
        return False
    try:
        key: Any = ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.key))
        key.verify(bytes.fromhex(signature.value), receipt.digest.encode())
    except (ValueError, invalid_signature()):
        return False
    return True


@cache
def ed25519() -> ModuleType:
    """Return the library's module of this kind of key. Raises ConfigError without the library."""
    try:
        return import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ImportError:
        said = "signatures need `cryptography`: in draftwerk's clone, pip install '.[receipts]'"
        raise ConfigError(said) from None


def serialization() -> ModuleType:
    """Return the library's module that reads keys."""
    return import_module("cryptography.hazmat.primitives.serialization")


def invalid_signature() -> type[Exception]:
    """Return what the library raises for a signature that is none."""
    return import_module("cryptography.exceptions").InvalidSignature
