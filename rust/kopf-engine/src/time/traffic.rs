//! Bytes between clients and servers of one process, for tests that wait until all of them are delivered.
//!
//! A byte is in transit from the write of one end until the read of the other one: in between, it belongs to the kernel, which
//! delivers it later on a busy machine. So both ends count, and the counts are compared.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

/// The waker of a task that only looks whether a connection is broken, and does not wait for data. Connections are compared
/// with this very waker, so others like it do not count.
pub(crate) static NO_TASK: &Waker = Waker::noop();

/// The counts of one client connection.
#[derive(Debug)]
pub struct Traffic {
    local: SocketAddr,
    peer: SocketAddr,
    read: AtomicU64,
    written: AtomicU64,
    is_blocked: AtomicBool,
    is_pooled: AtomicBool,
}

/// One end of a connection at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    /// The address of this end.
    pub local: SocketAddr,
    /// The address of the other end.
    pub peer: SocketAddr,
    /// The number of bytes read so far.
    pub read: u64,
    /// The number of bytes written so far.
    pub written: u64,
    /// Whether a write waits for space.
    pub is_blocked: bool,
    /// Whether it is unused: no task waits for data.
    pub is_pooled: bool,
}

impl Traffic {
    pub(super) fn new(local: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            local,
            peer,
            read: AtomicU64::default(),
            written: AtomicU64::default(),
            is_blocked: AtomicBool::default(),
            is_pooled: AtomicBool::default(),
        }
    }

    /// Records a read with this result, by the task of the waker.
    pub(crate) fn record_read(&self, bytes: usize, waker: &Waker) {
        self.is_pooled.store(waker.will_wake(NO_TASK), Ordering::Release);
        self.read.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    /// Records a write; none: it waits for space.
    pub(crate) fn record_write(&self, bytes: Option<usize>) {
        self.is_blocked.store(bytes.is_none(), Ordering::Release);
        self.written.fetch_add(bytes.unwrap_or_default() as u64, Ordering::AcqRel);
    }

    /// The state of the connection.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            local: self.local,
            peer: self.peer,
            read: self.read.load(Ordering::Acquire),
            written: self.written.load(Ordering::Acquire),
            is_blocked: self.is_blocked.load(Ordering::Acquire),
            is_pooled: self.is_pooled.load(Ordering::Acquire),
        }
    }
}

/// Describes what is in transit between these clients and servers of one process; `listeners` are the addresses of the servers.
pub fn in_transit(clients: &[Endpoint], servers: &[Endpoint], listeners: &[SocketAddr]) -> Vec<String> {
    clients.iter().filter_map(|client| pending_of(client, servers, listeners)).collect()
}

/// The ends of servers whose clients are others: in other processes, or with other libraries.
pub fn without_clients<'e>(
    servers: &'e [Endpoint],
    clients: &'e [Endpoint],
) -> impl Iterator<Item = usize> + 'e {
    let is_known = |server: &Endpoint| clients.iter().any(|client| is_pair(client, server));
    servers.iter().enumerate().filter(move |(_, server)| !is_known(server)).map(|(index, _)| index)
}

fn is_pair(client: &Endpoint, server: &Endpoint) -> bool {
    client.local == server.peer && client.peer == server.local
}

fn pending_of(client: &Endpoint, servers: &[Endpoint], listeners: &[SocketAddr]) -> Option<String> {
    let address = client.local;
    let Some(server) = servers.iter().find(|server| is_pair(client, server)) else {
        // It is not accepted yet, or closed by the server.
        let is_expected = listeners.contains(&client.peer) && !client.is_pooled;
        return is_expected.then(|| format!("the start or end of the client connection {address}"));
    };
    let unread = |written: u64, read: u64| written.saturating_sub(read);
    let to_server = unread(client.written, server.read);
    let to_client = if client.is_pooled { 0 } else { unread(server.written, client.read) };
    if to_server > 0 {
        return Some(format!("{to_server} bytes from the client connection {address} to the server"));
    }
    if to_client > 0 {
        return Some(format!("{to_client} bytes from the server to the client connection {address}"));
    }
    (client.is_blocked || server.is_blocked).then(|| format!("a write of the client connection {address}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn pair(sent: u64, received: u64) -> (Endpoint, Endpoint) {
        let client = Endpoint {
            local: address(5000),
            peer: address(6443),
            read: received,
            written: sent,
            is_blocked: false,
            is_pooled: false,
        };
        let server =
            Endpoint { local: client.peer, peer: client.local, read: sent, written: received, ..client };
        (client, server)
    }

    fn pending(client: Endpoint, server: Endpoint) -> Vec<String> {
        in_transit(&[client], &[server], &[address(6443)])
    }

    #[test]
    fn nothing_is_in_transit_if_everything_written_is_read() {
        let (client, server) = pair(10, 20);
        assert!(pending(client, server).is_empty());
    }

    #[test]
    fn bytes_are_in_transit_until_the_other_end_reads_them() {
        let (client, server) = pair(10, 20);
        let to_server = pending(client, Endpoint { read: 7, ..server });
        assert_eq!(to_server, ["3 bytes from the client connection 127.0.0.1:5000 to the server"]);
        let to_client = pending(Endpoint { read: 15, ..client }, server);
        assert_eq!(to_client, ["5 bytes from the server to the client connection 127.0.0.1:5000"]);
    }

    #[test]
    fn a_write_that_waits_for_space_is_in_transit() {
        let (client, server) = pair(10, 20);
        assert_eq!(pending(Endpoint { is_blocked: true, ..client }, server).len(), 1);
        assert_eq!(pending(client, Endpoint { is_blocked: true, ..server }).len(), 1);
    }

    #[test]
    fn a_connection_that_only_one_end_knows_is_in_transit() {
        let (client, _) = pair(10, 20);
        assert_eq!(in_transit(&[client], &[], &[address(6443)]).len(), 1);
        assert!(in_transit(&[client], &[], &[]).is_empty(), "the server is in another process");
    }

    #[test]
    fn unused_connections_ignore_their_end() {
        let (client, server) = pair(10, 20);
        let pooled = Endpoint { is_pooled: true, ..client };
        assert!(pending(pooled, Endpoint { written: 44, ..server }).is_empty());
        assert!(in_transit(&[pooled], &[], &[address(6443)]).is_empty());
        assert_eq!(pending(pooled, Endpoint { read: 9, ..server }).len(), 1, "a request was written");
    }

    #[test]
    fn other_clients_are_known_as_such() {
        let (client, server) = pair(10, 20);
        let foreign = Endpoint { peer: address(7000), ..server };
        assert_eq!(without_clients(&[server, foreign], &[client]).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_connection_is_pooled_while_no_task_waits_for_data() {
        let traffic = Traffic::new(address(5000), address(6443));
        assert!(!traffic.endpoint().is_pooled);
        traffic.record_read(3, NO_TASK);
        assert!(traffic.endpoint().is_pooled && traffic.endpoint().read == 3);
        traffic.record_read(0, futures::task::noop_waker_ref());
        assert!(!traffic.endpoint().is_pooled);
        traffic.record_write(None);
        assert!(traffic.endpoint().is_blocked);
        traffic.record_write(Some(5));
        assert!(!traffic.endpoint().is_blocked && traffic.endpoint().written == 5);
    }
}
