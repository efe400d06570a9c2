"""What must be in a secret, and that a fault names a field and never a value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.platform.oidc import OidcFault, read_providers
from tidemill.platform.secrets import FaultKind, Layout, SecretKind, faults_of
from tidemill.render.secrets_text import fault_text

LAYOUT = Layout("prod", "models", "engine", "prod", "prod", redis_tls=True, login="rds!db-1")
COGNITO = {
    "key": "cognito",
    "name": "Cognito",
    "issuer_url": "https://cognito-idp.us-east-1.amazonaws.com/us-east-1_abc",
    "client_id": "3fh",
    "client_secret": "c-planted-secret",
    "scopes": ["email", "profile"],
    "pkce": True,
    "allow_sign_up": True,
}
GOOGLE = {
    "key": "google",
    "name": "Google",
    "issuer_url": "https://accounts.google.com",
    "client_id": "x.apps",
}


def kinds(kind: SecretKind, value: object, **given: str) -> list[FaultKind]:
    text = value if isinstance(value, str) else json.dumps(value)
    return [fault.kind for fault in faults_of(kind, text, LAYOUT, **given)]


@pytest.mark.requirement("AE-3")
def test_cookies_of_63_characters_are_too_short_and_64_are_enough():
    assert kinds(SecretKind.COOKIES, "x" * 63) == [FaultKind.TOO_SHORT]
    assert kinds(SecretKind.COOKIES, "x" * 64) == []
    assert kinds(SecretKind.COOKIES, " " * 64) == [FaultKind.TOO_SHORT]


@pytest.mark.requirement("AE-3")
@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("rediss://:token@cache.example:6379", []),
        ("rediss://user:token@cache.example", []),
        ("redis://:token@cache.example:6379", [FaultKind.PLAIN_REDIS]),
        ("rediss://cache.example:6379", [FaultKind.NO_TOKEN]),
        ("redis://cache.example:6379", [FaultKind.PLAIN_REDIS, FaultKind.NO_TOKEN]),
        ("cache.example:6379", [FaultKind.NOT_REDIS]),
        ("https://:token@cache.example", [FaultKind.NOT_REDIS]),
        ("rediss://:token@cache.example:port", [FaultKind.NOT_REDIS]),
        ("rediss://:to[ken@cache.example", [FaultKind.NOT_REDIS]),
    ],
)
def test_a_redis_address_has_tls_a_token_and_a_host(url: str, found: list[FaultKind]):
    assert kinds(SecretKind.REDIS, {"url": url}) == found


@pytest.mark.requirement("TR-2")
def test_redis_without_tls_may_be_plain_where_the_platform_says_so():
    plain = Layout("prod", "models", "engine", "prod", "prod", redis_tls=False)
    assert faults_of(SecretKind.REDIS, '{"url": "redis://:t@cache:6379"}', plain) == ()


@pytest.mark.requirement("AE-3")
def test_the_connection_is_the_database_that_rds_and_the_platform_name():
    right = {"endpoint": "db.example:5432", "database_name": "engine"}
    assert kinds(SecretKind.DATABASE, right, host="db.example") == []
    assert kinds(SecretKind.DATABASE, right, host="other.example") == [FaultKind.OTHER_HOST]
    assert kinds(SecretKind.DATABASE, right | {"database_name": "x"}) == [FaultKind.OTHER_DATABASE]
    assert kinds(SecretKind.DATABASE, {"endpoint": "db.example"}) == [FaultKind.FIELD_MISSING]
    assert kinds(SecretKind.DATABASE, right | {"endpoint": 5432}) == [FaultKind.NOT_TEXT]


@pytest.mark.requirement("AE-3")
def test_storage_is_in_the_platforms_bucket():
    assert kinds(SecretKind.STORAGE, LAYOUT.storage) == []
    assert kinds(SecretKind.STORAGE, LAYOUT.storage | {"workdir": "s3://elsewhere/shared"}) == [
        FaultKind.OTHER_BUCKET
    ]
    assert kinds(SecretKind.STORAGE, LAYOUT.storage | {"workdir": "/shared"}) == [FaultKind.NOT_S3]


@pytest.mark.parametrize("kind", [kind for kind in SecretKind if kind is not SecretKind.COOKIES])
def test_what_is_no_json_is_said_to_be_none(kind: SecretKind):
    (fault,) = faults_of(kind, "{planted", LAYOUT)
    assert fault_text(fault) == "it is not JSON"


@pytest.mark.requirement("AE-11")
def test_several_providers_are_a_json_array():
    providers, problems = read_providers(json.dumps([COGNITO, GOOGLE]))
    assert problems == ()
    assert [one.key for one in providers] == ["cognito", "google"]
    assert "planted" not in repr(providers)


@pytest.mark.requirement("AE-11")
@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("{}", [(OidcFault.NOT_AN_ARRAY, "")]),
        ("[]", [(OidcFault.EMPTY, "")]),
        (json.dumps([COGNITO | {"issuer_url": "http://planted"}]), [(OidcFault.FIELD, "issuer_url")]),
        (
            json.dumps([{"key": "a"}]),
            [(OidcFault.FIELD, name) for name in ("client_id", "issuer_url", "name")],
        ),
        (json.dumps([GOOGLE, GOOGLE]), [(OidcFault.SAME_KEY, "key")]),
        (json.dumps(["planted"]), [(OidcFault.FIELD, "")]),
    ],
)
def test_a_wrong_provider_is_named_by_its_field(text: str, faults: list[tuple[OidcFault, str]]):
    _, problems = read_providers(text)
    assert [(one.fault, one.field) for one in problems] == faults
    assert "planted" not in repr(problems)


_VALUES = st.one_of(
    st.text(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["url", "endpoint", "username", "key", "issuer_url", "model_registry"]), inner
            )
        ),
        max_leaves=10,
    ).map(json.dumps),
)


@given(kind=st.sampled_from(SecretKind), value=_VALUES)
def test_any_value_is_judged_and_every_fault_has_its_words(kind: SecretKind, value: str):
    for fault in faults_of(kind, value, LAYOUT):
        assert fault_text(fault)
