//! Servers scripted by the tests, byte for byte, behind in-memory connections.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::timeout;

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const REPEATABLE: SendOptions = SendOptions { is_idempotent: true, connect_timeout: Duration::from_secs(5) };
const ONCE: SendOptions = SendOptions { is_idempotent: false, ..REPEATABLE };

/// A client, and the number of connections it has opened. The server handles each connection with `serve`, by its
/// number.
fn client<F>(
    serve: impl Fn(usize, DuplexStream) -> F + Clone + Send + Sync + 'static,
) -> (Http1Client, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let opened: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&opened);
    let connector: Connector = Box::new(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let (near, far) = duplex(1024);
        tokio::spawn(serve(number, far));
        Box::pin(std::future::ready(Ok(Box::new(TokioIo::new(near)) as Box<dyn Transport>)))
    });
    (Http1Client::new(connector), opened)
}

fn request(method: &str, body: &[u8]) -> Result<Request<Full<Bytes>>, BoxError> {
    let request = Request::builder().method(method).uri("/path").header("host", "h");
    Ok(request.body(Full::new(Bytes::copy_from_slice(body)))?)
}

async fn get(client: &Http1Client) -> Result<(u16, Bytes), BoxError> {
    let response = client.send(|| request("GET", b""), REPEATABLE).await?;
    Ok((response.status().as_u16(), response.into_body().collect().await?.to_bytes()))
}

