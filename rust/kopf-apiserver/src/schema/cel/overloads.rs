//! Types of the arguments and results of all functions and operators in the expressions of kube-apiserver.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::types::StaticType;

/// One combination of types of a function.
#[derive(Debug)]
pub(super) struct Overload {
    /// Whether it is called on its first argument.
    pub(super) is_member: bool,
    pub(super) args: Vec<StaticType<'static>>,
    pub(super) result: StaticType<'static>,
}

/// Parameters of overloads are numbered from 0; variables of expressions begin here.
pub(super) const FIRST_VARIABLE: usize = 26;

/// Names, and the overloads that they have. Members begin with a dot. Capital letters are parameters. `$C` stands for
/// each type that can be compared, and `$S` for each one with a sum.
const FUNCTIONS: &[(&str, &str)] = &[
    ("_?_:_", "bool, A, A -> A"),
    ("_&&_ _||_", "bool, bool -> bool"),
    ("!_ @not_strictly_false", "bool -> bool"),
    ("_==_ _!=_", "A, A -> bool"),
    (
        "_+_",
        "bytes, bytes -> bytes; double, double -> double; duration, duration -> duration; duration, timestamp -> timestamp; \
         timestamp, duration -> timestamp; int, int -> int; list(A), list(A) -> list(A); string, string -> string; \
         uint, uint -> uint",
    ),
    (
        "_-_",
        "double, double -> double; duration, duration -> duration; int, int -> int; timestamp, duration -> timestamp; \
         timestamp, timestamp -> duration; uint, uint -> uint",
    ),
    ("_*_ _/_", "double, double -> double; int, int -> int; uint, uint -> uint"),
    ("_%_", "int, int -> int; uint, uint -> uint"),
    ("-_", "double -> double; int -> int"),
    (
        "_<_ _<=_ _>_ _>=_",
        "$C, $C -> bool; int, double -> bool; int, uint -> bool; uint, double -> bool; uint, int -> bool; \
         double, int -> bool; double, uint -> bool",
    ),
    (
        "_[_]",
        "list(A), int -> A; map(A, B), A -> B; optional(list(A)), int -> optional(A); optional(map(A, B)), A -> optional(B)",
    ),
    (
        "_[?_]",
        "list(A), int -> optional(A); optional(list(A)), int -> optional(A); map(A, B), A -> optional(B); \
         optional(map(A, B)), A -> optional(B)",
    ),
    ("@in", "A, list(A) -> bool; A, map(A, B) -> bool"),
    (
        "size",
        "bytes -> int; .bytes -> int; list(A) -> int; .list(A) -> int; map(A, B) -> int; .map(A, B) -> int; string -> int; \
         .string -> int",
    ),
    ("type", "A -> type(A)"),
    ("bool", "bool -> bool; string -> bool"),
    ("bytes", "bytes -> bytes; string -> bytes"),
    ("double", "double -> double; int -> double; string -> double; uint -> double"),
    ("duration", "duration -> duration; int -> duration; string -> duration"),
    ("dyn", "A -> dyn"),
    ("int", "int -> int; double -> int; duration -> int; string -> int; timestamp -> int; uint -> int"),
    (
        "string",
        "string -> string; bool -> string; bytes -> string; double -> string; duration -> string; int -> string; \
         timestamp -> string; uint -> string; net.IP -> string; net.CIDR -> string",
    ),
    ("timestamp", "timestamp -> timestamp; int -> timestamp; string -> timestamp"),
    ("uint", "uint -> uint; double -> uint; int -> uint; string -> uint"),
    ("contains endsWith startsWith", ".string, string -> bool"),
    ("matches", "string, string -> bool; .string, string -> bool"),
    (
        "getFullYear getMonth getDayOfYear getDayOfMonth getDate getDayOfWeek",
        ".timestamp -> int; .timestamp, string -> int",
    ),
    (
        "getHours getMinutes getSeconds getMilliseconds",
        ".timestamp -> int; .timestamp, string -> int; .duration -> int",
    ),
    // Optional values.
    ("optional.of optional.ofNonZeroValue", "A -> optional(A)"),
    ("optional.none", "-> optional(A)"),
    ("value", ".optional(A) -> A"),
    ("hasValue", ".optional(A) -> bool"),
    ("or", ".optional(A), optional(A) -> optional(A)"),
    ("orValue", ".optional(A), A -> A"),
    ("first last", ".list(A) -> optional(A)"),
    ("optional.unwrap", "list(optional(A)) -> list(A)"),
    ("unwrapOpt", ".list(optional(A)) -> list(A)"),
    ("cel.@mapInsert", "map(A, B), A, B -> map(A, B); map(A, B), map(A, B) -> map(A, B)"),
    // Strings and patterns.
    ("charAt", ".string, int -> string"),
    ("indexOf lastIndexOf", ".string, string -> int; .string, string, int -> int; .list(A), A -> int"),
    ("lowerAscii trim upperAscii", ".string -> string"),
    ("replace", ".string, string, string -> string; .string, string, string, int -> string"),
    ("split", ".string, string -> list(string); .string, string, int -> list(string)"),
    ("substring", ".string, int -> string; .string, int, int -> string"),
    ("format", ".string, list(dyn) -> string"),
    ("strings.quote", "string -> string"),
    ("join", ".list(string) -> string; .list(string), string -> string"),
    ("find", ".string, string -> string"),
    ("findAll", ".string, string -> list(string); .string, string, int -> list(string)"),
    // Lists and sets.
    ("isSorted", ".list($C) -> bool"),
    ("sum", ".list($S) -> $S"),
    ("max min", ".list($C) -> $C"),
    ("slice", ".list(A), int, int -> list(A)"),
    ("flatten", ".list(list(A)) -> list(A); .list(dyn), int -> list(dyn)"),
    ("sort", ".list($C) -> list($C)"),
    ("@sortByAssociatedKeys", ".list(A), list($C) -> list(A)"),
    ("lists.range", "int -> list(int)"),
    ("reverse distinct", ".list(A) -> list(A)"),
    ("sets.contains sets.equivalent sets.intersects", "list(A), list(A) -> bool"),
    // Kubernetes.
    ("url", "string -> kubernetes.URL"),
    ("getScheme getHost getHostname getPort getEscapedPath", ".kubernetes.URL -> string"),
    ("getQuery", ".kubernetes.URL -> map(string, list(string))"),
    ("isURL isIP isCIDR isQuantity ip.isCanonical", "string -> bool"),
    ("quantity", "string -> kubernetes.Quantity"),
    ("sign", "kubernetes.Quantity -> int"),
    (
        "isGreaterThan isLessThan",
        ".kubernetes.Quantity, kubernetes.Quantity -> bool; .kubernetes.Semver, kubernetes.Semver -> bool",
    ),
    (
        "compareTo",
        ".kubernetes.Quantity, kubernetes.Quantity -> int; .kubernetes.Semver, kubernetes.Semver -> int",
    ),
    ("asApproximateFloat", ".kubernetes.Quantity -> double"),
    ("asInteger", ".kubernetes.Quantity -> int"),
    ("isInteger", ".kubernetes.Quantity -> bool"),
    (
        "add sub",
        ".kubernetes.Quantity, kubernetes.Quantity -> kubernetes.Quantity; .kubernetes.Quantity, int -> kubernetes.Quantity",
    ),
    ("ip", "string -> net.IP; .net.CIDR -> net.IP"),
    ("family", ".net.IP -> int"),
    ("isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast", ".net.IP -> bool"),
    ("cidr", "string -> net.CIDR"),
    ("containsIP", ".net.CIDR, string -> bool; .net.CIDR, net.IP -> bool"),
    ("containsCIDR", ".net.CIDR, string -> bool; .net.CIDR, net.CIDR -> bool"),
    ("prefixLength", ".net.CIDR -> int"),
    ("masked", ".net.CIDR -> net.CIDR"),
    ("validate", ".kubernetes.NamedFormat, string -> optional(list(string))"),
    ("format.named", "string -> optional(kubernetes.NamedFormat)"),
    (
        "format.dns1123Label format.dns1123Subdomain format.dns1035Label format.qualifiedName format.dns1123LabelPrefix \
         format.dns1123SubdomainPrefix format.dns1035LabelPrefix format.labelValue format.uri format.uuid format.byte \
         format.date format.datetime",
        "-> kubernetes.NamedFormat",
    ),
    ("semver", "string -> kubernetes.Semver; string, bool -> kubernetes.Semver"),
    ("isSemver", "string -> bool; string, bool -> bool"),
    ("major minor patch", ".kubernetes.Semver -> int"),
    // Authorization.
    ("path", ".authorization.Authorizer, string -> authorization.PathCheck"),
    ("group", ".authorization.Authorizer, string -> authorization.GroupCheck"),
    ("serviceAccount", ".authorization.Authorizer, string, string -> authorization.Authorizer"),
    ("resource", ".authorization.GroupCheck, string -> authorization.ResourceCheck"),
    (
        "subresource namespace name fieldSelector labelSelector",
        ".authorization.ResourceCheck, string -> authorization.ResourceCheck",
    ),
    (
        "check",
        ".authorization.PathCheck, string -> authorization.Decision; \
         .authorization.ResourceCheck, string -> authorization.Decision",
    ),
    ("errored allowed", ".authorization.Decision -> bool"),
    ("error reason", ".authorization.Decision -> string"),
];

