//! The logs of pods: what tests have written for them.
//!
//! Options are checked as by kube-apiserver. A pod without a node has no log (204).

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Call;
use crate::base::clock;
use crate::cluster::Cluster;
use crate::error::status::{Cause, Status};
use crate::http::request::Query;
use crate::http::response::{Body, BodyStream, NextChunk, Response};
use crate::storage::object::Stored;
use crate::testkit::pod_logs::{LogLine, later};

struct LogOptions {
    follow: bool,
    previous: bool,
    timestamps: bool,
    since: Timestamp,
    tail: Option<usize>,
    limit: usize,
}

/// Responds with the log of a container.
pub(super) fn get(call: &Call<'_>) -> Result<Response, Status> {
    let name = call.name.as_deref().unwrap_or_default();
    let pod = call.cluster.get(&call.resource, &call.namespace, name);
    let pod = pod.ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
    let options = parse(&call.request.query, name)?;
    let value: Value = serde_json::from_slice(&pod.json).unwrap_or_default();
    let container = container_of(&value, name, call.request.query.get("container"))?;
    let lines = call.cluster.pod_logs.since(&pod.uid, &container, options.since);
    let is_scheduled =
        value.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|it| !it.is_empty());
    if lines.is_none() && !is_scheduled {
        return Ok(Response { body: Body::Full(Bytes::new()), ..Response::text(204, "") });
    }
    if options.previous {
        let text = format!("previous terminated container \"{container}\" in pod \"{name}\" not found");
        return Err(Status::bad_request(text));
    }
    let mut lines = lines.unwrap_or_default();
    if let Some(tail) = options.tail {
        lines.drain(..lines.len().saturating_sub(tail));
    }
    let next = lines.last().map_or(options.since, |line| later(line.time));
    let mut stream = LogStream {
        cluster: Arc::clone(call.cluster),
        pod: Arc::clone(&pod),
        container,
        next,
        left: options.limit,
        timestamps: options.timestamps,
        ready: VecDeque::new(),
    };
    stream.write(&lines);
    let mut response = Response::text(200, "");
    response.content_type = "text/plain";
    response.body = if options.follow {
        Body::Stream(Box::new(stream))
    } else {
        Body::Full(stream.ready.into_iter().flatten().collect::<Vec<u8>>().into())
    };
    Ok(response)
}

/// The container: the only one, or the requested one.
fn container_of(pod: &Value, pod_name: &str, requested: &str) -> Result<String, Status> {
    let list = |key: &str| -> Vec<String> {
        let containers = pod.pointer(&format!("/spec/{key}")).and_then(Value::as_array);
        let named = containers.into_iter().flatten().filter_map(|it| it.get("name")?.as_str());
        named.map(str::to_owned).collect()
    };
    let (containers, init) = (list("containers"), list("initContainers"));
    if !requested.is_empty() {
        let is_known =
            [containers, init, list("ephemeralContainers")].concat().iter().any(|it| it == requested);
        let unknown =
            || Status::bad_request(format!("container {requested} is not valid for pod {pod_name}"));
        return if is_known { Ok(requested.to_owned()) } else { Err(unknown()) };
    }
    let default = pod.pointer("/metadata/annotations/kubectl.kubernetes.io~1default-container");
    match (&*containers, default.and_then(Value::as_str)) {
        (all, Some(default)) if all.iter().any(|it| it == default) => Ok(default.to_owned()),
        ([one], _) => Ok(one.clone()),
        (all, _) => {
            let names = [&*init, all].concat().join(" ");
            let text =
                format!("a container name must be specified for pod {pod_name}, choose one of: [{names}]");
            Err(Status::bad_request(text))
        }
    }
}

