//! The only reader of kubeconfigs: of `KUBECONFIG`, else of `~/.kube/config`.
//!
//! kube parses and merges the files. Its errors name neither the file nor the field, and they quote the content, which
//! may be a secret; so the content of a rejected file is examined again for a message that names both.

use std::io;
use std::path::{Path, PathBuf};

use kopf_core::json::value::{Map, Value, python_repr};
pub use kube::config::AuthInfo;
use kube::config::{Cluster, Context, Kubeconfig, KubeconfigError};
use secrecy::{ExposeSecret as _, SecretString};

use crate::client::redact::{explained, place};
use crate::error::LoginError;

/// The fields of contexts, clusters and users that are strings.
const STRINGS: [&str; 18] = [
    "as",
    "as-uid",
    "certificate-authority",
    "certificate-authority-data",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "cluster",
    "namespace",
    "password",
    "proxy-url",
    "server",
    "tls-server-name",
    "token",
    "tokenFile",
    "user",
    "username",
];

/// The reason why the kubeconfigs cannot be used. The messages name the file and the field, and quote no values.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file cannot be read.
    #[error("The kubeconfig cannot be used: failed to read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A file is not YAML, or not a mapping.
    #[error("{0}")]
    Corrupted(String),
    /// A reference to an item that does not exist, or an item without a name.
    #[error("{0}")]
    Missing(String),
    /// Any other reason.
    #[error("{0}")]
    Unusable(String),
}

impl From<ReadError> for LoginError {
    fn from(error: ReadError) -> Self {
        Self(error.to_string())
    }
}

/// The files: those of `KUBECONFIG`, else the default one; none if there is no home directory.
pub fn paths() -> Vec<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    match named {
        Some(value) => {
            let paths = std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty());
            paths.map(|path| expanded(&path)).collect()
        }
        None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    }
}

/// The path with the home directory instead of `~`, which Kopf 1.45 replaces too.
fn expanded(path: &Path) -> PathBuf {
    let trimmed = path.to_str().map_or(path, |text| Path::new(text.trim()));
    match (trimmed.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => trimmed.to_owned(),
    }
}

/// Reads and merges all files. The first value of several files is used. Missing files are skipped, as in kubectl, unless all are
/// missing.
///
/// # Errors
/// A file cannot be read, or cannot be parsed as a kubeconfig.
pub fn read() -> Result<Kubeconfig, ReadError> {
    read_files(&existing(paths()))
}

fn existing(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let existing: Vec<_> = paths.iter().filter(|path| path.exists()).cloned().collect();
    if existing.is_empty() { paths } else { existing }
}

/// Reads one file.
///
/// # Errors
/// The file cannot be read, or cannot be parsed as a kubeconfig.
pub fn read_file(path: &Path) -> Result<Kubeconfig, ReadError> {
    read_files(&[expanded(path)])
}

fn read_files(paths: &[PathBuf]) -> Result<Kubeconfig, ReadError> {
    paths.iter().try_fold(Kubeconfig::default(), |merged, path| {
        let file = Kubeconfig::read_from(path).map_err(|error| rejection(path, error))?;
        merged.merge(file).map_err(|error| rejection(path, error))
    })
}

/// The items that the current context of merged kubeconfigs selects, without their empty fields, which kubectl ignores.
#[derive(Debug)]
pub struct Current {
    /// The context.
    pub context: Context,
    /// The cluster.
    pub cluster: Cluster,
    /// The user; none if the context has none, or one that does not exist, as in kubectl.
    pub user: Option<AuthInfo>,
    name: String,
}

impl Current {
    /// Looks up the current context, its cluster, and its user.
    ///
    /// # Errors
    /// There is no current context or cluster.
    pub fn of(file: &Kubeconfig) -> Result<Self, ReadError> {
        let Some(name) = file.current_context.as_deref().filter(|name| !name.is_empty()) else {
            return Err(ReadError::Unusable("Current context is not set in kubeconfigs.".to_owned()));
        };
        let context = file.contexts.iter().find(|named| named.name == name);
        let context = context.ok_or_else(|| missing("context", "current-context", Some(name)))?;
        let mut context = context.context.clone().unwrap_or_default();
        let cluster = file.clusters.iter().find(|named| named.name == context.cluster);
        let referred = Some(context.cluster.as_str()).filter(|name| !name.is_empty());
        let cluster =
            cluster.ok_or_else(|| missing("cluster", &format!("contexts[{name}].cluster"), referred))?;
        let mut cluster = cluster.cluster.clone().unwrap_or_default();
        let user = file.auth_infos.iter().find(|named| Some(&named.name) == context.user.as_ref());
        let mut user = user.map(|named| named.auth_info.clone().unwrap_or_default());
        context.namespace = context.namespace.filter(|name| !name.is_empty());
        remove_empty_fields(&mut cluster, user.as_mut());
        Ok(Self { cluster, user, context, name: name.to_owned() })
    }

    /// The user, where it is required.
    ///
    /// # Errors
    /// There is no such user.
    pub fn required_user(&self) -> Result<&AuthInfo, ReadError> {
        let referrer = || format!("contexts[{}].user", self.name);
        self.user.as_ref().ok_or_else(|| missing("user", &referrer(), self.context.user.as_deref()))
    }
}

