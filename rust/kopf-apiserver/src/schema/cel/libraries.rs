//! Functions of Kubernetes in CEL expressions. Strings stand for the values of `ip`, `cidr` and `url`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cel::extractors::This;
use cel::{Context, ExecutionError};
use regex::Regex;

use super::super::formats;
use super::cost::MATCHES;
use super::texts;
use crate::base::go_regex;
use crate::base::go_url::{self, GoUrl};

type Cel = cel::Value;
type Text = Arc<String>;

/// Adds the functions of Kubernetes. Functions of the library take precedence.
pub(super) fn add_functions(context: &mut Context) {
    let _ = context.add_function(
        MATCHES,
        |This(text): This<Text>, pattern: Text| -> Result<bool, ExecutionError> {
            Ok(regex("matches", &pattern)?.is_match(&text))
        },
    );
    let _ = context.add_function(
        "find",
        |This(text): This<Text>, pattern: Text| -> Result<Cel, ExecutionError> {
            let found = regex("find", &pattern)?.find(&text).map(|found| found.as_str().to_owned());
            Ok(found.unwrap_or_default().into())
        },
    );
    texts::add(context, "findAll", |values| {
        let (text, pattern, limit) = match values {
            [Cel::String(text), Cel::String(pattern)] => (text, pattern, -1),
            [Cel::String(text), Cel::String(pattern), Cel::Int(limit)] => (text, pattern, *limit),
            _ => return Err(ExecutionError::function_error("findAll", "no such overload")),
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let regex = regex("findAll", pattern)?;
        let found: Vec<String> =
            regex.find_iter(text).take(limit).map(|found| found.as_str().to_owned()).collect();
        Ok(found.into())
    });
    add_addresses(context);
    add_urls(context);
    super::values::add_functions(context);
    super::named_formats::add_functions(context);
    super::lists::add_functions(context);
    texts::add_functions(context);
    super::comprehensions::add_functions(context);
}

/// Compiled patterns by their texts. Cleared when it is full.
static PATTERNS: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
const PATTERN_LIMIT: usize = 1_000;

fn regex(function: &str, pattern: &str) -> Result<Regex, ExecutionError> {
    let lock = || PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(pattern) {
        return Ok(known.clone());
    }
    let compiled =
        go_regex::compile(pattern).map_err(|error| ExecutionError::function_error(function, error))?;
    let mut patterns = lock();
    if patterns.len() >= PATTERN_LIMIT {
        patterns.clear();
    }
    patterns.insert(pattern.to_owned(), compiled.clone());
    Ok(compiled)
}

/// Functions for IP addresses and CIDRs.
fn add_addresses(context: &mut Context) {
    let _ = context.add_function("isIP", |text: Text| -> bool { parse_ip(&text).is_ok() });
    let _ = context.add_function("isCIDR", |text: Text| -> bool { formats::matches("cidr", &text) });
    // Also the method of a CIDR.
    let _ = context.add_function("ip", |This(text): This<Text>| -> Result<Cel, ExecutionError> {
        let address = text.split('/').next().unwrap_or_default();
        let error = |why: String| ExecutionError::function_error("ip", why);
        parse_ip(address).map(|ip| ip.to_string().into()).map_err(error)
    });
    let _ = context.add_function("ip.isCanonical", |text: Text| -> Result<bool, ExecutionError> {
        let ip = parse_ip(&text).map_err(|why| ExecutionError::function_error("ip.isCanonical", why))?;
        Ok(ip.to_string() == **text)
    });
    let _ = context.add_function("cidr", |text: Text| -> Result<Cel, ExecutionError> {
        let error = |why: String| {
            let prefix = "network address parse error during conversion from string: ";
            ExecutionError::function_error(
                "cidr",
                format!("{prefix}{prefix}netip.ParsePrefix({text:?}): {why}"),
            )
        };
        cidr_error(&text).map_or(Ok(Cel::String(Arc::clone(&text))), |why| Err(error(why)))
    });
    let _ = context.add_function("family", |This(text): This<Text>| -> i64 {
        if text.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) { 6 } else { 4 }
    });
    let _ = context.add_function("isLoopback", |This(text): This<Text>| -> bool {
        text.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    });
    let _ = context.add_function("isGlobalUnicast", |This(text): This<Text>| -> bool {
        text.parse::<IpAddr>().is_ok_and(|ip| {
            let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
            !(ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_multicast()
                || is_broadcast
                || is_link_local(ip))
        })
    });
    let _ = context.add_function("isLinkLocalUnicast", |This(text): This<Text>| -> bool {
        text.parse::<IpAddr>().is_ok_and(is_link_local)
    });
    let _ = context.add_function("isLinkLocalMulticast", |This(text): This<Text>| -> bool {
        text.parse::<IpAddr>().is_ok_and(|ip| match ip {
            IpAddr::V4(ip) => ip.octets().starts_with(&[224, 0, 0]),
            IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
        })
    });
    let _ = context.add_function("isUnspecified", |This(text): This<Text>| -> bool {
        text.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
    });
    let _ = context.add_function("prefixLength", |This(text): This<Text>| -> i64 {
        parse_cidr(&text).map_or(0, |(_, length)| length.into())
    });
    let _ = context.add_function("masked", |This(text): This<Text>| -> Cel {
        parse_cidr(&text).map_or(Cel::Null, |(ip, length)| format!("{}/{length}", masked(ip, length)).into())
    });
    let _ = context.add_function("containsIP", |This(text): This<Text>, other: Text| -> bool {
        let other = other.parse::<IpAddr>();
        parse_cidr(&text).zip(other.ok()).is_some_and(|((ip, length), other)| {
            ip.is_ipv4() == other.is_ipv4() && masked(ip, length) == masked(other, length)
        })
    });
    let _ = context.add_function("containsCIDR", |This(text): This<Text>, other: Text| -> bool {
        parse_cidr(&text).zip(parse_cidr(&other)).is_some_and(|((ip, length), (other, other_length))| {
            let same = ip.is_ipv4() == other.is_ipv4() && masked(ip, length) == masked(other, length);
            same && length <= other_length
        })
    });
}

