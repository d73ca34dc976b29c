"""Certificates: making them, and finding the fault of a given pair.

Keys are on the curve P-256: a handshake costs a server a tenth of RSA's.  Pure except for random numbers.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

TEST_NAME: Final = "sprocket-test-mode"
_TEST_DAYS: Final = 3650
# Clocks of a cluster differ: a new certificate must be valid on all of them.
_EARLIER: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: "x509.Certificate"
    key: "ec.EllipticCurvePrivateKey"

    def certificate_pem(self) -> bytes:
        """PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self) -> bytes:
        """PKCS#8 in PEM, not encrypted."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True)
class Reason:
    """Fault of a pair, and the half that has it."""

    part: Literal["certificate", "key"]
    text: str


def make_authority(name: str, now: datetime.datetime, days: int) -> Pair:
    """Return a certificate authority that signs itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, name, key.public_key(), now, days)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True).add_extension(identifier, False)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Pair, name: str, hosts: Sequence[str], now: datetime.datetime, days: int) -> Pair:
    """Return a certificate of `authority` for `name`; for a server also for `hosts`, names or addresses.

    A server's certificate is also valid for a client: brokers are clients of name servers and of each other.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    issuer_name = common_name(authority.certificate)
    builder = _builder(name, issuer_name, key.public_key(), now, days)
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), False).add_extension(issuer, False)
    return Pair(builder.sign(authority.key, hashes.SHA256()), key)


def load_authority(certificate_pem: bytes, key_pem: bytes) -> Pair:
    """Return an authority that `make_authority` made.  Raises ValueError or TypeError if it is no such authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(key_pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the key is not on a curve")
    return Pair(x509.load_pem_x509_certificate(certificate_pem), key)


def common_name(certificate: "x509.Certificate") -> str:
    """Return the subject's common name, or the empty text."""
    from cryptography.x509.oid import NameOID

    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[-1].value) if names else ""


def test_mode_pair(now: datetime.datetime) -> tuple[bytes, bytes]:
    """Return the certificate and key of the test mode, in PEM; self-signed, so verification fails."""
    pair = make_authority(TEST_NAME, now, _TEST_DAYS)
    return pair.certificate_pem(), pair.key_pem()


def mismatch(certificate_pem: bytes, key_pem: bytes, password: str) -> Reason | None:
    """Return why OpenSSL refuses this pair; None if no fault is found."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificates(certificate_pem)[0]
    except ValueError:
        return Reason("certificate", "it holds no certificate in PEM")
    is_encrypted = b"ENCRYPTED" in key_pem
    try:
        key = load_pem_private_key(key_pem, password.encode() if is_encrypted and password else None)
    except TypeError:
        return Reason("key", "it is encrypted, and no keyPassword is set")
    except ValueError:
        return Reason("key", "the keyPassword is wrong" if is_encrypted else "it holds no private key in PEM")
    except UnsupportedAlgorithm:
        return Reason("key", "it is encrypted in a way that is not supported any more: PBES2 with AES is")
    if key.public_key() != certificate.public_key():
        return Reason("key", "it is not the key of the certificate")
    return None


def _builder(
    name: str, issuer: str, key: "ec.EllipticCurvePublicKey", now: datetime.datetime, days: int
) -> "x509.CertificateBuilder":
    from cryptography import x509

    builder = x509.CertificateBuilder().subject_name(_name(name)).issuer_name(_name(issuer)).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - _EARLIER)
    return builder.not_valid_after(now + datetime.timedelta(days=days))


def _name(common: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, signs_certificates: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _general_name(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
