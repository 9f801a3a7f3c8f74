"""The agent's own TLS certificate: self-signed, known to clients by its fingerprint.

Invariant: the private key is written with mode 0600 before the certificate that needs it, and never leaves its folder.
"""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agent.errors import ConfigurationError
from agent.private_files import write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

VALID_DAYS = 825
"""The longest that browsers and Apple's libraries accept of a private certificate."""
CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate as its file says it. Times are UTC."""

    path: Path
    fingerprint: str
    """`sha256:` and 64 hexadecimal digits of the DER form."""
    hosts: tuple[str, ...]
    not_after: datetime


def make_certificate(
    folder: Path, hosts: Sequence[str], *, days: int = VALID_DAYS, now: datetime | None = None
) -> Certificate:
    """Writes `tls.key` (0600) and `tls.crt` for the names and IP addresses in `hosts` into `folder`.

    Raises StateDirectoryError where they cannot be written, ConfigurationError for a name that no certificate can hold.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign(key, hosts, days, now or datetime.now(UTC))
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(folder / KEY_FILE, pem)
    write_private(folder / CERTIFICATE_FILE, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return read_certificate(folder / CERTIFICATE_FILE)


def read_certificate(path: Path) -> Certificate:
    """Raises ConfigurationError if the file cannot be read or holds no certificate."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except OSError as error:
        raise ConfigurationError(f"the certificate {path} cannot be read ({error.strerror})") from None
    except x509.ExtensionNotFound:
        names = ()
    except ValueError:
        raise ConfigurationError(f"{path} holds no PEM certificate; `rackrate-agent init --new-certificate` makes one") from None
    return Certificate(
        path=path,
        fingerprint=fingerprint(path),
        hosts=tuple(str(name.value) for name in names),
        not_after=found.not_valid_after_utc,
    )


def fingerprint(path: Path) -> str:
    """`sha256:HEX` of the first certificate in a PEM file, as a client compares it. Raises ConfigurationError."""
    try:
        text = path.read_text(encoding="ascii")
        pem = text[text.index(ssl.PEM_HEADER) : text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
        return "sha256:" + hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    except OSError as error:
        raise ConfigurationError(f"the certificate {path} cannot be read ({error.strerror})") from None
    except ValueError:
        raise ConfigurationError(f"{path} holds no PEM certificate") from None


def _sign(key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], days: int, now: datetime) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"rackrate-agent {hosts[0]}"[:64])])
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    begin = now - timedelta(hours=1)  # clocks of nodes and clients differ
    builder = builder.not_valid_before(begin).not_valid_after(begin + timedelta(days=days))
    for extension, critical in (
        (x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (subject_key, False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(subject_key), False),
    ):
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigurationError(f"{host!r} is neither a host name nor an IP address; name one with --host") from None
