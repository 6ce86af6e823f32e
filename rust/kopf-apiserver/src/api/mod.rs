//! API handlers: routing by resource and verb, with authorization.

mod apply;
mod binding;
mod body;
mod change;
mod delete;
mod deletion;
mod discovery;
mod logs;
mod mutation;
mod openapi;
mod patch;
mod read;
mod reviews;
mod scale;
mod scale_values;
mod versions;
mod watch;
mod write;

use std::sync::Arc;

use http::Method;

use crate::admission::{Attributes, Operation, Warnings};
use serde_json::Value;

use crate::authz;
use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::http::accept::{Endpoint, OutputFormat};
use crate::http::request::{Request, WriteOptions};
use crate::http::response::Response;
use crate::http::route::{self, Route, Target};
use crate::registry::selectors;
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;
use crate::webhook::conversion;

pub(crate) use deletion::{delete_as, delete_stored};

/// Context of a request to one resource.
pub(crate) struct Call<'a> {
    pub(crate) cluster: &'a Arc<Cluster>,
    pub(crate) request: &'a Request,
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// Warnings of admission webhooks.
    warnings: Arc<Warnings>,
}

impl Call<'_> {
    /// Namespace of the request; `None` for all namespaces.
    pub(crate) fn namespace_filter(&self) -> Option<&str> {
        if self.namespace.is_empty() { None } else { Some(&self.namespace) }
    }
    /// An object of this resource, in the version of the request.
    async fn stored(&self, name: &str) -> Result<Option<Arc<Stored>>, Status> {
        match self.cluster.get(&self.resource, &self.namespace, name) {
            Some(stored) => self.in_version(stored).await.map(Some),
            None => Ok(None),
        }
    }
    fn exists(&self, name: &str) -> bool {
        self.cluster.get(&self.resource, &self.namespace, name).is_some()
    }
    /// A stored object in the version of the request.
    async fn in_version(&self, stored: Arc<Stored>) -> Result<Arc<Stored>, Status> {
        let converted = conversion::from_storage(&self.resource, vec![stored.clone()]).await?;
        Ok(converted.into_iter().next().unwrap_or(stored))
    }
    /// Attributes for the authorizer. A namespace is in itself, unless it is created.
    fn authorizer_attributes(&self, verb: &str) -> authz::Attributes {
        let namespace = match &self.name {
            Some(name) if verb != "create" && self.resource.is("", "namespaces") => name,
            _ => &self.namespace,
        };
        authz::Attributes {
            verb: verb.to_owned(),
            group: self.resource.group.clone(),
            resource: self.resource.plural.clone(),
            subresource: self.subresource.clone().unwrap_or_default(),
            namespace: namespace.clone(),
            name: self.name.clone().or_else(|| self.selected_name(verb)).unwrap_or_default(),
            path: String::new(),
        }
    }
    /// The name that a list or a watch selects: it is authorized as a request for this object.
    fn selected_name(&self, verb: &str) -> Option<String> {
        let selector = matches!(verb, "list" | "watch").then(|| self.request.query.get("fieldSelector"))?;
        selectors::required_name(selector)
    }
    /// Whether the request is about a collection.
    fn is_collection(&self) -> bool {
        matches!(route::parse(&self.request.path), Route::Resource(target) if target.name.is_none())
    }
    /// Adds the warnings about a valid object.
    fn add_warnings(&self, value: &Value, old: Option<&Value>) {
        if !self.is_status_subresource() {
            for warning in crate::registry::warnings::warnings(&self.resource, value, old) {
                self.warnings.add(&warning);
            }
        }
    }
    /// Attributes for admission. `name` is that of the request.
    fn admission_attributes<'s>(
        &'s self,
        operation: Operation,
        name: &'s str,
        options: &'s WriteOptions,
    ) -> Attributes<'s> {
        Attributes {
            cluster: self.cluster,
            resource: &self.resource,
            subresource: self.subresource.as_deref(),
            namespace: &self.namespace,
            name,
            user: &self.request.user,
            operation,
            options: &options.given,
            dry_run: options.dry_run,
            warnings: &self.warnings,
        }
    }
    /// Requested format of the response, for lists and watches or for objects.
    pub(crate) fn output_format(&self, is_list: bool) -> Result<OutputFormat, Status> {
        self.request.output_format(Endpoint::of(&self.resource, is_list))
    }
    pub(crate) fn is_status_subresource(&self) -> bool {
        self.subresource.as_deref() == Some("status")
    }
}

/// Handles one request.
pub(crate) async fn handle(cluster: &Arc<Cluster>, request: &Request, route: Route) -> Response {
    match dispatch(cluster, request, route).await {
        Ok(response) => response,
        Err(status) => status.into(),
    }
}

async fn dispatch(cluster: &Arc<Cluster>, request: &Request, route: Route) -> Result<Response, Status> {
    if cluster.options.authorization && !matches!(route, Route::Resource(_)) {
        authz::check_path(cluster, request)?;
    }
    match route {
        Route::Resource(target) => resource(cluster, request, target).await,
        _ if request.method != Method::GET && request.method != Method::HEAD => {
            Err(Status::method_not_allowed())
        }
        Route::Groups { core } => discovery::groups(cluster, request, core),
        Route::Group(name) => discovery::group(cluster, request, &name),
        Route::Version { group, version } => {
            request.output_format(discovery::endpoint(group.is_empty()))?;
            Ok(discovery::version(cluster, &group, &version))
        }
        Route::Plain(path) => Ok(plain(cluster, &path, request.header("accept"))),
    }
}

