//! The peer of the benchmarks with kube-rs: the same decisions and the same writes as the handlers and reconcilers in `operators/`.
//!
//! It obeys the environment variables of `operators/reporting.py`; `BENCH_MODE` is the workload.

mod bench;
mod handlers;
mod reconcilers;

use anyhow::Result;

use crate::bench::Bench;

#[tokio::main]
async fn main() -> Result<()> {
    let bench = Bench::connect().await?;
    match bench.mode.as_str() {
        "requeue" | "owned" | "apply" => reconcilers::run(bench).await,
        "firehose" => handlers::run_firehose(bench).await,
        _ => handlers::run(bench).await,
    }
}
