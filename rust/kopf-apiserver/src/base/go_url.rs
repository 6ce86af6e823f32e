//! URLs as `net/url` of Go parses them, with its messages.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A parsed URL. Its user and fragment are only checked.
#[derive(Debug, Default)]
pub(crate) struct GoUrl {
    /// In lower case.
    pub(crate) scheme: String,
    /// With the port.
    pub(crate) host: String,
    path: String,
    query: String,
}

/// Checks that a text is an absolute URL or an absolute path, as `url.ParseRequestURI` does.
pub(crate) fn check(text: &str) -> Result<(), String> {
    parse(text, true).map(drop).map_err(|why| format!("parse {text:?}: {why}"))
}

impl GoUrl {
    /// Parses a text that `check` accepts.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        check(text)?;
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let url = parse(rest, false).and_then(|url| unescape(fragment, Part::Other).map(|_| url));
        url.map_err(|why| format!("parse {text:?}: {why}"))
    }

    /// The host without its port, and without the brackets of IPv6 addresses.
    pub(crate) fn hostname(&self) -> &str {
        let host = self.split_port().map_or(self.host.as_str(), |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub(crate) fn port(&self) -> &str {
        self.split_port().map_or("", |(_, port)| port)
    }

    fn split_port(&self) -> Option<(&str, &str)> {
        self.host.rsplit_once(':').filter(|(_, port)| is_port(port))
    }

    /// The path as it is written, if it is valid, else with escapes.
    pub(crate) fn escaped_path(&self) -> String {
        let is_valid = |byte| is_path_byte(byte) || b"!'()*[]%".contains(&byte);
        if self.path.bytes().all(is_valid) {
            return self.path.clone();
        }
        let path = unescape(&self.path, Part::Other).unwrap_or_default();
        let escaped = path.iter().map(|&byte| match byte {
            _ if is_path_byte(byte) => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        });
        escaped.collect()
    }

    /// The names and values of the query, in its order. Those that are not valid are left out.
    pub(crate) fn query(&self) -> impl Iterator<Item = (String, String)> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text| unescape(text, Part::Query).ok().map(text_of);
            Some((decoded(name)?, decoded(value)?))
        })
    }
}

/// `via_request` excludes relative paths, and paths that begin with a host.
fn parse(text: &str, via_request: bool) -> Result<GoUrl, String> {
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && via_request {
        return Err("empty url".to_owned());
    }
    if text == "*" {
        return Ok(GoUrl { path: text.to_owned(), ..GoUrl::default() });
    }
    let (scheme, rest) = split_scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = GoUrl { scheme: scheme.to_ascii_lowercase(), query: query.to_owned(), ..GoUrl::default() };
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            // The rest is opaque, as of `mailto:`.
            return Ok(url);
        }
        if via_request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let has_host = !scheme.is_empty() || (!via_request && !rest.starts_with("///"));
    let path = match rest.strip_prefix("//").filter(|_| has_host) {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            url.host = host_of(&url.scheme, authority)?;
            path
        }
        None => rest,
    };
    unescape(path, Part::Other)?;
    path.clone_into(&mut url.path);
    Ok(url)
}

/// The scheme, or nothing, and the rest.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let Some((scheme, rest)) = text.split_once(':') else { return Ok(("", text)) };
    if scheme.is_empty() {
        return Err("missing protocol scheme".to_owned());
    }
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    Ok(if is_scheme { (scheme, rest) } else { ("", text) })
}