fn plain(cluster: &Arc<Cluster>, path: &str, accept: &str) -> Response {
    match path {
        "/" => discovery::root(cluster),
        "/version" => Response::json(200, &discovery::build_info()),
        "/healthz" | "/livez" | "/readyz" | "/healthz/ping" | "/livez/ping" | "/readyz/ping" => {
            Response::text(200, "ok")
        }
        "/openapi/v2" => openapi::v2(cluster, accept),
        _ if path.starts_with("/openapi/v3") => openapi::v3(cluster, path),
        _ => Response::page_not_found(),
    }
}

async fn resource(cluster: &Arc<Cluster>, request: &Request, target: Target) -> Result<Response, Status> {
    let registry = cluster.registry();
    let Some(resources) = registry.version(&target.group, &target.version) else {
        return Ok(discovery::version_not_served(&registry, &target.group));
    };
    let Some(resource) = resources.get(&target.plural).cloned() else {
        let has_custom = resources.values().any(|r| r.custom.is_some());
        return if has_custom { Ok(Response::page_not_found()) } else { Err(Status::no_such_resource()) };
    };
    let lacks_namespace = resource.namespaced && target.namespace.is_none() && target.name.is_some();
    let has_excess_namespace = !resource.namespaced && target.namespace.is_some();
    if lacks_namespace || has_excess_namespace {
        return if resource.custom.is_some() {
            Ok(Response::page_not_found())
        } else {
            Err(Status::no_such_resource())
        };
    }
    let call = Call {
        cluster,
        request,
        resource,
        namespace: target.namespace.unwrap_or_default(),
        name: target.name,
        subresource: target.subresource,
        warnings: Arc::default(),
    };
    let verb = verb_of(&call, target.watch);
    authz::check(cluster, &request.user, &call.authorizer_attributes(verb))?;
    let mut response = run(&call, verb).await.unwrap_or_else(Response::from);
    response = response.warn(&call.warnings.shortened());
    if let Some(warning) = call.resource.custom.as_ref().and_then(|custom| custom.deprecation.clone()) {
        response = response.warn(&[warning]);
    }
    if call.resource.is("", "endpoints") {
        let text = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
        response = response.warn(&[text.to_owned()]);
    }
    Ok(response)
}

/// Verb of the request, in terms of RBAC.
fn verb_of(call: &Call<'_>, watch: bool) -> &'static str {
    let named = call.name.is_some();
    match (call.request.method.as_str(), named) {
        ("GET" | "HEAD", _) if watch || (!named && call.request.query.flag("watch")) => "watch",
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "",
    }
}

async fn run(call: &Call<'_>, verb: &str) -> Result<Response, Status> {
    if let Some(sub) = &call.subresource {
        return subresource(call, verb, sub).await;
    }
    if reviews::is_review(&call.resource) {
        return if verb == "create" { reviews::create(call) } else { Err(Status::method_not_allowed()) };
    }
    if !call.resource.has_verb(verb) || (verb == "create" && call.name.is_some()) {
        return Err(Status::method_not_allowed());
    }
    if call.resource.namespaced && call.namespace.is_empty() && matches!(verb, "create" | "deletecollection")
    {
        return Err(Status::method_not_allowed());
    }
    match verb {
        "get" => read::get(call).await,
        "list" => read::list(call).await,
        "watch" => read::watch(call),
        "create" if call.resource.is("", "bindings") => binding::create(call).await,
        "create" => write::create(call).await,
        "update" => write::update(call).await,
        "patch" => patch::patch(call).await,
        "delete" => delete::delete_one(call).await,
        _ => delete::delete_collection(call).await,
    }
}

async fn subresource(call: &Call<'_>, verb: &str, name: &str) -> Result<Response, Status> {
    let Some(known) = call.resource.subresource(name) else {
        return Err(match (&call.resource.custom, &call.name) {
            (Some(_), Some(object)) => Status::not_found(call.resource.group_resource(), object),
            _ => Status::no_such_resource(),
        });
    };
    if !known.verbs.iter().any(|v| v == verb) {
        return Err(Status::method_not_allowed());
    }
    match (name, verb) {
        ("scale", "get") => scale::get(call).await,
        ("scale", _) => scale::update(call, verb == "patch").await,
        ("log", _) => logs::get(call),
        (_, "get") => read::get(call).await,
        ("status" | "approval" | "ephemeralcontainers" | "resize", "update") => write::update(call).await,
        ("status" | "approval" | "ephemeralcontainers" | "resize", "patch") => patch::patch(call).await,
        ("finalize", _) => write::finalize(call),
        ("eviction", _) => delete::evict(call).await,
        ("binding", _) => binding::create(call).await,
        ("token", _) => reviews::token(call),
        _ => Err(Status::new(501, "NotImplemented", format!("the in-memory server does not imitate {name}"))),
    }
}
