//! Open connections of all servers in the process, for tests that wait until these are idle.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

static LISTENERS: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());
static CONNECTIONS: Mutex<Vec<Weak<Counts>>> = Mutex::new(Vec::new());

/// State of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenConnection {
    /// Address of the server.
    pub local: SocketAddr,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Number of bytes read so far.
    pub read: u64,
    /// Number of bytes written so far.
    pub written: u64,
    /// A write waits until the client reads.
    pub is_blocked: bool,
    /// Number of requests without a response.
    pub requests: usize,
    /// Number of open watches and other streams.
    pub streams: usize,
}

/// Addresses of the servers that accept connections.
pub fn listeners() -> Vec<SocketAddr> {
    lock(&LISTENERS).clone()
}

/// Open connections of all servers.
pub fn open_connections() -> Vec<OpenConnection> {
    let mut connections = lock(&CONNECTIONS);
    connections.retain(|counts| counts.strong_count() > 0);
    connections.iter().filter_map(Weak::upgrade).map(|counts| counts.state()).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address that accepts connections, until this is dropped.
pub(crate) struct Listening(SocketAddr);

impl Listening {
    pub(crate) fn new(address: SocketAddr) -> Self {
        lock(&LISTENERS).push(address);
        Self(address)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&LISTENERS).retain(|address| *address != self.0);
    }
}

/// Counts of one connection; it counts as open until they are dropped.
#[derive(Debug)]
pub(crate) struct Counts {
    local: SocketAddr,
    peer: SocketAddr,
    read: AtomicU64,
    written: AtomicU64,
    is_blocked: AtomicBool,
    requests: AtomicUsize,
    streams: AtomicUsize,
}

impl Counts {
    pub(crate) fn new(local: SocketAddr, peer: SocketAddr) -> Arc<Self> {
        let counts = Arc::new(Self {
            local,
            peer,
            read: AtomicU64::default(),
            written: AtomicU64::default(),
            is_blocked: AtomicBool::default(),
            requests: AtomicUsize::default(),
            streams: AtomicUsize::default(),
        });
        let mut connections = lock(&CONNECTIONS);
        connections.retain(|known| known.strong_count() > 0);
        connections.push(Arc::downgrade(&counts));
        drop(connections);
        counts
    }

    /// Counts a request until the guard is dropped.
    pub(crate) fn request(self: &Arc<Self>) -> Counted {
        Counted::new(self, |counts| &counts.requests)
    }

    /// Counts a stream until the guard is dropped.
    pub(crate) fn stream(self: &Arc<Self>) -> Counted {
        Counted::new(self, |counts| &counts.streams)
    }

    fn state(&self) -> OpenConnection {
        OpenConnection {
            local: self.local,
            peer: self.peer,
            read: self.read.load(Ordering::Acquire),
            written: self.written.load(Ordering::Acquire),
            is_blocked: self.is_blocked.load(Ordering::Acquire),
            requests: self.requests.load(Ordering::Acquire),
            streams: self.streams.load(Ordering::Acquire),
        }
    }
}

/// A request or a stream of a connection, until this is dropped.
pub(crate) struct Counted {
    counts: Arc<Counts>,
    number: fn(&Counts) -> &AtomicUsize,
}

impl Counted {
    fn new(counts: &Arc<Counts>, number: fn(&Counts) -> &AtomicUsize) -> Self {
        number(counts).fetch_add(1, Ordering::AcqRel);
        Self { counts: counts.clone(), number }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.number)(&self.counts).fetch_sub(1, Ordering::AcqRel);
    }
}

/// TCP connection that counts its bytes.
pub(crate) struct CountedStream {
    stream: TcpStream,
    counts: Arc<Counts>,
}

impl CountedStream {
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        let counts = Counts::new(stream.local_addr()?, peer);
        Ok(Self { stream, counts })
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    fn record_write(&self, written: &Poll<io::Result<usize>>) {
        self.counts.is_blocked.store(written.is_pending(), Ordering::Release);
        if let Poll::Ready(Ok(bytes)) = written {
            self.counts.written.fetch_add(*bytes as u64, Ordering::AcqRel);
        }
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.counts.read.fetch_add((buffer.filled().len() - before) as u64, Ordering::AcqRel);
        read
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.record_write(&written);
        written
    }
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        this.record_write(&written);
        written
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn state_of(peer: SocketAddr) -> Option<OpenConnection> {
        open_connections().into_iter().find(|connection| connection.peer == peer)
    }

    #[tokio::test]
    async fn connections_are_counted_until_they_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let mut stream = CountedStream::new(stream, peer).unwrap();
        client.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        stream.write_all(b"good morning").await.unwrap();
        let state = state_of(peer).unwrap();
        assert_eq!((state.local, state.read, state.written, state.is_blocked), (address, 5, 12, false));
        drop(stream);
        assert_eq!(state_of(peer), None);
    }

    #[tokio::test]
    async fn a_write_is_blocked_until_the_client_reads() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let mut stream = CountedStream::new(stream, peer).unwrap();
        let large = vec![0; 64 * 1024 * 1024];
        let writing = tokio::spawn(async move {
            stream.write_all(&large).await.unwrap();
            stream
        });
        while !state_of(peer).unwrap().is_blocked {
            tokio::task::yield_now().await;
        }
        let mut received = 0;
        let mut buffer = vec![0; 1024 * 1024];
        while received < 64 * 1024 * 1024 {
            received += client.read(&mut buffer).await.unwrap();
        }
        let _open = writing.await.unwrap();
        assert!(!state_of(peer).unwrap().is_blocked);
    }

    #[test]
    fn requests_and_streams_are_counted_until_they_end() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let counts = Counts::new(address, address);
        let (request, stream) = (counts.request(), counts.stream());
        assert_eq!((counts.state().requests, counts.state().streams), (1, 1));
        drop(request);
        assert_eq!((counts.state().requests, counts.state().streams), (0, 1));
        drop(stream);
        assert_eq!(counts.state().streams, 0);
    }

    #[test]
    fn closed_connections_are_forgotten() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let closed = Arc::downgrade(&Counts::new(address, address));
        let _open = Counts::new(address, address);
        assert!(lock(&CONNECTIONS).iter().all(|known| !known.ptr_eq(&closed)));
    }

    #[test]
    fn listeners_are_known_until_they_are_closed() {
        let address = SocketAddr::from(([127, 0, 0, 1], 2));
        let listening = Listening::new(address);
        assert!(listeners().contains(&address));
        drop(listening);
        assert!(!listeners().contains(&address));
    }
}
