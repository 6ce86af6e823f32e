//! The API server: one Lease, and the requests and responses on their way.

use kopf_core::lease::{Input, Lease, Record, Unavailable, WriteError};

/// A request to the Lease.
#[derive(Clone, Debug)]
pub enum Request {
    Read,
    Create(Record),
    Update { version: String, record: Record },
}

/// A request on its way to the server.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: u64,
    pub process: usize,
    pub request: Request,
}

/// A response on its way to the process.
#[derive(Clone, Debug)]
pub struct Reply {
    pub id: u64,
    pub process: usize,
    pub input: Input,
}

#[derive(Clone, Debug, Default)]
pub struct Server {
    pub lease: Option<Lease>,
    /// All states so far, for late watch events.
    pub history: Vec<Option<Lease>>,
    pub messages: Vec<Message>,
    pub replies: Vec<Reply>,
    pub last_id: u64,
    pub compares_no_versions: bool,
}

impl Server {
    /// Executes the request so many times. The response is that of the last execution.
    pub fn execute(&mut self, position: usize, times: usize) {
        let message = self.messages.remove(position);
        for remaining in (0..times).rev() {
            let input = self.respond(&message.request);
            if remaining == 0 {
                self.replies.push(Reply { id: message.id, process: message.process, input });
            }
        }
    }

    /// Rejects the request.
    pub fn reject(&mut self, position: usize) {
        let message = self.messages.remove(position);
        let input = match message.request {
            Request::Read => Input::Read(Err(Unavailable)),
            _ => Input::Written(Err(WriteError::Rejected)),
        };
        self.replies.push(Reply { id: message.id, process: message.process, input });
    }

    fn respond(&mut self, request: &Request) -> Input {
        let record = match (request, &self.lease) {
            (Request::Read, lease) => return Input::Read(Ok(lease.clone())),
            (Request::Create(record), None) => record,
            (Request::Update { version, record }, Some(lease))
                if *version == lease.version || self.compares_no_versions =>
            {
                record
            }
            _ => return Input::Written(Err(WriteError::Conflict)),
        };
        let version = (self.history.len() + 1).to_string();
        self.lease = Some(Lease { version: version.clone(), record: record.clone() });
        self.history.push(self.lease.clone());
        Input::Written(Ok(version))
    }
}
