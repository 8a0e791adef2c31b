//! Where Lazaret may send to. A channel's URL is typed by a person and called by the server, so it must not lead to what only the server reaches:
//! other machines of its network, itself, the metadata service of its cloud (server-side request forgery). An operator may allow such places by name or
//! address in the configuration.
//!
//! A URL is judged in two steps: [`Target::parse`] before anything is asked, [`AllowList::admit`] once its name is resolved. Whoever connects, connects to the very
//! addresses that were admitted.

// Addresses alone: this part of the standard library has no sockets.
use core::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

/// What is refused, and what it is called. After IANA's registries of special-purpose addresses (RFC 6890 and what followed), and the addresses of
/// cloud metadata services that lie outside of them.
const REFUSED: &[(&str, &str)] = &[
    ("169.254.169.254/32", "a cloud's metadata service"),
    ("168.63.129.16/32", "a cloud's metadata service"),
    ("100.100.100.200/32", "a cloud's metadata service"),
    ("fd00:ec2::254/128", "a cloud's metadata service"),
    ("0.0.0.0/8", "an unspecified address"),
    ("10.0.0.0/8", "a private address"),
    ("100.64.0.0/10", "an address shared by a provider's customers"),
    ("127.0.0.0/8", "a loopback address"),
    ("169.254.0.0/16", "a link-local address"),
    ("172.16.0.0/12", "a private address"),
    ("192.0.0.0/24", "a reserved address"),
    ("192.0.2.0/24", "an address for documentation"),
    ("192.88.99.0/24", "a relay of IPv6 in IPv4"),
    ("192.168.0.0/16", "a private address"),
    ("198.18.0.0/15", "an address for benchmarks"),
    ("198.51.100.0/24", "an address for documentation"),
    ("203.0.113.0/24", "an address for documentation"),
    ("224.0.0.0/4", "a multicast address"),
    ("240.0.0.0/4", "a reserved address"),
    ("::/128", "an unspecified address"),
    ("::1/128", "a loopback address"),
    ("::ffff:0:0/96", "an IPv4 address mapped into IPv6"),
    ("64:ff9b::/96", "an IPv4 address behind a translator (NAT64)"),
    ("64:ff9b:1::/48", "an IPv4 address behind a translator (NAT64)"),
    ("2001::/23", "a reserved address"),
    ("2001:db8::/32", "an address for documentation"),
    ("2002::/16", "an IPv4 address inside an IPv6 one (6to4)"),
    ("3fff::/20", "an address for documentation"),
    ("fc00::/7", "a unique-local address"),
    ("fe80::/10", "a link-local address"),
    ("fec0::/10", "a site-local address"),
    ("ff00::/8", "a multicast address"),
];

/// All that IANA gives out for the public IPv6 internet; the rest is reserved.
const PUBLIC_V6: &str = "2000::/3";

fn net(text: &str) -> IpNet {
    text.parse().expect("a network of the tables above, which a test parses")
}

/// Why nothing is sent to this address unless it is allowed; None: it is a public one.
pub fn refusal(address: IpAddr) -> Option<&'static str> {
    let listed = REFUSED.iter().find(|(range, _)| net(range).contains(&address)).map(|(_, what)| *what);
    listed.or_else(|| (address.is_ipv6() && !net(PUBLIC_V6).contains(&address)).then_some("a reserved address"))
}

/// Where Lazaret may not send to, in a sentence that says what to do. It names host and address, nothing else of the URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Places that may be sent to although they are not public.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList(Vec<Allowed>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Allowed {
    place: Place,
    /// None: any.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Net(IpNet),
    /// In lower case, without a dot at the end. Whatever it resolves to.
    Name(String),
}

impl AllowList {
    /// `127.0.0.1`, `127.0.0.1:9000`, `10.1.2.0/24`, `[::1]:9000`, `fd00::/8`, `hooks.internal`, `hooks.internal:8080`.
    ///
    /// # Errors
    /// The first entry that is none of these.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<AllowList, &'a str> {
        entries.into_iter().map(|entry| allowed(entry).ok_or(entry)).collect::<Result<_, _>>().map(AllowList)
    }

    fn names(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.');
        let is_meant = |allowed: &Allowed| match &allowed.place {
            Place::Name(name) => name == host,
            Place::Net(_) => false,
        };
        self.0.iter().any(|allowed| allowed.port.is_none_or(|wanted| wanted == port) && is_meant(allowed))
    }

    fn covers(&self, address: IpAddr, port: u16) -> bool {
        let is_meant = |allowed: &Allowed| match &allowed.place {
            Place::Net(net) => net.contains(&address),
            Place::Name(_) => false,
        };
        self.0.iter().any(|allowed| allowed.port.is_none_or(|wanted| wanted == port) && is_meant(allowed))
    }

    /// Whether all of the addresses that the target's name resolves to may be connected to. One that may not refuses the whole: which of them
    /// is taken is chance.
    ///
    /// # Errors
    /// There is none, one is not public, or the URL is `http`; unless the place is allowed.
    pub fn admit(&self, target: &Target, addresses: &[IpAddr]) -> Result<(), Refused> {
        let (host, port) = (&target.host, target.port);
        if addresses.is_empty() {
            return Err(Refused(format!("{host} has no address. Check how the host is written")));
        }
        if self.names(host, port) {
            return Ok(());
        }
        for address in addresses.iter().filter(|address| !self.covers(**address, port)) {
            if let Some(what) = refusal(*address) {
                let shown = if target.is_address { host.clone() } else { format!("{host} resolves to {address}, which") };
                return Err(Refused(format!(
                    "{shown} is {what}: Lazaret sends to public addresses alone. If this one is meant, list it in allow_private of [channels]"
                )));
            }
            if !target.is_https {
                return Err(Refused(format!(
                    "the URL of {host} begins with http: what is sent could be read on its way. Use https, or list the place in allow_private of [channels]"
                )));
            }
        }
        Ok(())
    }
}

