"""Whether GETs from S3 can be addressed and signed without botocore, and how: from options, environment and files.

They can where the credentials are given, or stand in the environment, and where nothing changes addresses but an
endpoint, a region and the style of addressing. Whatever else is set, known here or not, is left to botocore: profiles,
SSO, roles, proxies, certificates, dual stacks, access points.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from resilient_pq.io.s3.s3_gets import BucketRequest, host_of
from resilient_pq.io.surroundings import configuration_files, fsspec_defaults
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.version import __version__

_CREDENTIALS: Final = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
#: Options that have nothing to do with requests, or nothing where they have these values.
_OF_NO_CONCERN: Final = frozenset(
    {
        "asynchronous",
        "default_block_size",
        "default_cache_type",
        "default_fill_cache",
        "fixed_upload_size",
        "listings_expiry_time",
        "loop",
        "max_concurrency",
        "max_paths",
        "skip_instance_cache",
        "use_listings_cache",
    }
)
_UNSET: Final = {"cache_regions": False, "requester_pays": False, "use_ssl": True, "version_aware": False}
_OPTIONS: Final = frozenset({"anon", "client_kwargs", "config_kwargs", "endpoint_url", "key", "secret", "token"})
#: All of these; s3fs takes more.
UNDERSTOOD: Final = frozenset({*_OPTIONS, *_UNSET, *_OF_NO_CONCERN})
_CLIENT_OPTIONS: Final = frozenset({*_CREDENTIALS, "endpoint_url", "region_name"})
_CONFIG_OPTIONS: Final = frozenset({"connect_timeout", "max_pool_connections", "read_timeout", "retries", "s3"})
#: Variables that are understood, or that say nothing where there are credentials.
_VARIABLES: Final = frozenset(
    {
        *(name.upper() for name in _CREDENTIALS),
        "AWS_CONFIG_FILE",
        "AWS_DEFAULT_REGION",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_EXECUTION_ENV",
        "AWS_REGION",
        "AWS_SHARED_CREDENTIALS_FILE",
    }
)
_CERTIFICATES: Final = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")  # Those of secure connections alone
_OTHER_VARIABLES: Final = frozenset({"HOME", "USERPROFILE", "NO_PROXY", "SSL_CERT_FILE", *_CERTIFICATES})
_VARIABLES_OF_LAMBDA: Final = ("AWS_LAMBDA_", "AWS_CONTAINER_")
_REGION: Final = re.compile(r"(?:us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-\d")
_PLAIN_NAME: Final = re.compile(r"[a-z0-9-]+")
_ENDPOINT: Final = re.compile(r"https?://[A-Za-z0-9.-]+(?::\d{1,5})?(?:/[A-Za-z0-9._/-]*)?")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_BUCKET_IN_HOST: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_OF_EXPRESS: Final = "--x-s3"


@dataclass(frozen=True, slots=True)
class PlainAccess:
    """How GETs are addressed and signed."""

    endpoint: str | None  # URL of the endpoint without a slash at its end; None for AWS
    region: str | None  # That requests are signed for; None where none is set
    style: str | None  # Of addressing, as botocore calls it
    # Access key, secret key and token; None where requests are not signed
    credentials: tuple[str, str, str | None] | None = field(repr=False)
    connect_seconds: float  # That connecting may take

    @classmethod
    def of(cls, options: Mapping[str, Any], variables: Mapping[str, str], connect_seconds: float) -> PlainAccess | None:
        """What options of s3fs and variables of the environment come to; None where botocore is to say that."""
        client, config = options.get("client_kwargs") or {}, options.get("config_kwargs") or {}
        if not (_are_understood(options, client, config) and _is_nothing_else_set(variables)):
            return None
        found, endpoint = _credentials(options, client, variables), _endpoint(options, client, variables)
        region = client.get("region_name") or variables.get("AWS_DEFAULT_REGION") or _configured_region(variables)
        if found is None or endpoint is None or not _is_region(region, of_aws=not endpoint):
            return None
        if _is_of_other_certificates(endpoint, variables):
            return None
        style = (config.get("s3") or {}).get("addressing_style")
        seconds = float(config.get("connect_timeout", connect_seconds))
        return cls(endpoint or None, region or None, style, found or None, seconds)

    @property
    def is_secure(self) -> bool:
        """Whether connections are encrypted."""
        return self.endpoint is None or self.endpoint.startswith("https:")

    def bucket_request(self, bucket: str) -> BucketRequest | None:
        """What all GETs from a bucket have in common; None where botocore is to say that."""
        if not _BUCKET.fullmatch(bucket) or bucket.endswith(_OF_EXPRESS):
            return None
        region = self.region or "us-east-1"
        aws = "s3.amazonaws.com" if region == "us-east-1" else f"s3.{region}.amazonaws.com"
        endpoint = self.endpoint or f"https://{aws}"
        if self.style == "virtual" or (self.style != "path" and self.endpoint is None):
            scheme, _, rest = endpoint.partition("://")
            if not _BUCKET_IN_HOST.fullmatch(bucket) or re.fullmatch(r"[\d.]+", str(urlsplit(endpoint).hostname)):
                return None
            base = f"{scheme}://{bucket}.{rest}/"
        else:
            base = f"{endpoint}/{bucket}/"
        headers = {"user-agent": f"resilient-pq/{__version__}"}
        if self.credentials is None:
            return BucketRequest(base, host_of(base), urlsplit(base).path, headers, None, "")
        headers["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD"  # there is none
        signed = frozenset({"x-amz-content-sha256"})
        return BucketRequest(base, host_of(base), urlsplit(base).path, headers, signed, region)


def _is_of_other_certificates(endpoint: str, variables: Mapping[str, str]) -> bool:
    return not endpoint.startswith("http:") and not variables.keys().isdisjoint(_CERTIFICATES)


def _are_understood(options: Mapping[str, Any], client: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether no option says what is not known here."""
    for name, value in options.items():
        if value is not None and (name not in UNDERSTOOD or value is not _UNSET.get(name, value)):
            return False
    return (
        _CLIENT_OPTIONS.issuperset(client)
        and _CONFIG_OPTIONS.issuperset(config)
        and {"addressing_style"}.issuperset(config.get("s3") or ())
        and (config.get("s3") or {}).get("addressing_style") in (None, "auto", "path", "virtual")
    )


