"""The server's certificate, which may be replaced while it serves."""

import asyncio
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from draftwerk.api.shared.config import Settings
from draftwerk.settings.setting_fields import ConfigError

WATCH_S = 5.0

log = logging.getLogger("draftwerk")


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM, and the context of connections that they are in."""

    certificate: Path
    key: Path
    context: ssl.SSLContext

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.certificate, self.key)))

    def load(self) -> None:
        """Read the files, for connections from now on. Raises OSError, also for what is none."""
        # Into another context first: of a pair that does not fit, half would be in this one.
        _plain_context().load_cert_chain(self.certificate, self.key, _no_password)
        self.context.load_cert_chain(self.certificate, self.key, _no_password)


def certificate_of(settings: Settings) -> Certificate | None:
    """Return the certificate of `--tls-cert`, if there is one. Raises ConfigError."""
    if not settings.tls_cert:
        return None
    path = Path(settings.tls_cert).expanduser()
    key = Path(settings.tls_key).expanduser() if settings.tls_key else path
    found = Certificate(path, key, _plain_context())
    try:
        found.load()
    except (OSError, ValueError) as error:
        where = "tls_cert" if not settings.tls_key else "tls_cert, tls_key"
        raise ConfigError(f"{where}: no certificate with its key comes of them: {error}") from None
    return found


async def follow(certificate: Certificate) -> None:
    """Read the files again when one changes; what cannot be read leaves the old ones in place."""
    known = await asyncio.to_thread(_times, certificate)
    while True:
        await asyncio.sleep(WATCH_S)
        times = await asyncio.to_thread(_times, certificate)
        if times == known:
            continue
        known = times
        try:
            certificate.load()
        except (OSError, ValueError) as error:
            log.error("the certificate in use stays, as the new one cannot be read: %s", error)
        else:
            log.info("the certificate %s was read again", certificate.certificate)


def _times(certificate: Certificate) -> tuple[int, ...]:
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in certificate.files)


def _plain_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    raise ValueError("the key has a password, and nobody to ask for it")