fn allowed(entry: &str) -> Option<Allowed> {
    let place = |text: &str| {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let net = bare.parse::<IpNet>().ok().or_else(|| bare.parse::<IpAddr>().ok().map(IpNet::from));
        net.map(Place::Net).or_else(|| name(text).map(Place::Name))
    };
    if let Some(place) = place(entry) {
        return Some(Allowed { place, port: None });
    }
    let (host, port) = entry.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    // Without brackets an IPv6 address and its port are one another's.
    if host.contains(':') && !host.starts_with('[') {
        return None;
    }
    Some(Allowed { place: place(host)?, port: Some(port) })
}

/// A host's name as a URL has it.
fn name(text: &str) -> Option<String> {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'));
    match Host::parse(text).ok().filter(|_| plain)? {
        Host::Domain(name) => Some(name.trim_end_matches('.').to_owned()).filter(|name| !name.is_empty()),
        Host::Ipv4(_) | Host::Ipv6(_) => None,
    }
}

/// A URL that something may be sent to, as far as can be told without asking for its address.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The whole of it: a secret.
    pub url: Url,
    /// As it is resolved and shown; an IPv6 address in brackets.
    pub host: String,
    pub port: u16,
    is_https: bool,
    is_address: bool,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({}:{})", self.host, self.port)
    }
}

/// Longer URLs are no webhooks.
const URL_LIMIT: usize = 2_048;

