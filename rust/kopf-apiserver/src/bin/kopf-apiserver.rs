//! Command line of the embedded API server: starts it, writes a kubeconfig, prints its path, and serves until SIGTERM.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use kopf_apiserver::{Controllers, ServerOptions, start};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: kopf-apiserver [--kubeconfig FILE] [--port N] [--plain] [--token TOKEN] [--authorization] [--controllers]";

struct Arguments {
    options: ServerOptions,
    kubeconfig: PathBuf,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut out =
        Arguments { options: ServerOptions::default(), kubeconfig: PathBuf::from("kopf-kubeconfig.yaml") };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--kubeconfig" => out.kubeconfig = value()?.into(),
            "--port" => out.options.port = value()?.parse().map_err(|e| format!("--port: {e}"))?,
            "--token" => out.options.token = Some(value()?),
            "--plain" => out.options.tls = false,
            "--authorization" => out.options.authorization = true,
            "--controllers" => out.options.controllers = Controllers::all(),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(out)
}

async fn serve(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let server = start(arguments.options).await?;
    server.kubeconfig(&arguments.kubeconfig)?;
    writeln!(std::io::stdout(), "{}", arguments.kubeconfig.display())?;
    tokio::select! {
        _ = terminate.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    server.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match parse(std::env::args().skip(1)) {
        Ok(arguments) => serve(arguments).await.map_err(|e| e.to_string()),
        Err(error) => Err(format!("{error}\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // An error of stderr cannot be reported.
            let _ = writeln!(std::io::stderr(), "kopf-apiserver: {error}");
            ExitCode::FAILURE
        }
    }
}
