//! Logs of containers, for users' code.

use std::sync::Arc;

use http::Method;
use kopf_core::log_level::Level;
use kopf_core::user_request::{Call, LogLines};
use tokio::runtime::Handle;

use super::attempts::{attempt_of, failed, retry_after};
use super::streams::{Queue, StreamItem, UserStream};
use super::{Api, CallError, CallOptions, LOGGER};
use crate::client::{RequestHead, StreamBody};
use crate::error::RequestError;
use crate::host::LogRecord;
use crate::time::duration::seconds;

/// The parameters that select the first line. After a break, the time of the last line replaces them.
const STARTS: [&str; 3] = ["tailLines", "sinceSeconds", "sinceTime"];

/// A log that is read.
struct Reading<'a> {
    api: &'a Api,
    kind: &'a str,
    call: Call,
    options: &'a CallOptions,
    lines: LogLines,
    queue: &'a Queue,
}

impl Api {
    /// Reads the log of a container, line by line. After a broken connection, it continues with the next line.
    ///
    /// # Errors
    /// There are too many streams.
    pub fn logs(
        &self,
        runtime: &Handle,
        (kind, call): (String, Call),
        options: CallOptions,
        with_times: bool,
    ) -> Result<UserStream, CallError> {
        let api = self.clone();
        self.open_stream(runtime, move |queue: Arc<Queue>| async move {
            let reading = Reading {
                api: &api,
                kind: &kind,
                call,
                options: &options,
                lines: LogLines::new(with_times),
                queue: &queue,
            };
            reading.run().await
        })
    }
}

impl Reading<'_> {
    async fn run(mut self) -> Result<(), CallError> {
        // Always with times, by which the log continues after a break.
        self.call.query.push(("timestamps".to_owned(), "true".to_owned()));
        let client = self.api.client.with_headers(&self.options.headers);
        let networking = &client.settings().networking;
        let policy = networking
            .error_backoffs
            .policy(client.next_request())
            .with_retry_after_enforced(networking.enforce_retry_after);
        let mut retries = policy.retries();
        loop {
            let (resource, request, _) = self.api.prepare(self.kind, &self.call, self.options).await?;
            let head = RequestHead {
                method: &Method::GET,
                url: &request.url,
                accept: request.accept,
                content_type: None,
                is_idempotent: true,
                may_end_with_slash: false,
            };
            let error = match client.send_for_stream(head).await {
                Ok(body) => {
                    retries = policy.retries();
                    match self.read(body).await {
                        Ok(()) => return Ok(()),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            let is_retried =
                attempt_of(&error).is_some_and(|attempt| request.idempotency.is_retried_after(attempt));
            let may_retry = self.options.retries && is_retried;
            let delay = if may_retry { retries.next(retry_after(&error), 0.0) } else { None };
            let Some(delay) = delay else {
                let error = failed(&error).about(&request.subject);
                if let CallError::Failed(failure) = &error {
                    self.api.discovery.on_failure(&resource, failure);
                }
                return Err(error);
            };
            let subject = &request.subject;
            let text = format!(
                "The log is interrupted; will continue in {} seconds: {subject}: {error}",
                delay.seconds
            );
            client.host().log(LogRecord::general(Level::Warning, LOGGER, text));
            if let Some(time) = self.lines.resume() {
                self.call.query.retain(|(name, _)| !STARTS.contains(&&**name));
                self.call.query.push(("sinceTime".to_owned(), time.to_string()));
            }
            client.clock().sleep(seconds(delay.seconds)).await;
        }
    }

    /// Reads until the end of the log.
    async fn read(&mut self, mut body: StreamBody) -> Result<(), RequestError> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| RequestError::Transport(error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            for line in self.lines.feed(&data) {
                self.queue.put(StreamItem::Line(line));
            }
            if self.queue.is_full() {
                self.queue.until_taken().await;
            }
        }
        if let Some(line) = self.lines.finish() {
            self.queue.put(StreamItem::Line(line));
        }
        Ok(())
    }
}
