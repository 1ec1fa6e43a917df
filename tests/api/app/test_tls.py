"""https and wss with a certificate of a self-made authority, replaced while it serves."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from shutil import which

import httpx
import openai
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import connect

from draftwerk.api.app import tls
from draftwerk.api.app.app import create_app
from draftwerk.api.app.tls import Certificate, certificate_of
from draftwerk.api.shared.config import Settings, load
from draftwerk.api.shared.state import ServerState
from draftwerk.settings.setting_fields import ConfigError
from tests.api.conftest import CARD, MODEL, hosting
from tests.api.support.fake_engine import ByteText, FakeEngine
from tests.support.waiting import DEADLINE_S

NOT_FOR = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
           "key_agreement", "encipher_only", "decipher_only")  # fmt: skip
SIGNS = x509.KeyUsage(key_cert_sign=True, crl_sign=True, **dict.fromkeys(NOT_FOR, False))
"""Python 3.13 trusts no authority without."""


class Authority:
    """Signs certificates of 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        made = self._builder(self.name, self.key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        made = made.add_extension(SIGNS, critical=True)
        self.path = folder / "authority.pem"
        signed = made.sign(self.key, hashes.SHA256())
        self.path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        self.trust = ssl.create_default_context(cafile=str(self.path))

    def write(self, name: str) -> tuple[Path, Path, int]:
        """Write a certificate and its key; returns their files and its number."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        made = self._builder(subject, key.public_key()).add_extension(address, critical=False)
        signed = made.sign(self.key, hashes.SHA256())
        paths = self.folder / "server.pem", self.folder / "server.key"
        paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return *paths, signed.serial_number

    def _issuer(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(self._issuer(), critical=False)
        )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings_of(authority: Authority, name: str = "one") -> Settings:
    certificate, key, _ = authority.write(name)
    return load({"port": 0, "tls_cert": str(certificate), "tls_key": str(key)}, {})


@asynccontextmanager
async def serving_tls(chosen: Settings) -> AsyncGenerator[tuple[str, Certificate]]:
    certificate = certificate_of(chosen)
    assert certificate is not None
    async with hosting(chosen, certificate) as (startup, url):
        state = ServerState(engine=FakeEngine(), text_tools=ByteText(), model=CARD, settings=chosen)
        startup.app = create_app(state)
        yield url.removeprefix("https://"), certificate


async def number_at(address: str, authority: Authority) -> int:
    """Return the number of the certificate that a server shows."""
    name, port = address.split(":")
    reader, writer = await asyncio.open_connection(name, int(port), ssl=authority.trust)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    assert reader is not None
    return x509.load_der_x509_certificate(shown).serial_number


async def test_clients_of_all_kinds_come_in(authority: Authority) -> None:
    async with serving_tls(settings_of(authority)) as (address, _):
        async with httpx.AsyncClient(verify=authority.trust) as http:
            page = await http.get(f"https://{address}/")
            assert (page.status_code, page.headers["content-type"][:9]) == (200, "text/html")
            client = openai.AsyncOpenAI(
                base_url=f"https://{address}/v1", api_key="none", http_client=http
            )
            stream = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
            )
            assert [chunk async for chunk in stream]
        async with connect(f"wss://{address}/v1/responses", ssl=authority.trust) as socket:
            await socket.send('{"type": "response.create", "input": "hi"}')
            assert "response.created" in str(await socket.recv())
        async with httpx.AsyncClient(verify=authority.trust) as http:
            barred = await http.get(f"https://{address}/v1/models", headers={"host": "evil.site"})
            assert barred.status_code == 403
            foreign = {"origin": "https://evil.site"}
            barred = await http.get(f"https://{address}/v1/models", headers=foreign)
            assert barred.status_code == 403


async def test_who_knows_no_authority_or_speaks_plainly_is_not_served(authority: Authority) -> None:
    async with serving_tls(settings_of(authority)) as (address, _), httpx.AsyncClient() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(f"https://{address}/health")
        with pytest.raises(httpx.HTTPError):
            await http.get(f"http://{address}/health")


@pytest.mark.skipif(which("curl") is None, reason="curl is not installed")
async def test_curl_comes_in(authority: Authority) -> None:
    async with serving_tls(settings_of(authority)) as (address, _):
        command = ["curl", "-sS", "--cacert", str(authority.path), f"https://{address}/health"]
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said, _ = await child.communicate()
        assert (child.returncode, bool(said)) == (0, True)


async def test_a_certificate_is_replaced_while_it_serves(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "WATCH_S", 0.02)
    async with serving_tls(settings_of(authority)) as (address, certificate):
        following = asyncio.create_task(tls.follow(certificate))
        before = await number_at(address, authority)
        await asyncio.sleep(0.05)
        certificate.key.write_text("no key")
        await asyncio.sleep(0.1)
        assert await number_at(address, authority) == before, "what cannot be read changes nothing"
        _, _, after = authority.write("two")
        assert after != before
        async with asyncio.timeout(DEADLINE_S):
            while await number_at(address, authority) != after:  # noqa: ASYNC110 - it is looked up
                await asyncio.sleep(0.05)
        following.cancel()


def test_what_is_no_certificate_is_refused_by_name(authority: Authority, tmp_path: Path) -> None:
    certificate, _, _ = authority.write("one")
    other = tmp_path / "other"
    other.mkdir()
    _, wrong, _ = Authority(other).write("two")
    for name, key in ((tmp_path / "absent.pem", ""), (certificate, str(wrong)), (wrong, "")):
        with pytest.raises(ConfigError, match="tls_cert"):
            certificate_of(Settings(tls_cert=str(name), tls_key=key))
    with pytest.raises(ConfigError, match="tls_key"):
        load({"tls_key": str(wrong)}, {})
    assert certificate_of(Settings()) is None
