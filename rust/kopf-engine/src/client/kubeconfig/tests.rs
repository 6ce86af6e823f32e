//! Kubeconfigs in files of a temporary folder.

use super::*;

const GOOD: &str = "
current-context: here
contexts: [{name: here, context: {cluster: home, user: me, namespace: mine}}]
clusters: [{name: home, cluster: {server: 'https://h', certificate-authority: ca.crt}}]
users: [{name: me, user: {token: planted}}]
";

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kopf-kubeconfig-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_first_value_of_several_files_is_used_and_paths_are_relative_to_their_file() {
    let folder = Folder::new("merged");
    let first = folder.write("first", GOOD);
    let second = folder.write("second", &GOOD.replace("current-context: here", "current-context: there"));
    let current = Current::of(&read_files(&[first, second]).unwrap()).unwrap();
    assert_eq!(current.cluster.certificate_authority.as_deref(), folder.0.join("ca.crt").to_str());
    assert_eq!(current.context.namespace.as_deref(), Some("mine"));
    assert_eq!(token_of(current.required_user().unwrap()), Some("planted"));
}

#[test]
fn missing_files_are_skipped_unless_all_are_missing() {
    let folder = Folder::new("missing");
    let (good, none) = (folder.write("config", GOOD), folder.0.join("none"));
    assert_eq!(existing(vec![none.clone(), good.clone()]), [good]);
    assert_eq!(existing(vec![none.clone(), none.clone()]), [none.clone(), none]);
}

#[test]
fn empty_fields_are_as_absent_ones() {
    let folder = Folder::new("empty");
    let cluster = "server: 'https://h', certificate-authority: '', certificate-authority-data: '', tls-server-name: '', proxy-url: ''";
    let user = "token: '', tokenFile: '', username: '', client-certificate: '', client-key: '', client-key-data: '', as: ''";
    let file = GOOD
        .replace("namespace: mine", "namespace: ''")
        .replace("server: 'https://h', certificate-authority: ca.crt", cluster)
        .replace("token: planted", user);
    let current = Current::of(&read_file(&folder.write("config", &file)).unwrap()).unwrap();
    assert_eq!(current.context.namespace, None);
    let fields = serde_json::to_value(&current.cluster).unwrap();
    assert_eq!(fields, serde_json::json!({"server": "https://h"}));
    let fields = serde_json::to_value(&current.user).unwrap();
    assert!(fields.as_object().unwrap().values().all(serde_json::Value::is_null), "{fields}");
}

#[test]
fn rejected_files_are_named_with_the_field_and_without_their_secrets() {
    let table = [
        (GOOD.replace("user: {token: planted}", "user: planted"), "has users[0].user that is not a mapping."),
        (
            GOOD.replace("{token: planted}", "{token: {planted: 5}}"),
            "has users[0].user.token of a wrong type.",
        ),
        (
            GOOD.replace("{token: planted}", "{auth-provider: {}}"),
            "users[0].user.auth-provider without a name.",
        ),
        (GOOD.replace("cluster: home, user", "user"), "has contexts[0].context without a cluster."),
        (GOOD.replace("contexts: [", "contexts: [{}, "), "has no name in contexts[0]."),
        ("clusters: 5".to_owned(), "has clusters that are not a list."),
        ("[planted]".to_owned(), "is not a mapping."),
        ("users: [{planted".to_owned(), "cannot be parsed at line 1"),
    ];
    let folder = Folder::new("rejected");
    for (text, part) in table {
        let path = folder.write("config", &text);
        let message = read_files(std::slice::from_ref(&path)).err().unwrap().to_string();
        assert!(message.contains(part) && message.contains(path.to_str().unwrap()), "{part}: {message}");
        assert!(!message.contains("planted"), "{message}");
    }
    let message = read_files(&[folder.0.join("nothing")]).err().unwrap().to_string();
    assert!(message.starts_with("The kubeconfig cannot be used: failed to read "), "{message}");
}

#[test]
fn the_address_is_that_of_the_current_context_with_its_file() {
    let folder = Folder::new("address");
    let overlay = folder.write("overlay", "current-context: here");
    let config = folder.write("config", GOOD);
    let expected =
        CurrentAddress { context: "here".to_owned(), path: config.clone(), server: "https://h".to_owned() };
    assert_eq!(address_in(&[overlay.clone(), config]), Some(expected));
    assert_eq!(address_in(&[overlay]), None, "the context does not exist");
    assert_eq!(address_in(&[folder.0.join("absent")]), None);
}

#[test]
fn references_to_nothing_are_named() {
    let table = [
        (GOOD.replace("current-context: here", ""), "Current context is not set in kubeconfigs."),
        (
            GOOD.replace("current-context: here", "current-context: there"),
            "The context cannot be found: current-context of ",
        ),
        (GOOD.replace("cluster: home,", "cluster: away,"), "refers to 'away', which is in no kubeconfig."),
        (GOOD.replace("user: me", "to: me"), "The user cannot be found: contexts[here].user of "),
    ];
    for (text, part) in table {
        let file = Kubeconfig::from_yaml(&text).unwrap();
        let found = Current::of(&file).and_then(|current| current.required_user().map(drop));
        let message = found.err().unwrap().to_string();
        assert!(message.contains(part), "{message}");
    }
    // Without a user, requests are anonymous.
    let file = Kubeconfig::from_yaml(&GOOD.replace("user: me", "to: me")).unwrap();
    assert!(Current::of(&file).unwrap().user.is_none());
}
