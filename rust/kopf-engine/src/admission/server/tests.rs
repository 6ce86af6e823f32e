//! The server of webhooks as its clients see it.

use std::os::unix::net::UnixStream as StdStream;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// The webhook, the headers, the client's certificate.
type Seen = (String, Vec<(String, String)>, Option<Arc<Value>>);

/// Answers with the id of the webhook and the length of the body; keeps what it was asked.
#[derive(Default)]
struct Echo {
    seen: Mutex<Vec<Seen>>,
}

impl Backend for Echo {
    fn call(&self, call: Call) {
        self.seen.lock().unwrap().push((call.webhook.clone(), call.headers, call.peer));
        let _gone = match call.webhook.as_str() {
            "dropped" => Ok(()),
            "refused" => {
                call.reply.send(Err(Rejection { status: 409, reason: "it is ambiguous".to_owned() }))
            }
            id => call.reply.send(Ok(format!("{{\"{id}\":{}}}", call.body.len()).into_bytes())),
        };
    }
}

async fn ask(backend: &Arc<Echo>, path: &str, request: Vec<u8>) -> String {
    let server =
        Server::without_listener(&Handle::current(), Arc::clone(backend) as Arc<dyn Backend>, path, 0);
    let (near, far) = StdStream::pair().unwrap();
    server.adopt(far, Some(Arc::new(Value::from("peer")))).unwrap();
    near.set_nonblocking(true).unwrap();
    let mut near = UnixStream::from_std(near).unwrap();
    near.write_all(&request).await.unwrap();
    let mut answer = vec![];
    near.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-own-header: 1\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

#[tokio::test]
async fn a_request_is_answered_by_its_webhook() {
    let echo = Arc::new(Echo::default());
    let answer = ask(&echo, "/some/", post("/some/a%20b/c", "12345")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\n{\"a b/c\":5}"), "{answer}");
    let seen = echo.seen.lock().unwrap();
    assert_eq!(seen[0].2.as_deref(), Some(&Value::from("peer")));
    assert!(seen[0].1.contains(&("X-Own-Header".to_owned(), "1".to_owned())));
}

#[tokio::test]
async fn what_is_not_a_review_is_refused_with_a_reason() {
    let table = [
        ("/", post("/refused", ""), "409 it is ambiguous"),
        ("/", post("/dropped", ""), "503 Service Unavailable"),
        ("/some", post("/some", ""), "404 Not Found"),
        ("/some", post("/other/x", ""), "404 Not Found"),
        ("/", b"GET /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(), "405 Method Not Allowed"),
    ];
    for (path, request, expected) in table {
        let answer = ask(&Arc::default(), path, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}\r\n")), "{answer}");
    }
}

#[tokio::test]
async fn the_root_asks_the_webhook_without_a_name() {
    let answer = ask(&Arc::default(), "", post("/", "")).await;
    assert!(answer.ends_with("{\"\":0}"), "{answer}");
}

#[tokio::test]
async fn too_long_bodies_are_refused() {
    let head = format!(
        "POST /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        BODY_LIMIT + 1
    );
    let answer = ask(&Arc::default(), "/", head.into_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn too_long_bodies_are_refused_also_if_their_length_is_not_told() {
    let mut request =
        b"POST /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    request.extend(format!("{:x}\r\n", BODY_LIMIT + 1).into_bytes());
    request.resize(request.len() + BODY_LIMIT + 1, b'x');
    request.extend(b"\r\n0\r\n\r\n");
    let echo = Arc::new(Echo::default());
    let server = Server::without_listener(&Handle::current(), Arc::clone(&echo) as Arc<dyn Backend>, "/", 0);
    let (near, far) = StdStream::pair().unwrap();
    server.adopt(far, None).unwrap();
    near.set_nonblocking(true).unwrap();
    let (mut reader, mut writer) = UnixStream::from_std(near).unwrap().into_split();
    // The server does not read all of it: it may hang up first.
    let sending = tokio::spawn(async move { drop(writer.write_all(&request).await) });
    let mut answer = vec![0; 13];
    reader.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 413 ");
    assert!(echo.seen.lock().unwrap().is_empty());
    sending.abort();
}

#[tokio::test(start_paused = true)]
async fn clients_that_send_no_head_are_let_go() {
    for begun in [b"".to_vec(), b"POST /x HTTP/1.1\r\nhost".to_vec()] {
        let echo = Arc::new(Echo::default());
        let answer = ask(&echo, "/", begun).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(echo.seen.lock().unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_do_not_finish_are_let_go() {
    let begun = b"POST /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 9\r\n\r\nabc".to_vec();
    let answer = ask(&Arc::default(), "/", begun).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn clients_that_do_not_read_their_answers_are_let_go() {
    let service = Service::new(Arc::new(Echo::default()), "/", 1);
    let (mut near, far) = tokio::io::duplex(64);
    let permit = service.connection_limit.try_enter().unwrap();
    let conversation = tokio::spawn(serve_http(far, Arc::clone(&service), None, permit));
    let start = tokio::time::Instant::now();
    near.write_all(&post("/x", "12345")).await.unwrap();
    conversation.await.unwrap();
    assert_eq!(start.elapsed(), ANSWER_TIMEOUT);
}

#[tokio::test]
async fn a_connection_too_many_takes_the_place_of_the_one_that_is_silent_for_the_longest_time() {
    const ROOM: usize = 5;
    let service = Service::new(Arc::new(Echo::default()), "/", ROOM);
    let server = Server { service, port: 0, runtime: Handle::current() };
    let mut callers = Vec::new();
    for _ in 0..=ROOM {
        let (near, far) = StdStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        server.adopt(far, None).unwrap();
        callers.push(UnixStream::from_std(near).unwrap());
    }
    let mut nothing = vec![];
    callers.remove(0).read_to_end(&mut nothing).await.unwrap();
    assert_eq!(nothing, b"");
    // All others are answered, the newest first; also those that were there before it.
    for mut caller in callers.into_iter().rev() {
        caller.write_all(&post("/x", "12345")).await.unwrap();
        let mut answer = String::new();
        caller.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn newcomers_wait_while_all_others_wait_for_their_answers() {
    let admission_router = Arc::new(Pile::default());
    let service = Service::new(Arc::clone(&admission_router) as Arc<dyn Backend>, "/", 1);
    let listener = listen_at(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(accept(listener, Arc::clone(&service), None));
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(&post("/first", "1")).await.unwrap();
    let reply = admission_router.next().await;
    let mut second = TcpStream::connect(address).await.unwrap();
    second.write_all(&post("/second", "22")).await.unwrap();
    // It is not served before the first one has its answer.
    reply.send(Ok(b"one".to_vec())).unwrap();
    let mut answer = String::new();
    first.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("one"), "{answer}");
    admission_router.next().await.send(Ok(b"two".to_vec())).unwrap();
    answer.clear();
    second.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("two"), "{answer}");
    service.stopping.cancel();
    serving.await.unwrap();
}

/// Keeps the requests, until the test answers them.
#[derive(Default)]
struct Pile {
    calls: Mutex<Vec<Call>>,
    news: tokio::sync::Notify,
}

impl Pile {
    async fn next(&self) -> oneshot::Sender<Result<Vec<u8>, Rejection>> {
        loop {
            let call = self.calls.lock().unwrap().pop();
            match call {
                Some(call) => return call.reply,
                None => self.news.notified().await,
            }
        }
    }
}

impl Backend for Pile {
    fn call(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
        self.news.notify_one();
    }
}

#[test]
fn names_of_headers_are_written_as_usual() {
    assert_eq!(capitalized("user-agent"), "User-Agent");
    assert_eq!(capitalized("x--y"), "X--Y");
}

#[tokio::test]
async fn a_port_is_not_shared_with_another_server() {
    let start = |port| {
        let backend: Arc<dyn Backend> = Arc::new(Echo::default());
        Server::start(&Handle::current(), backend, (Some("127.0.0.1"), port), "", None)
    };
    let first = start(0).unwrap();
    assert_eq!(start(first.port()).err().unwrap().kind(), io::ErrorKind::AddrInUse);
}
