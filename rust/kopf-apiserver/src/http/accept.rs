//! The `Accept` header: its media ranges, and the format of the response.
//!
//! As in kube-apiserver, the parameters `as`, `g` and `v` of a media range request a conversion of the response. All
//! responses are JSON: ranges of other media types are skipped.

use serde_json::Map;

use crate::error::status::Status;
use crate::scheme::resources::Resource;

/// The media types of kube-apiserver, in the texts of its errors.
const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAM_MEDIA_TYPES: &str =
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// A media range of the header.
#[derive(Clone, Debug, PartialEq)]
struct MediaRange<'h> {
    main_type: &'h str,
    subtype: &'h str,
    /// The quality value.
    quality: f32,
    /// All other parameters.
    parameters: Vec<(&'h str, &'h str)>,
}

/// A parsed `Accept` header: its media ranges, the preferred ones first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accept<'h>(Vec<MediaRange<'h>>);

/// Version of `meta.k8s.io`, in which tables and partial objects are sent. Both have the same fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    V1,
    V1Beta1,
}

impl MetaVersion {
    fn of(group: &str, version: &str) -> Option<Self> {
        match (group, version) {
            ("meta.k8s.io", "v1") => Some(Self::V1),
            ("meta.k8s.io", "v1beta1") => Some(Self::V1Beta1),
            _ => None,
        }
    }

    /// The `apiVersion` of the documents.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// Requested format of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Object,
    Table(MetaVersion),
    Partial(MetaVersion),
    PartialList(MetaVersion),
}

/// The endpoint of a request. Some of them check the media types before the parameters, with a separate error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Lists and watches of built-in resources.
    List,
    /// Other operations on built-in resources.
    Object,
    /// Operations on custom resources.
    Custom,
    /// Discovery of the core group.
    CoreDiscovery,
    /// Discovery of other groups.
    GroupDiscovery,
}

impl Endpoint {
    /// The endpoint of a resource: with its lists and watches, or with its objects.
    pub(crate) fn of(resource: &Resource, is_list: bool) -> Self {
        match (resource.custom.is_some(), is_list) {
            (true, _) => Self::Custom,
            (false, true) => Self::List,
            (false, false) => Self::Object,
        }
    }

    /// The available representations, if the endpoint checks the media types first.
    fn representations(self) -> Option<String> {
        match self {
            Self::List => Some(format!("{MEDIA_TYPES}, {STREAM_MEDIA_TYPES}")),
            Self::Object | Self::CoreDiscovery => Some(MEDIA_TYPES.to_owned()),
            Self::Custom | Self::GroupDiscovery => None,
        }
    }

    fn has_conversions(self) -> bool {
        !matches!(self, Self::CoreDiscovery | Self::GroupDiscovery)
    }
}

