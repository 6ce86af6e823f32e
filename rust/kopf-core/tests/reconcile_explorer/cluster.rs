//! The API server: two primaries and one secondary object, with their watches.

/// The number of primaries.
pub const PRIMARIES: usize = 2;

/// A primary object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    pub version: u64,
    /// A digest of the parts whose changes count.
    pub content: u64,
    pub matches: bool,
    pub is_deleting: bool,
    pub has_finalizer: bool,
    /// The finalizer of another controller.
    pub has_foreign: bool,
}

/// The secondary object: owned by one of the primaries, applied by the operator, and changed by other clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    pub uid: u64,
    pub version: u64,
    pub owner: usize,
    /// Changed by other clients.
    pub content: u64,
    /// Applied by the operator.
    pub applied: u64,
}

/// An event of the watch of the secondary object.
#[derive(Clone, Debug)]
pub enum ChildEvent {
    State(Child),
    Deleted(u64),
}

/// An edit of the finalizer on its way to the server.
#[derive(Clone, Debug)]
pub struct Edit {
    pub adds: bool,
    /// The state for which it was decided.
    pub base: Primary,
    /// The run of the operator that sent it.
    pub run: u32,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub version: u64,
    pub primaries: [Option<Primary>; PRIMARIES],
    pub child: Option<Child>,
    /// Events that are not delivered yet: the index of the primary, its state or its deletion.
    pub primary_events: Vec<(usize, Option<Primary>)>,
    pub child_events: Vec<ChildEvent>,
    pub edits: [Option<Edit>; PRIMARIES],
    /// The finalizer that another controller has requested last: it must be as this controller has left it.
    pub foreign: [bool; PRIMARIES],
}

impl Cluster {
    pub fn new() -> Self {
        let primary = |version, matches| Primary {
            version,
            content: version,
            matches,
            is_deleting: false,
            has_finalizer: false,
            has_foreign: false,
        };
        Self {
            version: 2,
            primaries: [Some(primary(1, true)), Some(primary(2, true))],
            child: None,
            primary_events: Vec::new(),
            child_events: Vec::new(),
            edits: [None, None],
            foreign: [false; PRIMARIES],
        }
    }

    /// Changes a primary. An object that is being deleted and has no finalizer left is gone.
    pub fn change(&mut self, index: usize, change: impl FnOnce(&mut Primary)) {
        let Some(primary) = self.primaries[index].as_mut() else { return };
        let before = primary.clone();
        change(primary);
        if *primary == before {
            return;
        }
        self.version += 1;
        primary.version = self.version;
        if primary.is_deleting && !primary.has_finalizer && !primary.has_foreign {
            self.primaries[index] = None;
        }
        self.primary_events.push((index, self.primaries[index].clone()));
    }

    /// Changes or creates the secondary object. Returns it; nothing happens if nothing differs.
    pub fn change_child(&mut self, owner: usize, change: impl FnOnce(&mut Child)) -> Child {
        let before = self.child.clone();
        let mut child = before.clone().unwrap_or_else(|| {
            self.version += 1;
            Child { uid: self.version, version: self.version, owner, content: 0, applied: 0 }
        });
        change(&mut child);
        if before.as_ref() != Some(&child) {
            self.version += 1;
            child.version = self.version;
            self.child_events.push(ChildEvent::State(child.clone()));
        }
        self.child = Some(child.clone());
        child
    }

    pub fn delete_child(&mut self) {
        if let Some(child) = self.child.take() {
            self.version += 1;
            self.child_events.push(ChildEvent::Deleted(child.uid));
        }
    }
}
