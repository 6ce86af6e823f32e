//! The listening socket of the server, and the task that accepts connections.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::time::sleep;

use super::{Service, serve_connection};
use crate::admission::tls::Tls;
use crate::error::Failure;
use crate::supervision::{Panicked, Restartable};

/// The pause after a failed accept, when the system has no resources for more connections.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// An API server sends some hundreds of reviews at once. Clients that do not fit are delayed by a second.
const BACKLOG: u32 = 1024;

#[cfg(test)]
thread_local! {
    /// Whether the task panics when it accepts the next connection.
    pub(super) static INJECTED_PANIC: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Listens on an address, or on all interfaces.
pub(super) fn listen(address: Option<&str>, port: u16) -> io::Result<TcpListener> {
    let Some(address) = address else {
        // One socket serves both address families if the system supports both.
        let everywhere: [SocketAddr; 2] = [([0_u16; 8], port).into(), ([0_u8; 4], port).into()];
        return listen_at(everywhere[0]).or_else(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Err(error),
            _ => listen_at(everywhere[1]),
        });
    };
    let mut failure =
        io::Error::new(io::ErrorKind::AddrNotAvailable, format!("no such address: {address:?}"));
    for address in (address, port).to_socket_addrs()? {
        match listen_at(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted operator can listen at once, although connections of the previous process have not expired.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until the server stops.
pub(super) struct Acceptor {
    pub(super) listener: TcpListener,
    pub(super) service: Arc<Service>,
    pub(super) tls: Option<Arc<Tls>>,
}

impl Restartable for Acceptor {
    fn name(&self) -> String {
        "The webhook server".to_owned()
    }

    async fn run(&mut self) -> Result<(), Failure> {
        accept(&self.listener, &self.service, self.tls.as_ref()).await;
        Ok(())
    }

    fn on_panic(&mut self, panicked: Panicked, delay: f64) -> Result<(), Failure> {
        let text = format!("{panicked}. It accepts connections again in {delay} seconds.");
        self.service.backend.log_error(text);
        Ok(())
    }
}

async fn accept(listener: &TcpListener, service: &Arc<Service>, tls: Option<&Arc<Tls>>) {
    let mut is_exhausted = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = service.stopping.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                is_exhausted = false;
                #[cfg(test)]
                assert!(!INJECTED_PANIC.take(), "an injected panic");
                let permit = tokio::select! {
                    permit = service.connection_limit.enter() => permit,
                    () = service.stopping.cancelled() => return,
                };
                let serving = serve_connection(stream, Arc::clone(service), tls.cloned(), permit);
                service.tasks.spawn(service.cancellable(service.guard(serving)));
            }
            // The client has closed the connection already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            // Most likely, the process is out of descriptors.
            Err(error) => {
                if !is_exhausted {
                    let text = format!("The webhook server cannot accept connections for now: {error}");
                    service.backend.log_error(text);
                }
                is_exhausted = true;
                sleep(EXHAUSTED_PAUSE).await;
            }
        }
    }
}
