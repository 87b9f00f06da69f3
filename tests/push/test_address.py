"""Where jobs may be pushed to: one spelling, and nothing that only the server can reach."""

import pytest

from onefold import InvalidInput
from onefold.push.address import AddressPolicy, AddressRefused, endpoint

PUBLIC = AddressPolicy()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://Example.COM:443/Hook?b=C", "https://example.com/Hook?b=C"),
        ("http://example.com:8080/a%20b", "http://example.com:8080/a%20b"),
        ("http://example.com?a=1", "http://example.com/?a=1"),
        ("http://8.8.8.8/", "http://8.8.8.8/"),
        ("http://[2606:4700:0:0::1111]:80/", "http://[2606:4700::1111]/"),
        ("http://_my-host.example./", "http://_my-host.example./"),
    ],
)
def test_an_endpoint_has_one_spelling(text: str, url: str) -> None:
    read = endpoint(text)
    PUBLIC.check(read)

    assert read.url == url
    assert endpoint(url) == read


@pytest.mark.parametrize(
    "text",
    [
        None, 7, b"http://example.com/", "", "example.com", "//example.com/", "ftp://example.com/",
        "javascript:alert(1)", "file:///etc/passwd", "unix:///run/docker.sock", "http://",
        "http:///path", "http:example.com", "http://user@example.com/", "http://u:hunter2@example.com/",
        "http://example.com/#fragment", "http://example.com\\@127.0.0.1/", "http://exa mple.com/",
        "http://example.com/a b", "http://example.com/\r\nHost: other", "http://example.com\x00/",
        "http://exämple.com/", "http://\uff45xample.com/", "http://①②⑦.0.0.1/", "http://127。0。0。1/",
        "http://%31%32%37.0.0.1/", "http://example..com/", "http://.example.com/",
        "http://-example.com/", "http://example.com:0/", "http://example.com:65536/",
        "http://example.com:x/", "http://example.com:/", "http://[::1/", "http://::1/",
        "http://[127.0.0.1]/", "http://[fe80::1%eth0]/", "http://[fe80::1%25eth0]/",
        "http://[::g]/", f"http://{'a' * 64}.com/", f"http://{'a.' * 130}com/",
        f"http://example.com/{'a' * 2048}",
    ],
)  # fmt: skip
def test_what_is_no_url_of_an_endpoint_is_refused_and_no_password_repeated(text: object) -> None:
    with pytest.raises(InvalidInput, match="endpoint must") as caught:
        endpoint(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "host",
    [
        "2130706433", "0x7f000001", "017700000001", "0177.0.0.1", "0x7f.0.0.1", "127.1", "127.0.1",
        "0", "1.1.1.1.1", "256.0.0.1", "08.8.8.8", "127.0.0.1.", "0x", "example.0x1", "1.2.3",
    ],
)  # fmt: skip
def test_an_ipv4_address_is_four_decimal_numbers_or_refused(host: str) -> None:
    with pytest.raises(InvalidInput, match="four decimal numbers"):
        endpoint(f"http://{host}/")


NOT_PUBLIC = {
    "loopback": [
        "127.0.0.1", "127.255.255.254", "localhost", "LOCALHOST.", "anything.localhost", "[::1]",
        "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[2002:7f00:1::]",
        "[64:ff9b::127.0.0.1]", "[2606:4700::200:5efe:7f00:1]",
    ],
    "this machine": ["0.0.0.0", "[::]"],
    "private": [
        "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "[::ffff:a00:1]", "[fc00::1]",
        "[fd00:ec2::254]", "[fec0::1]", "[64:ff9b:1::1]", "[2606:4700::5efe:10.0.0.1]",
    ],
    "link-local": ["169.254.169.254", "[fe80::1]", "[2002:a9fe:a9fe::1]", "[64:ff9b::a9fe:a9fe]"],
    "shared by a carrier": ["100.64.0.1"],
    "a service of Azure's hosts": ["168.63.129.16", "[::ffff:168.63.129.16]"],
    "reserved": [
        "192.0.0.170", "255.255.255.255", "[::127.0.0.1]", "[2001:0:53aa:64c:0:7f:80ff:fffe]",
        "[100::1]", "[4000::1]",
    ],
    "for benchmarks": ["198.18.0.1"],
    "for documentation": ["203.0.113.1", "[2001:db8::1]"],
    "multicast": ["224.0.0.1", "[ff02::1]"],
}  # fmt: skip


@pytest.mark.parametrize("why", NOT_PUBLIC)
def test_what_is_not_public_is_refused(why: str) -> None:
    for host in NOT_PUBLIC[why]:
        with pytest.raises(AddressRefused, match=f"leads to an address that is {why}"):
            PUBLIC.check(endpoint(f"http://{host}/"))


@pytest.mark.parametrize("host", ["[64:ff9b::8.8.8.8]", "[2002:808:808::1]", "[::ffff:8.8.8.8]"])
def test_an_address_that_carries_a_public_one_is_public(host: str) -> None:
    PUBLIC.check(endpoint(f"http://{host}/"))


@pytest.mark.parametrize(
    ("allow", "host"),
    [
        ("127.0.0.0/8", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "localhost"),
        ("10.0.0.0/8", "[::ffff:10.0.0.1]"),
        ("::1", "[::1]"),
        ("fd00::/8", "[fd00::5]"),
        ("Hooks.Internal", "hooks.internal"),
        ("localhost", "LOCALHOST."),
    ],
)
def test_what_is_allowed_is_let_through(allow: str, host: str) -> None:
    AddressPolicy([allow]).check(endpoint(f"http://{host}/"))


@pytest.mark.parametrize("host", ["127.0.0.2", "localhost", "[::1]", "other.localhost"])
def test_nothing_else_is_allowed_with_it(host: str) -> None:
    policy = AddressPolicy(["10.0.0.0/8", "hooks.internal"])

    with pytest.raises(AddressRefused):
        policy.check(endpoint(f"http://{host}/"))


@pytest.mark.parametrize("allow", ["", "10.0.0.1/8", "http://example.com", "*", "a..b", None, 7])
def test_what_cannot_be_allowed_is_said(allow: str) -> None:
    with pytest.raises(InvalidInput, match="allow must have networks"):
        AddressPolicy([allow])