impl<'h> MediaRange<'h> {
    /// Parses one element of the header; none if it is not a media range. Malformed parameters are ignored.
    fn parse(element: &'h str) -> Option<Self> {
        let mut parts = element.split(';').map(str::trim);
        let (main_type, subtype) = match parts.next()? {
            "*" => ("*", ""),
            media_type => media_type.split_once('/')?,
        };
        if subtype.contains('/') {
            return None;
        }
        let mut range = Self { main_type, subtype, quality: 1.0, parameters: Vec::new() };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match (name.trim(), value.trim()) {
                ("q", value) => range.quality = value.parse().unwrap_or_default(),
                parameter => range.parameters.push(parameter),
            }
        }
        Some(range)
    }

    fn matches_json(&self) -> bool {
        matches!((self.main_type, self.subtype), ("application", "json" | "*") | ("*", "*" | ""))
    }

    /// The number of wildcards: ranges with fewer of them are preferred at the same quality.
    fn wildcards(&self) -> usize {
        usize::from(self.main_type == "*") + usize::from(matches!(self.subtype, "*" | ""))
    }

    /// Whether it names a media type of kube-apiserver, or accepts all media types.
    fn is_available(&self) -> bool {
        match (self.main_type, self.subtype) {
            ("application", subtype) => matches!(subtype, "json" | "yaml" | "vnd.kubernetes.protobuf"),
            wildcard => wildcard == ("*", "*"),
        }
    }

    fn parameter(&self, name: &str) -> Option<&'h str> {
        self.parameters.iter().rev().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    /// The requested conversion: its kind, group and version.
    fn conversion(&self) -> Option<(&'h str, &'h str, &'h str)> {
        let [kind, group, version] = ["as", "g", "v"].map(|name| self.parameter(name));
        let is_requested = kind.or(group).or(version).is_some();
        is_requested.then(|| (kind.unwrap_or(""), group.unwrap_or(""), version.unwrap_or("")))
    }

    /// The format for the range; none if it cannot be served.
    fn format(&self, endpoint: Endpoint) -> Option<OutputFormat> {
        let is_served =
            |name, values: &[&str]| self.parameter(name).is_none_or(|value| values.contains(&value));
        if !self.matches_json() || !is_served("stream", &["", "watch"]) || !is_served("sv", &[""]) {
            return None;
        }
        match self.conversion() {
            None => Some(OutputFormat::Object),
            Some(_) if !endpoint.has_conversions() => None,
            Some((kind, group, version)) => {
                let version = MetaVersion::of(group, version)?;
                match kind {
                    "Table" => Some(OutputFormat::Table(version)),
                    "PartialObjectMetadata" => Some(OutputFormat::Partial(version)),
                    "PartialObjectMetadataList" => Some(OutputFormat::PartialList(version)),
                    _ => None,
                }
            }
        }
    }
}

impl<'h> Accept<'h> {
    /// Parses the header. Elements that are not media ranges are ignored.
    pub(crate) fn parse(header: &'h str) -> Self {
        let mut ranges: Vec<MediaRange<'_>> = header.split(',').filter_map(MediaRange::parse).collect();
        ranges
            .sort_by(|a, b| b.quality.total_cmp(&a.quality).then_with(|| a.wildcards().cmp(&b.wildcards())));
        Self(ranges)
    }

    /// Whether a range names this media type.
    pub(crate) fn names(&self, main_type: &str, subtype: &str) -> bool {
        self.0.iter().any(|range| (range.main_type, range.subtype) == (main_type, subtype))
    }

    /// Whether a range accepts JSON.
    pub(crate) fn accepts_json(&self) -> bool {
        self.0.iter().any(MediaRange::matches_json)
    }

