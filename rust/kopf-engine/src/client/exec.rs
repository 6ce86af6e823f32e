//! Exec plugins of kubeconfigs: commands that print credentials.
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>. The
//! output contains credentials, so it is never quoted.

use std::io::{self, IsTerminal as _};
use std::process::Stdio;
use std::time::Duration;

use kube::config::{ExecConfig, ExecInteractiveMode};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use crate::error::LoginError;

/// How long a plugin may run, if it is not interactive.
const TIMEOUT: Duration = Duration::from_mins(1);
const INTERACTIVE_TIMEOUT: Duration = Duration::from_mins(5);
/// The maximum output in bytes: certificates and tokens are far shorter.
const MAX_OUTPUT: u64 = 1024 * 1024;

/// The output of a plugin.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<ExecStatus>,
}

/// The credentials in the output.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExecStatus {
    /// The expiration time in RFC 3339.
    pub(crate) expiration_timestamp: Option<String>,
    /// The bearer token.
    pub(crate) token: Option<SecretString>,
    /// The client's certificate in the PEM format.
    pub(crate) client_certificate_data: Option<String>,
    /// The client's private key in the PEM format.
    pub(crate) client_key_data: Option<SecretString>,
}

/// The reason why a plugin has returned no credentials.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecError {
    #[error("the auth plugin has no command")]
    NoCommand,
    #[error("the auth plugin {0:?} needs information on the cluster, but there is none")]
    NoCluster(String),
    #[error("the auth plugin {0:?} needs a terminal, as its interactiveMode is Always")]
    NoTerminal(String),
    #[error("the auth plugin {command:?} cannot be run: {source}{hint}")]
    Start { command: String, source: io::Error, hint: String },
    #[error("the command of the auth plugin failed with {0}: run it by hand to see its output")]
    Exit(std::process::ExitStatus),
    #[error("the command of the auth plugin failed with {0}: {1}")]
    ExitWithMessage(std::process::ExitStatus, String),
    #[error("the auth plugin {0:?} was killed, since it did not end in {secs} seconds", secs = .1.as_secs())]
    Timeout(String, Duration),
    #[error("the output of the auth plugin is longer than {MAX_OUTPUT} bytes")]
    TooLong,
    #[error("the output of the auth plugin cannot be parsed{0}")]
    Parse(String),
    #[error("the output of the auth plugin has no token and no certificate with its key")]
    NoStatus,
    #[error("the output of the auth plugin cannot be read: {0}")]
    Read(#[source] io::Error),
}

/// Whether the standard error of a plugin without a terminal is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Messages {
    /// It is discarded, as logs must not contain secrets.
    Discarded,
    /// Its last line is in the error, for the person who has called a command.
    Shown,
}

/// The credentials that a plugin has printed.
#[derive(Debug)]
pub struct PluginCredentials {
    /// The bearer token.
    pub token: Option<SecretString>,
    /// The client's certificate in the PEM format.
    pub certificate: Option<String>,
    /// The client's private key in the PEM format.
    pub private_key: Option<SecretString>,
}

/// Runs a plugin for a command. Unlike those of operators, its errors contain the last line of its standard error.
///
/// # Errors
/// The plugin has returned no credentials.
pub async fn plugin_credentials(config: &ExecConfig) -> Result<PluginCredentials, LoginError> {
    let ran = run_with(config, Messages::Shown).await;
    let status = ran.map_err(|error| plugin_error(&error))?;
    Ok(PluginCredentials {
        token: status.token,
        certificate: status.client_certificate_data,
        private_key: status.client_key_data,
    })
}

/// The login error for a failed plugin.
pub(crate) fn plugin_error(error: &ExecError) -> LoginError {
    LoginError(format!("The kubeconfig cannot be used: {error}"))
}

/// Runs a plugin. The plugin is killed when this is cancelled or the timeout expires.
pub(crate) async fn run(config: &ExecConfig) -> Result<ExecStatus, ExecError> {
    run_with(config, Messages::Discarded).await
}

async fn run_with(config: &ExecConfig, messages: Messages) -> Result<ExecStatus, ExecError> {
    let name = config.command.clone().ok_or(ExecError::NoCommand)?;
    let is_interactive = match config.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !io::stdin().is_terminal() => {
            return Err(ExecError::NoTerminal(name));
        }
        _ => io::stdin().is_terminal(),
    };
    let mut command = command(config, &name, is_interactive)?;
    if messages == Messages::Shown && !is_interactive {
        command.stderr(Stdio::piped());
    }
    let limit = if is_interactive { INTERACTIVE_TIMEOUT } else { TIMEOUT };
    let output = timeout(limit, output(&mut command, config, &name)).await;
    let output = output.map_err(|_| ExecError::Timeout(name, limit))??;
    parse(&output)
}

fn command(config: &ExecConfig, name: &str, is_interactive: bool) -> Result<Command, ExecError> {
    let mut spec = json!({ "interactive": is_interactive });
    if config.provide_cluster_info {
        let cluster = config.cluster.as_ref().ok_or_else(|| ExecError::NoCluster(name.to_owned()))?;
        spec["cluster"] = serde_json::to_value(cluster).unwrap_or_default();
    }
    let info = json!({"apiVersion": config.api_version, "kind": "ExecCredential", "spec": spec});
    let mut command = Command::new(name);
    command.args(config.args.iter().flatten());
    let pairs = config.env.iter().flatten();
    command.envs(pairs.filter_map(|pair| Some((pair.get("name")?, pair.get("value")?))));
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    for name in config.drop_env.iter().flatten() {
        command.env_remove(name);
    }
    // Plugins prompt and report on the terminal, if there is one; never in the log.
    let (input, errors) =
        if is_interactive { (Stdio::inherit(), Stdio::inherit()) } else { (Stdio::null(), Stdio::null()) };
    command.stdin(input).stderr(errors).stdout(Stdio::piped()).kill_on_drop(true);
    Ok(command)
}