fn host_of(scheme: &str, authority: &str) -> Result<String, String> {
    let Some((user, host)) = authority.rsplit_once('@') else { return parse_host(scheme, authority) };
    let host = parse_host(scheme, host)?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(is_valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescape(user, Part::Other)?;
    Ok(host)
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    match host.rfind('[') {
        Some(0) => return parse_address(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    let port = match scheme {
        "http" | "https" => host.split_once(':'),
        _ => host.rsplit_once(':'),
    };
    match port {
        Some((_, port)) if !is_port(port) => Err(invalid_port(&format!(":{port}"))),
        _ => unescape(host, Part::Host).map(text_of),
    }
}

/// An IPv6 address in brackets, and a port.
fn parse_address(host: &str) -> Result<String, String> {
    let Some((address, port)) = host.strip_prefix('[').and_then(|host| host.rsplit_once(']')) else {
        return Err("missing ']' in host".to_owned());
    };
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return Err(invalid_port(port));
    }
    let (address, zone) = address.split_at(address.find("%25").unwrap_or(address.len()));
    let (address, zone) = (text_of(unescape(address, Part::Host)?), text_of(unescape(zone, Part::Zone)?));
    if zone.is_empty() && address.parse::<Ipv4Addr>().is_ok() {
        return Err("invalid IP-literal".to_owned());
    }
    let is_valid = address.parse::<Ipv6Addr>().is_ok() && zone != "%";
    let address = address + &zone;
    if !is_valid {
        return Err(format!("invalid host: ParseAddr({address:?}): unable to parse IP"));
    }
    Ok(format!("[{address}]{port}"))
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn invalid_port(port: &str) -> String {
    format!("invalid port {port:?} after host")
}

/// A part of a URL with its own rules for escapes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Zone,
    Query,
    Other,
}

/// The bytes of a text with escapes.
fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let is_in_host = matches!(part, Part::Host | Part::Zone);
    let mut rest = text.as_bytes();
    let mut out = Vec::with_capacity(rest.len());
    while let [first, tail @ ..] = rest {
        rest = tail;
        match *first {
            b'%' => {
                let escape = tail.first_chunk::<2>().and_then(|digits| Some((digits, hex(*digits)?)));
                let shown = tail.get(..2).unwrap_or(tail);
                let error = || format!("invalid URL escape \"%{}\"", String::from_utf8_lossy(shown));
                let (digits, byte) = escape.ok_or_else(error)?;
                // In hosts, only bytes that are not ASCII can be escaped; in zones those that need not be, and spaces.
                let is_allowed = digits == b"25"
                    || match part {
                        Part::Host => !byte.is_ascii(),
                        Part::Zone => byte == b' ' || is_host_byte(byte),
                        Part::Query | Part::Other => true,
                    };
                if !is_allowed {
                    return Err(error());
                }
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            b'+' if part == Part::Query => out.push(b' '),
            byte if is_in_host && byte.is_ascii() && !is_host_byte(byte) => {
                return Err(format!("invalid character {:?} in host name", char::from(byte).to_string()));
            }
            byte => out.push(byte),
        }
    }
    Ok(out)
}

fn hex(digits: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let [high, low] = digits;
    Some(digit(high)? * 16 + digit(low)?)
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Whether a byte needs no escape in a path.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_parts() {
        for (text, parts) in [
            ("HTTPS://a.example", ["https", "a.example", "a.example", "", ""]),
            ("https://u:p%40@a.example:80/b", ["https", "a.example:80", "a.example", "80", "/b"]),
            ("https://[::1]:80/", ["https", "[::1]:80", "::1", "80", "/"]),
            ("https://[fe80::1%25en0]/", ["https", "[fe80::1%en0]", "fe80::1%en0", "", "/"]),
            ("https://a:/", ["https", "a:", "a", "", "/"]),
            ("https://a/b c?d#e", ["https", "a", "a", "", "/b%20c"]),
            ("https://a/é%2F[x]", ["https", "a", "a", "", "/%C3%A9/%5Bx%5D"]),
            ("https://a/%2F[x]", ["https", "a", "a", "", "/%2F[x]"]),
            ("https://%C3%A9/", ["https", "é", "é", "", "/"]),
            ("pg://a:1,b:2/", ["pg", "a:1,b:2", "a:1,b", "2", "/"]),
            ("mailto:a@b.c", ["mailto", "", "", "", ""]),
            ("file:///a", ["file", "", "", "", "/a"]),
            ("//a/b", ["", "a", "a", "", "/b"]),
            ("/a:b", ["", "", "", "", "/a:b"]),
            ("*", ["", "", "", "", "*"]),
        ] {
            let url = GoUrl::parse(text).unwrap();
            let (path, scheme, host) = (url.escaped_path(), url.scheme.as_str(), url.host.as_str());
            assert_eq!([scheme, host, url.hostname(), url.port(), path.as_str()], parts, "{text}");
        }
    }

    #[test]
    fn queries_have_names_and_values() {
        let url = GoUrl::parse("/?a=1&b&&c;d=2&a=x+y%26&e=%zz&=f#g=1").unwrap();
        let pairs: Vec<(String, String)> = url.query().collect();
        let expected = [("a", "1"), ("b", ""), ("a", "x y&"), ("", "f")];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn errors_have_the_messages_of_go() {
        for (text, expected) in [
            ("", "empty url"),
            ("a/b", "invalid URI for request"),
            ("1a:b", "invalid URI for request"),
            (":a", "missing protocol scheme"),
            ("https://a\n", "net/url: invalid control character in URL"),
            ("https://a/%zz", "invalid URL escape \"%zz\""),
            ("https://a/%4", "invalid URL escape \"%4\""),
            ("https://a%41/", "invalid URL escape \"%41\""),
            ("https://a b/", "invalid character \" \" in host name"),
            ("https://a:x/", "invalid port \":x\" after host"),
            ("https://a:1:2/", "invalid port \":1:2\" after host"),
            ("https://u^@a/", "net/url: invalid userinfo"),
            ("https://a[::1]/", "invalid IP-literal"),
            ("https://[1.2.3.4]/", "invalid IP-literal"),
            ("https://[::1/", "missing ']' in host"),
            ("https://[::1]x/", "invalid port \"x\" after host"),
            ("https://[x]/", "invalid host: ParseAddr(\"x\"): unable to parse IP"),
        ] {
            assert_eq!(check(text), Err(format!("parse {text:?}: {expected}")), "{text}");
        }
    }
}
