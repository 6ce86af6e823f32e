//! The write timeout of a connection: the client must read all of a response within it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Starts when a write first blocks, and ends when everything is flushed; partial progress does not reset it. Writes
/// that do not block need no timer.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    /// A stream with this write timeout.
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, waiting: None }
    }

    /// Passes the result of the write on, or fails when the timeout expires.
    fn wait<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            return polled;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, data);
        self.wait(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wait(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.waiting = None;
        }
        self.wait(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.wait(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_a_timeout() {
        let (near, _far) = duplex(16);
        let mut near = WriteTimeout::new(near, LIMIT);
        let start = tokio::time::Instant::now();
        let error = near.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_single_bytes_is_a_timeout() {
        let (near, mut far) = duplex(16);
        let reading = tokio::spawn(async move {
            let mut count = 0;
            while far.read_u8().await.is_ok() {
                count += 1;
                sleep(Duration::from_millis(700)).await;
            }
            count
        });
        let mut near = WriteTimeout::new(near, LIMIT);
        let start = tokio::time::Instant::now();
        assert!(near.write_all(&[0; 100]).await.is_err());
        assert_eq!(start.elapsed(), LIMIT);
        drop(near);
        assert!((40..70).contains(&reading.await.unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn each_response_has_a_separate_timeout() {
        let (near, mut far) = duplex(16);
        let reading = tokio::spawn(async move {
            let mut seen = 0;
            let mut some = [0; 16];
            while let Ok(length @ 1..) = far.read(&mut some).await {
                seen += length;
                sleep(Duration::from_secs(5)).await;
            }
            seen
        });
        let mut near = WriteTimeout::new(near, LIMIT);
        for _ in 0..5 {
            near.write_all(&[0; 64]).await.unwrap();
            near.flush().await.unwrap();
        }
        drop(near);
        assert_eq!(reading.await.unwrap(), 320);
    }
}
