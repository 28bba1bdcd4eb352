"""What `S3Backend` takes, and what becomes of it; nothing here needs a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

import locus_store
from locus_store import S3Backend, S3Checkpointer, open_backend
from locus_store.backends.objects.s3_options import S3Options
from locus_store.core.errors import BackendError

KEYS: dict[str, Any] = {
    "aws_access_key_id": "AKIA1",
    "aws_secret_access_key": "hush-hush",
    "aws_session_token": "token",
}


@pytest.fixture(autouse=True)
def nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def config(**options: Any) -> dict[str, Any]:
    return dict(S3Options("b", **options).make().config)


def credentials(**options: Any) -> dict[str, Any]:
    provider = S3Options("b", **options).make().credential_provider
    assert provider is not None
    found: Any = provider()
    return {name: found[name] for name in ("access_key_id", "secret_access_key", "token")}


class TestRepr:
    def test_what_is_shown(self):
        assert repr(S3Backend("b", "p", endpoint_url="http://h:9000")) == (
            "S3Backend(ObjectDriver(ObstorePort(the S3 bucket 'b' at http://h:9000), prefix='p/'))"
        )
        assert repr(S3Checkpointer("b")).startswith(
            "S3Checkpointer(ObjectDriver(ObstorePort(the S3 bucket 'b'), prefix="
        )

    def test_no_key_is_shown(self):
        for made in (S3Backend("b", **KEYS), S3Checkpointer("b", **KEYS), S3Options("b", **KEYS)):
            assert not [value for value in KEYS.values() if value in repr(made)]
        assert not [value for value in KEYS.values() if value in repr(config(**KEYS))]


class TestArguments:
    @pytest.mark.parametrize(
        ("options", "error", "text"),
        [
            ({"bucket": ""}, ValueError, "name of a bucket"),
            ({"bucket": None}, ValueError, "name of a bucket"),
            ({"bucket": "a/b"}, ValueError, "without a slash"),
            ({"aws_access_key_id": "a"}, TypeError, "go together"),
            ({"aws_secret_access_key": "a"}, TypeError, "go together"),
            ({"aws_session_token": "a"}, TypeError, "aws_session_token belongs to"),
            ({**KEYS, "profile_name": "p"}, TypeError, "either keys or a profile_name"),
            ({"addressing_style": "dns"}, ValueError, "addressing_style must be"),
            ({"endpoint_url": "host:9000"}, ValueError, "endpoint_url must be the URL"),
            ({"endpoint_url": "ftp://host"}, ValueError, "endpoint_url must be the URL"),
            ({"endpoint_url": "https://u:hush-hush@host"}, ValueError, "holds no credentials"),
            ({"endpoint_url": "https://host?a=1"}, ValueError, "nothing follows"),
            ({"max_retries": -1}, ValueError, "max_retries must be"),
            ({"timeout": 0}, ValueError, "timeout must be"),
            ({"connect_timeout": "1"}, ValueError, "connect_timeout must be"),
            ({"max_pool_connections": 0}, ValueError, "max_pool_connections must be"),
            ({"prefix": "a//b"}, ValueError, "prefix must"),
            ({"prefix": "../b"}, ValueError, "prefix must"),
            ({"use_ssl": True}, TypeError, "unexpected keyword argument 'use_ssl'"),
        ],
    )
    def test_what_is_wrong_is_said_at_once(self, options, error, text):
        with pytest.raises(error, match=text) as caught:
            S3Backend(**{"bucket": "b", **options})
        assert "hush-hush" not in str(caught.value)

    def test_a_store_of_ones_own_knows_all_of_it(self):
        store = S3Store("b", region="eu-west-1")
        assert "S3Store of 'b'" in repr(S3Backend(store=store))
        for options in ({"region_name": "r"}, {"create_bucket": True}, {"timeout": 1}, {"bucket": "c"}, KEYS):
            with pytest.raises(TypeError, match="say no more"):
                S3Backend(store=store, **options)
        with pytest.raises(TypeError, match="no prefix of its own"):
            S3Backend(store=S3Store("b", prefix="p"))
        with pytest.raises(TypeError, match="got MemoryStore"):
            S3Backend(store=MemoryStore())


class TestAddresses:
    def test_amazon(self):
        found = config(region_name="eu-west-1")
        assert found["region"] == "eu-west-1"
        assert found["virtual_hosted_style_request"] == "true"
        assert "endpoint_url_s3" not in found
        assert "endpoint" not in found
        # A certificate for *.s3.amazonaws.com is none for a name with another dot.
        assert dict(S3Options("b.c").make().config)["virtual_hosted_style_request"] == "false"

    def test_others(self):
        found = config(endpoint_url="http://h:9000")
        assert found["endpoint_url_s3"] == "http://h:9000"
        assert found["virtual_hosted_style_request"] == "false"
        assert S3Options("b", "http://h:9000").make().client_options["allow_http"] == "true"
        assert S3Options("b", "https://h:9000").make().client_options["allow_http"] == "false"

    def test_the_bucket_before_the_host(self):
        found = config(endpoint_url="https://h:9000", addressing_style="virtual")
        assert found["endpoint_url_s3"] == "https://b.h:9000"
        assert found["virtual_hosted_style_request"] == "true"

    @pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
    def test_the_environment_may_name_the_service(self, monkeypatch, name):
        monkeypatch.setenv(name, "http://of-the-environment:1")
        assert config()["endpoint_url_s3"] == "http://of-the-environment:1"
        assert config()["virtual_hosted_style_request"] == "false"
        assert config(endpoint_url="http://h:9000")["endpoint_url_s3"] == "http://h:9000"

    def test_certificates(self, tmp_path):
        assert S3Options("b", verify=False).make().client_options["allow_invalid_certificates"] == "true"
        assert "allow_invalid_certificates" not in S3Options("b").make().client_options
        with pytest.raises(BackendError, match="verify"):
            S3Options("b", verify=str(tmp_path / "none.pem")).make()


class TestCredentials:
    def test_keys_that_are_given_are_not_mixed_with_those_of_the_environment(self, monkeypatch):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "other")
        monkeypatch.setenv("AWS_PROFILE", "other")
        found = credentials(aws_access_key_id="AKIA1", aws_secret_access_key="hush-hush")
        assert found == {"access_key_id": "AKIA1", "secret_access_key": "hush-hush", "token": None}
        assert credentials(**KEYS)["token"] == "token"

    def test_without_any_the_environment_is_looked_at(self, monkeypatch):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
        monkeypatch.setenv("AWS_PROFILE", "nobody")  # keys come first
        assert S3Options("b").make().credential_provider is None

    @pytest.mark.parametrize("named_by", ["option", "environment"])
    def test_a_profile(self, monkeypatch, tmp_path, named_by):
        pytest.importorskip("boto3")
        (tmp_path / "credentials").write_text("[work]\naws_access_key_id = AKIA2\naws_secret_access_key = s2\n")
        (tmp_path / "config").write_text("[profile work]\nregion = eu-north-1\n")
        options: dict[str, Any] = {"profile_name": "work"}
        if named_by == "environment":
            monkeypatch.setenv("AWS_PROFILE", "work")
            options = {}
        assert credentials(**options) == {"access_key_id": "AKIA2", "secret_access_key": "s2", "token": None}
        assert config(**options)["region"] == "eu-north-1"
        assert config(**options, region_name="eu-west-1")["region"] == "eu-west-1"

    def test_a_profile_that_is_not_there(self):
        pytest.importorskip("boto3")
        with pytest.raises(BackendError, match="the profile 'nobody' gives no credentials"):
            S3Options("b", profile_name="nobody").make()

    def test_a_profile_without_boto3(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "boto3", None)
        with pytest.raises(locus_store.MissingDependencyError, match=r"boto3.*locus-store\[s3-profiles\]"):
            S3Options("b", profile_name="work").make()


class TestUrls:
    def test_google_and_azure(self, monkeypatch):
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        for url, cls in (("gs://bucket/a/b", GCSStore), ("az://bucket/a/b?max_pool_connections=3", AzureStore)):
            made = open_backend(url)
            assert isinstance(made, S3Backend)
            assert f"{cls.__name__} of 'bucket'" in repr(made)
            assert "'a/b/'" in repr(made)

    def test_keys_are_no_part_of_a_url(self):
        for url in ("s3://AKIA1:hush-hush@bucket/p", "s3://b?aws_secret_access_key=hush-hush&aws_access_key_id=AKIA1"):
            with pytest.raises(ValueError, match=r"no part of it|no option of a URL") as error:
                open_backend(url)
            assert "hush" not in str(error.value)


def test_an_account_that_nobody_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(ValueError, match=r"az://container cannot be opened.*AZURE_STORAGE_ACCOUNT_NAME"):
        open_backend("az://container/prefix")