fn remove_empty_fields(cluster: &mut Cluster, user: Option<&mut AuthInfo>) {
    let texts =
        [&mut cluster.certificate_authority_data, &mut cluster.tls_server_name, &mut cluster.proxy_url];
    texts.into_iter().for_each(remove_if_empty);
    remove_if_folder(&mut cluster.certificate_authority);
    let Some(user) = user else { return };
    let texts = [
        &mut user.username,
        &mut user.client_certificate_data,
        &mut user.impersonate,
        &mut user.impersonate_uid,
    ];
    texts.into_iter().for_each(remove_if_empty);
    [&mut user.client_certificate, &mut user.client_key, &mut user.token_file]
        .into_iter()
        .for_each(remove_if_folder);
    for secret in [&mut user.token, &mut user.client_key_data] {
        *secret = secret.take().filter(|secret| !secret.expose_secret().is_empty());
    }
}

fn remove_if_empty(text: &mut Option<String>) {
    *text = text.take().filter(|text| !text.is_empty());
}

/// Removes a path that was empty: kube completes relative paths with the folder of the kubeconfig.
fn remove_if_folder(path: &mut Option<String>) {
    *path = path.take().filter(|path| !path.is_empty() && !path.ends_with(std::path::is_separator));
}

/// The current context, for messages.
#[derive(Debug, PartialEq, Eq)]
pub struct CurrentAddress {
    /// The name of the context.
    pub context: String,
    /// The file that has it.
    pub path: PathBuf,
    /// The address of its cluster.
    pub server: String,
}

/// The current context with its address; none if the kubeconfigs are unusable.
pub fn current_address() -> Option<CurrentAddress> {
    address_in(&existing(paths()))
}

fn address_in(paths: &[PathBuf]) -> Option<CurrentAddress> {
    let current = Current::of(&read_files(paths).ok()?).ok()?;
    let has_context = |path: &&PathBuf| {
        let file = Kubeconfig::read_from(path);
        file.is_ok_and(|file| file.contexts.iter().any(|named| named.name == current.name))
    };
    let path = paths.iter().find(has_context)?.clone();
    Some(CurrentAddress { context: current.name, path, server: current.cluster.server? })
}

/// The token of a user: its own, else one that an auth provider of old clients has stored.
pub fn token_of(user: &AuthInfo) -> Option<&str> {
    let own = user.token.as_ref().map(SecretString::expose_secret).filter(|token| !token.is_empty());
    own.or_else(|| Some(user.auth_provider.as_ref()?.config.get("access-token")?.as_str()))
}

fn missing(item: &str, referrer: &str, name: Option<&str>) -> ReadError {
    let files: Vec<_> = paths().iter().map(|path| path.display().to_string()).collect();
    let target = match name {
        Some(name) => format!("{}, which is in no kubeconfig", python_repr(&Value::String(name.to_owned()))),
        None => "nothing".to_owned(),
    };
    let files = files.join(":");
    ReadError::Missing(format!("The {item} cannot be found: {referrer} of {files} refers to {target}."))
}

/// The error for a file that kube rejects.
fn rejection(path: &Path, error: KubeconfigError) -> ReadError {
    match error {
        KubeconfigError::ReadConfig(error, path) => ReadError::Unreadable { path, error },
        KubeconfigError::Parse(error) => {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let at = place(error.location());
            problem_of(path, &text).unwrap_or_else(|| {
                ReadError::Corrupted(format!("The kubeconfig {} cannot be parsed{at}.", path.display()))
            })
        }
        error => ReadError::Unusable(format!(
            "The kubeconfig {} cannot be used: {}",
            path.display(),
            explained(&error)
        )),
    }
}

/// The first field that is not what a kubeconfig has there.
fn problem_of(path: &Path, text: &str) -> Option<ReadError> {
    let path = path.display();
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).ok()?;
    for document in &documents {
        let Value::Object(file) = document else {
            return Some(ReadError::Corrupted(format!("The kubeconfig {path} is not a mapping.")));
        };
        for (list, key) in [("contexts", "context"), ("clusters", "cluster"), ("users", "user")] {
            let items = match file.get(list) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(items)) => items,
                Some(_) => {
                    return Some(ReadError::Unusable(format!(
                        "The kubeconfig {path} has {list} that are not a list."
                    )));
                }
            };
            for (number, item) in items.iter().enumerate() {
                if item.get("name").and_then(Value::as_str).is_none() {
                    return Some(ReadError::Missing(format!(
                        "The kubeconfig {path} has no name in {list}[{number}]."
                    )));
                }
                let field = format!("{list}[{number}].{key}");
                let problem = match item.get(key) {
                    None | Some(Value::Null) => continue,
                    Some(Value::Object(fields)) => field_problem(key, fields),
                    Some(_) => Some(" that is not a mapping".to_owned()),
                };
                if let Some(problem) = problem {
                    return Some(ReadError::Unusable(format!("The kubeconfig {path} has {field}{problem}.")));
                }
            }
        }
    }
    None
}

/// The problem of a field of a context, a cluster, or a user.
fn field_problem(item: &str, fields: &Map<String, Value>) -> Option<String> {
    if item == "context" && !fields.contains_key("cluster") {
        return Some(" without a cluster".to_owned());
    }
    let is_wrong = |name: &str, value: &Value| match name {
        "insecure-skip-tls-verify" | "disable-compression" => !value.is_boolean(),
        "auth-provider" | "exec" | "as-user-extra" => !value.is_object(),
        "extensions" | "as-groups" => !value.is_array(),
        name => STRINGS.contains(&name) && !value.is_string(),
    };
    let wrong = fields.iter().find(|(name, value)| !value.is_null() && is_wrong(name, value));
    if let Some((name, _)) = wrong {
        return Some(format!(".{name} of a wrong type"));
    }
    let provider = fields.get("auth-provider").filter(|provider| !provider.is_null());
    provider
        .filter(|provider| provider.get("name").is_none())
        .map(|_| ".auth-provider without a name".to_owned())
}

#[cfg(test)]
mod tests;