fn parse(query: &Query, pod: &str) -> Result<LogOptions, Status> {
    let number = |name: &str| -> Result<Option<i64>, Status> {
        let text = query.get(name);
        let syntax = || {
            Status::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", Value::from(text)))
        };
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| syntax()) }
    };
    let (tail, seconds, limit) = (number("tailLines")?, number("sinceSeconds")?, number("limitBytes")?);
    let time = query.get("sinceTime");
    let time = if time.is_empty() {
        None
    } else {
        let layout = "2006-01-02T15:04:05Z07:00";
        let malformed = || {
            let shown = Value::from(time);
            Status::bad_request(format!(
                "parsing time {shown} as \"{layout}\": cannot parse {shown} as \"2006\""
            ))
        };
        Some(time.parse::<Timestamp>().map_err(|_| malformed())?)
    };
    let mut causes = vec![];
    let mut check = |name: &str, value: Option<i64>, least: i64, words: &str| {
        if let Some(value) = value.filter(|value| *value < least) {
            causes.push(Cause::invalid(name, &value.into(), words));
        }
    };
    check("tailLines", tail, 0, "must be greater than or equal to 0");
    check("limitBytes", limit, 1, "must be greater than 0");
    check("sinceSeconds", seconds, 1, "must be greater than 0");
    if time.is_some() && seconds.is_some() {
        causes.push(Cause::forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    if !causes.is_empty() {
        return Err(Status::invalid("", "PodLogOptions", pod, &causes));
    }
    let ago = |seconds: i64| {
        clock::now().saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
    };
    Ok(LogOptions {
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        since: time.or(seconds.map(ago)).unwrap_or(Timestamp::MIN),
        tail: tail.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX)),
        limit: limit.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
    })
}

/// A log that is followed until the pod is gone or has ended.
struct LogStream {
    cluster: Arc<Cluster>,
    pod: Arc<Stored>,
    container: String,
    /// The time of the next lines.
    next: Timestamp,
    /// The number of bytes that may be sent.
    left: usize,
    timestamps: bool,
    ready: VecDeque<Bytes>,
}

impl LogStream {
    fn write(&mut self, lines: &[LogLine]) {
        let mut out = vec![];
        for LogLine { time, text } in lines {
            let time = if self.timestamps { format!("{time:.9} ") } else { String::new() };
            out.extend_from_slice(format!("{time}{text}\n").as_bytes());
        }
        out.truncate(self.left);
        self.left -= out.len();
        if !out.is_empty() {
            self.ready.push_back(out.into());
        }
    }

    /// Whether the pod will not write any more.
    fn has_ended(&self) -> bool {
        let pod = self.cluster.store.get("pods", &self.pod.namespace, &self.pod.name);
        let Some(pod) = pod.filter(|pod| pod.uid == self.pod.uid) else { return true };
        let value: Value = serde_json::from_slice(&pod.json).unwrap_or_default();
        let phase = value.pointer("/status/phase").and_then(Value::as_str);
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    async fn next(&mut self) -> Option<Bytes> {
        let mut written = self.cluster.pod_logs.subscribe();
        let mut pods = self.cluster.store.subscribe(&"pods".into());
        loop {
            written.borrow_and_update();
            pods.borrow_and_update();
            // Before the lines are read: the last ones are sent, too.
            let has_ended = self.has_ended();
            let lines = self.cluster.pod_logs.since(&self.pod.uid, &self.container, self.next);
            if let Some(last) = lines.as_ref().and_then(|lines| lines.last()) {
                self.next = later(last.time);
            }
            self.write(&lines.unwrap_or_default());
            if let Some(chunk) = self.ready.pop_front() {
                return Some(chunk);
            }
            if has_ended || self.left == 0 {
                return None;
            }
            tokio::select! {
                changed = written.changed() => changed.ok()?,
                changed = pods.changed() => changed.ok()?,
            }
        }
    }
}

impl BodyStream for LogStream {
    fn next_chunk(mut self: Box<Self>) -> NextChunk {
        Box::pin(async move {
            let chunk = self.next().await?;
            Some((self as Box<dyn BodyStream>, chunk))
        })
    }
}
