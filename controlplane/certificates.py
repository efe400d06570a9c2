"""The keys of a control plane: a certificate authority, server and client certificates, the service-account key."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = timedelta(days=30)


class Authority:
    """Signs certificates into one folder: `<name>.crt` and `<name>.key`, and its own `ca.crt` and `ca.key`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        if (folder / "ca.key").exists():  # a plane that is up: more users may be signed later
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key = key
            self._name = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()).subject
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject("tidemill-test-ca", ())
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        own = (
            _certificate(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        _write(folder / "ca.key", _private(self._key))
        (folder / "ca.crt").write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str, *, addresses: Sequence[str], hosts: Sequence[str]) -> None:
        names: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(address)) for address in addresses
        ]
        names += [x509.DNSName(host) for host in hosts]
        self._sign(name, _subject(name, ()), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, file: str, user: str, groups: Sequence[str] = ()) -> None:
        """A user as Kubernetes reads it from a certificate: the common name, and an organization for each group."""
        self._sign(file, _subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def service_accounts(self) -> None:
        """`sa.key` and `sa.pub`: what the tokens of service accounts are signed and checked with."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write(self.folder / "sa.key", _private(key))
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self.folder / "sa.pub").write_bytes(public)

    def _sign(
        self, file: str, subject: x509.Name, usage: x509.ObjectIdentifier, names: Sequence[x509.GeneralName]
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _certificate(subject, self._name, key)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        _write(self.folder / f"{file}.key", _private(key))
        (self.folder / f"{file}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _VALID)
    )


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    # kube-apiserver reads EC keys and RSA keys in the traditional form.
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _write(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)