/// The next request: its head, and as much of its body as the head announces. None at the end of the connection.
async fn next_request(stream: &mut DuplexStream) -> Option<String> {
    let mut got = Vec::new();
    let mut byte = [0];
    while !got.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).await.unwrap_or(0) == 0 {
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

async fn serve_ok(stream: &mut DuplexStream) -> bool {
    next_request(stream).await.is_some() && stream.write_all(OK.as_bytes()).await.is_ok()
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn requests_share_a_connection_and_spawn_one_task_at_most() {
    let (client, opened) = client(|_, mut stream| async move { while serve_ok(&mut stream).await {} });
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for _ in 0..100 {
        assert_eq!(get(&client).await.unwrap(), (200, Bytes::from_static(b"ok")));
    }
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    let after = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(
        after - before <= 2,
        "the server's task and the one that closes idle connections: {before} {after}"
    );
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_after_a_while() {
    let (client, _) = client(|_, mut stream| async move { while serve_ok(&mut stream).await {} });
    get(&client).await.unwrap();
    assert_eq!(client.pool.lock().idle.len(), 1);
    sleep(IDLE_TIMEOUT * 2 + Duration::from_secs(1)).await;
    assert_eq!(client.pool.lock().idle.len(), 0);
    assert!(client.pool.lock().closing.is_none());
    get(&client).await.unwrap();
    assert!(client.pool.lock().closing.is_some());
}

#[tokio::test]
async fn closed_connections_and_those_with_unexpected_bytes_are_not_reused() {
    for after in ["", "unasked"] {
        let (client, opened) = client(move |_, mut stream| async move {
            serve_ok(&mut stream).await;
            let _ = stream.write_all(after.as_bytes()).await;
        });
        for _ in 0..2 {
            assert_eq!(get(&client).await.unwrap().0, 200);
            settle().await;
        }
        assert_eq!(opened.load(Ordering::Relaxed), 2);
    }
}

#[tokio::test]
async fn a_reused_connection_that_closes_instead_of_answering_is_replaced_at_once() {
    // Each connection serves one request, and closes on the second one.
    let (client, opened) = client(|_, mut stream| async move {
        serve_ok(&mut stream).await;
        next_request(&mut stream).await;
    });
    for _ in 0..3 {
        assert_eq!(get(&client).await.unwrap().0, 200);
    }
    assert_eq!(opened.load(Ordering::Relaxed), 3);
    assert!(client.send(|| request("POST", b"{}"), ONCE).await.is_err(), "creations are not repeated");
}

#[tokio::test]
async fn a_request_that_cannot_be_repeated_is_sent_once_if_a_reused_connection_closes_instead_of_answering() {
    let received: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&received);
    let (client, opened) = client(move |_, mut stream| {
        let count = Arc::clone(&count);
        async move {
            serve_ok(&mut stream).await;
            if next_request(&mut stream).await.is_some() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    get(&client).await.unwrap();
    let response = client.send(|| request("POST", b"new"), ONCE).await;
    assert!(response.is_err_and(|error: BoxError| error.to_string().contains("connection closed")));
    assert_eq!((received.load(Ordering::Relaxed), opened.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test]
async fn a_request_that_was_not_sent_is_repeated_even_if_it_cannot_be_sent_twice() {
    let idle: Arc<Mutex<Vec<DuplexStream>>> = Arc::default();
    let kept = Arc::clone(&idle);
    let (client, opened) = client(move |_, mut stream| {
        let kept = Arc::clone(&kept);
        async move {
            serve_ok(&mut stream).await;
            kept.lock().unwrap().push(stream);
        }
    });
    get(&client).await.unwrap();
    settle().await;
    // The server closes the idle connection after it was taken from the pool, but before the request is sent.
    let closing = || {
        idle.lock().unwrap().clear();
        request("POST", b"new")
    };
    let response = client.send(closing, ONCE).await.map_err(|error: BoxError| error);
    assert_eq!((response.unwrap().status().as_u16(), opened.load(Ordering::Relaxed)), (200, 2));
}

/// A server that responds at once to the first request of a connection, and then as the function does. Counts the requests.
fn client_with_later_responses<F>(
    later: impl Fn(DuplexStream) -> F + Clone + Send + Sync + 'static,
) -> (Http1Client, Arc<AtomicUsize>, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let received: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&received);
    let (client, opened) = client(move |_, mut stream| {
        let (count, later) = (Arc::clone(&count), later.clone());
        async move {
            serve_ok(&mut stream).await;
            if next_request(&mut stream).await.is_some() {
                count.fetch_add(1, Ordering::Relaxed);
                later(stream).await;
            }
        }
    });
    (client, opened, received)
}

#[tokio::test(start_paused = true)]
async fn a_response_that_takes_long_is_awaited_and_its_request_is_sent_once() {
    let (client, opened, received) = client_with_later_responses(|mut stream| async move {
        sleep(Duration::from_mins(4)).await;
        let _ = stream.write_all(OK.as_bytes()).await;
    });
    get(&client).await.unwrap();
    for method in ["GET", "PATCH"] {
        let start = Instant::now();
        let response = client.send(|| request(method, b"{}"), REPEATABLE).await;
        assert_eq!(response.map_err(|error: BoxError| error).unwrap().status(), 200);
        assert_eq!(start.elapsed(), Duration::from_mins(4));
        assert_eq!((received.swap(0, Ordering::Relaxed), opened.swap(0, Ordering::Relaxed)), (1, 1));
        get(&client).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reused_connection_that_fails_while_a_response_is_awaited_is_replaced_at_once() {
    // As the kernel reports a connection whose other side acknowledges nothing.
    let (client, opened, received) = client_with_later_responses(|stream| async move {
        sleep(Duration::from_secs(30)).await;
        drop(stream);
    });
    get(&client).await.unwrap();
    let start = Instant::now();
    assert_eq!(get(&client).await.unwrap().0, 200);
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    assert_eq!((received.load(Ordering::Relaxed), opened.load(Ordering::Relaxed)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_request_on_a_reused_connection_closes_the_other_idle_ones() {
    let (client, opened) = client(|number, mut stream| async move {
        serve_ok(&mut stream).await;
        if number < 2 {
            while next_request(&mut stream).await.is_some() {}
        }
    });
    let (first, second) = tokio::join!(get(&client), get(&client));
    assert!(first.is_ok() && second.is_ok());
    assert!(timeout(Duration::from_secs(1), get(&client)).await.is_err());
    assert_eq!(get(&client).await.unwrap().0, 200);
    assert_eq!(opened.load(Ordering::Relaxed), 3, "not over the second connection, which is broken as well");
}

#[tokio::test(start_paused = true)]
async fn connections_must_be_established_in_time() {
    let client = Http1Client::new(Box::new(|| Box::pin(std::future::pending())));
    let error = get(&client).await.unwrap_err();
    assert_eq!(error.to_string(), "the connection was not established in 5 seconds");
}

#[tokio::test]
async fn partial_responses_are_errors() {
    for text in [
        "",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nx",
    ] {
        let (client, _) = client(move |_, mut stream| async move {
            next_request(&mut stream).await;
            let _ = stream.write_all(text.as_bytes()).await;
        });
        assert!(get(&client).await.is_err(), "{text:?}");
    }
}

#[tokio::test]
async fn lengths_and_heads_are_strict() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(MAX_HEAD));
    let table = [
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nok",
        long.as_str(),
    ];
    for text in table {
        let text = text.to_owned();
        let (client, _) = client(move |_, mut stream| {
            let text = text.clone();
            async move {
                next_request(&mut stream).await;
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        assert!(get(&client).await.is_err());
    }
}

#[tokio::test]
async fn an_early_response_is_accepted_although_the_request_was_not_read() {
    let (client, opened) = client(|_, mut stream| async move {
        let rejection = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        stream.write_all(rejection.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    for _ in 0..2 {
        let response = client.send(|| request("PATCH", &vec![b' '; 100_000]), REPEATABLE).await.unwrap();
        assert_eq!(response.status(), 413);
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(opened.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn streams_are_read_piece_by_piece_and_return_their_connection_at_the_end() {
    let (client, opened) = client(|_, mut stream| async move {
        next_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
        for _ in 0..3 {
            settle().await;
            stream.write_all(b"2\r\nab\r\n").await.unwrap();
        }
        settle().await;
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        while serve_ok(&mut stream).await {}
    });
    let mut body = client.send(|| request("GET", b""), REPEATABLE).await.unwrap().into_body();
    let mut pieces = 0;
    while let Some(frame) = body.frame().await {
        assert_eq!(frame.unwrap().into_data().unwrap(), "ab");
        pieces += 1;
    }
    assert_eq!(pieces, 3);
    assert_eq!(get(&client).await.unwrap().0, 200);
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_abandoned_stream_closes_its_connection() {
    let (ended, wait) = tokio::sync::oneshot::channel();
    let ended = Arc::new(Mutex::new(Some(ended)));
    let (client, _) = client(move |_, mut stream| {
        let ended = ended.lock().unwrap().take();
        async move {
            next_request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
            let mut byte = [0];
            let end = stream.read(&mut byte).await;
            let _ = ended.unwrap().send(end.is_ok_and(|length| length == 0));
        }
    });
    drop(client.send(|| request("GET", b""), REPEATABLE).await.unwrap());
    assert!(timeout(Duration::from_secs(10), wait).await.unwrap().unwrap());
    assert!(client.pool.lock().idle.is_empty());
}

#[tokio::test]
async fn connection_errors_keep_their_cause() {
    let client = Http1Client::new(Box::new(|| {
        Box::pin(std::future::ready(Err(BoxError::from(io::Error::other("no route")))))
    }));
    assert_eq!(get(&client).await.unwrap_err().to_string(), "no route");
}
