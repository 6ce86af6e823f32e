//! TCP connections that count their bytes for tests in virtual time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use super::happy_eyeballs;
use crate::time::clock::Clock;
use crate::time::traffic::Traffic;

/// Opens TCP connections.
#[derive(Clone)]
pub(super) struct MeteredConnector {
    tcp: HttpConnector,
    clock: Clock,
}

impl MeteredConnector {
    /// A connector whose connections are counted if the clock follows virtual time.
    pub(super) fn new(tcp: HttpConnector, clock: Clock) -> Self {
        Self { tcp, clock }
    }
}

impl Service<Uri> for MeteredConnector {
    type Response = TokioIo<Metered>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, clock) = (happy_eyeballs::connect(self.tcp.clone(), uri), self.clock.clone());
        async move { Ok(TokioIo::new(Metered::new(connecting.await?, &clock))) }.boxed()
    }
}

/// A TCP connection, with its counts if virtual time is in use.
pub(super) struct Metered {
    stream: TcpStream,
    traffic: Option<Arc<Traffic>>,
}

impl Metered {
    fn new(stream: TcpStream, clock: &Clock) -> Self {
        let addresses = stream.local_addr().and_then(|local| Ok((local, stream.peer_addr()?)));
        let traffic = addresses.ok().and_then(|(local, peer)| clock.connected(local, peer));
        Self { stream, traffic }
    }

    fn record_write(&self, written: &Poll<io::Result<usize>>) {
        if let Some(traffic) = &self.traffic {
            match written {
                Poll::Pending => traffic.record_write(None),
                Poll::Ready(result) => traffic.record_write(Some(*result.as_ref().unwrap_or(&0))),
            }
        }
    }
}

impl Connection for Metered {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        if let Some(traffic) = &this.traffic {
            traffic.record_read(buffer.filled().len() - before, context.waker());
        }
        read
    }
}

impl AsyncWrite for Metered {
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