const COMPARABLE: [&str; 8] = ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];
const SUMMABLE: [&str; 4] = ["int", "uint", "double", "duration"];

static OVERLOADS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut all: HashMap<_, Vec<_>> = HashMap::new();
    for (names, signatures) in FUNCTIONS {
        for name in names.split_whitespace() {
            all.entry(name).or_default().extend(signatures.split(';').flat_map(parse_overloads));
        }
    }
    all
});

/// The overloads of a function; `None` if there is none of this name.
pub(super) fn overloads(name: &str) -> Option<&'static [Overload]> {
    OVERLOADS.get(name).map(Vec::as_slice)
}

fn parse_overloads(signature: &'static str) -> Vec<Overload> {
    let each = |variable: &str, types: &[&str]| -> Vec<String> {
        types.iter().map(|name| signature.replace(variable, name)).collect()
    };
    let signatures = if signature.contains("$C") {
        each("$C", &COMPARABLE)
    } else if signature.contains("$S") {
        each("$S", &SUMMABLE)
    } else {
        vec![signature.to_owned()]
    };
    signatures.iter().filter_map(|text| parse_overload(text.trim())).collect()
}

fn parse_overload(text: &str) -> Option<Overload> {
    let (args, result) = text.split_once("->")?;
    let (args, is_member) = match args.strip_prefix('.') {
        Some(args) => (args, true),
        None => (args, false),
    };
    let args: Option<Vec<_>> = split(args).into_iter().map(parse_type).collect();
    Some(Overload { is_member, args: args?, result: parse_type(result.trim())? })
}