def _is_region(name: str | None, *, of_aws: bool) -> bool:
    """Whether a region is none, or one whose hosts are called as most are, or, of others than AWS, a plain name."""
    if name is None:
        return False
    return not name or (_REGION if of_aws else _PLAIN_NAME).fullmatch(name) is not None


def _is_nothing_else_set(variables: Mapping[str, str]) -> bool:
    """Whether neither the environment nor fsspec's configuration says what is not known here."""
    for name in variables:
        upper = name.upper()
        of_aws = upper in _VARIABLES or upper.startswith(_VARIABLES_OF_LAMBDA)
        if not of_aws and upper not in _OTHER_VARIABLES:
            return False
    if fsspec_defaults("s3") or _names_in(Path("~/.config/fsspec").expanduser()):
        return False
    if sys.platform not in ("darwin", "win32"):  # elsewhere the environment alone names proxies
        return not any(name.lower().endswith("_proxy") and value for name, value in os.environ.items())
    from urllib.request import getproxies  # noqa: PLC0415 (it brings an HTTP client)

    return not getproxies()


def _credentials(
    options: Mapping[str, Any], client: Mapping[str, Any], variables: Mapping[str, str]
) -> tuple[str, str, str | None] | tuple[()] | None:
    """Access key, secret key and token; nothing where requests are not signed, None where botocore is to look."""
    of_options = options.get("key"), options.get("secret"), options.get("token")
    of_client = tuple(client.get(name) for name in _CREDENTIALS)
    if options.get("anon"):
        return () if of_options == of_client == (None, None, None) and options["anon"] is True else None
    given = [each for each in (of_options, of_client) if each != (None, None, None)]
    if not given:
        given = [tuple(variables.get(name.upper()) for name in _CREDENTIALS)]
    if len(given) > 1:
        return None
    key, secret, token = given[0]
    if not key or not secret or token == "":
        return None
    return key, secret, token


def _endpoint(options: Mapping[str, Any], client: Mapping[str, Any], variables: Mapping[str, str]) -> str | None:
    """The URL of the endpoint; nothing for AWS, and None where botocore is to look at it."""
    given = options.get("endpoint_url"), client.get("endpoint_url")
    if all(given):
        return None
    url = given[0] or given[1] or variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL")
    if not url:
        return ""
    if not isinstance(url, str) or not _ENDPOINT.fullmatch(url) or "amazonaws" in url.lower() or "//" in url[8:]:
        return None
    port = url.split("/")[2].partition(":")[2]
    return None if port and int(port) > 65535 else url.rstrip("/")


def _configured_region(variables: Mapping[str, str]) -> str | None:
    """The region of the configuration files; nothing where none is named, None where they say more than that."""
    config_path, credentials_path = configuration_files(variables)
    config, credentials = _section(config_path), _section(credentials_path)
    if config is None or credentials is None or not {"region", "output"}.issuperset(config):
        return None
    return config.get("region", "") if {*_CREDENTIALS}.issuperset(credentials) else None


def _section(path: str) -> Mapping[str, str] | None:
    """What a configuration file says of the profile that is taken where none is named; None where that is not clear."""
    if not os.path.lexists(path):
        return {}
    import configparser  # noqa: PLC0415 (where there is a file)

    parser = configparser.RawConfigParser(default_section="")
    try:
        parser.read_string(Path(path).read_text("utf-8"))
    except (OSError, ValueError, configparser.Error):
        return None
    if parser.has_section("profile default"):
        return None
    return dict(parser["default"]) if parser.has_section("default") else {}


def _names_in(folder: Path) -> Collection[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return ()
