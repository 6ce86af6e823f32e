//! Get, list and watch.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Call;
use super::watch::{Filter, Watch};
use crate::error::status::{Cause, Status};
use crate::http::render;
use crate::http::render::Page;
use crate::http::response::{Body, Response};
use crate::registry::selectors::{FieldSelector, LabelSelector, ShardSelector};
use crate::storage::object::Stored;
use crate::webhook::conversion;

/// The longest timeout of a watch in seconds, a century: longer ones may exceed the range of the clock.
const MAX_TIMEOUT: u64 = 100 * 365 * 24 * 60 * 60;

pub(crate) async fn get(call: &Call<'_>) -> Result<Response, Status> {
    let name = call.name.as_deref().unwrap_or_default();
    call.output_format(false)?;
    let found = call.stored(name).await?;
    let found = found.ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
    render::object(200, call.request, &call.resource, &found)
}

/// The version in continue tokens for the newest one.
const NEWEST: i64 = -1;

/// `ListOptions` of a list or a watch.
struct ListOptions {
    filter: Filter,
    version: Option<u64>,
    exact: bool,
    limit: usize,
    next: Option<ContinueToken>,
}

/// Continue token of a chunked list.
struct ContinueToken {
    /// `None` for the newest version: the first chunks can be older.
    version: Option<u64>,
    after: (String, String),
}

impl ContinueToken {
    fn parse(text: &str) -> Result<Self, Status> {
        let invalid = |why: String| Status::bad_request(format!("invalid continue token: {why}"));
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|e| invalid(format!("continue key is not valid: illegal base64 data: {e}")))?;
        let json: Value = serde_json::from_slice(&bytes).map_err(|e| {
            invalid(format!("continue key is not valid: {}", crate::base::json::json_complaint(&bytes, &e)))
        })?;
        let start = json["start"].as_str().unwrap_or_default().trim_end_matches('\0');
        let (namespace, name) = start.split_once('/').unwrap_or(("", start));
        let version = match json["rv"].as_i64() {
            Some(NEWEST) => None,
            Some(version @ 1..) => Some(version.unsigned_abs()),
            _ => {
                let why = "incorrect encoded start resourceVersion (version meta.k8s.io/v1)";
                return Err(invalid(format!("continue key is not valid: {why}")));
            }
        };
        Ok(Self { version, after: (namespace.to_owned(), name.to_owned()) })
    }
    fn write(&self) -> String {
        let (namespace, name) = &self.after;
        let version = self.version.map_or(Value::from(NEWEST), Value::from);
        let token = json!({"v": "meta.k8s.io/v1", "rv": version, "start": format!("{namespace}/{name}\0")});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }
    /// The token after this one has expired.
    fn renewed(&self) -> String {
        Self { version: None, after: self.after.clone() }.write()
    }
}

