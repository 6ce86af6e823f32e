//! A server that says what a test wants, byte for byte.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A wire to a server which does this with each connection; and how many there were.
fn wire<F>(
    config: &Config,
    serve: impl Fn(DuplexStream) -> F + Clone + Send + Sync + 'static,
) -> (Wire, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let dialled: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&dialled);
    let connector = tower::service_fn(move |_: Uri| {
        count.fetch_add(1, Ordering::Relaxed);
        let (near, far) = duplex(1024);
        tokio::spawn(serve(far));
        ready(Ok::<_, io::Error>(TokioIo::new(near)))
    });
    (Wire::new(config, connector).unwrap(), dialled)
}

fn get(url: &str) -> Question<'_> {
    Question { method: &Method::GET, url, accept: "application/json", content_type: None }
}

fn patch(url: &str) -> Question<'_> {
    Question { method: &Method::PATCH, content_type: Some("application/json"), ..get(url) }
}

fn config() -> Config {
    let mut config = Config::new("https://example.com:6443/base/".parse().unwrap());
    config.auth_info.token = Some("secret".to_owned().into());
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static("kopf")));
    config
}

/// The next request: its head and so much of its body as it says. Nothing, if there is none.
async fn request(stream: &mut DuplexStream) -> Option<String> {
    let mut got = Vec::new();
    let mut byte = [0];
    while !got.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).await.unwrap() == 0 {
            return None;
        }
        got.push(byte[0]);
    }
    let head = String::from_utf8(got).unwrap();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    Some(head + std::str::from_utf8(&body).unwrap())
}

#[tokio::test]
async fn requests_say_who_asks_and_share_a_connection() {
    let got: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&got);
    let (wire, dialled) = wire(&config(), move |mut stream| {
        let kept = Arc::clone(&kept);
        async move {
            while let Some(text) = request(&mut stream).await {
                kept.lock().unwrap().push(text);
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
        }
    });
    let answer = wire.ask(patch("/apis/x?y=z"), b"{}").await.unwrap();
    assert_eq!((answer.status, &*answer.body), (200, &b"ok"[..]));
    wire.ask(get("/api"), b"").await.unwrap();
    assert_eq!(dialled.load(Ordering::Relaxed), 1);
    let says = "host: example.com:6443\r\nauthorization: Bearer secret\r\nuser-agent: kopf\r\naccept: application/json\r\n";
    assert_eq!(
        *got.lock().unwrap(),
        [
            format!(
                "PATCH /base/apis/x?y=z HTTP/1.1\r\n{says}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
            ),
            format!("GET /base/api HTTP/1.1\r\n{says}\r\n"),
        ]
    );
}

#[tokio::test]
async fn closed_and_unruly_connections_are_not_used_again() {
    for after in ["", "unasked"] {
        let (wire, dialled) = wire(&config(), move |mut stream| async move {
            request(&mut stream).await;
            stream.write_all(OK.as_bytes()).await.unwrap();
            stream.write_all(after.as_bytes()).await.unwrap();
        });
        for _ in 0..2 {
            assert_eq!(wire.ask(get("/"), b"").await.unwrap().status, 200);
            // The server goes on to the end of the connection.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(dialled.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_nobody_needs_are_closed() {
    let (wire, _) = wire(&config(), |mut stream| async move {
        while request(&mut stream).await.is_some() {
            stream.write_all(OK.as_bytes()).await.unwrap();
        }
    });
    wire.ask(get("/"), b"").await.unwrap();
    assert_eq!(lock(&wire.idle).len(), 1);
    sleep(IDLE * 2 + Duration::from_secs(1)).await;
    assert_eq!(lock(&wire.idle).len(), 0);
}

#[tokio::test]
async fn what_is_not_answered_is_told_from_what_is_answered_in_part() {
    for (text, is_cut) in
        [("", false), ("HTTP/1.1 200", false), ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", true)]
    {
        let (wire, _) = wire(&config(), move |mut stream| async move {
            request(&mut stream).await;
            stream.write_all(text.as_bytes()).await.unwrap();
        });
        let error = wire.ask(get("/"), b"").await.unwrap_err();
        assert_eq!(matches!(error, WireError::Cut(_)), is_cut, "{text:?} {error}");
    }
}

#[tokio::test]
async fn an_answer_counts_though_the_request_was_not_read() {
    let (wire, dialled) = wire(&config(), |mut stream| async move {
        let refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(refusal.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    for _ in 0..2 {
        let answer = wire.ask(patch("/"), &vec![b' '; 100_000]).await.unwrap();
        assert_eq!(answer.status, 413);
    }
    assert_eq!(dialled.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn tokens_of_files_are_read_for_each_request() {
    let path = std::env::temp_dir().join(format!("kopf-wire-token-{}", std::process::id()));
    std::fs::write(&path, "of-the-file").unwrap();
    let mut config = Config::new("http://example.com".parse().unwrap());
    config.auth_info.token_file = Some(path.to_string_lossy().into_owned());
    let wire = Wire::new(
        &config,
        tower::service_fn(|_: Uri| ready(Err::<TokioIo<DuplexStream>, _>(io::Error::other("no")))),
    )
    .unwrap();
    assert_eq!(wire.headers, None);
    let text = wire.stamped().await.unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(text, "host: example.com\r\nauthorization: Bearer of-the-file\r\n");
    assert!(matches!(wire.ask(get("/"), b"").await, Err(WireError::Unreachable(_))));
}

#[test]
fn only_what_is_simple_goes_this_way() {
    assert!(Wire::is_plain("/apis/kopf.dev/v1/namespaces/ns/things/a-1.b?watch=true&x=%20,y"));
    for url in ["", "x", "/a b", "/é", "/a\r\nx: y", "/a#b", "/a\"b"] {
        assert!(!Wire::is_plain(url), "{url:?}");
    }
}
