"""Configuration of the Redis that keeps the counts: where it is and how to be let in.

No secret shows in a representation, an error or the printed configuration: a password in the
address is taken out of it as soon as it is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from policy_service.redis_pool.address import RedisAddress, parse_address, split_credentials

_File = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


class RedisConfig(BaseModel):
    """The Redis that keeps the counts."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )

    url: str | None = None
    """``redis://``, ``rediss://`` (TLS), ``unix://``, ``redis+sentinel://HOSTS/SERVICE`` or
    ``redis+cluster://HOSTS`` address; none: a private server, kept in ``state_dir``."""
    username: str | None = None
    """User of Redis's access control list; none: the default user."""
    password: SecretStr | None = None
    """Password; better kept in ``password_file`` or in ``BANDITSERVE_REDIS_PASSWORD``."""
    password_file: _File | None = None
    """File with the password, read anew for every connection, so that it may be changed."""
    sentinel_username: str | None = None
    """User of the sentinels themselves."""
    sentinel_password: SecretStr | None = None
    """Password of the sentinels themselves."""
    sentinel_password_file: _File | None = None
    """File with the password of the sentinels themselves."""
    tls_ca_file: _File | None = None
    """Authorities (PEM) that sign the servers' certificates; none: those of the system."""
    tls_cert_file: _File | None = None
    """Our own certificate (PEM), where servers want one."""
    tls_key_file: _File | None = None
    """Key (PEM) of our own certificate."""
    tls_verify: bool = True
    """Check certificate and host name of the servers."""
    connect_timeout_s: float = Field(default=5.0, gt=0)
    """How long ``serve`` waits for the first answer of a Redis that it did not start."""

    @model_validator(mode="before")
    @classmethod
    def _take_credentials_out(cls, values: Any) -> Any:
        """Move user and password from the address to their own keys."""
        if not isinstance(values, dict) or not isinstance(values.get("url"), str):
            return values
        url, username, password = split_credentials(values["url"])
        found = {"username": username, "password": password}
        for key, value in found.items():
            if value is not None and values.get(key) is not None:
                raise ValueError(f"url: {key} stands in the address and as a key; one is enough")
        return {**values, "url": url, **{k: v for k, v in found.items() if v is not None}}

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        """Refuse what is no address."""
        if url is not None:
            try:
                parse_address(url)
            except ValueError as error:
                raise ValueError(f"not a Redis URL: {error}") from None
        return url

    @model_validator(mode="after")
    def _check_secrets(self) -> Self:
        """Refuse a password given twice, or as it is printed, and half a certificate."""
        for name in ("password", "sentinel_password"):
            secret: SecretStr | None = getattr(self, name)
            if secret is not None and str(secret) == secret.get_secret_value():
                raise ValueError(f"{name}: it is hidden where it is printed; give the real one")
        if self.password is not None and self.password_file is not None:
            raise ValueError("password and password_file: one is enough")
        if self.sentinel_password is not None and self.sentinel_password_file is not None:
            raise ValueError("sentinel_password and sentinel_password_file: one is enough")
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise ValueError("tls_key_file: expected tls_cert_file beside it")
        return self

    @property
    def address(self) -> RedisAddress:
        """The address, read.

        Raises:
            ValueError: If none is given.
        """
        if self.url is None:
            raise ValueError("no address of a Redis is given")
        return parse_address(self.url)
