//! Functions of Kubernetes in CEL expressions. Strings stand for the values of `ip`, `cidr` and `url`.

use std::net::IpAddr;
use std::sync::Arc;

use cel::extractors::This;
use cel::{Context, ExecutionError};
use regex::Regex;

use super::super::formats;
use super::cost::MATCHES;
use crate::base::go_regex;

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
    let _ = context.add_function(
        "findAll",
        |This(text): This<Text>, pattern: Text| -> Result<Cel, ExecutionError> {
            let found: Vec<String> =
                regex("findAll", &pattern)?.find_iter(&text).map(|found| found.as_str().to_owned()).collect();
            Ok(found.into())
        },
    );
    let _ = context.add_function("isSorted", |This(list): This<Arc<Vec<Cel>>>| -> bool { list.is_sorted() });
    let _ = context.add_function("sum", |This(list): This<Arc<Vec<Cel>>>| -> Result<Cel, ExecutionError> {
        let integers: Option<Vec<i64>> =
            list.iter().map(|item| if let Cel::Int(number) = item { Some(*number) } else { None }).collect();
        let Some(integers) = integers else {
            return Ok(Cel::Float(list.iter().filter_map(super::values::float).sum()));
        };
        let sum = integers.into_iter().try_fold(0, i64::checked_add);
        sum.map(Cel::Int).ok_or_else(|| ExecutionError::function_error("sum", "integer overflow"))
    });
    add_addresses(context);
    add_urls(context);
    super::values::add_functions(context);
    super::named_formats::add_functions(context);
}

fn regex(function: &str, pattern: &str) -> Result<Regex, ExecutionError> {
    go_regex::compile(pattern).map_err(|error| ExecutionError::function_error(function, error))
}

/// Functions for IP addresses and CIDRs.
fn add_addresses(context: &mut Context) {
    let _ = context.add_function("isIP", |text: Text| -> bool { text.parse::<IpAddr>().is_ok() });
    let _ = context.add_function("isCIDR", |text: Text| -> bool { formats::matches("cidr", &text) });
    // Also the method of a CIDR.
    let _ = context.add_function("ip", |This(text): This<Text>| -> Result<Cel, ExecutionError> {
        let address = text.split('/').next().unwrap_or_default();
        let parsed = address.parse::<IpAddr>();
        let error = format!("IP Address '{address}' parse error during conversion from string");
        parsed.map(|ip| ip.to_string().into()).map_err(|_| ExecutionError::function_error("ip", error))
    });
    let _ = context.add_function("ip.isCanonical", |text: Text| -> bool {
        text.parse::<IpAddr>().is_ok_and(|ip| ip.to_string() == **text)
    });
    let _ = context.add_function("cidr", |text: Text| -> Result<Cel, ExecutionError> {
        let error = format!("network address parse error during conversion from string: {text}");
        parse_cidr(&text)
            .map(|_| Cel::String(text))
            .ok_or_else(|| ExecutionError::function_error("cidr", error))
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
    let is_url = |text: &str| {
        text.parse::<http::Uri>().is_ok_and(|url| url.scheme().is_some()) || text.starts_with('/')
    };
    let _ = context.add_function("isURL", move |text: Text| -> bool { is_url(&text) });
    let _ = context.add_function("url", move |text: Text| -> Result<Cel, ExecutionError> {
        let error = format!("URL parse error during conversion from string: {text}");
        if is_url(&text) { Ok(Cel::String(text)) } else { Err(ExecutionError::function_error("url", error)) }
    });
    for (name, part) in URL_PARTS {
        let _ = context.add_function(name, move |This(text): This<Text>| -> Cel {
            text.parse::<http::Uri>().map(|url| part(&url)).unwrap_or_default().into()
        });
    }
}

type UrlPart = fn(&http::Uri) -> String;

const URL_PARTS: [(&str, UrlPart); 5] = [
    ("getScheme", |url| url.scheme_str().unwrap_or_default().to_owned()),
    ("getHost", |url| url.authority().map_or_else(String::new, |authority| authority.as_str().to_owned())),
    ("getHostname", |url| url.host().unwrap_or_default().to_owned()),
    ("getPort", |url| url.port().map_or_else(String::new, |port| port.to_string())),
    ("getEscapedPath", |url| url.path().to_owned()),
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
            "ip('10.0.0.1').isGlobalUnicast() && ip('169.254.0.1').isLinkLocalUnicast() && ip('ff02::1').isLinkLocalMulticast()",
            "cidr('::/0').containsIP('::1') && !cidr('::/0').containsIP('10.0.0.1')",
        ] {
            assert_eq!(evaluate(text), Some(Cel::Bool(true)), "{text}");
        }
        assert_eq!(evaluate("ip('x').family()"), None);
    }

    #[test]
    fn sums_of_integers_do_not_overflow() {
        assert_eq!(evaluate("[1, 2, 3].sum()"), Some(Cel::Int(6)));
        assert_eq!(evaluate("[1.5, 2.5].sum()"), Some(Cel::Float(4.0)));
        assert_eq!(evaluate("[9223372036854775807, 1].sum()"), None);
    }
}