    /// Whether a range requests JSON converted to this kind. Its order among the other ranges is irrelevant.
    pub(crate) fn requests(&self, kind: &str, group: &str, version: &str) -> bool {
        let is_requested = |range: &MediaRange<'_>| {
            range.matches_json() && range.conversion() == Some((kind, group, version))
        };
        self.0.iter().any(is_requested)
    }

    /// The format of the first range that can be served.
    ///
    /// # Errors
    /// There is none: 406, with the text of kube-apiserver for the endpoint.
    pub(crate) fn negotiate(&self, endpoint: Endpoint) -> Result<OutputFormat, Status> {
        if let Some(representations) = endpoint.representations()
            && !self.0.iter().any(MediaRange::is_available)
        {
            let message = format!("406: Not Acceptable\n\nAvailable representations: {representations}");
            return Err(Status::new(406, "NotAcceptable", message).with(Map::new()));
        }
        self.0.iter().find_map(|range| range.format(endpoint)).ok_or_else(|| {
            // A client that only accepts YAML or protobuf gets no advice to do so.
            let known = if self.accepts_json() || !self.0.iter().any(MediaRange::is_available) {
                MEDIA_TYPES
            } else {
                "application/json"
            };
            let message = format!("only the following media types are accepted: {known}");
            Status::new(406, "NotAcceptable", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
    const ROUTES: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                          application/vnd.kubernetes.protobuf";
    const STREAMS: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                           application/vnd.kubernetes.protobuf, application/json;stream=watch, \
                           application/vnd.kubernetes.protobuf;stream=watch";
    const ONLY: &str = "only the following media types are accepted: application/json, application/yaml, \
                        application/vnd.kubernetes.protobuf";

    fn check(endpoint: Endpoint, header: &str, expected: Result<OutputFormat, &str>) {
        let negotiated = Accept::parse(header).negotiate(endpoint);
        let negotiated = negotiated.map_err(|status| status.message);
        assert_eq!(negotiated, expected.map_err(str::to_owned), "{endpoint:?}: {header}");
    }

    /// The expectations are the responses of kube-apiserver 1.36.
    #[test]
    fn the_best_range_decides() {
        use OutputFormat::{Object, PartialList};
        let table = OutputFormat::Table(MetaVersion::V1);
        for (header, expected) in [
            ("*/*", Object),
            ("text/plain, */*", Object),
            (TABLE, table),
            ("application/json; as=Table ; g=meta.k8s.io ; v=v1", table),
            ("*/*;as=Table;g=meta.k8s.io;v=v1", table),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", OutputFormat::Table(MetaVersion::V1Beta1)),
            ("application/json;as=Foo;g=meta.k8s.io;v=v1, application/json", Object),
            ("application/json;q=0.1, application/json;as=Table;g=meta.k8s.io;v=v1;q=0.9", table),
            ("application/json;as=Table;g=meta.k8s.io;v=v1;q=0.1, application/json;q=0.9", Object),
            ("application/json;as=Table;g=meta.k8s.io;v=v1;q=0.1, */*", Object),
            ("application/json;q=0.5, */*;q=0.9;as=Table;g=meta.k8s.io;v=v1", table),
            ("*/*,application/json;as=Table;g=meta.k8s.io;v=v1", table),
            ("application/*, application/json;as=Table;g=meta.k8s.io;v=v1", table),
            ("application/json;as=Table;g=meta.k8s.io;v=v1,", table),
            ("application/json;q=0", Object),
            ("application/json;q=bad;as=Table;g=meta.k8s.io;v=v1", table),
            ("application/json;stream=watch", Object),
            ("application/json;charset=utf-8", Object),
            (
                "text/html;q=1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;q=0.3,*/*;q=0.2",
                PartialList(MetaVersion::V1),
            ),
        ] {
            check(Endpoint::List, header, Ok(expected));
        }
    }

    #[test]
    fn unknown_conversions_are_rejected() {
        for header in [
            "application/json;as=Table",
            "application/json;as=Table;g=x;v=v1",
            "application/json;as=Table;g=meta.k8s.io;v=v2",
            "application/json;as=\"Table\";g=meta.k8s.io;v=v1",
            "application/json;AS=Table;g=meta.k8s.io;v=v1",
            "application/json;g=meta.k8s.io;v=v1",
            "application/json;as=Foo, text/plain",
            "application/json;stream=foo",
            "application/json;sv=1",
        ] {
            check(Endpoint::List, header, Err(ONLY));
            check(Endpoint::Custom, header, Err(ONLY));
        }
        check(Endpoint::GroupDiscovery, TABLE, Err(ONLY));
        check(Endpoint::CoreDiscovery, TABLE, Err(ONLY));
    }

    #[test]
    fn unknown_media_types_are_rejected_with_the_text_of_the_endpoint() {
        for header in ["text/plain", "APPLICATION/JSON", "application/json/x", "json", ",", "*/json"] {
            check(Endpoint::List, header, Err(STREAMS));
            check(Endpoint::Object, header, Err(ROUTES));
            check(Endpoint::CoreDiscovery, header, Err(ROUTES));
            check(Endpoint::Custom, header, Err(ONLY));
            check(Endpoint::GroupDiscovery, header, Err(ONLY));
        }
        for header in ["application/*", "*"] {
            check(Endpoint::Object, header, Err(ROUTES));
            check(Endpoint::Custom, header, Ok(OutputFormat::Object));
            check(Endpoint::GroupDiscovery, header, Ok(OutputFormat::Object));
        }
    }

    #[test]
    fn media_types_that_only_kube_apiserver_serves_are_not_advised() {
        let json = "only the following media types are accepted: application/json";
        check(Endpoint::Object, "application/yaml", Err(json));
        check(Endpoint::Custom, "application/vnd.kubernetes.protobuf", Err(json));
        check(
            Endpoint::Object,
            "application/vnd.kubernetes.protobuf, application/json",
            Ok(OutputFormat::Object),
        );
    }
}
