"""What a tenants file may hold, table by table, and how its mistakes are told. Knows no file and no other rule.

Whether the tables agree with one another is tenants_file.py's question.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from .settings_file import near

MOST_WEIGHT = 1000
MOST_AMOUNT = 10**15
UNLIMITED = "unlimited"
WorkClass = Literal["interactive", "batch"]

TENANT_NAME = re.compile(r"\w[\w.@:/+-]{0,63}")  # also a label of /metrics and a header's value
NAME_RULE = "must be 1 to 64 letters, digits and . _ @ : / + -, and begin with a letter or a digit"
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_KEY_HEADERS = ("authorization", "x-api-key", "api-key")


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("wrong", "{text}", {"text": text})


def _name(text: str) -> str:
    if not TENANT_NAME.fullmatch(text):
        raise _wrong(NAME_RULE)
    return text


def _digest(text: str) -> str:
    """Never repeats the value: it may be a key, and this goes into a log."""
    if not _DIGEST.fullmatch(text):
        raise _wrong(
            "must be a key's SHA-256 in 64 hexadecimal digits, as `fairstep tenants new-key` prints; "
            "the key itself does not belong here"
        )
    return text.lower()


def _network(text: object) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text if isinstance(text, str) else "")
    except ValueError:
        raise _wrong(f"must be a network such as 10.0.0.0/8 or ::1/128, not {text!r}") from None


def _header(text: str) -> str:
    if not _HEADER.fullmatch(text) or text.lower() in _KEY_HEADERS:
        raise _wrong("must be a header's name such as X-Tenant, and none that holds a key")
    return text.lower()


def _key(value: object) -> object:
    return {"sha256": value} if isinstance(value, str) else value


def _amount(value: object) -> object:
    return None if value == UNLIMITED else value


Text = Annotated[str, Field(min_length=1, max_length=200)]
Name = Annotated[str, AfterValidator(_name)]
Network = Annotated[IPv4Network | IPv6Network, BeforeValidator(_network)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Entry(BaseModel):
    """A table of the file; a key that it doesn't know is a mistake."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, values: Any) -> Any:
        known = [each.alias or name for name, each in cls.model_fields.items()]
        for key in values if isinstance(values, dict) else ():
            if key not in known:
                raise _wrong(f"has no key {key[:80]!r}: {near(key, known)}")
        return values


class LimitEntry(Entry):
    """amount None: unlimited. endpoint, model: patterns with * and ?."""

    what: Literal["requests", "input_tokens", "output_tokens", "tokens"]
    per: Literal["minute", "month"]
    amount: Annotated[Annotated[int, Field(ge=1, le=MOST_AMOUNT)] | None, BeforeValidator(_amount)]
    endpoint: Text = "*"
    model: Text = "*"


class TierEntry(Entry):
    name: Name
    ttft_ms: Milliseconds | None = None
    itl_ms: Milliseconds | None = None
    e2e_ms: Milliseconds | None = None
    min_share: Annotated[float, Field(ge=0, lt=1)] = 0.0


class TargetEntry(Entry):
    """endpoint, model: patterns with * and ?. tier None: all."""

    ttft_ms: Milliseconds | None = None
    e2e_ms: Milliseconds | None = None
    tier: Name | None = None
    endpoint: Text = "*"
    model: Text = "*"


class TermsEntry(Entry):
    """Left out (None): what [defaults] say."""

    tier: Name | None = None
    batch_tier: Name | None = None
    weight: Annotated[int, Field(ge=1, le=MOST_WEIGHT)] | None = None
    max_concurrent: Count | None = None
    max_running: Count | None = None
    queue_share: Annotated[float, Field(gt=0, le=1)] | None = None


class KeyEntry(Entry):
    sha256: Annotated[str, AfterValidator(_digest)]
    work: WorkClass = Field("interactive", alias="class")


class AnonymousEntry(TermsEntry):
    limits: list[LimitEntry] = []
    prefix_group: Name | None = None


class TenantEntry(AnonymousEntry):
    name: Name
    keys: list[Annotated[KeyEntry, BeforeValidator(_key)]] = []


class ProxyEntry(Entry):
    networks: Annotated[list[Network], Field(min_length=1)]
    header: Annotated[str, AfterValidator(_header)]


class TenantsEntry(Entry):
    """The whole file."""

    tiers: list[TierEntry] = []
    defaults: TermsEntry = TermsEntry()
    limits: list[LimitEntry] = []
    targets: list[TargetEntry] = []
    tenants: list[TenantEntry] = []
    anonymous: AnonymousEntry | None = None
    trusted_proxy: ProxyEntry | None = None


def checked(values: Mapping[str, Any]) -> TenantsEntry:
    """A file's values in their form. Raises ValueError that names the place of the first mistake."""
    try:
        return TenantsEntry.model_validate(values)
    except ValidationError as error:
        raise ValueError(_told(error.errors(include_url=False), values)) from None


def _told(mistakes: list[ErrorDetails], values: Mapping[str, Any]) -> str:
    first, rest = mistakes[0], len(mistakes) - 1
    place = _place(first["loc"])
    owner = _owner(first["loc"], values)
    more = f"; and {rest} more mistake{'s' if rest > 1 else ''}" if rest else ""
    return " ".join(part for part in (place, _words(first), owner) if part) + more


def _place(loc: tuple[int | str, ...]) -> str:
    """("tenants", 2, "weight") as tenants[2].weight."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return "".join(parts).removeprefix(".")


def _owner(loc: tuple[int | str, ...], values: Mapping[str, Any]) -> str:
    """Counting tables is a machine's work, so the tenant is named too."""
    match loc:
        case (("tenants" | "tiers") as table, int(index), *inside) if inside != ["name"]:
            entry = values[table][index]
            name = entry.get("name") if isinstance(entry, dict) else None
            return f"({table[:-1]} {name})" if isinstance(name, str) and TENANT_NAME.fullmatch(name) else ""
    return ""


def _words(mistake: ErrorDetails) -> str:
    kind, loc, given = mistake["type"], mistake["loc"], mistake["input"]
    if kind == "wrong":
        return mistake["msg"]
    if kind == "missing":
        return "is missing"
    if kind == "list_type" and loc in (("tenants",), ("tiers",), ("limits",), ("targets",)):
        return f"must be tables of their own: write [[{loc[0]}]]"
    if kind == "list_type":
        return "must be a list: [...]"
    if kind in ("model_type", "dict_type"):
        return "must be a table: {...}"
    said = re.sub("^(Input|String|List) should", "must", mistake["msg"]).removesuffix(" after validation, not 0")
    return said if isinstance(given, dict | list) or "sha256" in loc else f"{said}, not {_as_toml(given)}"


def _as_toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value[:80]) if isinstance(value, str) else str(value)