/// The error is the message of kube-apiserver.
fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let ip = text.parse::<IpAddr>().map_err(|_| {
        format!("IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP")
    })?;
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        _ => Ok(ip),
    }
}

/// The message of Go about a CIDR that is not valid.
fn cidr_error(text: &str) -> Option<String> {
    let Some((ip, length)) = text.rsplit_once('/') else { return Some("no '/'".to_owned()) };
    if ip.parse::<IpAddr>().is_err() {
        return Some(format!("ParseAddr({ip:?}): unable to parse IP"));
    }
    if length.parse::<u16>().is_err() {
        return Some(format!("bad bits after slash: {length:?}"));
    }
    parse_cidr(text).is_none().then(|| "prefix length out of range".to_owned())
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, length) = text.split_once('/')?;
    let (ip, length) = (ip.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?);
    (length <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, length))
}

/// The first address of a network.
fn masked(ip: IpAddr, length: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(ip) & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(ip) & mask).into())
        }
    }
}

/// Functions for URLs.
fn add_urls(context: &mut Context) {
    let _ = context.add_function("isURL", |text: Text| -> bool { go_url::check(&text).is_ok() });
    let _ = context.add_function("url", |text: Text| -> Result<Cel, ExecutionError> {
        parse_url(&text).map(|_| Cel::String(text))
    });
    let _ = context.add_function("getQuery", |This(text): This<Text>| -> Result<Cel, ExecutionError> {
        let mut values: HashMap<String, Vec<String>> = HashMap::new();
        for (name, value) in parse_url(&text)?.query() {
            values.entry(name).or_default().push(value);
        }
        Ok(values.into())
    });
    for (name, part) in URL_PARTS {
        let _ = context.add_function(name, move |This(text): This<Text>| -> Result<Cel, ExecutionError> {
            parse_url(&text).map(|url| part(&url).into())
        });
    }
}

fn parse_url(text: &str) -> Result<GoUrl, ExecutionError> {
    GoUrl::parse(text).map_err(|why| {
        let error = format!("URL parse error during conversion from string: {why}");
        ExecutionError::function_error("url", error)
    })
}

type UrlPart = fn(&GoUrl) -> String;

const URL_PARTS: [(&str, UrlPart); 5] = [
    ("getScheme", |url| url.scheme.clone()),
    ("getHost", |url| url.host.clone()),
    ("getHostname", |url| url.hostname().to_owned()),
    ("getPort", |url| url.port().to_owned()),
    ("getEscapedPath", GoUrl::escaped_path),
];

#[cfg(test)]
mod tests {
    use super::super::ENV;
    use super::*;

    fn evaluate(text: &str) -> Option<Cel> {
        let mut context = Context::with_env(ENV.clone());
        add_functions(&mut context);
        ENV.compile(text).ok()?.execute(&context).ok()
    }

    #[test]
    fn addresses_and_urls_have_functions() {
        for text in [
            "ip('10.0.0.1').family() == 4 && ip.isCanonical('::1') && !ip.isCanonical('::01')",
            "cidr('10.0.0.0/8').prefixLength() == 8 && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
            "!cidr('10.0.0.0/8').containsIP('11.1.2.3') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
            "cidr('10.1.2.3/8').masked() == '10.0.0.0/8' && cidr('10.1.2.3/8').ip() == '10.1.2.3'",
            "url('https://a.example.com:80/b').getScheme() == 'https' && url('https://a/b').getHost() == 'a'",
            "url('https://a.example.com:80/b').getPort() == '80' && isURL('/x') && !isURL('x')",
            "url('https://a.example').getEscapedPath() == '' && url('https://[::1]:80/').getHostname() == '::1'",
            "isURL('mailto:a@b.c') && isURL('urn:isbn:1') && isURL('https://a/b c') && !isURL('https://a/%zz') && !isURL('a/b')",
            "url('https://a/b c').getEscapedPath() == '/b%20c' && url('https://a/é').getEscapedPath() == '/%C3%A9'",
            "url('/a b').getEscapedPath() == '/a%20b' && url('/a?b=c#d').getQuery() == {'b': ['c']}",
            "url('https://a?q=1;r=2&s=a+b%20c').getQuery() == {'s': ['a b c']} && url('HTTPS://a').getScheme() == 'https'",
            "ip('10.0.0.1').isGlobalUnicast() && ip('169.254.0.1').isLinkLocalUnicast() && ip('ff02::1').isLinkLocalMulticast()",
            "cidr('::/0').containsIP('::1') && !cidr('::/0').containsIP('10.0.0.1')",
        ] {
            assert_eq!(evaluate(text), Some(Cel::Bool(true)), "{text}");
        }
        assert_eq!(evaluate("ip('x').family()"), None);
    }
}
