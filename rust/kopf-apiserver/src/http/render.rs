//! Rendering of objects and lists in the requested format and version.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::error::status::Status;
use crate::http::accept::{Endpoint, OutputFormat};
use crate::http::partial::partial;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::http::table;
use crate::scheme::conversion;
use crate::scheme::resources::Resource;
use crate::storage::encoding;
use crate::storage::object::Stored;

/// JSON of an object in the requested version.
pub(crate) fn object_json(object: &Stored, resource: &Resource) -> Bytes {
    let is_of_version = if resource.custom.is_some() {
        object.is_of_version(&resource.api_version())
    } else {
        resource.is_of_version(&resource.storage_api_version)
    };
    if is_of_version || resource.is_converted_by_webhook() {
        return object.json.clone();
    }
    encoding::encode(&object_value(object, resource))
}

pub(crate) fn object_value(object: &Stored, resource: &Resource) -> Value {
    let mut value = object.value();
    conversion::from_storage(&mut value, resource);
    value
}

/// Result of a write.
pub(crate) enum WriteResult {
    Stored(Arc<Stored>),
    Unstored(Value),
}

impl WriteResult {
    pub(crate) fn value(&self, resource: &Resource) -> Value {
        match self {
            Self::Stored(stored) => object_value(stored, resource),
            Self::Unstored(value) => value.clone(),
        }
    }
    /// Response of the write, in the requested format.
    pub(crate) fn response(
        &self,
        code: u16,
        request: &Request,
        resource: &Resource,
    ) -> Result<Response, Status> {
        match self {
            Self::Stored(stored) => object(code, request, resource, stored),
            Self::Unstored(object) => value(code, request, resource, object),
        }
    }
}

/// Response with a stored object, in the requested format.
pub(crate) fn object(
    code: u16,
    request: &Request,
    resource: &Resource,
    object: &Stored,
) -> Result<Response, Status> {
    Ok(match request.output_format(Endpoint::of(resource, false))? {
        OutputFormat::Object => Response::bytes(code, object_json(object, resource)),
        _ => value(code, request, resource, &object_value(object, resource))?,
    })
}

/// Response with an object that is not stored.
pub(crate) fn value(
    code: u16,
    request: &Request,
    resource: &Resource,
    value: &Value,
) -> Result<Response, Status> {
    Ok(match request.output_format(Endpoint::of(resource, false))? {
        OutputFormat::Object => Response::bytes(code, encoding::encode(value)),
        OutputFormat::Partial(version) => Response::json(code, &partial(value, version)),
        OutputFormat::PartialList(_) if resource.custom.is_some() => {
            return Err(Status::internal("content is not a list"));
        }
        OutputFormat::PartialList(_) => return Err(Status::not_a_list(&resource.go_type())),
        OutputFormat::Table(version) => {
            let mut out = table::header(resource, &value["metadata"]["resourceVersion"], true, version);
            let row = table::row(resource, value, include_object(request), version);
            out.insert("rows".into(), Value::Array(vec![row]));
            Response::json(code, &Value::Object(out))
        }
    })
}

/// `includeObject` of table requests.
pub(crate) fn include_object(request: &Request) -> table::IncludeObject {
    match request.query.get("includeObject") {
        "None" => table::IncludeObject::Nothing,
        "Object" => table::IncludeObject::Object,
        _ => table::IncludeObject::Metadata,
    }
}

/// Page of a list.
pub(crate) struct Page {
    pub(crate) version: u64,
    pub(crate) objects: Vec<std::sync::Arc<Stored>>,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
    /// The shard selector of the request.
    pub(crate) shard: Option<String>,
}

fn list_meta(page: &Page, custom: bool) -> Value {
    let mut meta = Map::new();
    if custom {
        meta.insert("continue".into(), "".into());
    }
    if page.version > 0 {
        meta.insert("resourceVersion".into(), page.version.to_string().into());
    }
    if let Some(next) = &page.next {
        meta.insert("continue".into(), next.clone().into());
    }
    if let Some(remaining) = page.remaining {
        meta.insert("remainingItemCount".into(), remaining.into());
    }
    if let Some(selector) = &page.shard {
        meta.insert("shardInfo".into(), json!({"selector": selector}));
    }
    Value::Object(meta)
}

/// Response with a list, in the requested format.
pub(crate) fn list(request: &Request, resource: &Resource, page: &Page) -> Result<Response, Status> {
    Ok(match request.output_format(Endpoint::of(resource, true))? {
        OutputFormat::Object => Response::bytes(200, list_bytes(resource, page)),
        OutputFormat::Partial(_) => return Err(Status::is_a_list(&resource.go_type())),
        OutputFormat::PartialList(version) => {
            let items: Vec<Value> =
                page.objects.iter().map(|o| partial(&object_value(o, resource), version)).collect();
            let (meta, api_version) = (list_meta(page, false), version.api_version());
            let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": meta, "items": items});
            Response::json(200, &list)
        }
        OutputFormat::Table(version) => {
            let mut out = table::header(resource, &Value::Null, true, version);
            out.insert("metadata".into(), list_meta(page, false));
            let include_object = include_object(request);
            let rows = page
                .objects
                .iter()
                .map(|o| table::row(resource, &object_value(o, resource), include_object, version));
            out.insert("rows".into(), rows.collect());
            Response::json(200, &Value::Object(out))
        }
    })
}

fn list_bytes(resource: &Resource, page: &Page) -> Vec<u8> {
    let custom = resource.custom.is_some();
    let size: usize = page.objects.iter().map(|o| o.json.len() + 1).sum();
    let mut out = Vec::with_capacity(size + 256);
    let header = json!({"kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": list_meta(page, custom)});
    let header = header.to_string();
    // Without the braces of the metadata and of the list.
    out.extend_from_slice(header.strip_suffix("}}").unwrap_or(&header).as_bytes());
    out.extend_from_slice(b"},\"items\":[");
    let is_storage_version = resource.is_of_version(&resource.storage_api_version);
    for (i, object) in page.objects.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        if custom {
            out.extend_from_slice(&object_json(object, resource));
        } else if !is_storage_version {
            let mut value = object_value(object, resource);
            if let Some(map) = value.as_object_mut() {
                map.shift_remove("kind");
                map.shift_remove("apiVersion");
            }
            out.extend_from_slice(value.to_string().as_bytes());
        } else {
            // Items of built-in kinds have no `apiVersion` and `kind`.
            out.push(b'{');
            out.extend_from_slice(object.json.get(object.body..).unwrap_or_default());
        }
    }
    out.extend_from_slice(b"]}");
    out
}