async fn output(command: &mut Command, config: &ExecConfig, name: &str) -> Result<Vec<u8>, ExecError> {
    let mut child = command.spawn().map_err(|source| ExecError::Start {
        command: name.to_owned(),
        source,
        hint: config.install_hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})")),
    })?;
    // Both are read at the same time: a full pipe would block the plugin.
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (output, messages) = tokio::try_join!(read(stdout), read(stderr)).map_err(ExecError::Read)?;
    if output.len() as u64 > MAX_OUTPUT {
        return Err(ExecError::TooLong);
    }
    let status = child.wait().await.map_err(ExecError::Read)?;
    if status.success() {
        return Ok(output);
    }
    let messages = String::from_utf8_lossy(&messages);
    Err(match messages.trim_end().lines().next_back() {
        Some(last) => ExecError::ExitWithMessage(status, last.to_owned()),
        None => ExecError::Exit(status),
    })
}

/// Reads a pipe up to the limit.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MAX_OUTPUT + 1).read_to_end(&mut text).await?;
    }
    Ok(text)
}

/// Parses YAML, hence also JSON, as kubectl does.
fn parse(output: &[u8]) -> Result<ExecStatus, ExecError> {
    let parsed: Result<ExecCredential, serde_saphyr::Error> = serde_saphyr::from_slice(output);
    let status = parsed.map_err(|error| ExecError::Parse(super::redact::place(error.location())))?.status;
    let status = status.ok_or(ExecError::NoStatus)?;
    let has_certificate = status.client_certificate_data.is_some() && status.client_key_data.is_some();
    if status.token.is_none() && !has_certificate {
        return Err(ExecError::NoStatus);
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ExecConfig {
        ExecConfig {
            command: Some("sh".to_owned()),
            args: Some(vec!["-c".to_owned(), script.to_owned()]),
            interactive_mode: Some(ExecInteractiveMode::Never),
            ..ExecConfig::default()
        }
    }

    #[tokio::test]
    async fn the_output_is_read_as_json_and_yaml() {
        for output in [
            r#"{"status": {"token": "t", "expirationTimestamp": "2030-01-01T00:00:00Z"}}"#,
            "status: {token: t, expirationTimestamp: '2030-01-01T00:00:00Z'}",
        ] {
            let status = run(&shell(&format!("cat <<'END'\n{output}\nEND"))).await.unwrap();
            assert_eq!(status.expiration_timestamp.as_deref(), Some("2030-01-01T00:00:00Z"));
            assert!(status.token.is_some());
        }
    }

    #[tokio::test]
    async fn failures_name_the_reason_and_never_the_output() {
        let missing = ExecConfig {
            command: Some("/nonexistent/plugin".to_owned()),
            install_hint: Some("install it".to_owned()),
            ..shell("")
        };
        let table = [
            (missing, "cannot be run"),
            (shell("echo planted; exit 3"), "exit status: 3"),
            (shell("echo '[planted'"), "cannot be parsed"),
            (shell("echo '{}'"), "no token"),
            (shell("echo 'status: {clientCertificateData: planted}'"), "no token"),
            (shell("head -c 2000000 /dev/zero"), "longer than"),
            (
                ExecConfig { interactive_mode: Some(ExecInteractiveMode::Always), ..shell("") },
                "needs a terminal",
            ),
        ];
        for (config, part) in table {
            if part == "needs a terminal" && io::stdin().is_terminal() {
                continue;
            }
            let text = run(&config).await.err().unwrap().to_string();
            assert!(text.contains(part) && !text.contains("planted"), "{text}");
        }
    }

    #[tokio::test]
    async fn commands_show_the_last_message_of_a_plugin() {
        let failing = shell("echo first >&2; echo last >&2; echo planted; exit 3");
        let text = plugin_credentials(&failing).await.err().unwrap().to_string();
        assert!(text.ends_with("exit status: 3: last") && !text.contains("planted"), "{text}");
        let discarded = run(&failing).await.err().unwrap().to_string();
        assert!(!discarded.contains("last"), "{discarded}");
        let credentials = plugin_credentials(&shell("echo 'status: {token: t}'")).await.unwrap();
        assert!(credentials.token.is_some() && credentials.certificate.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn plugins_that_hang_are_killed_and_do_not_block_others() {
        let mark = std::env::temp_dir().join(format!("kopf-exec-{}", std::process::id()));
        let script = format!("echo $$ > {}; exec sleep 1000", mark.display());
        let (config, others) = (shell(&script), tokio::time::sleep(Duration::from_secs(1)));
        let hanging = run(&config);
        let mut hanging = std::pin::pin!(hanging);
        tokio::select! {
            _ = &mut hanging => panic!("it hangs"),
            () = others => {}
        }
        // Paused time jumps to the timeout; the process is given real time to start.
        let error = hanging.await.err().unwrap();
        assert!(error.to_string().contains("60 seconds"), "{error}");
        let _ = std::fs::remove_file(&mark);
    }
}
