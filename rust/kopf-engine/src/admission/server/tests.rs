//! The webhook server from the clients' point of view.

use std::os::unix::net::UnixStream as StdStream;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// The webhook, the headers, the client's certificate.
type Seen = (String, Vec<(String, String)>, Option<Arc<Value>>);

/// Responds with the webhook id and the length of the body; records the requests.
#[derive(Default)]
struct RecordingBackend {
    seen: Mutex<Vec<Seen>>,
    errors: Mutex<Vec<String>>,
}

impl Backend for RecordingBackend {
    fn call(&self, call: Call) {
        assert_ne!(call.webhook, "explosive", "an injected panic");
        self.seen.lock().unwrap().push((call.webhook.clone(), call.headers, call.peer));
        let _gone = match call.webhook.as_str() {
            "dropped" => Ok(()),
            "rejected" => {
                call.reply.send(Err(Rejection { status: 409, reason: "it is ambiguous".to_owned() }))
            }
            id => call.reply.send(Ok(format!("{{\"{id}\":{}}}", call.body.len()).into_bytes())),
        };
    }

    fn log_error(&self, text: String) {
        self.errors.lock().unwrap().push(text);
    }
}

async fn ask(backend: &Arc<RecordingBackend>, path: &str, request: Vec<u8>) -> String {
    let server =
        Server::without_listener(&Handle::current(), Arc::clone(backend) as Arc<dyn Backend>, path, 0);
    let (near, far) = StdStream::pair().unwrap();
    server.adopt(far, Some(Arc::new(Value::from("peer")))).unwrap();
    near.set_nonblocking(true).unwrap();
    let mut near = UnixStream::from_std(near).unwrap();
    near.write_all(&request).await.unwrap();
    let mut response = vec![];
    near.read_to_end(&mut response).await.unwrap();
    String::from_utf8(response).unwrap()
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-own-header: 1\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

#[tokio::test]
async fn a_request_is_answered_by_its_webhook() {
    let backend = Arc::new(RecordingBackend::default());
    let response = ask(&backend, "/some/", post("/some/a%20b/c", "12345")).await;
    assert!(
        response.starts_with("HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\n"),
        "{response}"
    );
    assert!(response.ends_with("\r\n\r\n{\"a b/c\":5}"), "{response}");
    let seen = backend.seen.lock().unwrap();
    assert_eq!(seen[0].2.as_deref(), Some(&Value::from("peer")));
    assert!(seen[0].1.contains(&("X-Own-Header".to_owned(), "1".to_owned())));
}

// contract: api 9.4
#[tokio::test]
async fn other_requests_are_rejected_with_a_reason() {
    let table = [
        ("/", post("/rejected", ""), "409 it is ambiguous"),
        ("/", post("/dropped", ""), "503 Service Unavailable"),
        ("/some", post("/some", ""), "404 Not Found"),
        ("/some", post("/other/x", ""), "404 Not Found"),
        ("/", b"GET /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(), "405 Method Not Allowed"),
    ];
    for (path, request, expected) in table {
        let response = ask(&Arc::default(), path, request).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {expected}\r\n")), "{response}");
    }
}

#[tokio::test]
async fn the_root_asks_the_webhook_without_a_name() {
    let response = ask(&Arc::default(), "", post("/", "")).await;
    assert!(response.ends_with("{\"\":0}"), "{response}");
}

#[tokio::test]
async fn too_long_bodies_are_rejected() {
    let head = format!(
        "POST /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        BODY_LIMIT + 1
    );
    let response = ask(&Arc::default(), "/", head.into_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
}

#[tokio::test]
async fn too_long_chunked_bodies_are_rejected() {
    let mut request =
        b"POST /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    request.extend(format!("{:x}\r\n", BODY_LIMIT + 1).into_bytes());
    request.resize(request.len() + BODY_LIMIT + 1, b'x');
    request.extend(b"\r\n0\r\n\r\n");
    let backend = Arc::new(RecordingBackend::default());
    let server =
        Server::without_listener(&Handle::current(), Arc::clone(&backend) as Arc<dyn Backend>, "/", 0);
    let (near, far) = StdStream::pair().unwrap();
    server.adopt(far, None).unwrap();
    near.set_nonblocking(true).unwrap();
    let (mut reader, mut writer) = UnixStream::from_std(near).unwrap().into_split();
    // The server does not read all of the request and may close the connection first.
    let sending = tokio::spawn(async move { drop(writer.write_all(&request).await) });
    let mut response = vec![0; 13];
    reader.read_exact(&mut response).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&response), "HTTP/1.1 413 ");
    assert!(backend.seen.lock().unwrap().is_empty());
    sending.abort();
}

#[tokio::test(start_paused = true)]
async fn clients_that_send_no_complete_head_are_disconnected() {
    for begun in [b"".to_vec(), b"POST /x HTTP/1.1\r\nhost".to_vec()] {
        let backend = Arc::new(RecordingBackend::default());
        let response = ask(&backend, "/", begun).await;
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 408 "), "{response}");
        assert!(backend.seen.lock().unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_send_incomplete_bodies_are_disconnected() {
    let begun = b"POST /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 9\r\n\r\nabc".to_vec();
    let response = ask(&Arc::default(), "/", begun).await;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
}

#[tokio::test(start_paused = true)]
async fn clients_that_do_not_read_their_responses_are_disconnected() {
    let service = Service::new(Arc::new(RecordingBackend::default()), "/", 1);
    let (mut near, far) = tokio::io::duplex(64);
    let permit = service.connection_limit.try_enter().unwrap();
    let serving = tokio::spawn(serve_http(far, Arc::clone(&service), None, permit));
    let start = tokio::time::Instant::now();
    near.write_all(&post("/x", "12345")).await.unwrap();
    serving.await.unwrap();
    assert_eq!(start.elapsed(), ANSWER_TIMEOUT);
}

#[tokio::test]
async fn a_connection_beyond_the_limit_replaces_the_longest_idle_one() {
    const LIMIT: usize = 5;
    let service = Service::new(Arc::new(RecordingBackend::default()), "/", LIMIT);
    let server = Server { service, port: 0, runtime: Handle::current() };
    let mut clients = Vec::new();
    for _ in 0..=LIMIT {
        let (near, far) = StdStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        server.adopt(far, None).unwrap();
        clients.push(UnixStream::from_std(near).unwrap());
    }
    let mut nothing = vec![];
    clients.remove(0).read_to_end(&mut nothing).await.unwrap();
    assert_eq!(nothing, b"");
    // All others are served, the newest first; also those that were opened before it.
    for mut client in clients.into_iter().rev() {
        client.write_all(&post("/x", "12345")).await.unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    }
}

#[tokio::test]
async fn new_connections_wait_while_all_others_wait_for_responses() {
    let backend = Arc::new(ManualBackend::default());
    let service = Service::new(Arc::clone(&backend) as Arc<dyn Backend>, "/", 1);
    let listener = listener::listen(Some("127.0.0.1"), 0).unwrap();
    let address = listener.local_addr().unwrap();
    let serving =
        tokio::spawn(run_restarting(Acceptor { listener, service: Arc::clone(&service), tls: None }));
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(&post("/first", "1")).await.unwrap();
    let reply = backend.next().await;
    let mut second = TcpStream::connect(address).await.unwrap();
    second.write_all(&post("/second", "22")).await.unwrap();
    // The second request is not served before the first one has its response.
    reply.send(Ok(b"one".to_vec())).unwrap();
    let mut response = String::new();
    first.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with("one"), "{response}");
    backend.next().await.send(Ok(b"two".to_vec())).unwrap();
    response.clear();
    second.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with("two"), "{response}");
    service.stopping.cancel();
    serving.await.unwrap().unwrap();
}

/// Keeps the requests until the test responds to them.
#[derive(Default)]
struct ManualBackend {
    calls: Mutex<Vec<Call>>,
    added: tokio::sync::Notify,
}

impl ManualBackend {
    async fn next(&self) -> oneshot::Sender<Result<Vec<u8>, Rejection>> {
        loop {
            let call = self.calls.lock().unwrap().pop();
            match call {
                Some(call) => return call.reply,
                None => self.added.notified().await,
            }
        }
    }
}

impl Backend for ManualBackend {
    fn call(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
        self.added.notify_one();
    }

    fn log_error(&self, text: String) {
        panic!("{text}");
    }
}

#[tokio::test]
async fn a_panic_closes_its_connection_only_and_is_logged() {
    let backend = Arc::new(RecordingBackend::default());
    assert_eq!(ask(&backend, "/", post("/explosive", "1")).await, "");
    let errors = backend.errors.lock().unwrap().clone();
    let [error] = &errors[..] else { panic!("{errors:?}") };
    assert!(error.starts_with("A connection of the webhook server has panicked: "), "{error}");
    assert!(error.ends_with(". The connection is closed."), "{error}");
    assert!(ask(&backend, "/", post("/x", "1")).await.starts_with("HTTP/1.1 200 OK\r\n"));
}

/// Opens a connection and sends a request, without reading the response.
async fn request(server: &Server, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    stream.write_all(request).await.unwrap();
    stream
}

async fn read_all(mut stream: TcpStream) -> String {
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

fn listening(backend: &Arc<ManualBackend>) -> Server {
    let backend = Arc::clone(backend) as Arc<dyn Backend>;
    Server::start(&Handle::current(), backend, (Some("127.0.0.1"), 0), "", None).unwrap()
}

#[tokio::test]
async fn connections_are_accepted_again_after_a_panic() {
    let backend = Arc::new(RecordingBackend::default());
    let as_backend = Arc::clone(&backend) as Arc<dyn Backend>;
    let server = Server::start(&Handle::current(), as_backend, (Some("127.0.0.1"), 0), "", None).unwrap();
    listener::INJECTED_PANIC.set(true);
    let lost = request(&server, b"").await;
    assert_eq!(read_all(lost).await, "");
    let errors = backend.errors.lock().unwrap().clone();
    assert_eq!(
        errors,
        ["The webhook server has panicked: an injected panic. It accepts connections again in 1 seconds."]
    );
    // It waits until it is accepted.
    let waiting = request(&server, &post("/x", "1")).await;
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    tokio::time::resume();
    assert!(read_all(waiting).await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_stopped_server_answers_its_requests_and_leaves_no_task() {
    let backend = Arc::new(ManualBackend::default());
    let server = listening(&backend);
    let idle = request(&server, b"").await;
    let busy = request(&server, &post("/x", "1")).await;
    let reply = backend.next().await;
    let metrics = Handle::current().metrics();
    assert_eq!(metrics.num_alive_tasks(), 3);
    let mut joining = std::pin::pin!(server.join());
    assert!(joining.as_mut().now_or_never().is_none());
    assert_eq!(read_all(idle).await, "");
    reply.send(Ok(b"{}".to_vec())).unwrap();
    joining.await;
    assert_eq!(metrics.num_alive_tasks(), 0);
    assert!(read_all(busy).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_stopped_server_gives_up_requests_without_a_response() {
    let backend = Arc::new(ManualBackend::default());
    let server = listening(&backend);
    let busy = request(&server, &post("/x", "1")).await;
    let _unanswered = backend.next().await;
    tokio::time::pause();
    server.join().await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    assert_eq!(read_all(busy).await, "");
}

#[test]
fn header_names_are_capitalized() {
    assert_eq!(capitalized("user-agent"), "User-Agent");
    assert_eq!(capitalized("x--y"), "X--Y");
}

#[tokio::test]
async fn a_port_is_not_shared_with_another_server() {
    let start = |port| {
        let backend: Arc<dyn Backend> = Arc::new(RecordingBackend::default());
        Server::start(&Handle::current(), backend, (Some("127.0.0.1"), port), "", None)
    };
    let first = start(0).unwrap();
    assert_eq!(start(first.port()).err().unwrap().kind(), io::ErrorKind::AddrInUse);
}