/// The types of a list.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start) = (0, 0);
    let mut parts = Vec::new();
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

const OBJECTS: [&str; 9] = [
    "kubernetes.URL",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
    "kubernetes.authorization.Authorizer",
    "kubernetes.authorization.PathCheck",
    "kubernetes.authorization.GroupCheck",
    "kubernetes.authorization.ResourceCheck",
    "kubernetes.authorization.Decision",
];

fn parse_type(text: &str) -> Option<StaticType<'static>> {
    if let Some((name, params)) = text.split_once('(') {
        let params: Option<Vec<_>> = split(params.strip_suffix(')')?).into_iter().map(parse_type).collect();
        let mut params = params?.into_iter();
        let first = params.next()?;
        return Some(match name {
            "list" => StaticType::list(first),
            "map" => StaticType::map(first, params.next()?),
            "optional" => first.optional(),
            _ => StaticType::Type(Box::new(first)),
        });
    }
    Some(match text {
        "dyn" => StaticType::Dyn,
        "bool" => StaticType::Bool,
        "int" => StaticType::Int,
        "uint" => StaticType::UInt,
        "double" => StaticType::Double,
        "string" => StaticType::Text,
        "bytes" => StaticType::Bytes,
        "duration" => StaticType::Duration,
        "timestamp" => StaticType::Timestamp,
        "net.IP" => StaticType::Opaque("net.IP", Vec::new()),
        "net.CIDR" => StaticType::Opaque("net.CIDR", Vec::new()),
        "A" => StaticType::Param(0),
        "B" => StaticType::Param(1),
        name => StaticType::Named(OBJECTS.into_iter().find(|known| known.ends_with(name))?),
    })
}

/// The type that a name stands for.
pub(super) fn named_type(name: &str) -> Option<StaticType<'static>> {
    let list = || StaticType::list(StaticType::Param(0));
    Some(match name {
        "bool" | "bytes" | "double" | "int" | "string" | "uint" | "net.IP" | "net.CIDR" => parse_type(name)?,
        "google.protobuf.Duration" => StaticType::Duration,
        "google.protobuf.Timestamp" => StaticType::Timestamp,
        "list" => list(),
        "map" => StaticType::map(StaticType::Param(0), StaticType::Param(1)),
        "null_type" => StaticType::Null,
        "optional_type" => StaticType::Dyn.optional(),
        "type" => StaticType::Type(Box::new(StaticType::Dyn)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_signatures_are_parsed() {
        for (names, signatures) in FUNCTIONS {
            for signature in signatures.split(';') {
                assert!(!parse_overloads(signature).is_empty(), "{names}: {signature}");
            }
        }
        let shown = |name: &str| {
            let all = overloads(name).unwrap_or_default();
            all.iter().map(|it| format!("{:?} -> {}", it.args, it.result)).collect::<Vec<_>>()
        };
        assert_eq!(shown("_<_").len(), 14);
        assert_eq!(shown("optional.none").len(), 1);
        assert!(overloads("math.greatest").is_none());
    }
}