impl Target {
    /// # Errors
    /// It is no absolute http or https URL. The sentence does not repeat it.
    pub fn parse(text: &str) -> Result<Target, Refused> {
        let refused = |sentence: &str| Err(Refused(sentence.to_owned()));
        if text.len() > URL_LIMIT {
            return refused("the URL is longer than 2,048 characters. Copy it again from the service that gave it");
        }
        let Ok(url) = Url::parse(text) else {
            return refused("that is not a URL. Copy the whole of it, from https:// on");
        };
        let is_https = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return refused("the URL begins with neither https:// nor http://. Copy the whole of it"),
        };
        let is_address = matches!(url.host(), Some(Host::Ipv4(_) | Host::Ipv6(_)));
        match (url.host_str().map(str::to_owned), url.port_or_known_default()) {
            (Some(host), Some(port)) if !host.is_empty() && port != 0 => Ok(Target { url, host, port, is_https, is_address }),
            _ => refused("the URL names no host. Copy the whole of it"),
        }
    }

    /// The address, where the host is one: there is nothing to resolve.
    pub fn address(&self) -> Option<IpAddr> {
        match self.url.host()? {
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
            Host::Domain(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    #[test]
    fn what_is_not_public_is_refused_by_its_name() {
        let table = [
            ("127.0.0.1", "a loopback address"),
            ("127.255.0.9", "a loopback address"),
            ("10.0.0.1", "a private address"),
            ("172.16.0.1", "a private address"),
            ("172.31.255.255", "a private address"),
            ("192.168.1.1", "a private address"),
            ("169.254.169.254", "a cloud's metadata service"),
            ("169.254.1.1", "a link-local address"),
            ("168.63.129.16", "a cloud's metadata service"),
            ("100.64.0.1", "an address shared by a provider's customers"),
            ("100.100.100.200", "a cloud's metadata service"),
            ("0.0.0.0", "an unspecified address"),
            ("224.0.0.1", "a multicast address"),
            ("239.255.255.250", "a multicast address"),
            ("255.255.255.255", "a reserved address"),
            ("198.18.0.1", "an address for benchmarks"),
            ("203.0.113.7", "an address for documentation"),
            ("::1", "a loopback address"),
            ("::", "an unspecified address"),
            ("::ffff:169.254.169.254", "an IPv4 address mapped into IPv6"),
            ("::ffff:8.8.8.8", "an IPv4 address mapped into IPv6"),
            ("::127.0.0.1", "a reserved address"),
            ("64:ff9b::169.254.169.254", "an IPv4 address behind a translator (NAT64)"),
            ("64:ff9b:1::1", "an IPv4 address behind a translator (NAT64)"),
            ("fc00::1", "a unique-local address"),
            ("fd12:3456::1", "a unique-local address"),
            ("fd00:ec2::254", "a cloud's metadata service"),
            ("fe80::1", "a link-local address"),
            ("fec0::1", "a site-local address"),
            ("ff02::1", "a multicast address"),
            ("2001::1", "a reserved address"),
            ("2001:db8::1", "an address for documentation"),
            ("2002:7f00:1::", "an IPv4 address inside an IPv6 one (6to4)"),
            ("100::1", "a reserved address"),
            ("4000::1", "a reserved address"),
        ];
        for (text, what) in table {
            assert_eq!(refusal(address(text)), Some(what), "{text}");
        }
        for public in ["8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1", "100.63.255.255", "2606:4700::1111", "2a00:1450::1"] {
            assert_eq!(refusal(address(public)), None, "{public}");
        }
    }

    fn judged(allow: &[&str], url: &str, addresses: &[&str]) -> Result<(), Refused> {
        let allow = AllowList::parse(allow.iter().copied()).expect("entries");
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| address(text)).collect();
        allow.admit(&Target::parse(url)?, &addresses)
    }

    #[test]
    fn only_what_is_listed_is_allowed() {
        let table: [(&[&str], &str, &[&str], bool); 16] = [
            (&[], "https://hooks.example/x", &["93.184.216.34"], true),
            (&[], "http://hooks.example/x", &["93.184.216.34"], false),
            (&[], "https://hooks.example/x", &["93.184.216.34", "10.0.0.1"], false),
            (&[], "https://hooks.example/x", &[], false),
            (&["127.0.0.1:9000"], "http://127.0.0.1:9000/", &["127.0.0.1"], true),
            (&["127.0.0.1:9000"], "http://127.0.0.1:9001/", &["127.0.0.1"], false),
            (&["127.0.0.1"], "http://127.0.0.1:9001/", &["127.0.0.1"], true),
            (&["10.1.2.0/24"], "https://hooks.internal/", &["10.1.2.9"], true),
            (&["10.1.2.0/24"], "http://hooks.internal/", &["10.1.2.9"], true),
            (&["10.1.2.0/24"], "https://hooks.internal/", &["10.1.3.9"], false),
            (&["10.1.2.0/24"], "https://hooks.internal/", &["10.1.2.9", "10.1.3.9"], false),
            (&["hooks.internal"], "http://HOOKS.internal:8080/", &["10.1.3.9"], true),
            (&["hooks.internal:443"], "http://hooks.internal:8080/", &["10.1.3.9"], false),
            (&["hooks.internal"], "https://evil.hooks.internal/", &["10.1.3.9"], false),
            (&["[::1]:9000"], "http://[::1]:9000/", &["::1"], true),
            // An address in another dress is another address.
            (&["127.0.0.1"], "http://[::ffff:127.0.0.1]/", &["::ffff:127.0.0.1"], false),
        ];
        for (allow, url, addresses, passes) in table {
            assert_eq!(judged(allow, url, addresses).is_ok(), passes, "{allow:?} {url} {addresses:?}");
        }
        let said = judged(&[], "https://hooks.example/secret", &["10.0.0.1"]).unwrap_err().to_string();
        assert!(said.starts_with("hooks.example resolves to 10.0.0.1, which is a private address") && !said.contains("secret"), "{said}");
    }

    #[test]
    fn addresses_in_other_spellings_are_read_as_what_they_are() {
        for url in ["http://2130706433/", "http://0x7f.1/", "http://017700000001/", "http://127.1/"] {
            let target = Target::parse(url).expect(url);
            assert_eq!(target.address(), Some(address("127.0.0.1")), "{url}");
        }
        for url in ["ftp://h/", "file:///etc/passwd", "hooks.example/x", "https://", "", "javascript:alert(1)"] {
            assert!(Target::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn entries_that_mean_nothing_are_found() {
        for bad in ["", "10.0.0.0/33", "hooks.internal:0", "hooks.internal:x", "https://hooks.internal", "a b", "hooks.internal/x", "*"] {
            assert_eq!(AllowList::parse([bad]), Err(bad));
        }
        for good in ["127.0.0.1", "[::1]", "fd00::/8", "hooks.internal.", "Hooks.Internal:8443", "10.0.0.0/8:443"] {
            assert!(AllowList::parse([good]).is_ok(), "{good}");
        }
    }

    proptest! {
        /// However an IPv4 address is dressed as IPv6, nothing reaches it unlisted.
        #[test]
        fn no_ipv4_address_hides_in_an_ipv6_one(bits in any::<u32>()) {
            let [a, b, c, d] = bits.to_be_bytes();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            for dressed in [
                format!("::{high:x}:{low:x}"), format!("::ffff:{high:x}:{low:x}"), format!("::ffff:0:{high:x}:{low:x}"),
                format!("64:ff9b::{high:x}:{low:x}"), format!("2002:{high:x}:{low:x}::1"),
            ] {
                prop_assert!(refusal(address(&dressed)).is_some(), "{}", dressed);
            }
        }

        #[test]
        fn no_url_makes_it_panic(text in ".{0,200}") {
            let _ = Target::parse(&text);
            let _ = AllowList::parse([text.as_str()]);
        }
    }
}