fn list_options(call: &Call<'_>) -> Result<ListOptions, Status> {
    let query = &call.request.query;
    let version_match = query.get("resourceVersionMatch");
    let send_initial = query.flag("sendInitialEvents");
    let version_text = query.get("resourceVersion");
    let is_watch = query.flag("watch");
    let forbidden =
        |why: &str| Status::bad_options("ListOptions", &[Cause::forbidden("resourceVersionMatch", why)]);
    if query.has("sendInitialEvents") && !is_watch {
        let cause = Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        return Err(Status::bad_options("ListOptions", &[cause]));
    }
    if send_initial && version_match != "NotOlderThan" {
        return Err(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
    }
    if is_watch && !version_match.is_empty() && !query.has("sendInitialEvents") {
        return Err(forbidden(
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ));
    }
    if !version_match.is_empty() && !is_watch {
        if version_text.is_empty() {
            return Err(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if !query.get("continue").is_empty() {
            return Err(forbidden("resourceVersionMatch is forbidden with continue"));
        }
        if !matches!(version_match, "Exact" | "NotOlderThan") {
            let known = ["Exact".to_owned(), "NotOlderThan".to_owned(), String::new()];
            let cause = Cause::unsupported("resourceVersionMatch", &version_match.into(), &known);
            return Err(Status::bad_options("ListOptions", &[cause]));
        }
        if version_match == "Exact" && version_text == "0" {
            return Err(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    for number in ["limit", "timeoutSeconds"] {
        let text = query.get(number);
        if !text.is_empty() && text.parse::<i64>().is_err() {
            return Err(Status::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax")));
        }
    }
    let version = parse_version(version_text).map_err(|status| {
        // For watches, kube-apiserver reports this error from a deeper layer, with another code.
        let bare = status.message.trim_start_matches("invalid resource version: ").to_owned();
        if is_watch { Status::internal(bare) } else { status }
    })?;
    let labels = LabelSelector::parse(query.get("labelSelector"))?;
    let fields = FieldSelector::parse(query.get("fieldSelector"), &call.resource)?;
    let shards = query.get("shardSelector");
    let shards = if call.cluster.options.sharding && !shards.is_empty() {
        ShardSelector::parse(shards)?
    } else {
        Vec::new()
    };
    let next = match query.get("continue") {
        "" => None,
        text => Some(ContinueToken::parse(text)?),
    };
    if next.is_some() && version.is_some_and(|v| v > 0) {
        let message = "specifying resource version is not allowed when using continue";
        return Err(Status::bad_request(message));
    }
    let name = call.name.clone().or_else(|| fields.name().map(str::to_owned));
    Ok(ListOptions {
        filter: Filter {
            namespace: call.namespace_filter().map(str::to_owned),
            name,
            labels,
            fields,
            shards,
        },
        version,
        exact: version_match == "Exact",
        limit: query.number("limit").and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
        next,
    })
}

fn parse_version(text: &str) -> Result<Option<u64>, Status> {
    match text {
        "" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| {
            let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
            let shown = format!("resourceVersion: Invalid value: \"{text}\": {why}");
            Status::bad_request(format!("invalid resource version: {shown}"))
        }),
    }
}

pub(crate) async fn list(call: &Call<'_>) -> Result<Response, Status> {
    call.output_format(true)?;
    let list_options = list_options(call)?;
    let page = page(call, &list_options).await?;
    render::list(call.request, &call.resource, &page)
}

/// Objects that the list options select.
pub(crate) async fn list_selected(call: &Call<'_>) -> Result<Page, Status> {
    page(call, &list_options(call)?).await
}

async fn page(call: &Call<'_>, list_options: &ListOptions) -> Result<Page, Status> {
    let store = &call.cluster.store;
    let current = store.version();
    if let Some(asked) = list_options.version.filter(|v| *v > current) {
        return Err(Status::future_version(asked, current));
    }
    let table = &call.resource.store_key;
    let namespace = list_options.filter.namespace.as_deref();
    let client = call.request.client();
    let stale_version = call
        .cluster
        .faults
        .stale_version(&call.resource.plural, client)
        .filter(|_| list_options.version.is_none());
    let at = match &list_options.next {
        Some(token) => token.version,
        None => list_options.version.filter(|_| list_options.exact).or(stale_version),
    };
    let snapshot = match at {
        None => store.list(table, namespace),
        Some(version) => store.list_at(table, namespace, version).map_err(|oldest| match &list_options.next {
            Some(token) => Status::gone_with_token(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                 without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
                 results. Continuing with the provided token results in an inconsistent list - objects that were created, \
                 modified, or deleted between the time the first chunk was returned and now may show up in the list.",
                token.renewed(),
            ),
            None => Status::gone(format!("too old resource version: {version} ({oldest})")),
        })?,
    };
    let after = list_options.next.as_ref().map(|t| (t.after.0.as_str(), t.after.1.as_str()));
    let objects = conversion::from_storage(&call.resource, snapshot.objects).await?;
    let mut selected_objects: Vec<Arc<Stored>> = objects
        .into_iter()
        .filter(|o| after.is_none_or(|after| (&*o.namespace, &*o.name) > after))
        .filter(|o| list_options.filter.matches(o))
        .collect();
    let mut page = Page {
        version: snapshot.version,
        objects: Vec::new(),
        next: None,
        remaining: None,
        shard: (!list_options.filter.shards.is_empty())
            .then(|| call.request.query.get("shardSelector").to_owned()),
    };
    // Version 0 allows any cached state: the limit is ignored, as by the watch cache of kube-apiserver.
    if list_options.limit > 0
        && selected_objects.len() > list_options.limit
        && list_options.version != Some(0)
    {
        let rest = selected_objects.len() - list_options.limit;
        selected_objects.truncate(list_options.limit);
        page.next = selected_objects.last().map(|last| {
            let after = (last.namespace.to_string(), last.name.to_string());
            ContinueToken { version: Some(snapshot.version), after }.write()
        });
        page.remaining = Some(rest)
            .filter(|_| list_options.filter.labels.is_empty() && list_options.filter.fields.is_empty());
    }
    page.objects = selected_objects;
    Ok(page)
}

pub(crate) fn watch(call: &Call<'_>) -> Result<Response, Status> {
    let format = call.output_format(true)?;
    let list_options = list_options(call)?;
    let query = &call.request.query;
    let timeout = query.number("timeoutSeconds").filter(|s| *s > 0);
    // kube-apiserver closes watches after 30 to 60 minutes.
    let seconds = timeout.unwrap_or_else(|| 1800 + crate::base::random::random_bits() % 1800);
    let seconds = seconds.min(MAX_TIMEOUT);
    let watch = Watch::new(
        call.cluster,
        &call.resource,
        list_options.filter,
        list_options.version.unwrap_or(0),
        super::watch::WatchOptions {
            format,
            include: render::include_object(call.request),
            bookmarks: query.flag("allowWatchBookmarks"),
            // A watch without a version begins with synthetic ADDED events.
            initial: query.flag("sendInitialEvents") || list_options.version.is_none_or(|v| v == 0),
            initial_end: query.flag("sendInitialEvents") && query.flag("allowWatchBookmarks"),
            timeout: Duration::from_secs(seconds),
            user: call.request.user.clone(),
            agent: call.request.header("user-agent").into(),
        },
    );
    let mut out = Response::bytes(200, Vec::new());
    out.body = Body::Stream(Box::new(watch));
    Ok(out)
}
